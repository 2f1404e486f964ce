/*
 * Denied system calls that are reported. The filter hands them to init (SECCOMP_RET_USER_NOTIF),
 * which fails them with EPERM and sends a report to the caller of cg_sandbox_spawn(). Calls that
 * the filter allows do not come here.
 *
 *      main process    enter.c     installs the filter, sends the listener to init, closes its copy
 *      init            notify.c    cg_notify_work(): receives calls, finds their handler in
 *                                  broker.c, doors_inside.c, exec.c, mediate.c or watch.c
 *                      reply.c     replies and reports
 *      caller          denial.c    cg_denial_recv() on cg_sandbox_child.denials_fd
 *
 * Init has no filter, the sandbox's view and its user, and no capabilities but those of the main
 * process. When the listener is closed the calls fail with ENOSYS; it is closed when init ends, and
 * the sandbox ends with it. A process can have one listener only: programs inside that want their
 * own get EBUSY. Main process and command servers (commands.h) have a listener each.
 */
#pragma once

#include <poll.h>
#include <stdbool.h>
#include "sandbox/sandbox.h"

/*
 * Rate limits of reports: so many at once, then so many in a second; the same denial once in a
 * second, as long as it is one of the last CG_NOTIFY_SAME. Those left out are counted.
 */
#define CG_NOTIFY_BURST      64
#define CG_NOTIFY_PER_SECOND 8
#define CG_NOTIFY_SAME       32
/* Descriptors that a process may send with its listener, to be held open. */
#define CG_NOTIFY_PINS 64

struct cg_broker;
struct cg_mediator;

struct cg_notify {
        int sock;                 /* to the main process, until it has sent the listener; then -1 */
        int listener;             /* -1: not received yet, or no process has the filter any more */
        int pins[CG_NOTIFY_PINS]; /* descriptors that stay open as long as the listener does */
        size_t n_pins;
        int out;                /* messages of struct cg_sandbox_denial */
        bool foreign_proc;      /* /proc is not this pid namespace's */
        struct cg_doors *doors; /* for connect() and listen(); borrowed */
        /* of the landlock tier, for calls that init executes itself; else NULL */
        const struct cg_broker *broker;
        struct cg_mediator *mediator; /* of the full tier; borrowed */
        /* the plan where calls that name files are watched (watch.h); else NULL */
        const struct cg_sandbox *watch;
        bool watch_network;        /* connect() is watched: watch.h */
        const pid_t *servers;      /* CG_BESIDE_SERVERS that this listener's calls do not reach; or NULL */
        struct cg_execs *execs;    /* programs that start are restricted: exec.h; else NULL; borrowed */
        uint32_t lost;             /* denials since the last report that were not reported */
        int64_t tokens, filled_ms; /* tokens in thousandths */
        struct {
                uint64_t key;
                int64_t at_ms;
        } same[CG_NOTIFY_SAME];
};

/* Borrows the descriptors, which must stay open while @n is used. @sock -1: there is no filter. */
void cg_notify_init(struct cg_notify *n, int sock, int out, bool foreign_proc);
/* The entry for poll(2). */
struct pollfd cg_notify_poll(const struct cg_notify *n);
/* After poll(2): handles one event. */
void cg_notify_work(struct cg_notify *n, const struct pollfd *fd);
