/*
 * cellgate-supervisor: questions to hosts about programs that cells want to start. They come from
 * the init of a sandbox (sandbox/inside/exec.h), which holds the program's execve() until the
 * decision, and then checks that exactly this is executed.
 */
#include "supervisor/ask/programs.h"

#include <ctype.h>
#include <sys/socket.h>
#include <time.h>
#include "base/fd.h"
#include "base/json.h"
#include "base/path.h"
#include "base/text.h"
#include "sandbox/inside/exec.h"
#include "sandbox/settings/exec_rules.h"
#include "supervisor/ask/asks.h"
#include "supervisor/cells/clock.h"
#include "supervisor/limits/denials.h"
#include "supervisor/core/host_link.h"
#include "supervisor/core/kernel.h"
#include "supervisor/core/kernel_link.h"
#include "supervisor/core/members.h"
#include "supervisor/core/state.h"

/* Limits of a cell's code, and of the line that is shown of it. */
#define SEARCHED_CODE  16384u
#define SEARCHED_WORDS 16
#define SHOWN_LINE     200
#define NO_LINE        "in the background: by an earlier cell, or by a process that has ended"

static void answer(struct kernel *k, uint32_t number, bool accept)
{
        struct cg_exec_message m = { .type = accept ? CG_EXEC_ACCEPTED : CG_EXEC_REFUSED, .number = number };

        /* Init reads as long as the sandbox runs, and has few calls that wait. */
        if (send(k->programs.fd, &m, sizeof(m), MSG_DONTWAIT | MSG_NOSIGNAL) < 0)
                cg_log(&k->sup->log, CG_LOG_WARN, "a sandbox does not take decisions about programs");
}

/* Takes @denial. */
static void report_refusal(struct session *ss, uint64_t cell, json_t *denial, const char *why)
{
        json_object_set_new(denial, "why", cg_sup_text_json(why));
        cg_sup_denial_report_some(ss, cell, denial, &ss->denials.program);
}

static void refuse(struct ask *a, bool timed_out, const char *why)
{
        answer(a->session->kernel, (uint32_t)a->number, false);
        if (a->denial)
                report_refusal(a->session, a->running, json_incref(a->denial), why);
}

static void decided(struct ask *a, const struct decision *d)
{
        const char *who = d->timed_out ? "nobody decided in time" : "the host refused it";
        char why[600];

        cg_sup_rate_give(&a->session->asks.undecided);
        snprintf(why, sizeof(why), "%s%s%.500s", who, *d->reason ? ": " : "", d->reason);
        if (d->accept)
                answer(a->session->kernel, (uint32_t)a->number, true);
        else
                refuse(a, d->timed_out, why);
        cg_sup_ask_end(a);
}

static const struct ask_type program_ask = {
        .kind = ASK_PROGRAM,
        .request = CG_HOST_APPROVAL_REQUEST,
        .has_raw = true,
        .names_cell = true,
        .decision = CG_HOST_DECISION,
        .decided = decided,
        .refuse = refuse,
        .late = "nobody decided in time",
        .late_event = "nobody decided in time: the program was not started",
        .max = SIZE_MAX,
        .unread = CG_EVENT_WINDOW + (4u << 20)
};

void cg_sup_programs_interrupted(struct session *ss, uint64_t cell)
{
        struct ask *next;

        for (struct ask *a = LIST_FIRST(&ss->asks.list); a; a = next) {
                next = LIST_NEXT(a, entry);
                /* One without a cell may be that of a subshell's cell, which is not known. */
                if (a->type != &program_ask ||
                    (a->running != cell && (a->running || cell == cg_sup_running_cell(ss))))
                        continue;
                cg_sup_rate_give(&ss->asks.undecided);
                answer(ss->kernel, (uint32_t)a->number, false);
                cg_sup_ask_close(a, "the cell was interrupted: the program was not started");
        }
}

void cg_sup_programs_close(struct kernel *k, const char *why)
{
        if (k->session)
                cg_sup_asks_close(k->session, ASK_PROGRAM, why);
}

/* ------------------------------------------------------------------ questions */

