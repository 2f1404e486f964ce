/*
 * Files in the workspace that must not be written: those of denyWrite, and protected names. An
 * attempt that succeeds undoes its change. Runs inside the sandbox.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "selftest/inside/attempt.h"

#define KEEP "keep.txt"

/* A new file moved onto a->arg2. A hard link keeps the old one, to undo this without a sandbox. */
static enum cg_verdict replace(struct cg_try *t, const struct cg_attempt *a)
{
        enum cg_verdict v;

        if (link(a->arg2, "kept-for-later") < 0 && errno != EXDEV && errno != EPERM)
                return cg_refused(t, -1);
        v = cg_try_change(t, a);
        if (v == CG_HOLE)
                rename("kept-for-later", a->arg2);
        unlink("kept-for-later");
        return v;
}

/* A file a->arg2 in a folder a->arg that may exist. */
static enum cg_verdict folder_absent(struct cg_try *t, const struct cg_attempt *a)
{
        int r = mkdir(a->arg, 0755), fd;
        enum cg_verdict v;

        if (r < 0 && errno != EEXIST)
                return cg_refused(t, r);
        fd = open(a->arg2, O_WRONLY | O_CREAT, 0644);
        v = cg_refused(t, fd);
        if (fd >= 0)
                unlink(a->arg2);
        if (r == 0)
                rmdir(a->arg);
        return v;
}

/* The folder with sockets, generated modules and MCP servers' folders (XDG_RUNTIME_DIR). */
static enum cg_verdict runtime_folder(struct cg_try *t, const struct cg_attempt *a)
{
        char folder[64], file[80];
        const struct cg_attempt b = { .arg = folder, .arg2 = file };

        snprintf(folder, sizeof(folder), "run/cellgate-%u", (unsigned int)geteuid());
        snprintf(file, sizeof(file), "%s/json.py", folder);
        return folder_absent(t, &b);
}

/* A folder with a file is moved to a->arg, which makes the file a->arg2. */
static enum cg_verdict folder_brought(struct cg_try *t, const struct cg_attempt *a)
{
        enum cg_verdict v;
        char file[80];
        int r;

        snprintf(file, sizeof(file), "brought%s", strrchr(a->arg2, '/'));
        if (mkdir("brought", 0755) < 0)
                return cg_refused(t, -1);
        close(open(file, O_WRONLY | O_CREAT | O_CLOEXEC, 0644));
        r = rename("brought", a->arg);
        v = cg_refused(t, r);
        unlink(r < 0 ? file : a->arg2);
        rmdir(r < 0 ? "brought" : a->arg);
        return v;
}

static enum cg_verdict remove_absent(struct cg_try *t, const struct cg_attempt *a)
{
        int r = unlink(a->arg);

        if (r < 0 && errno == EISDIR)
                r = rmdir(a->arg);
        if (r < 0 && errno != ENOENT)
                return cg_refused(t, r);
        return cg_try_create(t, a);
}

static enum cg_verdict by_folder_fd(struct cg_try *t, const struct cg_attempt *a)
{
        int dir = open("d", O_PATH | O_DIRECTORY | O_CLOEXEC);
        int fd = dir < 0 ? -1 : openat(dir, "keep.txt", O_WRONLY | O_APPEND);

        return cg_refused(t, cg_write_to(fd, "x"));
}

/* Moves the folder above away and makes a new one, with another file in place of the protected. */
static enum cg_verdict parent_aside(struct cg_try *t, const struct cg_attempt *a)
{
        int r = rename("d", "d-aside"), fd;
        enum cg_verdict v;

        if (r < 0)
                return cg_refused(t, r);
        mkdir("d", 0755);
        fd = open("d/keep.txt", O_WRONLY | O_CREAT, 0644);
        v = cg_refused(t, fd);
        unlink("d/keep.txt");
        rmdir("d");
        rename("d-aside", "d");
        return v;
}

/* ---- races */
/* While one moves the folder back and forth, the other writes by both names. */
static enum cg_verdict race_parent(struct cg_try *t, const struct cg_attempt *a)
{
        struct timespec start;
        enum cg_verdict v = CG_HELD;
        pid_t pid = fork();
        long tries = 0;

        if (pid == 0) {
                for (;;) {
                        rename("d", "d-aside");
                        rename("d-aside", "d");
                }
        }
        clock_gettime(CLOCK_MONOTONIC, &start);
        for (; cg_race_goes_on(&start) && v == CG_HELD; tries++) {
                int fd = open(tries % 2 ? "d/keep.txt" : "d-aside/keep.txt", O_WRONLY | O_APPEND);

                if (fd >= 0)
                        v = cg_hole(t, "it was opened for writing");
                else
                        v = cg_refused(t, fd);
        }
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
        rename("d-aside", "d");
        return v == CG_HELD ? cg_held(t, "%ld tries", tries) : v;
}

