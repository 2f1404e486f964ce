/*
 * Members of lines of `cellgate run --json` about events of a session (docs/cli-json.md).
 */
#ifndef CG_CLI_RUN_JSON_EVENT_H
#define CG_CLI_RUN_JSON_EVENT_H

#include "cellgate.h"
#include "cli/run/json_line.h"

/*
 * Members after type and cell; each type of event has its few. @question: the number of the last
 * question of input().
 */
void cg_json_add_event(struct cg_json_line *l, const struct cg_event *e, int64_t question);
/* The call that a question is about, as at its decision. */
void cg_json_add_call(struct cg_json_line *l, const struct cg_event *e);
/* The members of a result, whether the cell has run or was dropped from the queue. */
void cg_json_add_result(struct cg_json_line *l, enum cg_status status, int64_t execution_count, bool refused,
                        const char *text, size_t len);
/* Variables that the cell of this result has changed, where they were asked for. */
void cg_json_add_variables(struct cg_json_line *l, const struct cg_event *e);

#endif