/* A text of the sandbox: a string, or {"hex"} if it is not UTF-8. */
static json_t *any_text(const char *text)
{
        json_t *j = json_string(text);
        cg_auto_free char *hex = NULL;
        size_t n = strlen(text);

        if (j || !(hex = malloc(2 * n + 1)))
                return j;
        cg_hex(hex, text, n);
        return json_pack("{s:s}", "hex", hex);
}

/*
 * Appends @arg as a shell would read it: no two lists of arguments have the same line. Characters
 * that could mislead the reader are written as escapes.
 */
static void add_quoted(struct cg_buf *b, const char *arg)
{
        static const char plain[] =
                "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_@%+=:,./-";
        cg_auto_buf struct cg_buf shown = { .max = 5 * CG_EXEC_TEXT_MAX };
        size_t len = strlen(arg);
        bool escapes;

        if (*arg && !arg[strspn(arg, plain)]) {
                cg_buf_adds(b, arg);
                return;
        }
        cg_text_render_as(&shown, arg, len, 0, CG_TEXT_LINE);
        escapes = cg_buf_end(&shown, NULL) < 0 || shown.len != len || memcmp(shown.data ?: "", arg, len) != 0;
        cg_buf_adds(b, escapes ? "$'" : "'");
        for (const char *p = arg; *p; p++) {
                unsigned char c = (unsigned char)*p;

                if (escapes && (c < 0x20 || c >= 0x7f))
                        cg_buf_addf(b, "\\x%02x", c);
                else if (c == '\'')
                        cg_buf_adds(b, escapes ? "\\'" : "'\\''");
                else if (escapes && c == '\\')
                        cg_buf_adds(b, "\\\\");
                else
                        cg_buf_add(b, p, 1);
        }
        cg_buf_adds(b, "'");
}

/* The texts of init's file, each of which ends with a NUL. */
struct question_texts {
        const char *at, *end;
        bool failed; /* one was missing */
};

static const char *next_text(struct question_texts *t)
{
        const char *text = t->at;

        if (text >= t->end) {
                t->failed = true;
                return NULL;
        }
        t->at += strlen(text) + 1;
        return text;
}

static bool add_texts(json_t *list, uint32_t n, struct question_texts *t)
{
        for (const char *text; n && (text = next_text(t)); n--)
                if (json_array_append_new(list, any_text(text)) < 0)
                        t->failed = true;
        return !t->failed;
}

/* The question as JSON, from init's file, and what that says in `began`. */
static json_t *read_question(int fd, uint64_t *began, struct cg_err *err)
{
        cg_auto_free char *text = NULL;
        const char *fixed[CG_EXEC_FIXED_TEXTS] = { NULL };
        cg_auto_json json_t *argv = json_array(), *set = json_array(), *unset = json_array();
        cg_auto_buf struct cg_buf line = { .max = 5 * CG_EXEC_TEXT_MAX };
        struct cg_exec_question q;
        struct question_texts t;
        json_t *o;

        if (pread(fd, &q, sizeof(q), 0) != (ssize_t)sizeof(q) || q.text_len > 4 * CG_EXEC_TEXT_MAX ||
            !(text = malloc((size_t)q.text_len + 1)) ||
            pread(fd, text, q.text_len, sizeof(q)) != (ssize_t)q.text_len) {
                cg_fail(err, CG_E_PROTO, "a question about a program could not be read");
                return NULL;
        }
        text[q.text_len] = '\0';
        t = (struct question_texts){ .at = text, .end = text + q.text_len };
        for (size_t i = 0; i < CG_EXEC_FIXED_TEXTS; i++)
                fixed[i] = next_text(&t);
        for (const char *arg = t.at; json_array_size(argv) < q.argc && add_texts(argv, 1, &t); arg = t.at) {
                if (json_array_size(argv) > 1)
                        cg_buf_adds(&line, " ");
                add_quoted(&line, arg);
        }
        add_texts(set, q.n_set, &t);
        add_texts(unset, q.n_unset, &t);
        if (t.failed || json_array_size(argv) < q.argc || cg_buf_end(&line, NULL) < 0) {
                cg_fail(err, CG_E_PROTO, "a question about a program could not be read");
                return NULL;
        }
        o = json_pack("{s:O, s:s, s:o, s:o*, s:b, s:o, s:o, s:{s:O, s:O}}", "argv", argv, "command",
                      line.data ?: "", "program", any_text(fixed[CG_EXEC_PROGRAM]), "interpreter",
                      fixed[CG_EXEC_INTERPRETER][0] ? any_text(fixed[CG_EXEC_INTERPRETER]) : NULL, "writable",
                      q.writable != 0, "cwd", any_text(fixed[CG_EXEC_CWD]), "stdin",
                      any_text(fixed[CG_EXEC_STDIN]), "env", "set", set, "unset", unset);
        if (!o)
                cg_fail(err, CG_E_NOMEM, "question");
        *began = q.began;
        return o;
}

