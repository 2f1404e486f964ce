/* Resolution of a caller's paths in init's own view: see mediate_int.h. */
#include "sandbox/inside/mediate_int.h"

#include <linux/magic.h>
#include <linux/openat2.h>
#include <linux/seccomp.h>
#include <sys/statfs.h>
#include <sys/syscall.h>

#include "sandbox/inside/caller.h"
#include "sandbox/names/stamps.h"
#include "sandbox/setid.h"

bool cg_med_read_path(const struct cg_med_call *call, uint64_t addr, char text[PATH_MAX])
{
        return cg_caller_read_path(call->notif, addr, text) == 0 &&
               cg_caller_waits(call->notify, call->notif);
}

void cg_med_set_umask(struct cg_mediator *m, mode_t mask)
{
        if (mask != m->own_umask)
                umask(mask);
        m->own_umask = mask;
}

/*
 * Reads the caller's umask, which processes and threads may share. The file stays open: it is that
 * of the thread, also after an exec, and cannot be read after its end.
 */
static mode_t read_umask(struct cg_mediator *m, pid_t tid)
{
        char path[64], text[CG_CALLER_STATUS_MAX];
        unsigned int mask;
        ssize_t n = m->status.tid == tid ? pread(m->status.fd, text, sizeof(text) - 1, 0) : -1;
        const char *p;

        if (n <= 0) {
                cg_closep_(&m->status.fd);
                snprintf(path, sizeof(path), "/proc/%d/status", (int)tid);
                m->status.fd = open(path, O_RDONLY | O_CLOEXEC);
                m->status.tid = tid;
                n = pread(m->status.fd, text, sizeof(text) - 1, 0);
        }
        text[CG_MAX(n, 0)] = '\0';
        p = strstr(text, "\nUmask:");
        /* One that cannot be read is the strictest. */
        return p && sscanf(p, "\nUmask: %o", &mask) == 1 ? (mode_t)mask : 0777;
}

void cg_med_apply_umask(struct cg_med_call *call, mode_t mode)
{
        struct cg_mediator *m = call->mediator;

        /* The caller's own is needed only where umasks differ in a bit of the mode. */
        cg_med_set_umask(m, mode & m->umask_some & ~m->umask_all ? read_umask(m, call->tid) : m->umask_all);
}

/* ---- paths in init's own view */

void cg_med_fd_path(int fd, char buf[PATH_MAX])
{
        char link[48];
        ssize_t n;

        snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
        n = readlink(link, buf, PATH_MAX - 1);
        buf[CG_MAX(n, 0)] = '\0';
}

/* The same for a folder, faster: init's working directory has no other use. */
static void folder_path(int fd, char buf[PATH_MAX])
{
        if (fchdir(fd) < 0 || syscall(SYS_getcwd, buf, PATH_MAX) < 0 || buf[0] != '/')
                cg_med_fd_path(fd, buf); /* removed, or outside of init's root */
}

bool cg_med_is_own_mount(struct cg_mediator *m, int fd)
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

        if (fd < 0 || cg_med_is_own_mount(m, fd))
                return fd;
        cg_med_fd_path(fd, path);
        own = path[0] == '/' ? cg_open_path(AT_FDCWD, path, O_NOFOLLOW, RESOLVE_NO_SYMLINKS) : -1;
        if (own >= 0 &&
            (fstat(fd, &a) < 0 || fstat(own, &b) < 0 || a.st_dev != b.st_dev || a.st_ino != b.st_ino))
                cg_closep_(&own);
        close(fd);
        return own;
}

int cg_med_open_dirfd(const struct cg_med_call *call, int dirfd)
{
        return reopen_in_view(call->mediator, cg_caller_open(call->notify, call->notif, dirfd));
}

static bool identify_folder(int fd, const char *path, struct cg_folder *ret)
{
        struct statx st;

        if (statx(fd, path, AT_STATX_DONT_SYNC | (path[0] ? 0 : AT_EMPTY_PATH),
                  STATX_TYPE | STATX_INO | STATX_MNT_ID, &st) < 0 ||
            !(st.stx_mask & STATX_MNT_ID) || !S_ISDIR(st.stx_mode))
                return false;
        ret->dev = (uint64_t)st.stx_dev_major << 32 | st.stx_dev_minor;
        ret->ino = st.stx_ino;
        ret->mount = st.stx_mnt_id;
        return true;
}

