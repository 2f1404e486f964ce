/*
 * Shell requests. They wait here, not in the library: so that a failed cell aborts exactly those
 * that had come before it failed, and a request beside them has its own queue. Runs in `cellgate
 * jupyter`.
 */
#include "jupyter/internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include "base/json.h"
#include "base/util.h"

/*
 * A completion that takes longer disturbs more than it helps: the kernel replies with what it has
 * found so far. The first one of a kernel whose zygote has not prepared it reads the stubs of the
 * standard library, which takes a second, or several on a busy machine.
 */
#define COMPLETE_MS 5000
#define INSPECT_MS  3000
/* Callbacks of widgets compute things; the person can interrupt them. */
#define COMM_MS (INT64_C(24) * 3600 * 1000)
/* The first cell's output shall not be lost to a client that is still subscribing. */
#define HOLD_MS 200

static const struct kind_spec kinds[] = {
        { "execute_request", "execute_reply", KIND_EXECUTE, 0 },
        { "kernel_info_request", "kernel_info_reply", KIND_INFO, 0 },
        { "complete_request", "complete_reply", KIND_RELAY, COMPLETE_MS },
        { "inspect_request", "inspect_reply", KIND_RELAY, INSPECT_MS },
        { "is_complete_request", "is_complete_reply", KIND_RELAY, INSPECT_MS },
        { "history_request", "history_reply", KIND_RELAY, 0 },
        { "comm_info_request", "comm_info_reply", KIND_RELAY, 0 },
        { "comm_open", NULL, KIND_COMM, COMM_MS },
        { "comm_msg", NULL, KIND_COMM, COMM_MS },
        { "comm_close", NULL, KIND_COMM, COMM_MS },
        { "connect_request", "connect_reply", KIND_CONNECT, 0 },
        { "interrupt_request", "interrupt_reply", KIND_INTERRUPT, 0 },
        { "shutdown_request", "shutdown_reply", KIND_SHUTDOWN, 0 },
        { "debug_request", "debug_reply", KIND_SIDE, 0 },
        { "usage_request", "usage_reply", KIND_SIDE, 0 },
        { "create_subshell_request", "create_subshell_reply", KIND_SIDE, 0 },
        { "delete_subshell_request", "delete_subshell_reply", KIND_SIDE, 0 },
        { "list_subshell_request", "list_subshell_reply", KIND_SIDE, 0 },
};
static const struct kind_spec unknown_kind = { "unknown", NULL, KIND_UNKNOWN, 0 };

const struct kind_spec *kind_of(const char *type)
{
        for (size_t i = 0; i < CG_ARRAY_LEN(kinds); i++)
                if (strcmp(type, kinds[i].type) == 0)
                        return &kinds[i];
        return &unknown_kind;
}

/* ------------------------------------------------------------------ requests */

struct jreq *jreq_new(struct front *f, enum cg_jchannel channel, struct cg_jmsg *msg)
{
        struct jreq *r = calloc(1, sizeof(*r));

        if (r)
                r->origin = cg_origin_new(0, msg->m.header);
        if (!r || !r->origin) {
                free(r);
                cg_jmsg_free(msg);
                return NULL;
        }
        r->spec = kind_of(msg->m.type);
        r->channel = channel;
        r->msg = msg;
        r->arrived_ms = uv_now(&f->loop);
        return r;
}

static void jreq_free(struct front *f, struct jreq *r)
{
        questions_of_end(f, r);
        cg_origin_unref(r->origin);
        cg_jmsg_free(r->msg);
        free(r);
}

void jreq_begin(struct front *f, struct jreq *r)
{
        if (r->begun)
                return;
        r->begun = true;
        cg_jidentity_date(&f->me, r->started, sizeof(r->started));
        cg_iopub_status(&f->iopub, r->origin, "busy");
}

