/*
 * Declarations shared by the files of mediate.h. All of them run in init, which has one thread.
 *
 *      mediate.c         calls with one path; the table of calls
 *      mediate_open.c    opening and making files
 *      mediate_move.c    links, renames, and git's replacement of a configuration
 *      mediate_judge.c   whether a call is refused
 *      mediate_path.c    resolution of paths
 *      mediate_plan.c    the plan's rules for a path
 */
#ifndef CG_SANDBOX_NOTIFY_MEDIATE_INT_H
#define CG_SANDBOX_NOTIFY_MEDIATE_INT_H

#include <errno.h>
#include <limits.h>
#include <sys/stat.h>

#include "base/util.h"
#include "sandbox/mountfd.h"
#include "sandbox/notify/mediate.h"
#include "sandbox/names.h"

#define CG_MED_LINKS_MAX 40

/* Results of handlers other than the call's result or -errno. */
#define CG_MED_CONTINUE (-100000)
#define CG_MED_ANSWERED (-100001)
#define CG_MED_DENIED   (-100002)
#define CG_MED_UNKNOWN  (-100003) /* not a call of the mediator */

struct cg_med_call {
        struct cg_mediator *m;
        struct cg_notify *n;
        const struct seccomp_notif *c;
        const uint64_t *a; /* arguments */
        pid_t tid;
        const char *setting; /* of a denial; NULL: a protected name */
        char path[PATH_MAX];
};

/* A name in a folder. */
struct cg_med_where {
        int dir; /* O_PATH */
        /* may end with "/", with the meaning that the kernel gives it */
        char name[NAME_MAX + 2];
        char path[PATH_MAX]; /* without that "/", and without symlinks above the name */
        enum cg_region region;
        size_t root;
        /*
         * why it was not found: ENOENT, a folder of the path is missing; ENAMETOOLONG; 0: unknown
         */
        int error;
};

void cg_med_where_fini(struct cg_med_where *w);
#define cg_auto_med_where CG_CLEANUP(cg_med_where_fini)
#define CG_MED_NOWHERE \
        { \
                .dir = -1 \
        }

enum cg_med_act {
        CG_MED_CHANGE, /* an existing file */
        CG_MED_MAKE,   /* a new file other than a folder or a symlink */
        CG_MED_FOLDER, /* a new, empty folder */
        /* a symlink, or a folder with its contents, which brings names below it along */
        CG_MED_LINK,
        CG_MED_REMOVE,
        CG_MED_ATTRIBUTES, /* mode, owner or times of an existing file */
};

/*
 * Reads a path from the caller's memory. False: it is invalid or too long, so the call fails
 * anyway.
 */
bool cg_med_read_text(const struct cg_med_call *c, uint64_t at, char text[PATH_MAX]);
/* Sets init's umask to the caller's. */
void cg_med_take_umask(struct cg_med_call *c);
/* The path of @fd in init's view, by /proc. "": unknown. */
void cg_med_path_of(int fd, char buf[PATH_MAX]);
/* @fd is in a mount of init's own namespace. */
bool cg_med_is_in_view(struct cg_mediator *m, int fd);
/* The folder that a relative path starts at, in init's view; negative: there is none. */
int cg_med_base_of(const struct cg_med_call *c, int dirfd);
/*
 * Resolves @path from @base as the caller would, through /proc as well: to the folder of its last
 * name, or with @whole to the file itself. -1 and errno: ENOENT if a name of the path is missing.
 */
int cg_med_walk_from(const struct cg_med_call *c, int base, const char *path, bool whole);
/*
 * Finds the name that @path means; @base: where a relative path starts, borrowed. False: the call
 * continues, and fails by itself or does not need init.
 */
bool cg_med_find_from(const struct cg_med_call *c, int base, const char *path, struct cg_med_where *w);
/*
 * The folder that @path starts at: cg_med_base_of(), or -1 for an absolute one. *ok: the path can
 * be resolved.
 */
int cg_med_base_for(const struct cg_med_call *c, int dirfd, const char *path, bool *ok);
/* Finds the name that a call's descriptor and path mean, with symlinks above the name followed. */
bool cg_med_find(const struct cg_med_call *c, int dirfd, uint64_t at, struct cg_med_where *w);
/*
 * The same for calls that change the name itself, whose region is that of the folder if a mount
 * covers the name.
 */
bool cg_med_find_name(const struct cg_med_call *c, int dirfd, uint64_t at, struct cg_med_where *w);
/* The call's result if these return false. */
int cg_med_not_found(const struct cg_med_call *c, const struct cg_med_where *w);
/* @path is writable by cellgate.writableNames. */
bool cg_med_is_writable_name(const struct cg_sandbox *sb, const char *path, size_t root);
/*
 * The denied path (one that must not be made) that @path is or is below, or with @leads is above.
 */
const char *cg_med_absent_rule(const struct cg_sandbox *sb, const char *path, bool leads,
                               const char **setting);
/* Records @w and @setting for the report. Return: CG_MED_DENIED. */
int cg_med_deny(struct cg_med_call *c, const struct cg_med_where *w, const char *setting);
/* The meaning of @w to git, by its path and by the HEAD files that exist. */
enum cg_git_part cg_med_git_part(const struct cg_med_where *w);
/* Remembers that @name in @dir ("": @dir itself) was made by init for a process inside. */
void cg_med_remember(struct cg_made_list *list, int dir, const char *name);
bool cg_med_is_made_here(const struct cg_made_list *list, int dir, const char *name);
/* Reads a configuration that is as git init writes it. */
bool cg_med_read_plain(int dir, const char *name, char *text, size_t *len);
/* 0, or CG_MED_DENIED. */
int cg_med_judge(struct cg_med_call *c, const struct cg_med_where *w, enum cg_med_act act);
/*
 * Checks a new name again: in a folder that two sandboxes may write, the init of the other may have
 * made the other half of a repository meanwhile.
 */
bool cg_med_may_stay(struct cg_med_call *c, const struct cg_med_where *w, enum cg_med_act act);
/*
 * The same, and removes the new name if it must not stay. @r: result of making it. Return: the
 * call's result.
 */
int cg_med_recheck(struct cg_med_call *c, const struct cg_med_where *w, enum cg_med_act act, int r);
/*
 * Follows the symlink @w by one step. False: the call continues, because the kernel refuses to
 * follow it or the target has no name.
 */
bool cg_med_follow(const struct cg_med_call *c, struct cg_med_where *w);
/*
 * If @w is a link to a descriptor of the caller's (/proc/self/fd/N) whose file has no name any
 * more: opens that file (O_PATH) and sets @was to its former name. Otherwise -1.
 */
int cg_med_open_nameless(const struct cg_med_call *c, const struct cg_med_where *w, struct cg_med_where *was);
/* The act of giving a name to an existing file with @st. */
enum cg_med_act cg_med_act_of(const struct stat *st);
/* The result of a system call as 0 or -errno. */
static inline int cg_med_result(int r)
{
        return r < 0 ? -errno : 0;
}

/* System calls. Return: the result, -errno, or CG_MED_... */
int cg_med_open_at(struct cg_med_call *c, int dirfd, uint64_t at, int flags, mode_t mode);
int cg_med_rename_at(struct cg_med_call *c, int from_fd, uint64_t from_at, int to_fd, uint64_t to_at,
                     unsigned int flags);
int cg_med_link_at(struct cg_med_call *c, int old_fd, uint64_t old_at, int new_fd, uint64_t new_at,
                   int flags);

#endif
