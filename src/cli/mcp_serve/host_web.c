/*
 * `cellgate mcp serve`: the toolsets `host` and `web`. Their tools are those of two MCP servers of
 * the Python package (docs/host-web.md), which every session gets. A call of the agent is a cell
 * with this one call, so that it waits for the same approval as a call of any other cell.
 */
#include "base/account.h"
#include "base/installed.h"
#include "base/json.h"
#include "cli/mcp_serve/mcp_serve.h"
#include "cli/mcp_serve/texts.h"
#include "config.h"

/* --web-search SERVER.TOOL, or SERVER.TOOL:PARAMETER. */
struct search_tool {
        struct cg_slice server, tool, parameter;
};

/* False: @option is an address, or NULL. */
static bool read_search_tool(const char *option, struct search_tool *ret)
{
        const char *dot = option && !strstr(option, "://") ? strchr(option, '.') : NULL;
        size_t len = dot ? strcspn(dot + 1, ":") : 0;

        if (!dot)
                return false;
        ret->server = (struct cg_slice){ option, (size_t)(dot - option) };
        ret->tool = (struct cg_slice){ dot + 1, len };
        ret->parameter = cg_slice_of(dot[1 + len] ? dot + 2 + len : "query");
        return true;
}

int cg_serve_call_code(const struct cg_serve *sv, enum cg_serve_tool tool, const char *args, char **ret,
                       struct cg_err *err)
{
        const struct cg_serve_tool_def *def = &cg_serve_tool_defs[tool];
        cg_auto_buf struct cg_buf b = { .max = CG_SERVE_MAX_LINE * 2 };
        struct search_tool t = { .server = cg_slice_of(def->toolset == CG_SERVE_HOST ? "host" : "web"),
                                 .tool = cg_slice_of(def->name),
                                 .parameter = cg_slice_of("") };

        if (tool == CG_SERVE_SEARCH)
                read_search_tool(sv->opts.web_search, &t);
        /* A text of JSON, quoted as one of JSON, is one of Python. */
        cg_buf_adds(&b, "exec(r'''" CG_SERVE_CALL_TOOL_PY "''', {'names': [");
        cg_json_quote(&b, t.server.p, t.server.len);
        cg_buf_adds(&b, ", ");
        cg_json_quote(&b, t.tool.p, t.tool.len);
        cg_buf_adds(&b, "], 'search': ");
        cg_json_quote(&b, t.parameter.p, t.parameter.len);
        cg_buf_adds(&b, ", 'text': ");
        cg_json_quote(&b, args, strlen(args));
        cg_buf_adds(&b, "})");
        if (cg_buf_end(&b, err) < 0)
                return -1;
        *ret = cg_buf_steal(&b, NULL);
        return 0;
}

/* A page that overcomes Chromium itself can reach the system, not the user's files. */
static json_t *web_sandbox(const struct cg_serve *sv, const char *python)
{
        cg_auto_free char *real = python && *python ? realpath(python, NULL) : NULL;
        char account[PATH_MAX] = "/root";
        json_t *readable = json_pack("[s,s]", CG_INSTALLED(CG_LIBEXECDIR), CG_INSTALLED(CG_BINDIR));
        const char *const programs[] = { python, real };

        cg_account_home(account);
        if (*CG_PACKAGE_DIR)
                json_array_append_new(readable, json_string(CG_PACKAGE_DIR));
        /* PREFIX/bin/python, and where that leads: the standard library may be there. */
        for (size_t i = 0; i < CG_ARRAY_LEN(programs); i++) {
                const char *bin = programs[i] ? strstr(programs[i], "/bin/") : NULL;

                if (bin)
                        json_array_append_new(readable,
                                              json_stringn(programs[i], (size_t)(bin - programs[i])));
        }
        /*
         * The denied hosts are Chromium's own, which nobody is to be asked about. A listed socket,
         * which is none, lets it have sockets of its own.
         */
        return json_pack(
                "{s:{s:[], s:[s,s,s], s:[s], s:[s,s,s,s,s]}, s:{s:[s,s,s,s,s,s,s], s:o, s:[], s:[]}}",
                "network", "allowedDomains", "deniedDomains", "update.googleapis.com", "clients2.google.com",
                "redirector.gvt1.com", "allowUnixSockets", "/nonexistent", "deniedResolvedAddresses",
                "10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "fc00::/7", "filesystem",
                "denyRead", sv->workspace, account, "/home", "/root", "/srv", "/mnt", "/media", "allowRead",
                readable, "allowWrite", "denyWrite");
}

/* SearXNG's host may be reached without a question: the user has named it. */
static int allow_search(json_t *sandbox, const char *address, struct cg_err *err)
{
        const char *host = strstr(address, "://");
        size_t n = host ? strcspn(host + 3, "/?#") : 0;

        if (!n || (strncmp(address, "http://", 7) != 0 && strncmp(address, "https://", 8) != 0) ||
            memchr(host + 3, '@', n))
                return cg_fail(err, CG_E_INVAL,
                               "--web-search: the address of a SearXNG server is expected, such as "
                               "https://search.example, or a tool of a server of --mcp, SERVER.TOOL");
        json_array_append_new(json_object_get(json_object_get(sandbox, "network"), "allowedDomains"),
                              json_stringn(host + 3, n));
        return 0;
}

static int add_server(struct cg_serve *sv, const char *name, json_t *sandbox, struct cg_err *err)
{
        const char *python = getenv("CELLGATE_PYTHON");
        json_t *definition;

        if (json_object_get(sv->configured, name)) {
                json_decref(sandbox);
                return cg_fail(err, CG_E_INVAL,
                               "the server name \"%s\" is taken: it is that of the toolset %s", name, name);
        }
        definition = json_pack("{s:s, s:[s,s,s,s,s,s], s:{s:s, s:s*, s:s*}, s:[s], s:o*}", "command",
                               CG_INSTALLED(CG_BINDIR "/cellgate"), "args", "mcp", "serve", "--compat", name,
                               "--workspace", sv->workspace, "env", "PYTHONDONTWRITEBYTECODE", "1",
                               "CELLGATE_PYTHON", python, "CELLGATE_WEB_SEARCH", sv->opts.web_search, "data",
                               sv->workspace, "sandbox", sandbox);
        if (json_object_set_new(sv->configured, name, definition) < 0)
                return cg_fail(err, CG_E_NOMEM, "toolset %s", name);
        return 0;
}

int cg_serve_add_own_servers(struct cg_serve *sv, struct cg_err *err)
{
        const char *python = getenv("CELLGATE_PYTHON");
        struct search_tool t;
        json_t *sandbox;

        if (sv->opts.toolsets & CG_SERVE_HOST && add_server(sv, "host", NULL, err) < 0)
                return -1;
        if (!(sv->opts.toolsets & CG_SERVE_WEB))
                return 0;
        sandbox = web_sandbox(sv, cg_text_or(python, CG_INSTALLED(CG_PACKAGE_PYTHON)));
        if (read_search_tool(sv->opts.web_search, &t)) {
                if (!json_object_getn(sv->configured, t.server.p, t.server.len)) {
                        json_decref(sandbox);
                        return cg_fail(err, CG_E_INVAL, "--web-search %s: --mcp has no server %.*s",
                                       sv->opts.web_search, (int)t.server.len, t.server.p);
                }
        } else if (sv->opts.web_search && allow_search(sandbox, sv->opts.web_search, err) < 0) {
                json_decref(sandbox);
                return -1;
        }
        return add_server(sv, "web", sandbox, err);
}
