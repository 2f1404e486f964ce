/*
 * Asking a person at the terminal. Runs in the command `cellgate`.
 *
 * A kernel cannot fake or redraw a question: its output on a terminal has no control characters
 * left and cannot spell CG_MARK (screen.c); no output is shown while a question is open (text.c
 * holds it); arguments are indented and wrapped (args.c); the terminal is reset to its normal state
 * first, in case other programs' bytes reached it, as in `... | tee log`.
 *
 * A kernel cannot steer the answer: the line that asks for it appears only after the
 * question has been shown for CG_CONFIRM_READ_MS without a key press, and keys before that line are
 * discarded (a second Enter, or text meant for input()). The accepting keys contain digits drawn
 * for this question: text on the terminal, such as "press y to continue" of a cell or an earlier
 * run, names no accepting key. Pasted text is no answer. A call that does not fit on the screen is
 * shown in parts, and there are no accepting keys before the last one was shown.
 */
#include "cli/common/prompt.h"

#include <ctype.h>
#include <sys/ioctl.h>
#include <termios.h>
#include "base/confirm.h"
#include "base/fd.h"
#include "base/text.h"
#include "cli/common/approve.h"

/* Sent by terminals before pasted text while "bracketed paste" is on. */
#define PASTE_BEGIN "\x1b[200~"
#define PASTE_ON    "\x1b[?2004h"
#define PASTE_OFF   "\x1b[?2004l"

/* Reads before a question: a terminal keeps 4095 bytes, and a program may type on. */
#define DISCARD_READS 16

/* A line that a person types: terminals give at most 4095 bytes at once. */
#define MAX_LINE 65536u

/* Lines of a view of a call: no more than the terminal has, less those of the question itself. */
#define MAX_VIEW       40u
#define MIN_VIEW       6u
#define QUESTION_LINES 6u
#define DEFAULT_LINES  24u
#define ANSWER_COLUMNS 75u /* for all answers on a line */

enum prompt_state { IDLE, CALL, REASON, INPUT, CONNECTION };

struct cg_prompt {
        struct cg_screen *screen;
        enum prompt_state state;
        int in, out;
        bool own; /* in and out are ours to close */
        const struct cg_call *call;
        struct cg_call_view view;
        bool all_shown;     /* of the call: it may be accepted */
        struct cg_buf line; /* what was typed */
        bool has_text;
        int64_t opens_ms; /* when the question accepts an answer; 0: it does */
        bool ignored;     /* keys were discarded */
        struct cg_confirm confirm;
        bool changed; /* the terminal's mode is ours */
        struct termios before;
};

int cg_prompt_open(struct cg_screen *screen, struct cg_prompt **ret, struct cg_err *err)
{
        cg_auto_fd int tty = open("/dev/tty", O_RDWR | O_CLOEXEC | O_NOCTTY);
        struct cg_prompt *p;

        if (tty < 0 && !(isatty(0) && isatty(2)))
                return cg_fail(err, CG_E_UNSUPPORTED, "there is no terminal for questions");
        p = calloc(1, sizeof(*p));
        if (!p)
                return cg_fail(err, CG_E_NOMEM, "prompt");
        *p = (struct cg_prompt){ .screen = screen, .own = tty >= 0, .in = 0, .out = 2 };
        if (p->own)
                p->in = p->out = cg_steal_fd(&tty);
        cg_buf_init(&p->line, MAX_LINE);
        *ret = p;
        return 0;
}

/* Switches off @flags of the terminal's c_lflag. */
static void change_mode(struct cg_prompt *p, tcflag_t flags)
{
        struct termios t;

        if (p->changed || tcgetattr(p->in, &p->before) < 0)
                return;
        t = p->before;
        t.c_lflag &= ~flags;
        p->changed = tcsetattr(p->in, TCSANOW, &t) == 0;
}

static void restore_mode(struct cg_prompt *p)
{
        if (p->changed)
                tcsetattr(p->in, TCSANOW, &p->before);
        p->changed = false;
}

/*
 * Discards what was typed, unfinished lines as well; true: there was something. By reading, because
 * tcflush() would also discard a ^C that the terminal has not turned into a signal yet.
 */
static bool discard_typed(const struct cg_prompt *p)
{
        struct termios before, t;
        char typed[4096];
        bool any = false;

        if (tcgetattr(p->in, &before) < 0)
                return false;
        t = before;
        t.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
        t.c_cc[VMIN] = t.c_cc[VTIME] = 0;
        if (tcsetattr(p->in, TCSANOW, &t) < 0)
                return false;
        for (int i = 0; i < DISCARD_READS && read(p->in, typed, sizeof(typed)) > 0; i++)
                any = true;
        tcsetattr(p->in, TCSANOW, &before);
        return any;
}

