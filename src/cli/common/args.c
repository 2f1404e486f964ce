/*
 * The text of a tool call for the person who decides about it. Runs in the command `cellgate`; all
 * it shows is untrusted.
 */
#include "cli/common/args.h"

#include "base/path.h"
#include "base/sha256_hex.h"
#include "base/text.h"
#include "cli/common/approve.h"
#include "cli/common/pretty.h"

/* Characters of a string or a name in a view that does not show all. */
#define SHORT_STRING 300u
#define SHORT_NAME   300u
/* Longer arguments are not tried whole in the first view. */
#define TRY_WHOLE ((size_t)64 << 10)
#define INDENT    "  "
/* Before the rest of a broken line: nothing in a call can look like a line of its own. */
#define INDENT_REST "  ~ "

void cg_name_render(struct cg_buf *b, const char *name)
{
        cg_text_render_as(b, name, strlen(name), 0, CG_TEXT_LINE);
}

struct wrapped {
        struct cg_buf *b;
        unsigned width, column;
};

static void new_line(struct wrapped *w, const char *indent)
{
        w->column = (unsigned)strlen(indent);
        cg_buf_addf(w->b, "\n%s", indent);
}

/*
 * How much of @text fits on the line: up to a newline or the blank before a word; words longer than
 * half a line are broken. Beyond ASCII, terminals use at most two columns for a character.
 */
static size_t fitting(const struct wrapped *w, const char *text, size_t len)
{
        unsigned column = w->column;
        size_t word = 0;

        for (size_t i = 0; i < len; i++) {
                unsigned char c = (unsigned char)text[i];

                if (c == '\n')
                        return i;
                if (c == ' ' && column > w->width / 2)
                        word = i;
                column += (c < 0x80) + 2 * (c >= 0xc0);
                if (column > w->width)
                        return word ?: i;
        }
        return len;
}

/* @text is rendered already: what is left of controls is newline and tab. */
static void wrap(struct wrapped *w, const char *text, size_t len)
{
        while (!w->b->failed) {
                size_t n = fitting(w, text, len), from = w->b->len;

                cg_buf_add(w->b, text, n);
                for (size_t i = from; i < w->b->len; i++)
                        if (w->b->data[i] == '\t')
                                w->b->data[i] = ' ';
                if (n == len)
                        return;
                new_line(w, text[n] == '\n' ? INDENT : INDENT_REST);
                n += text[n] == '\n';
                text += n;
                len -= n;
        }
}

void cg_text_wrap(const char *text, size_t len, unsigned column, unsigned width, struct cg_buf *b)
{
        struct wrapped w = { .b = b, .column = column };

        w.width = CG_MAX(width, 20);
        wrap(&w, text, len);
}

/* Lines of a call, from its text; a text that is not whole fails. */
static void add_wrapped(struct cg_buf *b, const struct cg_buf *text, unsigned width)
{
        cg_buf_fail(b, text->failed);
        cg_buf_adds(b, INDENT);
        cg_text_wrap(text->data ?: "", text->len, sizeof(INDENT) - 1, width, b);
        cg_buf_adds(b, "\n");
}

const struct cg_call_words *cg_call_words(const char *method)
{
        static const struct cg_call_words words[] = {
                { CG_METHOD_READ, "read a resource", "all resources of this server", "resource  ", "uri" },
                { CG_METHOD_GET, "get a prompt", "all prompts of this server", "prompt    ", "name" },
                { CG_METHOD_EXEC, "start a program", "exactly this command, folder and variables", NULL,
                  NULL },
                { CG_METHOD_CONNECT, "connect to a host", NULL, NULL, NULL },
                { CG_METHOD_CALL, "call a tool", "this tool", "tool      ", NULL },
        };
        size_t i = 0;

        while (i < CG_ARRAY_LEN(words) - 1 && strcmp(method, words[i].method) != 0)
                i++;
        return &words[i];
}

const char *cg_call_subject(const struct cg_event *e)
{
        if (strcmp(cg_event_method(e), CG_METHOD_EXEC) == 0)
                return cg_event_arguments(e, NULL);
        return cg_event_tool(e);
}

struct cg_call cg_call_asked(const struct cg_event *e)
{
        struct cg_call call = { .server = cg_event_server(e),
                                .tool = cg_event_tool(e),
                                .method = cg_event_method(e),
                                .line = cg_event_text(e, NULL),
                                .cell = cg_event_cell(e) };

        call.args = cg_event_arguments(e, &call.args_len);
        return call;
}

struct cg_pol_call cg_call_of(const struct cg_event *e)
{
        struct cg_pol_call call = {
                .server = "", .method = CG_METHOD_CONNECT, .tool = "", .cell = cg_event_cell(e)
        };

        if (cg_event_type(e) == CG_EVENT_EGRESS_REQUEST) {
                call.args = cg_event_json(e, &call.args_len);
                return call;
        }
        call.server = cg_event_server(e);
        call.method = cg_event_method(e);
        call.tool = cg_call_subject(e);
        call.args = cg_event_arguments(e, &call.args_len);
        return call;
}

