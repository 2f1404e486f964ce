/*
 * Files that could not be opened, made, changed or run, told for every process inside, also where nothing but the file system
 * refused. Only on request: each call that names a file waits for init to look at it, and then goes on as it would have; the sandbox's
 * mounts decide, whatever is seen here. See notify.h.
 */
#ifndef CG_SANDBOX_WATCH_H
#define CG_SANDBOX_WATCH_H

#include <linux/filter.h>
#include "sandbox/notify.h"

/* @base with the calls before it that are looked at (returns; free filter). */
int cg_watch_filter(const struct sock_fprog *base, struct sock_fprog *ret, struct cg_err *err);
/* In init. False: it is none of the calls that are looked at. Else it is answered. */
bool cg_watch_call(struct cg_notify *n, const struct seccomp_notif *call);

#endif
