/*
 * cellgate-supervisor: registration of MCP servers. Their definitions are checked (definition.c),
 * and what they say is code becomes read-only in all kernels (guards), those that run included: one
 * step of the loop, in which no cell starts, no kernel is replaced and no session opens or ends.
 *
 * Then a process beside the loop searches what no definition can show (src/search). Cells cannot
 * write in the meantime what it searches: their folders are left out, and what is in them and is
 * code has become read-only before. Its report is compared with where cells of each session write,
 * then and whenever a session opens.
 */
#include "supervisor/servers/guards.h"

#include "base/json.h"
#include "base/path.h"
#include "base/secrets.h"
#include "sandbox/plan.h"
#include "sandbox/settings/kernel_view.h"
#include "sandbox/settings/view.h"
#include "supervisor/ask/broker.h"
#include "supervisor/core/host_link.h"
#include "supervisor/core/kernel.h"
#include "supervisor/core/members.h"
#include "supervisor/servers/internal.h"
#include "supervisor/servers/search.h"
#include "supervisor/core/state.h"
#include "supervisor/core/sup.h"

/* Processor time of the loop for one registration; by the clock more, for busy machines. */
#define CHECK_MS 5000
/* The longest time for the search, in which only this registration waits. */
#define SEARCH_MS 60000

/* A session with cells in a sandbox, and what its kernel was started with. */
struct examined {
        const struct session *session;
        json_t *guards; /* returns; empty: no kernel has started yet */
        char *open;     /* a path that it could write; NULL: none */
};

/* A session that has ended during a search, and whose cells have run. */
struct ended {
        LIST_ENTRY(ended) entry;
        struct cg_rules before, now; /* now: with the guards of what was found */
};

struct registration {
        struct sup *sup;
        uint64_t number, request; /* the session, and what is answered to its host */
        int64_t timeout_ms, since_ms;
        struct session *session; /* in a step of the loop, which begins with load() */
        struct server_scope scope;
        json_t *checked; /* as they go to the tool server */
        json_t *guards;  /* {SERVER: [PATH, ...]}, of those that passed */
        json_t *asked;   /* {SERVER: what cellgate-search is asked} */
        json_t *all;     /* guards of all sessions */
        char *left_out;  /* entries of PATH */
        struct examined *examined;
        size_t n_examined;
        LIST_HEAD(, ended) ended; /* since the search began */
        struct cg_err err;        /* code < 0: of the registration, or of all servers with guards */

        LIST_ENTRY(registration) entry; /* of those that wait for the search */
        struct search_run search;
};

static bool list_has(const json_t *list, const json_t *item)
{
        const json_t *v;
        size_t i;

        json_array_foreach(list, i, v)
                if (json_equal(v, item))
                        return true;
        return false;
}

json_t *cg_sup_server_guards(const struct sup *s)
{
        json_t *all = json_array(), *of_server, *v;
        const char *name;
        size_t k;

        for (size_t i = 0; i < CG_MAX_SESSIONS; i++) {
                json_object_foreach(s->sessions[i] ? s->sessions[i]->mcp.guards : NULL, name, of_server) {
                        json_array_foreach(of_server, k, v)
                                if (!list_has(all, v))
                                        json_array_append(all, v);
                }
        }
        return all;
}

/* True if denials in write roots hold in the kernel: the landlock tier needs ":freeze" for it. */
static bool enforces_deny_rules(const struct session *ss)
{
        const char *tier = cg_sup_tier(ss);

        return !ss->kernel->report.tier || strcmp(ss->kernel->report.tier, "landlock") != 0 ||
               (tier && strstr(tier, ":freeze"));
}

/* ------------------------------------------------------------------ views */

static const char *workspace_of(const struct session *ss)
{
        return json_string_value(json_object_get(ss->options, "workspace"));
}

/* The workspace by the name that it has now: cells write there, also where it was moved. */
static const char *workspace_now(const struct session *ss, char at[PATH_MAX])
{
        char fd[32], name[PATH_MAX];
        struct stat st;
        ssize_t n;

        snprintf(fd, sizeof(fd), "/proc/self/fd/%d", ss->folder.fd);
        n = readlink(fd, name, sizeof(name) - 1);
        snprintf(at, PATH_MAX, "%.*s", (int)CG_MAX(n, 0), name);
        if (stat(at, &st) == 0 && st.st_dev == ss->folder.dev && st.st_ino == ss->folder.ino)
                return at;
        return workspace_of(ss); /* it was removed */
}

