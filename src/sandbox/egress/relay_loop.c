/* The relay's poll set, its messages to the decider, and the flow control of listeners. */
#include "sandbox/egress/relay_int.h"

bool cg_relay_has_room(const struct box *b)
{
        return b->n_conns < b->options.connections && b->r->n_unsent < UNSENT_MAX;
}

void cg_relay_resume(struct box *b)
{
        for (size_t i = 0; i < b->n_listeners; i++) {
                if (b->listeners[i]->paused && cg_relay_has_room(b)) {
                        b->listeners[i]->paused = false;
                        uv_poll_start(&b->listeners[i]->poll, UV_READABLE, b->r->on_listener);
                }
        }
}

/* 0; CG_TIMEOUT: no room; negative. */
static int send_now(struct relay *r, const struct unsent *u)
{
        struct cg_egress_msg m = { .type = u->type, .box = u->box, .id = u->id, .kind = (uint8_t)u->kind };

        snprintf(m.text, sizeof(m.text), "%s", u->text);
        return cg_egress_msg_send(r->chan, &m, NULL, 0, NULL);
}

/* The decider has gone, or a message to it cannot be queued: the relay ends. */
static void give_up(struct relay *r)
{
        r->status = 1;
        uv_stop(&r->loop);
}

void cg_relay_send_unsent(struct relay *r)
{
        struct unsent *u;
        struct box *b;
        int status = 0;

        while ((u = STAILQ_FIRST(&r->unsent)) && (status = send_now(r, u)) == 0) {
                STAILQ_REMOVE_HEAD(&r->unsent, entry);
                r->n_unsent--;
                free(u);
        }
        if (status < 0)
                give_up(r);
        LIST_FOREACH(b, &r->boxes, entry)
                cg_relay_resume(b);
}

void cg_relay_send(struct conn *c, enum cg_egress_type type, const char *text)
{
        struct relay *r = c->r;
        size_t size = strlen(text) + 1;
        struct unsent *u = calloc(1, sizeof(*u) + size);
        int status;

        if (!u) {
                give_up(r);
                return;
        }
        u->type = type;
        u->box = c->box->number;
        u->id = c->id;
        u->kind = c->kind;
        memcpy(u->text, text, size);
        status = STAILQ_EMPTY(&r->unsent) ? send_now(r, u) : CG_TIMEOUT;
        if (status == CG_TIMEOUT) {
                STAILQ_INSERT_TAIL(&r->unsent, u, entry);
                r->n_unsent++;
                cg_relay_watch(r);
                return;
        }
        free(u);
        if (status < 0)
                give_up(r);
}

void cg_relay_watch(struct relay *r)
{
        int events = UV_READABLE | (r->n_to_ask || !STAILQ_EMPTY(&r->unsent) ? UV_WRITABLE : 0);

        if (events != r->chan_events)
                uv_poll_start(&r->chan_poll, events, r->on_chan);
        r->chan_events = events;
}