void cg_prompt_abandon(const struct cg_prompt *p)
{
        if (p->changed)
                tcsetattr(p->in, TCSANOW, &p->before);
        if (p->state != IDLE && p->screen->style && write(p->out, PASTE_OFF, sizeof(PASTE_OFF) - 1) < 0)
                return; /* the terminal is gone */
}

struct cg_prompt *cg_prompt_free(struct cg_prompt *p)
{
        if (!p)
                return NULL;
        restore_mode(p);
        if (p->own)
                close(p->in);
        cg_buf_fini(&p->line);
        free(p);
        return NULL;
}

bool cg_prompt_is_interactive(const struct cg_prompt *p)
{
        return isatty(0) == 1 || isatty(2) == 1;
}

int cg_prompt_fd(const struct cg_prompt *p)
{
        return p->in;
}

bool cg_prompt_is_open(const struct cg_prompt *p)
{
        return p->state != IDLE;
}

const char *cg_prompt_text(const struct cg_prompt *p, size_t *len)
{
        if (len)
                *len = p->has_text ? p->line.len : 0;
        return p->has_text ? (p->line.data ?: "") : NULL;
}

static int put(struct cg_prompt *p, const char *text, struct cg_err *err)
{
        return cg_write_all(p->out, text, strlen(text), err);
}

static int put_buf(struct cg_prompt *p, const struct cg_buf *b, struct cg_err *err)
{
        if (cg_buf_end(b, err) < 0)
                return -1;
        return put(p, b->data ?: "", err);
}

/* Begins a line of ours, whatever the terminal went through before. */
static void begin(struct cg_prompt *p, struct cg_buf *b)
{
        cg_screen_clear(p->screen);
        /* Soft reset, attributes off, first character set: undo what would garble the question. */
        if (p->screen->style)
                cg_buf_adds(b, "\x1b[!p\x1b[0m\x0f");
        cg_buf_addf(b, "\n%s ", cg_screen_mark(p->screen));
}

static bool may_last(const struct cg_prompt *p)
{
        return !p->call->elsewhere && cg_approve_may_last(p->call->method, p->call->args);
}

/* Always, with the same arguments, is an answer. */
static bool may_repeat(const struct cg_prompt *p)
{
        return may_last(p) && cg_approve_has_arguments(p->call->method);
}

/* The rule is ASCII text on one line; what is in it came from the cell. */
static void add_rule(const struct cg_prompt *p, struct cg_buf *b)
{
        cg_auto_buf struct cg_buf text = { .max = 65536 };

        cg_text_render(&text, p->call->rule_file, strlen(p->call->rule_file), 0);
        cg_buf_addf(&text, ":\n             %s", p->call->rule);
        cg_buf_addf(b, "\n           w%s always, by this rule in ", p->confirm.digits);
        cg_screen_break_mark(&text, b);
}

static unsigned width(const struct cg_prompt *p)
{
        struct winsize ws;

        return ioctl(p->out, TIOCGWINSZ, &ws) < 0 || ws.ws_col < 20 ? 80 : ws.ws_col;
}

/* The answers to a question about several calls. */
static void add_answers(const struct cg_prompt *p, struct cg_buf *b)
{
        if (p->all_shown)
                cg_buf_addf(b,
                            " Allow? y%s yes to all %zu, o one after the other, n no to all,\n"
                            "           r no with a reason, v view everything: ",
                            p->confirm.digits, cg_call_count(p->call));
        else
                cg_buf_addf(b, " v shows %s, o one after the other, n no to all, r no with a reason: ",
                            p->view.part ? "the next part" : "everything in parts");
}

