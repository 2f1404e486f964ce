/*
 * libcellgate as the host of a node that lies: messages of the node and of this host's tool server,
 * decisions of the host, and allocations that fail, in the order of the input. What a function of
 * the host or a tool server gets was sent by the node as it is, and of functions that are asked
 * about it was shown and accepted. No question waits for ever.
 *
 * Input: for each step its kind, type, number and flags (a byte each), lengths of body and raw
 * frame (two bytes each, little-endian), body, raw frame. OF_HOST: the type says how it decides;
 * MEMORY: which allocation from now on fails.
 */
#include <errno.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>
#include "client/internal.h"
#include "fuzz.h"

enum kind { OF_NODE, OF_TOOLS, BYTES, OF_HOST, MEMORY, N_KINDS };
#define HEAD 8u
/* Flags of a step: another session; a number of the host's questions. */
#define OTHER   128u
#define HOSTS   64u
#define LARGE   32u
#define NO_RAW  16u
#define MESSAGE 15u
#define MAX     64

void *__wrap_calloc(size_t n, size_t size);
void *__real_calloc(size_t n, size_t size);
void *__wrap_malloc(size_t size);
void *__real_malloc(size_t size);
int __wrap_pthread_create(pthread_t *t, const pthread_attr_t *attr, void *(*run)(void *), void *arg);
int __wrap_cg_proc_spawn(const struct cg_proc_spec *spec, struct cg_proc *ret, struct cg_err *err);

static int until_failure; /* 0: none */
static int tools_fd;

void *__wrap_calloc(size_t n, size_t size)
{
        return until_failure && !--until_failure ? NULL : __real_calloc(n, size);
}

void *__wrap_malloc(size_t size)
{
        return until_failure && !--until_failure ? NULL : __real_malloc(size);
}

/* The harness reads for the library, so that an input is always the same run. */
int __wrap_pthread_create(pthread_t *t, const pthread_attr_t *attr, void *(*run)(void *), void *arg)
{
        return 0;
}

/* The tool server: the harness has its end of the wire. */
int __wrap_cg_proc_spawn(const struct cg_proc_spec *spec, struct cg_proc *ret, struct cg_err *err)
{
        tools_fd = dup(spec->fds[3].fd);
        return 0;
}

/* Arguments by number, as they were sent or shown. */
struct record {
        uint64_t number;
        char *args;
        size_t len;
        bool accepted;
};

struct records {
        struct record list[MAX];
        size_t n;
};

struct run {
        struct cg_client *c;
        struct cg_session *s;
        struct cg_zconn node, tools; /* the other ends */
        struct records sent, shown;
        uint64_t asks; /* bits of numbers below 64 that the tool server asks about and nobody has answered */
};
static struct run *current; /* for the callbacks of the other ends */

static void record(struct records *r, uint64_t number, const void *args, size_t len)
{
        char *copy = r->n < MAX ? __real_malloc(len + 1) : NULL;

        must(copy || r->n == MAX);
        if (!copy)
                return;
        memcpy(copy, args, len);
        r->list[r->n++] = (struct record){ .number = number, .args = copy, .len = len };
}

static bool has(const struct records *r, uint64_t number, const char *args, size_t len, bool accepted)
{
        for (size_t i = 0; i < r->n; i++) {
                const struct record *one = &r->list[i];

                if (one->number == number && one->len == len && memcmp(one->args, args, len) == 0 &&
                    (!accepted || one->accepted))
                        return true;
        }
        return r->n == MAX;
}

/* ------------------------------------------------------------------ what the library sends */

static void node_gets(struct cg_zconn *conn, struct cg_msg *m)
{
        must(m->type != CG_HOST_SERVERS_ADD || !strstr(cg_msg_body(m, &(size_t){ 0 }), "SECRET"));
}

static void tools_get(struct cg_zconn *conn, struct cg_msg *m)
{
        struct cg_slice args = { NULL, 0 };

        if (m->type == CG_BROKER_CALL) {
                args.p = cg_msg_raw(m, 0, &args.len);
                must(has(&current->sent, m->id, args.p, args.len, false));
        }
        if ((m->type == CG_BROKER_ASK_DECISION || m->type == CG_BROKER_EGRESS_DECISION ||
             m->type == CG_BROKER_SERVER_ANSWER) &&
            m->id < 64)
                current->asks &= ~(UINT64_C(1) << m->id);
}

