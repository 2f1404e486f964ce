/*
 * A kernel's connection and its calls of tools, and requests for resources and prompts: check, ask,
 * run, answer. Runs in cellgate-toolserver.
 *
 * The kernel is hostile. It names a server and a tool; everything else about the call, and whether
 * it runs, is decided elsewhere. A call is in one of these places, and gets exactly one CALL_RESULT
 * from any of them:
 *
 *      LISTING  its server is asked for its tools: the name is not among those known, or the tools
 *               may have changed since they were listed. The same for prompts; and all there is of
 *               a call for a list, which carries nothing that the kernel has chosen
 *      ASKING   the supervisor was asked about exactly these bytes
 *      RUNNING  exactly these bytes were accepted, once, and went to the MCP server
 *
 * Calls of functions of the host do not come here: the kernel sends them to the supervisor, which
 * gives their large results to be kept:
 *
 *      KEEPING  the long strings of such a result are being written to a file
 */
#include <fcntl.h>
#include <linux/limits.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "base/call_args.h"
#include "base/fd.h"
#include "base/json.h"
#include "base/state_dir.h"
#include "base/text.h"
#include "base/util.h"
#include "mcp/ceilings.h"
#include "mcp/kept.h"
#include "mcp/toolserver.h"

enum place { LISTING, ASKING, RUNNING, KEEPING };

struct ts_call {
        struct ts_kernel *kernel;
        struct ts_call *next;
        uint64_t id;
        uint64_t ask;
        uint64_t approval, cell; /* the host's numbers, once it has decided */
        enum place place;
        const char *kind; /* of a failure, see docs/wire.md */
        int64_t timeout_ms;
        int64_t run_ms;                /* when it was first given to its server's client */
        bool accepted;                 /* by the host */
        bool not_run;                  /* once already: its server had lost the session */
        unsigned lists;                /* before ASK, or since it was accepted: out of date when they came */
        struct cg_mcp_req *req;        /* LISTING and RUNNING */
        struct conversion *conversion; /* RUNNING: its result has come, and is being written to a file */
        enum cg_mcp_method method;
        char *server, *tool; /* tool: or the prompt's name, or the resource's URI; NULL: a list */
        struct cg_frame *args;
        /* the last value that the server has reported; its message is in progress_text */
        struct cg_mcp_progress progress;
        char *progress_text;
        bool progress_waits; /* to be reported to the host */
        int64_t progress_ms; /* when a value was reported last */
};

struct ts_kernel {
        uint64_t number;            /* the supervisor's */
        struct ts_session *session; /* NULL: detached, only waits to be freed */
        struct cg_zlink link;
        struct ts_call *calls;
        unsigned n_calls;
        size_t args_waiting;
        struct cg_kept_list kept;
        char *folder; /* of its socket; no sandbox shows it */
};

static const struct cg_log *log_of(const struct ts_kernel *k)
{
        return &k->session->ts->log;
}

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

/* ---- answers */

static void call_free(struct ts_call *call)
{
        struct ts_kernel *k = call->kernel;

        for (struct ts_call **p = &k->calls; *p; p = &(*p)->next) {
                if (*p == call) {
                        *p = call->next;
                        k->n_calls -= call->place != KEEPING;
                        break;
                }
        }
        k->args_waiting -= cg_frame_bytes(call->args).len;
        if (call->conversion)
                call->conversion->call = NULL;
        free(call->server);
        free(call->tool);
        cg_frame_unref(call->args);
        free(call->progress_text);
        free(call);
}

static int send_result(struct ts_kernel *k, uint64_t id, const char *status, const char *kind,
                       const char *raw, size_t len, struct cg_err *err)
{
        char body[96];
        struct cg_out out = { .type = CG_TOOL_CALL_RESULT,
                              .id = id,
                              .body = body,
                              .raw = raw,
                              .raw_len = len,
                              .has_raw = true };
        int r;

        out.body_len = (size_t)snprintf(body, sizeof(body), "{\"status\":\"%s\"%s%s%s}", status,
                                        *kind ? ",\"kind\":\"" : "", kind, *kind ? "\"" : "");
        r = cg_zlink_send(&k->link, &out, err);
        if (r == CG_TIMEOUT)
                return cg_fail(err, CG_E_LIMIT, "%zu bytes wait already that the other side has not read",
                               k->link.conn.queued);
        return r;
}

