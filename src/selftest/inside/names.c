/*
 * Names that programs outside obey (src/sandbox/names.h): each of the table, and each way to come
 * by one, below folders that exist and that do not. What an attempt managed to make it removes.
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
#include <sys/xattr.h>
#include <time.h>
#include <unistd.h>

#include "sandbox/names.h"
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

static int make(const char *path)
{
        int fd = open(path, O_WRONLY | O_CREAT, 0644);

        if (fd >= 0)
                close(fd);
        return fd < 0 ? -1 : 0;
}

static int put(const char *path, const char *text)
{
        int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0644);
        ssize_t n = fd < 0 ? -1 : write(fd, text, strlen(text));

        if (fd >= 0)
                close(fd);
        return n < 0 ? -1 : 0;
}

/* The name must not exist; a failure alone is not enough. */
static enum cg_verdict judge(struct cg_try *t, long r, const char *path)
{
        int e = errno;
        struct stat st;

        if (r >= 0 && lstat(path, &st) < 0)
                return cg_fails(t, "it was made, and is not there");
        errno = e;
        if (r >= 0)
                unlink(path);
        return cg_refused(t, r);
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
                if (make_parents(path) == 0 && make(path) == 0) {
                        unlink(path);
                        return cg_hole(t, "%s was made", path);
                }
                if (errno != EACCES && errno != EROFS && errno != EPERM)
                        return cg_fails(t, "%s: %s", path, cg_errno_name(errno));
        }
        return cg_held(t, "%zu names", tried);
}

/* ---- ways to come by a name: each makes @path */

static int by_creat(const char *path)
{
        return creat(path, 0644) < 0 ? -1 : 0;
}
static int by_mkdir(const char *path)
{
        return mkdir(path, 0755);
}
static int by_fifo(const char *path)
{
        return mkfifo(path, 0644);
}

static int by_rename(const char *path)
{
        int r = make("fresh") < 0 ? -1 : rename("fresh", path);
        int e = errno;

        unlink("fresh");
        errno = e;
        return r;
}

static int by_exchange(const char *path)
{
        int r;

        /*
         * An exchange needs an existing target, which cannot be made, so the name is made as the
         * other half.
         */
        r = make("fresh") < 0
                    ? -1
                    : (int)syscall(SYS_renameat2, AT_FDCWD, "fresh", AT_FDCWD, path, RENAME_NOREPLACE);
        return r;
}

static int by_link(const char *path)
{
        int r = make("fresh") < 0 ? -1 : link("fresh", path);
        int e = errno;

        unlink("fresh");
        errno = e;
        return r;
}

