/*
 * `cellgate mcp add|list|show|remove|tools|call`: the servers of a file, and their tools. Runs in
 * the command `cellgate`. Values of variables and headers are never shown.
 */
#include <termios.h>
#include "base/call_args.h"
#include "base/ceilings.h"
#include "base/fd.h"
#include "base/json.h"
#include "base/text.h"
#include "cli/common/args.h"
#include "cli/common/cli.h"
#include "cli/common/opts.h"
#include "cli/common/pretty.h"
#include "cli/help.h"
#include "cli/option_tables.h"
#include "cli/mcp/mcp.h"
#include "mcp/client/def.h"
#include "mcp/client/mcp_list.h"
#include "mcp/pins/pins.h"

enum { CG_MCP_SERVERS_OPTION_IDS };
enum { ADD = 1, LIST = 2, SHOW = 4, REMOVE = 8, TOOLS = 16, CALL = 32 };

static const struct cg_opt table[] = { CG_MCP_SERVERS_OPTION_ROWS };

struct servers_options {
        const char *words[3]; /* NAME, then URL, or TOOL and JSON */
        size_t n;
        char **command; /* after "--" */
        const char *mcp;
        bool user, yes;
        int64_t timeout_ms;
        json_t *env, *headers, *code, *data;
};

/* A path of --code or --data, which definitions have as absolute ones. */
static int add_path(json_t **all, const char *option, const char *path, struct cg_err *err)
{
        char here[PATH_MAX], whole[2 * PATH_MAX];

        if (path[0] != '/' && !getcwd(here, sizeof(here)))
                return cg_fail_errno(err, "the current folder");
        snprintf(whole, sizeof(whole), "%s%s%s", path[0] == '/' ? "" : here, path[0] == '/' ? "" : "/", path);
        *all = *all ?: json_array();
        if (json_array_append_new(*all, json_string(strcmp(path, ".") == 0 ? here : whole)) < 0)
                return cg_fail(err, CG_E_INVAL, "%s must be UTF-8", option);
        return 0;
}

/* "NAME=VALUE" or "NAME: VALUE". */
static int add_pair(json_t **all, const char *option, const char *pair, const char *between,
                    struct cg_err *err)
{
        size_t len = strcspn(pair, (char[2]){ between[0] });
        cg_auto_free char *name = strndup(pair, len);
        const char *value = pair + len + 1;

        if (!name || !len || !pair[len])
                return cg_fail(err, CG_E_INVAL, "%s needs NAME%sVALUE", option, between);
        if (between[0] == ':')
                value += strspn(value, " ");
        *all = *all ?: json_object();
        if (json_object_set_new(*all, name, json_string(value)) < 0)
                return cg_fail(err, CG_E_INVAL, "%s must be UTF-8", option);
        return 0;
}

static int apply(struct servers_options *o, int id, const char *value, struct cg_err *err)
{
        if (id == ENV)
                return add_pair(&o->env, "--env", value, "=", err);
        if (id == CODE)
                return add_path(&o->code, "--code", value, err);
        if (id == DATA)
                return add_path(&o->data, "--data", value, err);
        if (id == HEADER)
                return add_pair(&o->headers, "--header", value, ": ", err);
        o->words[o->n++] = value;
        return 0;
}

/* @most: words that the command takes. Return: 0; HELP; negative. */
static int parse(struct servers_options *o, unsigned command, size_t most, int argc, char **argv,
                 struct cg_err *err)
{
        static const struct cg_opt_place places[] = {
                CG_OPT_PLACE(MCP, struct servers_options, mcp),
                CG_OPT_PLACE(USER, struct servers_options, user),
                CG_OPT_PLACE(YES, struct servers_options, yes),
                CG_OPT_PLACE_SECONDS(TIMEOUT, "--timeout", struct servers_options, timeout_ms),
        };
        struct cg_optscan scan = CG_OPT_SCAN(table, command, argc, argv, 1);
        const char *value = NULL;
        int id;