/* Sends the one answer to a call. A result that cannot be sent becomes a failure that can. */
static void answer(struct ts_kernel *k, uint64_t id, const char *status, const char *kind, const char *raw,
                   size_t len)
{
        char text[256];
        struct cg_err err;
        int r = send_result(k, id, status, kind, raw, len, &err);

        /* closed: the kernel is ending, and its DETACH is on the way */
        if (r == 0 || r == CG_E_CLOSED)
                return;
        cg_log(log_of(k), CG_LOG_WARN,
               "session %llx: result of call %llu (%zu bytes) cannot be delivered: %s",
               (unsigned long long)k->session->number, (unsigned long long)id, len, err.msg);
        snprintf(text, sizeof(text), "the result (%zu bytes) could not be delivered: %.100s", len, err.msg);
        if (send_result(k, id, "failed", "too_large", text, strlen(text), &err) == 0)
                return;
        cg_log(log_of(k), CG_LOG_ERROR, "session %llx: its kernel reads no results; its connection is closed",
               (unsigned long long)k->session->number);
        cg_ts_kernel_detach(k->session, "the kernel does not read");
}

/* Answers KEEP. */
static void send_kept(struct ts_session *s, uint64_t kernel, uint64_t id, const char *status,
                      const char *kind, const char *raw, size_t len)
{
        char body[128];
        struct cg_out out = { .type = CG_BROKER_KEPT,
                              .session = s->number,
                              .id = id,
                              .body = body,
                              .raw = raw,
                              .raw_len = len,
                              .has_raw = true };
        struct cg_err err;

        out.body_len = (size_t)snprintf(body, sizeof(body),
                                        "{\"kernel\":%llu,\"status\":\"%s\",\"kind\":\"%s\"}",
                                        (unsigned long long)kernel, status, kind);
        if (cg_ts_broker_send(s->ts, &out, NULL, &err) == CG_E_LIMIT && len)
                send_kept(s, kernel, id, "whole", "", "", 0);
}

/* Ends the call with an answer. The kernel may be detached afterwards. */
static void end_call(struct ts_call *call, const char *status, const char *raw, size_t len)
{
        struct ts_kernel *k = call->kernel;
        uint64_t id = call->id;
        const char *kind = call->kind;
        bool keeping = call->place == KEEPING;

        call_free(call);
        if (!keeping)
                answer(k, id, status, kind, raw, len);
        else if (strcmp(kind, "kept") == 0)
                send_kept(k->session, k->number, id, status, kind, raw, len);
        else
                send_kept(k->session, k->number, id, "whole", "", "", 0);
}

static __attribute__((format(printf, 2, 3))) void fail_call(struct ts_call *call, const char *fmt, ...)
{
        char text[4096];
        va_list ap;

        va_start(ap, fmt);
        vsnprintf(text, sizeof(text), fmt, ap);
        va_end(ap);
        if (!*call->kind)
                call->kind = "unavailable";
        end_call(call, "failed", text, strlen(text));
}

/* Withdraws the call from the state it is in: no answer for it is accepted any more. */
static void withdraw(struct ts_call *call, const char *why)
{
        struct ts_session *s = call->kernel->session;
        struct cg_out out = { .type = CG_BROKER_ASK_CLOSED, .session = s->number, .id = call->ask };

        if (call->place == KEEPING)
                send_kept(s, call->kernel->number, call->id, "whole", "", "", 0);
        else if (call->place == ASKING)
                cg_ts_broker_send_text(s->ts, &out, "why", why);
        else if (call->req)
                cg_mcp_req_cancel(CG_STEAL(call->req), why);
}

void cg_ts_call_numbers(const void *data, uint64_t *kernel, uint64_t *approval, uint64_t *cell)
{
        const struct ts_call *call = data;

        *kernel = call->kernel->number;
        *approval = call->approval;
        *cell = call->cell;
}

uint64_t cg_ts_kernel_number(const struct ts_kernel *k)
{
        return k->number;
}

/* ---- progress */

/* As short as the value allows. */
static int add_number(struct cg_buf *b, const char *before, double value, struct cg_err *err)
{
        char text[32];

        snprintf(text, sizeof(text), "%.15g", value);
        if (strtod(text, NULL) != value)
                snprintf(text, sizeof(text), "%.17g", value);
        return cg_buf_addf(b, err, "%s%s", before, text);
}

