/*
 * A stream of server-sent events (WHATWG HTML, "Server-sent events"), byte by byte as it arrives.
 * Foreign bytes: everything has a limit.
 */
#pragma once

#include "base/buf.h"

/* Longest name of a field and of an event; longer ones are of no use to anybody here. */
#define CG_SSE_MAX_NAME 32

struct cg_sse {
        struct cg_buf data; /* of the event, each line with its LF */
        size_t max;
        struct cg_buf id;      /* of the last event that has ended */
        struct cg_buf next_id; /* of the event that is being read */
        struct cg_buf line_id; /* the value of an "id" field that is being read */
        char name[CG_SSE_MAX_NAME + 1], type[CG_SSE_MAX_NAME + 1];
        size_t name_len, type_len;
        unsigned at;    /* where in a line: private to sse.c */
        unsigned field; /* which one: private to sse.c */
        unsigned bom;   /* bytes of a byte order mark seen at the start */
        bool after_cr;  /* an LF belongs to the CR before it */
        bool too_long;  /* the event's data are over the limit */
        bool has_data, id_bad;
        int64_t retry, retry_ms; /* digits being read; the last value, -1: none */
};

struct cg_sse_event {
        const char *type; /* "message" where the stream names none */
        const char *data; /* NUL-terminated behind len */
        size_t len;
};

/* @max: bytes of one event's data. */
void cg_sse_init(struct cg_sse *s, size_t max);
void cg_sse_fini(struct cg_sse *s);
/*
 * Reads from @p; *used is set always. 1: *ret is an event, valid until the next call; 0: all bytes
 * are used; CG_E_LIMIT: an event was over the limit and is left out, the stream goes on.
 */
int cg_sse_read(struct cg_sse *s, const char *p, size_t len, size_t *used, struct cg_sse_event *ret,
                struct cg_err *err);
/* The stream is taken up again: forgets what is unfinished, but not the last id and "retry". */
void cg_sse_restart(struct cg_sse *s);
/* Frees the memory of a large event, which must not be in use any more. */
void cg_sse_shrink(struct cg_sse *s);
/* The last event's id, or NULL where the stream has sent none, or an empty one. */
const char *cg_sse_last_id(const struct cg_sse *s);
