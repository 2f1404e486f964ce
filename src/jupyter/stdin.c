/*
 * Questions to people: of input(), and whether a tool call may run. A client answers in the order
 * of the questions, and most answers do not name their question; so cancelled questions are kept
 * until their answer comes, and a late answer to one never allows the call of another. Runs in
 * `cellgate jupyter`.
 *
 * The box of a question looks like that of input(), and may appear while the user is typing. So an
 * answer about a call that arrives before a person can have read the question is ignored, and the
 * question is asked again. The accepting words contain digits (base/confirm.h).
 */
#include "jupyter/internal.h"

#include "base/json.h"
#include "base/text.h"

#define END_OF_FILE "\x04"
#define REFUSED     "refused by the person at the notebook"
#define MAX_HOST    300
/* Limit of answers that come too early, for clients that answer automatically. */
#define MAX_EARLY 10
#define TOO_EARLY "refused: every answer came before a person could have read the question"
#define BLANKS    " \t\r\n"

/* ------------------------------------------------------------------ questions */

static bool copy_id(struct cg_slice id, struct cg_slice *ret)
{
        char *p = malloc(id.len + 1);

        if (!p)
                return false;
        memcpy(p, id.p, id.len);
        *ret = (struct cg_slice){ p, id.len };
        return true;
}

static void remove_asked(struct front *f, struct sent_question *a)
{
        TAILQ_REMOVE(&f->questions.asked, a, link);
        f->questions.n_asked--;
        free((char *)(uintptr_t)a->id.p);
        free(a);
}

/* A question that was sent may still be answered; that answer will be dropped. */
static void remove_question(struct front *f, struct client_question *q)
{
        struct sent_question *a;

        TAILQ_FOREACH(a, &f->questions.asked, link)
                if (a->q == q)
                        a->q = NULL;
        TAILQ_REMOVE(&f->questions.open, q, link);
        cg_event_free(q->call);
        free((char *)(uintptr_t)q->id.p);
        free(q->content);
        free(q);
}

void cg_stdin_free(struct front *f)
{
        while (!TAILQ_EMPTY(&f->questions.open))
                remove_question(f, TAILQ_FIRST(&f->questions.open));
        while (!TAILQ_EMPTY(&f->questions.asked))
                remove_asked(f, TAILQ_FIRST(&f->questions.asked));
}

/* The host name comes from the kernel's code, so it is rendered. */
static void show_connection(const struct cg_event *e, const char *digits, struct cg_buf *text)
{
        cg_auto_json json_t *o = json_loads(cg_event_json(e, NULL), JSON_ALLOW_NUL, NULL);
        const char *host = json_string_value(json_object_get(o, "host")) ?: "?";

        cg_buf_adds(text, "[cellgate] The code wants to connect to ");
        cg_text_render(text, host, strlen(host), MAX_HOST);
        cg_buf_addf(text,
                    ", port %" JSON_INTEGER_FORMAT ".\n"
                    "[cellgate] Allow? y%s once, a%s until the kernel ends,\n"
                    "           n no, d no until the kernel ends;\n"
                    "           any other text refuses and is the reason: ",
                    json_integer_value(json_object_get(o, "port")), digits, digits);
}

static bool is_connection(const struct cg_event *e)
{
        return cg_event_type(e) == CG_EVENT_EGRESS_REQUEST;
}

/* The text of an input_request about a call, with new digits. NULL: no memory or random bytes. */
static char *call_content(struct front *f, struct client_question *q)
{
        cg_auto_buf struct cg_buf text = { .max = SIZE_MAX / 4 };
        cg_auto_buf struct cg_buf b = { .max = SIZE_MAX / 2 };
        const char *digits = q->confirm.digits;
        const struct cg_front_judge *judge = &f->o->judge;

        q->last = true;
        if (cg_confirm_draw(&q->confirm, NULL) < 0)
                return NULL;
        if (q->note)
                cg_buf_addf(&text, "[cellgate] %s\n", q->note);
        if (is_connection(q->call))
                show_connection(q->call, digits, &text);
        else if (judge->show(judge->data, q->call, q->part, q->all_shown, digits, &q->last, &text) < 0)
                return NULL;
        cg_buf_fail(&b, text.failed);
        cg_buf_adds(&b, "{\"prompt\":");
        cg_json_quote(&b, cg_buf_str(&text), text.len);
        cg_buf_adds(&b, ",\"password\":false}");
        return cg_buf_steal(&b, NULL);
}

