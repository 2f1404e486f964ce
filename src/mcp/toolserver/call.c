/*
 * A kernel's calls of tools, and requests for resources and prompts: check, ask, run, answer. Runs
 * in cellgate-toolserver.
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
 *
 * A server of a host on another machine is there: its tool server, which has got the same bytes,
 * does all of this.
 *
 *      AT_HOST  until its answer
 */
#include "base/call_args.h"
#include "base/json.h"
#include "mcp/ceilings.h"
#include "mcp/toolserver/call_internal.h"

void cg_ts_call_numbers(const void *data, uint64_t *kernel, uint64_t *approval, uint64_t *cell)
{
        const struct ts_call *call = data;

        *kernel = call->kernel->number;
        *approval = call->approval;
        *cell = call->cell;
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

static struct ts_call *calls_of(const struct ts_session *s)
{
        return s->kernel ? s->kernel->calls : NULL;
}

static void list_or_go_on(struct ts_call *call);

static void run_call(struct ts_call *call);

static bool is_error(enum cg_mcp_outcome outcome, const char *bytes, size_t len)
{
        struct cg_slice value;

        return outcome == CG_MCP_ERROR ||
               (outcome == CG_MCP_OK && cg_json_find((struct cg_slice){ bytes, len }, "isError", &value) &&
                cg_slice_is(value, "true"));
}

static void on_held(uv_timer_t *t);

/* Whether the call's error waits until its server's sandbox has reported what it denied. */
static bool hold(struct ts_call *call, enum cg_mcp_outcome outcome, const char *bytes, size_t len)
{
        const struct ts_server *v = cg_ts_session_server(call->kernel->session, call->server);
        uv_timer_t *timer = &call->kernel->session->ts->held;

        if (!v || !v->box || len > CG_KEPT_RESULT || !is_error(outcome, bytes, len) ||
            !(call->held = malloc(len + 1)))
                return false;
        memcpy(call->held, bytes, len);
        call->held[len] = '\0';
        call->held_len = len;
        call->held_outcome = outcome;
        call->held_by = v->box;
        if (!cg_ts_box_sync(v->box, &call->held_sync)) {
                free(CG_STEAL(call->held));
                return false;
        }
        if (!uv_is_active((uv_handle_t *)timer))
                uv_timer_start(timer, on_held, CG_MCP_SYNC_MS, 0);
        return true;
}

/*
 * Puts what the sandbox has denied into an error of the server: a block of text at the end of a
 * tool's error, or the end of a protocol error's message. False: there is nothing, or no room.
 */
static bool add_denials(const struct ts_call *call, enum cg_mcp_outcome outcome, struct cg_slice error,
                        struct cg_buf *ret)
{
        const struct ts_server *v = cg_ts_session_server(call->kernel->session, call->server);
        cg_auto_buf struct cg_buf text = { .max = 16384 }, quoted = { .max = 65536 };
        bool protocol = outcome == CG_MCP_ERROR;
        struct cg_slice at = CG_SLICE_NONE, in;
        const char *end;

        if (!v || !v->box)
                return false;
        cg_ts_box_add_denials(v->box, call->denials_before, &text);
        cg_json_quote(&quoted, cg_buf_str(&text), text.len);
        if (!text.len || text.failed || quoted.failed ||
            !cg_json_find(error, protocol ? "message" : "content", &at))
                return false;
        at = cg_json_trim(at);
        if (at.len < 2 || at.p[0] != (protocol ? '"' : '['))
                return false;
        end = at.p + at.len - 1; /* of the string or array */
        in = cg_json_trim((struct cg_slice){ at.p + 1, at.len - 2 });
        cg_buf_add(ret, error.p, (size_t)(end - error.p));
        if (in.len)
                cg_buf_adds(ret, protocol ? "\\n" : ",");
        if (protocol)
                cg_buf_add(ret, quoted.data + 1, quoted.len - 2);
        else
                cg_buf_addf(ret, "{\"type\":\"text\",\"text\":%s}", quoted.data);
        cg_buf_add(ret, end, (size_t)(error.p + error.len - end));
        return !ret->failed;
}

static void finish_call(struct ts_call *call, enum cg_mcp_outcome outcome, const char *bytes, size_t len);

static void unhold(struct ts_call *call)
{
        cg_auto_buf struct cg_buf b = { .max = 2 * CG_KEPT_RESULT };
        cg_auto_free char *held = CG_STEAL(call->held);
        struct cg_slice error = { held, call->held_len };

        if (add_denials(call, call->held_outcome, error, &b))
                error = (struct cg_slice){ b.data, b.len };
        finish_call(call, call->held_outcome, error.p, error.len);
}

void cg_ts_calls_synced(struct ts_session *s, const struct ts_box *box, uint64_t number)
{
        struct ts_call *call = calls_of(s);

        while (call) {
                if (!call->held || (box && call->held_by != box) || call->held_sync > number) {
                        call = call->next;
                        continue;
                }
                unhold(call);
                call = calls_of(s); /* the kernel may have been detached */
        }
}

/* A sandbox has not answered in time: sends all errors that wait for sandboxes. */
static void on_held(uv_timer_t *t)
{
        const struct ts *ts = t->data;

        for (struct ts_session *s = ts->sessions; s; s = s->next)
                cg_ts_calls_synced(s, NULL, UINT64_MAX);
}

static void on_called(void *data, enum cg_mcp_outcome outcome, const char *bytes, size_t len)
{
        struct ts_call *call = data;

        call->req = NULL;
        call->kind = kinds[outcome];
        if (!hold(call, outcome, bytes, len))
                finish_call(call, outcome, bytes, len);
}

static void finish_call(struct ts_call *call, enum cg_mcp_outcome outcome, const char *bytes, size_t len)
{
        const char *status = outcome == CG_MCP_ERROR ? "protocol_error" : "failed";

        if (call->progress.waits)
                cg_ts_send_progress(call);
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
        if (outcome == CG_MCP_OK && len > CG_KEPT_RESULT && !call->kernel->session->remote) {
                cg_ts_call_report(call, "ok", bytes, len);
                cg_ts_keep_result(call, bytes, len);
                return;
        }
        cg_ts_call_end(call, outcome == CG_MCP_OK ? "ok" : status, bytes, len);
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
                cg_ts_call_fail(call, "MCP server \"%s\" is not registered any more", call->server);
                return;
        }
        call->denials_before = cg_ts_box_denials(
                cg_ts_session_server(call->kernel->session, call->server)->box);
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
                cg_ts_call_fail(call, "%s", err.msg);
}

