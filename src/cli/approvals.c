/*
 * `cellgate approvals`: questions of this user's sessions that other terminals may decide. Runs in
 * the command `cellgate`; what is shown comes from agents, and is rendered.
 */
#include <jansson.h>
#include <poll.h>
#include "base/ceilings.h"
#include "base/fd.h"
#include "base/json.h"
#include "base/proc.h"
#include "base/text.h"
#include "cli/common/approve.h"
#include "cli/common/cli.h"
#include "cli/common/opts.h"
#include "cli/common/prompt.h"
#include "cli/common/supervisors.h"
#include "cli/help.h"
#include "cli/option_tables.h"

/* Between attempts to connect to a supervisor that refuses, or does not answer. */
#define AGAIN_MS 3000
/* After a question, for more of the same cell: they are shown together. */
#define GATHER_MS 50
/* Programs of a user that differ in their preloaded modules, environment, limits or version. */
#define MAX_SOURCES 32
/* Questions that one command decides, and that one screen shows. */
#define MAX_IDS 32
/* Supervisors start at any time, and no event says so. */
#define SCAN_MS 1000
#define WIDTH   100

enum { CG_APPROVALS_OPTION_IDS };
enum approvals_command { LIST = 1, SHOW = 2, ACCEPT = 4, REJECT = 8, WATCH = 16 };

static const struct cg_opt table[] = { CG_APPROVALS_OPTION_ROWS };

/* A shared supervisor. */
struct source {
        char *address;
        struct cg_client *client; /* NULL: it does not answer */
        json_t *list;             /* questions, as they were read last */
        int64_t again_ms;         /* without a client: when to try again */
};

struct approvals {
        enum approvals_command command;
        const char *ids[MAX_IDS], *digests[MAX_IDS];
        size_t n_ids, n_digests;
        const char *id, *digest, *reason; /* id, digest: of the one that is decided now */
        bool json;
        struct cg_screen screen;
        struct source sources[MAX_SOURCES];
        size_t n;
        json_int_t more, others;  /* of the lists */
        struct cg_prompt *prompt; /* NULL: questions are shown, not asked */
        struct cg_client *client; /* of `asked` */
        struct {
                json_t *q; /* cg_client_approval() */
                struct cg_call call;
        } asked[MAX_IDS]; /* the questions that are shown */
        size_t n_asked;
        size_t alone;   /* of the next questions each is asked about alone */
        int64_t ask_ms; /* new questions have come: when to ask; 0: none have */
        int status;     /* to exit with; -1: watching goes on */
};

/* ------------------------------------------------------------------ supervisors */

static void source_free(struct source *s)
{
        cg_client_close(s->client);
        json_decref(s->list);
        free(s->address);
}

/* The supervisor was killed and left its folder behind. */
static bool is_absent(const struct cg_err *err)
{
        return err->sys_errno == ENOENT || err->sys_errno == ECONNREFUSED;
}

/* Connects again: it may have been starting, or another has taken its address. */
static void try_again(struct source *s)
{
        if (s->client || cg_now_ms() < s->again_ms)
                return;
        cg_supervisor_open(s->address, &s->client, NULL);
        s->again_ms = cg_now_ms() + AGAIN_MS;
}

static int add_source(const char *address, void *data)
{
        struct approvals *a = data;
        struct source *s = &a->sources[a->n];
        struct cg_err err = { 0 };

        for (size_t i = 0; i < a->n; i++) {
                if (strcmp(a->sources[i].address, address) != 0)
                        continue;
                try_again(&a->sources[i]);
                return 0;
        }
        if (a->n == MAX_SOURCES)
                return 0;
        *s = (struct source){ .address = strdup(address),
                              .list = json_array(),
                              .again_ms = cg_now_ms() + AGAIN_MS };
        if (!s->address || (cg_supervisor_open(address, &s->client, &err) < 0 && is_absent(&err))) {
                source_free(s);
                return 0;
        }
        if (!s->client)
                cg_screen_note(&a->screen, "questions of one supervisor are not known: %s", err.msg);
        a->n++;
        return 0;
}

