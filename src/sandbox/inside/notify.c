/* See notify.h. Runs in init; everything in a call comes from inside the sandbox. */
#include "sandbox/inside/notify.h"

#include <sys/ioctl.h>
#include <sys/syscall.h>

#include "base/fd.h"
#include "sandbox/inside/beside.h"
#include "sandbox/inside/broker.h"
#include "sandbox/inside/doors.h"
#include "sandbox/inside/exec.h"
#include "sandbox/inside/mediate.h"
#include "sandbox/inside/reply.h"
#include "sandbox/inside/watch.h"
#include "sandbox/setid.h"

/* Calls with a handler; every other is denied. */
static const struct {
        int nr;
        void (*handle)(struct cg_notify *n, const struct seccomp_notif *call);
} handlers[] = {
        { SYS_connect, cg_doors_connect },    { SYS_listen, cg_doors_listen },
#ifdef SYS_chmod
        { SYS_chmod, cg_broker_mode },
#endif
        { SYS_fchmod, cg_broker_mode },       { SYS_fchmodat, cg_broker_mode },
        { CG_SYS_FCHMODAT2, cg_broker_mode },
};

void cg_notify_init(struct cg_notify *n, int sock, int out, bool foreign_proc)
{
        *n = (struct cg_notify){ .sock = sock,
                                 .listener = -1,
                                 .out = out,
                                 .foreign_proc = foreign_proc,
                                 .tokens = CG_NOTIFY_BURST * 1000,
                                 .filled_ms = cg_now_ms() };
}

struct pollfd cg_notify_poll(const struct cg_notify *n)
{
        return (struct pollfd){ .fd = n->listener >= 0 ? n->listener : n->sock, .events = POLLIN };
}

static void take_call(struct cg_notify *n)
{
        union {
                struct seccomp_notif n;
                char room[512]; /* for fields of later kernels */
        } c;
        bool watched;

        memset(&c, 0, sizeof(c));
        if (ioctl(n->listener, SECCOMP_IOCTL_NOTIF_RECV, &c) < 0)
                return; /* the caller has been killed or interrupted */
        if (n->execs && (c.n.data.nr == SYS_execve || c.n.data.nr == SYS_execveat)) {
                cg_execs_call(n->execs, &c.n);
                return;
        }
        if (cg_beside_call(n, &c.n))
                return;
        if (n->broker && cg_broker_handle(n->broker, n, &c.n))
                return;
        if (n->watch_network && c.n.data.nr == SYS_connect) {
                cg_watch_connect(n, &c.n);
                return;
        }
        watched = n->watch && cg_watch_file(n, &c.n);
        if (n->mediator &&
            (cg_mediate_call(n->mediator, n, &c.n) || cg_broker_attributes(n->mediator, n, &c.n)))
                return;
        if (watched) {
                cg_reply_continue(n, &c.n);
                return;
        }
        for (size_t i = 0; i < CG_ARRAY_LEN(handlers); i++) {
                if (handlers[i].nr == c.n.data.nr) {
                        handlers[i].handle(n, &c.n);
                        return;
                }
        }
        cg_reply_deny(n, &c.n, EPERM, NULL);
}

/* Caller and init never run at once: waking on the same CPU is cheaper. Linux 6.6; optional. */
#ifndef SECCOMP_IOCTL_NOTIF_SET_FLAGS
#define SECCOMP_IOCTL_NOTIF_SET_FLAGS      SECCOMP_IOW(4, __u64)
#define SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP (1UL << 0)
#endif

static void close_listener(struct cg_notify *n)
{
        cg_closep_(&n->listener);
        while (n->n_pins)
                close(n->pins[--n->n_pins]);
}

void cg_notify_work(struct cg_notify *n, const struct pollfd *fd)
{
        size_t count = CG_MAX_FDS;
        int fds[CG_MAX_FDS];
        char byte = 0;
        bool got;

        if (!fd->revents)
                return;
        if (n->listener >= 0) {
                if (fd->revents & POLLIN)
                        take_call(n);
                else
                        close_listener(n); /* no process with the filter is left */
                return;
        }
        got = cg_recv_fds(n->sock, &byte, 1, fds, &count, NULL) == 1;
        if (got && byte == 'p') { /* the landlock tier's */
                for (size_t i = 0; i < count; i++)
                        if (n->n_pins < CG_NOTIFY_PINS)
                                n->pins[n->n_pins++] = fds[i];
                        else
                                close(fds[i]);
                return;
        }
        if (got && count == 1)
                n->listener = fds[0];
        else
                close_listener(n);
        if (n->listener >= 0)
                ioctl(n->listener, SECCOMP_IOCTL_NOTIF_SET_FLAGS, SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP);
        cg_closep_(&n->sock);
}