static int by_symlink(const char *path)
{
        return symlink("fresh", path);
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

static int by_folder_fd(const char *path)
{
        char folder[PATH_MAX];
        const char *last = strrchr(path, '/');
        int dir, fd;

        snprintf(folder, sizeof(folder), "%.*s", (int)(last - path), path);
        dir = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        fd = dir < 0 ? -1 : openat(dir, last + 1, O_WRONLY | O_CREAT, 0644);
        return fd < 0 ? -1 : 0;
}

static int by_proc_fd(const char *path)
{
        char folder[PATH_MAX], by[PATH_MAX + 64];
        const char *last = strrchr(path, '/');
        int dir;

        snprintf(folder, sizeof(folder), "%.*s", (int)(last - path), path);
        dir = open(folder, O_PATH | O_DIRECTORY | O_CLOEXEC);
        snprintf(by, sizeof(by), "/proc/self/fd/%d/%s", dir, last + 1);
        return dir < 0 ? -1 : make(by);
}

static int by_proc_cwd(const char *path)
{
        char by[PATH_MAX + 100];

        snprintf(by, sizeof(by), "/proc/self/cwd/%s", path);
        return make(by);
}

static int by_thread_cwd(const char *path)
{
        char by[PATH_MAX + 100];

        snprintf(by, sizeof(by), "/proc/thread-self/../../cwd/./%s", path);
        return make(by);
}

static int by_chdir(const char *path)
{
        char folder[PATH_MAX];
        const char *last = strrchr(path, '/');
        int here = open(".", O_PATH | O_DIRECTORY | O_CLOEXEC), r, e;

        snprintf(folder, sizeof(folder), "%.*s", (int)(last - path), path);
        r = chdir(folder) < 0 ? -1 : make(last + 1);
        e = errno;
        if (fchdir(here) < 0)
                return -1;
        errno = e;
        return r;
}

/* By a new symlink: to the folder, and to the name itself, which does not exist. */
static int by_folder_link(const char *path)
{
        char folder[PATH_MAX], by[PATH_MAX + 10];
        const char *last = strrchr(path, '/');
        int r, e;

        snprintf(folder, sizeof(folder), "%.*s", (int)(last - path), path);
        unlink("alias");
        if (symlink(folder, "alias") < 0)
                return -1;
        snprintf(by, sizeof(by), "alias/%s", last + 1);
        r = make(by);
        e = errno;
        unlink("alias");
        errno = e;
        return r;
}

static int by_dangling_link(const char *path)
{
        int r, e;

        unlink("alias");
        if (symlink(path, "alias") < 0)
                return -1;
        r = make("alias");
        e = errno;
        unlink("alias");
        errno = e;
        return r;
}

static int by_dots(const char *path)
{
        char by[PATH_MAX + 100];

        snprintf(by, sizeof(by), "./names/../names/1/../1//2/../../../%s", path);
        return make(by);
}

static int by_case(const char *path)
{
        char by[PATH_MAX + 100];

        snprintf(by, sizeof(by), "%s", path);
        for (char *p = strrchr(by, '/'); *p; p++)
                *p = *p >= 'a' && *p <= 'z' ? (char)(*p - 32) : *p;
        return make(by);
}

static const struct {
        const char *name;
        int (*make)(const char *path);
} ways[] = {
        { "open", make },
        { "creat", by_creat },
        { "mkdir", by_mkdir },
        { "mkfifo", by_fifo },
        { "rename", by_rename },
        { "noreplace", by_exchange },
        { "link", by_link },
        { "symlink", by_symlink },
        { "tmpfile", by_tmpfile },
        { "folder-fd", by_folder_fd },
        { "proc-fd", by_proc_fd },
        { "proc-cwd", by_proc_cwd },
        { "thread-cwd", by_thread_cwd },
        { "chdir", by_chdir },
        { "folder-link", by_folder_link },
        { "dangling-link", by_dangling_link },
        { "dots", by_dots },
        { "case", by_case },
};

/* a->arg2: the way; in an existing folder, and in a deep one. */
static enum cg_verdict by_way(struct cg_try *t, const struct cg_attempt *a)
{
        static const char *const folders[] = { "names", DEEP };

        for (size_t f = 0; f < sizeof(folders) / sizeof(folders[0]); f++) {
                char path[PATH_MAX];

                snprintf(path, sizeof(path), "%s/%s", folders[f], a->arg);
                make_parents(path);
                for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++) {
                        enum cg_verdict v;
                        int r;

                        if (strcmp(ways[i].name, a->arg2) != 0)
                                continue;
                        r = ways[i].make(path);
                        if (r == 0) {
                                unlink(path);
                                rmdir(path);
                                return cg_hole(t, "%s was made", path);
                        }
                        v = cg_refused(t, r);
                        if (v != CG_HELD)
                                return v;
                }
        }
        return cg_held(t, "%s", cg_errno_name(EACCES));
}

/* ---- folders that come along */

/* A folder with the rest of a longer name in it is moved or linked to where it is obeyed. */
static enum cg_verdict bring_folder(struct cg_try *t, const struct cg_attempt *a)
{
        char inner[PATH_MAX], to[PATH_MAX], got[2 * PATH_MAX];
        int r;

