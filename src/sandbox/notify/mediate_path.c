/* Resolution of a caller's paths in init's own view: see mediate_int.h. */
#include "sandbox/notify/mediate_int.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/magic.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/util.h"
#include "sandbox/notify/caller.h"

bool cg_med_read_text(const struct cg_med_call *c, uint64_t at, char text[PATH_MAX])
{
        return cg_caller_read_path(c->c, at, text) == 0 && cg_caller_waits(c->n, c->c);
}

/* A umask that cannot be read is the strictest. */
void cg_med_take_umask(struct cg_med_call *c)
{
        char text[CG_CALLER_STATUS_MAX];
        unsigned int mask = c->m->umask;

        if (c->m->umask_changed) {
                const char *p = cg_caller_status(c->tid, "\nUmask:", text);

                if (!p || sscanf(p, "%o", &mask) != 1)
                        mask = 0777;
        }
        umask((mode_t)mask);
}

/* ---- paths in init's own view */

void cg_med_path_of(int fd, char buf[PATH_MAX])
{
        char link[48];
        ssize_t n;

        snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
        n = readlink(link, buf, PATH_MAX - 1);
        buf[n > 0 ? n : 0] = '\0';
}

bool cg_med_is_in_view(struct cg_mediator *m, int fd)
{
        struct statx st;
        bool known = false;

        if (statx(fd, "", AT_EMPTY_PATH, STATX_MNT_ID, &st) < 0 || !(st.stx_mask & STATX_MNT_ID))
                return false;
        /* The mounts of init's namespace do not change. */
        if (!m->mounts) {
                FILE *f = fopen("/proc/self/mountinfo", "re");
                char *line = NULL;
                size_t cap = 0;

                m->n_mounts = 0;
                m->mounts = calloc(CG_MEDIATE_MOUNTS, sizeof(*m->mounts));
                while (f && m->mounts && m->n_mounts < CG_MEDIATE_MOUNTS && getline(&line, &cap, f) > 0)
                        m->mounts[m->n_mounts++] = strtoull(line, NULL, 10);
                free(line);
                if (f)
                        fclose(f);
        }
        for (size_t i = 0; i < m->n_mounts && !known; i++)
                known = m->mounts[i] == st.stx_mnt_id;
        return known;
}

/*
 * A descriptor of the caller's may be in another mount namespace: opened before the sandbox was
 * made, or in a nested one. Reopens it (takes) by its path in init's view, or -1.
 */
static int reopen_in_view(struct cg_mediator *m, int fd)
{
        char path[PATH_MAX];
        struct stat a, b;
        int own;

        if (fd < 0 || cg_med_is_in_view(m, fd))
                return fd;
        cg_med_path_of(fd, path);
        own = path[0] == '/' ? cg_open_path(AT_FDCWD, path, O_NOFOLLOW, RESOLVE_NO_SYMLINKS) : -1;
        if (own >= 0 &&
            (fstat(fd, &a) < 0 || fstat(own, &b) < 0 || a.st_dev != b.st_dev || a.st_ino != b.st_ino))
                cg_closep_(&own);
        close(fd);
        return own;
}

/* See mediate_int.h. */
int cg_med_base_of(const struct cg_med_call *c, int dirfd)
{
        return reopen_in_view(c->m, cg_caller_open(c->n, c->c, dirfd));
}

/* The last name in @path, and its length. NULL: the path ends with ".", ".." or has no name. */
static const char *last_name(const char *path, size_t *len, bool *slash)
{
        size_t n = strlen(path), end;

        while (n && path[n - 1] == '/')
                n--;
        *slash = path[n] == '/';
        end = n;
        while (n && path[n - 1] != '/')
                n--;
        *len = end - n;
        if (!*len || *len > NAME_MAX || (*len == 1 && path[n] == '.') ||
            (*len == 2 && path[n] == '.' && path[n + 1] == '.'))
                return NULL;
        return path + n;
}

