/*
 * cellgate-supervisor: registration of MCP servers. Their definitions are checked in a thread of
 * the loop's pool (server_files.c), so that no other session waits for it; then what belongs to
 * them becomes read-only in all kernels (guards), those that run included.
 *
 * The guards are recorded before the kernels that run are examined: a kernel that starts meanwhile
 * has them from the beginning.
 */
#include "supervisor/supervisor.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "sandbox/plan.h"
#include "sandbox/settings/kernel_view.h"
#include "sandbox/settings/view.h"
#include "supervisor/server_files_int.h"

/* Longest check of all definitions of one registration. */
#define CHECK_MS 60000

/* A kernel that runs: whether it could write what the guards name. */
struct examined {
        uint64_t session, kernel; /* numbers; kernel 0: none runs */
        json_t *options, *guards; /* its own */
        char *open;               /* a path that it could write; NULL: none */
};

struct registration {
        uv_work_t work;
        struct sup *sup;
        uint64_t session, request;
        int64_t timeout_ms;
        unsigned int first_folder;
        struct server_scope scope;
        char *home, *dir;
        json_t *servers; /* definitions as the host has sent them */
        json_t *checked; /* as they go to the tool server */
        json_t *guards;  /* {SERVER: [PATH, ...]}, of those that passed */
        json_t *all;     /* guards of all sessions */
        /* options of the other sessions whose cells are sandboxed, without doubles */
        json_t *others;
        char *left_out; /* entries of PATH */
        struct examined *kernels;
        size_t n_kernels;
        struct cg_err err; /* code < 0: of the registration, or of all servers with guards */
};

int settings_of(const json_t *o, struct cg_settings **ret, struct cg_err *err)
{
        cg_auto_free char *text = NULL;
        size_t len;

        text = cg_json_text(o, &len);
        if (!text)
                return cg_fail(err, CG_E_NOMEM, "sandbox settings");
        return cg_settings_parse(text, len, "sandbox settings", 0, ret, err);
}

bool list_has(const json_t *list, const json_t *item)
{
        const json_t *v;
        size_t i;

        json_array_foreach((json_t *)(uintptr_t)list, i, v) if (json_equal(v, item)) return true;
        return false;
}

int server_rules(const json_t *options, const char *home, const json_t *guards, struct cg_rules *ret,
                 struct cg_err *err)
{
        const char *workspace = json_string_value(json_object_get(options, "workspace"));
        const json_t *o = json_object_get(options, "settings");
        cg_auto_settings struct cg_settings *s = NULL;
        int r = o ? settings_of(o, &s, err) : 0;

        return r < 0 ? r : cg_session_rules(s, workspace, home, guards, true, ret, err);
}

static bool is_sandboxed(const struct session *ss)
{
        return !json_is_false(json_object_get(ss->options, "sandbox"));
}

json_t *server_guards(const struct sup *s)
{
        json_t *all = json_array(), *of_server, *v;
        const char *name;
        size_t k;

        for (size_t i = 0; i < CG_MAX_SESSIONS; i++) {
                json_object_foreach(s->sessions[i] ? s->sessions[i]->guards : NULL, name, of_server)
                {
                        json_array_foreach(of_server, k, v) if (!list_has(all, v)) json_array_append(all, v);
                }
        }
        return all;
}

/*
 * Whether denials in write roots hold in the session's kernel: the landlock tier has them with
 * ":freeze" only.
 */
static bool holds_denials(const struct session *ss)
{
        const json_t *own = json_object_get(json_object_get(ss->options, "settings"), "cellgate");
        const char *tier = json_string_value(json_object_get(ss->options, "tier"));

        if (!tier)
                tier = json_string_value(json_object_get(own, "tier"));
        return !ss->kernel->tier || strcmp(ss->kernel->tier, "landlock") != 0 ||
               (tier && strstr(tier, ":freeze"));
}

/* ------------------------------------------------------------------ in the thread: definitions */

