/* The definition of one MCP server. Linked into the tool server and the command line. */
#include "mcp/def.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>
#include "base/json.h"
#include "base/ceilings.h"
#include "base/proc.h"
#include "config.h"
#include "mcp/ceilings.h"

/* Shorter values (true, 8080, a user's name) would turn every other message into stars. */
#define SECRET_MIN 8

static void free_list(char **list)
{
        for (size_t i = 0; list && list[i]; i++)
                free(list[i]);
        free(list);
}

struct cg_mcp_def *cg_mcp_def_free(struct cg_mcp_def *d)
{
        if (!d)
                return NULL;
        free(d->name);
        free(d->command);
        free(d->sandbox_text);
        free_list(d->argv);
        free_list(d->envp);
        free(d->search_path);
        free(d->cwd);
        free_list(d->secrets);
        free(d);
        return NULL;
}

int cg_mcp_check_name(const char *name, struct cg_err *err)
{
        size_t n = strlen(name);

        if (!n || n > CG_MAX_NAME)
                return cg_fail(err, CG_E_INVAL,
                               "the name of an MCP server must have 1 to %d bytes, this has %zu", CG_MAX_NAME,
                               n);
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
        for (size_t i = 0; i < n; i++)
                if ((unsigned char)name[i] < 0x20 || name[i] == 0x7f)
                        return cg_fail(err, CG_E_INVAL,
                                       "the name of an MCP server contains a control character");
        return 0;
}

/* ---- parts */

static int bad_member(const char *name, const char *what, const char *must, struct cg_err *err)
{
        return cg_fail(err, CG_E_INVAL, "MCP server \"%s\": %s must be %s", name, what, must);
}

/*
 * The text of a JSON string that can be an argument or a variable; NULL when it is none. Borrowed.
 */
static const char *plain_string(const json_t *j)
{
        if (!json_is_string(j) || json_string_length(j) != strlen(json_string_value(j)))
                return NULL;
        return json_string_value(j);
}

/* Most words before the command. */
#define PREFIX_MAX 5

static int read_sandbox(struct cg_mcp_def *d, const json_t *j, const char *prefix[PREFIX_MAX], size_t *n,
                        struct cg_err *err)
{
        const json_t *sandbox = json_object_get(j, "sandbox");
        const char *file = plain_string(sandbox);
        size_t len;

        *n = 0;
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
        d->sandbox = CG_BINDIR "/cellgate";
        prefix[(*n)++] = d->sandbox;
        prefix[(*n)++] = "sandbox";
        prefix[(*n)++] = "--settings";
        prefix[(*n)++] = file;
        prefix[(*n)++] = "--";
        return 0;
}

static int add_word(char **argv, size_t *n, const char *word, struct cg_err *err)
{
        argv[*n] = strdup(word);
        return argv[(*n)++] ? 0 : cg_fail(err, CG_E_NOMEM, "MCP server");
}

static int read_args(struct cg_mcp_def *d, const json_t *j, struct cg_err *err)
{
        const json_t *args = json_object_get(j, "args");
        const char *prefix[PREFIX_MAX];
        size_t n_args = json_array_size(args), n_prefix, n = 0;
        int r = read_sandbox(d, j, prefix, &n_prefix, err);

        if (r < 0)
                return r;
        if (args && !json_is_array(args) && !json_is_null(args))
                return bad_member(d->name, "\"args\"", "an array of strings", err);
        d->argv = calloc(n_prefix + n_args + 2, sizeof(*d->argv));
        if (!d->argv)
                return cg_fail(err, CG_E_NOMEM, "MCP server");
        for (size_t i = 0; i < n_prefix && r == 0; i++)
                r = add_word(d->argv, &n, prefix[i], err);
        if (r == 0)
                r = add_word(d->argv, &n, d->command, err);
        for (size_t i = 0; i < n_args && r == 0; i++) {
                const char *s = plain_string(json_array_get(args, i));

                if (!s)
                        return bad_member(d->name, "\"args\"", "an array of strings without NUL", err);
                r = add_word(d->argv, &n, s, err);
        }
        return r;
}

static int add_inherited(struct cg_mcp_def *d, size_t *n, const json_t *env, char *const *environ_,
                         struct cg_err *err)
{
        for (size_t i = 0; environ_ && environ_[i]; i++) {
                char key[128];
                size_t len = strcspn(environ_[i], "=");

                if (!cg_proc_env_passes(environ_[i]) || len >= sizeof(key))
                        continue;
                memcpy(key, environ_[i], len);
                key[len] = '\0';
                if (json_object_get(env, key))
                        continue; /* the definition's own value follows */
                d->envp[(*n)++] = strdup(environ_[i]);
                if (!d->envp[*n - 1])
                        return cg_fail(err, CG_E_NOMEM, "MCP server");
        }
        return 0;
}

/* The same from {"NAME": "VALUE"}, which a supervisor has made of its host's. */
static int add_given(struct cg_mcp_def *d, size_t *n, const json_t *env, const json_t *inherit,
                     struct cg_err *err)
{
        const char *key;
        json_t *value;

        json_object_foreach((json_t *)(uintptr_t)inherit, key, value)
        {
                if (json_object_get(env, key) || !plain_string(value))
                        continue;
                if (asprintf(&d->envp[*n], "%s=%s", key, plain_string(value)) < 0) {
                        d->envp[*n] = NULL;
                        return cg_fail(err, CG_E_NOMEM, "MCP server");
                }
                (*n)++;
        }
        return 0;
}