/* Sets path and region of @w from dir and name. */
static bool set_path(const struct cg_mediator *m, struct cg_med_where *w)
{
        char folder[PATH_MAX];
        size_t n = strlen(w->name);
        struct statfs fs;

        cg_med_path_of(w->dir, folder);
        /*
         * A path that is too long cannot be checked. In the sandbox's private places, which are
         * tmpfs, the call continues.
         */
        if (!folder[0] ||
            (size_t)snprintf(w->path, sizeof(w->path), "%s/%.*s", folder[1] ? folder : "",
                             (int)(w->name[n - 1] == '/' ? n - 1 : n), w->name) >= sizeof(w->path)) {
                w->error = fstatfs(w->dir, &fs) == 0 && fs.f_type == TMPFS_MAGIC ? 0 : ENAMETOOLONG;
                return false;
        }
        if (folder[0] != '/')
                return false;
        w->region = cg_mediate_region(m->sb, w->path, &w->root);
        return true;
}

/* ---- paths through /proc, where "self" and descriptors are the caller's */

/*
 * Opens the target of the magic link @name in /proc, which is at @link, in init's view; only if it
 * is the caller's own.
 */
static int open_magic(const struct cg_med_call *c, int dir, const char *name, const char *link)
{
        pid_t tgid = cg_caller_process(c->tid);
        int pid = 0, used = 0;

        if (sscanf(link, "/proc/%d%n", &pid, &used) != 1 || link[used] != '/' || tgid <= 0 ||
            (pid != tgid && pid != c->tid))
                return -1;
        return reopen_in_view(c->m, openat(dir, name, O_PATH | O_CLOEXEC));
}

static bool is_on_proc(int fd)
{
        struct statfs fs;

        return fstatfs(fd, &fs) == 0 && fs.f_type == PROC_SUPER_MAGIC;
}

struct path_walk {
        const struct cg_med_call *c;
        int at; /* current folder; owned */
        char rest[2 * PATH_MAX];
        int links;
        bool absent; /* a name was missing */
};

/* Continues with @text in front of the rest. */
static bool follow_text(struct path_walk *w, const char *text, const char *behind)
{
        char joined[2 * PATH_MAX];

        if (++w->links > CG_MED_LINKS_MAX ||
            (size_t)snprintf(joined, sizeof(joined), "%s/%s", text, behind) >= sizeof(joined))
                return false;
        memcpy(w->rest, joined, strlen(joined) + 1);
        if (text[0] != '/')
                return true;
        close(w->at);
        w->at = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
        return w->at >= 0;
}

/* Follows the symlink @fd, which is @name in the current folder. */
static bool follow_link(struct path_walk *w, int fd, const char *name, const char *behind)
{
        char link[PATH_MAX], text[PATH_MAX];
        ssize_t n = readlinkat(fd, "", text, sizeof(text) - 1);
        int to;

        text[n > 0 ? n : 0] = '\0';
        if (!is_on_proc(fd))
                return n > 0 && follow_text(w, text, behind);
        cg_med_path_of(fd, link);
        if (strcmp(link, "/proc/self") == 0 || strcmp(link, "/proc/thread-self") == 0) {
                int pid = cg_caller_process(w->c->tid);

                snprintf(text, sizeof(text), link[6] == 's' ? "%d" : "%d/task/%d", pid, (int)w->c->tid);
                return pid > 0 && follow_text(w, text, behind);
        }
        if (strcmp(link, "/proc/mounts") == 0 || strcmp(link, "/proc/net") == 0)
                return n > 0 && follow_text(w, text, behind);
        to = open_magic(w->c, w->at, name, link);
        if (to < 0 || ++w->links > CG_MED_LINKS_MAX)
                return false;
        close(w->at);
        w->at = to;
        memmove(w->rest, behind, strlen(behind) + 1);
        return true;
}

/*
 * Resolves the path name by name, as the kernel would for the caller. On success w->at is the
 * path's target, with the last name's symlink followed; or with @keep_last the folder of the last
 * name, which stays in w->rest.
 */
