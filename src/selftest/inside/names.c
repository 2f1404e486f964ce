/*
 * Names that programs outside obey (sandbox/names/names.h): each of the table, and each way to make
 * one, below folders that exist and that do not. A file that an attempt could make is removed.
 * Runs inside a command's sandbox, a kernel with settings, and a default kernel.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/fs.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "sandbox/names/names.h"
#include "selftest/inside/attempt.h"

/* Eight folders deep, made by the attempt. */
#define DEEP "names/1/2/3/4/5/6/7/8"

static int make_parents(const char *path)
{
        char part[PATH_MAX];

        for (const char *slash = strchr(path, '/'); slash; slash = strchr(slash + 1, '/')) {
                snprintf(part, sizeof(part), "%.*s", (int)(slash - path), path);
                if (mkdir(part, 0755) < 0 && errno != EEXIST)
                        return -1;
        }
        return 0;
}

static int put(const char *path, const char *text)
{
        int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0644);
        long n = cg_write_to(fd, text);

        cg_drop(fd, NULL);
        return (int)n;
}

/* Verdict on @r of what makes @path, which is removed. */
static enum cg_verdict judge(struct cg_try *t, long r, const char *path)
{
        if (r >= 0 && unlink(path) < 0)
                return cg_fails(t, "it was made, and cannot be removed: %s", cg_errno_name(errno));
        return t->attempt->allow ? cg_possible(t, r) : cg_refused(t, r);
}

static enum cg_verdict each(struct cg_try *t, const struct cg_attempt *a)
{
        size_t n, tried = 0;
        const struct cg_name *rows = cg_names(&n);
        char path[PATH_MAX];

        for (size_t i = 0; i < n; i++) {
                char *to = path + snprintf(path, sizeof(path), "%s/", a->arg);

                if (!(rows[i].what & CG_NAME_WRITE))
                        continue;
                for (const char *p = rows[i].path; *p; p++)
                        *to++ = *p == '*' ? 'x' : *p;
                *to = '\0';
                tried++;
                if (make_parents(path) == 0 && cg_make(path) == 0) {
                        unlink(path);
                        return cg_hole(t, "%s was made", path);
                }
                if (errno != EACCES && errno != EROFS && errno != EPERM)
                        return cg_fails(t, "%s: %s", path, cg_errno_name(errno));
        }
        return cg_held(t, "%zu names", tried);
}

/* ---- ways to make a name */

/* The last component of @path; the folder is copied to @folder, of PATH_MAX bytes. */
static const char *split(const char *path, char *folder)
{
        const char *last = strrchr(path, '/');

        snprintf(folder, PATH_MAX, "%.*s", (int)(last - path), path);
        return last + 1;
}

/* An exchange needs an existing target, which cannot be made. */
static int by_noreplace(const char *path)
{
        if (cg_make("fresh") < 0)
                return -1;
        return (int)syscall(SYS_renameat2, AT_FDCWD, "fresh", AT_FDCWD, path, RENAME_NOREPLACE);
}

static int by_tmpfile(const char *path)
{
        int fd = open(".", O_TMPFILE | O_WRONLY, 0644), r;
        char name[64];

        if (fd < 0)
                return -1;
        snprintf(name, sizeof(name), "/proc/self/fd/%d", fd);
        r = linkat(AT_FDCWD, name, AT_FDCWD, path, AT_SYMLINK_FOLLOW);
        close(fd);
        return r;
}

static int by_creat(const char *path)
{
        return creat(path, 0644);
}

static int by_folder_fd(const char *path)
{
        char folder[PATH_MAX];
        const char *last = split(path, folder);
        int dir = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

        return dir < 0 || openat(dir, last, O_WRONLY | O_CREAT, 0644) < 0 ? -1 : 0;
}

static int by_proc_fd(const char *path)
{
        char folder[PATH_MAX], by[PATH_MAX + 64];
        const char *last = split(path, folder);
        int dir = open(folder, O_PATH | O_DIRECTORY | O_CLOEXEC);

        snprintf(by, sizeof(by), "/proc/self/fd/%d/%s", dir, last);
        if (dir < 0)
                return -1;
        return cg_make(by);
}

static int by_chdir(const char *path)
{
        char folder[PATH_MAX];
        const char *last = split(path, folder);
        int here = open(".", O_PATH | O_DIRECTORY | O_CLOEXEC), r, e;

        r = chdir(folder) < 0 ? -1 : cg_make(last);
        e = errno;
        if (fchdir(here) < 0)
                return -1;
        errno = e;
        return r;
}

