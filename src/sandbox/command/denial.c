/* Denials as JSON and as sentences: see denial.h. */
#include "sandbox/command/denial.h"

#include <sched.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>

#include "base/json.h"
#include "base/text.h"
#include "sandbox/inside/access.h"
#include "sandbox/setid.h"

/* The most bytes of further paths in a sentence, and the most that are counted in it. */
#define OTHERS_MAX 60u
#define EXACT_MAX  50

int cg_denial_recv(int fd, struct cg_sandbox_denial *ret)
{
        ssize_t n = recv(fd, ret, sizeof(*ret), MSG_DONTWAIT);

        if (n < 0 && (errno == EAGAIN || errno == EINTR))
                return CG_TIMEOUT;
        if (n != (ssize_t)sizeof(*ret) || ret->magic != CG_SANDBOX_DENIAL_MAGIC)
                return CG_CLOSED;
        ret->name[sizeof(ret->name) - 1] = ret->path[sizeof(ret->path) - 1] = '\0';
        return 0;
}

/* ---- system calls */

enum kind {
        SOCKETS,
        NAMESPACES,
        MOUNTS,
        PROCESSES,
        TERMINALS,
        ATTRIBUTES,
        SHARED,
        TCP,
        SETID,
        LEASES,
        COPIES,
        PROGRAMS,
        KERNEL
};

static const struct {
        const char *operation;
        const char *why;
        const char *how; /* a command's; a kernel has none of these settings */
} kinds[] = {
        [SOCKETS] = { "socket", "sockets other than TCP and UDP lead out of the sandbox", NULL },
        [NAMESPACES] = { "namespace",
                         "namespaces of their own would give programs rights that the sandbox takes away",
                         "set allowNestedUserNamespaces" },
        [MOUNTS] = { "mount", "the view of the file system was fixed before the program started",
                     "set allowNestedUserNamespaces" },
        [PROCESSES] = { "process",
                        "other processes' memory, registers and descriptors are out of reach, and so are the limits and priorities of "
                        "processes that are not the program's",
                        NULL },
        [TERMINALS] = { "terminal",
                        "it would insert input into a terminal, or change its settings, for programs outside",
                        NULL },
        /* of the landlock tier */
        [ATTRIBUTES] = { "file-write",
                         "modes, owners and times of files can be changed only where the files may be written",
                         "add it to filesystem.allowWrite" },
        [SHARED] = { "process",
                     "memory, queues and semaphores of this kind are shared with the host's programs, since the landlock tier has "
                     "no ipc namespace",
                     "use the full tier" },
        [TCP] = { "socket",
                  "only the proxy connects in the landlock tier, which has no network of its own: programs must use what "
                  "HTTPS_PROXY names, and cannot listen",
                  "use the full tier" },
        [SETID] = { "file-write",
                    "a file with the set-user-id or set-group-ID bit gives other users of this machine the rights of whoever runs "
                    "the sandbox",
                    NULL },
        [LEASES] = { "process", "a lease on a file has the programs outside wait that open it", NULL },
        [COPIES] = { "file-write",
                     "it makes or removes folders with all that is in them, past every check of their names",
                     NULL },
        [PROGRAMS] = { "exec", CG_ACCESS_PROGRAMS_WHY, NULL },
        [KERNEL] = { "kernel", "this part of the operating system is not for programs in a sandbox", NULL },
};

#define CALL(name, kind) \
        { \
                SYS_##name, #name, kind \
        }
