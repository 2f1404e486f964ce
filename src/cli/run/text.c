/*
 * `cellgate run` for people: output as it comes, questions at the terminal. Runs in the command
 * `cellgate`.
 *
 * While a question is open nothing is shown: events are held back, in order, and only those that
 * end the question are handled.
 */
#include "cli/run/run.h"

#include "cli/common/args.h"
#include "cli/common/events.h"
#include "cli/common/images.h"
#include "cli/common/policy_rule.h"
#include "cli/common/prompt.h"
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
        struct cg_denial_reports denials;
        int64_t progress_ms; /* when progress of a call was shown */
        /* APPROVAL_REQUEST, EGRESS_REQUEST or INPUT_REQUEST that the question is about */
        struct cg_event *asked;
        struct cg_call call;
        char *rule; /* that the question offers to add to a file of --policy; NULL: none */
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
                                cg_buf_adds(&b, "\n");
        }
        if (!b.len) {
                content_text(content, "ename", &b);
                cg_buf_adds(&b, ": ");
                content_text(content, "evalue", &b);
        }
        content_text(content, "ename", &ename);
        cg_screen_traceback(&run->screen, b.data ?: "", b.len, ename.data ?: "");
}

static void show_display(struct cg_run *run, struct cg_event *e, struct cg_slice content)
{
        cg_auto_buf struct cg_buf plain = { .max = SIZE_MAX - 1 }, ours = { .max = 65536 };
        bool image = cg_images_mime(e) != NULL;
        bool result = cg_event_type(e) == CG_EVENT_EXECUTE_RESULT;
        struct cg_slice data, key, value;
        cg_auto_free char *path = NULL;
        const char *between = "[display: ";
        struct cg_json_walk walk;
        struct cg_err err;

        if (!cg_json_find(content, "data", &data))
                return;
        /* With an image "<Figure size 640x480 with 1 Axes>" is shown only as the cell's value. */
        if (content_text(data, "text/plain", &plain) && (result || !image)) {
                cg_screen_line(&run->screen, 1, plain.data ?: "", plain.len);
        } else if (!image) {
                /* Name the types, so that the display is not dropped silently. */
                cg_json_walk_init(&walk, data, '{', NULL);
                while (cg_json_walk_next(&walk, &key, &value, NULL) == 0) {
                        cg_buf_adds(&ours, between);
                        cg_json_decode(key, &ours, NULL);
                        between = ", ";
                }
                if (ours.len)
                        cg_buf_adds(&ours, "]\n");
        }
        /* Cells control the data and the workspace: a failure must not end the run. */
        if (image && cg_images_save(text_of(run)->images, e, &path, &err) < 0)
                cg_screen_note(&run->screen, "image not saved: %s", err.msg);
        else if (image)
                cg_buf_addf(&ours, "[image: %s]\n", path);
        if (cg_buf_end(&ours, NULL) == 0)
                cg_screen_write(&run->screen, 1, ours.data, ours.len);
}

/* True for progress of a server; a note of cellgate about a silent call has no number. */
static bool is_call_progress(const struct cg_event *e)
{
        struct cg_slice number;

        return cg_event_type(e) == CG_EVENT_PROGRESS &&
               cg_json_find(cg_slice_of(cg_event_json(e, NULL)), "progress", &number);
}

static int show(struct cg_run *run, struct cg_event *e, struct cg_err *err)
{
        cg_auto_buf struct cg_buf b = { .max = 65536 };
        enum cg_status status = cg_event_status(e);
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
                show_display(run, e, content);
                return 0;
        case CG_EVENT_ERROR:
                show_error(run, content);
                return 0;
        case CG_EVENT_RESULT:
                cg_run_result(run, e);
                cg_denial_reports_clear(&text_of(run)->denials);
                /* A traceback or KERNEL_DIED has reported the others. */
                if (status != CG_STATUS_OK && status != CG_STATUS_ERROR &&
                    (status != CG_STATUS_KERNEL_DIED || !run->died))
                        cg_screen_note(&run->screen, "cell %" PRIu64 ": %s", cg_event_cell(e),
                                       cg_text_or(text, cg_status_name(status)));
                cg_artifacts_text(e, "made or changed:", NULL, &b);
                for (char *line = b.data, *end; line && (end = strchr(line, '\n')); line = end + 1) {
                        *end = '\0';
                        cg_screen_note(&run->screen, "%s", line);
                }
                return cg_buf_end(&b, err);
        case CG_EVENT_DENIED:
                cg_denial_reports_add(&text_of(run)->denials, e, &b);
                if (b.len)
                        cg_screen_note(&run->screen, "%s", b.data);
                return cg_buf_end(&b, err);
        case CG_EVENT_PROGRESS:
                if (is_call_progress(e)) {
                        cg_screen_progress(&run->screen, text);
                        text_of(run)->progress_ms = cg_now_ms();
                        return 0;
                }
                /* fall through */
        case CG_EVENT_NOTICE:
        case CG_EVENT_SESSION_CLOSED:
                cg_screen_note(&run->screen, "%s", text);
                return 0;
        case CG_EVENT_KERNEL_DIED:
                run->died = true;
                cg_screen_note(&run->screen, "the kernel died: %s", text);
                return 0;
        default:
                return cg_event_refuse(run->session, e, "`cellgate run` cannot ask this", err);
        }
}

