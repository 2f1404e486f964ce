/*
 * sandbox-bench: how long a spawn takes, from the call to the main process standing before main_fn,
 * and to all of it being gone again. Run by hand.
 *
 *      sandbox-bench [SPAWNS [MEGABYTES of touched heap in the caller [off | told]]]
 */
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/util.h"
#include "sandbox/sandbox.h"

#define MAX_SPAWNS 2000

static double now_ms(void)
{
        struct timespec t;

        clock_gettime(CLOCK_MONOTONIC, &t);
        return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

static int compare(const void *a, const void *b)
{
        double x = *(const double *)a, y = *(const double *)b;

        return (x > y) - (x < y);
}

static void print(const char *what, double *ms, int n)
{
        qsort(ms, (size_t)n, sizeof(*ms), compare);
        printf("%-34s median %7.3f ms   min %7.3f   p90 %7.3f\n", what, ms[n / 2], ms[0], ms[n * 9 / 10]);
}

static int run_main(void *data)
{
        double t = now_ms();

        return write(*(int *)data, &t, sizeof(t)) == (ssize_t)sizeof(t) ? 0 : 1;
}

static int measure_plans(struct cg_sandbox *sb, int n, struct cg_err *err)
{
        double made = now_ms(), copied, end;

        for (int i = 0; i < n; i++) {
                struct cg_sandbox *other;

                if (cg_sandbox_new(&other, err) < 0)
                        return -1;
                cg_sandbox_free(other);
        }
        copied = now_ms();
        for (int i = 0; i < n; i++) {
                struct cg_sandbox *other;

                if (cg_sandbox_copy(sb, &other, err) < 0)
                        return -1;
                cg_sandbox_free(other);
        }
        end = now_ms();
        printf("a plan: new %.3f ms, copy %.3f ms (means)\n", (copied - made) / n, (end - copied) / n);
        return 0;
}

static int measure_spawns(struct cg_sandbox *sb, int n, struct cg_err *err)
{
        static double returned[MAX_SPAWNS], running[MAX_SPAWNS], gone[MAX_SPAWNS];

        for (int i = 0; i < n; i++) {
                struct cg_sandbox_child child;
                double start, t = 0;
                int p[2];

                if (pipe(p) < 0)
                        return cg_fail_errno(err, "pipe");
                start = now_ms();
                if (cg_sandbox_spawn(sb, &p[1], 1, run_main, &p[1], &child, err) < 0)
                        return -1;
                returned[i] = now_ms() - start;
                if (read(p[0], &t, sizeof(t)) != (ssize_t)sizeof(t))
                        return cg_fail(err, CG_E_CLOSED, "main_fn did not run");
                running[i] = t - start;
                waitpid(child.init_pid, NULL, 0);
                gone[i] = now_ms() - start;
                close(child.init_pidfd);
                close(child.status_fd);
                cg_closep_(&child.denials_fd);
                close(p[0]);
                close(p[1]);
        }
        print("spawn to main_fn running", running, n);
        print("spawn to return in the caller", returned, n);
        print("spawn to all of it gone", gone, n);
        return 0;
}

int main(int argc, char **argv)
{
        int n = argc > 1 ? atoi(argv[1]) : 200;
        size_t bytes = (argc > 2 ? strtoul(argv[2], NULL, 10) : 0) << 20;
        struct cg_sandbox *sb = NULL;
        struct cg_err err = { 0 };
        char *heap = bytes ? malloc(bytes) : NULL;

        if (n < 1 || n > MAX_SPAWNS || (bytes && !heap))
                return 2;
        if (heap)
                memset(heap, 1, bytes);
        if (cg_sandbox_new(&sb, &err) < 0) {
                fprintf(stderr, "sandbox-bench: %s\n", err.msg);
                return 1;
        }
        if (argc > 3 && !strcmp(argv[3], "off"))
                cg_sandbox_set_off(sb);
        if (argc > 3 && !strcmp(argv[3], "told"))
                cg_sandbox_report_denials(sb);
        if (measure_plans(sb, n, &err) < 0 || measure_spawns(sb, n, &err) < 0) {
                fprintf(stderr, "sandbox-bench: %s\n", err.msg);
                return 1;
        }
        cg_sandbox_free(sb);
        free(heap);
        return 0;
}
