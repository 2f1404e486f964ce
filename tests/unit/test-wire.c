/* wire.c, zconn.c: messages that keep a table's rules arrive unchanged, others are refused. */
#include "base/zconn.h"
#include "unit.h"

/* A sends to B. */
struct pair {
        struct cg_zconn a, b;
        struct cg_msg m; /* the last that B has received */
        unsigned messages, ends;
};

static void on_msg(struct cg_zconn *c, struct cg_msg *m)
{
        struct pair *p = (struct pair *)(void *)((char *)c - offsetof(struct pair, b));

        cg_msg_fini(&p->m);
        p->m = *m;
        m->n_frames = 0;
        p->messages++;
}

static void on_end(struct cg_zconn *c, const struct cg_err *err)
{
        (void)err;
        ((struct pair *)(void *)((char *)c - offsetof(struct pair, b)))->ends++;
}

static const struct cg_zconn_ops ops = { on_msg, on_end };

/* @sender: the role of A. */
static void open_pair(struct pair *p, const struct cg_wire *wire, unsigned sender)
{
        int fds[2];

        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds), 0);
        assert_int_equal(cg_zconn_init(&p->a, fds[0], wire, 0, SIZE_MAX, &ops, NULL), 0);
        assert_int_equal(cg_zconn_init(&p->b, fds[1], wire, sender, SIZE_MAX, &ops, NULL), 0);
}

/* Lets both ends work until nothing more happens. */
static void work(struct pair *p)
{
        for (int i = 0; i < 8; i++) {
                cg_zconn_flush(&p->a);
                cg_zconn_flush(&p->b);
                cg_zconn_read(&p->a, 32, true);
                cg_zconn_opened(&p->a);
                cg_zconn_read(&p->b, 32, true);
                cg_zconn_opened(&p->b);
        }
}

static int setup(void **state)
{
        struct pair *p = calloc(1, sizeof(*p));

        p->a = p->b = CG_ZCONN_NONE;
        *state = p;
        return 0;
}

static int teardown(void **state)
{
        struct pair *p = *state;

        cg_zconn_fini(&p->a);
        cg_zconn_fini(&p->b);
        cg_msg_fini(&p->m);
        free(p);
        return 0;
}

/* A frame that is shared stays until its last user has dropped it. */
TEST_WITH(test_shared_frames, setup, teardown)
{
        struct pair *p = *state;
        struct cg_out out = { .type = CG_TOOL_CALL };
        struct cg_msg m = CG_MSG_EMPTY;
        struct cg_frame *f = cg_frame_new((size_t)1 << 20);
        size_t len;

        memset(f->data, 'x', f->len);
        open_pair(p, &cg_wire_tool, CG_ROLE_KERNEL);
        m.n_frames = 2;
        m.frames[1] = cg_frame_ref(f);
        assert_int_equal(cg_zconn_put_frames(&p->a, &out, &m, NULL), 0);
        cg_msg_fini(&m);
        assert_int_equal(f->refs, 2); /* ours and that of the queued message */
        for (int i = 0; i < 64 && !p->messages; i++)
                work(p);
        assert_int_equal(p->messages, 1);
        assert_int_equal(f->refs, 1);
        assert_memory_equal(cg_msg_raw(&p->m, 0, &len), f->data, f->len + 1);
        assert_int_equal(len, f->len);
        assert_null(cg_frame_unref(f));
        assert_null(cg_frame_unref(NULL));
}

/* Raw frames are the message's, the body is the sender's. */
TEST_WITH(test_a_large_body_is_copied, setup, teardown)
{
        struct pair *p = *state;
        char body[100000], sent[sizeof(body)];
        struct cg_out out = { .type = CG_HOST_RESULT, .body = body, .body_len = sizeof(body) };
        struct cg_msg m = CG_MSG_EMPTY;
        size_t len;

        memset(sent, 'x', sizeof(sent));
        memcpy(body, sent, sizeof(body));
        open_pair(p, &cg_wire_host, CG_ROLE_SUPERVISOR);
        m.n_frames = 2;
        m.frames[1] = cg_frame_new(100000);
        memset(m.frames[1]->data, 'y', m.frames[1]->len);
        assert_int_equal(cg_zconn_put_frames(&p->a, &out, &m, NULL), 0);
        memset(body, 'z', sizeof(body));
        cg_msg_fini(&m);
        for (int i = 0; i < 64 && !p->messages; i++)
                work(p);
        assert_int_equal(p->messages, 1);
        assert_memory_equal(cg_msg_body(&p->m, &len), sent, sizeof(sent));
        assert_int_equal(len, sizeof(sent));
}

