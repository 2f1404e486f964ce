/* The plan, for people and for programs. */
#include "sandbox/command/command.h"

#include "base/json.h"
#include "base/text.h"
#include "sandbox/landlock_rules.h"
#include "sandbox/settings/limit_json.h"

static const char *const kinds[] = {
        [CG_PLAN_TMPFS] = "private",        [CG_PLAN_DEV] = "own devices",   [CG_PLAN_PROC] = "own processes",
        [CG_PLAN_SYS] = "own network",      [CG_PLAN_WRITE] = "writable",    [CG_PLAN_BIND_RO] = "read-only",
        [CG_PLAN_READ] = "read-only",       [CG_PLAN_PIN] = "kept in place", [CG_PLAN_HIDE] = "hidden",
        [CG_PLAN_EMPTY] = "hidden but for", [CG_PLAN_MASK] = "masked",       [CG_PLAN_COVER] = "hidden",
};

static json_t *strs_json(const struct cg_strs *list)
{
        json_t *a = json_array();

        for (size_t i = 0; i < list->n; i++)
                json_array_append_new(a, json_string(list->v[i]));
        return a;
}

static json_t *ports_json(const struct cg_settings_port *v, size_t n)
{
        json_t *list = json_array();

        for (size_t i = 0; i < n; i++)
                json_array_append_new(
                        list, json_pack("{s:i, s:i}", "inside", (int)v[i].inside, "host", (int)v[i].host));
        return list;
}

static void add_text(json_t *list, const char *path)
{
        json_t *text = json_string(path); /* NULL: not UTF-8 */

        json_array_append_new(list, text ?: json_string("(a name that is not UTF-8)"));
}

static const char *network_state(const struct cg_command *c, const char *off, const char *none,
                                 const char *proxy)
{
        if (!c->proxy)
                return off;
        return c->settings->network.allowed.n ? proxy : none;
}

static int explain_json(const struct cg_command *c, struct cg_buf *out, struct cg_err *err)
{
        const struct cg_grants *g = c->sb->grants;
        cg_auto_json json_t *o = json_object();
        json_t *mounts = json_array(), *layers = json_array();
        const char *const *layer = cg_sandbox_layers(c->sb);
        cg_auto_free char *text = NULL;
        enum cg_limit_by by[CG_LIMITS];
        size_t len;

        json_object_set_new(o, "tier", json_string(cg_sandbox_tier(c->sb)));
        json_object_set_new(o, "layers", layers);
        for (; *layer; layer++)
                json_array_append_new(layers, json_string(*layer));
        json_object_set_new(o, "root", json_string(c->sb->set.root_writable ? "writable" : "read-only"));
        json_object_set_new(o, "mounts", mounts);
        for (size_t i = 0; i < c->sb->n_mounts; i++) {
                const struct cg_plan_mount *m = &c->sb->mounts[i];
                json_t *mount = json_pack("{s:s, s:s}", "path", m->path, "view", kinds[m->kind]);

                if (mount && m->why)
                        json_object_set_new(mount, "rule", json_string(m->why));
                if (mount && cg_plan_is_absent(c->sb, m->path))
                        json_object_set_new(mount, "absent", json_true());
                if (json_array_append_new(mounts, mount) < 0)
                        return cg_fail(err, CG_E_INVAL, "a path is not UTF-8 text: JSON cannot name it");
        }
        if (g) {
                json_t *frozen = json_array(), *unread = json_array(), *unheld = json_array();
                int abi = cg_landlock_abi();

                for (size_t i = 0; i < g->n_frozen; i++)
                        add_text(g->frozen[i].write ? frozen : unread, g->frozen[i].path);
                for (size_t i = 0; i < g->n_unheld; i++)
                        add_text(unheld, g->unheld[i]);
                json_object_set_new(o, "landlock_abi", json_integer(CG_MAX(abi, 0)));
                json_object_set_new(o, "rules", json_integer((json_int_t)g->n));
                json_object_set_new(o, "nothingNewIn", frozen);
                json_object_set_new(o, "nothingNewReadableIn", unread);
                json_object_set_new(o, "notHeld", unheld);
        }
        json_object_set_new(o, "base", json_string(c->base.cwd));
        json_object_set_new(o, "entries", cg_command_entries(c));
        json_object_set_new(o, "network", json_string(network_state(c, "off", "none", "proxy")));
        json_object_set_new(o, "allowedDomains", strs_json(&c->settings->network.allowed));
        json_object_set_new(o, "deniedDomains", strs_json(&c->settings->network.denied));
        json_object_set_new(o, "unixSockets",
                            c->settings->network.all_unix_sockets
                                    ? json_string("all")
                                    : strs_json(&c->settings->network.unix_sockets));
        json_object_set_new(o, "localBinding", json_boolean(c->settings->network.local_binding));
        json_object_set_new(o, "expose", ports_json(c->settings->own.expose, c->settings->own.n_expose));
        json_object_set_new(o, "reach", ports_json(c->settings->own.reach, c->settings->own.n_reach));
        json_object_set_new(o, "skippedWriteRoots", json_integer((json_int_t)c->rules.skipped));
        cg_sandbox_limits_by(c->sb, by);
        json_object_set_new(o, "limits", cg_limits_json(&c->sb->set.limits, by));
        text = cg_json_text(o, &len);
        if (!text)
                return cg_fail(err, CG_E_NOMEM, "plan");
        cg_buf_add(out, text, len);
        cg_buf_adds(out, "\n");
        return cg_buf_end(out, err);
}

