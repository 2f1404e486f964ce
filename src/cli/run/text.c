/*
 * `cellgate run` for people: output as it comes, questions at the terminal. Runs in the command
 * `cellgate`.
 *
 * While a question is open nothing is shown: events are held back, in order, and only those that
 * end the question are handled.
 */
#include "cli/run/run.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "cli/common/args.h"
#include "cli/common/denied.h"
#include "cli/common/images.h"
#include "cli/run/prompt.h"
#include "cli/common/pretty.h"
#include "cli/common/report.h"

/*
 * Limit of events held back while a question is open; beyond it the session is not read, and the
 * kernel's writes block.
 */
#define MAX_HELD (4u << 20)
/* A cell that takes longer gets a progress line. */
#define PROGRESS_MS 2000

struct held {
        struct held *next;
        struct cg_event *event;
        size_t bytes;
};

struct text {
        struct cg_prompt *prompt; /* NULL where there is no terminal */
        struct cg_images *images;
        struct cg_denied denied;
        /* APPROVAL_REQUEST, EGRESS_REQUEST or INPUT_REQUEST that the question is about */
        struct cg_event *asked;
        struct cg_call call;
        struct held *held, **held_tail;
        size_t held_bytes;
};

static struct text *text_of(struct cg_run *run)
{
        return run->output_data;
}

/* ------------------------------------------------------------------ showing */

/* Appends the string member @key. false: there is none. */
static bool content_text(struct cg_slice object, const char *key, struct cg_buf *b)
{
        struct cg_slice v;

        return cg_json_find(object, key, &v) && cg_json_string(v, b, NULL) == 0;
}

static void show_error(struct cg_run *run, struct cg_slice content)
{
        cg_auto_buf struct cg_buf b = { .max = SIZE_MAX - 1 };
        cg_auto_buf struct cg_buf ename = { .max = SIZE_MAX - 1 };
        struct cg_slice lines, line;
        struct cg_json_walk walk;

        if (cg_json_find(content, "traceback", &lines)) {
                cg_json_walk_init(&walk, lines, '[', NULL);
                while (cg_json_walk_next(&walk, NULL, &line, NULL) == 0)
                        if (cg_json_string(line, &b, NULL) == 0)
                                cg_buf_adds(&b, "\n", NULL);
        }
        if (!b.len) {
                content_text(content, "ename", &b);
                cg_buf_adds(&b, ": ", NULL);
                content_text(content, "evalue", &b);
        }
        content_text(content, "ename", &ename);
        cg_screen_traceback(&run->screen, b.data ? b.data : "", b.len, ename.data ? ename.data : "");
}

static int show_image(struct cg_run *run, struct cg_event *e, struct cg_err *err)
{
        cg_auto_free char *path = NULL;
        cg_auto_buf struct cg_buf b = { .max = 65536 };
        int r = cg_images_save(text_of(run)->images, e, &path, err);

        /* Cells control the data and the workspace: a failure must not end the run. */
        if (r < 0) {
                cg_screen_note(&run->screen, "image not saved: %s", err->msg);
                return 0;
        }
        r = cg_buf_addf(&b, err, "[image: %s]\n", path);
        if (r == 0)
                cg_screen_write(&run->screen, 1, b.data, b.len);
        return r;
}

/* Names the types of a bundle without text and image, so that it is not dropped silently. */
static void show_mime_types(struct cg_run *run, struct cg_slice data)
{
        cg_auto_buf struct cg_buf b = { .max = 65536 };
        struct cg_json_walk walk;
        struct cg_slice key, value;
        const char *between = "[display: ";

        cg_json_walk_init(&walk, data, '{', NULL);
        while (cg_json_walk_next(&walk, &key, &value, NULL) == 0) {
                cg_buf_adds(&b, between, NULL);
                cg_json_decode(key, &b, NULL);
                between = ", ";
        }
        if (b.len && cg_buf_adds(&b, "]\n", NULL) == 0)
                cg_screen_write(&run->screen, 1, b.data, b.len);
}

