/* Settings to the plan of a command. Runs on the host; reads files, changes nothing. */
#include "sandbox/command/command.h"

#include <sys/random.h>

#include "base/path.h"
#include "base/state_dir.h"
#include "base/user_env.h"
#include "sandbox/egress/doors_client.h"
#include "sandbox/egress/client.h"
#include "sandbox/plan.h"
#include "sandbox/settings/exec_rules.h"
#include "sandbox/settings/view.h"

/*
 * srt's name, and the user's number: here it is a tmpfs of this sandbox's own, but the name is
 * shared by a user's sandboxes.
 */
#define PRIVATE_TMP "/tmp/claude-%u"
/* In the landlock tier, which has no mounts: a folder of the host for this command alone. */
#define HOST_TMP "/tmp/cellgate-%u-%08x%08x"

/* On the host there is only an empty mount point for it, while the sandbox runs. */
static int add_tmp(struct cg_command *c, struct cg_err *err)
{
        struct cg_plan_mount tmp = {
                .kind = CG_PLAN_TMPFS, .path = c->tmp, .mode = "0700", .size = CG_PLAN_TMP_SIZE
        };
        struct cg_place place;
        int r;

        if (c->rules.off || cg_view_state(&c->rules, c->tmp) == CG_VIEW_WRITE)
                return 0; /* the host's own is writable */
        r = cg_place_find(c->tmp, &place, err);
        if (r < 0)
                return r;
        cg_place_fini(&place);
        if (strcmp(place.path, c->tmp) != 0)
                return 0;
        if (place.missing && cg_view_state(&c->rules, "/tmp") != CG_VIEW_HIDDEN) {
                r = cg_plan_add_placeholder(c->sb, c->tmp, true, true, err);
                if (r < 0)
                        return r;
        }
        /* A mount that hides its parent folder must have room for it. */
        for (size_t i = 0; i < c->sb->n_mounts; i++) {
                struct cg_plan_mount *m = &c->sb->mounts[i];

                if (m->kind != CG_PLAN_HIDE || !cg_path_within(c->tmp, m->path))
                        continue;
                m->kind = CG_PLAN_EMPTY;
                m->mode = "0755";
                m->size = CG_PLAN_EMPTY_SIZE;
        }
        return cg_plan_insert(c->sb, &tmp, err);
}

/*
 * The environment, and the folder for temporary files in it: from the caller's environment, or
 * (*own_tmp) private to the sandbox.
 */
static int make_env(struct cg_command *c, const struct cg_command_options *o, enum cg_tier tier,
                    bool *own_tmp, struct cg_err *err)
{
        static const char *const names[] = { "CLAUDE_CODE_TMPDIR=", "CLAUDE_TMPDIR=" };
        bool on_host = tier == CG_TIER_LANDLOCK;
        struct cg_environ_options eo = { .tmpdir = NULL };
        unsigned int r[2];

        for (size_t i = 0; i < CG_ARRAY_LEN(names) && !eo.tmpdir; i++) {
                size_t n = strlen(names[i]);

                for (char *const *p = o->env; *p && !eo.tmpdir; p++)
                        if (strncmp(*p, names[i], n) == 0 && (*p)[n])
                                eo.tmpdir = *p + n;
        }
        *own_tmp = !eo.tmpdir;
        if (on_host && getrandom(r, sizeof(r), 0) != (ssize_t)sizeof(r))
                return cg_fail_errno(err, "sandbox: name of the folder for temporary files");
        if (on_host)
                snprintf(c->tmp, sizeof(c->tmp), HOST_TMP, (unsigned int)geteuid(), r[0], r[1]);
        else
                snprintf(c->tmp, sizeof(c->tmp), PRIVATE_TMP, (unsigned int)geteuid());
        c->tmp_on_host = on_host && *own_tmp && !c->settings->filesystem.disabled;
        if (*own_tmp && !c->settings->filesystem.disabled)
                eo.tmpdir = c->tmp;
        if (c->proxy) {
                eo.http_port = CG_PROXY_HTTP_PORT;
                eo.socks_port = CG_PROXY_SOCKS_PORT;
        }
        return cg_environ_make(c->settings, o->env, &eo, &c->env, err);
}

