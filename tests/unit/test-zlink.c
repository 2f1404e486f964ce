/* zlink.c against peers that break the rules byte by byte. tests/mcp speaks to it with libzmq. */
#include "base/zlink.h"
#include "unit.h"

/* Long: valgrind checks all of a buffer whenever a part of it is sent or received. */
#define DEADLINE_MS 60000
#define MAX_OUT     ((size_t)CG_MAX_CODE + CG_MAX_BODY)

struct env {
        char dir[256], path[300];
        uv_loop_t loop;
        struct cg_zlink link;
        int listener, peer; /* the raw peer's */
        bool open;
        /* what came out of the link */
        unsigned messages, ends;
        uint16_t type;
        size_t raw_len;
        struct cg_err err;
        bool close_in_callback, pause_in_callback, send_in_callback;
};

static void put_stream(struct env *e, bool slowly);

static void on_msg(struct cg_zlink *z, struct cg_msg *m)
{
        struct env *e = z->data;

        cg_msg_raw(m, 0, &e->raw_len);
        e->messages++;
        e->type = m->type;
        if (e->pause_in_callback)
                cg_zlink_pause(z, true);
        if (e->send_in_callback)
                put_stream(e, false);
        if (e->close_in_callback) {
                e->open = false;
                cg_zlink_close(z, NULL);
        }
}

static void on_end(struct cg_zlink *z, const struct cg_err *err)
{
        struct env *e = z->data;

        e->ends++;
        e->err = *err;
}

static int setup(void **state)
{
        struct env *e = calloc(1, sizeof(*e));

        e->listener = e->peer = -1;
        assert_int_equal(cg_make_runtime_dir("cgtest", e->dir, sizeof(e->dir), NULL), 0);
        snprintf(e->path, sizeof(e->path), "%s/k", e->dir);
        assert_int_equal(cg_listen_unix(e->path, 1, &e->listener, NULL), 0);
        assert_int_equal(uv_loop_init(&e->loop), 0);
        *state = e;
        return 0;
}

static int teardown(void **state)
{
        struct env *e = *state;

        if (e->open)
                cg_zlink_close(&e->link, NULL);
        uv_run(&e->loop, UV_RUN_DEFAULT);
        assert_int_equal(uv_loop_close(&e->loop), 0);
        if (e->peer >= 0)
                close(e->peer);
        if (e->listener >= 0)
                close(e->listener);
        cg_remove_tree(e->dir, NULL);
        free(e);
        return 0;
}

static void open_link(struct env *e)
{
        OK(cg_zlink_open(&e->link, &e->loop, e->path, &cg_wire_kernel, CG_ROLE_KERNEL, MAX_OUT, on_msg,
                         on_end, e, &err));
        e->open = true;
}

static void on_tick(uv_timer_t *t)
{
        (void)t;
}

/*
 * Lets the loop work until the link has had so many messages, or ends. false: not within the time.
 */
static bool run(struct env *e, unsigned messages, unsigned ends, int64_t ms)
{
        int64_t until = cg_now_ms() + ms;
        uv_timer_t tick;

        uv_timer_init(&e->loop, &tick);
        uv_timer_start(&tick, on_tick, 5, 5);
        while ((e->messages < messages || e->ends < ends) && cg_now_ms() < until)
                uv_run(&e->loop, UV_RUN_ONCE);
        uv_close((uv_handle_t *)&tick, NULL);
        uv_run(&e->loop, UV_RUN_NOWAIT);
        return e->messages >= messages && e->ends >= ends;
}

TEST_WITH(test_sender_limits, setup, teardown)
{
        struct env *e = *state;
        struct cg_out out = {
                .type = CG_KERNEL_INTERRUPT_REQUEST, .raw = "x", .raw_len = 1, .has_raw = true
        };
        struct cg_out code = { .type = CG_KERNEL_EXECUTE_REQUEST, .raw_len = CG_MAX_CODE, .has_raw = true };
        char *text = calloc(1, CG_MAX_CODE);
        int r = 0;

        open_link(e); /* nobody reads */
        assert_int_equal(cg_zlink_send(&e->link, &out, NULL), CG_E_LIMIT);
        code.raw = text;
        assert_int_equal(cg_zlink_send(&e->link, &code, NULL), 0);
        out.has_raw = false;
        for (int i = 0; i < 1000000 && r == 0; i++)
                r = cg_zlink_send(&e->link, &out, NULL);
        assert_int_equal(r, CG_TIMEOUT);
        assert_true(e->link.conn.queued <= MAX_OUT);
        free(text);
}

