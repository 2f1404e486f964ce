/*
 * cellgate-supervisor: limits of sessions. The zygote sets those that the operating system
 * enforces; this file enforces the others (a session's time, a cell's output, the processor time of
 * a control group), and reports which limit was reached.
 */
#include "supervisor/limits/session_limits.h"

#include <signal.h>
#include "base/fd.h"
#include "base/json.h"
#include "sandbox/plan.h"
#include "sandbox/settings/limit_json.h"
#include "sandbox/settings/settings.h"
#include "supervisor/limits/denials.h"
#include "supervisor/core/kernel.h"
#include "supervisor/core/kernel_link.h"
#include "supervisor/limits/oom.h"
#include "supervisor/core/state.h"
#include "supervisor/core/sup.h"

#define MIB ((uint64_t)1 << 20)
/* A smaller default would stop ordinary packages; most sessions of a node use far less. */
#define NODE_LEAST (256 * MIB)
/* A session of a node has no more: cg_oom_use() counts the memory of so many. */
#define NODE_PROCESSES UINT64_C(4096)

/* A sanitizer's shadow memory is over any limit of memory. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED true
#else
#define SANITIZED false
#endif

/*
 * Finds the memory for all sessions, and the default limit of a kernel: half of it; on a node a
 * slot's share. Called once, since it reads the mounts and the control groups.
 */
static void find_memory(struct sup *s)
{
        uint64_t all = cg_oom_room(), own = s->node.memory ?: s->memory.job, half, least;

        s->memory.room = own ? CG_MIN(own, all) : all;
        half = s->memory.room / 2;
        least = CG_MIN(half, NODE_LEAST);
        if (s->node.slots)
                half = CG_MAX(CG_MIN(half, s->memory.room / s->node.slots), least);
        if (!SANITIZED)
                s->memory.kernel = half / MIB * MIB;
}

/* The limits with their defaults. The zygote sets those other than memory itself. */
static struct cg_sandbox_limits limits_of(const struct session *ss)
{
        struct cg_sandbox_limits l = ss->bounds.limits, defaults = { .open_files = CG_PLAN_OPEN_FILES };

        if (cg_sup_is_sandboxed(ss)) {
                defaults.memory_bytes = ss->sup->memory.kernel;
                defaults.processes = CG_PLAN_PROCESSES;
        }
        cg_limits_fill(&l, &defaults);
        return l;
}

uint64_t cg_sup_limits_sum(const struct sup *s, const struct session *but)
{
        uint64_t sum = 0;

        for (size_t i = 0; i < CG_MAX_SESSIONS; i++)
                if (s->sessions[i] && s->sessions[i]->host && s->sessions[i] != but)
                        sum += limits_of(s->sessions[i]).memory_bytes;
        return sum;
}

/* One session may not have more than all sessions of its node share, nor than others leave. */
static int check_node(struct session *ss, struct cg_err *err)
{
        struct sup *s = ss->sup;
        struct cg_sandbox_limits l = limits_of(ss);
        uint64_t memory = s->memory.room, sum, wanted = l.memory_bytes / MIB + (l.memory_bytes % MIB != 0);

        if (l.memory_bytes > memory)
                return cg_fail(
                        err, CG_E_LIMIT,
                        "a memory limit of %llu MiB is over the %llu MiB that the node has for all of its "
                        "sessions",
                        (unsigned long long)wanted, (unsigned long long)(memory / MIB));
        if (l.processes > NODE_PROCESSES)
                return cg_fail(err, CG_E_LIMIT,
                               "a limit of %llu processes is over the %llu that a session of a node may have",
                               (unsigned long long)l.processes, (unsigned long long)NODE_PROCESSES);
        if (!s->node.memory || !ss->host) /* spares count when they are taken */
                return 0;
        sum = cg_sup_limits_sum(s, ss);
        if (sum + l.memory_bytes <= memory)
                return 0;
        s->node.n_refused++;
        return cg_fail(err, CG_E_BUSY,
                       "a memory limit of %llu MiB does not fit: of the node's %llu MiB, other sessions "
                       "have limits of %llu MiB",
                       (unsigned long long)wanted, (unsigned long long)(memory / MIB),
                       (unsigned long long)(sum / MIB));
}

