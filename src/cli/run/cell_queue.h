/* Cells that the host of `cellgate run --json` has sent and that have not run yet. */
#pragma once

#include <jansson.h>
#include <sys/queue.h>
#include "cli/run/cells.h"

/* Limits of queued cells and their bytes. A host that sends more gets an error, and may retry. */
#define CG_CELL_QUEUE_MAX   256u
#define CG_CELL_QUEUE_BYTES (64u << 20)
/* Bytes of an id that the host chose. */
#define CG_CELL_ID_MAX 256u

struct cg_queued_cell {
        TAILQ_ENTRY(cg_queued_cell) entry;
        struct cg_cell cell;
        char *id;           /* JSON text of the host's id; NULL for none */
        uint64_t line;      /* number of the host's line */
        bool stop_on_error; /* if it fails, the cells queued after it are dropped */
};

struct cg_cell_queue {
        TAILQ_HEAD(, cg_queued_cell) cells;
        size_t n, bytes;
};

void cg_cell_queue_init(struct cg_cell_queue *q);
void cg_cell_queue_fini(struct cg_cell_queue *q);

/*
 * Appends the cell that {"execute": @o} describes. CG_E_INVAL, CG_E_LIMIT or CG_E_NOMEM with what
 * is wrong; nothing is appended then.
 */
int cg_cell_queue_add(struct cg_cell_queue *q, const json_t *o, uint64_t line, struct cg_err *err);

/* Takes the first cell, or the one with @id, out of the queue. NULL: none. The caller frees it. */
struct cg_queued_cell *cg_cell_queue_take(struct cg_cell_queue *q, const char *id);
struct cg_queued_cell *cg_queued_cell_free(struct cg_queued_cell *c);

/* JSON text of an id (returns): a string of at most CG_CELL_ID_MAX bytes or an integer; or NULL. */
char *cg_cell_id(const json_t *id);
/* A "timeout" in seconds (0: no limit, at most ten years) as ms. @v NULL: *ret_ms stays. */
int cg_cell_timeout(const json_t *v, int64_t *ret_ms, struct cg_err *err);
