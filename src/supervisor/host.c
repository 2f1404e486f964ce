/*
 * cellgate-supervisor: host applications. A lifeline authenticates a host and tells of its end;
 * requests come by a connection of their own, which HELLO binds to the lifeline.
 */
#include "supervisor/supervisor.h"

#include <sodium.h>

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include "base/text.h"
#include "config.h"

/* A starter connects within this time, or never. */
#define FIRST_HOST_MS 30000
/* Connections that have not said HELLO yet: each host does so at once. */
#define MAX_STRANGERS 64

/* A connection of the host wire. */
struct hostlink {
        struct cg_zlink link;
        struct hostlink *next;
        struct sup *sup;
        struct host *host; /* NULL: before HELLO, or it is gone */
};

static void on_no_host(uv_timer_t *t)
{
        struct sup *s = t->data;

        sup_stop(s, s->private_mode ? "no host connected within 30 s" : "no host has come for a while");
}

/* ------------------------------------------------------------------ connections */

static void on_link_closed(struct cg_zlink *z)
{
        free(z->data);
}

static void link_drop(struct hostlink *l)
{
        struct sup *s = l->sup;

        for (struct hostlink **p = &s->links; *p; p = &(*p)->next) {
                if (*p == l) {
                        *p = l->next;
                        break;
                }
        }
        if (l->host)
                l->host->link = NULL;
        else
                s->n_strangers--;
        l->host = NULL;
        cg_zlink_close(&l->link, on_link_closed);
}

/* ------------------------------------------------------------------ lifelines */

static void host_gone(struct host *h)
{
        struct sup *s = h->sup;

        cg_log(&s->log, CG_LOG_INFO, "host %.8s is gone", h->token);
        session_of_host_gone(s, h);
        if (h->link)
                link_drop(h->link);
        for (struct host **p = &s->hosts; *p; p = &(*p)->next) {
                if (*p == h) {
                        *p = h->next;
                        break;
                }
        }
        free(h);
        if (s->hosts || s->stopping)
                return;
        if (s->private_mode)
                sup_stop(s, "its host is gone");
        else if (s->linger_ms >= 0)
                uv_timer_start(&s->no_host, on_no_host, (uint64_t)s->linger_ms, 0);
}

static void on_life_closed(uv_handle_t *handle)
{
        struct watch *w = handle->data;

        close(w->fd);
        host_gone(w->data);
}

static void drop_host(struct host *h)
{
        if (!h->life.active)
                return;
        h->life.active = false;
        uv_close((uv_handle_t *)&h->life.poll, on_life_closed);
}

/* A lifeline carries nothing: whatever comes, bytes or end of file, ends the host. */
static void on_life(struct watch *w)
{
        char c;
        ssize_t n = recv(w->fd, &c, 1, MSG_DONTWAIT);

        if (n < 0 && (errno == EAGAIN || errno == EINTR))
                return;
        drop_host(w->data);
}

static bool same_user(int fd)
{
        struct ucred c;
        socklen_t len = sizeof(c);

        return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &c, &len) == 0 && c.uid == geteuid();
}

static int make_token(char token[33])
{
        unsigned char raw[16];

        if (getrandom(raw, sizeof(raw), 0) != sizeof(raw))
                return -1;
        for (size_t i = 0; i < sizeof(raw); i++)
                sprintf(token + 2 * i, "%02x", raw[i]);
        return 0;
}

static void on_life_connect(struct watch *w)
{
        struct sup *s = w->data;
        cg_auto_fd int fd = accept4(w->fd, NULL, NULL, SOCK_CLOEXEC);
        struct cg_err err;
        struct host *h;
        char line[34];

        if (fd < 0)
                return;
        if (!same_user(fd)) {
                cg_log(&s->log, CG_LOG_WARN, "refused a host of another user");
                return;
        }
        h = calloc(1, sizeof(*h));
        if (!h)
                return;
        h->sup = s;
        h->number = ++s->next_host;
        if (make_token(h->token) < 0 || watch_start(s, &h->life, fd, on_life, h, &err) < 0) {
                free(h);
                return;
        }
        cg_steal_fd(&fd);
        h->next = s->hosts;
        s->hosts = h;
        memcpy(line, h->token, 32);
        line[32] = '\n';
        if (send(h->life.fd, line, 33, MSG_NOSIGNAL | MSG_DONTWAIT) != 33)
                drop_host(h);
        uv_timer_stop(&s->no_host);
}