static void put(struct env *e, const void *data, size_t len)
{
        assert_int_equal(cg_write_all(e->peer, data, len, NULL), 0);
}

static void open_raw(struct env *e)
{
        open_link(e);
        e->peer = accept4(e->listener, NULL, NULL, SOCK_CLOEXEC);
        assert_true(e->peer >= 0);
}

static const char greeting[64] = "\377\0\0\0\0\0\0\0\1\177\3\0NULL";
static const char ready[] = "\4\6\5READY";

static void handshake(struct env *e)
{
        open_raw(e);
        put(e, greeting, sizeof(greeting));
        put(e, ready, 8);
}

static size_t head(unsigned char *p, uint16_t type, bool more)
{
        memset(p, 0, 26);
        memcpy(p, more ? "\1\30CG" : "\0\30CG", 4);
        p[4] = CG_WIRE_VERSION;
        p[5] = 2;
        p[6] = (unsigned char)type;
        return 26;
}

static void put_head(struct env *e, uint16_t type, bool more)
{
        unsigned char p[26];

        put(e, p, head(p, type, more));
}

static void refused(struct env *e, const char *why)
{
        assert_true(run(e, 0, 1, DEADLINE_MS));
        assert_int_equal(e->ends, 1);
        assert_int_equal(e->err.code, CG_E_PROTO);
        assert_non_null(strstr(e->err.msg, why));
        assert_int_equal(e->messages, 0);
}

static size_t resident(void)
{
        cg_auto_free char *text = NULL;
        size_t len;

        assert_int_equal(cg_read_file("/proc/self/statm", 4096, &text, &len, NULL), 0);
        return strtoul(strchr(text, ' '), NULL, 10) * 4096;
}

/* Frames with MORE for ever, as fast as they are taken. */
TEST_WITH(test_message_without_an_end, setup, teardown)
{
        struct env *e = *state;
        size_t before, size = 60000, sent = 0, frame_len = 9 + size;
        cg_auto_free char *frame = calloc(1, frame_len);
        int64_t until = cg_now_ms() + DEADLINE_MS;

        memcpy(frame, "\3\0\0\0\0\0\0", 7);
        frame[7] = (char)(size >> 8);
        frame[8] = (char)(size & 255);
        handshake(e);
        before = resident();
        put_head(e, CG_KERNEL_STREAM, true);
        put(e, "\1\0", 2);
        while (!e->ends && sent < (100u << 20) && cg_now_ms() < until) {
                ssize_t n = send(e->peer, frame + sent % frame_len, frame_len - sent % frame_len,
                                 MSG_DONTWAIT | MSG_NOSIGNAL);

                if (n > 0)
                        sent += (size_t)n;
                uv_run(&e->loop, UV_RUN_NOWAIT);
        }
        refused(e, "2 raw frames, expected 1");
        assert_true(sent < (2u << 20));
        /* Nothing more is read. */
        while (send(e->peer, frame, frame_len, MSG_DONTWAIT | MSG_NOSIGNAL) > 0)
                uv_run(&e->loop, UV_RUN_NOWAIT);
        assert_int_equal(errno, EAGAIN);
        assert_true(resident() - before < (8u << 20));
}