json_t *cg_command_policy(const struct cg_command *c, json_t *policy)
{
        json_t *hosts = cg_masks_hosts(&c->masks, c->settings);

        if (hosts)
                json_object_set_new(policy, "inject", hosts);
        if (c->debug)
                json_object_set_new(policy, "events", json_string("all"));
        if (c->ask_seconds) {
                json_object_set_new(policy, "ask", json_true());
                json_object_set_new(policy, "askTimeoutMs", json_integer((json_int_t)c->ask_seconds * 1000));
        }
        return policy;
}

static int plan(struct cg_command *c, const struct cg_command_options *o, struct cg_err *err)
{
        const struct cg_settings *s = c->settings;
        struct cg_path_base base = c->base;
        struct cg_sandbox_limits limits = s->own.limits;
        unsigned int flags = (s->network.all_unix_sockets ? CG_COMMAND_UNIX_SOCKETS : 0u) |
                             (s->nested_user_namespaces ? CG_COMMAND_NESTED_USERS : 0u) |
                             (s->weaker_nested ? CG_COMMAND_WEAK_PROC : 0u);
        const char *text = o->tier ?: s->own.tier;
        struct cg_tier_choice tier;
        enum cg_exec exec;
        char state[PATH_MAX];
        bool own_tmp = false;
        int r = cg_tier_parse(text ?: "full", &tier, err);

        if (r < 0)
                return r;
        c->fell_back = tier.tier == CG_TIER_AUTO;
        r = cg_tier_decide(&tier, err);
        if (r < 0)
                return r;
        c->fell_back &= tier.tier == CG_TIER_LANDLOCK;
        if (s->own.limits.output_bytes)
                return cg_fail(err, CG_E_UNSUPPORTED,
                               "cellgate.limits.outputMb works for kernels only: a command writes to its own "
                               "standard output, which nobody reads on the way");
        r = cg_exec_rules_mode(s->own.exec, &exec, err);
        if (r < 0)
                return r;
        if (exec != CG_EXEC_ALLOW)
                return cg_fail(err, CG_E_UNSUPPORTED,
                               "cellgate.exec works for kernels only: a command is a program itself");
        base.settings = o->settings;
        base.by_name = tier.tier == CG_TIER_FULL;
        base.by_inode = base.by_name && !s->weaker_nested; /* init may not decide then (cg_mediates()) */
        if ((r = cg_sandbox_new_command(flags, &c->sb, err)) < 0 ||
            (r = make_env(c, o, tier.tier, &own_tmp, err)) < 0 ||
            (r = cg_rules_make(s, &base, &c->rules, err)) < 0 ||
            (r = cg_masks_make(s, &base, &c->env, &c->rules, &c->masks, err)) < 0 ||
            (r = cg_view_add(c->sb, &c->rules, err)) < 0)
                return r;
        if (own_tmp && tier.tier == CG_TIER_FULL && (r = add_tmp(c, err)) < 0)
                return r;
        if ((o->only_plan ? cg_state_dir(state) : cg_make_state_dir(state)) &&
            (r = cg_sandbox_add_hide(c->sb, state, err)) < 0)
                return r;
        for (const char *const *hide = o->hides; hide && *hide; hide++)
                if ((r = cg_plan_add_hide(c->sb, *hide, "--hide", err)) < 0)
                        return r;
        if (s->own.hide_credentials &&
            (r = cg_sandbox_add_default_hides(c->sb, o->home, c->rules.homes, err)) < 0)
                return r;
        if (c->proxy) {
                r = cg_egress_policy(s, c->host_env, &c->policy, err);
                if (r < 0)
                        return r;
                c->policy = cg_command_policy(c, c->policy);
                if ((r = cg_sandbox_add_port(c->sb, CG_PROXY_HTTP_PORT, err)) < 0 ||
                    (r = cg_sandbox_add_port(c->sb, CG_PROXY_SOCKS_PORT, err)) < 0)
                        return r;
        }
        r = cg_doors_plan(s, c->sb, err);
        if (r < 0)
                return r;
        limits.processes = limits.processes ?: CG_PLAN_NO_LIMIT;
        limits.open_files = limits.open_files ?: CG_PLAN_NO_LIMIT;
        cg_sandbox_set_limits(c->sb, &limits);
        cg_sandbox_report_denials(c->sb);
        if (s->own.watch_files || o->watch_files)
                cg_sandbox_set_watch(c->sb);
        if (tier.tier == CG_TIER_LANDLOCK)
                return cg_sandbox_set_landlock(c->sb, tier.deny_rules, c->tmp_on_host ? c->tmp : NULL, err);
        if (tier.tier != CG_TIER_FULL || c->rules.off)
                return 0;
        return cg_sandbox_set_names(c->sb, s->own.writable_names.v, s->own.writable_names.n,
                                    s->filesystem.allow_git_config, err);
}