static int mark_invalid(json_t *servers, const char *name, const struct cg_err *why, struct cg_err *err)
{
        struct cg_err named = *why;

        if (strncmp(named.msg, "MCP server ", 11) != 0)
                cg_err_prefix(&named, "MCP server \"%s\"", name);
        return json_object_set_new(servers, name, json_pack("{s:o}", "invalid", text_json(named.msg))) < 0
                       ? cg_fail(err, CG_E_NOMEM, "MCP servers")
                       : 0;
}

/* Kernels must be able to start with all guards that there are then. */
static int check_startable(const struct registration *g, const json_t *guards, struct cg_err *err)
{
        cg_auto_json json_t *all = json_copy(g->all);
        struct cg_rules rules = { .off = false };
        int r;

        if (!json_array_size(guards))
                return 0;
        if (!all || json_array_extend(all, (json_t *)(uintptr_t)guards) < 0)
                return cg_fail(err, CG_E_NOMEM, "MCP server");
        r = server_rules(g->scope.options, g->scope.home, all, &rules, err);
        cg_rules_fini(&rules);
        return r;
}

/*
 * Checks *def (returns: replaced) against what the cells of a session with @options can write. What
 * has to be read-only for them is appended to @guards.
 */
static int check_for_other(const struct server_scope *own, const json_t *options, const char *name,
                           json_t **def, json_t *guards, struct cg_err *err)
{
        struct server_scope scope = *own;
        struct check c;
        json_t *v;
        size_t i;
        int r;

        scope.options = (json_t *)(uintptr_t)options;
        scope.workspace = json_string_value(json_object_get(options, "workspace"));
        scope.shallow = true;
        r = server_check(&c, &scope, name, *def, 0, err);
        json_array_foreach(c.guards, i,
                           v) if (r == 0 && !list_has(guards, v) && json_array_append(guards, v) < 0)
                r = cg_fail(err, CG_E_NOMEM, "MCP server");
        if (r == 0) {
                json_decref(*def);
                *def = json_incref(c.def);
        }
        server_check_fini(&c);
        return r;
}

/* The server's files are none that the cells of another session write. */
static int check_for_others(struct registration *g, struct check *c, struct cg_err *err)
{
        const json_t *options;
        size_t i;
        int r = 0;

        json_array_foreach(g->others, i, options)
        {
                if (r == 0)
                        r = check_for_other(&g->scope, options, c->name, &c->def, c->guards, err);
                if (r < 0)
                        return cg_err_prefix(err, "cells of another session (workspace %s)",
                                             json_string_value(json_object_get(options, "workspace")));
        }
        return 0;
}

static int check_one(struct registration *g, const char *name, const json_t *definition, unsigned int folder)
{
        struct cg_err why;
        struct check c;
        int r = server_check(&c, &g->scope, name, definition, folder, &why);

        if (r == 0)
                r = check_for_others(g, &c, &why);
        if (r == 0)
                r = check_startable(g, c.guards, &why);
        if (r < 0)
                r = mark_invalid(g->checked, name, &why, &g->err);
        else if (json_object_set(g->checked, name, c.def) < 0 ||
                 json_object_set(g->guards, name, c.guards) < 0)
                r = cg_fail(&g->err, CG_E_NOMEM, "MCP servers");
        if (r == 0 && c.left_out.len && !g->left_out)
                g->left_out = strndup(c.left_out.data, c.left_out.len);
        server_check_fini(&c);
        return r;
}

static void on_check(uv_work_t *w)
{
        struct registration *g = w->data;
        unsigned int folder = g->first_folder;
        json_t *definition;
        const char *name;
        int r = 0;

        json_object_foreach(g->servers, name, definition)
        {
                if (r == 0 && json_object_get(definition, "invalid"))
                        r = json_object_set(g->checked, name, definition) < 0
                                    ? cg_fail(&g->err, CG_E_NOMEM, "MCP servers")
                                    : 0;
                else if (r == 0)
                        r = check_one(g, name, definition, folder++);
        }
}

