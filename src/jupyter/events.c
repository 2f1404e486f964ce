/*
 * Events of the session become messages: output goes to iopub, results to the client that sent the
 * request. Runs in `cellgate jupyter`.
 */
#include "jupyter/internal.h"

#include "base/json.h"

/* Events handled before the control channel is read again. */
#define BURST 8

static void event_release(void *e)
{
        cg_event_free(e);
}

/* ------------------------------------------------------------------ origins */

static struct cg_origin *past_find(struct front *f, uint64_t number, bool foreign)
{
        /* newest first: numbers of others can come again */
        for (unsigned i = 0; i < MAX_PAST; i++) {
                struct cg_origin *o = f->past.origins[(f->past.n - 1 - i) % MAX_PAST];

                if (o && o->number == number && o->foreign == foreign)
                        return o;
        }
        return NULL;
}

/* The origin of the last request. */
static struct cg_origin *last_origin(const struct front *f)
{
        return f->past.n ? f->past.origins[(f->past.n - 1) % MAX_PAST] : NULL;
}

/* NULL: unknown, or too old. */
static struct cg_origin *origin_of(struct front *f, const struct cg_event *e)
{
        uint64_t number = cg_event_cell(e);
        struct jreq *r;

        if (!number)
                return NULL;
        if (cg_event_foreign(e))
                return past_find(f, number, true);
        r = cg_in_flight_find(f, number);
        if (r)
                cg_jreq_begin(f, r); /* an offered comm message: the kernel has taken it */
        return r ? r->origin : past_find(f, number, false);
}

static struct jreq *request_of(struct front *f, const struct cg_event *e)
{
        return cg_event_foreign(e) ? NULL : cg_in_flight_find(f, cg_event_cell(e));
}

/* ------------------------------------------------------------------ output */

/*
 * The event's JSON text and buffers, all borrowed from @e, which is released with the message.
 * @buffers: room for CG_JMSG_MAX_BUFFERS.
 */
static struct cg_jout out_of(struct cg_event *e, const char *type, struct cg_slice *buffers)
{
        struct cg_jout out = { .type = type,
                               .release = event_release,
                               .owner = e,
                               .buffers = buffers,
                               .n_buffers = cg_event_n_buffers(e) };

        out.content.p = cg_event_json(e, &out.content.len);
        if (out.n_buffers > CG_JMSG_MAX_BUFFERS)
                out.n_buffers = CG_JMSG_MAX_BUFFERS;
        for (size_t i = 0; i < out.n_buffers; i++)
                buffers[i].p = cg_event_buffer(e, i, &buffers[i].len);
        return out;
}

/*
 * Writes the JSON string @from of @n bytes to @to (@from, or before it), without secrets. It never
 * gets longer. Returns its length.
 */
static size_t mask_string(const struct cg_secrets *secrets, const char *from, size_t n, char *to)
{
        cg_auto_buf struct cg_buf text = { .max = SIZE_MAX - 1 };
        cg_auto_json json_t *v = json_loadb(from, n, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL), *masked = NULL;
        size_t len = json_string_length(v);

        if (v)
                cg_buf_add(&text, json_string_value(v), len);
        if (v && !text.failed) {
                cg_secrets_redact_buf(secrets, &text);
                if (text.len == len && memcmp(text.data, json_string_value(v), len) == 0) {
                        memmove(to, from, n);
                        return n;
                }
                masked = json_stringn_nocheck(text.data, text.len);
        }
        len = masked ? json_dumpb(masked, to, n, JSON_ENCODE_ANY) : 0;
        if (len && len <= n)
                return len;
        /* Text that is not Unicode, or no memory: nothing of it is shown. */
        n = CG_MIN(n, 2);
        memcpy(to, "\"\"", n);
        return n;
}

/* Variables of the kernel that are secrets are not shown. The event is ours alone. */
static void mask(struct front *f, struct cg_event *e)
{
        size_t len;
        char *json = (char *)(uintptr_t)cg_event_json(e, &len), *to = json;

        if (!f->secrets.n || len <= 2) /* "{}" may be a constant */
                return;
        for (const char *from = json, *end; *from; from = end) {
                end = from + strcspn(from, "\"");
                if (*from != '"') {
                        memmove(to, from, (size_t)(end - from));
                        to += end - from;
                        continue;
                }
                for (end = from + 1; *end && *end != '"';)
                        end += *end == '\\' && end[1] ? 2 : 1;
                end += *end == '"';
                to += mask_string(&f->secrets, from, (size_t)(end - from), to);
        }
        memset(to, ' ', len - (size_t)(to - json)); /* which JSON may end with */
}