        while (!o->command &&
               (id = cg_opt_read(&scan, places, CG_ARRAY_LEN(places), o, &value, err)) != CG_OPT_END) {
                if (id < 0 || id == HELP)
                        return id;
                if (id == CG_OPT_ARG && scan.dashes && command == ADD)
                        o->command = argv + scan.i - 1;
                else if (id == CG_OPT_ARG && o->n == most)
                        return cg_fail(err, CG_E_INVAL, "one word too many: %s", value);
                else if (apply(o, id, value, err) < 0)
                        return -1;
        }
        if (o->mcp && o->user)
                return cg_fail(err, CG_E_INVAL, "--mcp and --user contradict each other");
        if (!o->n && command != LIST)
                return cg_fail(err, CG_E_INVAL, "NAME is missing: the server's name; see --help");
        if (command == CALL && o->n < 2)
                return cg_fail(err, CG_E_INVAL, "TOOL is missing: the tool's name; see --help");
        if (command == ADD && (o->n == 2) == (o->command != NULL))
                return cg_fail(err, CG_E_INVAL, "give either the server's URL or -- COMMAND");
        if ((o->command && o->headers) || (!o->command && (o->env || o->code || o->data)))
                return cg_fail(err, CG_E_INVAL,
                               "--env, --code and --data are for a COMMAND, and --header for a URL");
        return 0;
}

/* ---- definitions */

/* The definition of `add`. NULL: not UTF-8. */
static json_t *make_definition(const struct servers_options *o)
{
        cg_auto_json json_t *args = json_array();

        if (!o->command)
                return json_pack("{s:s, s:O*}", "url", o->words[1], "headers", o->headers);
        for (char **word = o->command + 1; *word; word++)
                if (json_array_append_new(args, json_string(*word)) < 0)
                        return NULL;
        return json_pack("{s:s, s:O, s:O*, s:O*, s:O*}", "command", o->command[0], "args", args, "env",
                         o->env, "code", o->code, "data", o->data);
}

static int add(const struct servers_options *o, struct cg_mcp_config *c, struct cg_err *err)
{
        cg_auto_json json_t *def = NULL;
        struct cg_mcp_def *checked = NULL;

        if (cg_mcp_check_name(o->words[0], err) < 0)
                return -1;
        if (json_object_get(c->servers, o->words[0]))
                return cg_fail(err, CG_E_EXISTS, "%s defines an MCP server \"%s\" already: remove it first",
                               c->path, o->words[0]);
        def = make_definition(o);
        if (!def)
                return cg_fail(err, CG_E_INVAL, "the definition must be UTF-8");
        /* Errors of the definition now, and not when it is used. */
        if (cg_mcp_def_new(o->words[0], def, NULL, &checked, err) < 0)
                return -1;
        cg_mcp_def_free(checked);
        if (json_object_set(c->servers, o->words[0], def) < 0)
                return cg_fail(err, CG_E_INVAL, "the definition must be UTF-8");
        if (cg_mcp_config_save(c, err) < 0)
                return -1;
        printf("Added %s to %s\n", o->words[0], c->path);
        return 0;
}

static int remove_one(const struct servers_options *o, struct cg_mcp_config *c, struct cg_err *err)
{
        json_t *def;

        if (cg_mcp_config_get(c, o->words[0], &def, err) < 0)
                return -1;
        json_object_del(c->servers, o->words[0]);
        if (cg_mcp_config_save(c, err) < 0)
                return -1;
        printf("Removed %s from %s\n", o->words[0], c->path);
        return 0;
}

/* Copies a URL without its user, password, query and fragment. */
static json_t *shown_url(const char *url)
{
        const char *host = strstr(url, "://"), *end, *at, *user = "", *query = "";
        int scheme;

        host = host ? host + 3 : url;
        scheme = (int)(host - url);
        end = host + strcspn(host, "?#");
        at = memrchr(host, '@', strcspn(host, "/?#"));
        if (at) {
                host = at + 1;
                user = "***@";
        }
        if (*end)
                query = "?***";
        return json_sprintf("%.*s%s%.*s%s", scheme, url, user, (int)(end - host), host, query);
}

/* "${VAR}" without a default: it is no secret. */
static bool is_reference(const char *text)
{
        return strncmp(text, "${", 2) == 0 && strchr(text, '}') == text + strlen(text) - 1 &&
               !strstr(text, ":-");
}

