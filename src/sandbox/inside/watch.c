/*
 * See watch.h. Runs in init. The caller may change its memory after it was read here: reports are
 * not enforcement.
 */
#include "sandbox/inside/watch.h"

#include <arpa/inet.h>
#include <linux/sched.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#include "sandbox/inside/access.h"
#include "sandbox/inside/beside.h"
#include "sandbox/inside/caller.h"
#include "sandbox/inside/reply.h"
#include "sandbox/plan.h"
#include "sandbox/setid.h"

/* Effects of a call on its path; that of OPEN depends on its flags. */
enum effect { OPEN, CREATE, MAKE, CHANGE, RUN };

/* Indexes of arguments; -1: none. */
static const struct watched {
        int nr;
        enum effect effect;
        int dir, path, flags;
        int second_dir, second; /* another path, which is created */
} watched[] = {
        { SYS_openat, OPEN, 0, 1, 2, -1, -1 },      { SYS_mkdirat, MAKE, 0, 1, -1, -1, -1 },
        { SYS_mknodat, MAKE, 0, 1, -1, -1, -1 },    { SYS_symlinkat, MAKE, 1, 2, -1, -1, -1 },
        { SYS_linkat, MAKE, 2, 3, -1, -1, -1 },     { SYS_unlinkat, CHANGE, 0, 1, -1, -1, -1 },
        { SYS_renameat2, CHANGE, 0, 1, -1, 2, 3 },  { SYS_fchmodat, CHANGE, 0, 1, -1, -1, -1 },
        { SYS_fchownat, CHANGE, 0, 1, -1, -1, -1 }, { SYS_truncate, CHANGE, -1, 0, -1, -1, -1 },
        { SYS_execve, RUN, -1, 0, -1, -1, -1 },     { SYS_execveat, RUN, 0, 1, -1, -1, -1 },
#ifdef SYS_renameat
        { SYS_renameat, CHANGE, 0, 1, -1, 2, 3 },
#endif
#ifdef SYS_open /* older architectures have both kinds */
        { SYS_open, OPEN, -1, 0, 1, -1, -1 },       { SYS_creat, CREATE, -1, 0, -1, -1, -1 },
        { SYS_mkdir, MAKE, -1, 0, -1, -1, -1 },     { SYS_mknod, MAKE, -1, 0, -1, -1, -1 },
        { SYS_symlink, MAKE, -1, 1, -1, -1, -1 },   { SYS_link, MAKE, -1, 1, -1, -1, -1 },
        { SYS_unlink, CHANGE, -1, 0, -1, -1, -1 },  { SYS_rmdir, CHANGE, -1, 0, -1, -1, -1 },
        { SYS_rename, CHANGE, -1, 0, -1, -1, 1 },   { SYS_chmod, CHANGE, -1, 0, -1, -1, -1 },
        { SYS_chown, CHANGE, -1, 0, -1, -1, -1 },   { SYS_lchown, CHANGE, -1, 0, -1, -1, -1 },
#endif
};

/* ---- the filter */

/* The lower half of clone()'s flags: the first argument, on s390 the second. */
#ifdef __s390__
#define CLONE_FLAGS_AT (offsetof(struct seccomp_data, args[1]) + 4)
#elif __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
#define CLONE_FLAGS_AT (offsetof(struct seccomp_data, args[0]) + 4)
#else
#define CLONE_FLAGS_AT offsetof(struct seccomp_data, args[0])
#endif

