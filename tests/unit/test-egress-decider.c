/*
 * The decider of cellgate-egress, with a relay that sends false messages: the relay gets what the
 * policy allows and no more.
 */
#include <ifaddrs.h>
#include <netinet/in.h>
#include "sandbox/egress/chan.h"
#include "sandbox/egress/internal.h"
#include "unit.h"

#define WAIT_MS 20000

/* A decider in a process of its own; this test is its host and its relay. */
struct rig {
        pid_t pid;
        struct cg_chan host;
        int relay, injector;
        int server;
        uint16_t port;
        uint32_t box;
};

static void relay_send(struct rig *r, const void *data, size_t len)
{
        assert_int_equal(send(r->relay, data, len, MSG_NOSIGNAL), (ssize_t)len);
}

/* The next message of the decider; *fd is -1 where none came with it. */
static struct cg_egress_msg relay_receive(struct rig *r, int *fd)
{
        struct cg_egress_msg m;
        size_t n = 1;

        *fd = -1;
        assert_int_equal(cg_wait_fd(r->relay, POLLIN, WAIT_MS, NULL), 0);
        assert_int_equal(cg_egress_msg_recv(r->relay, &m, fd, &n, NULL), 0);
        if (n == 0)
                *fd = -1;
        return m;
}

static json_t *host_receive(struct rig *r)
{
        json_t *m;
        int e;

        while ((e = cg_chan_next(&r->host, &m, NULL)) == CG_TIMEOUT) {
                assert_int_equal(cg_wait_fd(r->host.fd, POLLIN, WAIT_MS, NULL), 0);
                assert_int_equal(cg_chan_read(&r->host, NULL), 0);
        }
        assert_int_equal(e, 0);
        return m;
}

static void host_expect(struct rig *r, const char *type)
{
        cg_auto_json json_t *m = host_receive(r);

        assert_string_equal(json_string_value(json_object_get(m, "type")), type);
}

static void make_server(struct rig *r)
{
        struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
        socklen_t len = sizeof(a);

        r->server = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        assert_int_equal(bind(r->server, (struct sockaddr *)&a, sizeof(a)), 0);
        assert_int_equal(listen(r->server, 10), 0);
        assert_int_equal(getsockname(r->server, (struct sockaddr *)&a, &len), 0);
        r->port = ntohs(a.sin_port);
}

static void start(struct rig *r, const char *allowed, const char *inject)
{
        static const struct cg_egress_msg ready = { .type = CG_EGRESS_READY };
        int control[2], relay[2], injector[2], fd;
        cg_auto_json json_t *p = NULL;
        struct cg_egress_msg m;
        json_t *open; /* stolen below */

        make_server(r);
        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, control), 0);
        assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, relay), 0);
        assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, injector), 0);
        r->pid = fork();
        assert_true(r->pid >= 0);
        if (r->pid == 0) {
                close(control[0]);
                close(relay[0]);
                close(injector[0]);
                _exit(cg_decider_run(control[1], relay[1], injector[1]));
        }
        close(control[1]);
        close(relay[1]);
        close(injector[1]);
        r->injector = injector[0];
        cg_chan_init(&r->host, control[0]);
        r->relay = relay[0];
        relay_send(r, &ready, sizeof(ready));
        assert_int_equal(send(r->injector, &ready, sizeof(ready), MSG_NOSIGNAL), (ssize_t)sizeof(ready));
        host_expect(r, "ready");
        p = json_pack("{s:{s:o, s:[]}, s:o*}", "network", "allowedDomains", json_loads(allowed, 0, NULL),
                      "deniedDomains", "inject", inject ? json_loads(inject, 0, NULL) : NULL);
        open = json_pack("{s:s, s:i, s:i, s:b, s:O}", "type", "open", "sandbox", 7, "listeners", 1, "secrets",
                         inject != NULL, "policy", p);
        OK(cg_chan_send_fds(&r->host, open, (const int[]){ r->server, r->server }, inject ? 2 : 1, WAIT_MS,
                            NULL));
        m = relay_receive(r, &fd);
        assert_int_equal(m.type, CG_EGRESS_BOX_OPEN);
        assert_true(fd >= 0);
        close(fd);
        r->box = m.box;
        host_expect(r, "opened");
}

static int end_rig(struct rig *r)
{
        int status = 0;

        cg_chan_fini(&r->host);
        close(r->relay);
        close(r->injector);
        close(r->server);
        assert_int_equal(waitpid(r->pid, &status, 0), r->pid);
        assert_true(WIFEXITED(status));
        return WEXITSTATUS(status);
}

static struct cg_egress_msg question(const struct rig *r, const char *host, uint16_t port, uint8_t kind)
{
        struct cg_egress_msg m = {
                .type = CG_EGRESS_ASK, .box = r->box, .id = 1, .port = port, .kind = kind
        };

        snprintf(m.host, sizeof(m.host), "%s", host);
        return m;
}

