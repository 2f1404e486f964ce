/*
 * Files in the workspace that must not be written: those of denyWrite, and protected names. An
 * attempt that succeeds undoes its change. Runs inside the sandbox.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "selftest/inside/attempt.h"

#define KEEP "keep.txt"

static int make(const char *path)
{
        int fd = open(path, O_WRONLY | O_CREAT, 0644);

        if (fd >= 0)
                close(fd);
        return fd < 0 ? -1 : 0;
}

/* EISDIR: a folder is there as a placeholder. */
static enum cg_verdict denied(struct cg_try *t, long result)
{
        if (result < 0 && (errno == EISDIR || errno == EEXIST || errno == ENOTEMPTY))
                return cg_held(t, "%s", cg_errno_name(errno));
        return cg_refused(t, result);
}

static enum cg_verdict truncate_it(struct cg_try *t, const struct cg_attempt *a)
{
        struct stat st;

        return denied(t, stat(KEEP, &st) < 0 ? -1 : truncate(KEEP, st.st_size));
}

static enum cg_verdict remove_it(struct cg_try *t, const struct cg_attempt *a)
{
        int r = unlink(a->arg);
        enum cg_verdict v = denied(t, r);

        if (r == 0)
                make(a->arg);
        return v;
}

/* Moves @arg to @arg2, so that another file could take its place. */
static enum cg_verdict move_aside(struct cg_try *t, const struct cg_attempt *a)
{
        int r = rename(a->arg, a->arg2);
        enum cg_verdict v = denied(t, r);

        if (r == 0)
                rename(a->arg2, a->arg);
        return v;
}

static enum cg_verdict replace(struct cg_try *t, const struct cg_attempt *a)
{
        int r;
        enum cg_verdict v;

        make("fresh");
        /* undoes it without a sandbox */
        if (link(a->arg, "kept-for-later") < 0 && errno != EXDEV && errno != EPERM)
                return denied(t, -1);
        r = rename("fresh", a->arg);
        v = denied(t, r);
        if (r == 0)
                rename("kept-for-later", a->arg);
        unlink("fresh");
        unlink("kept-for-later");
        return v;
}

static enum cg_verdict exchange(struct cg_try *t, const struct cg_attempt *a)
{
        long r;
        enum cg_verdict v;

        make("fresh");
        r = syscall(SYS_renameat2, AT_FDCWD, "fresh", AT_FDCWD, a->arg, RENAME_EXCHANGE);
        v = denied(t, r);
        if (r == 0)
                syscall(SYS_renameat2, AT_FDCWD, "fresh", AT_FDCWD, a->arg, RENAME_EXCHANGE);
        unlink("fresh");
        return v;
}

/* A name that does not exist yet. */
static enum cg_verdict create_absent(struct cg_try *t, const struct cg_attempt *a)
{
        int fd = open(a->arg, O_WRONLY | O_CREAT, 0644);
        enum cg_verdict v = denied(t, fd);

        if (fd >= 0)
                unlink(a->arg);
        return v;
}

static enum cg_verdict folder_absent(struct cg_try *t, const struct cg_attempt *a)
{
        int r = mkdir(a->arg, 0755), fd;
        enum cg_verdict v;

        if (r < 0 && errno != EEXIST)
                return denied(t, r);
        fd = open(a->arg2, O_WRONLY | O_CREAT, 0644);
        v = denied(t, fd);
        if (fd >= 0)
                unlink(a->arg2);
        if (r == 0)
                rmdir(a->arg);
        return v;
}

/*
 * The folder with sockets, generated modules and folders of MCP servers, by XDG_RUNTIME_DIR of the
 * scene.
 */
static enum cg_verdict runtime_folder(struct cg_try *t, const struct cg_attempt *a)
{
        char folder[64], file[80];
        enum cg_verdict v;
        int r, fd;