static bool has_own_numbers(int fd)
{
        struct statfs fs;

        return fstatfs(fd, &fs) == 0 && cg_statfs_is_local(&fs);
}

void cg_med_leave_folder(struct cg_med_call *call)
{
        struct cg_caller_process *p = cg_caller_find(call->mediator->callers, call->notif);

        if (p)
                cg_closep_(&p->folder);
        else
                call->mediator->shared_folders = true;
}

/* cg_med_open_dirfd(), borrowed until CG_MEDIATE_FOLDERS others have been opened. */
static int find_dirfd(const struct cg_med_call *call, int dirfd)
{
        struct cg_mediator *m = call->mediator;
        struct cg_folder *v = m->open_folders, at = { .fd = -1 };
        cg_auto_fd int own = dirfd < 0 ? -1 : cg_caller_take(call->notify, call->notif, dirfd, m->callers);
        struct cg_caller_process *p = NULL;
        char link[CG_CALLER_LINK_MAX] = "";
        size_t i = CG_MEDIATE_FOLDERS;

        if (dirfd == AT_FDCWD && !m->shared_folders && !m->sb->set.nested_users)
                p = cg_caller_find(m->callers, call->notif);
        if (p) {
                if (p->folder < 0)
                        p->folder = cg_med_open_dirfd(call, dirfd);
                return p->folder;
        }
        if (own < 0)
                cg_caller_link(call->notif, dirfd, link);
        if (identify_folder(own < 0 ? AT_FDCWD : own, link, &at)) {
                for (i = 0; i < CG_MEDIATE_FOLDERS; i++)
                        if (v[i].fd >= 0 && v[i].ino == at.ino && v[i].dev == at.dev &&
                            v[i].mount == at.mount)
                                break;
        }
        if (i < CG_MEDIATE_FOLDERS) {
                at.fd = v[i].fd;
        } else {
                /* The caller may have another folder by now. */
                at = (struct cg_folder){ .fd = cg_med_open_dirfd(call, dirfd) };
                if (at.fd < 0)
                        return at.fd;
                if (has_own_numbers(at.fd))
                        identify_folder(at.fd, "", &at);
                cg_closep_(&v[--i].fd);
        }
        memmove(v + 1, v, i * sizeof(*v));
        v[0] = at;
        return at.fd;
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

/* Sets path and region of @arg from dir and name. */
static bool set_path(const struct cg_mediator *m, struct cg_path_arg *arg)
{
        size_t n = strlen(arg->name), len;
        struct statfs fs;

        n -= arg->name[n - 1] == '/';
        folder_path(arg->dir, arg->path);
        len = strlen(arg->path);
        /*
         * A path that is too long cannot be checked. In the sandbox's private places, which are
         * tmpfs, the call continues.
         */
        if (!len || len + 1 + n >= sizeof(arg->path)) {
                arg->error = fstatfs(arg->dir, &fs) == 0 && fs.f_type == TMPFS_MAGIC ? 0 : ENAMETOOLONG;
                return false;
        }
        if (arg->path[0] != '/')
                return false;
        if (len > 1)
                arg->path[len++] = '/';
        memcpy(arg->path + len, arg->name, n);
        arg->path[len + n] = '\0';
        arg->region = cg_mediate_region(m->sb, arg->path, &arg->root);
        return true;
}

/* ---- paths through /proc, where "self" and descriptors are the caller's */

/*
 * Opens the target of the magic link @name in /proc, which is at @link, in init's view; only if it
 * is the caller's own.
 */
static int open_magic(const struct cg_med_call *call, int dir, const char *name, const char *link)
{
        pid_t tgid = cg_caller_process(call->tid);
        int pid = 0, used = 0;

        if (sscanf(link, "/proc/%d%n", &pid, &used) != 1 || link[used] != '/' || tgid <= 0 ||
            (pid != tgid && pid != call->tid))
                return -1;
        return reopen_in_view(call->mediator, openat(dir, name, O_PATH | O_CLOEXEC));
}

static bool is_on_proc(int fd)
{
        struct statfs fs;

        return fstatfs(fd, &fs) == 0 && fs.f_type == PROC_SUPER_MAGIC;
}

struct path_walk {
        const struct cg_med_call *call;
        int dir; /* current folder; owned */
        char rest[2 * PATH_MAX];
        int links;
        bool absent;  /* a name was missing */
        bool movable; /* what was followed can be changed inside: a link, or a folder's "..", by moving it */
};

static bool can_change(const struct path_walk *w, const char *path)
{
        const struct cg_sandbox *sb = w->call->mediator->sb;

        return !path[0] || !sb || cg_plan_is_writable(sb, path);
}

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
        close(w->dir);
        w->dir = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
        return w->dir >= 0;
}