void jreq_reply_relay(struct front *f, struct jreq *r, struct cg_jout *out)
{
        struct cg_jspan ids[CG_JMSG_MAX_IDS];
        struct cg_err err;

        if (!r->spec->reply) {
                if (out->release)
                        out->release(out->owner);
                return;
        }
        for (size_t i = 0; i < r->msg->m.n_ids; i++)
                ids[i] = cg_jmsg_frame(r->msg, i);
        out->type = r->spec->reply;
        out->ids = ids;
        out->n_ids = r->msg->m.n_ids;
        out->parent = r->msg->m.header;
        cg_iopub_flush(&f->iopub); /* all output stands before the reply */
        if (cg_jmsg_send(f->socks[r->channel], &f->sign, &f->me, out, NULL, &err) < 0)
                cg_log(&f->o->log, CG_LOG_ERROR, "%s could not be sent: %s", out->type, err.msg);
        cg_zsock_touch(&f->z[r->channel]);
}

void jreq_reply(struct front *f, struct jreq *r, struct cg_jspan content)
{
        struct cg_jout out = { .content = content };

        jreq_reply_relay(f, r, &out);
}

void jreq_fail(struct front *f, struct jreq *r, const char *ename, const char *evalue)
{
        cg_auto_buf struct cg_buf b = { .max = 65536 };
        cg_auto_free char *info = NULL;
        size_t len = 0;

        if (r->spec->kind == KIND_EXECUTE) {
                cell_error(f, r, ename, evalue, !r->silent);
                return;
        }
        if (r->spec->kind == KIND_INFO)
                info = failed_info(ename, evalue, &len);
        if (info) {
                jreq_reply(f, r, (struct cg_jspan){ info, len });
                return;
        }
        if (cg_buf_addf(&b, NULL, "{\"status\":\"error\",\"ename\":\"%s\",\"evalue\":", ename) == 0 &&
            cg_json_quote(&b, evalue, strlen(evalue), NULL) == 0 &&
            cg_buf_adds(&b, ",\"traceback\":[]}", NULL) == 0)
                jreq_reply(f, r, (struct cg_jspan){ b.data, b.len });
}

static void remember_origin(struct front *f, struct cg_origin *o)
{
        struct cg_origin **place = &f->past[f->n_past++ % MAX_PAST];

        cg_origin_unref(*place);
        *place = cg_origin_ref(o);
}

static void unlink_flying(struct front *f, struct jreq *r)
{
        for (struct jreq **p = &f->flying; *p; p = &(*p)->next) {
                if (*p == r) {
                        *p = r->next;
                        return;
                }
        }
}

struct jreq *flying_find(struct front *f, uint64_t number)
{
        struct jreq *r = f->flying;

        while (number && r && r->origin->number != number)
                r = r->next;
        if (!number || r)
                return number ? r : NULL;
        if (f->main.offered && f->main.offered->origin->number == number)
                return f->main.offered;
        for (struct lane *l = f->subshells; l; l = l->next)
                if (l->offered && l->offered->origin->number == number)
                        return l->offered;
        return NULL;
}

static void lane_free_if_idle(struct front *f, struct lane *l)
{
        if (!l->id || l->running || l->queue)
                return;
        for (struct lane **p = &f->subshells; *p; p = &(*p)->next) {
                if (*p == l) {
                        *p = l->next;
                        break;
                }
        }
        free(l->id);
        free(l);
}

void jreq_finish(struct front *f, struct jreq *r)
{
        struct lane *l = r->lane;

        unlink_flying(f, r);
        if (r->begun)
                cg_iopub_status(&f->iopub, r->origin, "idle");
        if (r->origin->number)
                remember_origin(f, r->origin);
        if (l) {
                l->running = NULL;
                lane_free_if_idle(f, l);
        }
        jreq_free(f, r);
}

/* ------------------------------------------------------------------ to the kernel */

static void fly(struct front *f, struct jreq *r, struct lane *lane, uint64_t number)
{
        r->origin->number = number;
        r->lane = lane;
        if (lane)
                lane->running = r;
        r->next = f->flying;
        f->flying = r;
}

static const char *subshell_of(const struct lane *lane)
{
        return lane ? lane->id : NULL;
}

