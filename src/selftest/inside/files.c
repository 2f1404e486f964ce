/*
 * Writing outside of the workspace. The working folder is the workspace; ../out is outside of it
 * and readable. An attempt that succeeds undoes its change for the next one. Runs inside the
 * sandbox.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "selftest/inside/attempt.h"

#define CANARY "../out/canary.txt"
#define SPARE  "../out/spare.txt"

static enum cg_verdict tmpfile_out(struct cg_try *t, const struct cg_attempt *a)
{
        return cg_refused(t, open(a->arg, O_TMPFILE | O_WRONLY, 0600));
}

/* The file is left behind: without a sandbox "after-absent" must find it. */
static enum cg_verdict make_only(struct cg_try *t, const struct cg_attempt *a)
{
        return cg_refused(t, cg_make(a->arg));
}

static enum cg_verdict link_by_fd(struct cg_try *t, const struct cg_attempt *a)
{
        int fd = open(a->arg, O_PATH | O_CLOEXEC), r;
        char path[64];
        enum cg_verdict v;

        snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
        r = linkat(AT_FDCWD, path, AT_FDCWD, "made-name", AT_SYMLINK_FOLLOW);
        v = cg_refused(t, r);
        if (r == 0)
                unlink("made-name");
        return v;
}

/* ---- required operations */
static enum cg_verdict temporary(struct cg_try *t, const struct cg_attempt *a)
{
        char path[4096];
        const char *folder = getenv("TMPDIR");
        int fd;

        snprintf(path, sizeof(path), "%s/cellgate-selftest-XXXXXX", folder ?: "/tmp");
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
        return cg_works_if(t, WIFEXITED(status) && WEXITSTATUS(status) == 3, "it did not run");
}

