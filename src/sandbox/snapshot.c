/*
 * Which files of a folder have changed since a snapshot: file operations inside a sandbox.
 *
 * The caller keeps the snapshot, so that no process of the sandbox can change it. It has a line for
 * each entry that is not a folder: a digest of the path, and one of what changes whenever the entry
 * changes. The time of that change (ctime) cannot be set by programs, unlike that of the content.
 */
#include "sandbox/snapshot.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <nettle/sha2.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/fd.h"
#include "base/util.h"
#include "sandbox/files.h"
#include "sandbox/files_out.h"

#define MAX_ENTRIES 20000
#define MAX_FILES   1000 /* that changes are reported of */
/* Content that is read for digests: of one file, and of all. */
#define MAX_FILE_BYTES ((uint64_t)64 << 20)
#define MAX_BYTES      ((uint64_t)256 << 20)
#define READ_BYTES     (256u << 10)
#define FLUSH_BYTES    (64u << 10)
/* Hexadecimal digits of the digests in a snapshot: 128 bits. */
#define DIGITS 32
/* Ticks of the clock of file times are 1 to 10 ms apart. */
#define TICK_WAITS 100

/* A line of a snapshot, as the caller has it. */
struct snapshot_line {
        char path[DIGITS], state[DIGITS];
        char end; /* a newline; SEEN: the entry still exists */
};
#define SEEN 's'

struct walk {
        void (*entry)(struct walk *w, int dir, const char *name, const struct stat *st);
        char path[PATH_MAX]; /* below the folder that is walked */
        size_t path_len;     /* of the current folder's, with its slash */
        size_t entries;
        uint64_t unreadable;
        bool full;              /* MAX_ENTRIES were not all */
        int error;              /* errno that ends the walk */
        struct cg_buf out;      /* lines or JSON */
        struct timespec newest; /* of a snapshot: the latest ctime */
        /* Of changes: */
        struct snapshot_line *lines; /* sorted */
        size_t n_lines, n_files;
        uint64_t files_left_out, unhashed, others;
        uint64_t bytes_left; /* that may still be read */
        char *data;          /* READ_BYTES */
};

static void digest(struct sha256_ctx *c, char *digits, size_t bytes)
{
        uint8_t sum[SHA256_DIGEST_SIZE];

        sha256_digest(c, sizeof(sum), sum);
        for (size_t i = 0; i < bytes; i++) {
                digits[2 * i] = "0123456789abcdef"[sum[i] >> 4];
                digits[2 * i + 1] = "0123456789abcdef"[sum[i] & 15];
        }
}

static void make_line(const struct walk *w, const struct stat *st, struct snapshot_line *l)
{
        const uint64_t state[] = {
                st->st_dev,
                st->st_ino,
                st->st_mode,
                (uint64_t)st->st_size,
                (uint64_t)st->st_mtim.tv_sec,
                (uint64_t)st->st_mtim.tv_nsec,
                (uint64_t)st->st_ctim.tv_sec,
                (uint64_t)st->st_ctim.tv_nsec,
        };
        struct sha256_ctx c;

        sha256_init(&c);
        sha256_update(&c, strlen(w->path), (const uint8_t *)w->path);
        digest(&c, l->path, DIGITS / 2);
        sha256_init(&c);
        sha256_update(&c, sizeof(state), (const uint8_t *)state);
        digest(&c, l->state, DIGITS / 2);
        l->end = '\n';
}