static void line(struct cg_buf *out, const char *view, const char *path, const char *why, const char *more)
{
        cg_buf_addf(out, "  %-14s ", view);
        cg_text_render(out, path, strlen(path), 0);
        if (why && *more)
                cg_buf_addf(out, "   (%s, %s)", why, more);
        else if (why || *more)
                cg_buf_addf(out, "   (%s)", why ?: more);
        cg_buf_adds(out, "\n");
}

/* The entries of the settings, with the paths that they are here. */
static void explain_entries(const struct cg_command *c, struct cg_buf *out)
{
        cg_auto_json json_t *entries = cg_command_entries(c);
        const json_t *v;
        size_t i;

        if (!json_array_size(entries))
                return;
        cg_buf_adds(out, "Entries, of which relative ones begin in ");
        cg_text_render(out, c->base.cwd, strlen(c->base.cwd), 0);
        cg_buf_adds(out, ":\n");
        json_array_foreach(entries, i, v) {
                const char *entry = json_string_value(json_object_get(v, "entry")),
                           *setting = json_string_value(json_object_get(v, "setting"));
                json_int_t n = json_integer_value(json_object_get(v, "matches"));
                char more[64] = "";

                if (n == 0)
                        snprintf(more, sizeof(more), "names nothing that is there now");
                else if (n > 1)
                        snprintf(more, sizeof(more), "%lld matches", (long long)n);
                cg_buf_adds(out, "  ");
                cg_text_render(out, entry, strlen(entry), 0);
                line(out, "  ->", json_string_value(json_object_get(v, "path")), setting, more);
        }
}