/* The rules of the session's kernels, but for those about PATH. The caller frees them. */
static int kernel_rules(const struct session *ss, const json_t *guards, struct cg_rules *ret,
                        struct cg_err *err)
{
        struct cg_path_base base = cg_sup_paths_of(ss, true);
        cg_auto_json json_t *env = json_is_object(base.env) ? json_copy(cg_json_unconst(base.env)) : NULL;
        char at[PATH_MAX];

        /* Folders of PATH count as writable: another client's kernels may have written there. */
        json_object_del(env, "PATH");
        base.cwd = workspace_now(ss, at);
        base.env = env;
        base.by_inode = false; /* which names are not written, is compared */

        return cg_session_rules(ss->settings, &base, guards, ret, err);
}

/* The options that decide which files cells write. The caller owns them; NULL: out of memory. */
static json_t *writing_options(const struct session *ss)
{
        static const char *const names[] = { "settings", "sandbox", "hide", "user_env" };
        cg_auto_json json_t *env = NULL;
        char at[PATH_MAX];
        json_t *o = json_object();

        for (size_t i = 0; o && i < CG_ARRAY_LEN(names); i++) {
                json_t *v = json_object_get(ss->options, names[i]);

                if (v)
                        json_object_set(o, names[i], v);
        }
        json_object_set_new_nocheck(o, "workspace", json_string_nocheck(workspace_now(ss, at)));
        /* kernel_rules() does without PATH. */
        env = json_copy(json_object_get(o, "user_env"));
        if (env && json_object_del(env, "PATH") == 0)
                json_object_set(o, "user_env", env);
        return o;
}

static int check_time(const struct server_scope *scope, struct cg_err *err)
{
        if (cg_budget_is_spent(&scope->budget))
                return cg_fail(
                        err, CG_E_TIMEDOUT,
                        "the check whether cells could write files of MCP servers took "
                        "longer than %d s: keep their programs in small folders where cells cannot write, or "
                        "end other sessions",
                        CHECK_MS / 1000);
        return 0;
}

static struct cg_budget new_budget(void)
{
        return cg_budget_start(CHECK_MS, 4 * CHECK_MS);
}

static int append(json_t *list, json_t *item, struct cg_err *err)
{
        return cg_made(json_array_append(list, item) >= 0, "MCP servers", err);
}

/* Unless cells of that session write the same as those of another view, or anything. */
static int add_view(struct server_scope *scope, const struct session *ss, json_t *known, struct cg_err *err)
{
        struct server_view *v = &scope->views[scope->n_views];
        cg_auto_json json_t *o = writing_options(ss);

        if (!o)
                return cg_fail(err, CG_E_NOMEM, "MCP servers");
        if (!cg_sup_is_sandboxed(ss) || list_has(known, o))
                return 0;
        *v = (struct server_view){ .options = ss->options, .workspace = workspace_of(ss) };
        if (check_time(scope, err) < 0 || append(known, o, err) < 0 ||
            kernel_rules(ss, NULL, &v->rules, err) < 0) {
                cg_rules_fini(&v->rules);
                return cg_err_prefix(err, "workspace %s", v->workspace);
        }
        if (v->rules.off) {
                cg_rules_fini(&v->rules);
                return 0;
        }
        v->n_rules = v->rules.n;
        v->linked = v->rules.linked;
        scope->n_views++;
        return 0;
}

/* ------------------------------------------------------------------ definitions */

/* @definition: its secrets are not shown. */
static int mark_invalid(json_t *servers, const char *name, const json_t *definition, const struct cg_err *why,
                        struct cg_err *err)
{
        struct cg_err named = *why;

        cg_secrets_redact_with(json_object_get(definition, "secrets"), named.msg);
        if (strncmp(named.msg, "MCP server ", 11) != 0)
                cg_err_prefix(&named, "MCP server \"%s\"", name);
        if (json_object_set_new(servers, name, json_pack("{s:o}", "invalid", cg_sup_text_json(named.msg))) <
            0)
                return cg_fail(err, CG_E_NOMEM, "MCP servers");
        return 0;
}

/* Kernels must be able to start with all guards that there are then. */
static int check_startable(const struct registration *g, const json_t *guards, struct cg_err *err)
{
        cg_auto_json json_t *all = json_copy(g->all);
        struct cg_rules rules = { .off = false };
        const json_t *of_server, *v;
        const char *name;
        size_t i;
        int r = check_time(&g->scope, err);

        if (r < 0 || !json_array_size(guards))
                return r;
        if (!all || json_array_extend(all, cg_json_unconst(guards)) < 0)
                return cg_fail(err, CG_E_NOMEM, "MCP server");
        json_object_foreach(g->guards, name, of_server) {
                json_array_foreach(of_server, i, v)
                        if (!list_has(all, v))
                                json_array_append(all, cg_json_unconst(v));
        }
        r = kernel_rules(g->session, all, &rules, err);
        cg_rules_fini(&rules);
        return r;
}

