/* cellgate-supervisor: messages to hosts. */
#include "supervisor/core/host_link.h"

#include "base/buf.h"
#include "base/fd.h"
#include "base/text.h"

static void log_unsent(struct host *h, const struct cg_err *err)
{
        if (err->code != CG_E_CLOSED)
                cg_log(&h->sup->log, CG_LOG_WARN, "cannot send to host %.8s: %s", h->token, err->msg);
}

void cg_sup_host_send(struct host *h, const struct cg_out *out, json_t *body)
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

void cg_sup_host_forward(struct host *h, const struct cg_out *out, struct cg_msg *m)
{
        struct cg_err err;

        if (h && h->link && cg_zlink_forward(&h->link->link, out, m, &err) < 0)
                log_unsent(h, &err);
}

json_t *cg_sup_text_json(const char *text)
{
        const unsigned char *p = (const unsigned char *)text;
        size_t left = strlen(text), n;
        cg_auto_buf struct cg_buf b;
        uint32_t c;

        cg_buf_init(&b, left + 1);
        for (; left; p += n, left -= n) {
                n = cg_utf8_next(p, left, &c);
                cg_buf_add(&b, n ? (const char *)p : "?", n ?: 1);
                n = n ?: 1;
        }
        return json_stringn(b.data ?: "", b.len);
}

void cg_sup_host_failed(struct host *h, uint64_t session, uint64_t request, const struct cg_err *err)
{
        struct cg_out out = { .type = CG_HOST_FAILED, .session = session, .id = request };

        cg_sup_host_send(h, &out,
                         json_pack("{s:i, s:i, s:o}", "code", err->code, "errno", err->sys_errno, "message",
                                   cg_sup_text_json(err->msg)));
}

bool cg_sup_host_take_sockets(struct host *h)
{
        for (;;) {
                uint64_t number = 0;
                size_t n_fds = 1;
                struct cg_err err;
                int fd = -1;
                ssize_t n = cg_recv_fds(h->lifeline.fd, &number, sizeof(number), &fd, &n_fds, &err);

                if (n < 0 && err.sys_errno == EAGAIN)
                        return true;
                if (n < 0 && err.code == CG_E_LIMIT) /* no room for a descriptor: its EXEC fails */
                        continue;
                if (n != (ssize_t)sizeof(number) || n_fds != 1) {
                        cg_closep_(&fd);
                        return false;
                }
                if (h->n_sockets == CG_HOST_SOCKETS) {
                        close(h->sockets[0].fd);
                        memmove(h->sockets, h->sockets + 1, sizeof(h->sockets) - sizeof(h->sockets[0]));
                        h->n_sockets--;
                }
                h->sockets[h->n_sockets].number = number;
                h->sockets[h->n_sockets++].fd = fd;
        }
}

int cg_sup_host_socket(struct host *h, uint64_t number)
{
        size_t kept = 0;
        int fd = -1;

        if (h->lifeline.active)
                cg_sup_host_take_sockets(h); /* its end is reported by the watch */
        for (size_t i = 0; i < h->n_sockets; i++)
                if (h->sockets[i].number > number)
                        h->sockets[kept++] = h->sockets[i];
                else if (h->sockets[i].number == number && fd < 0)
                        fd = h->sockets[i].fd;
                else
                        close(h->sockets[i].fd);
        h->n_sockets = kept;
        return fd;
}

struct host *cg_sup_host_by_number(const struct sup *s, uint64_t number)
{
        struct host *h = LIST_FIRST(&s->clients.hosts);

        while (h && h->number != number)
                h = LIST_NEXT(h, entry);
        return h;
}
