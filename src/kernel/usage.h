/*
 * What the kernel and its processes use, read from /proc: the content of a usage_reply. Needs no
 * GIL; the I/O thread's.
 */
#ifndef CG_KERNEL_USAGE_H
#define CG_KERNEL_USAGE_H

#include <stdint.h>
#include "base/buf.h"
#include "base/err.h"

/*
 * Of the last look: shares of the processors are those since then. Zeroed: since the kernel's
 * start.
 */
struct cg_usage {
        int64_t at_ms;
        uint64_t own_ticks;
        uint64_t host_busy, host_all;
};

/* Appends one JSON object. What /proc does not tell is left out. Negative: no memory. */
int cg_usage_json(struct cg_usage *last, struct cg_buf *b, struct cg_err *err);

#endif