/*
 * ------------------------------------------------------------------ in the thread: kernels that
 * run
 */

static bool has_rule(const struct cg_rules *rules, const struct cg_rule *r)
{
        for (size_t i = 0; i < rules->n; i++)
                if (rules->v[i].kind == r->kind && strcmp(rules->v[i].path, r->path) == 0)
                        return true;
        return false;
}

/* What @now denies for the sake of guards, and @before does not. Borrowed; NULL: nothing. */
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

/* Whether @guard can concern cells that write in @workspace only. */
static bool is_near_workspace(const json_t *guard, const char *workspace)
{
        const char *path = json_string_value(guard);
        struct stat st;

        return !path || cg_plan_within(path, workspace) ||
               (lstat(path, &st) == 0 && S_ISREG(st.st_mode) && st.st_nlink > 1);
}

/*
 * Whether some guard can concern the session at all: without settings, cells write in the workspace
 * only.
 */
static bool is_near(const struct examined *x, const json_t *all)
{
        const char *workspace = json_string_value(json_object_get(x->options, "workspace"));
        bool near = json_object_get(x->options, "settings") != NULL;
        char real[PATH_MAX];
        const json_t *v;
        size_t i;

        json_array_foreach((json_t *)(uintptr_t)all, i, v)
                near |= realpath(workspace, real) && is_near_workspace(v, real);
        return near;
}

static int examine(struct registration *g, struct examined *x)
{
        struct cg_rules before = { .off = false }, now = { .off = false };
        const char *open;
        int r = 0;

        if (!x->kernel || !is_near(x, g->all))
                return 0;
        if (atomic_load(g->scope.stop) || cg_now_ms() > g->scope.deadline_ms)
                return cg_fail(&g->err, CG_E_TIMEDOUT,
                               "the check whether kernels that run could write the "
                               "server's files took longer than %d s: keep its "
                               "program where cells cannot write, or begin with "
                               "fewer sessions",
                               CHECK_MS / 1000);
        r = server_rules(x->options, g->scope.home, x->guards, &before, &g->err);
        if (r == 0)
                r = server_rules(x->options, g->scope.home, g->all, &now, &g->err);
        open = r == 0 ? find_open(&before, &now) : NULL;
        if (open && !(x->open = strdup(open)))
                r = cg_fail(&g->err, CG_E_NOMEM, "MCP servers");
        cg_rules_fini(&before);
        cg_rules_fini(&now);
        return r;
}

static void on_examine(uv_work_t *w)
{
        struct registration *g = w->data;

        for (size_t i = 0; i < g->n_kernels; i++)
                if (examine(g, &g->kernels[i]) < 0)
                        return;
}

/* ------------------------------------------------------------------ in the loop */

static void free_registration(struct registration *g)
{
        for (size_t i = 0; i < g->n_kernels; i++) {
                json_decref(g->kernels[i].options);
                json_decref(g->kernels[i].guards);
                free(g->kernels[i].open);
        }
        free(g->kernels);
        json_decref(g->scope.options);
        json_decref(g->servers);
        json_decref(g->checked);
        json_decref(g->guards);
        json_decref(g->all);
        json_decref(g->others);
        free(g->left_out);
        free(g->home);
        free(g->dir);
        free(g);
}

static struct session *session_by_number(const struct sup *s, uint64_t number)
{
        struct session *ss = s->sessions[number % CG_MAX_SESSIONS];

        return ss && ss->number == number ? ss : NULL;
}

