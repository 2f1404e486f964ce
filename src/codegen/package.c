/*
 * Writing a package, atomically and without leaving out_dir. Runs in trusted processes; but out_dir
 * may be in a workspace that a hostile kernel writes to at the same time, so every step goes
 * through descriptors and follows no symlink.
 */
#include "codegen/package.h"

#include <sys/random.h>

#include "base/fd.h"
#include "base/path.h"
#include "codegen/codegen.h"
#include "codegen/ceilings.h"

struct cg_package {
        int out_fd; /* out_dir */
        int fd;     /* the temporary folder */
        char temp[32];
        char name[CG_CODEGEN_PACKAGE_SIZE];
        char *mark;
        size_t mark_len;
        size_t n_files;
        bool temp_exists;
};

/* ------------------------------------------------------------------ removing */

/* 0 when the folder is gone. Symlinks are removed, never followed. */
static int remove_folder(int at, const char *name, unsigned depth)
{
        cg_auto_fd int fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        cg_auto_dir DIR *dir = NULL;
        struct dirent *e;
        int r = 0;

        if (fd < 0 || depth > CG_GEN_MAX_REMOVE_DEPTH)
                return -1;
        dir = cg_dir_of(cg_steal_fd(&fd));
        if (!dir)
                return -1;
        while ((e = readdir(dir))) {
                if (cg_path_is_dots(e->d_name) || unlinkat(dirfd(dir), e->d_name, 0) == 0)
                        continue;
                if ((errno != EISDIR && errno != EPERM) ||
                    remove_folder(dirfd(dir), e->d_name, depth + 1) < 0)
                        r = -1;
        }
        return r ?: unlinkat(at, name, AT_REMOVEDIR);
}

int cg_package_new(const char *out_dir, const char *name, struct cg_slice mark, struct cg_package **ret,
                   struct cg_err *err)
{
        cg_auto_package struct cg_package *p = calloc(1, sizeof(*p));

        if (!p)
                return cg_fail(err, CG_E_NOMEM, "package");
        p->fd = p->out_fd = -1;
        snprintf(p->name, sizeof(p->name), "%s", name);
        p->mark = malloc(mark.len + 1);
        if (!p->mark)
                return cg_fail(err, CG_E_NOMEM, "package");
        memcpy(p->mark, mark.p, mark.len);
        p->mark_len = mark.len;