/* ------------------------------------------------------------------ sending */

static void log_unsent(struct host *h, const struct cg_err *err)
{
        if (err->code != CG_E_CLOSED)
                cg_log(&h->sup->log, CG_LOG_WARN, "cannot send to host %.8s: %s", h->token, err->msg);
}

void host_send(struct host *h, const struct cg_out *out, json_t *body)
{
        struct cg_err err;
        int r;

        if (!h || !h->link) {
                json_decref(body);
                return;
        }
        if (body)
                r = cg_zlink_send_json(&h->link->link, out, body, &err);
        else
                r = cg_zlink_send(&h->link->link, out, &err);
        if (r < 0)
                log_unsent(h, &err);
}

void host_forward(struct host *h, const struct cg_out *out, struct cg_msg *m)
{
        struct cg_err err;

        if (h && h->link && cg_zlink_forward(&h->link->link, out, m, &err) < 0)
                log_unsent(h, &err);
}

json_t *text_json(const char *text)
{
        const unsigned char *p = (const unsigned char *)text;
        size_t left = strlen(text), n;
        cg_auto_buf struct cg_buf b;
        uint32_t c;

        cg_buf_init(&b, left + 1);
        for (; left; p += n, left -= n) {
                n = cg_utf8_next(p, left, &c);
                if (cg_buf_add(&b, n ? (const char *)p : "?", n ? n : 1, NULL) < 0)
                        break;
                n = n ? n : 1;
        }
        return json_stringn(b.data ? b.data : "", b.len);
}

void host_failed(struct host *h, uint64_t session, uint64_t request, const struct cg_err *err)
{
        struct cg_out out = { .type = CG_HOST_FAILED, .session = session, .id = request };

        host_send(h, &out,
                  json_pack("{s:i, s:i, s:o}", "code", err->code, "errno", err->sys_errno, "message",
                            text_json(err->msg)));
}

/* ------------------------------------------------------------------ receiving */

static struct host *host_by_token(struct sup *s, const char *token)
{
        for (struct host *h = s->hosts; h; h = h->next)
                if (!h->link && h->life.active && strlen(token) == 32 &&
                    sodium_memcmp(h->token, token, 32) == 0)
                        return h;
        return NULL;
}

static void handle_hello(struct hostlink *l, const struct cg_msg *m)
{
        struct cg_out out = { .type = CG_HOST_WELCOME, .id = m->id };
        struct sup *s = l->sup;
        cg_auto_json json_t *body = NULL;
        const char *token;
        struct host *h;
        struct cg_err err;

        if (cg_msg_json(m, &body, &err) < 0 || cg_json_str(body, "token", "", &token, &err) < 0)
                return;
        h = host_by_token(s, token);
        if (!h) {
                cg_log(&s->log, CG_LOG_WARN, "HELLO with a token that no lifeline has");
                return;
        }
        /* used once; the rest is its name in the log */
        sodium_memzero(h->token + 8, sizeof(h->token) - 9);
        h->link = l;
        l->host = h;
        s->n_strangers--;
        host_send(h, &out, json_pack("{s:s, s:i}", "version", CG_VERSION, "pid", (int)getpid()));
}

