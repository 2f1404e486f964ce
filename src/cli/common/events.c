/* Texts of events for people and agents; see events.h. Cells choose names of files and hosts. */
#include "cli/common/events.h"

#include "base/json.h"
#include "base/text.h"
#include "sandbox/command/denial.h"

/* ---- files of a cell */

/* More than a person reads, or an agent wants in each answer. */
#define MAX_FILES 50
#define MAX_NAME  1024

static bool is_listed(const char *listed, const char *path)
{
        cg_auto_free char *text = NULL;

        if (!listed || asprintf(&text, "(%s)", path) < 0) {
                text = NULL;
                return false;
        }
        return strstr(listed, text) != NULL;
}

void cg_artifacts_text(const struct cg_event *e, const char *prefix, const char *listed, struct cg_buf *b)
{
        cg_auto_json json_t *found = NULL;
        const json_t *files;
        const char *why, *text, *signed_as;
        size_t n, len;

        text = cg_event_artifacts(e, &len);
        if (!text)
                return;
        cg_buf_fail(b, cg_json_object(text, len, "artifacts", &found, NULL));
        files = json_object_get(found, "files");
        n = json_array_size(files);
        for (size_t i = 0; i < n && i < MAX_FILES; i++) {
                const json_t *f = json_array_get(files, i), *path = json_object_get(f, "path");
                const char *name = json_string_value(path ?: json_object_get(f, "path_hex")) ?: "";

                if (is_listed(listed, name))
                        continue;
                cg_buf_addf(b, "%s%s", prefix, path ? " " : " hexadecimal ");
                cg_text_render_as(b, name, strlen(name), MAX_NAME, CG_TEXT_LINE);
                cg_buf_addf(b, " (%" JSON_INTEGER_FORMAT " bytes)\n",
                            json_integer_value(json_object_get(f, "size")));
        }
        if (n > MAX_FILES)
                cg_buf_addf(b, "%s %zu more\n", prefix, n - MAX_FILES);
        why = json_string_value(json_object_get(found, "truncated"));
        /* The cell's end may have been explained by this already: its kernel died. */
        if (why && strcmp(why, cg_event_text(e, NULL)) != 0)
                cg_buf_addf(b, "%s perhaps others: %s\n", prefix, why);
        signed_as = json_string_value(json_object_get(json_object_get(found, "signed"), "execution"));
        if (signed_as)
                cg_buf_addf(b, "%s signed as %s\n", prefix, signed_as);
        why = json_string_value(json_object_get(found, "unsigned"));
        if (why)
                cg_buf_addf(b, "%s not signed: %s\n", prefix, why);
}

/* ---- costs */

json_t *cg_costs_object(const struct cg_event *e)
{
        struct cg_costs c = { .size = sizeof(c) };
        json_t *o;

        if (cg_event_costs(e, &c) < 0 || !(o = json_pack("{s:b}", "shared", c.shared)))
                return NULL;
        const struct {
                const char *name;
                int64_t value;
        } members[] = {
                { "wall_us", c.wall_us },           { "cpu_us", c.cpu_us },
                { "memory_bytes", c.memory_bytes }, { "written_bytes", c.written_bytes },
                { "tool_calls", c.tool_calls },     { "commands", c.commands },
                { "connections", c.connections },   { "denials", c.denials },
        };
        for (size_t i = 0; i < CG_ARRAY_LEN(members); i++)
                if (members[i].value >= 0)
                        json_object_set_new(o, members[i].name, json_integer(members[i].value));
        return o;
}

/* ---- denials */

#define MAX_LINE 8192u

void cg_connection_text(const char *json, struct cg_buf *b)
{
        cg_auto_json json_t *o = json_loads(json, JSON_ALLOW_NUL, NULL);
        const char *server = json_string_value(json_object_get(o, "server"));

        cg_denial_connection(o, b);
        if (server) {
                cg_buf_adds(b, " by MCP server ");
                cg_text_render_as(b, server, strlen(server), 0, CG_TEXT_LINE);
        }
}

void cg_denial_reports_clear(struct cg_denial_reports *d)
{
        while (d->n)
                free(d->reported[--d->n]);
        d->full = false;
}

void cg_denial_reports_add(struct cg_denial_reports *d, const struct cg_event *e, struct cg_buf *b)
{
        cg_auto_buf struct cg_buf line = { .max = MAX_LINE };
        cg_auto_json json_t *o = json_loads(cg_event_json(e, NULL), JSON_ALLOW_NUL, NULL);
        const char *source = json_string_value(json_object_get(o, "source"));
        size_t len;
        /* a sentence, and rendered already; what it is made of may have been forged */
        const char *text = cg_event_text(e, &len);

        /* The cell's own traceback explains these. */
        if (source && strcmp(source, "kernel") == 0)
                return;
        cg_text_render(&line, text, len, MAX_LINE - 1);
        cg_buf_adds(&line, "");
        cg_buf_fail(b, line.failed);
        if (line.failed)
                return;
        for (size_t i = 0; i < d->n; i++)
                if (strcmp(d->reported[i], line.data) == 0)
                        return;
        if (d->n < CG_DENIAL_REPORTS_MAX) {
                cg_buf_adds(b, line.data);
                d->reported[d->n] = cg_buf_steal(&line, NULL);
                d->n++;
        } else if (!d->full) {
                d->full = true;
                cg_buf_adds(b, "the sandbox refused more than that: the rest is not shown");
        }
}
