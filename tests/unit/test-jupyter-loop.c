/* ZeroMQ sockets in libuv's loop: no message is missed, sockets take turns, and closing is safe. */
#include <zmq.h>
#include "jupyter/loop.h"
#include "unit.h"

#define N_PAIRS 2
/* More than a socket's turn, and less than a queue of ZeroMQ holds. */
#define MANY 100

struct pair {
        struct env *env;
        void *near, *far; /* connected sockets; the loop watches the near one */
        struct cg_zsock z;
        unsigned int received, calls;
};

struct env {
        uv_loop_t loop;
        struct cg_zloop zl;
        void *ctx;
        struct pair pairs[N_PAIRS];
        unsigned int longest_turn, turn; /* messages of one socket without one of the other */
        const struct pair *last;
        struct pair *close_this; /* the next callback closes this one */
};

/* Receives one message, as callbacks have to. */
static void on_socket(struct cg_zsock *z)
{
        struct pair *p = z->data;
        struct env *e = p->env;
        char buf[16];

        p->calls++;
        uv_stop(&e->loop); /* run_until() reads the counters before the loop sleeps */
        assert_int_equal(zmq_recv(p->near, buf, sizeof(buf), ZMQ_DONTWAIT), 1);
        p->received++;
        e->turn = e->last == p ? e->turn + 1 : 1;
        e->last = p;
        if (e->turn > e->longest_turn)
                e->longest_turn = e->turn;
        if (e->close_this)
                cg_zsock_close(&CG_STEAL(e->close_this)->z);
}

static int enter(void **state)
{
        static const char *const addresses[N_PAIRS] = { "inproc://0", "inproc://1" };
        struct env *e = calloc(1, sizeof(*e));

        assert_non_null(e);
        assert_int_equal(uv_loop_init(&e->loop), 0);
        assert_int_equal(cg_zloop_init(&e->zl, &e->loop, NULL), 0);
        e->ctx = zmq_ctx_new();
        for (size_t i = 0; i < N_PAIRS; i++) {
                struct pair *p = &e->pairs[i];

                p->env = e;
                p->near = zmq_socket(e->ctx, ZMQ_PAIR);
                p->far = zmq_socket(e->ctx, ZMQ_PAIR);
                assert_int_equal(zmq_bind(p->near, addresses[i]), 0);
                assert_int_equal(zmq_connect(p->far, addresses[i]), 0);
                assert_int_equal(cg_zsock_init(&p->z, &e->zl, p->near, on_socket, p, NULL), 0);
        }
        *state = e;
        return 0;
}

static int leave(void **state)
{
        struct env *e = *state;
        int linger = 0;

        for (size_t i = 0; i < N_PAIRS; i++)
                cg_zsock_close(&e->pairs[i].z);
        cg_zloop_close(&e->zl);
        cg_zloop_close(&e->zl); /* may be called again */
        uv_run(&e->loop, UV_RUN_DEFAULT);
        for (size_t i = 0; i < N_PAIRS; i++) {
                zmq_setsockopt(e->pairs[i].near, ZMQ_LINGER, &linger, sizeof(linger));
                zmq_setsockopt(e->pairs[i].far, ZMQ_LINGER, &linger, sizeof(linger));
                zmq_close(e->pairs[i].near);
                zmq_close(e->pairs[i].far);
        }
        zmq_ctx_term(e->ctx);
        assert_int_equal(uv_loop_close(&e->loop), 0);
        free(e);
        return 0;
}

static void send_many(const struct pair *p, unsigned int n)
{
        for (unsigned int i = 0; i < n; i++)
                assert_int_equal(zmq_send(p->far, "x", 1, ZMQ_DONTWAIT), 1);
}

static void on_deadline(uv_timer_t *t)
{
        *(bool *)t->data = true;
}

/* Runs the loop until *n is @want; false if it takes too long. The loop may sleep in between. */
static bool run_until(struct env *e, const unsigned int *n, unsigned int want)
{
        uv_timer_t timer;
        bool late = false;

        uv_timer_init(&e->loop, &timer);
        timer.data = &late;
        uv_timer_start(&timer, on_deadline, 20000, 0);
        while (*n < want && !late)
                uv_run(&e->loop, UV_RUN_ONCE);
        uv_close((uv_handle_t *)&timer, NULL);
        uv_run(&e->loop, UV_RUN_NOWAIT);
        return *n == want;
}

