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

#include <inttypes.h>
#include <string.h>
#include <strings.h>
#include "base/json.h"
#include "base/util.h"

#define END_OF_FILE "\x04"
#define REFUSED     "refused by the person at the notebook"
#define MAX_HOST    300
/* Limit of answers that come too early, for clients that answer automatically. */
#define MAX_EARLY 10
#define TOO_EARLY "refused: every answer came before a person could have read the question"

/* ------------------------------------------------------------------ questions */

static bool same_id(struct cg_slice a, struct cg_slice b)
{
        return a.len == b.len && memcmp(a.p, b.p, a.len) == 0;
}

static bool copy_id(struct cg_slice id, struct cg_slice *ret)
{
        char *p = malloc(id.len + 1);

        if (!p)
                return false;
        memcpy(p, id.p, id.len);
        *ret = (struct cg_slice){ p, id.len };
        return true;
}

static void remove_asked(struct front *f, struct asked *a)
{
        for (struct asked **p = &f->asked; *p; p = &(*p)->next) {
                if (*p == a) {
                        *p = a->next;
                        f->n_asked--;
                        free((char *)(uintptr_t)a->id.p);
                        free(a);
                        return;
                }
        }
}

/* A question that was sent may still be answered; that answer will be dropped. */
static void remove_question(struct front *f, struct question *q)
{
        for (struct asked *a = f->asked; a; a = a->next)
                if (a->q == q)
                        a->q = NULL;
        for (struct question **p = &f->questions; *p; p = &(*p)->next) {
                if (*p == q) {
                        *p = q->next;
                        break;
                }
        }
        cg_event_free(q->call);
        free((char *)(uintptr_t)q->id.p);
        free(q->content);
        free(q);
}

void cg_stdin_free(struct front *f)
{
        while (f->questions)
                remove_question(f, f->questions);
        while (f->asked)
                remove_asked(f, f->asked);
}

static struct asked *add_asked(struct front *f, struct question *q)
{
        struct asked **p = &f->asked, *a = calloc(1, sizeof(*a));

        if (!a || !copy_id(q->id, &a->id)) {
                free(a);
                return NULL;
        }
        a->q = q;
        while (*p)
                p = &(*p)->next;
        *p = a;
        f->n_asked++;
        return a;
}

/* The host name comes from the kernel's code, so it is rendered. */
static int show_connection(const struct cg_event *e, const char *digits, struct cg_buf *text)
{
        cg_auto_json json_t *o = json_loads(cg_event_json(e, NULL), JSON_ALLOW_NUL, NULL);
        const char *host = json_string_value(json_object_get(o, "host"));
        char *safe = NULL;
        int r = cg_render(host ? host : "?", strlen(host ? host : "?"), MAX_HOST, &safe, NULL);

        if (r == 0)
                r = cg_buf_addf(
                        text, NULL,
                        "[cellgate] The code wants to connect to %s, port %" JSON_INTEGER_FORMAT ".\n"
                        "[cellgate] Allow? y%s once, a%s until the kernel ends, n no, d no until the kernel ends; any other"
                        " text refuses and is the reason: ",
                        safe, json_integer_value(json_object_get(o, "port")), digits, digits);
        cg_free(safe);
        return r;
}

static bool is_connection(const struct cg_event *e)
{
        return cg_event_type(e) == CG_EVENT_EGRESS_REQUEST;
}

/*
 * The text of an input_request about a call, with new digits. NULL: no memory, or no random bytes.
 */
static char *call_content(struct front *f, struct question *q)
{
        cg_auto_buf struct cg_buf text = { .max = SIZE_MAX / 4 };
        cg_auto_buf struct cg_buf b = { .max = SIZE_MAX / 2 };
        const char *digits = q->confirm.digits;

        if (cg_confirm_draw(&q->confirm, NULL) < 0 ||
            (q->note && (cg_buf_addf(&text, NULL, "[cellgate] %s\n", q->note) < 0)) ||
            (is_connection(q->call)
                     ? show_connection(q->call, digits, &text)
                     : f->o->judge.show(f->o->judge.data, q->call, q->whole, digits, &text)) < 0 ||
            cg_buf_adds(&b, "{\"prompt\":", NULL) < 0 ||
            cg_json_quote(&b, text.data ? text.data : "", text.len, NULL) < 0 ||
            cg_buf_adds(&b, ",\"password\":false}", NULL) < 0)
                return NULL;
        return cg_buf_steal(&b, NULL);
}