/* Ends the registration: its definitions go to the tool server, or the host is answered. */
static void finish(struct registration *g, struct session *ss)
{
        json_t *v;
        const char *name;

        ss->registering = false;
        if (g->err.code < 0 && !json_object_size(g->guards)) {
                host_failed(ss->host, ss->number, g->request, &g->err);
                return;
        }
        json_object_foreach(g->guards, name, v)
        {
                /* Not those whose programs no kernel can write. */
                if (g->err.code < 0 && json_array_size(json_object_get(ss->guards, name)))
                        mark_invalid(g->checked, name, &g->err, &g->err);
        }
        /* A server of this name that runs already goes on. */
        json_object_foreach(g->checked, name, v)
        {
                if (json_object_get(v, "invalid") &&
                    !json_object_get(json_object_get(ss->servers, "all"), name))
                        json_object_del(ss->guards, name);
        }
        if (g->left_out && !ss->told_path) {
                ss->told_path = true;
                session_notice(ss, "MCP servers do without the entries of PATH that cells can write: %s",
                               g->left_out);
        }
        broker_servers(ss, json_incref(g->checked), g->timeout_ms, g->request);
}

/*
 * Makes the guards hold in kernels that run: those that have run nothing are replaced, all or none.
 */
static int close_kernels(struct registration *g, const struct session *own)
{
        for (int renew = 0; renew < 2; renew++) {
                for (size_t i = 0; i < g->n_kernels; i++) {
                        const struct examined *e = &g->kernels[i];
                        struct session *x = session_by_number(g->sup, e->session);

                        if (!e->open || !x || !x->kernel || x->kernel->seq != e->kernel)
                                continue; /* a kernel that was started since has the guards */
                        if (renew) {
                                session_renew_kernel(x);
                                continue;
                        }
                        /* A reset does not undo what they wrote. */
                        if (x->ever_used)
                                return cg_fail(&g->err, CG_E_STATE,
                                               "%s, which the server runs, could be "
                                               "written by cells of %s, and some have "
                                               "run already: add the server before the "
                                               "first cell, when the session begins, or "
                                               "keep its program where cells cannot "
                                               "write",
                                               e->open, x == own ? "this session" : "another session");
                        if (!holds_denials(x))
                                return cg_fail(&g->err, CG_E_UNSUPPORTED,
                                               "%s, which the server runs, is "
                                               "where cells write, and the landlock tier cannot keep them "
                                               "from it: keep the program elsewhere, or choose "
                                               "\"landlock:freeze\"",
                                               e->open);
                }
        }
        return 0;
}

static void on_examined(uv_work_t *w, int status)
{
        struct registration *g = w->data;
        struct session *ss = session_by_number(g->sup, g->session);

        (void)status;
        if (ss && g->err.code == 0)
                close_kernels(g, ss);
        if (ss)
                finish(g, ss);
        free_registration(g);
}

static int add_examined(struct registration *g, const struct session *x)
{
        struct examined *e = &g->kernels[g->n_kernels++];

        *e = (struct examined){ .session = x->number,
                                .kernel = x->kernel->seq,
                                .options = json_deep_copy(x->options),
                                .guards = x->kernel->guards ? json_deep_copy(x->kernel->guards)
                                                            : json_array() };
        return e->options && e->guards ? 0 : cg_fail(&g->err, CG_E_NOMEM, "MCP servers");
}

static int list_kernels(struct registration *g)
{
        int r = 0;

        g->kernels = calloc(g->sup->n_sessions + 1, sizeof(*g->kernels));
        if (!g->kernels)
                return cg_fail(&g->err, CG_E_NOMEM, "MCP servers");
        for (size_t i = 0; i < CG_MAX_SESSIONS && r == 0; i++) {
                const struct session *x = g->sup->sessions[i];

                if (x && x->kernel && x->kernel->state != K_WAITING && is_sandboxed(x) &&
                    g->n_kernels <= g->sup->n_sessions)
                        r = add_examined(g, x);
        }
        return r;
}

/*
 * What belongs to a server, together with that of one of this name that runs until the new one has
 * started.
 */
static int keep_guards(struct registration *g, struct session *ss)
{
        const char *name;
        json_t *guards;

        json_object_foreach(g->guards, name, guards)
        {
                if (json_object_get(json_object_get(ss->servers, "all"), name) &&
                    json_array_extend(guards, json_object_get(ss->guards, name)) < 0)
                        return cg_fail(&g->err, CG_E_NOMEM, "MCP servers");
                if (json_object_set_new(ss->guards, name, json_deep_copy(guards)) < 0)
                        return cg_fail(&g->err, CG_E_NOMEM, "MCP servers");
        }
        json_decref(g->all);
        g->all = server_guards(g->sup);
        return g->all ? 0 : cg_fail(&g->err, CG_E_NOMEM, "MCP servers");
}

