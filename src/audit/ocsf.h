/* Records as events of the Open Cybersecurity Schema Framework. */
#pragma once

#include <jansson.h>
#include "audit/log.h"

/* Returns; NULL: the record is no text. @body: its body (borrows). */
json_t *cg_audit_ocsf(const struct cg_audit_record *r, json_t *body);