static size_t next_utf8(const char *p, const char *end, uint32_t *c)
{
        return p < end ? cg_utf8_next((const unsigned char *)p, (size_t)(end - p), c) : 0;
}

/* Characters between @at and @to, on one line but for blanks that are folded. */
static void add_part(struct cg_buf *b, const char *at, const char *to, const char *end)
{
        const char *from = at;
        struct cg_fold f;
        size_t n;

        for (; at < to && (n = cg_fold_next(next_utf8, at, end, &f)) > 0; at += n) {
                if (!f.blanks)
                        continue;
                cg_text_render_as(b, from, (size_t)(at - from), 0, CG_TEXT_LINE);
                /* No name has a line break: what begins a line comes from here. */
                cg_buf_addf(b, "\n... [%zu blanks]\n~ ", f.blanks);
                from = at + n;
        }
        cg_text_render_as(b, from, (size_t)(to - from), 0, CG_TEXT_LINE);
}

/* A name or a command. With more than @max characters (0: no limit) its middle is left out. */
static void add_name(struct cg_buf *b, const char *name, size_t max)
{
        const char *end = name + strlen(name), *head = end, *tail = end;

        if (max)
                cg_fold_cut(next_utf8, name, end, max, &head, &tail);
        add_part(b, name, head, end);
        if (tail > head)
                cg_buf_addf(b, "\n... [%zu more bytes not shown]\n~ ", (size_t)(tail - head));
        add_part(b, tail, end, end);
}

/* Does the first argument, which a command line begins with, name another program? */
static bool named_otherwise(struct cg_slice args, const char *program)
{
        struct cg_slice argv = CG_SLICE_NONE, first = CG_SLICE_NONE;
        cg_auto_free char *name = NULL;
        struct cg_json_walk w;

        if (!program || !cg_json_find(args, "argv", &argv) || cg_json_walk_init(&w, argv, '[', NULL) < 0 ||
            cg_json_walk_next(&w, NULL, &first, NULL) != 0 || cg_json_strdup(first, &name, NULL) < 0)
                return true;
        return strcmp(name, program) != 0 && strcmp(name, cg_path_base(program)) != 0;
}

static char *member_text(struct cg_slice args, const char *key)
{
        struct cg_slice v = CG_SLICE_NONE;
        char *text = NULL;

        if (!args.p || !cg_json_find(args, key, &v) || cg_json_strdup(v, &text, NULL) < 0)
                return NULL;
        return text;
}

/* Members about a program that have lines of their own. */
enum { COMMAND, PROGRAM, INTERPRETER, FOLDER, N_LINES };
static const char *const program_keys[] = { "command", "program", "interpreter", "cwd" };

/*
 * The lines about a program: the command as a shell would read it, and what it is. The program
 * comes first if the command line begins with another name. shown[]: the members that the lines
 * show.
 */
static void add_program(struct cg_slice args, bool whole, const char *shown[N_LINES + 1], struct cg_buf *b)
{
        static const char *const titles[] = { "command   ", "program   ", "run by    ", "folder    " };
        cg_auto_free char *program = member_text(args, "program");
        bool other = named_otherwise(args, program);
        struct cg_slice v = CG_SLICE_NONE;
        size_t n = 0, max = whole ? 0 : SHORT_NAME;

        for (size_t i = 0; i < N_LINES; i++) {
                size_t k = other && i <= PROGRAM ? PROGRAM - i : i;
                cg_auto_free char *text = member_text(args, program_keys[k]);

                if (!args.p || !cg_json_find(args, program_keys[k], &v))
                        continue;
                if (i)
                        cg_buf_adds(b, "\n");
                cg_buf_adds(b, other && k == COMMAND ? "called as " : titles[k]);
                /* not UTF-8: the arguments show it */
                add_name(b, text ?: "(not UTF-8)", max);
                if (text)
                        shown[n++] = program_keys[k];
        }
        shown[n] = NULL;
        if (args.p && cg_json_find(args, "writable", &v) && cg_json_kind(v) == 't')
                cg_buf_adds(b, "\nnote      cells can change this program");
}

/* The line that names the tool, the resource or the prompt. */
static void add_subject(const struct cg_call *call, struct cg_slice args, bool whole, struct cg_buf *b)
{
        const struct cg_call_words *words = cg_call_words(call->method);
        cg_auto_free char *text = words->key ? member_text(args, words->key) : NULL;

        if (!words->label) /* the host of a connection is among the arguments */
                return;
        cg_buf_addf(b, "\n%s", words->label);
        if (words->key && !text)
                cg_buf_adds(b, "(not named)");
        else
                add_name(b, text ?: call->tool, whole ? 0 : SHORT_NAME);
}

