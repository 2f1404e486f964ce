/* Privileges that a process has or could regain. Runs inside the sandbox. */
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/securebits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "selftest/inside/attempt.h"

static struct __user_cap_header_struct header = { .version = _LINUX_CAPABILITY_VERSION_3 };

static enum cg_verdict no_caps(struct cg_try *t, const struct cg_attempt *a)
{
        char buf[8192], *at;
        unsigned long long bits;

        if (cg_slurp("/proc/self/status", buf, sizeof(buf)) < 0 || !(at = strstr(buf, a->arg)))
                return cg_fails(t, "/proc/self/status cannot be read");
        bits = strtoull(at + strlen(a->arg), NULL, 16);
        return bits ? cg_hole(t, "%s %llx", a->arg, bits) : cg_held(t, "none");
}

static enum cg_verdict raise_ambient(struct cg_try *t, const struct cg_attempt *a)
{
        struct __user_cap_data_struct caps[2] = { { 0 } };

        syscall(SYS_capget, &header, caps);
        caps[0].inheritable = caps[0].permitted;
        caps[1].inheritable = caps[1].permitted;
        syscall(SYS_capset, &header, caps);
        return cg_filtered(t, prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, CAP_SYS_CHROOT, 0, 0));
}

static enum cg_verdict securebits(struct cg_try *t, const struct cg_attempt *a)
{
        const int wanted = SECBIT_NOROOT | SECBIT_NOROOT_LOCKED | SECBIT_NO_SETUID_FIXUP_LOCKED |
                           SECBIT_KEEP_CAPS_LOCKED;
        int bits = prctl(PR_GET_SECUREBITS);

        if (bits >= 0 && (bits & wanted) == wanted)
                return cg_held(t, "locked");
        /* Without a user namespace an ordinary user cannot set them, nor gain what they deny. */
        if (getuid() && prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1)
                return cg_held(t, "an ordinary user, without new privileges");
        return cg_hole(t, "securebits %x: being uid 0 may give power", (unsigned)bits);
}

/* prctl(call[0]) must have the value call[1]. */
static enum cg_verdict has_setting(struct cg_try *t, const struct cg_attempt *a)
{
        return cg_hole_if(t, (unsigned long)prctl((int)a->call[0], 0, 0, 0, 0) != a->call[1], a->arg, "set");
}

/* The flag call[0] of the mount that has a->arg; a->arg2: its name */
static enum cg_verdict mount_flag(struct cg_try *t, const struct cg_attempt *a)
{
        struct statvfs v;

        if (statvfs(a->arg, &v) < 0)
                return cg_fails(t, "%s: %s", a->arg, cg_errno_name(errno));
        if (v.f_flag & a->call[0])
                return cg_held(t, "mounted %s", a->arg2);
        return cg_hole(t, "%s is not mounted %s", a->arg, a->arg2);
}

static enum cg_verdict give_away(struct cg_try *t, const struct cg_attempt *a)
{
        int fd = open("given", O_WRONLY | O_CREAT, 0644), r = fd < 0 ? -1 : fchown(fd, 12345, 12345);

        cg_drop(fd, "given");
        if (fd < 0)
                return cg_fails(t, "no file of its own: %s", cg_errno_name(errno));
        return cg_filtered(t, r);
}

static enum cg_verdict file_caps(struct cg_try *t, const struct cg_attempt *a)
{
        /* VFS_CAP_REVISION_2, CAP_SYS_ADMIN */
        static const unsigned int caps[5] = { 0x02000000, 1U << 21, 0, 0, 0 };
        int fd = open("capable", O_WRONLY | O_CREAT, 0755), r;

        if (fd < 0)
                return cg_fails(t, "no file of its own: %s", cg_errno_name(errno));
        r = (int)syscall(SYS_fsetxattr, fd, "security.capability", caps, sizeof(caps), 0);
        cg_drop(fd, "capable");
        return cg_filtered(t, r);
}

static enum cg_verdict more_files(struct cg_try *t, const struct cg_attempt *a)
{
        struct rlimit l = { 0 };

        getrlimit(RLIMIT_NOFILE, &l);
        l.rlim_max++;
        return cg_filtered(t, setrlimit(RLIMIT_NOFILE, &l));
}

static enum cg_verdict core_files(struct cg_try *t, const struct cg_attempt *a)
{
        struct rlimit l = { 1, 1 };

        getrlimit(RLIMIT_CORE, &l);
        return cg_hole_if(t, l.rlim_max != 0, "the host's core_pattern gets the memory after a crash",
                          "none");
}

static enum cg_verdict secret_any_variable(struct cg_try *t, const struct cg_attempt *a)
{
        const char *secret = cg_scene(t, "secret");

