/* A ZeroMQ socket with a bounded queue for what cannot be sent yet. Runs in cellgate-toolserver. */
#include <stdlib.h>
#include <string.h>
#include "mcp/toolserver.h"

/* A message that waits for room. */
struct ts_item {
        struct ts_item *next;
        struct cg_out out;
        size_t cost;
        char bytes[]; /* body, then raw frame */
};

/* What an entry costs beside its bytes, so that many empty ones are bounded too. */
#define ITEM_COST 256

static void on_events(struct cg_zsock *z, int events);

int cg_ts_chan_init(struct ts_chan *ch, struct cg_zloop *zl, void *sock, const struct cg_wire *wire,
                    size_t max, struct cg_err *err)
{
        int r;

        ch->sock = sock;
        ch->wire = wire;
        ch->max = max;
        ch->first = NULL;
        ch->last = &ch->first;
        ch->queued = 0;
        r = cg_zsock_init(&ch->z, zl, sock, on_events, ch, err);
        if (r < 0)
                zmq_close(sock);
        return r;
}

static int enqueue(struct ts_chan *ch, const struct cg_out *out, struct cg_err *err)
{
        size_t raw_len = out->has_raw ? out->raw_len : 0, n = out->body_len + raw_len;
        struct ts_item *it;

        if (ch->queued + n + ITEM_COST > ch->max)
                return cg_fail(err, CG_E_LIMIT, "%zu bytes wait already that the other side has not read",
                               ch->queued);
        it = malloc(sizeof(*it) + n);
        if (!it)
                return cg_fail(err, CG_E_NOMEM, "message");
        it->next = NULL;
        it->out = *out;
        it->cost = n + ITEM_COST;
        if (out->body_len)
                memcpy(it->bytes, out->body, out->body_len);
        if (raw_len)
                memcpy(it->bytes + out->body_len, out->raw, raw_len);
        it->out.body = it->bytes;
        it->out.raw = it->bytes + out->body_len;
        *ch->last = it;
        ch->last = &it->next;
        ch->queued += it->cost;
        return 0;
}

int cg_ts_chan_send(struct ts_chan *ch, const struct cg_out *out, struct cg_err *err)
{
        int r = CG_TIMEOUT;

        if (!ch->first) {
                r = cg_msg_send(ch->sock, ch->wire, out, err);
                cg_zsock_touch(&ch->z);
        }
        if (r != CG_TIMEOUT)
                return r;
        cg_zsock_want_out(&ch->z);
        return enqueue(ch, out, err);
}

static void drop_first(struct ts_chan *ch)
{
        struct ts_item *it = ch->first;

        ch->first = it->next;
        if (!ch->first)
                ch->last = &ch->first;
        ch->queued -= it->cost;
        free(it);
}

static void flush(struct ts_chan *ch)
{
        while (ch->first) {
                struct cg_err err;
                int r = cg_msg_send(ch->sock, ch->wire, &ch->first->out, &err);

                if (r == CG_TIMEOUT) {
                        cg_zsock_want_out(&ch->z);
                        return;
                }
                if (r < 0)
                        cg_log(ch->log, CG_LOG_ERROR, "a message on the %s wire is lost: %s", ch->wire->name,
                               err.msg);
                drop_first(ch);
        }
}

static void on_events(struct cg_zsock *z, int events)
{
        struct ts_chan *ch = z->data;

        if (events & ZMQ_POLLOUT)
                flush(ch);
        if (events & ZMQ_POLLIN)
                ch->on_in(ch);
}

static void on_zsock_closed(struct cg_zsock *z)
{
        struct ts_chan *ch = z->data;

        zmq_close(ch->sock);
        ch->on_closed(ch);
}

void cg_ts_chan_close(struct ts_chan *ch)
{
        while (ch->first)
                drop_first(ch);
        cg_zsock_close(&ch->z, on_zsock_closed);
}
