/* Sockets in the loops of cellgate-egress. */
#include "sandbox/egress/endpoint.h"

#include <stdlib.h>
#include <unistd.h>

struct cg_endpoint *cg_endpoint_new(uv_loop_t *loop, int fd, void *owner, uv_poll_cb on)
{
        struct cg_endpoint *e = calloc(1, sizeof(*e));

        if (!e || uv_poll_init(loop, &e->poll, fd) < 0) {
                close(fd);
                free(e);
                return NULL;
        }
        e->poll.data = e;
        e->on = on;
        e->owner = owner;
        e->fd = fd;
        return e;
}

void cg_endpoint_watch(struct cg_endpoint *e, int events)
{
        if (!e || e->events == events)
                return;
        e->events = events;
        if (events)
                uv_poll_start(&e->poll, events, e->on);
        else
                uv_poll_stop(&e->poll);
}

static void on_closed(uv_handle_t *h)
{
        free(h->data);
}

struct cg_endpoint *cg_endpoint_close(struct cg_endpoint *e)
{
        if (!e)
                return NULL;
        e->owner = NULL;
        /* Out of the loop first: a descriptor closed while it is watched would still be watched. */
        uv_close((uv_handle_t *)&e->poll, on_closed);
        close(e->fd);
        return NULL;
}