static json_t *redact(const char *key, const json_t *v, bool hide);

/*
 * Copies an argument without its secret. @hide: it is one. *next: the next argument is one, as
 * after "--token", "TOKEN=" and "Authorization: Bearer".
 */
static json_t *redact_word(const json_t *item, bool hide, bool *next)
{
        const char *word = json_string_value(item) ?: "", *scheme = strstr(word, "://");
        bool is_url = scheme && strcspn(word, "= ") > (size_t)(scheme - word);
        bool secret = !is_url && (cg_secrets_has_name(word) || strncasecmp(word, "Bearer ", 7) == 0);
        int name_len = (int)strcspn(word, ":= ");

        *next = strcasecmp(word, "Bearer") == 0 || strcasecmp(word, "Basic") == 0;
        if (secret && word[name_len])
                *next |= !word[name_len + 1];
        else if (secret)
                *next |= word[0] == '-';
        if (!hide && secret && word[name_len]) /* "--token=VALUE", "TOKEN=VALUE", "Key: VALUE" */
                return json_sprintf("%.*s%c***", name_len, word, word[name_len]);
        return redact(NULL, item, hide);
}

/* Copies @v without secrets. @key: its name; NULL in an array. @hide: all its texts are secrets. */
static json_t *redact(const char *key, const json_t *v, bool hide)
{
        const char *text = json_string_value(v), *name;
        json_t *out, *item;
        bool next = false;
        size_t i;

        hide |= key && (cg_secrets_has_name(key) || strcmp(key, "env") == 0 || strcmp(key, "headers") == 0);
        if (text && hide)
                return json_string(is_reference(text) ? text : "***");
        if (text && strstr(text, "://"))
                return shown_url(text);
        if (json_is_object(v)) {
                out = json_object();
                json_object_foreach(cg_json_unconst(v), name, item)
                        json_object_set_new(out, name, redact(name, item, hide));
                return out;
        }
        if (!json_is_array(v))
                return json_deep_copy(v);
        out = json_array();
        json_array_foreach(v, i, item)
                json_array_append_new(out, redact_word(item, hide || next, &next));
        return out;
}

static int print_text(const char *text, struct cg_err *err)
{
        cg_auto_buf struct cg_buf b = { .max = (size_t)256 << 20 };

        if (isatty(1))
                cg_text_render(&b, text, strlen(text), 0);
        else
                cg_buf_adds(&b, text);
        cg_buf_adds(&b, "\n");
        if (cg_buf_end(&b, err) < 0)
                return -1;
        return cg_write_all(1, b.data, b.len, err);
}

/* The program's name, or the URL without secrets. Returns; NULL: not to be shown. */
static json_t *shown_place(const json_t *def)
{
        const char *command = json_string_value(json_object_get(def, "command")) ?: "?";
        const char *url = json_string_value(json_object_get(def, "url")), *slash = strrchr(command, '/');

        if (url)
                return shown_url(url);
        return json_string(slash ? slash + 1 : command);
}

static int list(const struct servers_options *o, struct cg_mcp_config *c, struct cg_err *err)
{
        const char *name;
        json_t *def;

        if (json_object_size(c->servers) == 0)
                fprintf(stderr, "%s: %s; `cellgate mcp add` defines one\n", c->path,
                        access(c->path, F_OK) == 0 ? "defines no MCP server" : "there is no such file");
        json_object_foreach(c->servers, name, def) {
                cg_auto_json json_t *place = shown_place(def);
                cg_auto_buf struct cg_buf b = { .max = (size_t)16 << 20 };

                cg_buf_addf(&b, "%-20s %-6s %s", name,
                            json_is_string(json_object_get(def, "url")) ? "http" : "stdio",
                            json_string_value(place) ?: "***");
                if (json_is_true(json_object_get(def, "disabled")))
                        cg_buf_adds(&b, "  (disabled)");
                if (cg_buf_end(&b, err) < 0 || print_text(b.data, err) < 0)
                        return -1;
        }
        return 0;
}

