/* Datagrams between the two processes of cellgate-egress. */
#include "sandbox/egress/internal.h"

#include "base/fd.h"

static bool would_block(const struct cg_err *err)
{
        return err->code == CG_E_SYS && (err->sys_errno == EAGAIN || err->sys_errno == EWOULDBLOCK);
}

int cg_egress_msg_send(int sock, const struct cg_egress_msg *m, const int *fds, size_t n_fds,
                       struct cg_err *err)
{
        struct cg_err mine;
        int r = cg_send_fds(sock, m, sizeof(*m), fds, n_fds, &mine);

        if (r == 0)
                return 0;
        if (would_block(&mine))
                return CG_TIMEOUT;
        if (err)
                *err = mine;
        return r;
}

int cg_egress_msg_recv(int sock, struct cg_egress_msg *m, int *fds, size_t *n_fds, struct cg_err *err)
{
        struct cg_err mine;
        ssize_t n = cg_recv_fds(sock, m, sizeof(*m), fds, n_fds, &mine);

        if (n == (ssize_t)sizeof(*m)) {
                /* The other process is not trusted to have terminated its texts. */
                m->host[sizeof(m->host) - 1] = '\0';
                m->text[sizeof(m->text) - 1] = '\0';
                m->extra[sizeof(m->extra) - 1] = '\0';
                return 0;
        }
        if (n == 0 || (n < 0 && mine.sys_errno == ECONNRESET))
                return CG_CLOSED;
        if (n < 0 && would_block(&mine))
                return CG_TIMEOUT;
        if (n > 0) {
                for (size_t i = 0; i < *n_fds; i++)
                        close(fds[i]);
                return cg_fail(err, CG_E_PROTO, "a message of %zd bytes", n);
        }
        if (err)
                *err = mine;
        return CG_E_SYS;
}