static bool walk(struct path_walk *w, bool keep_last)
{
        char name[NAME_MAX + 1], behind[2 * PATH_MAX];
        struct stat st;

        for (;;) {
                const char *p = w->rest + strspn(w->rest, "/");
                size_t n = strcspn(p, "/");
                int fd;

                if (!n)
                        return !keep_last;
                if (n > NAME_MAX)
                        return false;
                if (keep_last && !p[n + strspn(p + n, "/")]) {
                        memmove(w->rest, p, strlen(p) + 1);
                        return true;
                }
                memcpy(name, p, n);
                name[n] = '\0';
                memcpy(behind, p + n, strlen(p + n) + 1);
                fd = openat(w->at, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
                if (fd < 0 || fstat(fd, &st) < 0) {
                        w->absent = fd < 0 && errno == ENOENT;
                        cg_closep_(&fd);
                        return false;
                }
                if (S_ISLNK(st.st_mode)) {
                        bool ok = follow_link(w, fd, name, behind);

                        close(fd);
                        if (!ok)
                                return false;
                        continue;
                }
                close(w->at);
                w->at = fd;
                memcpy(w->rest, behind, strlen(behind) + 1);
        }
}

/* See mediate_int.h. */
int cg_med_walk_from(const struct cg_med_call *c, int base, const char *path, bool whole)
{
        struct path_walk w = { .c = c,
                               .at = path[0] == '/' ? open("/", O_PATH | O_DIRECTORY | O_CLOEXEC)
                                                    : fcntl(base, F_DUPFD_CLOEXEC, 0) };
        bool ok;

        snprintf(w.rest, sizeof(w.rest), "%s", path);
        ok = w.at >= 0 && walk(&w, !whole);
        if (!ok) {
                cg_closep_(&w.at);
                errno = w.absent ? ENOENT : EACCES;
        }
        return w.at;
}

/* ---- names */

/* cg_med_find_from(), which takes *@base if the name is in it. */
static bool find_in(const struct cg_med_call *c, int *base, const char *path, struct cg_med_where *w)
{
        char folder[PATH_MAX];
        size_t len;
        bool slash;
        const char *name = last_name(path, &len, &slash);

        if (!name)
                return false;
        if (name == path && *base >= 0) {
                w->dir = cg_steal_fd(base);
        } else {
                snprintf(folder, sizeof(folder), "%.*s", (int)(name - path), path);
                w->dir = cg_open_path(*base >= 0 ? *base : AT_FDCWD, folder, O_DIRECTORY,
                                      RESOLVE_NO_MAGICLINKS);
                /* The path may lead through /proc/self, which would be init. */
                if (w->dir < 0)
                        w->dir = cg_med_walk_from(c, *base, path, false);
        }
        w->error = w->dir < 0 && errno == ENOENT ? ENOENT : 0;
        if (w->dir < 0)
                return false;
        snprintf(w->name, sizeof(w->name), "%.*s%s", (int)len, name, slash ? "/" : "");
        if (!set_path(c->m, w))
                return false;
        /* "self" was init, and is to be the caller. */
        if (name == path || strncmp(w->path, "/proc/", 6) != 0)
                return true;
        close(w->dir);
        w->dir = cg_med_walk_from(c, *base, path, false);
        return w->dir >= 0 && set_path(c->m, w);
}

/* See mediate_int.h. */
bool cg_med_find_from(const struct cg_med_call *c, int base, const char *path, struct cg_med_where *w)
{
        cg_auto_fd int own = base >= 0 ? fcntl(base, F_DUPFD_CLOEXEC, 0) : -1;

        return (base < 0 || own >= 0) && find_in(c, &own, path, w);
}

int cg_med_base_for(const struct cg_med_call *c, int dirfd, const char *path, bool *ok)
{
        struct stat its, ours;
        char root[48];
        int base;

        if (path[0] != '/') {
                base = cg_med_base_of(c, dirfd);
                *ok = path[0] && base >= 0;
                return base;
        }
        /*
         * With nested user namespaces the caller may have another root, and its absolute paths
         * another meaning.
         */
        snprintf(root, sizeof(root), "/proc/%d/root", (int)c->tid);
        *ok = !c->m->sb->nested_users || (stat(root, &its) == 0 && stat("/", &ours) == 0 &&
                                          its.st_dev == ours.st_dev && its.st_ino == ours.st_ino);
        return -1;
}

bool cg_med_find(const struct cg_med_call *c, int dirfd, uint64_t at, struct cg_med_where *w)
{
        char path[PATH_MAX];
        cg_auto_fd int base = -1;
        bool ok;

        if (cg_caller_read_path(c->c, at, path) < 0)
                return false;
        base = cg_med_base_for(c, dirfd, path, &ok);
        /* With a base, cg_caller_open() has checked that the call waits. */
        return ok && (base >= 0 || cg_caller_waits(c->n, c->c)) && find_in(c, &base, path, w);
}

/* See mediate_int.h. */
bool cg_med_find_name(const struct cg_med_call *c, int dirfd, uint64_t at, struct cg_med_where *w)
{
        char folder[PATH_MAX];

        if (!cg_med_find(c, dirfd, at, w))
                return false;
        if (w->region != CG_REGION_NATIVE)
                return true;
        cg_med_path_of(w->dir, folder);
        w->region = cg_mediate_region(c->m->sb, folder, &w->root);
        return w->region != CG_REGION_NATIVE;
}

/* A caller with its own mounts may see folders that init does not. */
int cg_med_not_found(const struct cg_med_call *c, const struct cg_med_where *w)
{
        return w->error && !c->m->sb->nested_users ? -w->error : CG_MED_CONTINUE;
}

int cg_med_open_nameless(const struct cg_med_call *c, const struct cg_med_where *w, struct cg_med_where *was)
{
        static const char gone[] = " (deleted)";
        cg_auto_fd int link = openat(w->dir, w->name, O_PATH | O_NOFOLLOW | O_CLOEXEC), fd = -1;
        char text[PATH_MAX];
        struct stat st;
        size_t n;

        if (link < 0 || !is_on_proc(link))
                return -1;
        cg_med_path_of(link, text);
        fd = open_magic(c, w->dir, w->name, text);
        if (fd < 0 || fstat(fd, &st) < 0 || st.st_nlink > 0 || !S_ISREG(st.st_mode))
                return -1;
        cg_med_path_of(fd, text);
        n = strlen(text);
        if (text[0] != '/' || n < sizeof(gone) || strcmp(text + n - (sizeof(gone) - 1), gone) != 0)
                return -1;
        snprintf(was->path, sizeof(was->path), "%.*s", (int)(n - (sizeof(gone) - 1)), text);
        snprintf(was->name, sizeof(was->name), "%s", strrchr(was->path, '/') + 1);
        was->region = cg_mediate_region(c->m->sb, was->path, &was->root);
        return cg_steal_fd(&fd);
}

bool cg_med_follow(const struct cg_med_call *c, struct cg_med_where *w)
{
        struct cg_med_where to = CG_MED_NOWHERE;
        char text[PATH_MAX], link[PATH_MAX];
        ssize_t n = readlinkat(w->dir, w->name, text, sizeof(text) - 1);
        int fd = openat(w->dir, w->name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
        struct stat a, b;
        bool ok;

        text[n > 0 ? n : 0] = '\0';
        if (fd < 0 || n <= 0) {
                cg_closep_(&fd);
                return false;
        }
        if (is_on_proc(fd)) {
                cg_med_path_of(fd, link);
                close(fd);
                fd = open_magic(c, w->dir, w->name, link);
                if (fd < 0)
                        return false;
                cg_med_path_of(fd, text); /* in init's view */
                ok = text[0] == '/' && cg_med_find_from(c, -1, text, &to) && fstat(fd, &a) == 0 &&
                     fstatat(to.dir, to.name, &b, AT_SYMLINK_NOFOLLOW) == 0 && a.st_dev == b.st_dev &&
                     a.st_ino == b.st_ino;
        } else {
                close(fd);
                /* Fails if the symlink must not be followed (sticky folders). */
                fd = cg_open_path(w->dir, w->name, 0, RESOLVE_NO_MAGICLINKS);
                ok = (fd >= 0 || errno == ENOENT || errno == ELOOP) && cg_med_find_from(c, w->dir, text, &to);
        }
        cg_closep_(&fd);
        cg_med_where_fini(w);
        *w = to;
        return ok;
}

void cg_med_where_fini(struct cg_med_where *w)
{
        cg_closep_(&w->dir);
}