/* Functions and servers of the host have none, nor has a definition that was found invalid. */
static bool has_program(const json_t *definition)
{
        return !json_object_get(definition, "invalid") && !json_object_get(definition, "host_functions") &&
               !json_object_get(definition, "host_tools");
}

static int check_one(struct registration *g, const char *name, const json_t *definition)
{
        struct cg_err why;
        struct check c;
        int r = cg_sup_server_check(&c, &g->scope, name, definition, ++g->session->mcp.n_dirs, &why);

        if (r == 0 && cg_sup_is_sandboxed(g->session))
                r = check_startable(g, c.guards, &why);
        if (r < 0)
                r = mark_invalid(g->checked, name, definition, &why, &g->err);
        else if (json_object_set(g->checked, name, c.def) < 0 ||
                 json_object_set(g->guards, name, c.guards) < 0 ||
                 (c.ask && json_object_set(g->asked, name, c.ask) < 0))
                r = cg_fail(&g->err, CG_E_NOMEM, "MCP servers");
        if (r == 0 && c.left_out.len && !g->left_out)
                g->left_out = strndup(c.left_out.data, c.left_out.len);
        cg_sup_server_check_fini(&c);
        return r;
}

static int check_all(struct registration *g, const json_t *servers)
{
        const json_t *definition;
        const char *name;
        int r = 0;

        json_object_foreach(cg_json_unconst(servers), name, definition) {
                if (has_program(definition))
                        r = check_one(g, name, definition);
                else if (json_object_set(g->checked, name, cg_json_unconst(definition)) < 0)
                        r = cg_fail(&g->err, CG_E_NOMEM, "MCP servers");
                if (r < 0)
                        return r;
        }
        return 0;
}

/*
 * The same definition again, for the cells that there are now, with what the search has @found of
 * it (NULL: it has not ended). *guards (returns).
 */
static int check_again(const struct server_scope *scope, const char *name, const json_t *definition,
                       const json_t *found, json_t **guards, struct cg_err *err)
{
        struct check c;
        int r = cg_sup_server_check(&c, scope, name, definition, 0, err);

        if (r == 0 && found)
                r = cg_sup_server_check_found(&c, found);
        if (r == 0)
                *guards = json_incref(c.guards);
        else
                cg_secrets_redact_with(json_object_get(definition, "secrets"), err->msg);
        cg_sup_server_check_fini(&c);
        return r;
}

/* ------------------------------------------------------------------ kernels that run */

static bool has_rule(const struct cg_rules *rules, const struct cg_rule *r)
{
        for (size_t i = 0; i < rules->n; i++)
                if (rules->v[i].kind == r->kind && strcmp(rules->v[i].path, r->path) == 0)
                        return true;
        return false;
}

/* A path that @now denies for the sake of guards and @before does not. Borrowed; NULL: none. */
static const char *find_open(const struct cg_rules *before, const struct cg_rules *now)
{
        for (size_t i = 0; i < now->n; i++) {
                const struct cg_rule *r = &now->v[i];

                if ((r->kind == CG_RULE_DENY_WRITE || r->kind == CG_RULE_KEEP) &&
                    (cg_rule_is_program(r) || strcmp(r->why, CG_WHY_LINK) == 0) &&
                    cg_view_state(before, r->path) == CG_VIEW_WRITE && !has_rule(before, r))
                        return r->path;
        }
        return NULL;
}

/* True if @path, or a link on the way to it, is in @folder, or if that cannot be found out. */
static bool leads_into(const char *path, const char *folder)
{
        cg_auto_place struct cg_place place = { .path = "" };

        if (cg_path_within(path, folder) || cg_place_find(path, &place, NULL) < 0)
                return true;
        for (size_t i = 0; i < place.n_links; i++)
                if (cg_path_within(place.links[i], folder))
                        return true;
        return cg_path_within(place.path, folder);
}

