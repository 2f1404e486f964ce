/* File operations inside a sandbox: see files.h. */
#include "sandbox/inside/files.h"

#include <sys/prctl.h>
#include <sys/sendfile.h>
#include <sys/socket.h>

#include "base/buf.h"
#include "base/fd.h"
#include "base/json.h"
#include "base/path.h"
#include "base/text.h"
#include "sandbox/inside/artifacts.h"
#include "sandbox/inside/files_out.h"

#define COPY_BYTES (1u << 20)
/* Attempts to find a name for a temporary file that does not exist. */
#define ATTEMPTS 100

/* ---- reading */

/* A FIFO without a writer, and devices, are opened without waiting, and refused. */
static int open_regular(const char *path, struct stat *st)
{
        int fd = open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);

        if (fd < 0)
                return -1;
        if (fstat(fd, st) == 0 && S_ISREG(st->st_mode))
                return fd;
        close(fd);
        errno = S_ISDIR(st->st_mode) ? EISDIR : EINVAL;
        return -1;
}

/* Bytes that are copied at once of @left; -1: of any number. */
static size_t piece(long long left)
{
        return left < 0 || left > COPY_BYTES ? COPY_BYTES : (size_t)left;
}

/* Copies at most @left bytes; -1: to the end. Files go into a socket as they are in memory. */
static bool copy(int from, int to, long long left)
{
        cg_auto_free char *data = NULL;
        ssize_t sent = 0;

        while (left != 0) {
                sent = sendfile(to, from, NULL, piece(left));
                if (sent == 0 || (sent < 0 && errno != EINTR))
                        break;
                if (left > 0)
                        left -= CG_MAX(sent, 0);
        }
        if (left == 0 || sent >= 0)
                return true;
        if (errno != EINVAL && errno != ENOSYS) /* of a file that is not in memory, as in /proc */
                return false;
        data = malloc(COPY_BYTES);
        while (data && left != 0) {
                ssize_t n = read(from, data, piece(left));

                if (n < 0 && errno == EINTR)
                        continue;
                if (n <= 0)
                        return n == 0;
                for (ssize_t done = 0; done < n;) {
                        ssize_t w = write(to, data + done, (size_t)(n - done));

                        if (w < 0 && errno != EINTR)
                                return false;
                        done += CG_MAX(w, 0);
                }
                if (left > 0)
                        left -= n;
        }
        return data != NULL;
}

static int do_read(char *const *argv)
{
        long long offset = argv[2] ? strtoll(argv[2], NULL, 10) : 0, left = -1;
        cg_auto_fd int fd = -1;
        struct stat st;

        if (argv[2] && argv[3])
                left = strtoll(argv[3], NULL, 10);
        fd = open_regular(argv[1], &st);
        if (fd < 0 || lseek(fd, offset, SEEK_SET) < 0 || !copy(fd, STDOUT_FILENO, left))
                return cg_files_failed("read", argv[1]);
        return 0;
}

/* ---- writing */

/*
 * The host's data: pieces after their lengths, and a length of 0. Without that, the host has ended
 * or given up. Pages go from the socket into the file by a pipe.
 */
static bool receive(int fd)
{
        cg_auto_fd int from = -1, to = -1;
        int ends[2];

        /* Unlike a socket, other processes inside could open the pipe through /proc. */
        if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0 || pipe2(ends, O_CLOEXEC) < 0)
                return false;
        from = ends[0];
        to = ends[1];
        errno = ECONNRESET;
        for (;;) {
                uint64_t left = 0;
                size_t n = 0;

                for (ssize_t r = 1; n < sizeof(left) && (r > 0 || (r < 0 && errno == EINTR));
                     n += CG_MAX(r, 0))
                        r = recv(STDIN_FILENO, (char *)&left + n, sizeof(left) - n, 0);
                if (n < sizeof(left) || !left)
                        return n == sizeof(left);
                while (left) {
                        size_t most = CG_MIN(left, COPY_BYTES);
                        ssize_t r = splice(STDIN_FILENO, NULL, to, NULL, most, SPLICE_F_MOVE);

                        if (r < 0 && errno == EINTR)
                                continue;
                        if (r <= 0 || cg_pipe_to_file(from, fd, (size_t)r, NULL) < 0)
                                return false;
                        left -= (size_t)r;
                }
        }
}