/* Appends `"server", "method", "tool"`: what the call is, as the host is told. */
static int add_names(const struct ts_call *call, struct cg_buf *b, struct cg_err *err)
{
        /* Not for others: hosts decide about tools by their names. */
        const char *tool = call->method == CG_MCP_TOOLS_CALL ? call->tool : "";
        int r = cg_buf_adds(b, "\"server\":", err);

        if (r == 0)
                r = cg_json_quote(b, call->server, strlen(call->server), err);
        if (r == 0)
                r = cg_buf_addf(b, err, ",\"method\":\"%s\",\"tool\":", cg_mcp_methods[call->method].name);
        return r < 0 ? r : cg_json_quote(b, tool, strlen(tool), err);
}

static int add_progress(const struct ts_call *call, struct cg_buf *b, struct cg_err *err)
{
        cg_auto_buf struct cg_buf text = { .max = CG_MCP_MAX_PROGRESS_TEXT * 3 }, shown = { .max = 8192 };
        int r = cg_buf_addf(b, err, "{\"kernel\":%llu,\"call\":%llu,\"cell\":%llu,",
                            (unsigned long long)call->kernel->number, (unsigned long long)call->approval,
                            (unsigned long long)call->cell);

        if (r == 0)
                r = add_names(call, b, err);
        if (r == 0)
                r = add_number(b, ",\"progress\":", call->progress.progress, err);
        if (r == 0 && !isnan(call->progress.total))
                r = add_number(b, ",\"total\":", call->progress.total, err);
        if (r == 0 && call->progress_text &&
            cg_json_string(cg_slice_of(call->progress_text), &text, NULL) == 0 && text.len) {
                r = cg_text_render_as(&shown, text.data, text.len, CG_MCP_SHOW_PROGRESS_TEXT, CG_TEXT_LINE,
                                      err);
                if (r == 0)
                        r = cg_buf_adds(b, ",\"message\":", err);
                if (r == 0)
                        r = cg_json_quote(b, shown.data, shown.len, err);
        }
        return r < 0 ? r : cg_buf_adds(b, "}", err);
}

/* Reports the last value, unless the supervisor does not read: then it waits. */
static void send_progress(struct ts_call *call)
{
        struct ts_session *s = call->kernel->session;
        struct cg_out out = { .type = CG_BROKER_CALL_PROGRESS, .session = s->number };
        cg_auto_buf struct cg_buf b = { .max = 65536 };
        struct cg_err err;

        if (s->ts->broker.conn.queued > CG_MCP_MAX_BROKER_QUEUE / 2 || add_progress(call, &b, &err) < 0)
                return;
        call->progress_waits = false;
        call->progress_ms = cg_now_ms();
        out.body = b.data;
        out.body_len = b.len;
        cg_ts_broker_send(s->ts, &out, NULL, &err);
}

static void on_progress_timer(uv_timer_t *t)
{
        const struct ts *ts = t->data;
        bool any = false;

        for (const struct ts_session *s = ts->sessions; s; s = s->next) {
                for (struct ts_call *call = s->kernel ? s->kernel->calls : NULL; call; call = call->next) {
                        if (call->progress_waits &&
                            cg_now_ms() - call->progress_ms >= CG_MCP_CALL_PROGRESS_MS)
                                send_progress(call);
                        any |= call->progress_waits;
                }
        }
        if (!any)
                uv_timer_stop(t);
}

void cg_ts_call_progress(void *data, const struct cg_mcp_progress *p)
{
        struct ts_call *call = data;
        uv_timer_t *timer = &call->kernel->session->ts->call_progress;
        bool keep = p->message.len && p->message.len <= CG_MCP_MAX_PROGRESS_TEXT;

        free(call->progress_text);
        call->progress_text = keep ? strndup(p->message.p, p->message.len) : NULL;
        call->progress = *p;
        call->progress.message = CG_SLICE_NONE;
        call->progress_waits = true;
        if (cg_now_ms() - call->progress_ms >= CG_MCP_CALL_PROGRESS_MS)
                send_progress(call);
        if (call->progress_waits && !uv_is_active((uv_handle_t *)timer))
                uv_timer_start(timer, on_progress_timer, CG_MCP_CALL_PROGRESS_MS, CG_MCP_CALL_PROGRESS_MS);
}

/* ---- RUNNING */

