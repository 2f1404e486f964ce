/*
 * One of the two sockets of a connection, and its place in a loop. For the parts of
 * cellgate-egress.
 */
#ifndef CG_SANDBOX_EGRESS_END_H
#define CG_SANDBOX_EGRESS_END_H

#include <uv.h>

struct eg_end {
        uv_poll_t poll; /* its data: this */
        uv_poll_cb on;
        /* the connection; NULL: it has gone, and this waits for the loop to free it */
        void *owner;
        int fd;
        int events; /* what is waited for; 0 after an error, when the loop has let go of it */
};

/* Takes @fd, also when it fails: NULL. Waits for nothing yet. */
struct eg_end *eg_end_new(uv_loop_t *loop, int fd, void *owner, uv_poll_cb on);
/* NULL: nothing to do. */
void eg_end_watch(struct eg_end *e, int events);
/* Closes the socket; freed by the loop, later. Returns NULL; @e may be NULL. */
struct eg_end *eg_end_close(struct eg_end *e);

#endif
