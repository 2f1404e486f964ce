/* A run of cellgate-search beside the event loop. */
#pragma once

#include "base/buf.h"
#include "base/proc.h"
#include "supervisor/core/sup.h"

/* Embedded by its owner. */
struct search_run {
        void *data;                                                   /* the owner's */
        void (*on_answer)(struct search_run *, const json_t *answer); /* NULL: there is none */
        void (*on_closed)(struct search_run *);                       /* it may be freed */
        struct cg_proc proc;
        struct watch output;
        uv_timer_t deadline;
        unsigned open; /* of these two, while they are being closed */
        struct cg_buf answer;
};

/*
 * Starts it with @request (borrows); on_answer() is called once, within @timeout_ms, unless
 * cg_sup_search_close() comes first.
 */
int cg_sup_search_start(struct sup *s, struct search_run *run, const json_t *request, int64_t timeout_ms,
                        struct cg_err *err);
/* Ends it; on_closed() follows from the loop. */
void cg_sup_search_close(struct search_run *run);