/* Follows the symlink @fd, which is @name in the current folder. */
static bool follow_link(struct path_walk *w, int fd, const char *name, const char *behind)
{
        char link[PATH_MAX], text[PATH_MAX];
        ssize_t n = readlinkat(fd, "", text, sizeof(text) - 1);
        int to;

        text[CG_MAX(n, 0)] = '\0';
        cg_med_fd_path(fd, link);
        w->movable |= can_change(w, link);
        if (!is_on_proc(fd))
                return n > 0 && follow_text(w, text, behind);
        if (strcmp(link, "/proc/self") == 0 || strcmp(link, "/proc/thread-self") == 0) {
                int pid = cg_caller_process(w->call->tid);

                snprintf(text, sizeof(text), link[6] == 's' ? "%d" : "%d/task/%d", pid, (int)w->call->tid);
                return pid > 0 && follow_text(w, text, behind);
        }
        if (strcmp(link, "/proc/mounts") == 0 || strcmp(link, "/proc/net") == 0)
                return n > 0 && follow_text(w, text, behind);
        w->movable = true;
        to = open_magic(w->call, w->dir, name, link);
        if (to < 0 || ++w->links > CG_MED_LINKS_MAX)
                return false;
        close(w->dir);
        w->dir = to;
        memmove(w->rest, behind, strlen(behind) + 1);
        return true;
}

/*
 * Resolves the path name by name, as the kernel would for the caller. On success w->dir is the
 * path's target, with the last name's symlink followed; or with @keep_last the folder of the last
 * name, which stays in w->rest.
 */
static bool walk(struct path_walk *w, bool keep_last)
{
        char name[NAME_MAX + 1], behind[2 * PATH_MAX], folder[PATH_MAX];
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
                if (strcmp(name, "..") == 0) {
                        cg_med_fd_path(w->dir, folder);
                        w->movable |= can_change(w, folder);
                }
                fd = openat(w->dir, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
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
                close(w->dir);
                w->dir = fd;
                memcpy(w->rest, behind, strlen(behind) + 1);
        }
}

static int resolve(const struct cg_med_call *call, int base, const char *path, bool whole, bool *movable)
{
        struct path_walk w = { .call = call,
                               .dir = path[0] == '/' ? open("/", O_PATH | O_DIRECTORY | O_CLOEXEC)
                                                     : fcntl(base, F_DUPFD_CLOEXEC, 0) };
        bool ok;

        snprintf(w.rest, sizeof(w.rest), "%s", path);
        ok = w.dir >= 0 && walk(&w, !whole);
        if (!ok) {
                cg_closep_(&w.dir);
                errno = w.absent ? ENOENT : EACCES;
        }
        *movable = w.movable;
        return w.dir;
}

int cg_med_resolve(const struct cg_med_call *call, int base, const char *path, bool whole)
{
        bool movable;

        return resolve(call, base, path, whole, &movable);
}

int cg_med_resolve_file(const struct cg_med_call *call, int base, const char *path, bool *movable)
{
        return resolve(call, base, path, true, movable);
}

/* ---- names */

bool cg_med_lookup_at(const struct cg_med_call *call, int base, const char *path, struct cg_path_arg *arg)
{
        CG_UNINITIALIZED char folder[PATH_MAX];
        size_t len;
        bool slash;
        const char *name = last_name(path, &len, &slash);

        if (!name)
                return false;
        if (name == path && base >= 0) {
                arg->dir = base;
                arg->kept = true;
        } else {
                memcpy(folder, path, (size_t)(name - path));
                folder[name - path] = '\0';
                arg->dir = cg_open_path(base >= 0 ? base : AT_FDCWD, folder, O_DIRECTORY,
                                        RESOLVE_NO_MAGICLINKS);
                /* The path may lead through /proc/self, which would be init. */
                if (arg->dir < 0)
                        arg->dir = cg_med_resolve(call, base, path, false);
        }
        arg->error = arg->dir < 0 && errno == ENOENT ? ENOENT : 0;
        if (arg->dir < 0)
                return false;
        memcpy(arg->name, name, len + slash);
        arg->name[len + slash] = '\0';
        if (!set_path(call->mediator, arg))
                return false;
        /* "self" was init, and is to be the caller. */
        if (name == path || strncmp(arg->path, "/proc/", 6) != 0)
                return true;
        close(arg->dir);
        arg->dir = cg_med_resolve(call, base, path, false);
        return arg->dir >= 0 && set_path(call->mediator, arg);
}

