/* Questions at the terminal. */
#include "sandbox/command/ask.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/util.h"
#include "sandbox/command/denial.h"

#define MARK "[cellgate]"
/*
 * Attributes off, first character set, then colours that no palette of the command's changes, and
 * nothing below: what would hide or garble the question, or stand beside it as another one.
 */
#define OUR_LOOK "\x1b[!p\x1b[0m\x0f\x1b[97;40m\x1b[38;2;255;255;255;48;2;0;0;0m\r\n\x1b[J"
#define NO_LOOK  "\x1b[0m"
/* A command that runs though it was stopped may do so this often during one question. */
#define MOVED_MAX   2
#define UNSTOPPABLE " Refused: the command does not stand still, so that nobody can be asked.\r\n"

int cg_ask_open(struct cg_ask *a, struct cg_err *err)
{
        *a = (struct cg_ask){ .tty = open("/dev/tty", O_RDWR | O_CLOEXEC | O_NOCTTY | O_NONBLOCK) };
        return a->tty < 0 ? cg_fail(err, CG_E_UNSUPPORTED, "there is no terminal to ask at") : 0;
}

/* What a person cannot see was not asked. */
static void put(struct cg_ask *a, const char *text, size_t len)
{
        while (len) {
                ssize_t n = write(a->tty, text, len);

                if (n < 0 && (errno == EINTR || errno == EAGAIN)) {
                        if (errno == EAGAIN && (a->lost || cg_wait_fd(a->tty, POLLOUT, 1000, NULL) != 0)) {
                                a->lost = true;
                                return; /* a terminal that takes nothing is nobody's */
                        }
                        continue;
                }
                if (n <= 0) {
                        a->lost = true;
                        return;
                }
                text += n;
                len -= (size_t)n;
        }
}

static void say(struct cg_ask *a, const char *text)
{
        put(a, text, strlen(text));
}

/*
 * Sets the terminal's mode for a question, and saves the command's, which may be any. @reading:
 * keys are to be discarded, also those of unfinished lines, so there is neither line mode nor echo.
 */
static void take_terminal(struct cg_ask *a, bool reading)
{
        struct termios t;

        tcflow(a->tty, TCOON); /* the command may have stopped its output */
        if (!a->changed && tcgetattr(a->tty, &a->before) < 0)
                return;
        t = a->before;
        t.c_iflag |= ICRNL;
        t.c_iflag &= ~(tcflag_t)(IGNCR | INLCR);
        t.c_oflag |= OPOST | ONLCR;
        t.c_lflag |= ICANON | ECHO | ECHOE | ISIG;
        t.c_lflag &= ~(tcflag_t)NOFLSH;
        if (reading)
                t.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
        if (tcsetattr(a->tty, TCSADRAIN, &t) == 0)
                a->changed = true;
}

static void give_terminal(struct cg_ask *a)
{
        if (a->changed)
                say(a, NO_LOOK);
        if (a->changed)
                tcsetattr(a->tty, TCSADRAIN, &a->before);
        a->changed = false;
}

void cg_ask_close(struct cg_ask *a)
{
        if (a->tty >= 0 && a->stands)
                say(a, "\n");
        if (a->tty >= 0)
                give_terminal(a);
        while (a->n)
                json_decref(a->questions[--a->n]);
        cg_closep_(&a->tty);
        a->stands = false;
}

static void prompt(struct cg_ask *a)
{
        char text[160];

        snprintf(text, sizeof(text),
                 MARK " Allow? y%s yes once, s%s yes while this command runs, n no,\n"
                      "           d never while this command runs: ",
                 a->confirm.digits, a->confirm.digits);
        say(a, text);
}

/* Discards keys until the person has had time to read the question. */
static void close_question(struct cg_ask *a)
{
        int pending = 0;

        take_terminal(a, true);
        a->ignored = ioctl(a->tty, FIONREAD, &pending) == 0 && pending > 0;
        tcflush(a->tty, TCIFLUSH);
        a->opens_ms = cg_now_ms() + CG_CONFIRM_READ_MS;
}

static void lose(struct cg_ask *a, const char *why)
{
        say(a, why);
        a->lost = true;
        a->stands = false;
}

/* What was typed before the question was no answer to it. */
static void ask_next(struct cg_ask *a)
{
        cg_auto_buf struct cg_buf b = { .max = 8192 };

        a->stands = a->n > 0;
        a->len = 0;
        a->long_line = false;
        a->opens_ms = 0;
        if (!a->stands) {
                give_terminal(a);
                return;
        }
        if (a->hold.hold && !a->hold.hold(a->hold.data)) {
                lose(a, "\r\n" MARK UNSTOPPABLE);
                return;
        }
        take_terminal(a, true);
        cg_buf_adds(&b, MARK " The command wants to connect to ", NULL);
        cg_denial_connection(a->questions[0], &b, NULL);
        cg_buf_adds(&b, "\n", NULL);
        say(a, OUR_LOOK);
        put(a, b.data, b.len);
        close_question(a);
        if (a->lost)
                a->stands = false;
}

int cg_ask_timeout(const struct cg_ask *a)
{
        int64_t left = a->opens_ms - cg_now_ms();

        return !a->stands || !a->opens_ms ? -1 : left > 0 ? (int)left : 0;
}

/*
 * The digits are drawn for this question: nothing that the command has written before can name
 * them.
 */