static void handle_message(struct host *h, struct cg_msg *m)
{
        struct cg_err err;
        struct session *ss;

        if (m->type == CG_HOST_SESSION_NEW) {
                session_new(h, m);
                return;
        }
        if (m->type == CG_HOST_SESSION_ATTACH) {
                session_attach(h, m);
                return;
        }
        if (m->type == CG_HOST_SESSION_LIST) {
                session_list(h, m);
                return;
        }
        ss = session_find(h->sup, h, m->session);
        if (ss) {
                session_message(ss, h, m);
                return;
        }
        if (m->type == CG_HOST_CREDIT || m->type == CG_HOST_DECISION || m->type == CG_HOST_CANCEL ||
            m->type == CG_HOST_EGRESS_DECISION || m->type == CG_HOST_INPUT_REPLY)
                return; /* a race with the session's end: SESSION_CLOSED is on its way */
        cg_fail(&err, CG_E_CLOSED, "there is no such session (any more)");
        host_failed(h, m->session, m->id, &err);
}

static void on_host_message(struct cg_zlink *z, struct cg_msg *m)
{
        struct hostlink *l = z->data;

        if (l->host && m->type != CG_HOST_HELLO)
                handle_message(l->host, m);
        else if (!l->host && m->type == CG_HOST_HELLO)
                handle_hello(l, m);
        else
                cg_log(&l->sup->log, CG_LOG_WARN, l->host ? "%s again" : "%s before HELLO", m->spec->name);
}

static void on_host_link_end(struct cg_zlink *z, const struct cg_err *err)
{
        struct hostlink *l = z->data;

        if (err->code != CG_E_CLOSED) {
                cg_log(&l->sup->log, CG_LOG_WARN, "a host broke the protocol: %s", err->msg);
                if (l->host)
                        drop_host(l->host);
        }
        link_drop(l);
}

static void on_host_connect(struct watch *w)
{
        struct sup *s = w->data;
        cg_auto_fd int fd = accept4(w->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        struct hostlink *l;
        struct cg_err err;

        if (fd < 0)
                return;
        l = s->n_strangers < MAX_STRANGERS && same_user(fd) ? calloc(1, sizeof(*l)) : NULL;
        if (!l) {
                cg_log(&s->log, CG_LOG_WARN,
                       "refused a connection: of another user, or too many that say nothing");
                return;
        }
        l->sup = s;
        /*
         * Events are bounded by the window of each session, so what waits for a host needs no limit
         * of its own.
         */
        if (cg_zlink_take(&l->link, &s->loop, cg_steal_fd(&fd), &cg_wire_host, CG_ROLE_HOST, SIZE_MAX,
                          on_host_message, on_host_link_end, l, &err) < 0) {
                cg_log(&s->log, CG_LOG_WARN, "a host's connection: %s", err.msg);
                free(l);
                return;
        }
        l->next = s->links;
        s->links = l;
        s->n_strangers++;
}

/* ------------------------------------------------------------------ start and end */

static int listen_in_dir(struct sup *s, const char *name, char *path, size_t size, int *fd,
                         struct cg_err *err)
{
        int n = snprintf(path, size, "%s/%s", s->dir, name);

        if (n < 0 || (size_t)n >= size)
                return cg_fail(err, CG_E_LIMIT, "path of %s/%s is too long", s->dir, name);
        return cg_listen_unix(path, 64, fd, err);
}

int hosts_start(struct sup *s, struct cg_err *err)
{
        char path[128];
        int fd;

        if (listen_in_dir(s, "host.sock", path, sizeof(path), &fd, err) < 0 ||
            watch_start(s, &s->host_listener, fd, on_host_connect, s, err) < 0)
                return -1;
        if (listen_in_dir(s, "life.sock", path, sizeof(path), &fd, err) < 0 ||
            watch_start(s, &s->life, fd, on_life_connect, s, err) < 0)
                return -1;
        uv_timer_init(&s->loop, &s->no_host);
        s->no_host.data = s;
        if (s->private_mode || s->linger_ms >= 0)
                uv_timer_start(&s->no_host, on_no_host, FIRST_HOST_MS, 0);
        return 0;
}

void hosts_stop(struct sup *s)
{
        while (s->links)
                link_drop(s->links);
        for (struct host *h = s->hosts; h; h = h->next)
                drop_host(h);
}