static const struct cg_attempt attempts[] = {
#define OUT(name, run, what, path, ...) CG_DENY(name, "mount|landlock", run, what, .arg = path, __VA_ARGS__)
        OUT("write-outside", cg_try_append, "a file outside of the workspace", CANARY),
        OUT("create-outside", cg_try_create, "a new file outside", "../out/new.txt"),
        OUT("truncate-outside", cg_try_change, "truncating a file outside", CANARY, .change = CG_TRUNCATE),
        OUT("remove-outside", cg_try_change, "removing a file outside", SPARE, .change = CG_REMOVE),
        OUT("rename-outside", cg_try_change, "renaming a file outside", CANARY, .change = CG_RENAME,
            .arg2 = "../out/renamed.txt"),
        OUT("mkdir-outside", cg_try_change, "a new folder outside", "../out/folder", .change = CG_MKDIR),
        OUT("rmdir-outside", cg_try_change, "removing a folder outside", "../out/empty", .change = CG_RMDIR),
        OUT("symlink-outside", cg_try_change, "a new link outside", "/etc/passwd", .change = CG_SYMLINK,
            .arg2 = "../out/link"),
        OUT("fifo-outside", cg_try_change, "a new FIFO outside", "../out/made", .change = CG_MKFIFO),
        OUT("tmpfile-outside", tmpfile_out, "a file without a name outside", "../out",
            .also = { EOPNOTSUPP }),
        OUT("xattr-outside", cg_try_change, "an attribute of a file outside", CANARY, .change = CG_ATTRIBUTE,
            .also = { EOPNOTSUPP }),
        OUT("flags-outside", cg_try_change, "flags of a file outside (chattr)", CANARY, .change = CG_FLAGS,
            .also = { EOPNOTSUPP, ENOTTY }),
        OUT("reopen-by-fd", cg_try_reopen, "a file opened for reading, opened again for writing", CANARY,
            .call = { O_RDONLY, O_WRONLY | O_APPEND }),
        OUT("reopen-path-fd", cg_try_reopen, "the same by an O_PATH descriptor", CANARY,
            .call = { O_PATH, O_WRONLY | O_APPEND }),
        OUT("write-beside-workspace", cg_try_create, "a new file beside the workspace", "../beside.txt"),
        OUT("write-home", cg_try_create, "a new file in the home folder", "../home/new.txt"),
        OUT("write-home-logs", cg_try_create, "a new file in npm's folder of logs",
            "../home/.npm/_logs/new.txt"),
        OUT("write-home-debug", cg_try_create, "a new file in an agent's folder of logs",
            "../home/.claude/debug/new.txt"),
        OUT("write-home-profile", cg_try_append, "the script of the next login shell", "../home/.profile"),
        OUT("link-out-hard", cg_try_change, "a hard link to a file outside", CANARY, .change = CG_LINK,
            .arg2 = "made-name", .then = cg_try_append, .at = "made-name"),
        OUT("link-out-by-fd", link_by_fd, "the same by an O_PATH descriptor", CANARY),
        OUT("move-out", cg_try_change, "a file moved out of the workspace", "fresh", .change = CG_RENAME,
            .arg2 = "../out/moved"),
        OUT("move-onto", cg_try_change, "a file moved into the workspace", SPARE, .change = CG_RENAME,
            .arg2 = "fresh"),
        OUT("rename-workspace", cg_try_change, "the workspace moved away", "../work", .change = CG_RENAME,
            .arg2 = "../work2"),
        OUT("write-by-link", cg_try_append, "a link in the workspace to a file outside", "link-out"),
        OUT("write-by-new-link", cg_try_change, "a link made in the workspace", CANARY, .change = CG_SYMLINK,
            .arg2 = "made-link", .then = cg_try_append, .at = "made-link"),
        OUT("write-by-folder-link", cg_try_change, "a folder link made in the workspace", "../out",
            .change = CG_SYMLINK, .arg2 = "made-link", .then = make_only, .at = "made-link/by-link.txt"),
        OUT("write-by-root-link", cg_try_change, "a link to the root by /proc/self", "/proc/self/cwd/../out",
            .change = CG_SYMLINK, .arg2 = "made-link", .then = make_only, .at = "made-link/by-link.txt"),
        OUT("race-symlink", cg_try_link_race, "a name that becomes a link between check and use", CANARY),
#undef OUT
/* These do not open the file: its owner could change its mode without the mount. */
#define OUT(name, change_, what) \
        CG_DENY(name, "mount|landlock|broker", cg_try_change, what, .change = change_, .arg = CANARY)
        OUT("chmod-outside", CG_CHMOD, "the mode of a file outside"),
        OUT("chmod-by-fd", CG_FCHMOD, "the same by a descriptor"),
        OUT("times-outside", CG_TIMES, "the times of a file outside"),
#undef OUT
        CG_DENY("write-tmp", "mount|landlock|broker", cg_try_create, "a file in the host's /tmp",
                .in = CG_IN_COMMAND, .arg = "/tmp/cellgate-selftest-x"),
        CG_DENY("write-root", "mount|landlock", cg_try_create, "a file in /", .bare = CG_BARE_ROOT,
                .arg = "/cellgate-selftest"),
        CG_DENY("write-etc-passwd", "mount|landlock", cg_try_open_write, "/etc/passwd", .bare = CG_BARE_ROOT,
                .arg = "/etc/passwd"),
        CG_DENY("write-etc", "mount|landlock", cg_try_create, "a new file in /etc", .bare = CG_BARE_ROOT,
                .arg = "/etc/cellgate-selftest"),
        CG_DENY("write-usr", "mount|landlock", cg_try_create, "a new program in /usr/bin",
                .bare = CG_BARE_ROOT, .arg = "/usr/bin/cellgate-selftest"),
        CG_DENY("write-cron", "mount|landlock", cg_try_create, "a job for cron", .bare = CG_BARE_ROOT,
                .arg = "/etc/cron.d/cellgate-selftest"),
        CG_ALLOW("write-workspace", cg_try_write, "the workspace can be written", .arg = "own.txt"),
        CG_ALLOW("read-outside", cg_try_readable, "a file that is not hidden can be read", .arg = CANARY),
        CG_ALLOW("temporary-file", temporary, "a temporary file"),
        CG_ALLOW("run-in-workspace", run_here, "a program of the workspace can be run"),
};

CG_TABLE(files, "files outside");
