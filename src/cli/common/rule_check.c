/* See rule_check.h. Runs in the command `cellgate`; names of tools are untrusted. */
#include "cli/common/rule_check.h"

#include "base/json.h"
#include "base/text.h"
#include "cli/common/cli.h"

/* Names that a message lists where none is similar. */
#define MAX_NAMES 8

enum rule_match {
        MATCHES,
        NO_SERVER,
        NO_TOOL,
        UNKNOWN, /* a server matches whose tools are not known */
};

json_t *cg_rules_known(const char *report, const json_t *servers)
{
        cg_auto_json json_t *started = json_loads(report, JSON_ALLOW_NUL, NULL);
        const json_t *inner = json_object_get(servers, "mcpServers");
        json_t *known = json_object(), *one, *tool;
        const char *name;
        size_t i;

        json_object_foreach(cg_json_unconst(inner ?: servers), name, one)
                json_object_set_new(known, name, json_null());
        json_object_foreach(started, name, one) {
                json_t *tools = json_object_get(one, "tools"), *names = tools ? json_array() : json_null();

                json_array_foreach(tools, i, tool)
                        json_array_append(names, json_object_get(tool, "tool"));
                json_object_set_new(known, name, names);
        }
        return known;
}

static bool is_any(const char *pattern, size_t len)
{
        return len && strspn(pattern, "*") >= len;
}

static bool glob(const char *pattern, const char *name)
{
        return cg_pol_glob(pattern, strlen(pattern), name, strlen(name));
}

static bool server_matches(const struct cg_approve_parts *r, const char *server)
{
        return cg_pol_glob(r->server, r->server_len, server, strlen(server));
}

/* True if the pattern matches one of these tools, or is about all there are. */
static bool has_tool(const json_t *tools, const char *pattern)
{
        const json_t *tool;
        size_t i;

        if (!pattern || is_any(pattern, strlen(pattern)))
                return true;
        json_array_foreach(tools, i, tool)
                if (json_is_string(tool) && glob(pattern, json_string_value(tool)))
                        return true;
        return false;
}

static enum rule_match find(const struct cg_approve_parts *r, const json_t *known)
{
        enum rule_match found = NO_SERVER;
        const char *server;
        json_t *tools;

        if (r->tools && is_any(r->server, r->server_len) && has_tool(NULL, r->tools))
                return MATCHES;
        json_object_foreach(cg_json_unconst(known), server, tools) {
                if (!server_matches(r, server))
                        continue;
                if (has_tool(tools, r->tools))
                        return MATCHES;
                if (found != UNKNOWN)
                        found = json_is_null(tools) ? UNKNOWN : NO_TOOL;
        }
        return found;
}

/* ---- similar names */

static char fold(char c)
{
        if (c >= 'A' && c <= 'Z')
                return (char)(c + ('a' - 'A'));
        return c == '-' || c == '.' ? '_' : c;
}

/*
 * Edit distance between a name and a pattern without its '*' and '?'. Where there was a '*', the
 * most similar part of the name is compared.
 */
static size_t distance(const char *pattern, size_t len, const char *name)
{
        char literal[CG_TEXT_DISTANCE_MAX + 1] = "", part[CG_TEXT_DISTANCE_MAX + 1];
        size_t n = 0, best = SIZE_MAX, name_len = strlen(name);

        for (size_t i = 0; i < len && n < CG_TEXT_DISTANCE_MAX; i++)
                if (pattern[i] != '*' && pattern[i] != '?')
                        literal[n++] = pattern[i];
        if (!memchr(pattern, '*', len) || name_len <= n)
                return cg_text_distance(literal, name, fold);
        for (size_t from = 0; from + n <= name_len; from++) {
                size_t d;

                memcpy(part, name + from, n);
                part[n] = '\0';
                d = cg_text_distance(literal, part, fold);
                if (d < best)
                        best = d;
        }
        return best;
}

/* Further away, a suggestion is a guess. */
static size_t farthest(size_t len)
{
        return len < 6 ? 2 : len / 3 + 1;
}

/* A server with a similar name, else one with such a tool. */
static const char *nearest_server(const struct cg_approve_parts *r, const json_t *known)
{
        size_t least = farthest(r->server_len);
        const char *server, *best = NULL;
        json_t *tools;

        json_object_foreach(cg_json_unconst(known), server, tools) {
                size_t d = distance(r->server, r->server_len, server);

                if (d < least) {
                        least = d;
                        best = server;
                }
        }
        if (best || !r->tools || is_any(r->tools, strlen(r->tools)))
                return best;
        json_object_foreach(cg_json_unconst(known), server, tools)
                if (has_tool(tools, r->tools))
                        return server;
        return NULL;
}

/* @tools: of one server. *least: only nearer names count. */
static const char *nearest_tool(const char *pattern, const json_t *tools, size_t *least)
{
        const char *best = NULL;
        const json_t *tool;
        size_t i;

        json_array_foreach(tools, i, tool) {
                const char *name = json_string_value(tool);
                size_t d;

                if (!name)
                        continue;
                d = distance(pattern, strlen(pattern), name);
                if (d < *least) {
                        *least = d;
                        best = name;
                }
        }
        return best;
}