        snprintf(inner, sizeof(inner), "bring/brought/%s", a->arg2);
        snprintf(to, sizeof(to), "bring/%s", a->arg);
        snprintf(got, sizeof(got), "%s/%s", to, a->arg2);
        make_parents(inner);
        if (make(inner) < 0)
                return cg_fails(t, "%s: %s", inner, cg_errno_name(errno));
        r = a->call[0] ? symlink("brought", to) : rename("bring/brought", to);
        if (r == 0) {
                unlink(got);
                unlink(to);
                rename(to, "bring/brought");
        }
        return cg_refused(t, r);
}

/* ---- git */

/*
 * Makes a new repository: the configuration of one that an earlier sandbox made cannot be changed.
 */
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
        return judge(t, make(path), path);
}

/*
 * Replaced as git does, by a configuration that makes git run a program: directly, and by changing
 * it after the check.
 */
static enum cg_verdict config_by_lock(struct cg_try *t, const struct cg_attempt *a)
{
        if (repository("names/lock") < 0 || put("names/lock/.git/config.lock", a->arg) < 0)
                return cg_fails(t, "no repository: %s", cg_errno_name(errno));
        return judge(t, rename("names/lock/.git/config.lock", "names/lock/.git/config"),
                     "names/lock/.git/config");
}

static const char plain[] = "[core]\n\trepositoryformatversion = 0\n\tbare = false\n";
static const char evil[] = "[core]\n\tfsmonitor = /bin/false #########\n";

/* A descriptor of the renamed file must not refer to the configuration. */
static enum cg_verdict config_kept_open(struct cg_try *t, const struct cg_attempt *a)
{
        char text[200] = "";
        int fd, r;

        if (repository("names/open") < 0 || put("names/open/.git/config.lock", plain) < 0)
                return cg_fails(t, "no repository: %s", cg_errno_name(errno));
        fd = open("names/open/.git/config.lock", O_RDWR);
        r = rename("names/open/.git/config.lock", "names/open/.git/config");
        if (r == 0 && pwrite(fd, evil, sizeof(evil) - 1, 0) < 0)
                return cg_fails(t, "%s", cg_errno_name(errno));
        if (r == 0 && cg_slurp("names/open/.git/config", text, sizeof(text)) > 0 && strstr(text, "fsmonitor"))
                return cg_hole(t, "it reads as what was written afterwards");
        unlink("names/open/.git/config");
        return cg_held(t, "%s", r == 0 ? "another file" : cg_errno_name(errno));
}

static enum cg_verdict config_plain(struct cg_try *t, const struct cg_attempt *a)
{
        int r;

        if (repository("names/plain") < 0 || put("names/plain/.git/config.lock", plain) < 0)
                return cg_fails(t, "no repository: %s", cg_errno_name(errno));
        r = rename("names/plain/.git/config.lock", "names/plain/.git/config");
        if (r == 0 && unlink("names/plain/.git/config") < 0)
                return cg_fails(t, "it cannot be removed: %s", cg_errno_name(errno));
        return cg_possible(t, r);
}

/* A hook that exists and is not executable. */
static const unsigned char acl[] = { 2, 0, 0,   0,   1,   0,   7,  0, 255, 255, 255, 255, 4,   0,
                                     5, 0, 255, 255, 255, 255, 32, 0, 5,   0,   255, 255, 255, 255 };

static enum cg_verdict attribute(struct cg_try *t, const struct cg_attempt *a)
{
        const char *path = "sub/.git/hooks/idle";
        int fd = open(path, O_RDONLY | O_CLOEXEC);
        long r = -1;