/* The answer to it; a socket that comes with it is closed. */
static struct cg_egress_msg ask(struct rig *r, const struct cg_egress_msg *q)
{
        struct cg_egress_msg a;
        int fd;

        relay_send(r, q, sizeof(*q));
        a = relay_receive(r, &fd);
        assert_int_equal(a.type, CG_EGRESS_ANSWER);
        assert_int_equal(a.id, q->id);
        assert_true((fd >= 0) == (a.result == CG_EGRESS_CONNECTED || a.result == CG_EGRESS_CONNECTED_PROXY));
        if (fd >= 0)
                close(fd);
        return a;
}

TEST(test_allowed)
{
        static const char *const spellings[] = { "127.0.0.1", "127.1", "0x7F.0.0.1", "[::ffff:127.0.0.1]" };
        struct rig r;

        start(&r, "[\"127.0.0.1\"]", NULL);
        for (size_t i = 0; i < CG_ARRAY_LEN(spellings); i++) {
                struct cg_egress_msg q = question(&r, spellings[i], r.port, CG_EGRESS_CONNECT);

                assert_int_equal(ask(&r, &q).result, CG_EGRESS_CONNECTED);
        }
        assert_int_equal(end_rig(&r), 0);
}

/* The errno with which getifaddrs() fails; 0: it succeeds. */
static int list_error;

int getifaddrs(struct ifaddrs **list)
{
        *list = NULL;
        errno = list_error;
        return list_error ? -1 : 0;
}

/* A name may lead to one of this machine's addresses, which cannot be found out then. */
TEST(test_own_addresses_that_cannot_be_listed)
{
        static const struct {
                int error;
                uint32_t result;
        } cases[] = { { 0, CG_EGRESS_CONNECTED },
                      { EAFNOSUPPORT, CG_EGRESS_CONNECTED }, /* there is no netlink: never */
                      { EMFILE, CG_EGRESS_UNREACHABLE },
                      { ENOBUFS, CG_EGRESS_UNREACHABLE } };

        for (size_t i = 0; i < CG_ARRAY_LEN(cases); i++) {
                struct cg_egress_msg q, a;
                struct rig r;

                list_error = cases[i].error;
                start(&r, "[\"localhost\"]", NULL);
                q = question(&r, "localhost", r.port, CG_EGRESS_CONNECT);
                a = ask(&r, &q);
                assert_int_equal(a.result, cases[i].result);
                if (a.result == CG_EGRESS_UNREACHABLE)
                        assert_non_null(strstr(a.text, "own addresses cannot be listed"));
                assert_int_equal(end_rig(&r), 0);
        }
        list_error = 0;
}

static void refused(struct rig *r, struct cg_egress_msg q, const char *why)
{
        struct cg_egress_msg a = ask(r, &q);

        assert_int_equal(a.result, CG_EGRESS_DENIED);
        if (!strstr(a.text, why))
                fail_msg("%s, not %s", a.text, why);
}

TEST(test_refused)
{
        struct cg_egress_msg q;
        struct rig r;

        start(&r, "[\"127.0.0.1\", \"*.allowed.com\"]", NULL);
        refused(&r, question(&r, "127.0.0.2", r.port, CG_EGRESS_CONNECT), "not on the allow list");
        refused(&r, question(&r, "", r.port, CG_EGRESS_CONNECT), "malformed host");
        refused(&r, question(&r, "::ffff:127.0.0.1%x.allowed.com", r.port, CG_EGRESS_SOCKS),
                "malformed host");
        refused(&r, question(&r, "a\r\n.allowed.com", r.port, CG_EGRESS_HTTP), "malformed host");
        refused(&r, question(&r, "127.0.0.1", 0, CG_EGRESS_CONNECT), "unavailable");
        refused(&r, question(&r, "127.0.0.1", r.port, CG_EGRESS_KINDS), "unavailable");
        refused(&r, question(&r, "127.0.0.1", r.port, 255), "unavailable");
        /* No external proxy is set: this is no way around the lists. */
        refused(&r, question(&r, "127.0.0.1", r.port, CG_EGRESS_RAW_HTTP), "no external proxy");
        refused(&r, question(&r, "127.0.0.1", r.port, CG_EGRESS_RAW_SOCKS), "no external proxy");
        q = question(&r, "127.0.0.1", r.port, CG_EGRESS_CONNECT);
        q.box++;
        refused(&r, q, "unavailable");
        /* A host without an end. */
        q = question(&r, "", r.port, CG_EGRESS_CONNECT);
        memset(q.host, 'a', sizeof(q.host));
        memset(q.text, 'b', sizeof(q.text));
        refused(&r, q, "malformed host");
        assert_int_equal(end_rig(&r), 0);
}