/* A name in @dir for the file that replaces @base: of a new file, or with @unnamed of that one. */
static int make_name(int dir, const char *base, int unnamed, mode_t mode, char name[NAME_MAX + 1])
{
        size_t len = strlen(base);
        /* The longest names have no room for more. */
        int kept = (int)(len + 17 > NAME_MAX ? NAME_MAX - 17 : len);

        for (int i = 0; i < ATTEMPTS; i++) {
                char random[17], link[48];
                int r;

                if (cg_random_hex(random, 8, NULL) < 0) {
                        errno = EIO;
                        break;
                }
                snprintf(name, NAME_MAX + 1, "%.*s.%s", kept, base, random);
                snprintf(link, sizeof(link), "/proc/self/fd/%d", unnamed);
                r = unnamed >= 0
                            ? linkat(AT_FDCWD, link, dir, name, AT_SYMLINK_FOLLOW)
                            : openat(dir, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode);
                if (r >= 0)
                        return r;
                if (errno != EEXIST)
                        break;
        }
        *name = '\0';
        return -1;
}

/* A file in @dir that ends with this process unless it gets a name. */
static int make_unnamed(int dir, mode_t mode)
{
        /* Without it (the landlock tier) the file could not get a name. */
        cg_auto_fd int links = open("/proc/self/fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

        if (links < 0)
                return -1;
        return openat(dir, ".", O_TMPFILE | O_WRONLY | O_CLOEXEC, mode);
}

/* The folder of @path; *base: the name in it. */
static int open_folder(const char *path, const char **base)
{
        const char *slash = strrchr(path, '/');
        char folder[PATH_MAX];

        *base = slash ? slash + 1 : path;
        snprintf(folder, sizeof(folder), "%.*s", slash ? (int)(slash - path) + 1 : 1, slash ? path : ".");
        return open(folder, O_PATH | O_DIRECTORY | O_CLOEXEC);
}

static int do_write(char *const *argv)
{
        mode_t mode = argv[2] ? (mode_t)strtoul(argv[2], NULL, 8) & 0777 : 0666;
        char target[PATH_MAX], name[NAME_MAX + 1] = "";
        cg_auto_fd int dir = -1, fd = -1;
        bool exists, unnamed, received;
        const char *base;
        struct stat st;
        int e;

        /* A link is followed, as programs do; what it leads to is replaced. */
        if (!realpath(argv[1], target) &&
            (errno != ENOENT || snprintf(target, sizeof(target), "%s", argv[1]) >= (int)sizeof(target)))
                return cg_files_failed("write", argv[1]);
        /* Names are made and removed in this folder, wherever it is moved: none is left behind. */
        dir = open_folder(target, &base);
        if (dir < 0)
                return cg_files_failed("write", argv[1]);
        exists = fstatat(dir, base, &st, AT_SYMLINK_NOFOLLOW) == 0;
        if (exists && !S_ISREG(st.st_mode)) {
                errno = S_ISDIR(st.st_mode) ? EISDIR : EINVAL;
                return cg_files_failed("write", argv[1]);
        }
        if (exists) /* as after write(), which clears the set-id bits; the sandbox refuses to set them */
                mode = st.st_mode & 01777;
        fd = make_unnamed(dir, mode);
        unnamed = fd >= 0;
        if (!unnamed)
                fd = make_name(dir, base, -1, mode, name);
        if (fd < 0)
                return cg_files_failed("write", argv[1]);
        if (exists)
                fchmod(fd, mode); /* without the umask */
        received = receive(fd);
        /* Init reads the paths of the calls below. */
        prctl(PR_SET_DUMPABLE, 1, 0, 0, 0);
        /* A power failure may cost a new file, but not the old one's content. */
        if (received && (!exists || fsync(fd) == 0) && (!unnamed || make_name(dir, base, fd, 0, name) == 0) &&
            renameat(dir, name, dir, base) == 0)
                return 0;
        e = cg_files_failed("write", argv[1]);
        if (*name)
                unlinkat(dir, name, 0);
        return e;
}

/* ---- what is there */

static const char *kind_of(mode_t mode)
{
        switch (mode & S_IFMT) {
        case S_IFREG:
                return "file";
        case S_IFDIR:
                return "folder";
        case S_IFLNK:
                return "link";
        case S_IFIFO:
                return "fifo";
        case S_IFSOCK:
                return "socket";
        default:
                return "device";
        }
}

/* Saturates: programs can set any time. */
static long long in_ns(const struct timespec *t)
{
        long long ns;

        if (__builtin_mul_overflow((long long)t->tv_sec, 1000000000LL, &ns) ||
            __builtin_add_overflow(ns, (long long)t->tv_nsec, &ns))
                return t->tv_sec < 0 ? LLONG_MIN : LLONG_MAX;
        return ns;
}

/*
 * {"name", "type", "size", "mode", "mtime_ns", "target" of a link}; @name is in the folder @dir.
 * False, with errno.
 */
static bool add_entry(int dir, const char *name, bool named, struct cg_buf *b)
{
        char target[PATH_MAX];
        struct stat st;
        ssize_t n;

        if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
                return false;
        cg_buf_adds(b, "{");
        if (named) {
                cg_files_add_name(b, "name", name);
                cg_buf_adds(b, ",");
        }
        cg_buf_addf(b, "\"type\":\"%s\",\"size\":%lld,\"mode\":%u,\"mtime_ns\":%lld", kind_of(st.st_mode),
                    (long long)st.st_size, (unsigned)st.st_mode & 07777, in_ns(&st.st_mtim));
        n = S_ISLNK(st.st_mode) ? readlinkat(dir, name, target, sizeof(target) - 1) : -1;
        if (n >= 0) {
                target[n] = '\0';
                cg_buf_adds(b, ",");
                cg_files_add_name(b, "target", target);
        }
        cg_buf_adds(b, "}");
        errno = ENOMEM;
        return cg_buf_end(b, NULL) == 0;
}

static int do_stat(char *const *argv)
{
        cg_auto_buf struct cg_buf b;

        cg_buf_init(&b, 4 * COPY_BYTES);
        if (add_entry(AT_FDCWD, argv[1], false, &b) && cg_files_flush(&b))
                return 0;
        return cg_files_failed("stat", argv[1]);
}

static int do_list(char *const *argv)
{
        cg_auto_dir DIR *dir = cg_dir_of(open(argv[1], O_RDONLY | O_DIRECTORY | O_CLOEXEC));
        cg_auto_buf struct cg_buf b;
        const struct dirent *d;
        bool ok = true, first = true;
        size_t n = 0;

        cg_buf_init(&b, 4 * COPY_BYTES);
        if (!dir)
                return cg_files_failed("list", argv[1]);
        cg_buf_adds(&b, "[");
        while (ok && (errno = 0, d = readdir(dir))) {
                size_t before = b.len;

                if (cg_path_is_dots(d->d_name))
                        continue;
                if (++n > CG_FILES_LIST_MAX) {
                        errno = E2BIG;
                        ok = false;
                        break;
                }
                if (!first)
                        cg_buf_adds(&b, ",");
                if (!add_entry(dirfd(dir), d->d_name, true, &b)) {
                        ok = errno == ENOENT; /* removed since */
                        b.len = before;
                        continue;
                }
                first = false;
                if (b.len > COPY_BYTES)
                        ok = cg_files_flush(&b);
        }
        if (!ok || errno)
                return cg_files_failed("list", argv[1]);
        cg_buf_adds(&b, "]");
        if (!cg_files_flush(&b))
                return cg_files_failed("list", argv[1]);
        return 0;
}

/* ---- changes of folders */

static int do_mkdir(char *const *argv)
{
        mode_t mode = argv[2] ? (mode_t)strtoul(argv[2], NULL, 8) & 0777 : 0777;
        cg_auto_free char *path = strdup(argv[1]);
        struct stat st;

        for (size_t n = cg_strlen(path); n > 1 && path[n - 1] == '/'; n--)
                path[n - 1] = '\0'; /* @mode is for what is before it */
        for (char *p = path ? path + (*path == '/') : NULL; p; p++) {
                p = strchrnul(p, '/');
                char end = *p;

                *p = '\0';
                if (*path && mkdir(path, end ? 0777 : mode) < 0 && errno != EEXIST)
                        return cg_files_failed("mkdir", argv[1]);
                *p = end;
                if (!end)
                        break;
        }
        if (path && stat(path, &st) == 0 && !S_ISDIR(st.st_mode)) {
                errno = ENOTDIR;
                return cg_files_failed("mkdir", argv[1]);
        }
        if (!path)
                return cg_files_failed("mkdir", argv[1]);
        return 0;
}

/* Links are removed, not followed. */
static bool remove_at(int dir, const char *name, int depth)
{
        const struct dirent *d;
        bool ok = true;
        DIR *folder;
        int fd;

        if (unlinkat(dir, name, 0) == 0)
                return true;
        if (errno != EISDIR && errno != EPERM)
                return false;
        if (depth >= CG_FILES_DEPTH) {
                errno = ELOOP;
                return false;
        }
        folder = cg_dir_of(openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
        if (!folder)
                return false;
        while (ok && (errno = 0, d = readdir(folder)))
                if (!cg_path_is_dots(d->d_name))
                        ok = remove_at(dirfd(folder), d->d_name, depth + 1) || errno == ENOENT;
        fd = errno;
        closedir(folder);
        errno = fd;
        return ok && unlinkat(dir, name, AT_REMOVEDIR) == 0;
}

/*
 * The errno for folders that cannot be removed themselves, whose contents would be gone when that
 * is found out; 0: none. These are mount points (write roots, /tmp), the folders that the working
 * folder is in, and paths that end in "." or "..".
 */
static int why_kept(const char *path)
{
        char real[PATH_MAX], cwd[PATH_MAX];
        size_t len = strlen(path), last;
        struct statx st;

        while (len > 1 && path[len - 1] == '/')
                len--;
        for (last = len; last && path[last - 1] != '/';)
                last--;
        if (statx(AT_FDCWD, path, AT_SYMLINK_NOFOLLOW, STATX_TYPE, &st) < 0 || !S_ISDIR(st.stx_mode))
                return 0;
        if (st.stx_attributes & STATX_ATTR_MOUNT_ROOT ||
            (realpath(path, real) && getcwd(cwd, sizeof(cwd)) && cg_path_within(cwd, real)))
                return EBUSY;
        return strncmp(path + last, "..", len - last) == 0 ? EINVAL : 0;
}

static int do_remove(char *const *argv)
{
        errno = why_kept(argv[1]);
        if (!errno && remove_at(AT_FDCWD, argv[1], 0))
                return 0;
        return cg_files_failed("remove", argv[1]);
}

static int do_rename(char *const *argv)
{
        if (rename(argv[1], argv[2]) != 0)
                return cg_files_failed("rename", argv[1]);
        return 0;
}

int cg_files_run(const struct cg_sandbox *sb, char *const *argv)
{
        static const struct {
                const char *name;
                int paths;
                int (*run)(char *const *argv);
        } operations[] = {
                { "read", 1, do_read },     { "write", 1, do_write }, { "stat", 1, do_stat },
                { "list", 1, do_list },     { "mkdir", 1, do_mkdir }, { "remove", 1, do_remove },
                { "rename", 2, do_rename },
        };

        if (strcmp(argv[0], "changed") == 0 && argv[1])
                return cg_files_changed(sb, argv);
        for (size_t i = 0; i < CG_ARRAY_LEN(operations); i++)
                if (strcmp(argv[0], operations[i].name) == 0 && argv[1] &&
                    (operations[i].paths == 1 || argv[2]))
                        return operations[i].run(argv);
        errno = ENOSYS;
        return cg_files_failed("no such operation:", argv[0]);
}