static void ended(struct cg_zconn *conn, const struct cg_err *err)
{
        must(err->code != CG_E_PROTO);
}

static void pump(struct run *r)
{
        struct cg_zconn *ends[] = { &r->node, &r->tools };

        for (size_t i = 0; i < CG_ARRAY_LEN(ends) && ends[i]->fd >= 0; i++) {
                cg_zconn_read(ends[i], 1000, true);
                cg_zconn_opened(ends[i]);
                cg_zconn_flush(ends[i]);
        }
}

/* ------------------------------------------------------------------ the host */

static void decide(struct run *r, const struct cg_event *e, uint8_t how)
{
        uint64_t n = cg_event_approval(e);
        bool yes = how & 1;

        switch (cg_event_type(e)) {
        case CG_EVENT_APPROVAL_REQUEST:
                for (size_t i = 0; yes && i < r->shown.n; i++)
                        if (r->shown.list[i].number == n)
                                r->shown.list[i].accepted = true;
                if (yes)
                        cg_approval_accept(r->s, n, NULL);
                else
                        cg_approval_reject(r->s, n, "no", NULL);
                break;
        case CG_EVENT_EGRESS_REQUEST:
                cg_egress_decide(r->s, n, yes ? CG_EGRESS_ALLOW_ONCE : CG_EGRESS_DENY_ONCE, "no", NULL);
                break;
        case CG_EVENT_SERVER_REQUEST:
                if (!yes || cg_server_request_answer(r->s, n, "{\"action\":\"decline\"}", NULL) < 0)
                        cg_server_request_decline(r->s, n, NULL);
                break;
        case CG_EVENT_FUNCTION_CALL:
                cg_function_return(r->s, n, yes ? CG_FUNCTION_VALUE : CG_FUNCTION_ERROR, "1", 1, NULL);
                break;
        default:
                break;
        }
}

static size_t read_all(struct cg_event *e)
{
        struct cg_costs costs = { .size = sizeof(costs) };
        size_t n = 0, len;

        n += strlen(cg_event_json(e, &len)) + len;
        n += strlen(cg_event_text(e, &len)) + strlen(cg_event_server(e)) + strlen(cg_event_tool(e));
        n += (size_t)(cg_event_mime(e, "text/plain", NULL) != NULL) + strlen(cg_event_method(e));
        n += cg_event_artifacts(e, &len) ? len : 0;
        for (size_t i = 0; i < cg_event_n_buffers(e); i++)
                n += cg_event_buffer(e, i, &len) ? len : 0;
        return n + (size_t)(cg_event_costs(e, &costs) == 0);
}

/* Takes the events that wait. @how: odd to accept; from 2 on questions are left alone. */
static void host(struct run *r, uint8_t how)
{
        struct cg_event *e;

        while (cg_session_next_event(r->s, 0, &e, NULL) == 0) {
                const char *args, *server = cg_event_server(e);
                uint64_t n = cg_event_approval(e);
                size_t len;

                must(read_all(e) < SIZE_MAX);
                args = cg_event_arguments(e, &len);
                if (cg_event_type(e) == CG_EVENT_APPROVAL_REQUEST)
                        record(&r->shown, n, args, len);
                if (cg_event_type(e) == CG_EVENT_FUNCTION_CALL && strcmp(server, "asked") == 0)
                        must(has(&r->shown, n, args, len, true));
                must(cg_event_type(e) != CG_EVENT_FUNCTION_CALL || strcmp(server, "e") != 0);
                if (how < 2)
                        decide(r, e, how);
                cg_event_free(e);
        }
}

/* The library reads what waits. */
static void serve(struct run *r)
{
        struct cg_client *c = r->c;
        struct pollfd p;

        pthread_mutex_lock(&c->lock);
        cg_client_wait_event(r->s, 0);
        p = CG_TOOLS_OPS(c)->polled(c);
        if (p.fd >= 0 && poll(&p, 1, 0) > 0)
                CG_TOOLS_OPS(c)->serve(c, p.revents);
        cg_zconn_flush(&c->conn);
        pthread_mutex_unlock(&c->lock);
        pump(r);
}

