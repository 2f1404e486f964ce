/* `cellgate mcp serve`: the structuredContent of a cell. See structured.h. */
#include "cli/mcp_serve/structured.h"

#include "base/json.h"
#include "cli/common/events.h"
#include "cli/common/images.h"
#include "cli/mcp_serve/cut.h"

/* Denials and decisions that are named; a cell can cause any number. */
#define MAX_LISTED 200u

enum cell_text { TEXT_STDOUT, TEXT_STDERR, TEXT_RESULT, TEXT_TRACEBACK, N_TEXTS };

struct cg_structured {
        struct cg_cut texts[N_TEXTS];
        json_t *o; /* the other members */
};

struct cg_structured *cg_structured_new(size_t max_chars)
{
        struct cg_structured *s = calloc(1, sizeof(*s));

        if (!s)
                return NULL;
        for (size_t i = 0; i < N_TEXTS; i++)
                cg_cut_init(&s->texts[i], max_chars, 0);
        s->o = json_object();
        if (!s->o)
                return cg_structured_free(s);
        return s;
}

struct cg_structured *cg_structured_free(struct cg_structured *s)
{
        if (!s)
                return NULL;
        for (size_t i = 0; i < N_TEXTS; i++)
                cg_cut_fini(&s->texts[i]);
        json_decref(s->o);
        free(s);
        return NULL;
}

/* ------------------------------------------------------------------ collecting */

/* Takes @item. */
static void append(struct cg_structured *s, const char *name, json_t *item)
{
        json_t *list = json_object_get(s->o, name);

        if (!list && json_object_set_new(s->o, name, json_array()) == 0)
                list = json_object_get(s->o, name);
        if (json_array_size(list) < MAX_LISTED) {
                json_array_append_new(list, item);
                return;
        }
        json_decref(item);
        json_object_set_new(s->o, "truncated", json_true());
}

/* The simplest text form of a value or a display. */
static void add_display(struct cg_structured *s, struct cg_event *e)
{
        enum cell_text to = cg_event_type(e) == CG_EVENT_EXECUTE_RESULT ? TEXT_RESULT : TEXT_STDOUT;
        const char *text = cg_event_mime(e, "text/plain", NULL) ?: cg_event_mime(e, "text/markdown", NULL);

        if (!text || (to == TEXT_STDOUT && cg_images_mime(e)))
                return;
        cg_cut_add(&s->texts[to], text, strlen(text));
        if (to == TEXT_STDOUT)
                cg_cut_add(&s->texts[to], "\n", 1);
}

static void add_error(struct cg_structured *s, const json_t *content)
{
        const json_t *lines = json_object_get(content, "traceback"), *line;
        size_t i;

        json_object_set_new(s->o, "error",
                            json_pack("{s:O*, s:O*}", "ename", json_object_get(content, "ename"), "evalue",
                                      json_object_get(content, "evalue")));
        json_array_foreach(lines, i, line) {
                if (i)
                        cg_cut_add(&s->texts[TEXT_TRACEBACK], "\n", 1);
                cg_cut_add(&s->texts[TEXT_TRACEBACK], json_string_value(line), json_string_length(line));
        }
}

static void add_denial(struct cg_structured *s, const json_t *content)
{
        const json_t *what = json_object_get(content, "path") ?: json_object_get(content, "host");

        append(s, "denied",
               json_pack("{s:O*, s:O*, s:O*, s:O*}", "operation", json_object_get(content, "operation"),
                         "what", what ?: json_object_get(content, "call"), "why",
                         json_object_get(content, "why"), "how", json_object_get(content, "how")));
}

