/*
 * Results that are too large for a kernel to take at once: their long strings are written to a
 * file, and the kernel reads parts of it. Runs in cellgate-toolserver.
 */
#include <linux/limits.h>
#include "base/json.h"
#include "base/state_dir.h"
#include "mcp/ceilings.h"
#include "mcp/toolserver/call_internal.h"

/* A large result on its way to a file. */
struct conversion {
        uv_work_t work;
        struct ts *ts;
        struct ts_call *call; /* NULL: cancelled */
        char *copy;           /* of json; NULL: the loop waits */
        const char *json;
        uint64_t id;
        size_t len, room, size;
        int fd, r;
        struct cg_buf out;
        struct cg_err err;
};

/*
 * A file without a name for a kept result: in the state folder, which is on a disk and which no
 * sandbox shows, else beside the kernel's socket, which is often in memory.
 */
static int kept_file(const struct ts_kernel *k)
{
        const int flags = O_TMPFILE | O_EXCL | O_RDWR | O_CLOEXEC;
        char state[PATH_MAX];
        int fd = cg_make_state_dir(state) ? open(state, flags, 0600) : -1;

        return fd >= 0 ? fd : open(k->folder, flags, 0600);
}

static void convert(uv_work_t *work)
{
        struct conversion *v = work->data;

        v->r = cg_kept_write(v->fd, v->id, v->room, v->json, v->len, &v->size, &v->out, &v->err);
}

/* Ends the call with what came of the conversion of its result. */
static void end_converted(struct ts_call *call, struct conversion *v)
{
        if (v->r == 0) {
                call->kind = "kept";
                cg_ts_call_end(call, "ok", v->out.data, v->out.len);
                return;
        }
        if (v->len <= CG_MAX_TOOL_RESULT) {
                call->kind = "";
                cg_ts_call_end(call, "ok", v->json, v->len);
                return;
        }
        call->kind = "too_large";
        if (v->r > 0)
                cg_ts_call_fail(call, "MCP server \"%s\": the result has %zu bytes, over the limit of %u",
                                call->server, v->len, CG_MAX_TOOL_RESULT);
        else
                cg_ts_call_fail(call, "MCP server \"%s\": the result of %zu bytes cannot be kept: %s",
                                call->server, v->len, v->err.msg);
}

static void on_converted(uv_work_t *work, int status)
{
        struct conversion *v = work->data;
        struct ts_call *call = v->call;

        if (v->copy)
                v->ts->converting -= v->len;
        if (call)
                call->conversion = NULL;
        if (call && v->r == 0)
                v->r = cg_kept_add(&call->kernel->kept, v->id, cg_steal_fd(&v->fd), v->size, &v->err);
        if (v->fd >= 0)
                close(v->fd);
        if (call)
                end_converted(call, v);
        cg_buf_fini(&v->out);
        free(v->copy);
        free(v);
}

void cg_ts_keep_result(struct ts_call *call, const char *bytes, size_t len)
{
        struct ts_kernel *k = call->kernel;
        struct ts *ts = k->session->ts;
        struct conversion *v = calloc(1, sizeof(*v));

        if (!v) {
                cg_ts_call_fail(call, "out of memory");
                return;
        }
        *v = (struct conversion){ .ts = ts, .call = call, .json = bytes, .id = call->id, .len = len };
        v->work.data = v;
        v->room = cg_kept_room(&k->kept);
        cg_buf_init(&v->out, CG_MAX_TOOL_RESULT);
        v->fd = kept_file(k);
        if (v->fd < 0) {
                v->r = cg_fail_errno(&v->err, "no file can be made in %s", k->folder);
                on_converted(&v->work, 0);
                return;
        }
        if (len > CG_MCP_CONVERT_AT_ONCE && len <= CG_MCP_MAX_CONVERTING - ts->converting)
                v->copy = malloc(len);
        if (v->copy) {
                v->json = memcpy(v->copy, bytes, len);
                ts->converting += len;
                call->conversion = &v->call;
                if (uv_queue_work(&ts->loop, &v->work, convert, on_converted) == 0)
                        return;
        }
        convert(&v->work);
        on_converted(&v->work, 0);
}

void cg_ts_keep(struct ts_session *s, uint64_t kernel, const struct cg_msg *m)
{
        struct ts_kernel *k = s->kernel;
        size_t len;
        const char *result = cg_msg_raw(m, 0, &len);
        struct ts_call *call;
        struct cg_err err;

        if (cg_json_check_object(result, len, CG_JSON_DEPTH, &err) < 0) {
                char text[sizeof(err.msg) + 64];
                int n = snprintf(text, sizeof(text), "the host's result cannot be read: %s", err.msg);

                cg_ts_send_kept(s, kernel, m->id, "failed", "protocol", text, (size_t)n);
                return;
        }
        /* A kernel is attached to a new tool server later than the supervisor has got its calls. */
        call = k && k->number == kernel ? calloc(1, sizeof(*call)) : NULL;
        if (!call) {
                cg_ts_send_kept(s, kernel, m->id, "whole", "", "", 0);
                return;
        }
        *call = (struct ts_call){ .kernel = k, .next = k->calls, .id = m->id, .place = KEEPING, .kind = "" };
        k->calls = call;
        cg_ts_keep_result(call, result, len);
}

int cg_ts_kept_read(struct ts_kernel *k, const struct cg_msg *m, struct cg_err *err)
{
        cg_auto_json json_t *body = NULL;
        cg_auto_free char *buf = NULL;
        struct cg_out out = { .type = CG_TOOL_RESULT_PART, .id = m->id, .has_raw = true };
        struct cg_err why;
        int64_t result, offset, length;
        int r = cg_msg_json(m, &body, err);

        if (r < 0)
                return r;
        if (cg_json_int(body, "result", -1, &result, err) < 0 ||
            cg_json_int(body, "offset", -1, &offset, err) < 0 ||
            cg_json_int(body, "length", -1, &length, err) < 0)
                return CG_E_PARSE;
        if (result < 0 || offset < 0 || length < 1 || length > (int64_t)CG_MAX_RESULT_PART)
                return cg_fail(err, CG_E_PROTO, "RESULT_READ: a value over its limits");
        buf = malloc((size_t)length);
        if (!buf)
                return cg_fail(err, CG_E_NOMEM, "part of a result");
        if (cg_kept_read(&k->kept, (uint64_t)result, (uint64_t)offset, (size_t)length, buf, &why) == 0) {
                out.body = "{\"status\":\"ok\"}";
                out.raw = buf;
                out.raw_len = (size_t)length;
        } else {
                out.body = "{\"status\":\"failed\"}";
                out.raw = why.msg;
                out.raw_len = strlen(why.msg);
        }
        out.body_len = strlen(out.body);
        r = cg_zlink_send(&k->link, &out, err);
        if (r == CG_TIMEOUT) /* not while its messages wait above half of the queue */
                return cg_fail(err, CG_E_PROTO, "RESULT_READ: the kernel does not read the answers");
        return r == CG_E_CLOSED ? 0 : r;
}