static void on_checked(uv_work_t *w, int status)
{
        struct registration *g = w->data;
        struct session *ss = session_by_number(g->sup, g->session);
        bool examines = false;

        (void)status;
        if (!ss) {
                free_registration(g);
                return;
        }
        if (g->err.code == 0 && keep_guards(g, ss) == 0 && json_array_size(g->all))
                examines = list_kernels(g) == 0;
        if (examines && uv_queue_work(&g->sup->loop, &g->work, on_examine, on_examined) == 0)
                return;
        if (examines)
                cg_fail(&g->err, CG_E_SYS, "MCP servers: no thread to check them in");
        finish(g, ss);
        free_registration(g);
}

/* What decides which files the cells of a session write. Returns; NULL: out of memory. */
static json_t *writing_options(const struct session *ss)
{
        static const char *const names[] = { "workspace", "settings", "sandbox", "hide" };
        json_t *o = json_object();

        for (size_t i = 0; o && i < CG_ARRAY_LEN(names); i++) {
                const json_t *v = json_object_get(ss->options, names[i]);

                if (v)
                        json_object_set_new(o, names[i], json_deep_copy(v));
        }
        return o;
}

static json_t *options_of_others(const struct session *ss)
{
        cg_auto_json json_t *own = writing_options(ss);
        json_t *list = json_array();

        for (size_t i = 0; i < CG_MAX_SESSIONS; i++) {
                const struct session *x = ss->sup->sessions[i];
                cg_auto_json json_t *o = x && x != ss && is_sandboxed(x) ? writing_options(x) : NULL;

                if (o && !json_equal(o, own) && !list_has(list, o))
                        json_array_append(list, o);
        }
        return list;
}

int servers_register(struct session *ss, const json_t *servers, int64_t timeout_ms, uint64_t request,
                     struct cg_err *err)
{
        struct registration *g = calloc(1, sizeof(*g));
        const char *home = sup_home();

        if (!g)
                return cg_fail(err, CG_E_NOMEM, "MCP servers");
        g->sup = ss->sup;
        g->session = ss->number;
        g->request = request;
        g->timeout_ms = timeout_ms;
        g->first_folder = ss->n_server_dirs + 1;
        ss->n_server_dirs += (unsigned int)json_object_size(servers);
        g->work.data = g;
        g->servers = json_deep_copy(servers);
        g->checked = json_object();
        g->guards = json_object();
        g->all = server_guards(ss->sup);
        g->others = options_of_others(ss);
        g->home = home ? strdup(home) : NULL;
        g->dir = strdup(ss->dir);
        g->scope = (struct server_scope){ .options = json_deep_copy(ss->options),
                                          .home = g->home,
                                          .dir = g->dir,
                                          .stop = &ss->sup->stop_checks,
                                          .deadline_ms = cg_now_ms() + CHECK_MS };
        g->scope.workspace = json_string_value(json_object_get(g->scope.options, "workspace"));
        if (!g->servers || !g->checked || !g->guards || !g->all || !g->others || !g->dir ||
            (home && !g->home) || !g->scope.workspace) {
                free_registration(g);
                return cg_fail(err, CG_E_NOMEM, "MCP servers");
        }
        if (uv_queue_work(&ss->sup->loop, &g->work, on_check, on_checked) < 0) {
                free_registration(g);
                return cg_fail(err, CG_E_SYS, "MCP servers: no thread to check them in");
        }
        ss->registering = true;
        return 0;
}

/*
 * The same for all sessions that have @definition: their private folders, which no cells write, are
 * left out. Returns; NULL: out of memory.
 */