static int add_extra(struct cg_buf *b, const char *name, struct cg_jspan value, struct cg_err *err)
{
        if (cg_jspan_is_empty(value))
                return 0;
        return cg_buf_addf(b, err, ",\"%s\":", name) | cg_buf_add(b, value.p, value.len, err);
}

static void borrow_buffers(const struct jreq *r, struct cg_buffer *buffers)
{
        for (size_t i = 0; i < r->msg->m.n_buffers; i++) {
                struct cg_jspan b = cg_jmsg_frame(r->msg, r->msg->m.first_buffer + i);

                buffers[i] = (struct cg_buffer){ b.p, b.len };
        }
}

/*
 * A comm message takes header and metadata in its content, where the kernel looks for them.
 * @content is of one object, and what it has itself comes later, so it counts.
 */
static int add_to_content(const struct jreq *r, struct cg_buf *b, struct cg_err *err)
{
        struct cg_jspan content = r->msg->m.content, metadata = r->msg->m.metadata;
        const char *open = memchr(content.p, '{', content.len);
        size_t left = content.len - (size_t)(open + 1 - content.p);
        int n = cg_buf_adds(b, "{\"header\":", err) |
                cg_buf_add(b, r->msg->m.header.p, r->msg->m.header.len, err);

        n |= add_extra(b, "metadata", metadata, err);
        if (!cg_jspan_is_empty(content))
                n |= cg_buf_adds(b, ",", err);
        n |= cg_buf_add(b, open + 1, left, err);
        return n < 0 ? CG_E_NOMEM : 0;
}

static int send_request(struct front *f, struct jreq *r, struct lane *lane, bool offer, uint64_t *number,
                        struct cg_err *err)
{
        cg_auto_buf struct cg_buf changed = { .max = CG_JMSG_MAX_BYTES * 2 };
        struct cg_buffer buffers[CG_JMSG_MAX_BUFFERS];
        struct cg_request_options o = { .size = sizeof(o),
                                        .timeout_ms = r->spec->timeout_ms,
                                        .subshell = subshell_of(lane),
                                        .buffers = buffers,
                                        .n_buffers = r->msg->m.n_buffers,
                                        .offer = offer };
        struct cg_jspan content = r->msg->m.content;

        borrow_buffers(r, buffers);
        if (r->spec->kind == KIND_COMM) {
                if (add_to_content(r, &changed, err) < 0)
                        return CG_E_NOMEM;
                content = (struct cg_jspan){ changed.data, changed.len };
        }
        return cg_session_request(f->session, r->spec->type, content.p, content.len, &o, number, err);
}

void jreq_to_kernel(struct front *f, struct jreq *r, struct lane *lane)
{
        struct cg_err err;
        uint64_t number;
        int rc = send_request(f, r, lane, false, &number, &err);

        if (strcmp(r->spec->type, "debug_request") == 0) {
                cg_origin_unref(f->debug_origin);
                f->debug_origin = cg_origin_ref(r->origin);
        }
        if (rc == 0)
                fly(f, r, lane, number);
        jreq_begin(f, r); /* the kernel is at it already: what it says is looked at later */
        if (rc == 0)
                return;
        jreq_fail(f, r, rc == CG_E_INVAL ? "BadRequest" : "RequestError", err.msg);
        jreq_finish(f, r);
}

/* ------------------------------------------------------------------ cells */

struct cell_args {
        json_t *content;
        const char *code;
        size_t code_len;
        bool store_history;
        struct cg_jspan expressions;
        struct cg_buf extra;
};

