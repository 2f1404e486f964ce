/*
 * In the full tier, init executes the calls that make, change, rename or remove files in write
 * roots. Landlock keeps all other processes inside from doing so, and seccomp hands their calls to
 * init. Init opens and checks the files of a call, then executes it on these. It refuses names that
 * programs outside obey (names.h) and paths that must not be made. So the host needs no
 * placeholders, and a name is protected at any depth, also in folders that are made later.
 *
 *      filter          hands the calls to init; opening for reading is not one
 *                                                                              seccomp_rules.c
 *      Landlock        grants writing only in the sandbox's private places: /tmp, /dev...
 *                                                                              landlock.c
 *      init            resolves the call's paths. In the sandbox's private places the call
 *                      continues in the kernel: if the path leads elsewhere by then, Landlock
 *                      refuses it. For the same reason init itself returns the errors of existing
 *                      and missing names in write roots: a continued call would be refused if
 *                      another thread had changed the name meanwhile
 *
 * Init has one thread, and no other process of its sandbox can change a name in a write root, so
 * init changes what it has checked. Another sandbox may write the same folder; therefore no init
 * moves a folder to a place where names in it would be protected. The caller's memory is read once.
 * Paths are resolved in init's view, as init's user, which is the caller's.
 */
#pragma once

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include "sandbox/inside/caller.h"
#include "sandbox/plan.h"

/*
 * Number of repository configurations and of folders that are remembered as made inside. Only such
 * configurations may be changed or removed, and only in such folders a new one may be made. Those
 * beyond the last CG_MEDIATE_MADE stay as they are.
 */
#define CG_MEDIATE_MADE 1024
/* Mount IDs of init's namespace that are kept. */
#define CG_MEDIATE_MOUNTS 1024
/* Folders of callers that stay open; more than one call has. */
#define CG_MEDIATE_FOLDERS 4
/* Processes that wait for the other end of a FIFO; the next call fails with EAGAIN. */
#define CG_MEDIATE_HELPERS 64

struct cg_made_list {
        struct cg_made {
                uint64_t dev, ino;
                int64_t born_s;
                uint32_t born_ns;
        } * v;    /* CG_MEDIATE_MADE of them; NULL: none yet */
        size_t n; /* ever remembered */
};

struct cg_mediator {
        const struct cg_sandbox *sb; /* NULL: nothing is mediated */
        /*
         * Bits that some umask has had, and bits that all have had: the initial umask, and the
         * arguments of umask().
         */
        mode_t umask_some, umask_all;
        mode_t own_umask; /* of init */
        struct {
                int fd; /* -1: none */
                pid_t tid;
        } status; /* /proc/@tid/status of the thread whose umask was read last */
        /*
         * Their working directories stay open until they ask to change them. Only the first thread
         * of a process has a kept one; if another thread, or a process that shares its working
         * directory, may change it, none is kept any more.
         */
        struct cg_caller_process callers[CG_CALLER_PROCESSES];
        bool shared_folders;
        /*
         * Other working directories and directory descriptors of callers, in init's view, the last
         * used one first. An open folder keeps its numbers, so a caller's folder with the same ones
         * is this one.
         */
        struct cg_folder {
                int fd;
                uint64_t dev, ino, mount;
        } open_folders[CG_MEDIATE_FOLDERS];
        uint64_t *mounts; /* of init's own namespace; NULL: not read yet */
        size_t n_mounts;
        struct cg_made_list configs, folders;
        struct cg_inodes linked; /* files in the plan's folders of these */
        bool linked_known;
        char worktree[PATH_MAX]; /* the last folder .../worktrees/NAME that was made; "": none */
        /* children that wait for the other end of a FIFO; 0: room */
        pid_t helpers[CG_MEDIATE_HELPERS];
};

/* Names of @sb are mediated on this machine. Main process and init get the same result. */
bool cg_mediates(const struct cg_sandbox *sb);

struct cg_notify;
struct seccomp_notif;

void cg_mediate_init(struct cg_mediator *m, const struct cg_sandbox *sb);
/* True if the call is one of these; the reply has been sent then. */
bool cg_mediate_call(struct cg_mediator *m, struct cg_notify *n, const struct seccomp_notif *notif);

/*
 * For broker.c, which changes modes: Landlock has no right for these, so none of these calls
 * continues. Owners and times are not mediated.
 */

/*
 * Opens (O_PATH) the file that the arguments name. @path 0: the descriptor @dirfd itself. Or
 * -errno. @found: the file's path, or "": not looked up.
 */
int cg_mediate_open_target(struct cg_mediator *m, struct cg_notify *n, const struct seccomp_notif *notif,
                           int dirfd, uint64_t path, int flags, char found[PATH_MAX]);
/*
 * A copy of the caller's descriptor @fd if the file's name does not decide whether it may get
 * @mode: who has a descriptor that is open for writing decides what is in the file. Otherwise -1.
 */
int cg_mediate_take_writer(struct cg_mediator *m, const struct cg_notify *n,
                           const struct seccomp_notif *notif, int fd, mode_t mode);
/*
 * The file @fd, which is at @path if that is known, may get other attributes. *setting: of the rule
 * that forbids it, or NULL.
 */
bool cg_mediate_may_change(struct cg_mediator *m, int fd, const char *path, const char **setting);
/* The file at @path, which is no program yet, may get the type and mode @mode. */
bool cg_mediate_may_run(struct cg_mediator *m, const char *path, mode_t mode);
/* A child of init has ended. */
void cg_mediate_child_ended(struct cg_mediator *m, pid_t pid);

/* How a call that changes something at a path is handled. */
enum cg_region {
        CG_REGION_NATIVE, /* the call continues */
        CG_REGION_OWN,  /* a private place that contains a write root: init executes it, no name is refused */
        CG_REGION_ROOT, /* a write root; *len: of its path, 0 for "/" */
};
enum cg_region cg_mediate_region(const struct cg_sandbox *sb, const char *path, size_t *len);
/* A write root other than @path itself is in @path. */
bool cg_mediate_holds_root(const struct cg_sandbox *sb, const char *path);

/*
 * The name or rule by which @path must not be made or changed, judged by its text alone; NULL:
 * none. *setting: the setting of the rule, or NULL. For explanations of denials.
 */
const char *cg_mediate_explain(const struct cg_sandbox *sb, const char *path, const char **setting);
