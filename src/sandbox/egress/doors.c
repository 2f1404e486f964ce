/*
 * `cellgate-egress --doors`: the outer side of a sandbox's doors (doors.h). Finds the unix sockets
 * that the settings list, for init, which connects to them; listens on this machine's loopback for
 * exposed ports, and inside for ports of this machine; carries bytes between the two, unread.
 *
 *      cellgate-egress --doors {unix SPELLED PLACE | expose INSIDE HOST | reach INSIDE HOST}...
 *
 * Descriptor 3: lines for people; its reader is the lifeline. 4: init. From 5 on: listeners in the
 * sandbox, in the order of "reach".
 */
#include "sandbox/egress/internal.h"

#include <linux/openat2.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <sys/queue.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <uv.h>

#include "base/fd.h"
#include "sandbox/inside/doors.h"
#include "sandbox/egress/endpoint.h"
#include "sandbox/egress/flow.h"
#include "sandbox/settings/paths.h"

#define FD_REPORTS 3
#define FD_DOORS   4
#define FD_REACH   5

#define LISTENERS_MAX 96  /* listed ones, and those that allowLocalBinding finds */
#define WANTS_MAX     64  /* connections that wait for init at once: what fits into its socket */
#define LINKS_MAX     512 /* connections at once; further ones wait in the listener's queue */
#define BACKLOG       128
#define BIND_TRIES    30 /* a port of this machine may still be that of a sandbox that is ending */
#define BIND_EVERY_MS 100
#define CONNECT_MS    10000
#define TICK_MS       500

struct doors;

struct listed {
        const char *spelled, *place;
};

struct listener {
        uv_poll_t poll;
        struct doors *d;
        int fd; /* -1: to be bound */
        int tries;
        /* it listens in the sandbox, and leads to this machine's @port; else the other way round */
        bool inside;
        uint16_t own, port;
        bool paused;
};

/* A connection: the client, at a listener, and the server. */
struct link {
        LIST_ENTRY(link) entry;
        struct doors *d;
        enum { WANTS_SOCKET, CONNECTING, CARRYING } state;
        struct listener *from;
        uint32_t id;
        bool v6; /* 127.0.0.1 has refused */
        int64_t deadline_ms;
        struct cg_endpoint *client, *server;
        struct cg_buf none_out, none_back;
        struct cg_flow out, back;
        bool flowing;
};

struct doors {
        uv_loop_t loop;
        uv_poll_t init_poll, reports_poll;
        uv_timer_t tick, bind_again;
        struct listed *listed;
        size_t n_listed;
        struct listener *listeners[LISTENERS_MAX];
        size_t n_listeners;
        LIST_HEAD(, link) links;
        size_t n_links, n_wants; /* of these, without a socket yet */
        uint32_t next_id;
        struct cg_flow_common common;
};

static void on_listener(uv_poll_t *h, int status, int events);
static void run(struct link *l);

