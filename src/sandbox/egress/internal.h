/*
 * Inside cellgate-egress. Three processes, so that the one that reads the sandbox's bytes can open
 * nothing and knows no secret:
 *
 *      relay      accepts, parses HTTP and SOCKS, copies bytes. Its system calls: read, write,
 *                 splice, accept, epoll
 *      decider    knows the policies, asks the host, resolves names, vets addresses, connects. It
 *                 sees no byte of the sandbox but host names that are canonical already, which it
 *                 parses again
 *      injector   puts real values in the place of masked credentials, between the relay and a
 *                 server that may have them. It alone has them; of what goes through it understands
 *                 where a head ends, and the chunks that the relay writes
 *
 * They exchange datagrams of one size over a SOCK_SEQPACKET pair; the decider hands connected
 * sockets over. Neither trusts a text to be terminated. A compromised relay gains nothing that the
 * policy does not allow anyway.
 */
#pragma once

#include "sandbox/settings/domain.h"
#include "sandbox/egress/lock.h"
#include "sandbox/egress/policy.h"

#define CG_EGRESS_BOXES_MAX     4096
#define CG_EGRESS_LISTENERS_MAX 4

enum cg_egress_type {
        /* to the relay: a sandbox, options, listeners as descriptors; to the injector: secrets */
        CG_EGRESS_BOX_OPEN = 1,
        CG_EGRESS_BOX_OPTIONS, /* to the relay: they have changed */
        CG_EGRESS_BOX_CLOSE,   /* to both */
        /* to the decider, once, first: the other has given up what it does not need */
        CG_EGRESS_READY,
        /*
         * to the decider: may this connection be made? Exactly one CG_EGRESS_ANSWER follows, unless
         * cancelled
         */
        CG_EGRESS_ASK,
        CG_EGRESS_CANCEL, /* to the decider: the client has gone */
        CG_EGRESS_NOTE,   /* to the decider: something was refused without asking */
        CG_EGRESS_ANSWER, /* to the relay: with a connected socket when it is CG_EGRESS_CONNECTED */
        CG_EGRESS_INJECT, /* to the injector: the relay's socket and the server's; @creds */
};

enum cg_egress_kind {
        CG_EGRESS_HTTP,
        CG_EGRESS_CONNECT,
        CG_EGRESS_SOCKS,
        CG_EGRESS_RAW_HTTP,
        CG_EGRESS_RAW_SOCKS,
        CG_EGRESS_KINDS
};

enum cg_egress_result {
        CG_EGRESS_CONNECTED,       /* to the host itself */
        CG_EGRESS_CONNECTED_PROXY, /* to another proxy, which needs the destination */
        CG_EGRESS_DENIED,          /* by name */
        CG_EGRESS_DENIED_ADDRESS,  /* by address */
        CG_EGRESS_DENIED_TUNNEL,   /* because it is a tunnel */
        CG_EGRESS_UNREACHABLE,
};

struct cg_egress_msg {
        uint32_t type;
        uint32_t box;
        uint32_t id; /* of the question: the relay's number for the connection */
        uint16_t port;
        uint8_t kind;
        uint8_t result;
        uint32_t head_ms, idle_ms, connections; /* of a box */
        uint8_t raw_http, raw_socks, require_host_match;
        /* CG_EGRESS_ANSWER: a body may change its length on the way */
        uint8_t resized;
        /* CG_EGRESS_INJECT: the credentials that this server may have */
        uint8_t creds[CG_POLICY_CREDS_MAX / 8];
        char host[CG_HOST_MAX + 1];
        char text[1100];  /* why; of a box: fields that responses lose */
        char extra[1100]; /* how to allow it; of CG_EGRESS_CONNECTED_PROXY: credentials */
};

_Static_assert(sizeof(((struct cg_egress_msg *)0)->text) > CG_POLICY_STRIP_MAX, "names of fields fit");

/* 0; CG_TIMEOUT when the socket is full; negative. @fd: -1 none. */
int cg_egress_msg_send(int sock, const struct cg_egress_msg *m, const int *fds, size_t n_fds,
                       struct cg_err *err);
/* 0; CG_TIMEOUT when nothing is there; CG_CLOSED; negative. *n_fds: in, room. */
int cg_egress_msg_recv(int sock, struct cg_egress_msg *m, int *fds, size_t *n_fds, struct cg_err *err);

/* relay.c, inject.c, decider.c: run until the other side has ended; the exit status. */
int cg_relay_run(int sock);
int cg_inject_run(int sock);
int cg_decider_run(int control, int relay, int injector);

/* doors.c: `cellgate-egress --doors`, the outer side of doors (doors.h). */
int cg_doors_main(int argc, char **argv);

/* connect.c: `cellgate-egress --connect PROXY HOST PORT`, for ssh's ProxyCommand in a sandbox. */
int cg_connect_main(const char *proxy, const char *host, const char *port);