void cg_ask_due(struct cg_ask *a)
{
        if (cg_ask_timeout(a) != 0)
                return;
        /* it may have drawn over what was to be read */
        if (a->hold.stood && !a->hold.stood(a->hold.data)) {
                if (a->moved++ == MOVED_MAX)
                        lose(a, "\r\n" MARK UNSTOPPABLE);
                else
                        ask_next(a);
                return;
        }
        a->opens_ms = 0;
        if (cg_confirm_draw(&a->confirm, true, NULL) < 0) {
                lose(a, MARK " Refused: no random digits could be drawn for the question.\n");
                return;
        }
        take_terminal(a, false);
        tcflush(a->tty, TCIFLUSH);
        if (a->ignored)
                say(a, MARK " Keys pressed before the question could be read were ignored.\n");
        prompt(a);
        if (a->lost)
                a->stands = false;
}

bool cg_ask_add(struct cg_ask *a, const json_t *event, const char **why)
{
        pid_t front = a->tty >= 0 ? tcgetpgrp(a->tty) : -1;
        json_t *copy;

        *why = "there is no terminal to ask at";
        if (front < 0)
                return false;
        *why = "the terminal is another job's now: nobody could be asked";
        if (front != getpgrp())
                return false;
        *why = "too many questions wait already";
        copy = a->n < CG_ASK_MAX ? json_deep_copy(event) : NULL;
        if (!copy)
                return false;
        a->questions[a->n++] = copy;
        if (!a->stands)
                ask_next(a);
        return true;
}

static void drop(struct cg_ask *a, size_t i)
{
        json_decref(a->questions[i]);
        a->n--;
        memmove(&a->questions[i], &a->questions[i + 1], (a->n - i) * sizeof(*a->questions));
}

static json_int_t number_of(const json_t *event)
{
        return json_integer_value(json_object_get(event, "id"));
}

void cg_ask_cancel(struct cg_ask *a, json_int_t id)
{
        for (size_t i = 0; i < a->n; i++) {
                if (number_of(a->questions[i]) != id)
                        continue;
                drop(a, i);
                if (i)
                        return;
                a->moved = 0;
                say(a, "\n" MARK " Refused: nobody answered in time, or the command gave up.\n");
                ask_next(a);
                return;
        }
}

int cg_ask_fd(const struct cg_ask *a)
{
        return a->stands ? a->tty : -1;
}

static bool is_word(const struct cg_ask *a, const char *letter, const char *word)
{
        return !a->long_line && (!strcasecmp(a->line, letter) || !strcasecmp(a->line, word));
}

static bool typed_accepts(const struct cg_ask *a, const char *letter, const char *word)
{
        return !a->long_line && cg_confirm_accepts(&a->confirm, a->line, letter, word);
}

static bool judge(struct cg_ask *a, enum cg_egress_answer *answer)
{
        size_t blanks = 0;
        char text[128];

        while (blanks < a->len && strchr(" \t", a->line[blanks]))
                blanks++;
        a->len -= blanks;
        memmove(a->line, a->line + blanks, a->len);
        while (a->len && strchr(" \t\r", a->line[a->len - 1]))
                a->len--;
        a->line[a->len] = '\0';
        *answer = typed_accepts(a, "y", "yes")       ? CG_EGRESS_ONCE
                  : typed_accepts(a, "s", "session") ? CG_EGRESS_SESSION
                  : is_word(a, "d", "never")         ? CG_EGRESS_NEVER
                                                     : CG_EGRESS_NO;
        if (*answer != CG_EGRESS_NO || is_word(a, "n", "no"))
                return true;
        a->len = 0;
        a->long_line = false;
        snprintf(text, sizeof(text),
                 MARK " Please type y%s, s%s, n or d and Enter. The digits are new for each question.\n",
                 a->confirm.digits, a->confirm.digits);
        say(a, text);
        prompt(a);
        return false;
}

static void answered(struct cg_ask *a, json_int_t *id)
{
        *id = number_of(a->questions[0]);
        drop(a, 0);
        a->moved = 0;
        ask_next(a);
}

void cg_ask_again(struct cg_ask *a)
{
        if (a->stands)
                ask_next(a);
}

/*
 * Whether *answer, which a person has just given, is one to this question: whatever ran may have
 * shown another.
 */
static bool counts(struct cg_ask *a, enum cg_egress_answer *answer)
{
        if ((*answer != CG_EGRESS_ONCE && *answer != CG_EGRESS_SESSION) || !a->hold.stood ||
            a->hold.stood(a->hold.data))
                return true;
        say(a, MARK " The command ran while you were asked: that answer does not count.\n");
        *answer = CG_EGRESS_NO;
        if (a->moved++ == MOVED_MAX)
                return true;
        ask_next(a);
        return false;
}

bool cg_ask_read(struct cg_ask *a, json_int_t *id, enum cg_egress_answer *answer)
{
        char c;
        ssize_t n;

        while (a->stands) {
                n = read(a->tty, &c, 1);
                if (n < 0 && (errno == EAGAIN || errno == EINTR))
                        return false;
                if (n <= 0) { /* the end of input, or of the terminal: nobody has said yes */
                        *answer = CG_EGRESS_NO;
                        say(a, "\n");
                        answered(a, id);
                        return true;
                }
                if (a->opens_ms) {
                        a->ignored = true;
                        a->opens_ms = cg_now_ms() + CG_CONFIRM_READ_MS;
                        continue;
                }
                if (c == '\n') {
                        if (!judge(a, answer) || !counts(a, answer))
                                continue;
                        answered(a, id);
                        return true;
                }
                if (a->len + 1 < sizeof(a->line))
                        a->line[a->len++] = c;
                else
                        a->long_line = true;
        }
        return false;
}

json_int_t cg_ask_give_up(struct cg_ask *a)
{
        json_int_t id;

        if (!a->n)
                return 0;
        if (a->stands)
                say(a, "\n");
        a->stands = false;
        id = number_of(a->questions[a->n - 1]);
        drop(a, a->n - 1);
        if (!a->n) {
                a->moved = 0;
                give_terminal(a);
                a->lost = false;
        }
        return id;
}
