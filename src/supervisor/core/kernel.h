/* struct kernel, and one kernel's process from the request to the zygote to its end. */
#pragma once

#include <jansson.h>
#include <time.h>
#include <uv.h>
#include "base/zlink.h"
#include "sandbox/cgroup.h"
#include "sandbox/egress/doors_client.h"
#include "sandbox/sandbox.h"
#include "supervisor/limits/oom.h"
#include "supervisor/core/shell.h"
#include "supervisor/core/sup.h"
#include "supervisor/core/zygote.h"

struct host;
struct session;

enum kernel_state { K_WAITING, K_SPAWNING, K_BOOTING, K_READY, K_DEAD };

/* Sockets that its process connects to: listening until they are handed to the zygote. */
struct kernel_sockets {
        char kernel[128], tool[128], function[128]; /* paths */
        int kernel_fd, tool_fd, function_fd;
};

/* Its session has ended; it runs what was registered with atexit. */
struct kernel_retiring {
        bool on;
        uint64_t host; /* number of the host that gets DONE; may have ended by then; 0 none */
        uint64_t session, request;
        struct watch status; /* status_fd */
        uv_timer_t drain;
        bool drain_open;
};

/* Limits, and what counts for them: limits.c. */
struct kernel_limits {
        enum cg_limit_by by[CG_LIMITS]; /* how each limit is enforced */
        bool in_group, has_counts, cpu_exceeded, memory_exceeded;
        struct cg_oom oom;            /* the counters at its start */
        struct cg_cgroup_files files; /* what a control group counts; NULL each: nothing */
        /* the latest counters of the group, and those that have been reported */
        struct cg_limit_counts counts, reported;
        uv_timer_t cpu_timer; /* reads the used processor time */
        bool cpu_timer_open;
};

/* A kernel as its process and the zygote have reported it (KERNEL_READY). */
struct kernel_report {
        bool debugger;
        json_t *layers;
        json_t *landlock_abi; /* a number; NULL outside of the landlock tier */
        char *tier;
        char *python, *ipython;
};

/* Where the settings mask credentials: for the zygote, and for the egress proxy. */
struct kernel_masks {
        json_t *env, *files, *inject;
};

/* Files of its process in /proc, for the costs of cells; -1 each: not known. */
struct kernel_costs {
        int stat_fd, io_fd, status_fd, clear_fd;
        clockid_t cpu;
        struct process_use last; /* at the end of the last cell */
};

/* Its connections: kernel_link.c. */
struct kernel_links {
        struct cg_zlink main, calls; /* calls: of functions of the host */
        bool main_open, calls_open;
        LIST_HEAD(, large_result) large_results; /* functions.c */
        uint64_t pauses; /* how often reading was paused because its host did not read */
};

struct kernel {
        struct sup *sup;
        struct session *session; /* NULL: orphaned, being ended */
        struct kernel *next_waiting;
        uint64_t seq;
        enum kernel_state state;
        bool got_ready, attached, has_egress;
        struct kernel_retiring retiring;
        struct kernel_sockets sockets;
        struct kernel_links links;
        struct watch pid, denied, programs;
        int status_fd;
        uv_timer_t lost;
        bool lost_open;
        int closing; /* handles whose close callback is still to come */
        struct kernel_report report;
        struct kernel_limits limits;
        char violation_text[256]; /* which rule it broke; "": none */
        struct kernel_masks masks;
        json_t *guards; /* what it was started with: cg_sup_server_guards() */
        int secrets;    /* -1: none */
        struct cg_doors_process doors;
        struct watch doors_watch;
        struct cg_commands *commands; /* NULL: no sandbox yet */
        struct kernel_costs costs;
};

extern const struct cg_broker_ops cg_sup_kernel_broker_ops;
extern const struct cg_zygote_ops cg_sup_kernel_zygote_ops;

/* Starts a kernel for the session; the outcome comes through struct cg_kernel_ops. */
int cg_sup_kernel_start(struct session *ss, struct cg_err *err);
/* Ends it and forgets it; its session gets no more from it. */
void cg_sup_kernel_end(struct kernel *k);
/*
 * Lets it run what its cells have registered with atexit, 1 s at most, then ends it; DONE goes to
 * @h (may be NULL) for @request of @session. Its session gets no more from it.
 */
void cg_sup_kernel_retire(struct kernel *k, struct host *h, uint64_t session, uint64_t request);
