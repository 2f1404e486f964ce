/*
 * Calls that init executes: see mediate.h. Runs in init: without Landlock and filter, as the
 * caller's own user, with no capability but that to read its memory.
 *
 * A handler looks its paths up (mediate_path.c), asks whether the operation is allowed
 * (mediate_decide.c), executes it, and checks a new name once more.
 */
#include "sandbox/inside/mediate_int.h"

#include <linux/fs.h>
#include <linux/openat2.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <sys/syscall.h>

#include "base/fd.h"
#include "sandbox/names/names.h"
#include "sandbox/inside/access.h"
#include "sandbox/inside/caller.h"
#include "sandbox/inside/reply.h"
#include "sandbox/inside/watch.h"
#include "sandbox/setid.h"
#include "sandbox/steps.h"

/* ---- making and removing names */

/* Finds the name for a new file or folder of type and mode @mode. 0, or the call's result. */
static int lookup_new(struct cg_med_call *call, int dirfd, uint64_t addr, enum cg_operation operation,
                      mode_t mode, struct cg_path_arg *arg)
{
        int r;

        if (!cg_med_lookup_entry(call, dirfd, addr, arg))
                return cg_med_lookup_error(call, arg);
        r = cg_med_decide(call, arg, operation) ?: cg_med_decide_program(call, arg, mode, 1);
        return r < 0 && cg_med_exists(arg) ? -EEXIST : r;
}

static int do_mkdirat(struct cg_med_call *call, int dirfd, uint64_t addr, mode_t mode)
{
        cg_auto_path_arg struct cg_path_arg arg = CG_PATH_ARG_NONE;
        int r = lookup_new(call, dirfd, addr, CG_OP_MKDIR, S_IFDIR, &arg);

        if (r < 0)
                return r;
        cg_med_apply_umask(call, mode);
        r = cg_med_check_created(call, &arg, CG_OP_MKDIR, cg_med_result(mkdirat(arg.dir, arg.name, mode)));
        if (r == 0 && arg.region == CG_REGION_ROOT) {
                cg_made_add(&call->mediator->folders, arg.dir, arg.name);
                cg_med_made_folder(call, &arg);
        }
        return r;
}

static int do_mknodat(struct cg_med_call *call, int dirfd, uint64_t addr, mode_t mode, dev_t dev)
{
        cg_auto_path_arg struct cg_path_arg arg = CG_PATH_ARG_NONE;
        int r;

        /* The kernel rejects folders and unknown types before it looks up the name. */
        if (mode & S_IFMT && !S_ISREG(mode) && !S_ISFIFO(mode) && !S_ISSOCK(mode) && !S_ISCHR(mode) &&
            !S_ISBLK(mode))
                return CG_MED_CONTINUE;
        r = lookup_new(call, dirfd, addr, CG_OP_CREATE, mode & S_IFMT ? mode : S_IFREG | mode, &arg);
        if (r < 0)
                return r;
        cg_med_apply_umask(call, mode);
        return cg_med_check_created(call, &arg, CG_OP_CREATE,
                                    cg_med_result(mknodat(arg.dir, arg.name, mode, dev)));
}

static int do_symlinkat(struct cg_med_call *call, uint64_t text_addr, int dirfd, uint64_t addr)
{
        cg_auto_path_arg struct cg_path_arg arg = CG_PATH_ARG_NONE;
        char text[PATH_MAX];
        int r;

        if (!cg_med_read_path(call, text_addr, text) || !text[0])
                return CG_MED_CONTINUE;
        r = lookup_new(call, dirfd, addr, CG_OP_CREATE_LINK, S_IFLNK, &arg);
        return r
                       ?: cg_med_check_created(call, &arg, CG_OP_CREATE_LINK,
                                               cg_med_result(symlinkat(text, arg.dir, arg.name)));
}

static int do_unlinkat(struct cg_med_call *call, int dirfd, uint64_t addr, int flags)
{
        cg_auto_path_arg struct cg_path_arg arg = CG_PATH_ARG_NONE;
        int r;

        if (flags & ~AT_REMOVEDIR)
                return CG_MED_CONTINUE; /* the kernel rejects it before it looks up the name */
        if (!cg_med_lookup_entry(call, dirfd, addr, &arg))
                return cg_med_lookup_error(call, &arg);
        r = cg_med_decide(call, &arg, CG_OP_REMOVE);
        if (r < 0 && cg_med_exists(&arg))
                return r;
        if (r < 0)
                return -errno;
        return cg_med_result(unlinkat(arg.dir, arg.name, flags));
}

