/*
 * cellgate-supervisor: the files that belong to the program of an MCP server, with what links lead
 * to. What cells could write of it becomes read-only in every kernel (a guard), or the definition
 * is refused.
 */
#include "supervisor/servers/internal.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/fd.h"
#include "base/json.h"
#include "base/kernel_env.h"
#include "base/path_glob.h"
#include "base/util.h"
#include "sandbox/plan.h"

/* Folders of write roots that are guarded: each is a mount of every kernel. */
#define GUARDED_MAX 64

int cg_sup_server_add_guard(struct check *c, const char *path)
{
        cg_auto_json json_t *one = json_pack("[s]", path);
        int r = 0;

        if (!one || json_array_append(c->guards, json_array_get(one, 0)) < 0)
                return cg_fail(c->err, CG_E_NOMEM, "MCP server");
        for (size_t i = 0; i < c->n_views && r == 0; i++)
                r = cg_rules_add_guards(&c->views[i].rules, one, c->err);
        return r;
}

/*
 * The folder at or above @folder that has a file @marker; all in between can be written by cells,
 * or none can.
 */
static bool marked_root(const struct check *c, const char *folder, const char *marker, char root[PATH_MAX])
{
        bool open = cg_sup_file_is_open(c, folder);
        char path[PATH_MAX + 32];

        for (snprintf(root, PATH_MAX, "%s", folder); root[1] && cg_sup_file_is_open(c, root) == open;
             cg_sup_path_cut_last(root)) {
                snprintf(path, sizeof(path), "%s/%s", root, marker);
                if (access(path, F_OK) == 0)
                        return true;
        }
        return false;
}

/*
 * The folder whose files belong to the program or script @path, which is real: what it imports is
 * beside it. *own: it is nothing but the folder that the file is in.
 */
static void find_root(const struct check *c, const char *path, bool folder, bool js, char root[PATH_MAX],
                      bool *own)
{
        /* The topmost one: packages import each other all over it. */
        const char *modules = strstr(path, "/node_modules/");
        char at[PATH_MAX], up[PATH_MAX];

        *own = false;
        if (modules) {
                snprintf(root, PATH_MAX, "%.*s/node_modules", (int)(modules - path), path);
                return;
        }
        snprintf(at, sizeof(at), "%s", path);
        if (!folder)
                cg_sup_path_cut_last(at);
        if (marked_root(c, at, "pyvenv.cfg", root) || (js && marked_root(c, at, "package.json", root)))
                return;
        *own = true;
        snprintf(root, PATH_MAX, "%s", at);
        snprintf(up, sizeof(up), "%s", at);
        cg_sup_path_cut_last(up);
        /* Programs find their libraries beside their folder. */
        if ((strcmp(cg_path_base(at), "bin") == 0 || strcmp(cg_path_base(at), "libexec") == 0) &&
            cg_sup_file_is_open(c, up) && !cg_sup_file_holds_write_root(c, up))
                snprintf(root, PATH_MAX, "%s", up);
}

int cg_sup_server_search_pending(struct check *c)
{
        char real[PATH_MAX];
        int r = 0;

        for (size_t i = 0; i < json_array_size(c->pending) && r == 0; i += 2) {
                const char *path = json_string_value(json_array_get(c->pending, i));
                const char *what = json_string_value(json_array_get(c->pending, i + 1));

                if (cg_sup_file_is_exposed(c, path))
                        r = cg_sup_server_guard_path(c, what, path);
                else if (realpath(path, real) && !cg_sup_path_is_file(real))
                        r = cg_sup_tree_search_outside(c, what, real, TREE_LENIENT);
        }
        json_array_clear(c->pending);
        return r;
}

/* node searches packages in all folders above a script. */
static int search_node_folders(struct check *c, const char *what, const char *folder)
{
        cg_auto_json json_t *key = json_pack("s+", "above:", folder); /* no path */
        struct stat st;
        char at[PATH_MAX], path[PATH_MAX + 16];
        int r = 0;

        /* Once: what is found may lead here again. */
        if (key && cg_sup_list_has(c->searched, key))
                return 0;
        if (!key || json_array_append(c->searched, key) < 0)
                return cg_sup_server_fail(c, folder, "its name is not UTF-8, or there is no memory");
        for (snprintf(at, sizeof(at), "%s", folder); at[1] && r == 0; cg_sup_path_cut_last(at)) {
                snprintf(path, sizeof(path), "%s/node_modules", at);
                if (!cg_sup_file_is_exposed(c, path))
                        continue;
                if (lstat(path, &st) < 0 && cg_sup_file_is_open(c, at)) {
                        /* Optional: cells must not make it. */
                        strcat(path, "/");
                        r = cg_sup_server_add_guard(c, path);
                } else {
                        r = cg_sup_server_guard_path(c, what, path);
                }
        }
        return r;
}

/*
 * A program that cells cannot write: what belongs to it may have links to where they can, and its
 * files other names there.
 */
