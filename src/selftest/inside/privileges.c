/* Privileges that a process has or could regain. Runs inside the sandbox. */
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <linux/securebits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "selftest/inside/attempt.h"

extern char **environ;

static enum cg_verdict no_caps(struct cg_try *t, const struct cg_attempt *a)
{
        char buf[8192], *at;
        unsigned long long bits;

        if (cg_slurp("/proc/self/status", buf, sizeof(buf)) < 0 || !(at = strstr(buf, a->arg)))
                return cg_fails(t, "/proc/self/status cannot be read");
        bits = strtoull(at + strlen(a->arg), NULL, 16);
        return bits ? cg_hole(t, "%s %llx", a->arg, bits) : cg_held(t, "none");
}

static enum cg_verdict raise_caps(struct cg_try *t, const struct cg_attempt *a)
{
        struct __user_cap_header_struct header = { .version = _LINUX_CAPABILITY_VERSION_3 };
        struct __user_cap_data_struct caps[2] = { { 0 } };

        caps[0].effective = caps[0].permitted = caps[0].inheritable = 1U << CAP_SYS_CHROOT;
        return cg_filtered(t, syscall(SYS_capset, &header, caps));
}

static enum cg_verdict raise_ambient(struct cg_try *t, const struct cg_attempt *a)
{
        struct __user_cap_header_struct header = { .version = _LINUX_CAPABILITY_VERSION_3 };
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
        /*
         * Without a user namespace an ordinary user may not set them, and cannot gain what they
         * deny.
         */
        if (getuid() && prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1)
                return cg_held(t, "an ordinary user, without new privileges");
        return cg_hole(t, "securebits %x: being uid 0 may give power", (unsigned)bits);
}

static enum cg_verdict new_privs(struct cg_try *t, const struct cg_attempt *a)
{
        return prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1
                       ? cg_held(t, "set")
                       : cg_hole(t, "set-user-id programs have an effect");
}

static enum cg_verdict filter_mode(struct cg_try *t, const struct cg_attempt *a)
{
        return prctl(PR_GET_SECCOMP) == 2 ? cg_held(t, "a filter is on")
                                          : cg_hole(t, "no system call filter");
}

/* A set-user-ID bit must have no effect on any mount. */
static enum cg_verdict nosuid(struct cg_try *t, const struct cg_attempt *a)
{
        struct statvfs v;

        if (statvfs(a->arg, &v) < 0)
                return cg_fails(t, "%s: %s", a->arg, cg_errno_name(errno));
        return v.f_flag & ST_NOSUID ? cg_held(t, "mounted nosuid")
                                    : cg_hole(t, "%s honours set-user-id programs", a->arg);
}

static enum cg_verdict nodev(struct cg_try *t, const struct cg_attempt *a)
{
        struct statvfs v;

        if (statvfs(a->arg, &v) < 0)
                return cg_fails(t, "%s: %s", a->arg, cg_errno_name(errno));
        return v.f_flag & ST_NODEV ? cg_held(t, "mounted nodev")
                                   : cg_hole(t, "%s honours device nodes", a->arg);
}

static enum cg_verdict become_other(struct cg_try *t, const struct cg_attempt *a)
{
        long r = syscall(SYS_setresuid, 12345, 12345, 12345);

        return r < 0 && errno == EINVAL ? cg_held(t, "EINVAL: there is no other user in here")
                                        : cg_filtered(t, r);
}

static enum cg_verdict become_group(struct cg_try *t, const struct cg_attempt *a)
{
        gid_t g = 0;

        return cg_filtered(t, setgroups(1, &g));
}

static enum cg_verdict give_away(struct cg_try *t, const struct cg_attempt *a)
{
        int fd = open("given", O_WRONLY | O_CREAT, 0644), r = fd < 0 ? -1 : fchown(fd, 12345, 12345),
            e = errno;

        unlink("given");
        if (fd < 0)
                return cg_fails(t, "no file of its own: %s", cg_errno_name(e));
        errno = e;
        return r < 0 && e == EINVAL ? cg_held(t, "EINVAL: there is no other user in here")
                                    : cg_filtered(t, r);
}

static enum cg_verdict file_caps(struct cg_try *t, const struct cg_attempt *a)
{
        /* VFS_CAP_REVISION_2, CAP_SYS_ADMIN */
        static const unsigned int caps[5] = { 0x02000000, 1U << 21, 0, 0, 0 };
        int fd = open("capable", O_WRONLY | O_CREAT, 0755), r, e;

        if (fd < 0)
                return cg_fails(t, "no file of its own: %s", cg_errno_name(errno));
        r = (int)syscall(SYS_fsetxattr, fd, "security.capability", caps, sizeof(caps), 0);
        e = errno;
        unlink("capable");
        errno = e;
        return r < 0 && (e == ENOTSUP || e == EINVAL) ? cg_held(t, "%s", cg_errno_name(e))
                                                      : cg_filtered(t, r);
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
        return l.rlim_max == 0 ? cg_held(t, "none")
                               : cg_hole(t, "a crash hands its memory to the host's core_pattern");
}

