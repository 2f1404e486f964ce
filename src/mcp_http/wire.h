/*
 * What the monitor and the front of cellgate-mcp-http send each other: datagrams of a
 * SOCK_SEQPACKET pair, between two processes of one program. The front is not trusted: the monitor
 * checks type and number, and needs nothing else of it.
 */
#pragma once

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/types.h>
#include "base/host.h"

/* The control socket in the front. */
#define CG_HF_CONTROL 3
/* The id of a session: 128 random bits in hexadecimal. */
#define CG_HF_SESSION     32
#define CG_HF_MAX_TOKEN   256
#define CG_HF_MAX_ORIGINS 16
#define CG_HF_MAX_ORIGIN  (CG_AUTHORITY_MAX + 8)
#define CG_HF_MAX_WHY     512
/* An access token of OAuth: the head of a request has 32 KiB. */
#define CG_HF_MAX_JWT   8192
#define CG_HF_MAX_URL   1024
#define CG_HF_MAX_SCOPE 1024
/*
 * A digest of the issuer and the subject of a token; zeros without OAuth. Its last bit is not of
 * the digest: it says that the owner decides about calls, and so runs no code.
 */
#define CG_HF_OWNER 32
static inline bool cg_hf_is_approver(const unsigned char owner[CG_HF_OWNER])
{
        return owner[CG_HF_OWNER - 1] & 1;
}
static inline void cg_hf_set_approver(unsigned char owner[CG_HF_OWNER], bool approver)
{
        owner[CG_HF_OWNER - 1] = (unsigned char)((owner[CG_HF_OWNER - 1] & ~1u) | approver);
}
#define CG_HF_METADATA_PLACE "/.well-known/oauth-protected-resource"
/* PEM: a chain of certificates, and a key. */
#define CG_HF_MAX_CERT (64 << 10)
#define CG_HF_MAX_KEY  (16 << 10)

/*
 * In the number of the session process for clients of the stateless era: their calls get a session
 * of Python each unless they name one. Numbers have 32 bits, the first digits of all ids that the
 * process gives to sessions.
 */
#define CG_HF_STATELESS UINT64_C(0x80000000)
/* In the number of one whose owner decides. */
#define CG_HF_APPROVER UINT64_C(0x40000000)

/* PEM. */
struct hf_tls {
        char cert[CG_HF_MAX_CERT], key[CG_HF_MAX_KEY];
};

/* To the front, once, first, with the listening socket. */
struct hf_setup {
        bool is_unix, sse;          /* sse: HTTP+SSE of 2024-11-05 as well */
        char tier[16];              /* of the sandboxes, for /health: "auto" if each session finds it */
        char host[CG_HOST_MAX + 1]; /* bound to; "" with is_unix */
        char public_host[CG_HOST_MAX + 1]; /* of --public-url */
        char token[CG_HF_MAX_TOKEN + 1];   /* "": OAuth, or a Unix socket */
        /* SHA-256 of the second token, which the front does not know; zeros: there is none */
        unsigned char approver[32];
        char challenge[2 * CG_HF_MAX_URL + CG_HF_MAX_SCOPE];    /* of responses with status 401 */
        char metadata[4 * CG_HF_MAX_URL + 2 * CG_HF_MAX_SCOPE]; /* "": no OAuth */
        char origins[CG_HF_MAX_ORIGINS][CG_HF_MAX_ORIGIN + 1];  /* allowed beside loopback names */
        uint32_t n_origins, max_sessions, max_per_client;
        int64_t idle_ms;
        struct hf_tls tls; /* texts "": no TLS */
};

/* To the verifier, once, first. */
struct hf_verifier_setup {
        char issuer[CG_HF_MAX_URL + 1], audience[CG_HF_MAX_URL + 1], scope[CG_HF_MAX_SCOPE + 1];
        char approver_scope[CG_HF_MAX_SCOPE + 1]; /* of tokens whose owner decides; "": there are none */
        char ca_file[PATH_MAX];                   /* "": the system's authorities */
};

enum hf_type {
        HF_OPEN = 1, /* to the monitor: start a session process */
        HF_CLOSE,    /* to the monitor: end it */
        HF_OPENED,   /* to the front, with its socket */
        HF_ENDED,    /* to the front: it has ended, or was not started */
        HF_CHECK,    /* to the monitor: is this token valid? And the answer */
        HF_TLS,      /* to the front: another certificate (struct hf_renewal) */
};

/* To the monitor, which passes HF_CHECK and HF_OPEN on to the verifier with OAuth. */
struct hf_ask {
        uint32_t type;
        uint64_t session;              /* the front's number; of HF_CHECK: of the request */
        char token[CG_HF_MAX_JWT + 1]; /* sent up to its NUL */
};
static inline size_t cg_hf_ask_size(const struct hf_ask *a)
{
        return offsetof(struct hf_ask, token) + strlen(a->token) + 1;
}
static inline bool cg_hf_ask_is_whole(const struct hf_ask *a, ssize_t n)
{
        size_t head = offsetof(struct hf_ask, token);

        return n > (ssize_t)head && memchr(a->token, 0, (size_t)n - head) == (const char *)a + n - 1;
}

/* To the front. */
struct hf_renewal {
        uint32_t type;
        struct hf_tls tls;
};

/* To the front, and from the verifier to the monitor: of the type that was asked. */
struct hf_msg {
        uint32_t type;
        uint64_t session;
        int32_t status; /* of HTTP, where a token is refused; else 0, and owner is whose it is */
        unsigned char owner[CG_HF_OWNER];
        int64_t valid_ms; /* from now on, without another check */
        int64_t life_ms;  /* until it expires */
        char why[CG_HF_MAX_WHY];
};