static const char *const kinds[] = {
        [CG_MCP_OK] = "",
        [CG_MCP_ERROR] = "protocol",
        [CG_MCP_FAILED] = "unavailable",
        [CG_MCP_TIMEOUT] = "timeout",
        [CG_MCP_DIED] = "died",
        [CG_MCP_TOO_LARGE] = "too_large",
        [CG_MCP_NOT_RUN] = "unavailable",
        [CG_MCP_NOT_SENT] = "unavailable",
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
        if (call) {
                call->kind = v->r == 0 ? "kept" : v->len <= CG_MAX_TOOL_RESULT ? "" : "too_large";
                if (v->r == 0)
                        end_call(call, "ok", v->out.data, v->out.len);
                else if (v->len <= CG_MAX_TOOL_RESULT)
                        end_call(call, "ok", v->json, v->len);
                else if (v->r > 0)
                        fail_call(call, "MCP server \"%s\": the result has %zu bytes, over the limit of %u",
                                  call->server, v->len, CG_MAX_TOOL_RESULT);
                else
                        fail_call(call, "MCP server \"%s\": the result of %zu bytes cannot be kept: %s",
                                  call->server, v->len, v->err.msg);
        }
        cg_buf_fini(&v->out);
        free(v->copy);
        free(v);
}

/* Ends the call with a result of which long strings stay here, if there are some. */
static void keep_result(struct ts_call *call, const char *bytes, size_t len)
{
        struct ts_kernel *k = call->kernel;
        struct ts *ts = k->session->ts;
        struct conversion *v = calloc(1, sizeof(*v));

        if (!v) {
                fail_call(call, "out of memory");
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
                call->conversion = v;
                if (uv_queue_work(&ts->loop, &v->work, convert, on_converted) == 0)
                        return;
        }
        convert(&v->work);
        on_converted(&v->work, 0);
}

static void list_or_go_on(struct ts_call *call);

static void run_call(struct ts_call *call);

static void ask(struct ts_call *call);

static void on_called(void *data, enum cg_mcp_outcome outcome, const char *bytes, size_t len)
{
        struct ts_call *call = data;

        call->req = NULL;
        call->kind = kinds[outcome];
        if (call->progress_waits)
                send_progress(call);
        if (outcome == CG_MCP_NOT_SENT || (outcome == CG_MCP_NOT_RUN && !call->not_run)) {
                if (outcome == CG_MCP_NOT_RUN) {
                        call->not_run = true;
                        call->run_ms = 0;
                }
                call->kind = "";
                if (call->method == CG_MCP_TOOLS_CALL)
                        list_or_go_on(call);
                else
                        run_call(call);
                return;
        }
        if (outcome == CG_MCP_OK && len > CG_KEPT_RESULT) {
                keep_result(call, bytes, len);
                return;
        }
        end_call(call,
                 outcome == CG_MCP_OK      ? "ok"
                 : outcome == CG_MCP_ERROR ? "protocol_error"
                                           : "failed",
                 bytes, len);
}

static void run_call(struct ts_call *call)
{
        struct cg_mcp_client *client = cg_ts_session_client(call->kernel->session, call->server);
        struct cg_bytes args = cg_frame_bytes(call->args);
        int64_t left_ms, now = cg_now_ms();
        struct cg_err err;
        int r;

        call->place = RUNNING;
        if (!client) {
                fail_call(call, "MCP server \"%s\" is not registered any more", call->server);
                return;
        }
        /* Its time includes the wait for other calls, also where it was not sent afterwards. */
        if (!call->run_ms)
                call->run_ms = now;
        left_ms = cg_mcp_client_call_ms(client, call->timeout_ms);
        if (left_ms)
                left_ms = left_ms > now - call->run_ms ? left_ms - (now - call->run_ms) : 1;
        r = call->method == CG_MCP_TOOLS_CALL
                    ? cg_mcp_client_call(client, call->tool, args.data, args.len, left_ms, on_called, call,
                                         &call->req, &err)
                    : cg_mcp_client_request(client, call->method, call->tool, args.data, args.len, left_ms,
                                            on_called, call, &call->req, &err);
        if (r < 0)
                fail_call(call, "%s", err.msg);
}

/* ---- ASKING */

/* Asks whether the call may run. */
static void ask(struct ts_call *call)
{
        struct ts_session *s = call->kernel->session;
        struct cg_out out = { .type = CG_BROKER_ASK, .session = s->number };
        cg_auto_msg struct cg_msg m = CG_MSG_EMPTY;
        cg_auto_buf struct cg_buf b = { .max = 4096 };
        struct cg_err err;
        int r;

        call->place = ASKING;
        out.id = call->ask = ++s->ts->last_ask;
        r = cg_buf_addf(&b, &err, "{\"kernel\":%llu,", (unsigned long long)call->kernel->number);
        if (r == 0)
                r = add_names(call, &b, &err);
        if (r == 0)
                r = cg_buf_adds(&b, "}", &err);
        /* The other half is for answers: they must not be lost. */
        if (r == 0 && s->ts->broker.conn.queued > CG_MCP_MAX_BROKER_QUEUE / 2)
                r = cg_fail(&err, CG_E_LIMIT, "%zu bytes wait already that the other side has not read",
                            s->ts->broker.conn.queued);
        if (r == 0) {
                out.body = b.data;
                out.body_len = b.len;
                m.n_frames = 2;
                m.frames[1] = cg_frame_ref(call->args);
                r = cg_ts_broker_send(s->ts, &out, &m, &err);
        }
        if (r < 0)
                fail_call(call, "the call could not be put before the host: %s", err.msg);
}