TEST(test_frames_over_their_limits)
{
        /* A header of STREAM. Version 0 is replaced by the current one. */
#define STREAM "\1\30CG\0\2\14\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0"
        /* A literal that is shorter than the frame is followed by zeros. */
#define CASE(literal, n, text) \
        { \
                literal, sizeof(literal) - 1, n, text \
        }
        static const struct {
                const char *bytes;
                size_t known, len;
                const char *why;
        } cases[] = {
                /* a header of 2^60 bytes */
                CASE("\2\20\0\0\0\0\0\0\0", 9, "not a message"),
                CASE("\1\27", 2, "not a message"), /* of 23 */
                CASE("\1\30GC", 26, "not a message"),
                CASE("\0\30CG\0\2\14\0", 26, "without a body"),
                CASE("\1\30CG\2\2\14\0", 26, "version"),
                CASE("\1\30CG\0\3\14\0", 26, "wire 3"),
                CASE("\1\30CG\0\2\377\0", 26, "unknown message 255"),
                CASE("\1\30CG\0\2\12\0", 26, "may not send EXECUTE_REQUEST"),
                CASE(STREAM "\1\1", 28, "body of 1 bytes"),
                CASE(STREAM "\0\0", 28, "0 raw frames"),
                CASE(STREAM "\1\0\2\0\0\0\0\0\1\0\1", 37, "content of more"),
                CASE(STREAM "\1\0\2\377\377\377\377\377\377\377\377", 37, "content of more"),
                CASE("\10\0", 2, "flags"),
                CASE("\5\0", 2, "flags"),
                CASE("\6\0\0\0\0\0\1\0\0", 9, "command of 65536"),
        };

        for (size_t i = 0; i < CG_ARRAY_LEN(cases); i++) {
                unsigned char bytes[64] = { 0 };
                void *e;

                setup(&e);
                handshake(e);
                memcpy(bytes, cases[i].bytes, cases[i].known);
                if (memcmp(bytes + 2, "CG", 3) == 0)
                        bytes[4] = CG_WIRE_VERSION;
                put(e, bytes, cases[i].len);
                refused(e, cases[i].why);
                teardown(&e);
        }
}

TEST(test_handshakes_that_fail)
{
        static const char garbage[64] = { [0 ... 63] = (char)0xff },
                          other[64] = "\377\0\0\0\0\0\0\0\1\177\3\0PLAIN";
        static const struct {
                const char *greeting, *more;
                size_t len;
                const char *why;
        } cases[] = {
                { garbage, "", 0, "not a greeting" },
                { other, "", 0, "not a greeting" },
                { greeting, "\1\30CG\5\2\14\0", 26, "before the end of the handshake" },
                { greeting, "\4\7\5ERROR\0", 9, "the handshake failed" },
        };

        for (size_t i = 0; i < CG_ARRAY_LEN(cases); i++) {
                char more[26] = "";
                void *e;

                setup(&e);
                open_raw(e);
                put(e, cases[i].greeting, sizeof(greeting));
                memcpy(more, cases[i].more, CG_MIN(cases[i].len, 9));
                put(e, more, cases[i].len);
                refused(e, cases[i].why);
                teardown(&e);
        }
}

TEST_WITH(test_half_a_greeting_and_its_end, setup, teardown)
{
        struct env *e = *state;

        open_raw(e);
        put(e, greeting, 30);
        assert_false(run(e, 0, 1, 50));
        shutdown(e->peer, SHUT_WR);
        assert_true(run(e, 0, 1, DEADLINE_MS));
        assert_int_equal(e->err.code, CG_E_CLOSED);
}

static void put_stream(struct env *e, bool slowly)
{
        unsigned char p[64];
        size_t n = head(p, CG_KERNEL_STREAM, true);

        memcpy(p + n, "\1\0\0\3abc", 7);
        n += 7;
        for (size_t i = 0; i < n; i += slowly ? 1 : n) {
                put(e, p + i, slowly ? 1 : n);
                if (slowly)
                        uv_run(&e->loop, UV_RUN_NOWAIT);
        }
}

