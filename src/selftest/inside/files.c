/*
 * Writing outside of the workspace. The working folder is the workspace; ../out is outside of it
 * and readable. An attempt that succeeds undoes its change for the next one. Runs inside the
 * sandbox.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "selftest/inside/attempt.h"

#define CANARY "../out/canary.txt"

static enum cg_verdict truncate_out(struct cg_try *t, const struct cg_attempt *a)
{
        struct stat st;

        /* To its present size, so that nothing is lost. */
        return cg_refused(t, stat(CANARY, &st) < 0 ? -1 : truncate(CANARY, st.st_size));
}

static enum cg_verdict remove_out(struct cg_try *t, const struct cg_attempt *a)
{
        int r = unlink("../out/spare.txt");
        enum cg_verdict v = cg_refused(t, r);

        if (r == 0)
                close(open("../out/spare.txt", O_WRONLY | O_CREAT, 0644));
        return v;
}

static enum cg_verdict rename_out(struct cg_try *t, const struct cg_attempt *a)
{
        int r = rename(CANARY, "../out/renamed.txt");
        enum cg_verdict v = cg_refused(t, r);

        if (r == 0)
                rename("../out/renamed.txt", CANARY);
        return v;
}

/* From the workspace onto a file outside of it, and the reverse. */
static enum cg_verdict move_across(struct cg_try *t, const struct cg_attempt *a)
{
        int r;
        enum cg_verdict v;

        close(open("moved", O_WRONLY | O_CREAT, 0644));
        r = rename(a->arg, a->arg2);
        v = cg_refused(t, r);
        if (r == 0)
                rename(a->arg2, a->arg);
        unlink("moved");
        return v;
}

static enum cg_verdict folder_out(struct cg_try *t, const struct cg_attempt *a)
{
        int r = mkdir(a->arg, 0755);
        enum cg_verdict v = cg_refused(t, r);

        if (r == 0)
                rmdir(a->arg);
        return v;
}

static enum cg_verdict rmdir_out(struct cg_try *t, const struct cg_attempt *a)
{
        int r = rmdir("../out/empty");
        enum cg_verdict v = cg_refused(t, r);

        if (r == 0)
                mkdir("../out/empty", 0755);
        return v;
}

static enum cg_verdict symlink_out(struct cg_try *t, const struct cg_attempt *a)
{
        int r = symlink("/etc/passwd", "../out/link");
        enum cg_verdict v = cg_refused(t, r);

        if (r == 0)
                unlink("../out/link");
        return v;
}

static enum cg_verdict fifo_out(struct cg_try *t, const struct cg_attempt *a)
{
        int r = mkfifo("../out/made", 0600);
        enum cg_verdict v = cg_refused(t, r);

        if (r == 0)
                unlink("../out/made");
        return v;
}

static enum cg_verdict chmod_out(struct cg_try *t, const struct cg_attempt *a)
{
        return cg_refused(t, chmod(CANARY, 0644));
}

static enum cg_verdict chmod_by_fd(struct cg_try *t, const struct cg_attempt *a)
{
        int fd = open(CANARY, O_RDONLY);

        return cg_refused(t, fd < 0 ? -1 : fchmod(fd, 0644));
}

static enum cg_verdict times_out(struct cg_try *t, const struct cg_attempt *a)
{
        return cg_refused(t, utimensat(AT_FDCWD, CANARY, NULL, 0));
}

static enum cg_verdict xattr_out(struct cg_try *t, const struct cg_attempt *a)
{
        int r = setxattr(CANARY, "user.cellgate", "x", 1, 0);

        if (r < 0 && errno == ENOTSUP)
                return cg_held(t, "ENOTSUP");
        return cg_refused(t, r);
}

static enum cg_verdict tmpfile_out(struct cg_try *t, const struct cg_attempt *a)
{
        int fd = open("../out", O_TMPFILE | O_WRONLY, 0600);

        return fd < 0 && errno == EOPNOTSUPP ? cg_held(t, "EOPNOTSUPP") : cg_refused(t, fd);
}

static enum cg_verdict flags_out(struct cg_try *t, const struct cg_attempt *a)
{
        int fd = open(CANARY, O_RDONLY), flags = 0;

        if (fd >= 0 && ioctl(fd, _IOR('f', 1, long), &flags) < 0)
                return cg_held(t, "%s", cg_errno_name(errno));
        return cg_refused(t, fd < 0 ? -1 : ioctl(fd, _IOW('f', 2, long), &flags));
}

/* Opens a file for reading, and again for writing by its link in /proc. */
static enum cg_verdict reopen(struct cg_try *t, const struct cg_attempt *a)
{
        int fd = open(CANARY, (int)a->call[0] | O_CLOEXEC);
        char path[64];

        snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
        return cg_refused(t, fd < 0 ? -1 : open(path, O_WRONLY | O_APPEND));
}

/* A symlink in the workspace that leads outside; made by the attempt or part of the scene. */
static enum cg_verdict by_new_symlink(struct cg_try *t, const struct cg_attempt *a)
{
        enum cg_verdict v;
        int fd;