void cg_ts_call_decide(struct ts_session *s, uint64_t ask_id, uint64_t approval, uint64_t cell, bool accept,
                       bool timed_out, const char *reason)
{
        struct ts_call *call = s->kernel ? s->kernel->calls : NULL;

        while (call && !(call->place == ASKING && call->ask == ask_id))
                call = call->next;
        if (!call) { /* it crossed with ASK_CLOSED, or is a second decision */
                cg_log(&s->ts->log, CG_LOG_DEBUG, "session %llx: decision %llu is about no call that waits",
                       (unsigned long long)s->number, (unsigned long long)ask_id);
                return;
        }
        call->kind = accept ? "" : timed_out ? "approval_timeout" : "rejected";
        call->accepted = accept;
        call->lists = 0;
        call->approval = approval;
        call->cell = cell;
        if (accept && call->method == CG_MCP_TOOLS_CALL)
                list_or_go_on(call);
        else if (accept)
                run_call(call);
        else
                end_call(call, "rejected", reason, strlen(reason));
}

void cg_ts_calls_replaced(struct ts_session *s, const char *server)
{
        struct ts_call *call = s->kernel ? s->kernel->calls : NULL;

        while (call) {
                if (call->place != ASKING || strcmp(call->server, server) != 0) {
                        call = call->next;
                        continue;
                }
                withdraw(call, "its MCP server was replaced by another definition");
                fail_call(call,
                          "MCP server \"%s\" was replaced by another definition before this call was decided",
                          server);
                call = s->kernel ? s->kernel->calls : NULL; /* the kernel may have been detached */
        }
}

/* ---- LISTING */

static void fail_unknown(struct ts_call *call, const struct cg_mcp_client *client)
{
        const char *what = cg_mcp_methods[call->method].what;
        cg_auto_buf struct cg_buf b;

        cg_buf_init(&b, 2048);
        if (cg_mcp_client_close_names(client, call->method, call->tool, &b, NULL) == 0 && b.len)
                fail_call(call, "MCP server \"%s\" has no %s \"%s\"; did you mean %s?", call->server, what,
                          call->tool, b.data);
        else
                fail_call(call, "MCP server \"%s\" has no %s \"%s\"", call->server, what, call->tool);
}

/*
 * The tools are known. A call that was accepted runs only where they have not changed since, and a
 * tool is unknown only where they have not: it may have been added.
 */
static void go_on(struct ts_call *call, struct cg_mcp_client *client)
{
        bool known = cg_mcp_client_has_tool(client, call->tool), listed = cg_mcp_client_is_listed(client);
        struct cg_err err;

        call->req = NULL;
        if (known && cg_pins_check(cg_mcp_client_pins(client), call->tool, &err) < 0)
                fail_call(call, "%s", err.msg);
        else if (known && !call->accepted)
                ask(call);
        else if (known && listed)
                run_call(call);
        else if (!listed && ++call->lists < CG_MCP_MAX_STALE_LISTS)
                list_or_go_on(call);
        else if (!known)
                fail_unknown(call, client);
        else
                fail_call(call,
                          "MCP server \"%s\" has announced changes of its tools during each of %u lists",
                          call->server, CG_MCP_MAX_STALE_LISTS);
}

static void on_listed(void *data, enum cg_mcp_outcome outcome, const char *bytes, size_t len)
{
        struct ts_call *call = data;
        struct cg_mcp_client *client = cg_ts_session_client(call->kernel->session, call->server);

        call->req = NULL;
        call->kind = kinds[outcome];
        if (outcome != CG_MCP_OK)
                end_call(call, "failed", bytes, len);
        else if (!client)
                fail_call(call, "MCP server \"%s\" is not registered any more", call->server);
        else
                go_on(call, client);
}

/*
 * Lists the tools first where they may have changed, after list_changed and in a new process, and
 * where they could not be compared with the pins.
 */