static void send_question(struct front *f, struct question *q)
{
        struct cg_jout out = {
                .type = "input_request", .ids = &q->id, .n_ids = 1, .parent = q->req->msg->m.header
        };
        struct asked *a;
        struct cg_err err = { .msg = "out of memory" };

        q->sent = true;
        q->sent_ms = cg_now_ms();
        if (q->call) {
                free(q->content);
                q->content = call_content(f, q);
        }
        a = q->content ? add_asked(f, q) : NULL;
        out.content = cg_slice_of(q->content ? q->content : "");
        cg_iopub_flush(&f->iopub); /* what was printed before is seen before */
        if (!a || cg_jmsg_send(f->socks[CG_JSTDIN], &f->sign, &f->me, &out, a->msg_id, &err) < 0)
                cg_log(&f->o->log, CG_LOG_ERROR, "input_request could not be sent: %s", err.msg);
        cg_zsock_touch(&f->z[CG_JSTDIN]);
}

/* The open question of a client; there is at most one. */
static struct question *open_question(struct front *f, struct cg_slice id)
{
        struct question *q = f->questions;

        while (q && !(q->sent && same_id(q->id, id)))
                q = q->next;
        return q;
}

static void send_next(struct front *f)
{
        for (struct question *q = f->questions; q; q = q->next)
                if (!q->sent && !open_question(f, q->id))
                        send_question(f, q);
}

/*
 * About @call, or with the @content of input(). Takes @content; *call is taken when it returns
 * true.
 */
static bool add_question(struct front *f, struct jreq *r, struct cg_event *call, char *content)
{
        struct question **p = &f->questions, *q = calloc(1, sizeof(*q));

        if (!q || (!call && !content) || f->n_asked >= MAX_ASKED || !r->msg->m.n_ids ||
            !copy_id(cg_jmsg_frame(r->msg, 0), &q->id)) {
                free(content);
                free(q);
                return false;
        }
        q->req = r;
        q->call = call;
        q->content = content;
        while (*p)
                p = &(*p)->next;
        *p = q;
        send_next(f);
        return true;
}

void cg_stdin_request_ended(struct front *f, const struct jreq *r)
{
        struct question *next;

        for (struct question *q = f->questions; q; q = next) {
                next = q->next;
                if (q->req == r)
                        remove_question(f, q);
        }
        send_next(f);
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
        struct question *next;

        for (struct question *q = f->questions; q; q = next) {
                next = q->next;
                if (q->req == r && !q->call)
                        remove_question(f, q);
        }
        send_next(f);
}

static void answer_input(struct front *f, const char *value, size_t len)
{
        bool eof = !value || strcmp(value, END_OF_FILE) == 0;
        struct cg_err err;

        if (cg_session_input(f->session, eof ? NULL : value, eof ? 0 : len, &err) == CG_E_LIMIT) {
                cg_log(&f->o->log, CG_LOG_WARN, "%s", err.msg);
                cg_session_input(f->session, NULL, 0, NULL);
        }
}

/* ------------------------------------------------------------------ tool calls */

static void decide(struct front *f, const struct cg_event *e, bool accept, const char *why)
{
        uint64_t n = cg_event_approval(e);
        struct cg_err err;
        int r = accept ? cg_approval_accept(f->session, n, &err)
                       : cg_approval_reject(f->session, n, why, &err);

        if (r < 0 && r != CG_E_NOTFOUND) /* cancelled meanwhile: APPROVAL_CLOSED says so */
                cg_log(&f->o->log, CG_LOG_ERROR, "decision %" PRIu64 ": %s", n, err.msg);
}

/* Asks the client whose cell makes the call, if it can show a question. Takes @e when true. */
static bool ask_call(struct front *f, struct jreq *r, struct cg_event *e)
{
        if (!r || r->spec->kind != KIND_EXECUTE || !r->allow_stdin)
                return false;
        return add_question(f, r, e, NULL);
}