/* System calls not listed here are reported as KERNEL, with their number. */
static const struct {
        long nr;
        const char *name;
        enum kind kind;
} calls[] = {
        CALL(socket, SOCKETS),
        CALL(socketpair, SOCKETS),
        CALL(connect, SOCKETS),
        CALL(clone, NAMESPACES),
        CALL(unshare, NAMESPACES),
        CALL(setns, NAMESPACES),
        CALL(mount, MOUNTS),
        CALL(umount2, MOUNTS),
        CALL(pivot_root, MOUNTS),
        CALL(chroot, MOUNTS),
        CALL(open_tree, MOUNTS),
        CALL(move_mount, MOUNTS),
        CALL(fsopen, MOUNTS),
        CALL(fsconfig, MOUNTS),
        CALL(fsmount, MOUNTS),
        CALL(fspick, MOUNTS),
        CALL(mount_setattr, MOUNTS),
        { 467, "open_tree_attr", MOUNTS },
        CALL(ptrace, PROCESSES),
        CALL(process_vm_readv, PROCESSES),
        CALL(process_vm_writev, PROCESSES),
        CALL(pidfd_getfd, PROCESSES),
        CALL(kcmp, PROCESSES),
        CALL(process_madvise, PROCESSES),
        CALL(prlimit64, PROCESSES),
        CALL(ioctl, TERMINALS),
        CALL(fchmod, ATTRIBUTES),
        CALL(fchmodat, ATTRIBUTES),
        { 452, "fchmodat2", ATTRIBUTES },
        CALL(fchown, ATTRIBUTES),
        CALL(fchownat, ATTRIBUTES),
        CALL(utimensat, ATTRIBUTES),
#ifdef SYS_chmod
        CALL(chmod, ATTRIBUTES),
        CALL(chown, ATTRIBUTES),
        CALL(lchown, ATTRIBUTES),
#endif
#ifdef SYS_utime
        CALL(utime, ATTRIBUTES),
        CALL(utimes, ATTRIBUTES),
        CALL(futimesat, ATTRIBUTES),
#endif
        CALL(shmget, SHARED),
        CALL(shmat, SHARED),
        CALL(shmctl, SHARED),
        CALL(semget, SHARED),
        CALL(semop, SHARED),
        CALL(semctl, SHARED),
        CALL(msgget, SHARED),
        CALL(msgsnd, SHARED),
        CALL(msgrcv, SHARED),
        CALL(msgctl, SHARED),
        CALL(mq_open, SHARED),
        CALL(mq_unlink, SHARED),
        CALL(bind, TCP),
        CALL(listen, TCP),
        CALL(sched_setaffinity, PROCESSES),
        CALL(sched_setscheduler, PROCESSES),
        CALL(sched_setparam, PROCESSES),
        CALL(sched_setattr, PROCESSES),
        CALL(setpriority, PROCESSES),
        CALL(ioprio_set, PROCESSES),
        CALL(migrate_pages, PROCESSES),
        CALL(move_pages, PROCESSES),
        CALL(prctl, PROCESSES),
        CALL(fcntl, LEASES),
        CALL(execve, PROGRAMS),
        CALL(execveat, PROGRAMS),
        CALL(openat, SETID),
        CALL(mknodat, SETID),
#ifdef SYS_open
        CALL(open, SETID),
        CALL(creat, SETID),
        CALL(mknod, SETID),
#endif
        CALL(keyctl, KERNEL),
        CALL(add_key, KERNEL),
        CALL(request_key, KERNEL),
        CALL(open_by_handle_at, KERNEL),
        CALL(name_to_handle_at, KERNEL),
        CALL(bpf, KERNEL),
        CALL(perf_event_open, KERNEL),
        CALL(userfaultfd, KERNEL),
        CALL(fanotify_init, KERNEL),
        CALL(fanotify_mark, KERNEL),
        CALL(remap_file_pages, KERNEL),
        CALL(kexec_load, KERNEL),
        CALL(init_module, KERNEL),
        CALL(finit_module, KERNEL),
        CALL(delete_module, KERNEL),
        CALL(reboot, KERNEL),
        CALL(swapon, KERNEL),
        CALL(swapoff, KERNEL),
        CALL(acct, KERNEL),
        CALL(quotactl, KERNEL),
        CALL(syslog, KERNEL),
        CALL(vhangup, KERNEL),
        CALL(settimeofday, KERNEL),
        CALL(clock_settime, KERNEL),
        CALL(clock_adjtime, KERNEL),
        CALL(adjtimex, KERNEL),
        CALL(sethostname, KERNEL),
        CALL(setdomainname, KERNEL),
        CALL(personality, KERNEL),
        CALL(lookup_dcookie, KERNEL),
};

struct named {
        uint64_t value;
        const char *name;
};

static const struct named families[] = {
        { AF_UNIX, "AF_UNIX" },     { AF_INET, "AF_INET" },
        { AF_INET6, "AF_INET6" },   { AF_NETLINK, "AF_NETLINK" },
        { AF_PACKET, "AF_PACKET" }, { AF_ALG, "AF_ALG" },
        { AF_VSOCK, "AF_VSOCK" },   { AF_BLUETOOTH, "AF_BLUETOOTH" },
        { AF_CAN, "AF_CAN" },       { AF_XDP, "AF_XDP" },
        { AF_KEY, "AF_KEY" },
};

