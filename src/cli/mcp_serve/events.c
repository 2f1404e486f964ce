/*
 * `cellgate mcp serve`: events of a session, which the worker also handles between calls, so that
 * threads of the kernel are not blocked by output that nobody reads.
 */
#include "cli/mcp_serve/mcp_serve.h"

#include <poll.h>
#include "base/ceilings.h"
#include "base/json.h"

/* Events handled before questions, cancellations and the end are checked again. */
#define EVENTS_AT_ONCE 256

static struct cg_answer *sink(struct cg_serve_session *s)
{
        return s->out.answer ?: s->out.between;
}

/* The client has cancelled the call that runs: nobody needs to know that it was interrupted. */
static bool abandoned(struct cg_serve_session *s)
{
        CG_HOLD(&s->sv->lock);

        return s->out.answer && !TAILQ_EMPTY(&s->jobs) && TAILQ_FIRST(&s->jobs)->cancelled;
}

static void on_error(struct cg_serve_session *s, const struct cg_event *e)
{
        cg_auto_buf struct cg_buf line = { .max = CG_MAX_BODY };
        struct cg_slice content, lines, v;
        struct cg_json_walk walk;
        const char *json;
        size_t len, n = 0;

        json = cg_event_json(e, &len);
        if (abandoned(s) || cg_json_object_slice(json, len, &content, NULL) < 0)
                return;
        if (!cg_json_find(content, "traceback", &lines))
                lines = CG_SLICE_NONE;
        cg_json_walk_init(&walk, lines, '[', NULL);
        for (; cg_json_walk_next(&walk, NULL, &v, NULL) == 0; n++) {
                cg_buf_clear(&line);
                if (cg_json_string(v, &line, NULL) == 0)
                        cg_answer_lines(sink(s), line.data ?: "", line.len);
        }
        if (n)
                return;
        if (cg_json_find(content, "ename", &v) && cg_json_string(v, &line, NULL) == 0 &&
            cg_json_find(content, "evalue", &v)) {
                cg_buf_adds(&line, ": ");
                cg_json_string(v, &line, NULL);
        }
        if (!line.len)
                cg_buf_adds(&line, "error");
        cg_answer_lines(sink(s), line.data ?: "", line.len);
}

void cg_serve_remark(struct cg_serve_session *s, const char *text)
{
        cg_auto_buf struct cg_buf b = { .max = 65536 };

        cg_buf_addf(&b, "[cellgate: %s]", text);
        if (cg_buf_end(&b, NULL) == 0)
                cg_answer_lines(sink(s), b.data, b.len);
}

void cg_serve_send_message(struct cg_serve_session *s, enum cg_mcpd_level level, const char *text)
{
        CG_HOLD(&s->sv->lock);

        cg_serve_message(s, level, text);
}

/* Files that the cell made or changed. */
static void add_files(struct cg_serve_session *s, const struct cg_event *e)
{
        cg_auto_buf struct cg_buf b = { .max = 65536 };

        if (!s->out.answer)
                return;
        cg_artifacts_text(e, "-", cg_answer_files(s->out.answer), &b);
        if (b.failed || !b.len)
                return;
        b.data[b.len - 1] = '\0';
        cg_answer_note(s->out.answer, "Files made or changed:\n\n%s", b.data);
}

/* A denial: a limit was reached. */
static bool is_limit(const struct cg_event *e)
{
        struct cg_slice object, operation;
        const char *json;
        size_t len;

        json = cg_event_json(e, &len);
        return cg_json_object_slice(json, len, &object, NULL) == 0 &&
               cg_json_find(object, "operation", &operation) && cg_slice_is(operation, "\"limit\"");
}

static enum cg_serve_source source_of(const struct cg_event *e)
{
        switch (cg_event_type(e)) {
        case CG_EVENT_STREAM:
                return cg_event_is_stderr(e) ? CG_SOURCE_STDERR : CG_SOURCE_STDOUT;
        case CG_EVENT_DISPLAY_DATA:
        case CG_EVENT_UPDATE_DISPLAY_DATA:
                return CG_SOURCE_STDOUT;
        case CG_EVENT_EXECUTE_RESULT:
                return CG_SOURCE_RESULT;
        default:
                return CG_SOURCE_OTHER;
        }
}