/* ---- ASKING */

/* @type: ASK; or CALL, to be carried out by the host. */
static int send_ask(struct ts_call *call, uint16_t type, struct cg_err *err)
{
        struct ts_session *s = call->kernel->session;
        struct cg_out out = { .type = type, .session = s->number };
        cg_auto_msg struct cg_msg m = CG_MSG_EMPTY;
        cg_auto_buf struct cg_buf b = { .max = 4096 };

        out.id = call->ask = ++s->ts->last_ask;
        cg_buf_addf(&b, "{\"kernel\":%llu,", (unsigned long long)call->kernel->number);
        if (s->remote)
                cg_buf_addf(&b, "\"call\":%llu,", (unsigned long long)call->id);
        if (type == CG_BROKER_CALL)
                cg_buf_addf(&b, "\"timeout_ms\":%lld,", (long long)call->timeout_ms);
        cg_ts_add_names(call, &b);
        cg_buf_adds(&b, "}");
        if (cg_buf_end(&b, err) < 0)
                return b.failed;
        /* The other half is for answers: they must not be lost. */
        if (s->ts->broker.conn.queued > CG_MCP_MAX_BROKER_QUEUE / 2)
                return cg_fail(err, CG_E_LIMIT, "%zu bytes wait already that the other side has not read",
                               s->ts->broker.conn.queued);
        out.body = b.data;
        out.body_len = b.len;
        m.n_frames = 2;
        m.frames[1] = cg_frame_ref(call->args);
        return cg_ts_broker_send(s->ts, &out, &m, err);
}

/* Asks whether the call may run. */
static void ask(struct ts_call *call)
{
        struct cg_err err;

        call->place = ASKING;
        if (send_ask(call, CG_BROKER_ASK, &err) < 0)
                cg_ts_call_fail(call, "the call could not be put before the host: %s", err.msg);
}

