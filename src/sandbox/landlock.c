/*
 * Landlock, the second layer over the file system. Mounts already make everything else read-only; what they cannot
 * stop is writing into what is not a file: an existing FIFO or device opens for writing on a read-only mount. Also
 * keeps signals and abstract sockets inside. Runs in the main process, in enter.c, once no more mounts are made.
 */
#include "sandbox/steps.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/landlock.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/util.h"

/* Newer than the headers we build with. */
#define ACCESS_TRUNCATE (1ULL << 14)  /* ABI 3 */
#define ACCESS_IOCTL_DEV (1ULL << 15) /* ABI 5 */
#define SCOPE_ABSTRACT_UNIX (1ULL << 0) /* ABI 6 */
#define SCOPE_SIGNAL (1ULL << 1)        /* ABI 6 */

/* The kernel takes a longer structure than it knows when the rest is zero. */
struct ruleset_attr {
        uint64_t handled_access_fs;
        uint64_t handled_access_net; /* ABI 4; not used: the network namespace is empty */
        uint64_t scoped;
};

#define ACCESS_FILE (LANDLOCK_ACCESS_FS_WRITE_FILE | ACCESS_TRUNCATE | ACCESS_IOCTL_DEV)
#define ACCESS_DIR (LANDLOCK_ACCESS_FS_REMOVE_DIR | LANDLOCK_ACCESS_FS_REMOVE_FILE | LANDLOCK_ACCESS_FS_MAKE_CHAR | \
                    LANDLOCK_ACCESS_FS_MAKE_DIR | LANDLOCK_ACCESS_FS_MAKE_REG | LANDLOCK_ACCESS_FS_MAKE_SOCK | \
                    LANDLOCK_ACCESS_FS_MAKE_FIFO | LANDLOCK_ACCESS_FS_MAKE_BLOCK | LANDLOCK_ACCESS_FS_MAKE_SYM | \
                    LANDLOCK_ACCESS_FS_REFER)

/* Everything that alters something; reading and executing are the mounts' business. */
static void rights_of_abi(int abi, struct ruleset_attr *attr)
{
        attr->handled_access_fs = ACCESS_FILE | ACCESS_DIR;
        if (abi < 2)
                attr->handled_access_fs &= ~(uint64_t)LANDLOCK_ACCESS_FS_REFER; /* such renames are refused anyway */
        if (abi < 3)
                attr->handled_access_fs &= ~ACCESS_TRUNCATE;
        if (abi < 5)
                attr->handled_access_fs &= ~ACCESS_IOCTL_DEV;
        if (abi >= 6)
                attr->scoped = SCOPE_ABSTRACT_UNIX | SCOPE_SIGNAL;
}

static int allow_below(int ruleset, uint64_t handled, const char *path, struct cg_err *err)
{
        struct landlock_path_beneath_attr rule = {.allowed_access = handled};
        cg_auto_fd int fd = open(path, O_PATH | O_NOFOLLOW | O_CLOEXEC);
        struct stat st;

        /* A write root that lies in a hidden folder is not there to be written. */
        if (fd < 0 && errno == ENOENT)
                return 0;
        if (fd < 0 || fstat(fd, &st) < 0)
                return cg_fail_errno(err, "sandbox: Landlock rule for %s", path);
        if (!S_ISDIR(st.st_mode))
                rule.allowed_access &= ACCESS_FILE;
        rule.parent_fd = fd;
        if (syscall(SYS_landlock_add_rule, ruleset, LANDLOCK_RULE_PATH_BENEATH, &rule, 0) < 0)
                return cg_fail_errno(err, "sandbox: Landlock rule for %s", path);
        return 0;
}

static bool is_writable(const struct cg_plan_mount *m)
{
        return m->kind == CG_PLAN_WRITE || m->kind == CG_PLAN_TMPFS || m->kind == CG_PLAN_DEV;
}

int cg_landlock_apply(const struct cg_sandbox *sb, struct cg_err *err)
{
        struct ruleset_attr attr = {0};
        cg_auto_fd int ruleset = -1;
        int abi = (int)syscall(SYS_landlock_create_ruleset, NULL, 0, LANDLOCK_CREATE_RULESET_VERSION);

        if (abi < 1)
                return cg_fail(err, CG_E_UNSUPPORTED, "sandbox: this Linux has no Landlock (%s): it needs 5.13 or "
                               "newer with landlock in the lsm= list of the kernel's command line",
                               errno == EOPNOTSUPP ? "switched off" : "not built in");
        rights_of_abi(abi, &attr);
        ruleset = (int)syscall(SYS_landlock_create_ruleset, &attr, sizeof(attr), 0);
        if (ruleset < 0)
                return cg_fail_errno(err, "sandbox: Landlock ruleset");
        if (sb->root_writable && allow_below(ruleset, attr.handled_access_fs, "/", err) < 0)
                return -1;
        /* uid_map and the like: the rest of /proc is read-only by its mounts. */
        if (sb->nested_users && allow_below(ruleset, attr.handled_access_fs, "/proc", err) < 0)
                return -1;
        for (size_t i = 0; i < sb->n_mounts; i++) {
                if (is_writable(&sb->mounts[i]) &&
                    allow_below(ruleset, attr.handled_access_fs, sb->mounts[i].path, err) < 0)
                        return -1;
        }
        if (syscall(SYS_landlock_restrict_self, ruleset, 0) < 0)
                return cg_fail_errno(err, "sandbox: Landlock");
        return 0;
}