static int show(const struct servers_options *o, struct cg_mcp_config *c, struct cg_err *err)
{
        cg_auto_json json_t *shown = NULL;
        cg_auto_free char *text = NULL;
        json_t *def;

        if (cg_mcp_config_get(c, o->words[0], &def, err) < 0)
                return -1;
        shown = redact(NULL, def, false);
        text = json_dumps(shown, JSON_INDENT(2));
        if (!text)
                return cg_fail(err, CG_E_NOMEM, "definition");
        return print_text(text, err);
}

/* ---- tools */

/* The definition as it is used; its sandbox, if it has one, hides the file. */
static int definition_of(const struct servers_options *o, const struct cg_mcp_config *c, json_t **ret,
                         struct cg_err *err)
{
        char where[CG_MAX_NAME + 32], real[PATH_MAX];
        json_t *def;

        if (cg_mcp_config_get(c, o->words[0], &def, err) < 0)
                return -1;
        snprintf(where, sizeof(where), "MCP server \"%.200s\"", o->words[0]);
        *ret = cg_json_expand_server(def, where, err);
        if (!*ret)
                return CG_E_INVAL;
        if (realpath(c->path, real))
                json_object_set_new(*ret, "hide", json_pack("[s]", real));
        return 0;
}

/* The line of a tool: its name, state, and the first line of its description. */
static int print_tool(struct cg_slice tool, const struct cg_pins *pins, struct cg_err *err)
{
        cg_auto_buf struct cg_buf b = { .max = 65536 }, about = { .max = 1 << 20 };
        cg_auto_free char *name = NULL;
        struct cg_slice member;
        const char *text;

        if (cg_json_member(tool, "name", &member, NULL) < 0 || cg_json_strdup(member, &name, NULL) < 0)
                return 0;
        if (cg_json_find(tool, "description", &member))
                cg_json_string(member, &about, NULL);
        text = about.data ?: "";
        cg_name_render(&b, name);
        cg_buf_addf(&b, "  %s  ", cg_pins_state(pins, name));
        cg_text_render_as(&b, text, strcspn(text, "\n"), 100, CG_TEXT_LINE);
        return print_text(b.data ?: "", err);
}

static int list_tools(const struct servers_options *o, const json_t *def, struct cg_pins *pins,
                      struct cg_err *err)
{
        cg_auto_json json_t *report = NULL;
        cg_auto_buf struct cg_buf news = { .max = CG_MAX_REPORT };
        cg_auto_free char *text = NULL;
        const char *said;
        struct cg_slice tool;
        struct cg_json_walk w;
        size_t len;
        int r;

        if (cg_mcp_list_tools(o->words[0], def, o->timeout_ms, NULL, &text, &len, err) < 0)
                return -1;
        cg_pins_listed(pins, text, len);
        if (cg_json_walk_init(&w, (struct cg_slice){ text, len }, '[', err) < 0)
                return -1;
        while ((r = cg_json_walk_next(&w, NULL, &tool, err)) == 0)
                if (print_tool(tool, pins, err) < 0)
                        return -1;
        if (r < 0 || cg_pins_report(pins, true, &news, err) < 0)
                return -1;
        if (!news.len || cg_json_object(news.data, news.len, "report", &report, NULL) < 0)
                return 0;
        said = json_string_value(json_object_get(report, "text"));
        cg_write_all(2, said, strlen(said), NULL);
        return 0;
}

static int tools(const struct servers_options *o, struct cg_mcp_config *c, struct cg_err *err)
{
        cg_auto_json json_t *def = NULL;
        struct cg_pins *pins = NULL;
        int r;

        if (definition_of(o, c, &def, err) < 0 ||
            cg_pins_new(o->words[0], o->words[0], def, NULL, &pins, err) < 0)
                return -1;
        r = list_tools(o, def, pins, err);
        cg_pins_free(pins);
        return r;
}

