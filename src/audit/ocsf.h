/* Records as events of the Open Cybersecurity Schema Framework. */
#ifndef CG_AUDIT_OCSF_H
#define CG_AUDIT_OCSF_H

#include <jansson.h>
#include "audit/log.h"

/* Returns; NULL: the record is no text. @body: its body (borrows). */
json_t *cg_audit_ocsf(const struct cg_audit_record *r, json_t *body);

#endif
