/*
 * The broker, part of init and mostly of the landlock tier: executes system calls that Landlock
 * cannot decide and the filter therefore does not allow. No such call continues in the kernel: the
 * broker checks its own copy of the arguments and the file that they lead to, and executes the call
 * itself or refuses it. Later changes of the caller's memory have no effect.
 *
 *      chmod, chown, utime and variants     on files that the sandbox may write, because Landlock
 *                                           has no such right; also in the full tier if names are
 *                                           protected (mediate.h)
 *      chmod to set-group-ID                in both tiers: on folders only (setid.h)
 *      connect                              to the proxy's ports at 127.0.0.1: the socket is
 *                                           replaced by one that is connected to the proxy, so the
 *                                           host needs no listening port
 */
#pragma once

#include "sandbox/plan.h"

struct cg_broker {
        const struct cg_sandbox *sb;
        /* first of n_ports descriptors: sockets by which the proxy receives connections */
        int proxies;
};

struct cg_notify;
struct seccomp_notif;

/* True if the call is one of the broker's; the reply has been sent then. */
bool cg_broker_handle(const struct cg_broker *b, struct cg_notify *n, const struct seccomp_notif *call);
struct cg_mediator;
/* The same for modes in the full tier, if names are protected. */
bool cg_broker_attributes(struct cg_mediator *m, struct cg_notify *n, const struct seccomp_notif *call);
/*
 * Handler of notify.c for chmod() and its variants in the full tier, if names are not protected:
 * mounts decide what may be changed. Replies.
 */
void cg_broker_mode(struct cg_notify *n, const struct seccomp_notif *call);