static int search_outside(struct check *c, const char *what, const char *path, bool folder, bool link)
{
        char root[PATH_MAX];
        bool own, programs;
        int r = link ? 0 : cg_sup_tree_search_outside(c, what, path, 0);

        if (r < 0)
                return r;
        find_root(c, path, folder, c->node, root, &own);
        /* Programs in a folder of programs do not load what is beside them. */
        programs = strcmp(cg_path_base(root), "bin") == 0 || strcmp(cg_path_base(root), "sbin") == 0;
        if ((!own || (!link && !programs)) && !cg_sup_file_is_open(c, root))
                r = cg_sup_tree_search_outside(c, what, root, own ? TREE_VISIBLE | TREE_LENIENT : 0);
        return r < 0 || !c->node ? r : search_node_folders(c, what, root);
}

/* Makes what belongs to @path (real) read-only, where cells could write it. */
static int guard(struct check *c, const char *what, const char *path, bool folder, bool link)
{
        char root[PATH_MAX];
        bool own, inside = true;
        int r;

        if (!cg_sup_file_is_open(c, path))
                return search_outside(c, what, path, folder, link);
        find_root(c, path, folder, c->node, root, &own);
        if (cg_sup_file_holds_write_root(c, root)) {
                /* A link to elsewhere: it stays what it is, and nothing beside it is loaded. */
                if (link && own)
                        return cg_sup_server_add_guard(c, path);
                return cg_sup_server_refuse(c, what, path,
                                            own && !folder
                                                    ? "it is directly in a folder that cells write, and so "
                                                      "would be what it imports"
                                                    : "the folder that it belongs to is one that cells "
                                                      "write, or holds one");
        }
        if (json_array_size(c->guards) >= GUARDED_MAX)
                return cg_fail(c->err, CG_E_LIMIT,
                               "MCP server \"%s\": links lead from its program through more than %d folders "
                               "that cells write (%s). Keep it where cells cannot write",
                               c->name, GUARDED_MAX, root);
        r = cg_sup_server_add_guard(c, root);
        if (r < 0)
                return r;
        /* Other names of its files in write roots of all views: hardlinks.c. */
        for (size_t i = 0; i < c->n_views; i++)
                inside &= cg_rules_may_write(&c->views[i].rules, root);
        if (inside)
                return cg_sup_tree_search_inside(c, what, root);
        return cg_sup_tree_search_outside(c, what, root, 0);
}

static int guard_base_of_venv(struct check *c, const char *program);

/* @path (absolute) with all links on the way to it. */
int cg_sup_server_guard_path(struct check *c, const char *what, const char *path)
{
        cg_auto_place struct cg_place place = { .path = "" };
        int r = cg_place_find(path, &place, c->err);

        if (r < 0)
                return r;
        for (size_t i = 0; i < place.n_links; i++)
                if ((r = guard(c, what, place.links[i], false, true)) < 0)
                        return r;
        if (place.missing && cg_sup_file_is_open(c, place.path))
                return cg_sup_server_refuse(c, what, place.path,
                                            "it does not exist, and cells could create it");
        if (!place.missing && (r = guard(c, what, place.path, place.folder, false)) < 0)
                return r;
        return guard_base_of_venv(c, path);
}

/* Files that name further folders of modules: *.pth, and what editable installations leave. */
static int guard_named_in(struct check *c, const char *folder, const char *name)
{
        size_t n = strlen(name), len;
        char path[PATH_MAX], *save = NULL;
        cg_auto_free char *text = NULL;
        struct cg_err why;
        struct stat st;
        int r = 0;

        if (!(n > 4 && strcmp(name + n - 4, ".pth") == 0) &&
            !(n > 9 && strcmp(name + n - 9, ".egg-link") == 0) && strncmp(name, "__editable__", 12) != 0)
                return 0;
        if (snprintf(path, sizeof(path), "%s/%s", folder, name) >= (int)sizeof(path))
                return cg_sup_server_fail(c, folder, "a name in it is too long");
        if (stat(path, &st) < 0 || !S_ISREG(st.st_mode)) /* nothing that Python could read */
                return 0;
        if (cg_read_regular(path, (size_t)1 << 20, &text, &len, &why) < 0)
                return cg_sup_server_fail(c, path, why.msg);
        for (size_t i = 0; i < len; i++) /* Python reads on after a NUL */
                text[i] = text[i] ?: '\n';
        for (char *p = strtok_r(text, "\r\n'\"", &save); p && r == 0; p = strtok_r(NULL, "\r\n'\"", &save)) {
                int len_path = p[0] == '/' ? snprintf(path, sizeof(path), "%s", p)
                                           : snprintf(path, sizeof(path), "%s/%s", folder, p);

                if (len_path < (int)sizeof(path) && (p[0] == '/' || !strncmp(p, "..", 2)) &&
                    (cg_sup_file_is_exposed(c, path) || cg_sup_path_is_present(path)))
                        r = cg_sup_server_guard_path(c, "a folder of modules of its Python,", path);
        }
        return r;
}