static void report(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
static void report(const char *fmt, ...)
{
        char line[CG_DOOR_PATH_MAX];
        va_list ap;
        int n;

        va_start(ap, fmt);
        n = vsnprintf(line, sizeof(line) - 1, fmt, ap);
        va_end(ap);
        if (n < 0 || n > 900)
                n = 900;
        line[n++] = '\n';
        n = (int)write(FD_REPORTS, line, (size_t)n); /* a host that does not read gets no reports */
}

/* ---- the host's unix sockets */

/* 0 with *fd; else an errno. */
static int open_place(int dir, const char *path, uint64_t resolve, int *fd)
{
        struct open_how how = { .flags = O_PATH | O_NOFOLLOW | O_CLOEXEC,
                                .resolve = RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS | resolve };

        *fd = (int)syscall(SYS_openat2, dir, path, &how, sizeof(how));
        return cg_error_of(*fd);
}

/* The part of @path after @place: "" when they are the same; NULL when @path is not below it. */
static const char *rest_of(const char *path, const char *place)
{
        size_t n = strlen(place);

        if (strncmp(path, place, n) != 0)
                return NULL;
        if (path[n] == '/')
                return path + n + 1;
        return path[n] ? NULL : path + n;
}

/*
 * Opens the place of a listed socket, or of one in a listed folder: 0 with *ret; else an errno. The
 * place is the one that the entry led to when the sandbox started (doors_client.c): no link that
 * was put on the way since is followed.
 */
static int find_unix(const struct doors *d, const char *wanted, int *ret)
{
        const struct cg_path_base base = { .cwd = "/" };
        const struct listed *listed;
        const char *rest = NULL;
        char path[PATH_MAX];
        struct stat st;
        int fd = -1, error;

        *ret = -1;
        if (cg_path_absolute(&base, wanted, path, NULL) < 0)
                return ENAMETOOLONG;
        for (listed = d->listed; listed < d->listed + d->n_listed; listed++) {
                rest = rest_of(path, listed->spelled);
                if (!rest)
                        rest = rest_of(path, listed->place);
                if (rest)
                        break;
        }
        if (!rest)
                return EPERM;
        error = open_place(AT_FDCWD, listed->place, 0, ret);
        if (error == 0 && rest[0]) {
                error = open_place(*ret, rest, RESOLVE_BENEATH, &fd);
                close(*ret);
                *ret = fd;
        }
        if (error == 0 && (fstat(*ret, &st) < 0 || !S_ISSOCK(st.st_mode)))
                error = ECONNREFUSED; /* as connect(2) fails if there is no socket */
        if (error)
                cg_closep_(ret);
        return error;
}

/* ---- links */

static bool has_room(const struct doors *d)
{
        return d->n_links < LINKS_MAX && d->n_wants < WANTS_MAX;
}

/* The link has its socket, or needs none any more. */
static void stop_waiting(struct link *l)
{
        if (l->state == WANTS_SOCKET)
                l->d->n_wants--;
        l->state = CONNECTING;
}

static void resume(struct doors *d)
{
        for (size_t i = 0; i < d->n_listeners; i++) {
                struct listener *l = d->listeners[i];

                if (l->paused && has_room(d)) {
                        l->paused = false;
                        uv_poll_start(&l->poll, UV_READABLE, on_listener);
                }
        }
}

static void end_link(struct link *l)
{
        struct doors *d = l->d;

        stop_waiting(l);
        if (l->flowing) {
                cg_flow_fini(&l->out, &d->common);
                cg_flow_fini(&l->back, &d->common);
        }
        l->client = cg_endpoint_close(l->client);
        l->server = cg_endpoint_close(l->server);
        LIST_REMOVE(l, entry);
        free(l);
        d->n_links--;
        resume(d);
}

/* Resets the connection: the client gets an error instead of an empty answer. */
static void reset_link(struct link *l)
{
        static const struct linger at_once = { .l_onoff = 1 };

        setsockopt(l->client->fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
        end_link(l);
}

static void on_end(uv_poll_t *h, int status, int events)
{
        struct cg_endpoint *e = h->data;

        if (status < 0)
                e->events = 0;
        if (e->owner)
                run(e->owner);
}

/* Takes @fd, also when it fails. */
static struct cg_endpoint *new_end(struct link *l, int fd)
{
        static const int on = 1;
        struct cg_endpoint *e = cg_endpoint_new(&l->d->loop, fd, l, on_end);

        if (e)
                setsockopt(e->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
        return e;
}

/* Connects @fd (takes) to the server: to ::1 if 127.0.0.1 has refused. */
static void connect_server(struct link *l, int fd)
{
        struct sockaddr_in a4 = { .sin_family = AF_INET,
                                  .sin_port = htons(l->from->port),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
        struct sockaddr_in6 a6 = { .sin6_family = AF_INET6,
                                   .sin6_port = htons(l->from->port),
                                   .sin6_addr = IN6ADDR_LOOPBACK_INIT };
        int r;

        l->server = new_end(l, fd);
        if (!l->server) {
                reset_link(l);
                return;
        }
        r = l->v6 ? connect(fd, (struct sockaddr *)&a6, sizeof(a6))
                  : connect(fd, (struct sockaddr *)&a4, sizeof(a4));
        if (r < 0 && errno != EINPROGRESS && l->v6)
                reset_link(l);
        else
                cg_endpoint_watch(l->server, UV_WRITABLE);
}

static void start_server(struct link *l)
{
        struct cg_door_msg m = { .type = CG_DOOR_WANT_SOCKET, .value = l->v6 ? AF_INET6 : AF_INET };
        int fd;

        if (l->from->inside) {
                fd = socket(m.value, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
                if (fd < 0)
                        reset_link(l);
                else
                        connect_server(l, fd);
                return;
        }
        l->state = WANTS_SOCKET;
        m.id = l->id = ++l->d->next_id;
        l->d->n_wants++;
        if (cg_send_fds(FD_DOORS, &m, CG_DOOR_SHORT, NULL, 0, NULL) < 0)
                reset_link(l);
}

/* Sees how the connection to the server has ended, then carries bytes. */
static void run(struct link *l)
{
        struct cg_flow_common *c = &l->d->common;
        bool moved = false;
        int out, back;

        if (l->state == WANTS_SOCKET)
                return;
        if (l->state == CONNECTING) {
                struct sockaddr_storage a;
                socklen_t alen = sizeof(a), len = sizeof(int);
                int error = 0;

                if (getsockopt(l->server->fd, SOL_SOCKET, SO_ERROR, &error, &len) < 0)
                        error = errno;
                if (!error && getpeername(l->server->fd, (struct sockaddr *)&a, &alen) < 0)
                        error = errno;
                if (error && !l->v6) {
                        l->server = cg_endpoint_close(l->server);
                        l->v6 = true;
                        start_server(l);
                        return;
                }
                if (error) {
                        reset_link(l);
                        return;
                }
                l->state = CARRYING;
                l->deadline_ms = 0;
                cg_buf_init(&l->none_out, CG_FLOW_CHUNK);
                cg_buf_init(&l->none_back, CG_FLOW_CHUNK);
                cg_flow_init(&l->out, l->client->fd, l->server->fd, CG_FLOW_ALL, &l->none_out);
                cg_flow_init(&l->back, l->server->fd, l->client->fd, CG_FLOW_ALL, &l->none_back);
                l->flowing = true;
        }
        out = cg_flow_run(&l->out, c, &moved, NULL);
        back = out < 0 ? out : cg_flow_run(&l->back, c, &moved, NULL);
        if (out < 0 || back < 0) {
                reset_link(l);
                return;
        }
        if (l->out.done && l->back.done) {
                end_link(l);
                return;
        }
        l->out.want_read |= out == CG_TIMEOUT;
        l->back.want_read |= back == CG_TIMEOUT;
        cg_endpoint_watch(l->client, l->out.want_read * UV_READABLE | l->back.want_write * UV_WRITABLE);
        cg_endpoint_watch(l->server, l->back.want_read * UV_READABLE | l->out.want_write * UV_WRITABLE);
}

static void add_link(struct listener *from, int fd)
{
        struct doors *d = from->d;
        struct link *l = calloc(1, sizeof(*l));

        if (!l) {
                close(fd);
                return;
        }
        l->d = d;
        l->state = CONNECTING;
        l->from = from;
        l->deadline_ms = cg_now_ms() + CONNECT_MS;
        LIST_INSERT_HEAD(&d->links, l, entry);
        d->n_links++;
        l->client = new_end(l, fd);
        if (l->client)
                start_server(l);
        else
                end_link(l);
}

static void on_listener(uv_poll_t *h, int status, int events)
{
        struct listener *l = h->data;

        for (int i = 0; i < 16; i++) {
                int fd = has_room(l->d) ? accept4(l->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK) : -2;

                if (fd >= 0) {
                        add_link(l, fd);
                        continue;
                }
                if (fd == -2 || (errno != EAGAIN && errno != ECONNABORTED && errno != EINTR)) {
                        l->paused = true;
                        uv_poll_stop(&l->poll);
                }
                return;
        }
}

/* ---- listeners */

static void start_listener(struct listener *l)
{
        if (uv_poll_init(&l->d->loop, &l->poll, l->fd) < 0)
                return;
        l->poll.data = l;
        uv_poll_start(&l->poll, UV_READABLE, on_listener);
}

/* Tries again a little later, for a while, if another process has the port. */
static void try_to_bind(struct listener *l)
{
        static const int on = 1;
        struct sockaddr_in a = { .sin_family = AF_INET,
                                 .sin_port = htons(l->own),
                                 .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
        int error;

        l->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        if (l->fd >= 0 && setsockopt(l->fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) == 0 &&
            bind(l->fd, (struct sockaddr *)&a, sizeof(a)) == 0 && listen(l->fd, BACKLOG) == 0) {
                start_listener(l);
                return;
        }
        error = errno;
        cg_closep_(&l->fd);
        if (error == EADDRINUSE && ++l->tries < BIND_TRIES) {
                if (!uv_is_active((uv_handle_t *)&l->d->bind_again))
                        uv_timer_start(&l->d->bind_again, l->d->bind_again.timer_cb, BIND_EVERY_MS, 0);
                return;
        }
        l->tries = BIND_TRIES;
        report("port %u of the sandbox is not reachable: port %u of this machine cannot be listened at (%s)",
               l->port, l->own, strerror(error));
}

static void on_bind_again(uv_timer_t *t)
{
        struct doors *d = t->data;

        for (size_t i = 0; i < d->n_listeners; i++) {
                struct listener *l = d->listeners[i];

                if (!l->inside && l->fd < 0 && l->tries < BIND_TRIES)
                        try_to_bind(l);
        }
}

static struct listener *new_listener(struct doors *d, bool inside, uint16_t own, uint16_t port, int fd)
{
        struct listener *l = d->n_listeners < LISTENERS_MAX ? calloc(1, sizeof(*l)) : NULL;

        if (!l)
                return NULL;
        *l = (struct listener){ .d = d, .fd = fd, .inside = inside, .own = own, .port = port };
        d->listeners[d->n_listeners++] = l;
        return l;
}

/* A program inside listens: at the host's same port, from now on. */
static void listens(struct doors *d, int32_t port)
{
        struct listener *l;

        if (port < 1 || port > 65535)
                return;
        for (size_t i = 0; i < d->n_listeners; i++)
                if (!d->listeners[i]->inside && d->listeners[i]->port == port)
                        return;
        l = new_listener(d, false, (uint16_t)port, (uint16_t)port, -1);
        if (!l)
                return;
        if (d->n_listeners == LISTENERS_MAX)
                report("port %d of the sandbox is the last that is reachable from this machine", (int)port);
        try_to_bind(l);
}

/* ---- init */

static void take_message(struct doors *d, const struct cg_door_msg *m, int fd)
{
        struct cg_door_msg answer = { .type = CG_DOOR_UNIX_IS, .id = m->id };
        struct link *l;
        int found;

        switch (m->type) {
        case CG_DOOR_WANT_UNIX:
                answer.value = find_unix(d, m->path, &found);
                cg_send_fds(FD_DOORS, &answer, CG_DOOR_SHORT, &found, found >= 0, NULL);
                cg_closep_(&found);
                break;
        case CG_DOOR_LISTENS:
                listens(d, m->value);
                break;
        case CG_DOOR_SOCKET:
                LIST_FOREACH(l, &d->links, entry)
                        if (l->id == m->id && l->state == WANTS_SOCKET)
                                break;
                if (l)
                        stop_waiting(l);
                if (l && fd >= 0)
                        connect_server(l, fd);
                else if (l)
                        reset_link(l);
                resume(d);
                if (l)
                        return;
                break;
        default:
                break;
        }
        cg_closep_(&fd);
}

static void on_init(uv_poll_t *h, int status, int events)
{
        struct doors *d = h->data;

        for (int i = 0; i < 16; i++) {
                struct cg_door_msg m;
                struct cg_err err = { 0 };
                int fd = -1;
                size_t n = 1;
                ssize_t len = status < 0 ? 0 : cg_recv_fds(FD_DOORS, &m, sizeof(m), &fd, &n, &err);

                if (len < 0 && (err.sys_errno == EAGAIN || err.sys_errno == EINTR))
                        return;
                if (len != (ssize_t)sizeof(m) && len != CG_DOOR_SHORT) { /* the sandbox has ended */
                        uv_stop(&d->loop);
                        return;
                }
                m.path[len == CG_DOOR_SHORT ? 0 : sizeof(m.path) - 1] = '\0';
                take_message(d, &m, n ? fd : -1);
        }
}

static void on_reports_end(uv_poll_t *h, int status, int events)
{
        struct doors *d = h->data;

        uv_stop(&d->loop); /* the reader has ended */
}

static void on_tick(uv_timer_t *t)
{
        struct doors *d = t->data;
        int64_t now = cg_now_ms();

        for (struct link *l = LIST_FIRST(&d->links), *next; l; l = next) {
                next = LIST_NEXT(l, entry);
                if (l->deadline_ms && now >= l->deadline_ms)
                        reset_link(l);
        }
        resume(d);
}

/* ---- the beginning */

static uint16_t port_of(const char *text)
{
        unsigned long v = strtoul(text, NULL, 10);

        return v <= 65535 ? (uint16_t)v : 0;
}

int cg_doors_main(int argc, char **argv)
{
        static struct doors doors; /* for as long as the process */
        struct doors *d = &doors;
        struct cg_err err = { .msg = "" };
        int reach = FD_REACH;

        signal(SIGPIPE, SIG_IGN);
        signal(SIGINT, SIG_IGN);
        signal(SIGHUP, SIG_IGN);
        if (cg_egress_lock_io_uring(&err) < 0) {
                report("no doors: %s", err.msg);
                return 1;
        }
        d->common = (struct cg_flow_common){ .scratch = malloc(CG_FLOW_CHUNK), .max_pipes = 256 };
        d->listed = calloc((size_t)argc + 1, sizeof(*d->listed));
        if (!d->common.scratch || !d->listed || chdir("/") < 0 || uv_loop_init(&d->loop) < 0 ||
            uv_poll_init(&d->loop, &d->init_poll, FD_DOORS) < 0 ||
            uv_poll_init(&d->loop, &d->reports_poll, FD_REPORTS) < 0 ||
            uv_timer_init(&d->loop, &d->tick) < 0 || uv_timer_init(&d->loop, &d->bind_again) < 0)
                return 1;
        d->init_poll.data = d->reports_poll.data = d->tick.data = d->bind_again.data = d;
        d->bind_again.timer_cb = on_bind_again;
        for (int i = 0; i + 2 < argc; i += 3) {
                uint16_t first = port_of(argv[i + 1]), second = port_of(argv[i + 2]);

                if (strcmp(argv[i], "unix") == 0)
                        d->listed[d->n_listed++] = (struct listed){ argv[i + 1], argv[i + 2] };
                else if (strcmp(argv[i], "expose") == 0 ? !new_listener(d, false, second, first, -1)
                                                        : !new_listener(d, true, first, second, reach++))
                        return 1;
        }
        /* The first try comes before the rights go: low ports of this machine may take one. */
        for (size_t i = 0; i < d->n_listeners; i++)
                if (d->listeners[i]->inside)
                        start_listener(d->listeners[i]);
                else
                        try_to_bind(d->listeners[i]);
        if (cg_egress_lock_part(CG_EGRESS_DOORS, &err) < 0) {
                report("no doors: %s", err.msg);
                return 1;
        }
        uv_poll_start(&d->init_poll, UV_READABLE | UV_DISCONNECT, on_init);
        uv_poll_start(&d->reports_poll, UV_DISCONNECT, on_reports_end);
        uv_timer_start(&d->tick, on_tick, TICK_MS, TICK_MS);
        uv_run(&d->loop, UV_RUN_DEFAULT);
        return 0;
}