/* Asks for the answer. */
static int question(struct cg_prompt *p, struct cg_err *err)
{
        cg_auto_buf struct cg_buf b = { .max = 65536 };
        const char *d = p->confirm.digits;

        if (p->screen->style)
                cg_buf_adds(&b, PASTE_ON);
        cg_buf_adds(&b, cg_screen_mark(p->screen));
        if (p->state == CONNECTION) {
                cg_buf_addf(&b,
                            " Allow? y%s yes once, s%s yes for this session, n no,\n"
                            "           d never in this session: ",
                            d, d);
        } else if (p->call->next) {
                add_answers(p, &b);
        } else if (!p->all_shown) {
                cg_buf_addf(&b, " v shows %s, n no, r no with a reason: ",
                            p->view.part ? "the next part" : "everything in parts");
        } else {
                cg_buf_addf(&b, " Allow? y%s yes, n no, r no with a reason,", d);
                cg_buf_adds(&b, width(p) < ANSWER_COLUMNS ? "\n           " : " ");
                cg_buf_adds(&b, "v view everything");
                if (may_repeat(p))
                        cg_buf_addf(&b, ",\n           s%s always with the same arguments,", d);
                if (p->call->rule)
                        add_rule(p, &b);
                if (may_last(p))
                        cg_buf_addf(&b, "%s\n           a%s always for %s in this session",
                                    may_repeat(p) ? "" : ",", d, cg_call_words(p->call->method)->scope);
                cg_buf_adds(&b, ": ");
        }
        discard_typed(p);
        return put_buf(p, &b, err);
}

/* Says which answers there are, after another one. */
static int again(struct cg_prompt *p, struct cg_err *err)
{
        static const char digits[] = " The digits are new for each question.\n";
        cg_auto_buf struct cg_buf b = { .max = 1024 };
        const char *d = p->confirm.digits;

        cg_buf_adds(&b, cg_screen_mark(p->screen));
        if (p->state == CONNECTION)
                cg_buf_addf(&b, " Please type y%s, s%s, n or d and Enter.%s", d, d, digits);
        else if (p->call->next)
                cg_buf_addf(&b, " Please type y%s, o, n, r or v and Enter.%s", p->all_shown ? d : "...",
                            digits);
        else if (!p->all_shown)
                cg_buf_adds(&b, " Please type v, n or r and Enter. Yes counts once all was shown.\n");
        else if (p->call->rule)
                cg_buf_addf(&b, " Please type y%s, n, r, s%s, a%s, w%s or v and Enter.%s", d, d, d, d,
                            digits);
        else if (may_repeat(p))
                cg_buf_addf(&b, " Please type y%s, n, r, s%s, a%s or v and Enter.%s", d, d, d, digits);
        else if (may_last(p))
                cg_buf_addf(&b, " Please type y%s, n, r, a%s or v and Enter.%s", d, d, digits);
        else
                cg_buf_addf(&b, " Please type y%s, n, r or v and Enter.%s", d, digits);
        if (put_buf(p, &b, err) < 0)
                return -1;
        return question(p, err);
}

/*
 * Discards keys until the person has had time to read. Without line mode, so that unfinished lines
 * are seen as well.
 */
static void close_question(struct cg_prompt *p)
{
        p->ignored |= discard_typed(p);
        restore_mode(p);
        change_mode(p, ICANON | ECHO);
        p->opens_ms = cg_now_ms() + CG_CONFIRM_READ_MS;
}

int cg_prompt_timeout(const struct cg_prompt *p)
{
        int64_t left = p->opens_ms - cg_now_ms();

        if (p->state == IDLE || !p->opens_ms)
                return -1;
        return left > 0 ? (int)left : 0;
}

int cg_prompt_due(struct cg_prompt *p, struct cg_err *err)
{
        if (cg_prompt_timeout(p) != 0)
                return 0;
        restore_mode(p);
        p->opens_ms = 0;
        cg_buf_consume(&p->line, p->line.len);
        if (cg_confirm_draw(&p->confirm, err) < 0)
                return -1;
        if (p->ignored &&
            (put(p, cg_screen_mark(p->screen), err) < 0 ||
             put(p, " Keys pressed before the question could be read, or pasted, were ignored.\n", err) < 0))
                return -1;
        p->ignored = false;
        return question(p, err);
}

/* Lines that a call may take in one view. */
static size_t view_lines(const struct cg_prompt *p)
{
        struct winsize ws;
        size_t rows = DEFAULT_LINES;

        if (ioctl(p->out, TIOCGWINSZ, &ws) == 0 && ws.ws_row)
                rows = ws.ws_row;
        if (rows < MIN_VIEW + QUESTION_LINES)
                return MIN_VIEW;
        return CG_MIN(rows - QUESTION_LINES, MAX_VIEW);
}

/* Shows the call's first view, or the part that the view says. @b: what comes before it. */
static int show_call(struct cg_prompt *p, struct cg_buf *b, struct cg_err *err)
{
        cg_call_show(p->call, &p->view, b);
        if (p->view.part && p->view.parts > 1)
                cg_buf_addf(b, "%s Part %zu of %zu.\n", cg_screen_mark(p->screen), p->view.part,
                            p->view.parts);
        else if (!p->view.last)
                cg_buf_addf(b, "%s Not all is shown. Yes counts once all was shown.\n",
                            cg_screen_mark(p->screen));
        if (put_buf(p, b, err) < 0)
                return -1;
        p->all_shown = p->all_shown || p->view.last;
        return 0;
}

