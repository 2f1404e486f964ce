/*
 * Processor and memory use of the kernel's processes and the machine, read from /proc: the content
 * of a usage_reply. I/O thread; needs no GIL.
 */
#pragma once

#include "base/buf.h"

/* Values of the last call, which processor use is relative to; zero: the kernel's start. */
struct cg_usage {
        int64_t at_ms;
        uint64_t own_ticks;
        uint64_t host_busy, host_all;
};

/* Appends one JSON object, without the values that /proc does not have. Negative: no memory. */
int cg_usage_json(struct cg_usage *last, struct cg_buf *b, struct cg_err *err);
