/* The control channel: messages in pieces, descriptors beside them, and what is no message. */
#include "sandbox/egress/chan.h"
#include "unit.h"

static void open_pair(struct cg_chan *a, struct cg_chan *b)
{
        int fds[2];

        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
        cg_chan_init(a, fds[0]);
        cg_chan_init(b, fds[1]);
}

static json_int_t number_of(struct cg_chan *c)
{
        cg_auto_json json_t *m = NULL;

        assert_int_equal(cg_chan_next(c, &m, NULL), 0);
        return json_integer_value(json_object_get(m, "n"));
}

TEST(test_in_pieces)
{
        static const char bytes[] = "\0\0\0\x08{\"n\":5}\n\0\0\0\x08{\"n\":6}\n";
        struct cg_chan a, b;
        json_t *m;

        open_pair(&a, &b);
        for (size_t i = 0; i < sizeof(bytes) - 1; i++) {
                assert_int_equal(write(a.fd, bytes + i, 1), 1);
                assert_int_equal(cg_chan_read(&b, NULL), 0);
                if (i == 11)
                        assert_int_equal(number_of(&b), 5);
                else if (i < sizeof(bytes) - 2)
                        assert_int_equal(cg_chan_next(&b, &m, NULL), CG_TIMEOUT);
        }
        assert_int_equal(number_of(&b), 6);
        cg_chan_fini(&a);
        cg_chan_fini(&b);
}

TEST(test_descriptors)
{
        struct cg_chan a, b;
        int pipes[2], got[3];

        open_pair(&a, &b);
        assert_int_equal(pipe2(pipes, O_CLOEXEC), 0);
        assert_int_equal(cg_chan_send_fds(&a, json_pack("{s:i}", "n", 1), pipes, 2, 1000, NULL), 0);
        /* Together with what follows: the first read stops where the descriptors are. */
        assert_int_equal(cg_chan_send(&a, json_pack("{s:i}", "n", 2), NULL), 0);
        for (int i = 0; i < 3; i++)
                assert_int_equal(cg_chan_read(&b, NULL), 0);
        assert_int_equal(number_of(&b), 1);
        assert_int_equal(cg_chan_take_fds(&b, 3, got, NULL), CG_E_PROTO);
        assert_int_equal(cg_chan_take_fds(&b, 1, got, NULL), 0);
        assert_true(fcntl(got[0], F_GETFD) & FD_CLOEXEC);
        assert_int_equal(number_of(&b), 2);
        /* The other one closes with the channel. */
        close(pipes[0]);
        close(pipes[1]);
        close(got[0]);
        got[0] = b.fds[0];
        cg_chan_fini(&a);
        cg_chan_fini(&b);
        assert_int_equal(fcntl(got[0], F_GETFD), -1);
}

static void refuse(const char *bytes, size_t len, int code)
{
        struct cg_err err = { .msg = "" };
        struct cg_chan a, b;
        json_t *m;

        open_pair(&a, &b);
        assert_int_equal(write(a.fd, bytes, len), (ssize_t)len);
        assert_int_equal(cg_chan_read(&b, NULL), 0);
        assert_int_equal(cg_chan_next(&b, &m, &err), code);
        assert_true(err.msg[0]);
        cg_chan_fini(&a);
        cg_chan_fini(&b);
}

TEST(test_no_messages)
{
        refuse("\0\0\0\0", 4, CG_E_PARSE);
        refuse("\0\0\0\x03[1]", 7, CG_E_PARSE);
        refuse("\0\0\0\x02{\n", 6, CG_E_PARSE);
        refuse("\0\x20\0\x01", 4, CG_E_LIMIT);
        refuse("\xff\xff\xff\xff", 4, CG_E_LIMIT);
}

TEST(test_a_reader_that_does_not_read)
{
        struct cg_chan a, b;
        struct cg_err err;
        int r = 0, n = 0;

        open_pair(&a, &b);
        for (; r == 0 && n < 10000; n++)
                r = cg_chan_send(
                        &a,
                        json_pack("{s:i, s:s#}", "n", n, "x", "0123456789012345678901234567890123456789", 40),
                        &err);
        while (r == 0)
                r = cg_chan_send(&a, json_pack("{s:o}", "x", json_integer(n++)), &err);
        assert_int_equal(r, CG_E_LIMIT);
        assert_true(a.out.len <= CG_CHAN_QUEUE_MAX);
        assert_int_equal(cg_chan_flush(&a, &err), CG_TIMEOUT);
        assert_int_equal(cg_chan_send_fds(&a, json_object(), NULL, 0, 10, &err), CG_E_TIMEDOUT);
        cg_chan_fini(&a);
        cg_chan_fini(&b);
}
