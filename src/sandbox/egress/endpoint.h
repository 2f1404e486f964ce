/* One of the two sockets of a connection, and its place in a loop. For parts of cellgate-egress. */
#pragma once

#include <uv.h>

struct cg_endpoint {
        uv_poll_t poll; /* its data: this */
        uv_poll_cb on;
        /* the connection; NULL: it has gone, and this waits for the loop to free it */
        void *owner;
        int fd;
        int events; /* what is waited for; 0 after an error, when the loop has let go of it */
};

/* Takes @fd, also when it fails: NULL. Waits for nothing yet. */
struct cg_endpoint *cg_endpoint_new(uv_loop_t *loop, int fd, void *owner, uv_poll_cb on);
/* NULL: nothing to do. */
void cg_endpoint_watch(struct cg_endpoint *e, int events);

/* Closes the socket; freed by the loop, later. Returns NULL; @e may be NULL. */
struct cg_endpoint *cg_endpoint_close(struct cg_endpoint *e);
