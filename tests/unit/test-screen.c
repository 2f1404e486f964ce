/*
 * Output to a terminal: standard output and error are a pseudo-terminal during a call, and
 * the output is compared byte for byte.
 */
#include <pty.h>
#include <termios.h>
#include "cli/common/screen.h"
#include "unit.h"

struct world {
        int master, slave, out, err; /* our own standard output and error meanwhile */
        struct cg_screen screen;
};

static void open_world(struct world *w)
{
        struct termios raw;

        assert_int_equal(openpty(&w->master, &w->slave, NULL, NULL, NULL), 0);
        tcgetattr(w->slave, &raw);
        cfmakeraw(&raw); /* a newline comes out as a newline */
        tcsetattr(w->slave, TCSANOW, &raw);
        w->out = dup(1);
        w->err = dup(2);
        dup2(w->slave, 1);
        dup2(w->slave, 2);
        setenv("TERM", "dumb", 1);
        cg_screen_init(&w->screen);
}

/* Puts our own back, and returns what the terminal got (until the next call). */
static const char *close_world(struct world *w)
{
        static char got[65536];
        size_t len = 0;
        ssize_t n;

        dup2(w->out, 1);
        dup2(w->err, 2);
        close(w->out);
        close(w->err);
        close(w->slave);
        /*
         * The kernel hands a terminal's bytes on in its own time: all have come when the closed end
         * is reported (EIO).
         */
        while ((n = read(w->master, got + len, sizeof(got) - 1 - len)) > 0)
                len += (size_t)n;
        got[len] = '\0';
        close(w->master);
        return got;
}

static void out(struct world *w, const char *text)
{
        cg_screen_write(&w->screen, 1, text, strlen(text));
}

TEST(test_controls_are_shown)
{
        struct world w;

        open_world(&w);
        out(&w, "a\x1b[2J\r\b\x07\xe2\x80\xae\tb\n");
        assert_string_equal(close_world(&w), "a\\x1b[2J\\x0d\\x08\\x07\\u202e\tb\n");
}

/* However a kernel divides it into pieces and streams, the mark is never on the terminal. */
TEST(test_mark_cannot_be_spelled)
{
        struct world w;
        const char *got;

        open_world(&w);
        out(&w, CG_MARK "x [[cellgate] [cell");
        cg_screen_write(&w.screen, 2, "gate", 4);
        out(&w, "]\n[cellgat");
        out(&w, "e]");
        got = close_world(&w);
        assert_null(strstr(got, CG_MARK));
        assert_string_equal(got, "[cellgate\\x5dx [[cellgate\\x5d [cellgate\\x5d\n[cellgate\\x5d");
}

TEST(test_our_lines_stand_alone)
{
        struct world w;

        open_world(&w);
        out(&w, "no newline");
        cg_screen_note(&w.screen, "a\nb %s", "\x1b[1A");
        out(&w, "x\n");
        cg_screen_note(&w.screen, "c");
        assert_string_equal(close_world(&w), "no newline\n[cellgate] a b \\x1b[1A\nx\n[cellgate] c\n");
}

/* A terminal breaks a long line, and its rest begins in the first column. */
TEST(test_mark_cannot_be_spelled_in_notes)
{
        struct world w;

        open_world(&w);
        cg_screen_note(&w.screen, "cell 1: %s", "x [cellgate] y");
        assert_string_equal(close_world(&w), "[cellgate] cell 1: x [cellgate\\x5d y\n");
}

TEST(test_progress_is_erased)
{
        struct world w;

        open_world(&w);
        cg_screen_progress(&w.screen, "P1");
        cg_screen_progress(&w.screen, "P2");
        out(&w, "x");
        cg_screen_progress(&w.screen, "P3"); /* not over the unfinished line */
        assert_string_equal(close_world(&w), CG_MARK " P1\r\x1b[K" CG_MARK " P2\r\x1b[Kx");
}

TEST(test_no_terminal_passes_bytes)
{
        static const char bytes[] = "a\x1b[2J\r\xff\0" CG_MARK;
        char got[64];
        int p[2], saved = dup(1);
        struct cg_screen s;

        assert_int_equal(pipe(p), 0);
        dup2(p[1], 1);
        cg_screen_init(&s);
        cg_screen_write(&s, 1, bytes, sizeof(bytes) - 1);
        dup2(saved, 1);
        assert_int_equal(read(p[0], got, sizeof(got)), sizeof(bytes) - 1);
        assert_memory_equal(got, bytes, sizeof(bytes) - 1);
        assert_int_equal(s.error, 0);
        close(p[0]);
        close(p[1]);
        close(saved);
}
