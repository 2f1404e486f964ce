/*
 * What the sandbox refused, and connections in words. Runs in the command `cellgate`; host names
 * come from the code inside.
 */
#include "cli/common/denied.h"

#include <stdlib.h>
#include <string.h>
#include "base/json.h"
#include "base/text.h"
#include "base/util.h"
#include "sandbox/command/denial.h"

#define MAX_LINE 8192u

int cg_connection_text(const char *json, struct cg_buf *b, struct cg_err *err)
{
        cg_auto_json json_t *o = json_loads(json, JSON_ALLOW_NUL, NULL);

        return cg_denial_connection(o, b, err);
}

void cg_denied_forget(struct cg_denied *d)
{
        while (d->n)
                free(d->reported[--d->n]);
        d->full = false;
}

/* Whether @line was reported already; marks it as reported. */
static bool was_reported(struct cg_denied *d, const char *line)
{
        for (size_t i = 0; i < d->n; i++)
                if (strcmp(d->reported[i], line) == 0)
                        return true;
        if (d->n < CG_DENIED_MAX && (d->reported[d->n] = strdup(line)))
                d->n++;
        return false;
}

/* The cell's own traceback explains these. */
static bool is_kernels(const struct cg_event *e)
{
        cg_auto_json json_t *o = json_loads(cg_event_json(e, NULL), JSON_ALLOW_NUL, NULL);
        const char *source = json_string_value(json_object_get(o, "source"));

        return source && strcmp(source, "kernel") == 0;
}

int cg_denied_tell(struct cg_denied *d, const struct cg_event *e, struct cg_buf *b, struct cg_err *err)
{
        cg_auto_buf struct cg_buf line = { .max = MAX_LINE };
        bool full = d->n == CG_DENIED_MAX;
        size_t len;
        /* a sentence, and rendered already; what it is made of may have been forged */
        const char *text = cg_event_text(e, &len);

        if (is_kernels(e))
                return 0;
        if (cg_text_render(&line, text, len, MAX_LINE - 1, err) < 0 || cg_buf_adds(&line, "", err) < 0)
                return -1;
        if (was_reported(d, line.data))
                return 0;
        if (!full)
                return cg_buf_adds(b, line.data, err);
        if (d->full)
                return 0;
        d->full = true;
        return cg_buf_adds(b, "the sandbox refused more than that: the rest is not shown", err);
}
