/*
 * `cellgate mcp login` and `logout`: what the tool server cannot do by itself, because a person has
 * to agree. Runs in the command `cellgate`.
 */
#include <signal.h>
#include "base/ceilings.h"
#include "base/fd.h"
#include "base/json.h"
#include "base/proc.h"
#include "base/text.h"
#include "cli/common/cli.h"
#include "cli/common/opts.h"
#include "cli/help.h"
#include "cli/option_tables.h"
#include "cli/mcp/mcp.h"
#include "mcp/ceilings.h"
#include "mcp/client/def.h"
#include "mcp/oauth/fetch.h"
#include "mcp/oauth/store.h"

#define DEFAULT_MS (5 * 60 * 1000)

enum { CG_MCP_LOGIN_OPTION_IDS };
enum { LOGIN = 1, LOGOUT = 2 };

static const struct cg_opt table[] = { CG_MCP_LOGIN_OPTION_ROWS };

struct login_options {
        const char *name, *mcp, *url;
        int64_t timeout_ms;
        bool no_browser;
};

/* Return: 0; HELP; negative. */
static int parse(struct login_options *o, unsigned command, int argc, char **argv, struct cg_err *err)
{
        struct cg_optscan scan = CG_OPT_SCAN(table, command, argc, argv, 1);
        static const struct cg_opt_place places[] = {
                CG_OPT_PLACE(MCP, struct login_options, mcp),
                CG_OPT_PLACE(URL, struct login_options, url),
                CG_OPT_PLACE(NO_BROWSER, struct login_options, no_browser),
                CG_OPT_PLACE_SECONDS(TIMEOUT, "--timeout", struct login_options, timeout_ms),
        };
        const char *value = NULL;
        int id;

        while ((id = cg_opt_read(&scan, places, CG_ARRAY_LEN(places), o, &value, err)) != CG_OPT_END) {
                if (id < 0 || id == HELP)
                        return id;
                if (o->name)
                        return cg_fail(err, CG_E_INVAL, "one server at a time: %s and %s were given", o->name,
                                       value);
                o->name = value;
        }
        if (!o->name)
                return cg_fail(err, CG_E_INVAL, "NAME is missing: the server's name; see --help");
        if (o->mcp && o->url)
                return cg_fail(err, CG_E_INVAL, "--mcp and --url contradict each other");
        return 0;
}

/* ---- the server */

struct target {
        char *url;
        struct cg_mcp_def *def; /* of a file; NULL: none */
        struct cg_oauth_config config;
        struct cg_oauth_net net;
        enum cg_addr_class place;
};

static void target_fini(struct target *t)
{
        free(t->url);
        if (t->def)
                cg_mcp_def_free(t->def);
        else
                cg_oauth_config_fini(&t->config);
}

static struct cg_oauth_server server_of(const struct login_options *o, struct target *t)
{
        t->place = CG_ADDR_PUBLIC;
        return (struct cg_oauth_server){ .name = o->name,
                                         .url = t->url,
                                         .config = &t->config,
                                         .fetch = cg_oauth_net_fetch,
                                         .data = &t->net,
                                         .place = &t->place };
}

static int target_of_file(const struct login_options *o, struct target *t, struct cg_err *err)
{
        cg_auto_json json_t *file = NULL, *servers = NULL, *expanded = NULL;
        cg_auto_free char *text = NULL;
        char where[CG_MAX_NAME + 32];
        const json_t *def;
        size_t len;

        if (cg_read_file(o->mcp, CG_MAX_SETTINGS, &text, &len, err) < 0 ||
            cg_json_object(text, len, o->mcp, &file, err) < 0 || cg_json_mcp_servers(file, &servers, err) < 0)
                return -1;
        def = json_object_get(servers, o->name);
        if (!json_is_object(def))
                return cg_fail(err, CG_E_NOTFOUND, "%s defines no MCP server \"%s\"", o->mcp, o->name);
        snprintf(where, sizeof(where), "MCP server \"%.200s\"", o->name);
        expanded = cg_json_expand_server(def, where, err);
        if (!expanded || cg_mcp_def_new(o->name, expanded, NULL, &t->def, err) < 0)
                return -1;
        if (t->def->kind == CG_MCP_STDIO)
                return cg_fail(err, CG_E_INVAL,
                               "MCP server \"%s\" has no \"url\": only servers over HTTP want a login",
                               o->name);
        t->config = t->def->oauth; /* borrowed */
        t->net.ca_file = t->def->ca_file;
        t->net.proxy = t->def->proxy;
        t->net.no_proxy = t->def->no_proxy;
        t->url = strdup(t->def->url);
        return cg_made(t->url, "MCP server", err);
}