static void stream(struct front *f, struct cg_origin *o, const struct cg_event *e)
{
        cg_auto_buf struct cg_buf masked = { .max = SIZE_MAX - 1 };
        size_t len;
        const char *text = cg_event_text(e, &len);

        if (f->secrets.n) {
                cg_buf_add(&masked, text, len);
                if (masked.failed) /* out of memory: what may hold a secret is not shown */
                        return;
                cg_secrets_redact_buf(&f->secrets, &masked);
                text = masked.data;
                len = masked.len;
        }
        cg_iopub_stream(&f->iopub, o, cg_event_is_stderr(e), text, len);
}

/* Takes @e. */
static void relay(struct front *f, struct cg_origin *o, const char *type, struct cg_event *e)
{
        struct cg_jout out = { .type = type, .release = event_release, .owner = e };

        mask(f, e);
        out.content.p = cg_event_json(e, &out.content.len);
        cg_iopub_relay(&f->iopub, o, &out);
}

/* Takes @e: comm_open, comm_msg or comm_close, and nothing else: the name goes into a header. */
static void relay_comm(struct front *f, struct cg_origin *o, struct cg_event *e)
{
        static const char *const types[] = { "comm_msg", "comm_open", "comm_close" };
        struct cg_slice text, v, buffers[CG_JMSG_MAX_BUFFERS];
        struct cg_jout out = out_of(e, NULL, buffers);

        mask(f, e);
        text = out.content;
        for (size_t i = 0; i < CG_ARRAY_LEN(types) && cg_json_find(text, "msg_type", &v); i++)
                if (v.len == strlen(types[i]) + 2 && memcmp(v.p + 1, types[i], v.len - 2) == 0)
                        out.type = types[i];
        if (!out.type || !cg_json_find(text, "content", &out.content) || out.content.p[0] != '{') {
                cg_log(&f->o->log, CG_LOG_WARN, "the kernel sent an invalid comm message");
                cg_event_free(e);
                return;
        }
        if (!cg_json_find(text, "metadata", &out.metadata) || out.metadata.p[0] != '{')
                out.metadata.len = 0;
        cg_iopub_relay(&f->iopub, o, &out);
}

static void notice(struct front *f, struct cg_origin *o, const struct cg_event *e)
{
        cg_auto_buf struct cg_buf b = { .max = (size_t)1 << 20 };

        cg_buf_addf(&b, "[cellgate] %s\n", cg_event_text(e, NULL));
        if (!b.failed)
                cg_iopub_notice(&f->iopub, o, b.data);
}

static void add_html(struct cg_buf *b, const char *text)
{
        for (; *text; text++) {
                if (*text == '&')
                        cg_buf_adds(b, "&amp;");
                else if (*text == '<')
                        cg_buf_adds(b, "&lt;");
                else if (*text == '>')
                        cg_buf_adds(b, "&gt;");
                else
                        cg_buf_add(b, text, 1);
        }
}

/* Progress of a tool call: one display for each call, which is updated. */
static void progress(struct front *f, struct cg_origin *o, const struct cg_event *e)
{
        cg_auto_buf struct cg_buf content = { .max = (size_t)1 << 20 }, html = { .max = 65536 },
                                  both = { .max = 65536 };
        cg_auto_json json_t *p = json_loads(cg_event_json(e, NULL), 0, NULL);
        uint64_t call = (uint64_t)json_integer_value(json_object_get(p, "call"));
        double done = json_number_value(json_object_get(p, "progress")),
               total = json_number_value(json_object_get(p, "total"));
        const char *text = cg_event_text(e, NULL);
        bool shown = false, bar = total > 0 && done >= 0;
        char plain[64] = "";

        if (!call || !o) /* a server that starts, or a cell that nobody remembers */
                return;
        for (unsigned i = 0; i < MAX_PROGRESS; i++)
                shown |= f->past.progress[i] == call;
        if (!shown)
                f->past.progress[f->past.n_progress++ % MAX_PROGRESS] = call;
        if (bar) {
                int filled = done >= total ? 20 : (int)(20 * (done / total));

                snprintf(plain, sizeof(plain), "[%.*s%.*s] ", filled, "####################", 20 - filled,
                         "--------------------");
                cg_buf_addf(&html, "<progress value=\"%.10g\" max=\"%.10g\"></progress> ", done, total);
        } else {
                cg_buf_adds(&html, "<progress></progress> ");
        }
        add_html(&html, text);
        cg_buf_addf(&both, "%s%s", plain, text);
        cg_buf_fail(&content, html.failed ?: both.failed);
        cg_buf_adds(&content, "{\"data\":{\"text/html\":");
        cg_json_quote(&content, cg_buf_str(&html), html.len);
        cg_buf_adds(&content, ",\"text/plain\":");
        cg_json_quote(&content, cg_buf_str(&both), both.len);
        cg_buf_addf(&content,
                    "},\"metadata\":{},\"transient\":{\"display_id\":\"cellgate-call-%" PRIu64 "\"}}", call);
        if (!content.failed)
                cg_iopub_send(&f->iopub, o, shown ? "update_display_data" : "display_data",
                              cg_buf_slice(&content));
}