/* The names of variables only: types and sizes are many words for an agent. */
static void add_variables(struct cg_structured *s, const json_t *variables)
{
        static const char *const kinds[] = { "made", "changed", "deleted" };
        cg_auto_json json_t *ret = json_object();

        for (size_t k = 0; ret && k < CG_ARRAY_LEN(kinds); k++) {
                const json_t *from = json_object_get(variables, kinds[k]), *one;
                json_t *names = json_array();
                size_t i;

                json_array_foreach(from, i, one)
                        json_array_append(names, json_object_get(one, "name") ?: cg_json_unconst(one));
                if (json_array_size(names))
                        json_object_set(ret, kinds[k], names);
                json_decref(names);
        }
        if (json_object_size(ret))
                json_object_set(s->o, "variables", ret);
}

/* Figures of 0 are left out. */
static json_t *costs_of(const struct cg_event *e)
{
        json_t *o = cg_costs_object(e), *v;
        const char *name;
        void *next;

        json_object_foreach_safe(o, next, name, v)
                if (json_is_false(v) || (json_is_integer(v) && json_integer_value(v) == 0))
                        json_object_del(o, name);
        return o;
}

/* A file of the cell. Its size and digest are known once the cell has ended. */
static void add_artifact(struct cg_structured *s, json_t *file)
{
        const char *path = json_string_value(json_object_get(file, "path"));
        json_t *known;
        size_t i;

        json_array_foreach(json_object_get(s->o, "artifacts"), i, known) {
                const char *other = json_string_value(json_object_get(known, "path"));

                if (path && other && strcmp(other, path) == 0) {
                        json_object_update(known, file);
                        return;
                }
        }
        append(s, "artifacts", json_incref(file));
}

void cg_structured_image(struct cg_structured *s, const char *path)
{
        if (s)
                append(s, "artifacts", json_pack("{s:s}", "path", path));
}

/* Files whose content is known are resources of MCP (artifact.c). */
static void add_uris(struct cg_structured *s)
{
        const char *session = json_string_value(json_object_get(s->o, "session_id"));
        const char *cell = json_string_value(json_object_get(s->o, "execution_id"));
        json_t *file;
        size_t i;

        json_array_foreach(json_object_get(s->o, "artifacts"), i, file)
                if (session && cell && json_object_get(file, "sha256") &&
                    json_integer_value(json_object_get(file, "size")) <= CG_STRUCTURED_MAX_FILE)
                        json_object_set_new(file, "uri",
                                            json_sprintf("cellgate://session/%s/cell/%s/artifact/%zu",
                                                         session, cell + strlen("cell-"), i));
}

static void add_result(struct cg_structured *s, const struct cg_event *e, const json_t *content)
{
        cg_auto_json json_t *found = json_loads(cg_event_artifacts(e, NULL) ?: "{}", JSON_ALLOW_NUL, NULL);
        json_t *file;
        size_t i;

        cg_structured_set(s, "status", cg_status_name(cg_event_status(e)));
        add_variables(s, json_object_get(content, "variables"));
        json_array_foreach(json_object_get(found, "files"), i, file)
                add_artifact(s, file);
        add_uris(s);
        if (json_object_get(found, "truncated"))
                json_object_set_new(s->o, "truncated", json_true());
        if (json_object_get(found, "signed"))
                json_object_set(s->o, "signed", json_object_get(found, "signed"));
        json_object_set_new(s->o, "costs", costs_of(e));
}

void cg_structured_event(struct cg_structured *s, struct cg_event *e)
{
        cg_auto_json json_t *content = NULL;
        const char *text;
        size_t len;

        if (!s)
                return;
        switch (cg_event_type(e)) {
        case CG_EVENT_STREAM:
                text = cg_event_text(e, &len);
                cg_cut_add(&s->texts[cg_event_is_stderr(e) ? TEXT_STDERR : TEXT_STDOUT], text, len);
                return;
        case CG_EVENT_DISPLAY_DATA:
        case CG_EVENT_UPDATE_DISPLAY_DATA:
        case CG_EVENT_EXECUTE_RESULT:
                add_display(s, e);
                return;
        case CG_EVENT_ERROR:
        case CG_EVENT_DENIED:
        case CG_EVENT_RESULT:
                break;
        default:
                return;
        }
        text = cg_event_json(e, &len);
        content = json_loadb(text, len, JSON_ALLOW_NUL, NULL);
        if (cg_event_type(e) == CG_EVENT_ERROR)
                add_error(s, content);
        else if (cg_event_type(e) == CG_EVENT_DENIED)
                add_denial(s, content);
        else
                add_result(s, e, content);
}

