/*
 * `cellgate mcp serve`: what a call that waits is told. The worker keeps the last line of the cell
 * that runs; the I/O thread sends it, so that no progress follows an answer.
 */
#include "cli/mcp_serve/mcp_serve.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/json.h"
#include "base/text.h"
#include "base/util.h"

/* Between two messages of a call: with something new, and without, since some clients give up. */
#define NEWS_MS    250
#define SILENCE_MS 3000
/* Of a line or a name that are shown. */
#define SHOWN_BYTES 200

static int add_name(struct cg_buf *b, const char *name)
{
        return cg_text_try_render_as(b, name, strlen(name), SHOWN_BYTES, CG_TEXT_LINE, NULL);
}

bool cg_serve_waits(const struct cg_serve_session *s, struct cg_buf *b)
{
        const struct cg_serve_ask *a, *first = NULL;
        size_t more = 0;

        TAILQ_FOREACH(a, &s->asks, entry)
        {
                if (a->answered)
                        continue;
                more += first != NULL;
                first = first ? first : a;
        }
        if (!first)
                return false;
        if (first->subject == CG_SERVE_ASK_INPUT) {
                cg_buf_try_adds(b,
                                first->by_agent ? "waits for input, which send_input gives it; its prompt: "
                                                : "waits for input, for which the user is asked: ",
                                NULL);
                return add_name(b, first->tool) == 0;
        }
        if (first->subject == CG_SERVE_ASK_CONNECTION)
                cg_buf_try_adds(b, "waits for approval of a connection", NULL);
        else if (first->subject == CG_SERVE_ASK_SERVER)
                cg_buf_try_adds(b, "waits for the user's answer to the MCP server ", NULL);
        else
                cg_buf_try_adds(b, "waits for approval of ", NULL);
        add_name(b, first->server);
        if (*first->tool) {
                cg_buf_try_adds(b, ".", NULL);
                add_name(b, first->tool);
        }
        if (more)
                cg_buf_try_addf(b, NULL, ", and %zu more", more);
        return true;
}

/* Describes the first job of a session. False: there is nothing to say. */
static bool news(const struct cg_serve_session *s, struct cg_buf *b)
{
        cg_auto_buf struct cg_buf line = { .max = CG_SERVE_LINE };

        if (cg_serve_waits(s, b))
                return true;
        if (!*s->line || cg_buf_try_adds(&line, s->line, NULL) < 0)
                return false;
        cg_secrets_redact_buf(&s->sv->secrets, &line);
        return cg_text_try_render_as(b, line.data, line.len, SHOWN_BYTES, CG_TEXT_OUTPUT, NULL) == 0;
}

/* The value is the call's seconds; it always grows. What is lost is repaired by the next. */
static void send_progress(struct cg_serve *sv, struct cg_pending *p, const char *text, int64_t now)
{
        cg_auto_buf struct cg_buf b = { .max = 65536 };
        double elapsed = (double)(now - p->since_ms) / 1000;

        p->progress_ms = now;
        p->progress = elapsed > p->progress ? elapsed : p->progress + 0.001;
        free(p->said);
        p->said = strdup(text);
        if (cg_buf_try_addf(&b, NULL, "{\"progressToken\":%s,\"progress\":%.3f,\"message\":", p->token,
                            p->progress) == 0 &&
            cg_json_try_quote(&b, text, strlen(text), NULL) == 0 && cg_buf_try_adds(&b, "}", NULL) == 0)
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
        TAILQ_FOREACH(p, &sv->pending, entry)
        {
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

static void wake_for_news(struct cg_serve *sv)
{
        if (sv->has_tokens)
                cg_serve_wake(sv->io_fd);
}

void cg_serve_tool_progress(struct cg_serve_session *s, const char *text)
{
        pthread_mutex_lock(&s->sv->lock);
        snprintf(s->line, sizeof(s->line), "%s", text);
        wake_for_news(s->sv);
        pthread_mutex_unlock(&s->sv->lock);
}

void cg_serve_output(struct cg_serve_session *s, const struct cg_answer *a)
{
        size_t chars = cg_answer_chars(a);

        pthread_mutex_lock(&s->sv->lock);
        if (chars != s->chars) {
                s->chars = chars;
                cg_answer_last_line(a, s->line, sizeof(s->line));
                wake_for_news(s->sv);
        }
        pthread_mutex_unlock(&s->sv->lock);
}
