/* Variables. Pure: text in, text out. */
#include "sandbox/settings/environ.h"

#include "base/installed.h"
#include "config.h"

#define NO_PROXY             "localhost,127.0.0.1,::1,169.254.0.0/16,10.0.0.0/8,172.16.0.0/12,192.168.0.0/16"
#define SAFE_DIRECTORIES_MAX 8 /* more than these are written as "*": so does srt */

void cg_environ_fini(struct cg_environ *env)
{
        for (size_t i = 0; i < env->n; i++)
                free(env->v[i]);
        free(env->v);
        *env = (struct cg_environ){ 0 };
}

static size_t find(const struct cg_environ *env, const char *name)
{
        size_t len = strlen(name), i = 0;

        while (i < env->n && (strncmp(env->v[i], name, len) != 0 || env->v[i][len] != '='))
                i++;
        return i;
}

const char *cg_environ_get(const struct cg_environ *env, const char *name)
{
        size_t i = find(env, name);

        return i < env->n ? env->v[i] + strlen(name) + 1 : NULL;
}

/* Takes @line. */
static int add(struct cg_environ *env, char *line, struct cg_err *err)
{
        /* and for the NULL */
        char **v = line ? cg_grow(env->v, &env->cap, env->n + 1, sizeof(*v)) : NULL;

        if (!v) {
                free(line);
                return cg_fail(err, CG_E_NOMEM, "environment");
        }
        env->v = v;
        v[env->n++] = line;
        v[env->n] = NULL;
        return 0;
}

int cg_environ_set(struct cg_environ *env, const char *name, const char *value, struct cg_err *err)
{
        size_t i = find(env, name);
        char *line = NULL;

        if (i < env->n) {
                free(env->v[i]);
                /* the NULL as well */
                memmove(&env->v[i], &env->v[i + 1], (env->n - i) * sizeof(*env->v));
                env->n--;
        }
        if (!value)
                return 0;
        if (asprintf(&line, "%s=%s", name, value) < 0)
                line = NULL;
        return add(env, line, err);
}

static bool is_allowed(const struct cg_settings *s, const char *line)
{
        size_t len = strcspn(line, "=");

        if (!s->own.has_env)
                return true;
        for (size_t i = 0; i < s->own.env.n; i++) {
                const char *name = s->own.env.v[i];
                size_t n = strlen(name);

                if (name[n - 1] != '*' && len != n)
                        continue;
                n -= name[n - 1] == '*';
                if (len >= n && strncmp(line, name, n) == 0)
                        return true;
        }
        return false;
}

static int set_proxies(struct cg_environ *env, const struct cg_environ_options *o, struct cg_err *err)
{
        char http[64], socks[64], http_port[16], rsync[64], ssh[PATH_MAX + 192];
        const struct {
                const char *name, *value;
        } pairs[] = {
                { "NO_PROXY", NO_PROXY },
                { "no_proxy", NO_PROXY },
                { "HTTP_PROXY", http },
                { "HTTPS_PROXY", http },
                { "http_proxy", http },
                { "https_proxy", http },
                { "ALL_PROXY", http },
                { "all_proxy", http },
                { "GRPC_PROXY", http },
                { "grpc_proxy", http },
                { "FTP_PROXY", socks },
                { "ftp_proxy", socks },
                { "RSYNC_PROXY", rsync },
                { "DOCKER_HTTP_PROXY", http },
                { "DOCKER_HTTPS_PROXY", http },
                { "CLOUDSDK_PROXY_TYPE", "http" },
                { "CLOUDSDK_PROXY_ADDRESS", "localhost" },
                { "CLOUDSDK_PROXY_PORT", http_port },
                { "GIT_SSH_COMMAND", ssh },
        };
        int r = 0;

        snprintf(http, sizeof(http), "http://localhost:%d", o->http_port);
        snprintf(socks, sizeof(socks), "socks5h://localhost:%d", o->socks_port);
        snprintf(http_port, sizeof(http_port), "%d", o->http_port);
        snprintf(rsync, sizeof(rsync), "localhost:%d", o->socks_port);
        /* A shared connection would need a socket that the sandbox may not open. */
        snprintf(
                ssh, sizeof(ssh),
                "ssh -o ControlMaster=no -o ControlPath=none -o ProxyCommand='%s --connect localhost:%d %%h %%p'",
                CG_INSTALLED(CG_LIBEXECDIR "/cellgate-egress"), o->http_port);
        for (size_t i = 0; i < CG_ARRAY_LEN(pairs) && r == 0; i++)
                r = cg_environ_set(env, pairs[i].name, pairs[i].value, err);
        return r;
}

static int set_git(struct cg_environ *env, const struct cg_strs *dirs, struct cg_err *err)
{
        const char *had = cg_environ_get(env, "GIT_CONFIG_COUNT");
        long first = had ? strtol(had, NULL, 10) : 0;
        bool all = dirs->n > SAFE_DIRECTORIES_MAX;
        size_t n = all ? 1 : dirs->n;
        char name[40], count[24];
        int r;

        if (!n)
                return 0;
        if (first < 0 || first > 1000)
                first = 0;
        for (size_t i = 0; i < n; i++) {
                snprintf(name, sizeof(name), "GIT_CONFIG_KEY_%ld", first + (long)i);
                r = cg_environ_set(env, name, "safe.directory", err);
                if (r < 0)
                        return r;
                snprintf(name, sizeof(name), "GIT_CONFIG_VALUE_%ld", first + (long)i);
                r = cg_environ_set(env, name, all ? "*" : dirs->v[i], err);
                if (r < 0)
                        return r;
        }
        snprintf(count, sizeof(count), "%ld", first + (long)n);
        return cg_environ_set(env, "GIT_CONFIG_COUNT", count, err);
}

int cg_environ_make(const struct cg_settings *s, char *const *from, const struct cg_environ_options *opts,
                    struct cg_environ *ret, struct cg_err *err)
{
        cg_auto_environ struct cg_environ env = { 0 };
        int r;

        for (; *from; from++)
                if (is_allowed(s, *from) && (r = add(&env, strdup(*from), err)) < 0)
                        return r;
        if ((r = cg_environ_set(&env, "SANDBOX_RUNTIME", "1", err)) < 0 ||
            (opts->tmpdir && (r = cg_environ_set(&env, "TMPDIR", opts->tmpdir, err)) < 0) ||
            (opts->http_port && (r = set_proxies(&env, opts, err)) < 0) ||
            (r = set_git(&env, &s->safe_directories, err)) < 0)
                return r;
        for (size_t i = 0; i < s->creds.n_vars; i++)
                if (s->creds.vars[i].mode == CG_CRED_DENY &&
                    (r = cg_environ_set(&env, s->creds.vars[i].what, NULL, err)) < 0)
                        return r;
        *ret = env;
        env = (struct cg_environ){ 0 };
        return 0;
}
