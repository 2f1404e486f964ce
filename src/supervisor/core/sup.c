/* cellgate-supervisor: watched descriptors, adopted children, and its end. See sup.h. */
#include "supervisor/core/sup.h"

#include "base/proc.h"

static void on_watch(uv_poll_t *h, int status, int events)
{
        struct watch *w = h->data;

        w->cb(w);
}

int cg_sup_watch_start(struct sup *s, struct watch *w, int fd, watch_cb cb, void *data, struct cg_err *err)
{
        int r;

        *w = (struct watch){ .cb = cb, .data = data, .fd = fd };
        r = uv_poll_init(&s->loop, &w->poll, fd);
        w->poll.data = w;
        if (r < 0) {
                close(fd);
                w->fd = -1;
                return cg_fail(err, CG_E_SYS, "event loop: %s", uv_strerror(r));
        }
        w->active = true;
        uv_poll_start(&w->poll, UV_READABLE | UV_DISCONNECT, on_watch);
        return 0;
}

void cg_sup_watch_for(struct watch *w, int events)
{
        if (w->active && events)
                uv_poll_start(&w->poll, events, on_watch);
        else if (w->active)
                uv_poll_stop(&w->poll);
}

static void on_watch_closed(uv_handle_t *h)
{
        struct watch *w = h->data;

        close(w->fd);
        w->fd = -1;
        if (w->on_closed)
                w->on_closed(w);
}

bool cg_sup_watch_close(struct watch *w, watch_cb on_closed)
{
        if (!w->active)
                return false;
        w->active = false;
        w->on_closed = on_closed;
        uv_close((uv_handle_t *)&w->poll, on_watch_closed);
        return true;
}

void cg_sup_stop(struct sup *s, const char *why)
{
        if (s->stopping)
                return;
        s->stopping = true;
        cg_log(&s->log, CG_LOG_INFO, "stopping: %s", why);
        s->upper.stop(s, why);
        uv_stop(&s->loop);
}

void cg_sup_timer_start(uv_timer_t *t, uv_timer_cb cb, uint64_t ms)
{
        uv_update_time(t->loop);
        uv_timer_start(t, cb, ms, 0);
}

/*
 * All children but those of s->children have lost their parents: kernels of a zygote that was
 * killed, and processes of MCP servers whose tool server was killed.
 */
void cg_sup_reap_orphans(struct sup *s, bool kill_them)
{
        if (kill_them)
                cg_proc_kill_children(s->children, CG_ARRAY_LEN(s->children));
        else
                cg_proc_reap_children(s->children, CG_ARRAY_LEN(s->children));
}