/* Its URL: of --url, or of the only server of that name that something is stored about. */
static int find_url(const struct login_options *o, char **ret, struct cg_err *err)
{
        cg_auto_json json_t *urls = NULL;
        const char *url = o->url;

        if (!url) {
                if (cg_oauth_store_urls(o->name, &urls, err) < 0)
                        return -1;
                if (!json_array_size(urls))
                        return cg_fail(
                                err, CG_E_NOTFOUND,
                                "nothing is stored about an MCP server \"%s\": say where it is by --mcp "
                                "FILE or --url URL",
                                o->name);
                if (json_array_size(urls) > 1)
                        return cg_fail(err, CG_E_NOTFOUND,
                                       "several MCP servers are named \"%s\": say which one by --mcp FILE or "
                                       "--url URL",
                                       o->name);
                url = json_string_value(json_array_get(urls, 0));
        }
        *ret = strdup(url);
        return cg_made(*ret, "MCP server", err);
}

static int target_of_record(const struct login_options *o, struct target *t, struct cg_err *err)
{
        cg_auto_json json_t *record = NULL;
        const json_t *definition;

        if (find_url(o, &t->url, err) < 0 || cg_oauth_store_load(o->name, t->url, &record, err) < 0)
                return -1;
        definition = json_object_get(record, "definition");
        if (json_is_true(json_object_get(definition, "hasSecret")))
                return cg_fail(
                        err, CG_E_INVAL,
                        "the definition of \"%s\" has a client secret, which is not stored: give --mcp FILE",
                        o->name);
        return cg_oauth_config_parse(o->name, definition, &t->config, err);
}

/* ---- login */

struct person {
        const struct login_options *options;
        struct cg_listen listen;
        struct cg_proc browser;
};

static void person_fini(struct person *p)
{
        cg_listen_close(&p->listen);
        cg_closep_(&p->browser.pidfd);
}

/* The browser gets no terminal, and its end is not waited for. */
static void open_browser(const char *url, struct cg_proc *ret)
{
        const char *argv[] = { "xdg-open", url, NULL };
        const struct cg_proc_fd fds[] = { { -1, 0 }, { -1, 1 }, { -1, 2 } };
        struct cg_proc_spec spec = CG_PROC_SPEC("xdg-open", argv, environ, fds, .search_path = getenv("PATH"),
                                                .new_session = true);

        if (cg_proc_spawn(&spec, ret, NULL) < 0)
                *ret = CG_PROC_NONE;
}

static int authorize(void *data, const char *url, const char *state, struct cg_oauth_redirect *ret,
                     struct cg_err *err)
{
        struct person *p = data;
        const char *display = getenv("WAYLAND_DISPLAY") ?: getenv("DISPLAY");
        bool browser = !p->options->no_browser && display && *display && getenv("PATH");

        printf("Sign in at this address%s:\n\n  %s\n\n", browser ? ", which a browser should show now" : "",
               url);
        if (fflush(stdout) != 0)
                return cg_fail_errno(err, "standard output");
        if (browser)
                open_browser(url, &p->browser);
        return cg_listen_wait(&p->listen, state, p->options->timeout_ms ?: INT32_MAX, ret, err);
}

/* At the port of the registered client, if it is free; else a new client is registered. */
static int open_listener(const struct cg_oauth_server *s, struct cg_listen *l, struct cg_err *err)
{
        cg_auto_free char *registered = NULL;
        int port = s->config->callback_port, r;

        if (port)
                return cg_listen_open(port, l, err);
        r = cg_oauth_registered_redirect(s, &registered, err);
        if (r < 0)
                return r;
        if (registered && sscanf(registered, "http://127.0.0.1:%5d/", &port) == 1 && port > 0 &&
            port <= 65535 && cg_listen_open(port, l, NULL) == 0)
                return 0;
        return cg_listen_open(0, l, err);
}

