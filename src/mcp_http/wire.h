/*
 * What the monitor and the front of cellgate-mcp-http send each other: datagrams of a
 * SOCK_SEQPACKET pair, between two processes of one program. The front is not trusted: the monitor
 * checks type and number, and needs nothing else of it.
 */
#ifndef CG_MCP_HTTP_WIRE_H
#define CG_MCP_HTTP_WIRE_H

#include <stdbool.h>
#include <stdint.h>
#include "base/host.h"

/* The control socket in the front. */
#define CG_HF_CONTROL 3
/* The id of a session: 128 random bits in hexadecimal. */
#define CG_HF_SESSION     32
#define CG_HF_MAX_TOKEN   256
#define CG_HF_MAX_ORIGINS 16
#define CG_HF_MAX_ORIGIN  (CG_AUTHORITY_MAX + 8)
#define CG_HF_MAX_WHY     512
/* PEM: a chain of certificates, and a key. */
#define CG_HF_MAX_CERT (64 << 10)
#define CG_HF_MAX_KEY  (16 << 10)

/* To the front, once, first, with the listening socket. */
struct hf_setup {
        bool is_unix;
        char host[CG_HOST_MAX + 1]; /* bound to; "" with is_unix */
        char token[CG_HF_MAX_TOKEN + 1];
        char origins[CG_HF_MAX_ORIGINS][CG_HF_MAX_ORIGIN + 1]; /* allowed beside loopback names */
        uint32_t n_origins, max_sessions;
        int64_t idle_ms;
        char tls_cert[CG_HF_MAX_CERT], tls_key[CG_HF_MAX_KEY]; /* "": no TLS */
};

enum hf_type {
        HF_OPEN = 1, /* to the monitor: start a session process */
        HF_CLOSE,    /* to the monitor: end it */
        HF_OPENED,   /* to the front, with its socket */
        HF_ENDED,    /* to the front: it has ended, or was not started */
};

struct hf_msg {
        uint32_t type;
        uint64_t session; /* the front's number */
        char why[CG_HF_MAX_WHY];
};

#endif