/* Shows the exact call and asks. */
static int ask(const struct servers_options *o, const char *args, size_t len, bool *yes, struct cg_err *err)
{
        cg_auto_buf struct cg_buf b = { .max = (size_t)64 << 20 }, json = { .max = (size_t)64 << 20 };
        char line[8] = "";

        *yes = o->yes;
        if (o->yes)
                return 0;
        if (!isatty(0) || !isatty(2))
                return cg_fail(err, CG_E_STATE,
                               "there is no terminal to ask at: --yes calls without a question");
        cg_buf_adds(&b, "  server    ");
        cg_name_render(&b, o->words[0]);
        cg_buf_adds(&b, "\n  tool      ");
        cg_name_render(&b, o->words[1]);
        cg_buf_adds(&b, "\n  arguments ");
        cg_pretty_json((struct cg_slice){ args, len }, 0, NULL, &json);
        cg_buf_fail(&b, json.failed);
        cg_text_render(&b, json.data ?: "", json.len, 0);
        cg_buf_adds(&b, "\nCall it? [y/N] ");
        if (cg_buf_end(&b, err) < 0)
                return -1;
        tcflush(0, TCIFLUSH);
        cg_write_all(2, b.data, b.len, NULL);
        if (fgets(line, sizeof(line), stdin))
                line[strcspn(line, "\n")] = '\0';
        *yes = strcasecmp(line, "y") == 0 || strcasecmp(line, "yes") == 0;
        return 0;
}

static int call(const struct servers_options *o, struct cg_mcp_config *c, struct cg_err *err)
{
        const char *args = o->words[2] ?: "{}";
        struct cg_mcp_tool_call q = {
                .tool = o->words[1], .args = args, .args_len = strlen(args), .timeout_ms = o->timeout_ms
        };
        cg_auto_json json_t *def = NULL;
        cg_auto_free char *text = NULL;
        struct cg_slice failed;
        bool yes = false;
        size_t len;

        if (cg_check_call_args(args, q.args_len, err) < 0)
                return cg_err_prefix(err, "the arguments cannot be sent");
        if (definition_of(o, c, &def, err) < 0 || ask(o, args, q.args_len, &yes, err) < 0)
                return -1;
        if (!yes)
                return CG_EXIT_RAISED;
        if (cg_mcp_call_tool(o->words[0], def, NULL, &q, &text, &len, err) < 0 || print_text(text, err) < 0)
                return -1;
        if (q.error ||
            (cg_json_find((struct cg_slice){ text, len }, "isError", &failed) && cg_slice_is(failed, "true")))
                return CG_EXIT_RAISED;
        return CG_EXIT_OK;
}

/* In the order of the bits. @words: at most. run() returns the exit status, or negative. */
static const struct {
        const char *name;
        size_t words;
        int (*run)(const struct servers_options *o, struct cg_mcp_config *c, struct cg_err *err);
        const char *help;
} commands[] = {
        { "add", 2, add, CG_HELP_MCP_ADD },       { "list", 0, list, CG_HELP_MCP_LIST },
        { "show", 1, show, CG_HELP_MCP_SHOW },    { "remove", 1, remove_one, CG_HELP_MCP_REMOVE },
        { "tools", 1, tools, CG_HELP_MCP_TOOLS }, { "call", 3, call, CG_HELP_MCP_CALL },
};

int cg_cli_mcp_servers(int argc, char **argv)
{
        struct servers_options o = { .n = 0 };
        struct cg_mcp_config c = { .folder = -1, .lock = -1 };
        struct cg_err err;
        unsigned command, i = 0;
        char title[32];
        int r;

        while (strcmp(argv[0], commands[i].name) != 0)
                i++;
        command = 1u << i;
        snprintf(title, sizeof(title), "mcp %s", argv[0]);
        r = parse(&o, command, commands[i].words, argc, argv, &err);
        if (r == HELP)
                r = cg_opt_help(table, CG_ARRAY_LEN(table), command, commands[i].help);
        else if (r == 0 && cg_mcp_config_load(o.mcp, o.user, command & (ADD | REMOVE), &c, &err) == 0)
                r = commands[i].run(&o, &c, &err);
        else
                r = -1;
        if (r < 0)
                r = cg_cli_fail(title, &err);
        json_decref(o.env);
        json_decref(o.headers);
        json_decref(o.code);
        json_decref(o.data);
        cg_mcp_config_fini(&c);
        return r;
}