        unlink("made-link");
        if (symlink(a->arg, "made-link") < 0)
                return cg_fails(t, "no link of its own: %s", cg_errno_name(errno));
        fd = open(a->arg2, O_WRONLY | O_APPEND | O_CREAT, 0644);
        v = cg_refused(t, fd < 0 ? -1 : write(fd, "x", 1));
        unlink("made-link");
        return v;
}

static enum cg_verdict by_old_symlink(struct cg_try *t, const struct cg_attempt *a)
{
        return cg_refused(t, cg_append("link-out"));
}

/* A second name in the workspace for a file outside of it. */
static enum cg_verdict hard_link(struct cg_try *t, const struct cg_attempt *a)
{
        int r = link(a->arg, "made-name");
        enum cg_verdict v;

        if (r < 0)
                return cg_refused(t, r);
        v = cg_refused(t, cg_append("made-name"));
        unlink("made-name");
        return v;
}

static enum cg_verdict hard_link_by_fd(struct cg_try *t, const struct cg_attempt *a)
{
        int fd = open(CANARY, O_PATH | O_CLOEXEC), r;
        char path[64];
        enum cg_verdict v;

        snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
        r = linkat(AT_FDCWD, path, AT_FDCWD, "made-name", AT_SYMLINK_FOLLOW);
        v = cg_refused(t, r);
        if (r == 0)
                unlink("made-name");
        return v;
}

static enum cg_verdict workspace_itself(struct cg_try *t, const struct cg_attempt *a)
{
        int r = rename("../work", "../work2");
        enum cg_verdict v = cg_refused(t, r);

        if (r == 0)
                rename("../work2", "../work");
        return v;
}

/* ---- what must work */
static enum cg_verdict write_here(struct cg_try *t, const struct cg_attempt *a)
{
        int fd = open(a->arg, O_WRONLY | O_CREAT | O_TRUNC, 0644);
        long r = fd < 0 ? -1 : write(fd, "x", 1);

        if (fd >= 0)
                unlink(a->arg);
        return cg_possible(t, r);
}

static enum cg_verdict read_there(struct cg_try *t, const struct cg_attempt *a)
{
        char buf[256];

        return cg_possible(t, cg_slurp(CANARY, buf, sizeof(buf)));
}

static enum cg_verdict temporary(struct cg_try *t, const struct cg_attempt *a)
{
        char path[4096];
        const char *folder = getenv("TMPDIR");
        int fd;

        snprintf(path, sizeof(path), "%s/cellgate-selftest-XXXXXX", folder ? folder : "/tmp");
        fd = mkstemp(path);
        if (fd >= 0)
                unlink(path);
        return cg_possible(t, fd);
}

static enum cg_verdict run_here(struct cg_try *t, const struct cg_attempt *a)
{
        int fd = open("script", O_WRONLY | O_CREAT | O_TRUNC, 0755), status = -1;
        pid_t pid;

        if (fd < 0 || write(fd, "#!/bin/sh\nexit 3\n", 17) != 17)
                return cg_fails(t, "%s", cg_errno_name(errno));
        close(fd);
        pid = fork();
        if (pid == 0) {
                execl("./script", "script", NULL);
                _exit(99);
        }
        waitpid(pid, &status, 0);
        unlink("script");
        return WIFEXITED(status) && WEXITSTATUS(status) == 3 ? cg_works(t, "%s", "")
                                                             : cg_fails(t, "it did not run");
}

