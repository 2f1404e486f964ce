/*
 * `cellgate mcp serve`: what a call that waits is told. The worker keeps the last line of the cell
 * that runs; the I/O thread sends it, so that no progress follows an answer.
 */
#include "cli/mcp_serve/mcp_serve.h"

#include <math.h>
#include "base/json.h"
#include "base/text.h"

/* Between two messages of a call: with something new, and without, since some clients give up. */
#define NEWS_MS    250
#define SILENCE_MS 3000
/* Messages of a session in this time. */
#define MESSAGES   10u
#define MESSAGE_MS 10000
/* Longest line or name that is shown. */
#define SHOWN_BYTES   200
#define MESSAGE_BYTES 2000

static void add_name(struct cg_buf *b, const char *name)
{
        cg_text_render_as(b, name, strlen(name), SHOWN_BYTES, CG_TEXT_LINE);
}

bool cg_serve_waits(const struct cg_serve_session *s, struct cg_buf *b)
{
        const struct cg_serve_ask *a, *first = NULL;
        size_t more = 0;

        TAILQ_FOREACH(a, &s->asks, entry) {
                if (a->answered)
                        continue;
                more += first != NULL;
                first = first ?: a;
        }
        if (!first)
                return false;
        if (first->subject == CG_SERVE_ASK_INPUT) {
                cg_buf_adds(b, "waits for input, ");
                cg_buf_adds(b, first->by_agent ? "which send_input gives it; its prompt: "
                                               : "for which the user is asked: ");
                add_name(b, first->tool);
                return !b->failed;
        }
        if (first->subject == CG_SERVE_ASK_CONNECTION)
                cg_buf_adds(b, "waits for approval of a connection");
        else if (first->subject == CG_SERVE_ASK_SERVER)
                cg_buf_adds(b, "waits for the user's answer to the MCP server ");
        else
                cg_buf_adds(b, "waits for approval of ");
        add_name(b, first->server);
        if (*first->tool) {
                cg_buf_adds(b, ".");
                add_name(b, first->tool);
        }
        if (more)
                cg_buf_addf(b, ", and %zu more", more);
        return !b->failed;
}

/* Describes the first job of a session. False: there is nothing to say. */
static bool news(const struct cg_serve_session *s, struct cg_buf *b)
{
        cg_auto_buf struct cg_buf line = { .max = CG_SERVE_LINE };

        if (cg_serve_waits(s, b))
                return true;
        if (!*s->shown.line)
                return false;
        cg_buf_adds(&line, s->shown.line);
        cg_secrets_redact_buf(&s->sv->secrets, &line);
        cg_text_render_as(b, line.data, line.len, SHOWN_BYTES, CG_TEXT_OUTPUT);
        return !line.failed && !b->failed;
}

/* The value is the call's seconds; it always grows. What is lost is repaired by the next. */
static void send_progress(struct cg_serve *sv, struct cg_pending *p, const char *text, int64_t now)
{
        cg_auto_buf struct cg_buf b = { .max = 65536 };
        double elapsed = (double)(now - p->since_ms) / 1000;

        p->progress_ms = now;
        p->progress = fmax(elapsed, p->progress + 0.001);
        free(p->said);
        p->said = strdup(text);
        cg_buf_addf(&b, "{\"progressToken\":%s,\"progress\":%.3f,\"message\":", p->token, p->progress);
        cg_json_quote(&b, text, strlen(text));
        cg_buf_adds(&b, "}");
        if (cg_buf_end(&b, NULL) == 0)
                cg_serve_notify(sv, "notifications/progress", b.data);
}

/* Without news: how long, and how many jobs are before it. */
static void describe(const struct cg_pending *p, int64_t now, char ret[80])
{
        double seconds = (double)(now - p->since_ms) / 1000;
        size_t before = cg_serve_count_before(p->job);

        if (before)
                snprintf(ret, 80, "waiting, %zu before it, %.0f s", before, seconds);
        else
                snprintf(ret, 80, "running, %.0f s", seconds);
}