static char *definition_key(const struct session *x, const json_t *definition)
{
        cg_auto_json json_t *o = json_copy((json_t *)(uintptr_t)definition);
        const char *cwd = json_string_value(json_object_get(o, "cwd"));

        if (cwd && strncmp(cwd, x->dir, strlen(x->dir)) == 0)
                json_object_del(o, "cwd");
        return o ? cg_json_text(o, NULL) : NULL;
}

/* *ret: borrowed from @known, {definition_key(): guards of what @ss could write}. */
static int guards_for(const struct server_scope *scope, const struct session *x, const char *name,
                      const json_t *definition, json_t *known, json_t **ret, struct cg_err *err)
{
        cg_auto_free char *key = definition_key(x, definition);
        cg_auto_json json_t *def = json_deep_copy(definition), *guards = json_array();
        int r = key && def && guards ? 0 : cg_fail(err, CG_E_NOMEM, "workspace");

        if (r == 0 && !json_object_get(known, key))
                r = check_for_other(scope, scope->options, name, &def, guards, err);
        if (r == 0 && !json_object_get(known, key) && json_object_set(known, key, guards) < 0)
                r = cg_fail(err, CG_E_NOMEM, "workspace");
        if (r == 0)
                *ret = json_object_get(known, key);
        return r < 0 ? cg_err_prefix(
                               err,
                               "workspace %s: its cells could change what an MCP server of another session "
                               "runs; choose another folder",
                               scope->workspace)
                     : 0;
}

/* MCP servers of @x that run, or are being added, against what cells of a new session can write. */
static int check_servers_of(struct session *x, const struct server_scope *scope, json_t *known,
                            struct cg_err *err)
{
        static const char *const lists[] = { "all", "pending" };
        json_t *definition, *guards = NULL;
        const char *name;

        for (size_t i = 0; i < CG_ARRAY_LEN(lists); i++) {
                json_object_foreach(json_object_get(x->servers, lists[i]), name, definition)
                {
                        json_t *kept = json_object_get(x->guards, name);

                        if (json_object_get(definition, "invalid"))
                                continue;
                        if (guards_for(scope, x, name, definition, known, &guards, err) < 0)
                                return -1;
                        if (!json_array_size(guards))
                                continue;
                        if ((kept ? json_array_extend(kept, guards)
                                  : json_object_set_new(x->guards, name, json_copy(guards))) < 0)
                                return cg_fail(err, CG_E_NOMEM, "workspace");
                }
        }
        return 0;
}

int server_files_check_workspace(const struct session *ss, struct cg_err *err)
{
        cg_auto_json json_t *guards = server_guards(ss->sup);
        const char *workspace = json_string_value(json_object_get(ss->options, "workspace"));
        const struct server_scope scope = { .options = ss->options,
                                            .workspace = workspace,
                                            .home = sup_home(),
                                            .dir = ss->dir,
                                            .stop = &ss->sup->stop_checks,
                                            .deadline_ms = cg_now_ms() + CHECK_MS };
        cg_auto_json json_t *known = json_object();
        char real[PATH_MAX], guarded[PATH_MAX];
        json_t *v;
        size_t i;

        if (!known)
                return cg_fail(err, CG_E_NOMEM, "workspace");
        if (!is_sandboxed(ss))
                return 0;
        if (!realpath(workspace, real))
                return cg_fail_errno(err, "workspace %s", workspace);
        json_array_foreach(
                guards, i,
                v) if (realpath(json_string_value(v), guarded) &&
                       cg_plan_within(
                               real,
                               guarded)) return cg_fail(err, CG_E_INVAL,
                                                        "workspace %s: an MCP server of another session runs "
                                                        "from %s, which cells must not change; choose "
                                                        "another folder",
                                                        workspace, guarded);
        for (i = 0; i < CG_MAX_SESSIONS; i++) {
                struct session *x = ss->sup->sessions[i];

                if (x && x != ss && check_servers_of(x, &scope, known, err) < 0)
                        return -1;
        }
        return cg_own_check_workspace(workspace, err);
}