int cg_med_open_base(const struct cg_med_call *call, int dirfd, const char *path, bool *ok)
{
        struct stat its, ours;
        char root[48];
        int base;

        if (path[0] != '/') {
                base = find_dirfd(call, dirfd);
                *ok = path[0] && base >= 0;
                return base;
        }
        /* With nested user namespaces the caller may have another root, so other absolute paths. */
        *ok = !call->mediator->sb->set.nested_users;
        if (*ok)
                return -1;
        snprintf(root, sizeof(root), "/proc/%d/root", (int)call->tid);
        *ok = stat(root, &its) == 0 && stat("/", &ours) == 0 && its.st_dev == ours.st_dev &&
              its.st_ino == ours.st_ino;
        return -1;
}

bool cg_med_lookup(const struct cg_med_call *call, int dirfd, uint64_t addr, struct cg_path_arg *arg)
{
        CG_UNINITIALIZED char path[PATH_MAX];
        int base;
        bool ok;

        if (cg_caller_read_path(call->notif, addr, path) < 0)
                return false;
        base = cg_med_open_base(call, dirfd, path, &ok);
        return ok && cg_caller_waits(call->notify, call->notif) && cg_med_lookup_at(call, base, path, arg);
}

int cg_med_continue(struct cg_med_call *call, const struct cg_path_arg *arg)
{
        if (!call->outside[0])
                snprintf(call->outside, sizeof(call->outside), "%s", arg->path);
        return CG_MED_CONTINUE;
}

bool cg_med_lookup_entry(struct cg_med_call *call, int dirfd, uint64_t addr, struct cg_path_arg *arg)
{
        char folder[PATH_MAX];

        if (!cg_med_lookup(call, dirfd, addr, arg))
                return false;
        if (arg->region != CG_REGION_NATIVE)
                return true;
        folder_path(arg->dir, folder);
        arg->region = cg_mediate_region(call->mediator->sb, folder, &arg->root);
        if (arg->region == CG_REGION_NATIVE)
                cg_med_continue(call, arg);
        return arg->region != CG_REGION_NATIVE;
}

bool cg_med_exists(const struct cg_path_arg *arg)
{
        struct stat st;

        return fstatat(arg->dir, arg->name, &st, AT_SYMLINK_NOFOLLOW) == 0;
}

/* A caller with its own mounts may see folders that init does not. */
int cg_med_lookup_error(const struct cg_med_call *call, const struct cg_path_arg *arg)
{
        return arg->error && !call->mediator->sb->set.nested_users ? -arg->error : CG_MED_CONTINUE;
}

int cg_med_open_unlinked(const struct cg_med_call *call, const struct cg_path_arg *arg,
                         struct cg_path_arg *former)
{
        static const char gone[] = " (deleted)";
        cg_auto_fd int link = openat(arg->dir, arg->name, O_PATH | O_NOFOLLOW | O_CLOEXEC), fd = -1;
        char text[PATH_MAX];
        struct stat st;
        size_t n;

        if (link < 0 || !is_on_proc(link))
                return -1;
        cg_med_fd_path(link, text);
        fd = open_magic(call, arg->dir, arg->name, text);
        if (fd < 0 || fstat(fd, &st) < 0 || st.st_nlink > 0 || !S_ISREG(st.st_mode))
                return -1;
        cg_med_fd_path(fd, text);
        n = strlen(text);
        if (text[0] != '/' || n < sizeof(gone) || strcmp(text + n - (sizeof(gone) - 1), gone) != 0)
                return -1;
        snprintf(former->path, sizeof(former->path), "%.*s", (int)(n - (sizeof(gone) - 1)), text);
        snprintf(former->name, sizeof(former->name), "%s", strrchr(former->path, '/') + 1);
        former->region = cg_mediate_region(call->mediator->sb, former->path, &former->root);
        return cg_steal_fd(&fd);
}