/* Reads the list of a supervisor. Negative: it has ended, or does not answer any more. */
static int read_list(struct approvals *a, struct source *s, struct cg_err *err)
{
        cg_auto_json json_t *o = NULL;
        char *text = NULL;

        if (!s->client)
                return 0;
        if (cg_client_approvals(s->client, &text, err) < 0)
                return -1;
        o = cg_reply_json(text);
        json_decref(s->list);
        s->list = json_deep_copy(json_object_get(o, "approvals")) ?: json_array();
        a->more += cg_reply_number(o, "more");
        a->others += cg_reply_number(o, "others");
        return 0;
}

static void forget(struct approvals *a)
{
        while (a->n_asked)
                json_decref(a->asked[--a->n_asked].q);
}

/* Adds the question @id to those that are shown. */
static int get(struct approvals *a, struct cg_client *client, const char *id, struct cg_err *err)
{
        char *text = NULL;
        json_t *o, *args;
        int r = cg_client_approval(client, id, &text, err);

        if (r < 0)
                return r;
        o = cg_reply_json(text);
        args = json_object_get(o, "arguments");
        if (!args)
                json_decref(o);
        if (!args)
                return cg_fail(err, CG_E_PROTO, "the supervisor's answer about %.40s cannot be read", id);
        a->client = client;
        a->asked[a->n_asked].q = o;
        a->asked[a->n_asked].call = (struct cg_call){ .server = cg_json_text_of(o, "server"),
                                                      .tool = cg_json_text_of(o, "tool"),
                                                      .method = cg_json_text_of(o, "method"),
                                                      .args = json_string_value(args),
                                                      .args_len = json_string_length(args),
                                                      .cell = (uint64_t)cg_reply_number(o, "cell"),
                                                      .elsewhere = true };
        if (a->n_asked)
                a->asked[a->n_asked - 1].call.next = &a->asked[a->n_asked].call;
        a->n_asked++;
        return 0;
}

static int find(struct approvals *a, struct cg_err *err)
{
        forget(a);
        cg_fail(err, CG_E_NOTFOUND, "no question %.40s waits: no supervisor is running", a->id);
        for (size_t i = 0; i < a->n; i++)
                if (a->sources[i].client && get(a, a->sources[i].client, a->id, err) == 0)
                        return 0;
        return -1;
}

/* ------------------------------------------------------------------ list, show, decide */

/* Names the subject of a question in a few words. */
static void add_what(const json_t *q, struct cg_buf *b)
{
        const char *method = cg_json_text_of(q, "method");

        if (strcmp(method, CG_METHOD_EXEC) == 0) {
                cg_buf_adds(b, "a program");
        } else if (strcmp(method, CG_METHOD_CONNECT) != 0) {
                cg_approve_name(b, cg_json_text_of(q, "server"), method, cg_json_text_of(q, "tool"));
        } else {
                cg_buf_adds(b, "connection to ");
                cg_name_render(b, cg_json_text_of(q, "host"));
                cg_buf_addf(b, ":%lld", cg_reply_number(q, "port"));
        }
}

static void add_lines(const json_t *q, struct cg_buf *b)
{
        cg_buf_addf(b, "%.16s  ", cg_json_text_of(q, "id"));
        add_what(q, b);
        cg_buf_adds(b, "\n  waits for ");
        cg_add_duration(b, cg_reply_number(q, "waiting_ms"));
        if (json_object_get(q, "left_ms")) {
                cg_buf_adds(b, ", ends in ");
                cg_add_duration(b, cg_reply_number(q, "left_ms"));
        } else {
                cg_buf_adds(b, ", no time limit");
        }
        cg_buf_addf(b, "; cell %lld of session %.8s of process %lld, in ", cg_reply_number(q, "cell"),
                    cg_json_text_of(q, "session"), cg_reply_number(q, "pid"));
        cg_name_render(b, cg_json_text_of(q, "workspace"));
        cg_buf_adds(b, "\n");
}