/* ---- messages */

static void add_name(struct cg_buf *b, const char *name, size_t len)
{
        cg_text_render_as(b, name, len, 0, CG_TEXT_LINE);
}

static void add_suggestion(struct cg_buf *b, const struct cg_approve_parts *r, const char *server,
                           const char *tool)
{
        cg_buf_addf(b, "; did you mean %s", r->deny ? "!" : "");
        add_name(b, server, strlen(server));
        cg_buf_adds(b, r->tools ? "." : ":");
        add_name(b, tool, strlen(tool));
        cg_buf_adds(b, "?");
}

/* The names that there are, for a rule that is like none. */
static void add_names(struct cg_buf *b, const char *what, const json_t *names)
{
        const json_t *name;
        size_t i;

        json_array_foreach(names, i, name) {
                if (i == MAX_NAMES) {
                        cg_buf_addf(b, " and %zu more", json_array_size(names) - i);
                        return;
                }
                cg_buf_adds(b, i ? ", " : what);
                add_name(b, json_string_value(name) ?: "?", json_string_length(name));
        }
}

static void explain_server(struct cg_buf *b, const struct cg_approve_parts *r, const json_t *known)
{
        const char *best = nearest_server(r, known), *tool = r->tools ?: r->method, *near = NULL, *server;
        const json_t *tools = json_object_get(known, best ?: "");
        cg_auto_json json_t *names = json_array();
        size_t least = farthest(strlen(tool));
        json_t *one;

        cg_buf_adds(b, "there is no MCP server ");
        add_name(b, r->server, r->server_len);
        if (best) {
                if (r->tools && !has_tool(tools, tool))
                        near = nearest_tool(tool, tools, &least);
                add_suggestion(b, r, best, near ?: tool);
                return;
        }
        json_object_foreach(cg_json_unconst(known), server, one)
                json_array_append_new(names, json_string(server));
        add_names(b, "; the MCP servers are ", names);
}

static void explain_tool(struct cg_buf *b, const struct cg_approve_parts *r, const json_t *known)
{
        const char *server, *in = NULL, *best = NULL, *first = NULL;
        bool many = memchr(r->server, '*', r->server_len);
        size_t least = farthest(strlen(r->tools));
        json_t *tools;

        json_object_foreach(cg_json_unconst(known), server, tools) {
                const char *tool;

                if (!server_matches(r, server))
                        continue;
                first = first ?: server;
                tool = nearest_tool(r->tools, tools, &least);
                if (tool) {
                        best = tool;
                        in = server;
                }
        }
        cg_buf_adds(b, many ? "no MCP server " : "the MCP server ");
        add_name(b, r->server, r->server_len);
        cg_buf_adds(b, many ? " has a tool " : " has no tool ");
        add_name(b, r->tools, strlen(r->tools));
        if (best)
                add_suggestion(b, r, in, best);
        else
                add_names(b, "; its tools are ", json_object_get(known, first));
}

/* The sentence about a rule, without its end. */
static void explain(struct cg_buf *b, const struct cg_approve_parts *r, enum rule_match found,
                    const json_t *known)
{
        cg_buf_adds(b, "the approval rule ");
        add_name(b, r->text, strlen(r->text));
        if (found == UNKNOWN) {
                const char *server;
                json_t *tools;

                cg_buf_adds(b, " could not be checked: the MCP server ");
                json_object_foreach(cg_json_unconst(known), server, tools) {
                        if (!json_is_null(tools) || !server_matches(r, server))
                                continue;
                        add_name(b, server, strlen(server));
                        break;
                }
                cg_buf_adds(b, " did not start, so its tools are not known");
                return;
        }
        cg_buf_adds(b, r->deny ? " refuses nothing: " : " accepts nothing: ");
        if (found == NO_SERVER)
                explain_server(b, r, known);
        else
                explain_tool(b, r, known);
}

int cg_rules_check(const struct cg_approve *a, const json_t *known, struct cg_buf *notes, struct cg_err *err)
{
        cg_auto_buf struct cg_buf first = { .max = 65536 };
        size_t stopping = 0;
        struct cg_approve_parts r;

        if (!known)
                return cg_fail(err, CG_E_NOMEM, "approval rules");
        for (size_t i = 0; cg_approve_rule(a, i, &r); i++) {
                cg_auto_buf struct cg_buf b = { .max = 65536 };
                enum rule_match found = find(&r, known);

                if (found == MATCHES)
                        continue;
                explain(&b, &r, found, known);
                if (cg_buf_end(&b, err) < 0)
                        return -1;
                if (r.deny && found != UNKNOWN && !cg_approve_is_lax(a) && !stopping++)
                        cg_buf_adds(&first, b.data);
                else
                        cg_buf_addf(notes, "%s\n", b.data);
        }
        if (!stopping)
                return cg_buf_end(notes, err);
        if (first.len && first.data[first.len - 1] != '?')
                cg_buf_adds(&first, ".");
        return cg_fail(err, CG_E_INVAL, "%s Correct the rule%s, or start with --lax-rules", first.data ?: "",
                       cg_cli_s((long long)stopping));
}
