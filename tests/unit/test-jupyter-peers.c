/* src/jupyter/peers.c beside the loop that serves the same socket. */
#include "jupyter/peers.h"
#include "unit.h"

/* Longer than peers.c waits between two looks. */
#define BUSY_MS     400
#define PATIENCE_MS 20000

struct place {
        uv_loop_t loop;
        struct cg_zloop zl;
        struct cg_zsock z;
        struct cg_peers peers;
        struct cg_log log;
        void *ctx, *sock, *client;
        int received;
};

static void on_message(struct cg_zsock *z)
{
        struct place *p = z->data;
        struct cg_peer *peer = NULL;
        zmq_msg_t m;
        int more = 1;

        for (bool first = true; more; first = false) {
                zmq_msg_init(&m);
                assert_true(zmq_msg_recv(&m, z->sock, ZMQ_DONTWAIT) >= 0);
                if (!first)
                        peer = cg_peers_count_frame(&p->peers, &m, peer);
                more = zmq_msg_more(&m);
                zmq_msg_close(&m);
        }
        assert_non_null(peer);
        p->received++;
}

static int open_place(void **state)
{
        struct place *p = calloc(1, sizeof(*p));
        char address[64];
        size_t len = sizeof(address);

        uv_loop_init(&p->loop);
        p->ctx = zmq_ctx_new();
        p->sock = zmq_socket(p->ctx, ZMQ_ROUTER);
        p->client = zmq_socket(p->ctx, ZMQ_DEALER);
        OK(cg_zloop_init(&p->zl, &p->loop, &err));
        OK(cg_peers_init(&p->peers, p->ctx, p->sock, &p->z, &p->zl, "test", 1 << 20, 1 << 20, false, &p->log,
                         &err));
        assert_int_equal(zmq_bind(p->sock, "tcp://127.0.0.1:*"), 0);
        OK(cg_zsock_init(&p->z, &p->zl, p->sock, on_message, p, &err));
        assert_int_equal(zmq_getsockopt(p->sock, ZMQ_LAST_ENDPOINT, address, &len), 0);
        assert_int_equal(zmq_connect(p->client, address), 0);
        *state = p;
        return 0;
}

static int close_place(void **state)
{
        struct place *p = *state;
        int zero = 0;

        zmq_setsockopt(p->client, ZMQ_LINGER, &zero, sizeof(zero));
        zmq_close(p->client);
        cg_peers_close(&p->peers);
        cg_zsock_close(&p->z);
        cg_zloop_close(&p->zl);
        while (uv_run(&p->loop, UV_RUN_NOWAIT))
                ;
        cg_peers_fini(&p->peers);
        zmq_close(p->sock);
        zmq_ctx_term(p->ctx);
        assert_int_equal(uv_loop_close(&p->loop), 0);
        free(p);
        return 0;
}

static void run_until(struct place *p, int messages)
{
        int64_t end = cg_now_ms() + PATIENCE_MS;

        /* The timer of the looks turns the loop; the time that a turn may take is theirs. */
        while (p->received < messages && cg_now_ms() < end)
                uv_run(&p->loop, UV_RUN_ONCE);
        assert_int_equal(p->received, messages);
}

/*
 * A message that arrives after the loop's check for messages, during a long callback, is received
 * when the loop checks the connections.
 */
static void busy(uv_check_t *c)
{
        struct place *p = c->data;

        assert_int_equal(zmq_send(p->client, "second", 6, 0), 6);
        usleep(BUSY_MS * 1000);
        uv_close((uv_handle_t *)c, NULL);
}

TEST_WITH(test_a_look_takes_no_message_away, open_place, close_place)
{
        struct place *p = *state;
        uv_check_t check;

        assert_int_equal(zmq_send(p->client, "first", 5, 0), 5);
        run_until(p, 1);
        uv_check_init(&p->loop, &check);
        check.data = p;
        uv_check_start(&check, busy);
        run_until(p, 2);
}

/*
 * Connection and message are both there when the loop first looks; the message's socket is asked
 * first.
 */
TEST_WITH(test_a_message_may_come_before_the_news_of_its_connection, open_place, close_place)
{
        struct place *p = *state;
        zmq_pollitem_t item = { .socket = p->sock, .events = ZMQ_POLLIN };

        assert_int_equal(zmq_send(p->client, "first", 5, 0), 5);
        assert_int_equal(zmq_poll(&item, 1, PATIENCE_MS), 1);
        on_message(&p->z);
        assert_int_equal(p->peers.n, 1);
        assert_true(p->peers.list[0].delivered > 5);
        /*
         * The news that was read already is not waited for: nothing else would come on that socket.
         */
        uv_run(&p->loop, UV_RUN_NOWAIT);
        assert_int_equal(p->peers.n, 1);
}
