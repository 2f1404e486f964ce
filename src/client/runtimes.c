/* libcellgate: lists the languages of sessions, by starting one of each, and Jupyter kernels. */
#include "client/internal.h"

#include "base/buf.h"
#include "base/kernelspecs.h"
#include "base/language.h"

#define TRY_MS 10000

static const struct {
        const char *language, *code; /* code prints two lines: version and program */
        const char *packages;
} runtimes[] = {
        { "python", "import sys\nprint(sys.version.split()[0], sys.executable, sep='\\n')", "pip" },
        { "shell", "echo \"${BASH_VERSION%%(*}\"; echo \"$BASH\"", NULL },
        { "node", "console.log(process.versions.node + '\\n' + process.execPath)", NULL },
};

/* Runs @code and appends its standard output to @out. */
static int run_code(struct cg_session *s, const char *code, struct cg_buf *out, struct cg_err *err)
{
        struct cg_execute_options o = { .size = sizeof(o), .timeout_ms = TRY_MS };
        uint64_t cell;

        if (cg_session_execute(s, code, strlen(code), &o, &cell, err) < 0)
                return -1;
        for (;;) {
                struct cg_event *e;
                enum cg_event_type type;
                enum cg_status status;
                int r = cg_session_next_event(s, -1, &e, err);

                if (r != 0)
                        return r < 0 ? r : cg_fail(err, CG_E_CLOSED, "the session has ended");
                type = cg_event_type(e);
                status = cg_event_status(e);
                if (type == CG_EVENT_STREAM && !cg_event_is_stderr(e))
                        cg_buf_adds(out, cg_event_text(e, NULL));
                if (type == CG_EVENT_RESULT && status != CG_STATUS_OK)
                        cg_fail(err, CG_E_STATE, "its first cell failed: %.800s", cg_event_text(e, NULL));
                cg_event_free(e);
                if (type == CG_EVENT_RESULT)
                        return status == CG_STATUS_OK ? cg_buf_end(out, err) : CG_E_STATE;
        }
}

/* Runs @code in a session with @opts; sets start_ms, version and path of @o. */
static int try_runtime(struct cg_client *c, const struct cg_session_options *opts, const char *code,
                       json_t *o, struct cg_err *err)
{
        cg_auto_buf struct cg_buf out = { .max = 65536 };
        int64_t start = cg_now_ms();
        struct cg_session *s;
        char *rest, *version;
        int r = cg_session_new(c, opts, &s, err);

        if (r < 0)
                return r;
        r = run_code(s, code, &out, err);
        json_object_set_new(o, "start_ms", json_integer((json_int_t)(cg_now_ms() - start)));
        cg_session_free(s);
        if (r < 0)
                return r;
        rest = out.data;
        version = strsep(&rest, "\n");
        json_object_set_new(o, "version", json_string(version));
        json_object_set_new(o, "path", json_string(strsep(&rest, "\n") ?: ""));
        return 0;
}

/* Appends the entry of opts->language to @list. @code: of runtimes[]; NULL: a Jupyter kernel. */
static void add_runtime(struct cg_client *c, const struct cg_session_options *opts, const char *code,
                        const char *packages, json_t *list)
{
        cg_auto_json json_t *spec = NULL;
        const char *language = opts->language;
        struct cg_err why;
        int r;
        json_t *o = json_pack("{s:s, s:n, s:n, s:b, s:n, s:n, s:b, s:b, s:s?}", "language", language,
                              "version", "path", "available", 1, "why", "start_ms", "state", 1, "tools",
                              code != NULL, "packages", packages);

        /* A Jupyter kernel is not run: sessions with stricter settings may have written it. */
        r = code ? try_runtime(c, opts, code, o, &why)
                 : cg_kernelspec_find(cg_language_kernel(language), &spec, &why);
        if (spec) {
                json_object_set(o, "path", json_array_get(json_object_get(spec, "argv"), 0));
                json_object_set(o, "env", json_object_get(spec, "env"));
                json_object_set(o, "kernelspec", json_object_get(spec, "file"));
        }
        if (r < 0) {
                json_object_set_new(o, "available", json_false());
                json_object_set_new(o, "why", json_string(why.msg));
        }
        json_array_append_new(list, o);
}

CG_API int cg_client_runtimes(struct cg_client *c, const char *node, char **ret, struct cg_err *err)
{
        char folder[] = "/tmp/cellgate-runtimes-XXXXXX";
        cg_auto_json json_t *list = json_array(), *kernels = c->node ? NULL : cg_kernelspec_names();
        struct cg_session_options opts = { .size = sizeof(opts), .node = node };
        const char *name;
        json_t *unused;

        /* On another machine, sessions start in its own workspace: none is named here. */
        if (!c->node && !mkdtemp(folder))
                return cg_fail_errno(err, "%s", folder);
        opts.workspace = c->node ? NULL : folder;
        for (size_t i = 0; i < CG_ARRAY_LEN(runtimes); i++) {
                opts.language = runtimes[i].language;
                add_runtime(c, &opts, runtimes[i].code, runtimes[i].packages, list);
        }
        json_object_foreach(kernels, name, unused) {
                char language[NAME_MAX + 16];

                snprintf(language, sizeof(language), "jupyter:%s", name);
                opts.language = language;
                add_runtime(c, &opts, NULL, NULL, list);
        }
        if (!c->node)
                rmdir(folder);
        if (json_array_size(list) < CG_ARRAY_LEN(runtimes) + json_object_size(kernels))
                return cg_fail(err, CG_E_NOMEM, "runtimes");
        *ret = cg_json_text(list, NULL);
        return cg_made(*ret, "runtimes", err);
}