int cg_command_new(struct cg_settings *s, const struct cg_command_options *opts, struct cg_command **ret,
                   struct cg_err *err)
{
        struct cg_command *c = calloc(1, sizeof(*c));
        int r;

        if (!c) {
                cg_settings_free(s);
                return cg_fail(err, CG_E_NOMEM, "sandbox");
        }
        c->settings = s;
        c->base = (struct cg_path_base){ .cwd = opts->base ?: opts->cwd,
                                         .real = !opts->base,
                                         .home = opts->home };
        c->proxy = !s->own.network_off;
        c->host_env = opts->env;
        c->shell_text = opts->shell_text;
        c->argv = opts->argv;
        c->control_fd = opts->control_fd;
        c->control_socket = opts->control_socket;
        c->report = opts->report;
        c->debug = opts->debug;
        c->quiet = opts->quiet;
        c->ask_seconds = opts->ask_seconds;
        r = cg_user_env(opts->env, opts->base ? opts->cwd : NULL, &c->user_env, err);
        c->base.env = c->user_env;
        if (r < 0 || (r = plan(c, opts, err)) < 0) {
                cg_command_free(c);
                return r;
        }
        *ret = c;
        return 0;
}

/* How many files and folders the rules of one entry name. */
static json_int_t count_matches(const struct cg_rules *rules, const char *setting, const char *path)
{
        json_int_t n = 0;

        for (size_t i = 0; i < rules->n; i++)
                n += rules->v[i].kind != CG_RULE_KEEP && !rules->v[i].missing &&
                     strcmp(rules->v[i].why, setting) == 0;
        /* There are no rules for /proc and the like, or for links that are not followed. */
        return n ?: access(path, F_OK) == 0;
}

json_t *cg_command_entries(const struct cg_command *c)
{
        const struct cg_settings_filesystem *fs = &c->settings->filesystem;
        const struct {
                const char *name;
                const struct cg_path_list *list;
        } lists[] = { { "denyRead", &fs->deny_read },
                      { "allowRead", &fs->allow_read },
                      { "allowWrite", &fs->allow_write },
                      { "denyWrite", &fs->deny_write } };
        json_t *all = json_array();

        for (size_t i = 0; i < CG_ARRAY_LEN(lists); i++) {
                for (size_t k = 0; k < lists[i].list->n; k++) {
                        const char *entry = lists[i].list->v[k].path;
                        char setting[48], path[PATH_MAX];

                        snprintf(setting, sizeof(setting), "filesystem.%s.%zu", lists[i].name, k);
                        if (cg_path_absolute(&c->base, entry, path, NULL) < 0)
                                continue;
                        if (!lists[i].list->v[k].literal)
                                cg_path_strip_all(path);
                        json_array_append_new(all, json_pack("{s:s, s:s, s:s, s:I}", "setting", setting,
                                                             "entry", entry, "path", path, "matches",
                                                             count_matches(&c->rules, setting, path)));
                }
        }
        return all;
}

struct cg_command *cg_command_free(struct cg_command *c)
{
        if (!c)
                return NULL;
        cg_sandbox_free(c->sb);
        cg_masks_fini(&c->masks);
        cg_rules_fini(&c->rules);
        cg_environ_fini(&c->env);
        json_decref(c->policy);
        json_decref(c->user_env);
        cg_settings_free(c->settings);
        free(c);
        return NULL;
}