static int parse_cell(struct jreq *r, struct cell_args *a, struct cg_err *err)
{
        struct cg_jspan content = r->msg->m.content;
        json_error_t e;
        json_t *code;

        /* DECODE_INT_AS_REAL: a number that is too large for jansson must not cost the cell. */
        a->content = json_loadb(content.p, content.len, JSON_ALLOW_NUL | JSON_DECODE_INT_AS_REAL, &e);
        if (!a->content)
                return cg_fail(err, CG_E_INVAL, "the content cannot be read: %s", e.text);
        code = json_object_get(a->content, "code");
        if (!json_is_string(code))
                return cg_fail(err, CG_E_INVAL, "\"code\" must be a string");
        a->code = json_string_value(code);
        a->code_len = json_string_length(code);
        if (cg_json_bool(a->content, "silent", false, &r->silent, err) < 0 ||
            cg_json_bool(a->content, "store_history", !r->silent, &a->store_history, err) < 0 ||
            cg_json_bool(a->content, "allow_stdin", false, &r->allow_stdin, err) < 0 ||
            cg_json_bool(a->content, "stop_on_error", true, &r->stop_on_error, err) < 0)
                return CG_E_INVAL;
        if (json_object_get(a->content, "user_expressions") &&
            !json_is_object(json_object_get(a->content, "user_expressions")))
                return cg_fail(err, CG_E_INVAL, "\"user_expressions\" must be an object");
        (void)cg_jspan_member(content, "user_expressions", &a->expressions, NULL);
        return cg_jspan_member(content, "code", &r->code, err);
}

/*
 * The request's header, which widgets look for, expressions, metadata, the last control request's
 * header: as the client spelled them.
 */
static int make_extra(const struct front *f, const struct jreq *r, struct cell_args *a, struct cg_err *err)
{
        struct cg_buf *b = &a->extra;
        int n = cg_buf_adds(b, "{\"header\":", err) |
                cg_buf_add(b, r->msg->m.header.p, r->msg->m.header.len, err);

        n |= add_extra(b, "user_expressions", a->expressions, err) |
             add_extra(b, "metadata", r->msg->m.metadata, err);
        n |= add_extra(b, "control", f->control_header, err);
        n |= cg_buf_adds(b, "}", err);
        return n < 0 ? CG_E_NOMEM : 0;
}

static int start_cell(struct front *f, struct jreq *r, struct lane *lane, struct cg_err *err)
{
        struct cell_args a = { .extra = { .max = CG_JMSG_MAX_BYTES } };
        struct cg_execute_options o = { .size = sizeof(o) };
        uint64_t number;
        int rc = parse_cell(r, &a, err);

        if (rc == 0)
                rc = make_extra(f, r, &a, err);
        o.silent = r->silent;
        o.announce = !r->silent;
        o.allow_stdin = r->allow_stdin;
        o.no_history = !a.store_history;
        o.extra = a.extra.len ? a.extra.data : NULL;
        o.subshell = lane == &f->control ? f->control_shell : subshell_of(lane);
        if (rc == 0)
                rc = cg_session_execute(f->session, a.code, a.code_len, &o, &number, err);
        if (rc == 0)
                fly(f, r, lane, number);
        jreq_begin(f, r); /* the kernel is at it already: what it says is looked at later */
        json_decref(a.content);
        cg_buf_fini(&a.extra);
        return rc;
}

static void run_cell(struct front *f, struct jreq *r, struct lane *lane);

/*
 * A cell of the control channel runs beside those of the main shell, in a subshell that no client
 * sees.
 */
static void make_control_shell(struct front *f, struct jreq *r)
{
        struct cg_request_options o = { .size = sizeof(o) };
        struct cg_jspan content = CG_JSPAN("{\"hidden\":true}");
        struct cg_err err;

        if (cg_session_request(f->session, "create_subshell_request", content.p, content.len, &o,
                               &f->control_making, &err) == 0) {
                f->control_held = f->control.running = r;
                return;
        }
        jreq_begin(f, r);
        jreq_fail(f, r, "CellError", err.msg);
        jreq_finish(f, r);
}

void control_made(struct front *f, const struct cg_event *e)
{
        struct jreq *r = CG_STEAL(f->control_held);
        cg_auto_json json_t *reply = json_loads(cg_event_json(e, NULL), JSON_ALLOW_NUL, NULL);
        const char *name = json_string_value(json_object_get(reply, "subshell_id"));

        f->control_making = 0;
        f->control.running = NULL;
        f->control_shell = name ? strdup(name) : NULL;
        if (!r)
                return;
        if (f->control_shell) {
                run_cell(f, r, &f->control);
                return;
        }
        jreq_begin(f, r);
        jreq_fail(f, r, "CellError", "the kernel could not make a subshell for cells of the control channel");
        jreq_finish(f, r);
}

