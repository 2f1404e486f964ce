/*
 * The text of a tool call for the person who decides about it. Runs in the command `cellgate`; all
 * it shows is untrusted.
 */
#include "cli/common/args.h"

#include <string.h>
#include "base/text.h"
#include "base/util.h"
#include "cli/common/approve.h"
#include "cli/common/pretty.h"

/* First view of a call: about a screen. `v` shows the rest. */
#define SHORT_STRING 400u
#define SHORT_LINES  40u
#define INDENT       "  "
/*
 * Before the rest of a line that was broken: nothing that a call contains can look like a line of
 * its own.
 */
#define INDENT_REST "  ~ "

int cg_name_render(struct cg_buf *b, const char *name, struct cg_err *err)
{
        return cg_text_render_as(b, name, strlen(name), 0, CG_TEXT_LINE, err);
}

struct wrapped {
        struct cg_buf *b;
        unsigned width, column;
        size_t lines, max_lines, hidden;
};

static int new_line(struct wrapped *w, const char *indent, struct cg_err *err)
{
        w->column = (unsigned)strlen(indent);
        if (w->max_lines && w->lines >= w->max_lines) {
                w->hidden++;
                return 0;
        }
        if (w->lines++ && cg_buf_adds(w->b, "\n", err) < 0)
                return CG_E_NOMEM;
        return cg_buf_adds(w->b, indent, err);
}

/* @text is rendered already: what is left of controls is newline and tab. */
static int wrap(struct wrapped *w, const char *text, size_t len, struct cg_err *err)
{
        int r = 0;

        for (size_t i = 0; i < len && r == 0; i++) {
                /*
                 * Columns that a character may take. Terminals disagree about those beyond ASCII:
                 * two is the most that any of them uses, and breaking a line early does no harm,
                 * while breaking it late would let its rest begin in the first column.
                 */
                unsigned char first = (unsigned char)text[i];
                unsigned c = first < 0x80 ? 1 : (first & 0xc0) == 0x80 ? 0 : 2;

                if (text[i] == '\n') {
                        r = new_line(w, INDENT, err);
                        continue;
                }
                if (w->column + c > w->width)
                        r = new_line(w, INDENT_REST, err);
                w->column += c;
                if (r == 0 && !w->hidden)
                        r = cg_buf_add(w->b, text[i] == '\t' ? " " : &text[i], 1, err);
        }
        return r;
}

int cg_text_wrap(const char *text, size_t len, unsigned column, unsigned width, struct cg_buf *b,
                 struct cg_err *err)
{
        struct wrapped w = { .b = b, .width = width < 20 ? 20 : width, .column = column, .lines = 1 };

        return wrap(&w, text, len, err);
}

const char *cg_call_title(const struct cg_call *call)
{
        return strcmp(call->method, CG_METHOD_READ) == 0   ? "read a resource"
               : strcmp(call->method, CG_METHOD_GET) == 0  ? "get a prompt"
               : strcmp(call->method, CG_METHOD_EXEC) == 0 ? "start a program"
                                                           : "call a tool";
}

const char *cg_call_subject(const struct cg_event *e)
{
        return strcmp(cg_event_method(e), CG_METHOD_EXEC) == 0 ? cg_event_arguments(e, NULL)
                                                               : cg_event_tool(e);
}

/* The lines about a program: the command as a shell would read it, and what it is. */
static int add_program(struct cg_slice args, struct cg_buf *b, struct cg_err *err)
{
        static const struct {
                const char *key, *title;
        } lines[] = { { "command", "command   " },
                      { "program", "\nprogram   " },
                      { "interpreter", "\nrun by    " },
                      { "cwd", "\nfolder    " } };
        struct cg_slice v = CG_SLICE_NONE;
        int r = 0;

        for (size_t i = 0; i < CG_ARRAY_LEN(lines) && r == 0; i++) {
                cg_auto_free char *text = NULL;

                if (!args.p || !cg_json_find(args, lines[i].key, &v))
                        continue;
                cg_json_strdup(v, &text, NULL); /* fails for what is not UTF-8: the arguments show it */
                r = cg_buf_adds(b, lines[i].title, err);
                if (r == 0)
                        r = cg_name_render(b, text ? text : "(not UTF-8)", err);
        }
        if (r == 0 && args.p && cg_json_find(args, "writable", &v) && cg_json_kind(v) == 't')
                r = cg_buf_adds(b, "\nnote      cells can change this program", err);
        return r;
}

/* The line that names the tool, the resource or the prompt. */
static int add_subject(const struct cg_call *call, struct cg_slice args, struct cg_buf *b, struct cg_err *err)
{
        bool read = strcmp(call->method, CG_METHOD_READ) == 0, get = strcmp(call->method, CG_METHOD_GET) == 0;
        struct cg_slice value = CG_SLICE_NONE;
        cg_auto_free char *text = NULL;
        int r = cg_buf_adds(b, read ? "\nresource  " : get ? "\nprompt    " : "\ntool      ", err);

        if ((read || get) && (!args.p || !cg_json_find(args, read ? "uri" : "name", &value) ||
                              cg_json_strdup(value, &text, NULL) < 0))
                return r < 0 ? r : cg_buf_adds(b, "(not named)", err);
        return r < 0 ? r : cg_name_render(b, text ? text : call->tool, err);
}

int cg_call_show(const struct cg_call *call, unsigned width, bool whole, struct cg_buf *b, bool *cut,
                 struct cg_err *err)
{
        cg_auto_buf struct cg_buf text = { .max = SIZE_MAX - 1 };
        struct wrapped w = { .b = b, .width = width < 20 ? 20 : width, .max_lines = whole ? 0 : SHORT_LINES };
        struct cg_slice args = CG_SLICE_NONE;
        bool is_object = cg_json_object_slice(call->args, call->args_len, &args, NULL) == 0;
        bool program = strcmp(call->method, CG_METHOD_EXEC) == 0;
        int r = program ? add_program(args, &text, err) : cg_buf_adds(&text, "server    ", err);

        if (r == 0 && !program)
                r = cg_name_render(&text, call->server, err);
        if (r == 0 && !program)
                r = add_subject(call, args, &text, err);
        if (r == 0)
                r = cg_buf_addf(&text, err, "\narguments %zu bytes\n", call->args_len);
        *cut = false;
        if (r == 0 && is_object) {
                r = cg_pretty_json(args, whole ? 0 : SHORT_STRING, &text, cut, err);
        } else if (r == 0) {
                /* Should not happen; a person is shown what came nevertheless. */
                r = cg_buf_adds(&text, "(not one JSON object) ", err);
                if (r == 0)
                        r = cg_text_render(&text, call->args, call->args_len, 0, err);
        }
        if (r == 0)
                r = new_line(&w, INDENT, err);
        if (r == 0)
                r = wrap(&w, text.data, text.len, err);
        if (r == 0)
                r = cg_buf_adds(b, "\n", err);
        if (r == 0 && w.hidden) {
                *cut = true;
                r = cg_buf_addf(b, err, "... [%zu more lines not shown]\n", w.hidden);
        }
        return r;
}
