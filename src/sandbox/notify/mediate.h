/*
 * Calls that make, change, rename or remove files in write roots, done by init (full tier).
 * Landlock lets nothing inside do so itself
 * there, seccomp hands the calls to init, and init does them by what it opened and looked at, or
 * refuses: names that programs outside
 * obey (names.h), and paths that must not be made. So no placeholder has to lie on the host, and a
 * name is protected at any depth, also where
 * it is made later.
 *
 *      filter          hands the calls on; opening for reading is none of them
 *      seccomp_rules.c
 *      Landlock        grants writing only in the sandbox's own places: /tmp, /dev...
 *      landlock.c
 *      init            looks where the call leads. In the sandbox's own places the call goes on
 *                      ("continue"): should it lead elsewhere by then, Landlock refuses it. That is
 *                      why init itself says what is there, or missing, in a write root: a call that
 *                      went on would be refused once another thread has changed that
 *
 * Init has one thread, and nothing else of its sandbox can change a name in a write root: what it
 * looked at is what it then changes. Where another
 * sandbox may write the same folder, no init moves a folder to where its names would come to mean
 * something. The caller's memory is read once.
 * Paths are resolved in init's own view, with init's user, which is the caller's.
 */
#ifndef CG_SANDBOX_NOTIFY_MEDIATE_H
#define CG_SANDBOX_NOTIFY_MEDIATE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include "sandbox/plan.h"

/*
 * Repositories' configurations that git made inside, and folders that were: only such
 * configurations may be changed or removed, and only such folders get one. The oldest is forgotten,
 * and stays as it is.
 */
#define CG_MEDIATE_MADE 1024
/* Mounts that are known; those beyond are looked up each time. */
#define CG_MEDIATE_MOUNTS 1024
/* Openers of FIFOs that wait at one time; the next is refused (EAGAIN). */
#define CG_MEDIATE_HELPERS 64

struct cg_made_list {
        struct cg_made {
                uint64_t dev, ino;
                int64_t born_s;
                uint32_t born_ns;
        } v[CG_MEDIATE_MADE];
        size_t n; /* that have ever been remembered */
};

struct cg_mediator {
        const struct cg_sandbox *sb; /* NULL: nothing is mediated */
        /* somebody inside has called umask(): it is looked up from now on */
        bool umask_changed;
        mode_t umask;     /* what all began with */
        uint64_t *mounts; /* of init's own namespace; NULL: not read yet */
        size_t n_mounts;
        struct cg_made_list configs, folders;
        /* children that wait for the other end of a FIFO; 0: room */
        pid_t helpers[CG_MEDIATE_HELPERS];
};

/*
 * Whether names of @sb are mediated here and now: asked by the main process and by init, with the
 * same answer.
 */
bool cg_mediates(const struct cg_sandbox *sb);

struct cg_notify;
struct seccomp_notif;

void cg_mediate_init(struct cg_mediator *m, const struct cg_sandbox *sb);
/* True when the call was one of these, which has then been answered. */
bool cg_mediate_call(struct cg_mediator *m, struct cg_notify *n, const struct seccomp_notif *call);

/*
 * For broker.c, which changes modes, owners and times: Landlock knows no such right, so no such
 * call goes on.
 */

/*
 * What the arguments lead to, opened without access, or -errno. @path 0: the descriptor @dirfd
 * itself.
 */
int cg_mediate_target(struct cg_mediator *m, struct cg_notify *n, const struct seccomp_notif *call, int dirfd,
                      uint64_t path, int flags);
/* Whether its name lets @fd be changed, which is at @path as far as that is known. */
bool cg_mediate_may_change(struct cg_mediator *m, int fd, const char *path);
/* Numbers of a caller that may have a user namespace of its own, as ours. */
void cg_mediate_owner(const struct cg_mediator *m, pid_t tid, uid_t *uid, gid_t *gid);

/* A child of init has ended. */
void cg_mediate_ended(struct cg_mediator *m, pid_t pid);

/* Where @path lies: what becomes of a call that changes something there. */
enum cg_region {
        CG_REGION_NATIVE, /* the call goes on */
        CG_REGION_OWN,    /* a place of the sandbox's own in which a write root lies: done by init,
                no name is refused */
        CG_REGION_ROOT,   /* a write root; *len: of its path, 0 for "/" */
};
enum cg_region cg_mediate_region(const struct cg_sandbox *sb, const char *path, size_t *len);
/* Whether a write root lies in @path, other than @path itself. */
bool cg_mediate_holds_root(const struct cg_sandbox *sb, const char *path);

/*
 * The name or rule by which @path must not be made or changed, as far as its text says; NULL: none.
 * *setting: of a rule of the settings; else NULL. For those who explain a refusal.
 */
const char *cg_mediate_why(const struct cg_sandbox *sb, const char *path, const char **setting);

#endif
