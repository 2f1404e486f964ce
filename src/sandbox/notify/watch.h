/*
 * Files that could not be opened, made, changed or run, told for every process inside, also where
 * nothing but the file system refused. Only on request: each call that names a file waits for init
 * to look at it, and then goes on as it would have; the sandbox's mounts decide, whatever is seen
 * here. See notify.h.
 */
#ifndef CG_SANDBOX_NOTIFY_WATCH_H
#define CG_SANDBOX_NOTIFY_WATCH_H

#include <linux/filter.h>
#include "sandbox/notify/notify.h"

struct seccomp_notif;

/*
 * @base with the calls before it that are looked at (returns; free filter): those that name files,
 * and connect(). The latter only where @base allows it always.
 */
int cg_watch_filter(const struct sock_fprog *base, bool files, bool connects, struct sock_fprog *ret,
                    struct cg_err *err);
/*
 * In init. False: it is none of the calls that are looked at. Else it still waits for its answer.
 */
bool cg_watch_look(struct cg_notify *n, const struct seccomp_notif *call);

/*
 * In init, for a sandbox without a network: a connect() that would need one is told, and goes on to
 * fail. An empty network namespace refuses without a word that a program could be shown; this is
 * how also `!curl` and errors that code catches are noticed.
 */
void cg_watch_connect(struct cg_notify *n, const struct seccomp_notif *call);

#endif
