/*
 * Jupyter messages: frames, signatures, and the checks before a message is accepted. Runs in
 * `cellgate jupyter`. Whoever reaches the sockets can send anything; only who has the connection
 * file's key is a client.
 */
#pragma once

#include <jansson.h>
#include <nettle/hmac.h>
#include "base/buf.h"
#include "base/json_text.h"
#include "jupyter/peers.h"

#define CG_JUPYTER_PROTOCOL "5.5"
/* Identities before the delimiter: one for each ROUTER between client and us. */
#define CG_JMSG_MAX_IDS 16
/* Limit of buffers after the content: as many as one request to the kernel can have. */
#define CG_JMSG_MAX_BUFFERS 63
#define CG_JMSG_MAX_FRAMES  (CG_JMSG_MAX_IDS + 6 + CG_JMSG_MAX_BUFFERS)
/* All frames together. A notebook's widget state may have some MB. */
#define CG_JMSG_MAX_BYTES  ((size_t)64 << 20)
#define CG_JMSG_MAX_HEADER ((size_t)64 << 10)
/* Messages whose repetition is noticed. */
#define CG_JMSG_REPLAY 65536u

/* ------------------------------------------------------------------ signatures */

struct cg_jreplay;

struct cg_jsign {
        bool on; /* false: the connection file's key is empty */
        struct hmac_sha256_ctx keyed;
        struct cg_jreplay *seen;
};

#define CG_JSIGN_HEX 64u

/* With an empty key nothing is signed and every message is accepted, as the protocol requires. */
int cg_jsign_init(struct cg_jsign *s, const char *key, size_t len, struct cg_err *err);
void cg_jsign_fini(struct cg_jsign *s);
/* Signature over header, parent header, metadata and content, in hex; "": nothing is signed. */
void cg_jsign_make(const struct cg_jsign *s, const struct cg_slice parts[4], char hex[CG_JSIGN_HEX + 1]);

/* ------------------------------------------------------------------ what comes in */

/* An accepted message; all spans point into its frames. */
struct cg_jparsed {
        size_t n_ids;
        struct cg_slice header, parent, metadata, content;
        size_t first_buffer, n_buffers;   /* frames */
        json_t *fields;                   /* the header */
        const char *type, *id, *subshell; /* in it; subshell is NULL where the header has none */
        /* Why only an error can answer it; "": it can be handled. Unreadable parts are {} then. */
        char bad[300];
};

/*
 * Looks at a message: number of frames, delimiter, sizes, signature, repetition; only then grammar,
 * depth and header. 0; CG_E_PROTO, CG_E_LIMIT or CG_E_PARSE with the reason, and nothing to free:
 * it cannot be answered. Else: cg_jparsed_fini().
 */
int cg_jmsg_parse(struct cg_jsign *s, const struct cg_slice *frames, size_t n, struct cg_jparsed *ret,
                  struct cg_err *err);
void cg_jparsed_fini(struct cg_jparsed *m);

/* A message with its frames. */
struct cg_jmsg {
        struct cg_jparsed m;
        zmq_msg_t *frames;
        size_t n_frames, bytes;
};

/*
 * Receives one message without blocking. 0; CG_TIMEOUT when none waits; negative: it was read and
 * dropped, with the reason in *err. *ret: cg_jmsg_free().
 */
int cg_jmsg_recv(void *sock, struct cg_jsign *s, struct cg_peers *peers, struct cg_jmsg **ret,
                 struct cg_err *err);
struct cg_jmsg *cg_jmsg_free(struct cg_jmsg *m);
struct cg_slice cg_jmsg_frame(const struct cg_jmsg *m, size_t i);

/* ------------------------------------------------------------------ what goes out */

/* Our identity in the headers that we write. */
struct cg_jidentity {
        char session[33]; /* new for each kernel process, so that clients notice */
        uint64_t count;
        char id_prefix[56]; /* of every msg_id: session and process */
        char middle[160];   /* the part of every header between its type and its date */
        char date[40];      /* of the second that was formatted last */
        int64_t date_s;
};

int cg_jidentity_init(struct cg_jidentity *id, struct cg_err *err);

struct cg_jout {
        const char *type;
        const struct cg_slice *ids; /* identities, or one topic */
        size_t n_ids;
        struct cg_slice parent;   /* header of the request, byte for byte; empty for none */
        struct cg_slice metadata; /* empty: {} */
        struct cg_slice content;
        const struct cg_slice *buffers;
        size_t n_buffers;
        /*
         * The content and the buffers are sent without copying: release(owner) is called once,
         * later, in any thread.
         */
        void (*release)(void *owner);
        void *owner;
};

/* Sends; takes out->owner, even when it fails. *msg_id (may be NULL): room for CG_JMSG_ID bytes. */
#define CG_JMSG_ID 80
int cg_jmsg_send(void *sock, const struct cg_jsign *s, struct cg_jidentity *id, const struct cg_jout *out,
                 char *msg_id, struct cg_err *err);

/* UTC as the protocol wants it: 2026-11-21T03:10:00.123456Z. At least 40 bytes. */
void cg_jidentity_date(struct cg_jidentity *id, char *buf, size_t size);

/*
 * Appends @s, which is UTF-8, as a JSON string literal: fast, leaves all but controls, quotes and
 * backslashes as they are.
 */
void cg_json_quote_utf8(struct cg_buf *b, const char *s, size_t len);
/* The same without the quotes around it. */
void cg_json_escape_utf8(struct cg_buf *b, const char *s, size_t len);
