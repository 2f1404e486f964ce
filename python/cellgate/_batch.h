/*
 * The binding's own functions beside cellgate.h: they read several events, with all members, in one
 * call. A call from Python releases and takes the interpreter's lock, which costs more than what
 * most of them do.
 */
#ifndef CELLGATE_BATCH_H
#define CELLGATE_BATCH_H

#include <cellgate.h>

/* An event with the results of cg_event_cell(), cg_event_text() and so on, which it owns. */
struct cg_batch_event {
        struct cg_event *event;
        int type, status, foreign, is_stderr, refused;
        uint64_t cell, approval;
        int64_t execution_count;
        const char *text, *json, *arguments, *server, *tool, *method;
        size_t text_len, json_len, arguments_len, n_buffers;
        size_t bytes; /* what it takes in a queue, about */
};

/* Begins as zeros; Python counts `used` up. */
struct cg_batch {
        int n, used;
        struct cg_batch_event events[32];
};

/* As cg_session_next_event(), for the first event; those that are there already follow it. The batch is
 * empty before the call. */
int cg_batch_read(struct cg_session *s, int64_t timeout_ms, struct cg_batch *batch, struct cg_err *err);

/* Frees the events. The batch is empty then. */
void cg_batch_clear(struct cg_batch *batch);

#endif
