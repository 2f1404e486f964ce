/*
 * cellgate-supervisor: host applications. A lifeline authenticates a host and reports its end;
 * requests come by a connection of their own, which HELLO binds to the lifeline.
 */
#include "supervisor/core/host.h"

#include <nettle/memops.h>
#include <poll.h>
#include <sys/socket.h>
#include "base/confinement.h"
#include "base/fd.h"
#include "base/json.h"
#include "base/text.h"
#include "config.h"
#include "supervisor/ask/approvals.h"
#include "supervisor/ask/asks.h"
#include "supervisor/core/attach.h"
#include "supervisor/core/bus.h"
#include "supervisor/core/control.h"
#include "supervisor/core/host_link.h"
#include "supervisor/core/session.h"
#include "supervisor/core/slots.h"
#include "supervisor/core/state.h"
#include "supervisor/core/status.h"
#include "supervisor/core/sup.h"

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77 /* Linux 6.5 */
#endif

/* Time for the process that started the supervisor to connect. */
#define FIRST_HOST_MS 30000
/* Connections without a HELLO: each host sends it at once. */
#define MAX_UNAUTHENTICATED 64
/* Clients of a node beyond one for each slot: two processes each, also while their link is lost. */
#define NODE_CLIENTS 64
/*
 * Requests of a host with so many unsent bytes wait until it reads, because each may cause an
 * answer. Events are bounded by the windows of its sessions.
 */
#define UNSENT_MAX ((size_t)32 << 20)
/* A log of a shared supervisor, which may run for weeks, is emptied when it is longer. */
#define LOG_MAX ((off_t)8 << 20)

static void on_no_host(uv_timer_t *t)
{
        struct sup *s = t->data;

        cg_sup_stop(s,
                    s->setup.private_mode ? "no host connected within 30 s" : "no host has come for a while");
}

/* ------------------------------------------------------------------ connections */

static void on_link_closed(struct cg_zlink *z)
{
        free(z->data);
}

static void link_drop(struct hostlink *l)
{
        struct sup *s = l->sup;

        LIST_REMOVE(l, entry);
        if (l->host)
                l->host->link = NULL;
        else
                s->clients.n_unauthenticated--;
        l->host = NULL;
        cg_zlink_close(&l->link, on_link_closed);
}

/* ------------------------------------------------------------------ lifelines */

static void on_life_closed(struct watch *w)
{
        struct host *h = w->data;
        struct sup *s = h->sup;

        cg_log(&s->log, CG_LOG_INFO, "host %.8s has disconnected", h->token);
        cg_sup_sessions_host_gone(s, h);
        if (h->link)
                link_drop(h->link);
        LIST_REMOVE(h, entry);
        s->bus.n_waiting -= h->waits_for_events;
        while (h->n_sockets)
                close(h->sockets[--h->n_sockets].fd);
        free(h);
        if (!LIST_EMPTY(&s->clients.hosts) || s->stopping)
                return;
        if (s->setup.private_mode)
                cg_sup_stop(s, "its host has disconnected");
        else if (s->setup.linger_ms >= 0)
                uv_timer_start(&s->clients.no_host, on_no_host, (uint64_t)s->setup.linger_ms, 0);
}

/* Only sockets are sent on a lifeline: other bytes, like the end of file, end the host. */
static void on_life(struct watch *w)
{
        if (!cg_sup_host_take_sockets(w->data))
                cg_sup_watch_close(w, on_life_closed);
}

/* @pid: may be NULL. */
static bool same_user(int fd, pid_t *pid)
{
        struct ucred c;
        socklen_t len = sizeof(c);

        if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &c, &len) < 0 || c.uid != geteuid())
                return false;
        if (pid)
                *pid = c.pid;
        return true;
}

/*
 * A process in a sandbox or a container of any kind could use kernels and MCP servers to get out of
 * it: hosts are confined as this process is.
 */