void control_forget(struct front *f)
{
        free(f->control_shell);
        f->control_shell = NULL;
}

static void run_cell(struct front *f, struct jreq *r, struct lane *lane)
{
        char content[128];
        struct cg_err err;
        int rc;

        if (r->aborted) {
                jreq_begin(f, r);
                snprintf(content, sizeof(content), "{\"status\":\"aborted\",\"execution_count\":%" PRId64 "}",
                         f->count);
                jreq_reply(f, r, SPAN(content));
                jreq_finish(f, r);
                return;
        }
        if (lane == &f->control && !f->control_shell) {
                make_control_shell(f, r);
                return;
        }
        if (f->mcp_failed) {
                jreq_begin(f, r);
                cg_iopub_notice(&f->iopub, r->origin, f->mcp_failed);
                free(f->mcp_failed);
                f->mcp_failed = NULL;
        }
        rc = start_cell(f, r, lane, &err);
        if (rc == 0)
                return;
        jreq_fail(f, r, rc == CG_E_INVAL || rc == CG_E_PARSE ? "BadRequest" : "CellError", err.msg);
        jreq_finish(f, r);
}

/* ------------------------------------------------------------------ lanes */

void jreq_without_kernel(struct front *f, struct jreq *r)
{
        char why[sizeof(f->opener_err.msg) + 64];

        snprintf(why, sizeof(why), "%s; restart the kernel to try again", f->opener_err.msg);
        jreq_begin(f, r);
        jreq_fail(f, r, "KernelNotStarted", why);
        jreq_finish(f, r);
}

static bool needs_kernel(const struct jreq *r)
{
        return r->spec->kind == KIND_EXECUTE || r->spec->kind == KIND_RELAY || r->spec->kind == KIND_COMM ||
               r->spec->kind == KIND_SIDE;
}

static void run_one(struct front *f, struct lane *l, struct jreq *r)
{
        r->lane = NULL;
        if (f->state == FAILED && needs_kernel(r)) {
                jreq_without_kernel(f, r);
                return;
        }
        switch (r->spec->kind) {
        case KIND_EXECUTE:
                run_cell(f, r, l);
                break;
        case KIND_RELAY:
        case KIND_COMM:
                jreq_to_kernel(f, r, l);
                break;
        case KIND_SIDE:
                jreq_to_kernel(f, r, l == &f->control ? l : NULL);
                break;
        case KIND_UNKNOWN:
                jreq_begin(f, r);
                jreq_finish(f, r);
                break;
        default:
                jreq_begin(f, r);
                answer_local(f, r);
        }
}

static void hold_over(uv_timer_t *t)
{
        struct front *f = t->data;

        f->hold_over = true;
        shell_run(f);
}

/* Nobody has subscribed yet: whoever sent the first cell is probably about to. */
static bool must_hold(struct front *f, const struct jreq *r)
{
        if (f->iopub.joined || f->hold_over || r->spec->kind != KIND_EXECUTE)
                return false;
        if (!uv_is_active((uv_handle_t *)&f->hold))
                uv_timer_start(&f->hold, hold_over, HOLD_MS, 0);
        return true;
}

static bool can_run(struct front *f, const struct jreq *r)
{
        if (r->spec->kind == KIND_INFO)
                return f->state >= OPEN;
        return (f->state == READY || f->state == FAILED) && !must_hold(f, r);
}

static void lane_run(struct front *f, struct lane *l)
{
        while (!l->running && l->queue && l->queue != l->offered && f->state != ENDING &&
               can_run(f, l->queue)) {
                struct jreq *r = l->queue;

                l->queue = r->next;
                if (!l->queue)
                        l->tail = &l->queue;
                r->next = NULL;
                f->waiting--;
                f->waiting_bytes -= r->msg->bytes;
                run_one(f, l, r);
        }
}

/*
 * A cell that waits in `await` may wait for a widget's message, and that may stand behind other
 * cells. Only the kernel knows: it takes the message while such a cell runs, or says "later".
 */