/* ------------------------------------------------------------------ cells */

static void send_execute_input(struct front *f, struct cg_origin *o, struct cg_slice code, int64_t count)
{
        cg_auto_buf struct cg_buf b = { .max = SIZE_MAX / 2 };

        cg_buf_adds(&b, "{\"code\":");
        cg_buf_add(&b, code.p, code.len);
        cg_buf_addf(&b, ",\"execution_count\":%" PRId64 "}", count);
        if (!b.failed)
                cg_iopub_send(&f->iopub, o, "execute_input", cg_buf_slice(&b));
}

/* A cell of another host starts. It gets a header of ours, by which clients group its output. */
static void foreign_input(struct front *f, const struct cg_event *e)
{
        cg_auto_buf struct cg_buf code = { .max = SIZE_MAX / 2 };
        char header[512], date[64];
        struct cg_origin *o;
        const char *text;
        size_t len;
        int n;

        cg_jidentity_date(&f->me, date, sizeof(date));
        n = snprintf(header, sizeof(header),
                     "{\"msg_id\":\"%s_host_%" PRIu64 "_%" PRIu64
                     "\",\"msg_type\":\"execute_request\",\"username\":\"host\","
                     "\"session\":\"%s-host\",\"date\":\"%s\",\"version\":\"" CG_JUPYTER_PROTOCOL "\"}",
                     f->me.session, cg_event_cell(e), ++f->me.count, f->me.session, date);
        o = cg_origin_new(cg_event_cell(e), (struct cg_slice){ header, (size_t)n });
        if (!o)
                return;
        o->foreign = true;
        cg_front_add_past(f, o);
        cg_iopub_status(&f->iopub, o, "busy");
        text = cg_event_text(e, &len);
        cg_json_quote_utf8(&code, text, len);
        if (!code.failed)
                send_execute_input(f, o, cg_buf_slice(&code), cg_event_execution_count(e));
}

/* ------------------------------------------------------------------ known subshells */

static char *known_find(struct front *f, const char *name)
{
        for (size_t i = 0; i < MAX_SUBSHELLS; i++)
                if (strcmp(f->known[i], name) == 0)
                        return f->known[i];
        return NULL;
}

/* Reads the replies about subshells. Those that other hosts have made are not known. */
static void note_subshells(struct front *f, const struct jreq *r, const struct cg_event *e)
{
        bool made = strcmp(r->spec->type, "create_subshell_request") == 0;
        cg_auto_json json_t *reply = NULL, *content = NULL;
        const char *name;
        char *place;

        if (!made && strcmp(r->spec->type, "delete_subshell_request") != 0)
                return;
        reply = json_loads(cg_event_json(e, NULL), JSON_ALLOW_NUL, NULL);
        content = json_loadb(r->msg->m.content.p, r->msg->m.content.len, JSON_ALLOW_NUL, NULL);
        name = json_string_value(json_object_get(made ? reply : content, "subshell_id"));
        if (!name || !*name || strlen(name) >= sizeof(f->known[0]))
                return;
        place = known_find(f, made ? "" : name);
        if (place)
                snprintf(place, sizeof(f->known[0]), "%s", made ? name : "");
}

