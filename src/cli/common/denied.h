/*
 * Reports of what the sandbox refused, for people and agents. Programs retry, and code in a kernel
 * is hostile: so each refusal is reported once for a cell, and at most CG_DENIED_MAX of them.
 */
#ifndef CG_CLI_COMMON_DENIED_H
#define CG_CLI_COMMON_DENIED_H

#include <stdbool.h>
#include "base/buf.h"
#include "base/err.h"
#include "cellgate.h"

#define CG_DENIED_MAX 8

struct cg_denied {
        char *reported[CG_DENIED_MAX];
        size_t n;
        bool full; /* and that was reported */
};

/* Call at the end of a cell. */
void cg_denied_forget(struct cg_denied *d);

/*
 * Appends the report of a DENIED event, a sentence without line end; nothing where it was reported
 * already.
 */
int cg_denied_report(struct cg_denied *d, const struct cg_event *e, struct cg_buf *b, struct cg_err *err);

/*
 * Appends the other side of a connection, from the JSON of an EGRESS_REQUEST or DENIED:
 * "example.org:443 (https)" or "127.0.0.1:80 (http, a loopback address)"; rendered.
 */
int cg_connection_text(const char *json, struct cg_buf *b, struct cg_err *err);

#endif
