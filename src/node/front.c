/*
 * The HTTP side of `cellgate node`: started by exec with its sockets, it gives up files, new
 * sockets and all rights before it reads the first byte of a client. See node.h.
 */
#include <microhttpd.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/time.h>
#include "base/log.h"
#include "base/util.h"
#include "node/node.h"
#include "sandbox/egress/lock.h"

#define MAX_CONNECTIONS 64u
/* That end, while others are taken: at its limit libmicrohttpd does not listen for a while. */
#define ENDING   64u
#define MAX_HEAD ((size_t)8 << 10)
#define IDLE_S   10u
#define ANSWER_S 5

struct node_front {
        struct node_state state;
        int fds[MAX_CONNECTIONS + ENDING]; /* of connections, oldest first */
        size_t n;
};

/* Makes room for the next connection: those that send nothing must not keep others out. */
static void on_connection(void *data, struct MHD_Connection *c, void **context,
                          enum MHD_ConnectionNotificationCode what)
{
        const union MHD_ConnectionInfo *info = MHD_get_connection_info(c, MHD_CONNECTION_INFO_CONNECTION_FD);
        struct node_front *f = data;
        size_t i = 0;

        if (what == MHD_CONNECTION_NOTIFY_STARTED) {
                f->fds[f->n++] = info->connect_fd;
                if (f->n > MAX_CONNECTIONS)
                        shutdown(f->fds[f->n - MAX_CONNECTIONS - 1], SHUT_RDWR);
                return;
        }
        while (f->fds[i] != info->connect_fd)
                i++;
        f->n--;
        memmove(f->fds + i, f->fds + i + 1, (f->n - i) * sizeof(*f->fds));
}

/* False: the node does not answer. */
static bool refresh(struct node_front *f)
{
        if (send(NODE_CONTROL, "", 1, MSG_NOSIGNAL) != 1 ||
            recv(NODE_CONTROL, &f->state, sizeof(f->state), 0) != sizeof(f->state))
                return false;
        f->state.metrics[sizeof(f->state.metrics) - 1] = '\0';
        return true;
}

static enum MHD_Result answer(void *data, struct MHD_Connection *c, const char *url, const char *method,
                              const char *version, const char *upload, size_t *size, void **state)
{
        struct node_front *f = data;
        const char *text = "there is /healthz, /readyz and /metrics\n";
        unsigned status = MHD_HTTP_NOT_FOUND;
        struct MHD_Response *r;
        enum MHD_Result done;

        if (strcmp(method, MHD_HTTP_METHOD_GET) != 0 || *size)
                return MHD_NO;
        if (!refresh(f)) {
                text = "the node does not answer\n";
                status = MHD_HTTP_SERVICE_UNAVAILABLE;
        } else if (strcmp(url, "/metrics") == 0) {
                text = f->state.metrics;
                status = MHD_HTTP_OK;
        } else if (strcmp(url, "/healthz") == 0 || strcmp(url, "/readyz") == 0) {
                bool yes = url[1] == 'h' ? f->state.live : f->state.ready;

                text = yes ? "yes\n" : "no\n";
                status = yes ? MHD_HTTP_OK : MHD_HTTP_SERVICE_UNAVAILABLE;
        }
        r = MHD_create_response_from_buffer(strlen(text), (void *)(uintptr_t)text, MHD_RESPMEM_MUST_COPY);
        if (!r)
                return MHD_NO;
        MHD_add_response_header(r, MHD_HTTP_HEADER_CONTENT_TYPE, "text/plain; version=0.0.4");
        done = MHD_queue_response(c, status, r);
        MHD_destroy_response(r);
        return done;
}

static int start(struct node_front *f, struct MHD_Daemon **ret, int *epoll, struct cg_err *err)
{
        struct timeval limit = { .tv_sec = ANSWER_S };
        struct epoll_event e = { .events = EPOLLIN };
        const union MHD_DaemonInfo *info;
        struct MHD_Daemon *d = MHD_start_daemon(
                MHD_USE_EPOLL, 0, NULL, NULL, answer, f, MHD_OPTION_LISTEN_SOCKET, NODE_LISTENER,
                MHD_OPTION_CONNECTION_LIMIT, MAX_CONNECTIONS + ENDING, MHD_OPTION_CONNECTION_MEMORY_LIMIT,
                MAX_HEAD, MHD_OPTION_CONNECTION_TIMEOUT, IDLE_S, MHD_OPTION_NOTIFY_CONNECTION, on_connection,
                f, MHD_OPTION_STRICT_FOR_CLIENT, 1, MHD_OPTION_END);

        info = d ? MHD_get_daemon_info(d, MHD_DAEMON_INFO_EPOLL_FD) : NULL;
        *epoll = epoll_create1(EPOLL_CLOEXEC);
        *ret = d;
        if (!info || *epoll < 0)
                return cg_fail_errno(err, "libmicrohttpd");
        e.data.fd = info->epoll_fd;
        if (epoll_ctl(*epoll, EPOLL_CTL_ADD, info->epoll_fd, &e) < 0)
                return cg_fail_errno(err, "epoll");
        e.data.fd = NODE_CONTROL;
        if (epoll_ctl(*epoll, EPOLL_CTL_ADD, NODE_CONTROL, &e) < 0 ||
            setsockopt(NODE_CONTROL, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit)) < 0)
                return cg_fail_errno(err, "control");
        return cg_egress_lock_part(CG_EGRESS_RELAY, err);
}

int cg_node_front(void)
{
        /* Records of the log are the node's alone once bytes of the network are read. */
        struct cg_log log = { .fd = fcntl(2, F_DUPFD_CLOEXEC, NODE_LISTENER + 1),
                              .level = CG_LOG_WARN,
                              .who = "node" };
        MHD_UNSIGNED_LONG_LONG ms;
        struct node_front f = { 0 };
        struct MHD_Daemon *d;
        struct epoll_event e;
        struct cg_err err;
        int epoll;

        signal(SIGPIPE, SIG_IGN);
        signal(SIGTERM, SIG_IGN); /* to the whole group: it ends with the node */
        signal(SIGINT, SIG_IGN);
        prctl(PR_SET_NAME, "cg-node-front", 0, 0, 0);
        dup2(0, 2);
        if (start(&f, &d, &epoll, &err) < 0) {
                cg_log(&log, CG_LOG_ERROR, "--http: %s", err.msg);
                return 1;
        }
        close(log.fd);
        for (;;) {
                int wait = MHD_get_timeout(d, &ms) == MHD_YES ? (int)CG_MIN(ms, (unsigned)IDLE_S * 1000) : -1;

                /* Between requests the node sends nothing but a late answer, or ends. */
                if (epoll_wait(epoll, &e, 1, wait) == 1 && e.data.fd == NODE_CONTROL &&
                    recv(NODE_CONTROL, &f.state, sizeof(f.state), MSG_DONTWAIT) <= 0)
                        return 0;
                MHD_run(d);
        }
}
