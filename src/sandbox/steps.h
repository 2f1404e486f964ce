/*
 * The steps between clone3 and main_fn, by file. Private to src/sandbox. All of them run inside the
 * new namespaces, in a process that has one thread, and return 0 or a negative code with *err
 * filled; err then travels to the caller.
 */
#ifndef CG_SANDBOX_STEPS_H
#define CG_SANDBOX_STEPS_H

#include <signal.h>
#include "sandbox/cgroup.h"
#include "sandbox/plan.h"

/*
 * What one spawn hands to init and the main process. Lives on the caller's stack, copied by the
 * clone.
 */
struct cg_spawn {
        const struct cg_sandbox *sb;
        uid_t uid; /* of the caller: inside, getuid() says nobody until the map is written */
        gid_t gid;
        const char *cwd; /* where to start; borrowed */
        int *keep;       /* descriptors of the main process, ready_fd among them, ascending */
        size_t n_keep;
        int ready_fd; /* one struct cg_ready goes here */
        int ports_fd; /* listening sockets go here; -1: none are wanted */
        /* one struct cg_sandbox_status goes here; its reader is the lifeline */
        int status_fd;
        /* the main process sends the filter's listener to init; -1: denied calls are not told */
        int listener_in, listener_out;
        int denied_fd;            /* where init tells them; -1 */
        struct cg_cgroup *cgroup; /* NULL: none */
        bool cloned_into;         /* the clone has put it into its version 2 group */
        bool affinity;            /* cores are limited by CPUs */
        int doors_fd;             /* init's, to the outside; -1 */
        bool counted;             /* processes are limited by the group */
        /*
         * nothing bounds the memory of all processes together: they are ended before others when it
         * is short
         */
        bool oom_first;
        /* the caller's: everything is blocked from before the clone until main_fn */
        sigset_t old_mask;
        int (*prepare_fn)(void *data, struct cg_err *err); /* or NULL */
        /*
         * init tells the main process, which prepares itself meanwhile, that the view is made; -1:
         * it is already
         */
        int go_in, go_out;
        int (*main_fn)(void *data);
        void *data;
};

/* From inside to cg_sandbox_spawn(): below PIPE_BUF, so it arrives whole. */
struct cg_ready {
        uint32_t ok;
        struct cg_err err;
};

/* init.c: everything from the clone on. Does not return. */
_Noreturn void cg_init_run(const struct cg_spawn *sp);

/* namespaces.c */
int cg_ns_map_ids(uid_t uid, gid_t gid, struct cg_err *err);
int cg_ns_loopback_up(struct cg_err *err);
/* Listens at the plan's ports and sends the sockets to the caller. */
int cg_ns_send_ports(const struct cg_spawn *sp, struct cg_err *err);

/* mounts.c */
/* @memory: as cg_plan_tmpfs_size(). */
int cg_mounts_apply(const struct cg_sandbox *sb, uint64_t memory, struct cg_err *err);

/* enter.c: */
/*
 * Everything that the caller had open is closed, but sp->keep: before anything else is done in the
 * main process.
 */
int cg_enter_close_others(const struct cg_spawn *sp, struct cg_err *err);
/* The main process gives up everything it does not need. */
int cg_enter(const struct cg_spawn *sp, struct cg_err *err);
/*
 * What no program can ever give back. Once, in init before its fork: 41 changes of credentials are
 * a tenth of a sandbox's start.
 */
int cg_enter_bounding_set(bool setfcap, struct cg_err *err);
/*
 * No capability in any set, none to be had again. Also what init does once the main process runs.
 * @setfcap leaves that one: without it user 0 cannot make a user namespace in which it is user 0
 * again.
 */
int cg_enter_drop_caps(bool setfcap, struct cg_err *err);
/* The same, @more (bits) kept: init's, which runs no program. */
int cg_enter_keep_caps(bool setfcap, uint32_t more, struct cg_err *err);
/*
 * The same outside of a user namespace, bounding set included, as far as the caller has the power
 * to.
 */
int cg_enter_drop_caps_outside(struct cg_err *err);

/* landlock.c */
int cg_landlock_apply(const struct cg_sandbox *sb, struct cg_err *err);
/* The landlock tier's. @pins: descriptors that init keeps open as long as the sandbox lives. */
#define CG_LANDLOCK_PINS 64
/* Ports of a plan of the landlock tier: the proxy's. */
#define CG_LANDLOCK_PORTS 4
int cg_landlock_apply_tier(const struct cg_sandbox *sb, int pins[CG_LANDLOCK_PINS], size_t *n_pins,
                           struct cg_err *err);

/* What a filter leaves open. */
enum {
        /* AF_UNIX and AF_VSOCK: whatever listens on the host can be talked to */
        CG_FILTER_UNIX_SOCKETS = 1,
        CG_FILTER_NESTED_USERS = 2, /* namespaces and mounts in them */
        CG_FILTER_ASKED_UNIX = 4,   /* AF_UNIX streams; connect() is asked about */
        CG_FILTER_ASKED_LISTEN = 8, /* listen() is asked about */
        /* of the landlock tier: takes more, and wants a broker (broker.h); alone, or with: */
        CG_FILTER_LANDLOCK = 16,
        CG_FILTER_TCP = 32, /* TCP sockets, which the broker connects */
        /* what makes or changes files is asked about; not with CG_FILTER_LANDLOCK */
        CG_FILTER_NAMES = 64,
};

#define CG_FILTERS 128 /* all combinations; those that make no sense are empty */

static inline bool cg_filter_exists(unsigned int flags)
{
        return (flags & ~(unsigned int)CG_FILTER_NAMES) < CG_FILTER_LANDLOCK || flags == CG_FILTER_LANDLOCK ||
               flags == (CG_FILTER_LANDLOCK | CG_FILTER_TCP);
}

/* seccomp.c: static data, nothing to free. */
void cg_seccomp_filter(unsigned int flags, struct sock_fprog *ret);
int cg_seccomp_install(const struct sock_fprog *prog, struct cg_err *err);
/*
 * The same; denied calls wait for the listener's answer. *ret: -1 where there can be none; then it
 * is @silent, and what that denies just fails.
 */
int cg_seccomp_install_listener(const struct sock_fprog *prog, const struct sock_fprog *silent, int *ret,
                                struct cg_err *err);
/* Another one beside it: the CPUs that a process may run on stay as they are. */
int cg_seccomp_keep_affinity(struct cg_err *err);
/* The same for a filter that wants a broker: *listener is the broker's (returns). */
int cg_seccomp_install_brokered(const struct sock_fprog *prog, int *listener, struct cg_err *err);
/* seccomp_rules.c, in programs that have libseccomp: the same made anew (returns; free filter). */
int cg_seccomp_compile(unsigned int flags, struct sock_fprog *ret, struct cg_err *err);

#endif