static const struct cg_attempt attempts[] = {
#define OUT(name, fn, what, path) \
        { \
                name, "mount|landlock", false, CG_BARE_ALL, 0, fn, what, path, NULL, \
                { \
                        0 \
                } \
        }
        OUT("write-outside", cg_try_append, "a file outside of the workspace", CANARY),
        OUT("create-outside", cg_try_create, "a new file outside", "../out/new.txt"),
        OUT("truncate-outside", truncate_out, "cutting a file outside", NULL),
        OUT("remove-outside", remove_out, "removing a file outside", NULL),
        OUT("rename-outside", rename_out, "renaming a file outside", NULL),
        OUT("mkdir-outside", folder_out, "a new folder outside", "../out/folder"),
        OUT("rmdir-outside", rmdir_out, "removing a folder outside", NULL),
        OUT("symlink-outside", symlink_out, "a new link outside", NULL),
        OUT("fifo-outside", fifo_out, "a new FIFO outside", NULL),
        OUT("tmpfile-outside", tmpfile_out, "a file without a name outside", NULL),
        OUT("xattr-outside", xattr_out, "an attribute of a file outside", NULL),
        OUT("flags-outside", flags_out, "flags of a file outside (chattr)", NULL),
        OUT("reopen-by-fd", reopen, "a file opened for reading, opened again for writing", NULL),
        OUT("write-beside-workspace", cg_try_create, "a new file beside the workspace", "../beside.txt"),
        OUT("write-home", cg_try_create, "a new file in the home folder", "../home/new.txt"),
        OUT("write-home-logs", cg_try_create, "a new file in npm's folder of logs",
            "../home/.npm/_logs/new.txt"),
        OUT("write-home-debug", cg_try_create, "a new file in an agent's folder of logs",
            "../home/.claude/debug/new.txt"),
        OUT("write-home-profile", cg_try_append, "what the shell runs at the next login", "../home/.profile"),
        OUT("link-out-hard", hard_link, "a second name for a file outside", CANARY),
        OUT("link-out-by-fd", hard_link_by_fd, "the same by an O_PATH descriptor", NULL),
        OUT("rename-workspace", workspace_itself, "the workspace moved away", NULL),
        OUT("write-by-link", by_old_symlink, "a link in the workspace that leads outside", NULL),
        OUT("race-symlink", cg_try_link_race, "a name that turns into a link between check and use", CANARY),
#undef OUT
        /*
         * These need no right to the contents: the owner of the file could change its mode without
         * the mount.
         */
        { "chmod-outside",
          "mount|landlock|broker",
          false,
          CG_BARE_ALL,
          0,
          chmod_out,
          "the mode of a file outside",
          NULL,
          NULL,
          { 0 } },
        { "chmod-by-fd",
          "mount|landlock|broker",
          false,
          CG_BARE_ALL,
          0,
          chmod_by_fd,
          "the same by a descriptor",
          NULL,
          NULL,
          { 0 } },
        { "times-outside",
          "mount|landlock|broker",
          false,
          CG_BARE_ALL,
          0,
          times_out,
          "the times of a file outside",
          NULL,
          NULL,
          { 0 } },
        { "reopen-path-fd",
          "mount|landlock",
          false,
          CG_BARE_ALL,
          0,
          reopen,
          "the same by an O_PATH descriptor",
          NULL,
          NULL,
          { O_PATH } },
        { "move-out",
          "mount|landlock",
          false,
          CG_BARE_ALL,
          0,
          move_across,
          "a file moved out of the workspace",
          "moved",
          "../out/moved",
          { 0 } },
        { "move-onto",
          "mount|landlock",
          false,
          CG_BARE_ALL,
          0,
          move_across,
          "a file moved into the workspace",
          "../out/spare.txt",
          "moved",
          { 0 } },
        { "write-by-new-link",
          "mount|landlock",
          false,
          CG_BARE_ALL,
          0,
          by_new_symlink,
          "a link made in the workspace",
          CANARY,
          "made-link",
          { 0 } },
        { "write-by-folder-link",
          "mount|landlock",
          false,
          CG_BARE_ALL,
          0,
          by_new_symlink,
          "a folder link made in the workspace",
          "../out",
          "made-link/by-link.txt",
          { 0 } },
        { "write-by-root-link",
          "mount|landlock",
          false,
          CG_BARE_ALL,
          0,
          by_new_symlink,
          "a link to the root by /proc/self",
          "/proc/self/cwd/../out",
          "made-link/by-link.txt",
          { 0 } },
        { "write-tmp",
          "mount|landlock|broker",
          false,
          CG_BARE_ALL,
          CG_IN_COMMAND,
          cg_try_create,
          "a file in the host's /tmp",
          "/tmp/cellgate-selftest-x",
          NULL,
          { 0 } },
        { "write-root",
          "mount|landlock",
          false,
          CG_BARE_ROOT,
          0,
          cg_try_create,
          "a file in /",
          "/cellgate-selftest",
          NULL,
          { 0 } },
        { "write-etc-passwd",
          "mount|landlock",
          false,
          CG_BARE_ROOT,
          0,
          cg_try_open_write,
          "/etc/passwd",
          "/etc/passwd",
          NULL,
          { 0 } },
        { "write-etc",
          "mount|landlock",
          false,
          CG_BARE_ROOT,
          0,
          cg_try_create,
          "a new file in /etc",
          "/etc/cellgate-selftest",
          NULL,
          { 0 } },
        { "write-usr",
          "mount|landlock",
          false,
          CG_BARE_ROOT,
          0,
          cg_try_create,
          "a new program in /usr/bin",
          "/usr/bin/cellgate-selftest",
          NULL,
          { 0 } },
        { "write-cron",
          "mount|landlock",
          false,
          CG_BARE_ROOT,
          0,
          cg_try_create,
          "what cron runs",
          "/etc/cron.d/cellgate-selftest",
          NULL,
          { 0 } },
        { "write-workspace",
          "",
          true,
          0,
          0,
          write_here,
          "the workspace can be written",
          "own.txt",
          NULL,
          { 0 } },
        { "read-outside", "", true, 0, 0, read_there, "what is not hidden can be read", NULL, NULL, { 0 } },
        { "temporary-file", "", true, 0, 0, temporary, "a temporary file", NULL, NULL, { 0 } },
        { "run-in-workspace",
          "",
          true,
          0,
          0,
          run_here,
          "a program of the workspace can be run",
          NULL,
          NULL,
          { 0 } },
};

CG_TABLE(files, "files outside");
