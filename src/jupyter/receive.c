/* Receiving requests and answers. Runs in `cellgate jupyter`. */
#include "jupyter/internal.h"

/* At most once a second. */
static void log_rejection(struct front *f, enum cg_jchannel channel, const struct cg_err *err)
{
        uint64_t now = uv_now(&f->loop);

        if (f->rejected++ && now - f->rejected_ms < 1000)
                return;
        f->rejected_ms = now;
        cg_log(&f->o->log, CG_LOG_WARN, "message on %s rejected (%u so far): %s", cg_jchannel_key(channel),
               f->rejected, err->msg);
}

int cg_front_receive(struct front *f, enum cg_jchannel channel, struct cg_jmsg **ret)
{
        struct cg_err err;
        int r = cg_jmsg_recv(f->socks[channel], &f->sign, &f->peers[channel], ret, &err);

        if (r < 0)
                log_rejection(f, channel, &err);
        return r;
}