int cg_sup_limits_check(struct session *ss, struct cg_err *err)
{
        int64_t n;

        if (!ss->sup->memory.room)
                find_memory(ss->sup);
        ss->bounds.limits = (struct cg_sandbox_limits){ 0 };
#define X(id, field, scale, name, setting, unit, words) \
        if (cg_json_int(ss->options, #field, 0, &n, err) < 0) \
                return -1; \
        if (n < 0) \
                return cg_fail(err, CG_E_INVAL, "\"%s\" is negative", #field); \
        ss->bounds.limits.field = (uint64_t)n;
        CG_LIMITS_TABLE(X)
#undef X
        if (ss->settings)
                cg_limits_fill(&ss->bounds.limits, &ss->settings->own.limits);
        return ss->sup->node.slots ? check_node(ss, err) : 0;
}

/* How @limit was set, or how the host could set it. */
static enum cg_limit_said source_of(const struct session *ss, enum cg_limit limit)
{
        static const char *const fields[] = {
#define X(id, field, scale, name, setting, unit, words) [CG_LIMIT_##id] = #field,
                CG_LIMITS_TABLE(X)
#undef X
        };
        bool option = json_integer_value(json_object_get(ss->options, fields[limit])) > 0;

        if (!option && cg_limit_get(&ss->bounds.limits, limit))
                return CG_SAID_SETTINGS;
        return json_is_true(json_object_get(ss->options, "cli_hints")) ? CG_SAID_CLI : CG_SAID_API;
}

int cg_sup_limits_check_least(const struct session *ss, struct cg_err *err)
{
        char where[64];

        for (enum cg_limit i = 0; i < CG_LIMITS; i++) {
                double least = cg_limit_least_for_kernel(i), figure = cg_limit_figure(&ss->bounds.limits, i);
                enum cg_limit_said said = source_of(ss, i);

                if (figure <= 0 || figure >= least)
                        continue;
                cg_limit_where(i, said, where, sizeof(where));
                if (said == CG_SAID_API && i == CG_LIMIT_MEMORY) { /* in bytes */
                        figure = (double)ss->bounds.limits.memory_bytes;
                        least *= (double)MIB;
                }
                return cg_fail(err, CG_E_INVAL,
                               "%s=%.0f is too small a limit for a kernel: the least that works is %.0f",
                               where, figure, least);
        }
        return 0;
}

void cg_sup_limits_explain_start(const struct session *ss, char *buf, size_t size)
{
        static const enum cg_limit starts[] = { CG_LIMIT_MEMORY, CG_LIMIT_PROCESSES, CG_LIMIT_OPEN_FILES };
        char where[64];
        size_t n = 0;

        buf[0] = '\0';
        for (size_t i = 0; i < CG_ARRAY_LEN(starts) && n < size; i++) {
                if (!cg_limit_get(&ss->bounds.limits, starts[i]))
                        continue;
                cg_limit_where(starts[i], source_of(ss, starts[i]), where, sizeof(where));
                n += (size_t)snprintf(buf + n, size - n, "%s%s",
                                      n ? ", " : "; a limit may be too small for what it loads: ", where);
        }
}

json_t *cg_sup_limits_spec(const struct session *ss)
{
        struct cg_sandbox_limits l = ss->bounds.limits;
        json_t *o = json_object();

        l.memory_bytes = limits_of(ss).memory_bytes;
#define X(id, field, scale, name, setting, unit, words) \
        json_object_set_new(o, #field, json_integer((json_int_t)l.field));
        CG_LIMITS_TABLE(X)
#undef X
        return o;
}

json_t *cg_sup_limits_info(const struct session *ss)
{
        static const enum cg_limit_by none[CG_LIMITS];
        struct cg_sandbox_limits l = limits_of(ss);

        return cg_limits_json(&l, ss->kernel ? ss->kernel->limits.by : none);
}

/* Reports a denial of the cell that runs. @source: as in docs/denials.md. */
static void report(struct session *ss, const char *source, enum cg_limit limit, enum cg_limit_by by,
                   const char *what)
{
        struct cg_sandbox_limits l = limits_of(ss);
        json_t *o = cg_limit_denial(&l, limit, source_of(ss, limit), by, what);

        if (!o)
                return;
        json_object_set_new(o, "source", json_string(source));
        cg_sup_denial_report(ss, cg_sup_running_cell(ss), o);
}

/* Describes why @limit ends something, and how to raise it. */
static void describe(const struct session *ss, enum cg_limit limit, enum cg_limit_by by, char *buf,
                     size_t size)
{
        struct cg_sandbox_limits l = limits_of(ss);
        char why[128], how[64];

        cg_limit_why(&l, limit, by, why, sizeof(why));
        cg_limit_how(limit, source_of(ss, limit), how, sizeof(how));
        snprintf(buf, size, "%s; %s", why, how);
}

/* ------------------------------------------------------------------ what a group counts */

static void on_cpu_timer(uv_timer_t *t)
{
        struct kernel *k = t->data;
        struct session *ss = k->session;
        struct cg_cgroup_files cpu = { .cpu = k->limits.files.cpu };
        struct cg_limit_counts counts;
        uint64_t limit_ms;

        if (!ss || k->state == K_DEAD)
                return;
        limit_ms = ss->bounds.limits.cpu_seconds * 1000;
        cg_cgroup_read(&cpu, &counts);
        if (counts.cpu_ms < limit_ms) {
                uv_timer_start(t, on_cpu_timer, (uint64_t)cg_limit_next_look_ms(limit_ms - counts.cpu_ms), 0);
                return;
        }
        k->limits.cpu_exceeded = true;
        cg_sup_kernel_kill(k);
}

static char *copy_path(const json_t *files, const char *name)
{
        const char *path = json_string_value(json_object_get(files, name));

        return cg_strdup(path);
}

void cg_sup_limits_spawned(struct kernel *k, const json_t *answer)
{
        const json_t *by = json_object_get(answer, "limits_by"), *files = json_object_get(answer, "counts");

        for (size_t i = 0; i < CG_LIMITS; i++)
                k->limits.by[i] = (enum cg_limit_by)json_integer_value(json_array_get(by, i));
        k->limits.in_group = json_is_true(json_object_get(answer, "group"));
        k->limits.files = (struct cg_cgroup_files){ copy_path(files, "memory"), copy_path(files, "processes"),
                                                    copy_path(files, "cpu") };
        if (k->limits.by[CG_LIMIT_CPU_TIME] != CG_BY_CGROUP1 &&
            k->limits.by[CG_LIMIT_CPU_TIME] != CG_BY_CGROUP2)
                return;
        uv_timer_init(&k->sup->loop, &k->limits.cpu_timer);
        k->limits.cpu_timer.data = k;
        k->limits.cpu_timer_open = true;
        uv_timer_start(&k->limits.cpu_timer, on_cpu_timer,
                       (uint64_t)cg_limit_next_look_ms(k->session->bounds.limits.cpu_seconds * 1000), 0);
}

void cg_sup_limits_release(struct kernel *k)
{
        free((char *)(uintptr_t)k->limits.files.memory);
        free((char *)(uintptr_t)k->limits.files.processes);
        free((char *)(uintptr_t)k->limits.files.cpu);
}

void cg_sup_limits_counted(struct kernel *k, const json_t *o)
{
        k->limits.counts.oom_kills = (uint64_t)json_integer_value(json_object_get(o, "oom_kills"));
        k->limits.counts.outer_kills = (uint64_t)json_integer_value(json_object_get(o, "outer_kills"));
        k->limits.counts.forks_denied = (uint64_t)json_integer_value(json_object_get(o, "forks_denied"));
        k->limits.counts.cpu_ms = (uint64_t)json_integer_value(json_object_get(o, "cpu_ms"));
}

/* ------------------------------------------------------------------ the end of a kernel */

bool cg_sup_limits_end(struct kernel *k, const struct cg_sandbox_status *st, char *buf, size_t size)
{
        struct session *ss = k->session;
        char memory[128], processes[64];
        struct cg_sandbox_limits l;
        enum cg_limit limit;

        if (k->limits.in_group &&
            !k->limits.has_counts) /* the zygote has ended without removing its groups */
                cg_cgroup_tidy(NULL);
        if (!ss)
                return false;
        l = limits_of(ss);
        if (k->limits.memory_exceeded) { /* see machine_memory.c: no limit of its own was reached */
                cg_limit_where(CG_LIMIT_MEMORY, source_of(ss, CG_LIMIT_MEMORY), memory, sizeof(memory));
                cg_limit_where(CG_LIMIT_PROCESSES, source_of(ss, CG_LIMIT_PROCESSES), processes,
                               sizeof(processes));
                snprintf(
                        buf, size,
                        "the machine is almost out of memory, and this kernel's processes used the most of those that may have %.0f "
                        "MiB each: use less, or lower %s or %s",
                        cg_limit_figure(&l, CG_LIMIT_MEMORY), memory, processes);
                return true;
        }
        if (k->limits.cpu_exceeded || (st->signal == SIGXCPU && ss->bounds.limits.cpu_seconds))
                limit = CG_LIMIT_CPU_TIME;
        else if (st->signal == SIGXFSZ && ss->bounds.limits.file_bytes)
                limit = CG_LIMIT_FILE_SIZE;
        /* Without a status, init was killed as well. */
        else if (k->limits.counts.oom_kills > k->limits.reported.oom_kills &&
                 (st->signal == SIGKILL || !st->magic))
                limit = CG_LIMIT_MEMORY;
        else
                return false;
        describe(ss, limit, k->limits.by[limit], buf, size);
        report(ss, "sandbox", limit, k->limits.by[limit], "the kernel was ended");
        return true;
}

/* ------------------------------------------------------------------ cells */

static bool begins(const char *text, const char *with)
{
        return strncmp(text, with, strlen(with)) == 0;
}

void cg_sup_limits_of_cell(struct session *ss, bool failed, const char *ename, const char *evalue,
                           const char *reply, size_t len)
{
        bool os_error = failed && strcmp(ename, "OSError") == 0;
        unsigned long long killed = 0, denied = 0;
        enum cg_limit limit = CG_LIMITS;
        struct kernel *k = ss->kernel;
        char what[100];

        /* Events of processes other than the main one since the last report. */
        if (k->limits.in_group) {
                cg_cgroup_read(&k->limits.files, &k->limits.counts);
                killed = k->limits.counts.oom_kills - k->limits.reported.oom_kills;
                denied = k->limits.counts.forks_denied - k->limits.reported.forks_denied;
                k->limits.reported = k->limits.counts;
        }
        if (killed) {
                snprintf(what, sizeof(what), "%llu process%s ended", killed,
                         killed == 1 ? " was" : "es were");
                report(ss, "sandbox", CG_LIMIT_MEMORY, k->limits.by[CG_LIMIT_MEMORY], what);
        }
        if (denied) {
                snprintf(what, sizeof(what), "%llu more %s refused", denied, denied == 1 ? "was" : "were");
                report(ss, "sandbox", CG_LIMIT_PROCESSES, k->limits.by[CG_LIMIT_PROCESSES], what);
        }

        /*
         * The limit of single processes that caused the exception. The kernel is untrusted, but
         * this only explains its exception: figure and mechanism come from the supervisor.
         */
        if (failed && strcmp(ename, "MemoryError") == 0 && limits_of(ss).memory_bytes)
                limit = CG_LIMIT_MEMORY;
        else if (os_error && begins(evalue, "[Errno 24]"))
                limit = CG_LIMIT_OPEN_FILES;
        else if (os_error && begins(evalue, "[Errno 27]") && ss->bounds.limits.file_bytes)
                limit = CG_LIMIT_FILE_SIZE;
        /*
         * A non-blocking socket raises the same exception: the limit caused it if the line that
         * failed starts a process.
         */
        else if (failed && ((strcmp(ename, "BlockingIOError") == 0 && begins(evalue, "[Errno 11]") &&
                             memmem(reply, len, "fork", 4)) ||
                            (strcmp(ename, "RuntimeError") == 0 && begins(evalue, "can't start new thread"))))
                limit = CG_LIMIT_PROCESSES;
        if (limit == CG_LIMITS || (limit == CG_LIMIT_PROCESSES && denied))
                return;
        report(ss, "exception", limit, limit == CG_LIMIT_MEMORY ? CG_BY_RLIMIT : k->limits.by[limit], NULL);
}

bool cg_sup_limits_output(struct session *ss, const struct cg_msg *m)
{
        uint64_t *sum, max = ss->bounds.limits.output_bytes;
        bool over;
        size_t len;

        if (!max)
                return true;
        sum = cg_sup_cell_output(ss, m->id);
        if (!sum)
                sum = &ss->queue.late_output;
        over = *sum > max;
        for (size_t i = 0; i + 1 < m->n_frames; i++) {
                cg_msg_raw(m, i, &len);
                *sum += len;
        }
        if (*sum > max && !over)
                report(ss, "sandbox", CG_LIMIT_OUTPUT, CG_BY_COUNT, "the rest is left out");
        return (m->type == CG_KERNEL_ERROR ? *sum / 2 : *sum) <= max;
}

/* ------------------------------------------------------------------ a session's time */

static void on_wall(uv_timer_t *t)
{
        struct session *ss = t->data;
        char text[300];

        describe(ss, CG_LIMIT_WALL_TIME, CG_BY_TIMER, text, sizeof(text));
        report(ss, "sandbox", CG_LIMIT_WALL_TIME, CG_BY_TIMER, "the session was ended");
        ss->sup->upper.session->end(ss, text);
}

void cg_sup_limits_opened(struct session *ss)
{
        if (!ss->bounds.limits.wall_seconds || ss->bounds.wall_runs)
                return;
        ss->bounds.wall_runs = true;
        cg_sup_timer_start(&ss->bounds.wall, on_wall, ss->bounds.limits.wall_seconds * 1000);
}