/* ------------------------------------------------------------------ steps */

static void put(struct run *r, int fd, const char *p, size_t len)
{
        for (int full = 0; len && full < 2;) {
                ssize_t n = send(fd, p, len, MSG_DONTWAIT | MSG_NOSIGNAL);

                must(n >= 0 || errno == EAGAIN || errno == EPIPE || errno == ECONNRESET);
                full = n > 0 ? 0 : full + 1;
                p += n > 0 ? n : 0;
                len -= n > 0 ? (size_t)n : 0;
                if (n <= 0)
                        serve(r);
        }
}

static void put_frame(struct run *r, int fd, const void *p, size_t len, bool more)
{
        char head[9] = { more ? 3 : 2 };

        for (int i = 0; i < 8; i++)
                head[8 - i] = (char)((uint64_t)len >> (8 * i));
        put(r, fd, head, sizeof(head));
        put(r, fd, p, len);
}

struct step {
        enum kind kind;
        uint8_t type, number, flags;
        const char *body, *raw;
        size_t n_body, n_raw;
};

static void send_message(struct run *r, const struct cg_wire *wire, int fd, const struct step *st)
{
        uint8_t head[CG_WIRE_HEADER] = { 'C',      'G', CG_WIRE_VERSION,    wire->number,
                                         st->type, 0,   st->flags & MESSAGE };
        uint64_t number = st->number + (st->flags & HOSTS ? CG_FIRST_HOST_NUMBER : 0);
        size_t times = st->flags & LARGE && st->n_raw ? 3000000 / st->n_raw : 1, len = st->n_raw * times;
        char *raw = __real_malloc(len + 1);

        must(raw != NULL);
        for (size_t i = 0; i < times; i++)
                memcpy(raw + i * st->n_raw, st->raw, st->n_raw);
        head[8] = st->flags & OTHER ? 2 : 1;
        for (int i = 0; i < 8; i++)
                head[16 + i] = (uint8_t)(number >> (8 * i));
        if (wire == &cg_wire_host && st->type == CG_HOST_FUNCTION_CALL)
                record(&r->sent, number, raw, len);
        put_frame(r, fd, head, sizeof(head), true);
        put_frame(r, fd, st->body, st->n_body, !(st->flags & NO_RAW));
        if (!(st->flags & NO_RAW))
                put_frame(r, fd, raw, len, false);
        free(raw);
        serve(r);
}

static bool tools_end(const struct run *r)
{
        return r->tools.fd < 0 || CG_TOOLS_OPS(r->c)->polled(r->c).fd < 0;
}

/* A question of the tool server that is about no call: the host has it, or it was answered. */
static void ask(struct run *r, const struct step *st)
{
        bool counts = (st->type == CG_BROKER_EGRESS_ASK || st->type == CG_BROKER_SERVER_REQUEST) &&
                      st->number < 64 && !(st->flags & (OTHER | HOSTS)) && r->s->servers;
        const struct approval *a;

        if (counts)
                r->asks |= UINT64_C(1) << st->number;
        send_message(r, &cg_wire_broker, r->tools.fd, st);
        for (a = r->s->approvals; a && a->asked != st->number; a = a->next)
                ;
        must(!counts || a || !(r->asks >> st->number & 1) || r->c->broken || r->s->closed || tools_end(r));
}

static void take(struct run *r, const struct step *st)
{
        switch (st->kind) {
        case OF_NODE:
                send_message(r, &cg_wire_host, r->node.fd, st);
                return;
        case OF_TOOLS:
                if (!tools_end(r))
                        ask(r, st);
                return;
        case BYTES:
                put(r, r->node.fd, st->body, st->n_body);
                serve(r);
                return;
        case OF_HOST:
                host(r, st->type);
                pump(r);
                return;
        default:
                until_failure = st->type;
        }
}

/* ------------------------------------------------------------------ a run */