/* Makes @path, where "alias" in it is a new link to @target. */
static int by_alias(const char *target, const char *path)
{
        int r;

        unlink("alias");
        if (symlink(target, "alias") < 0)
                return -1;
        r = cg_make(path);
        cg_drop(-1, "alias");
        return r;
}

static int by_folder_link(const char *path)
{
        char folder[PATH_MAX], by[PATH_MAX + 10];

        snprintf(by, sizeof(by), "alias/%s", split(path, folder));
        return by_alias(folder, by);
}

/* By a link to the name itself, which does not exist. */
static int by_dangling_link(const char *path)
{
        return by_alias(path, "alias");
}

static int by_case(const char *path)
{
        char by[PATH_MAX];

        snprintf(by, sizeof(by), "%s", path);
        for (char *p = strrchr(by, '/'); *p; p++)
                *p = *p >= 'a' && *p <= 'z' ? (char)(*p - 32) : *p;
        return cg_make(by);
}

/* Each makes a path: by a function, by a change of a new file, or by another spelling of it. */
static const struct way {
        const char *name;
        int (*make)(const char *path);
        enum cg_change change;
        const char *prefix;
} ways[] = {
        { "open", .make = cg_make },
        { "creat", .make = by_creat },
        { "mkdir", .change = CG_MKDIR },
        { "mkfifo", .change = CG_MKFIFO },
        { "rename", .change = CG_RENAME },
        { "noreplace", .make = by_noreplace },
        { "link", .change = CG_LINK },
        { "symlink", .change = CG_SYMLINK },
        { "tmpfile", .make = by_tmpfile },
        { "folder-fd", .make = by_folder_fd },
        { "proc-fd", .make = by_proc_fd },
        { "proc-cwd", .prefix = "/proc/self/cwd/" },
        { "thread-cwd", .prefix = "/proc/thread-self/../../cwd/./" },
        { "chdir", .make = by_chdir },
        { "folder-link", .make = by_folder_link },
        { "dangling-link", .make = by_dangling_link },
        { "dots", .prefix = "./names/../names/1/../1//2/../../../" },
        { "case", .make = by_case },
};

static int make_by(const struct way *w, const char *path)
{
        char by[PATH_MAX + 100];
        int r;

        if (w->make)
                return w->make(path);
        if (w->prefix) {
                snprintf(by, sizeof(by), "%s%s", w->prefix, path);
                return cg_make(by);
        }
        if (w->change < CG_RENAME)
                return cg_change(w->change, path, NULL);
        r = cg_make("fresh") < 0 ? -1 : cg_change(w->change, "fresh", path);
        cg_drop(-1, "fresh");
        return r;
}

/* a->arg, by the way a->arg2; in an existing folder, and in a deep one. */
static enum cg_verdict by_way(struct cg_try *t, const struct cg_attempt *a)
{
        static const char *const folders[] = { "names", DEEP };
        const struct way *w = ways;

        while (strcmp(w->name, a->arg2) != 0)
                w++;
        for (size_t f = 0; f < sizeof(folders) / sizeof(folders[0]); f++) {
                char path[PATH_MAX];

                snprintf(path, sizeof(path), "%s/%s", folders[f], a->arg);
                make_parents(path);
                if (make_by(w, path) >= 0) {
                        unlink(path);
                        rmdir(path);
                        return cg_hole(t, "%s was made", path);
                }
                if (cg_refused(t, -1) != CG_HELD)
                        return CG_HOLE;
        }
        return cg_held(t, "%s", cg_errno_name(EACCES));
}

/* ---- folders that are moved as a whole */

/* A folder with the rest of a longer name in it is moved or linked to where it is obeyed. */
static enum cg_verdict bring_folder(struct cg_try *t, const struct cg_attempt *a)
{
        char inner[PATH_MAX], to[PATH_MAX], got[2 * PATH_MAX];
        int r;

        snprintf(inner, sizeof(inner), "bring/brought/%s", a->arg2);
        snprintf(to, sizeof(to), "bring/%s", a->arg);
        snprintf(got, sizeof(got), "%s/%s", to, a->arg2);
        make_parents(inner);
        if (cg_make(inner) < 0)
                return cg_fails(t, "%s: %s", inner, cg_errno_name(errno));
        r = a->change == CG_SYMLINK ? symlink("brought", to) : rename("bring/brought", to);
        if (r == 0) {
                unlink(got);
                unlink(to);
                rename(to, "bring/brought");
        }
        return cg_refused(t, r);
}

