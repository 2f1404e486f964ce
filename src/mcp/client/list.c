/*
 * The answers of an MCP server to tools/list and other lists: the pages, one after the other,
 * become one list. Of the tools only the names are kept; lists of resources, templates and prompts
 * are kept whole, so that a kernel that asks for them again and again costs the server one list.
 */
#include "mcp/client/internal.h"

#include "mcp/ceilings.h"

static int remember_name(struct cg_mcp_req *q, struct cg_slice tool, struct cg_err *err)
{
        struct cg_slice name = CG_SLICE_NONE;
        char *text;

        if (!CG_GROW(q->pages.names, q->pages.n_names, q->pages.cap_names))
                return cg_fail(err, CG_E_NOMEM, "names of a list");
        /* A tool whose name is no text, empty or too long cannot be called; the report says so. */
        if (cg_json_member(tool, "name", &name, NULL) < 0 || cg_json_strdup(name, &text, NULL) < 0)
                return 0;
        if (!*text || strlen(text) > CG_MAX_NAME) {
                free(text);
                return 0;
        }
        q->pages.names[q->pages.n_names++] = text;
        return 0;
}

/* False: the protocol forbids to use the tool. */
static bool read_params(struct cg_mcp_req *q, struct cg_slice tool)
{
        struct cg_slice name = CG_SLICE_NONE;
        struct cg_param_headers *h = NULL;
        struct cg_err err;
        char what[400];
        int r = cg_param_headers_read(tool, &h, &err);

        if (h && q->pages.params_size + h->size > CG_MCP_MAX_LIST_PARAM_NAMES) {
                h = cg_param_headers_free(h);
                r = cg_fail(&err, CG_E_LIMIT,
                            "names of arguments with \"x-mcp-header\" in the list need more than %zu bytes",
                            CG_MCP_MAX_LIST_PARAM_NAMES);
        }
        if (r < 0) {
                cg_json_find(tool, "name", &name);
                snprintf(what, sizeof(what), "tool that is left out, because %.300s; its name", err.msg);
                cg_server_log_line(&q->c->server_log, CG_LOG_WARN, what, name.p ? name : CG_SLICE("?"));
                return false;
        }
        if (h) {
                q->pages.params_size += h->size;
                h->next = q->pages.params;
                q->pages.params = h;
        }
        return true;
}

/* Appends the start of the list that gets the elements of all pages. */
static void add_head(struct cg_mcp_req *q)
{
        if (q->method != CG_MCP_TOOLS_LIST)
                cg_buf_addf(&q->pages.text, "{\"%s\":", cg_mcp_methods[q->method].member);
        cg_buf_adds(&q->pages.text, "[");
}

static int add_page(struct cg_mcp_req *q, struct cg_slice tools, struct cg_err *err)
{
        bool is_tools = q->method == CG_MCP_TOOLS_LIST;
        const char *what = cg_mcp_methods[q->method].what;
        struct cg_slice tool;
        struct cg_json_walk w;
        int r = cg_json_walk_init(&w, tools, '[', err);

        while (r == 0) {
                r = cg_json_walk_next(&w, NULL, &tool, err);
                if (r != 0)
                        break;
                if (is_tools && q->c->modern && q->c->def->kind != CG_MCP_STDIO && !read_params(q, tool))
                        continue;
                if (q->pages.n_tools == CG_MCP_MAX_TOOLS)
                        return cg_fail(err, CG_E_LIMIT, "it lists more than %u %s", CG_MCP_MAX_TOOLS, what);
                if (q->pages.text.len + tool.len + 3 > q->pages.text.max)
                        return cg_fail(err, CG_E_LIMIT, "its list of %s is over %zu bytes", what,
                                       q->pages.text.max);
                if (q->pages.n_tools++)
                        cg_buf_adds(&q->pages.text, ",");
                else
                        add_head(q);
                cg_buf_add(&q->pages.text, tool.p, tool.len);
                if (is_tools || q->method == CG_MCP_PROMPTS_LIST)
                        r = remember_name(q, tool, err);
        }
        return r < 0 ? r : cg_buf_end(&q->pages.text, err);
}

