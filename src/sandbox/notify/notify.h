/*
 * Denied system calls that are told. The filter hands them to init (SECCOMP_RET_USER_NOTIF), which
 * answers EPERM and writes down what it was, in a message to the caller of cg_sandbox_spawn().
 * Calls that the filter allows never come here.
 *
 *      main process    installs the filter, sends the listener to init, closes its copy     enter.c
 *      init            cg_notify_work(): answers, records                                   init.c,
 *                      notify.c
 *      caller          cg_denial_recv() on cg_sandbox_child.denied_fd
 *                      denial.c
 *
 * Init has no filter, the sandbox's view and its user, no capabilities but what the main process
 * has. A listener that ends makes the calls fail with ENOSYS; init's end is the sandbox's. There
 * can be one listener for a process: programs inside that want their own get EBUSY.
 */
#ifndef CG_SANDBOX_NOTIFY_NOTIFY_H
#define CG_SANDBOX_NOTIFY_NOTIFY_H

#include <linux/seccomp.h>
#include <poll.h>
#include <stdbool.h>
#include "sandbox/sandbox.h"

/*
 * A program that tries again and again must not fill anybody's memory: so many denials at once,
 * then so many in a second; the same one only once in a second. Those in between are counted.
 */
#define CG_NOTIFY_BURST      64
#define CG_NOTIFY_PER_SECOND 8
#define CG_NOTIFY_SAME       32

struct cg_broker;
struct cg_mediator;

struct cg_notify {
        int sock;               /* to the main process, until it has sent the listener; then -1 */
        int listener;           /* -1: none (yet), or nobody is left who could be heard */
        int out;                /* messages of struct cg_sandbox_denial */
        bool foreign_proc;      /* /proc is not this pid namespace's */
        struct cg_doors *doors; /* for connect() and listen(); borrowed */
        /* of the landlock tier, for calls that it does itself; else NULL */
        const struct cg_broker *broker;
        struct cg_mediator *mediator; /* of the full tier; borrowed */
        /* calls that name files are looked at, too: watch.h; NULL: not */
        const struct cg_sandbox *watch;
        bool watch_network; /* connect() is looked at: watch.h */
        uint32_t lost;
        int64_t tokens, filled_ms; /* thousandths */
        struct {
                uint64_t key;
                int64_t at_ms;
        } same[CG_NOTIFY_SAME];
};

/* Borrows the descriptors, which must be open for as long as it is used. -1: nothing is told. */
void cg_notify_init(struct cg_notify *n, int sock, int out, bool foreign_proc);
/* What to wait for. */
struct pollfd cg_notify_poll(const struct cg_notify *n);
/* After poll(2): one step. */
void cg_notify_work(struct cg_notify *n, const struct pollfd *fd);

/* The main process has ended: says how many denials were too many to be told, if none was since. */
void cg_notify_finish(struct cg_notify *n);

/* nscd.c: the C library's own attempt to reach nscd. */
bool cg_notify_is_nscd(const struct seccomp_notif *call);

/* A file that a call cannot have, for watch.c, which lets the file system refuse it. */
struct cg_notify_file {
        const char *path;
        int access, rule; /* enum cg_access, cg_access_rule */
        const char *setting;
};
void cg_notify_tell(struct cg_notify *n, const struct seccomp_notif *call, const struct cg_notify_file *f);

/*
 * For handlers (notify.c has their table): answers with @error and records it, with @path where the
 * call was about one.
 */
void cg_notify_deny(struct cg_notify *n, const struct seccomp_notif *call, int error, const char *path);
/* The same without a record; error 0: the call returns @value. */
/* the kernel does it as if nobody had asked */
void cg_notify_continue(struct cg_notify *n, const struct seccomp_notif *call);
void cg_notify_answer(struct cg_notify *n, const struct seccomp_notif *call, int error, int64_t value);

#endif