static void lane_offer(struct front *f, struct lane *l)
{
        struct jreq *r = l->queue;
        uint64_t number;

        if (f->state != READY || l->offered || !l->running || l->running->spec->kind != KIND_EXECUTE ||
            !l->running->origin->number)
                return;
        while (r && r->spec->kind != KIND_COMM)
                r = r->next;
        if (!r || r->stays)
                return;
        if (send_request(f, r, l, true, &number, NULL) < 0) {
                r->stays = true;
                return;
        }
        r->origin->number = number;
        l->offered = r;
}

static struct lane *lane_of_offer(struct front *f, const struct jreq *r)
{
        struct lane *l = &f->main;

        if (l->offered == r)
                return l;
        for (l = f->subshells; l && l->offered != r; l = l->next)
                ;
        return l;
}

static void unqueue(struct front *f, struct lane *l, struct jreq *r)
{
        struct jreq **p = &l->queue;

        while (*p != r)
                p = &(*p)->next;
        *p = r->next;
        if (!r->next)
                l->tail = p;
        r->next = NULL;
        f->waiting--;
        f->waiting_bytes -= r->msg->bytes;
}

bool shell_offer_reply(struct front *f, struct jreq *r, const struct cg_event *e)
{
        struct lane *l = lane_of_offer(f, r);
        struct cg_jspan text, status;

        if (!l)
                return false;
        l->offered = NULL;
        text.p = cg_event_json(e, &text.len);
        r->stays = cg_event_status(e) != CG_STATUS_OK;
        if (r->stays || (cg_jspan_member(text, "status", &status, NULL) == 0 && status.len == 7 &&
                         memcmp(status.p, "\"later\"", 7) == 0)) {
                r->origin->number = 0;
                return true;
        }
        unqueue(f, l, r);
        jreq_begin(f, r); /* if it has had no output: every request has its busy and idle */
        jreq_finish(f, r);
        return true;
}

/* Then clients wait, as they would for a slow network. */
static void pause_if_full(struct front *f)
{
        bool full = f->waiting >= MAX_WAITING || f->waiting_bytes >= MAX_WAITING_BYTES;

        if (f->state != ENDING && full != f->z[CG_JSHELL].paused)
                cg_zsock_pause(&f->z[CG_JSHELL], full);
}

void shell_run(struct front *f)
{
        struct lane *next;

        lane_run(f, &f->main);
        lane_offer(f, &f->main);
        lane_run(f, &f->control);
        for (struct lane *l = f->subshells; l; l = next) {
                next = l->next;
                lane_run(f, l);
                lane_offer(f, l);
                lane_free_if_idle(f, l);
        }
        pause_if_full(f);
}

void shell_abort(struct front *f, struct lane *l)
{
        shell_drain(f);
        for (struct jreq *r = l->queue; r; r = r->next)
                r->aborted = r->aborted || r->spec->kind == KIND_EXECUTE;
}

/*
 * The lane of a subshell; made when it is first used: whether there is such a subshell, the kernel
 * says.
 */
static struct lane *lane_find(struct front *f, const char *id)
{
        struct lane *l, **p = &f->subshells;
        size_t n = 0;

        if (!id || !*id)
                return &f->main;
        for (; *p; p = &(*p)->next, n++)
                if (strcmp((*p)->id, id) == 0)
                        return *p;
        l = n < MAX_LANES ? calloc(1, sizeof(*l)) : NULL;
        if (!l)
                return NULL;
        l->id = strdup(id);
        l->tail = &l->queue;
        *p = l;
        return l->id ? l : NULL;
}

static void push(struct front *f, struct lane *l, struct jreq *r)
{
        *l->tail = r;
        l->tail = &r->next;
        f->waiting++;
        f->waiting_bytes += r->msg->bytes;
}

/*
 * The control channel is read on whatever waits: what it asks of the front itself is answered at
 * once.
 */