static void explain_files(const struct cg_command *c, struct cg_buf *out)
{
        const struct cg_sandbox *sb = c->sb;
        const struct cg_grants *g = sb->grants;

        cg_buf_addf(out, "Tier: %s\nLayers:", cg_sandbox_tier(sb));
        for (const char *const *layer = cg_sandbox_layers(sb); *layer; layer++)
                cg_buf_addf(out, " %s", *layer);
        cg_buf_addf(out, "\nFiles: everything as on the host and %s, but for\n",
                    sb->set.root_writable ? "writable" : "read-only");
        for (size_t i = 0; i < sb->n_mounts; i++) {
                const struct cg_plan_mount *m = &sb->mounts[i];

                line(out, kinds[m->kind], m->path, m->why,
                     cg_plan_is_absent(sb, m->path) ? "not there, and cannot be made" : "");
        }
        for (size_t i = 0; i < sb->n_programs; i++)
                line(out, "no programs", sb->programs[i], CG_WHY_PATH, "none are made directly in it");
        if (sb->names)
                cg_buf_adds(
                        out,
                        "  never written: what shells, git, editors, agents and package managers obey, at any depth (docs/names.md)");
        for (size_t i = 0; i < sb->n_writable_names; i++) {
                cg_buf_adds(out, i ? ", " : ", but for ");
                cg_text_render(out, sb->writable_names[i], strlen(sb->writable_names[i]), 0);
        }
        if (sb->names)
                cg_buf_adds(out, "\n");

        if (g)
                cg_buf_addf(out, "Landlock: ABI %d, %zu rules\n", cg_landlock_abi(), g->n);
        for (size_t i = 0; g && i < g->n_frozen; i++)
                line(out, "frozen", g->frozen[i].path, g->frozen[i].because,
                     g->frozen[i].write ? "nothing new can be made in it" : "nothing new in it can be read");
        for (size_t i = 0; g && i < g->n_unheld; i++)
                line(out, "NOT HELD", g->unheld[i], NULL, "may be written");
        if (c->rules.skipped)
                cg_buf_addf(out, "  %zu of allowWrite left out: a symlink leads there\n", c->rules.skipped);
}

static void explain_network(const struct cg_command *c, struct cg_buf *out)
{
        const struct cg_settings *s = c->settings;

        cg_buf_addf(out, "Network: %s\n",
                    network_state(c, "off", "nothing is allowed", "through the proxy, by name"));
        for (size_t i = 0; i < s->network.allowed.n; i++)
                line(out, "allowed", s->network.allowed.v[i], NULL, "");
        for (size_t i = 0; i < s->network.denied.n; i++)
                line(out, "denied", s->network.denied.v[i], NULL, "");
        if (s->network.all_unix_sockets)
                cg_buf_adds(out, "  all unix sockets\n");
        for (size_t i = 0; i < s->network.unix_sockets.n && !s->network.all_unix_sockets; i++)
                line(out, "unix socket", s->network.unix_sockets.v[i], NULL, "");
        for (size_t i = 0; i < s->own.n_expose; i++)
                cg_buf_addf(out, "  port %u inside is reachable at 127.0.0.1:%u of this machine\n",
                            s->own.expose[i].inside, s->own.expose[i].host);
        for (size_t i = 0; i < s->own.n_reach; i++)
                cg_buf_addf(out, "  port %u inside leads to 127.0.0.1:%u of this machine\n",
                            s->own.reach[i].inside, s->own.reach[i].host);
        if (s->network.local_binding)
                cg_buf_adds(out, "  where a program listens, this machine's same port leads there\n");
}

static void explain_limits(const struct cg_sandbox *sb, struct cg_buf *out)
{
        enum cg_limit_by by[CG_LIMITS];

        cg_sandbox_limits_by(sb, by);
        for (enum cg_limit i = 0; i < CG_LIMITS; i++) {
                uint64_t v = cg_limit_get(&sb->set.limits, i);

                if (v && v != CG_PLAN_NO_LIMIT)
                        cg_buf_addf(out, "Limit: %s %.12g %s, held by %s, of each %s\n", cg_limit_setting(i),
                                    cg_limit_figure(&sb->set.limits, i), cg_limit_unit(i),
                                    cg_limit_by_name(by[i]), cg_limit_scope(i, by[i]));
        }
}

int cg_command_explain(const struct cg_command *c, bool json, struct cg_buf *out, struct cg_err *err)
{
        if (json)
                return explain_json(c, out, err);
        explain_files(c, out);
        explain_entries(c, out);
        explain_network(c, out);
        explain_limits(c->sb, out);
        return cg_buf_end(out, err);
}
