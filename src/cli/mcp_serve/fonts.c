/*
 * `cellgate mcp serve`: matplotlib's list of fonts, made once after matplotlib was installed and
 * not by every kernel, which takes more than a second.
 *
 * Making it runs code of the package, which is done only in a sandbox: in a separate session that
 * the agent's cells do not reach, with an empty workspace. What it prints is data for later
 * kernels, which have that package as well and read it only.
 */
#include "cli/mcp_serve/mcp_serve.h"

#include "base/fd.h"
#include "base/json.h"
#include "cli/mcp_serve/texts.h"

#define FONTS_MS 60000
#define MAX_LIST ((size_t)8 << 20)
#define MAX_NAME 64u

/* The session's standard output until its cell ends. Another outcome than ok: nothing. */
static int collect(struct cg_session *kernel, uint64_t cell, struct cg_buf *out, struct cg_err *err)
{
        int64_t end = cg_now_ms() + FONTS_MS;
        int r = 0;

        for (bool ended = false; !ended && r >= 0;) {
                struct cg_event *e;
                int64_t left = end - cg_now_ms();
                const char *text;
                size_t len;

                if (left > 0)
                        r = cg_session_next_event(kernel, left, &e, err);
                if (left <= 0 || r > 0)
                        return cg_fail(err, CG_E_TIMEDOUT, "it did not end in time");
                if (r < 0)
                        return r;
                text = cg_event_text(e, &len);
                ended = cg_event_type(e) == CG_EVENT_RESULT && cg_event_cell(e) == cell;
                if (cg_event_type(e) == CG_EVENT_STREAM && !cg_event_is_stderr(e))
                        cg_buf_add(out, text, len);
                if (ended && cg_event_status(e) != CG_STATUS_OK)
                        r = cg_fail(err, CG_E_STATE, "%.500s", text ?: "it failed");
                cg_event_free(e);
        }
        if (r >= 0)
                r = cg_buf_end(out, err);
        return r;
}

/* "fontlist-v390.json", then JSON: another name or text is not written. */
static int write_list(const char *folder, struct cg_buf *out, struct cg_err *err)
{
        cg_auto_json json_t *check = NULL;
        char *line_end = strchr(out->data ?: "", '\n');
        cg_auto_free char *path = NULL;
        cg_auto_fd int fd = -1;
        size_t n;

        if (!line_end)
                return cg_fail(err, CG_E_NOTFOUND, "it made none");
        *line_end = '\0';
        n = strlen(out->data);
        if (n > MAX_NAME || strncmp(out->data, "fontlist-", 9) != 0 || n < 5 ||
            strcmp(out->data + n - 5, ".json") != 0 || strchr(out->data, '/'))
                return cg_fail(err, CG_E_PROTO, "its name is another than expected");
        if (cg_json_object(line_end + 1, out->len - n - 1, "list of fonts", &check, err) < 0 ||
            cg_make_dirs(folder, 0755, err) < 0)
                return -1;
        if (cg_asprintf(&path, "list of fonts", err, "%s/%s", folder, out->data) < 0)
                return -1;
        fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
        if (fd < 0 && errno == EEXIST)
                return 0;
        if (fd < 0)
                return cg_fail_errno(err, "%s", path);
        return cg_write_all(fd, line_end + 1, out->len - n - 1, err);
}

static int run(struct cg_serve_session *s, const char *workspace, struct cg_buf *out, struct cg_err *err)
{
        const char *paths[] = { s->packages.path, NULL };
        struct cg_session_options so = { .size = sizeof(so), .workspace = workspace, .python_path = paths };
        struct cg_execute_options eo = { .size = sizeof(eo), .timeout_ms = FONTS_MS };
        struct cg_kernel_options plain = s->sv->opts.kernel;
        CG_CLEANUP(cg_kernel_hides_fini) struct cg_kernel_hides hides = { .list = { NULL } };
        struct cg_session *kernel = NULL;
        uint64_t cell;
        int r;

        if (cg_kernel_options_session(&plain, workspace, &hides, &so, err) < 0 ||
            cg_session_new(s->client, &so, &kernel, err) < 0)
                return -1;
        r = cg_session_execute(kernel, CG_SERVE_LIST_FONTS_PY, strlen(CG_SERVE_LIST_FONTS_PY), &eo, &cell,
                               err);
        if (r >= 0)
                r = collect(kernel, cell, out, err);
        cg_session_free(kernel);
        return r;
}

void cg_serve_list_fonts(struct cg_serve_session *s)
{
        cg_auto_buf struct cg_buf out = { .max = MAX_LIST };
        cg_auto_free char *module = NULL, *folder = NULL;
        char workspace[] = "/tmp/cellgate-fonts-XXXXXX";
        struct cg_err err;

        if (asprintf(&module, "%s/matplotlib/font_manager.py", s->packages.path) < 0 ||
            asprintf(&folder, "%s/share/cellgate/matplotlib", s->packages.path) < 0)
                return;
        /* Without a sandbox matplotlib keeps its list in the user's own home. */
        if (s->sv->opts.kernel.no_sandbox || !s->client || access(module, F_OK) < 0 ||
            access(folder, F_OK) == 0 || !mkdtemp(workspace))
                return;
        if (run(s, workspace, &out, &err) < 0 || write_list(folder, &out, &err) < 0)
                cg_log(&s->sv->log, CG_LOG_INFO, "matplotlib's list of fonts: %s", err.msg);
        cg_remove_tree(workspace, NULL);
}
