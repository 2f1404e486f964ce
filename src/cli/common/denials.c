/*
 * Descriptions of refused operations and connections. Runs in the command `cellgate`; host names
 * come from the code inside.
 */
#include "cli/common/denials.h"

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

        const char *server = json_string_value(json_object_get(o, "server"));

        cg_denial_connection(o, b);
        if (server) {
                cg_buf_adds(b, " by MCP server ");
                cg_text_render_as(b, server, strlen(server), 0, CG_TEXT_LINE);
        }
        return cg_buf_end(b, err);
}

void cg_denial_reports_clear(struct cg_denial_reports *d)
{
        while (d->n)
                free(d->reported[--d->n]);
        d->full = false;
}

int cg_denial_reports_add(struct cg_denial_reports *d, const struct cg_event *e, struct cg_buf *b,
                          struct cg_err *err)
{
        cg_auto_buf struct cg_buf line = { .max = MAX_LINE };
        cg_auto_json json_t *o = json_loads(cg_event_json(e, NULL), JSON_ALLOW_NUL, NULL);
        const char *source = json_string_value(json_object_get(o, "source"));
        size_t len;
        /* a sentence, and rendered already; what it is made of may have been forged */
        const char *text = cg_event_text(e, &len);

        /* The cell's own traceback explains these. */
        if (source && strcmp(source, "kernel") == 0)
                return 0;
        if (cg_text_try_render(&line, text, len, MAX_LINE - 1, err) < 0 ||
            cg_buf_try_adds(&line, "", err) < 0)
                return -1;
        for (size_t i = 0; i < d->n; i++)
                if (strcmp(d->reported[i], line.data) == 0)
                        return 0;
        if (d->n < CG_DENIAL_REPORTS_MAX) {
                if ((d->reported[d->n] = strdup(line.data)))
                        d->n++;
                return cg_buf_try_adds(b, line.data, err);
        }
        if (d->full)
                return 0;
        d->full = true;
        return cg_buf_try_adds(b, "the sandbox refused more than that: the rest is not shown", err);
}
