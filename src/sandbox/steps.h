/*
 * The steps between clone3 and main_fn, by file. Private to src/sandbox. All of them run inside the
 * new namespaces, in a process that has one thread, and return 0 or a negative code with *err
 * filled; err then travels to the caller.
 */
#pragma once

#include <signal.h>
#include "sandbox/cgroup.h"
#include "sandbox/plan.h"

/* Arguments of init and the main process. On the caller's stack, copied by the clone. */
struct cg_spawn {
        const struct cg_sandbox *sb;
        uid_t uid; /* of the caller: inside, getuid() returns nobody until the map is written */
        gid_t gid;
        const char *cwd; /* initial working directory; borrowed */
        int *keep;       /* descriptors of the main process, ready_fd among them, ascending */
        size_t n_keep;
        int ready_fd; /* receives one struct cg_ready */
        int ports_fd; /* receives the listening sockets; -1: there are none */
        /* receives one struct cg_sandbox_status; its reader is the lifeline */
        int status_fd;
        /* the main process sends the filter's listener to init; -1: denials are not reported */
        int listener_in, listener_out;
        int denials_fd;            /* receives init's reports of denials; -1 */
        struct cg_cgroup *cgroup;  /* NULL: none */
        bool cloned_into;          /* the clone has put the child into its version 2 group */
        bool affinity;             /* cores are limited by CPUs */
        size_t first_cpu;          /* any number: where these begin */
        uint64_t processes_beside; /* the user's others (landlock tier) */
        int doors_fd;              /* init's socket to cellgate-egress; -1 */
        int commands_fd;           /* init's socket for command servers (commands.h); -1 */
        /*
         * the process is a command server: init has dropped its own privileges before the fork, and
         * the process must not be traced by others inside
         */
        bool late;
        bool counted; /* the group limits processes */
        /* no limit on the memory of all together: killed before others if the machine runs out */
        bool oom_first;
        /* the caller's; all signals are blocked from before the clone until main_fn */
        sigset_t old_mask;
        int (*prepare_fn)(void *data, struct cg_err *err); /* or NULL */
        /*
         * init signals the main process, which prepares itself meanwhile, that the view is
         * complete; -1: it is already
         */
        int go_in, go_out;
        int (*main_fn)(void *data);
        void *data;
};

/* From inside to cg_sandbox_spawn(); smaller than PIPE_BUF, so writes are atomic. */
struct cg_ready {
        uint32_t ok;
        struct cg_err err;
};

/* init.c: everything after the clone. Does not return. */
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
/* Closes all descriptors but sp->keep; the first step of the main process. */
int cg_enter_close_others(const struct cg_spawn *sp, struct cg_err *err);
/* Drops all privileges that the main process does not need. */
int cg_enter(const struct cg_spawn *sp, struct cg_err *err);
/* caps.c: */
/*
 * Clears the bounding set. Once, in init before its fork: 41 changes of credentials are a tenth of
 * a sandbox's start time.
 */
int cg_caps_drop_bounding(bool setfcap, struct cg_err *err);
/* Keeps @more (bits), and CAP_SETFCAP across an exec with @setfcap. */
int cg_caps_set(bool setfcap, uint32_t more, struct cg_err *err);
/*
 * Drops all capabilities for good but @more (bits), which init keeps. Called by the main process,
 * and by init once the main process runs. @setfcap: keeps CAP_SETFCAP, which user 0 needs to make a
 * user namespace in which it is user 0.
 */
int cg_caps_drop(bool setfcap, uint32_t more, struct cg_err *err);
/* The same outside of a user namespace, with the bounding set if the caller has the capability. */
int cg_caps_drop_outside(struct cg_err *err);

/* landlock.c */
int cg_landlock_apply(const struct cg_sandbox *sb, struct cg_err *err);
/* For the landlock tier. @pins: descriptors that init keeps open while the sandbox runs. */
#define CG_LANDLOCK_PINS 64
/* Ports of a plan of the landlock tier: the proxy's. */
#define CG_LANDLOCK_PORTS 4
int cg_landlock_apply_tier(const struct cg_sandbox *sb, int pins[CG_LANDLOCK_PINS], size_t *n_pins,
                           struct cg_err *err);

/* clone() with one of these flags makes a namespace. On s390 they are the second argument. */
#define CG_CLONE_NAMESPACES \
        (CLONE_NEWNS | CLONE_NEWCGROUP | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWUSER | CLONE_NEWPID | \
         CLONE_NEWNET)
#if defined(__s390__)
#define CG_CLONE_FLAGS_ARG 1
#else
#define CG_CLONE_FLAGS_ARG 0
#endif

/* Flags of a filter. */
enum {
        /* AF_UNIX and AF_VSOCK, to any listening socket of the host */
        CG_FILTER_UNIX_SOCKETS = 1,
        CG_FILTER_NESTED_USERS = 2, /* namespaces and mounts in them */
        CG_FILTER_ASKED_UNIX = 4,   /* AF_UNIX streams; connect() is notified */
        CG_FILTER_ASKED_LISTEN = 8, /* listen() is notified */
        /* of the landlock tier: needs a broker (broker.h); alone or with CG_FILTER_TCP */
        CG_FILTER_LANDLOCK = 16,
        CG_FILTER_TCP = 32, /* TCP sockets, which the broker connects */
        /* calls that make or change files are notified; not with CG_FILTER_LANDLOCK */
        CG_FILTER_NAMES = 64,
};

#define CG_FILTERS 128 /* all combinations; invalid ones are empty */

static inline bool cg_filter_exists(unsigned int flags)
{
        return (flags & ~(unsigned int)CG_FILTER_NAMES) < CG_FILTER_LANDLOCK || flags == CG_FILTER_LANDLOCK ||
               flags == (CG_FILTER_LANDLOCK | CG_FILTER_TCP);
}

/* seccomp.c: static data, nothing to free. */
void cg_seccomp_filter(unsigned int flags, struct sock_fprog *ret);
int cg_seccomp_install(const struct sock_fprog *prog, struct cg_err *err);
/*
 * The same; denied calls wait for the listener's reply. *ret: -1 if there can be no listener; then
 * @silent is installed, and denied calls fail.
 */
int cg_seccomp_install_listener(const struct sock_fprog *prog, const struct sock_fprog *silent, int *ret,
                                struct cg_err *err);
/* An additional filter: the CPUs that a process may run on cannot be changed. */
int cg_seccomp_keep_affinity(struct cg_err *err);
/* Installs a filter that needs a broker: *listener is for the broker (returns). */
int cg_seccomp_install_brokered(const struct sock_fprog *prog, int *listener, struct cg_err *err);
/* seccomp_rules.c, in programs with libseccomp: compiles a filter (returns; free filter). */
int cg_seccomp_compile(unsigned int flags, struct sock_fprog *ret, struct cg_err *err);
