/* The definition of one MCP server. Linked into the tool server and the command line. */
#include "mcp/client/def.h"

#include "base/installed.h"
#include "base/json.h"
#include "base/ceilings.h"
#include "base/path.h"
#include "base/proc.h"
#include "base/text.h"
#include "base/strv.h"
#include "config.h"
#include "mcp/ceilings.h"

/* Shorter values (true, 8080, a user's name) would turn every other message into stars. */
#define SECRET_MIN 8

struct cg_mcp_def *cg_mcp_def_free(struct cg_mcp_def *d)
{
        if (!d)
                return NULL;
        free(d->name);
        free(d->label);
        free(d->note);
        free(d->url);
        cg_free_list(d->headers);
        free(d->ca_file);
        free(d->proxy);
        free(d->no_proxy);
        free(d->command);
        free(d->sandbox_text);
        free(d->sandbox);
        cg_free_list(d->argv);
        cg_free_list(d->envp);
        free(d->search_path);
        free(d->cwd);
        cg_secrets_fini(&d->secrets);
        cg_oauth_config_fini(&d->oauth);
        free(d);
        return NULL;
}

CG_FREEP(def_freep, struct cg_mcp_def *, cg_mcp_def_free)

int cg_mcp_check_name(const char *name, struct cg_err *err)
{
        cg_auto_buf struct cg_buf shown = { .max = 4096 };
        size_t n = strlen(name);

        if (!n || n > CG_MAX_NAME)
                return cg_fail(err, CG_E_INVAL,
                               "the name of an MCP server must have 1 to %d bytes, this has %zu", CG_MAX_NAME,
                               n);
        /* Commands that name a server must not take it for an option. */
        if (name[0] == '-')
                return cg_fail(err, CG_E_INVAL,
                               "the name of an MCP server must not begin with \"-\": rename it");
        cg_text_render_as(&shown, name, n, 0, CG_TEXT_OUTPUT);
        if (name[strcspn(name, "\t\n")] || shown.failed || strcmp(shown.data, name) != 0)
                return cg_fail(err, CG_E_INVAL,
                               "the name of an MCP server contains a control character or one that is not "
                               "shown: rename it");
        if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0 || strchr(name, '/') || strchr(name, '\\'))
                return cg_fail(err, CG_E_INVAL, "\"%s\" cannot name an MCP server: it must not be a path",
                               name);
        /* An approval rule is SERVER.TOOL, and tools' names have dots. */
        if (strchr(name, '.'))
                return cg_fail(
                        err, CG_E_INVAL,
                        "\"%s\" cannot name an MCP server: approval rules say SERVER.TOOL, so a server's name has no dot; write "
                        "\"-\" or \"_\" in its place",
                        name);
        if (strcasecmp(name, "cellgate") == 0)
                return cg_fail(err, CG_E_INVAL,
                               "\"%s\" cannot name an MCP server: what cellgate itself says has that name",
                               name);
        return 0;
}

/* ---- parts */

static int bad_member(const char *name, const char *what, const char *must, struct cg_err *err)
{
        return cg_fail(err, CG_E_INVAL, "MCP server \"%s\": %s must be %s", name, what, must);
}

/* The text (borrowed) of a JSON string that can be an argument or a variable; NULL: it is none. */
static const char *plain_string(const json_t *j)
{
        if (!json_is_string(j) || json_string_length(j) != strlen(json_string_value(j)))
                return NULL;
        return json_string_value(j);
}

/* ---- the command line */

static void add_words(struct cg_strv *w, const char *const *words)
{
        for (; *words; words++)
                cg_strv_addf(w, "%s", *words);
}

/*
 * Options of `cellgate sandbox` that no definition can have: where relative entries of its settings
 * begin, which files of the host it hides, and that it reports to us.
 */
static void add_sandbox_options(struct cg_mcp_def *d, const json_t *j, struct cg_strv *w)
{
        static const char *const report[] = { "--control-fd", CG_MCP_CONTROL_FD_TEXT, "--report",
                                              "--watch-files", NULL };
        const char *base = plain_string(json_object_get(j, "base"));
        const char *file = plain_string(json_object_get(j, "sandbox"));
        json_int_t ask = json_integer_value(json_object_get(j, "ask"));
        const json_t *v;
        size_t i;

        d->reports = true;
        add_words(w, report);
        if (base)
                add_words(w, (const char *const[]){ "--base", base, NULL });
        json_array_foreach(json_object_get(j, "hide"), i, v) {
                if (plain_string(v))
                        add_words(w, (const char *const[]){ "--hide", plain_string(v), NULL });
        }
        if (file)
                add_words(w, (const char *const[]){ "--hide", file, NULL });
        if (ask > 0)
                cg_strv_addf(w, "--ask=%lld", (long long)ask);
}