static void list_or_go_on(struct ts_call *call)
{
        struct cg_mcp_client *client = cg_ts_session_client(call->kernel->session, call->server);
        struct cg_err err;

        if (client)
                cg_mcp_client_check_subscription(client);
        if (!client) {
                fail_call(call, "MCP server \"%s\" is not registered any more", call->server);
        } else if (cg_mcp_client_is_listed(client) && !cg_pins_failed(cg_mcp_client_pins(client))) {
                go_on(call, client);
        } else {
                call->place = LISTING;
                if (cg_mcp_client_list(client, 0, !call->accepted, on_listed, call, &call->req, &err) < 0)
                        fail_call(call, "%s", err.msg);
        }
}

static void on_other_listed(void *data, enum cg_mcp_outcome outcome, const char *bytes, size_t len)
{
        struct ts_call *call = data;
        struct cg_mcp_client *client = cg_ts_session_client(call->kernel->session, call->server);

        call->req = NULL;
        call->kind = kinds[outcome];
        if (outcome != CG_MCP_OK)
                end_call(call, "failed", bytes, len);
        else if (!client)
                fail_call(call, "MCP server \"%s\" is not registered any more", call->server);
        else if (call->method != CG_MCP_PROMPTS_GET)
                on_called(call, CG_MCP_OK, bytes, len);
        else if (cg_mcp_client_has_prompt(client, call->tool))
                ask(call);
        else
                fail_unknown(call, client);
}

/* A list of resources, templates or prompts; the latter is also needed to know a prompt's name. */
static void list_other(struct ts_call *call, struct cg_mcp_client *client)
{
        enum cg_mcp_method list = call->method == CG_MCP_PROMPTS_GET ? CG_MCP_PROMPTS_LIST : call->method;
        struct cg_slice kept;
        struct cg_err err;

        cg_mcp_client_check_subscription(client);
        kept = cg_mcp_client_kept_list(client, list);
        if (kept.p && (call->method != CG_MCP_PROMPTS_GET || cg_mcp_client_has_prompt(client, call->tool) ||
                       cg_mcp_client_reports_changes(client, list))) {
                on_other_listed(call, CG_MCP_OK, kept.p, kept.len);
                return;
        }
        call->place = LISTING;
        if (cg_mcp_client_list_other(client, list, call->timeout_ms, on_other_listed, call, &call->req,
                                     &err) < 0)
                fail_call(call, "%s", err.msg);
}

/* ---- a new call */

static void consider(struct ts_call *call)
{
        struct cg_mcp_client *client = cg_ts_session_client(call->kernel->session, call->server);
        struct cg_bytes args = cg_frame_bytes(call->args);
        struct cg_err err;

        if (!client) {
                cg_auto_buf struct cg_buf b = { .max = 3072 };

                for (const struct ts_server *v = call->kernel->session->servers; v; v = v->next)
                        if (cg_buf_addf(&b, NULL, "%s\"%s\"", b.len ? ", " : "",
                                        cg_mcp_client_name(v->client)) < 0)
                                break;
                if (b.len)
                        fail_call(call, "there is no MCP server \"%s\" in this session; registered are %s",
                                  call->server, b.data);
                else
                        fail_call(call, "there is no MCP server \"%s\" in this session: none is registered",
                                  call->server);
                return;
        }
        if (cg_check_call_args(args.data, args.len, &err) < 0 ||
            (call->method != CG_MCP_TOOLS_CALL &&
             cg_mcp_check_params(call->method, (struct cg_slice){ args.data, args.len }, &call->tool, &err) <
                     0)) {
                fail_call(call, "the arguments cannot be sent: %s", err.msg);
                return;
        }
        if (cg_mcp_client_def(client)->kind == CG_MCP_FUNCTIONS) {
                fail_call(call, "\"%s\" is the name of functions of the host: it does not offer %s",
                          call->server, cg_mcp_methods[call->method].name);
                return;
        }
        /* The host is not asked about a call that cannot run. */
        if (cg_mcp_client_check(client, &err) < 0) {
                fail_call(call, "%s", err.msg);
                return;
        }
        if (call->method != CG_MCP_TOOLS_CALL) {
                if (!cg_mcp_client_offers(client, call->method))
                        fail_call(call, "MCP server \"%s\" does not offer %s", call->server,
                                  cg_mcp_methods[call->method].name);
                else if (call->method == CG_MCP_RESOURCES_READ) /* templates make URIs that no list has */
                        ask(call);
                else
                        list_other(call, client);
                return;
        }
        /* A known tool is listed again only when the call was accepted, just before it runs. */
        if (cg_mcp_client_has_tool(client, call->tool) && !cg_pins_failed(cg_mcp_client_pins(client)))
                go_on(call, client);
        else
                list_or_go_on(call);
}