static int list(struct approvals *a, struct cg_err *err)
{
        cg_auto_buf struct cg_buf b = { .max = CG_MAX_REPORT };
        json_int_t private = (json_int_t)cg_private_supervisors();
        cg_auto_json json_t *all = json_array(), *answer = NULL;
        const json_t *q;
        size_t i;

        for (i = 0; i < a->n; i++) {
                if (read_list(a, &a->sources[i], err) < 0)
                        cg_screen_note(&a->screen, "questions of one supervisor are not known: %s", err->msg);
                json_array_extend(all, a->sources[i].list);
        }
        if (a->json) {
                answer = json_pack("{s:O, s:I, s:I, s:I}", "approvals", all, "more", a->more, "others",
                                   a->others, "private", private);
                return cg_cli_print_json(answer, JSON_INDENT(2));
        }
        json_array_foreach(all, i, q)
                add_lines(q, &b);
        if (!json_array_size(all))
                cg_buf_adds(&b, "no question waits that can be decided here\n");
        if (a->more)
                cg_buf_addf(&b, "%lld more are not listed\n", a->more);
        if (a->others)
                cg_buf_addf(&b,
                            "%lld more can be decided only where their session was started, which was without"
                            " --decide-elsewhere\n",
                            a->others);
        if (private)
                cg_buf_addf(&b, "not reachable from here: the questions of %lld private supervisor%s\n",
                            private, cg_cli_s(private));
        return cg_cli_print_buf(&b);
}

static void add_code(const char *code, struct cg_buf *b)
{
        cg_auto_buf struct cg_buf text = { .max = SIZE_MAX - 1 };

        if (!*code)
                return;
        cg_text_render(&text, code, strlen(code), 0);
        cg_buf_fail(b, text.failed);
        cg_buf_adds(b, "code of the cell:\n  ");
        cg_text_wrap(text.data ?: "", text.len, 2, WIDTH, b);
        cg_buf_adds(b, "\n");
}

static int show(const struct approvals *a)
{
        cg_auto_buf struct cg_buf b = { .max = SIZE_MAX - 1 };
        struct cg_call_view view = { .width = WIDTH };
        json_t *q = a->asked[0].q;

        if (a->json)
                return cg_cli_print_json(q, JSON_INDENT(2));
        add_lines(q, &b);
        cg_buf_addf(&b, "wants to %s:\n", cg_call_words(a->asked[0].call.method)->title);
        cg_call_show(&a->asked[0].call, &view, &b);
        add_code(cg_json_text_of(q, "code"), &b);
        cg_buf_addf(&b, "digest %s\n", cg_json_text_of(q, "digest"));
        return cg_cli_print_buf(&b);
}

/* Decides about one of the shown questions. */
static int decide(const struct approvals *a, size_t i, bool accept, const char *reason, struct cg_err *err)
{
        const json_t *q = a->asked[i].q;

        return cg_client_decide(a->client, cg_json_text_of(q, "id"),
                                a->digest ?: cg_json_text_of(q, "digest"), accept, reason, err);
}

/* ------------------------------------------------------------------ watch */

static const json_t *listed(const json_t *list, const char *id)
{
        json_t *q;
        size_t i;

        json_array_foreach(list, i, q) {
                if (strcmp(cg_json_text_of(q, "id"), id) == 0)
                        return q;
        }
        return NULL;
}

/* Shows what is in @list and not in @old, if it is not asked about. */
static int show_new(struct approvals *a, const json_t *list, const json_t *old, const char *type,
                    struct cg_err *err)
{
        cg_auto_buf struct cg_buf b = { .max = CG_MAX_REPORT };
        const json_t *q;
        json_t *line;
        size_t i;