/* ---- git */

/* Makes a new repository: a configuration that an earlier sandbox made cannot be changed. */
static int repository(const char *top)
{
        static const char *const parts[] = { "objects", "refs/heads",  "refs", "HEAD",
                                             "config",  "config.lock", "" };
        char path[PATH_MAX];

        for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
                snprintf(path, sizeof(path), "%s/.git/%s", top, parts[i]);
                remove(path);
        }
        snprintf(path, sizeof(path), "%s/.git/refs/heads", top);
        make_parents(path);
        snprintf(path, sizeof(path), "%s/.git/objects/x", top);
        make_parents(path);
        snprintf(path, sizeof(path), "%s/.git/HEAD", top);
        return put(path, "ref: refs/heads/main\n");
}

static enum cg_verdict in_repository(struct cg_try *t, const struct cg_attempt *a)
{
        char path[PATH_MAX];

        if (repository(DEEP "/made") < 0)
                return cg_fails(t, "no repository: %s", cg_errno_name(errno));
        snprintf(path, sizeof(path), DEEP "/made/.git/%s", a->arg);
        make_parents(path);
        return judge(t, cg_make(path), path);
}

/* The file a->arg2 with the text a->arg, made as git does: under another name. */
static enum cg_verdict by_lock(struct cg_try *t, const struct cg_attempt *a)
{
        char top[100], path[PATH_MAX], lock[PATH_MAX + 10];

        snprintf(top, sizeof(top), "names/%s", a->name);
        snprintf(path, sizeof(path), "%s/.git/%s", top, a->arg2);
        snprintf(lock, sizeof(lock), "%s.lock", path);
        if (repository(top) < 0 || make_parents(lock) < 0 || put(lock, a->arg) < 0)
                return cg_fails(t, "no repository: %s", cg_errno_name(errno));
        return judge(t, rename(lock, path), path);
}

/* As git worktree add makes it, but with another repository in it. */
static enum cg_verdict worktree_file(struct cg_try *t, const struct cg_attempt *a)
{
        char cwd[PATH_MAX], text[PATH_MAX + 64] = "";
        int fd;

        if (getcwd(cwd, sizeof(cwd)))
                snprintf(text, sizeof(text), "%s/names/of-tree/.git\n", cwd);
        if (repository("names/tree") < 0 || make_parents("names/tree/.git/worktrees/w/gitdir") < 0 ||
            make_parents("names/of-tree/.git") < 0 || put("names/tree/.git/worktrees/w/gitdir", text) < 0)
                return cg_fails(t, "no repository: %s", cg_errno_name(errno));
        if (put("names/of-tree/.git", "gitdir: /nowhere") < 0)
                return cg_refused(t, -1);
        fd = open("names/of-tree/.git", O_RDONLY);
        if (fd < 0 || read(fd, text, sizeof(text) - 1) < 0)
                return cg_fails(t, "it cannot be read");
        close(fd);
        unlink("names/of-tree/.git");
        return cg_hole_if(t, strstr(text, "/nowhere"), "it was written", "it was not written");
}

#define PLAIN "[core]\n\trepositoryformatversion = 0\n\tbare = false\n"
static const char evil[] = "[core]\n\tfsmonitor = /bin/false #########\n";

/* A descriptor of the renamed file must not refer to the configuration. */
static enum cg_verdict config_kept_open(struct cg_try *t, const struct cg_attempt *a)
{
        char text[200] = "";
        int fd, r;

        if (repository("names/open") < 0 || put("names/open/.git/config.lock", PLAIN) < 0)
                return cg_fails(t, "no repository: %s", cg_errno_name(errno));
        fd = open("names/open/.git/config.lock", O_RDWR);
        r = rename("names/open/.git/config.lock", "names/open/.git/config");
        if (r == 0 && pwrite(fd, evil, sizeof(evil) - 1, 0) < 0)
                return cg_fails(t, "%s", cg_errno_name(errno));
        if (r == 0 && cg_slurp("names/open/.git/config", text, sizeof(text)) > 0 && strstr(text, "fsmonitor"))
                return cg_hole(t, "it has the text that was written afterwards");
        unlink("names/open/.git/config");
        return cg_held(t, "%s", r == 0 ? "another file" : cg_errno_name(errno));
}

