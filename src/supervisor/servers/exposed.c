/* cellgate-supervisor: which paths cells can write; refuses definitions that lead to them. */
#include "supervisor/servers/internal.h"

#include "base/account.h"
#include "base/json.h"
#include "base/path.h"
#include "sandbox/settings/view.h"

bool cg_sup_file_is_open(const struct check *c, const char *real)
{
        for (size_t i = 0; i < c->scope->n_views; i++)
                if (cg_view_state(&c->scope->views[i].rules, real) == CG_VIEW_WRITE)
                        return true;
        return false;
}

bool cg_sup_file_is_exposed(const struct check *c, const char *path)
{
        cg_auto_place struct cg_place place = { .path = "" };
        bool found;

        if (cg_place_find(path, &place, NULL) < 0)
                return cg_sup_file_is_open(c, path);
        found = cg_sup_file_is_open(c, place.path);
        for (size_t i = 0; i < place.n_links && !found; i++)
                found = cg_sup_file_is_open(c, place.links[i]);
        return found;
}

static bool in_data(const struct check *c, const char *real)
{
        const json_t *v;
        size_t i;

        json_array_foreach(c->data, i, v) {
                if (cg_path_within(real, json_string_value(v)))
                        return true;
        }
        return false;
}

bool cg_sup_file_is_data(const struct check *c, const char *path)
{
        cg_auto_place struct cg_place place = { .path = "" };
        bool any;

        if (cg_place_find(path, &place, NULL) < 0)
                return in_data(c, path);
        any = in_data(c, place.path);
        if (!any && cg_sup_file_is_open(c, place.path))
                return false;
        for (size_t i = 0; i < place.n_links; i++) {
                if (!cg_sup_file_is_open(c, place.links[i]))
                        continue;
                if (!in_data(c, place.links[i]))
                        return false;
                any = true;
        }
        return any;
}

bool cg_sup_file_is_narrow_data(const struct check *c, const char *real)
{
        const json_t *v;
        size_t i;

        json_array_foreach(c->data, i, v) {
                const char *folder = json_string_value(v);

                if (strcmp(real, folder) == 0 ||
                    (cg_path_within(real, folder) && !cg_sup_file_holds_write_root(c, folder)))
                        return true;
        }
        return false;
}

bool cg_sup_file_holds_write_root(const struct check *c, const char *folder)
{
        char real[PATH_MAX];

        if (!realpath(folder, real))
                return false;
        for (size_t i = 0; i < c->scope->n_views; i++) {
                const struct cg_rules *rules = &c->scope->views[i].rules;

                for (size_t k = 0; k < rules->n; k++)
                        if (rules->v[k].kind == CG_RULE_ALLOW_WRITE && cg_path_within(rules->v[k].path, real))
                                return true;
        }
        return false;
}

int cg_sup_file_absolute(const struct check *c, const char *spelled, char ret[PATH_MAX])
{
        size_t name = spelled[0] == '~' ? strcspn(spelled + 1, "/") : 0;
        const char *home = c->scope->home;
        char named[PATH_MAX];
        int n;

        if (name && cg_named_home(spelled + 1, name, named))
                n = snprintf(ret, PATH_MAX, "%s%s", named, spelled + 1 + name);
        else if (spelled[0] == '~' && !name && home)
                n = snprintf(ret, PATH_MAX, "%s%s", home, spelled + 1);
        else if (spelled[0] == '/')
                n = snprintf(ret, PATH_MAX, "%s", spelled);
        else
                n = snprintf(ret, PATH_MAX, "%s/%s", c->cwd, spelled);
        return n < 0 || n >= PATH_MAX ? CG_E_LIMIT : 0;
}

bool cg_sup_path_is_present(const char *path)
{
        struct stat st;

        return stat(path, &st) == 0;
}

int cg_sup_server_add_guard(struct check *c, const char *path)
{
        cg_auto_json json_t *one = json_pack("[s]", path);
        int r = 0;

        if (!one || json_array_append(c->guards, json_array_get(one, 0)) < 0)
                return cg_fail(c->err, CG_E_NOMEM, "MCP server");
        for (size_t i = 0; i < c->scope->n_views && r == 0; i++)
                r = cg_rules_add_guards(&c->scope->views[i].rules, one, c->err);
        return r;
}

int cg_sup_server_guard_above(struct check *c, const char *path)
{
        char at[PATH_MAX], up[PATH_MAX], modules[PATH_MAX + 16];
        int r = 0;

        for (snprintf(at, sizeof(at), "%s", path); at[1] && r == 0; memcpy(at, up, strlen(up) + 1)) {
                cg_path_parent(at, up);
                snprintf(modules, sizeof(modules), "%s/node_modules/", cg_path_prefix(up));
                /* One in another one is read-only with that. */
                if (strstr(modules, "/node_modules/") == modules + strlen(cg_path_prefix(up)) &&
                    cg_sup_file_is_open(c, up) && cg_sup_file_is_exposed(c, modules) &&
                    !cg_sup_file_holds_write_root(c, modules))
                        r = cg_sup_server_add_guard(c, modules);
        }
        return r;
}