static int show_display(struct cg_run *run, struct cg_event *e, struct cg_slice content, struct cg_err *err)
{
        cg_auto_buf struct cg_buf plain = { .max = SIZE_MAX - 1 };
        bool image = cg_images_mime(e) != NULL;
        bool result = cg_event_type(e) == CG_EVENT_EXECUTE_RESULT;
        struct cg_slice data;

        if (!cg_json_find(content, "data", &data))
                return 0;
        /*
         * With an image the text is "<Figure size 640x480 with 1 Axes>": shown only where it is the
         * cell's value.
         */
        if (content_text(data, "text/plain", &plain) && (result || !image))
                cg_screen_line(&run->screen, 1, plain.data ? plain.data : "", plain.len);
        else if (!image)
                show_mime_types(run, data);
        return image ? show_image(run, e, err) : 0;
}

/* Reports ends that have shown no traceback, unless KERNEL_DIED has reported them. */
static void show_result(struct cg_run *run, const struct cg_event *e)
{
        const char *text = cg_event_text(e, NULL);
        enum cg_status st = cg_event_status(e);

        cg_run_result(run, e);
        cg_denied_forget(&text_of(run)->denied);
        if (st == CG_STATUS_OK || st == CG_STATUS_ERROR || (st == CG_STATUS_KERNEL_DIED && run->died))
                return;
        cg_screen_note(&run->screen, "cell %" PRIu64 ": %s", cg_event_cell(e),
                       *text ? text : cg_status_name(st));
}

static int show_denied(struct cg_run *run, const struct cg_event *e, struct cg_err *err)
{
        cg_auto_buf struct cg_buf b = { .max = 65536 };

        if (cg_denied_tell(&text_of(run)->denied, e, &b, err) < 0)
                return -1;
        if (b.len)
                cg_screen_note(&run->screen, "%s", b.data);
        return 0;
}

static int show(struct cg_run *run, struct cg_event *e, struct cg_err *err)
{
        struct cg_slice content = { "{}", 2 };
        const char *text;
        size_t len;

        text = cg_event_json(e, &len);
        if (cg_json_object_slice(text, len, &content, NULL) < 0)
                content = (struct cg_slice){ "{}", 2 }; /* the library has checked it */
        text = cg_event_text(e, &len);
        switch (cg_event_type(e)) {
        case CG_EVENT_STREAM:
                cg_screen_write(&run->screen, cg_event_is_stderr(e) ? 2 : 1, text, len);
                return 0;
        case CG_EVENT_DISPLAY_DATA:
        case CG_EVENT_UPDATE_DISPLAY_DATA:
        case CG_EVENT_EXECUTE_RESULT:
                return show_display(run, e, content, err);
        case CG_EVENT_ERROR:
                show_error(run, content);
                return 0;
        case CG_EVENT_RESULT:
                show_result(run, e);
                return 0;
        case CG_EVENT_DENIED:
                return show_denied(run, e, err);
        case CG_EVENT_KERNEL_DIED:
                run->died = true;
                cg_screen_note(&run->screen, "the kernel died: %s", text);
                return 0;
        case CG_EVENT_NOTICE:
        case CG_EVENT_PROGRESS:
        case CG_EVENT_SESSION_CLOSED:
                cg_screen_note(&run->screen, "%s", text);
                return 0;
        default:
                return 0;
        }
}

/* ------------------------------------------------------------------ asking */

static bool asking(const struct text *t)
{
        return t->prompt && cg_prompt_stands(t->prompt);
}

static size_t size_of(const struct cg_event *e)
{
        size_t text, json;

        cg_event_text(e, &text);
        cg_event_json(e, &json);
        return text + json + 256;
}

static int hold(struct text *t, struct cg_event *e, struct cg_err *err)
{
        struct held *h = malloc(sizeof(*h));

        if (!h) {
                cg_event_free(e);
                return cg_fail(err, CG_E_NOMEM, "events");
        }
        *h = (struct held){ .event = e, .bytes = size_of(e) };
        t->held_bytes += h->bytes;
        *t->held_tail = h;
        t->held_tail = &h->next;
        return 0;
}

static struct cg_event *unhold(struct text *t, struct held **at)
{
        struct held *h = *at;
        struct cg_event *e = h->event;

        *at = h->next;
        if (!*at)
                t->held_tail = at;
        t->held_bytes -= h->bytes;
        free(h);
        return e;
}

/* The question is closed: handles the events that were held back, up to the next question. */
static int release(struct cg_run *run, struct cg_err *err)
{
        struct text *t = text_of(run);
        int r = 0;

        t->asked = cg_event_free(t->asked);
        while (r == 0 && t->held && !asking(t))
                r = cg_run_event(run, unhold(t, &t->held), err);
        return r;
}

