/*
 * cellgate-supervisor: the machine's memory, for kernels that no control group holds. An rlimit
 * bounds each of their processes, and nothing all of them together, nor what no process has
 * (memfds, sockets' buffers). So the supervisor looks at what the machine has left, as often as
 * that can be used up, and ends the kernel that uses most before other programs have to do without.
 */
#include "supervisor/supervisor.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>

#include "base/fd.h"

/* For so long one that was ended may take to give its memory back, before another is ended. */
#define GIVE_BACK_MS 5000

static bool is_candidate(const struct kernel *k)
{
        return k && k->state != K_DEAD && !k->memory_over && k->pid.fd >= 0 &&
               k->by[CG_LIMIT_MEMORY] == CG_BY_RLIMIT;
}

/* NULL: there is none. */
static struct kernel *largest(struct sup *s)
{
        struct kernel *ret = NULL;
        uint64_t most = 0;

        for (size_t i = 0; i < CG_ARRAY_LEN(s->sessions); i++) {
                struct kernel *k = s->sessions[i] ? s->sessions[i]->kernel : NULL;
                uint64_t use = is_candidate(k) ? cg_oom_use(cg_pidfd_pid(k->pid.fd)) : 0;

                if (is_candidate(k) && (!ret || use > most)) {
                        ret = k;
                        most = use;
                }
        }
        return ret;
}

static bool any(const struct sup *s)
{
        for (size_t i = 0; i < CG_ARRAY_LEN(s->sessions); i++) {
                if (s->sessions[i] && is_candidate(s->sessions[i]->kernel))
                        return true;
        }
        return false;
}

/*
 * The last that was ended is not gone yet. Its processes count as nothing from the moment that they
 * begin to end, while the machine's kernel still frees what they had, for seconds where that is
 * much: whoever uses most by then is not the cause.
 */
static bool is_being_given_back(struct sup *s)
{
        if (s->memory_ended >= 0 && (uv_now(&s->loop) - s->memory_ended_ms >= GIVE_BACK_MS ||
                                     cg_wait_fd(s->memory_ended, POLLIN, 0, NULL) == 0))
                cg_closep_(&s->memory_ended);
        return s->memory_ended >= 0;
}

static void end_for_memory(struct sup *s, struct kernel *k)
{
        k->memory_over = true;
        s->memory_ended = fcntl(k->pid.fd, F_DUPFD_CLOEXEC, 0);
        s->memory_ended_ms = uv_now(&s->loop);
        cg_pidfd_kill(k->pid.fd, SIGKILL);
}

static void on_look(uv_timer_t *t)
{
        struct sup *s = t->data;
        uint64_t available, reserve;
        struct kernel *k;

        if (!any(s))
                return;
        cg_oom_left(&available, &reserve);
        k = available && available < reserve && !is_being_given_back(s) ? largest(s) : NULL;
        if (k)
                end_for_memory(s, k);
        uv_timer_start(t, on_look, cg_oom_next_look_ms(available, reserve), 0);
}

void memory_start(struct sup *s)
{
        uv_timer_init(&s->loop, &s->memory_timer);
        s->memory_timer.data = s;
        s->memory_ended = -1;
}

void memory_watch(struct kernel *k)
{
        struct sup *s = k->sup;

        if (is_candidate(k) && !uv_is_active((uv_handle_t *)&s->memory_timer))
                uv_timer_start(&s->memory_timer, on_look, 0, 0);
}
