/*
 * Links that are cut (src/relay/channels.c): a session between two relays, cut at each byte of each
 * direction, also where what was written last is lost. Nothing is lost, nothing comes twice.
 */
#include <linux/sockios.h>
#include <stdatomic.h>
#include <sys/ioctl.h>
#include <time.h>
#include "relay/relay.h"
#define CG_OWN_MAIN
#include "unit.h"

ssize_t __wrap_write(int fd, const void *data, size_t n);
ssize_t __real_write(int fd, const void *data, size_t n);

int __wrap_poll(struct pollfd *p, nfds_t n, int timeout_ms);
int __real_poll(struct pollfd *p, nfds_t n, int timeout_ms);
int64_t __wrap_cg_now_ms(void);
int64_t __real_cg_now_ms(void);

#define LIMIT_S 120 /* of each wait: the machine may be busy */

enum side { HOST, NODE };

static struct {
        pthread_mutex_t lock;
        pthread_cond_t cond;
        enum side direction; /* written by this side */
        _Atomic long at;     /* the cut: after so many bytes */
        long every;          /* then again after so many */
        bool loses;          /* the rest of that write, which the writer does not notice */
        _Atomic long written;
        long n_cuts;
        bool ending; /* a side that has ended makes no other link */
        int waiting;
        uint64_t received[2];
        _Atomic uint64_t round;
        int fds[2];
} cut = { .lock = PTHREAD_MUTEX_INITIALIZER, .cond = PTHREAD_COND_INITIALIZER };
static _Thread_local int side = -1;
static _Atomic int64_t later_ms; /* added to the clock */
static _Atomic int n_polls_0;    /* calls of poll() that do not wait */

int64_t __wrap_cg_now_ms(void)
{
        return __real_cg_now_ms() + later_ms;
}

int __wrap_poll(struct pollfd *p, nfds_t n, int timeout_ms)
{
        n_polls_0 += timeout_ms == 0;
        return __real_poll(p, n, timeout_ms);
}

/* Only links are written with write(). */
ssize_t __wrap_write(int fd, const void *data, size_t n)
{
        long left = cut.at - cut.written;
        ssize_t ret;

        if (side != (int)cut.direction || cut.at < 0 || (long)n <= left) {
                ret = __real_write(fd, data, n);
                cut.written += side == (int)cut.direction && ret > 0 ? ret : 0;
                return ret;
        }
        ret = left > 0 ? __real_write(fd, data, (size_t)left) : 0;
        if (ret < left)
                return ret;
        cut.n_cuts++;
        ret = cut.loses ? (ssize_t)n : left;
        cut.written += ret;
        cut.at = cut.every ? cut.written + cut.every : -1;
        shutdown(fd, SHUT_RDWR);
        errno = EPIPE;
        return ret ?: -1;
}

/* Both sides meet, as by a new COMMAND: a new pair of streams, and how much each has received. */
static int renew(struct cg_link *r, bool lost, struct cg_err *err)
{
        const struct cg_buf nothing = { 0 };
        struct timespec end;
        uint64_t round, received;
        int fd;

        assert_true(lost);
        shutdown(r->in, SHUT_RDWR);
        clock_gettime(CLOCK_REALTIME, &end);
        end.tv_sec += LIMIT_S;
        pthread_mutex_lock(&cut.lock);
        round = cut.round;
        cut.received[side] = r->received;
        if (++cut.waiting == 2) {
                cut.waiting = 0;
                cut.round++;
                assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, cut.fds), 0);
                pthread_cond_broadcast(&cut.cond);
        }
        while (cut.round == round && !cut.ending)
                if (pthread_cond_timedwait(&cut.cond, &cut.lock, &end) == ETIMEDOUT)
                        break;
        if (cut.round == round) {
                assert_true(cut.ending);
                pthread_mutex_unlock(&cut.lock);
                return CG_E_CLOSED;
        }
        fd = cut.fds[side];
        received = cut.received[!side];
        pthread_mutex_unlock(&cut.lock);
        return cg_link_resume(r, fd, dup(fd), received, &nothing, err);
}

struct relay {
        pthread_t thread;
        enum side side;
        int stream, life, wire;
        int out; /* of a link that is not renewed; -1: it is, and writes to @stream */
        int ret;
};

static void *run(void *arg)
{
        struct relay *x = arg;
        struct cg_link r = { .host = x->side == HOST,
                             .in = x->stream,
                             .out = x->out >= 0 ? x->out : dup(x->stream),
                             .listener = -1,
                             .renew = x->out >= 0 ? NULL : renew };
        struct cg_err err;

        side = (int)x->side;
        cg_buf_init(&r.got, CG_LINK_LINE_MAX);
        x->ret = cg_link_run(&r, x->life, x->wire, &err);
        cg_link_fini(&r);
        return NULL;
}

/* ------------------------------------------------------------------ a session */

struct ends {
        struct relay relays[2];
        int life[2], wire[2]; /* the library's, the supervisor's */
};

