/*
 * Reports of denials, for people and agents. Programs retry, and code in a kernel is hostile: so
 * each denial is reported once for a cell, and at most CG_DENIAL_REPORTS_MAX of them.
 */
#ifndef CG_CLI_COMMON_DENIALS_H
#define CG_CLI_COMMON_DENIALS_H

#include <stdbool.h>
#include "base/buf.h"
#include "base/err.h"
#include "cellgate.h"

#define CG_DENIAL_REPORTS_MAX 8

struct cg_denial_reports {
        char *reported[CG_DENIAL_REPORTS_MAX];
        size_t n;
        bool full; /* and that was reported */
};

/* Call at the end of a cell. */
void cg_denial_reports_clear(struct cg_denial_reports *d);

/*
 * Appends the report of a DENIED event, a sentence without line end; nothing where it was reported
 * already.
 */
int cg_denial_reports_add(struct cg_denial_reports *d, const struct cg_event *e, struct cg_buf *b,
                          struct cg_err *err);

/*
 * Appends the other side of a connection, from the JSON of an EGRESS_REQUEST or DENIED:
 * "example.org:443 (https)" or "127.0.0.1:80 (http, a loopback address)"; rendered.
 */
int cg_connection_text(const char *json, struct cg_buf *b, struct cg_err *err);

#endif
