/* `cellgate jupyter run` and `attach`: set up the front. */
#include "cli/jupyter/jupyter.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/fd.h"
#include "base/json.h"
#include "base/ceilings.h"
#include "base/util.h"
#include "cli/common/supervisors.h"
#include "cli/common/webhook.h"
#include "jupyter/kernelspec.h"

/* A supervisor that is there answers at once; one that hangs must not hold up a listing. */
#define LOOK_MS 3000

/* ------------------------------------------------------------------ run */

/*
 * NAME becomes NAME=VALUE of our own environment; one that is not set is left out. Free *ret and
 * each of its strings.
 */
static int make_env(const struct cg_jup_options *o, char ***ret, struct cg_err *err)
{
        char **v = calloc(o->kernel.n_env + 1, sizeof(*v));
        size_t n = 0;

        if (!v)
                return cg_fail(err, CG_E_NOMEM, "environment");
        *ret = v;
        for (size_t i = 0; i < o->kernel.n_env; i++) {
                const char *value = strchr(o->kernel.env[i], '=') ? NULL : getenv(o->kernel.env[i]);
                int len;

                if (!value && !strchr(o->kernel.env[i], '='))
                        continue;
                len = value ? asprintf(&v[n], "%s=%s", o->kernel.env[i], value)
                            : asprintf(&v[n], "%s", o->kernel.env[i]);
                if (len < 0) {
                        v[n] = NULL;
                        return cg_fail(err, CG_E_NOMEM, "environment");
                }
                n++;
        }
        return 0;
}

/* Checked here, so that an error has the line and column in the file. */
static int read_json(const char *path, char **text, size_t *len, struct cg_err *err)
{
        cg_auto_json json_t *check = NULL;

        if (!path)
                return 0;
        if (cg_read_file(path, CG_MAX_SETTINGS, text, len, err) < 0 ||
            cg_json_object(*text, *len, path, &check, err) < 0)
                return -1;
        if (*len >= 3 && memcmp(*text, "\xef\xbb\xbf", 3) == 0)
                memset(*text, ' ', 3);
        return 0;
}

int cg_jup_run(struct cg_jup_options *o, bool *hangs, struct cg_err *err)
{
        cg_auto_free char *mcp = NULL, *settings = NULL;
        char **env = NULL;
        size_t mcp_len = 0;
        struct cg_kernel_hides hides = { .list = { NULL } };
        struct cg_client_options co = {
                .size = sizeof(co), .linger_ms = o->linger_ms, .spares = o->spares, .no_spare = o->spares == 0
        };
        struct cg_session_options so = { .size = sizeof(so), .color = 1, .front = CG_FRONT_JUPYTER };
        struct cg_front_options fo = { .connection_file = o->file,
                                       .client = &co,
                                       .session = &so,
                                       .judge = cg_jup_judge(o->kernel.approve),
                                       .log = { .fd = 2, .level = o->kernel.log_level, .who = "jupyter" } };
        cg_auto_buf struct cg_buf ignored = { .max = 1000 };
        /* The process that started us, from Jupyter's clients; it may have ended already. */
        const char *parent = getenv("JPY_PARENT_PID");
        long pid = parent ? strtol(parent, NULL, 10) : 0;
        int r = read_json(o->kernel.mcp, &mcp, &mcp_len, err);

        fo.ready_fd = o->ready_fd;
        fo.parent = pid > 1 && pid < INT32_MAX ? (pid_t)pid : 0;
        if (r == 0)
                r = cg_kernel_options_settings(&o->kernel, &settings, err);
        if (r == 0)
                r = cg_kernel_options_session(&o->kernel, NULL, &hides, &so, err);
        if (r == 0)
                r = make_env(o, &env, err);
        cg_kernel_options_client(&o->kernel, &co);
        so.settings = settings;
        so.ask_egress = 1;
        so.env = (const char *const *)env;
        fo.mcp = mcp;
        fo.mcp_len = mcp_len;
        fo.ends_with_kernel = o->runs_notebook;
        for (size_t i = 0; i < o->n_ignored; i++)
                if (cg_buf_try_addf(&ignored, NULL, "%s%s", i ? " " : "", o->ignored[i]) < 0)
                        break;
        if (ignored.len)
                cg_log(&fo.log, CG_LOG_WARN, "ignored, since they mean nothing here: %s", ignored.data);
        if (r == 0)
                r = cg_webhook_start(o->kernel.webhook, &co, err);
        if (r == 0)
                r = cg_front_run(&fo, hangs, err);
        for (size_t i = 0; env && env[i]; i++)
                free(env[i]);
        free(env);
        cg_kernel_hides_fini(&hides);
        return r;
}

/* ------------------------------------------------------------------ sessions that are open */

/* The list of one supervisor: a JSON array, or NULL when none answers there. */
static json_t *sessions_at(const char *address, struct cg_err *err)
{
        struct cg_client_options co = { .size = sizeof(co), .address = address, .timeout_ms = LOOK_MS };
        struct cg_client *c;
        char *text = NULL;
        json_t *list = NULL;

        if (cg_client_open(&co, &c, err) < 0)
                return NULL;
        if (cg_client_sessions(c, &text, err) == 0) {
                list = json_loads(text, 0, NULL);
                cg_free(text);
        }
        cg_client_close(c);
        return list;
}

struct session_list {
        json_t *all; /* every session, with its "address" */
};

