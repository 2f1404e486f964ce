/* Spawn requests: a sandbox plan and the kernel's configuration from JSON. Zygote. See spec.h. */
#include "kernel/spec.h"

#include <malloc.h>
#include <sys/mman.h>
#include "base/account.h"
#include "base/installed.h"
#include "base/json.h"
#include "base/ceilings.h"
#include "config.h"
#include "sandbox/egress/doors_client.h"
#include "sandbox/settings/environ.h"
#include "sandbox/sandbox.h"
#include "sandbox/settings/kernel_view.h"

/* Settings, variables, and content of masked files (1 MB at most, hexadecimal). */
#define SPEC_MAX (4 * CG_MAX_SETTINGS)

static void wipe(void *p, size_t len)
{
        if (p)
                explicit_bzero(p, len);
}

static void wiping_free(void *p)
{
        wipe(p, malloc_usable_size(p));
        free(p);
}

void cg_spawn_spec_wipe_json(void)
{
        json_set_alloc_funcs(malloc, wiping_free);
}

void cg_spawn_spec_fini(struct cg_spawn_spec *spec)
{
        cg_sandbox_free(spec->plan);
        free(spec->tmp);
        wipe(spec->config, spec->config_len);
        free(spec->config);
        *spec = (struct cg_spawn_spec){ .plan = NULL };
}

/* Adds the pairs of "bind_ro" and the paths of "hide". */
static int add_binds_and_hides(struct cg_sandbox *plan, const json_t *o, struct cg_err *err)
{
        json_t *binds = json_object_get(o, "bind_ro"), *hides = json_object_get(o, "hide"), *v; /* borrowed */
        size_t i;
        int r = 0;

        if (binds && !json_is_array(binds))
                return cg_fail(err, CG_E_PARSE, "spawn request: \"bind_ro\" is not an array");
        json_array_foreach(binds, i, v) {
                const char *src = json_string_value(json_array_get(v, 0));
                const char *dst = json_string_value(json_array_get(v, 1));

                if (!src || !dst)
                        return cg_fail(err, CG_E_PARSE,
                                       "spawn request: \"bind_ro\" must have pairs of paths");
                r = cg_sandbox_add_bind_ro(plan, src, dst, err);
                if (r < 0)
                        return r;
        }
        if (hides && !json_is_array(hides))
                return cg_fail(err, CG_E_PARSE, "spawn request: \"hide\" is not an array");
        json_array_foreach(hides, i, v) {
                if (!json_is_string(v))
                        return cg_fail(err, CG_E_PARSE, "spawn request: \"hide\" must have paths");
                r = cg_sandbox_add_hide(plan, json_string_value(v), err);
                if (r < 0)
                        return r;
        }
        return 0;
}

static int get_limit(const json_t *limits, const char *key, uint64_t *ret, struct cg_err *err)
{
        int64_t v = 0;
        int r = limits ? cg_json_int(limits, key, 0, &v, err) : 0;

        if (r < 0)
                return r;
        if (v < 0)
                return cg_fail(err, CG_E_INVAL, "limit %s is negative", key);
        *ret = (uint64_t)v;
        return 0;
}