        for (char **e = environ; *e; e++)
                if (secret && strstr(*e, secret))
                        return cg_hole(t, "%.60s has it", *e);
        return cg_held(t, "in no variable");
}

static enum cg_verdict variable(struct cg_try *t, const struct cg_attempt *a)
{
        if (getenv(a->arg))
                return a->allow ? cg_works(t, "%s", "") : cg_hole(t, "%s is in the environment", a->arg);
        if (a->allow)
                return cg_fails(t, "there is no %s", a->arg);
        return cg_held(t, "it is not set");
}

static char zeros[64];
static struct __user_cap_data_struct chroot_caps[2] = {
        { .effective = 1U << CAP_SYS_CHROOT,
          .permitted = 1U << CAP_SYS_CHROOT,
          .inheritable = 1U << CAP_SYS_CHROOT },
};

static const struct cg_attempt attempts[] = {
#define CAPS(name, field, who, what) \
        CG_DENY(name, "capabilities", no_caps, what, .bare = CG_BARE_##who, .arg = field)
        CAPS("caps-effective", "CapEff:", ROOT, "capabilities in effect"),
        CAPS("caps-permitted", "CapPrm:", ROOT, "capabilities that could be put into effect"),
        CAPS("caps-bounding", "CapBnd:", ALL, "capabilities that a program could give"),
        CAPS("caps-ambient", "CapAmb:", NONE, "capabilities that programs inherit"),
#undef CAPS
        CG_DENY("caps-raise", "capabilities", cg_try_call, "getting a capability back", .bare = CG_BARE_ROOT,
                .call = { SYS_capset, CG_ADDR(&header), CG_ADDR(chroot_caps) }),
        CG_DENY("caps-raise-ambient", "capabilities", raise_ambient, "handing one on to programs",
                .bare = CG_BARE_ROOT),
        CG_DENY("caps-of-file", "capabilities", file_caps, "a program with capabilities in the workspace",
                .bare = CG_BARE_ROOT, .also = { ENOTSUP, EINVAL }),
        CG_DENY("securebits", "capabilities", securebits, "power by being uid 0"),
        CG_DENY("no-new-privs", "no_new_privs", has_setting, "privileges by running a program",
                .arg = "set-user-id programs have an effect", .call = { PR_GET_NO_NEW_PRIVS, 1 }),
        CG_DENY("seccomp-mode", "seccomp", has_setting, "a process without a system call filter",
                .arg = "no system call filter", .call = { PR_GET_SECCOMP, 2 }),
        CG_DENY("suid-system", "mount", mount_flag, "set-user-id programs of the system",
                .bare = CG_BARE_MACHINE, .arg = "/usr/bin", .arg2 = "nosuid", .call = { ST_NOSUID }),
        CG_DENY("suid-workspace", "mount", mount_flag, "set-user-id programs in the workspace",
                .bare = CG_BARE_MACHINE, .arg = ".", .arg2 = "nosuid", .call = { ST_NOSUID }),
        CG_DENY("nodev-system", "mount", mount_flag, "device nodes on the root file system",
                .bare = CG_BARE_MACHINE, .arg = "/", .arg2 = "nodev", .call = { ST_NODEV }),
        CG_DENY("nodev-workspace", "mount", mount_flag, "device nodes in the workspace",
                .bare = CG_BARE_MACHINE, .arg = ".", .arg2 = "nodev", .call = { ST_NODEV }),
        CG_DENY("setuid-other", "user|capabilities", cg_try_call, "becoming another user",
                .bare = CG_BARE_ROOT, .call = { SYS_setresuid, 12345, 12345, 12345 }, .also = { EINVAL }),
        CG_DENY("setgroups", "user|capabilities", cg_try_call, "joining a group", .bare = CG_BARE_ROOT,
                .call = { SYS_setgroups, 1, CG_ADDR(zeros) }),
        CG_DENY("chown-other", "user|capabilities", give_away, "a file for another user",
                .bare = CG_BARE_ROOT, .also = { EINVAL }),
        CG_DENY("rlimit-raise", "capabilities", more_files, "a limit above its ceiling",
                .bare = CG_BARE_MACHINE),
        CG_DENY("core-dump", "rlimits", core_files, "memory by way of a crash", .bare = CG_BARE_MACHINE),
        CG_DENY("env-secret", "environment", variable, "a secret in the caller's environment",
                .arg = "CELLGATE_SELFTEST_SECRET"),
        CG_DENY("env-secret-value", "environment", secret_any_variable, "the same under any name"),
        CG_DENY("env-secret-initial", "environment", cg_try_leak,
                "the same in the memory the program started with", .arg = "/proc/self/environ",
                .arg2 = "secret"),
        CG_ALLOW("env-path", variable, "allowed variables are set", .arg = "PATH"),
};

CG_TABLE(privileges, "privileges and environment");