        snprintf(folder, sizeof(folder), "run/cellgate-%u", (unsigned int)geteuid());
        snprintf(file, sizeof(file), "%s/json.py", folder);
        r = mkdir(folder, 0700);
        if (r < 0 && errno != EEXIST)
                return denied(t, r);
        fd = open(file, O_WRONLY | O_CREAT, 0644);
        v = denied(t, fd);
        if (fd >= 0) {
                close(fd);
                unlink(file);
        }
        if (r == 0)
                rmdir(folder);
        return v;
}

static enum cg_verdict remove_absent(struct cg_try *t, const struct cg_attempt *a)
{
        int r = unlink(a->arg);

        if (r < 0 && errno == EISDIR)
                r = rmdir(a->arg);
        if (r < 0 && errno != ENOENT)
                return denied(t, r);
        return create_absent(t, a);
}

/* Makes something else with the name: a symlink, a hard link, a renamed file. */
static enum cg_verdict onto_absent(struct cg_try *t, const struct cg_attempt *a)
{
        int r;
        enum cg_verdict v;

        make("fresh");
        r = a->call[0] == 0   ? rename("fresh", a->arg)
            : a->call[0] == 1 ? symlink("fresh", a->arg)
                              : link("fresh", a->arg);
        v = denied(t, r);
        if (r == 0)
                unlink(a->arg);
        unlink("fresh");
        return v;
}

/* A hard link to a protected file: made by the attempt or part of the scene. */
static enum cg_verdict second_name(struct cg_try *t, const struct cg_attempt *a)
{
        int r = link(a->arg, "alias");
        enum cg_verdict v;

        if (r < 0)
                return denied(t, r);
        v = denied(t, cg_append("alias"));
        unlink("alias");
        return v;
}

static enum cg_verdict by_link(struct cg_try *t, const struct cg_attempt *a)
{
        enum cg_verdict v;

        if (symlink(a->arg, "alias") < 0)
                return cg_fails(t, "no link of its own: %s", cg_errno_name(errno));
        v = denied(t, cg_append("alias"));
        unlink("alias");
        return v;
}

static enum cg_verdict by_path_fd(struct cg_try *t, const struct cg_attempt *a)
{
        int fd = open(a->arg, O_PATH | O_CLOEXEC);
        char path[64];

        snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
        return denied(t, fd < 0 ? -1 : open(path, O_WRONLY | O_APPEND));
}

static enum cg_verdict by_folder_fd(struct cg_try *t, const struct cg_attempt *a)
{
        int dir = open("d", O_PATH | O_DIRECTORY | O_CLOEXEC);
        int fd = dir < 0 ? -1 : openat(dir, "keep.txt", O_WRONLY | O_APPEND);

        return denied(t, fd < 0 ? -1 : write(fd, "x", 1));
}

static enum cg_verdict append(struct cg_try *t, const struct cg_attempt *a)
{
        return denied(t, cg_append(a->arg));
}

/*
 * Moves the folder above away and makes a new one, with another file in place of the protected one.
 */
static enum cg_verdict parent_aside(struct cg_try *t, const struct cg_attempt *a)
{
        int r = rename("d", "d-aside"), fd;
        enum cg_verdict v;

        if (r < 0)
                return denied(t, r);
        mkdir("d", 0755);
        fd = open("d/keep.txt", O_WRONLY | O_CREAT, 0644);
        v = denied(t, fd);
        unlink("d/keep.txt");
        rmdir("d");
        rename("d-aside", "d");
        return v;
}

/* ---- races */
static void rename_for_ever(void)
{
        for (;;) {
                rename("d", "d-aside");
                rename("d-aside", "d");
        }
}

/* While one moves the folder back and forth, the other writes by both names. */
static enum cg_verdict race_parent(struct cg_try *t, const struct cg_attempt *a)
{
        struct timespec start;
        enum cg_verdict v = CG_HELD;
        pid_t pid = fork();
        long tries = 0;

