/* Which kernels are ended while the machine is short of memory. */
#include "supervisor/core/kernel.h"
#include "supervisor/core/kernel_link.h"
#include "supervisor/limits/machine_memory.h"
#include "supervisor/core/state.h"
#include "unit.h"

/* Kernels are pipes here: one has ended when nobody can write to its pipe any more. */
#define KERNELS 3

static struct sup sup;
static struct session sessions[KERNELS];
static struct kernel kernels[KERNELS];
static int ends[KERNELS], n_killed;
static bool killed[KERNELS];

static int number_of(int fd)
{
        int i = 0;

        while (i < KERNELS - 1 && kernels[i].pid.fd != fd)
                i++;
        return i;
}

void cg_oom_left(uint64_t *available, uint64_t *reserve)
{
        *available = 1;
        *reserve = 2;
}

uint64_t cg_oom_next_check_ms(uint64_t available, uint64_t reserve)
{
        (void)available;
        (void)reserve;
        return 1;
}

/* Kernels use less memory in order of their number; an ending kernel uses none. */
uint64_t cg_oom_use(pid_t pid)
{
        return killed[pid - 1] ? 0 : (uint64_t)(KERNELS + 1 - pid);
}

pid_t cg_pidfd_pid(int pidfd)
{
        return number_of(pidfd) + 1;
}

void cg_sup_kernel_kill(const struct kernel *k)
{
        killed[k - kernels] = true;
        n_killed++;
}

int cg_wait_fd(int fd, short events, int64_t timeout_ms, struct cg_err *err)
{
        struct pollfd p = { .fd = fd, .events = events };

        (void)err;
        return poll(&p, 1, (int)timeout_ms) == 1 ? 0 : -1;
}

static void look(int times)
{
        for (int i = 0; i < times; i++)
                uv_run(&sup.loop, UV_RUN_ONCE);
}

static int start(void **state)
{
        n_killed = 0;
        if (uv_loop_init(&sup.loop) < 0)
                return -1;
        cg_sup_memory_start(&sup);
        for (int i = 0; i < KERNELS; i++) {
                int fds[2];

                if (pipe(fds) < 0)
                        return -1;
                kernels[i] = (struct kernel){ .sup = &sup, .state = K_READY };
                kernels[i].pid.fd = fds[0];
                kernels[i].limits.by[CG_LIMIT_MEMORY] = CG_BY_RLIMIT;
                sessions[i].kernel = &kernels[i];
                sup.sessions[i] = &sessions[i];
                ends[i] = fds[1];
                killed[i] = false;
        }
        cg_sup_memory_watch(&kernels[0]);
        return 0;
}

static int stop(void **state)
{
        uv_close((uv_handle_t *)&sup.memory.timer, NULL);
        uv_run(&sup.loop, UV_RUN_DEFAULT);
        for (int i = 0; i < KERNELS; i++) {
                close(kernels[i].pid.fd);
                cg_closep_(&ends[i]);
        }
        cg_closep_(&sup.memory.ended);
        return uv_loop_close(&sup.loop);
}

/* The next largest is not killed while memory of the first is still being freed. */
TEST_WITH(test_one_at_a_time, start, stop)
{
        look(5);
        assert_int_equal(n_killed, 1);
        assert_true(killed[0] && kernels[0].limits.memory_exceeded);
        /* Also where its session has gone, or started another. */
        sessions[0].kernel = NULL;
        look(5);
        assert_int_equal(n_killed, 1);
        cg_closep_(&ends[0]);
        look(5);
        assert_int_equal(n_killed, 2);
        assert_true(killed[1] && !killed[2]);
}

/* It does not end: others must not have to wait for that. */
TEST_WITH(test_not_for_ever, start, stop)
{
        look(5);
        assert_int_equal(n_killed, 1);
        sup.memory.ended_ms -= 5000;
        look(5);
        assert_int_equal(n_killed, 2);
        assert_true(killed[1] && !killed[2]);
}