bool cg_med_follow_link(const struct cg_med_call *call, struct cg_path_arg *arg)
{
        struct cg_path_arg to = CG_PATH_ARG_NONE;
        char text[PATH_MAX], link[PATH_MAX];
        ssize_t n = readlinkat(arg->dir, arg->name, text, sizeof(text) - 1);
        int fd = openat(arg->dir, arg->name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
        struct stat a, b;
        bool ok;

        text[CG_MAX(n, 0)] = '\0';
        if (fd < 0 || n <= 0) {
                cg_closep_(&fd);
                return false;
        }
        if (is_on_proc(fd)) {
                cg_med_fd_path(fd, link);
                close(fd);
                fd = open_magic(call, arg->dir, arg->name, link);
                if (fd < 0)
                        return false;
                cg_med_fd_path(fd, text); /* in init's view */
                ok = text[0] == '/' && cg_med_lookup_at(call, -1, text, &to) && fstat(fd, &a) == 0 &&
                     fstatat(to.dir, to.name, &b, AT_SYMLINK_NOFOLLOW) == 0 && a.st_dev == b.st_dev &&
                     a.st_ino == b.st_ino;
        } else {
                close(fd);
                /* Fails if the symlink must not be followed (sticky folders). */
                fd = cg_open_path(arg->dir, arg->name, 0, RESOLVE_NO_MAGICLINKS);
                ok = (fd >= 0 || errno == ENOENT || errno == ELOOP) &&
                     cg_med_lookup_at(call, arg->dir, text, &to);
        }
        cg_closep_(&fd);
        if (to.dir == arg->dir) { /* it passes to @to */
                to.kept = arg->kept;
                arg->kept = true;
        }
        cg_path_arg_fini(arg);
        *arg = to;
        return ok;
}

void cg_path_arg_fini(struct cg_path_arg *arg)
{
        if (!arg->kept)
                cg_closep_(&arg->dir);
        arg->dir = -1;
        arg->kept = false;
}

int cg_mediate_open_target(struct cg_mediator *m, struct cg_notify *n, const struct seccomp_notif *notif,
                           int dirfd, uint64_t path, int flags, char found[PATH_MAX])
{
        struct cg_med_call call = { .mediator = m, .notify = n, .notif = notif, .tid = (pid_t)notif->pid };
        char text[PATH_MAX] = "";
        bool ok, nofollow = flags & AT_SYMLINK_NOFOLLOW;
        int base, fd, e = EACCES;

        found[0] = '\0';
        if (path && !cg_med_read_path(&call, path, text))
                return -EFAULT;
        if (!path || (!text[0] && flags & AT_EMPTY_PATH)) {
                if (dirfd != AT_FDCWD)
                        return cg_caller_open(n, notif, dirfd);
                snprintf(text, sizeof(text), ".");
        }
        if (!text[0])
                return -ENOENT;
        base = cg_med_open_base(&call, dirfd, text, &ok);
        if (!ok || !cg_caller_waits(n, notif))
                return dirfd < 0 && dirfd != AT_FDCWD && text[0] != '/' ? -EBADF : -EPERM;
        fd = cg_open_path(base >= 0 ? base : AT_FDCWD, text, nofollow ? O_NOFOLLOW : 0,
                          RESOLVE_NO_MAGICLINKS);
        if (fd >= 0)
                cg_med_fd_path(fd, found);
        else
                e = errno;
        if (fd >= 0 && strncmp(found, "/proc/", 6) != 0)
                return fd;
        /* "self" in /proc was init, and is to be the caller. */
        cg_closep_(&fd);
        found[0] = '\0';
        if (nofollow) {
                cg_auto_path_arg struct cg_path_arg arg = CG_PATH_ARG_NONE;

                if (!cg_med_lookup_at(&call, base, text, &arg))
                        return -e;
                fd = openat(arg.dir, arg.name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
        } else {
                fd = cg_med_resolve(&call, base, text, true);
        }
        return fd < 0 ? -errno : fd;
}

int cg_mediate_take_writer(struct cg_mediator *m, const struct cg_notify *n,
                           const struct seccomp_notif *notif, int fd, mode_t mode)
{
        int copy, access;

        /* Modes that are refused, and programs in folders of PATH. */
        if (mode & CG_SETID_BITS || (mode & 0111 && m->sb->n_programs))
                return -1;
        copy = cg_caller_take(n, notif, fd, m->callers);
        access = copy < 0 ? 0 : fcntl(copy, F_GETFL) & O_ACCMODE;
        /* Landlock needs no right for the fourth kind, with which nothing can be written. */
        if (access != O_WRONLY && access != O_RDWR)
                cg_closep_(&copy);
        return copy;
}