static int add_variable(struct cg_mcp_def *d, size_t *n, size_t *n_secrets, const char *key,
                        const json_t *value, struct cg_err *err)
{
        const char *s = plain_string(value);
        char what[CG_MAX_NAME];

        snprintf(what, sizeof(what), "\"env\": \"%s\"", key);
        if (!s)
                return bad_member(d->name, what, "a string without NUL", err);
        if (!*key || strchr(key, '='))
                return bad_member(d->name, what, "named without \"=\"", err);
        if (asprintf(&d->envp[*n], "%s=%s", key, s) < 0) {
                d->envp[*n] = NULL;
                return cg_fail(err, CG_E_NOMEM, "MCP server");
        }
        (*n)++;
        if (strlen(s) < SECRET_MIN || cg_proc_env_passes(key))
                return 0;
        d->secrets[*n_secrets] = strdup(s);
        return d->secrets[(*n_secrets)++] ? 0 : cg_fail(err, CG_E_NOMEM, "MCP server");
}

static int read_env(struct cg_mcp_def *d, json_t *env, const json_t *inherit, char *const *environ_,
                    struct cg_err *err)
{
        json_t *value; /* borrowed */
        size_t n_host = 0, n = 0, n_secrets = 0;
        const char *key;
        int r;

        if (env && !json_is_object(env) && !json_is_null(env))
                return bad_member(d->name, "\"env\"", "an object of strings", err);
        while (environ_ && environ_[n_host])
                n_host++;
        d->envp = calloc(n_host + json_object_size(inherit) + json_object_size(env) + 1, sizeof(*d->envp));
        d->secrets = calloc(json_object_size(env) + 1, sizeof(*d->secrets));
        if (!d->envp || !d->secrets)
                return cg_fail(err, CG_E_NOMEM, "MCP server");
        r = json_is_object(inherit) ? add_given(d, &n, env, inherit, err)
                                    : add_inherited(d, &n, env, environ_, err);
        json_object_foreach(env, key, value) if (r == 0) r = add_variable(d, &n, &n_secrets, key, value, err);
        for (size_t i = 0; r == 0 && i < n; i++)
                if (strncmp(d->envp[i], "PATH=", 5) == 0 && !(d->search_path = strdup(d->envp[i] + 5)))
                        r = cg_fail(err, CG_E_NOMEM, "MCP server");
        return r;
}

static int read_definition(struct cg_mcp_def *d, const json_t *j, char *const *environ_, struct cg_err *err)
{
        const char *type = plain_string(json_object_get(j, "type"));
        const char *command = plain_string(json_object_get(j, "command"));
        const json_t *timeout = json_object_get(j, "startTimeout"), *cwd = json_object_get(j, "cwd");
        int r;

        if (json_object_get(j, "url") || json_object_get(j, "serverUrl") || json_object_get(j, "httpUrl") ||
            (type && strcmp(type, "stdio") != 0))
                return cg_fail(
                        err, CG_E_UNSUPPORTED,
                        "MCP server \"%s\": HTTP servers are not supported yet by this build; give \"command\" and \"args\"",
                        d->name);
        if (!command || !*command)
                return bad_member(d->name, "\"command\"", "the program to start, a string that is not empty",
                                  err);
        d->command = strdup(command);
        if (!d->command)
                return cg_fail(err, CG_E_NOMEM, "MCP server");
        r = read_args(d, j, err);
        if (r == 0)
                r = read_env(d, json_object_get(j, "env"), json_object_get(j, "inherit"), environ_, err);
        if (r < 0)
                return r;
        if (timeout && !json_is_null(timeout)) {
                double s = json_number_value(timeout);

                if (!json_is_number(timeout) || s <= 0 || s > CG_MCP_MAX_START_S)
                        return bad_member(d->name, "\"startTimeout\"",
                                          "a number of seconds, more than 0 and at most 3600", err);
                d->start_timeout_ms = (int64_t)(s * 1000 + 0.5) ?: 1;
        }
        if (cwd && !json_is_null(cwd)) {
                if (!plain_string(cwd) || !*plain_string(cwd))
                        return bad_member(d->name, "\"cwd\"", "a string that is not empty", err);
                d->cwd = strdup(plain_string(cwd));
                if (!d->cwd)
                        return cg_fail(err, CG_E_NOMEM, "MCP server");
        }
        return 0;
}

int cg_mcp_def_new(const char *name, const json_t *definition, char *const *environ_, struct cg_mcp_def **ret,
                   struct cg_err *err)
{
        struct cg_mcp_def *d;
        int r = cg_mcp_check_name(name, err);

        if (r < 0)
                return r;
        if (!json_is_object(definition))
                return cg_fail(err, CG_E_INVAL, "MCP server \"%s\": its definition must be an object", name);
        d = calloc(1, sizeof(*d));
        if (!d)
                return cg_fail(err, CG_E_NOMEM, "MCP server");
        d->name = strdup(name);
        r = d->name ? read_definition(d, definition, environ_, err) : cg_fail(err, CG_E_NOMEM, "MCP server");
        if (r < 0)
                cg_mcp_def_free(d);
        else
                *ret = d;
        return r;
}

void cg_mcp_def_redact(const struct cg_mcp_def *d, char *text)
{
        for (size_t i = 0; d->secrets && d->secrets[i]; i++) {
                size_t n = strlen(d->secrets[i]);

                for (char *p = text; (p = strstr(p, d->secrets[i])); p += 3) {
                        memcpy(p, "***", 3);
                        memmove(p + 3, p + n, strlen(p + n) + 1);
                }
        }
}
