/*
 * Which files were made or changed since a time, in all folders that the sandbox may write: a file
 * operation inside it.
 *
 * The time of a file's last change (ctime) cannot be set by programs, unlike that of its content,
 * and links and renames count as changes. It is read from a clock that ticks every 1 to 10 ms.
 */
#include "sandbox/inside/artifacts.h"

#include <nettle/sha2.h>
#include <time.h>

#include "base/buf.h"
#include "base/text.h"
#include "sandbox/inside/files.h"
#include "sandbox/inside/files_out.h"
#include "sandbox/landlock_rules.h"

#define MAX_ENTRIES 100000
#define MAX_FILES   1000
#define MAX_MS      2000
/* Content that is read for digests: of one file, and of all. */
#define MAX_FILE_BYTES ((uint64_t)64 << 20)
#define MAX_BYTES      ((uint64_t)256 << 20)
#define READ_BYTES     (256u << 10)
/* The last entry can exceed it: by a path, six bytes for each of its own at most. */
#define MAX_OUT (CG_FILES_CHANGED_MAX - 8 * PATH_MAX)
/* Ticks of the clock of file times are at most 10 ms apart. */
#define TICK_WAITS 20

struct walk {
        char path[PATH_MAX];
        size_t path_len; /* of the current folder's, with its slash */
        char **mounts;   /* sorted: folders that are walked on their own, or not at all */
        size_t n_mounts, entries, n_files;
        struct timespec since, newest;
        int64_t end_ms;
        const char *truncated; /* why files may be missing; NULL: none is */
        bool stop;
        struct cg_buf out;
        uint64_t bytes_left; /* that may still be read */
        char *data;          /* READ_BYTES */
};

static bool earlier(const struct timespec *a, const struct timespec *b)
{
        return a->tv_sec < b->tv_sec || (a->tv_sec == b->tv_sec && a->tv_nsec < b->tv_nsec);
}

static void stop(struct walk *w, const char *why)
{
        w->truncated = why;
        w->stop = true;
}

static void skip(struct walk *w, const char *why)
{
        w->truncated = w->truncated ?: why;
}

static bool in_time(struct walk *w)
{
        if (cg_now_ms() >= w->end_ms)
                stop(w, "the search took longer than 2 s");
        return !w->stop;
}

/* False: more than may be read, or not readable; *@size is then not set. */
static bool hash_file(struct walk *w, int fd, long long *size, char *digits)
{
        uint64_t max = CG_MIN(w->bytes_left, MAX_FILE_BYTES), sum = 0;
        uint8_t bytes[SHA256_DIGEST_SIZE];
        struct sha256_ctx c;
        struct stat st;
        ssize_t n;

        if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || (uint64_t)st.st_size > max)
                return false;
        sha256_init(&c);
        do { /* other processes may write to it meanwhile */
                n = read(fd, w->data, READ_BYTES);
                if (n > 0) {
                        sum += (uint64_t)n;
                        sha256_update(&c, (size_t)n, (const uint8_t *)w->data);
                }
        } while (sum <= max && (n > 0 || (n < 0 && errno == EINTR)) && in_time(w));
        w->bytes_left -= CG_MIN(sum, w->bytes_left);
        if (n != 0 || sum > max)
                return false;
        *size = (long long)sum;
        sha256_digest(&c, sizeof(bytes), bytes);
        cg_hex(digits, bytes, sizeof(bytes));
        return true;
}

/* w->path is @name in the folder @dir, and no folder. */
static void add_file(struct walk *w, int dir, const char *name, const struct stat *st)
{
        char digits[2 * SHA256_DIGEST_SIZE + 1] = "";
        long long size = st->st_size;
        cg_auto_fd int fd = -1;
        bool hashed;

        if (!S_ISREG(st->st_mode) || earlier(&st->st_ctim, &w->since))
                return;
        if (earlier(&w->newest, &st->st_ctim))
                w->newest = st->st_ctim;
        if (w->n_files == MAX_FILES || w->out.len > MAX_OUT) {
                skip(w, w->n_files == MAX_FILES ? "more than 1,000 files" : "more than 256 KiB of names");
                return;
        }
        fd = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
        hashed = fd >= 0 && hash_file(w, fd, &size, digits);
        cg_buf_adds(&w->out, w->n_files++ ? ",{" : "{");
        cg_files_add_name(&w->out, "path", w->path);
        cg_buf_addf(&w->out, ",\"size\":%lld", size);
        if (hashed)
                cg_buf_addf(&w->out, ",\"sha256\":\"%s\"", digits);
        cg_buf_adds(&w->out, "}");
}

static int compare_paths(const void *a, const void *b)
{
        return strcmp(*(char *const *)a, *(char *const *)b);
}

