/* The supervisors that this user's commands share (struct cg_client_options, share). */
#pragma once

#include <jansson.h>
#include "base/buf.h"
#include "cellgate.h"

/* Calls @each for each folder, also of those that were killed; stops when it returns non-zero. */
int cg_supervisors(int (*each)(const char *address, void *data), void *data, struct cg_err *err);
/* Connects to the supervisor of that folder; one that hangs does not hold up the others. */
int cg_supervisor_open(const char *address, struct cg_client **ret, struct cg_err *err);

/* How many of this user's supervisors have no address; as far as /proc shows them. */
size_t cg_private_supervisors(void);
/* Appends "12 s", "5 min" or "3 h". */
void cg_add_duration(struct cg_buf *b, int64_t ms);

/* Parses the answer of a supervisor (returns; takes @text). NULL: nothing, or no JSON. */
json_t *cg_reply_json(char *text);
/* A member of it; 0 where it is absent. */
static inline long long cg_reply_number(const json_t *o, const char *key)
{
        return json_integer_value(json_object_get(o, key));
}