static int check_confinement(const struct sup *s, int sock, pid_t pid, struct cg_err *err)
{
        cg_auto_buf struct cg_buf b = { .max = CG_CONFINEMENT_MAX };
        cg_auto_fd int pidfd = -1;
        socklen_t len = sizeof(pidfd);

        if (!s->setup.confinement.len)
                return 0;
        if (getsockopt(sock, SOL_SOCKET, SO_PEERPIDFD, &pidfd, &len) < 0)
                pidfd = -1;
        if (pidfd < 0)
                pidfd = cg_pidfd_open(pid, err);
        if (pidfd < 0 || cg_confinement(pid, &b, err) < 0)
                return -1;
        if (cg_wait_fd(pidfd, POLLIN, 0, NULL) == 0) /* the number may be another process's by now */
                return cg_fail(err, CG_E_CLOSED, "the process has ended");
        if (strcmp(b.data, s->setup.confinement.data) == 0)
                return 0;
        return cg_fail(err, CG_E_INVAL, "its limits, namespaces or rights are not those of this supervisor");
}

static bool has_room(const struct sup *s, pid_t pid)
{
        const struct host *h;
        size_t n = 0;

        LIST_FOREACH(h, &s->clients.hosts, entry)
                n += h->pid == pid;
        return s->setup.private_mode || n < CG_MAX_CLIENTS_OF_PROCESS;
}

/* On a node with as many clients as it may have: the oldest without a session makes room. */
static void end_idle_client(struct sup *s)
{
        struct host *h, *oldest = NULL;
        size_t n = 0;

        LIST_FOREACH(h, &s->clients.hosts, entry)
                n++;
        if (n <= s->node.slots + NODE_CLIENTS)
                return;
        LIST_FOREACH(h, &s->clients.hosts, entry)
                if (h->lifeline.active && !cg_sup_slots_trusts(h) && cg_sup_sessions_of(s, h) == 0)
                        oldest = h;
        if (!oldest)
                return;
        cg_log(&s->log, CG_LOG_WARN, "%zu clients: host %.8s, which has no session, is ended", n,
               oldest->token);
        cg_sup_watch_close(&oldest->lifeline, on_life_closed);
}

static void limit_log(const struct sup *s)
{
        struct stat st;

        if (!s->setup.private_mode && fstat(s->log.fd, &st) == 0 && S_ISREG(st.st_mode) &&
            st.st_size > LOG_MAX && ftruncate(s->log.fd, 0) < 0)
                cg_log(&s->log, CG_LOG_WARN, "the log cannot be emptied: %s", strerror(errno));
}