        json_array_foreach(list, i, q) {
                if (listed(old, cg_json_text_of(q, "id")))
                        continue;
                if (!a->json) {
                        add_lines(q, &b);
                        continue;
                }
                line = json_pack("{s:s}", "type", type);
                json_object_update(line, cg_json_unconst(q));
                if (cg_cli_print_json(line, JSON_COMPACT) != CG_EXIT_OK)
                        a->status = CG_EXIT_USAGE;
                json_decref(line);
        }
        if (cg_buf_end(&b, err) < 0)
                return -1;
        if (b.len && cg_cli_print(b.data) != CG_EXIT_OK)
                a->status = CG_EXIT_USAGE;
        return 0;
}

/* One of those that are shown waits no more. */
static bool has_ended(const struct approvals *a)
{
        char *text = NULL;
        size_t i = 0;

        while (i < a->n_asked &&
               cg_client_approval(a->client, cg_json_text_of(a->asked[i].q, "id"), &text, NULL) == 0) {
                cg_free(text);
                i++;
        }
        return i < a->n_asked;
}

/* Reads the list of @s again. The open question is withdrawn if it does not wait any more. */
static int update(struct approvals *a, struct source *s, struct cg_err *err)
{
        cg_auto_json json_t *old = json_incref(s->list);
        bool ended = read_list(a, s, err) < 0;
        int r = 0;

        if (!a->ask_ms)
                a->ask_ms = cg_now_ms() + GATHER_MS;

        if (ended) {
                json_decref(s->list);
                s->list = json_array();
        }
        if (!a->prompt)
                r = show_new(a, s->list, old, "question", err);
        if (r >= 0 && a->json)
                r = show_new(a, old, s->list, "closed", err);
        if (a->prompt && cg_prompt_is_open(a->prompt) && a->client == s->client && (ended || has_ended(a)))
                cg_prompt_withdraw(a->prompt,
                                   "this question has ended: it was decided elsewhere, or waits no more");
        if (!ended)
                return r;
        source_free(s); /* a successor is another source */
        *s = a->sources[--a->n];
        return r;
}

static bool same_cell(const json_t *a, const json_t *b)
{
        return cg_reply_number(a, "cell") && cg_reply_number(a, "cell") == cg_reply_number(b, "cell") &&
               strcmp(cg_json_text_of(a, "session"), cg_json_text_of(b, "session")) == 0;
}

/* The oldest question of a list that has not been asked about, and what else its cell waits for. */
static void take_next(struct approvals *a, struct source *s)
{
        const json_t *first = NULL;

        forget(a);
        for (size_t i = json_array_size(s->list); i-- > 0 && a->n_asked < MAX_IDS;) {
                json_t *q = json_array_get(s->list, i);

                if (json_object_get(q, "asked") || (first && (a->alone || !same_cell(first, q))))
                        continue;
                json_object_set_new(q, "asked", json_true());
                if (get(a, s->client, cg_json_text_of(q, "id"), NULL) == 0)
                        first = first ?: q;
        }
        a->alone -= a->alone && first;
}

/* Asks about the next questions. ACCEPT asks about one only. */
static int ask_next(struct approvals *a, struct cg_err *err)
{
        if (!a->prompt || cg_prompt_is_open(a->prompt) || a->ask_ms > cg_now_ms())
                return 0;
        if (a->command == ACCEPT) {
                a->status = CG_EXIT_RAISED; /* it has ended */
                return 0;
        }
        a->ask_ms = 0;
        for (size_t i = 0; i < a->n; i++) {
                take_next(a, &a->sources[i]);
                if (a->n_asked)
                        return cg_prompt_ask(a->prompt, &a->asked[0].call, err);
        }
        return 0;
}

/* Each of several questions is asked about again. */
static void ask_each(struct approvals *a)
{
        json_t *q;
        size_t n;

        a->alone = a->n_asked;
        for (size_t i = 0; i < a->n; i++)
                json_array_foreach(a->sources[i].list, n, q)
                        json_object_del(q, "asked");
}

