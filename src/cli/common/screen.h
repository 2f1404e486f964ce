/*
 * Standard output and error of `cellgate run`. Where one is a terminal, what comes from a kernel is
 * shown through cg_render(), and the mark that our own lines begin with cannot be spelled by it;
 * elsewhere bytes pass as they are.
 */
#pragma once

#include "base/buf.h"

/*
 * Every line of ours on a terminal begins with this. In kernel output there its last letter is
 * shown as an escape, wherever it occurs.
 */
#define CG_MARK "[cellgate]"

struct cg_screen {
        bool tty[3]; /* descriptors 1 and 2 are terminals; [0] is unused */
        /* our lines may have colour; a kernel's text cannot */
        bool style;
        /* the terminal's cursor is at the start of a line */
        bool line_start;
        bool progress; /* a progress line is drawn on standard error */
        size_t match;  /* how many characters of CG_MARK the terminal's last characters spell */
        /* errno of a failed write, after which nothing is written; 0: none */
        int error;
        int error_fd; /* where it failed */
};

void cg_screen_init(struct cg_screen *s);

/* Output of a kernel to @fd (1 or 2). A failure is kept in s->error: EPIPE, ENOSPC... */
void cg_screen_write(struct cg_screen *s, int fd, const char *text, size_t len);

/* The same, and a line end where @text has none. */
void cg_screen_line(struct cg_screen *s, int fd, const char *text, size_t len);

/*
 * A traceback on standard error, in colour where it may have some: the lines that name a place, the
 * line that failed, and the exception, whose name is @ename. The colours are ours; the text keeps
 * none.
 */
void cg_screen_traceback(struct cg_screen *s, const char *text, size_t len, const char *ename);

/*
 * Copies rendered text from outside, for a line of ours, with the mark broken up wherever it
 * occurs. @b fails where @text has failed.
 */
void cg_screen_break_mark(const struct cg_buf *text, struct cg_buf *b);

/*
 * One line of ours on standard error, with the mark; what came from outside must be passed as an
 * argument: all is rendered.
 */
void cg_screen_note(struct cg_screen *s, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/*
 * Draws "[cellgate] cell 2 of 5, 12 s, 3 pending" on standard error, in one row, when it is a
 * terminal and the cursor is at the start of a line. @text: safe to show, and without the mark.
 */
void cg_screen_progress(struct cg_screen *s, const char *text);

/* Prepares the terminal for a line of ours: erases the progress line, ends an unfinished line. */
void cg_screen_clear(struct cg_screen *s);

/* The mark with its colour, if any. Static. */
const char *cg_screen_mark(const struct cg_screen *s);