/* The folder @fd (takes), whose path is w->path. */
static void walk(struct walk *w, int fd, int depth)
{
        cg_auto_dir DIR *folder = cg_dir_of(fd);
        const struct dirent *d;
        size_t len;

        if (!folder) {
                if (errno != ENOENT) /* removed since */
                        skip(w, "a folder cannot be read");
                return;
        }
        if (w->path_len > 1)
                w->path[w->path_len++] = '/';
        len = w->path_len;
        while (in_time(w) && (errno = 0, d = readdir(folder))) {
                const char *path = w->path;
                size_t n = strlen(d->d_name);
                struct stat st;

                if (cg_path_is_dots(d->d_name))
                        continue;
                if (++w->entries > MAX_ENTRIES) {
                        stop(w, "more than 100,000 entries");
                        break;
                }
                if (len + n + 2 > sizeof(w->path) || depth >= CG_FILES_DEPTH) {
                        skip(w, "a path is too long or too deep");
                        continue;
                }
                memcpy(w->path + len, d->d_name, n + 1);
                if (fstatat(dirfd(folder), d->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0) {
                        if (errno != ENOENT)
                                skip(w, "a file cannot be examined");
                } else if (w->n_mounts &&
                           bsearch(&path, w->mounts, w->n_mounts, sizeof(path), compare_paths)) {
                        continue;
                } else if (!S_ISDIR(st.st_mode)) {
                        add_file(w, dirfd(folder), d->d_name, &st);
                } else {
                        w->path_len = len + n;
                        walk(w,
                             openat(dirfd(folder), d->d_name,
                                    O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC),
                             depth + 1);
                }
                errno = 0;
        }
        if (errno && !w->stop)
                skip(w, "a folder cannot be read");
}

/* @path: absolute and without links, as in the plan. Mounts are folders or files. */
static void walk_root(struct walk *w, const char *path)
{
        struct stat st;

        w->path_len = strlen(path);
        if (w->stop || w->path_len + 2 > sizeof(w->path))
                return;
        memcpy(w->path, path, w->path_len + 1);
        if (lstat(path, &st) < 0)
                skip(w, errno == ENOENT ? NULL : "a folder cannot be read");
        else if (S_ISDIR(st.st_mode))
                walk(w, open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC), 0);
        else
                add_file(w, AT_FDCWD, path, &st);
}

/* Walks what the plan lets programs inside write, but devices and /dev/shm. */
static void walk_all(struct walk *w, const struct cg_sandbox *sb)
{
        char cwd[PATH_MAX];

        if (sb->set.off) { /* no mounts: only the session's folder */
                walk_root(w, getcwd(cwd, sizeof(cwd)) ? cwd : "/");
                return;
        }
        w->mounts = calloc(sb->n_mounts + 1, sizeof(*w->mounts));
        if (!w->mounts) {
                stop(w, "out of memory");
                return;
        }
        for (size_t i = 0; i < sb->n_mounts; i++) /* a pin shows what its parent shows */
                if (sb->mounts[i].kind != CG_PLAN_PIN)
                        w->mounts[w->n_mounts++] = sb->mounts[i].path;
        qsort(w->mounts, w->n_mounts, sizeof(*w->mounts), compare_paths);
        for (size_t i = 0; i < sb->n_mounts; i++) {
                const struct cg_plan_mount *m = &sb->mounts[i];

                /* The last one of several mounts at a path is seen. */
                if ((m->kind == CG_PLAN_WRITE || (m->kind == CG_PLAN_TMPFS && !sb->grants)) &&
                    cg_plan_mount_at(sb, m->path) == m)
                        walk_root(w, m->path);
        }
        if (sb->grants && sb->grants->private_dir)
                walk_root(w, sb->grants->private_dir);
        free(w->mounts);
}

/* Waits until every further change has a later time than @t. No event reports the clock's ticks. */
static void wait_for_tick(const struct timespec *t)
{
        static const struct timespec ms = { .tv_nsec = 1000000 };
        struct timespec now;

        for (int i = 0; i < TICK_WAITS; i++) {
                if (clock_gettime(CLOCK_REALTIME_COARSE, &now) < 0 || earlier(t, &now) ||
                    t->tv_sec > now.tv_sec + 1) /* the clock was set back, or another's is fast */
                        break;
                nanosleep(&ms, NULL);
        }
}

int cg_files_changed(const struct cg_sandbox *sb, char *const *argv)
{
        long long since = strtoll(argv[1], NULL, 10);
        cg_auto_free char *data = malloc(READ_BYTES);
        struct walk w = { .since = { .tv_sec = since / 1000000000, .tv_nsec = since % 1000000000 },
                          .end_ms = cg_now_ms() + MAX_MS,
                          .bytes_left = MAX_BYTES,
                          .data = data };
        bool ok;

        cg_buf_init(&w.out, CG_FILES_CHANGED_MAX);
        if (!data)
                return cg_files_failed("search", "for files");
        cg_buf_adds(&w.out, "{\"files\":[");
        walk_all(&w, sb);
        /* The next cell's changes are to be later than all of this one's. */
        wait_for_tick(&w.newest);
        cg_buf_adds(&w.out, "]");
        if (w.truncated)
                cg_buf_addf(&w.out, ",\"truncated\":\"%s\"", w.truncated);
        cg_buf_adds(&w.out, "}");
        ok = cg_files_flush(&w.out);
        cg_buf_fini(&w.out);
        if (!ok)
                return cg_files_failed("search", "for files");
        return 0;
}