/* ---- renames and links */

/*
 * Entries below a renamed folder that are searched for protected names. Larger folders cannot be
 * renamed (EXDEV), so programs copy them.
 */
#define SCAN_ENTRIES 50000
#define SCAN_DEPTH   64

/* The search of a folder that is renamed. */
struct move_scan {
        struct cg_med_call *call;
        const struct cg_path_arg *from, *to;
        size_t left; /* entries that may still be checked; 0: the search is incomplete */
};

/* @path, in the renamed folder, or its new path has a denied pattern. */
static bool has_pattern(const struct move_scan *s, const char *path, const char **setting)
{
        const struct cg_sandbox *sb = s->call->mediator->sb;
        char moved[PATH_MAX];

        return cg_med_pattern_rule(sb, path, false, setting) ||
               (sb->n_patterns && s->to->region == CG_REGION_ROOT &&
                snprintf(moved, sizeof(moved), "%s%s", s->to->path, path + strlen(s->from->path)) <
                        (int)sizeof(moved) &&
                cg_med_pattern_rule(sb, moved, false, setting));
}

/* Tests if anything in the folder @fd of @path is protected; then cg_med_deny() has been called. */
static bool has_protected_below(struct move_scan *s, int fd, const char *path, int depth)
{
        const struct cg_sandbox *sb = s->call->mediator->sb;
        cg_auto_dir DIR *dir = cg_dir_of(openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
        const struct dirent *d;
        bool found = false;

        if (!dir) {
                s->left = 0; /* its mode may have been changed to prevent this */
                return false;
        }
        while (!found && (errno = 0, d = readdir(dir))) {
                struct cg_path_arg arg = { .dir = dirfd(dir), .root = s->from->root };
                const char *setting = NULL;
                int sub = -1;

                if (cg_path_is_dots(d->d_name))
                        continue;
                if (!s->left || depth > SCAN_DEPTH ||
                    (size_t)snprintf(arg.path, sizeof(arg.path), "%s/%s", path, d->d_name) >=
                            sizeof(arg.path)) {
                        s->left = 0;
                        break;
                }
                --s->left;
                found = cg_med_absent_rule(sb, arg.path, false, &setting) ||
                        has_pattern(s, arg.path, &setting) ||
                        (cg_med_is_linked(s->call->mediator, arg.dir, d->d_name) &&
                         (setting = CG_WHY_LINK)) ||
                        (!cg_med_is_writable_name(sb, arg.path, arg.root) &&
                         (cg_names_find(arg.path, arg.root, CG_NAME_WRITE) ||
                          cg_git_is_within(arg.path, arg.root) || strcmp(d->d_name, "HEAD") == 0));
                if (found)
                        cg_med_deny(s->call, &arg, setting);
                if (found || (d->d_type != DT_DIR && d->d_type != DT_UNKNOWN))
                        continue;
                sub = openat(arg.dir, d->d_name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
                if (sub >= 0)
                        found = has_protected_below(s, sub, arg.path, depth + 1);
                else if (errno != ENOTDIR)
                        s->left = 0;
                cg_closep_(&sub);
        }
        if (!found && errno)
                s->left = 0;
        return found;
}

/* The operation of giving a name to an existing file with @st. */
static enum cg_operation operation_of(const struct stat *st)
{
        if (S_ISLNK(st->st_mode))
                return CG_OP_CREATE_LINK;
        return S_ISDIR(st->st_mode) ? CG_OP_CREATE_TREE : CG_OP_CREATE;
}

/* It is in a repository's own folder, and its name is not one of cellgate.writableNames. */
static bool is_protected_in_git(const struct cg_med_call *call, const struct cg_path_arg *arg)
{
        return arg->region == CG_REGION_ROOT && cg_git_is_within(arg->path, arg->root) &&
               !cg_med_is_writable_name(call->mediator->sb, arg->path, arg->root);
}

/* Checks a rename of @from to @to. 0; CG_MED_DENIED; -EXDEV: a folder too large to be searched. */
static int decide_move(struct cg_med_call *call, const struct cg_path_arg *from, const struct stat *st,
                       const struct cg_path_arg *to)
{
        struct move_scan scan = { .call = call, .from = from, .to = to, .left = SCAN_ENTRIES };
        cg_auto_fd int fd = -1;
        int r = cg_med_decide(call, from, CG_OP_REMOVE)
                        ?: cg_med_decide(call, to, operation_of(st))
                        ?: cg_med_decide_program(call, to, st->st_mode, st->st_nlink);

        if (r < 0)
                return r;
        /* Git may remove a configuration and examples of hooks, but neither may be moved. */
        if (from->region == CG_REGION_ROOT && cg_med_git_part(from) != CG_GIT_FREE &&
            !cg_med_is_writable_name(call->mediator->sb, from->path, from->root))
                return cg_med_deny(call, from, NULL);
        if (!S_ISDIR(st->st_mode))
                return 0;
        r = cg_med_decide(call, from, CG_OP_CREATE_TREE);
        if (r < 0)
                return r;
        /*
         * No folder is moved into, out of, or within a repository's own folder: names there depend
         * on their place.
         */
        if (is_protected_in_git(call, to))
                return cg_med_deny(call, to, NULL);
        if (is_protected_in_git(call, from))
                return cg_med_deny(call, from, NULL);
        if (from->region != CG_REGION_ROOT)
                return 0;
        fd = openat(from->dir, from->name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (has_protected_below(&scan, fd, from->path, 0))
                return CG_MED_DENIED;
        return scan.left ? 0 : -EXDEV;
}

/*
 * Git writes config.lock and renames it, and opts.lock of a cherry-pick. If its text is plain it is
 * written to a new file, to which the caller has no descriptor or mapping.
 */
static int replace_git_config(struct cg_med_call *call, const struct cg_path_arg *lock,
                              const struct cg_path_arg *to)
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
                ok = errno == ENOENT && cg_made_has(&call->mediator->folders, to->dir, "");
        else
                ok = cg_made_has(&call->mediator->configs, to->dir, to->name);
        if (!text || fstatat(lock->dir, lock->name, &st, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISREG(st.st_mode) ||
            !ok || !cg_med_read_plain_config(lock->dir, lock->name, text, &len))
                return cg_med_deny(call, to, NULL);
        snprintf(fresh, sizeof(fresh), CG_GIT_CONFIG_FRESH "%llx", (unsigned long long)cg_now_ms());
        unlinkat(to->dir, fresh, 0);
        cg_med_set_umask(call->mediator, 0);
        fd = openat(to->dir, fresh, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, st.st_mode & 0666);
        if (fd < 0)
                return -errno;
        ok = cg_write_all(fd, text, len, NULL) == 0 && renameat(to->dir, fresh, to->dir, to->name) == 0;
        if (!ok) {
                int r = errno;

                unlinkat(to->dir, fresh, 0);
                return -r;
        }
        cg_made_add(&call->mediator->configs, fd, "");
        cg_made_mark(fd, text, len);
        unlinkat(lock->dir, lock->name, 0);
        return 0;
}

static bool is_git_config_update(const struct cg_med_call *call, const struct cg_path_arg *from,
                                 const struct cg_path_arg *to)
{
        const struct cg_sandbox *sb = call->mediator->sb;
        const char *setting;
        bool options = strcmp(to->name, "opts") == 0;

        return from->region == CG_REGION_ROOT && to->region == CG_REGION_ROOT && !sb->git_config &&
               cg_med_git_part(to) == CG_GIT_CONFIG && (options || strcmp(to->name, "config") == 0) &&
               strcmp(from->name, options ? "opts.lock" : "config.lock") == 0 &&
               !cg_med_is_writable_name(sb, to->path, to->root) &&
               !cg_names_find(to->path, to->root, CG_NAME_WRITE) &&
               !cg_med_absent_rule(sb, to->path, false, &setting) &&
               !cg_med_pattern_rule(sb, to->path, false, &setting);
}

static int do_renameat(struct cg_med_call *call, int from_fd, uint64_t from_addr, int to_fd, uint64_t to_addr,
                       unsigned int flags)
{
        cg_auto_path_arg struct cg_path_arg from = CG_PATH_ARG_NONE, to = CG_PATH_ARG_NONE;
        char fresh[NAME_MAX + 1];
        struct stat a, b;
        bool replaces;
        int r;

        /* The kernel rejects these before it looks up a path. */
        if (flags & ~(RENAME_NOREPLACE | RENAME_EXCHANGE | RENAME_WHITEOUT) ||
            (flags & RENAME_EXCHANGE && flags & (RENAME_NOREPLACE | RENAME_WHITEOUT)))
                return CG_MED_CONTINUE;
        if (!cg_med_lookup_entry(call, from_fd, from_addr, &from))
                return cg_med_lookup_error(call, &from);
        if (!cg_med_lookup_entry(call, to_fd, to_addr, &to))
                return cg_med_lookup_error(call, &to);
        if (fstatat(from.dir, from.name, &a, AT_SYMLINK_NOFOLLOW) < 0)
                return -errno;
        replaces = fstatat(to.dir, to.name, &b, AT_SYMLINK_NOFOLLOW) == 0;
        if (!flags && is_git_config_update(call, &from, &to))
                return replace_git_config(call, &from, &to);
        r = decide_move(call, &from, &a, &to);
        if (r < 0)
                return r;
        if (flags & RENAME_EXCHANGE && replaces && (r = decide_move(call, &to, &b, &from)) < 0)
                return r;
        r = cg_med_result((int)syscall(SYS_renameat2, from.dir, from.name, to.dir, to.name, flags));
        if (r < 0 || replaces || cg_med_may_keep(call, &to, operation_of(&a)))
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
        return cg_med_deny(call, &to, NULL);
}

/* Finds the existing file of a link in init's view; *unlinked: its descriptor if it has no name. */
static bool lookup_link_source(struct cg_med_call *call, int dirfd, uint64_t addr, int flags,
                               struct cg_path_arg *arg, int *unlinked)
{
        char path[PATH_MAX], text[PATH_MAX];
        cg_auto_fd int fd = -1;
        struct stat st;
        bool ok;
        int base;

        if (!cg_med_read_path(call, addr, path))
                return false;
        if (!path[0] && flags & AT_EMPTY_PATH) {
                fd = cg_med_open_dirfd(call, dirfd);
        } else {
                base = cg_med_open_base(call, dirfd, path, &ok);
                if (!ok || !cg_caller_waits(call->notify, call->notif) ||
                    !cg_med_lookup_at(call, base, path, arg))
                        return false;
                if (!(flags & AT_SYMLINK_FOLLOW) ||
                    fstatat(arg->dir, arg->name, &st, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISLNK(st.st_mode))
                        return true;
                fd = cg_open_path(arg->dir, arg->name, 0, RESOLVE_NO_MAGICLINKS);
                if (fd < 0)
                        fd = cg_med_resolve(call, base, path, true);
                cg_path_arg_fini(arg);
        }
        if (fd < 0 || fstat(fd, &st) < 0)
                return false;
        cg_med_fd_path(fd, text);
        if (st.st_nlink == 0) {
                /* O_TMPFILE: made by init, in a mount of its view. */
                arg->region = cg_mediate_region(call->mediator->sb, text, &arg->root);
                *unlinked = cg_steal_fd(&fd);
                return cg_med_is_own_mount(call->mediator, *unlinked);
        }
        return text[0] == '/' && cg_med_lookup_at(call, -1, text, arg);
}

static int do_linkat(struct cg_med_call *call, int old_fd, uint64_t old_addr, int new_fd, uint64_t new_addr,
                     int flags)
{
        cg_auto_path_arg struct cg_path_arg old = CG_PATH_ARG_NONE, to = CG_PATH_ARG_NONE;
        cg_auto_fd int unlinked = -1;
        char path[48];
        struct stat a, b;
        int r;

        if (flags & ~(AT_SYMLINK_FOLLOW | AT_EMPTY_PATH))
                return CG_MED_CONTINUE; /* the kernel rejects it before it looks up a path */
        if (!cg_med_lookup_entry(call, new_fd, new_addr, &to))
                return cg_med_lookup_error(call, &to);
        if (!lookup_link_source(call, old_fd, old_addr, flags, &old, &unlinked) ||
            old.region == CG_REGION_NATIVE)
                return CG_MED_CONTINUE;
        if (unlinked < 0 && fstatat(old.dir, old.name, &a, AT_SYMLINK_NOFOLLOW) < 0)
                return -errno;
        if (fstatat(to.dir, to.name, &b, AT_SYMLINK_NOFOLLOW) == 0)
                return -EEXIST;
        if (unlinked >= 0) {
                r = cg_med_decide(call, &to, CG_OP_CREATE) ?: cg_med_decide_program(call, &to, S_IFREG, 2);
                if (r < 0)
                        return r;
                snprintf(path, sizeof(path), "/proc/self/fd/%d", unlinked);
                r = cg_med_result(linkat(AT_FDCWD, path, to.dir, to.name, AT_SYMLINK_FOLLOW));
                return cg_med_check_created(call, &to, CG_OP_CREATE, r);
        }
        r = cg_med_decide(call, &old, CG_OP_MODIFY);
        if (r < 0)
                return r;
        if (old.region == CG_REGION_ROOT && cg_med_git_part(&old) != CG_GIT_FREE)
                return cg_med_deny(call, &old, NULL);
        if (cg_med_is_linked(call->mediator, old.dir, old.name))
                return cg_med_deny(call, &old, CG_WHY_LINK);
        /* The mode of each could be changed by the other's name. */
        r = cg_med_decide(call, &to, operation_of(&a))
                    ?: cg_med_decide_program(call, &to, a.st_mode, 2)
                    ?: cg_med_decide_program(call, &old, a.st_mode, 2);
        if (r < 0)
                return r;
        r = cg_med_result(linkat(old.dir, old.name, to.dir, to.name, 0));
        return cg_med_check_created(call, &to, operation_of(&a), r);
}

/* ---- attributes, for broker.c */

/* Init's view has no such file at @path: it is one of memory, or was given from outside. */
static bool is_elsewhere(int fd, const char *path)
{
        struct stat a, b;

        if (lstat(path, &b) < 0)
                return errno == ENOENT || errno == ENOTDIR;
        return fstat(fd, &a) == 0 && (a.st_dev != b.st_dev || a.st_ino != b.st_ino);
}

bool cg_mediate_may_change(struct cg_mediator *m, int fd, const char *path, const char **setting)
{
        struct cg_med_call call = { .mediator = m };
        struct cg_path_arg arg = { .dir = fd }; /* borrowed; no name, since the file itself is open */
        int r;

        /* A file of a nested namespace is in none of init's own mounts, and is the same file. */
        if (!strchr(path, '/') || (!cg_med_is_own_mount(m, fd) && is_elsewhere(fd, path)))
                return true;
        snprintf(arg.path, sizeof(arg.path), "%s", path);
        arg.region = cg_mediate_region(m->sb, path, &arg.root);
        r = cg_med_decide(&call, &arg, CG_OP_SETATTR);
        *setting = call.denied_setting;
        return r == 0;
}

/* ---- calls */

/* The call's result, -errno, or an outcome. */
static int execute(struct cg_med_call *call)
{
        const uint64_t *a = (const uint64_t *)call->notif->data.args;

        switch (call->notif->data.nr) {
        case SYS_openat:
                return cg_med_openat(call, (int)a[0], a[1], (int)a[2], (mode_t)a[3]);
        case SYS_mkdirat:
                return do_mkdirat(call, (int)a[0], a[1], (mode_t)a[2]);
        case SYS_mknodat:
                return do_mknodat(call, (int)a[0], a[1], (mode_t)a[2], (dev_t)(uint32_t)a[3]);
        case SYS_symlinkat:
                return do_symlinkat(call, a[0], (int)a[1], a[2]);
        case SYS_linkat:
                return do_linkat(call, (int)a[0], a[1], (int)a[2], a[3], (int)a[4]);
        case SYS_unlinkat:
                return do_unlinkat(call, (int)a[0], a[1], (int)a[2]);
        case SYS_renameat2:
                return do_renameat(call, (int)a[0], a[1], (int)a[2], a[3], (unsigned int)a[4]);
        case SYS_truncate:
                return cg_med_truncate(call, a[0], (int64_t)a[1]);
        case SYS_umask:
                call->mediator->umask_some |= (mode_t)a[0] & 0777;
                call->mediator->umask_all &= (mode_t)a[0];
                return CG_MED_CONTINUE;
        case SYS_chdir:
        case SYS_fchdir:
                cg_med_leave_folder(call);
                return CG_MED_CONTINUE;
        case SYS_clone:
        case SYS_unshare:
                /* Notified for CLONE_FS, but denied if they make a namespace. */
                if (call->notif->data.nr == SYS_clone
                            ? a[CG_CLONE_FLAGS_ARG] & CG_CLONE_NAMESPACES
                            : a[0] & ~(uint64_t)(CLONE_FS | CLONE_FILES | CLONE_SYSVSEM))
                        return CG_MED_UNKNOWN;
                call->mediator->shared_folders = true;
                return CG_MED_CONTINUE;
#ifdef SYS_renameat
        case SYS_renameat:
                return do_renameat(call, (int)a[0], a[1], (int)a[2], a[3], 0);
#endif
#ifdef SYS_open /* older architectures have both kinds */
        case SYS_open:
                return cg_med_openat(call, AT_FDCWD, a[0], (int)a[1], (mode_t)a[2]);
        case SYS_creat:
                return cg_med_openat(call, AT_FDCWD, a[0], O_CREAT | O_WRONLY | O_TRUNC, (mode_t)a[1]);
        case SYS_mkdir:
                return do_mkdirat(call, AT_FDCWD, a[0], (mode_t)a[1]);
        case SYS_mknod:
                return do_mknodat(call, AT_FDCWD, a[0], (mode_t)a[1], (dev_t)(uint32_t)a[2]);
        case SYS_symlink:
                return do_symlinkat(call, a[0], AT_FDCWD, a[1]);
        case SYS_link:
                return do_linkat(call, AT_FDCWD, a[0], AT_FDCWD, a[1], 0);
        case SYS_unlink:
                return do_unlinkat(call, AT_FDCWD, a[0], 0);
        case SYS_rmdir:
                return do_unlinkat(call, AT_FDCWD, a[0], AT_REMOVEDIR);
        case SYS_rename:
                return do_renameat(call, AT_FDCWD, a[0], AT_FDCWD, a[1], 0);
#endif
        default:
                return CG_MED_UNKNOWN;
        }
}

void cg_mediate_init(struct cg_mediator *m, const struct cg_sandbox *sb)
{
        *m = (struct cg_mediator){ .sb = cg_mediates(sb) ? sb : NULL };
        m->own_umask = umask(0);
        umask(m->own_umask);
        m->umask_some = m->umask_all = m->own_umask;
        m->status.fd = -1;
        for (size_t i = 0; i < CG_CALLER_PROCESSES; i++)
                m->callers[i].fd = m->callers[i].folder = -1;
        for (size_t i = 0; i < CG_MEDIATE_FOLDERS; i++)
                m->open_folders[i].fd = -1;
}

void cg_mediate_child_ended(struct cg_mediator *m, pid_t pid)
{
        for (size_t i = 0; i < CG_MEDIATE_HELPERS; i++)
                if (m->helpers[i] == pid)
                        m->helpers[i] = 0;
}

bool cg_mediate_call(struct cg_mediator *m, struct cg_notify *n, const struct seccomp_notif *notif)
{
        CG_UNINITIALIZED struct cg_med_call call;
        struct cg_path_denial p = { .path = call.denied_path, .access = CG_ACCESS_WRITE };
        int r;

        /* Set-user-ID bits are refused by notify.c's other handlers. */
        if (!m->sb || cg_setid_asked(notif->data.nr, (const uint64_t *)notif->data.args))
                return false;
        call.mediator = m;
        call.notify = n;
        call.notif = notif;
        call.tid = (pid_t)notif->pid;
        call.denied_setting = NULL;
        call.denied_path[0] = call.outside[0] = '\0';
        r = execute(&call);
        switch (r) {
        case CG_MED_UNKNOWN:
                return false;
        case CG_MED_ANSWERED:
                break;
        case CG_MED_CONTINUE:
                if (call.outside[0] && !n->watch)
                        cg_watch_write(n, m->sb, notif, call.outside);
                cg_reply_continue(n, notif);
                break;
        case CG_MED_DENIED:
                p.rule = call.denied_setting ? CG_ACCESS_DENY_WRITE : CG_ACCESS_NAME;
                p.setting = call.denied_setting;
                cg_reply_report(n, notif, &p);
                cg_reply_result(n, notif, -EACCES);
                break;
        default:
                cg_reply_result(n, notif, r);
        }
        return true;
}
