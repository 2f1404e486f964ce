/* Limits as JSON, for results and events. */
#pragma once

#include <jansson.h>
#include "sandbox/limit.h"

/*
 * {"memory": {"value": 512, "unit": "MiB", "by": "cgroup v1", "scope": "sandbox"}, ...}: those that
 * there are. NULL: no memory.
 */
json_t *cg_limits_json(const struct cg_sandbox_limits *l, const enum cg_limit_by by[CG_LIMITS]);

/*
 * The report that a limit was reached, in the format of denial.h: {"operation": "limit", "limit",
 * "value", "unit", "layer", "scope", "rule", "why", "how"}. @what: the consequence, such as "the
 * kernel was ended"; NULL: none. NULL: no memory.
 */
json_t *cg_limit_denial(const struct cg_sandbox_limits *l, enum cg_limit limit, enum cg_limit_said said,
                        enum cg_limit_by by, const char *what);