TEST_WITH(test_byte_by_byte, setup, teardown)
{
        struct env *e = *state;

        open_raw(e);
        for (size_t i = 0; i < sizeof(greeting); i++) {
                put(e, greeting + i, 1);
                uv_run(&e->loop, UV_RUN_NOWAIT);
        }
        for (size_t i = 0; i < 8; i++) {
                put(e, ready + i, 1);
                uv_run(&e->loop, UV_RUN_NOWAIT);
        }
        for (unsigned i = 1; i <= 3; i++) {
                put_stream(e, true);
                put(e, "\4\6\4PING\0", 8); /* commands are ignored */
                assert_true(run(e, i, 0, DEADLINE_MS));
                assert_int_equal(e->raw_len, 3);
                assert_int_equal(e->type, CG_KERNEL_STREAM);
        }
        assert_int_equal(e->ends, 0);
}

/*
 * Messages sent before a close arrive, also if the link was paused and if the bytes of this side
 * were never read.
 */
TEST_WITH(test_end_behind_messages, setup, teardown)
{
        struct env *e = *state;

        handshake(e);
        assert_false(run(e, 1, 0, 20));
        cg_zlink_pause(&e->link, true);
        for (int i = 0; i < 100; i++)
                put_stream(e, false);
        close(e->peer);
        e->peer = -1;
        assert_false(run(e, 1, 0, 50));
        assert_int_equal(e->ends, 0);
        cg_zlink_pause(&e->link, false);
        assert_true(run(e, 100, 1, DEADLINE_MS));
        assert_int_equal(e->messages, 100);
        assert_int_equal(e->err.code, CG_E_CLOSED);
}

TEST_WITH(test_sending_to_a_peer_that_is_gone, setup, teardown)
{
        struct env *e = *state;
        struct cg_out out = { .type = CG_KERNEL_INTERRUPT_REQUEST };

        handshake(e);
        assert_false(run(e, 1, 0, 20));
        close(e->peer);
        e->peer = -1;
        cg_zlink_send(&e->link, &out, NULL);
        assert_int_equal(cg_zlink_send(&e->link, &out, NULL), CG_E_CLOSED);
        assert_true(run(e, 0, 1, DEADLINE_MS));
        assert_int_equal(e->err.code, CG_E_CLOSED);
}

TEST_WITH(test_catch_up, setup, teardown)
{
        struct env *e = *state;

        handshake(e);
        for (int i = 0; i < 10; i++)
                put_stream(e, false);
        cg_zlink_catch_up(&e->link);
        assert_int_equal(e->messages, 10);
        cg_zlink_catch_up(&e->link);
        assert_int_equal(e->messages, 10);
        put_stream(e, false);
        cg_zlink_pause(&e->link, true);
        cg_zlink_catch_up(&e->link);
        assert_int_equal(e->messages, 11);
        for (int i = 0; i < 9; i++)
                put_stream(e, false);
        assert_false(run(e, 12, 0, 20)); /* still paused */
        e->pause_in_callback = e->send_in_callback = true;
        cg_zlink_catch_up(&e->link); /* without what comes meanwhile */
        assert_int_equal(e->messages, 20);
}

TEST_WITH(test_closing_inside_the_callback, setup, teardown)
{
        struct env *e = *state;

        handshake(e);
        e->close_in_callback = true;
        for (int i = 0; i < 10; i++)
                put_stream(e, false);
        assert_true(run(e, 1, 0, DEADLINE_MS));
        assert_int_equal(e->messages, 1);
        assert_int_equal(e->ends, 0);
}

TEST_WITH(test_listener_that_does_not_accept, setup, teardown)
{
        struct env *e = *state;
        struct cg_zlink links[4];
        struct cg_err err = { 0 };
        int r = 0, n = 0;

        /* Its queue fills; no connect waits. */
        while (r == 0 && n < 4) {
                r = cg_zlink_open(&links[n], &e->loop, e->path, &cg_wire_kernel, CG_ROLE_KERNEL, MAX_OUT,
                                  on_msg, on_end, e, &err);
                n += r == 0;
        }
        assert_int_equal(r, CG_E_SYS);
        assert_int_equal(err.sys_errno, EAGAIN);
        for (int i = 0; i < n; i++)
                cg_zlink_close(&links[i], NULL);
        uv_run(&e->loop, UV_RUN_DEFAULT);
}