void cg_ts_call_decide(struct ts_session *s, uint64_t ask_id, uint64_t approval, uint64_t cell, bool accept,
                       bool timed_out, bool report, bool audited, const char *reason)
{
        struct ts_call *call = calls_of(s);

        while (call && !(call->place == ASKING && call->ask == ask_id))
                call = call->next;
        if (!call) {                  /* it crossed with ASK_CLOSED, or is a second decision */
                if (accept && report) /* the supervisor counts it */
                        cg_ts_report_no_call(s, approval);
                cg_log(&s->ts->log, CG_LOG_DEBUG, "session %llu: decision %llu is about no call that waits",
                       (unsigned long long)s->number, (unsigned long long)ask_id);
                return;
        }
        call->kind = timed_out ? "approval_timeout" : "rejected";
        if (accept)
                call->kind = "";
        call->accepted = accept;
        call->unreported = accept && report;
        call->audited = audited;
        call->lists = 0;
        call->approval = approval;
        call->cell = cell;
        if (accept && call->method == CG_MCP_TOOLS_CALL)
                list_or_go_on(call);
        else if (accept)
                run_call(call);
        else
                cg_ts_call_end(call, "rejected", reason, strlen(reason));
}

void cg_ts_calls_replaced(struct ts_session *s, const char *server)
{
        struct ts_call *call = calls_of(s);

        while (call) {
                if (call->place != ASKING || strcmp(call->server, server) != 0) {
                        call = call->next;
                        continue;
                }
                cg_ts_call_withdraw(call, "its MCP server was replaced by another definition");
                cg_ts_call_fail(
                        call,
                        "MCP server \"%s\" was replaced by another definition before this call was decided",
                        server);
                call = calls_of(s); /* the kernel may have been detached */
        }
}

/* ---- AT_HOST */

static void pass_on(struct ts_call *call)
{
        struct cg_err err;

        call->place = AT_HOST;
        if (send_ask(call, CG_BROKER_CALL, &err) < 0)
                cg_ts_call_fail(call, "the call could not be sent to the host: %s", err.msg);
}

void cg_ts_call_returned(struct ts_session *s, const struct cg_msg *m, const json_t *body)
{
        static const char *const more[] = { "approval_timeout", "rejected", "cancelled" };
        struct ts_call *call = calls_of(s);
        const char *status = cg_json_text_of(body, "status"), *kind = cg_json_text_of(body, "kind"), *raw;
        size_t len;

        while (call && !(call->place == AT_HOST && call->ask == m->id))
                call = call->next;
        if (!call)
                return; /* it crossed with ASK_CLOSED */
        raw = cg_msg_raw(m, 0, &len);
        for (size_t i = 0; i < CG_ARRAY_LEN(kinds); i++)
                if (strcmp(kind, kinds[i]) == 0)
                        call->kind = kinds[i];
        for (size_t i = 0; i < CG_ARRAY_LEN(more); i++)
                if (strcmp(kind, more[i]) == 0)
                        call->kind = more[i];
        call->place = RUNNING;
        if (strcmp(status, "ok") == 0 && len > CG_KEPT_RESULT)
                cg_ts_keep_result(call, raw, len);
        else
                cg_ts_call_end(call, status, raw, len);
}

/* ---- LISTING */

static void fail_unknown(struct ts_call *call, const struct cg_mcp_client *client)
{
        const char *what = cg_mcp_methods[call->method].what;
        cg_auto_buf struct cg_buf b = { .max = 2048 };

        cg_mcp_client_close_names(client, call->method, call->tool, &b);
        if (b.len && !b.failed)
                cg_ts_call_fail(call, "MCP server \"%s\" has no %s \"%s\"; did you mean %s?", call->server,
                                what, call->tool, b.data);
        else
                cg_ts_call_fail(call, "MCP server \"%s\" has no %s \"%s\"", call->server, what, call->tool);
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
                cg_ts_call_fail(call, "%s", err.msg);
        else if (known && !call->accepted)
                ask(call);
        else if (known && listed)
                run_call(call);
        else if (!listed && ++call->lists < CG_MCP_MAX_STALE_LISTS)
                list_or_go_on(call);
        else if (!known)
                fail_unknown(call, client);
        else
                cg_ts_call_fail(
                        call, "MCP server \"%s\" has announced changes of its tools during each of %u lists",
                        call->server, CG_MCP_MAX_STALE_LISTS);
}