/* Runs the loop as long as it has something to do without sleeping. */
static void run_idle(struct env *e)
{
        for (int i = 0; i < 50; i++)
                uv_run(&e->loop, UV_RUN_NOWAIT);
}

/* Whether none of the descriptors that the loop watches is ready. */
static bool would_sleep(const struct env *e)
{
        struct pollfd p = { .fd = uv_backend_fd(&e->loop), .events = POLLIN };

        return poll(&p, 1, 0) == 0;
}

/* Reading ZMQ_EVENTS outside of the callback consumes the edge of ZMQ_FD: touch is for this. */
TEST_WITH(test_touch, enter, leave)
{
        struct env *e = *state;
        struct pair *p = &e->pairs[0];
        uint32_t events;
        size_t size = sizeof(events);

        run_idle(e);
        send_many(p, 1);
        assert_int_equal(zmq_getsockopt(p->near, ZMQ_EVENTS, &events, &size), 0);
        assert_true(events & ZMQ_POLLIN);
        run_idle(e);
        assert_int_equal(p->received, 0); /* the edge is gone */
        cg_zsock_touch(&p->z);
        assert_true(run_until(e, &p->received, 1));
}

TEST_WITH(test_sockets_take_turns, enter, leave)
{
        struct env *e = *state;

        send_many(&e->pairs[0], MANY);
        send_many(&e->pairs[1], MANY);
        assert_true(run_until(e, &e->pairs[0].received, MANY));
        assert_true(run_until(e, &e->pairs[1].received, MANY));
        assert_in_range(e->longest_turn, 1, MANY - 1);
}

TEST_WITH(test_paused_sockets_are_not_read, enter, leave)
{
        struct env *e = *state;
        struct pair *p = &e->pairs[0];

        cg_zsock_pause(&p->z, true);
        send_many(p, MANY);
        run_idle(e);
        assert_int_equal(p->calls, 0);
        assert_true(would_sleep(e));
        send_many(p, 1);
        run_idle(e);
        assert_true(would_sleep(e));
        cg_zsock_pause(&p->z, false);
        assert_true(run_until(e, &p->received, MANY + 1));
}

/* Closes the other socket, whose turn is still to come, from a callback. */
TEST_WITH(test_closing_another_socket, enter, leave)
{
        struct env *e = *state;

        run_idle(e);
        send_many(&e->pairs[0], MANY);
        send_many(&e->pairs[1], MANY);
        cg_zsock_touch(&e->pairs[1].z);
        cg_zsock_touch(&e->pairs[0].z); /* first in the list, which grows at its head */
        e->close_this = &e->pairs[1];
        assert_true(run_until(e, &e->pairs[0].received, MANY));
        assert_true(e->pairs[1].z.closing);
        assert_int_equal(e->pairs[1].calls, 0);
        cg_zsock_touch(&e->pairs[1].z); /* no-ops on a closed one */
        cg_zsock_close(&e->pairs[1].z);
        run_idle(e);
        assert_int_equal(e->pairs[1].calls, 0);
}

/* Closes a socket from its own callback: no further call, though messages are left. */
TEST_WITH(test_closing_itself, enter, leave)
{
        struct env *e = *state;
        struct pair *p = &e->pairs[0];

        send_many(p, MANY);
        e->close_this = p;
        run_idle(e);
        assert_int_equal(p->calls, 1);
        assert_true(p->z.closing);
}

/* The loop sleeps when there is nothing to do: its idle handle does not run. */
TEST_WITH(test_no_busy_loop, enter, leave)
{
        struct env *e = *state;

        send_many(&e->pairs[0], MANY);
        uv_run(&e->loop, UV_RUN_NOWAIT);
        assert_true(uv_is_active((uv_handle_t *)&e->zl.idle)); /* more than a turn's messages */
        assert_true(run_until(e, &e->pairs[0].received, MANY));
        run_idle(e);
        assert_false(uv_is_active((uv_handle_t *)&e->zl.idle));
}

TEST_WITH(test_a_socket_without_descriptor, enter, leave)
{
        struct env *e = *state;
        struct cg_zsock z;
        static char no_socket[4096]; /* libzmq looks for a mark in it */

        FAILS(CG_E_SYS, "", cg_zsock_init(&z, &e->zl, no_socket, on_socket, NULL, &err));
        cg_zsock_close(&z); /* a no-op */
}