/* True if a guard can concern the session: without settings, cells write in the workspace only. */
static bool is_near(const struct examined *x, const json_t *all)
{
        char at[PATH_MAX];
        const char *workspace = workspace_now(x->session, at);
        const json_t *v;
        struct stat st;
        size_t i;

        if (x->session->settings)
                return true;
        json_array_foreach(all, i, v) {
                const char *path = json_string_value(v);

                if (!path || leads_into(path, workspace) ||
                    (lstat(path, &st) == 0 && S_ISREG(st.st_mode) && st.st_nlink > 1))
                        return true;
        }
        return false;
}

/* A session that was examined before @x with the same outcome; NULL: none. */
static const struct examined *find_same(const struct registration *g, const struct examined *x)
{
        cg_auto_json json_t *o = writing_options(x->session);

        for (const struct examined *e = g->examined; e < x; e++) {
                cg_auto_json json_t *other = writing_options(e->session);

                if (o && json_equal(o, other) && json_equal(x->guards, e->guards))
                        return e;
        }
        return NULL;
}

static int examine(struct registration *g, struct examined *x)
{
        cg_auto_rules struct cg_rules before = { .off = false }, now = { .off = false };
        const struct examined *same = find_same(g, x);
        const char *open = same ? same->open : NULL;
        int r = check_time(&g->scope, &g->err);

        if (r < 0)
                return r;
        if (!same && is_near(x, g->all)) {
                if ((r = kernel_rules(x->session, x->guards, &before, &g->err)) < 0 ||
                    (r = kernel_rules(x->session, g->all, &now, &g->err)) < 0)
                        return r;
                open = find_open(&before, &now);
        }
        if (open && !(x->open = strdup(open)))
                return cg_fail(&g->err, CG_E_NOMEM, "MCP servers");
        return 0;
}

/* Forgets the guards of a refused server. A running one of this name goes on, with its guards. */
static void forget_guards(struct registration *g, const char *name)
{
        struct session *ss = cg_sup_session_by_number(g->sup, g->number); /* it may have ended */

        json_object_del(g->guards, name);
        if (ss && !json_object_get(json_object_get(ss->mcp.servers, "all"), name))
                json_object_del(ss->mcp.guards, name);
}

/* Servers fail because of g->err: all, or those with guards, where these cannot be made to hold. */
static void fail_servers(struct registration *g, bool all)
{
        json_t *v;
        const char *name;

        json_object_foreach(g->asked, name, v) {
                json_t *definition = json_object_get(g->checked, name);

                if (json_object_get(definition, "invalid") ||
                    (!all && !json_array_size(json_object_get(g->guards, name))))
                        continue;
                mark_invalid(g->checked, name, definition, &g->err, &g->err);
                forget_guards(g, name);
        }
}

/* Ends the registration: its definitions go to the tool server, or the host is answered. */
static void finish(struct registration *g)
{
        struct session *ss = g->session;

        json_object_del(ss->mcp.servers, "pending");
        if (g->err.code < 0 && !json_object_size(g->checked)) {
                cg_sup_host_failed(ss->host, ss->number, g->request, &g->err);
                return;
        }
        if (g->left_out && !ss->mcp.path_reported) {
                ss->mcp.path_reported = true;
                cg_sup_notice(ss, "MCP servers do without the entries of PATH that cells can write: %s",
                              g->left_out);
        }
        cg_sup_broker_servers(ss, json_incref(g->checked),
                              CG_MAX(g->timeout_ms - (cg_now_ms() - g->since_ms), 1000), g->request);
}

/*
 * Lists the sessions whose kernels do not have all guards perhaps. One that has run nothing and has
 * no kernel yet is none of them.
 */
static int list_examined(struct registration *g)
{
        g->examined = calloc(CG_MAX_SESSIONS, sizeof(*g->examined));
        if (!g->examined)
                return cg_fail(&g->err, CG_E_NOMEM, "MCP servers");
        for (size_t i = 0; i < CG_MAX_SESSIONS; i++) {
                const struct session *x = g->sup->sessions[i];
                bool started = x && x->kernel && x->kernel->state != K_WAITING;
                json_t *guards;

                if (!x || !cg_sup_is_sandboxed(x) || (!started && !x->use.ever))
                        continue;
                guards = started && x->kernel->guards ? json_incref(x->kernel->guards) : json_array();
                if (!guards)
                        return cg_fail(&g->err, CG_E_NOMEM, "MCP servers");
                g->examined[g->n_examined++] = (struct examined){ .session = x, .guards = guards };
        }
        return 0;
}

/*
 * Makes the guards hold in kernels that run: those that have run nothing are replaced, all or none.
 * A session whose kernel cannot be replaced ends, that of the registration perhaps.
 */