static int read_sandbox(struct cg_mcp_def *d, const json_t *j, struct cg_strv *w, struct cg_err *err)
{
        const json_t *sandbox = json_object_get(j, "sandbox");
        const char *file = plain_string(sandbox);
        size_t len;

        if (!sandbox || json_is_null(sandbox))
                return 0;
        /* Any other value is an error: the program must not run without its sandbox. */
        if (!json_is_object(sandbox) && (!file || file[0] != '/'))
                return bad_member(d->name, "\"sandbox\"",
                                  "the absolute path of a settings file, or its content as an object", err);
        if (!file) {
                d->sandbox_text = cg_json_text(sandbox, &len);
                if (!d->sandbox_text)
                        return cg_fail(err, CG_E_NOMEM, "MCP server");
                file = "/proc/self/fd/3";
        }
        if (cg_asprintf(&d->sandbox, "MCP server", err, "%s", CG_INSTALLED(CG_BINDIR "/cellgate")) < 0)
                return -1;
        add_words(w, (const char *const[]){ d->sandbox, "sandbox", "--settings", file, NULL });
        add_sandbox_options(d, j, w);
        cg_strv_addf(w, "--");
        return 0;
}

/* True if @program, a path or a name in PATH, is the installed `cellgate` under whatever name. */
static bool is_cellgate(const struct cg_mcp_def *d, const char *program)
{
        const char *own = CG_INSTALLED(CG_BINDIR "/cellgate"), *list = d->search_path ?: "";
        char path[PATH_MAX], real[PATH_MAX], own_real[PATH_MAX];

        if (!realpath(own, own_real))
                return false;
        if (strchr(program, '/'))
                return realpath(program, real) && strcmp(real, own_real) == 0;
        for (size_t n; *list; list += n + (list[n] == ':')) {
                n = strcspn(list, ":");
                if (snprintf(path, sizeof(path), "%.*s/%s", (int)n, list, program) < (int)sizeof(path) &&
                    access(path, X_OK) == 0)
                        return realpath(path, real) && strcmp(real, own_real) == 0;
        }
        return false;
}

/*
 * How many words of the command line are `srt` or `cellgate sandbox`; 0: it is another program. A
 * wheel's `cellgate` is a script that becomes the program.
 */
static size_t own_sandbox_words(const struct cg_mcp_def *d, const json_t *args)
{
        const char *first = plain_string(json_array_get(args, 0));

        if (strcmp(d->label, "srt") == 0)
                return is_cellgate(d, d->command);
        return strcmp(d->label, "cellgate") == 0 && first && strcmp(first, "sandbox") == 0 ? 2 : 0;
}

static int add_args(struct cg_mcp_def *d, const json_t *j, struct cg_strv *w, struct cg_err *err)
{
        const json_t *args = json_object_get(j, "args"), *arg;
        size_t own = d->sandbox ? 0 : own_sandbox_words(d, args), i;

        if (args && !json_is_array(args) && !json_is_null(args))
                return bad_member(d->name, "\"args\"", "an array of strings", err);
        cg_strv_addf(w, "%s", d->command);
        if (own == 1)
                add_sandbox_options(d, j, w);
        json_array_foreach(args, i, arg) {
                if (!plain_string(arg))
                        return bad_member(d->name, "\"args\"", "an array of strings without NUL", err);
                cg_strv_addf(w, "%s", plain_string(arg));
                if (own == i + 2)
                        add_sandbox_options(d, j, w);
        }
        return 0;
}

static int read_args(struct cg_mcp_def *d, const json_t *j, struct cg_err *err)
{
        cg_auto_strv struct cg_strv w = { .v = NULL };
        int r = read_sandbox(d, j, &w, err);

        if (r < 0)
                return r;
        r = add_args(d, j, &w, err);
        if (r < 0)
                return r;
        d->argv = cg_strv_take(&w);
        return cg_made(d->argv, "MCP server", err);
}