static int withdraw(struct cg_run *run, const char *why, struct cg_err *err)
{
        cg_prompt_withdraw(text_of(run)->prompt, why);
        return release(run, err);
}

/* Calls and connections have one series of numbers. */
static bool is_about(const struct cg_event *e, uint64_t id)
{
        enum cg_event_type type = e ? cg_event_type(e) : CG_EVENT_STREAM;

        return (type == CG_EVENT_APPROVAL_REQUEST || type == CG_EVENT_EGRESS_REQUEST) &&
               cg_event_approval(e) == id;
}

/* A call was cancelled: the one that is asked about, or one whose question is held back. */
static int approval_closed(struct cg_run *run, const struct cg_event *closed, struct cg_err *err)
{
        struct text *t = text_of(run);
        uint64_t id = cg_event_approval(closed);

        if (is_about(t->asked, id))
                return withdraw(
                        run,
                        cg_event_type(t->asked) == CG_EVENT_APPROVAL_REQUEST
                                ? "this call waits no more: its cell or its kernel has ended"
                                : "this connection waits no more: it was given up, or its time is over",
                        err);
        for (struct held **h = &t->held; *h; h = &(*h)->next) {
                if (is_about((*h)->event, id)) {
                        cg_event_free(unhold(t, h));
                        break;
                }
        }
        return 0;
}

/* The cell's question was cancelled: the open one, or one that is held back. */
static int input_closed(struct cg_run *run, const struct cg_event *closed, struct cg_err *err)
{
        struct text *t = text_of(run);

        if (cg_event_type(t->asked) == CG_EVENT_INPUT_REQUEST &&
            cg_event_cell(t->asked) == cg_event_cell(closed))
                return withdraw(
                        run,
                        "this question has ended: an interrupt or an exception has ended the cell's input()",
                        err);
        for (struct held **h = &t->held; *h; h = &(*h)->next) {
                if (cg_event_type((*h)->event) == CG_EVENT_INPUT_REQUEST &&
                    cg_event_cell((*h)->event) == cg_event_cell(closed)) {
                        cg_event_free(unhold(t, h));
                        break;
                }
        }
        return 0;
}

static int ask_connection(struct cg_run *run, const struct cg_event *e, struct cg_err *err)
{
        cg_auto_buf struct cg_buf to = { .max = 65536 };

        if (cg_connection_text(cg_event_json(e, NULL), &to, err) < 0)
                return -1;
        /* The event names no cell: whatever runs in the sandbox may have opened the connection. */
        return cg_prompt_ask_connection(text_of(run)->prompt, to.data, run->cell, err);
}

static int text_ask(struct cg_run *run, struct cg_event *e, struct cg_err *err)
{
        struct text *t = text_of(run);

        if (asking(t))
                return hold(t, e, err);
        t->asked = e;
        if (cg_event_type(e) == CG_EVENT_EGRESS_REQUEST)
                return ask_connection(run, e, err);
        t->call = (struct cg_call){ .server = cg_event_server(e),
                                    .tool = cg_event_tool(e),
                                    .cell = cg_event_cell(e) };
        t->call.args = cg_event_arguments(e, &t->call.args_len);
        return cg_prompt_ask(t->prompt, &t->call, err);
}

static int ask_input(struct cg_run *run, struct cg_event *e, struct cg_err *err)
{
        cg_auto_buf struct cg_buf prompt = { .max = SIZE_MAX - 1 };
        struct text *t = text_of(run);
        struct cg_slice content, v;
        bool password = false;
        const char *json;
        size_t len;

        json = cg_event_json(e, &len);
        if (cg_json_object_slice(json, len, &content, NULL) == 0) {
                content_text(content, "prompt", &prompt);
                password = cg_json_find(content, "password", &v) && cg_json_kind(v) == 't';
        }
        t->asked = e;
        return cg_prompt_input(t->prompt, prompt.data ? prompt.data : "", password, cg_event_cell(e), err);
}

/*
 * Whether @e ends the open question. A result ends the cell's own input(); a thread's tool call may
 * outlive its cell.
 */
static bool ends_question(const struct text *t, const struct cg_event *e)
{
        enum cg_event_type type = cg_event_type(e);

        return type == CG_EVENT_KERNEL_DIED || type == CG_EVENT_SESSION_CLOSED ||
               (type == CG_EVENT_RESULT && cg_event_type(t->asked) == CG_EVENT_INPUT_REQUEST);
}

