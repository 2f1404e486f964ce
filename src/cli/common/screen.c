/* Standard output and error of `cellgate run`. */
#include "cli/common/screen.h"

#include <sys/ioctl.h>
#include "base/buf.h"
#include "base/fd.h"
#include "base/text.h"
#include "cli/common/cli.h"

/* A note is one line for a person; the longest is a cg_err message with rendered escapes. */
#define MAX_NOTE 8192u

void cg_screen_init(struct cg_screen *s)
{
        const char *term = getenv("TERM");

        *s = (struct cg_screen){ .line_start = true };
        s->tty[1] = isatty(1) == 1;
        s->tty[2] = isatty(2) == 1;
        s->style = term && *term && strcmp(term, "dumb") != 0 && !getenv("NO_COLOR");
}

const char *cg_screen_mark(const struct cg_screen *s)
{
        return s->style ? "\x1b[0;1;7m" CG_MARK "\x1b[0m" : CG_MARK;
}

static void put(struct cg_screen *s, int fd, const char *text, size_t len)
{
        struct cg_err err;

        if (s->error || !len)
                return;
        if (cg_write_all(fd, text, len, &err) < 0) {
                s->error = err.sys_errno ?: EIO;
                s->error_fd = fd;
        }
}

static void erase_progress(struct cg_screen *s)
{
        static const char erase[] = "\r\x1b[K";

        if (s->progress)
                put(s, 2, erase, sizeof(erase) - 1);
        s->progress = false;
}

void cg_screen_clear(struct cg_screen *s)
{
        erase_progress(s);
        if (!s->line_start)
                put(s, s->tty[2] ? 2 : 1, "\n", 1);
        s->line_start = true;
        s->match = 0;
}

/*
 * Copies rendered text with the mark broken up. The text that is on the terminal already is
 * remembered in s->match, because a kernel can write "[cell" to standard output and "gate]" to
 * standard error.
 */
static void break_mark(struct cg_screen *s, const struct cg_buf *text, struct cg_buf *b)
{
        static const char mark[] = CG_MARK;
        size_t from = 0;

        cg_buf_fail(b, text->failed);
        for (size_t i = 0; i < text->len; i++) {
                if (text->data[i] != mark[s->match])
                        s->match = 0;
                s->match += text->data[i] == mark[s->match];
                if (s->match < sizeof(mark) - 1)
                        continue;
                cg_buf_add(b, text->data + from, i - from);
                cg_buf_addf(b, "\\x%02x", text->data[i]);
                from = i + 1;
                s->match = 0;
        }
        cg_buf_add(b, text->data + from, text->len - from);
}

void cg_screen_break_mark(const struct cg_buf *text, struct cg_buf *b)
{
        struct cg_screen alone = { .match = 0 };

        break_mark(&alone, text, b);
}

static void put_terminal(struct cg_screen *s, int fd, const char *text, size_t len)
{
        cg_auto_buf struct cg_buf shown = { .max = SIZE_MAX - 1 };
        cg_auto_buf struct cg_buf safe = { .max = SIZE_MAX - 1 };

        erase_progress(s);
        cg_text_render_as(&shown, text, len, 0, CG_TEXT_OUTPUT);
        break_mark(s, &shown, &safe);
        if (cg_buf_end(&safe, NULL) < 0) {
                s->error = ENOMEM;
                s->error_fd = fd;
                return;
        }
        put(s, fd, safe.data, safe.len);
        if (safe.len)
                s->line_start = safe.data[safe.len - 1] == '\n';
}

void cg_screen_write(struct cg_screen *s, int fd, const char *text, size_t len)
{
        if (!len)
                return;
        if (s->tty[fd])
                put_terminal(s, fd, text, len);
        else
                put(s, fd, text, len);
}

void cg_screen_line(struct cg_screen *s, int fd, const char *text, size_t len)
{
        cg_screen_write(s, fd, text, len);
        if (!len || text[len - 1] != '\n')
                cg_screen_write(s, fd, "\n", 1);
}

/* Never inverse, as the mark is. */
static const char *colour_of(const char *line, size_t len, const char *ename)
{
        size_t n = strlen(ename), blanks = strspn(line, " ");

        if (n && len >= n && memcmp(line, ename, n) == 0 && (len == n || line[n] == ':'))
                return "\x1b[1;31m";
        if (strncmp(line, "Cell In[", 8) == 0 || strncmp(line + blanks, "File ", 5) == 0)
                return "\x1b[36m";
        if (len > 3 && strncmp(line, "--", 2) == 0 && memmem(line, len, "> ", 2))
                return "\x1b[33m";
        return NULL;
}