/* The next part; after the last one the first. */
static int show_next(struct cg_prompt *p, struct cg_err *err)
{
        cg_auto_buf struct cg_buf b = { .max = SIZE_MAX - 1 };

        if (p->view.last)
                p->view.part = 0;
        p->view.part++;
        return show_call(p, &b, err);
}

static void start(struct cg_prompt *p, enum prompt_state state)
{
        p->state = state;
        p->has_text = p->ignored = false;
        p->opens_ms = 0;
        cg_buf_consume(&p->line, p->line.len);
}

int cg_prompt_ask(struct cg_prompt *p, const struct cg_call *call, struct cg_err *err)
{
        cg_auto_buf struct cg_buf b = { .max = SIZE_MAX - 1 };

        start(p, CALL);
        p->call = call;
        p->view = (struct cg_call_view){ .width = width(p), .lines = view_lines(p) };
        p->all_shown = false;
        begin(p, &b);
        if (call->next)
                cg_buf_addf(&b, "Cell %" PRIu64 " wants %zu things at once:\n", call->cell,
                            cg_call_count(call));
        else
                cg_buf_addf(&b, "Cell %" PRIu64 " wants to %s:\n", call->cell,
                            cg_call_words(call->method)->title);
        if (show_call(p, &b, err) < 0)
                return -1;
        close_question(p);
        return 0;
}

int cg_prompt_ask_connection(struct cg_prompt *p, const char *to, uint64_t cell, struct cg_err *err)
{
        cg_auto_buf struct cg_buf text = { .max = 65536 };
        cg_auto_buf struct cg_buf safe = { .max = 65536 * 4 };
        cg_auto_buf struct cg_buf b = { .max = 65536 * 8 };

        start(p, CONNECTION);
        begin(p, &b);
        cg_buf_addf(&text, "Cell %" PRIu64 " wants to connect to %s", cell, to);
        cg_screen_break_mark(&text, &safe);
        cg_buf_fail(&b, safe.failed);
        cg_text_wrap(safe.data ?: "", safe.len, sizeof(CG_MARK), width(p), &b);
        cg_buf_adds(&b, "\n");
        if (put_buf(p, &b, err) < 0)
                return -1;
        close_question(p);
        return 0;
}

int cg_prompt_input(struct cg_prompt *p, const char *prompt, bool password, uint64_t cell, struct cg_err *err)
{
        cg_auto_buf struct cg_buf text = { .max = 65536 };
        cg_auto_buf struct cg_buf b = { .max = 65536 * 4 };

        start(p, INPUT);
        begin(p, &b);
        cg_buf_addf(&text, "Input for cell %" PRIu64 ": ", cell);
        cg_text_render(&text, prompt, strlen(prompt), 4096);
        cg_screen_break_mark(&text, &b);
        if (password)
                change_mode(p, ECHO); /* before the prompt: who sees it may type at once */
        return put_buf(p, &b, err);
}

/* @entered: an Enter has ended the line, which a terminal without echo did not show. */
static void finish(struct cg_prompt *p, bool entered)
{
        if (!entered || (p->state == INPUT && p->changed))
                put(p, "\n", NULL);
        if (p->state != INPUT && p->screen->style)
                put(p, PASTE_OFF, NULL);
        restore_mode(p);
        p->state = IDLE;
        p->opens_ms = 0;
        p->call = NULL;
        p->screen->line_start = true;
}

void cg_prompt_withdraw(struct cg_prompt *p, const char *why)
{
        if (p->state == IDLE)
                return;
        discard_typed(p); /* half an answer must not become the next one's beginning */
        finish(p, false);
        cg_screen_note(p->screen, "%s", why);
}

/* Drops the blanks around what was typed. */
static void trim(struct cg_buf *line)
{
        while (line->len && isspace((unsigned char)line->data[line->len - 1]))
                line->len--;
        cg_buf_terminate(line);
        while (line->len && isspace((unsigned char)line->data[0]))
                cg_buf_consume(line, 1);
        cg_buf_terminate(line);
}

static bool is_word(const char *typed, const char *letter, const char *word)
{
        return strcasecmp(typed, letter) == 0 || strcasecmp(typed, word) == 0;
}

/* The answer to a question about a call or a connection; CG_ANSWER_NONE: it is none. */
static enum cg_prompt_answer answer_of(const struct cg_prompt *p, const char *typed)
{
        bool connection = p->state == CONNECTION;