/* The limits of the session; those that it does not set are from @own (may be NULL). */
static int set_limits(struct cg_sandbox *plan, const json_t *o, const struct cg_settings_own *own,
                      struct cg_err *err)
{
        const json_t *l = json_object_get(o, "limits");
        struct cg_sandbox_limits limits = { 0 };
        int r;

#define X(id, field, scale, name, setting, unit, words) \
        if ((r = get_limit(l, #field, &limits.field, err)) < 0) \
                return r;
        CG_LIMITS_TABLE(X)
#undef X
        if (own)
                cg_limits_fill(&limits, &own->limits);
        cg_sandbox_set_limits(plan, &limits);
        return 0;
}

static enum cg_exec exec_of(const char *name)
{
        if (strcmp(name, "ask") == 0)
                return CG_EXEC_ASK;
        return strcmp(name, "each") == 0 ? CG_EXEC_ASK_EACH : CG_EXEC_DENY;
}

/*
 * Applies the settings (NULL: none) that concern the plan. The supervisor has checked all of them
 * and applies the others.
 */
static int make_plan(const json_t *o, const struct cg_settings *s, const struct cg_sandbox *base,
                     bool by_name, struct cg_sandbox **ret, struct cg_err *err)
{
        const json_t *guards = json_object_get(o, "guards"), *masks = json_object_get(o, "masks");
        struct cg_path_base paths = { .real = true,
                                      .by_name = by_name,
                                      .by_inode = by_name,
                                      .env = json_object_get(o, "user_env"),
                                      .homes = json_object_get(o, "homes") };
        const struct cg_settings *used = s;
        const char *exec, *language;
        bool on, ports;
        int r;

        if ((r = cg_json_str(o, "workspace", "", &paths.cwd, err)) < 0 ||
            (r = cg_json_bool(o, "sandbox", true, &on, err)) < 0 ||
            (r = cg_json_str(o, "exec", NULL, &exec, err)) < 0 ||
            (r = cg_json_str(o, "language_path", NULL, &language, err)) < 0 ||
            (r = cg_json_str(o, "home", NULL, &paths.home, err)) < 0 ||
            (r = cg_json_bool(o, "ports", false, &ports, err)) < 0 ||
            (r = cg_sandbox_copy(base, ret, err)) < 0)
                return r;
        if (!on) {
                cg_sandbox_set_off(*ret);
                used = NULL;
        }
        if (exec && !on) /* the supervisor has refused it */
                return cg_fail(err, CG_E_PROTO, "spawn request: \"exec\" without a sandbox");
        if (exec)
                cg_sandbox_set_exec(*ret, exec_of(exec));
        if (language && (r = cg_sandbox_set_language(*ret, language, err)) < 0)
                return r;
        cg_sandbox_report_denials(*ret);
        cg_sandbox_report_stopped(*ret);
        cg_sandbox_set_watch_network(*ret);
        if (s && s->own.watch_files)
                cg_sandbox_set_watch(*ret);
        r = used ? cg_session_view(*ret, used, masks, &paths, guards, err)
                 : cg_session_view_default(*ret, &paths, guards, err);
        if (r < 0)
                return r;
        if (used && ports &&
            ((r = cg_sandbox_add_port(*ret, CG_PROXY_HTTP_PORT, err)) < 0 ||
             (r = cg_sandbox_add_port(*ret, CG_PROXY_SOCKS_PORT, err)) < 0))
                return r;
        if ((used && (r = cg_doors_plan(used, *ret, err)) < 0) ||
            (r = set_limits(*ret, o, used ? &used->own : NULL, err)) < 0 ||
            (r = cg_sandbox_set_cwd(*ret, paths.cwd, err)) < 0)
                return r;
        return add_binds_and_hides(*ret, o, err);
}

/*
 * Without mounts, folders have their paths on the host: translates those of "python_path" that are
 * bound elsewhere in the full tier.
 */
static int set_host_paths(const json_t *o, json_t *config, struct cg_err *err)
{
        json_t *paths = json_deep_copy(json_object_get(o, "python_path")),
               *binds = json_object_get(o, "bind_ro"), *p, *b;
        size_t i, k;

        json_array_foreach(paths, i, p) {
                json_array_foreach(binds, k, b) {
                        if (json_equal(p, json_array_get(b, 1))) {
                                json_array_set(paths, i, json_array_get(b, 0));
                                break;
                        }
                }
        }
        if (paths && json_object_set_new(config, "python_path", paths) == 0)
                return 0;
        return cg_fail(err, CG_E_NOMEM, "spawn request");
}

/*
 * The variables of the kernel and of commands beside it: these, and those of the host; none are
 * inherited. @tmp: the folder for temporary files, if it is not a /tmp of the sandbox's own.
 */
static int make_environ(const json_t *o, const char *tmp, struct cg_environ *env, struct cg_err *err)
{
        const char *python = json_string_value(json_object_get(o, "kernel_env"));
        bool on = !json_is_false(json_object_get(o, "sandbox"));
        bool color = json_is_true(json_object_get(o, "color"));
        bool no_ports = on && !json_is_true(json_object_get(o, "ports"));
        /* Without a network: programs do not retry for seconds, or look for newer versions. */
        static const struct {
                const char *name, *value;
        } no_network[] = {
                { "PIP_RETRIES", "0" },
                { "PIP_DISABLE_PIP_VERSION_CHECK", "1" },
                { "UV_HTTP_RETRIES", "0" },
                { "CARGO_NET_RETRY", "0" },
                { "npm_config_fetch_retries", "0" },
                { "npm_config_update_notifier", "false" },
        };
        cg_auto_free char *path = NULL;
        char home[PATH_MAX] = "/"; /* for a user without an entry, as in containers */
        const json_t *v;
        size_t i;
        int r;

        if (on)
                snprintf(home, sizeof(home), "%s/home", tmp ?: "/tmp");
        else
                cg_account_home(home);
        if ((r = cg_asprintf(&path, "spawn request", err,
                             "%s/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
                             python ?: CG_INSTALLED(CG_KERNEL_ENV))) < 0 ||
            (r = cg_environ_set(env, "PATH", path, err)) < 0 ||
            (r = cg_environ_set(env, "LANG", "C.UTF-8", err)) < 0 ||
            (r = cg_environ_set(env, "HOME", home, err)) < 0 ||
            (r = cg_environ_set(env, "TERM", color ? "xterm-256color" : "dumb", err)) < 0 ||
            (r = cg_environ_set(env, "PAGER", "cat", err)) < 0 ||
            (r = cg_environ_set(env, "GIT_PAGER", "cat", err)) < 0 ||
            (!color && (r = cg_environ_set(env, "NO_COLOR", "1", err)) < 0) ||
            (tmp && (r = cg_environ_set(env, "TMPDIR", tmp, err)) < 0))
                return r;
        for (i = 0; no_ports && i < CG_ARRAY_LEN(no_network); i++) {
                r = cg_environ_set(env, no_network[i].name, no_network[i].value, err);
                if (r < 0)
                        return r;
        }
        json_array_foreach(json_object_get(o, "env"), i, v) {
                const char *text = json_string_value(v), *eq = text ? strchr(text, '=') : NULL;
                cg_auto_free char *name = eq ? strndup(text, (size_t)(eq - text)) : NULL;

                if (!name)
                        return cg_fail(err, CG_E_PARSE, "spawn request: \"env\" must have NAME=VALUE");
                r = cg_environ_set(env, name, eq + 1, err);
                if (r < 0)
                        return r;
        }
        return 0;
}

/* Only what the kernel needs, without the host's paths of binds and hidden files. */
static int make_config(const json_t *o, const struct cg_environ *env, struct cg_spawn_spec *ret,
                       struct cg_err *err)
{
        static const char *const keys[] = { "session",     "workspace", "sandbox",       "color",
                                            "python_path", "front",     "working_dir",   "kernel_env",
                                            "exec",        "language",  "language_path", "language_spec" };
        cg_auto_json json_t *config = json_object(), *list = json_array();

        ret->notebook = strcmp(cg_json_text_of(o, "front"), "jupyter") == 0;
        for (size_t i = 0; i < CG_ARRAY_LEN(keys); i++) {
                json_t *v = json_object_get(o, keys[i]);

                if (v && json_object_set(config, keys[i], v) < 0)
                        return cg_fail(err, CG_E_NOMEM, "spawn request");
        }
        for (size_t i = 0; i < env->n; i++)
                json_array_append_new(list, json_string(env->v[i]));
        if (json_array_size(list) != env->n || json_object_set(config, "environ", list) < 0 ||
            (ret->tmp && set_host_paths(o, config, err) < 0))
                return cg_fail(err, CG_E_NOMEM, "spawn request");
        ret->config = cg_json_text(config, &ret->config_len);
        return cg_made(ret->config, "spawn request", err);
}

static int read_request(int fd, json_t **ret, struct cg_err *err)
{
        struct stat st;
        char *text;
        int r;

        if (fstat(fd, &st) < 0)
                return cg_fail_errno(err, "spawn request");
        if (st.st_size <= 0 || st.st_size > SPEC_MAX)
                return cg_fail(err, CG_E_LIMIT, "a spawn request of %lld bytes", (long long)st.st_size);
        /* Not read: growing buffers would leave copies in the heap. */
        text = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
        if (text == MAP_FAILED)
                return cg_fail_errno(err, "spawn request");
        r = cg_json_object(text, (size_t)st.st_size, "spawn request", ret, err);
        munmap(text, (size_t)st.st_size);
        return r;
}

/* The tier that the session asks for, else that of its settings. */
static int choose_tier(const json_t *o, const struct cg_settings *s, struct cg_tier_choice *ret,
                       struct cg_err *err)
{
        const char *wanted = json_string_value(json_object_get(o, "tier"));
        int r;

        if (!wanted && s)
                wanted = s->own.tier;
        r = cg_tier_parse(wanted ?: "full", ret, err);
        return r ?: cg_tier_decide(ret, err);
}

static int read_spec(int fd, const struct cg_sandbox *base, struct cg_environ *env, struct cg_spawn_spec *ret,
                     struct cg_err *err)
{
        struct cg_tier_choice tier = { .tier = CG_TIER_FULL };
        cg_auto_settings struct cg_settings *s = NULL;
        cg_auto_json json_t *o = NULL;
        const json_t *settings;
        const char *exec, *tmp = NULL;
        bool on;
        int r = read_request(fd, &o, err);

        if (r < 0)
                return r;
        on = !json_is_false(json_object_get(o, "sandbox"));
        settings = json_object_get(o, "settings");
        if ((settings && (r = cg_settings_read(settings, "sandbox settings", 0, &s, err)) < 0) ||
            (on && (r = choose_tier(o, s, &tier, err)) < 0) ||
            (r = make_plan(o, s, base, on && tier.tier == CG_TIER_FULL, &ret->plan, err)) < 0 ||
            (on && (r = cg_json_str(o, "tmp", NULL, &tmp, err)) < 0))
                return r;
        exec = json_string_value(json_object_get(o, "exec"));
        if (on && tier.tier != CG_TIER_FULL && json_object_get(o, "language_spec"))
                return cg_fail(
                        err, CG_E_UNSUPPORTED,
                        "kernels of Jupyter need a loopback interface of their own, which only the full "
                        "tier has");
        if (tier.tier != CG_TIER_FULL && exec && json_object_get(o, "language"))
                return cg_fail(
                        err, CG_E_UNSUPPORTED,
                        "exec \"%s\" with a language other than python works in the full tier only: use "
                        "that, or exec \"allow\"",
                        exec);
        if (tier.tier != CG_TIER_FULL && exec && strcmp(exec, "deny") != 0)
                return cg_fail(err, CG_E_UNSUPPORTED,
                               "exec \"ask\" and its rules work in the full tier only: use that, or exec "
                               "\"deny\" or \"allow\"");
        if (on && tier.tier != CG_TIER_FULL) {
                if (!tmp)
                        return cg_fail(err, CG_E_PARSE, "spawn request: \"tmp\" is missing");
                if (cg_asprintf(&ret->tmp, "spawn request", err, "%s", tmp) < 0)
                        return -1;
                /* Comes last: turns the finished plan into rules. */
                r = cg_sandbox_set_landlock(ret->plan, tier.deny_rules, tmp, err);
                if (r < 0)
                        return r;
        }
        tmp = ret->tmp;
        /* A workspace that is /tmp is there in place of the sandbox's own, perhaps read-only. */
        if (on && !tmp && !cg_sandbox_has_own_tmp(ret->plan))
                tmp = "/var/tmp";
        if ((r = make_environ(o, tmp, env, err)) < 0 ||
            (r = cg_sandbox_set_commands(ret->plan, (const char *const *)env->v, err)) < 0)
                return r;
        return make_config(o, env, ret, err);
}

int cg_spawn_spec_read(int fd, const struct cg_sandbox *base, struct cg_spawn_spec *ret, struct cg_err *err)
{
        struct cg_environ env = { .v = NULL };
        int r;

        *ret = (struct cg_spawn_spec){ .plan = NULL };
        r = read_spec(fd, base, &env, ret, err);
        for (size_t i = 0; i < env.n; i++)
                wipe(env.v[i], strlen(env.v[i]));
        cg_environ_fini(&env);
        if (r < 0)
                cg_spawn_spec_fini(ret);
        return r;
}