/* ------------------------------------------------------------------ asking */

static bool asking(const struct text *t)
{
        return t->prompt && cg_prompt_is_open(t->prompt);
}

static int hold(struct text *t, struct cg_event *e, struct cg_err *err)
{
        struct held *h = malloc(sizeof(*h));
        size_t text, json;

        if (!h) {
                cg_event_free(e);
                return cg_fail(err, CG_E_NOMEM, "events");
        }
        cg_event_text(e, &text);
        cg_event_json(e, &json);
        *h = (struct held){ .event = e, .bytes = text + json + 256 };
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
                r = cg_run_event(run, unhold(t, &t->held), true, err);
        return r;
}

static int withdraw(struct cg_run *run, const char *why, struct cg_err *err)
{
        cg_prompt_withdraw(text_of(run)->prompt, why);
        return release(run, err);
}

/* True if @closed, APPROVAL_CLOSED or INPUT_CLOSED, cancels the question @e (may be NULL). */
static bool is_closed_by(const struct cg_event *e, const struct cg_event *closed)
{
        if (!e)
                return false;
        if (cg_event_type(closed) == CG_EVENT_INPUT_CLOSED)
                return cg_event_type(e) == CG_EVENT_INPUT_REQUEST &&
                       cg_event_cell(e) == cg_event_cell(closed);
        /* Questions have one series of numbers; other events have the number 0. */
        return cg_event_approval(e) == cg_event_approval(closed);
}

/* The open question was cancelled. */
static int withdraw_closed(struct cg_run *run, const struct cg_event *closed, struct cg_err *err)
{
        cg_auto_buf struct cg_buf why = { .max = 8192 };
        bool connection = cg_event_type(text_of(run)->asked) == CG_EVENT_EGRESS_REQUEST;

        if (cg_event_type(closed) == CG_EVENT_INPUT_CLOSED)
                return withdraw(run,
                                "this question has ended: an interrupt or an exception has ended the cell's"
                                " input()",
                                err);
        cg_buf_addf(&why, "this %s waits no more: %s", connection ? "connection" : "call",
                    cg_event_text(closed, NULL));
        if (cg_buf_end(&why, err) < 0)
                return -1;
        return withdraw(run, why.data, err);
}

/* A question was cancelled: the open one, or one that is held back. */
static int question_closed(struct cg_run *run, const struct cg_event *closed, struct cg_err *err)
{
        struct text *t = text_of(run);

        if (is_closed_by(t->asked, closed))
                return withdraw_closed(run, closed, err);
        for (struct held **h = &t->held; *h; h = &(*h)->next) {
                if (is_closed_by((*h)->event, closed)) {
                        cg_event_free(unhold(t, h));
                        break;
                }
        }
        return 0;
}

/* Where files of --policy were given, and one more rule would accept this call alone. */
static void offer_rule(struct cg_run *run)
{
        struct text *t = text_of(run);
        struct cg_pol_call call = cg_call_of(t->asked);
        struct cg_err err;

        free(CG_STEAL(t->rule));
        if (cg_approve_has_arguments(call.method) &&
            cg_policy_rule_find(&run->opts.kernel, run->settings, &call, &t->rule, &t->call.rule_file,
                                &err) == 0)
                t->call.rule = t->rule;
}

static int text_ask(struct cg_run *run, struct cg_event *e, struct cg_err *err)
{
        cg_auto_buf struct cg_buf to = { .max = 65536 };
        struct text *t = text_of(run);

        if (asking(t))
                return hold(t, e, err);
        if (cg_event_type(e) != CG_EVENT_EGRESS_REQUEST && cg_event_type(e) != CG_EVENT_APPROVAL_REQUEST) {
                int r = show(run, e, err);

                cg_event_free(e);
                return r;
        }
        if (!t->prompt) { /* --decide-elsewhere, or it would have been refused */
                cg_screen_note(&run->screen, "a question waits for your decision%s",
                               run->opts.kernel.deciders.elsewhere ? ": cellgate approvals list"
                                                                   : " in an MCP client");
                cg_event_free(e);
                return 0;
        }
        t->asked = e;
        if (cg_event_type(e) == CG_EVENT_EGRESS_REQUEST) {
                cg_connection_text(cg_event_json(e, NULL), &to);
                if (cg_buf_end(&to, err) < 0)
                        return -1;
                /* The event names no cell: any code in the sandbox may have connected. */
                return cg_prompt_ask_connection(t->prompt, to.data, run->cell, err);
        }
        t->call = cg_call_asked(e);
        offer_rule(run);
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
        return cg_prompt_input(t->prompt, prompt.data ?: "", password, cg_event_cell(e), err);
}

