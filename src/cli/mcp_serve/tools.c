/*
 * `cellgate mcp serve`: its tools, whose definitions for the agent are in tools.json, and their
 * arguments. The interface is that of ipybox.
 */
#include "cli/mcp_serve/mcp_serve.h"

#include <math.h>
#include "base/ceilings.h"
#include "base/json.h"
#include "cli/mcp_serve/texts.h"

const struct cg_serve_tool_def cg_serve_tool_defs[] = {
#define X(tool, name, toolset, session, begin) { name, CG_SERVE_##toolset, session },
        CG_SERVE_TOOLS(X)
#undef X
                { "resources/read", 0, false },
};

bool cg_serve_has_schema(enum cg_serve_tool tool)
{
        return tool == CG_SERVE_EXECUTE || tool == CG_SERVE_START_CELL || tool == CG_SERVE_CELL_RESULT;
}

static bool is_offered_tool(const struct cg_serve_options *o, enum cg_serve_tool tool)
{
        bool package = tool == CG_SERVE_INSTALL || tool == CG_SERVE_UNINSTALL; /* on this machine */

        return cg_serve_tool_defs[tool].toolset & o->toolsets && !(package && o->kernel.connect.command);
}

/* The rights of cells, for the tool's description and for the instructions. */
static const char *limits_text(const struct cg_serve *sv)
{
        return cg_json_text_of(sv->texts, sv->settings ? "limits_of_settings" : "limits");
}

/* The definition of the tool in tools.json (borrowed), and its parameters. */
static json_t *definition(const struct cg_serve *sv, enum cg_serve_tool tool, json_t **properties)
{
        json_t *t = json_object_get(json_object_get(sv->texts, "tools"), cg_serve_tool_defs[tool].name);

        *properties = json_object_get(json_object_get(t, "inputSchema"), "properties");
        return t;
}

/* Completes the definition by what depends on the options. */
static void complete(const struct cg_serve *sv, enum cg_serve_tool tool)
{
        const struct cg_serve_options *o = &sv->opts;
        json_t *properties, *t = definition(sv, tool, &properties);
        const char *text = cg_json_text_of(t, "description"), *limits = strstr(text, "LIMITS");

        if (limits)
                json_object_set_new(t, "description",
                                    json_sprintf("%.*s%s%s", (int)(limits - text), text, limits_text(sv),
                                                 limits + strlen("LIMITS")));
        if (cg_serve_has_schema(tool) && !o->plain)
                json_object_set(t, "outputSchema",
                                json_object_get(sv->texts,
                                                tool == CG_SERVE_START_CELL ? "cell_start" : "cell_result"));
        if (o->new_sessions && tool == CG_SERVE_EXECUTE)
                json_object_set(properties, "attach", json_object_get(sv->texts, "attach"));
        if (tool != CG_SERVE_TERMINATE && cg_serve_tool_defs[tool].session &&
            (o->new_sessions || o->toolsets & CG_SERVE_SESSIONS))
                json_object_set(
                        properties, "session_id",
                        json_object_get(sv->texts, o->new_sessions ? "new_session_id" : "session_id"));
}

char *cg_serve_tools(struct cg_serve *sv, const char *names[CG_SERVE_N_TOOLS + 1])
{
        cg_auto_json json_t *list = json_array();
        json_t *properties;
        size_t n = 0;

        sv->texts = json_loads(CG_SERVE_TOOLS_JSON, 0, NULL);
        for (size_t i = 0; i < CG_SERVE_N_TOOLS; i++) {
                const char *name = cg_serve_tool_defs[i].name;
                json_t *o = json_pack("{s:s}", "name", name);

                if (!is_offered_tool(&sv->opts, i)) {
                        json_decref(o);
                        continue;
                }
                complete(sv, i);
                if (json_object_update(o, definition(sv, i, &properties)) < 0 ||
                    json_array_append_new(list, o) < 0)
                        return NULL;
                names[n++] = name;
        }
        names[n] = NULL;
        return json_dumps(list, JSON_COMPACT);
}

static const struct {
        const char *name;
        enum cg_serve_toolset bit;
} toolsets[] = { { "core", CG_SERVE_CORE },         { "jobs", CG_SERVE_JOBS },
                 { "sessions", CG_SERVE_SESSIONS }, { "files", CG_SERVE_FILES },
                 { "inspect", CG_SERVE_INSPECT },   { "approvals", CG_SERVE_APPROVALS },
                 { "host", CG_SERVE_HOST },         { "web", CG_SERVE_WEB } };

int cg_serve_read_toolsets(const char *list, unsigned *ret, struct cg_err *err)
{
        unsigned bits = 0;

        for (const char *p = list, *end;; p = end + 1) {
                struct cg_slice name = { p, strcspn(p, ",") };
                size_t i = 0;

                while (i < CG_ARRAY_LEN(toolsets) && !cg_slice_is(name, toolsets[i].name))
                        i++;
                if (i == CG_ARRAY_LEN(toolsets))
                        return cg_fail(
                                err, CG_E_INVAL,
                                "--toolsets: there is no toolset \"%.*s\"; give some of core, jobs,"
                                " sessions, files, inspect, host, web with commas between, or approvals",
                                (int)name.len, p);
                bits |= toolsets[i].bit;
                end = p + name.len;
                if (!*end)
                        break;
        }
        if (bits & CG_SERVE_APPROVALS && bits != CG_SERVE_APPROVALS)
                return cg_fail(
                        err, CG_E_INVAL,
                        "--toolsets: approvals is for a client of its own, without other toolsets: who runs"
                        " code must not decide about it");
        *ret = bits;
        return 0;
}