/* Checks whether the next page may be requested: cursors that repeat would never end. */
static int check_cursor(struct cg_mcp_req *q, struct cg_slice cursor, struct cg_err *err)
{
        uint64_t h = cg_fnv1a(CG_FNV1A, cursor.p, cursor.len), *p;
        const char *method = cg_mcp_methods[q->method].name;

        if (cursor.p[0] != '"')
                return cg_fail(err, CG_E_PROTO, "nextCursor is not a string");
        if (cursor.len > CG_MCP_MAX_CURSOR)
                return cg_fail(err, CG_E_LIMIT, "nextCursor of %zu bytes", cursor.len);
        for (size_t i = 0; i < q->pages.n; i++)
                if (q->pages.cursors[i] == h)
                        return cg_fail(err, CG_E_PROTO,
                                       "%s does not come to an end: page %zu has the cursor of page %zu",
                                       method, q->pages.n + 1, i + 1);
        if (q->pages.n == CG_MCP_MAX_PAGES)
                return cg_fail(err, CG_E_LIMIT, "%s has more than %u pages", method, CG_MCP_MAX_PAGES);
        p = realloc(q->pages.cursors, (q->pages.n + 1) * sizeof(*p));
        if (!p)
                return cg_fail(err, CG_E_NOMEM, "cursors");
        q->pages.cursors = p;
        q->pages.cursors[q->pages.n++] = h;
        return 0;
}

static void keep_tools(struct cg_mcp_req *q)
{
        struct cg_mcp_client *c = q->c;

        cg_mcp_free_names(c->tools.names, c->tools.n_names);
        c->tools.names = CG_STEAL(q->pages.names);
        cg_param_headers_free(c->tools.params);
        c->tools.params = CG_STEAL(q->pages.params);
        c->tools.n_names = q->pages.n_names;
        q->pages.n_names = 0;
        c->tools.listed = true;
        c->tools.n_lists++;
        if (c->o.pins)
                cg_pins_listed(c->o.pins, q->pages.text.data, q->pages.text.len);
        c->tools.listed_ms = cg_now_ms();
        if (!c->tools.stale)
                c->tools.relist_ms = 0;
        if (c->o.listed)
                c->o.listed(c->o.data, c, q->pages.text.data, q->pages.text.len);
}

static void keep_other(struct cg_mcp_req *q)
{
        struct cg_mcp_client *c = q->c;
        struct kept_list *l = &c->lists[q->method];

        if (q->method == CG_MCP_PROMPTS_LIST) {
                cg_mcp_free_names(c->prompts, c->n_prompts);
                c->prompts = CG_STEAL(q->pages.names);
                c->n_prompts = q->pages.n_names;
                q->pages.n_names = 0;
        }
        cg_buf_fini(&l->text);
        cg_buf_init(&l->text, CG_MCP_MAX_KEPT_LIST);
        l->known = cg_buf_try_add(&l->text, q->pages.text.data, q->pages.text.len, NULL) == 0;
        l->until_ms = q->pages.until_ms;
}

static void list_done(struct cg_mcp_req *q)
{
        struct cg_mcp_client *c = q->c;
        const enum cg_mcp_method method = q->method;
        bool is_tools = method == CG_MCP_TOOLS_LIST;
        cg_auto_buf struct cg_buf list = { .max = 0 };

        if (!q->pages.n_tools)
                add_head(q);
        cg_buf_adds(&q->pages.text, is_tools ? "]" : "]}");
        if (q->pages.text.failed) {
                cg_mcp_req_fail(q, "MCP server \"%s\": its list of %s is too long", c->def->name,
                                cg_mcp_methods[method].what);
                return;
        }
        if (is_tools)
                keep_tools(q);
        else
                keep_other(q);
        list = q->pages.text;
        cg_buf_init(&q->pages.text, 0);
        cg_mcp_req_finish(q, CG_MCP_OK, list.data, list.len);
}

void cg_mcp_list_again(struct cg_mcp_req *q)
{
        cg_mcp_free_names(CG_STEAL(q->pages.names), q->pages.n_names);
        q->pages.n_names = q->pages.cap_names = q->pages.n_tools = q->pages.n = 0;
        cg_buf_clear(&q->pages.text);
        q->pages.until_ms = 0;
        q->pages.params = cg_param_headers_free(q->pages.params);
        q->pages.params_size = 0;
}