/* The folders PREFIX/lib/python*\/{site,dist}-packages. */
static int guard_modules(struct check *c, const char *prefix)
{
        glob_t g = { .gl_pathc = 0 };
        int r = cg_path_glob(prefix, "/lib/python3*/*-packages", &g);

        if (r == GLOB_NOMATCH)
                return 0;
        if (r)
                return cg_sup_server_fail(c, prefix, "its folders of modules cannot be listed");
        for (size_t i = 0; i < g.gl_pathc && r == 0; i++) {
                cg_auto_dir DIR *dir = opendir(g.gl_pathv[i]);
                const struct dirent *d;

                if (!dir && errno != ENOTDIR)
                        r = cg_sup_server_fail(c, g.gl_pathv[i], "it cannot be read");
                if (r == 0 && !cg_sup_file_is_exposed(c, g.gl_pathv[i]))
                        r = cg_sup_tree_search_outside(c, "the modules of its Python,", g.gl_pathv[i], 0);
                while (dir && r == 0 && (errno = 0, d = readdir(dir)))
                        r = guard_named_in(c, g.gl_pathv[i], d->d_name);
                if (dir && r == 0 && errno)
                        r = cg_sup_server_fail(c, g.gl_pathv[i], "it cannot be read");
        }
        globfree(&g);
        return r;
}

/* A Python DIR/bin/PROGRAM: its modules; where DIR has a pyvenv.cfg, the Python that this names. */
static int guard_base_of_venv(struct check *c, const char *program)
{
        const json_t *env = json_object_get(c->def, "env");
        const char *own_home = json_string_value(json_object_get(env, "HOME")) ?: c->scope->home;
        const char *base = json_string_value(json_object_get(env, "PYTHONUSERBASE"));
        const char *prefix = json_string_value(json_object_get(env, "PYTHONHOME"));
        char folder[PATH_MAX], home[PATH_MAX], user[PATH_MAX + 16] = "";
        const char *const prefixes[] = { folder, user, base, prefix, "/usr/local" };
        int r;

        if (strncmp(cg_path_base(program), "py", 2) != 0)
                return 0;
        snprintf(folder, sizeof(folder), "%s", program);
        cg_sup_path_cut_last(folder);
        cg_sup_path_cut_last(folder);
        if (!folder[1])
                folder[0] = '\0';
        if (own_home && strlen(own_home) < PATH_MAX)
                snprintf(user, sizeof(user), "%s/.local", own_home);
        for (size_t i = 0; i < CG_ARRAY_LEN(prefixes); i++) {
                if (!prefixes[i] || strlen(prefixes[i]) >= PATH_MAX || (prefixes[i] == user && !user[0]))
                        continue;
                r = guard_modules(c, prefixes[i]);
                if (r < 0)
                        return r;
        }
        if (!cg_pyvenv_home(folder, home, sizeof(home)))
                return 0;
        if (!cg_sup_file_is_exposed(c, home)) {
                cg_sup_path_cut_last(home);
                return guard_modules(c, home);
        }
        cg_sup_path_cut_last(home);
        return guard(c, "the base Python of its program,", home, true, false);
}

/* One path of a variable or an argument; what does not exist is passed over. */
static int search_path(struct check *c, const char *what, const char *spelled)
{
        const char *slash = strchr(spelled, '/');
        char path[PATH_MAX], real[PATH_MAX], *pattern;

        if (spelled[0] == '/' || spelled[0] == '~' || (!c->own_cwd && !c->defer)) {
                if (cg_sup_file_absolute(c, spelled, path) < 0)
                        return 0;
        } else if (slash && strlen(slash) < sizeof(path)) { /* -I/opt/lib, @/opt/file */
                memcpy(path, slash, strlen(slash) + 1);
        } else {
                return 0;
        }
        /* The folder of a pattern: /opt/lib/?.lua */
        pattern = access(path, F_OK) < 0 ? strpbrk(path, "*?#") : NULL;
        if (pattern) {
                *pattern = '\0';
                cg_sup_path_cut_last(path);
        }
        if (!realpath(path, real) || !real[1])
                return 0;
        if (!cg_sup_path_is_file(real))
                return cg_sup_tree_search_outside(c, what, real, TREE_LENIENT);
        return cg_sup_path_is_code(path, false) ? cg_sup_server_guard_path(c, what, path) : 0;
}

int cg_sup_server_search_named(struct check *c, const char *what, const char *text)
{
        static const char *const separators[] = { "\n", ":", ":=", " \t\n:;,='\"`|&<>()" };
        cg_auto_buf struct cg_buf expanded = { .max = (size_t)1 << 20 };
        int r = 0;

        if (!cg_sup_text_expand(c, text, &expanded))
                return cg_sup_server_fail(c, what, "its text is longer than 1 MiB");
        for (size_t i = 0; i < CG_ARRAY_LEN(separators) && r == 0 && expanded.data; i++) {
                cg_auto_free char *copy = strdup(expanded.data);
                char *save = NULL;

                if (!copy)
                        return cg_fail(c->err, CG_E_NOMEM, "MCP server");
                for (char *p = strtok_r(copy, separators[i], &save); p && r == 0;
                     p = strtok_r(NULL, separators[i], &save))
                        r = search_path(c, what, p);
        }
        return r;
}