static int close_kernels(struct registration *g)
{
        cg_auto_free uint64_t *renew = calloc(CG_MAX_SESSIONS, sizeof(*renew));
        size_t n = 0;
        int r = renew ? list_examined(g) : cg_fail(&g->err, CG_E_NOMEM, "MCP servers");

        for (size_t i = 0; i < g->n_examined && r == 0; i++) {
                const struct examined *e = &g->examined[i];

                r = examine(g, &g->examined[i]);
                if (r < 0 || !e->open)
                        continue;
                /* A reset does not undo what they wrote. */
                if (e->session->use.ever)
                        return cg_fail(&g->err, CG_E_STATE,
                                       "%s, which the server runs, could be written by cells of %s, and some "
                                       "have run already: add the server before the first cell, when the "
                                       "session begins, or keep its program where cells cannot write",
                                       e->open,
                                       e->session == g->session ? "this session" : "another session");
                if (!enforces_deny_rules(e->session))
                        return cg_fail(
                                &g->err, CG_E_UNSUPPORTED,
                                "%s, which the server runs, is where cells write, and the landlock tier "
                                "cannot keep them from it: keep the program elsewhere, or choose "
                                "\"landlock:freeze\"",
                                e->open);
                renew[n++] = e->session->number;
        }
        for (size_t i = 0; i < n && r == 0; i++) {
                struct session *x = cg_sup_session_by_number(g->sup, renew[i]);

                if (x)
                        x->sup->upper.session->renew_kernel(x);
        }
        return r;
}

/* Adds @guards to those of the server @name of @x. */
static int keep_more(struct session *x, const char *name, const json_t *guards, struct cg_err *err)
{
        json_t *kept = json_object_get(x->mcp.guards, name), *v;
        size_t i;
        int r = 0;

        if (!kept) {
                kept = json_array();
                r = kept ? json_object_set_new(x->mcp.guards, name, kept) : -1;
        }
        json_array_foreach(guards, i, v)
                if (r == 0 && !list_has(kept, v))
                        r = json_array_append(kept, v);
        return cg_made(r >= 0, "MCP servers", err);
}

/*
 * Records the guards of the new servers, and makes them hold. A server of the same name runs until
 * the new one has started: its guards are kept with them.
 */
static void apply_guards(struct registration *g)
{
        const char *name;
        json_t *guards;

        json_object_foreach(g->guards, name, guards) {
                if (keep_more(g->session, name, guards, &g->err) < 0)
                        return;
        }
        json_decref(g->all);
        g->all = cg_sup_server_guards(g->sup);
        if (!g->all)
                cg_fail(&g->err, CG_E_NOMEM, "MCP servers");
        else if (json_array_size(g->all))
                close_kernels(g);
}

static void unload(struct registration *g)
{
        for (size_t i = 0; i < g->n_examined; i++) {
                json_decref(g->examined[i].guards);
                free(g->examined[i].open);
        }
        free(g->examined);
        g->examined = NULL;
        g->n_examined = 0;
        for (size_t i = 0; i < g->scope.n_views; i++)
                cg_rules_fini(&g->scope.views[i].rules);
        free(g->scope.views);
        json_decref(g->all);
        g->scope = (struct server_scope){ .options = NULL };
        g->all = NULL;
}

/* Begins a step of the loop: the cells that there are now. unload() ends it. */
static int load(struct registration *g)
{
        struct session *ss = g->session;
        cg_auto_json json_t *known = json_array();
        struct server_scope *scope = &g->scope;
        int r;

        g->all = cg_sup_server_guards(g->sup);
        *scope = (struct server_scope){ .options = ss->options,
                                        .home = g->sup->setup.home,
                                        .dir = ss->dir,
                                        .workspace = workspace_of(ss),
                                        .views = calloc(CG_MAX_SESSIONS, sizeof(*scope->views)),
                                        .budget = new_budget() };
        if (!known || !g->all || !scope->views || !scope->workspace)
                return cg_fail(&g->err, CG_E_NOMEM, "MCP servers");
        r = add_view(scope, ss, known, &g->err);
        scope->n_own = scope->n_views;
        for (size_t i = 0; i < CG_MAX_SESSIONS && r == 0; i++)
                if (g->sup->sessions[i])
                        r = add_view(scope, g->sup->sessions[i], known, &g->err);
        return r;
}

static void free_registration(struct registration *g)
{
        struct ended *e;

        while ((e = LIST_FIRST(&g->ended))) {
                LIST_REMOVE(e, entry);
                cg_rules_fini(&e->before);
                cg_rules_fini(&e->now);
                free(e);
        }
        unload(g);
        json_decref(g->checked);
        json_decref(g->guards);
        json_decref(g->asked);
        free(g->left_out);
        free(g);
}