char *cg_serve_instructions(const struct cg_serve *sv)
{
        const struct cg_serve_options *o = &sv->opts;
        const json_t *texts = json_object_get(sv->texts, "instructions");
        cg_auto_buf struct cg_buf b = { .max = CG_MAX_SETTINGS };
        const char *name, *between = "- MCP servers that are there already: ";
        json_t *value;

        if (o->toolsets & CG_SERVE_APPROVALS)
                return strdup(cg_json_text_of(texts, "approver"));
        cg_buf_adds(&b, cg_json_text_of(texts, "begin"));
        cg_buf_adds(&b, limits_text(sv));
        if (!o->kernel.connect.command)
                cg_buf_adds(&b, cg_json_text_of(texts, "packages"));
        cg_buf_adds(&b, cg_json_text_of(texts, "rest"));
        if (o->toolsets & CG_SERVE_JOBS)
                cg_buf_addf(&b, "- A call is answered after %g s at the latest. %s",
                            (double)o->wait_ms / 1000, cg_json_text_of(texts, "jobs"));
        if (o->toolsets & CG_SERVE_SESSIONS)
                cg_buf_adds(&b, cg_json_text_of(texts, "sessions"));
        json_object_foreach(sv->configured, name, value) {
                cg_buf_addf(&b, "%s%s", between, name);
                between = ", ";
        }
        if (json_object_size(sv->configured))
                cg_buf_adds(&b, ".\n");
        return cg_buf_steal(&b, NULL);
}

/* ------------------------------------------------------------------ arguments */

int cg_serve_unknown_args(const struct cg_serve *sv, enum cg_serve_tool tool, const char *args,
                          struct cg_buf *b, struct cg_err *err)
{
        struct cg_slice key, value, text = { args, strlen(args) };
        const char *name, *between = "";
        json_t *properties, *property;
        struct cg_json_walk w;
        char known[32];
        int r;

        definition(sv, tool, &properties);
        if (cg_json_walk_init(&w, text, '{', err) < 0)
                return -1;
        do {
                r = cg_json_walk_next(&w, &key, &value, err);
                if (r != 0)
                        return CG_MIN(r, 0);
                snprintf(known, sizeof(known), "%.*s", (int)CG_MIN(key.len, sizeof(known)), key.p);
        } while (json_object_get(properties, known) ||
                 (cg_serve_tool_defs[tool].session && cg_slice_is(key, "session_id")) ||
                 (tool == CG_SERVE_EXECUTE && cg_slice_is(key, "attach")) ||
                 (tool == CG_SERVE_INSTALL && cg_slice_is(key, "keep")));
        if (key.len > 100)
                key.len = 100;
        cg_buf_addf(b, "Ignored: %s has no parameter \"%.*s\"; it has ", cg_serve_tool_defs[tool].name,
                    (int)key.len, key.p);
        json_object_foreach(properties, name, property) {
                cg_buf_addf(b, "%s%s", between, name);
                between = ", ";
        }
        cg_buf_adds(b, *between ? "." : "none.");
        return cg_buf_end(b, err);
}

int cg_serve_arg_optional(const char *args, const char *name, char **ret, struct cg_err *err)
{
        struct cg_slice text = { args, strlen(args) }, v;
        int r = cg_json_member(text, name, &v, err);

        *ret = NULL;
        if (r < 0 || !v.p || cg_slice_is(v, "null"))
                return r;
        return cg_serve_arg_string(args, name, ret, err);
}

int cg_serve_arg_string(const char *args, const char *name, char **ret, struct cg_err *err)
{
        struct cg_slice text = { args, strlen(args) }, v;
        int r = cg_json_member(text, name, &v, err);

        if (r < 0)
                return r;
        if (!v.p)
                return cg_fail(err, CG_E_INVAL, "the parameter \"%s\" is missing", name);
        if (cg_json_strdup(v, ret, err) < 0)
                return cg_err_prefix(err, "parameter \"%s\"", name);
        return 0;
}

int cg_serve_arg_number(const char *args, const char *name, double def, double *ret, struct cg_err *err)
{
        struct cg_slice object = { args, strlen(args) }, v;
        char text[64];
        int r = cg_json_member(object, name, &v, err);

        if (r < 0)
                return r;
        *ret = def;
        if (!v.p || cg_slice_is(v, "null"))
                return 0;
        if (v.len >= sizeof(text) || (v.p[0] != '-' && (v.p[0] < '0' || v.p[0] > '9')))
                return cg_fail(err, CG_E_INVAL, "the parameter \"%s\" must be a number", name);
        memcpy(text, v.p, v.len);
        text[v.len] = '\0';
        /* JSON's grammar is a part of what it reads, and the locale is "C" */
        *ret = strtod(text, NULL);
        if (!isfinite(*ret))
                return cg_fail(err, CG_E_INVAL, "the parameter \"%s\" is too large", name);
        return 0;
}

int cg_serve_arg_size(const char *args, const char *name, size_t def, size_t min, size_t max, size_t *ret,
                      struct cg_err *err)
{
        double n;

        *ret = def;
        if (cg_serve_arg_number(args, name, NAN, &n, err) < 0)
                return -1;
        if (isnan(n))
                return 0;
        if (n < (double)min || floor(n) != n)
                return cg_fail(err, CG_E_INVAL, "the parameter \"%s\" must be a whole number, %zu or more",
                               name, min);
        *ret = (size_t)fmin(n, (double)max);
        return 0;
}