static void pair(int fds[2])
{
        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
        for (int i = 0; i < 2; i++)
                setsockopt(fds[i], SOL_SOCKET, SO_RCVTIMEO, &(struct timeval){ .tv_sec = LIMIT_S },
                           sizeof(struct timeval));
}

static void begin(struct ends *e)
{
        int stream[2], life[2], wire[2];

        cut.ending = false;
        cut.waiting = 0;
        pair(stream);
        for (int i = 0; i < 2; i++) {
                pair(life);
                pair(wire);
                e->life[i] = life[0];
                e->wire[i] = wire[0];
                e->relays[i] = (struct relay){
                        .side = (enum side)i, .stream = stream[i], .life = life[1], .wire = wire[1], .out = -1
                };
                assert_int_equal(pthread_create(&e->relays[i].thread, NULL, run, &e->relays[i]), 0);
        }
}

static void put(int fd, const char *data, size_t len)
{
        assert_int_equal(send(fd, data, len, MSG_NOSIGNAL), (ssize_t)len);
}

static void expect(int fd, const char *data, size_t len)
{
        cg_auto_free char *got = malloc(len + 1);

        for (size_t n = 0; n < len;) {
                ssize_t one = recv(fd, got + n, len - n, 0);

                assert_true(one > 0);
                n += (size_t)one;
        }
        assert_memory_equal(got, data, len);
}

static void expect_end(int fd)
{
        char c;

        assert_int_equal(recv(fd, &c, 1, 0), 0);
}

static void expect_nothing(int fd)
{
        char c;

        assert_int_equal(recv(fd, &c, 1, MSG_DONTWAIT), -1);
        assert_int_equal(errno, EAGAIN);
}

/* A socket that the library passes, as for a file's content. */
static int pass_socket(struct ends *e, int *there)
{
        const uint64_t number = 77;
        uint64_t got;
        size_t n = 1;
        int fds[2];

        pair(fds);
        assert_true(cg_send_fds(e->life[0], &number, sizeof(number), &fds[1], 1, NULL) >= 0);
        close(fds[1]);
        put(e->wire[0], "needs it", 8);
        expect(e->wire[1], "needs it", 8);
        assert_int_equal(cg_recv_fds(e->life[1], &got, sizeof(got), there, &n, NULL), sizeof(got));
        assert_int_equal(got, number);
        return fds[0];
}

static void end(struct ends *e)
{
        cut.at = -1;
        for (int i = 0; i < 2; i++) {
                expect_nothing(e->life[i]);
                expect_nothing(e->wire[i]);
        }
        pthread_mutex_lock(&cut.lock);
        cut.ending = true; /* a relay whose link was cut just now ends */
        pthread_cond_broadcast(&cut.cond);
        pthread_mutex_unlock(&cut.lock);
        close(e->life[0]);
        close(e->wire[0]);
        expect_end(e->life[1]);
        close(e->life[1]);
        close(e->wire[1]);
        for (int i = 0; i < 2; i++) {
                pthread_join(e->relays[i].thread, NULL);
                assert_true(e->relays[i].ret == 0 || cut.n_cuts);
        }
}

static void session(const char *data, size_t len)
{
        struct ends e;
        int here, there = -1;

        begin(&e);
        put(e.life[1], "token\n", 6);
        expect(e.life[0], "token\n", 6);
        put(e.wire[0], data, len);
        expect(e.wire[1], data, len);
        put(e.wire[1], data, len / 2);
        expect(e.wire[0], data, len / 2);
        here = pass_socket(&e, &there);
        put(here, data, len);
        expect(there, data, len);
        put(there, data + 1, len - 1);
        shutdown(there, SHUT_WR);
        expect(here, data + 1, len - 1);
        expect_end(here);
        close(here);
        expect_end(there);
        close(there);
        put(e.wire[1], "last", 4);
        expect(e.wire[0], "last", 4);
        end(&e);
}

/* A session with a cut after each number of bytes, in both directions, with and without loss. */
static void cut_at_each_byte(void (*session_of)(const char *data, size_t len), const char *data, size_t len)
{
        for (int way = 0; way < 4; way++) {
                for (long at = 0;; at++) {
                        cut.direction = way & 1 ? NODE : HOST;
                        cut.loses = way & 2;
                        cut.at = at;
                        cut.every = cut.written = cut.n_cuts = 0;
                        session_of(data, len);
                        if (!cut.n_cuts)
                                break;
                }
        }
}

TEST(test_a_cut_at_each_byte)
{
        char data[400];

        for (size_t i = 0; i < sizeof(data); i++)
                data[i] = (char)(i * 7 + i / 256);
        cut_at_each_byte(session, data, sizeof(data));
}

