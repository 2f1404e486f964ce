/*
 * See mediate.h. Runs in init: without Landlock and filter, as the caller's own user, with no
 * capability but that to read its memory.
 */
#include "sandbox/notify/mediate_int.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/util.h"
#include "sandbox/notify/access.h"
#include "sandbox/notify/caller.h"
#include "sandbox/notify/reply.h"
#include "sandbox/setid.h"

/* Finds the name for a new file or folder. 0, or the call's result. */
static int find_free(struct cg_med_call *c, int dirfd, uint64_t at, enum cg_med_act act,
                     struct cg_med_where *w)
{
        struct stat st;

        if (!cg_med_find_name(c, dirfd, at, w))
                return cg_med_not_found(c, w);
        if (fstatat(w->dir, w->name, &st, AT_SYMLINK_NOFOLLOW) == 0)
                return -EEXIST;
        return cg_med_judge(c, w, act);
}

static int do_mkdir_at(struct cg_med_call *c, int dirfd, uint64_t at, mode_t mode)
{
        cg_auto_med_where struct cg_med_where w = CG_MED_NOWHERE;
        int r = find_free(c, dirfd, at, CG_MED_FOLDER, &w);

        if (r < 0)
                return r;
        cg_med_take_umask(c);
        r = cg_med_recheck(c, &w, CG_MED_FOLDER, cg_med_result(mkdirat(w.dir, w.name, mode)));
        if (r == 0 && w.region == CG_REGION_ROOT)
                cg_med_remember(&c->m->folders, w.dir, w.name);
        return r;
}

static int do_mknod_at(struct cg_med_call *c, int dirfd, uint64_t at, mode_t mode, dev_t dev)
{
        cg_auto_med_where struct cg_med_where w = CG_MED_NOWHERE;
        int r;

        /* The kernel rejects folders and unknown types before it looks up the name. */
        if (mode & S_IFMT && !S_ISREG(mode) && !S_ISFIFO(mode) && !S_ISSOCK(mode) && !S_ISCHR(mode) &&
            !S_ISBLK(mode))
                return CG_MED_CONTINUE;
        r = find_free(c, dirfd, at, CG_MED_MAKE, &w);

        if (r < 0)
                return r;
        cg_med_take_umask(c);
        return cg_med_recheck(c, &w, CG_MED_MAKE, cg_med_result(mknodat(w.dir, w.name, mode, dev)));
}

static int do_symlink_at(struct cg_med_call *c, uint64_t text_at, int dirfd, uint64_t at)
{
        cg_auto_med_where struct cg_med_where w = CG_MED_NOWHERE;
        char text[PATH_MAX];
        int r;

        if (!cg_med_read_text(c, text_at, text) || !text[0])
                return CG_MED_CONTINUE;
        r = find_free(c, dirfd, at, CG_MED_LINK, &w);
        return r < 0 ? r : cg_med_recheck(c, &w, CG_MED_LINK, cg_med_result(symlinkat(text, w.dir, w.name)));
}

static int do_unlink_at(struct cg_med_call *c, int dirfd, uint64_t at, int flags)
{
        cg_auto_med_where struct cg_med_where w = CG_MED_NOWHERE;
        struct stat st;
        int r;

        if (flags & ~AT_REMOVEDIR)
                return CG_MED_CONTINUE; /* the kernel rejects it before it looks up the name */
        if (!cg_med_find_name(c, dirfd, at, &w))
                return cg_med_not_found(c, &w);
        if (fstatat(w.dir, w.name, &st, AT_SYMLINK_NOFOLLOW) < 0)
                return -errno;
        r = cg_med_judge(c, &w, CG_MED_REMOVE);
        return r < 0 ? r : cg_med_result(unlinkat(w.dir, w.name, flags));
}