void cg_screen_traceback(struct cg_screen *s, const char *text, size_t len, const char *ename)
{
        static const char plain[] = "\x1b[0m";

        if (!s->tty[2] || !s->style) {
                cg_screen_line(s, 2, text, len);
                return;
        }
        erase_progress(s);
        for (const char *line = text, *end = text + len; line < end;) {
                const char *eol = memchr(line, '\n', (size_t)(end - line));
                size_t n = (size_t)((eol ?: end) - line);
                const char *colour = colour_of(line, n, ename);

                if (colour)
                        put(s, 2, colour, strlen(colour));
                put_terminal(s, 2, line, n);
                if (colour)
                        put(s, 2, plain, sizeof(plain) - 1);
                put_terminal(s, 2, "\n", 1);
                line += n + 1;
        }
}

void cg_screen_note(struct cg_screen *s, const char *fmt, ...)
{
        cg_auto_buf struct cg_buf line = { .max = MAX_NOTE * 8 };
        cg_auto_buf struct cg_buf shown = { .max = MAX_NOTE * 4 };
        char text[MAX_NOTE];
        va_list ap;
        int n;

        va_start(ap, fmt);
        n = vsnprintf(text, sizeof(text), fmt, ap);
        va_end(ap);
        if (n < 0)
                return;
        for (char *p = text; *p; p++)
                if (*p == '\n')
                        *p = ' '; /* one line, with the mark before it */
        cg_screen_clear(s);
        cg_buf_addf(&line, "%s ", s->tty[2] ? cg_screen_mark(s) : CG_MARK);
        cg_text_render(&shown, text, strlen(text), MAX_NOTE * 4);
        /* A terminal breaks a long line, and its rest begins in the first column. */
        cg_screen_break_mark(&shown, &line);
        cg_buf_adds(&line, "\n");
        if (cg_buf_end(&line, NULL) == 0)
                put(s, 2, line.data, line.len);
}

void cg_screen_progress(struct cg_screen *s, const char *text)
{
        cg_auto_buf struct cg_buf given = { .max = 65536 }, line = { .max = 65536 };
        struct winsize ws;
        size_t n = 79;

        if (!s->tty[2] || (!s->line_start && !s->progress))
                return;
        erase_progress(s);
        cg_buf_adds(&line, CG_MARK " ");
        cg_buf_adds(&given, text);
        cg_screen_break_mark(&given, &line);
        if (cg_buf_end(&line, NULL) < 0)
                return;
        /* No character needs more columns than bytes. A second row could not be erased. */
        if (ioctl(2, TIOCGWINSZ, &ws) == 0 && ws.ws_col >= 20)
                n = ws.ws_col - 1u;
        if (line.len < n)
                n = line.len;
        while (n < line.len && ((unsigned char)line.data[n] & 0xc0) == 0x80)
                n--;
        put(s, 2, line.data, n);
        s->progress = true;
}

/* ---- texts of the command */

int cg_cli_fail(const char *command, const struct cg_err *err)
{
        cg_auto_buf struct cg_buf shown = { .max = sizeof(err->msg) * 16 };
        cg_auto_buf struct cg_buf b = { .max = sizeof(err->msg) * 64 };

        /* Names and servers' text in it may hold the mark of questions and notes. */
        cg_buf_adds(&b, "cellgate");
        if (*command)
                cg_buf_addf(&b, " %s", command);
        cg_buf_adds(&b, ": ");
        cg_text_render(&shown, err->msg, strlen(err->msg), 0);
        cg_screen_break_mark(&shown, &b);
        cg_buf_adds(&b, "\n");
        if (cg_buf_end(&b, NULL) == 0)
                cg_write_all(2, b.data, b.len, NULL);
        return CG_EXIT_USAGE;
}

int cg_cli_print(const char *text)
{
        struct cg_err err;

        if (cg_write_all(1, text, strlen(text), &err) == 0)
                return CG_EXIT_OK;
        cg_err_prefix(&err, "standard output");
        return cg_cli_fail("", &err);
}

int cg_cli_print_buf(const struct cg_buf *b)
{
        struct cg_err err;

        if (cg_buf_end(b, &err) == 0)
                return cg_cli_print(b->data ?: "");
        return cg_cli_fail("", &err);
}

int cg_cli_print_json(const json_t *o, size_t flags)
{
        cg_auto_free char *text = o ? json_dumps(o, flags | JSON_ENSURE_ASCII) : NULL;
        cg_auto_buf struct cg_buf b = { .max = SIZE_MAX - 1 };

        cg_buf_fail(&b, text ? 0 : CG_E_NOMEM);
        cg_buf_addf(&b, "%s\n", text ?: "");
        return cg_cli_print_buf(&b);
}