/* Parts of a repository are made in a folder with another name, which then becomes one. */
static enum cg_verdict in_pieces(struct cg_try *t, const struct cg_attempt *a)
{
        char config[PATH_MAX], to[PATH_MAX];
        int r;

        make_parents("names/pieces/objects/x");
        make_parents("names/pieces/refs/x");
        snprintf(config, sizeof(config), "names/pieces/%s", a->arg);
        make_parents(config);
        cg_make(config);
        make_parents("names/inner/.git/x");
        snprintf(to, sizeof(to), "names/%s", a->arg2);
        if (a->call[0] == 0) /* a HEAD beside it */
                return judge(t, put("names/pieces/HEAD", "ref: refs/heads/main\n"), "names/pieces/HEAD");
        r = rename("names/pieces", to);
        if (r == 0)
                rename(to, "names/pieces");
        return cg_refused(t, r);
}

static enum cg_verdict head_renamed(struct cg_try *t, const struct cg_attempt *a)
{
        make_parents("names/bare/objects/x");
        make_parents("names/bare/refs/x");
        if (put("names/bare/config", evil) < 0 || put("names/bare/head.txt", "ref: refs/heads/main\n") < 0)
                return cg_fails(t, "%s", cg_errno_name(errno));
        return judge(t, rename("names/bare/head.txt", "names/bare/HEAD"), "names/bare/HEAD");
}

/* ---- a repository that was there before, below the top */

static enum cg_verdict settings_removed(struct cg_try *t, const struct cg_attempt *a)
{
        int r = unlink("sub/.git/config"), e = errno;

        if (r == 0 && put("sub/.git/config", "[core]\n\thooksPath = ci/hooks\n\tfsmonitor = ci/watch\n") < 0)
                return cg_fails(t, "%s", cg_errno_name(errno));
        errno = e;
        return cg_refused(t, r);
}

/* A file that the settings name: @arg. */
static enum cg_verdict named_by_settings(struct cg_try *t, const struct cg_attempt *a)
{
        struct stat st;
        bool there = stat(a->arg, &st) == 0;
        int fd = !there && make_parents(a->arg) < 0 ? -1 : open(a->arg, O_WRONLY | O_CREAT | O_APPEND, 0644);

        if (fd < 0)
                return cg_refused(t, -1);
        close(fd);
        if (!there)
                unlink(a->arg);
        return cg_refused(t, 0);
}

/* ---- races */

static char flipping[PATH_MAX];
static volatile bool over;

/* Changes the path in memory from a harmless one to a protected one and back. */
static void *flip(void *data)
{
        const char *other = data;
        size_t at = strlen(flipping) - strlen(other);
        char own[64];

        memcpy(own, flipping + at, strlen(other) + 1);
        while (!over) {
                memcpy(flipping + at, other, strlen(other));
                memcpy(flipping + at, own, strlen(other));
        }
        return NULL;
}

/* Exchanges two folders of a name: an ordinary one and a protected one. */
static void *swap_folders(void *data)
{
        while (!over)
                syscall(SYS_renameat2, AT_FDCWD, "names/swap/a", AT_FDCWD, "names/swap/b", RENAME_EXCHANGE);
        return NULL;
}

/* Makes @path while @change runs, until @victim exists. @harmless, if any, is removed each time. */
static enum cg_verdict race(struct cg_try *t, void *(*change)(void *), const char *other, const char *path,
                            const char *harmless, const char *victim)
{
        struct timespec start;
        struct stat st;
        pthread_t thread;
        long tries = 0;
        bool hole = false;

        over = false;
        if (pthread_create(&thread, NULL, change, (void *)(uintptr_t)other) != 0)
                return cg_fails(t, "no second thread");
        clock_gettime(CLOCK_MONOTONIC, &start);
        for (; cg_race_goes_on(&start) && !hole; tries++) {
                cg_make(path);
                if (harmless)
                        unlink(harmless);
                hole = lstat(victim, &st) == 0;
        }
        over = true;
        pthread_join(thread, NULL);
        unlink(victim);
        return hole ? cg_hole(t, "%s was made", victim) : cg_held(t, "%ld tries", tries);
}

static enum cg_verdict race_name(struct cg_try *t, const struct cg_attempt *a)
{
        make_parents("names/race/x");
        snprintf(flipping, sizeof(flipping), "names/race/_bashrc");
        return race(t, flip, ".bashrc", flipping, NULL, "names/race/.bashrc");
}

