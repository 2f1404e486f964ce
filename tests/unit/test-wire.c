/*
 * wire.c: what breaks a table's rules is refused at the edge, and what keeps them arrives
 * unchanged.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <string.h>
#include "base/json.h"
#include "base/wire.h"

struct pair {
        void *ctx, *a, *b;
};

static int setup(void **state)
{
        struct pair *p = calloc(1, sizeof(*p));

        p->ctx = zmq_ctx_new();
        p->a = zmq_socket(p->ctx, ZMQ_PAIR);
        p->b = zmq_socket(p->ctx, ZMQ_PAIR);
        assert_int_equal(zmq_bind(p->a, "inproc://t"), 0);
        assert_int_equal(zmq_connect(p->b, "inproc://t"), 0);
        *state = p;
        return 0;
}

static int teardown(void **state)
{
        struct pair *p = *state;

        zmq_close(p->a);
        zmq_close(p->b);
        zmq_ctx_term(p->ctx);
        free(p);
        return 0;
}

static void test_round_trip(void **state)
{
        struct pair *p = *state;
        static const struct cg_bytes more = { "{}", 2 };
        struct cg_out out = { .type = CG_HOST_EXECUTE,
                              .flags = 3,
                              .session = 0x1122334455667788,
                              .id = 42,
                              .raw = "a\0b",
                              .raw_len = 3,
                              .has_raw = true,
                              .more = &more,
                              .n_more = 1 };
        cg_auto_json json_t *body = NULL;
        cg_auto_msg struct cg_msg m;
        struct cg_err err;
        size_t len;

        assert_int_equal(
                cg_msg_send_json(p->a, &cg_wire_host, &out, json_pack("{s:i}", "timeout_ms", 7), &err), 0);
        assert_int_equal(cg_msg_recv(p->b, &cg_wire_host, CG_ROLE_HOST, &m, &err), 0);
        assert_int_equal(m.type, CG_HOST_EXECUTE);
        assert_int_equal(m.flags, 3);
        assert_true(m.session == 0x1122334455667788 && m.id == 42);
        assert_memory_equal(cg_msg_raw(&m, 0, &len), "a\0b", 3);
        assert_int_equal(len, 3);
        assert_memory_equal(cg_msg_raw(&m, 1, &len), "{}", 2);
        assert_int_equal(len, 2);
        assert_int_equal(cg_msg_json(&m, &body, &err), 0);
        assert_int_equal(json_integer_value(json_object_get(body, "timeout_ms")), 7);
}

static void test_nothing_waits(void **state)
{
        struct pair *p = *state;
        struct cg_msg m;
        struct cg_err err;

        assert_int_equal(cg_msg_recv(p->b, &cg_wire_host, CG_ROLE_HOST, &m, &err), CG_TIMEOUT);
}

/*
 * Sends frames as they are, receives, expects a protocol error that contains @why, and that nothing
 * is left behind.
 */
static void refuse(struct pair *p, unsigned sender, const char *header, size_t header_len, int frames,
                   size_t frame_len, const char *why)
{
        char *fill = calloc(1, frame_len + 1);
        struct cg_msg m;
        struct cg_err err = { 0 };

        zmq_send(p->a, header, header_len, frames ? ZMQ_SNDMORE : 0);
        for (int i = 0; i < frames; i++)
                zmq_send(p->a, fill, frame_len, i + 1 < frames ? ZMQ_SNDMORE : 0);
        assert_int_equal(cg_msg_recv(p->b, &cg_wire_kernel, sender, &m, &err), CG_E_PROTO);
        assert_non_null(strstr(err.msg, why));
        assert_int_equal(cg_msg_recv(p->b, &cg_wire_kernel, sender, &m, &err), CG_TIMEOUT);
        free(fill);
}

static void header(char h[24], uint8_t version, uint8_t wire, uint16_t type)
{
        memset(h, 0, 24);
        h[0] = 'C';
        h[1] = 'G';
        h[2] = (char)version;
        h[3] = (char)wire;
        h[4] = (char)(type & 255);
        h[5] = (char)(type >> 8);
}