/* For clients this is a new session: the state, comms and counts of the old one are gone. */
static void fresh_kernel(struct front *f)
{
        cg_control_forget(f);
        memset(f->known, 0, sizeof(f->known));
        f->count = 0;
        if (cg_jidentity_init(&f->me, &f->end_err) < 0) {
                cg_front_stop(f);
                return;
        }
        cg_iopub_status(&f->iopub, NULL, "starting");
        cg_iopub_status(&f->iopub, NULL, "idle");
}

/* A cell of an unknown subshell: as with ipykernel, only the reply reports that. */
static bool no_subshell(struct cg_slice json)
{
        static const char name[] = "\"UnknownSubshellError\"";
        struct cg_slice v;

        return cg_json_find(json, "ename", &v) && v.len == sizeof(name) - 1 && memcmp(v.p, name, v.len) == 0;
}

/* The ename of an end that is not an exception of the cell. */
static const char *ename_of(enum cg_status st)
{
        static const char *const names[] = { [CG_STATUS_KERNEL_DIED] = "KernelDied",
                                             [CG_STATUS_CANCELLED] = "KeyboardInterrupt",
                                             [CG_STATUS_TIMEOUT] = "CellTimeout" };

        return (size_t)st < CG_ARRAY_LEN(names) && names[st] ? names[st] : "CellError";
}

static void result(struct front *f, struct cg_event *e)
{
        struct jreq *r = request_of(f, e);
        enum cg_status st = cg_event_status(e);
        const char *ename = ename_of(st), *text = cg_event_text(e, NULL);
        struct cg_slice json, v;
        struct shell_queue *q;
        bool replaced;

        if (cg_event_foreign(e) && origin_of(f, e))
                cg_iopub_status(&f->iopub, origin_of(f, e), "idle");
        if (!r)
                return;
        if (st == CG_STATUS_KERNEL_DIED && f->o->ends_with_kernel) {
                cg_fail(&f->end_err, CG_E_CLOSED, "%s", text);
                /* without a reply: its client notices the end of the kernel */
                cg_jreq_finish(f, r);
                cg_front_stop(f);
                return;
        }
        mask(f, e);
        json.p = cg_event_json(e, &json.len);
        if (cg_event_execution_count(e) > 0)
                f->count = cg_event_execution_count(e);
        q = r->queue;
        /* Before the reply: requests that are sent after it must run. */
        if (st != CG_STATUS_OK && r->stop_on_error && !r->silent && q && q != &f->control.queue)
                cg_shell_abort(f, q);
        /* The kernel has published exceptions itself. Other ends have no traceback. */
        if (st != CG_STATUS_OK && !r->error_shown && !no_subshell(json))
                cg_jreq_show_error(f, r->origin, ename, text);
        cg_jreq_cell_reply(f, r, st == CG_STATUS_OK, f->count, json, ename, text);
        /* Without an ename from the kernel it did not react to the interrupt and was replaced. */
        replaced = (st == CG_STATUS_CANCELLED || st == CG_STATUS_TIMEOUT) && !cg_json_find(json, "ename", &v);
        f->death_reported = f->death_reported || st == CG_STATUS_KERNEL_DIED;
        if (st == CG_STATUS_KERNEL_DIED)
                cg_control_forget(f);
        cg_jreq_finish(f, r);
        if (replaced)
                fresh_kernel(f);
}

/* ------------------------------------------------------------------ other events */

/* Takes @e. */
static void reply(struct front *f, struct cg_event *e)
{
        struct cg_slice buffers[CG_JMSG_MAX_BUFFERS];
        struct jreq *r = request_of(f, e);
        struct cg_jout out;

        if (!r) {
                if (f->control.making && cg_event_cell(e) == f->control.making && !cg_event_foreign(e))
                        cg_control_made(f, e);
                cg_event_free(e);
                return;
        }
        note_subshells(f, r, e);
        if (cg_shell_offer_reply(f, r, e)) {
                cg_event_free(e);
                return;
        }
        mask(f, e);
        out = out_of(e, NULL, buffers);
        cg_jreq_reply_relay(f, r, &out);
        cg_jreq_finish(f, r);
}

