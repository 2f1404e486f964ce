/* Links and renames: see mediate_int.h. */
#include "sandbox/notify/mediate_int.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/fs.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/util.h"
#include "sandbox/names.h"

/*
 * Entries below a renamed folder that are searched for protected names. Larger folders cannot be
 * renamed (EXDEV), so programs copy them.
 */
#define SCAN_ENTRIES 50000
#define SCAN_DEPTH   64

/*
 * Whether something in the folder @fd of @path is protected; then cg_med_deny() has been called for
 * it. *left: entries that may still be checked; 0: the search is incomplete.
 */
static bool protected_below(struct cg_med_call *c, int fd, const char *path, size_t root, int depth,
                            size_t *left)
{
        int own = openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        DIR *dir = own < 0 ? NULL : fdopendir(own);
        const struct dirent *d;
        bool found = false;

        if (!dir) {
                cg_closep_(&own);
                *left = 0; /* its mode may have been changed to prevent this */
                return false;
        }
        while (!found && (errno = 0, d = readdir(dir))) {
                struct cg_med_where w = { .dir = dirfd(dir), .root = root };
                const char *setting = NULL;
                int sub = -1;

                if (strcmp(d->d_name, ".") == 0 || strcmp(d->d_name, "..") == 0)
                        continue;
                if (!*left || depth > SCAN_DEPTH ||
                    (size_t)snprintf(w.path, sizeof(w.path), "%s/%s", path, d->d_name) >= sizeof(w.path)) {
                        *left = 0;
                        break;
                }
                --*left;
                found = cg_med_absent_rule(c->m->sb, w.path, false, &setting) ||
                        (!cg_med_is_writable_name(c->m->sb, w.path, root) &&
                         (cg_names_find(w.path, root, CG_NAME_WRITE) || cg_git_is_within(w.path, root) ||
                          strcmp(d->d_name, "HEAD") == 0));
                if (found)
                        cg_med_deny(c, &w, setting);
                if (found || (d->d_type != DT_DIR && d->d_type != DT_UNKNOWN))
                        continue;
                sub = openat(w.dir, d->d_name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
                if (sub >= 0)
                        found = protected_below(c, sub, w.path, root, depth + 1, left);
                else if (errno != ENOTDIR)
                        *left = 0;
                cg_closep_(&sub);
        }
        if (!found && errno)
                *left = 0;
        closedir(dir);
        return found;
}

enum cg_med_act cg_med_act_of(const struct stat *st)
{
        return S_ISDIR(st->st_mode) || S_ISLNK(st->st_mode) ? CG_MED_LINK : CG_MED_MAKE;
}

/* Checks a rename of @from to @to. 0; CG_MED_DENIED; -EXDEV: a folder too large to be searched. */
static int judge_move(struct cg_med_call *c, const struct cg_med_where *from, const struct stat *st,
                      const struct cg_med_where *to)
{
        int r = cg_med_judge(c, from, CG_MED_REMOVE);
        size_t left = SCAN_ENTRIES;
        cg_auto_fd int fd = -1;

        /* Git may remove a configuration and examples of hooks, but neither may be moved. */
        if (r == 0)
                r = cg_med_judge(c, to, cg_med_act_of(st));
        if (r == 0 && from->region == CG_REGION_ROOT && cg_med_git_part(from) != CG_GIT_FREE &&
            !cg_med_is_writable_name(c->m->sb, from->path, from->root))
                r = cg_med_deny(c, from, NULL);
        if (r < 0 || !S_ISDIR(st->st_mode))
                return r;
        r = cg_med_judge(c, from, CG_MED_LINK);
        /*
         * No folder is moved into, out of, or within a repository's own folder: names there depend
         * on their place.
         */
        if (r == 0 && to->region == CG_REGION_ROOT && cg_git_is_within(to->path, to->root) &&
            !cg_med_is_writable_name(c->m->sb, to->path, to->root))
                r = cg_med_deny(c, to, NULL);
        if (r == 0 && from->region == CG_REGION_ROOT && cg_git_is_within(from->path, from->root) &&
            !cg_med_is_writable_name(c->m->sb, from->path, from->root))
                r = cg_med_deny(c, from, NULL);
        if (r < 0 || from->region != CG_REGION_ROOT)
                return r;
        fd = openat(from->dir, from->name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (protected_below(c, fd, from->path, from->root, 0, &left))
                return CG_MED_DENIED;
        return left ? 0 : -EXDEV;
}

/*
 * Git writes config.lock and renames it. If its text is plain it is written to a new file, to which
 * the caller has no descriptor or mapping.
 */
static int write_config(struct cg_med_call *c, const struct cg_med_where *lock, const struct cg_med_where *to)
{
        cg_auto_free char *text = malloc(CG_GIT_CONFIG_MAX + 1);
        char fresh[NAME_MAX + 1];
        cg_auto_fd int fd = -1;
        struct stat st;
        size_t len;
        bool ok;

        /*
         * The configuration must have been made by this sandbox, or be missing in a folder that
         * was: files of other programs are not changed.
         */
        if (fstatat(to->dir, to->name, &st, AT_SYMLINK_NOFOLLOW) < 0)
                ok = errno == ENOENT && cg_med_is_made_here(&c->m->folders, to->dir, "");
        else
                ok = cg_med_is_made_here(&c->m->configs, to->dir, to->name);
        if (!text || fstatat(lock->dir, lock->name, &st, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISREG(st.st_mode) ||
            !ok || !cg_med_read_plain(lock->dir, lock->name, text, &len))
                return cg_med_deny(c, to, NULL);
        snprintf(fresh, sizeof(fresh), CG_GIT_CONFIG_FRESH "%llx", (unsigned long long)cg_now_ms());
        unlinkat(to->dir, fresh, 0);
        umask(0);
        fd = openat(to->dir, fresh, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, st.st_mode & 0666);
        if (fd < 0)
                return -errno;
        ok = cg_write_all(fd, text, len, NULL) == 0 && renameat(to->dir, fresh, to->dir, to->name) == 0;
        if (!ok) {
                int r = errno;

                unlinkat(to->dir, fresh, 0);
                return -r;
        }
        cg_med_remember(&c->m->configs, fd, "");
        unlinkat(lock->dir, lock->name, 0);
        return 0;
}

static bool is_config_lock(const struct cg_med_call *c, const struct cg_med_where *from,
                           const struct cg_med_where *to)
{
        const struct cg_sandbox *sb = c->m->sb;
        const char *setting;

        return from->region == CG_REGION_ROOT && to->region == CG_REGION_ROOT && !sb->git_config &&
               cg_med_git_part(to) == CG_GIT_CONFIG && strcmp(to->name, "config") == 0 &&
               strcmp(from->name, "config.lock") == 0 && !cg_med_is_writable_name(sb, to->path, to->root) &&
               !cg_names_find(to->path, to->root, CG_NAME_WRITE) &&
               !cg_med_absent_rule(sb, to->path, false, &setting);
}

int cg_med_rename_at(struct cg_med_call *c, int from_fd, uint64_t from_at, int to_fd, uint64_t to_at,
                     unsigned int flags)
{
        cg_auto_med_where struct cg_med_where from = CG_MED_NOWHERE, to = CG_MED_NOWHERE;
        char fresh[NAME_MAX + 1];
        struct stat a, b;
        bool there;
        int r;

        /* The kernel rejects these before it looks up a path. */
        if (flags & ~(RENAME_NOREPLACE | RENAME_EXCHANGE | RENAME_WHITEOUT) ||
            (flags & RENAME_EXCHANGE && flags & (RENAME_NOREPLACE | RENAME_WHITEOUT)))
                return CG_MED_CONTINUE;
        if (!cg_med_find_name(c, from_fd, from_at, &from))
                return cg_med_not_found(c, &from);
        if (!cg_med_find_name(c, to_fd, to_at, &to))
                return cg_med_not_found(c, &to);
        if (fstatat(from.dir, from.name, &a, AT_SYMLINK_NOFOLLOW) < 0)
                return -errno;
        there = fstatat(to.dir, to.name, &b, AT_SYMLINK_NOFOLLOW) == 0;
        if (!flags && is_config_lock(c, &from, &to))
                return write_config(c, &from, &to);
        r = judge_move(c, &from, &a, &to);
        if (r == 0 && flags & RENAME_EXCHANGE && there)
                r = judge_move(c, &to, &b, &from);
        if (r < 0)
                return r;
        r = cg_med_result((int)syscall(SYS_renameat2, from.dir, from.name, to.dir, to.name, flags));
        if (r < 0 || there || cg_med_may_stay(c, &to, cg_med_act_of(&a)))
                return r;
        /*
         * Undoes the rename. If another program has taken the old name meanwhile or removed its
         * folder, the file gets a new name, so that nothing is lost and nothing keeps a protected
         * name.
         */
        if (syscall(SYS_renameat2, to.dir, to.name, from.dir, from.name, RENAME_NOREPLACE) < 0) {
                snprintf(fresh, sizeof(fresh), ".cellgate-refused-%llx", (unsigned long long)cg_now_ms());
                if (renameat(to.dir, to.name, from.dir, fresh) < 0)
                        renameat(to.dir, to.name, to.dir, fresh);
        }
        return cg_med_deny(c, &to, NULL);
}

/*
 * Finds the existing file of a link in init's view; *nameless: its descriptor, if it has no name.
 */
static bool find_old(struct cg_med_call *c, int dirfd, uint64_t at, int flags, struct cg_med_where *w,
                     int *nameless)
{
        char path[PATH_MAX], text[PATH_MAX];
        cg_auto_fd int base = -1, fd = -1;
        struct stat st;
        bool ok;

        if (!cg_med_read_text(c, at, path))
                return false;
        if (!path[0] && flags & AT_EMPTY_PATH) {
                fd = cg_med_base_of(c, dirfd);
        } else {
                base = cg_med_base_for(c, dirfd, path, &ok);
                if (!ok || !cg_med_find_from(c, base, path, w))
                        return false;
                if (!(flags & AT_SYMLINK_FOLLOW) || fstatat(w->dir, w->name, &st, AT_SYMLINK_NOFOLLOW) < 0 ||
                    !S_ISLNK(st.st_mode))
                        return true;
                fd = cg_open_path(w->dir, w->name, 0, RESOLVE_NO_MAGICLINKS);
                if (fd < 0)
                        fd = cg_med_walk_from(c, base, path, true);
                cg_med_where_fini(w);
        }
        if (fd < 0 || fstat(fd, &st) < 0)
                return false;
        cg_med_path_of(fd, text);
        if (st.st_nlink == 0) {
                /* O_TMPFILE: made by init, in a mount of its view. */
                w->region = cg_mediate_region(c->m->sb, text, &w->root);
                *nameless = cg_steal_fd(&fd);
                return cg_med_is_in_view(c->m, *nameless);
        }
        return text[0] == '/' && cg_med_find_from(c, -1, text, w);
}

int cg_med_link_at(struct cg_med_call *c, int old_fd, uint64_t old_at, int new_fd, uint64_t new_at, int flags)
{
        cg_auto_med_where struct cg_med_where old = CG_MED_NOWHERE, to = CG_MED_NOWHERE;
        cg_auto_fd int nameless = -1;
        char path[48];
        struct stat a, b;
        int r;

        if (flags & ~(AT_SYMLINK_FOLLOW | AT_EMPTY_PATH))
                return CG_MED_CONTINUE; /* the kernel rejects it before it looks up a path */
        if (!cg_med_find_name(c, new_fd, new_at, &to))
                return cg_med_not_found(c, &to);
        if (!find_old(c, old_fd, old_at, flags, &old, &nameless) || old.region == CG_REGION_NATIVE)
                return CG_MED_CONTINUE;
        if (nameless < 0 && fstatat(old.dir, old.name, &a, AT_SYMLINK_NOFOLLOW) < 0)
                return -errno;
        if (fstatat(to.dir, to.name, &b, AT_SYMLINK_NOFOLLOW) == 0)
                return -EEXIST;
        if (nameless >= 0) {
                r = cg_med_judge(c, &to, CG_MED_MAKE);
                snprintf(path, sizeof(path), "/proc/self/fd/%d", nameless);
                return r < 0 ? r
                             : cg_med_recheck(c, &to, CG_MED_MAKE,
                                              cg_med_result(linkat(AT_FDCWD, path, to.dir, to.name,
                                                                   AT_SYMLINK_FOLLOW)));
        }
        r = cg_med_judge(c, &old, CG_MED_CHANGE);
        if (r == 0 && old.region == CG_REGION_ROOT && cg_med_git_part(&old) != CG_GIT_FREE)
                r = cg_med_deny(c, &old, NULL);
        if (r == 0)
                r = cg_med_judge(c, &to, cg_med_act_of(&a));
        return r < 0 ? r
                     : cg_med_recheck(c, &to, cg_med_act_of(&a),
                                      cg_med_result(linkat(old.dir, old.name, to.dir, to.name, 0)));
}