static void add_inherited(struct cg_strv *l, const json_t *env, char *const *environ_)
{
        for (size_t i = 0; environ_ && environ_[i]; i++) {
                char key[128];
                size_t len = strcspn(environ_[i], "=");

                if (!cg_proc_env_passes(environ_[i]) || len >= sizeof(key))
                        continue;
                memcpy(key, environ_[i], len);
                key[len] = '\0';
                if (!json_object_get(env, key)) /* else the definition's own value follows */
                        cg_strv_addf(l, "%s", environ_[i]);
        }
}

/* The same from {"NAME": "VALUE"}, which a supervisor has made of its host's. */
static void add_given(struct cg_strv *l, const json_t *env, const json_t *inherit)
{
        const char *key;
        json_t *value;

        json_object_foreach(cg_json_unconst(inherit), key, value) {
                if (!json_object_get(env, key) && plain_string(value))
                        cg_strv_addf(l, "%s=%s", key, plain_string(value));
        }
}

static int add_secret(struct cg_mcp_def *d, const char *s, struct cg_err *err)
{
        return strlen(s) < SECRET_MIN ? 0 : cg_secrets_add(&d->secrets, s, err);
}

static int add_variable(struct cg_mcp_def *d, struct cg_strv *l, const char *key, const json_t *value,
                        struct cg_err *err)
{
        const char *s = plain_string(value);
        char what[CG_MAX_NAME];

        snprintf(what, sizeof(what), "\"env\": \"%s\"", key);
        if (!s)
                return bad_member(d->name, what, "a string without NUL", err);
        if (!*key || strchr(key, '='))
                return bad_member(d->name, what, "named without \"=\"", err);
        cg_strv_addf(l, "%s=%s", key, s);
        return cg_proc_env_passes(key) ? 0 : add_secret(d, s, err);
}

static int read_env(struct cg_mcp_def *d, json_t *env, const json_t *inherit, char *const *environ_,
                    struct cg_err *err)
{
        cg_auto_strv struct cg_strv l = { .v = NULL };
        json_t *value; /* borrowed */
        const char *key;

        if (json_is_object(inherit))
                add_given(&l, env, inherit);
        else
                add_inherited(&l, env, environ_);
        json_object_foreach(env, key, value) {
                int r = add_variable(d, &l, key, value, err);

                if (r < 0)
                        return r;
        }
        d->envp = cg_strv_take(&l);
        if (!d->envp)
                return cg_fail(err, CG_E_NOMEM, "MCP server");
        for (char **v = d->envp; *v && !d->search_path; v++)
                if (strncmp(*v, "PATH=", 5) == 0 && !(d->search_path = strdup(*v + 5)))
                        return cg_fail(err, CG_E_NOMEM, "MCP server");
        return 0;
}

static int copy_string(char **to, const char *s, struct cg_err *err)
{
        *to = strdup(s);
        return cg_made(*to, "MCP server", err);
}

/* ---- HTTP */

/* Headers that the protocol or HTTP itself decides. */
static bool is_own_header(const char *name)
{
        static const char *const own[] = {
                "Accept", "Connection",        "Content-Length", "Content-Type", "Host",
                "Expect", "Transfer-Encoding", "Last-Event-ID",  "Upgrade",      "TE",
                "Trailer"
        };

        for (size_t i = 0; i < CG_ARRAY_LEN(own); i++)
                if (strcasecmp(name, own[i]) == 0)
                        return true;
        return strncasecmp(name, "Mcp-", 4) == 0;
}

static int read_headers(struct cg_mcp_def *d, json_t *headers, struct cg_err *err)
{
        cg_auto_strv struct cg_strv l = { .v = NULL };
        const char *key;
        json_t *value; /* borrowed */

        if (headers && !json_is_object(headers) && !json_is_null(headers))
                return bad_member(d->name, "\"headers\"", "an object of strings", err);
        json_object_foreach(headers, key, value) {
                const char *s = plain_string(value), *blank;
                char what[CG_MAX_NAME];
                int r;

                snprintf(what, sizeof(what), "\"headers\": \"%s\"", key);
                if (!s || s[strcspn(s, "\r\n")])
                        return bad_member(d->name, what, "a string of one line", err);
                if (!*key || key[strcspn(key, ": \t\r\n")])
                        return bad_member(d->name, what, "named without \":\" and blanks", err);
                if (is_own_header(key))
                        return bad_member(d->name, what, "left out: the protocol decides this header", err);
                cg_strv_addf(&l, "%s: %s", key, s);
                r = add_secret(d, s, err);
                if (r < 0)
                        return r;
                /* "Bearer TOKEN": the token alone is secret, too. */
                blank = strchr(s, ' ');
                r = add_secret(d, blank ? blank + 1 : "", err);
                if (r < 0)
                        return r;
        }
        d->headers = cg_strv_take(&l);
        return cg_made(d->headers, "MCP server", err);
}