        if (is_word(typed, "n", "no"))
                return CG_ANSWER_NO;
        if (!connection && p->call->next && is_word(typed, "o", "one"))
                return CG_ANSWER_EACH;
        if (connection && is_word(typed, "d", "never"))
                return CG_ANSWER_NEVER;
        if (!connection && !p->all_shown)
                return CG_ANSWER_NONE;
        if (cg_confirm_accepts(&p->confirm, typed, "y", "yes"))
                return CG_ANSWER_YES;
        if (connection && cg_confirm_accepts(&p->confirm, typed, "s", "session"))
                return CG_ANSWER_SESSION;
        if (!connection && may_repeat(p) && cg_confirm_accepts(&p->confirm, typed, "s", "same"))
                return CG_ANSWER_SAME;
        if (!connection && p->call->rule && cg_confirm_accepts(&p->confirm, typed, "w", "write"))
                return CG_ANSWER_RULE;
        if (!connection && may_last(p) && cg_confirm_accepts(&p->confirm, typed, "a", "always"))
                return CG_ANSWER_ALWAYS;
        return CG_ANSWER_NONE;
}

/* Pasted text, or several lines at once: the answer to a question is typed. */
static bool is_pasted(struct cg_prompt *p)
{
        int pending = 0;

        if (p->line.len && memmem(p->line.data, p->line.len, PASTE_BEGIN, sizeof(PASTE_BEGIN) - 1))
                return true;
        change_mode(p, ICANON | ECHO); /* counts unfinished lines as well */
        if (ioctl(p->in, FIONREAD, &pending) == 0 && pending > 0)
                return true;
        restore_mode(p);
        return false;
}

/* Handles a line that was typed. *ret stays CG_ANSWER_NONE where the question is still open. */
static int answer(struct cg_prompt *p, enum cg_prompt_answer *ret, struct cg_err *err)
{
        cg_auto_buf struct cg_buf b = { .max = 256 };
        const char *typed;

        if (p->state == INPUT) {
                *ret = CG_ANSWER_TEXT;
                p->has_text = true;
                finish(p, true);
                return 0;
        }
        if (p->state == REASON) {
                *ret = CG_ANSWER_NO;
                trim(&p->line);
                p->has_text = p->line.len;
                finish(p, true);
                return 0;
        }
        if (is_pasted(p)) {
                p->ignored = true;
                close_question(p);
                return 0;
        }
        trim(&p->line);
        typed = p->line.data ?: "";
        *ret = answer_of(p, typed);
        if (*ret != CG_ANSWER_NONE) {
                finish(p, true);
                return 0;
        }
        if (p->state == CALL && is_word(typed, "r", "reason")) {
                start(p, REASON);
                if (p->screen->style)
                        cg_buf_adds(&b, PASTE_OFF);
                cg_buf_addf(&b, "%s Reason, which the code receives: ", cg_screen_mark(p->screen));
                return put_buf(p, &b, err);
        }
        if (p->state != CALL || !is_word(typed, "v", "view"))
                return again(p, err);
        if (show_next(p, err) < 0)
                return -1;
        return question(p, err);
}

/* End of file, or the terminal was closed: the answer is no. */
static int end_of_file(struct cg_prompt *p, enum cg_prompt_answer *ret)
{
        bool other = p->call && p->call->elsewhere;

        *ret = p->state == INPUT || other ? CG_ANSWER_EOF : CG_ANSWER_NO;
        p->has_text = false;
        finish(p, false);
        return 0;
}

int cg_prompt_read(struct cg_prompt *p, enum cg_prompt_answer *ret, struct cg_err *err)
{
        char typed[4096], *newline;
        ssize_t n = read(p->in, typed, sizeof(typed));
        int r;

        *ret = CG_ANSWER_NONE;
        if (n < 0 && (errno == EINTR || errno == EAGAIN))
                return 0;
        if (n <= 0)
                return end_of_file(p, ret);
        if (p->opens_ms) {
                p->ignored = true;
                p->opens_ms = cg_now_ms() + CG_CONFIRM_READ_MS;
                return 0;
        }
        newline = memchr(typed, '\n', (size_t)n);
        if (newline)
                n = newline - typed;
        r = cg_buf_try_add(&p->line, typed, (size_t)n, err);
        if (r == CG_E_LIMIT)
                return end_of_file(p, ret);
        if (r < 0 || !newline)
                return r;
        r = answer(p, ret, err);
        if (p->state != IDLE && p->state != REASON)
                cg_buf_consume(&p->line, p->line.len);
        return r;
}