static json_t *denial_of(const json_t *question)
{
        return json_pack("{s:s, s:O, s:O, s:s, s:s, s:n, s:s}", "operation", "exec", "path",
                         json_object_get(question, "program"), "command",
                         json_object_get(question, "command"), "rule", "exec", "errno", "EPERM", "how",
                         "source", "sandbox");
}

static struct cg_frame *text_of(const json_t *question)
{
        const size_t flags = JSON_COMPACT | JSON_ENSURE_ASCII;
        size_t len = json_dumpb(question, NULL, 0, flags);
        struct cg_frame *f = len ? cg_frame_new(len) : NULL;

        if (f)
                json_dumpb(question, f->data, len, flags);
        return f;
}

static bool has_word(struct cg_slice line, const char *word)
{
        size_t len = strlen(word);
        const char *end = line.p + line.len;

        for (const char *p = line.p; len && (p = memmem(p, (size_t)(end - p), word, len)); p++)
                if ((p == line.p || (!isalnum((unsigned char)p[-1]) && p[-1] != '_')) &&
                    (p + len == end || (!isalnum((unsigned char)p[len]) && p[len] != '_')))
                        return true;
        return false;
}

static bool is_comment(struct cg_slice line)
{
        size_t n = 0;

        while (n < line.len && isblank((unsigned char)line.p[n]))
                n++;
        return n < line.len && line.p[n] == '#';
}

/*
 * True if a process that @began then (ticks since the machine's start) can be of the cell. One that
 * an earlier cell has started in the last tick, 10 ms, before this one counts as its.
 */
static bool is_of_cell(const struct cell *c, uint64_t began)
{
        int64_t per_s = sysconf(_SC_CLK_TCK), us;
        struct timespec boot, now;

        clock_gettime(CLOCK_BOOTTIME, &boot);
        clock_gettime(CLOCK_MONOTONIC, &now);
        us = c->costs.started_us + (boot.tv_sec - now.tv_sec) * 1000000 + (boot.tv_nsec - now.tv_nsec) / 1000;
        return began && began >= (uint64_t)(us / (1000000 / per_s));
}

/*
 * Adds the line of a shell's cell that names the program and most of its first arguments, if one
 * does. It is found in the host's own text of the cell, since the shell could report any line. The
 * search is bounded: cells choose both texts. Comments start no program.
 */
static void add_line(const struct session *ss, const json_t *question, uint64_t began, json_t *body)
{
        const char *language = json_string_value(json_object_get(ss->options, "language")) ?: "";
        const struct cell *c = ss->queue.main.running;
        const json_t *argv = json_object_get(question, "argv"), *arg;
        struct cg_slice rest, best = CG_SLICE_NONE;
        size_t most = 0, times = 0, at = 0, i;
        char text[SHOWN_LINE + 32];

        if (strcmp(language, "shell") != 0)
                return;
        if (!c || c->kind != CELL_EXECUTE || !is_of_cell(c, began)) {
                json_object_set_new(body, "line", json_string(NO_LINE));
                return;
        }
        rest = (struct cg_slice){ c->frames[0]->data, c->frames[0]->len };
        if (rest.len > SEARCHED_CODE)
                return;
        for (size_t n = 1; rest.len; n++) {
                const char *end = memchr(rest.p, '\n', rest.len);
                struct cg_slice line = { rest.p, end ? (size_t)(end - rest.p) : rest.len };
                size_t words = 0;

                rest = (struct cg_slice){ line.p + line.len + !!end, rest.len - line.len - !!end };
                if (is_comment(line))
                        continue;
                json_array_foreach(argv, i, arg) {
                        const char *word = json_string_value(arg) ?: "";

                        if (i == SEARCHED_WORDS)
                                break;
                        words += has_word(line, i ? word : cg_path_base(word));
                        if (!words) /* not the program */
                                break;
                }
                if (!words || words < most)
                        continue;
                times = words > most ? 1 : times + 1;
                most = words;
                best = line;
                at = n;
        }
        if (times != 1)
                return;
        snprintf(text, sizeof(text), "%zu: %.*s", at, (int)CG_MIN(best.len, SHOWN_LINE), best.p);
        json_object_set_new(body, "line", cg_sup_text_json(text));
}

