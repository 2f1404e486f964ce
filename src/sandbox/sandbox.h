/*
 * The sandbox: a plan (pure data, made from settings) and one ordered entry into it.
 *
 * Used by the zygote (kernels) and by any program that runs a command in the sandbox. The plan is
 * made by setters that only record; cg_sandbox_spawn() applies it. Nothing is skipped in silence: a
 * step that this machine cannot do is an error.
 *
 *      cg_sandbox_spawn()    spawn.c        the caller: clone3, wait until the main process stands
 *        ready init (pid 1)        init.c         namespaces.c, mounts.c (dev.c, proc.c), fork,
 *        then reap and report main process      enter.c        gives up all privileges in order;
 *        landlock.c, seccomp.c; main_fn
 */
#ifndef CG_SANDBOX_SANDBOX_H
#define CG_SANDBOX_SANDBOX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include "base/err.h"
#include "sandbox/limit.h"

struct cg_sandbox;

/*
 * A plan with: all namespaces, everything read-only, private /tmp, /var/tmp, /run, /dev, /proc,
 * /sys, no network.
 */
int cg_sandbox_new(struct cg_sandbox **ret, struct cg_err *err);
struct cg_sandbox *cg_sandbox_free(struct cg_sandbox *sb);
/* A plan with all that @sb has (copies). */
int cg_sandbox_copy(const struct cg_sandbox *sb, struct cg_sandbox **ret, struct cg_err *err);

/*
 * A plan for a command of the user's own: all namespaces, everything read-only as it lies on the
 * host (no private /tmp), its own /dev, /proc and /sys, no limits, signals of the host handed on.
 * What it may write and not read is added by cg_view_add().
 */
enum {
        CG_COMMAND_UNIX_SOCKETS = 1, /* sockets of the host's programs can be talked to */
        CG_COMMAND_NESTED_USERS = 2, /* user namespaces may be made inside */
        /* where a fresh /proc is refused, the one that is there is shown */
        CG_COMMAND_WEAK_PROC = 4,
};
int cg_sandbox_new_command(unsigned int flags, struct cg_sandbox **ret, struct cg_err *err);

/*
 * Tiers. `full` is all that this file speaks of. `landlock` is for machines that forbid user
 * namespaces: the view of the file system becomes Landlock rules, there are no namespaces, and what
 * neither Landlock nor seccomp can decide goes through a broker (broker.c). What it does not hold:
 * docs/security.md. Nobody gets it without having asked for it.
 */
enum cg_tier { CG_TIER_FULL, CG_TIER_LANDLOCK, CG_TIER_AUTO };

/* Denials in folders that may be written, which Landlock cannot hold apart. */
enum cg_denials {
        CG_DENIALS_REFUSE, /* an error that names the first */
        CG_DENIALS_FREEZE, /* nothing new can be made in the folders that lead to them */
        /* denials of writing are not held; what is hidden stays hidden, as with FREEZE */
        CG_DENIALS_ACCEPT,
};

struct cg_tier_choice {
        enum cg_tier tier;
        enum cg_denials denials;
};

/*
 * "full", "landlock", "auto", the latter two with ":refuse" (as without), ":freeze" or ":accept".
 * CG_E_INVAL.
 */
int cg_tier_parse(const char *text, struct cg_tier_choice *ret, struct cg_err *err);
/*
 * Makes CG_TIER_AUTO the strongest tier that this machine can do here and now, tried by starting a
 * sandbox. CG_E_UNSUPPORTED: not even the landlock tier, when that is what is asked for or left.
 * For a process with one thread.
 */
int cg_tier_decide(struct cg_tier_choice *choice, struct cg_err *err);
/* Whether the full tier can be had here; *err says what is missing. */
int cg_tier_try_full(struct cg_err *err);
/*
 * Landlock's version here; negative errno where there is none. The landlock tier wants
 * CG_TIER_LANDLOCK_ABI.
 */
int cg_landlock_abi(void);
#define CG_TIER_LANDLOCK_ABI 6

/*
 * Makes @sb a plan of the landlock tier: the last of the setters, since it turns what they said
 * into Landlock rules. @private_dir: a folder that will exist when the sandbox starts, and may be
 * written whatever else holds; NULL: none. CG_E_UNSUPPORTED: the plan has what this tier cannot do,
 * by name.
 */
int cg_sandbox_set_landlock(struct cg_sandbox *sb, enum cg_denials denials, const char *private_dir,
                            struct cg_err *err);
/* "full", "landlock", or "off". */
const char *cg_sandbox_tier(const struct cg_sandbox *sb);

/* No isolation at all (--no-sandbox): the child still gets its init, status pipe and limits. */
void cg_sandbox_set_off(struct cg_sandbox *sb);
/*
 * Absolute path that may be written; visible at the same path inside. Symlinks are resolved here,
 * once: what the path leads to now is what is opened. "/" is allowed. CG_E_INVAL for anything at or
 * below /proc, /sys and /dev.
 */