static int collect(const char *address, void *data)
{
        struct session_list *l = data;
        struct cg_err err;
        json_t *list = sessions_at(address, &err), *s;
        size_t i;

        json_array_foreach(list, i, s)
        {
                json_object_set_new(s, "address", json_string(address));
                json_array_append(l->all, s);
        }
        json_decref(list);
        return 0;
}

/* The sessions of one supervisor, which must exist, or of all supervisors of this user. */
static int collect_all(const char *address, struct session_list *l, struct cg_err *err)
{
        json_t *list;

        l->all = json_array();
        if (!l->all)
                return cg_fail(err, CG_E_NOMEM, "list");
        if (!address)
                return cg_supervisors(collect, l, err);
        list = sessions_at(address, err);
        if (!list)
                return err->code < 0 ? err->code : -1;
        json_decref(list);
        return collect(address, l);
}

static const char *text_of(const json_t *s, const char *key)
{
        return json_string_value(json_object_get(s, key)) ?: "";
}

int cg_jup_list(struct cg_jup_options *o, bool *hangs, struct cg_err *err)
{
        cg_auto_buf struct cg_buf b = { .max = CG_MAX_REPORT };
        struct session_list l = { NULL };
        json_t *s;
        size_t i;
        int r = collect_all(o->address, &l, err);

        (void)hangs;
        if (r == 0 && o->json) {
                cg_auto_free char *text = json_dumps(l.all, JSON_INDENT(2)), *lines = NULL;

                json_decref(l.all);
                if (!text || asprintf(&lines, "%s\n", text) < 0)
                        return cg_fail(err, CG_E_NOMEM, "list");
                return cg_cli_print(lines) == CG_EXIT_OK ? 0 : cg_fail(err, CG_E_SYS, "standard output");
        }
        json_array_foreach(l.all, i, s)
        {
                char *workspace = NULL;

                if (r == 0)
                        r = cg_render(text_of(s, "workspace"), strlen(text_of(s, "workspace")), 0, &workspace,
                                      err);
                if (r == 0)
                        r = cg_buf_try_addf(&b, err, "%s  %-7s  Python %-7s  %-10s  %s\n", text_of(s, "id"),
                                            json_is_true(json_object_get(s, "running")) ? "running" : "idle",
                                            text_of(s, "python"),
                                            json_is_true(json_object_get(s, "sandbox")) ? "sandbox"
                                                                                        : "no sandbox",
                                            workspace);
                cg_free(workspace);
        }
        json_decref(l.all);
        if (r == 0 && !b.len)
                r = cg_buf_try_adds(&b, "no session is open\n", err);
        if (r == 0 && cg_cli_print(b.data) != CG_EXIT_OK)
                r = cg_fail(err, CG_E_SYS, "standard output cannot be written");
        return r;
}

/* ------------------------------------------------------------------ attach */

/* The session whose id begins with @id: borrowed from the list. NULL: none, or more than one. */
static const json_t *find_session(const struct session_list *l, const char *id, struct cg_err *err)
{
        const json_t *s, *found = NULL;
        size_t i, n = 0;

        json_array_foreach(l->all, i, s)
        {
                if (strncmp(text_of(s, "id"), id, strlen(id)) == 0) {
                        found = s;
                        n++;
                }
        }
        if (n == 1)
                return found;
        if (n)
                cg_fail(err, CG_E_INVAL, "%zu sessions begin with \"%s\": give more of the id", n, id);
        else
                cg_fail(err, CG_E_NOTFOUND,
                        "there is no session \"%s\": `cellgate jupyter list` shows the open sessions", id);
        return NULL;
}

/* A new connection file in Jupyter's runtime folder, which is made. *ret: caller frees. */
static int default_file(const char *id, char **ret, struct cg_err *err)
{
        const char *own = getenv("JUPYTER_RUNTIME_DIR");
        cg_auto_free char *data = NULL, *dir = NULL;
        int n;

        if (own && *own)
                n = asprintf(&dir, "%s", own);
        else if (cg_jupyter_data_dir(&data, err) == 0)
                n = asprintf(&dir, "%s/runtime", data);
        else
                return -1;
        if (n < 0 || asprintf(ret, "%s/kernel-cellgate-%.12s-%u.json", dir, id, (unsigned)getpid()) < 0)
                return cg_fail(err, CG_E_NOMEM, "connection file");
        return cg_make_dirs(dir, 0700, err);
}

int cg_jup_attach(struct cg_jup_options *o, bool *hangs, struct cg_err *err)
{
        cg_auto_free char *file = NULL;
        struct cg_client_options co = { .size = sizeof(co) };
        struct cg_front_options fo = { .connection_file = o->file,
                                       .client = &co,
                                       .judge = cg_jup_judge(o->kernel.approve),
                                       .announce = true,
                                       .log = { .fd = 2, .level = o->kernel.log_level, .who = "jupyter" } };
        struct session_list l = { NULL };
        const json_t *s = NULL;
        int r = collect_all(o->address, &l, err);

        if (r == 0) {
                s = find_session(&l, o->session, err);
                r = s ? 0 : -1;
        }
        co.address = text_of(s, "address");
        fo.attach = text_of(s, "id");
        if (r == 0 && !fo.connection_file) {
                r = default_file(fo.attach, &file, err);
                fo.connection_file = file;
        }
        if (r == 0)
                r = cg_front_run(&fo, hangs, err);
        json_decref(l.all);
        return r;
}
