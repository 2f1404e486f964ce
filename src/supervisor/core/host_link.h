/* Hosts and their connections; messages to them. */
#pragma once

#include <jansson.h>
#include "base/wire.h"
#include "base/zlink.h"
#include "supervisor/core/sup.h"

/* A host with more on their way loses the oldest, which are probably those of ended sessions. */
#define CG_HOST_SOCKETS 256

/* A connection of the host wire. */
struct hostlink {
        struct cg_zlink link;
        LIST_ENTRY(hostlink) entry;
        struct sup *sup;
        struct host *host; /* NULL: before HELLO, or the host has ended */
};

struct host {
        uint64_t number; /* never used again */
        pid_t pid;       /* of the process that connected */
        struct sup *sup;
        LIST_ENTRY(host) entry;
        struct watch lifeline;
        char token[33];
        char place[101], approver[101]; /* of HELLO: where and under what name its user decides */
        bool waits_for_events;          /* it is told once about the next one */
        uint64_t events_from;           /* the number of the last event when it began to read them */
        bool lists_approvals;           /* it is told once when the list that it got has changed */
        struct hostlink *link;          /* NULL: no HELLO yet, or the host has closed the connection */
        /* From the lifeline, for EXEC that are still to come. */
        struct {
                uint64_t number;
                int fd;
        } sockets[CG_HOST_SOCKETS];
        size_t n_sockets;
};

/* Sends to one host (takes @body). A host that has ended is no error: its lifeline reports it. */
void cg_sup_host_send(struct host *h, const struct cg_out *out, json_t *body);
/* The same with the frames of @m, which are moved out of it. */
void cg_sup_host_forward(struct host *h, const struct cg_out *out, struct cg_msg *m);
/* Sends FAILED for @request. */
void cg_sup_host_failed(struct host *h, uint64_t session, uint64_t request, const struct cg_err *err);
/* Takes the sockets that the host sent on its lifeline. False: it ended, or sent something else. */
bool cg_sup_host_take_sockets(struct host *h);
/* The socket with that number (returns), or -1; those with lower ones are closed. */
int cg_sup_host_socket(struct host *h, uint64_t number);
/* NULL: it has ended. */
struct host *cg_sup_host_by_number(const struct sup *s, uint64_t number);
/* @text as a JSON string. Bytes that are not UTF-8, such as of a cut character, become "?". */
json_t *cg_sup_text_json(const char *text);
