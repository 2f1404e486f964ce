/*
 * Standard output and error of `cellgate run`. Where one is a terminal, what comes from a kernel is
 * shown through cg_render(), and the mark that our own lines begin with cannot be spelled by it;
 * elsewhere bytes pass as they are.
 */
#ifndef CG_CLI_COMMON_SCREEN_H
#define CG_CLI_COMMON_SCREEN_H

#include <stdbool.h>
#include <stddef.h>
#include "base/buf.h"
#include "base/err.h"

/*
 * Every line of ours on a terminal begins with this. In kernel output there its last letter is
 * shown as an escape, wherever it stands.
 */
#define CG_MARK "[cellgate]"

struct cg_screen {
        bool tty[3]; /* is descriptor 1, 2 a terminal; [0] unused */
        /*
         * may our lines have colour: a kernel's cannot, so it is one more sign of whose line it is
         */
        bool style;
        /* the terminal's cursor stands at the start of a line, as far as we wrote */
        bool line_start;
        bool progress;     /* a progress line is drawn on standard error */
        bool kernel_wrote; /* text from a kernel was shown; never cleared */
        size_t match;      /* how many characters of CG_MARK the terminal's last characters spell */
        /* errno of a write that failed, 0 for none; nothing is written any more then */
        int error;
        int error_fd; /* where it failed */
};

void cg_screen_init(struct cg_screen *s);

/* Output of a kernel to @fd (1 or 2). A failure is kept in s->error: EPIPE, ENOSPC... */
void cg_screen_write(struct cg_screen *s, int fd, const char *text, size_t len);

/* The same with a line end behind it, where there is none. */
void cg_screen_line(struct cg_screen *s, int fd, const char *text, size_t len);

/*
 * A traceback on standard error, in colour where it may have some: the lines that name a place, the
 * line that failed, and the exception, whose name is @ename. The colours are ours; the text keeps
 * none.
 */
void cg_screen_traceback(struct cg_screen *s, const char *text, size_t len, const char *ename);

/*
 * Copies rendered text from outside, for a line of ours, with the mark broken up wherever it
 * stands.
 */
int cg_screen_break_mark(const char *text, size_t len, struct cg_buf *b);

/*
 * One line of ours on standard error, with the mark; what came from outside must be passed as an
 * argument: all is rendered.
 */
void cg_screen_note(struct cg_screen *s, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/*
 * Draws "cell 2 of 5, 12 s, 3 pending" on standard error, when it is a terminal and the cursor
 * stands at the start of a line.
 */
void cg_screen_progress(struct cg_screen *s, const char *text);

/*
 * Ends what stands on the terminal, so that a line of ours can begin: erases the progress line,
 * ends an unfinished line.
 */
void cg_screen_clear(struct cg_screen *s);

/* The mark with its colour, if any. Static. */
const char *cg_screen_mark(const struct cg_screen *s);

#endif