static const struct cg_attempt attempts[] = {
/* EISDIR, EEXIST, ENOTEMPTY: a folder exists as a placeholder. */
#define DENY(name, run, what, path, ...) \
        CG_DENY(name, "mount|landlock", run, what, .arg = path, .also = { EISDIR, EEXIST, ENOTEMPTY }, \
                __VA_ARGS__)
#define CHANGE(name, change_, what, path, ...) \
        DENY(name, cg_try_change, what, path, .change = change_, __VA_ARGS__)
        DENY("deny-write", cg_try_append, "a file of denyWrite", KEEP),
        CHANGE("deny-truncate", CG_TRUNCATE, "truncating it", KEEP),
        CHANGE("deny-remove", CG_REMOVE, "removing it", KEEP),
        CHANGE("deny-rename", CG_RENAME, "moving it aside", KEEP, .arg2 = "keep2.txt"),
        DENY("deny-replace", replace, "another moved onto it", "fresh", .change = CG_RENAME, .arg2 = KEEP),
        CHANGE("deny-exchange", CG_EXCHANGE, "another exchanged for it", "fresh", .arg2 = KEEP),
        CHANGE("deny-hard-link", CG_LINK, "a hard link to it", KEEP, .arg2 = "alias", .then = cg_try_append,
               .at = "alias"),
        DENY("deny-old-hard-link", cg_try_append, "a hard link of the scene", "keep-alias.txt"),
        CHANGE("deny-symlink", CG_SYMLINK, "a link to it", KEEP, .arg2 = "alias", .then = cg_try_append,
               .at = "alias"),
        DENY("deny-path-fd", cg_try_reopen, "an O_PATH descriptor of it", KEEP,
             .call = { O_PATH, O_WRONLY | O_APPEND }),
        DENY("deny-dots", cg_try_append, "its name by way of other folders", "./d/.././/keep.txt"),
        DENY("deny-proc-cwd", cg_try_append, "its name by way of /proc/self/cwd", "/proc/self/cwd/keep.txt"),
        DENY("deny-link-target", cg_try_append, "the target of a link in denyWrite", "real/target.txt"),
        DENY("deny-folder-file", cg_try_append, "a file in a folder of denyWrite", "denied/inner.txt"),
        DENY("deny-folder-new", cg_try_create, "a new file in it", "denied/new.txt"),
        CHANGE("deny-folder-rename", CG_RENAME, "moving that folder aside", "denied", .arg2 = "denied2"),
        DENY("deny-nested", cg_try_append, "a protected file below a folder", "d/keep.txt"),
        DENY("deny-nested-by-fd", by_folder_fd, "the same by the folder's descriptor", NULL),
        DENY("deny-parent-rename", parent_aside, "its folder moved aside and made anew", NULL),
        CHANGE("deny-grandparent-rename", CG_RENAME, "the folder above that", "g", .arg2 = "g-aside"),
        DENY("deny-absent", cg_try_create, "a denied file that does not exist yet", "absent.txt"),
        DENY("deny-absent-remove", remove_absent, "the placeholder of its name, removed", "absent.txt"),
        DENY("deny-absent-deep", folder_absent, "one below folders that do not exist yet", "absentdir",
             .arg2 = "absentdir/deep.txt"),
        DENY("deny-absent-brought", folder_brought, "a folder with that file, moved there", "absentdir",
             .arg2 = "absentdir/deep.txt"),
        CHANGE("deny-absent-rename", CG_RENAME, "a file moved to an absent name", "fresh",
               .arg2 = "absent.txt"),
        CHANGE("deny-absent-symlink", CG_SYMLINK, "a link under an absent name", "fresh",
               .arg2 = "absent.txt"),
        CHANGE("deny-absent-link", CG_LINK, "a hard link under an absent name", "fresh",
               .arg2 = "absent.txt"),
        CG_DENY("deny-later", "names", cg_try_create, "a new file that a pattern of denyWrite matches",
                .arg = "sub/new.locked"),
        CG_DENY("deny-later-brought", "names", folder_brought, "a folder with such a file, moved there",
                .arg = "later", .arg2 = "later/only.locked"),
        CG_DENY("deny-later-link", "names", cg_try_change, "a link under such a name", .change = CG_SYMLINK,
                .arg = "fresh", .arg2 = "sub/new.locked"),
        DENY("deny-race-parent", race_parent, "writing while its folder is moved back and forth", NULL),
        DENY("deny-race-link", cg_try_link_race, "writing by a name that becomes a link to it", KEEP),
        DENY("never-bashrc", cg_try_append, ".bashrc in the workspace", ".bashrc"),
        CHANGE("never-bashrc-remove", CG_REMOVE, "removing it, to make it anew", ".bashrc"),
        DENY("never-bashrc-replace", replace, "another moved onto it", "fresh", .change = CG_RENAME,
             .arg2 = ".bashrc"),
        CHANGE("never-bashrc-exchange", CG_EXCHANGE, "another exchanged for it", "fresh", .arg2 = ".bashrc"),
        DENY("never-bashrc-case", cg_try_append, "the same name in other letters, below", "sub/.BASHRC"),
        DENY("never-zshrc-absent", cg_try_create, ".zshrc, which does not exist", ".zshrc"),
        CG_DENY("never-link-absent", "names", cg_try_create,
                "a file that a link .zshenv of the home leads to", .arg = "zshenv-of-home"),
        CG_DENY("never-named-program", "names", cg_try_create, "a script that a hook names",
                .arg = "tools/named.mjs"),
        DENY("never-profile-absent", cg_try_create, ".profile, which does not exist", ".profile"),
        DENY("never-gitconfig-absent", cg_try_create, ".gitconfig, which does not exist", ".gitconfig"),
        DENY("never-gitmodules-absent", cg_try_create, ".gitmodules, which does not exist", ".gitmodules"),
        DENY("never-mcp-json-absent", cg_try_create, ".mcp.json: servers that an agent's host starts",
             ".mcp.json"),
        DENY("never-ripgreprc-absent", cg_try_create, ".ripgreprc", ".ripgreprc"),
        DENY("never-git-hook", cg_try_create, "a git hook", ".git/hooks/pre-commit"),
        DENY("never-user-hook", cg_try_create, "a git hook where the user's own settings have them",
             "of-user/hooks/pre-commit"),
        DENY("never-path-program", cg_try_create, "a program in a folder of PATH outside", "programs/git"),
        DENY("never-path-absent", folder_absent, "one in a folder of PATH that does not exist yet",
             "programs-later", .arg2 = "programs-later/git"),
        DENY("never-git-config", cg_try_append, ".git/config", ".git/config"),
        DENY("never-git-config-replace", replace, "another moved onto it, as git itself does", "fresh",
             .change = CG_RENAME, .arg2 = ".git/config"),
        DENY("never-git-config-worktree", cg_try_create, "the config of a work tree, where git reads it",
             ".git/config.worktree"),
        DENY("never-git-commondir", cg_try_create, ".git/commondir, which makes git read another config",
             ".git/commondir"),
        CHANGE("never-git-aside", CG_RENAME, "the repository moved aside", ".git", .arg2 = "git-aside"),
        CHANGE("never-git-hooks-aside", CG_RENAME, "its hooks moved aside", ".git/hooks",
               .arg2 = ".git/hooks-aside"),
        DENY("never-nested-hook", cg_try_create, "a hook of a repository below", "sub/.git/hooks/pre-commit"),
        CHANGE("never-nested-aside", CG_RENAME, "the folder of that repository moved aside", "sub",
               .arg2 = "sub-aside"),
        DENY("never-vscode", cg_try_create, "a task of an editor", ".vscode/tasks.json"),
        CHANGE("never-vscode-aside", CG_RENAME, "its folder moved aside", ".vscode", .arg2 = "vscode-aside"),
        DENY("never-idea-absent", folder_absent, "a folder of another editor", ".idea",
             .arg2 = ".idea/workspace.xml"),
        DENY("never-claude-commands", cg_try_create, "commands of an agent", ".claude/commands/x.md"),
        DENY("never-srt-settings", cg_try_create, "the settings of the next command", ".srt-settings.json"),
        DENY("own-runtime", runtime_folder, "cellgate's own runtime folder, where MCP servers are started",
             NULL),
        DENY("never-claude-agents", cg_try_create, "agents of an agent", ".claude/agents/x.md"),
#undef CHANGE
#undef DENY
        CG_ALLOW("deny-beside", cg_try_write, "a file beside a protected one", .arg = "d/other.txt"),
        CG_ALLOW("git-objects", cg_try_write, "a commit can be made", .arg = ".git/objects/x"),
        CG_ALLOW("claude-other", cg_try_write, "other files of an agent", .arg = ".claude/notes.md"),
};

CG_TABLE(protected, "protected files");