/* The supervisor ends after its last words. */
static void last_words(const char *data, size_t len)
{
        struct ends e;

        begin(&e);
        put(e.wire[0], "end", 3);
        expect(e.wire[1], "end", 3);
        put(e.wire[1], data, len);
        close(e.life[1]);
        close(e.wire[1]);
        expect(e.wire[0], data, len);
        expect_end(e.wire[0]);
        pthread_join(e.relays[HOST].thread, NULL);
        assert_int_equal(e.relays[HOST].ret, 0);
        pthread_mutex_lock(&cut.lock);
        cut.ending = true;
        pthread_cond_broadcast(&cut.cond);
        pthread_mutex_unlock(&cut.lock);
        pthread_join(e.relays[NODE].thread, NULL);
        close(e.life[0]);
        close(e.wire[0]);
}

TEST(test_a_cut_at_each_byte_of_the_end)
{
        char data[100];

        memset(data, 'x', sizeof(data));
        cut_at_each_byte(last_words, data, sizeof(data));
}

/* The beginning of a host's relay whose other side is this test: the link ends are @to, @from. */
static void begin_host(struct relay *r, int *life, int *wire, int *to, int *from)
{
        int in[2], out[2], lives[2], wires[2];

        assert_int_equal(pipe(in), 0);
        assert_int_equal(pipe(out), 0);
        pair(lives);
        pair(wires);
        *r = (struct relay){
                .side = HOST, .stream = in[0], .out = out[1], .life = lives[1], .wire = wires[1]
        };
        *life = lives[0];
        *wire = wires[0];
        *to = in[1];
        *from = out[0];
        assert_int_equal(pthread_create(&r->thread, NULL, run, r), 0);
}

/* The node has ended, and its answer is still in the pipe. */
TEST(test_what_waits_after_a_write_error)
{
        static const char answer[] = "\0\0\0\1\0\0\0\6answer\0\0\0\1\1\0\0\0";
        int life, wire, to, from, unread = 1;
        struct relay r;

        cut.at = -1;
        begin_host(&r, &life, &wire, &to, &from);
        close(from);
        put(wire, "x", 1);
        while (unread)
                assert_int_equal(ioctl(wire, SIOCOUTQ, &unread), 0);
        assert_int_equal(write(to, answer, sizeof(answer) - 1), sizeof(answer) - 1);
        close(to);
        expect(wire, "answer", 6);
        expect_end(wire);
        pthread_join(r.thread, NULL);
        close(life);
        close(wire);
}

/* Nobody reads the link: then its relay waits, also when it is time for a sign of life. */
TEST(test_a_frozen_link_costs_no_time)
{
        const size_t len = 256 << 10; /* more than a pipe has */
        int life, wire, to, from, before, unread = 1;
        char *data = calloc(1, len);
        struct relay r;

        cut.at = -1;
        begin_host(&r, &life, &wire, &to, &from);
        put(wire, data, len);
        while (unread)
                assert_int_equal(ioctl(wire, SIOCOUTQ, &unread), 0);
        later_ms = 6000;
        put(wire, "x", 1); /* a round with the later time */
        __real_poll(NULL, 0, 100);
        before = n_polls_0;
        __real_poll(NULL, 0, 200);
        assert_true(n_polls_0 - before < 10);
        later_ms = 0;
        close(from);
        close(to);
        close(life);
        pthread_join(r.thread, NULL);
        close(wire);
        free(data);
}

struct sender {
        int fd;
        const char *data;
        size_t len;
};

static void *send_all(void *arg)
{
        const struct sender *s = arg;

        put(s->fd, s->data, s->len);
        return NULL;
}

/* More than both sides keep: acknowledgements, credit and back-pressure with cuts between. */
TEST(test_much_with_many_cuts)
{
        const size_t len = (size_t)24 << 20;
        char *data = malloc(len);
        struct ends e;

        for (size_t i = 0; i < len; i++)
                data[i] = (char)(i ^ i >> 8 ^ i >> 16);
        for (int way = 0; way < 4; way++) {
                enum side from = way & 1 ? NODE : HOST;
                struct sender s;
                pthread_t thread;

                cut.direction = way & 2 ? from : !from;
                cut.loses = true;
                cut.every = cut.direction == from ? 1000003 : 211;
                cut.at = cut.every;
                cut.written = cut.n_cuts = 0;
                begin(&e);
                s = (struct sender){ e.wire[from], data, len };
                assert_int_equal(pthread_create(&thread, NULL, send_all, &s), 0);
                expect(e.wire[!from], data, len);
                pthread_join(thread, NULL);
                assert_true(cut.n_cuts > 2);
                end(&e);
        }
        free(data);
}

/* What the other side says of itself is checked. */
TEST(test_numbers_that_cannot_be)
{
        const struct cg_buf nothing = { 0 };
        struct cg_link r = { .in = -1, .out = -1, .base = 1000, .acked = 10, .sent = 20 };
        const uint64_t wrong[] = { 0, 1009, 1021, UINT64_MAX };

        for (size_t i = 0; i < CG_ARRAY_LEN(wrong); i++)
                FAILS(CG_E_PROTO, "", cg_link_resume(&r, -1, -1, wrong[i], &nothing, &err));
}

int main(void)
{
        signal(SIGPIPE, SIG_IGN);
        return cg_run_tests(NULL, NULL);
}