static void handle_asked(struct kernel *k, uint32_t number, int fd)
{
        struct session *ss = k->session;
        struct ask question = { .session = ss, .type = &program_ask, .number = number };
        cg_auto_json json_t *asked = NULL;
        struct cg_frame *text = NULL;
        char rule[CG_EXEC_RULE_NAME], denies[64];
        const char *why = NULL;
        enum cg_exec mode;
        uint64_t began = 0;
        struct cg_err err;

        if (!ss) {
                answer(k, number, false);
                return;
        }
        question.running = cg_sup_running_cell(ss);
        asked = read_question(fd, &began, &err);
        question.denial = asked ? denial_of(asked) : NULL;
        text = asked ? text_of(asked) : NULL;
        if (!question.denial || !text)
                why = asked ? "out of memory" : err.msg;
        else if (!ss->host || ss->use.warming)
                why = "there is no host that could be asked";
        else if (text->len > CG_MAX_TOOL_ARGS)
                why = "its arguments are too long to ask about them";
        else if (!cg_sup_ask_host_reads(ss, &program_ask))
                why = "the host does not read the session's events";
        mode = why ? CG_EXEC_DENY : cg_exec_rules_judge(cg_sup_exec_setting(ss->options), asked, rule);
        if (mode == CG_EXEC_DENY) {
                if (!why)
                        snprintf(denies, sizeof(denies), "exec.%s denies it", rule);
                refuse(&question, false, why ?: denies);
        } else if (mode == CG_EXEC_ALLOW) {
                answer(k, number, true);
        } else {
                question.body = json_pack("{s:s, s:s, s:s}", "server", "", "method", "exec", "tool", "");
                add_line(ss, asked, began, question.body);
                cg_sup_ask(&question, text);
                question.denial = NULL; /* taken */
        }
        json_decref(question.denial);
        cg_frame_unref(text);
}

static void on_message(struct watch *w)
{
        struct kernel *k = w->data;
        struct cg_exec_message m;
        struct ask *a;
        cg_auto_fd int fd = -1;
        size_t n_fds = 1;
        struct cg_err err;
        ssize_t n = cg_recv_fds(w->fd, &m, sizeof(m), &fd, &n_fds, &err);

        if (n < 0 && err.sys_errno == EAGAIN)
                return;
        if (n != (ssize_t)sizeof(m)) {
                uv_poll_stop(&w->poll); /* the sandbox ends */
                return;
        }
        cg_sup_kernel_catch_up(k); /* which may end it */
        if (m.type == CG_EXEC_ASKED && n_fds == 1) {
                handle_asked(k, m.number, fd);
                return;
        }
        a = k->session ? cg_sup_ask_find(k->session, m.number, ASK_PROGRAM) : NULL;
        if (a && m.type == CG_EXEC_WITHDRAWN)
                cg_sup_ask_close(a, "the process that wanted to start it has ended");
}

int cg_sup_programs_open(struct kernel *k, int fd, struct cg_err *err)
{
        int copy = fcntl(fd, F_DUPFD_CLOEXEC, 3);

        if (copy < 0)
                return cg_fail_errno(err, "programs of cells");
        return cg_sup_watch_start(k->sup, &k->programs, copy, on_message, k, err);
}