static void send_question(struct front *f, struct client_question *q)
{
        struct cg_jout out = {
                .type = "input_request", .ids = &q->id, .n_ids = 1, .parent = q->req->msg->m.header
        };
        struct sent_question *a = NULL;
        struct cg_err err = { .msg = "out of memory" };

        q->sent = true;
        q->sent_ms = cg_now_ms();
        if (q->call) {
                free(q->content);
                q->content = call_content(f, q);
        }
        if (q->content)
                a = calloc(1, sizeof(*a));
        if (a && copy_id(q->id, &a->id)) {
                a->q = q;
                TAILQ_INSERT_TAIL(&f->questions.asked, a, link);
                f->questions.n_asked++;
        } else {
                free(CG_STEAL(a));
        }
        out.content = cg_slice_of(q->content ?: "");
        cg_iopub_flush(&f->iopub); /* what was printed before is seen before */
        if (!a || cg_jmsg_send(f->sockets.socks[CG_JSTDIN], &f->sign, &f->me, &out, a->msg_id, &err) < 0)
                cg_log(&f->o->log, CG_LOG_ERROR, "input_request could not be sent: %s", err.msg);
        cg_zsock_touch(&f->sockets.z[CG_JSTDIN]);
}

/* The open question of a client; there is at most one. */
static struct client_question *open_question(struct front *f, struct cg_slice id)
{
        struct client_question *q;

        TAILQ_FOREACH(q, &f->questions.open, link)
                if (q->sent && cg_slice_eq(q->id, id))
                        break;
        return q;
}

static void send_next(struct front *f)
{
        struct client_question *q;

        TAILQ_FOREACH(q, &f->questions.open, link)
                if (!q->sent && !open_question(f, q->id))
                        send_question(f, q);
}

/* Removes the questions of @r, or only those of its input(), or (r NULL) those about a call. */
static void remove_questions(struct front *f, const struct jreq *r, bool only_input, uint64_t approval)
{
        struct client_question *q, *next;

        for (q = TAILQ_FIRST(&f->questions.open); q; q = next) {
                next = TAILQ_NEXT(q, link);
                if (r ? q->req == r && !(only_input && q->call)
                      : q->call && cg_event_approval(q->call) == approval)
                        remove_question(f, q);
        }
        send_next(f);
}

/* About @call, or with input()'s @content. Takes @content; takes *call when it returns true. */
static bool add_question(struct front *f, struct jreq *r, struct cg_event *call, char *content)
{
        struct client_question *q = calloc(1, sizeof(*q));

        if (!q || (!call && !content) || f->questions.n_asked >= MAX_ASKED || !r->msg->m.n_ids ||
            !copy_id(cg_jmsg_frame(r->msg, 0), &q->id)) {
                free(content);
                free(q);
                return false;
        }
        q->req = r;
        q->call = call;
        q->content = content;
        TAILQ_INSERT_TAIL(&f->questions.open, q, link);
        send_next(f);
        return true;
}

void cg_stdin_request_ended(struct front *f, const struct jreq *r)
{
        remove_questions(f, r, false, 0);
}

/* ------------------------------------------------------------------ input() */

void cg_stdin_ask_input(struct front *f, struct jreq *r, const struct cg_event *e)
{
        if (add_question(f, r, NULL, strdup(cg_event_json(e, NULL))))
                return;
        cg_log(&f->o->log, CG_LOG_ERROR, "input() could not be asked for: too many questions have no answer");
        cg_session_input(f->session, NULL, 0, NULL);
}

void cg_stdin_input_closed(struct front *f, const struct jreq *r)
{
        remove_questions(f, r, true, 0);
}

/* ------------------------------------------------------------------ tool calls */

/* @lasting: of a connection, until the kernel ends. @why: of a refusal, or the accepting rule. */
static void decide(struct front *f, const struct cg_event *e, bool accept, bool lasting, const char *why)
{
        static const enum cg_egress_decision decisions[2][2] = {
                { CG_EGRESS_DENY_ONCE, CG_EGRESS_DENY_SESSION },
                { CG_EGRESS_ALLOW_ONCE, CG_EGRESS_ALLOW_SESSION },
        };
        uint64_t n = cg_event_approval(e);
        struct cg_err err;
        int r;

        if (is_connection(e))
                r = cg_egress_decide(f->session, n, decisions[accept][lasting], why, &err);
        else if (accept)
                r = cg_approval_accept_by(f->session, n, why, &err);
        else
                r = cg_approval_reject(f->session, n, why, &err);
        if (r < 0 && r != CG_E_NOTFOUND) /* cancelled meanwhile: APPROVAL_CLOSED follows */
                cg_log(&f->o->log, CG_LOG_ERROR, "decision %" PRIu64 ": %s", n, err.msg);
}