static const struct named types[] = {
        { SOCK_STREAM, "SOCK_STREAM" },
        { SOCK_DGRAM, "SOCK_DGRAM" },
        { SOCK_RAW, "SOCK_RAW" },
        { SOCK_SEQPACKET, "SOCK_SEQPACKET" },
};

static const struct named requests[] = {
        { TIOCSTI, "TIOCSTI" }, { TIOCLINUX, "TIOCLINUX" }, { TIOCSETD, "TIOCSETD" }, { TIOCEXCL, "TIOCEXCL" }
};
static const struct named commands[] = { { F_SETLEASE, "F_SETLEASE" } };
static const struct named setids[] = { { S_ISUID, "S_ISUID" },
                                       { S_ISGID, "S_ISGID" },
                                       { CG_SETID_BITS, "S_ISUID|S_ISGID" } };

static const struct named flags[] = {
        { CLONE_NEWUSER, "CLONE_NEWUSER" },     { CLONE_NEWNS, "CLONE_NEWNS" },
        { CLONE_NEWPID, "CLONE_NEWPID" },       { CLONE_NEWNET, "CLONE_NEWNET" },
        { CLONE_NEWIPC, "CLONE_NEWIPC" },       { CLONE_NEWUTS, "CLONE_NEWUTS" },
        { CLONE_NEWCGROUP, "CLONE_NEWCGROUP" },
};

static void add_name(char *buf, size_t size, const struct named *v, size_t n, uint64_t value)
{
        size_t len = strlen(buf);

        for (size_t i = 0; i < n; i++) {
                if (v[i].value == value) {
                        snprintf(buf + len, size - len, "%s", v[i].name);
                        return;
                }
        }
        snprintf(buf + len, size - len, "%llu", (unsigned long long)value);
}

/* "socket(AF_UNIX, SOCK_STREAM)": the arguments that the filter inspected, of 32 bits. */
static void describe_call(const struct cg_sandbox_denial *d, const char *name, char *buf, size_t size)
{
        unsigned int setid = cg_setid_asked(d->nr, d->args);
        const char *between = "";
        size_t len;

        if (name)
                snprintf(buf, size, "%s(", name);
        else
                snprintf(buf, size, "system call %d(", d->nr);
        if (d->nr == SYS_socket || d->nr == SYS_socketpair) {
                add_name(buf, size, families, CG_ARRAY_LEN(families), (uint32_t)d->args[0]);
                len = strlen(buf);
                snprintf(buf + len, size - len, ", ");
                add_name(buf, size, types, CG_ARRAY_LEN(types), (uint32_t)d->args[1] & 0xf);
        } else if (d->nr == SYS_clone || d->nr == SYS_unshare) {
                for (size_t i = 0; i < CG_ARRAY_LEN(flags); i++) {
                        len = strlen(buf);
                        if (!((uint32_t)d->args[0] & flags[i].value))
                                continue;
                        snprintf(buf + len, size - len, "%s%s", between, flags[i].name);
                        between = "|";
                }
        } else if (d->nr == SYS_ioctl) {
                add_name(buf, size, requests, CG_ARRAY_LEN(requests), (uint32_t)d->args[1]);
        } else if (d->nr == SYS_fcntl) {
                add_name(buf, size, commands, CG_ARRAY_LEN(commands), (uint32_t)d->args[1]);
        } else if (setid) {
                add_name(buf, size, setids, CG_ARRAY_LEN(setids), setid);
        }
        len = strlen(buf);
        snprintf(buf + len, size - len, ")");
}

/* Text that need not be UTF-8: if it is not, every byte over 127 becomes "?". */
static json_t *any_text(const char *s)
{
        json_t *j = json_string(s);
        char copy[600];

        if (j)
                return j;
        snprintf(copy, sizeof(copy), "%s", s);
        for (char *p = copy; *p; p++)
                if ((unsigned char)*p >= 0x80)
                        *p = '?';
        return json_string(copy);
}

static json_t *process_json(const struct cg_sandbox_denial *d)
{
        return json_pack("{s:i, s:o}", "pid", (int)d->pid, "name", any_text(d->name));
}

