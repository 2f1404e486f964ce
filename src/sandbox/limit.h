/*
 * Limits of a sandbox: their names, by which mechanism each is held here, and how its being reached
 * is told.
 *
 * A limit is held by the best that the machine offers: a control group counts the sandbox as a
 * whole, an rlimit each process for itself. Which one it is goes into every result; nothing is
 * promised that does not hold.
 */
#ifndef CG_SANDBOX_LIMIT_H
#define CG_SANDBOX_LIMIT_H

#include <stddef.h>
#include <stdint.h>
#include "base/err.h"

/*
 * id, field below, what one of the setting is in that field, name for programs, setting, unit,
 * words in a sentence
 */
#define CG_LIMITS_TABLE(X) \
        X(MEMORY, memory_bytes, 1048576, "memory", "memoryMb", "MiB", "memory") \
        X(CORES, cores_milli, 1000, "cores", "cores", "cores", "processor") \
        X(PROCESSES, processes, 1, "processes", "processes", "processes", "process") \
        X(OPEN_FILES, open_files, 1, "openFiles", "openFiles", "files", "open file") \
        X(FILE_SIZE, file_bytes, 1048576, "fileSize", "fileMb", "MiB", "file size") \
        X(OUTPUT, output_bytes, 1048576, "output", "outputMb", "MiB", "output") \
        X(CPU_TIME, cpu_seconds, 1, "cpuTime", "cpuSeconds", "s", "processor time") \
        X(WALL_TIME, wall_seconds, 1, "wallTime", "wallSeconds", "s", "wall time")

enum cg_limit {
#define X(id, field, scale, name, setting, unit, words) CG_LIMIT_##id,
        CG_LIMITS_TABLE(X)
#undef X
                CG_LIMITS,
};

/* What holds a limit. */
enum cg_limit_by {
        CG_BY_NOTHING, /* there is no such limit, or nothing here can hold it */
        CG_BY_CGROUP2,
        CG_BY_CGROUP1,
        CG_BY_RLIMIT,
        CG_BY_PID_NS,   /* the pid namespace's own pid_max */
        CG_BY_AFFINITY, /* so many whole CPUs, which cannot be changed inside */
        CG_BY_TIMER,
        CG_BY_COUNT, /* of bytes, by the supervisor */
};

/* 0 is no limit, but where something else is said. */
struct cg_sandbox_limits {
        /*
         * of all processes together by a cgroup; and of each one's data (RLIMIT_DATA), so that one
         * allocation that is too large fails where it is made
         */
        uint64_t memory_bytes;
        uint64_t cores_milli; /* thousandths of a CPU's time */
        /* processes and threads in the sandbox; 0: 512. See layers: "process_limit" */
        uint64_t processes;
        uint64_t open_files; /* RLIMIT_NOFILE; 0: 4096. Never more than the caller's hard limit */
        uint64_t file_bytes; /* RLIMIT_FSIZE */
        /*
         * RLIMIT_CPU, of each process; of all together where a cgroup counts and the caller looks
         * at it
         */
        uint64_t cpu_seconds;
        /* Recorded only: whoever watches over the sandbox holds them. */
        uint64_t output_bytes;
        uint64_t wall_seconds;
};

/* What a group has counted since it was made. */
struct cg_limit_counts {
        /* processes that were ended because the group's own memory was used up */
        uint64_t oom_kills;
        uint64_t outer_kills; /* because that of the machine, or of a group above, was */
        uint64_t forks_denied;
        uint64_t cpu_ms;
};

const char *cg_limit_name(enum cg_limit limit);    /* "memory" */
const char *cg_limit_setting(enum cg_limit limit); /* "memoryMb" */
const char *cg_limit_unit(enum cg_limit limit);
const char *cg_limit_by_name(enum cg_limit_by by); /* "cgroup v2"; "nothing" */
/* What is counted: "sandbox", "process", "file", "cell" or "session". */
const char *cg_limit_scope(enum cg_limit limit, enum cg_limit_by by);
uint64_t cg_limit_get(const struct cg_sandbox_limits *l, enum cg_limit limit);
/* In the limit's unit, as the setting has it; 0: there is none. Cores have a fraction. */
double cg_limit_figure(const struct cg_sandbox_limits *l, enum cg_limit limit);

/* "memory limit of 512 MiB reached (cgroup v1)" */
void cg_limit_why(const struct cg_sandbox_limits *l, enum cg_limit limit, enum cg_limit_by by, char *buf,
                  size_t size);
/* Where a limit was set, or would be: errors and hints name what the user used. */
enum cg_limit_said {
        CG_SAID_SETTINGS, /* "cellgate.limits.memoryMb" */
        CG_SAID_CLI,      /* "--limit memoryMb" */
        CG_SAID_API,      /* "memory_bytes" */
};

void cg_limit_where(enum cg_limit limit, enum cg_limit_said said, char *buf, size_t size);
/* "raise " and that. */
void cg_limit_how(enum cg_limit limit, enum cg_limit_said said, char *buf, size_t size);

/* The least with which a kernel starts, in the limit's unit; 0: any. */
double cg_limit_least_for_kernel(enum cg_limit limit);

/* Sets a limit to @figure in its unit. NULL; or what is wrong with it. */
const char *cg_limit_set(struct cg_sandbox_limits *l, enum cg_limit limit, double figure);
/*
 * How long to wait before processor time is looked at again, of which so much is left: when all
 * CPUs could have used it up.
 */
int64_t cg_limit_next_look_ms(uint64_t left_ms);
/* Whatever @l leaves open becomes what @more says. */
void cg_limits_fill(struct cg_sandbox_limits *l, const struct cg_sandbox_limits *more);

#endif