/* Asks the client whose cell makes the call, if it can show a question. Takes @e when true. */
static bool ask_call(struct front *f, struct jreq *r, struct cg_event *e)
{
        if (!r || r->spec->kind != KIND_EXECUTE || !r->allow_stdin)
                return false;
        return add_question(f, r, e, NULL);
}

/* True if other clients can decide: it stays open until they do. Takes @e when true. */
static bool left_to_others(struct front *f, struct cg_event *e)
{
        if (!f->o->session || (f->o->session->deciders != CG_DECIDERS_USER && !f->o->session->approvers))
                return false;
        cg_event_free(e);
        return true;
}

void cg_stdin_judge(struct front *f, struct jreq *r, struct cg_event *e)
{
        cg_auto_buf struct cg_buf why = { .max = 65536 };
        enum cg_front_answer answer = f->o->judge.decide(f->o->judge.data, e, &why);
        bool connection = is_connection(e);

        if (answer == CG_FRONT_ASK) {
                cg_approval_share(f->session, cg_event_approval(e), NULL);
                if (ask_call(f, r, e) || left_to_others(f, e))
                        return;
                if (connection)
                        cg_buf_adds(
                                &why,
                                "nobody could be asked, since no cell runs whose client shows questions; the sandbox settings"
                                " can allow it");
                else
                        f->o->judge.nobody(f->o->judge.data, e, &why);
        }
        decide(f, e, answer == CG_FRONT_ACCEPT, false, why.data);
        cg_event_free(e);
}

void cg_stdin_call_closed(struct front *f, uint64_t approval)
{
        remove_questions(f, NULL, false, approval);
}

static bool is_word(const char *typed, const char *letter, const char *word)
{
        return strcasecmp(typed, letter) == 0 || strcasecmp(typed, word) == 0;
}

static void ask_again(struct front *f, struct client_question *q, const char *note)
{
        q->note = note;
        send_question(f, q);
}

/* ------------------------------------------------------------------ answers */

/* The accepting letter that @typed begins with, with or without digits: 'y', 's', 'a' or 0. */
static char accepting_letter(const char *typed)
{
        size_t n = strcspn(typed, " 0123456789");
        cg_auto_free char *word = strndup(typed, n);

        if (!word || strspn(typed + n, " 0123456789") != strlen(typed + n))
                return 0;
        if (is_word(word, "y", "yes"))
                return 'y';
        if (is_word(word, "s", "same"))
                return 's';
        return is_word(word, "a", "always") ? 'a' : 0;
}

/* Why an answer with an accepting word does not accept; NULL: it does. */
static const char *not_accepted(const struct front *f, const struct client_question *q, const char *typed)
{
        if (!q->all_shown)
                return "Yes counts once all was shown: please type v.";
        if (accepting_letter(typed) == 'a' && !is_connection(q->call) &&
            !f->o->judge.may_last(f->o->judge.data, q->call))
                return "Cells can change this program: it is asked about each time.";
        if (accepting_letter(typed) == 's' &&
            (is_connection(q->call) || !f->o->judge.may_repeat(f->o->judge.data, q->call)))
                return "Please type one of the answers.";
        if (!cg_confirm_accepts(&q->confirm, typed, "y", "yes") &&
            !cg_confirm_accepts(&q->confirm, typed, "s", "same") &&
            !cg_confirm_accepts(&q->confirm, typed, "a", "always"))
                return "Please type the digits as well: they are new for each question.";
        return NULL;
}