static json_t *denial_of_file(const struct cg_sandbox_denial *d, bool by_settings)
{
        struct cg_access_words w;
        json_t *o;

        cg_access_words((enum cg_access_rule)d->rule, cg_or_null(d->setting), d->path, by_settings, &w);
        o = json_pack("{s:s, s:o, s:s, s:s, s:s?, s:s, s:o}", "operation",
                      cg_access_operation((enum cg_access)d->access), "path", any_text(d->path), "rule",
                      w.rule, "why", w.why, "how", w.how, "source", "sandbox", "process", process_json(d));
        if (o && d->lost)
                json_object_set_new(o, "untold", json_integer(d->lost));
        return o;
}

/* An attempt to connect where there is no network; the path is the address, "" of a name server. */
static json_t *denial_of_network(const struct cg_sandbox_denial *d, bool by_settings)
{
        const char *colon = strrchr(d->path, ':');
        struct cg_access_words w;
        json_t *o;

        cg_access_words(CG_ACCESS_NO_NETWORK, NULL, d->path, by_settings, &w);
        o = json_pack("{s:s, s:s, s:s, s:s?, s:s, s:o}", "operation", "network-outbound", "rule", w.rule,
                      "why", w.why, "how", w.how, "source", "sandbox", "process", process_json(d));
        if (o && colon) {
                json_object_set_new(o, "host", json_stringn(d->path, (size_t)(colon - d->path)));
                json_object_set_new(o, "port", json_integer(atoi(colon + 1)));
                json_object_set_new(o, "protocol", json_string("direct"));
        } else if (o) {
                json_object_set_new(o, "call", json_string("name lookup"));
        }
        if (o && d->lost)
                json_object_set_new(o, "untold", json_integer(d->lost));
        return o;
}

json_t *cg_denial_of_call(const struct cg_sandbox_denial *d, bool command, bool by_settings)
{
        const char *name = NULL, *rule = "system call filter (built in)", *why, *how;
        enum kind kind = KERNEL;
        char call[200] = "";
        json_t *o;

        if (d->nr < 0)
                return NULL;
        if (d->rule == CG_ACCESS_NO_NETWORK)
                return denial_of_network(d, by_settings);
        if (d->rule)
                return denial_of_file(d, by_settings);
        for (size_t i = 0; i < CG_ARRAY_LEN(calls); i++) {
                if (calls[i].nr == d->nr) {
                        name = calls[i].name;
                        kind = calls[i].kind;
                }
        }
        if (kind == ATTRIBUTES && d->error == EPERM && cg_setid_asked(d->nr, d->args))
                kind = SETID;
        /* btrfs and OCFS2 */
        if (d->nr == SYS_ioctl &&
            (((uint32_t)d->args[1] & 0xff00) == 0x9400 || (uint32_t)d->args[1] == 0x40186f04))
                kind = COPIES;
        why = kinds[kind].why;
        how = command ? kinds[kind].how : NULL;
        if (d->nr == SYS_socket && (uint32_t)d->args[0] == AF_UNIX) {
                why = "Unix sockets lead to programs outside of the sandbox";
                how = "list the socket in network.allowUnixSockets";
                /* Datagrams need no connection that could be checked. */
                if ((d->args[1] & 0xf) != SOCK_STREAM && (d->args[1] & 0xf) != SOCK_SEQPACKET)
                        how = command ? "set network.allowAllUnixSockets" : NULL;
        }
        if (d->nr == SYS_connect) {
                rule = "not in network.allowUnixSockets";
                why = "it leads to a program outside of the sandbox";
                how = "list it in network.allowUnixSockets";
        }
        /* The landlock tier's broker, of addresses beyond this machine. */
        if (d->nr == SYS_connect && d->error == ENETUNREACH) {
                kind = TCP;
                rule = "system call filter (built in)";
                why = kinds[TCP].why;
                how = command ? kinds[TCP].how : NULL;
        }
        if (d->nr == SYS_socket && ((uint32_t)d->args[0] == AF_INET || (uint32_t)d->args[0] == AF_INET6)) {
                why = kinds[TCP].why;
                how = command ? kinds[TCP].how : NULL;
        }
        if (kind == ATTRIBUTES)
                rule = "not in filesystem.allowWrite";
        if (kind == PROGRAMS) {
                rule = "exec";
                how = CG_ACCESS_PROGRAMS_HOW;
        }
        describe_call(d, name, call, sizeof(call));
        o = json_pack("{s:s, s:s, s:s, s:s, s:s, s:s?, s:s}", "operation", kinds[kind].operation, "call",
                      call, "rule", rule, "errno", strerrorname_np(d->error) ?: "EPERM", "why", why, "how",
                      how, "source", "sandbox");
        if (o && d->path[0])
                json_object_set_new(o, "path", any_text(d->path));
        if (o)
                json_object_set_new(o, "process", process_json(d));
        if (o && d->lost)
                json_object_set_new(o, "untold", json_integer(d->lost));
        return o;
}