/* ------------------------------------------------------------------ the search */

static void on_search_closed(struct search_run *run)
{
        free_registration(run->data);
}

/* Frees @g from the loop. */
static void end_search(struct registration *g)
{
        LIST_REMOVE(g, entry);
        cg_sup_search_close(&g->search);
}

void cg_sup_servers_stop(struct sup *s)
{
        while (!LIST_EMPTY(&s->registrations))
                end_search(LIST_FIRST(&s->registrations));
}

/* The part of @found about one server. */
static int use_found(struct registration *g, const char *name, json_t *found, bool *more)
{
        const json_t *definition = json_object_get(g->checked, name);
        cg_auto_json json_t *guards = NULL;
        struct cg_err why;
        int r = check_again(&g->scope, name, definition, found, &guards, &why);

        if (r == 0 && cg_sup_is_sandboxed(g->session))
                r = check_startable(g, guards, &why);
        if (r < 0) {
                forget_guards(g, name);
                return mark_invalid(g->checked, name, definition, &why, &g->err);
        }
        *more |= !json_equal(guards, json_object_get(g->guards, name));
        if (json_object_set(g->guards, name, guards) < 0 ||
            json_object_set(g->session->mcp.found, name, found) < 0)
                return cg_fail(&g->err, CG_E_NOMEM, "MCP servers");
        return 0;
}

/* No cell that has run could write what was found. */
static void check_ended(struct registration *g)
{
        const char *open;
        struct ended *e;

        LIST_FOREACH(e, &g->ended, entry) {
                if (cg_rules_add_guards(&e->now, g->all, &g->err) < 0 ||
                    cg_rules_add_hardlinks(&e->now, &g->err) < 0)
                        return;
                open = find_open(&e->before, &e->now);
                if (open) {
                        cg_fail(&g->err, CG_E_STATE,
                                "%s, which the server runs, could be written by cells of a session that has ended"
                                " meanwhile: keep its program where cells cannot write",
                                open);
                        return;
                }
        }
}

void cg_sup_servers_session_ends(const struct session *ss)
{
        struct registration *g;
        struct cg_err err;

        if (!ss->use.ever || !cg_sup_is_sandboxed(ss))
                return;
        LIST_FOREACH(g, &ss->sup->registrations, entry) {
                cg_auto_json json_t *guards = cg_sup_server_guards(ss->sup);
                struct ended *e = calloc(1, sizeof(*e));

                if (!e || kernel_rules(ss, guards, &e->before, &err) < 0 ||
                    kernel_rules(ss, guards, &e->now, &err) < 0) {
                        cg_fail(&g->err, CG_E_STATE,
                                "files that cells of a session could write which has ended are not known");
                        if (e)
                                cg_rules_fini(&e->before);
                        free(e);
                        continue;
                }
                e->now.writable_names = e->before.writable_names = NULL; /* of the session's settings */
                LIST_INSERT_HEAD(&g->ended, e, entry);
        }
}

/* @answers: of cellgate-search; NULL: none. */
static int use_answers(struct registration *g, const json_t *answers, bool *more)
{
        cg_auto_json json_t *nothing = json_object();
        const char *name;
        json_t *asked;
        int r = 0;

        json_object_foreach(g->asked, name, asked) {
                if (r == 0 && !json_object_get(json_object_get(g->checked, name), "invalid"))
                        r = use_found(g, name, json_object_get(answers, name) ?: nothing, more);
        }
        return r;
}

static void on_answer(struct search_run *run, const json_t *answers)
{
        struct registration *g = run->data;
        bool more = false;

        g->session = cg_sup_session_by_number(g->sup, g->number);
        if (g->session && (load(g) < 0 || use_answers(g, answers, &more) < 0)) {
                fail_servers(g, true);
        } else if (g->session && more) {
                apply_guards(g);
                if (g->err.code >= 0)
                        check_ended(g);
                if (g->err.code < 0)
                        fail_servers(g, false);
        }
        g->session = cg_sup_session_by_number(g->sup, g->number);
        if (g->session)
                finish(g);
        end_search(g);
}

/* Write roots of all cells, of which nothing is searched. */
static json_t *write_roots(const struct registration *g)
{
        json_t *roots = json_array();

        for (size_t i = 0; i < g->scope.n_views; i++) {
                const struct cg_rules *rules = &g->scope.views[i].rules;

                for (size_t k = 0; k < rules->n; k++)
                        if (rules->v[k].kind == CG_RULE_ALLOW_WRITE)
                                json_array_append_new(roots, json_string(rules->v[k].path));
        }
        return roots;
}