/* Calls @w->entry for all that is in the folder @fd (takes) and is not a folder. */
static void walk(struct walk *w, int fd, int depth)
{
        DIR *folder = fd >= 0 ? fdopendir(fd) : NULL;
        size_t len = w->path_len;
        const struct dirent *d;

        if (!folder) {
                w->unreadable += errno != ENOENT; /* removed since */
                cg_closep_(&fd);
                return;
        }
        while (!w->full && !w->error && (errno = 0, d = readdir(folder))) {
                size_t n = strlen(d->d_name);
                struct stat st;

                if (strcmp(d->d_name, ".") == 0 || strcmp(d->d_name, "..") == 0)
                        continue;
                if (++w->entries > MAX_ENTRIES) {
                        w->full = true;
                        break;
                }
                if (len + n + 2 > sizeof(w->path) || depth >= CG_FILES_DEPTH) {
                        w->unreadable++;
                        continue;
                }
                memcpy(w->path + len, d->d_name, n + 1);
                if (fstatat(dirfd(folder), d->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0) {
                        w->unreadable += errno != ENOENT;
                } else if (!S_ISDIR(st.st_mode)) {
                        w->entry(w, dirfd(folder), d->d_name, &st);
                } else {
                        memcpy(w->path + len + n, "/", 2);
                        w->path_len = len + n + 1;
                        walk(w,
                             openat(dirfd(folder), d->d_name,
                                    O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC),
                             depth + 1);
                        w->path_len = len;
                }
                errno = 0;
        }
        w->unreadable += errno != 0;
        closedir(folder);
}

/* ---- snapshot */

static bool later(const struct timespec *a, const struct timespec *b)
{
        return a->tv_sec > b->tv_sec || (a->tv_sec == b->tv_sec && a->tv_nsec > b->tv_nsec);
}

static void add_line(struct walk *w, int dir, const char *name, const struct stat *st)
{
        struct snapshot_line l;

        (void)dir;
        (void)name;
        make_line(w, st, &l);
        if (later(&st->st_ctim, &w->newest))
                w->newest = st->st_ctim;
        if (cg_buf_add(&w->out, &l, sizeof(l), NULL) < 0)
                w->error = ENOMEM;
}

/* Waits until every further change has a later time than @t. No event reports the clock's ticks. */
static void wait_for_tick(const struct timespec *t)
{
        static const struct timespec ms = { .tv_nsec = 1000000 };
        struct timespec now;

        for (int i = 0; i < TICK_WAITS; i++) {
                if (clock_gettime(CLOCK_REALTIME_COARSE, &now) < 0 || later(&now, t) ||
                    t->tv_sec > now.tv_sec + 1) /* the clock was set back */
                        break;
                nanosleep(&ms, NULL);
        }
}

int cg_files_snapshot(char *const *argv)
{
        struct walk w = { .entry = add_line };
        int fd = open(argv[1], O_RDONLY | O_DIRECTORY | O_CLOEXEC), r = 0;

        if (fd < 0)
                return cg_files_failed("snapshot", argv[1]);
        cg_buf_init(&w.out, MAX_ENTRIES * sizeof(struct snapshot_line) + 1);
        walk(&w, fd, 0);
        if (w.full) {
                dprintf(STDERR_FILENO, "snapshot %s: more than %d entries; choose a smaller folder\n",
                        argv[1], MAX_ENTRIES);
                r = E2BIG;
        } else {
                wait_for_tick(&w.newest);
                errno = w.error;
                if (errno || !cg_files_flush(&w.out))
                        r = cg_files_failed("snapshot", argv[1]);
        }
        cg_buf_fini(&w.out);
        return r;
}

/* ---- changes */

/* False: more than may be read, or not readable; *@size is then not set. */
static bool hash_file(struct walk *w, int fd, long long *size, char *digits)
{
        uint64_t max = w->bytes_left < MAX_FILE_BYTES ? w->bytes_left : MAX_FILE_BYTES, sum = 0;
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
        } while (sum <= max && (n > 0 || (n < 0 && errno == EINTR)));
        w->bytes_left -= sum < w->bytes_left ? sum : w->bytes_left;
        if (n != 0 || sum > max)
                return false;
        *size = (long long)sum;
        digest(&c, digits, SHA256_DIGEST_SIZE);
        return true;
}

static int compare_lines(const void *a, const void *b)
{
        return memcmp(a, b, DIGITS);
}

