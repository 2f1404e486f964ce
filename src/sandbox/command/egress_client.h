/*
 * A command's connection to its egress proxy: listens at the proxy's ports, starts the proxy at the
 * first connection, reports what it denies, and passes its questions to the caller. Part of the
 * keeper.
 */
#pragma once

#include <poll.h>
#include "sandbox/command/denial_log.h"

#define CG_EGRESS_CLIENT_FDS 3

struct cg_egress;

struct cg_egress_client {
        int ports[2]; /* listening sockets, until the proxy runs; then -1 */
        struct cg_egress *egress;
        json_t *policy;
        int secrets;                   /* for the proxy (cg_masks_secrets()); -1: none */
        struct cg_denial_log *denials; /* gets the denials (borrowed) */
        /* stream socket for questions, one JSON object a line (borrowed); -1: nobody is asked */
        int ask_fd;
};

/* @ports: two listening sockets; takes them, @policy and @secrets. Borrows @denials. */
void cg_egress_client_init(struct cg_egress_client *c, const int ports[2], json_t *policy, int secrets,
                           int ask_fd, struct cg_denial_log *denials);
void cg_egress_client_fini(struct cg_egress_client *c);

/* Descriptors to wait for; -1 where there is none. */
void cg_egress_client_poll(const struct cg_egress_client *c, struct pollfd fds[CG_EGRESS_CLIENT_FDS]);
/* After poll(2). Errors go to standard error: then nothing inside reaches the network. */
void cg_egress_client_dispatch(struct cg_egress_client *c, const struct pollfd fds[CG_EGRESS_CLIENT_FDS]);
/* Handles the events that the proxy has sent so far. */
void cg_egress_client_read_events(struct cg_egress_client *c);
/* True when @line is the answer to a question, which goes to the proxy. */
bool cg_egress_client_answer(struct cg_egress_client *c, const char *line, size_t len);
/* From now on hosts on no list are refused, open questions included. */
void cg_egress_client_stop_asking(struct cg_egress_client *c);
/* Replaces the policy (takes). */
void cg_egress_client_change(struct cg_egress_client *c, json_t *policy);
