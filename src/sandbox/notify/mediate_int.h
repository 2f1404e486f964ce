/*
 * What the files of mediate.h share. All of it runs in init, which has one thread.
 *
 *      mediate.c         calls that name one thing; which call goes where
 *      mediate_open.c    opening and making files
 *      mediate_move.c    links and renames, and git's way to write a configuration
 *      mediate_judge.c   what is refused
 *      mediate_path.c    where a path leads
 *      mediate_plan.c    what the plan says of it
 */
#ifndef CG_SANDBOX_NOTIFY_MEDIATE_INT_H
#define CG_SANDBOX_NOTIFY_MEDIATE_INT_H

#include <errno.h>
#include <limits.h>
#include <sys/stat.h>

#include "base/util.h"
#include "sandbox/notify/mediate.h"
#include "sandbox/names.h"

#define CG_MED_LINKS_MAX 40

/* What handlers return beside a result and -errno. */
#define CG_MED_GO_ON    (-100000)
#define CG_MED_ANSWERED (-100001)
#define CG_MED_DENIED   (-100002)

struct cg_med_call {
        struct cg_mediator *m;
        struct cg_notify *n;
        const struct seccomp_notif *c;
        const uint64_t *a; /* arguments */
        pid_t tid;
        const char *setting; /* of a denial: NULL where it is for a name */
        char path[PATH_MAX];
};

/* A name in a folder. */
struct cg_med_where {
        int dir; /* O_PATH */
        /* perhaps with "/" at its end, which means what it means to the kernel */
        char name[NAME_MAX + 2];
        char path[PATH_MAX]; /* of folder and name,
                without that "/" and without symlinks above the name */
        enum cg_region region;
        size_t root;
        /*
         * where nothing else is known: ENOENT, a folder on the way to it is not there;
         * ENAMETOOLONG, its path
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
        CG_MED_CHANGE, /* a file that is there */
        CG_MED_MAKE,   /* a file that is not a folder or a link */
        CG_MED_FOLDER, /* an empty one */
        /* a symlink, or a folder with what it has in it: the names below it come along */
        CG_MED_LINK,
        CG_MED_REMOVE,
        CG_MED_ATTRIBUTES, /* mode, owner or times of what is there */
};

/*
 * A text of the caller's, NUL included, read once. False: it is none, or too long: then the call
 * fails by itself.
 */
bool cg_med_read_text(const struct cg_med_call *c, uint64_t at, char text[PATH_MAX]);
/* With the caller's umask. */
void cg_med_take_umask(struct cg_med_call *c);
/* Where @fd is, as /proc says it: in init's own view where @fd is. "" where that cannot be told. */
void cg_med_text_of(int fd, char buf[PATH_MAX]);
/* openat2() with O_PATH: the descriptor, or -1 and errno. */
int cg_med_open_beneath(int base, const char *path, uint64_t flags, uint64_t resolve);
/* @fd lies in a mount of init's own namespace. */
bool cg_med_is_in_view(struct cg_mediator *m, int fd);
/* The folder that a relative path starts at; -1: none that we could use. */
int cg_med_base_of(const struct cg_med_call *c, int dirfd);
/*
 * The folder of @path's last name, or with @whole what @path leads to; @base is where it starts.
 * -1, and errno: ENOENT where a name on the way is not there.
 */
int cg_med_walk_from(const struct cg_med_call *c, int base, const char *path, bool whole);
/*
 * @base: where a relative path starts, borrowed. False: the call goes on, and fails by itself, or
 * does not concern us.
 */
bool cg_med_find_from(const struct cg_med_call *c, int base, const char *path, struct cg_med_where *w);
/* The same for @path, which may be absolute: then -1. *ok: the path can be resolved. */
int cg_med_base_for(const struct cg_med_call *c, int dirfd, const char *path, bool *ok);
/* The name that descriptor and text of a call lead to, links above it followed. */
bool cg_med_find(const struct cg_med_call *c, int dirfd, uint64_t at, struct cg_med_where *w);
/*
 * The same for what is done to the name itself: what lies on top of it (a mount) has no say in
 * that, but that it is in the way.
 */
bool cg_med_find_name(const struct cg_med_call *c, int dirfd, uint64_t at, struct cg_med_where *w);
/* What the call comes to where those have found nothing. */
int cg_med_not_found(const struct cg_med_call *c, const struct cg_med_where *w);
/* By cellgate.writableNames. */
bool cg_med_is_given_back(const struct cg_sandbox *sb, const char *path, size_t root);
/* A path that settings deny, or a folder on the way to one where @leads. */
const char *cg_med_absent_rule(const struct cg_sandbox *sb, const char *path, bool leads,
                               const char **setting);
/* CG_MED_DENIED, for the report. */
int cg_med_deny(struct cg_med_call *c, const struct cg_med_where *w, const char *setting);
/*
 * What @w is to git, by its path, and by whether a HEAD stands where one would make a repository.
 */
enum cg_git_part cg_med_git_part(const struct cg_med_where *w);
/* What @name (in @dir; "": @dir itself) is has been made by init, for a process inside. */
void cg_med_remember(struct cg_made_list *list, int dir, const char *name);
bool cg_med_is_made_here(const struct cg_made_list *list, int dir, const char *name);
/* A configuration that is as git init writes it. */
bool cg_med_read_plain(int dir, const char *name, char *text, size_t *len);
/* 0, or CG_MED_DENIED. */
int cg_med_judge(struct cg_med_call *c, const struct cg_med_where *w, enum cg_med_act act);
/*
 * Another sandbox's init may have made the other half of a repository meanwhile, in a folder that
 * both may write: each looks again at what it has made, which was not there before.
 */
bool cg_med_may_stay(struct cg_med_call *c, const struct cg_med_where *w, enum cg_med_act act);
/* The same for what can be removed again. @r: 0, or what comes instead. */
int cg_med_look_again(struct cg_med_call *c, const struct cg_med_where *w, enum cg_med_act act, int r);
/*
 * @w's name is a symlink: to what it leads, one step on. False: the kernel has its own word on
 * that, and on what /proc leads to and has no name any more.
 */
bool cg_med_follow(const struct cg_med_call *c, struct cg_med_where *w);
/*
 * @w's name leads to a descriptor of the caller's (/proc/self/fd/N) whose file has no name any
 * more: that file, opened without access, and in @was where it was. -1: it is nothing like that.
 */
int cg_med_open_nameless(const struct cg_med_call *c, const struct cg_med_where *w, struct cg_med_where *was);
/* What it means to give a name to what @st is about. */
enum cg_med_act cg_med_act_of(const struct stat *st);
/* Of a system call: 0 or -errno. */
static inline int cg_med_result(int r)
{
        return r < 0 ? -errno : 0;
}

/* Calls: a result, -errno, or one of the above. */
int cg_med_open_at(struct cg_med_call *c, int dirfd, uint64_t at, int flags, mode_t mode);
int cg_med_rename_at(struct cg_med_call *c, int from_fd, uint64_t from_at, int to_fd, uint64_t to_at,
                     unsigned int flags);
int cg_med_link_at(struct cg_med_call *c, int old_fd, uint64_t old_at, int new_fd, uint64_t new_at,
                   int flags);

#endif
