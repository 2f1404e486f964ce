/*
 * Landlock. In the full tier it is the second layer over the file system, since an existing FIFO or
 * device opens for writing on a read-only mount. In the landlock tier it is the first, over
 * reading, writing and TCP. In both it keeps signals and abstract sockets inside. Runs in the main
 * process, in enter.c, once no more mounts are made.
 */
#include "sandbox/landlock.h"

#include <linux/openat2.h>
#include <sys/syscall.h>

#include "base/util.h"
#include "sandbox/landlock_rules.h"
#include "sandbox/mountfd.h"
#include "sandbox/inside/mediate.h"
#include "sandbox/inside/notify.h"
#include "sandbox/steps.h"

static int add_rule(int ruleset, int fd, uint64_t access, const char *path, struct cg_err *err)
{
        struct landlock_path_beneath_attr rule = { .allowed_access = access, .parent_fd = fd };
        struct stat st;

        if (fstat(fd, &st) < 0)
                return cg_fail_errno(err, "sandbox: Landlock rule for %s", path);
        if (!S_ISDIR(st.st_mode))
                rule.allowed_access &= CG_LL_FILE;
        if (rule.allowed_access &&
            syscall(SYS_landlock_add_rule, ruleset, LANDLOCK_RULE_PATH_BENEATH, &rule, 0) < 0)
                return cg_fail_errno(err, "sandbox: Landlock rule for %s", path);
        return 0;
}

/*
 * Grants a path without following symlinks: programs inside, for a command server, or outside may
 * have replaced folders by links meanwhile. A path that does not exist is skipped, such as a write
 * root in a hidden folder; @optional: also one that cannot be opened.
 */
static int allow_path(int ruleset, uint64_t access, const char *path, bool optional, struct cg_err *err)
{
        cg_auto_fd int fd = cg_open_path(AT_FDCWD, path, O_NOFOLLOW,
                                         RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS);

        if (fd >= 0)
                return add_rule(ruleset, fd, access, path, err);
        if (errno == ENOENT || (optional && (errno == ENOTDIR || errno == ELOOP || errno == EACCES)))
                return 0;
        return cg_fail_errno(err, "sandbox: Landlock rule for %s", path);
}

static int make_ruleset(const struct cg_ll_ruleset_attr *attr, struct cg_err *err)
{
        int fd = (int)syscall(SYS_landlock_create_ruleset, attr, sizeof(*attr), 0);

        return fd < 0 ? cg_fail_errno(err, "sandbox: landlock_create_ruleset") : fd;
}

static int enter_ruleset(int ruleset, struct cg_err *err)
{
        if (syscall(SYS_landlock_restrict_self, ruleset, 0) < 0)
                return cg_fail_errno(err, "sandbox: landlock_restrict_self");
        return 0;
}

int cg_landlock_abi(void)
{
        int abi = (int)syscall(SYS_landlock_create_ruleset, NULL, 0, LANDLOCK_CREATE_RULESET_VERSION);

        return abi < 0 ? -errno : abi;
}

static int check_abi(int least, int *abi, struct cg_err *err)
{
        const char *why = "not built in";

        *abi = cg_landlock_abi();
        if (*abi == -EOPNOTSUPP)
                why = "switched off";
        else if (*abi == -EPERM)
                why = "a system call filter forbids it";
        if (*abi < 1)
                return cg_fail(err, CG_E_UNSUPPORTED,
                               "sandbox: this Linux has no Landlock (%s): it needs 5.13 or "
                               "newer with landlock in the lsm= list of the kernel's command line",
                               why);
        if (*abi < least)
                return cg_fail(
                        err, CG_E_UNSUPPORTED,
                        "sandbox: the landlock tier needs Landlock ABI %d (Linux 6.12), which keeps signals "
                        "inside; this Linux has ABI %d",
                        least, *abi);
        return 0;
}

int cg_landlock_apply(const struct cg_sandbox *sb, struct cg_err *err)
{
        /* All rights to change something; in the full tier mounts decide about reading. */
        struct cg_ll_ruleset_attr attr = { .handled_access_fs = CG_LL_ALTER_FILE | CG_LL_ALTER_DIR };
        /*
         * Processes may not do themselves what init does for them, except to bind a unix socket,
         * which programs outside do not obey.
         */
        uint64_t mediated = LANDLOCK_ACCESS_FS_MAKE_SOCK;
        cg_auto_fd int ruleset = -1;
        int abi;

        if (check_abi(1, &abi, err) < 0)
                return CG_E_UNSUPPORTED;
        if (abi < 2) /* such renames are refused anyway */
                attr.handled_access_fs &= ~(uint64_t)LANDLOCK_ACCESS_FS_REFER;
        if (abi < 3)
                attr.handled_access_fs &= ~CG_LL_TRUNCATE;
        if (abi < 5)
                attr.handled_access_fs &= ~CG_LL_IOCTL_DEV;
        if (abi >= 6)
                attr.scoped = CG_LL_SCOPE_ABSTRACT_UNIX | CG_LL_SCOPE_SIGNAL;
        if (!cg_mediates(sb))
                mediated = attr.handled_access_fs;
        ruleset = make_ruleset(&attr, err);
        if (ruleset < 0)
                return ruleset;
        if (sb->set.root_writable && allow_path(ruleset, mediated, "/", false, err) < 0)
                return -1;
        /* uid_map and the like; the rest of /proc is mounted read-only. */
        if (sb->set.nested_users && allow_path(ruleset, attr.handled_access_fs, "/proc", false, err) < 0)
                return -1;
        for (size_t i = 0; i < sb->n_mounts; i++) {
                const struct cg_plan_mount *m = &sb->mounts[i];
                bool native = m->kind == CG_PLAN_DEV ||
                              (m->kind == CG_PLAN_TMPFS && !cg_mediate_holds_root(sb, m->path));

                if (m->kind != CG_PLAN_WRITE && m->kind != CG_PLAN_TMPFS && m->kind != CG_PLAN_DEV)
                        continue;
                if (allow_path(ruleset, native ? attr.handled_access_fs : mediated, m->path, false, err) < 0)
                        return -1;
        }
        return enter_ruleset(ruleset, err);
}