/* A copy of the first of the variables @names that @env has; none leaves NULL. */
static int copy_variable(const json_t *env, const char *const *names, char **to, struct cg_err *err)
{
        for (; *names; names++)
                if (plain_string(json_object_get(env, *names)))
                        return copy_string(to, plain_string(json_object_get(env, *names)), err);
        return 0;
}

/* The proxy that "env" names for this URL, by the usual variables. */
static int read_proxy(struct cg_mcp_def *d, const json_t *env, struct cg_err *err)
{
        /* HTTP_PROXY could be a header "Proxy" of a CGI script; nobody reads it. */
        static const char *const https[] = { "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY", NULL },
                                 *const http[] = { "http_proxy", "all_proxy", "ALL_PROXY", NULL },
                                 *const none[] = { "no_proxy", "NO_PROXY", NULL };
        bool tls = strncasecmp(d->url, "https:", 6) == 0;
        int r = copy_variable(env, tls ? https : http, &d->proxy, err);

        return r < 0 ? r : copy_variable(env, none, &d->no_proxy, err);
}

/* Clients tell the two HTTP transports apart by the end of the URL's path. */
static bool path_ends_with(const char *url, const char *end)
{
        size_t n = strcspn(url, "?#"), len = strlen(end);

        while (n && url[n - 1] == '/')
                n--;
        return n >= len && strncasecmp(url + n - len, end, len) == 0;
}

static int read_url(struct cg_mcp_def *d, const json_t *j, const char *url, const char *type,
                    struct cg_err *err)
{
        const json_t *ca = json_object_get(j, "caFile"), *sandbox = json_object_get(j, "sandbox");
        const char *host;
        int r;

        if (sandbox && !json_is_null(sandbox))
                return cg_fail(
                        err, CG_E_INVAL,
                        "MCP server \"%s\": a server with a \"url\" runs elsewhere and cannot have a \"sandbox\": "
                        "remove it",
                        d->name);
        if (json_object_get(j, "command"))
                return cg_fail(err, CG_E_INVAL, "MCP server \"%s\": give \"command\" or \"url\", not both",
                               d->name);
        if (strncasecmp(url, "http://", 7) != 0 && strncasecmp(url, "https://", 8) != 0)
                return bad_member(d->name, "\"url\"", "an address that begins with http:// or https://", err);
        host = strchr(url, '/') + 2;
        if (memchr(host, '@', strcspn(host, "/?#")))
                return cg_fail(
                        err, CG_E_INVAL,
                        "MCP server \"%s\": the \"url\" has a user or a password: give them in \"headers\"",
                        d->name);
        if (type && strcmp(type, "sse") == 0)
                d->kind = CG_MCP_SSE;
        else if (type)
                d->kind = CG_MCP_HTTP_ONLY;
        else
                d->kind = path_ends_with(url, "/sse") ? CG_MCP_SSE : CG_MCP_HTTP;
        d->label = strndup(url, (size_t)(host - url) + strcspn(host, "/?#"));
        d->url = strdup(url);
        if (!d->label || !d->url)
                return cg_fail(err, CG_E_NOMEM, "MCP server");
        r = cg_oauth_config_parse(d->name, json_object_get(j, "oauth"), &d->oauth, err);
        if (r < 0)
                return r;
        r = add_secret(d, d->oauth.client_secret ?: "", err);
        if (r < 0)
                return r;
        r = read_headers(d, json_object_get(j, "headers"), err);
        if (r < 0)
                return r;
        for (char **h = d->headers; *h; h++)
                d->oauth.off |= strncasecmp(*h, "Authorization:", 14) == 0;
        r = read_proxy(d, json_object_get(j, "env"), err);
        if (r < 0 || !ca || json_is_null(ca))
                return r;
        if (!plain_string(ca) || plain_string(ca)[0] != '/')
                return bad_member(d->name, "\"caFile\"",
                                  "the absolute path of a file with certificates (PEM)", err);
        return copy_string(&d->ca_file, plain_string(ca), err);
}

