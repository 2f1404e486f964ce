/* Set-user-ID and set-group-ID files in the workspace would have an effect outside. Runs inside. */
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "selftest/inside/attempt.h"

static enum cg_verdict look_at_mode(struct cg_try *t, const char *path, long result)
{
        int error = errno;
        struct stat st = { 0 };
        bool there = stat(path, &st) == 0;

        unlink(path);
        if (there && S_ISREG(st.st_mode) && st.st_mode & (S_ISUID | S_ISGID))
                return cg_hole(t, "a file of mode %04o", st.st_mode & 07777u);
        errno = error;
        return cg_held(t, "%s", cg_error_or(result, "without these bits"));
}

static enum cg_verdict setid_chmod(struct cg_try *t, const struct cg_attempt *a)
{
        int fd = open(a->arg, O_WRONLY | O_CREAT | O_EXCL, 0755);
        long r;

        if (fd < 0)
                return cg_skip(t, "no file in the workspace: %s", cg_errno_name(errno));
        r = a->arg2 ? fchmod(fd, (mode_t)a->call[0]) : chmod(a->arg, (mode_t)a->call[0]);
        close(fd);
        return look_at_mode(t, a->arg, r);
}

static enum cg_verdict setid_make(struct cg_try *t, const struct cg_attempt *a)
{
        unsigned long args[7];
        long fd;

        memcpy(args, a->call, sizeof(args));
        args[2] = (unsigned long)a->arg;
        fd = syscall((long)args[0], args[1], args[2], args[3], args[4], args[5], args[6]);
        if (fd > 0)
                close((int)fd);
        return look_at_mode(t, a->arg, fd);
}

static enum cg_verdict setid_tmpfile(struct cg_try *t, const struct cg_attempt *a)
{
        int fd = open(".", O_TMPFILE | O_RDWR, 04755);
        char path[48];
        long r;

        if (fd < 0)
                return errno == EOPNOTSUPP ? cg_held(t, "EOPNOTSUPP") : cg_refused(t, fd);
        snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
        r = linkat(AT_FDCWD, path, AT_FDCWD, a->arg, AT_SYMLINK_FOLLOW);
        close(fd);
        return look_at_mode(t, a->arg, r);
}

static enum cg_verdict setid_open_how(struct cg_try *t, const struct cg_attempt *a)
{
        struct open_how how = { .flags = O_CREAT | O_WRONLY, .mode = 04755 };
        long fd = syscall(SYS_openat2, AT_FDCWD, a->arg, &how, sizeof(how));

        if (fd >= 0)
                close((int)fd);
        return look_at_mode(t, a->arg, fd);
}

/* On folders the bit is allowed: new files get their group. */
static enum cg_verdict setgid_folder(struct cg_try *t, const struct cg_attempt *a)
{
        struct stat st = { 0 };
        int r = mkdir(a->arg, 0755);

        if (r == 0)
                r = chmod(a->arg, 02755);
        if (r == 0 && (stat(a->arg, &st) < 0 || !(st.st_mode & S_ISGID)))
                r = -1;
        rmdir(a->arg);
        return cg_possible(t, r);
}

static const struct cg_attempt attempts[] = {
#define CHMOD(name, by_fd, mode, what) \
        CG_DENY(name, "seccomp|broker", setid_chmod, what, .arg = name, .arg2 = by_fd, .call = { mode })
        CHMOD("setid-chmod", NULL, 04755, "a program that runs with its owner's rights"),
        CHMOD("setid-chmod-group", NULL, 02755, "the same with its group's"),
        CHMOD("setid-fchmod", "by fd", 06755, "the same by a descriptor"),
#undef CHMOD
#define MAKE(name, what, ...) CG_DENY(name, "seccomp", setid_make, what, .arg = name, .call = { __VA_ARGS__ })
        MAKE("setid-openat", "the same from its beginning", SYS_openat, AT_FDCWD, 0, O_CREAT | O_WRONLY,
             04755),
        MAKE("setid-openat-group", "the same with its group's rights", SYS_openat, AT_FDCWD, 0,
             O_CREAT | O_RDWR, 02755),
        MAKE("setid-mknodat", "the same by mknodat()", SYS_mknodat, AT_FDCWD, 0, S_IFREG | 04755),
#undef MAKE
        CG_DENY("setid-tmpfile", "seccomp", setid_tmpfile, "the same without a name at first",
                .arg = "setid-tmpfile"),
        CG_DENY("setid-openat2", "seccomp", setid_open_how, "the same where no filter sees the mode",
                .arg = "setid-openat2"),
        CG_ALLOW("setgid-folder", setgid_folder, "a folder that hands its group on", .arg = "setgid-folder"),
};

CG_TABLE(setid, "programs left behind");