/* The kernel broke the rules of the wire. */
static int violation(struct cg_err *err, const char *what)
{
        return cg_fail(err, CG_E_PROTO, "CALL: %s", what);
}

static int read_call(struct ts_kernel *k, const struct cg_msg *m, const char **server, const char **tool,
                     enum cg_mcp_method *method, int64_t *timeout_ms, json_t **body, struct cg_err *err)
{
        int r = cg_msg_json(m, body, err);
        const char *name = NULL;

        if (r == 0)
                r = cg_json_str(*body, "server", NULL, server, err);
        if (r == 0)
                r = cg_json_str(*body, "tool", NULL, tool, err);
        if (r == 0)
                r = cg_json_str(*body, "method", cg_mcp_methods[CG_MCP_TOOLS_CALL].name, &name, err);
        if (r == 0)
                r = cg_json_int(*body, "timeout_ms", 0, timeout_ms, err);
        if (r < 0)
                return r;
        *method = cg_mcp_method_find(name);
        if (*method == CG_MCP_N_METHODS)
                return violation(err, "unknown method");
        if (!*server || !*tool != (*method != CG_MCP_TOOLS_CALL))
                return violation(err, "without server or tool, or with a tool that its method does not have");
        if (strlen(*server) > CG_MAX_NAME || (*tool && strlen(*tool) > CG_MAX_NAME))
                return violation(err, "name over its limit");
        if (*timeout_ms < 0)
                return violation(err, "negative timeout_ms");
        for (const struct ts_call *c = k->calls; c; c = c->next)
                if (c->id == m->id)
                        return violation(err, "its id is in use");
        if (cg_kept_has(&k->kept, m->id))
                return violation(err, "its id is in use");
        return 0;
}

static int on_call(struct ts_kernel *k, struct cg_msg *m, struct cg_err *err)
{
        cg_auto_json json_t *body = NULL;
        const char *server = NULL, *tool = NULL;
        enum cg_mcp_method method = CG_MCP_TOOLS_CALL;
        int64_t timeout_ms = 0;
        struct ts_call *call;
        size_t len;
        int r = read_call(k, m, &server, &tool, &method, &timeout_ms, &body, err);

        if (r < 0)
                return r;
        if (k->n_calls >= CG_MAX_CALLS)
                return violation(err, "too many at once");
        cg_msg_raw(m, 0, &len);
        if (k->args_waiting + len > CG_MCP_MAX_ARGS_WAITING) {
                static const char text[] =
                        "the arguments of all calls under way are over 64 MB: let some of them end first";

                answer(k, m->id, "failed", "unavailable", text, sizeof(text) - 1);
                return 0;
        }
        call = calloc(1, sizeof(*call));
        if (!call)
                return cg_fail(err, CG_E_NOMEM, "call");
        call->server = strdup(server);
        call->tool = tool ? strdup(tool) : NULL;
        call->method = method;
        if (!call->server || (tool && !call->tool)) {
                free(call->server);
                free(call->tool);
                free(call);
                return cg_fail(err, CG_E_NOMEM, "call");
        }
        call->args = CG_STEAL(m->frames[1]);
        call->kernel = k;
        call->id = m->id;
        call->kind = "";
        call->timeout_ms = timeout_ms;
        call->next = k->calls;
        k->calls = call;
        k->n_calls++;
        k->args_waiting += len;
        consider(call);
        return 0;
}

/* ---- kept results */

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

                send_kept(s, kernel, m->id, "failed", "protocol", text, (size_t)n);
                return;
        }
        /* A kernel is attached to a new tool server later than the supervisor has got its calls. */
        call = k && k->number == kernel ? calloc(1, sizeof(*call)) : NULL;
        if (!call) {
                send_kept(s, kernel, m->id, "whole", "", "", 0);
                return;
        }
        *call = (struct ts_call){ .kernel = k, .next = k->calls, .id = m->id, .place = KEEPING, .kind = "" };
        k->calls = call;
        keep_result(call, result, len);
}