static int do_truncate(struct cg_med_call *c)
{
        cg_auto_med_where struct cg_med_where w = CG_MED_NOWHERE;
        int64_t size = (int64_t)c->a[1];

        if (size < 0)
                return -EINVAL; /* the kernel rejects it before it looks up the file */
        if (!cg_med_find(c, AT_FDCWD, c->a[0], &w))
                return CG_MED_CONTINUE;
        for (int i = 0; i < CG_MED_LINKS_MAX; i++) {
                struct rlimit most;
                cg_auto_fd int fd = -1;
                struct stat st;
                int r;

                if (w.name[strlen(w.name) - 1] == '/' || fstatat(w.dir, w.name, &st, AT_SYMLINK_NOFOLLOW) < 0)
                        return CG_MED_CONTINUE;
                if (S_ISLNK(st.st_mode)) {
                        if (!cg_med_follow(c, &w))
                                return CG_MED_CONTINUE;
                        continue;
                }
                if (!S_ISREG(st.st_mode) || w.region == CG_REGION_NATIVE)
                        return CG_MED_CONTINUE;
                r = cg_med_judge(c, &w, CG_MED_CHANGE);
                if (r < 0)
                        return r;
                fd = openat(w.dir, w.name, O_WRONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
                if (fd < 0 || fstat(fd, &st) < 0)
                        return -errno;
                /*
                 * The caller's own limit, since init has none. If it cannot be read the file does
                 * not grow.
                 */
                if (size > st.st_size && prlimit(c->tid, RLIMIT_FSIZE, NULL, &most) < 0)
                        return -errno;
                if (size > st.st_size && (uint64_t)size > most.rlim_cur) {
                        /*
                         * In this order: a signal could interrupt the call, which would start
                         * again.
                         */
                        cg_reply_result(c->n, c->c, -EFBIG);
                        syscall(SYS_tkill, c->tid, SIGXFSZ);
                        return CG_MED_ANSWERED;
                }
                return cg_med_result(ftruncate(fd, (off_t)size));
        }
        return CG_MED_CONTINUE;
}

/* ---- modes, owners and times, for broker.c */

int cg_mediate_target(struct cg_mediator *m, struct cg_notify *n, const struct seccomp_notif *call, int dirfd,
                      uint64_t path, int flags)
{
        struct cg_med_call c = {
                .m = m, .n = n, .c = call, .a = (const uint64_t *)call->data.args, .tid = (pid_t)call->pid
        };
        char text[PATH_MAX] = "", at[PATH_MAX] = "";
        cg_auto_fd int base = -1;
        bool ok, nofollow = flags & AT_SYMLINK_NOFOLLOW;
        int fd, e = EACCES;

        if (path && !cg_med_read_text(&c, path, text))
                return -EFAULT;
        if (!path || (!text[0] && flags & AT_EMPTY_PATH)) {
                if (dirfd != AT_FDCWD)
                        return cg_caller_open(n, call, dirfd);
                snprintf(text, sizeof(text), ".");
        }
        if (!text[0])
                return -ENOENT;
        base = cg_med_base_for(&c, dirfd, text, &ok);
        if (!ok)
                return dirfd < 0 && dirfd != AT_FDCWD && text[0] != '/' ? -EBADF : -EPERM;
        fd = cg_open_path(base >= 0 ? base : AT_FDCWD, text, nofollow ? O_NOFOLLOW : 0,
                          RESOLVE_NO_MAGICLINKS);
        if (fd >= 0)
                cg_med_path_of(fd, at);
        else
                e = errno;
        if (fd >= 0 && strncmp(at, "/proc/", 6) != 0)
                return fd;
        /* "self" in /proc was init, and is to be the caller. */
        cg_closep_(&fd);
        if (nofollow) {
                cg_auto_med_where struct cg_med_where w = CG_MED_NOWHERE;

                if (!cg_med_find_from(&c, base, text, &w))
                        return -e;
                fd = openat(w.dir, w.name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
        } else {
                fd = cg_med_walk_from(&c, base, text, true);
        }
        return fd < 0 ? -errno : fd;
}

bool cg_mediate_may_change(struct cg_mediator *m, int fd, const char *path)
{
        struct cg_med_call c = { .m = m };
        struct cg_med_where w = { .dir = fd }; /* borrowed; no name, since the file itself is open */

        if (!strchr(path, '/') || !cg_med_is_in_view(m, fd))
                return true;
        snprintf(w.path, sizeof(w.path), "%s", path);
        w.region = cg_mediate_region(m->sb, path, &w.root);
        return cg_med_judge(&c, &w, CG_MED_ATTRIBUTES) == 0;
}

/* Init's user namespace has one user, whatever its number is in a nested one. */
void cg_mediate_owner(const struct cg_mediator *m, pid_t tid, uid_t *uid, gid_t *gid)
{
        struct stat its, ours;
        char path[48];

        snprintf(path, sizeof(path), "/proc/%d/ns/user", (int)tid);
        if (!m->sb->nested_users || stat(path, &its) < 0 || stat("/proc/self/ns/user", &ours) < 0 ||
            its.st_ino == ours.st_ino)
                return;
        *uid = *uid == (uid_t)-1 ? *uid : geteuid();
        *gid = *gid == (gid_t)-1 ? *gid : getegid();
}

/* ---- calls */

static int run(struct cg_med_call *c)
{
        const uint64_t *a = c->a;

        switch (c->c->data.nr) {
        case SYS_openat:
                return cg_med_open_at(c, (int)a[0], a[1], (int)a[2], (mode_t)a[3]);
        case SYS_mkdirat:
                return do_mkdir_at(c, (int)a[0], a[1], (mode_t)a[2]);
        case SYS_mknodat:
                return do_mknod_at(c, (int)a[0], a[1], (mode_t)a[2], (dev_t)(uint32_t)a[3]);
        case SYS_symlinkat:
                return do_symlink_at(c, a[0], (int)a[1], a[2]);
        case SYS_linkat:
                return cg_med_link_at(c, (int)a[0], a[1], (int)a[2], a[3], (int)a[4]);
        case SYS_unlinkat:
                return do_unlink_at(c, (int)a[0], a[1], (int)a[2]);
        case SYS_renameat2:
                return cg_med_rename_at(c, (int)a[0], a[1], (int)a[2], a[3], (unsigned int)a[4]);
        case SYS_truncate:
                return do_truncate(c);
        case SYS_umask:
                c->m->umask_changed = true;
                return CG_MED_CONTINUE;
#ifdef SYS_renameat
        case SYS_renameat:
                return cg_med_rename_at(c, (int)a[0], a[1], (int)a[2], a[3], 0);
#endif
#ifdef SYS_open /* older architectures have both kinds */
        case SYS_open:
                return cg_med_open_at(c, AT_FDCWD, a[0], (int)a[1], (mode_t)a[2]);
        case SYS_creat:
                return cg_med_open_at(c, AT_FDCWD, a[0], O_CREAT | O_WRONLY | O_TRUNC, (mode_t)a[1]);
        case SYS_mkdir:
                return do_mkdir_at(c, AT_FDCWD, a[0], (mode_t)a[1]);
        case SYS_mknod:
                return do_mknod_at(c, AT_FDCWD, a[0], (mode_t)a[1], (dev_t)(uint32_t)a[2]);
        case SYS_symlink:
                return do_symlink_at(c, a[0], AT_FDCWD, a[1]);
        case SYS_link:
                return cg_med_link_at(c, AT_FDCWD, a[0], AT_FDCWD, a[1], 0);
        case SYS_unlink:
                return do_unlink_at(c, AT_FDCWD, a[0], 0);
        case SYS_rmdir:
                return do_unlink_at(c, AT_FDCWD, a[0], AT_REMOVEDIR);
        case SYS_rename:
                return cg_med_rename_at(c, AT_FDCWD, a[0], AT_FDCWD, a[1], 0);
#endif
        default:
                return CG_MED_UNKNOWN;
        }
}

void cg_mediate_init(struct cg_mediator *m, const struct cg_sandbox *sb)
{
        *m = (struct cg_mediator){ .sb = cg_mediates(sb) ? sb : NULL };
        m->umask = umask(0);
        umask(m->umask);
}

void cg_mediate_ended(struct cg_mediator *m, pid_t pid)
{
        for (size_t i = 0; i < CG_MEDIATE_HELPERS; i++) {
                if (m->helpers[i] == pid)
                        m->helpers[i] = 0;
        }
}

bool cg_mediate_call(struct cg_mediator *m, struct cg_notify *n, const struct seccomp_notif *call)
{
        struct cg_med_call c = {
                .m = m, .n = n, .c = call, .a = (const uint64_t *)call->data.args, .tid = (pid_t)call->pid
        };
        struct cg_denied_path p = { .path = c.path, .access = CG_ACCESS_WRITE };
        int r;

        /* Set-user-ID bits are refused by notify.c's other handlers. */
        if (!m->sb || cg_setid_asked(call->data.nr, c.a))
                return false;
        r = run(&c);
        switch (r) {
        case CG_MED_UNKNOWN:
                return false;
        case CG_MED_ANSWERED:
                break;
        case CG_MED_CONTINUE:
                cg_reply_continue(n, call);
                break;
        case CG_MED_DENIED:
                p.rule = c.setting ? CG_ACCESS_DENY_WRITE : CG_ACCESS_NAME;
                p.setting = c.setting;
                cg_reply_report(n, call, &p);
                cg_reply_result(n, call, -EACCES);
                break;
        default:
                cg_reply_result(n, call, r);
        }
        return true;
}
