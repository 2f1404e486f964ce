/* Receiving requests and answers. Runs in `cellgate jupyter`. */
#include "jupyter/internal.h"

int cg_front_receive(struct front *f, enum cg_jchannel channel, struct cg_jmsg **ret)
{
        uint64_t now = uv_now(&f->loop);
        struct cg_err err;
        int r = cg_jmsg_recv(f->sockets.socks[channel], &f->sign, &f->sockets.peers[channel], ret, &err);

        if (r == 0 && (*ret)->m.bad[0])
                cg_fail(&err, CG_E_PROTO, "%s", (*ret)->m.bad);
        /* Rejections are logged at most once a second. */
        if ((r < 0 || (r == 0 && (*ret)->m.bad[0])) &&
            (!f->sockets.rejected++ || now - f->sockets.rejected_ms >= 1000)) {
                f->sockets.rejected_ms = now;
                cg_log(&f->o->log, CG_LOG_WARN, "message on %s rejected (%u so far): %s",
                       cg_jchannel_key(channel), f->sockets.rejected, err.msg);
        }
        return r;
}
