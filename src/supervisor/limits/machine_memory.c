/*
 * cellgate-supervisor: the machine's memory, for kernels that no control group holds. An rlimit
 * bounds each of their processes, but neither all of them together nor memory that belongs to no
 * process (memfds, sockets' buffers). So the supervisor checks the machine's available memory, as
 * often as it can be used up, and ends the kernel that uses most before other programs run short.
 */
#include "supervisor/limits/machine_memory.h"

#include <poll.h>
#include "base/fd.h"
#include "supervisor/core/kernel.h"
#include "supervisor/core/kernel_link.h"
#include "supervisor/limits/oom.h"
#include "supervisor/core/state.h"

/* Time for a killed kernel to free its memory, before another one is killed. */
#define FREE_MS 5000

static bool is_candidate(const struct kernel *k)
{
        return k && k->state != K_DEAD && !k->limits.memory_exceeded && k->pid.fd >= 0 &&
               k->limits.by[CG_LIMIT_MEMORY] == CG_BY_RLIMIT;
}

static void on_memory_timer(uv_timer_t *t)
{
        struct sup *s = t->data;
        struct kernel *largest = NULL;
        uint64_t available, reserve, use, most = 0;
        bool any = false, scarce;

        for (size_t i = 0; i < CG_ARRAY_LEN(s->sessions) && !any; i++)
                any = s->sessions[i] && is_candidate(s->sessions[i]->kernel);
        if (!any)
                return;
        cg_oom_left(&available, &reserve);
        scarce = available && available < reserve;

        /*
         * The processes of a kernel that was killed count as nothing from the moment that they
         * begin to end, while the operating system still frees their memory, for seconds where that
         * is much: the kernel that uses most by then is not the cause.
         */
        if (scarce && s->memory.ended >= 0 &&
            (uv_now(&s->loop) - s->memory.ended_ms >= FREE_MS ||
             cg_wait_fd(s->memory.ended, POLLIN, 0, NULL) == 0))
                cg_closep_(&s->memory.ended);
        for (size_t i = 0; i < CG_ARRAY_LEN(s->sessions) && scarce && s->memory.ended < 0; i++) {
                struct kernel *k = s->sessions[i] ? s->sessions[i]->kernel : NULL;

                if (!is_candidate(k))
                        continue;
                use = cg_oom_use(cg_pidfd_pid(k->pid.fd));
                if (!largest || use > most) {
                        largest = k;
                        most = use;
                }
        }
        if (largest) {
                largest->limits.memory_exceeded = true;
                s->memory.ended = fcntl(largest->pid.fd, F_DUPFD_CLOEXEC, 0);
                s->memory.ended_ms = uv_now(&s->loop);
                cg_sup_kernel_kill(largest);
        }
        uv_timer_start(t, on_memory_timer, cg_oom_next_check_ms(available, reserve), 0);
}

void cg_sup_memory_start(struct sup *s)
{
        uv_timer_init(&s->loop, &s->memory.timer);
        s->memory.timer.data = s;
        s->memory.ended = -1;
}

void cg_sup_memory_watch(struct kernel *k)
{
        struct sup *s = k->sup;

        if (is_candidate(k) && !uv_is_active((uv_handle_t *)&s->memory.timer))
                uv_timer_start(&s->memory.timer, on_memory_timer, 0, 0);
}