int cg_sandbox_add_write(struct cg_sandbox *sb, const char *path, struct cg_err *err);
/*
 * Folder or file @src shown read-only at absolute path @dst (made if needed; @dst lies in a private
 * tmpfs such as /run). @dst has no symlink, "." or ".." in it. It lies over a write root of the
 * same path.
 */
int cg_sandbox_add_bind_ro(struct cg_sandbox *sb, const char *src, const char *dst, struct cg_err *err);
/*
 * Path hidden: an empty read-only folder, or an unreadable file, lies over it, last of all; also
 * where a bind_ro shows it. Absent paths, and those that the caller cannot reach, are left out. Its
 * parents inside a write root cannot be renamed.
 */
int cg_sandbox_add_hide(struct cg_sandbox *sb, const char *path, struct cg_err *err);
/*
 * Hides where credentials usually lie: below @home (NULL: none of those) and in the system's
 * folders.
 */
int cg_sandbox_add_default_hides(struct cg_sandbox *sb, const char *home, struct cg_err *err);
/*
 * Hides files of @workspace that hold credentials (.env, *.kdbx), as far as a search that takes
 * milliseconds finds them.
 */
int cg_sandbox_add_hides_below(struct cg_sandbox *sb, const char *workspace, struct cg_err *err);
/* Working directory inside. Unset: the caller's, or "/" when that cannot be entered inside. */
int cg_sandbox_set_cwd(struct cg_sandbox *sb, const char *path, struct cg_err *err);

/*
 * A TCP port of the sandbox's loopback interface, both families, at which the caller listens:
 * nothing inside can be there first, and nothing outside can connect. CG_E_LIMIT.
 */
#define CG_SANDBOX_PORTS_MAX 18 /* the proxy's two, and those of cellgate.ports.reach */
int cg_sandbox_add_port(struct cg_sandbox *sb, uint16_t port, struct cg_err *err);

/*
 * A control group is made for those that one can hold and that were asked for; where none can be
 * had, and for the rest, rlimits and the like hold them: see limits.h.
 */
void cg_sandbox_set_limits(struct cg_sandbox *sb, const struct cg_sandbox_limits *limits);
/* How each limit would be held here and now: what cg_sandbox_child.by will say. */
void cg_sandbox_limits_by(const struct cg_sandbox *sb, enum cg_limit_by by[CG_LIMITS]);
/* For tests: a folder with files like /proc/self/cgroup and /proc/self/mountinfo (borrowed). */
void cg_sandbox_set_cgroup_files(struct cg_sandbox *sb, const char *folder);

/*
 * Denied system calls are told: see cg_sandbox_child.denied_fd. Without it they fail all the same.
 * Where this machine cannot tell (a listener of another sandbox around this one, Linux before 5.0),
 * they fail untold.
 */
void cg_sandbox_set_told(struct cg_sandbox *sb);
/*
 * Calls that name files are looked at as well, and told where rules of the plan keep these: it
 * makes them slower.
 */
void cg_sandbox_set_watch(struct cg_sandbox *sb);
/*
 * With cg_sandbox_set_told(): attempts to connect are told where there is no network, by every
 * process inside. Each takes some 30 us more.
 */
void cg_sandbox_set_watch_network(struct cg_sandbox *sb);

/*
 * Names in write roots that programs outside obey (names.h) cannot be made, changed, renamed or
 * removed, nor can paths that the plan says must not be made; init does what changes files there.
 * @writable: names that can be (copied), @git_config: repositories' configurations, too. Implies
 * that denied calls are told; a machine that cannot do that refuses such a plan. Of the full tier:
 * the landlock tier holds what is there when it starts. CG_E_LIMIT.
 */
int cg_sandbox_set_names(struct cg_sandbox *sb, const char *const *writable, size_t n, bool git_config,
                         struct cg_err *err);

/*
 * Ways through the sandbox's border, for which init keeps a socket to the outside
 * (cg_sandbox_child.doors_fd; messages: doors.h): whoever has its other end can ask for sockets of
 * the sandbox's network namespace; with CG_DOOR_UNIX programs inside may make unix sockets, and
 * connect them to each other's and to those that the other end lets them have; with CG_DOOR_LISTEN
 * it is told at which ports they listen. The latter two need denied calls to be told, which this
 * implies; a machine that cannot do that refuses such a plan.
 */
enum {
        CG_DOOR_PORTS = 1,
        CG_DOOR_UNIX = 2,
        CG_DOOR_LISTEN = 4,
};
void cg_sandbox_set_doors(struct cg_sandbox *sb, unsigned int doors);