        if (pid == 0)
                rename_for_ever();
        clock_gettime(CLOCK_MONOTONIC, &start);
        for (; cg_race_goes_on(&start) && v == CG_HELD; tries++) {
                int fd = open(tries % 2 ? "d/keep.txt" : "d-aside/keep.txt", O_WRONLY | O_APPEND);

                if (fd >= 0)
                        v = cg_hole(t, "it was opened for writing");
                else
                        v = denied(t, fd);
        }
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
        rename("d-aside", "d");
        return v == CG_HELD ? cg_held(t, "%ld tries", tries) : v;
}

static enum cg_verdict beside_works(struct cg_try *t, const struct cg_attempt *a)
{
        int r = make(a->arg);

        unlink(a->arg);
        return cg_possible(t, r);
}

static const struct cg_attempt attempts[] = {
#define DENY(name, fn, what, path) \
        { \
                name, "mount|landlock", false, CG_BARE_ALL, 0, fn, what, path, NULL, \
                { \
                        0 \
                } \
        }
#define DENY2(name, fn, what, path, to) \
        { \
                name, "mount|landlock", false, CG_BARE_ALL, 0, fn, what, path, to, \
                { \
                        0 \
                } \
        }
        DENY("deny-write", append, "a file of denyWrite", KEEP),
        DENY("deny-truncate", truncate_it, "cutting it", NULL),
        DENY("deny-remove", remove_it, "removing it", KEEP),
        DENY2("deny-rename", move_aside, "moving it aside", KEEP, "keep2.txt"),
        DENY("deny-replace", replace, "another moved onto it", KEEP),
        DENY("deny-exchange", exchange, "another exchanged for it", KEEP),
        DENY("deny-hard-link", second_name, "a second name for it", KEEP),
        DENY("deny-old-hard-link", append, "a second name that it always had", "keep-alias.txt"),
        DENY("deny-symlink", by_link, "a link to it", KEEP),
        DENY("deny-path-fd", by_path_fd, "an O_PATH descriptor of it", KEEP),
        DENY("deny-dots", append, "its name by way of other folders", "./d/.././/keep.txt"),
        DENY("deny-proc-cwd", append, "its name by way of /proc/self/cwd", "/proc/self/cwd/keep.txt"),
        DENY("deny-link-target", append, "what a link in denyWrite leads to", "real/target.txt"),
        DENY("deny-folder-file", append, "a file in a folder of denyWrite", "denied/inner.txt"),
        DENY("deny-folder-new", create_absent, "a new file in it", "denied/new.txt"),
        DENY2("deny-folder-rename", move_aside, "moving that folder aside", "denied", "denied2"),
        DENY("deny-nested", append, "a protected file below a folder", "d/keep.txt"),
        DENY("deny-nested-by-fd", by_folder_fd, "the same by the folder's descriptor", NULL),
        DENY2("deny-parent-rename", parent_aside, "its folder moved aside and made anew", NULL, NULL),
        DENY2("deny-grandparent-rename", move_aside, "the folder above that", "g", "g-aside"),
        DENY("deny-absent", create_absent, "a denied file that does not exist yet", "absent.txt"),
        DENY("deny-absent-remove", remove_absent, "what keeps its name free, removed", "absent.txt"),
        DENY2("deny-absent-deep", folder_absent, "one below folders that do not exist yet", "absentdir",
              "absentdir/deep.txt"),
        { "deny-absent-folder-aside",
          "mount|landlock",
          false,
          CG_BARE_NONE,
          0,
          move_aside,
          "the folder that keeps that name, moved aside",
          "absentdir",
          "absentdir2",
          { 0 } },
        { "deny-absent-rename",
          "mount|landlock",
          false,
          CG_BARE_ALL,
          0,
          onto_absent,
          "a file moved to an absent name",
          "absent.txt",
          NULL,
          { 0 } },
        { "deny-absent-symlink",
          "mount|landlock",
          false,
          CG_BARE_ALL,
          0,
          onto_absent,
          "a link under an absent name",
          "absent.txt",
          NULL,
          { 1 } },
        { "deny-absent-link",
          "mount|landlock",
          false,
          CG_BARE_ALL,
          0,
          onto_absent,
          "a second name under an absent name",
          "absent.txt",
          NULL,
          { 2 } },
        DENY("deny-race-parent", race_parent, "writing while its folder is moved back and forth", NULL),
        DENY("deny-race-link", cg_try_link_race, "writing by a name that turns into a link to it", KEEP),
        DENY("never-bashrc", append, ".bashrc in the workspace", ".bashrc"),
        DENY("never-bashrc-remove", remove_it, "removing it, to make it anew", ".bashrc"),
        DENY("never-bashrc-replace", replace, "another moved onto it", ".bashrc"),
        DENY("never-bashrc-exchange", exchange, "another exchanged for it", ".bashrc"),
        DENY("never-bashrc-case", append, "the same name in other letters, below", "sub/.BASHRC"),
        DENY("never-zshrc-absent", create_absent, ".zshrc, which does not exist", ".zshrc"),
        DENY("never-profile-absent", create_absent, ".profile, which does not exist", ".profile"),
        DENY("never-gitconfig-absent", create_absent, ".gitconfig, which does not exist", ".gitconfig"),
        DENY("never-gitmodules-absent", create_absent, ".gitmodules, which does not exist", ".gitmodules"),
        DENY("never-mcp-json-absent", create_absent, ".mcp.json: servers that an agent's host starts",
             ".mcp.json"),
        DENY("never-ripgreprc-absent", create_absent, ".ripgreprc", ".ripgreprc"),
        DENY("never-git-hook", create_absent, "a git hook", ".git/hooks/pre-commit"),
        DENY("never-git-config", append, ".git/config", ".git/config"),
        DENY("never-git-config-replace", replace, "another moved onto it, as git itself does", ".git/config"),
        DENY("never-git-config-worktree", create_absent, "the config of a work tree, where git reads it",
             ".git/config.worktree"),
        DENY("never-git-commondir", create_absent, ".git/commondir, which leads git to another config",
             ".git/commondir"),
        DENY2("never-git-aside", move_aside, "the repository moved aside", ".git", "git-aside"),
        DENY2("never-git-hooks-aside", move_aside, "its hooks moved aside", ".git/hooks", ".git/hooks-aside"),
        DENY("never-nested-hook", create_absent, "a hook of a repository below", "sub/.git/hooks/pre-commit"),
        DENY2("never-nested-aside", move_aside, "the folder of that repository moved aside", "sub",
              "sub-aside"),
        DENY("never-vscode", create_absent, "a task of an editor", ".vscode/tasks.json"),
        DENY2("never-vscode-aside", move_aside, "its folder moved aside", ".vscode", "vscode-aside"),
        DENY2("never-idea-absent", folder_absent, "a folder of another editor", ".idea",
              ".idea/workspace.xml"),
        DENY("never-claude-commands", create_absent, "commands of an agent", ".claude/commands/x.md"),
        DENY("never-srt-settings", create_absent, "the settings of the next command", ".srt-settings.json"),
        DENY("own-runtime", runtime_folder, "cellgate's own runtime folder, from where MCP servers start",
             NULL),
        DENY("never-claude-agents", create_absent, "agents of an agent", ".claude/agents/x.md"),
#undef DENY
#undef DENY2
        { "deny-beside",
          "",
          true,
          0,
          0,
          beside_works,
          "a file beside a protected one",
          "d/other.txt",
          NULL,
          { 0 } },
        { "git-objects",
          "",
          true,
          0,
          0,
          beside_works,
          "a commit can be made",
          ".git/objects/x",
          NULL,
          { 0 } },
        { "claude-other",
          "",
          true,
          0,
          0,
          beside_works,
          "other files of an agent",
          ".claude/notes.md",
          NULL,
          { 0 } },
};

CG_TABLE(protected, "protected files");
