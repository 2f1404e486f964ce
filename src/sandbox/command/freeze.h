/*
 * Whether everything inside of a sandbox stands still, seen from outside. SIGSTOP alone does not
 * keep a program from running: a timer of its own, or a readable descriptor, may send it SIGCONT.
 * So what has been stopped is looked at before it matters and afterwards: a thread that has run in
 * between has other counts.
 */
#ifndef CG_SANDBOX_COMMAND_FREEZE_H
#define CG_SANDBOX_COMMAND_FREEZE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/*
 * What is inside: the processes that lie more than @outer levels below @root's parent (root alone:
 * 1).
 */
struct cg_inside {
        pid_t root;
        unsigned int outer;
};

struct cg_still {
        uint64_t digest; /* of all threads and how often each has run */
        bool moving;     /* one of them runs, or may run without being let */
};

/* False where it cannot be seen. */
bool cg_still_look(const struct cg_inside *in, struct cg_still *ret);
bool cg_still_is_same(const struct cg_still *a, const struct cg_still *b);
/* To each process inside, where no pid namespace does it at once. */
void cg_still_signal(const struct cg_inside *in, int sig);

#endif
