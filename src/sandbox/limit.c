/* Limits: names, values and sentences. Runs in all processes that set, enforce or report them. */
#include "sandbox/limit.h"

#include "base/util.h"

/* Larger values are rejected as mistakes. */
#define FIGURE_MAX 1e9
/* A cgroup's period is 100 ms, of which the kernel grants at least 1 ms. */
#define CORES_MIN 0.01
/* Minimum interval between checks of processor time. */
#define LOOK_MIN_MS 100
#define LOOK_MAX_MS 60000

static const struct {
        size_t offset;
        uint64_t scale;
        const char *field, *name, *setting, *unit, *words;
} rows[] = {
#define X(id, field, scale, name, setting, unit, words) \
        [CG_LIMIT_##id] = { \
                offsetof(struct cg_sandbox_limits, field), scale, #field, name, setting, unit, words \
        },
        CG_LIMITS_TABLE(X)
#undef X
};

static uint64_t *field(struct cg_sandbox_limits *l, enum cg_limit limit)
{
        return (uint64_t *)(void *)((char *)l + rows[limit].offset);
}

const char *cg_limit_name(enum cg_limit limit)
{
        return rows[limit].name;
}

const char *cg_limit_setting(enum cg_limit limit)
{
        return rows[limit].setting;
}

const char *cg_limit_unit(enum cg_limit limit)
{
        return rows[limit].unit;
}

const char *cg_limit_by_name(enum cg_limit_by by)
{
        static const char *const names[] = {
                [CG_BY_NOTHING] = "nothing", [CG_BY_CGROUP2] = "cgroup v2",    [CG_BY_CGROUP1] = "cgroup v1",
                [CG_BY_RLIMIT] = "rlimit",   [CG_BY_PID_NS] = "pid namespace", [CG_BY_AFFINITY] = "affinity",
                [CG_BY_TIMER] = "timer",     [CG_BY_COUNT] = "count",
        };

        return names[by];
}

const char *cg_limit_scope(enum cg_limit limit, enum cg_limit_by by)
{
        switch (limit) {
        case CG_LIMIT_FILE_SIZE:
                return "file";
        case CG_LIMIT_OUTPUT:
                return "cell";
        case CG_LIMIT_WALL_TIME:
                return "session";
        case CG_LIMIT_PROCESSES: /* RLIMIT_NPROC counts a user in a user namespace */
                return "sandbox";
        default:
                return by == CG_BY_RLIMIT ? "process" : "sandbox";
        }
}

uint64_t cg_limit_get(const struct cg_sandbox_limits *l, enum cg_limit limit)
{
        return *(const uint64_t *)(const void *)((const char *)l + rows[limit].offset);
}

double cg_limit_figure(const struct cg_sandbox_limits *l, enum cg_limit limit)
{
        return (double)cg_limit_get(l, limit) / (double)rows[limit].scale;
}

void cg_limit_why(const struct cg_sandbox_limits *l, enum cg_limit limit, enum cg_limit_by by, char *buf,
                  size_t size)
{
        double figure = cg_limit_figure(l, limit);
        char unit[32] = "";

        if (limit != CG_LIMIT_PROCESSES && limit != CG_LIMIT_OPEN_FILES)
                snprintf(unit, sizeof(unit), " %s", rows[limit].unit);
        snprintf(buf, size, "%s limit of %.*g%s reached (%s)", rows[limit].words, figure < 1000 ? 3 : 12,
                 figure, unit, cg_limit_by_name(by));
}

void cg_limit_where(enum cg_limit limit, enum cg_limit_said said, char *buf, size_t size)
{
        if (said == CG_SAID_API)
                snprintf(buf, size, "%s", rows[limit].field);
        else
                snprintf(buf, size, "%s%s", said == CG_SAID_CLI ? "--limit " : "cellgate.limits.",
                         rows[limit].setting);
}

void cg_limit_how(enum cg_limit limit, enum cg_limit_said said, char *buf, size_t size)
{
        char where[64];

        cg_limit_where(limit, said, where, sizeof(where));
        snprintf(buf, size, "raise %s", where);
}

double cg_limit_least_for_kernel(enum cg_limit limit)
{
        /* for an interpreter, IPython and a small cell; measured: 48 MiB, 4 and 20 suffice */
        switch (limit) {
        case CG_LIMIT_MEMORY:
                return 64;
        case CG_LIMIT_PROCESSES:
                return 8;
        case CG_LIMIT_OPEN_FILES:
                return 32;
        default:
                return 0;
        }
}

const char *cg_limit_set(struct cg_sandbox_limits *l, enum cg_limit limit, double figure)
{
        double least = limit == CG_LIMIT_CORES ? CORES_MIN : 1;

        if (!(figure >= least))
                return limit == CG_LIMIT_CORES ? "Number must be greater than or equal to 0.01"
                                               : "Number must be greater than or equal to 1";
        if (figure > FIGURE_MAX)
                return "Number must be less than or equal to 1000000000";
        if (limit != CG_LIMIT_CORES && figure != (double)(uint64_t)figure)
                return "Expected integer, received float";
        *field(l, limit) = (uint64_t)(figure * (double)rows[limit].scale + 0.5);
        return NULL;
}

int64_t cg_limit_next_look_ms(uint64_t left_ms)
{
        long cpus = sysconf(_SC_NPROCESSORS_ONLN);
        uint64_t ms = left_ms / (uint64_t)CG_MAX(cpus, 1);

        if (ms < LOOK_MIN_MS)
                return LOOK_MIN_MS;
        return (int64_t)CG_MIN(ms, LOOK_MAX_MS);
}

void cg_limits_fill(struct cg_sandbox_limits *l, const struct cg_sandbox_limits *more)
{
        for (enum cg_limit i = 0; i < CG_LIMITS; i++)
                if (!*field(l, i))
                        *field(l, i) = cg_limit_get(more, i);
}