int cg_watch_filter(const struct sock_fprog *base, unsigned int what, struct sock_fprog *ret,
                    struct cg_err *err)
{
        static const struct sock_filter no_shared_folder[] = {
                BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clone, 0, 4),
                BPF_STMT(BPF_LD | BPF_W | BPF_ABS, CLONE_FLAGS_AT),
                BPF_STMT(BPF_ALU | BPF_AND | BPF_K, CLONE_FS | CLONE_THREAD),
                BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, CLONE_FS, 0, 1),
                BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        };
        uint32_t calls[CG_ARRAY_LEN(watched) + 3];
        struct sock_filter *code, *p;
        size_t n = 0, steps, len;

        for (size_t i = 0; i < CG_ARRAY_LEN(watched) && what & CG_WATCH_FILES; i++)
                calls[n++] = (uint32_t)watched[i].nr;
        if (what & CG_WATCH_CONNECT)
                calls[n++] = SYS_connect;
        if (what & CG_WATCH_EXEC) {
                calls[n++] = SYS_execve;
                calls[n++] = SYS_execveat;
        }
        steps = 2 * n + 1;
        if (what & CG_WATCH_EXEC)
                steps += CG_ARRAY_LEN(no_shared_folder);
        if (what & CG_WATCH_BESIDE)
                steps += CG_BESIDE_STEPS;
        len = steps + 2 + base->len;
        if (len > BPF_MAXINSNS || base->filter[0].k != offsetof(struct seccomp_data, arch) ||
            base->filter[1].code != (BPF_JMP | BPF_JEQ | BPF_K))
                return cg_fail(err, CG_E_UNSUPPORTED,
                               "sandbox: the system call filter has another form than watching calls needs");
        p = code = calloc(len, sizeof(*code));
        if (!code)
                return cg_fail(err, CG_E_NOMEM, "sandbox: filter of watched calls");
        /*
         * Starts with @base's own check of the architecture: calls of another one, whose numbers
         * differ, go to @base, which ends the process.
         */
        *p++ = base->filter[0];
        *p++ = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, base->filter[1].k, 0, (uint8_t)steps);
        *p++ = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
        for (size_t i = 0; i < n; i++) {
                *p++ = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, calls[i], 0, 1);
                *p++ = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF);
        }
        if (what & CG_WATCH_BESIDE) {
                cg_beside_filter(p);
                p += CG_BESIDE_STEPS;
        }
        if (what & CG_WATCH_EXEC) {
                memcpy(p, no_shared_folder, sizeof(no_shared_folder));
                p += CG_ARRAY_LEN(no_shared_folder);
        }
        memcpy(p, base->filter, base->len * sizeof(*p));
        *ret = (struct sock_fprog){ (unsigned short)len, code };
        return 0;
}

/* ---- paths of a call */

/* The path of an argument, absolute and without symlinks. */
static bool read_path(const struct seccomp_notif *call, int dir, int arg, char real[PATH_MAX])
{
        char text[PATH_MAX], folder[PATH_MAX], whole[2 * PATH_MAX], link[64];
        int fd = dir < 0 ? AT_FDCWD : (int)call->data.args[dir];
        ssize_t n;

        if (cg_caller_read_path(call, call->data.args[arg], text) < 0 || !text[0])
                return false;
        if (text[0] == '/')
                return cg_access_resolve(text, real);
        if (fd == AT_FDCWD)
                snprintf(link, sizeof(link), "/proc/%d/cwd", (int)call->pid);
        else
                snprintf(link, sizeof(link), "/proc/%d/fd/%d", (int)call->pid, fd);
        n = readlink(link, folder, sizeof(folder) - 1);
        if (n <= 0 || folder[0] != '/')
                return false;
        folder[n] = '\0';
        snprintf(whole, sizeof(whole), "%s/%s", folder, text);
        return strlen(whole) < PATH_MAX && cg_access_resolve(whole, real);
}

/* ---- reports */

static enum cg_access_rule write_rule(const struct cg_sandbox *sb, const char *path, const char **setting)
{
        enum cg_access_rule rule = cg_access_explain(sb, CG_ACCESS_WRITE, path, EROFS, false, setting);

        if (rule == CG_ACCESS_NOT_ALLOWED || rule == CG_ACCESS_DENY_WRITE || rule == CG_ACCESS_MASKED)
                return rule;
        return CG_ACCESS_NONE;
}

/* Whether a call changes @path if it is allowed to; a failure for another reason is no denial. */
static bool would_write(enum effect effect, uint64_t flags, const char *path)
{
        char parent[PATH_MAX];
        struct stat st, above;
        bool exists = lstat(path, &st) == 0;

        cg_path_parent(path, parent);
        if (effect == CHANGE)
                return exists;
        if (exists)
                return effect != MAKE && !S_ISDIR(st.st_mode) &&
                       ((flags & O_ACCMODE) != O_RDONLY || flags & O_TRUNC);
        return (effect == MAKE || flags & O_CREAT) && stat(parent, &above) == 0 && S_ISDIR(above.st_mode);
}

static void report_write(struct cg_notify *n, const struct cg_sandbox *sb, const struct seccomp_notif *call,
                         enum effect effect, uint64_t flags, const char *path)
{
        struct cg_path_denial f = { .path = path, .access = CG_ACCESS_WRITE };

        f.rule = write_rule(sb, path, &f.setting);
        if (f.rule && would_write(effect, flags, path))
                cg_reply_report(n, call, &f);
}

