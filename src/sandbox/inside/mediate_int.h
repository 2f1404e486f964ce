/*
 * Declarations shared by the files of mediate.h. All of them run in init, which has one thread.
 *
 *      mediate.c         the switch over the calls; making, removing, renaming, linking
 *      mediate_open.c    opening and truncating
 *      mediate_worktree.c  files of git worktree add
 *      mediate_path.c    resolution of path arguments
 *      mediate_decide.c  whether an operation is allowed at a path
 */
#pragma once

#include "base/util.h"
#include "sandbox/mountfd.h"
#include "sandbox/inside/mediate.h"
#include "sandbox/names/names.h"

#define CG_MED_LINKS_MAX 40

/* Outcomes of handlers, beside the call's result (not negative) and -errno, at least -4095. */
enum cg_med_outcome {
        CG_MED_CONTINUE = -10000, /* the kernel executes the call */
        CG_MED_ANSWERED,          /* the reply has been sent, or a child of init sends it */
        CG_MED_DENIED,            /* a rule denies it: reported, and EACCES */
        CG_MED_UNKNOWN,           /* not a call of the mediator */
};

/* A call that waits for init. */
struct cg_med_call {
        struct cg_mediator *mediator;
        struct cg_notify *notify;
        const struct seccomp_notif *notif;
        pid_t tid; /* of the caller */
        /* for the report of CG_MED_DENIED */
        const char *denied_setting; /* NULL: a protected name */
        char denied_path[PATH_MAX];
        /* of a call that continues: the first path that it would change outside of write roots, or "" */
        char outside[PATH_MAX];
};

/* A path argument of a call, resolved to a name in a folder. */
struct cg_path_arg {
        int dir;   /* O_PATH */
        bool kept; /* dir is one of the mediator's open_folders: borrowed */
        /* may end with "/", with the meaning that the kernel gives it */
        char name[NAME_MAX + 2];
        char path[PATH_MAX]; /* without that "/", and without symlinks above the name */
        enum cg_region region;
        size_t root;
        /* why it was not found: ENOENT, a missing folder in the path; ENAMETOOLONG; 0: unknown */
        int error;
};

void cg_path_arg_fini(struct cg_path_arg *arg);
#define cg_auto_path_arg CG_CLEANUP(cg_path_arg_fini)
#define CG_PATH_ARG_NONE \
        { \
                .dir = -1 \
        }

/* Effect of a call on a name. */
enum cg_operation {
        CG_OP_MODIFY,      /* an existing file */
        CG_OP_CREATE,      /* a new file other than a folder or a symlink */
        CG_OP_MKDIR,       /* a new, empty folder */
        CG_OP_CREATE_LINK, /* a symlink, which brings names below its target along */
        CG_OP_CREATE_TREE, /* a folder with its contents */
        CG_OP_REMOVE,
        CG_OP_SETATTR, /* mode of an existing file */
};

/* Reads a path from the caller's memory. False: invalid or too long, so the call fails anyway. */
bool cg_med_read_path(const struct cg_med_call *call, uint64_t addr, char text[PATH_MAX]);
void cg_med_set_umask(struct cg_mediator *m, mode_t mask);
/* Sets init's umask so that a new file with @mode has the mode that the caller's umask gives it. */
void cg_med_apply_umask(struct cg_med_call *call, mode_t mode);
/* The path of @fd in init's view, by /proc. "": unknown. */
void cg_med_fd_path(int fd, char buf[PATH_MAX]);
/* @fd is in a mount of init's own namespace, one of the first CG_MEDIATE_MOUNTS. */
bool cg_med_is_own_mount(struct cg_mediator *m, int fd);
/* The folder that a relative path starts at, in init's view; negative: there is none. */
int cg_med_open_dirfd(const struct cg_med_call *call, int dirfd);
/*
 * Resolves @path from @base as the caller would, through /proc as well: to the folder of its last
 * name, or with @whole to the file itself. -1 and errno: ENOENT if a name of the path is missing.
 */
int cg_med_resolve(const struct cg_med_call *call, int base, const char *path, bool whole);
/*
 * The same to the file itself. *movable: on the way are links that processes inside can change, or
 * ".." of folders that they can move, so that the same path can lead elsewhere later.
 */
int cg_med_resolve_file(const struct cg_med_call *call, int base, const char *path, bool *movable);
/*
 * Finds the name that @path means; @base: where a relative path starts, borrowed. False: the call
 * continues, and fails by itself or does not need init.
 */
bool cg_med_lookup_at(const struct cg_med_call *call, int base, const char *path, struct cg_path_arg *arg);
/*
 * The folder that @path starts at, as cg_med_open_dirfd() but borrowed until a later call, or -1
 * for an absolute one. *ok: the path can be resolved; the caller must check that the call waits.
 */