static void report_change(struct walk *w, int dir, const char *name, const struct stat *st)
{
        struct snapshot_line l, *old;
        char digits[2 * SHA256_DIGEST_SIZE + 1] = "";
        long long size = st->st_size;
        cg_auto_fd int fd = -1;
        bool hashed;
        int r;

        make_line(w, st, &l);
        old = w->n_lines ? bsearch(&l, w->lines, w->n_lines, sizeof(l), compare_lines) : NULL;
        if (old) {
                old->end = SEEN;
                if (memcmp(old->state, l.state, DIGITS) == 0)
                        return;
        }
        if (!S_ISREG(st->st_mode)) {
                w->others++;
                return;
        }
        if (w->n_files == MAX_FILES) {
                w->files_left_out++;
                return;
        }
        fd = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
        hashed = fd >= 0 && hash_file(w, fd, &size, digits);
        w->unhashed += !hashed;
        r = cg_buf_adds(&w->out, w->n_files++ ? ",{" : "{", NULL);
        if (r == 0)
                r = cg_files_add_name(&w->out, "path", w->path);
        if (r == 0)
                r = cg_buf_addf(&w->out, NULL, ",\"size\":%lld,\"new\":%s", size, old ? "false" : "true");
        if (r == 0 && hashed)
                r = cg_buf_addf(&w->out, NULL, ",\"sha256\":\"%s\"", digits);
        if (r == 0)
                r = cg_buf_adds(&w->out, "}", NULL);
        if (r < 0)
                w->error = ENOMEM;
        else if (w->out.len > FLUSH_BYTES && !cg_files_flush(&w->out))
                w->error = errno;
}

/* Reads the caller's snapshot. */
static int read_lines(struct walk *w)
{
        size_t size = MAX_ENTRIES * sizeof(struct snapshot_line) + 1, len = 0;
        ssize_t n;

        w->lines = malloc(size);
        if (!w->lines)
                return ENOMEM;
        do {
                n = read(STDIN_FILENO, (char *)w->lines + len, size - len);
                len += n > 0 ? (size_t)n : 0;
        } while (len < size && (n > 0 || (n < 0 && errno == EINTR)));
        if (n < 0)
                return errno;
        w->n_lines = len / sizeof(struct snapshot_line);
        for (size_t i = 0; i < w->n_lines; i++)
                if (w->lines[i].end != '\n')
                        return EINVAL;
        qsort(w->lines, w->n_lines, sizeof(struct snapshot_line), compare_lines);
        return len % sizeof(struct snapshot_line) ? EINVAL : 0;
}

/* Adds what follows the files. */
static int add_sums(struct walk *w)
{
        bool complete = !w->full && !w->unreadable && !w->files_left_out;
        char removed[24] = "null"; /* what was not found may be in what was not walked */
        size_t n = 0;

        for (size_t i = 0; i < w->n_lines; i++)
                n += w->lines[i].end != SEEN;
        if (!w->full && !w->unreadable)
                snprintf(removed, sizeof(removed), "%zu", n);
        return cg_buf_addf(&w->out, NULL,
                           "],\"removed\":%s,\"others\":%llu,\"skipped\":{\"files\":%llu,\"hashes\":%llu,"
                           "\"unreadable\":%llu,\"entries\":%s},\"complete\":%s}",
                           removed, (unsigned long long)w->others, (unsigned long long)w->files_left_out,
                           (unsigned long long)w->unhashed, (unsigned long long)w->unreadable,
                           w->full ? "true" : "false", complete ? "true" : "false");
}

int cg_files_changes(char *const *argv)
{
        cg_auto_free char *data = malloc(READ_BYTES);
        struct walk w = { .entry = report_change, .bytes_left = MAX_BYTES, .data = data };
        int fd = -1, r = 0;

        cg_buf_init(&w.out, 4 * FLUSH_BYTES);
        w.error = data ? read_lines(&w) : ENOMEM;
        if (w.error == EINVAL) {
                dprintf(STDERR_FILENO, "changes %s: this is not a snapshot\n", argv[1]);
                free(w.lines);
                return EINVAL;
        }
        if (!w.error) {
                fd = open(argv[1], O_RDONLY | O_DIRECTORY | O_CLOEXEC);
                w.error = fd < 0 ? errno : cg_buf_adds(&w.out, "{\"files\":[", NULL) < 0 ? ENOMEM : 0;
        }
        if (!w.error)
                walk(&w, fd, 0);
        if (!w.error && add_sums(&w) < 0)
                w.error = ENOMEM;
        errno = w.error;
        if (errno || !cg_files_flush(&w.out))
                r = cg_files_failed("changes", argv[1]);
        cg_buf_fini(&w.out);
        free(w.lines);
        return r;
}
