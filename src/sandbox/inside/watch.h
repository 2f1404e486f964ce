/*
 * Reports of files that could not be opened, made, changed or run, for every process inside,
 * including what only the file system refuses. Optional: each call that names a file waits until
 * init has checked it against the plan, and then continues; the sandbox's mounts decide. See
 * notify.h.
 */
#pragma once

#include <linux/filter.h>
#include "sandbox/inside/notify.h"

struct seccomp_notif;

/* Calls that a filter hands to init in addition. */
enum {
        CG_WATCH_FILES = 1,   /* those that name files */
        CG_WATCH_CONNECT = 2, /* connect(), if the filter always allows it */
        /*
         * those that start programs (exec.h). A process cannot share its folder with another that
         * could change it after the host was asked
         */
        CG_WATCH_EXEC = 4,
        CG_WATCH_BESIDE = 8, /* those of beside.h */
};
/* @base preceded by rules for the calls @what (returns; free filter). */
int cg_watch_filter(const struct sock_fprog *base, unsigned int what, struct sock_fprog *ret,
                    struct cg_err *err);
/* In init. False: not a watched call. Otherwise the call still waits for its reply. */
bool cg_watch_file(struct cg_notify *n, const struct seccomp_notif *call);

/*
 * In init, for a call of the mediator's that continues: reports it if it would change @path and the
 * plan refuses that. Needs no watched files.
 */
void cg_watch_write(struct cg_notify *n, const struct cg_sandbox *sb, const struct seccomp_notif *call,
                    const char *path);

/*
 * In init, for a sandbox without a network: reports a connect() that would need one; the call
 * continues and fails. This finds also failures in `!curl` and errors that code catches.
 */
void cg_watch_connect(struct cg_notify *n, const struct seccomp_notif *call);
