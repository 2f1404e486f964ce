/*
 * cellgate-supervisor: what each cell costs. Figures of the kernel's process are read from the
 * operating system at the start and the end of the cell; others are counted here as they pass. Only
 * the number of programs is the kernel's own word.
 *
 * All are differences between the end and the start of a cell: what other code of the session does
 * in this time is counted as well. `shared` says where the supervisor knows of such code.
 */
#include "supervisor/limits/costs.h"

#include <time.h>
#include <uv.h>
#include "base/fd.h"
#include "base/slice.h"
#include "supervisor/core/kernel.h"
#include "supervisor/core/state.h"

/* Fields of /proc/PID/stat after the name, counted from 0: see proc(5). */
enum { STAT_MINFLT = 7, STAT_MAJFLT = 9, STAT_CUTIME = 13, STAT_CSTIME = 14, STAT_RSS = 21, STAT_FIELDS };

/* Peaks that are reset at the same time: each takes one of the four threads of the pool. */
#define MAX_RESETS 2
/* A peak that is so much higher than what is used is not reset. */
#define PEAK_TOLERANCE (INT64_C(1) << 20)

static int64_t clock_us(clockid_t clock)
{
        struct timespec t;

        if (clock_gettime(clock, &t) < 0)
                return -1;
        return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

/* ------------------------------------------------------------------ the kernel's process */

static int open_proc(pid_t pid, const char *file, int flags)
{
        char path[96];

        snprintf(path, sizeof(path), "/proc/%d/%s", (int)pid, file);
        return open(path, flags | O_CLOEXEC);
}

static pid_t first_child(pid_t pid)
{
        char file[64], text[64];
        ssize_t n;

        snprintf(file, sizeof(file), "task/%d/children", (int)pid);
        cg_auto_fd int fd = open_proc(pid, file, O_RDONLY);
        n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
        text[CG_MAX(n, 0)] = '\0';
        return (pid_t)strtol(text, NULL, 10);
}

void cg_sup_costs_open(struct kernel *k)
{
        pid_t pid = cg_pidfd_pid(k->pid.fd);

        /* Init's first child is the kernel; in the landlock tier a guard is init's parent. */
        for (int i = k->report.tier && strcmp(k->report.tier, "landlock") == 0 ? 2 : 1; i > 0 && pid > 0; i--)
                pid = first_child(pid);
        if (pid <= 0 || clock_getcpuclockid(pid, &k->costs.cpu) != 0)
                return;
        k->costs.stat_fd = open_proc(pid, "stat", O_RDONLY);
        k->costs.io_fd = open_proc(pid, "io", O_RDONLY);
        k->costs.status_fd = open_proc(pid, "status", O_RDONLY);
        k->costs.clear_fd = open_proc(pid, "clear_refs", O_WRONLY);
}

void cg_sup_costs_close(struct kernel *k)
{
        cg_closep_(&k->costs.stat_fd);
        cg_closep_(&k->costs.io_fd);
        cg_closep_(&k->costs.status_fd);
        cg_closep_(&k->costs.clear_fd);
}

/* The whole file, with a NUL. False: it cannot be read, or its process has ended. */
static bool read_proc(int fd, char *text, size_t size)
{
        ssize_t n = fd < 0 ? -1 : pread(fd, text, size - 1, 0);

        text[CG_MAX(n, 0)] = '\0';
        return n > 0;
}

static int64_t number(const char *text)
{
        return strtoll(text, NULL, 10);
}

static int64_t number_of(int fd, const char *name)
{
        char text[4096];

        return read_proc(fd, text, sizeof(text)) ? cg_number_after(text, name) : -1;
}

/* @since: the peak is not read if there was no page fault since then. */
static void read_use(const struct kernel *k, const struct process_use *since, struct process_use *ret)
{
        int64_t own_us = clock_us(k->costs.cpu), kib;
        const char *field[STAT_FIELDS], *at;
        char text[1024];

        *ret = (struct process_use){ -1, -1, -1, -1 };
        /* The clock is named by a number: that of this process if the file still is its own. */
        at = read_proc(k->costs.stat_fd, text, sizeof(text)) ? strrchr(text, ')') : NULL;
        if (!at || own_us < 0)
                return;
        for (int i = 0; i < STAT_FIELDS; i++) {
                at = strchr(at, ' ');
                if (!at)
                        return;
                field[i] = ++at;
        }
        ret->cpu_us = own_us + (number(field[STAT_CUTIME]) + number(field[STAT_CSTIME])) * 1000000 /
                                       sysconf(_SC_CLK_TCK);
        ret->rss = number(field[STAT_RSS]) * sysconf(_SC_PAGESIZE);
        ret->faults = number(field[STAT_MINFLT]) + number(field[STAT_MAJFLT]);
        if (since->faults == ret->faults) {
                ret->peak = since->peak;
                return;
        }
        kib = number_of(k->costs.status_fd, "VmHWM:");
        ret->peak = kib >= 0 ? kib * 1024 : -1;
}

/*
 * Sets the peak of the process to what it uses now. In a thread of the pool, because that waits for
 * the lock of the process's memory, which its threads can hold for seconds.
 */
struct reset {
        uv_work_t work;
        struct sup *sup;
        int fd;
};

static void on_reset(uv_work_t *w)
{
        struct reset *r = w->data;

        if (write(r->fd, "5", 1) < 0)
                errno = 0; /* the process has ended */
}

static void on_reset_done(uv_work_t *w, int status)
{
        struct reset *r = w->data;

        r->sup->unfinished.resets--;
        close(r->fd);
        free(r);
}

void cg_sup_costs_reset(struct session *ss, const struct cell *c)
{
        struct kernel *k = ss->kernel;
        struct reset *r;

        for (const struct shell *l = &ss->queue.main; l; l = l->next)
                if (l->running) /* its peak would be lost */
                        return;
        if (!k || !c->costs.peak_is_old || ss->sup->unfinished.resets >= MAX_RESETS)
                return;
        r = calloc(1, sizeof(*r));
        if (!r)
                return;
        r->sup = ss->sup;
        r->work.data = r;
        r->fd = fcntl(k->costs.clear_fd, F_DUPFD_CLOEXEC, 3);
        if (r->fd < 0 || uv_queue_work(&ss->sup->loop, &r->work, on_reset, on_reset_done) < 0) {
                cg_closep_(&r->fd);
                free(r);
                return;
        }
        k->costs.last.faults = -1; /* its peak changes without one */
        ss->sup->unfinished.resets++;
}

/* ------------------------------------------------------------------ cells */

void cg_sup_costs_shared(struct session *ss)
{
        for (struct shell *l = &ss->queue.main; l; l = l->next)
                if (l->running)
                        l->running->costs.shared = true;
}

void cg_sup_costs_begin(struct session *ss, struct cell *c)
{
        const struct kernel *k = ss->kernel;
        bool alone = TAILQ_EMPTY(&ss->queue.unordered) && TAILQ_EMPTY(&ss->commands);

        for (struct shell *l = &ss->queue.main; l; l = l->next)
                alone = alone && (!l->running || l->running == c);
        if (!alone)
                cg_sup_costs_shared(ss);
        c->costs.shared = !alone;
        if (c->kind == CELL_REQUEST) /* its REPLY has no costs */
                return;
        c->costs.kernel = k->seq;
        c->costs.start = ss->bounds.counted;
        c->costs.commands = -1;
        read_use(k, &k->costs.last, &c->costs.use);
        c->costs.written = number_of(k->costs.io_fd, "wchar:");
        c->costs.started_us = clock_us(CLOCK_MONOTONIC);
}

static int64_t difference(int64_t start, int64_t end)
{
        if (start < 0 || end < 0)
                return -1;
        return end > start ? end - start : 0;
}

/*
 * The most memory that the cell has used. If the peak has not changed, an earlier one was higher,
 * and only what the cell has left is known.
 */
static int64_t most_memory(const struct process_use *start, const struct process_use *end)
{
        return end->peak != start->peak ? CG_MAX(end->peak, end->rss) : end->rss;
}

void cg_sup_costs_end(const struct session *ss, struct cell *c, char buf[COSTS_SIZE])
{
        struct kernel *k = ss->kernel && ss->kernel->seq == c->costs.kernel ? ss->kernel : NULL;
        struct process_use use = { -1, -1, -1, -1 };
        int64_t end_us = clock_us(CLOCK_MONOTONIC);
        size_t n;

        buf[0] = '\0';
        if (!c->costs.started_us)
                return;
        if (k) {
                read_use(k, &c->costs.use, &use);
                k->costs.last = use;
        }
        c->costs.peak_is_old = use.peak > use.rss + PEAK_TOLERANCE;
        const struct {
                const char *name;
                int64_t figure;
        } members[] = {
                { "cpu_us", difference(c->costs.use.cpu_us, use.cpu_us) },
                { "memory_bytes", difference(c->costs.use.rss, most_memory(&c->costs.use, &use)) },
                { "written_bytes",
                  difference(c->costs.written, k ? number_of(k->costs.io_fd, "wchar:") : -1) },
                { "tool_calls", difference(c->costs.start.tool_calls, ss->bounds.counted.tool_calls) },
                { "commands", c->costs.commands },
                /* Without a sandbox, connections go past the proxy. */
                { "connections", difference(c->costs.start.connections,
                                            cg_sup_is_sandboxed(ss) ? ss->bounds.counted.connections : -1) },
                { "denials", difference(c->costs.start.denials, ss->bounds.counted.denials) },
        };

        n = (size_t)snprintf(buf, COSTS_SIZE, ",\"costs\":{\"wall_us\":%lld",
                             (long long)difference(c->costs.started_us, end_us));
        for (size_t i = 0; i < CG_ARRAY_LEN(members); i++)
                if (members[i].figure) /* 0 has no member; what is not known is -1 */
                        n += (size_t)snprintf(buf + n, COSTS_SIZE - n, ",\"%s\":%lld", members[i].name,
                                              (long long)members[i].figure);
        snprintf(buf + n, COSTS_SIZE - n, "%s}", c->costs.shared ? ",\"shared\":true" : "");
}