static int on_key(struct approvals *a, struct cg_err *err)
{
        enum cg_prompt_answer answer;
        const char *reason = NULL;
        struct cg_err why;

        if (cg_prompt_read(a->prompt, &answer, err) < 0)
                return -1;
        if (answer == CG_ANSWER_NONE)
                return 0;
        if (answer == CG_ANSWER_EOF) { /* the question stays open for others */
                a->status = CG_EXIT_CANCELLED;
                return 0;
        }
        if (answer == CG_ANSWER_EACH) {
                ask_each(a);
                return 0;
        }
        if (answer != CG_ANSWER_YES)
                reason = cg_prompt_text(a->prompt, NULL) ?: "refused in another terminal";
        for (size_t i = 0; i < a->n_asked; i++) {
                if (decide(a, i, answer == CG_ANSWER_YES, reason, &why) < 0)
                        cg_screen_note(&a->screen, "%s", why.msg);
                else if (a->command == ACCEPT)
                        a->status = CG_EXIT_OK;
        }
        return 0;
}

static int wait_once(struct approvals *a, int sig, struct cg_err *err)
{
        bool asking = a->prompt && cg_prompt_is_open(a->prompt);
        struct pollfd p[3 + MAX_SOURCES] = { { .fd = sig, .events = POLLIN },
                                             { .fd = -1, .events = POLLIN },
                                             { .fd = 1 } }; /* 1: the end of its reader */
        int timeout_ms = SCAN_MS;

        if (asking) {
                p[1].fd = cg_prompt_fd(a->prompt);
                timeout_ms = cg_prompt_timeout(a->prompt);
        }
        if (!asking && a->ask_ms)
                timeout_ms = (int)CG_MAX(a->ask_ms - cg_now_ms(), 0);
        for (size_t i = 0; i < a->n; i++) {
                p[3 + i] = (struct pollfd){ .fd = -1, .events = POLLIN };
                if (a->sources[i].client)
                        p[3 + i].fd = cg_client_approvals_fd(a->sources[i].client, err);
        }
        if (timeout_ms < 0 || timeout_ms > SCAN_MS)
                timeout_ms = SCAN_MS;
        if (poll(p, 3 + a->n, timeout_ms) < 0)
                return cg_fail_errno(err, "poll");
        if (p[0].revents)
                a->status = CG_EXIT_CANCELLED;
        if (p[2].revents)
                a->status = CG_EXIT_PIPE;
        if (a->status >= 0)
                return 0;
        if (p[1].revents && on_key(a, err) < 0)
                return -1;
        if (asking && cg_prompt_due(a->prompt, err) < 0)
                return -1;
        for (size_t i = a->n; i-- > 0;) /* the last takes the place of one that has ended */
                if (p[3 + i].revents && update(a, &a->sources[i], err) < 0)
                        return -1;
        return 0;
}

/* Follows the questions until a signal, or asks about a->asked. */
static int watch(struct approvals *a, struct cg_err *err)
{
        cg_auto_fd int sig = -1;

        if (cg_block_end_signals(NULL, &sig, err) < 0)
                return -1;
        if (!a->json && !a->prompt && cg_prompt_open(&a->screen, &a->prompt, err) < 0 && a->command == ACCEPT)
                return cg_err_prefix(err, "give the --digest that show prints");
        if (a->n_asked && cg_prompt_ask(a->prompt, &a->asked[0].call, err) < 0)
                return -1;
        while (a->status < 0) {
                if (cg_supervisors(add_source, a, err) < 0 || wait_once(a, sig, err) < 0 ||
                    (a->status < 0 && ask_next(a, err) < 0))
                        return -1;
        }
        if (a->prompt)
                cg_prompt_withdraw(a->prompt, "this question stays open");
        return a->status;
}

/* ------------------------------------------------------------------ the command */

/* All of several questions must wait before one of them is decided. Returns the exit status. */
static int check_one(struct approvals *a, size_t i, struct cg_err *err)
{
        int r;

        a->id = a->ids[i];
        r = find(a, err);
        if (r == 0 && (!a->n_digests || strcmp(a->digests[i], cg_json_text_of(a->asked[0].q, "digest")) == 0))
                return CG_EXIT_OK;
        if (r == 0)
                cg_fail(err, CG_E_INVAL, "question %.40s has another digest: nothing was decided", a->id);
        cg_cli_fail("approvals", err);
        return CG_EXIT_RAISED;
}

