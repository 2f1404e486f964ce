/* `cellgate jupyter run` and `attach`: set up the front. */
#include "cli/jupyter/jupyter.h"

#include "base/fd.h"
#include "base/json.h"
#include "base/ceilings.h"
#include "base/kernelspecs.h"
#include "cli/common/args.h"
#include "cli/common/files.h"
#include "cli/common/supervisors.h"
#include "cli/common/webhook.h"

/* ------------------------------------------------------------------ run */

/* NAME becomes NAME=VALUE of our environment, or is left out. Free *ret and each of its strings. */
static int make_env(const struct cg_jup_options *o, char ***ret, struct cg_err *err)
{
        char **v = calloc(o->kernel.n.env + 1, sizeof(*v));

        if (!v)
                return cg_fail(err, CG_E_NOMEM, "environment");
        *ret = v;
        for (size_t i = 0; i < o->kernel.n.env; i++) {
                const char *name = o->kernel.env[i], *value = getenv(name);
                bool given = strchr(name, '=');

                if (!given && !value)
                        continue;
                if (cg_asprintf(v, "environment", err, "%s%s%s", name, given ? "" : "=", given ? "" : value) <
                    0)
                        return -1;
                v++;
        }
        return 0;
}

static void free_env(char ***env)
{
        for (char **v = *env; v && *v; v++)
                free(*v);
        free(*env);
}

int cg_jup_run(struct cg_jup_options *o, bool *hangs, struct cg_err *err)
{
        cg_auto_free char *mcp = NULL, *settings = NULL;
        CG_CLEANUP(free_env) char **env = NULL;
        size_t mcp_len = 0;
        CG_CLEANUP(cg_kernel_hides_fini) struct cg_kernel_hides hides = { .list = { NULL } };
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
        long pid = strtol(parent ?: "0", NULL, 10);

        if (cg_mcp_file_read(o->kernel.mcp, &mcp, &mcp_len, err) < 0 ||
            cg_kernel_options_settings(&o->kernel, &settings, err) < 0 ||
            cg_kernel_options_session(&o->kernel, NULL, &hides, &so, err) < 0 || make_env(o, &env, err) < 0)
                return -1;
        cg_kernel_options_client(&o->kernel, &co);
        so.settings = settings;
        so.workspace = o->kernel.workspace; /* on another machine; NULL: this folder */
        so.ask_egress = 1;
        so.env = (const char *const *)env;
        fo.ready_fd = o->ready_fd;
        if (pid > 1 && pid < INT32_MAX)
                fo.parent = (pid_t)pid;
        fo.mcp = mcp;
        fo.mcp_len = mcp_len;
        fo.ends_with_kernel = o->runs_notebook;
        for (size_t i = 0; i < o->n_ignored; i++)
                cg_buf_addf(&ignored, " %s", o->ignored[i]);
        if (ignored.len)
                cg_log(&fo.log, CG_LOG_WARN, "ignored, since they mean nothing here:%s", ignored.data);
        if (cg_webhook_start(o->kernel.deciders.webhook, &co, err) < 0)
                return -1;
        return cg_front_run(&fo, hangs, err);
}

/* ------------------------------------------------------------------ sessions that are open */

/* The list of one supervisor: a JSON array, or NULL when none answers there. */
static json_t *sessions_at(const char *address, struct cg_err *err)
{
        struct cg_client *c;
        char *text = NULL;
        json_t *list = NULL;

        if (cg_supervisor_open(address, &c, err) < 0)
                return NULL;
        if (cg_client_sessions(c, &text, err) == 0)
                list = cg_reply_json(text);
        cg_client_close(c);
        return list;
}

/* Appends the sessions of a supervisor to the list @data, each with its "address". */
static int collect(const char *address, void *data)
{
        struct cg_err err;
        cg_auto_json json_t *list = sessions_at(address, &err);
        json_t *s;
        size_t i;

        json_array_foreach(list, i, s) {
                json_object_set_new(s, "address", json_string(address));
                json_array_append(data, s);
        }
        return 0;
}

/* The sessions of one supervisor, which must exist, or of all supervisors of this user. */
static int collect_all(const char *address, json_t **ret, struct cg_err *err)
{
        json_t *list;

        *ret = json_array();
        if (!address)
                return cg_supervisors(collect, *ret, err);
        list = sessions_at(address, err);
        if (!list)
                return -1;
        json_decref(list);
        return collect(address, *ret);
}

int cg_jup_list(struct cg_jup_options *o, bool *hangs, struct cg_err *err)
{
        cg_auto_buf struct cg_buf b = { .max = CG_MAX_REPORT };
        cg_auto_json json_t *all = NULL;
        json_t *s;
        size_t i;

        if (collect_all(o->address, &all, err) < 0)
                return -1;
        if (!json_array_size(all))
                cg_buf_adds(&b, "no session is open\n");
        json_array_foreach(all, i, s) {
                cg_buf_addf(&b, "%s  %-7s  Python %-7s  %-10s  ", cg_json_text_of(s, "id"),
                            json_is_true(json_object_get(s, "running")) ? "running" : "idle",
                            cg_json_text_of(s, "python"),
                            json_is_true(json_object_get(s, "sandbox")) ? "sandbox" : "no sandbox");
                cg_name_render(&b, cg_json_text_of(s, "workspace"));
                cg_buf_adds(&b, "\n");
        }
        if ((o->json ? cg_cli_print_json(all, JSON_INDENT(2)) : cg_cli_print_buf(&b)) != CG_EXIT_OK)
                return cg_fail(err, CG_E_SYS, "standard output cannot be written");
        return 0;
}

/* ------------------------------------------------------------------ attach */

/* The session whose id begins with @id: borrowed from the list. NULL: none, or more than one. */
static const json_t *find_session(const json_t *all, const char *id, struct cg_err *err)
{
        const json_t *s, *found = NULL;
        size_t i, n = 0;

        json_array_foreach(all, i, s) {
                if (strncmp(cg_json_text_of(s, "id"), id, strlen(id)) == 0) {
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
        int r;

        if (own && *own)
                r = cg_asprintf(&dir, "connection file", err, "%s", own);
        else if ((r = cg_jupyter_data_dir(&data, err)) == 0)
                r = cg_asprintf(&dir, "connection file", err, "%s/runtime", data);
        if (r < 0 || cg_asprintf(ret, "connection file", err, "%s/kernel-cellgate-%.12s-%u.json", dir, id,
                                 (unsigned)getpid()) < 0)
                return -1;
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
        cg_auto_json json_t *all = NULL;
        const json_t *s;

        if (collect_all(o->address, &all, err) < 0)
                return -1;
        s = find_session(all, o->session, err);
        if (!s)
                return -1;
        co.address = cg_json_text_of(s, "address");
        fo.attach = cg_json_text_of(s, "id");
        if (!fo.connection_file) {
                if (default_file(fo.attach, &file, err) < 0)
                        return -1;
                fo.connection_file = file;
        }
        return cg_front_run(&fo, hangs, err);
}