static int text_event(struct cg_run *run, struct cg_event *e, struct cg_err *err)
{
        struct text *t = text_of(run);
        int r;

        if (asking(t) && cg_event_type(e) == CG_EVENT_APPROVAL_CLOSED) {
                r = approval_closed(run, e, err);
        } else if (asking(t) && cg_event_type(e) == CG_EVENT_INPUT_CLOSED) {
                r = input_closed(run, e, err);
        } else if (asking(t)) {
                bool ends = ends_question(t, e);

                r = hold(t, e, err);
                return r == 0 && ends
                               ? withdraw(run, "this question has ended: its cell or its kernel has ended",
                                          err)
                               : r;
        } else if (cg_event_type(e) == CG_EVENT_INPUT_REQUEST && t->prompt) {
                return ask_input(run, e, err);
        } else {
                r = show(run, e, err);
        }
        cg_event_free(e);
        return r;
}

static int text_decided(struct cg_run *run, const struct cg_event *e, bool accept, const char *why,
                        struct cg_err *err)
{
        cg_auto_buf struct cg_buf names = { .max = 65536 };

        if (accept && run->opts.kernel.log_level < 2)
                return 0;
        if (cg_name_render(&names, cg_event_server(e), err) < 0 || cg_buf_adds(&names, ".", err) < 0 ||
            cg_name_render(&names, cg_event_tool(e), err) < 0)
                return -1;
        if (accept)
                cg_screen_note(&run->screen, "%s was accepted by an approval rule", names.data);
        else
                cg_screen_note(&run->screen, "%s was refused: %s", names.data, why);
        return 0;
}

/* A held request is decided again when its turn comes, and by then the answer may be "always". */
static int answer_call(struct cg_run *run, enum cg_answer answer, struct cg_err *err)
{
        struct text *t = text_of(run);
        const char *reason = answer == CG_ANSWER_NO ? cg_prompt_text(t->prompt, NULL) : NULL;
        int r = 0;

        if (answer == CG_ANSWER_ALWAYS)
                r = cg_approve_always(run->opts.kernel.approve, t->call.server, t->call.tool, err);
        if (r == 0)
                r = cg_run_answer(run, cg_event_approval(t->asked), answer != CG_ANSWER_NO,
                                  reason ? reason : "refused at the terminal", err);
        return r < 0 ? r : release(run, err);
}

static int answer_connection(struct cg_run *run, enum cg_answer answer, struct cg_err *err)
{
        static const char refused[] = "refused at the terminal";
        enum cg_egress_decision d = answer == CG_ANSWER_YES       ? CG_EGRESS_ALLOW_ONCE
                                    : answer == CG_ANSWER_SESSION ? CG_EGRESS_ALLOW_SESSION
                                    : answer == CG_ANSWER_NEVER   ? CG_EGRESS_DENY_SESSION
                                                                  : CG_EGRESS_DENY_ONCE;
        int r = cg_run_answer_egress(run, cg_event_approval(text_of(run)->asked), d, refused, err);

        return r < 0 ? r : release(run, err);
}

static int answer_input(struct cg_run *run, enum cg_answer answer, struct cg_err *err)
{
        size_t len;
        const char *text = cg_prompt_text(text_of(run)->prompt, &len);
        int r = cg_session_input(run->session, answer == CG_ANSWER_TEXT ? text : NULL, len, err);

        if (r == CG_E_STATE)
                r = 0; /* the cell ended meanwhile */
        return r < 0 ? r : release(run, err);
}

static int text_readable(struct cg_run *run, struct cg_err *err)
{
        struct text *t = text_of(run);
        enum cg_answer answer;
        int r;

        if (!asking(t)) /* ^C has closed the question in the same turn */
                return 0;
        r = cg_prompt_read(t->prompt, &answer, err);
        if (r < 0 || answer == CG_ANSWER_NONE)
                return r;
        if (cg_event_type(t->asked) == CG_EVENT_INPUT_REQUEST)
                return answer_input(run, answer, err);
        if (cg_event_type(t->asked) == CG_EVENT_EGRESS_REQUEST)
                return answer_connection(run, answer, err);
        return answer_call(run, answer, err);
}