/* "ttlMs", within bounds: its absence, 0 and a day must not make a list before each call, or none. */
static int64_t read_validity(struct cg_slice result)
{
        struct cg_slice value = CG_SLICE_NONE;
        long long ms = CG_MCP_MAX_VALID_MS;

        if (cg_json_find(result, "ttlMs", &value) && cg_json_kind(value) >= '0' && cg_json_kind(value) <= '9')
                ms = strtoll(value.p, NULL, 10);
        if (ms < CG_MCP_MIN_VALID_MS)
                return CG_MCP_MIN_VALID_MS;
        return CG_MIN(ms, CG_MCP_MAX_VALID_MS);
}

/* How long the list may be kept (revision 2026-07-28): the shortest time of all pages. */
static void read_ttl(struct cg_mcp_req *q, struct cg_slice result)
{
        struct cg_slice value = CG_SLICE_NONE;
        char text[32];
        double ttl_ms;

        if (!cg_json_find(result, "ttlMs", &value) || value.len >= sizeof(text))
                return;
        memcpy(text, value.p, value.len);
        text[value.len] = '\0';
        ttl_ms = strtod(text, NULL);
        if (!(ttl_ms > 0)) /* 0, or no number: not to be kept */
                ttl_ms = 0;
        if (ttl_ms > CG_MCP_MAX_CALL_MS)
                ttl_ms = CG_MCP_MAX_CALL_MS;
        if (!q->pages.until_ms || cg_now_ms() + (int64_t)ttl_ms < q->pages.until_ms)
                q->pages.until_ms = cg_now_ms() + (int64_t)ttl_ms;
}

/* The elements of a page. *cursor: of the next one. */
static int read_elements(struct cg_mcp_req *q, struct cg_slice result, struct cg_slice *cursor,
                         struct cg_err *err)
{
        const char *member = cg_mcp_methods[q->method].member;
        struct cg_slice tools = CG_SLICE_NONE;

        if (cg_json_member(result, member, &tools, err) < 0 ||
            cg_json_member(result, "nextCursor", cursor, err) < 0)
                return CG_E_PARSE;
        if (!tools.p)
                return cg_fail(err, CG_E_PROTO, "the result has no \"%s\"", member);
        if (!q->pages.n && q->method == CG_MCP_TOOLS_LIST)
                q->c->tools.valid_ms = read_validity(result);
        return add_page(q, tools, err);
}

/* CG_JSON_END: that was the last page. */
static int read_page(struct cg_mcp_req *q, const struct cg_rpc *m, struct cg_err *err)
{
        struct cg_slice cursor = CG_SLICE_NONE;
        int r;

        if (read_elements(q, m->result, &cursor, err) < 0)
                return cg_err_prefix(err, "%s", cg_mcp_methods[q->method].name);
        read_ttl(q, m->result);
        if (!cursor.p || cg_slice_is(cursor, "null"))
                return CG_JSON_END;
        r = check_cursor(q, cursor, err);
        if (r < 0)
                return r;
        r = cg_mcp_send_list(q, cursor, err);
        return r == CG_E_CLOSED ? 0 : r;
}

void cg_mcp_on_list_answer(struct cg_mcp_req *q, const struct cg_rpc *m)
{
        struct cg_mcp_client *c = q->c;
        struct cg_err err;
        char why[600];
        int r;

        if (m->kind == CG_RPC_ERROR) {
                /* it offers none, and said so: prompts or resources only */
                if (q->method == CG_MCP_TOOLS_LIST && !c->offered.tools && !q->pages.n) {
                        list_done(q);
                        return;
                }
                /* The capability is about resources: many servers have no templates. */
                if (q->method == CG_MCP_TEMPLATES_LIST && !q->pages.n &&
                    cg_mcp_error_code(m->error) == CG_RPC_METHOD_NOT_FOUND) {
                        list_done(q);
                        return;
                }
                cg_mcp_error_text(m->error, why, sizeof(why));
                cg_mcp_req_fail(q, "MCP server \"%s\" answered %s with an error: %s", c->def->name,
                                cg_mcp_methods[q->method].name, why);
                return;
        }
        r = read_page(q, m, &err);
        if (r < 0)
                cg_mcp_req_fail(q, "MCP server \"%s\": %s", c->def->name, err.msg);
        else if (r == CG_JSON_END)
                list_done(q);
}