/* No cell can write what the definitions name from now on. True: the search goes on. */
static bool begin_search(struct registration *g)
{
        cg_auto_json json_t *request = NULL;
        const char *name;
        json_t *v;

        json_object_foreach(g->checked, name, v) {
                if (json_object_get(v, "invalid"))
                        json_object_del(g->asked, name);
        }
        if (!json_object_size(g->asked))
                return false;
        g->search = (struct search_run){ .data = g, .on_answer = on_answer, .on_closed = on_search_closed };
        request = json_pack("{s:o, s:O}", "write_roots", write_roots(g), "servers", g->asked);
        if (!request)
                cg_fail(&g->err, CG_E_NOMEM, "MCP servers");
        if (!request ||
            cg_sup_search_start(g->sup, &g->search, request, CG_MIN(g->timeout_ms, SEARCH_MS), &g->err) < 0) {
                fail_servers(g, true);
                return false;
        }
        LIST_INSERT_HEAD(&g->sup->registrations, g, entry);
        json_object_set(g->session->mcp.servers, "pending", g->checked);
        return true;
}

int cg_sup_servers_register(struct session *ss, const json_t *servers, int64_t timeout_ms, uint64_t request,
                            struct cg_err *err)
{
        struct registration *g = calloc(1, sizeof(*g));
        bool searching = false;
        int r;

        if (!g)
                return cg_fail(err, CG_E_NOMEM, "MCP servers");
        *g = (struct registration){ .sup = ss->sup,
                                    .session = ss,
                                    .number = ss->number,
                                    .request = request,
                                    .timeout_ms = timeout_ms,
                                    .since_ms = cg_now_ms(),
                                    .checked = json_object(),
                                    .guards = json_object(),
                                    .asked = json_object() };
        r = g->checked && g->guards && g->asked ? load(g) : cg_fail(&g->err, CG_E_NOMEM, "MCP servers");
        if (r < 0) {
                *err = g->err;
                free_registration(g);
                return r;
        }
        if (check_all(g, servers) < 0) {
                json_object_clear(g->checked);
        } else {
                apply_guards(g);
                if (g->err.code < 0)
                        fail_servers(g, false);
                g->err.code = 0;
        }
        g->session = cg_sup_session_by_number(g->sup, g->number);
        if (g->session && g->err.code >= 0)
                searching = begin_search(g);
        if (g->session && !searching)
                finish(g);
        if (searching)
                unload(g);
        else
                free_registration(g);
        return 0;
}

/* ------------------------------------------------------------------ a session that opens */

/*
 * The same for all sessions that have @definition: their private folders, which no cells write, are
 * left out. Returns; NULL: out of memory.
 */
static char *definition_key(const struct session *x, const json_t *definition)
{
        cg_auto_json json_t *o = json_copy(cg_json_unconst(definition));
        const char *cwd = json_string_value(json_object_get(o, "cwd"));

        if (cwd && strncmp(cwd, x->dir, strlen(x->dir)) == 0)
                json_object_del(o, "cwd");
        return cg_json_text(o, NULL);
}

/* *ret: borrowed from @known, {definition_key(): guards of what cells of the scope could write}. */
static int guards_for(struct server_scope *scope, const struct session *x, const char *name,
                      const json_t *definition, json_t *known, json_t **ret, struct cg_err *err)
{
        cg_auto_free char *key = definition_key(x, definition);
        json_t *guards;

        if (!key)
                return cg_fail(err, CG_E_NOMEM, "workspace");
        *ret = json_object_get(known, key);
        if (*ret)
                return 0;
        if (check_again(scope, name, definition, json_object_get(x->mcp.found, name), &guards, err) < 0)
                return cg_err_prefix(err,
                                     "workspace %s: its cells could change what an MCP server of another "
                                     "session runs; choose another folder",
                                     scope->workspace);
        if (json_object_set_new(known, key, guards) < 0)
                return cg_fail(err, CG_E_NOMEM, "workspace");
        *ret = guards;
        return 0;
}