int64_t cg_serve_progress(struct cg_serve *sv)
{
        int64_t now = cg_now_ms(), next_ms = -1;
        struct cg_pending *p;

        sv->has_tokens = false;
        TAILQ_FOREACH(p, &sv->pending, entry) {
                cg_auto_buf struct cg_buf running = { .max = 65536 };
                int64_t wait_ms = SILENCE_MS - (now - p->progress_ms);
                char plain[80];
                const char *text = plain;

                if (!p->token)
                        continue;
                sv->has_tokens = true;
                describe(p, now, plain);
                if (p->job == TAILQ_FIRST(&p->session->jobs) && news(p->session, &running)) {
                        text = running.data;
                        if (!p->said || strcmp(p->said, text) != 0)
                                wait_ms -= SILENCE_MS - NEWS_MS;
                }
                if (wait_ms <= 0) {
                        send_progress(sv, p, text, now);
                        wait_ms = SILENCE_MS;
                }
                if (next_ms < 0 || wait_ms < next_ms)
                        next_ms = wait_ms;
        }
        return next_ms;
}

static bool may_send(struct cg_serve_session *s)
{
        int64_t now = cg_now_ms();

        if (now - s->shown.messages_ms >= MESSAGE_MS) {
                s->shown.messages_ms = now;
                s->shown.messages = 0;
        }
        if (s->shown.messages++ < MESSAGES)
                return true;
        s->shown.left_out++;
        return false;
}

/* @id: of the request that the message belongs to, JSON text; NULL: of none. */
static void send_message(struct cg_serve_session *s, const char *id, enum cg_mcpd_level level,
                         const struct cg_buf *text)
{
        cg_auto_buf struct cg_buf b = { .max = 65536 };

        if (!may_send(s))
                return;
        cg_buf_adds(&b, "{");
        if (id)
                cg_buf_addf(&b, "\"_meta\":{\"" CG_MCPD_REQUEST "\":%s},", id);
        cg_buf_addf(&b,
                    "\"level\":\"%s\",\"logger\":\"cellgate\",\"data\":{\"session_id\":\"%s\",\"message\":",
                    cg_mcpd_level_name(level), s->id);
        cg_json_quote(&b, text->data, text->len);
        if (s->shown.left_out)
                cg_buf_addf(&b, ",\"left_out\":%u", s->shown.left_out);
        s->shown.left_out = 0;
        cg_buf_adds(&b, "}}");
        if (cg_buf_end(&b, NULL) == 0)
                cg_serve_notify(s->sv, "notifications/message", b.data);
}

void cg_serve_message(struct cg_serve_session *s, enum cg_mcpd_level level, const char *text)
{
        cg_auto_buf struct cg_buf line = { .max = 32768 };
        enum cg_mcpd_level wanted = s->sv->proto.handshake.log;
        const struct cg_pending *p;

        cg_text_render_as(&line, text, strlen(text), MESSAGE_BYTES, CG_TEXT_LINE);
        cg_secrets_redact_buf(&s->sv->secrets, &line);
        if (cg_buf_end(&line, NULL) < 0)
                return;
        if (wanted && level >= wanted)
                send_message(s, NULL, level, &line);
        TAILQ_FOREACH(p, &s->sv->pending, entry)
                if (p->session == s && p->log && level >= p->log)
                        send_message(s, p->id, level, &line);
}

static void wake_for_news(struct cg_serve *sv)
{
        if (sv->has_tokens)
                cg_serve_wake(sv->io_fd);
}

void cg_serve_tool_progress(struct cg_serve_session *s, const char *text)
{
        CG_HOLD(&s->sv->lock);

        snprintf(s->shown.line, sizeof(s->shown.line), "%s", text);
        wake_for_news(s->sv);
}

void cg_serve_output(struct cg_serve_session *s, const struct cg_answer *a)
{
        size_t chars = cg_answer_chars(a);
        CG_HOLD(&s->sv->lock);

        if (chars == s->shown.chars)
                return;
        s->shown.chars = chars;
        cg_answer_last_line(a, s->shown.line, sizeof(s->shown.line));
        wake_for_news(s->sv);
}