void cg_structured_decided(struct cg_structured *s, const char *server, const char *tool,
                           const char *decision, const char *rule)
{
        if (s)
                append(s, "approvals",
                       json_pack("{s:s, s:s, s:s, s:s*}", "server", server, "tool", tool, "decision",
                                 decision, "rule", rule));
}

void cg_structured_set(struct cg_structured *s, const char *name, const char *value)
{
        if (s)
                json_object_set_new(s->o, name, json_string(value));
}

void cg_structured_replace(struct cg_structured *s, const char *text, size_t len)
{
        if (!s)
                return;
        for (size_t i = 0; i < N_TEXTS; i++)
                cg_cut_clear(&s->texts[i]);
        json_object_del(s->o, "error");
        json_object_set_new(s->o, json_object_get(s->o, "output_so_far") ? "output_so_far" : "stdout",
                            json_stringn(text, len));
}

void cg_structured_copy(struct cg_structured *to, const struct cg_structured *from, const char *name)
{
        if (to && from && json_object_get(from->o, name))
                json_object_set(to->o, name, json_object_get(from->o, name));
}

void cg_structured_copy_end(struct cg_structured *to, const struct cg_structured *from)
{
        static const char *const names[] = { "status", "error",  "variables", "artifacts",
                                             "signed", "denied", "approvals", "costs" };

        for (size_t i = 0; i < CG_ARRAY_LEN(names); i++)
                cg_structured_copy(to, from, names[i]);
}

json_t *cg_structured_artifacts(const struct cg_structured *s)
{
        return s ? json_object_get(s->o, "artifacts") : NULL;
}

size_t cg_structured_memory(const struct cg_structured *s)
{
        size_t n = 0;

        for (size_t i = 0; s && i < N_TEXTS; i++)
                n += cg_cut_memory(&s->texts[i]);
        return n;
}

/* ------------------------------------------------------------------ the result */

static int add_text(struct cg_structured *s, enum cell_text which, json_t *to, const char *name,
                    struct cg_err *err)
{
        cg_auto_buf struct cg_buf b = { .max = SIZE_MAX - 1 };
        struct cg_cut *c = &s->texts[which];

        if (!c->total)
                return 0;
        cg_cut_render(c, false, &b);
        if (cg_buf_end(&b, err) < 0)
                return -1;
        if (cg_cut_is_cut(c))
                json_object_set_new(s->o, "truncated", json_true());
        if (json_object_set_new(to, name, json_stringn(b.data, b.len)) < 0)
                return cg_fail(err, CG_E_NOMEM, "the cell's %s", name);
        return 0;
}

int cg_structured_add(struct cg_structured *s, bool error, const char *notes,
                      const struct cg_secrets *secrets, struct cg_buf *b, struct cg_err *err)
{
        json_t *raised = json_object_get(s->o, "error");
        cg_auto_free char *text = NULL;

        if (!json_object_get(s->o, "status"))
                cg_structured_set(s, "status", error ? "error" : "ok");
        if (notes)
                cg_structured_set(s, "notes", notes);
        if (add_text(s, TEXT_STDOUT, s->o, "stdout", err) < 0 ||
            add_text(s, TEXT_STDERR, s->o, "stderr", err) < 0 ||
            add_text(s, TEXT_RESULT, s->o, "result", err) < 0 ||
            (raised && add_text(s, TEXT_TRACEBACK, raised, "traceback", err) < 0))
                return -1;
        cg_secrets_redact_json(secrets, s->o);
        text = json_dumps(s->o, JSON_COMPACT);
        if (!text)
                return cg_fail(err, CG_E_NOMEM, "the cell's result");
        cg_buf_addf(b, ",\"structuredContent\":%s", text);
        return 0;
}