/* Expects a protocol error that contains @why for @frames frames of @frame_len bytes. */
static void refuse(unsigned sender, const char *header, size_t header_len, int frames, size_t frame_len,
                   const char *why)
{
        struct cg_msg m;
        struct cg_err err = { 0 };
        int r = cg_msg_start(&m, &cg_wire_kernel, sender, (const unsigned char *)header, header_len, &err);

        for (int i = 0; r == 0 && i < frames; i++)
                r = cg_msg_check_frame(&m, (size_t)i, frame_len, i ? (size_t)(i - 1) * frame_len : 0,
                                       i + 1 < frames, &err);
        assert_int_equal(r, CG_E_PROTO);
        assert_non_null(strstr(err.msg, why));
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

TEST(test_rules)
{
        char h[24];

        refuse(CG_ROLE_KERNEL, "hello", 5, 0, 0, "not a message");
        refuse(CG_ROLE_KERNEL, "hello", 5, 3, 1, "not a message");
        header(h, CG_WIRE_VERSION + 1, 2, CG_KERNEL_STREAM);
        refuse(CG_ROLE_KERNEL, h, 24, 2, 0, "version");
        header(h, CG_WIRE_VERSION, 1, CG_KERNEL_STREAM);
        refuse(CG_ROLE_KERNEL, h, 24, 2, 0, "wire 1");
        header(h, CG_WIRE_VERSION, 2, 999);
        refuse(CG_ROLE_KERNEL, h, 24, 1, 0, "unknown message 999");
        header(h, CG_WIRE_VERSION, 2, CG_KERNEL_STREAM);
        refuse(CG_ROLE_KERNEL, h, 23, 2, 0, "not a message");
        refuse(CG_ROLE_KERNEL, h, 24, 1, 0, "0 raw frames");
        refuse(CG_ROLE_KERNEL, h, 24, 3, 0, "2 raw frames");
        refuse(CG_ROLE_KERNEL, h, 24, 2, 1, "body of 1 bytes");
        refuse(CG_ROLE_KERNEL, h, 24, CG_MAX_FRAMES + 5, 0, "frames");
        refuse(CG_ROLE_SUPERVISOR, h, 24, 2, 0, "may not send STREAM");
        header(h, CG_WIRE_VERSION, 2, CG_KERNEL_EXECUTE_REQUEST);
        refuse(CG_ROLE_KERNEL, h, 24, 2, 0, "may not send EXECUTE_REQUEST");
}

TEST_WITH(test_raw_limit, setup, teardown)
{
        struct pair *p = *state;
        char h[24];
        char *big = calloc(1, CG_MAX_STREAM + 1);
        struct cg_out out = {
                .type = CG_KERNEL_STREAM, .raw = big, .raw_len = CG_MAX_STREAM + 1, .has_raw = true
        };
        struct cg_msg m;

        header(h, CG_WIRE_VERSION, 2, CG_KERNEL_STREAM);
        OK(cg_msg_start(&m, &cg_wire_kernel, CG_ROLE_KERNEL, (const unsigned char *)h, 24, NULL));
        assert_int_equal(cg_msg_check_frame(&m, 1, CG_MAX_STREAM, 0, false, NULL), 0);
        assert_int_equal(cg_msg_check_frame(&m, 1, CG_MAX_STREAM + 1, 0, false, NULL), CG_E_PROTO);
        assert_int_equal(cg_msg_check_frame(&m, 1, 1, CG_MAX_STREAM, false, NULL), CG_E_PROTO);
        /* The sender's own limits hold as well. */
        open_pair(p, &cg_wire_kernel, CG_ROLE_KERNEL);
        assert_int_equal(cg_zconn_put(&p->a, &out, NULL, NULL, NULL), CG_E_LIMIT);
        out.raw_len--;
        assert_int_equal(cg_zconn_put(&p->a, &out, NULL, NULL, NULL), 0);
        for (int i = 0; i < 64 && !p->messages; i++)
                work(p);
        assert_int_equal(p->messages, 1);
        free(big);
}

TEST_WITH(test_bad_body, setup, teardown)
{
        struct pair *p = *state;
        struct cg_out out = {
                .type = CG_KERNEL_EXECUTE_REPLY, .body = "[1]", .body_len = 3, .raw = "", .has_raw = true
        };
        json_t *o;

        open_pair(p, &cg_wire_kernel, CG_ROLE_KERNEL);
        assert_int_equal(cg_zconn_put(&p->a, &out, NULL, NULL, NULL), 0);
        work(p);
        assert_int_equal(p->messages, 1);
        assert_int_equal(cg_msg_json(&p->m, &o, NULL), CG_E_PROTO);
}
