/* The costs of a cell as JSON. */
#ifndef CG_CLI_COMMON_COSTS_H
#define CG_CLI_COMMON_COSTS_H

#include <jansson.h>
#include "cellgate.h"

/*
 * The known costs of a RESULT, named as in struct cg_costs (returns). NULL: the cell has not run,
 * or no memory.
 */
json_t *cg_costs_object(const struct cg_event *e);

#endif