/* ---- the landlock tier */

/*
 * Files of the kernel's own file systems that may be read: nothing about other processes or the
 * host's network. A process's own entries are only those of the main process, because later
 * processes cannot be named.
 */
static const char *const of_proc[] = {
        "cpuinfo", "meminfo", "stat", "loadavg", "uptime", "version", "filesystems", "sys/kernel/random",
        "sys/kernel/osrelease", "sys/kernel/ostype", "sys/kernel/pid_max", "sys/kernel/threads-max",
        "sys/kernel/cap_last_cap", "sys/kernel/ngroups_max", "sys/vm/overcommit_memory",
        "sys/vm/max_map_count", "sys/fs/file-max", "sys/fs/pipe-max-size", "self/auxv", "self/cgroup",
        /* of the main thread */
        "self/children", "self/cmdline", "self/comm", "self/coredump_filter", "self/environ", "self/fd",
        "self/fdinfo", "self/gid_map", "self/io", "self/limits", "self/maps", "self/map_files",
        "self/mountinfo", "self/mounts", "self/oom_score", "self/oom_score_adj", "self/personality",
        "self/setgroups", "self/smaps", "self/smaps_rollup", "self/stat", "self/statm", "self/status",
        "self/uid_map", "self/wchan"
};

static const char *const of_sys[] = { "/sys/devices/system/cpu", "/sys/devices/system/node" };

static const char *const of_dev[] = { "/dev/null",   "/dev/zero",    "/dev/full",
                                      "/dev/random", "/dev/urandom", "/dev/tty" };

static int allow_kernel_files(int ruleset, int pins[CG_LANDLOCK_PINS], size_t *n, struct cg_err *err)
{
        _Static_assert(CG_ARRAY_LEN(of_proc) <= CG_LANDLOCK_PINS && CG_LANDLOCK_PINS <= CG_NOTIFY_PINS,
                       "room for all");

        for (size_t i = 0; i < CG_ARRAY_LEN(of_sys); i++)
                if (allow_path(ruleset, CG_LL_READ_FILE | CG_LL_READ_DIR, of_sys[i], true, err) < 0)
                        return -1;
        for (size_t i = 0; i < CG_ARRAY_LEN(of_dev); i++)
                if (allow_path(ruleset, CG_LL_READ_FILE | CG_LL_WRITE_FILE | CG_LL_TRUNCATE, of_dev[i], true,
                               err) < 0)
                        return -1;
        /*
         * Rules apply to inodes, and /proc may replace its inodes when memory is short: init keeps
         * these open while the sandbox runs.
         */
        for (size_t i = 0; i < CG_ARRAY_LEN(of_proc); i++) {
                char path[64];
                int fd;

                if (strcmp(of_proc[i], "self/children") == 0)
                        snprintf(path, sizeof(path), "/proc/%d/task/%d/children", (int)getpid(),
                                 (int)getpid());
                else if (strncmp(of_proc[i], "self/", 5) == 0)
                        snprintf(path, sizeof(path), "/proc/%d/%s", (int)getpid(), of_proc[i] + 5);
                else
                        snprintf(path, sizeof(path), "/proc/%s", of_proc[i]);
                fd = open(path, O_PATH | O_NOFOLLOW | O_CLOEXEC);
                if (fd < 0)
                        continue; /* missing in this kernel or covered */
                pins[(*n)++] = fd;
                if (add_rule(ruleset, fd, CG_LL_READ_FILE | CG_LL_READ_DIR, path, err) < 0)
                        return -1;
        }
        return 0;
}

int cg_landlock_apply_tier(const struct cg_sandbox *sb, int pins[CG_LANDLOCK_PINS], size_t *n_pins,
                           struct cg_err *err)
{
        static const uint64_t read_rights = CG_LL_EXECUTE | CG_LL_READ_FILE | CG_LL_READ_DIR;
        struct cg_ll_ruleset_attr attr = {
                .handled_access_fs = read_rights | CG_LL_ALTER_FILE | CG_LL_ALTER_DIR,
                /* No rules, so no TCP. seccomp denies it first; the broker connects to ports. */
                .handled_access_net = CG_LL_NET_BIND_TCP | CG_LL_NET_CONNECT_TCP,
                .scoped = CG_LL_SCOPE_ABSTRACT_UNIX | CG_LL_SCOPE_SIGNAL,
        };
        const struct cg_grants *g = sb->grants;
        cg_auto_fd int ruleset = -1;
        int abi, r = check_abi(CG_TIER_LANDLOCK_ABI, &abi, err);

        if (r < 0)
                return r;
        ruleset = make_ruleset(&attr, err);
        if (ruleset < 0)
                return ruleset;
        for (size_t i = 0; i < g->n; i++)
                if ((r = allow_path(ruleset, g->v[i].access, g->v[i].path, true, err)) < 0)
                        return r;
        if ((g->private_dir &&
             (r = allow_path(ruleset, attr.handled_access_fs, g->private_dir, false, err)) < 0) ||
            (g->shown && (r = allow_path(ruleset, read_rights, g->shown, false, err)) < 0) ||
            (r = allow_kernel_files(ruleset, pins, n_pins, err)) < 0)
                return r;
        return enter_ruleset(ruleset, err);
}