TEST(test_notes_are_made_safe)
{
        struct cg_egress_msg n = { .type = CG_EGRESS_NOTE, .kind = 99 };
        cg_auto_json json_t *m = NULL;
        struct rig r;

        start(&r, "[]", NULL);
        n.box = r.box;
        snprintf(n.text, sizeof(n.text), "x\n\x1b[2J\xff");
        relay_send(&r, &n, sizeof(n));
        m = host_receive(&r);
        assert_string_equal(json_string_value(json_object_get(m, "why")), "x??[2J?");
        assert_int_equal(end_rig(&r), 0);
}

TEST(test_two_questions_of_one_number)
{
        struct cg_egress_msg q, a;
        struct rig r;
        int fd;

        start(&r, "[\"127.0.0.1\"]", NULL);
        q = question(&r, "127.0.0.1", r.port, CG_EGRESS_CONNECT);
        relay_send(&r, &q, sizeof(q));
        relay_send(&r, &q, sizeof(q));
        for (int i = 0; i < 2; i++) {
                a = relay_receive(&r, &fd);
                assert_int_equal(a.result, CG_EGRESS_CONNECTED);
                close(fd);
        }
        q.type = CG_EGRESS_CANCEL;
        q.id = 12345;
        relay_send(&r, &q, sizeof(q));
        q = question(&r, "127.0.0.1", r.port, CG_EGRESS_CONNECT);
        assert_int_equal(ask(&r, &q).result, CG_EGRESS_CONNECTED);
        assert_int_equal(end_rig(&r), 0);
}

static void ends_with(const void *data, size_t len)
{
        struct rig r;

        start(&r, "[\"127.0.0.1\"]", NULL);
        relay_send(&r, data, len);
        /* It ends by itself, not because the test lets go. */
        assert_int_equal(cg_wait_fd(r.host.fd, POLLIN, WAIT_MS, NULL), 0);
        assert_int_equal(end_rig(&r), 1);
}

TEST(test_broken_rules)
{
        static const uint32_t types[] = {
                0, CG_EGRESS_BOX_OPEN, CG_EGRESS_BOX_CLOSE, CG_EGRESS_READY, CG_EGRESS_ANSWER, 99, UINT32_MAX
        };
        struct cg_egress_msg m = { .type = 0 };

        for (size_t i = 0; i < CG_ARRAY_LEN(types); i++) {
                m.type = types[i];
                ends_with(&m, sizeof(m));
        }
        ends_with("x", 1);
        ends_with(&m, sizeof(m) - 1);
}

/* Receives a message to the injector with its descriptors; false if there is none. */
static bool injector_receive(const struct rig *r, struct cg_egress_msg *m, size_t n_wanted)
{
        int fds[4];
        size_t n = CG_ARRAY_LEN(fds);

        if (cg_egress_msg_recv(r->injector, m, fds, &n, NULL) != 0)
                return false;
        assert_int_equal(n, n_wanted);
        for (size_t i = 0; i < n; i++)
                close(fds[i]);
        return true;
}

/* The relay asks; the decider alone says who gets which credential. */
TEST(test_credentials)
{
        struct cg_egress_msg q, m;
        struct rig r;

        start(&r, "[\"127.0.0.1\", \"127.0.0.2\"]",
              "[{}, {\"hosts\": [\"127.0.0.2\"]},"
              "{\"hosts\": [\"127.0.0.1\"], \"resized\": true}, {\"hosts\": []}]");
        assert_true(injector_receive(&r, &m, 1));
        assert_int_equal(m.type, CG_EGRESS_BOX_OPEN);
        /* Nothing in a tunnel, where nobody could look. */
        q = question(&r, "127.0.0.1", r.port, CG_EGRESS_CONNECT);
        assert_int_equal(ask(&r, &q).result, CG_EGRESS_CONNECTED);
        q = question(&r, "127.0.0.1", r.port, CG_EGRESS_SOCKS);
        assert_int_equal(ask(&r, &q).result, CG_EGRESS_CONNECTED);
        q = question(&r, "127.0.0.3", r.port, CG_EGRESS_HTTP);
        assert_int_equal(ask(&r, &q).result, CG_EGRESS_DENIED);
        assert_false(injector_receive(&r, &m, 2));
        q = question(&r, "127.1", r.port, CG_EGRESS_HTTP);
        /* The relay's own claim is ignored. */
        memset(q.creds, 0xff, sizeof(q.creds));
        m = ask(&r, &q);
        assert_int_equal(m.result, CG_EGRESS_CONNECTED);
        assert_true(m.resized);
        assert_true(injector_receive(&r, &m, 2));
        assert_int_equal(m.type, CG_EGRESS_INJECT);
        assert_int_equal(m.box, r.box);
        assert_int_equal(m.creds[0], 1 << 0 | 1 << 2);
        assert_int_equal(m.creds[1], 0);
        assert_int_equal(end_rig(&r), 0);
}

/* Without it a credential would not be put back, or a socket lead nowhere. */
TEST(test_end_of_the_injector)
{
        struct rig r;

        start(&r, "[]", NULL);
        shutdown(r.injector, SHUT_RDWR);
        host_expect(&r, "error");
        assert_int_equal(end_rig(&r), 1);
}