void control_enqueue(struct front *f, struct jreq *r)
{
        if (f->waiting >= MAX_WAITING || f->waiting_bytes >= MAX_WAITING_BYTES) {
                jreq_begin(f, r);
                jreq_fail(f, r, "RequestError", "too many requests wait");
                jreq_finish(f, r);
                return;
        }
        push(f, &f->control, r);
        shell_run(f);
}

static void enqueue(struct front *f, struct jreq *r)
{
        struct lane *l = lane_find(f, r->msg->m.subshell);

        if (!l) {
                jreq_begin(f, r);
                jreq_fail(f, r, "BadRequest", "too many subshells are in use");
                jreq_finish(f, r);
                return;
        }
        push(f, l, r);
}

void reject(struct front *f, enum cg_jchannel channel, const struct cg_err *err)
{
        uint64_t now = uv_now(&f->loop);

        if (f->rejected++ && now - f->rejected_ms < 1000)
                return;
        f->rejected_ms = now;
        cg_log(&f->o->log, CG_LOG_WARN, "message on %s rejected (%u so far): %s", cg_jchannel_key(channel),
               f->rejected, err->msg);
}

/* CG_TIMEOUT: none waits */
static int receive(struct front *f)
{
        struct cg_jmsg *msg;
        struct jreq *r;
        struct cg_err err;
        int rc = cg_jmsg_recv(f->socks[CG_JSHELL], &f->sign, &f->peers[CG_JSHELL], &msg, &err);

        if (rc < 0)
                reject(f, CG_JSHELL, &err);
        if (rc != 0)
                return rc;
        if (f->state == ENDING) {
                cg_jmsg_free(msg);
                return 0;
        }
        r = jreq_new(f, CG_JSHELL, msg);
        if (!r) {
                cg_log(&f->o->log, CG_LOG_ERROR, "out of memory: a request was lost");
                return 0;
        }
        /* behind the cell that it is meant for it would be of no use */
        if (r->spec->kind == KIND_INTERRUPT) {
                jreq_begin(f, r);
                answer_local(f, r);
        } else {
                enqueue(f, r);
        }
        return 0;
}

void shell_drain(struct front *f)
{
        while (f->waiting < MAX_WAITING && f->waiting_bytes < MAX_WAITING_BYTES && receive(f) != CG_TIMEOUT)
                ;
        cg_zsock_touch(&f->z[CG_JSHELL]);
}

void shell_readable(struct cg_zsock *z, int events)
{
        struct front *f = z->data;

        (void)events;
        if (receive(f) == 0)
                shell_run(f);
}

/* ------------------------------------------------------------------ the end */

static void end_lane(struct front *f, struct lane *l, const char *why)
{
        l->offered = NULL;
        while (l->queue) {
                struct jreq *r = l->queue;

                l->queue = r->next;
                r->next = NULL;
                r->lane = NULL;
                jreq_begin(f, r);
                jreq_fail(f, r, "KernelEnded", why);
                jreq_finish(f, r);
        }
        l->tail = &l->queue;
}

void shell_end(struct front *f, const char *why)
{
        while (f->flying) {
                struct jreq *r = f->flying;

                r->lane = NULL;
                jreq_fail(f, r, "KernelEnded", why);
                jreq_finish(f, r);
        }
        if (f->control_held) {
                struct jreq *r = CG_STEAL(f->control_held);

                jreq_begin(f, r);
                jreq_fail(f, r, "KernelEnded", why);
                jreq_finish(f, r);
        }
        f->main.running = f->control.running = NULL;
        end_lane(f, &f->main, why);
        end_lane(f, &f->control, why);
        for (struct lane *l = f->subshells; l; l = l->next) {
                l->running = NULL;
                end_lane(f, l, why);
        }
}

void shell_free(struct front *f)
{
        while (f->subshells) {
                struct lane *l = f->subshells;

                f->subshells = l->next;
                free(l->id);
                free(l);
        }
        for (unsigned i = 0; i < MAX_PAST; i++)
                f->past[i] = cg_origin_unref(f->past[i]);
        f->debug_origin = cg_origin_unref(f->debug_origin);
        control_forget(f);
        free((char *)(uintptr_t)f->control_header.p);
}