        if (fd < 0)
                return cg_fails(t, "%s: %s", path, cg_errno_name(errno));
        switch (a->call[0]) {
        case 0:
                r = chmod(path, 0755);
                break;
        case 1:
                r = fchmod(fd, 0755);
                break;
        case 2:
                r = utimensat(AT_FDCWD, path, NULL, 0);
                break;
        case 3:
                r = futimens(fd, NULL);
                break;
        default:
                r = fsetxattr(fd, "system.posix_acl_access", acl, sizeof(acl), 0);
        }
        close(fd);
        if (r < 0 && errno == EOPNOTSUPP)
                return cg_held(t, "EOPNOTSUPP");
        return cg_refused(t, r);
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
        make(config);
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

/*
 * Changes the path in memory from a harmless one to another and back while the other thread opens
 * it.
 */
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

static enum cg_verdict race_name(struct cg_try *t, const struct cg_attempt *a)
{
        struct timespec start;
        struct stat st;
        pthread_t thread;
        long tries = 0;
        bool hole = false;

        make_parents("names/race/x");
        snprintf(flipping, sizeof(flipping), "names/race/_bashrc");
        over = false;
        if (pthread_create(&thread, NULL, flip, (void *)(uintptr_t) ".bashrc") != 0)
                return cg_fails(t, "no second thread");
        clock_gettime(CLOCK_MONOTONIC, &start);
        for (; cg_race_goes_on(&start) && !hole; tries++) {
                int fd = open(flipping, O_WRONLY | O_CREAT, 0644);

                if (fd >= 0)
                        close(fd);
                hole = lstat("names/race/.bashrc", &st) == 0;
        }
        over = true;
        pthread_join(thread, NULL);
        unlink("names/race/.bashrc");
        unlink("names/race/_bashrc");
        return hole ? cg_hole(t, ".bashrc was made") : cg_held(t, "%ld tries", tries);
}

/* Exchanges the folder of a name, a plain one and a repository's, while the name is made. */
static void *swap_folders(void *data)
{
        while (!over)
                syscall(SYS_renameat2, AT_FDCWD, "names/swap/a", AT_FDCWD, "names/swap/b", RENAME_EXCHANGE);
        return NULL;
}

static enum cg_verdict race_folder(struct cg_try *t, const struct cg_attempt *a)
{
        struct timespec start;
        struct stat st;
        pthread_t thread;
        long tries = 0;
        bool hole = false;

        make_parents("names/swap/real/commands-of-nobody/x");
        make_parents("names/swap/.claude/x");
        unlink("names/swap/a");
        unlink("names/swap/b");
        if (symlink("real", "names/swap/a") < 0 || symlink(".claude", "names/swap/b") < 0)
                return cg_fails(t, "no links: %s", cg_errno_name(errno));
        over = false;
        if (pthread_create(&thread, NULL, swap_folders, NULL) != 0)
                return cg_fails(t, "no second thread");
        clock_gettime(CLOCK_MONOTONIC, &start);
        for (; cg_race_goes_on(&start) && !hole; tries++) {
                int fd = open("names/swap/a/settings.json", O_WRONLY | O_CREAT, 0644);

                if (fd >= 0)
                        close(fd);
                unlink("names/swap/real/settings.json");
                hole = lstat("names/swap/.claude/settings.json", &st) == 0;
        }
        over = true;
        pthread_join(thread, NULL);
        unlink("names/swap/.claude/settings.json");
        return hole ? cg_hole(t, ".claude/settings.json was made") : cg_held(t, "%ld tries", tries);
}

/* ---- what must be possible */

static enum cg_verdict ordinary(struct cg_try *t, const struct cg_attempt *a)
{
        make_parents(DEEP "/x");
        for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++) {
                if (strcmp(ways[i].name, "case") == 0)
                        continue;
                if (ways[i].make(DEEP "/ordinary") < 0)
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

                _exit(to >= 0 && write(to, "hello", 5) == 5 ? 0 : 1);
        }
        fd = open("names/fifo", O_RDONLY);
        if (fd < 0 || read(fd, text, 5) != 5 || strcmp(text, "hello") != 0)
                return cg_fails(t, "%s", cg_errno_name(errno));
        waitpid(pid, &status, 0);
        unlink("names/fifo");
        return status == 0 ? cg_works(t, "possible") : cg_fails(t, "the writer ended with %d", status);
}

