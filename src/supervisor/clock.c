/*
 * cellgate-supervisor: the time limit of running cells. Waiting for a decision of the host does not
 * count.
 */
#include "supervisor/clock.h"

#include "base/util.h"
#include "supervisor/state.h"

void cg_sup_clock_start(struct shell *l)
{
        if (!l->running || l->running->ended || !l->running->timeout_ms || l->clock_started_ms >= 0 ||
            l->stop != STOP_NONE || l->timed_out)
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
        for (struct shell *l = &ss->main; l; l = l->next) {
                if (ss->asks)
                        cg_sup_clock_stop(l);
                else
                        cg_sup_clock_start(l);
        }
}