static enum cg_verdict race_folder(struct cg_try *t, const struct cg_attempt *a)
{
        make_parents("names/swap/real/commands-of-nobody/x");
        make_parents("names/swap/.claude/x");
        unlink("names/swap/a");
        unlink("names/swap/b");
        if (symlink("real", "names/swap/a") < 0 || symlink(".claude", "names/swap/b") < 0)
                return cg_fails(t, "no links: %s", cg_errno_name(errno));
        return race(t, swap_folders, NULL, "names/swap/a/settings.json", "names/swap/real/settings.json",
                    "names/swap/.claude/settings.json");
}

/* ---- required operations */

static enum cg_verdict ordinary(struct cg_try *t, const struct cg_attempt *a)
{
        make_parents(DEEP "/x");
        for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++) {
                if (strcmp(ways[i].name, "case") == 0)
                        continue;
                if (make_by(&ways[i], DEEP "/ordinary") < 0)
                        return cg_fails(t, "%s: %s", ways[i].name, cg_errno_name(errno));
                if (unlink(DEEP "/ordinary") < 0 && rmdir(DEEP "/ordinary") < 0)
                        return cg_fails(t, "%s, removed: %s", ways[i].name, cg_errno_name(errno));
        }
        return cg_works(t, "%zu ways", sizeof(ways) / sizeof(ways[0]));
}

/* Through a FIFO, whose open() waits for the other end. */
static enum cg_verdict fifo(struct cg_try *t, const struct cg_attempt *a)
{
        char text[8] = "";
        int fd, status = 0;
        pid_t pid;

        make_parents("names/x");
        unlink("names/fifo");
        if (mkfifo("names/fifo", 0600) < 0)
                return cg_possible(t, -1);
        pid = fork();
        if (pid == 0) {
                int to = open("names/fifo", O_WRONLY);

                _exit(to < 0 || write(to, "hello", 5) != 5);
        }
        fd = open("names/fifo", O_RDONLY);
        if (fd < 0 || read(fd, text, 5) != 5 || strcmp(text, "hello") != 0)
                return cg_fails(t, "%s", cg_errno_name(errno));
        waitpid(pid, &status, 0);
        unlink("names/fifo");
        if (status != 0)
                return cg_fails(t, "the writer ended with %d", status);
        return cg_works(t, "possible");
}

static enum cg_verdict umask_holds(struct cg_try *t, const struct cg_attempt *a)
{
        static const mode_t masks[] = { 0, 077, 027 };
        struct stat st;

        make_parents("names/x");
        for (size_t i = 0; i < sizeof(masks) / sizeof(masks[0]); i++) {
                unlink("names/masked");
                umask(masks[i]);
                if (cg_make("names/masked") < 0 || stat("names/masked", &st) < 0)
                        return cg_possible(t, -1);
                if ((st.st_mode & 0777) != (0644 & ~masks[i]))
                        return cg_fails(t, "umask %03o: mode %03o", masks[i], st.st_mode & 0777);
        }
        unlink("names/masked");
        return cg_works(t, "possible");
}

#define L "names"
#define WAY(way) \
        CG_DENY("name-" way, L, by_way, "a protected name, by " way, .arg = ".bash_login", .arg2 = way)
#define HOOK(name, change_, what, ...) \
        CG_DENY(name, L, cg_try_change, what, .change = change_, .arg = "sub/.git/hooks/idle", \
                .also = { EOPNOTSUPP }, __VA_ARGS__)