/* Returns the exit status; negative as for run(). */
static int decide_one(struct approvals *a, size_t i, struct cg_err *err)
{
        a->id = a->ids[i];
        a->digest = NULL;
        if (a->n_digests)
                a->digest = a->digests[i];
        a->status = -1;
        if (find(a, err) == 0) {
                if (a->command == SHOW)
                        return show(a);
                if (a->command == ACCEPT && !a->digest)
                        return watch(a, err);
                if (decide(a, 0, a->command == ACCEPT, a->reason, err) == 0)
                        return cg_cli_print(a->command == ACCEPT ? "accepted\n" : "rejected\n");
        }
        cg_cli_fail("approvals", err);
        return CG_EXIT_RAISED;
}

/* Returns the exit status; negative: *err is an error of usage. */
static int run(struct approvals *a, struct cg_err *err)
{
        int r = CG_EXIT_OK;

        if (cg_supervisors(add_source, a, err) < 0)
                return -1;
        if (a->command == LIST)
                return list(a, err);
        if (a->command == WATCH)
                return watch(a, err);
        for (size_t i = 0; r == CG_EXIT_OK && i < a->n_ids && a->n_ids > 1; i++)
                r = check_one(a, i, err);
        for (size_t i = 0; r == CG_EXIT_OK && i < a->n_ids; i++)
                r = decide_one(a, i, err);
        return r;
}

/* Return: 0; HELP; negative. */
static int parse(struct approvals *a, int argc, char **argv, struct cg_err *err)
{
        static const struct cg_opt_place places[] = {
                CG_OPT_PLACE(REASON, struct approvals, reason),
                CG_OPT_PLACE(JSON, struct approvals, json),
        };
        static const char *const names[] = { "list", "show", "accept", "reject", "watch" };
        int id = cg_opt_command(names, CG_ARRAY_LEN(names), ~0u, argc, argv, err);
        struct cg_optscan scan = CG_OPT_SCAN(table, (unsigned)id, argc, argv, 2);
        const char *value = NULL;
        bool one;

        if (id <= 0)
                return id < 0 ? id : HELP;
        a->command = (enum approvals_command)id;
        one = a->command & (SHOW | ACCEPT | REJECT);
        while ((id = cg_opt_read(&scan, places, CG_ARRAY_LEN(places), a, &value, err)) != CG_OPT_END) {
                if (id < 0 || id == HELP)
                        return id;
                if (id == CG_OPT_ARG && (!one || (a->command == SHOW && a->n_ids)))
                        return cg_fail(err, CG_E_INVAL, "unexpected argument \"%s\"", value);
                if ((id == CG_OPT_ARG ? a->n_ids : a->n_digests) == MAX_IDS)
                        return cg_fail(err, CG_E_INVAL, "more than %d questions", MAX_IDS);
                if (id == CG_OPT_ARG)
                        a->ids[a->n_ids++] = value;
                else
                        a->digests[a->n_digests++] = value;
        }
        if (one && !a->n_ids)
                return cg_fail(err, CG_E_INVAL,
                               "the ID of a question is missing: see cellgate approvals list");
        if (a->n_digests && a->n_digests != a->n_ids)
                return cg_fail(err, CG_E_INVAL, "give one --digest for each ID, in their order");
        return 0;
}

int cg_cli_approvals(int argc, char **argv)
{
        struct approvals a = { .status = -1 };
        struct cg_err err;
        int r = parse(&a, argc, argv, &err);

        cg_screen_init(&a.screen);
        if (r == HELP)
                r = cg_opt_help(table, CG_ARRAY_LEN(table), ~0u, CG_HELP_APPROVALS);
        else if (r == 0)
                r = run(&a, &err);
        if (r < 0)
                r = cg_cli_fail("approvals", &err);
        while (a.n)
                source_free(&a.sources[--a.n]);
        forget(&a);
        cg_prompt_free(a.prompt);
        return r;
}