static void report_file(struct cg_notify *n, const struct seccomp_notif *call, enum effect effect,
                        uint64_t flags, const char *path)
{
        struct cg_path_denial f = { .path = path, .access = effect == RUN ? CG_ACCESS_EXEC : CG_ACCESS_READ };

        if (flags & O_PATH)
                return;
        f.rule = cg_access_explain(n->watch, f.access, path, EACCES, false, &f.setting);
        if (f.rule == CG_ACCESS_DENY_READ || f.rule == CG_ACCESS_CREDENTIALS || f.rule == CG_ACCESS_PRIVATE)
                cg_reply_report(n, call, &f);
        else if (effect != RUN)
                report_write(n, n->watch, call, effect, flags, path);
}

static const struct watched *watched_of(const struct seccomp_notif *call, uint64_t *flags)
{
        const struct watched *w = NULL;

        for (size_t i = 0; i < CG_ARRAY_LEN(watched) && !w; i++)
                w = watched[i].nr == call->data.nr ? &watched[i] : NULL;
        *flags = 0;
        if (w && w->effect == OPEN)
                *flags = (uint32_t)call->data.args[w->flags];
        else if (w && w->effect == CREATE)
                *flags = O_CREAT | O_WRONLY | O_TRUNC;
        return w;
}

void cg_watch_write(struct cg_notify *n, const struct cg_sandbox *sb, const struct seccomp_notif *call,
                    const char *path)
{
        uint64_t flags;
        const struct watched *w = watched_of(call, &flags);
        struct stat st;
        enum effect effect;

        /* Python tries to keep the code of every module that it imports, and goes on without. */
        if (!w || strstr(path, "/__pycache__"))
                return;
        effect = w->effect;
        /* The path is the old or the new name. */
        if (w->second >= 0 && lstat(path, &st) < 0)
                effect = MAKE;
        report_write(n, sb, call, effect, flags, path);
}

bool cg_watch_file(struct cg_notify *n, const struct seccomp_notif *call)
{
        uint64_t flags;
        const struct watched *w = watched_of(call, &flags);
        char real[PATH_MAX];

        /* Set-user-ID bits are denied by the filter: such a call must not continue. */
        if (!w || cg_setid_asked(call->data.nr, (const uint64_t *)call->data.args))
                return false;
        if (read_path(call, w->dir, w->path, real))
                report_file(n, call, w->effect, flags, real);
        if (w->second >= 0 && read_path(call, w->second_dir, w->second, real))
                report_file(n, call, MAKE, 0, real);
        return true;
}

/* ---- connections where there is no network */

#define DNS 53

void cg_watch_connect(struct cg_notify *n, const struct seccomp_notif *call)
{
        struct sockaddr_storage a = { .ss_family = AF_UNSPEC };
        const struct sockaddr_in *v4 = (const struct sockaddr_in *)(const void *)&a;
        const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)(const void *)&a;
        struct cg_path_denial p = { .access = CG_ACCESS_READ, .rule = CG_ACCESS_NO_NETWORK };
        size_t len = CG_MIN((uint32_t)call->data.args[2], sizeof(a));
        char host[INET6_ADDRSTRLEN] = "", text[INET6_ADDRSTRLEN + 16] = "";
        uint16_t port;
        bool local = true;

        if (cg_caller_read(call, call->data.args[1], &a, len) < 0)
                a.ss_family = AF_UNSPEC;
        if (a.ss_family == AF_INET && len >= sizeof(*v4)) {
                local = ntohl(v4->sin_addr.s_addr) >> 24 == 127 || !v4->sin_addr.s_addr;
                inet_ntop(AF_INET, &v4->sin_addr, host, sizeof(host));
        } else if (a.ss_family == AF_INET6 && len >= sizeof(*v6)) {
                local = IN6_IS_ADDR_LOOPBACK(&v6->sin6_addr) || IN6_IS_ADDR_UNSPECIFIED(&v6->sin6_addr) ||
                        (IN6_IS_ADDR_V4MAPPED(&v6->sin6_addr) && v6->sin6_addr.s6_addr[12] == 127);
                inet_ntop(AF_INET6, &v6->sin6_addr, host, sizeof(host));
        }
        port = ntohs(v4->sin_port); /* at the same offset in both */
        /*
         * Name servers may have a loopback address. They are reported without an address, since the
         * name that is looked up is unknown.
         */
        if (host[0] && (port == DNS || !local)) {
                if (port != DNS)
                        snprintf(text, sizeof(text), a.ss_family == AF_INET ? "%s:%u" : "[%s]:%u", host,
                                 port);
                p.path = text;
                cg_reply_report(n, call, &p);
        }
        cg_reply_continue(n, call);
}