/* An answer about a call or connection. Text that is none of the words refuses, as the reason. */
static void answer_call(struct front *f, struct client_question *q, const char *typed)
{
        bool early = cg_now_ms() - q->sent_ms < CG_CONFIRM_READ_MS, connection = is_connection(q->call);
        bool once = cg_confirm_accepts(&q->confirm, typed, "y", "yes"),
             same = cg_confirm_accepts(&q->confirm, typed, "s", "same"),
             always = same || cg_confirm_accepts(&q->confirm, typed, "a", "always");
        bool no = !*typed || is_word(typed, "n", "no") || strcmp(typed, END_OF_FILE) == 0,
             never = connection && is_word(typed, "d", "never");
        const char *reason = no || never ? REFUSED : typed, *note;
        struct cg_event *e;

        if (early && ++q->early <= MAX_EARLY) {
                ask_again(f, q, "Your answer came before you could have read the question: it was ignored.");
                return;
        }
        q->all_shown = q->all_shown || (q->last && !early);
        note = !early && accepting_letter(typed) ? not_accepted(f, q, typed) : NULL;
        if (note) {
                ask_again(f, q, note);
                return;
        }
        if (!early && !connection && is_word(typed, "v", "view")) {
                q->part = q->part && q->last ? 1 : q->part + 1;
                ask_again(f, q, NULL);
                return;
        }
        e = CG_STEAL(q->call);
        remove_question(f, q);
        if (early) {
                decide(f, e, false, false, TOO_EARLY);
        } else {
                if (always && !connection)
                        f->o->judge.always(f->o->judge.data, e, same);
                if ((once || always) && !connection)
                        f->o->judge.accepted(f->o->judge.data, e);
                else if (!connection)
                        f->o->judge.refused(f->o->judge.data, e);
                decide(f, e, once || always, always || never, once || always ? NULL : reason);
        }
        cg_event_free(e);
}

static void take_answer(struct front *f, struct client_question *q, const char *value, size_t len)
{
        cg_auto_free char *typed = NULL;
        struct cg_err err;

        if (!q->call) {
                if (value && strcmp(value, END_OF_FILE) == 0)
                        value = NULL;
                remove_question(f, q);
                if (cg_session_input(f->session, value, value ? len : 0, &err) == CG_E_LIMIT) {
                        cg_log(&f->o->log, CG_LOG_WARN, "%s", err.msg);
                        cg_session_input(f->session, NULL, 0, NULL);
                }
                return;
        }
        value = value ?: "";
        value += strspn(value, BLANKS);
        len = strlen(value);
        while (len && strchr(BLANKS, value[len - 1]))
                len--;
        typed = strndup(value, len);
        answer_call(f, q, typed ?: "");
}

static void on_reply(struct front *f, const struct cg_jmsg *msg, const json_t *parent, const json_t *content)
{
        const char *name = json_string_value(json_object_get(parent, "msg_id"));
        const json_t *value = json_object_get(content, "value");
        struct cg_slice id = cg_jmsg_frame(msg, 0);
        struct client_question *q;
        struct sent_question *a;

        /*
         * The name of the input_request. Some clients name the cell's request instead, which is as
         * good as no name. Any other name is of a question that was answered before, and matches
         * none.
         */
        TAILQ_FOREACH(q, &f->questions.open, link)
                if (name && strcmp(q->req->msg->m.id, name) == 0)
                        name = NULL;
        /* Without a name: the client's oldest unanswered question. */
        a = TAILQ_FIRST(&f->questions.asked);
        while (a && !(cg_slice_eq(a->id, id) && (!name || strcmp(a->msg_id, name) == 0)))
                a = TAILQ_NEXT(a, link);
        if (!a)
                return;
        q = a->q;
        remove_asked(f, a);
        if (!q && !name) {
                /*
                 * The answer may belong to a cancelled question. input() accepts it, since after an
                 * interrupt the user has no other chance to answer. The question about a call is
                 * sent again: an old "y" must not allow the call.
                 */
                q = open_question(f, id);
                if (q && q->call) {
                        send_question(f, q);
                        q = NULL;
                }
        }
        if (q)
                take_answer(f, q, json_string_value(value), json_string_length(value));
        send_next(f);
}

void cg_stdin_readable(struct cg_zsock *z)
{
        struct front *f = z->data;
        cg_auto_json json_t *parent = NULL, *content = NULL;
        struct cg_jmsg *msg;

        if (cg_front_receive(f, CG_JSTDIN, &msg) != 0)
                return;
        if (strcmp(msg->m.type, "input_reply") == 0 && !msg->m.bad[0] && msg->m.n_ids && f->state == READY) {
                parent = json_loadb(msg->m.parent.p, msg->m.parent.len, JSON_ALLOW_NUL, NULL);
                content = json_loadb(msg->m.content.p, msg->m.content.len, JSON_ALLOW_NUL, NULL);
                on_reply(f, msg, parent, content);
        }
        cg_jmsg_free(msg);
}