struct cg_sandbox_child {
        pid_t init_pid; /* in the caller's pid namespace; a child of the caller, who reaps it */
        /*
         * readable when init has ended; kill through it (SIGKILL) ends everything inside. In a plan
         * that is off, SIGTERM does that; SIGKILL ends init and the main process only
         */
        int init_pidfd;
        /*
         * pipe: one struct cg_sandbox_status when the main process has ended, then EOF. It is the
         * lifeline as well: when the caller ends, or the last copy of this descriptor is closed,
         * everything inside ends
         */
        int status_fd;
        /* listening sockets in the order of cg_sandbox_add_port(), non-blocking; else -1 */
        int ports[CG_SANDBOX_PORTS_MAX];
        /*
         * socket: one struct cg_sandbox_denial a message, then end of file; -1 without
         * cg_sandbox_set_told()
         */
        int denied_fd;
        /* NULL: none. The caller frees it once init has ended: cgroup.h */
        struct cg_cgroup *cgroup;
        enum cg_limit_by by[CG_LIMITS]; /* how each limit is held */
        int doors_fd;                   /* socket; -1 without cg_sandbox_set_doors() */
};

/*
 * Written by init to status_fd. A pipe that closes with nothing in it means that init itself was
 * killed.
 */
struct cg_sandbox_status {
        uint32_t magic;    /* CG_SANDBOX_STATUS_MAGIC */
        int32_t exit_code; /* 0..255, or -1 when ended by a signal */
        int32_t signal;    /* 0 or the signal's number */
        int32_t core;      /* reserved, 0 */
};
#define CG_SANDBOX_STATUS_MAGIC 0x43475331u

/*
 * Written by init to denied_fd: a system call that the filter denied. What it names comes from
 * inside.
 */
struct cg_sandbox_denial {
        uint32_t magic; /* CG_SANDBOX_DENIAL_MAGIC */
        int32_t nr;     /* of the system call; -1: none, only `lost` is told */
        uint64_t args[4];
        int32_t pid;      /* inside */
        int32_t error;    /* what it was told: an errno; 0: not known */
        int32_t access;   /* with rule: enum cg_access */
        int32_t rule;     /* 0, or the enum cg_access_rule that keeps it from the file at path */
        uint32_t lost;    /* so many before it were not told, since there were too many */
        char name[16];    /* the process's, which it chooses; may be empty */
        char setting[48]; /* that the rule comes from; may be empty */
        char path[512];   /* what it was about, where that is a path; its beginning */
};
#define CG_SANDBOX_DENIAL_MAGIC 0x43474431u

/*
 * Makes the namespaces and mounts, starts init (pid 1 inside) and, as its child, the main process,
 * which gives up every privilege and then calls @main_fn(data); its return value is the exit status
 * (by _exit: no atexit handler runs).
 *
 * @keep_fds: descriptors (of the caller) that the main process keeps, at their numbers; all others
 *            but 0, 1, 2 are closed there. init keeps only what it needs. CG_E_INVAL when one of
 *            them is not open.
 * The caller must be single-threaded (checked: CG_E_STATE). A step that fails inside comes back as
 * this function's error: what was being done, on what, and errno. CG_E_UNSUPPORTED when this
 * machine lacks a feature the plan needs. The parent returns 0 once the main process stands right
 * before @main_fn. Signals: @main_fn finds the caller's mask and dispositions, but SIGCHLD at its
 * default.
 * Threads: none.  Holds and needs no GIL; @main_fn runs in a forked copy of the caller (use
 * PyOS_AfterFork_Child there).
 */
int cg_sandbox_spawn(const struct cg_sandbox *sb, const int *keep_fds, size_t n_keep,
                     int (*main_fn)(void *data), void *data, struct cg_sandbox_child *ret,
                     struct cg_err *err);
/*
 * The same for a main process that has something to do before it is inside: @prepare_fn(data) runs
 * there while init makes the view, with every signal blocked, nothing open but @keep_fds and no
 * layer on yet. So it is our own code on nothing foreign, it opens no file by name, since that
 * might be one of the host's, and starts no thread (checked: CG_E_STATE). What it opens stays open.
 * Negative, with
 * @err: it fails the start.
 */
int cg_sandbox_spawn_prepared(const struct cg_sandbox *sb, const int *keep_fds, size_t n_keep,
                              int (*prepare_fn)(void *data, struct cg_err *err), int (*main_fn)(void *data),
                              void *data, struct cg_sandbox_child *ret, struct cg_err *err);

/*
 * The layers that hold in a child of this plan, NULL-terminated static names: "user", "mount", ...,
 * "landlock", "seccomp". "process_limit" is missing where a process limit has no effect: for root
 * before Linux 6.14; "names" where no names are protected by init (cg_sandbox_set_names()).
 */
const char *const *cg_sandbox_layers(const struct cg_sandbox *sb);

#endif