static void on_event(struct cg_serve_session *s, struct cg_event *e)
{
        cg_auto_buf struct cg_buf b = { .max = 65536 };
        const char *text;
        size_t len;

        cg_structured_event(cg_answer_structured(s->out.answer), e);
        cg_answer_set_source(sink(s), source_of(e));
        switch (cg_event_type(e)) {
        case CG_EVENT_STREAM:
                text = cg_event_text(e, &len);
                cg_answer_text(sink(s), text, len);
                break;
        case CG_EVENT_DISPLAY_DATA:
        case CG_EVENT_UPDATE_DISPLAY_DATA:
        case CG_EVENT_EXECUTE_RESULT:
                cg_answer_display(sink(s), e, s->out.images);
                break;
        case CG_EVENT_ERROR:
                on_error(s, e);
                break;
        case CG_EVENT_APPROVAL_REQUEST:
                cg_serve_approve(s, e);
                break;
        case CG_EVENT_EGRESS_REQUEST:
                cg_serve_connect(s, e);
                break;
        case CG_EVENT_SERVER_REQUEST:
                cg_serve_forward(s, e);
                break;
        case CG_EVENT_DENIED:
                cg_serve_remember_refusal(s, cg_event_text(e, NULL));
                if (is_limit(e))
                        cg_serve_send_message(s, CG_MCPD_LOG_WARNING, cg_event_text(e, NULL));
                cg_denial_reports_add(&s->out.denials, e, &b);
                if (b.failed || !b.len)
                        break;
                /* A note while a call runs, so that a flood of output cannot push it out. */
                if (s->out.answer)
                        cg_answer_note(s->out.answer, "[cellgate: %s]", b.data);
                else
                        cg_serve_remark(s, b.data);
                break;
        case CG_EVENT_APPROVAL_CLOSED:
                cg_serve_withdraw(s, cg_event_approval(e));
                cg_serve_decided_elsewhere(s, cg_event_approval(e), cg_event_text(e, NULL));
                break;
        case CG_EVENT_INPUT_REQUEST:
                if (cg_serve_input(s, e))
                        break;
                cg_serve_remark(
                        s,
                        "input() and getpass() cannot be answered here: give the value in the code, or by --env");
                cg_event_refuse(s->session, e, "", NULL);
                break;
        case CG_EVENT_INPUT_CLOSED:
                cg_serve_input_closed(s);
                break;
        case CG_EVENT_RESULT:
                if (!s->cell || cg_event_cell(e) != s->cell)
                        break;
                cg_serve_input_closed(s);
                s->end.done = true;
                s->end.status = cg_event_status(e);
                free(s->end.text);
                s->end.text = strdup(cg_event_text(e, NULL));
                s->end.death_reported = s->end.status == CG_STATUS_KERNEL_DIED;
                if (s->end.death_reported)
                        cg_serve_send_message(s, CG_MCPD_LOG_ERROR, s->end.text ?: "");
                add_files(s, e);
                break;
        case CG_EVENT_KERNEL_DIED:
                if (!s->end.death_reported) { /* else the cell's result has said so */
                        cg_serve_send_message(s, CG_MCPD_LOG_ERROR, cg_event_text(e, NULL));
                        cg_serve_remark(s, cg_event_text(e, NULL));
                }
                s->end.death_reported = false;
                break;
        case CG_EVENT_PROGRESS:
                if (strcmp(cg_event_json(e, NULL), "{}") != 0) /* of a call */
                        cg_serve_tool_progress(s, cg_event_text(e, NULL));
                break;
        case CG_EVENT_NOTICE:
                cg_serve_send_message(s, CG_MCPD_LOG_NOTICE, cg_event_text(e, NULL));
                cg_serve_remark(s, cg_event_text(e, NULL));
                break;
        case CG_EVENT_REPLY:
                cg_serve_bridge_replied(s->bridge, e);
                break;
        case CG_EVENT_SESSION_CLOSED:
                cg_serve_send_message(s, CG_MCPD_LOG_ERROR, cg_event_text(e, NULL));
                free(s->lost);
                s->lost = strdup(cg_event_text(e, NULL));
                break;
        default:
                cg_event_refuse(s->session, e, "`cellgate mcp serve` cannot ask this", NULL);
                break;
        }
}

void cg_serve_drain(struct cg_serve_session *s)
{
        struct cg_event *e;
        struct cg_err err;

        for (int i = 0; i < EVENTS_AT_ONCE && s->session && !s->lost; i++) {
                int r = cg_session_next_event(s->session, 0, &e, &err);

                if (r == CG_TIMEOUT)
                        return;
                if (r == 0) {
                        on_event(s, e);
                        cg_event_free(e);
                } else {
                        s->lost = strdup(r < 0 ? err.msg : "the session has ended");
                }
        }
}

void cg_serve_wait(struct cg_serve_session *s, int fd, int64_t timeout_ms)
{
        struct pollfd p[3] = { { .fd = s->work_fd, .events = POLLIN },
                               { .fd = fd, .events = POLLIN },
                               { .fd = -1, .events = POLLIN } };

        timeout_ms = cg_serve_sooner(timeout_ms, cg_serve_settle(s));
        pthread_mutex_lock(&s->sv->lock);
        timeout_ms = cg_serve_sooner(timeout_ms, cg_serve_answer_due(s->sv, s));
        pthread_mutex_unlock(&s->sv->lock);
        timeout_ms = cg_serve_sooner(timeout_ms, INT32_MAX);
        if (s->session && !s->lost)
                p[2].fd = cg_session_fd(s->session);
        if (poll(p, CG_ARRAY_LEN(p), (int)timeout_ms) < 0 && errno != EINTR)
                return;
        if (p[0].revents)
                cg_serve_woken(s->work_fd);
        cg_serve_drain(s);
        if (s->out.answer)
                cg_serve_output(s, s->out.answer);
        cg_serve_settle(s);
}