static void test_rules(void **state)
{
        struct pair *p = *state;
        char h[24];

        refuse(p, CG_ROLE_KERNEL, "hello", 5, 0, 0, "not a message");
        refuse(p, CG_ROLE_KERNEL, "hello", 5, 3, 1, "not a message");
        header(h, CG_WIRE_VERSION + 1, 2, CG_KERNEL_STREAM);
        refuse(p, CG_ROLE_KERNEL, h, 24, 2, 0, "version");
        header(h, CG_WIRE_VERSION, 1, CG_KERNEL_STREAM);
        refuse(p, CG_ROLE_KERNEL, h, 24, 2, 0, "wire 1");
        header(h, CG_WIRE_VERSION, 2, 999);
        refuse(p, CG_ROLE_KERNEL, h, 24, 1, 0, "unknown message 999");
        header(h, CG_WIRE_VERSION, 2, CG_KERNEL_STREAM);
        refuse(p, CG_ROLE_KERNEL, h, 24, 0, 0, "without a body");
        refuse(p, CG_ROLE_KERNEL, h, 23, 2, 0, "not a message");
        refuse(p, CG_ROLE_KERNEL, h, 24, 1, 0, "0 raw frames");
        refuse(p, CG_ROLE_KERNEL, h, 24, 3, 0, "2 raw frames");
        refuse(p, CG_ROLE_KERNEL, h, 24, 2, 1, "body of 1 bytes");
        refuse(p, CG_ROLE_KERNEL, h, 24, CG_MAX_FRAMES + 5, 0, "frames");
        refuse(p, CG_ROLE_SUPERVISOR, h, 24, 2, 0, "may not send STREAM");
        header(h, CG_WIRE_VERSION, 2, CG_KERNEL_EXECUTE_REQUEST);
        refuse(p, CG_ROLE_KERNEL, h, 24, 2, 0, "may not send EXECUTE_REQUEST");
}

static void test_raw_limit(void **state)
{
        struct pair *p = *state;
        char h[24];
        char *big = calloc(1, CG_MAX_STREAM + 1);
        struct cg_msg m;
        struct cg_err err = { 0 };
        struct cg_out out = {
                .type = CG_KERNEL_STREAM, .raw = big, .raw_len = CG_MAX_STREAM + 1, .has_raw = true
        };

        header(h, CG_WIRE_VERSION, 2, CG_KERNEL_STREAM);
        zmq_send(p->a, h, 24, ZMQ_SNDMORE);
        zmq_send(p->a, "", 0, ZMQ_SNDMORE);
        zmq_send(p->a, big, CG_MAX_STREAM + 1, 0);
        assert_int_equal(cg_msg_recv(p->b, &cg_wire_kernel, CG_ROLE_KERNEL, &m, &err), CG_E_PROTO);
        /* The sender's own limits hold as well. */
        assert_int_equal(cg_msg_send(p->a, &cg_wire_kernel, &out, &err), CG_E_LIMIT);
        out.raw_len--;
        assert_int_equal(cg_msg_send(p->a, &cg_wire_kernel, &out, &err), 0);
        assert_int_equal(cg_msg_recv(p->b, &cg_wire_kernel, CG_ROLE_KERNEL, &m, &err), 0);
        cg_msg_fini(&m);
        free(big);
}

static void test_bad_body(void **state)
{
        struct pair *p = *state;
        struct cg_out out = {
                .type = CG_KERNEL_EXECUTE_REPLY, .body = "[1]", .body_len = 3, .raw = "", .has_raw = true
        };
        cg_auto_msg struct cg_msg m;
        json_t *o;
        struct cg_err err;

        assert_int_equal(cg_msg_send(p->a, &cg_wire_kernel, &out, &err), 0);
        assert_int_equal(cg_msg_recv(p->b, &cg_wire_kernel, CG_ROLE_KERNEL, &m, &err), 0);
        assert_int_equal(cg_msg_json(&m, &o, &err), CG_E_PROTO);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_setup_teardown(test_round_trip, setup, teardown),
                cmocka_unit_test_setup_teardown(test_nothing_waits, setup, teardown),
                cmocka_unit_test_setup_teardown(test_rules, setup, teardown),
                cmocka_unit_test_setup_teardown(test_raw_limit, setup, teardown),
                cmocka_unit_test_setup_teardown(test_bad_body, setup, teardown),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