void cg_stdin_judge_call(struct front *f, struct jreq *r, struct cg_event *e)
{
        cg_auto_buf struct cg_buf why = { .max = 65536 };
        enum cg_front_answer answer = f->o->judge.decide(f->o->judge.data, e, &why);

        if (answer == CG_FRONT_ASK && ask_call(f, r, e))
                return;
        if (answer == CG_FRONT_ASK)
                f->o->judge.nobody(f->o->judge.data, e, &why);
        decide(f, e, answer == CG_FRONT_ACCEPT, why.data);
        cg_event_free(e);
}

static void decide_connection(struct front *f, const struct cg_event *e, enum cg_egress_decision decision,
                              const char *why)
{
        struct cg_err err;
        int r = cg_egress_decide(f->session, cg_event_approval(e), decision, why, &err);

        if (r < 0 && r != CG_E_NOTFOUND)
                cg_log(&f->o->log, CG_LOG_ERROR, "decision about a connection: %s", err.msg);
}

/* The event names no cell: the client of the running one is asked. */
void cg_stdin_judge_connection(struct front *f, struct cg_event *e)
{
        if (ask_call(f, f->main.running, e))
                return;
        decide_connection(
                f, e, CG_EGRESS_DENY_ONCE,
                "nobody could be asked, since no cell runs whose client shows questions; the sandbox settings can"
                " allow it");
        cg_event_free(e);
}

void cg_stdin_call_closed(struct front *f, uint64_t approval)
{
        struct question *next;

        for (struct question *q = f->questions; q; q = next) {
                next = q->next;
                if (q->call && cg_event_approval(q->call) == approval)
                        remove_question(f, q);
        }
        send_next(f);
}

static bool is_word(const char *typed, const char *letter, const char *word)
{
        return strcasecmp(typed, letter) == 0 || strcasecmp(typed, word) == 0;
}

static void ask_again(struct front *f, struct question *q, const char *note)
{
        q->note = note;
        send_question(f, q);
}

static bool is_no(const char *typed)
{
        return !*typed || is_word(typed, "n", "no") || strcmp(typed, END_OF_FILE) == 0;
}

static bool is_view(const char *typed)
{
        return is_word(typed, "v", "view");
}

static void answer_connection(struct front *f, struct question *q, const char *typed)
{
        struct cg_event *e = CG_STEAL(q->call);
        struct cg_confirm confirm = q->confirm;

        remove_question(f, q);
        if (cg_confirm_accepts(&confirm, typed, "y", "yes"))
                decide_connection(f, e, CG_EGRESS_ALLOW_ONCE, NULL);
        else if (cg_confirm_accepts(&confirm, typed, "a", "always"))
                decide_connection(f, e, CG_EGRESS_ALLOW_SESSION, NULL);
        else if (is_word(typed, "d", "never"))
                decide_connection(f, e, CG_EGRESS_DENY_SESSION, REFUSED);
        else
                decide_connection(f, e, CG_EGRESS_DENY_ONCE, is_no(typed) ? REFUSED : typed);
        cg_event_free(e);
}

/* @typed: without leading and trailing blanks. Any other text refuses, and is the reason. */
static void answer_call(struct front *f, struct question *q, const char *typed)
{
        bool once = cg_confirm_accepts(&q->confirm, typed, "y", "yes"),
             always = cg_confirm_accepts(&q->confirm, typed, "a", "always");
        struct cg_event *e;

        if (is_view(typed)) {
                q->whole = true;
                ask_again(f, q, NULL);
                return;
        }
        e = CG_STEAL(q->call);
        remove_question(f, q);
        if (always)
                f->o->judge.always(f->o->judge.data, e);
        if (once || always)
                decide(f, e, true, NULL);
        else
                decide(f, e, false, is_no(typed) ? REFUSED : typed);
        cg_event_free(e);
}

static char *trimmed(const char *value)
{
        size_t len;

        value += strspn(value, " \t\r\n");
        len = strlen(value);
        while (len && strchr(" \t\r\n", value[len - 1]))
                len--;
        return strndup(value, len);
}

/* ------------------------------------------------------------------ answers */

