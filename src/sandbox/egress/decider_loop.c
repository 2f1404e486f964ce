/* The decider's poll set, its messages to the host and to the two other processes, its end. */
#include "sandbox/egress/decider_int.h"

#include <poll.h>

#include "base/fd.h"

#define CONTROL_HIGH (256u << 10) /* the host does not read: no more questions are taken */

void cg_decider_end(struct decider *d, int status)
{
        if (!d->ended) {
                d->ended = true;
                d->status = status;
        }
        uv_stop(&d->loop);
}

void cg_decider_send_host(struct decider *d, json_t *message)
{
        struct cg_err err;

        if (d->ended)
                json_decref(message);
        else if (cg_chan_send(&d->chan, message, &err) < 0)
                cg_decider_end(d, err.sys_errno == EPIPE || err.sys_errno == ECONNRESET
                                          ? 0
                                          : 1); /* the host has gone: not a failure */
}

/* Rare and small: both read all the time, so waiting for room is waiting for a moment. */
static int send_part(int sock, const char *name, const struct cg_egress_msg *m, const int *fds, size_t n,
                     struct cg_err *err)
{
        int r;

        while ((r = cg_egress_msg_send(sock, m, fds, n, err)) == CG_TIMEOUT) {
                r = cg_wait_fd(sock, POLLOUT, 5000, err);
                if (r != 0)
                        return cg_fail(err, CG_E_TIMEDOUT, "the %s does not read", name);
        }
        return r;
}

int cg_decider_send_relay(struct decider *d, const struct cg_egress_msg *m, const int *fds, size_t n,
                          struct cg_err *err)
{
        return send_part(d->relay, "relay", m, fds, n, err);
}

int cg_decider_send_injector(struct decider *d, const struct cg_egress_msg *m, const int *fds, size_t n,
                             struct cg_err *err)
{
        return send_part(d->injector, "injector", m, fds, n, err);
}

bool cg_decider_host_is_slow(const struct decider *d)
{
        return d->chan.out.len > CONTROL_HIGH;
}

void cg_decider_watch(struct decider *d)
{
        int control = UV_READABLE | (d->chan.out.len ? UV_WRITABLE : 0);
        int relay = cg_decider_host_is_slow(d) ? 0 : UV_READABLE;
        const struct job *j;

        LIST_FOREACH(j, &d->jobs, entry)
                if (j->state == ANSWERING)
                        relay |= UV_WRITABLE;
        if (control != d->control_events)
                uv_poll_start(&d->control_poll, control, d->on_control);
        /* Without other events, the end of the relay is still reported. */
        if (relay != d->relay_events)
                uv_poll_start(&d->relay_poll, relay ?: UV_DISCONNECT, d->on_relay);
        d->control_events = control;
        d->relay_events = relay;
}