int cg_med_open_base(const struct cg_med_call *call, int dirfd, const char *path, bool *ok);
/* The caller will have another working directory. */
void cg_med_leave_folder(struct cg_med_call *call);
/* Finds the name that a call's descriptor and path mean, with symlinks above the name followed. */
bool cg_med_lookup(const struct cg_med_call *call, int dirfd, uint64_t addr, struct cg_path_arg *arg);
/* The same for calls that change the name itself: the folder's region if a mount covers it. */
bool cg_med_lookup_entry(struct cg_med_call *call, int dirfd, uint64_t addr, struct cg_path_arg *arg);
/* The name is taken; otherwise sets errno. */
bool cg_med_exists(const struct cg_path_arg *arg);
/* The call's result if these return false. */
int cg_med_lookup_error(const struct cg_med_call *call, const struct cg_path_arg *arg);
/* @path is writable by cellgate.writableNames. */
bool cg_med_is_writable_name(const struct cg_sandbox *sb, const char *path, size_t root);
/* The denied path (must not be made) that @path is or is below, or with @leads is above. */
const char *cg_med_absent_rule(const struct cg_sandbox *sb, const char *path, bool leads,
                               const char **setting);
/*
 * The pattern that @path or a folder above it matches, or with @leads one that a symlink at @path
 * would make others match.
 */
const char *cg_med_pattern_rule(const struct cg_sandbox *sb, const char *path, bool leads,
                                const char **setting);
/*
 * The call continues, since @arg is not in a write root. Records its path: the mounts may fail the
 * call, without a report. Return: CG_MED_CONTINUE.
 */
int cg_med_continue(struct cg_med_call *call, const struct cg_path_arg *arg);
/* Records @arg and @setting for the report. Return: CG_MED_DENIED. */
int cg_med_deny(struct cg_med_call *call, const struct cg_path_arg *arg, const char *setting);
/* The meaning of @arg to git, by its path and by the HEAD files that exist. */
enum cg_git_part cg_med_git_part(const struct cg_path_arg *arg);
/* Remembers that @name in @dir ("": @dir itself) was made by init for a process inside. */
void cg_made_add(struct cg_made_list *list, int dir, const char *name);
/*
 * Marks the file @fd as made by init with this text for a process inside, so that later sandboxes
 * may remove it while nobody has changed it: an extended attribute, which no process inside can
 * set. File systems may have none.
 */
void cg_made_mark(int fd, const char *text, size_t len);
bool cg_made_has(const struct cg_made_list *list, int dir, const char *name);
/*
 * Decides whether an existing or new file with @mode may get the name @arg: in folders of PATH no
 * programs may be made. @names: of the file, since a mode can be changed by another one. Return: 0,
 * or CG_MED_DENIED.
 */
int cg_med_decide_program(struct cg_med_call *call, const struct cg_path_arg *arg, mode_t mode,
                          nlink_t names);
/*
 * True if the file must not be written, whatever its name is: it has several names, and by one of
 * them it is denied. @dir and @name as for fstatat(); "": the descriptor @dir itself.
 */
bool cg_med_is_linked(struct cg_mediator *m, int dir, const char *name);
/* Decides whether @operation is allowed at @arg. Return: 0, or CG_MED_DENIED. */
int cg_med_decide(struct cg_med_call *call, const struct cg_path_arg *arg, enum cg_operation operation);
/*
 * Checks a new name again: in a folder that two sandboxes may write, the init of the other may have
 * made the other half of a repository meanwhile.
 */
bool cg_med_may_keep(struct cg_med_call *call, const struct cg_path_arg *arg, enum cg_operation operation);
/*
 * The same, and removes the new name if it must not be kept. @r: result of making it. Return: the
 * call's result.
 */
int cg_med_check_created(struct cg_med_call *call, const struct cg_path_arg *arg, enum cg_operation operation,
                         int r);
/*
 * Follows the symlink @arg by one step. False: the call continues, because the kernel refuses to
 * follow it or the target has no name.
 */
bool cg_med_follow_link(const struct cg_med_call *call, struct cg_path_arg *arg);
/*
 * If @arg is a link to a descriptor of the caller's (/proc/self/fd/N) whose file has no name any
 * more: opens that file (O_PATH) and sets @former to its former name. Otherwise -1.
 */
int cg_med_open_unlinked(const struct cg_med_call *call, const struct cg_path_arg *arg,
                         struct cg_path_arg *former);
/* The result of a system call as 0 or -errno. */
static inline int cg_med_result(int r)
{
        return r < 0 ? -errno : 0;
}

/*
 * mediate_worktree.c: reads the configuration @name, if it is as git init writes it. @text:
 * CG_GIT_CONFIG_MAX + 1 bytes.
 */
bool cg_med_read_plain_config(int dir, const char *name, char *text, size_t *len);
/*
 * A file that git worktree add makes, and whose contents init decides: the caller gets a descriptor
 * of another file. CG_MED_UNKNOWN: it is none of these.
 */
int cg_med_new_worktree_file(struct cg_med_call *call, const struct cg_path_arg *arg, mode_t mode, int *ret);
/* Remembers the folder @arg, which has been made, if it is of a new work tree. */
void cg_med_made_folder(struct cg_med_call *call, const struct cg_path_arg *arg);

/* mediate_open.c. Return: the call's result, -errno, or an outcome. */
int cg_med_openat(struct cg_med_call *call, int dirfd, uint64_t addr, int flags, mode_t mode);
int cg_med_truncate(struct cg_med_call *call, uint64_t addr, int64_t size);