static void begin(struct run *r)
{
        static const struct cg_zconn_ops node = { node_gets, ended }, tools = { tools_get, ended };
        struct cg_client_options o = { .size = sizeof(o), .log_fd = 2 };
        struct cg_client *c = r->c = __real_calloc(1, sizeof(*c));
        struct cg_session *s = r->s = __real_calloc(1, sizeof(*s));
        struct epoll_event ev = { .events = EPOLLIN };
        char *report = NULL;
        int fds[2];

        must(c && s && socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds) == 0);
        pthread_mutex_init(&c->lock, NULL);
        pthread_cond_init(&c->cond, NULL);
        pthread_cond_init(&c->reader.done, NULL);
        c->life_fd = c->start_fd = c->node_fd = c->approvals_fd = c->events_fd = -1;
        c->proc = CG_PROC_NONE;
        c->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        c->reader.epoll = epoll_create1(EPOLL_CLOEXEC);
        c->node = json_object();
        must(cg_tools_new(c, &o, NULL) == 0 && cg_client_connected(c, fds[0], NULL) == 0);
        must(epoll_ctl(c->reader.epoll, EPOLL_CTL_ADD, c->conn.fd, &ev) == 0);
        c->reader.watched = true;
        c->have_thread = false;
        must(mkdtemp(strcpy(c->dir, "/tmp/cellgate-fuzz-XXXXXX")) != NULL);
        s->client = c;
        s->number = 1;
        s->events_tail = &s->events;
        s->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        pthread_cond_init(&s->cond, NULL);
        c->sessions = s;
        must(cg_zconn_init(&r->node, fds[1], &cg_wire_host, CG_ROLE_HOST, SIZE_MAX, &node, NULL) == 0);
        for (int i = 0; i < 3; i++) {
                pump(r);
                pthread_mutex_lock(&c->lock);
                cg_client_wait_event(s, 0);
                cg_zconn_opened(&c->conn);
                pthread_mutex_unlock(&c->lock);
        }
        must(cg_remote_ask_functions(s, "asked", NULL) == 0);
        /* It waits for no answer; the tool server is there from now on. */
        must(cg_tools_add(s, json_pack("{s:{s:s}}", "e", "command", "SECRET"), 0, 0, &report, NULL) < 0);
        must(cg_zconn_init(&r->tools, tools_fd, &cg_wire_broker, CG_ROLE_SUPERVISOR, SIZE_MAX, &tools,
                           NULL) == 0);
        json_object_set_new(s->servers, "e", json_true());
        for (int i = 0; i < 3; i++)
                serve(r);
}

static void end(struct run *r)
{
        struct cg_client *c = r->c;

        until_failure = 0;
        host(r, 2);
        pthread_mutex_lock(&c->lock);
        cg_client_break(c, CG_E_CLOSED, "the end");
        pthread_mutex_unlock(&c->lock);
        host(r, 2);
        cg_session_free(r->s);
        must(c->sessions == NULL);
        c->proc.pidfd = -1;
        cg_remove_tree(c->dir, NULL);
        cg_client_close(c);
        cg_zconn_fini(&r->node);
        cg_zconn_fini(&r->tools);
        for (struct records *list = &r->sent;; list = &r->shown) {
                for (size_t i = 0; i < list->n; i++)
                        free(list->list[i].args);
                if (list == &r->shown)
                        break;
        }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
        struct run r = { .node = CG_ZCONN_NONE, .tools = CG_ZCONN_NONE };

        current = &r;
        begin(&r);
        while (size >= HEAD) {
                struct step st = { .kind = data[0] % N_KINDS,
                                   .type = data[1],
                                   .number = data[2],
                                   .flags = data[3],
                                   .body = (const char *)data + HEAD };
                size_t n_body = (size_t)(data[4] | data[5] << 8), n_raw = (size_t)(data[6] | data[7] << 8);

                st.n_body = CG_MIN(n_body, size - HEAD);
                st.raw = st.body + st.n_body;
                st.n_raw = CG_MIN(n_raw, size - HEAD - st.n_body);
                take(&r, &st);
                data += HEAD + st.n_body + st.n_raw;
                size -= HEAD + st.n_body + st.n_raw;
        }
        end(&r);
        return 0;
}