/* ---- all kinds */

/* The object of a denied operation. */
static const char *target_of(const json_t *o)
{
        static const char *const keys[] = { "path", "call", "host", "limit" };

        for (size_t i = 0; i < CG_ARRAY_LEN(keys); i++)
                if (*cg_json_text_of(o, keys[i]))
                        return cg_json_text_of(o, keys[i]);
        return "?";
}

void cg_denial_stamp(json_t *o)
{
        char now[32];
        time_t t = time(NULL);
        struct tm tm;

        gmtime_r(&t, &tm);
        strftime(now, sizeof(now), "%Y-%m-%dT%H:%M:%SZ", &tm);
        json_object_set_new(o, "time", json_string(now));
        if (!json_object_get(o, "line"))
                json_object_set_new(o, "line",
                                    json_sprintf("deny %s %s (%s)", cg_json_text_of(o, "operation"),
                                                 target_of(o), cg_json_text_of(o, "why")));
}

/* Further paths that the same rule refused: ", /etc/b and 3 more". */
static void add_others(struct cg_buf *b, const json_t *o)
{
        json_int_t more = json_integer_value(json_object_get(o, "more"));
        const json_t *also = json_object_get(o, "also"), *path;
        size_t i, n = 0, all = json_array_size(also), len = 0;

        while (n < all && (len += json_string_length(json_array_get(also, n))) <= OTHERS_MAX)
                n++;
        more += (json_int_t)(all - n);
        json_array_foreach(also, i, path) {
                if (i == n)
                        break;
                cg_buf_adds(b, i + 1 == n && !more ? " and " : ", ");
                cg_denial_add_text(b, json_string_value(path));
        }
        if (more > EXACT_MAX) /* those that init did not report one by one are missing in the number */
                cg_buf_addf(b, " and more than %d others", EXACT_MAX);
        else if (more)
                cg_buf_addf(b, " and %" JSON_INTEGER_FORMAT " more", more);
}

/* The denied operation: "a connection to ...", "writing /etc/hosts". */
static void add_operation(struct cg_buf *b, const json_t *o, const char *operation)
{
        static const struct {
                const char *operation, *verb;
        } verbs[] = { { "file-read", "reading " },
                      { "file-write", "writing " },
                      { "exec", "running " },
                      { "socket", "a connection to " } };

        if (strcmp(operation, "network-outbound") == 0 && *cg_json_text_of(o, "host")) {
                cg_buf_adds(b, "a connection to ");
                cg_denial_connection(o, b);
                return;
        }
        if (strcmp(operation, "network-outbound") == 0) {
                /* The proxy refused the request before it named a host. */
                cg_buf_adds(b, *cg_json_text_of(o, "protocol") ? "a request to the proxy" : "a name lookup");
                return;
        }
        for (size_t i = 0; i < CG_ARRAY_LEN(verbs); i++)
                if (strcmp(operation, verbs[i].operation) == 0 && *cg_json_text_of(o, "path"))
                        cg_buf_adds(b, verbs[i].verb);
        cg_denial_add_text(b, target_of(o));
        add_others(b, o);
}

void cg_denial_sentence(const json_t *o, struct cg_buf *b)
{
        const char *operation = cg_json_text_of(o, "operation"), *how = cg_json_text_of(o, "how");
        const json_t *process = json_object_get(o, "process");
        const char *name = cg_json_text_of(process, "name");

        if (strcmp(operation, "limit") != 0) {
                cg_buf_adds(b, "the sandbox refused ");
                add_operation(b, o, operation);
                /*
                 * The process by its name, unless it is the session's own Python. Its number
                 * differs each time, and is gone when this is read.
                 */
                if (process && strcmp(cg_json_text_of(o, "source"), "kernel") != 0) {
                        cg_buf_adds(b, " (");
                        cg_denial_add_text(b, cg_text_or(name, "?"));
                        cg_buf_adds(b, ")");
                }
                cg_buf_adds(b, ": ");
        }
        cg_denial_add_text(b, cg_json_text_of(o, "why"));
        if (*how)
                cg_buf_adds(b, ". To allow it: ");
        cg_denial_add_text(b, how);
}