/* ------------------------------------------------------------------ paths without "code" or "data" */

/*
 * The folder that @path belongs to, which "code" may name: a virtual environment, the topmost
 * node_modules, or the folder that it is in. "": there is none but one that cells work in.
 */
static void find_code(const struct check *c, const char *path, char ret[PATH_MAX])
{
        const char *modules = strstr(path, "/node_modules/");
        char at[PATH_MAX], up[PATH_MAX], marker[PATH_MAX + 16];
        struct stat st;

        ret[0] = '\0';
        if (modules) {
                snprintf(ret, PATH_MAX, "%.*s/node_modules", (int)(modules - path), path);
                return;
        }
        snprintf(at, sizeof(at), "%s", path);
        if (lstat(path, &st) < 0 || !S_ISDIR(st.st_mode))
                cg_path_parent(path, at);
        while (at[1] && cg_sup_file_is_open(c, at) && !cg_sup_file_holds_write_root(c, at)) {
                snprintf(marker, sizeof(marker), "%s/pyvenv.cfg", at);
                if (!ret[0] || access(marker, F_OK) == 0)
                        snprintf(ret, PATH_MAX, "%s", at);
                cg_path_parent(at, up);
                memcpy(at, up, strlen(up) + 1);
        }
}

/* The view whose cells decide what @path is: of the session itself, or the first of another one. */
static size_t find_view(const struct check *c, const char *path)
{
        size_t i;

        for (i = 0; i < c->scope->n_views; i++) {
                struct server_scope one = *c->scope;
                struct check of_one = *c;

                one.views = &c->scope->views[i];
                one.n_views = 1;
                of_one.scope = &one;
                if (cg_sup_file_is_exposed(&of_one, path) || cg_sup_file_holds_write_root(&of_one, path))
                        break;
        }
        return i;
}

static int add_unsaid(struct check *c, const char *path, bool data)
{
        struct unsaid *u = &c->unsaid;
        const json_t *v;
        size_t i;

        if (!u->data)
                u->data = json_array();
        json_array_foreach(u->data, i, v) {
                if (cg_path_within(path, json_string_value(v)))
                        return 0;
        }
        if (!data || json_array_append_new(u->data, json_string(path)) == 0)
                return 0;
        return cg_fail(c->err, CG_E_INVAL, "MCP server \"%s\": the name of %s is not UTF-8", c->name, path);
}

int cg_sup_server_unsaid(struct check *c, const char *what, const char *path, const char *why, bool data)
{
        struct unsaid *u = &c->unsaid;
        size_t view = find_view(c, path);
        char code[PATH_MAX], guard[PATH_MAX + 1];
        struct stat st;

        find_code(c, path, code);
        if (view >= c->scope->n_own && code[0]) {
                snprintf(guard, sizeof(guard), "%s/", code);
                if (json_array_append_new(json_object_get(c->ask, "code"), json_string(code)) < 0)
                        return cg_fail(c->err, CG_E_INVAL, "MCP server \"%s\": the name of %s is not UTF-8",
                                       c->name, path);
                return cg_sup_server_add_guard(c, guard) ?: cg_sup_server_guard_above(c, code);
        }
        if (!u->first[0]) {
                snprintf(u->first, sizeof(u->first), "%s %s: %s", what, path, why);
                memcpy(u->code, code, sizeof(code));
                u->file = stat(path, &st) == 0 && S_ISREG(st.st_mode);
                if (view < c->scope->n_views && c->scope->views[view].options != c->scope->options)
                        snprintf(u->whose, sizeof(u->whose),
                                 " (cells of another session, whose workspace is %s)",
                                 c->scope->views[view].workspace);
        }
        return add_unsaid(c, path, data);
}

int cg_sup_server_check_unsaid(struct check *c)
{
        const struct unsaid *u = &c->unsaid;
        cg_auto_json json_t *one = json_pack("[s]", u->code);
        cg_auto_free char *data = json_dumps(u->data, JSON_ENSURE_ASCII),
                          *code = json_dumps(one, JSON_ENSURE_ASCII);
        char as_data[1024] = "", as_code[1024] = "";

        if (!u->first[0])
                return 0;
        if (data && json_array_size(u->data))
                snprintf(as_data, sizeof(as_data), " If it is data and no code, add \"data\": %s.", data);
        if (code && u->code[0])
                snprintf(as_code, sizeof(as_code),
                         " If it is code, add \"code\": %s: cells cannot write it then.", code);
        return cg_fail(c->err, CG_E_INVAL,
                       "MCP server \"%s\": %s%s. The server would run outside of the sandbox what cells put "
                       "there.%s%s Or keep it in a folder that cells cannot write, or deny writing there "
                       "(\"denyWrite\" in the settings file)",
                       c->name, u->first, u->whose, u->file ? as_code : as_data, u->file ? as_data : as_code);
}