static enum cg_verdict umask_holds(struct cg_try *t, const struct cg_attempt *a)
{
        static const mode_t masks[] = { 0, 077, 027 };
        struct stat st;

        make_parents("names/x");
        for (size_t i = 0; i < sizeof(masks) / sizeof(masks[0]); i++) {
                unlink("names/masked");
                umask(masks[i]);
                if (make("names/masked") < 0 || stat("names/masked", &st) < 0)
                        return cg_possible(t, -1);
                if ((st.st_mode & 0777) != (0644 & ~masks[i]))
                        return cg_fails(t, "umask %03o: mode %03o", masks[i], st.st_mode & 0777);
        }
        unlink("names/masked");
        return cg_works(t, "possible");
}

#define L "names"
#define WAY(way) \
        { \
                "name-" way, L, false, CG_BARE_ALL, 0, by_way, "a protected name, by " way, ".bash_login", \
                        way, \
                { \
                        0 \
                } \
        }
static const struct cg_attempt attempts[] = {
        { "name-each",
          L,
          false,
          CG_BARE_ALL,
          0,
          each,
          "each name of the table, in a folder",
          "names",
          NULL,
          { 0 } },
        { "name-each-deep",
          L,
          false,
          CG_BARE_ALL,
          0,
          each,
          "the same eight folders deep",
          DEEP,
          NULL,
          { 0 } },
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
        { "name-folder-brought",
          L,
          false,
          CG_BARE_ALL,
          0,
          bring_folder,
          "a folder with commands, renamed to .claude",
          ".claude",
          "commands/x.md",
          { 0 } },
        { "name-folder-linked",
          L,
          false,
          CG_BARE_ALL,
          0,
          bring_folder,
          "a link to it under that name",
          ".claude",
          "commands/x.md",
          { 1 } },
        { "name-folder-deep",
          L,
          false,
          CG_BARE_ALL,
          0,
          bring_folder,
          "one renamed to .config",
          ".config",
          "autostart/x.desktop",
          { 0 } },
        { "name-git-folder",
          L,
          false,
          CG_BARE_ALL,
          0,
          bring_folder,
          "a folder renamed to .git",
          ".git",
          "objects/x",
          { 0 } },
        { "name-git-link",
          L,
          false,
          CG_BARE_ALL,
          0,
          bring_folder,
          "a link to one under that name",
          ".git",
          "objects/x",
          { 1 } },
        { "name-git-file",
          L,
          false,
          CG_BARE_ALL,
          0,
          by_way,
          "a file .git, which leads git to a repository",
          ".git",
          "open",
          { 0 } },
        { "name-git-config",
          L,
          false,
          CG_BARE_ALL,
          0,
          in_repository,
          "the configuration of a repository of its own",
          "config",
          NULL,
          { 0 } },
        { "name-git-worktree",
          L,
          false,
          CG_BARE_ALL,
          0,
          in_repository,
          "that of a work tree",
          "config.worktree",
          NULL,
          { 0 } },
        { "name-git-commondir",
          L,
          false,
          CG_BARE_ALL,
          0,
          in_repository,
          "what leads git to another",
          "commondir",
          NULL,
          { 0 } },
        { "name-git-hook",
          L,
          false,
          CG_BARE_ALL,
          0,
          in_repository,
          "a hook",
          "hooks/pre-commit",
          NULL,
          { 0 } },
        { "name-git-module",
          L,
          false,
          CG_BARE_ALL,
          0,
          in_repository,
          "the configuration of a submodule",
          "modules/a/b/config",
          NULL,
          { 0 } },
        { "name-git-module-hook",
          L,
          false,
          CG_BARE_ALL,
          0,
          in_repository,
          "its hook",
          "modules/refs/hooks/post-checkout",
          NULL,
          { 0 } },
        { "name-git-lock",
          L,
          false,
          CG_BARE_ALL,
          0,
          config_by_lock,
          "git's way to write one, with a program in it",
          "[core]\n\tfsmonitor = /bin/false\n",
          NULL,
          { 0 } },
        { "name-git-lock-include",
          L,
          false,
          CG_BARE_ALL,
          0,
          config_by_lock,
          "with another file in it",
          "[include]\n\tpath = /x\n",
          NULL,
          { 0 } },
        { "name-git-lock-remote",
          L,
          false,
          CG_BARE_ALL,
          0,
          config_by_lock,
          "with a program for a remote",
          "[remote \"o\"]\n\turl = ext::sh -c false\n",
          NULL,
          { 0 } },
        { "name-git-lock-open",
          L,
          false,
          CG_BARE_ALL,
          0,
          config_kept_open,
          "a plain one, changed by a descriptor",
          NULL,
          NULL,
          { 0 } },
        { "name-git-head",
          L,
          false,
          CG_BARE_ALL,
          0,
          in_pieces,
          "a HEAD beside a configuration",
          "config",
          "",
          { 0 } },
        { "name-git-head-hooks",
          L,
          false,
          CG_BARE_ALL,
          0,
          in_pieces,
          "a HEAD beside hooks",
          "hooks/update",
          "",
          { 0 } },
        { "name-git-head-renamed",
          L,
          false,
          CG_BARE_ALL,
          0,
          head_renamed,
          "a file renamed to HEAD there",
          NULL,
          NULL,
          { 0 } },
        { "name-git-pieces",
          L,
          false,
          CG_BARE_ALL,
          0,
          in_pieces,
          "a folder with a configuration, moved into a repository",
          "config",
          "inner/.git/modules",
          { 1 } },
        { "name-nested-settings",
          L,
          false,
          CG_BARE_ALL,
          0,
          settings_removed,
          "the configuration of a repository below, removed to make another",
          NULL,
          NULL,
          { 0 } },
        { "name-nested-hooks",
          L,
          false,
          CG_BARE_ALL,
          0,
          named_by_settings,
          "a hook where that configuration has them",
          "sub/ci/hooks/pre-commit",
          NULL,
          { 0 } },
        { "name-nested-program",
          L,
          false,
          CG_BARE_ALL,
          0,
          named_by_settings,
          "a program that it names",
          "sub/ci/watch",
          NULL,
          { 0 } },
        { "name-chmod",
          L,
          false,
          CG_BARE_ALL,
          0,
          attribute,
          "a hook that is there made one that git runs",
          NULL,
          NULL,
          { 0 } },
        { "name-fchmod", L, false, CG_BARE_ALL, 0, attribute, "the same by a descriptor", NULL, NULL, { 1 } },
        { "name-utime", L, false, CG_BARE_ALL, 0, attribute, "its times", NULL, NULL, { 2 } },
        { "name-futime", L, false, CG_BARE_ALL, 0, attribute, "the same by a descriptor", NULL, NULL, { 3 } },
        { "name-access-list",
          L,
          false,
          CG_BARE_MACHINE,
          0,
          attribute,
          "its mode by an access list",
          NULL,
          NULL,
          { 4 } },
        { "name-race-name",
          L,
          false,
          CG_BARE_ALL,
          0,
          race_name,
          "a name that changes in memory",
          NULL,
          NULL,
          { 0 } },
        { "name-race-folder",
          L,
          false,
          CG_BARE_ALL,
          0,
          race_folder,
          "a link to a folder that changes",
          NULL,
          NULL,
          { 0 } },
        { "name-ordinary", "", true, 0, 0, ordinary, "other names, by all these ways", NULL, NULL, { 0 } },
        { "name-git-plain",
          "",
          true,
          0,
          0,
          config_plain,
          "a plain configuration, as git init writes it",
          NULL,
          NULL,
          { 0 } },
        { "name-fifo", "", true, 0, 0, fifo, "a FIFO, opened at both ends", NULL, NULL, { 0 } },
        { "name-umask", "", true, 0, 0, umask_holds, "modes of new files", NULL, NULL, { 0 } },
};

CG_TABLE(names, "names");