static void dispatch(struct front *f, struct cg_event *e)
{
        cg_auto_json json_t *denied = NULL;
        struct cg_origin *o = origin_of(f, e);
        struct jreq *r = request_of(f, e);
        const char *text;
        struct cg_slice json;

        if (r && r->input_held) {
                json.p = cg_event_json(e, &json.len);
                if (cg_event_type(e) != CG_EVENT_RESULT || !no_subshell(json))
                        send_execute_input(f, r->origin, r->code, r->input_held);
                r->input_held = 0;
        }
        switch (cg_event_type(e)) {
        case CG_EVENT_STREAM:
                stream(f, o, e);
                break;
        case CG_EVENT_DISPLAY_DATA:
        case CG_EVENT_UPDATE_DISPLAY_DATA:
        case CG_EVENT_EXECUTE_RESULT:
                relay(f, o, cg_event_type_name(cg_event_type(e)), e);
                return;
        case CG_EVENT_ERROR:
                if (r)
                        r->error_shown = true;
                relay(f, o, "error", e);
                return;
        case CG_EVENT_CLEAR_OUTPUT:
                relay(f, o, "clear_output", e);
                return;
        case CG_EVENT_COMM:
                relay_comm(f, o, e);
                return;
        case CG_EVENT_DEBUG_EVENT:
                relay(f, f->past.debug, "debug_event", e);
                return;
        case CG_EVENT_REPLY:
                reply(f, e);
                return;
        case CG_EVENT_EXECUTE_INPUT:
                if (cg_event_foreign(e))
                        foreign_input(f, e);
                /* Held until the cell's first event if its subshell may not exist. */
                else if (r && r->queue && r->queue->id && !known_find(f, r->queue->id))
                        r->input_held = cg_event_execution_count(e);
                else if (r)
                        send_execute_input(f, r->origin, r->code, cg_event_execution_count(e));
                break;
        case CG_EVENT_RESULT:
                result(f, e);
                break;
        case CG_EVENT_INPUT_REQUEST:
                if (r)
                        cg_stdin_ask_input(f, r, e);
                break;
        case CG_EVENT_INPUT_CLOSED:
                if (r)
                        cg_stdin_input_closed(f, r);
                break;
        case CG_EVENT_APPROVAL_REQUEST:
                cg_stdin_judge(f, cg_in_flight_find(f, cg_event_cell(e)), e);
                return;
        case CG_EVENT_EGRESS_REQUEST: /* it names no cell */
                cg_stdin_judge(f, f->main.running, e);
                return;
        case CG_EVENT_DENIED:
                /* Denials that the kernel reports are shown below the cell's traceback already. */
                denied = json_loads(cg_event_json(e, NULL), JSON_ALLOW_NUL, NULL);
                text = json_string_value(json_object_get(denied, "source"));
                if (!text || strcmp(text, "kernel") != 0)
                        notice(f, f->main.running ? f->main.running->origin : last_origin(f), e);
                break;
        case CG_EVENT_APPROVAL_CLOSED:
                cg_stdin_call_closed(f, cg_event_approval(e));
                break;
        case CG_EVENT_KERNEL_DIED:
                if (!f->death_reported)
                        notice(f, last_origin(f), e);
                f->death_reported = false;
                fresh_kernel(f);
                break;
        case CG_EVENT_PROGRESS:
                progress(f, o, e);
                break;
        case CG_EVENT_NOTICE:
                notice(f, o, e);
                break;
        case CG_EVENT_SESSION_CLOSED:
                cg_fail(&f->end_err, CG_E_CLOSED, "the session has ended: %s", cg_event_text(e, NULL));
                cg_shell_end(f, f->end_err.msg);
                cg_iopub_status(&f->iopub, NULL, "dead");
                cg_front_stop(f);
                break;
        default: /* of a later library */
                cg_event_refuse(f->session, e, "notebooks cannot ask this", NULL);
                break;
        }
        cg_event_free(e);
}

void cg_events_readable(uv_poll_t *h, int status, int events)
{
        struct front *f = h->data;
        struct cg_event *e;
        struct cg_err err;
        int r = 0;

        for (int i = 0; i < BURST && f->state != ENDING; i++) {
                r = cg_session_next_event(f->session, 0, &e, &err);
                if (r != 0)
                        break;
                dispatch(f, e);
        }
        if (r == CG_CLOSED)
                r = cg_fail(&err, CG_E_CLOSED, "the session has ended");
        if (r < 0) {
                if (f->state != ENDING)
                        f->end_err = err;
                cg_front_stop(f);
        }
        if (f->state == ENDING)
                return;
        cg_shell_run(f);
        cg_iopub_settle(&f->iopub);
}