/* The answer came before a person could have read the question. */
static bool is_early(struct front *f, struct question *q)
{
        struct cg_event *e;

        if (cg_now_ms() - q->sent_ms >= CG_CONFIRM_READ_MS)
                return false;
        if (++q->early <= MAX_EARLY) {
                ask_again(f, q, "Your answer came before you could have read the question: it was ignored.");
                return true;
        }
        e = CG_STEAL(q->call);
        remove_question(f, q);
        if (is_connection(e))
                decide_connection(f, e, CG_EGRESS_DENY_ONCE, TOO_EARLY);
        else
                decide(f, e, false, TOO_EARLY);
        cg_event_free(e);
        return true;
}

/* An accepting word without the right digits is asked for again. */
static bool lacks_digits(struct front *f, struct question *q, const char *typed)
{
        size_t n = strcspn(typed, " 0123456789");
        cg_auto_free char *word = strndup(typed, n);

        if (!word || strspn(typed + n, " 0123456789") != strlen(typed + n) ||
            !(is_word(word, "y", "yes") || is_word(word, "a", "always")))
                return false;
        if (cg_confirm_accepts(&q->confirm, typed, "y", "yes") ||
            cg_confirm_accepts(&q->confirm, typed, "a", "always"))
                return false;
        ask_again(f, q, "Please type the digits as well: they are new for each question.");
        return true;
}

static void take_answer(struct front *f, struct question *q, const char *value, size_t len)
{
        cg_auto_free char *typed = NULL;

        if (!q->call) {
                remove_question(f, q);
                answer_input(f, value, len);
                return;
        }
        typed = trimmed(value ? value : "");
        if (is_early(f, q) || lacks_digits(f, q, typed ? typed : ""))
                return;
        if (is_connection(q->call))
                answer_connection(f, q, typed ? typed : "");
        else
                answer_call(f, q, typed ? typed : "");
}

/*
 * An answer that may belong to a cancelled question. input() accepts it, since after an interrupt
 * the user has no other chance to answer. About a call the client is asked again: an old "y" must
 * not allow it.
 */
static void stale_answer(struct front *f, struct cg_slice id, const char *value, size_t len)
{
        struct question *q = open_question(f, id);

        if (q && q->call)
                send_question(f, q);
        else if (q)
                take_answer(f, q, value, len);
}

/*
 * The oldest unanswered question of this client, or the one that the answer names. Only the client
 * that was asked may answer.
 */
static struct asked *find_asked(struct front *f, struct cg_slice id, const char *msg_id)
{
        struct asked *a = f->asked;

        while (a && !(same_id(a->id, id) && (!msg_id || strcmp(a->msg_id, msg_id) == 0)))
                a = a->next;
        return a;
}

/*
 * The input_request that the answer names, or NULL. Some clients name the cell's request instead.
 * Any other name is of a question that was answered before, and matches none.
 */
static const char *named(const struct front *f, const json_t *parent)
{
        const char *name = json_string_value(json_object_get(parent, "msg_id"));

        for (const struct question *q = f->questions; name && q; q = q->next)
                if (strcmp(q->req->msg->m.id, name) == 0)
                        return NULL;
        return name;
}

static void on_reply(struct front *f, const struct cg_jmsg *msg, const json_t *parent, const json_t *content)
{
        const char *names = named(f, parent);
        const json_t *value = json_object_get(content, "value");
        const char *text = json_string_value(value);
        size_t len = json_string_length(value);
        struct cg_slice id = cg_jmsg_frame(msg, 0);
        struct asked *a = find_asked(f, id, names);
        struct question *q = a ? a->q : NULL;

        if (!a)
                return;
        remove_asked(f, a);
        if (q)
                take_answer(f, q, text, len);
        else if (!names)
                stale_answer(f, id, text, len);
        send_next(f);
}

void cg_stdin_readable(struct cg_zsock *z, int events)
{
        struct front *f = z->data;
        cg_auto_json json_t *parent = NULL, *content = NULL;
        struct cg_jmsg *msg;

        (void)events;
        if (cg_front_receive(f, CG_JSTDIN, &msg) != 0)
                return;
        if (strcmp(msg->m.type, "input_reply") == 0 && msg->m.n_ids && f->state == READY) {
                parent = json_loadb(msg->m.parent.p, msg->m.parent.len, JSON_ALLOW_NUL, NULL);
                content = json_loadb(msg->m.content.p, msg->m.content.len, JSON_ALLOW_NUL, NULL);
                on_reply(f, msg, parent, content);
        }
        cg_jmsg_free(msg);
}