/* ---- the whole */

static int read_limits(struct cg_mcp_def *d, const json_t *j, struct cg_err *err)
{
        const json_t *start = json_object_get(j, "startTimeout"), *call = json_object_get(j, "timeout"),
                     *at_once = json_object_get(j, "maxConcurrency");
        double s = json_number_value(start);

        if (start && !json_is_null(start)) {
                if (!json_is_number(start) || s <= 0 || s > CG_MCP_MAX_START_S)
                        return bad_member(d->name, "\"startTimeout\"",
                                          "a number of seconds, more than 0 and at most 3600", err);
                d->start_timeout_ms = (int64_t)(s * 1000 + 0.5) ?: 1;
        }
        s = json_number_value(call);
        if (call && !json_is_null(call)) {
                if (!json_is_number(call) || s <= 0 || s > CG_MCP_MAX_CALL_MS)
                        return bad_member(d->name, "\"timeout\"",
                                          "a number of seconds up to 3600, or of milliseconds above that",
                                          err);
                d->call_timeout_ms = (int64_t)(s > 3600 ? s : s * 1000 + 0.5) ?: 1;
        }
        if (at_once && !json_is_null(at_once)) {
                json_int_t n = json_integer_value(at_once);

                if (n < 1 || n > CG_MCP_MAX_CONCURRENCY)
                        return bad_member(d->name, "\"maxConcurrency\"",
                                          "a whole number from 1 to 1000: calls at once", err);
                d->max_concurrency = (unsigned)n;
        }
        return 0;
}

/* True if @s is in @list, which NULL ends. */
static bool is_one_of(const char *s, const char *const *list)
{
        while (s && *list && strcmp(*list, s) != 0)
                list++;
        return s && *list;
}

/* The members that any server may have. *type: "type"; NULL: not given. */
static int read_general(struct cg_mcp_def *d, const json_t *j, const char **type, struct cg_err *err)
{
        static const char *const types[] = { "stdio", "http", "sse", NULL };
        static const char *const eras[] = { "auto", "legacy", "modern", NULL };
        static const char *const starts[] = { "lazy", "eager", NULL };
        const json_t *type_value = json_object_get(j, "type") ?: json_object_get(j, "transport"),
                     *start_value = json_object_get(j, "start"), *roots = json_object_get(j, "roots"),
                     *env = json_object_get(j, "env");
        const char *start = plain_string(start_value), *era = plain_string(json_object_get(j, "era"));

        *type = plain_string(type_value);
        if (type_value && !json_is_null(type_value) && !is_one_of(*type, types) &&
            (!*type ||
             (strcasecmp(*type, "streamable-http") != 0 && strcasecmp(*type, "streamable_http") != 0 &&
              strcasecmp(*type, "streamableHttp") != 0)))
                return bad_member(d->name, "\"type\"", "\"stdio\", \"http\" or \"sse\"", err);
        if (json_object_get(j, "era") && !is_one_of(era, eras))
                return bad_member(d->name, "\"era\"", "\"auto\", \"legacy\" or \"modern\"", err);
        d->era = CG_MCP_AUTO;
        if (era && strcmp(era, "auto") != 0)
                d->era = strcmp(era, "legacy") == 0 ? CG_MCP_LEGACY : CG_MCP_MODERN;
        if (start_value && !json_is_null(start_value) && !is_one_of(start, starts))
                return bad_member(d->name, "\"start\"", "\"lazy\" or \"eager\"", err);
        d->eager = start && strcmp(start, "eager") == 0;
        if (roots && !json_is_boolean(roots))
                return bad_member(d->name, "\"roots\"", "true or false", err);
        d->roots = json_is_true(roots);
        if (env && !json_is_object(env) && !json_is_null(env))
                return bad_member(d->name, "\"env\"", "an object of strings", err);
        return read_limits(d, j, err);
}