static void on_life_connect(struct watch *w)
{
        struct sup *s = w->data;
        cg_auto_fd int fd = accept4(w->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        struct cg_err err;
        struct host *h;
        char line[34];
        pid_t pid;

        if (fd < 0)
                return;
        limit_log(s);
        if (!same_user(fd, &pid)) {
                cg_log(&s->log, CG_LOG_WARN, "refused a host of another user");
                return;
        }
        if (check_confinement(s, fd, pid, &err) < 0) {
                cg_log(&s->log, CG_LOG_WARN, "refused the host %lld: %s", (long long)pid, err.msg);
                return;
        }
        if (!has_room(s, pid)) {
                cg_log(&s->log, CG_LOG_WARN, "refused the host %lld: it has %d connections", (long long)pid,
                       CG_MAX_CLIENTS_OF_PROCESS);
                return;
        }
        if (s->node.slots)
                end_idle_client(s);
        h = calloc(1, sizeof(*h));
        if (!h)
                return;
        h->sup = s;
        h->pid = pid;
        h->number = ++s->clients.next;
        if (cg_random_hex(h->token, 16, &err) < 0 ||
            cg_sup_watch_start(s, &h->lifeline, cg_steal_fd(&fd), on_life, h, &err) < 0) {
                free(h);
                return;
        }
        LIST_INSERT_HEAD(&s->clients.hosts, h, entry);
        memcpy(line, h->token, 32);
        line[32] = '\n';
        if (send(h->lifeline.fd, line, 33, MSG_NOSIGNAL | MSG_DONTWAIT) != 33)
                cg_sup_watch_close(&h->lifeline, on_life_closed);
        uv_timer_stop(&s->clients.no_host);
        cg_sup_watch_close(&s->clients.starter, NULL); /* the lifeline takes its place */
}

/* ------------------------------------------------------------------ receiving */

static void handle_hello(struct hostlink *l, const struct cg_msg *m)
{
        struct cg_out out = { .type = CG_HOST_WELCOME, .id = m->id };
        struct sup *s = l->sup;
        cg_auto_json json_t *body = NULL;
        const char *token, *place, *approver;
        struct host *h;
        struct cg_err err;

        if (cg_msg_json(m, &body, &err) < 0 || cg_json_str(body, "token", "", &token, &err) < 0 ||
            cg_json_str(body, "place", "", &place, &err) < 0 ||
            cg_json_str(body, "approver", "", &approver, &err) < 0 || strlen(place) >= sizeof(h->place) ||
            strlen(approver) >= sizeof(h->approver))
                return;
        h = strlen(token) == 32 ? LIST_FIRST(&s->clients.hosts) : NULL;
        while (h && (h->link || !h->lifeline.active || !memeql_sec(h->token, token, 32)))
                h = LIST_NEXT(h, entry);
        if (!h) {
                cg_log(&s->log, CG_LOG_WARN, "HELLO with a token that no lifeline has");
                return;
        }
        /* a token is used once; its first 8 digits identify the host in the log */
        explicit_bzero(h->token + 8, sizeof(h->token) - 9);
        strcpy(h->place, place);
        strcpy(h->approver, approver);
        h->link = l;
        l->host = h;
        s->clients.n_unauthenticated--;
        cg_sup_host_send(h, &out,
                         json_pack("{s:s, s:i, s:s*}", "version", CG_VERSION, "pid", (int)getpid(), "busy",
                                   cg_sup_slots_check(s, &err) < 0 ? err.msg : NULL));
}

/* Requests that are of no session, or make one. */
static const struct {
        uint16_t type;
        void (*handle)(struct host *h, const struct cg_msg *m);
        bool no_approver; /* not of clients that only decide */
} handlers[] = {
        { CG_HOST_SESSION_NEW, cg_sup_session_new, false },
        { CG_HOST_SESSION_ATTACH, cg_sup_attach, false },
        { CG_HOST_SESSION_LIST, cg_sup_list, false },
        { CG_HOST_STATUS, cg_sup_status, false },
        { CG_HOST_STOP, cg_sup_stop_asked, false },
        { CG_HOST_APPROVALS_LIST, cg_sup_approvals_list, false },
        { CG_HOST_APPROVAL_SHOW, cg_sup_approval_show, false },
        { CG_HOST_APPROVAL_DECIDE, cg_sup_approval_decide, false },
        { CG_HOST_JOBS_LIST, cg_sup_jobs_list, false },
        { CG_HOST_SESSION_KILL, cg_sup_session_kill, true },
        { CG_HOST_JOB_CANCEL, cg_sup_job_cancel, true },
        { CG_HOST_EVENTS_GET, cg_sup_bus_get, true },
};

static void on_host_message(struct cg_zlink *z, struct cg_msg *m)
{
        struct hostlink *l = z->data;
        struct host *h = l->host;
        struct session *ss;
        struct cg_err err;

        if (!h != (m->type == CG_HOST_HELLO)) {
                cg_log(&l->sup->log, CG_LOG_WARN, h ? "%s again" : "%s before HELLO", m->spec->name);
                return;
        }
        if (!h) {
                handle_hello(l, m);
                return;
        }
        for (size_t i = 0; i < CG_ARRAY_LEN(handlers); i++) {
                if (handlers[i].type != m->type)
                        continue;
                if (handlers[i].no_approver && h->place[0])
                        cg_fail(&err, CG_E_STATE, "an approver can only decide");
                else if (m->type == CG_HOST_SESSION_NEW || cg_sup_slots_trusts(h) ||
                         cg_sup_slots_allow(h->sup, "what concerns other clients", &err) == 0)
                        return handlers[i].handle(h, m);
                cg_sup_host_failed(h, 0, m->id, &err);
                return;
        }
        ss = cg_sup_session_find(h->sup, h, m->session);
        if (ss) {
                cg_sup_session_message(ss, h, m);
                return;
        }
        if (cg_sup_ask_is_answer(m->type) || m->type == CG_HOST_CREDIT || m->type == CG_HOST_CANCEL ||
            m->type == CG_HOST_APPROVAL_SHARE)
                return; /* a race with the session's end: the host has not read SESSION_CLOSED yet */
        cg_fail(&err, CG_E_CLOSED, "there is no such session");
        cg_sup_host_failed(h, m->session, m->id, &err);
}

static void on_host_link_end(struct cg_zlink *z, const struct cg_err *err)
{
        struct hostlink *l = z->data;

        if (err->code != CG_E_CLOSED) {
                cg_log(&l->sup->log, CG_LOG_WARN, "a host broke the protocol: %s", err->msg);
                if (l->host)
                        cg_sup_watch_close(&l->host->lifeline, on_life_closed);
        }
        link_drop(l);
}

/* The oldest connection without a HELLO: clients that send none must not keep others out. */
static void drop_silent(struct sup *s)
{
        struct hostlink *l, *oldest = NULL;

        LIST_FOREACH(l, &s->clients.links, entry)
                oldest = l->host ? oldest : l;
        cg_log(&s->log, CG_LOG_WARN, "%d connections without HELLO: the oldest is ended",
               MAX_UNAUTHENTICATED);
        if (oldest)
                link_drop(oldest);
}

static void on_host_connect(struct watch *w)
{
        struct sup *s = w->data;
        cg_auto_fd int fd = accept4(w->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        struct hostlink *l;
        struct cg_err err;

        if (fd < 0)
                return;
        l = same_user(fd, NULL) ? calloc(1, sizeof(*l)) : NULL;
        if (!l) {
                cg_log(&s->log, CG_LOG_WARN, "refused a connection of another user");
                return;
        }
        if (s->clients.n_unauthenticated >= MAX_UNAUTHENTICATED)
                drop_silent(s);
        l->sup = s;
        /* No limit of the queue, since a message would be lost: max_unsent stops what fills it. */
        if (cg_zlink_take(&l->link, &s->loop, cg_steal_fd(&fd), &cg_wire_host, CG_ROLE_HOST, SIZE_MAX,
                          on_host_message, on_host_link_end, l, &err) < 0) {
                cg_log(&s->log, CG_LOG_WARN, "a host's connection: %s", err.msg);
                free(l);
                return;
        }
        l->link.conn.max_unsent = UNSENT_MAX;
        LIST_INSERT_HEAD(&s->clients.links, l, entry);
        s->clients.n_unauthenticated++;
}

/* ------------------------------------------------------------------ start and end */

static int listen_in_dir(struct sup *s, const char *name, char *path, size_t size, int *fd,
                         struct cg_err *err)
{
        int n = snprintf(path, size, "%s/%s", s->setup.dir, name);

        if (n < 0 || (size_t)n >= size)
                return cg_fail(err, CG_E_LIMIT, "path of %s/%s is too long", s->setup.dir, name);
        return cg_listen_unix(path, 64, fd, err);
}

int cg_sup_hosts_start(struct sup *s, struct cg_err *err)
{
        char path[128];
        int fd;

        if (listen_in_dir(s, "host.sock", path, sizeof(path), &fd, err) < 0 ||
            cg_sup_watch_start(s, &s->clients.listener, fd, on_host_connect, s, err) < 0)
                return -1;
        if (listen_in_dir(s, "life.sock", path, sizeof(path), &fd, err) < 0 ||
            cg_sup_watch_start(s, &s->clients.lifeline_listener, fd, on_life_connect, s, err) < 0)
                return -1;
        uv_timer_init(&s->loop, &s->clients.no_host);
        s->clients.no_host.data = s;
        if (s->setup.private_mode || s->setup.linger_ms >= 0)
                uv_timer_start(&s->clients.no_host, on_no_host, FIRST_HOST_MS, 0);
        return 0;
}

static void on_starter_end(struct watch *w)
{
        cg_sup_stop(w->data, "the process that started it has ended");
}

int cg_sup_hosts_watch_starter(struct sup *s, int fd, struct cg_err *err)
{
        return cg_sup_watch_start(s, &s->clients.starter, fd, on_starter_end, s, err);
}

void cg_sup_hosts_stop(struct sup *s)
{
        while (!LIST_EMPTY(&s->clients.links))
                link_drop(LIST_FIRST(&s->clients.links));
        for (struct host *h = LIST_FIRST(&s->clients.hosts); h; h = LIST_NEXT(h, entry))
                cg_sup_watch_close(&h->lifeline, on_life_closed);
}
