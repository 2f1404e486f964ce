/* zlink.c against libzmq's DEALER, and against peers that break the rules byte by byte. */
#include <zmq.h>
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
        void *ctx, *dealer;
        bool open;
        /* what came out of the link */
        unsigned messages, ends;
        uint16_t type;
        uint64_t id, sum;
        size_t n_frames, body_len, raw_len;
        struct cg_err err;
        bool close_in_callback, pause_in_callback, send_in_callback;
};

static void put_stream(struct env *e, bool slowly);

static void on_msg(struct cg_zlink *z, struct cg_msg *m)
{
        struct env *e = z->data;
        const char *raw = cg_msg_raw(m, 0, &e->raw_len);

        e->messages++;
        e->type = m->type;
        e->id = m->id;
        e->n_frames = m->n_frames;
        e->sum = 0;
        for (size_t i = 0; i < e->raw_len; i++)
                e->sum += (unsigned char)raw[i] * (i % 251 + 1);
        cg_msg_body(m, &e->body_len);
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
        if (e->dealer) {
                zmq_close(e->dealer);
                zmq_ctx_term(e->ctx);
        }
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

/* ---- with libzmq */

static void new_dealer(struct env *e)
{
        int zero = 0;

        e->ctx = zmq_ctx_new();
        e->dealer = zmq_socket(e->ctx, ZMQ_DEALER);
        assert_non_null(e->dealer);
        zmq_setsockopt(e->dealer, ZMQ_LINGER, &zero, sizeof(zero));
}

/* libzmq accepts, the link connects. */
static void open_dealer(struct env *e)
{
        char endpoint[320];
        int fd = cg_steal_fd(&e->listener);

        new_dealer(e);
        snprintf(endpoint, sizeof(endpoint), "ipc://%s", e->path);
        assert_int_equal(zmq_setsockopt(e->dealer, ZMQ_USE_FD, &fd, sizeof(fd)), 0);
        assert_int_equal(zmq_bind(e->dealer, endpoint), 0);
        open_link(e);
}

/* libzmq connects, the link takes the accepted socket. */
static void accept_dealer(struct env *e, const char *plain_user)
{
        char endpoint[320];
        int fd;

        new_dealer(e);
        if (plain_user) {
                zmq_setsockopt(e->dealer, ZMQ_PLAIN_USERNAME, plain_user, strlen(plain_user));
                zmq_setsockopt(e->dealer, ZMQ_PLAIN_PASSWORD, "x", 1);
        }
        snprintf(endpoint, sizeof(endpoint), "ipc://%s", e->path);
        assert_int_equal(zmq_connect(e->dealer, endpoint), 0);
        fd = accept4(e->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        assert_true(fd >= 0);
        OK(cg_zlink_take(&e->link, &e->loop, fd, &cg_wire_kernel, CG_ROLE_KERNEL, MAX_OUT, on_msg, on_end, e,
                         NULL));
        e->open = true;
}

/* 0; CG_TIMEOUT: there is no room. */
static int zmq_put(void *sock, const struct cg_out *o)
{
        unsigned char header[CG_WIRE_HEADER];

        assert_int_equal(cg_out_header(&cg_wire_kernel, o, header, NULL), 0);
        if (zmq_send(sock, header, sizeof(header), ZMQ_SNDMORE | ZMQ_DONTWAIT) < 0)
                return CG_TIMEOUT;
        zmq_send(sock, o->body, o->body_len, o->has_raw ? ZMQ_SNDMORE : 0);
        if (o->has_raw)
                zmq_send(sock, o->raw, o->raw_len, o->n_more ? ZMQ_SNDMORE : 0);
        for (size_t i = 0; i < o->n_more; i++)
                zmq_send(sock, o->more[i].data, o->more[i].len, i + 1 < o->n_more ? ZMQ_SNDMORE : 0);
        return 0;
}

/* 0; CG_TIMEOUT: no message waits. */
static int zmq_take(void *sock, struct cg_msg *m)
{
        bool has_header = false, more = true;

        while (more) {
                zmq_msg_t f;

                zmq_msg_init(&f);
                if (zmq_msg_recv(&f, sock, has_header ? 0 : ZMQ_DONTWAIT) < 0)
                        return CG_TIMEOUT;
                if (!has_header) {
                        OK(cg_msg_start(m, &cg_wire_kernel, CG_ROLE_SUPERVISOR, zmq_msg_data(&f),
                                        zmq_msg_size(&f), NULL));
                } else {
                        m->frames[m->n_frames] = cg_frame_new(zmq_msg_size(&f));
                        memcpy(m->frames[m->n_frames++]->data, zmq_msg_data(&f), zmq_msg_size(&f));
                }
                has_header = true;
                more = zmq_msg_more(&f);
                zmq_msg_close(&f);
        }
        return 0;
}

static void fill_bytes(char *p, size_t n, uint64_t *sum)
{
        *sum = 0;
        for (size_t i = 0; i < n; i++) {
                p[i] = (char)(i * 7 + i / 1000);
                *sum += (unsigned char)p[i] * (i % 251 + 1);
        }
}

/* There is room once libzmq has a connection. */
static void send_dealer(struct env *e, const struct cg_out *out)
{
        int64_t until = cg_now_ms() + DEADLINE_MS;
        int r;

        while ((r = zmq_put(e->dealer, out)) == CG_TIMEOUT && cg_now_ms() < until)
                run(e, e->messages + 1, 0, 2);
        assert_int_equal(r, 0);
}

TEST_WITH(test_receives_from_libzmq, setup, teardown)
{
        const size_t sizes[] = { 0,     1,       255,
                                 256,   65535,   65536,
                                 65537, 1 << 20, rounds(CG_MAX_DISPLAY, 8u << 20) };
        struct env *e = *state;
        char *raw = malloc(CG_MAX_DISPLAY);

        open_dealer(e);
        for (unsigned i = 0; i < CG_ARRAY_LEN(sizes); i++) {
                struct cg_out out = { .type = CG_KERNEL_DISPLAY_DATA,
                                      .id = 100 + i,
                                      .raw = raw,
                                      .raw_len = sizes[i],
                                      .has_raw = true };
                uint64_t sum;

                fill_bytes(raw, sizes[i], &sum);
                send_dealer(e, &out);
                assert_true(run(e, i + 1, 0, 5 * DEADLINE_MS));
                assert_int_equal(e->id, 100 + i);
                assert_int_equal(e->raw_len, sizes[i]);
                assert_true(e->sum == sum);
        }
        assert_int_equal(e->ends, 0);
        free(raw);
}

static void receive(struct env *e, struct cg_msg *m)
{
        int64_t until = cg_now_ms() + DEADLINE_MS;
        int r = CG_TIMEOUT;

        while (r == CG_TIMEOUT && cg_now_ms() < until) {
                run(e, e->messages + 1, 0, 2);
                r = zmq_take(e->dealer, m);
        }
        assert_int_equal(r, 0);
}

TEST_WITH(test_sends_to_libzmq, setup, teardown)
{
        static const size_t sizes[] = { 0, 1, 255, 256, 65536, CG_MAX_CODE - 3 };
        static const struct cg_bytes more = { "end", 3 };
        struct env *e = *state;
        char *raw = malloc(CG_MAX_CODE);
        uint64_t sum;

        open_dealer(e);
        fill_bytes(raw, CG_MAX_CODE, &sum);
        for (unsigned i = 0; i < CG_ARRAY_LEN(sizes); i++) {
                struct cg_out out = { .type = CG_KERNEL_EXECUTE_REQUEST,
                                      .flags = 5,
                                      .id = i,
                                      .raw = raw,
                                      .raw_len = sizes[i],
                                      .has_raw = true,
                                      .more = &more,
                                      .n_more = 1 };
                cg_auto_msg struct cg_msg m = CG_MSG_EMPTY;
                size_t len;

                /* The first is sent before the handshake. */
                assert_int_equal(cg_zlink_send_json(&e->link, &out, json_pack("{s:i}", "n", i), NULL), 0);
                receive(e, &m);
                assert_int_equal(m.id, i);
                assert_int_equal(m.flags, 5);
                assert_memory_equal(cg_msg_body(&m, &len), "{\"n\":", 5);
                assert_memory_equal(cg_msg_raw(&m, 0, &len), raw, sizes[i]);
                assert_int_equal(len, sizes[i]);
                assert_memory_equal(cg_msg_raw(&m, 1, &len), "end", 3);
                assert_int_equal(len, 3);
        }
        free(raw);
}

/* Messages of as many frames as there can be, with libzmq as the end that connects. */
TEST_WITH(test_many_frames, setup, teardown)
{
        struct env *e = *state;
        struct cg_bytes more[CG_MAX_FRAMES - 2];
        struct cg_out out = { .type = CG_KERNEL_COMM,
                              .id = 7,
                              .raw = "{}",
                              .raw_len = 2,
                              .has_raw = true,
                              .more = more,
                              .n_more = CG_ARRAY_LEN(more) };
        cg_auto_msg struct cg_msg m = CG_MSG_EMPTY;
        char *data = calloc(1, 100000);
        size_t len;

        for (size_t i = 0; i < CG_ARRAY_LEN(more); i++)
                more[i] = (struct cg_bytes){ data, i % 3 ? i * 1500 : 0 };
        accept_dealer(e, NULL);
        send_dealer(e, &out);
        assert_true(run(e, 1, 0, DEADLINE_MS));
        assert_int_equal(e->n_frames, CG_MAX_FRAMES);
        assert_int_equal(e->id, 7);
        out.type = CG_KERNEL_REQUEST;
        assert_int_equal(cg_zlink_send(&e->link, &out, NULL), 0);
        receive(e, &m);
        assert_int_equal(m.n_frames, CG_MAX_FRAMES);
        for (size_t i = 0; i < CG_ARRAY_LEN(more); i++) {
                cg_msg_raw(&m, i + 1, &len);
                assert_int_equal(len, more[i].len);
        }
        free(data);
}

/* libzmq closes the connection when it has our greeting, before or after its own is complete. */
TEST_WITH(test_other_mechanism_of_libzmq, setup, teardown)
{
        struct env *e = *state;

        accept_dealer(e, "user");
        assert_true(run(e, 0, 1, DEADLINE_MS));
        assert_true(e->err.code == CG_E_CLOSED || e->err.code == CG_E_PROTO);
        assert_int_equal(e->link.conn.state, CG_ZCONN_GREETING);
        assert_int_equal(e->messages, 0);
}

TEST_WITH(test_many_small_in_order_and_pauses, setup, teardown)
{
        struct env *e = *state;

        open_dealer(e);
        e->pause_in_callback = true;
        for (unsigned i = 0; i < 50; i++) {
                struct cg_out out = {
                        .type = CG_KERNEL_STREAM, .id = i, .raw = "x", .raw_len = 1, .has_raw = true
                };

                send_dealer(e, &out);
        }
        for (unsigned i = 0; i < 50; i++) {
                assert_true(run(e, i + 1, 0, DEADLINE_MS));
                assert_int_equal(e->messages, i + 1);
                assert_int_equal(e->id, i);
                if (i < 2) /* paused: nothing comes */
                        assert_false(run(e, i + 2, 0, 50));
                cg_zlink_pause(&e->link, false);
        }
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

/* ---- with a raw peer */

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
        /* A header of STREAM. */
#define STREAM "\1\30CG\5\2\14\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0"
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
                CASE("\0\30CG\5\2\14\0", 26, "without a body"),
                CASE("\1\30CG\2\2\14\0", 26, "version"),
                CASE("\1\30CG\5\3\14\0", 26, "wire 3"),
                CASE("\1\30CG\5\2\377\0", 26, "unknown message 255"),
                CASE("\1\30CG\5\2\12\0", 26, "may not send EXECUTE_REQUEST"),
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