/* MCP servers of @x that run, or are being added, against what cells of a new session can write. */
static int check_servers_of(struct session *x, struct server_scope *scope, json_t *known, struct cg_err *err)
{
        static const char *const lists[] = { "all", "pending" };
        json_t *definition, *guards = NULL;
        const char *name;

        for (size_t i = 0; i < CG_ARRAY_LEN(lists); i++) {
                json_object_foreach(json_object_get(x->mcp.servers, lists[i]), name, definition) {
                        if (!has_program(definition))
                                continue;
                        if (guards_for(scope, x, name, definition, known, &guards, err) < 0 ||
                            keep_more(x, name, guards, err) < 0)
                                return -1;
                }
        }
        return 0;
}

static bool has_servers(const struct session *x)
{
        return x && (json_object_size(json_object_get(x->mcp.servers, "all")) ||
                     json_object_size(json_object_get(x->mcp.servers, "pending")));
}

/*
 * The servers of all sessions. They were checked already against the cells of each session that
 * there is: another with the same options needs no check.
 */
static int check_servers(const struct session *ss, struct cg_err *err)
{
        struct server_view view = { .n_rules = 0 };
        struct server_scope scope = { .options = ss->options,
                                      .home = ss->sup->setup.home,
                                      .dir = ss->dir,
                                      .views = &view,
                                      .workspace = workspace_of(ss),
                                      .budget = new_budget() };
        cg_auto_json json_t *known = json_object(), *list = json_array(), *own = writing_options(ss);
        bool needed = false;
        int r = 0;

        if (!known || !list || !own)
                return cg_fail(err, CG_E_NOMEM, "workspace");
        for (size_t i = 0; i < CG_MAX_SESSIONS; i++) {
                const struct session *x = ss->sup->sessions[i];
                cg_auto_json json_t *o = x ? writing_options(x) : NULL;

                /* A spare that is taken is there with its new options. */
                if (x != ss && o && json_equal(o, own))
                        return 0;
                needed |= has_servers(x);
        }
        if (!needed)
                return 0;
        r = add_view(&scope, ss, list, err);
        for (size_t i = 0; i < CG_MAX_SESSIONS && r == 0 && scope.n_views; i++)
                if (has_servers(ss->sup->sessions[i]))
                        r = check_servers_of(ss->sup->sessions[i], &scope, known, err);
        cg_rules_fini(&view.rules);
        return r;
}

int cg_sup_server_files_check_others(const struct session *ss, const char *what, const char *path,
                                     struct cg_err *err)
{
        cg_auto_place struct cg_place place = { .path = "" };
        cg_auto_json json_t *known = json_array(), *names = json_array();
        struct cg_budget budget = new_budget();

        if (cg_place_find(path, &place, err) < 0)
                return -1;
        json_array_append_new(names, json_string(place.path));
        for (size_t i = 0; i < place.n_links; i++)
                json_array_append_new(names, json_string(place.links[i]));
        if (!known || json_array_size(names) != place.n_links + 1)
                return cg_fail(err, CG_E_INVAL, "%s %s: its path, or a link of it, is not UTF-8", what, path);
        for (size_t i = 0; i < CG_MAX_SESSIONS; i++) {
                const struct session *x = ss->sup->sessions[i];
                struct server_view view = { .n_rules = 0 };
                struct server_scope scope = { .views = &view, .budget = budget };
                const struct check c = { .scope = &scope };
                int r;

                if (!x || !x->host || x == ss || !is_near(&(struct examined){ .session = x }, names))
                        continue;
                r = add_view(&scope, x, known, err);
                if (r == 0 && cg_sup_file_is_exposed(&c, path))
                        r = cg_fail(
                                err, CG_E_INVAL,
                                "%s %s: cells of another session, whose workspace is %s, could write it, or a"
                                " link of its path; move it to another folder, or end that session",
                                what, path, view.workspace);
                cg_rules_fini(&view.rules);
                if (r < 0)
                        return r;
        }
        return 0;
}

int cg_sup_server_files_check_workspace(const struct session *ss, struct cg_err *err)
{
        cg_auto_json json_t *guards = cg_sup_server_guards(ss->sup);
        const char *workspace = json_string_value(json_object_get(ss->options, "workspace"));
        char real[PATH_MAX], guarded[PATH_MAX];
        json_t *v;
        size_t i;

        if (!cg_sup_is_sandboxed(ss))
                return 0;
        if (!realpath(workspace, real))
                return cg_fail_errno(err, "workspace %s", workspace);
        json_array_foreach(guards, i, v)
                if (realpath(json_string_value(v), guarded) && cg_path_within(real, guarded))
                        return cg_fail(err, CG_E_INVAL,
                                       "workspace %s: an MCP server of another session runs "
                                       "from %s, which cells must not change; choose "
                                       "another folder",
                                       workspace, guarded);
        return check_servers(ss, err);
}
