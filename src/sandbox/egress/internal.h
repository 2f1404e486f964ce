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
 * They speak in datagrams of one size over a SOCK_SEQPACKET pair; the decider hands connected
 * sockets over. Neither trusts a text to be terminated. A relay that lies gains nothing that the
 * policy does not allow anyway.
 */
#ifndef CG_SANDBOX_EGRESS_INTERNAL_H
#define CG_SANDBOX_EGRESS_INTERNAL_H

#include <stdbool.h>
#include <stdint.h>
#include "base/err.h"
#include "sandbox/egress/domain.h"
#include "sandbox/egress/policy.h"

#define EG_BOXES_MAX     4096
#define EG_LISTENERS_MAX 4

enum eg_type {
        /*
         * to the relay: a sandbox, its options, its listeners as descriptors; to the injector: its
         * secrets
         */
        EG_BOX_OPEN = 1,
        EG_BOX_OPTIONS, /* to the relay: they have changed */
        EG_BOX_CLOSE,   /* to both */
        /* to the decider, once, first: the other has given up what it does not need */
        EG_READY,
        /*
         * to the decider: may this connection be made? Exactly one EG_ANSWER follows, unless
         * cancelled
         */
        EG_ASK,
        EG_CANCEL, /* to the decider: the client has gone */
        EG_NOTE,   /* to the decider: something was refused without asking */
        EG_ANSWER, /* to the relay: with a connected socket when it is EG_CONNECTED */
        EG_INJECT, /* to the injector: the relay's socket and the server's; @creds */
};

enum eg_kind { EG_HTTP, EG_CONNECT, EG_SOCKS, EG_RAW_HTTP, EG_RAW_SOCKS, EG_KINDS };

enum eg_result {
        EG_CONNECTED,       /* to the host itself */
        EG_CONNECTED_PROXY, /* to another proxy, which has to be told where to */
        EG_DENIED,          /* by name */
        EG_DENIED_ADDRESS,  /* by address */
        EG_DENIED_TUNNEL,   /* because it is a tunnel */
        EG_UNREACHABLE,
};

struct eg_msg {
        uint32_t type;
        uint32_t box;
        uint32_t id; /* of the question: the relay's number for the connection */
        uint16_t port;
        uint8_t kind;
        uint8_t result;
        uint32_t head_ms, idle_ms, connections; /* of a box */
        uint8_t raw_http, raw_socks, require_host_match;
        /* EG_ANSWER: a body may change its length on the way */
        uint8_t resized;
        /* EG_INJECT: the credentials that this server may have */
        uint8_t creds[CG_POLICY_CREDS_MAX / 8];
        char host[CG_HOST_MAX + 1];
        char text[1100];  /* why; of a box: fields that responses lose */
        char extra[1100]; /* how to allow it; of EG_CONNECTED_PROXY: credentials */
};

_Static_assert(sizeof(((struct eg_msg *)0)->text) > CG_POLICY_STRIP_MAX, "names of fields fit");

/* Text from a message of the other process, which may have forgotten the NUL. */
void eg_terminate(struct eg_msg *m);
/* 0; CG_TIMEOUT when the socket is full; negative. @fd: -1 none. */
int eg_send(int sock, const struct eg_msg *m, const int *fds, size_t n_fds, struct cg_err *err);
/* 0; CG_TIMEOUT when nothing is there; CG_CLOSED; negative. *n_fds: in, room. */
int eg_recv(int sock, struct eg_msg *m, int *fds, size_t *n_fds, struct cg_err *err);

/* lock.c: before any event loop is made, in whoever makes them. */
int eg_lock_io_uring(struct cg_err *err);
/*
 * lock.c: gives everything up that the process does not need, in order. *layers: names of what
 * holds, space between.
 */
int eg_lock_relay(struct cg_err *err);
int eg_lock_injector(struct cg_err *err);
int eg_lock_doors(struct cg_err *err);
int eg_lock_decider(char *layers, size_t size, struct cg_err *err);

/* relay.c, inject.c, decider.c: run until the other side is gone; the exit status. */
int eg_relay_run(int sock);
int eg_inject_run(int sock);
int eg_decider_run(int control, int relay, int injector);

/* doors.c: `cellgate-egress --doors`, the outer side of what doors.h says. */
int eg_doors_main(int argc, char **argv);

/*
 * connect.c: `cellgate-egress --connect PROXY HOST PORT`, for ssh's ProxyCommand inside a sandbox.
 */
int eg_connect_main(const char *proxy, const char *host, const char *port);

#endif
