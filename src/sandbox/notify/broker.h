/*
 * The broker, part of init; most of it is the landlock tier's: does on a process's behalf what
 * Landlock cannot decide and the filter therefore does not let through. A call is never let go on
 * ("continue"): the broker looks at its own copy of the arguments, at what they lead to, and does
 * it itself, or not. What the process changes in its memory meanwhile changes nothing.
 *
 *      chmod, chown, utime and their kin    on what the sandbox may write; Landlock knows no such
 *                                           right. In the full tier, too, where names are protected
 *                                           (mediate.h)
 *      chmod to set-group-ID                in both tiers: of folders only, setid.h
 *      connect                              to the proxy's ports at 127.0.0.1: the socket is
 *                                           replaced by one that is connected to the proxy already.
 *                                           No port of the host stands open for that
 */
#ifndef CG_SANDBOX_NOTIFY_BROKER_H
#define CG_SANDBOX_NOTIFY_BROKER_H

#include "sandbox/plan.h"

struct cg_broker {
        const struct cg_sandbox *sb;
        /* for the plan's ports, one after another, sockets that take connections as descriptors */
        int proxies;
};

struct cg_notify;
struct seccomp_notif;

/* True when the call was one of the broker's, which has then been answered. */
bool cg_broker_handle(const struct cg_broker *b, struct cg_notify *n, const struct seccomp_notif *call);
struct cg_mediator;
/* The same for modes, owners and times in the full tier, where names are protected. */
bool cg_broker_attributes(struct cg_mediator *m, struct cg_notify *n, const struct seccomp_notif *call);
/*
 * In the full tier where none are, and mounts decide what may be changed: a handler of notify.c for
 * chmod() and its kin. Answers.
 */
void cg_broker_mode(struct cg_notify *n, const struct seccomp_notif *call);

#endif