static void text_interrupted(struct cg_run *run)
{
        struct text *t = text_of(run);

        if (!asking(t))
                return;
        if (cg_event_type(t->asked) == CG_EVENT_APPROVAL_REQUEST)
                cg_run_answer(run, cg_event_approval(t->asked), false, "cancelled", NULL);
        else if (cg_event_type(t->asked) == CG_EVENT_EGRESS_REQUEST)
                cg_run_answer_egress(run, cg_event_approval(t->asked), CG_EGRESS_DENY_ONCE, "cancelled",
                                     NULL);
        withdraw(run, "cancelled", NULL);
}

/* ------------------------------------------------------------------ start, loop and end */

static int text_opened(struct cg_run *run, struct cg_err *err)
{
        (void)run;
        (void)err;
        return 0;
}

static int text_servers(struct cg_run *run, const char *report, struct cg_err *err)
{
        (void)err;
        cg_report_tell_servers(&run->screen, report, run->opts.kernel.log_level >= 2);
        return 0;
}

static void text_wait(struct cg_run *run, int *fd, bool *events_too, int *timeout_ms)
{
        struct text *t = text_of(run);

        *fd = asking(t) ? cg_prompt_fd(t->prompt) : -1;
        *events_too = t->held_bytes < MAX_HELD;
        *timeout_ms = asking(t) ? cg_prompt_timeout(t->prompt) : -1;
}

static int text_tick(struct cg_run *run, struct cg_err *err)
{
        int64_t ms = cg_now_ms() - run->started_ms;
        char line[160];

        if (asking(text_of(run)))
                return cg_prompt_due(text_of(run)->prompt, err);
        if (ms < PROGRESS_MS)
                return 0;
        snprintf(line, sizeof(line), CG_MARK " cell %zu of %zu, %" PRId64 " s, %zu pending", run->index + 1,
                 run->opts.cells.n, ms / 1000, run->opts.cells.n - run->index - 1);
        cg_screen_progress(&run->screen, line);
        return 0;
}

static void text_abandon(const struct cg_run *run)
{
        const struct text *t = run->output_data;

        if (t->prompt)
                cg_prompt_abandon(t->prompt);
}

static void text_failed(struct cg_run *run, const struct cg_err *err, int status)
{
        (void)status;
        cg_screen_clear(&run->screen);
        cg_cli_fail("run", err);
}

static void text_free(struct cg_run *run)
{
        struct text *t = text_of(run);

        if (asking(t))
                cg_prompt_withdraw(t->prompt, "this call waits no more: the run has ended");
        while (t->held)
                cg_event_free(unhold(t, &t->held));
        cg_event_free(t->asked);
        cg_denied_forget(&t->denied);
        cg_prompt_free(t->prompt);
        cg_images_free(t->images);
        free(t);
        run->output_data = NULL;
}

static const struct cg_run_output text_output = {
        .opened = text_opened,
        .servers = text_servers,
        .event = text_event,
        .decided = text_decided,
        .ask = text_ask,
        .interrupted = text_interrupted,
        .wait = text_wait,
        .readable = text_readable,
        .tick = text_tick,
        .abandon = text_abandon,
        .failed = text_failed,
        .free = text_free,
};

/* Without a person to ask, calls that no rule decides are refused. */
static int find_terminal(struct cg_run *run, struct text *t, struct cg_err *err)
{
        int r = cg_prompt_open(&run->screen, &t->prompt, err);

        if (r < 0 && r != CG_E_UNSUPPORTED)
                return r;
        run->allow_stdin = t->prompt && cg_prompt_is_interactive(t->prompt);
        cg_approve_set_default(run->opts.kernel.approve,
                               run->allow_stdin ? CG_APPROVE_ASK : CG_APPROVE_REFUSE);
        if (cg_approve_base(run->opts.kernel.approve) == CG_APPROVE_ASK && !t->prompt)
                return cg_fail(err, CG_E_UNSUPPORTED,
                               "--approve ask: there is no terminal to ask at; give rules for the tools that "
                               "may run, or use --json");
        run->can_ask = run->allow_stdin || cg_approve_base(run->opts.kernel.approve) == CG_APPROVE_ASK;
        return 0;
}

int cg_run_text_init(struct cg_run *run, struct cg_err *err)
{
        struct text *t = calloc(1, sizeof(*t));

        if (!t)
                return cg_fail(err, CG_E_NOMEM, "run");
        t->held_tail = &t->held;
        run->output_data = t;
        run->output = &text_output;
        if (cg_images_new(run->opts.kernel.images ? run->opts.kernel.images : "images", &t->images, err) < 0)
                return -1;
        return find_terminal(run, t, err);
}