/* The line about the size; with a digest, so that a person can compare what is shown in parts. */
static void add_size(const struct cg_call *call, bool digest, struct cg_buf *b)
{
        char hex[CG_SHA256_HEX];

        cg_buf_addf(b, "\narguments %zu bytes\n", call->args_len);
        if (!digest)
                return;
        cg_sha256_hex(call->args, call->args_len, hex);
        cg_buf_addf(b, "SHA-256   %s\n", hex);
}

/* The lines of a call. Unless @whole, the middle of long texts is left out. */
static void add_call(const struct cg_call *call, unsigned width, bool whole, bool digest, struct cg_buf *b)
{
        cg_auto_buf struct cg_buf text = { .max = SIZE_MAX - 1 };
        struct cg_slice args = CG_SLICE_NONE;
        bool is_object = cg_json_object_slice(call->args, call->args_len, &args, NULL) == 0;
        const char *shown[N_LINES + 1] = { NULL };

        if (strcmp(call->method, CG_METHOD_EXEC) == 0) {
                add_program(args, whole, shown, &text);
                if (call->line && *call->line) {
                        cg_buf_adds(&text, "\nline      ");
                        add_name(&text, call->line, 0);
                }
        } else {
                cg_buf_adds(&text, "server    ");
                add_name(&text, call->server, whole ? 0 : SHORT_NAME);
                add_subject(call, args, whole, &text);
        }
        add_size(call, digest, &text);
        if (is_object) {
                cg_pretty_json(args, whole ? 0 : SHORT_STRING, shown, &text);
        } else {
                /* This should not happen; a person is shown what came nevertheless. */
                cg_buf_adds(&text, "(not one JSON object) ");
                cg_text_render(&text, call->args, call->args_len, 0);
        }
        add_wrapped(b, &text, width);
}

/* The calls of one question. The lines between them begin where no text of a call does. */
static void add_calls(const struct cg_call *call, unsigned width, bool whole, bool digest, struct cg_buf *b)
{
        size_t n = cg_call_count(call);

        for (size_t i = 1; call; call = call->next, i++) {
                if (n > 1)
                        cg_buf_addf(b, "%zu of %zu, to %s:\n", i, n, cg_call_words(call->method)->title);
                add_call(call, width, whole, digest, b);
        }
}

void cg_call_line(const char *args, unsigned width, struct cg_buf *b)
{
        cg_auto_buf struct cg_buf text = { .max = SIZE_MAX - 1 };

        add_name(&text, args, 0);
        add_wrapped(b, &text, width);
}

/* The offset of the line with this number, counted from 0; the length if there are fewer. */
static size_t line_at(const struct cg_buf *b, size_t line)
{
        const char *p = b->data, *end = b->data + b->len;

        for (; line && p < end; line--)
                p = (const char *)memchr(p, '\n', (size_t)(end - p)) + 1;
        return (size_t)(p - b->data);
}

static size_t count_lines(const struct cg_buf *b)
{
        size_t n = 0;

        for (size_t i = 0; i < b->len; i++)
                n += b->data[i] == '\n';
        return n;
}

static void add_lines(struct cg_buf *b, const struct cg_buf *all, size_t from, size_t n)
{
        size_t start;

        if (b->failed) /* perhaps as @all has, whose last line then has no end */
                return;
        start = line_at(all, from);
        cg_buf_add(b, all->data + start, line_at(all, from + n) - start);
}

/* The first view of a call that is too long for one view: its beginning and its end. */
static void show_short(const struct cg_call *call, const struct cg_call_view *v, struct cg_buf *b)
{
        cg_auto_buf struct cg_buf all = { .max = SIZE_MAX - 1 };
        size_t n, end = v->lines / 3;

        add_calls(call, v->width, false, true, &all);
        cg_buf_fail(b, all.failed);
        n = count_lines(&all);
        if (n <= v->lines) {
                cg_buf_add(b, all.data, all.len);
                return;
        }
        add_lines(b, &all, 0, v->lines - end);
        cg_buf_addf(b, "... [%zu more lines not shown]\n", n - v->lines);
        add_lines(b, &all, n - end, end);
}

void cg_call_show(const struct cg_call *call, struct cg_call_view *v, struct cg_buf *b)
{
        cg_auto_buf struct cg_buf all = { .max = SIZE_MAX - 1 };
        bool limited = v->lines && !v->part;
        size_t n, len = 0;

        for (const struct cg_call *c = call; c; c = c->next)
                len += c->args_len;
        v->last = false;
        if (limited && len > TRY_WHOLE) {
                show_short(call, v, b);
                return;
        }
        add_calls(call, v->width, true, v->part > 0, &all);
        cg_buf_fail(b, all.failed);
        n = count_lines(&all);
        if (limited && n > v->lines) {
                show_short(call, v, b);
        } else if (!v->part || !v->lines) {
                cg_buf_add(b, all.data, all.len);
                v->last = !b->failed;
        } else {
                v->parts = (n + v->lines - 1) / v->lines;
                add_lines(b, &all, (v->part - 1) * v->lines, v->lines);
                v->last = !b->failed && v->part >= v->parts;
        }
}
