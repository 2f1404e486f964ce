/*
 * cellgate-supervisor: the time limit of running cells, where waiting for a decision of the host
 * does not count; rates of what cells cause.
 */
#include "supervisor/cells/clock.h"

#include "supervisor/core/state.h"

/* As init's reports of system calls: so many at once, then so many in a second. */
#define RATE_BURST  64
#define RATE_SECOND 8

void cg_sup_clock_start(struct shell *l)
{
        if (!l->running || l->running->ended || !l->running->timeout_ms || l->clock_started_ms >= 0 ||
            l->stop != STOP_NONE || l->timed_out || l->ss->asks.newest > l->last_ask)
                return;
        l->clock_started_ms = cg_now_ms();
        cg_sup_timer_start(&l->clock, l->on_clock, (uint64_t)(l->left_ms > 0 ? l->left_ms : 1));
}

void cg_sup_clock_stop(struct shell *l)
{
        if (l->clock_started_ms < 0)
                return;
        uv_timer_stop(&l->clock);
        l->left_ms -= cg_now_ms() - l->clock_started_ms;
        l->clock_started_ms = -1;
}

void cg_sup_asks_changed(struct session *ss)
{
        for (struct shell *l = &ss->queue.main; l; l = l->next)
                if (ss->asks.newest > l->last_ask)
                        cg_sup_clock_stop(l);
                else
                        cg_sup_clock_start(l);
        cg_sup_jobs_answers(ss);
}

bool cg_sup_rate_take(struct rate *r)
{
        int64_t now = cg_now_ms(), left = RATE_BURST * 1000;

        if (r->filled_ms)
                left = r->left + (now - r->filled_ms) * RATE_SECOND;
        r->left = CG_MIN(left, RATE_BURST * 1000);
        r->filled_ms = now;
        if (r->left < 1000)
                return false;
        r->left -= 1000;
        return true;
}

void cg_sup_rate_give(struct rate *r)
{
        r->left += 1000;
}