static const struct cg_attempt attempts[] = {
        CG_DENY("name-each", L, each, "each name of the table, in a folder", .arg = "names"),
        CG_DENY("name-each-deep", L, each, "the same eight folders deep", .arg = DEEP),
        WAY("open"),
        WAY("creat"),
        WAY("mkdir"),
        WAY("mkfifo"),
        WAY("rename"),
        WAY("noreplace"),
        WAY("link"),
        WAY("symlink"),
        WAY("tmpfile"),
        WAY("folder-fd"),
        WAY("proc-fd"),
        WAY("proc-cwd"),
        WAY("thread-cwd"),
        WAY("chdir"),
        WAY("folder-link"),
        WAY("dangling-link"),
        WAY("dots"),
        WAY("case"),
        CG_DENY("name-folder-brought", L, bring_folder, "a folder with commands, renamed to .claude",
                .arg = ".claude", .arg2 = "commands/x.md"),
        CG_DENY("name-folder-linked", L, bring_folder, "a link to it under that name", .arg = ".claude",
                .arg2 = "commands/x.md", .change = CG_SYMLINK),
        CG_DENY("name-folder-deep", L, bring_folder, "one renamed to .config", .arg = ".config",
                .arg2 = "autostart/x.desktop"),
        CG_DENY("name-git-folder", L, bring_folder, "a folder renamed to .git", .arg = ".git",
                .arg2 = "objects/x"),
        CG_DENY("name-git-link", L, bring_folder, "a link to one under that name", .arg = ".git",
                .arg2 = "objects/x", .change = CG_SYMLINK),
        CG_DENY("name-git-file", L, by_way, "a file .git, which names a repository", .arg = ".git",
                .arg2 = "open"),
        CG_DENY("name-git-config", L, in_repository, "the configuration of a repository of its own",
                .arg = "config"),
        CG_DENY("name-git-worktree", L, in_repository, "that of a work tree", .arg = "config.worktree"),
        CG_DENY("name-git-commondir", L, in_repository, "a file that names another repository",
                .arg = "commondir"),
        CG_DENY("name-git-hook", L, in_repository, "a hook", .arg = "hooks/pre-commit"),
        CG_DENY("name-git-options", L, in_repository, "options of a cherry-pick to be continued",
                .arg = "sequencer/opts"),
        CG_DENY("name-git-module", L, in_repository, "the configuration of a submodule",
                .arg = "modules/a/b/config"),
        CG_DENY("name-git-module-hook", L, in_repository, "its hook",
                .arg = "modules/refs/hooks/post-checkout"),
        CG_DENY("name-git-lock", L, by_lock, "git's way to write one, with a program in it",
                .arg = "[core]\n\tfsmonitor = /bin/false\n", .arg2 = "config"),
        CG_DENY("name-git-lock-include", L, by_lock, "with another file in it",
                .arg = "[include]\n\tpath = /x\n", .arg2 = "config"),
        CG_DENY("name-git-lock-remote", L, by_lock, "with a program for a remote",
                .arg = "[remote \"o\"]\n\turl = ext::sh -c false\n", .arg2 = "config"),
        CG_DENY("name-git-lock-options", L, by_lock,
                "git's way to write options of a cherry-pick, whose strategy is a program",
                .arg = "[options]\n\tstrategy = x/false\n", .arg2 = "sequencer/opts"),
        CG_DENY("name-git-worktree-file", L, worktree_file,
                "the file of a work tree, which names a repository"),
        CG_DENY("name-git-lock-open", L, config_kept_open, "a plain one, changed by a descriptor"),
        CG_DENY("name-git-head", L, in_pieces, "a HEAD beside a configuration", .arg = "config", .arg2 = ""),
        CG_DENY("name-git-head-hooks", L, in_pieces, "a HEAD beside hooks", .arg = "hooks/update",
                .arg2 = ""),
        CG_DENY("name-git-head-renamed", L, head_renamed, "a file renamed to HEAD there"),
        CG_DENY("name-git-pieces", L, in_pieces, "a folder with a configuration, moved into a repository",
                .arg = "config", .arg2 = "inner/.git/modules", .call = { 1 }),
        CG_DENY("name-nested-settings", L, settings_removed,
                "the configuration of a repository below, removed to make another"),
        CG_DENY("name-nested-hooks", L, named_by_settings, "a hook where that configuration has them",
                .arg = "sub/ci/hooks/pre-commit"),
        CG_DENY("name-nested-program", L, named_by_settings, "a program that it names",
                .arg = "sub/ci/watch"),
        /* It exists and is not executable. */
        HOOK("name-chmod", CG_CHMOD, "an ignored hook made one that git runs"),
        HOOK("name-fchmod", CG_FCHMOD, "the same by a descriptor"),
        HOOK("name-access-list", CG_ACCESS_LIST, "its mode by an access list", .bare = CG_BARE_MACHINE),
        CG_DENY("name-race-name", L, race_name, "a name that changes in memory"),
        CG_DENY("name-race-folder", L, race_folder, "a link to a folder that changes"),
        CG_ALLOW("name-ordinary", ordinary, "other names, by all these ways"),
        CG_ALLOW("name-git-plain", by_lock, "a plain configuration, as git init writes it", .arg = PLAIN,
                 .arg2 = "config"),
        CG_ALLOW("name-fifo", fifo, "a FIFO, opened at both ends"),
        CG_ALLOW("name-umask", umask_holds, "modes of new files"),
};

CG_TABLE(names, "names");