static int text_event(struct cg_run *run, struct cg_event *e, struct cg_err *err)
{
        struct text *t = text_of(run);
        enum cg_event_type type = cg_event_type(e);
        bool ends;
        int r = 0;

        if (!asking(t)) {
                if (type == CG_EVENT_INPUT_REQUEST && t->prompt)
                        return ask_input(run, e, err);
                r = show(run, e, err);
        } else if (type == CG_EVENT_APPROVAL_CLOSED || type == CG_EVENT_INPUT_CLOSED) {
                r = question_closed(run, e, err);
        } else if (!is_call_progress(e)) { /* out of date once the question has its answer */
                /* A result ends the cell's input(); a thread's tool call may outlive its cell. */
                ends = type == CG_EVENT_KERNEL_DIED || type == CG_EVENT_SESSION_CLOSED ||
                       (type == CG_EVENT_RESULT && cg_event_type(t->asked) == CG_EVENT_INPUT_REQUEST);
                if (hold(t, e, err) < 0)
                        return -1;
                if (!ends)
                        return 0;
                return withdraw(run, "this question has ended: its cell or its kernel has ended", err);
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
        cg_approve_name(&names, cg_event_server(e), cg_event_method(e), cg_call_subject(e));
        if (cg_buf_end(&names, err) < 0)
                return -1;
        if (accept)
                cg_screen_note(&run->screen, "%s was accepted by an approval rule", names.data);
        else
                cg_screen_note(&run->screen, "%s was refused: %s", names.data, why);
        return 0;
}

/* Answers to the question that is open, about t->asked. */
static const char refused[] = "refused at the terminal";

static int answer_input(struct cg_run *run, enum cg_prompt_answer answer, struct cg_err *err)
{
        const char *typed = NULL;
        size_t len = 0;
        int r;

        if (answer == CG_ANSWER_TEXT)
                typed = cg_prompt_text(text_of(run)->prompt, &len);
        r = cg_session_input(run->session, typed, len, err);
        return r == CG_E_STATE ? 0 : r; /* the cell ended meanwhile */
}

static int answer_connection(struct cg_run *run, enum cg_prompt_answer answer, struct cg_err *err)
{
        const struct cg_event *asked = text_of(run)->asked;
        uint64_t request = cg_event_approval(asked);
        int r;

        if (answer == CG_ANSWER_SESSION)
                r = cg_egress_decide(run->session, request, CG_EGRESS_ALLOW_SESSION, NULL, err);
        else if (answer == CG_ANSWER_NEVER)
                r = cg_egress_decide(run->session, request, CG_EGRESS_DENY_SESSION, refused, err);
        else
                r = cg_run_answer(run, asked, answer == CG_ANSWER_YES,
                                  answer == CG_ANSWER_YES ? NULL : refused, err);
        return r == CG_E_NOTFOUND ? 0 : r;
}

/* The session goes on with the other rules as they were at its start. */
static int write_rule(struct cg_run *run, const struct cg_pol_call *call, struct cg_err *err)
{
        const char *file = text_of(run)->call.rule_file;
        struct cg_err why;

        if (cg_policy_rule_write(&run->opts.kernel, run->settings, call, file, &why) < 0) {
                cg_screen_note(&run->screen, "no rule was added, and the call is accepted once: %s", why.msg);
                return 0;
        }
        cg_screen_note(&run->screen, "the rule was added to %s", file);
        return cg_approve_ruled(run->opts.kernel.approve, call, err);
}

static int answer_call(struct cg_run *run, enum cg_prompt_answer answer, struct cg_err *err)
{
        struct text *t = text_of(run);
        struct cg_approve *rules = run->opts.kernel.approve;
        struct cg_pol_call call = cg_call_of(t->asked);
        const char *reason = NULL;

        /* A held request is decided again in its turn, and by then the answer may be "always". */
        if (answer == CG_ANSWER_ALWAYS &&
            cg_approve_always(rules, t->call.server, t->call.method, cg_call_subject(t->asked), err) < 0)
                return -1;
        if (answer == CG_ANSWER_SAME && cg_approve_always_same(rules, &call, err) < 0)
                return -1;
        if (answer == CG_ANSWER_RULE && write_rule(run, &call, err) < 0)
                return -1;
        if (answer != CG_ANSWER_NO)
                cg_approve_accepted(rules, &call);
        if (answer == CG_ANSWER_NO) {
                reason = cg_prompt_text(t->prompt, NULL) ?: refused;
                cg_approve_refused(rules, &call);
        }
        return cg_run_answer(run, t->asked, answer != CG_ANSWER_NO, reason, err);
}

static int text_readable(struct cg_run *run, struct cg_err *err)
{
        struct text *t = text_of(run);
        enum cg_prompt_answer answer;
        int r;

        if (!asking(t)) /* ^C has closed the question in the same turn */
                return 0;
        r = cg_prompt_read(t->prompt, &answer, err);
        if (r < 0 || answer == CG_ANSWER_NONE)
                return r;
        switch (cg_event_type(t->asked)) {
        case CG_EVENT_INPUT_REQUEST:
                r = answer_input(run, answer, err);
                break;
        case CG_EVENT_EGRESS_REQUEST:
                r = answer_connection(run, answer, err);
                break;
        default:
                r = answer_call(run, answer, err);
        }
        if (r < 0)
                return r;
        return release(run, err);
}

static void text_interrupted(struct cg_run *run)
{
        struct text *t = text_of(run);

        if (!asking(t))
                return;
        if (cg_event_type(t->asked) != CG_EVENT_INPUT_REQUEST) /* the interrupt ends input() */
                cg_event_refuse(run->session, t->asked, "cancelled", NULL);
        withdraw(run, "cancelled", NULL);
}

/* ------------------------------------------------------------------ start, loop and end */

static int text_servers(struct cg_run *run, const char *report, struct cg_err *err)
{
        cg_report_print_servers(&run->screen, report, run->opts.kernel.log_level >= 2);
        return 0;
}

static int text_note(struct cg_run *run, const char *text, struct cg_err *err)
{
        cg_screen_note(&run->screen, "%s", text);
        return 0;
}

static void text_wait(struct cg_run *run, int *fd, bool *events_too, int *timeout_ms)
{
        struct text *t = text_of(run);

        *fd = *timeout_ms = -1;
        *events_too = t->held_bytes < MAX_HELD;
        if (asking(t)) {
                *fd = cg_prompt_fd(t->prompt);
                *timeout_ms = cg_prompt_timeout(t->prompt);
        }
}

static int text_tick(struct cg_run *run, struct cg_err *err)
{
        int64_t ms = cg_now_ms() - run->started_ms;
        char line[160];

        if (asking(text_of(run)))
                return cg_prompt_due(text_of(run)->prompt, err);
        if (ms < PROGRESS_MS || cg_now_ms() - text_of(run)->progress_ms < PROGRESS_MS)
                return 0;
        snprintf(line, sizeof(line), "cell %zu of %zu, %" PRId64 " s", run->index + 1, run->opts.cells.n,
                 ms / 1000);
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
        cg_denial_reports_clear(&t->denials);
        cg_prompt_free(t->prompt);
        cg_images_free(t->images);
        free(t->rule);
        free(t);
        run->output_data = NULL;
}

static const struct cg_run_output text_output = {
        .servers = text_servers,
        .note = text_note,
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

int cg_run_text_init(struct cg_run *run, struct cg_err *err)
{
        struct cg_approve *rules = run->opts.kernel.approve;
        bool elsewhere = cg_kernel_options_shares(&run->opts.kernel);
        struct text *t = calloc(1, sizeof(*t));
        int r;

        if (!t)
                return cg_fail(err, CG_E_NOMEM, "run");
        t->held_tail = &t->held;
        run->output_data = t;
        run->output = &text_output;
        if (cg_images_new(run->opts.kernel.images ?: "images", &t->images, err) < 0)
                return -1;
        /* Without a person to ask, calls that no rule decides are refused. */
        r = cg_prompt_open(&run->screen, &t->prompt, err);
        if (r < 0 && r != CG_E_UNSUPPORTED)
                return r;
        run->allow_stdin = t->prompt && cg_prompt_is_interactive(t->prompt);
        cg_approve_set_default(rules, run->allow_stdin || elsewhere ? CG_APPROVE_ASK : CG_APPROVE_REFUSE);
        if (cg_approve_base(rules) == CG_APPROVE_ASK && !t->prompt && !elsewhere)
                return cg_fail(
                        err, CG_E_UNSUPPORTED,
                        "--approve ask: there is no terminal for questions; give rules for the tools that "
                        "may run, or use --json");
        cg_approve_set_mute(rules, !t->prompt && !elsewhere);
        run->can_ask = run->allow_stdin || cg_approve_base(rules) == CG_APPROVE_ASK;
        return 0;
}