        if (mkdir(out_dir, 0755) < 0 && errno != EEXIST)
                return cg_fail_errno(err, "cannot make folder %s", out_dir);
        p->out_fd = open(out_dir, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (p->out_fd < 0 && (errno == ELOOP || errno == ENOTDIR))
                return cg_fail(err, CG_E_INVAL, "%s is not a folder (a symlink is not followed)", out_dir);
        if (p->out_fd < 0)
                return cg_fail_errno(err, "cannot open folder %s", out_dir);

        for (int try = 0; !p->temp_exists; try++) {
                uint64_t r;

                if (getrandom(&r, sizeof(r), 0) != sizeof(r))
                        return cg_fail_errno(err, "random name");
                snprintf(p->temp, sizeof(p->temp), ".tmp-%016llx", (unsigned long long)r);
                p->temp_exists = mkdirat(p->out_fd, p->temp, 0700) == 0;
                if (!p->temp_exists && (errno != EEXIST || try == 9))
                        return cg_fail_errno(err, "cannot make a temporary folder in the output folder");
        }
        p->fd = openat(p->out_fd, p->temp, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (p->fd < 0)
                return cg_fail_errno(err, "temporary folder");
        *ret = CG_STEAL(p);
        return 0;
}

struct cg_package *cg_package_free(struct cg_package *p)
{
        if (!p)
                return NULL;
        if (p->temp_exists)
                remove_folder(p->out_fd, p->temp, 0);
        cg_closep_(&p->fd);
        cg_closep_(&p->out_fd);
        free(p->mark);
        free(p);
        return NULL;
}

/* ------------------------------------------------------------------ files */

/* A new file of mode 0644, whatever the umask. */
int cg_package_add(struct cg_package *p, const char *name, struct cg_slice text, struct cg_err *err)
{
        cg_auto_fd int fd = openat(p->fd, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);

        if (fd < 0)
                return cg_fail_errno(err, "cannot make %s", name);
        if (cg_write_all(fd, text.p, text.len, err) < 0)
                return CG_E_SYS;
        if (fchmod(fd, 0644) < 0 || (p->n_files++ < CG_GEN_FSYNC_FILES && fsync(fd) < 0))
                return cg_fail_errno(err, "cannot finish %s", name);
        return 0;
}

/* 1: the regular file @name starts with @start; 0: it does not, or there is none. */
static int starts_with(int at, const char *name, const char *start, size_t len)
{
        cg_auto_fd int fd = openat(at, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
        cg_auto_free char *buf = malloc(len + 1);
        struct stat st;
        size_t got = 0;

        if (fd < 0 || !buf || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
                return 0;
        while (got < len) {
                ssize_t n = read(fd, buf + got, len - got);

                if (n < 0 && errno == EINTR)
                        continue;
                if (n <= 0)
                        return 0;
                got += (size_t)n;
        }
        return memcmp(buf, start, len) == 0;
}

int cg_package_put_root(struct cg_package *p, const char *name, const char *mark, struct cg_slice text,
                        struct cg_err *err)
{
        struct stat st;

        if (fstatat(p->out_fd, name, &st, AT_SYMLINK_NOFOLLOW) == 0) {
                if (!S_ISREG(st.st_mode) || !starts_with(p->out_fd, name, mark, strlen(mark)))
                        return cg_fail(err, CG_E_EXISTS,
                                       "%s in the output folder was not made by cellgate: remove it", name);
                if ((size_t)st.st_size == text.len && starts_with(p->out_fd, name, text.p, text.len))
                        return 0;
        }
        return cg_write_atomically_at(p->out_fd, name, text.p, text.len, 0644, err);
}

/* ------------------------------------------------------------------ replacing */

/* 0: there is no folder; 1: this server's package, or an empty folder; negative: something else. */
static int check_old(struct cg_package *p, struct cg_err *err)
{
        cg_auto_fd int fd = openat(p->out_fd, p->name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

        if (fd < 0 && errno == ENOENT)
                return 0;
        if (fd < 0)
                return cg_fail(
                        err, CG_E_EXISTS,
                        "%s in the output folder is not a folder (a symlink is not followed): remove it",
                        p->name);
        if (starts_with(fd, CG_PACKAGE_DATA, p->mark, p->mark_len))
                return 1;
        if (starts_with(fd, CG_PACKAGE_DATA, CG_PACKAGE_MARK, strlen(CG_PACKAGE_MARK)))
                return cg_fail(
                        err, CG_E_EXISTS,
                        "folder %s holds the package of another server with a similar name: use another name",
                        p->name);
        if (unlinkat(p->out_fd, p->name, AT_REMOVEDIR) == 0)
                return 0;
        return cg_fail(err, CG_E_EXISTS, "folder %s is there already and was not made by cellgate: remove it",
                       p->name);
}

static int replace(struct cg_package *p, bool exists, struct cg_err *err)
{
        char old[sizeof(p->temp) + 8];

        if (renameat2(p->out_fd, p->temp, p->out_fd, p->name, exists ? RENAME_EXCHANGE : RENAME_NOREPLACE) ==
            0) {
                p->temp_exists = exists; /* it is the old package now, and is removed with p */
                return 0;
        }
        if (errno != EINVAL && errno != ENOSYS)
                return cg_fail_errno(err, "cannot put the new package in its place");

        /* The file system cannot exchange: for a moment there is no package. */
        snprintf(old, sizeof(old), "%s.old", p->temp);
        if (exists && renameat(p->out_fd, p->name, p->out_fd, old) < 0)
                return cg_fail_errno(err, "cannot move the old package away");
        if (renameat(p->out_fd, p->temp, p->out_fd, p->name) < 0) {
                cg_fail_errno(err, "cannot put the new package in its place");
                if (exists)
                        renameat(p->out_fd, old, p->out_fd, p->name);
                return CG_E_SYS;
        }
        p->temp_exists = false;
        if (exists)
                remove_folder(p->out_fd, old, 0);
        return 0;
}

int cg_package_commit(struct cg_package *p, struct cg_err *err)
{
        int old, r;

        if (fchmod(p->fd, 0755) < 0)
                return cg_fail_errno(err, "temporary folder");
        if ((p->n_files > CG_GEN_FSYNC_FILES && syncfs(p->fd) < 0) || fsync(p->fd) < 0)
                return cg_fail_errno(err, "cannot write the package to disk");
        old = check_old(p, err);
        if (old < 0)
                return old;
        r = replace(p, old, err);
        if (r == 0)
                fsync(p->out_fd); /* a failure only delays when the name reaches the disk */
        return r;
}