static int login(const struct login_options *o, struct cg_err *err)
{
        CG_CLEANUP(person_fini)
        struct person person = { .options = o, .listen = { .fd = -1 }, .browser = CG_PROC_NONE };
        CG_CLEANUP(target_fini) struct target t = { 0 };
        struct cg_oauth_login l = { .redirect_uri = person.listen.uri,
                                    .authorize = authorize,
                                    .data = &person };
        cg_auto_free char *scope = NULL;
        struct cg_oauth_server s;
        int r;

        if ((o->mcp ? target_of_file(o, &t, err) : target_of_record(o, &t, err)) < 0)
                return -1;
        if (t.config.off)
                return cg_fail(
                        err, CG_E_INVAL,
                        "the definition of \"%s\" says \"oauth\": false, or has a header \"Authorization\"",
                        o->name);
        if (t.config.client_credentials)
                return cg_fail(
                        err, CG_E_INVAL,
                        "the definition of \"%s\" has the grant client_credentials: no person signs in",
                        o->name);
        s = server_of(o, &t);
        if (open_listener(&s, &person.listen, err) < 0 || cg_oauth_net_init(&t.net, err) < 0)
                return -1;
        r = cg_oauth_login(&s, &l, &scope, err);
        cg_oauth_net_fini(&t.net);
        if (r < 0)
                return r;
        if (scope && *scope)
                printf("Signed in at %s for: %s.\n", o->name, scope);
        else
                printf("Signed in at %s.\n", o->name);
        return 0;
}

/* Revokes the tokens of @record. *some: some of them were. */
static int try_revoke(const struct login_options *o, struct target *t, const json_t *record, bool *some,
                      struct cg_err *err)
{
        struct cg_oauth_server s = server_of(o, t);
        int r;

        t->net.end_ms = cg_now_ms() + CG_OAUTH_REVOKE_MS;
        if (!t->def &&
            cg_oauth_config_parse(o->name, json_object_get(record, "definition"), &t->config, err) < 0)
                return -1;
        if (cg_oauth_net_init(&t->net, err) < 0)
                return -1;
        r = cg_oauth_revoke(&s, record, some, err);
        cg_oauth_net_fini(&t->net);
        return r;
}

/* Prints whether the tokens of @record, which is not stored any more, were revoked. */
static int revoke_tokens(const struct login_options *o, struct target *t, const json_t *record,
                         struct cg_err *err)
{
        cg_auto_buf struct cg_buf b = { .max = 65536 };
        struct cg_err why;
        bool some = false;

        if (try_revoke(o, t, record, &some, &why) == 0) {
                cg_buf_adds(&b, "Its tokens were revoked");
        } else {
                cg_buf_adds(&b,
                            some ? "Not all of its tokens were revoked; the others stay valid until their "
                                   "life ends: "
                                 : "Its tokens were not revoked, and stay valid until their life ends: ");
                cg_text_render(&b, why.msg, strlen(why.msg), 0);
        }
        cg_buf_adds(&b, ".\n");
        if (cg_buf_end(&b, err) < 0)
                return -1;
        return cg_write_all(1, b.data, b.len, err);
}

static int logout(const struct login_options *o, struct cg_err *err)
{
        cg_auto_json json_t *record = NULL;
        CG_CLEANUP(target_fini) struct target t = { 0 };
        cg_auto_fd int lock = -1;

        if ((o->mcp ? target_of_file(o, &t, err) : find_url(o, &t.url, err)) < 0 ||
            cg_oauth_store_lock(o->name, t.url, NULL, &lock, &record, err) < 0)
                return -1;
        if (json_object_size(record) <= 2)
                return cg_fail(err, CG_E_NOTFOUND, "nothing is stored about the MCP server \"%s\"", o->name);
        if (cg_oauth_store_remove(o->name, t.url, err) < 0)
                return -1;
        cg_closep_(&lock);
        printf("Removed what was stored about %s.\n", o->name);
        if (fflush(stdout) != 0)
                return cg_fail_errno(err, "standard output");
        return json_object_get(record, "token") ? revoke_tokens(o, &t, record, err) : 0;
}

int cg_cli_mcp_login(int argc, char **argv)
{
        unsigned command = strcmp(argv[0], "login") == 0 ? LOGIN : LOGOUT;
        const char *title = command == LOGIN ? "mcp login" : "mcp logout";
        struct login_options o = { .timeout_ms = DEFAULT_MS };
        struct cg_err err;
        int r = parse(&o, command, argc, argv, &err);

        if (r == HELP)
                return cg_opt_help(table, CG_ARRAY_LEN(table), command,
                                   command == LOGIN ? CG_HELP_MCP_LOGIN : CG_HELP_MCP_LOGOUT);
        signal(SIGPIPE, SIG_IGN); /* of libcurl's TLS and of the browser's connection */
        if (r == 0)
                r = command == LOGIN ? login(&o, &err) : logout(&o, &err);
        if (r < 0)
                return cg_cli_fail(title, &err);
        return CG_EXIT_OK;
}
