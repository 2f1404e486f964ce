/* Texts of events for people and agents: files and costs of a cell, denials of the sandbox. */
#pragma once

#include <jansson.h>
#include "base/buf.h"
#include "cellgate.h"

/*
 * Appends a line "PREFIX PATH (N bytes)" for each file that a RESULT names, and why some are not
 * named; nothing where none is. At most 50, rendered, which fit into 64 KiB. Files that the
 * text @listed (NULL: none) has as "(PATH)" are left out.
 */
void cg_artifacts_text(const struct cg_event *e, const char *prefix, const char *listed, struct cg_buf *b);

/* The known costs of a RESULT, as in struct cg_costs (returns). NULL: not run, or no memory. */
json_t *cg_costs_object(const struct cg_event *e);

/*
 * Programs retry, and code in a kernel is hostile: so each denial is reported once for a cell, and
 * at most CG_DENIAL_REPORTS_MAX of them.
 */
#define CG_DENIAL_REPORTS_MAX 8

struct cg_denial_reports {
        char *reported[CG_DENIAL_REPORTS_MAX];
        size_t n;
        bool full; /* and that was reported */
};

/* Call at the end of a cell. */
void cg_denial_reports_clear(struct cg_denial_reports *d);

/* Appends the report of a DENIED event, a sentence without line end, unless it was reported. */
void cg_denial_reports_add(struct cg_denial_reports *d, const struct cg_event *e, struct cg_buf *b);

/*
 * Appends the other side of a connection, from the JSON of an EGRESS_REQUEST or DENIED:
 * "example.org:443 (https)" or "127.0.0.1:80 (http, a loopback address)"; rendered.
 */
void cg_connection_text(const char *json, struct cg_buf *b);