/* Ends the call where it got no list; else returns the client of its server. */
static struct cg_mcp_client *list_ended(struct ts_call *call, enum cg_mcp_outcome outcome, const char *bytes,
                                        size_t len)
{
        struct cg_mcp_client *client = cg_ts_session_client(call->kernel->session, call->server);

        call->req = NULL;
        call->kind = kinds[outcome];
        if (outcome == CG_MCP_OK && client)
                return client;
        if (outcome != CG_MCP_OK)
                cg_ts_call_end(call, "failed", bytes, len);
        else
                cg_ts_call_fail(call, "MCP server \"%s\" is not registered any more", call->server);
        return NULL;
}

static void on_listed(void *data, enum cg_mcp_outcome outcome, const char *bytes, size_t len)
{
        struct ts_call *call = data;
        struct cg_mcp_client *client = list_ended(call, outcome, bytes, len);

        if (client)
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
                cg_ts_call_fail(call, "MCP server \"%s\" is not registered any more", call->server);
        } else if (cg_mcp_client_is_listed(client) && !cg_pins_failed(cg_mcp_client_pins(client))) {
                go_on(call, client);
        } else {
                call->place = LISTING;
                if (cg_mcp_client_list(client, 0, !call->accepted, on_listed, call, &call->req, &err) < 0)
                        cg_ts_call_fail(call, "%s", err.msg);
        }
}

static void on_other_listed(void *data, enum cg_mcp_outcome outcome, const char *bytes, size_t len)
{
        struct ts_call *call = data;
        struct cg_mcp_client *client = list_ended(call, outcome, bytes, len);

        if (!client)
                return;
        if (call->method != CG_MCP_PROMPTS_GET)
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
                cg_ts_call_fail(call, "%s", err.msg);
}

/* ---- a new call */

void cg_ts_call_begin(struct ts_call *call)
{
        struct cg_mcp_client *client = cg_ts_session_client(call->kernel->session, call->server);
        struct cg_bytes args = cg_frame_bytes(call->args);
        struct cg_err err;

        if (!client) {
                cg_auto_buf struct cg_buf b = { .max = 3072 };

                for (const struct ts_server *v = call->kernel->session->servers; v; v = v->next)
                        cg_buf_addf(&b, "%s\"%s\"", cg_sep(b.len, ", "), cg_mcp_client_name(v->client));
                if (b.len)
                        cg_ts_call_fail(call,
                                        "there is no MCP server \"%s\" in this session; registered are %s",
                                        call->server, b.data);
                else
                        cg_ts_call_fail(call,
                                        "there is no MCP server \"%s\" in this session: none is registered",
                                        call->server);
                return;
        }
        if (cg_check_call_args(args.data, args.len, &err) < 0 ||
            (call->method != CG_MCP_TOOLS_CALL &&
             cg_mcp_check_params(call->method, (struct cg_slice){ args.data, args.len }, &call->tool, &err) <
                     0)) {
                cg_ts_call_fail(call, "the arguments cannot be sent: %s", err.msg);
                return;
        }
        if (cg_mcp_client_def(client)->kind == CG_MCP_FUNCTIONS) {
                cg_ts_call_fail(call, "\"%s\" is the name of functions of the host: it does not offer %s",
                                call->server, cg_mcp_methods[call->method].name);
                return;
        }
        if (cg_mcp_client_def(client)->kind == CG_MCP_AT_HOST) {
                pass_on(call);
                return;
        }
        /* The host is not asked about a call that cannot run. */
        if (cg_mcp_client_check(client, &err) < 0) {
                cg_ts_call_fail(call, "%s", err.msg);
                return;
        }
        if (call->method != CG_MCP_TOOLS_CALL) {
                if (!cg_mcp_client_offers(client, call->method))
                        cg_ts_call_fail(call, "MCP server \"%s\" does not offer %s", call->server,
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