/* Members of other clients that would run tools without a question. */
static int note_ignored(struct cg_mcp_def *d, const json_t *j, struct cg_err *err)
{
        static const char *const ignored[] = { "alwaysAllow", "autoApprove", "trust" };

        for (size_t i = 0; i < CG_ARRAY_LEN(ignored); i++) {
                const json_t *value = json_object_get(j, ignored[i]);

                if (!value || json_is_false(value) || (json_is_array(value) && !json_array_size(value)))
                        continue;
                if (asprintf(&d->note,
                             "\"%s\" is ignored: what runs without a question is decided by "
                             "cellgate's own rules (--approve)",
                             ignored[i]) >= 0)
                        return 0;
                d->note = NULL;
                return cg_fail(err, CG_E_NOMEM, "MCP server");
        }
        return 0;
}

static int read_program(struct cg_mcp_def *d, const json_t *j, char *const *environ_, struct cg_err *err)
{
        const char *command = plain_string(json_object_get(j, "command"));
        const json_t *cwd = json_object_get(j, "cwd");
        int r;

        if (!command || !*command)
                return bad_member(d->name, "\"command\"",
                                  "the program to start, a string that is not empty (or give a \"url\")",
                                  err);
        d->command = strdup(command);
        d->label = strdup(cg_path_base(command));
        if (!d->command || !d->label)
                return cg_fail(err, CG_E_NOMEM, "MCP server");
        r = read_env(d, json_object_get(j, "env"), json_object_get(j, "inherit"), environ_, err);
        if (r < 0)
                return r;
        r = read_args(d, j, err); /* with the PATH of its environment */
        if (r < 0 || !cwd || json_is_null(cwd))
                return r;
        if (!plain_string(cwd) || !*plain_string(cwd))
                return bad_member(d->name, "\"cwd\"", "a string that is not empty", err);
        return copy_string(&d->cwd, plain_string(cwd), err);
}

static int read_definition(struct cg_mcp_def *d, const json_t *j, char *const *environ_, struct cg_err *err)
{
        const json_t *url = json_object_get(j, "url") ?: json_object_get(j, "serverUrl");
        cg_auto_free char *text = json_dumps(j, JSON_COMPACT | JSON_SORT_KEYS);
        const char *type;
        bool stdio;
        int r = cg_secrets_add_all(&d->secrets, json_object_get(j, "secrets"), err);

        if (r < 0)
                return r;
        d->digest = cg_fnv1a(CG_FNV1A, text, cg_strlen(text));
        r = read_general(d, j, &type, err);
        if (r < 0)
                return r;
        r = note_ignored(d, j, err);
        if (r < 0)
                return r;
        url = url ?: json_object_get(j, "httpUrl");
        stdio = !type || strcmp(type, "stdio") == 0;
        if (!url && stdio)
                return read_program(d, j, environ_, err);
        if (type && stdio)
                return cg_fail(err, CG_E_INVAL,
                               "MCP server \"%s\": \"type\" is \"stdio\", but there is a \"url\"", d->name);
        if (!plain_string(url))
                return bad_member(d->name, "\"url\"", "the server's address, a string", err);
        return read_url(d, j, plain_string(url), type, err);
}

int cg_mcp_def_new(const char *name, const json_t *definition, char *const *environ_, struct cg_mcp_def **ret,
                   struct cg_err *err)
{
        CG_CLEANUP(def_freep) struct cg_mcp_def *d = NULL;
        int r = cg_mcp_check_name(name, err);

        if (r < 0)
                return r;
        if (!json_is_object(definition))
                return cg_fail(err, CG_E_INVAL, "MCP server \"%s\": its definition must be an object", name);
        d = calloc(1, sizeof(*d));
        if (!d || !(d->name = strdup(name)))
                return cg_fail(err, CG_E_NOMEM, "MCP server");
        r = read_definition(d, definition, environ_, err);
        if (r < 0)
                return r;
        cg_mcp_def_redact(d, d->label);
        *ret = CG_STEAL(d);
        return 0;
}

int cg_mcp_def_of_host(const char *name, enum cg_mcp_kind kind, struct cg_mcp_def **ret, struct cg_err *err)
{
        CG_CLEANUP(def_freep) struct cg_mcp_def *d = NULL;
        int r = cg_mcp_check_name(name, err);

        if (r < 0)
                return r;
        d = calloc(1, sizeof(*d));
        if (!d || !(d->name = strdup(name)) || !(d->label = strdup("the host")))
                return cg_fail(err, CG_E_NOMEM, "functions");
        d->kind = kind;
        *ret = CG_STEAL(d);
        return 0;
}

void cg_mcp_def_redact(const struct cg_mcp_def *d, char *text)
{
        cg_secrets_redact(&d->secrets, text);
}