static enum cg_verdict secret_variable(struct cg_try *t, const struct cg_attempt *a)
{
        return getenv("CELLGATE_SELFTEST_SECRET") ? cg_hole(t, "it is in the environment")
                                                  : cg_held(t, "not there");
}

static enum cg_verdict secret_any_variable(struct cg_try *t, const struct cg_attempt *a)
{
        const char *secret = cg_scene(t, "secret");

        for (char **e = environ; *e; e++) {
                if (secret && strstr(*e, secret))
                        return cg_hole(t, "%.60s has it", *e);
        }
        return cg_held(t, "in no variable");
}

static enum cg_verdict path_variable(struct cg_try *t, const struct cg_attempt *a)
{
        return getenv("PATH") ? cg_works(t, "%s", "") : cg_fails(t, "there is no PATH");
}

static const struct cg_attempt attempts[] = {
#define CAPS(name, field, who, what) \
        { \
                name, "capabilities", false, CG_BARE_##who, 0, no_caps, what, field, NULL, \
                { \
                        0 \
                } \
        }
        CAPS("caps-effective", "CapEff:", ROOT, "capabilities in effect"),
        CAPS("caps-permitted", "CapPrm:", ROOT, "capabilities that could be put into effect"),
        CAPS("caps-bounding", "CapBnd:", ALL, "capabilities that a program could give"),
        CAPS("caps-ambient", "CapAmb:", NONE, "capabilities that programs inherit"),
#undef CAPS
        { "caps-raise",
          "capabilities",
          false,
          CG_BARE_ROOT,
          0,
          raise_caps,
          "getting a capability back",
          NULL,
          NULL,
          { 0 } },
        { "caps-raise-ambient",
          "capabilities",
          false,
          CG_BARE_ROOT,
          0,
          raise_ambient,
          "handing one on to programs",
          NULL,
          NULL,
          { 0 } },
        { "caps-of-file",
          "capabilities",
          false,
          CG_BARE_ROOT,
          0,
          file_caps,
          "a program with capabilities in the workspace",
          NULL,
          NULL,
          { 0 } },
        { "securebits",
          "capabilities",
          false,
          CG_BARE_ALL,
          0,
          securebits,
          "power by being uid 0",
          NULL,
          NULL,
          { 0 } },
        { "no-new-privs",
          "no_new_privs",
          false,
          CG_BARE_ALL,
          0,
          new_privs,
          "privileges by running a program",
          NULL,
          NULL,
          { 0 } },
        { "seccomp-mode",
          "seccomp",
          false,
          CG_BARE_ALL,
          0,
          filter_mode,
          "that there is a system call filter",
          NULL,
          NULL,
          { 0 } },
        { "suid-system",
          "mount",
          false,
          CG_BARE_MACHINE,
          0,
          nosuid,
          "set-user-id programs of the system",
          "/usr/bin",
          NULL,
          { 0 } },
        { "suid-workspace",
          "mount",
          false,
          CG_BARE_MACHINE,
          0,
          nosuid,
          "set-user-id programs in the workspace",
          ".",
          NULL,
          { 0 } },
        { "nodev-system",
          "mount",
          false,
          CG_BARE_MACHINE,
          0,
          nodev,
          "device nodes on the root file system",
          "/",
          NULL,
          { 0 } },
        { "nodev-workspace",
          "mount",
          false,
          CG_BARE_MACHINE,
          0,
          nodev,
          "device nodes in the workspace",
          ".",
          NULL,
          { 0 } },
        { "setuid-other",
          "user|capabilities",
          false,
          CG_BARE_ROOT,
          0,
          become_other,
          "becoming another user",
          NULL,
          NULL,
          { 0 } },
        { "setgroups",
          "user|capabilities",
          false,
          CG_BARE_ROOT,
          0,
          become_group,
          "joining a group",
          NULL,
          NULL,
          { 0 } },
        { "chown-other",
          "user|capabilities",
          false,
          CG_BARE_ROOT,
          0,
          give_away,
          "a file for another user",
          NULL,
          NULL,
          { 0 } },
        { "rlimit-raise",
          "capabilities",
          false,
          CG_BARE_MACHINE,
          0,
          more_files,
          "a limit above its ceiling",
          NULL,
          NULL,
          { 0 } },
        { "core-dump",
          "rlimits",
          false,
          CG_BARE_MACHINE,
          0,
          core_files,
          "memory by way of a crash",
          NULL,
          NULL,
          { 0 } },
        { "env-secret",
          "environment",
          false,
          CG_BARE_ALL,
          0,
          secret_variable,
          "a secret in the caller's environment",
          NULL,
          NULL,
          { 0 } },
        { "env-secret-value",
          "environment",
          false,
          CG_BARE_ALL,
          0,
          secret_any_variable,
          "the same under any name",
          NULL,
          NULL,
          { 0 } },
        { "env-secret-initial",
          "environment",
          false,
          CG_BARE_ALL,
          0,
          cg_try_leak,
          "the same in the memory the program started with",
          "/proc/self/environ",
          "secret",
          { 0 } },
        { "env-path",
          "",
          true,
          0,
          0,
          path_variable,
          "variables that were allowed are there",
          NULL,
          NULL,
          { 0 } },
};

CG_TABLE(privileges, "privileges and environment");