static int on_read(struct ts_kernel *k, const struct cg_msg *m, struct cg_err *err)
{
        cg_auto_json json_t *body = NULL;
        cg_auto_free char *buf = NULL;
        struct cg_out out = { .type = CG_TOOL_RESULT_PART, .id = m->id, .has_raw = true };
        struct cg_err why;
        int64_t result, offset, length;
        int r = cg_msg_json(m, &body, err);

        if (r == 0)
                r = cg_json_int(body, "result", -1, &result, err);
        if (r == 0)
                r = cg_json_int(body, "offset", -1, &offset, err);
        if (r == 0)
                r = cg_json_int(body, "length", -1, &length, err);
        if (r < 0)
                return r;
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

/* ---- the connection */

/* The supervisor ends a kernel that broke a rule: it does not see this wire itself. */
static void cut_off(struct ts_kernel *k, const struct cg_err *err)
{
        struct ts_session *s = k->session;
        struct cg_out out = { .type = CG_BROKER_KERNEL_VIOLATION, .session = s->number, .id = k->number };
        char what[601]; /* fits the body even if every byte has to be escaped */

        cg_log(log_of(k), CG_LOG_WARN, "session %llx: its kernel broke the rules and is cut off: %s",
               (unsigned long long)s->number, err->msg);
        snprintf(what, sizeof(what), "%.600s", err->msg);
        cg_ts_broker_send_text(s->ts, &out, "what", what);
        cg_ts_kernel_detach(s, "the kernel broke the rules of the wire");
}

static void on_message(struct cg_zlink *z, struct cg_msg *m)
{
        struct ts_kernel *k = z->data;
        struct cg_err err;
        int r = 0;

        if (!k->session)
                return;
        if (m->type == CG_TOOL_CALL) {
                r = on_call(k, m, &err);
        } else if (m->type == CG_TOOL_RESULT_READ) {
                r = on_read(k, m, &err);
        } else if (m->type == CG_TOOL_RESULT_FREE) {
                cg_kept_free(&k->kept, m->id);
        } else {
                struct ts_call *call = k->calls;

                while (call && (call->id != m->id || call->place == KEEPING))
                        call = call->next;
                if (call) { /* else its result is on the way */
                        withdraw(call, "the kernel cancelled the call");
                        call->kind = "cancelled";
                        fail_call(call, "cancelled");
                }
        }
        if (r < 0 && k->session)
                cut_off(k, &err);
}

static void on_link_end(struct cg_zlink *z, const struct cg_err *err)
{
        struct ts_kernel *k = z->data;

        /* A kernel that ends closes its connection; the supervisor knows and will send DETACH. */
        if (k->session && err->code != CG_E_CLOSED)
                cut_off(k, err);
}

static void on_link_closed(struct cg_zlink *z)
{
        struct ts_kernel *k = z->data;
        struct ts *ts = z->poll.loop->data;

        free(k->folder);
        free(k);
        cg_ts_maybe_stop(ts);
}

int cg_ts_kernel_attach(struct ts_session *s, uint64_t number, const char *path, struct cg_err *err)
{
        struct ts *ts = s->ts;
        struct ts_kernel *k = calloc(1, sizeof(*k));
        struct cg_err mine;
        int r;

        if (!k)
                return cg_fail(err, CG_E_NOMEM, "kernel");
        k->session = s;
        k->number = number;
        k->kept.all = &ts->kept;
        k->folder = strndup(path, strrchr(path, '/') ? (size_t)(strrchr(path, '/') - path) : 0);
        if (!k->folder) {
                free(k);
                return cg_fail(err, CG_E_NOMEM, "kernel");
        }
        r = cg_zlink_open(&k->link, &ts->loop, path, &cg_wire_tool, CG_ROLE_KERNEL, CG_MCP_MAX_KERNEL_QUEUE,
                          on_message, on_link_end, k, &mine);
        if (r < 0) {
                free(k->folder);
                free(k);
                if (r != CG_E_SYS) {
                        if (err)
                                *err = mine;
                        return r;
                }
                /*
                 * It has ended already, or does not accept: it will make no calls, and its end is
                 * the supervisor's matter.
                 */
                cg_log(&ts->log, CG_LOG_WARN, "session %llx: its kernel cannot be reached: %s",
                       (unsigned long long)s->number, mine.msg);
                return 0;
        }
        k->link.conn.max_unsent = CG_MCP_MAX_KERNEL_QUEUE / 2;
        s->kernel = k;
        return 0;
}

void cg_ts_kernel_detach(struct ts_session *s, const char *why)
{
        struct ts_kernel *k = s->kernel;

        if (!k)
                return;
        s->kernel = NULL;
        while (k->calls) {
                withdraw(k->calls, why);
                call_free(k->calls);
        }
        cg_kept_free_all(&k->kept);
        k->session = NULL;
        cg_zlink_close(&k->link, on_link_closed);
}
