/*
 * Limits of a sandbox: their names, the mechanism that enforces each on this machine, and the text
 * that reports that one was reached.
 *
 * The best mechanism of the machine enforces a limit: a control group counts the sandbox as a
 * whole, an rlimit each process for itself. Every result names the mechanism.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include "base/err.h"
#include "base/ceilings.h"

enum cg_limit {
#define X(id, field, scale, name, setting, unit, words) CG_LIMIT_##id,
        CG_LIMITS_TABLE(X)
#undef X
                CG_LIMITS,
};

/* The mechanism that enforces a limit. */
enum cg_limit_by {
        CG_BY_NOTHING, /* no such limit, or nothing here can enforce it */
        CG_BY_CGROUP2,
        CG_BY_CGROUP1,
        CG_BY_RLIMIT,
        CG_BY_PID_NS,   /* the pid namespace's own pid_max */
        CG_BY_AFFINITY, /* a number of whole CPUs, which cannot be changed inside */
        CG_BY_TIMER,
        CG_BY_COUNT, /* of bytes, by the supervisor */
};

/* 0 means no limit, if not stated otherwise. */
struct cg_sandbox_limits {
        /*
         * of all processes together, by a cgroup; and of each one's data (RLIMIT_DATA), so that a
         * single allocation above the limit fails
         */
        uint64_t memory_bytes;
        uint64_t cores_milli; /* thousandths of a CPU's time */
        /* processes and threads in the sandbox; 0: 512. See layers: "process_limit" */
        uint64_t processes;
        uint64_t open_files; /* RLIMIT_NOFILE; 0: 4096. Never more than the caller's hard limit */
        uint64_t file_bytes; /* RLIMIT_FSIZE */
        /* RLIMIT_CPU, of each process; of all if a cgroup counts and the caller checks it */
        uint64_t cpu_seconds;
        /* Recorded only; the supervisor or monitor enforces them. */
        uint64_t output_bytes;
        uint64_t wall_seconds;
};

/* Counts of a group since it was made. */
struct cg_limit_counts {
        /* processes killed because of the group's own memory limit */
        uint64_t oom_kills;
        uint64_t outer_kills; /* processes killed because the machine or a parent group was out of memory */
        uint64_t forks_denied;
        uint64_t cpu_ms;
};

const char *cg_limit_name(enum cg_limit limit);    /* "memory" */
const char *cg_limit_setting(enum cg_limit limit); /* "memoryMb" */
const char *cg_limit_unit(enum cg_limit limit);
const char *cg_limit_by_name(enum cg_limit_by by); /* "cgroup v2"; "nothing" */
/* The unit that the limit applies to: "sandbox", "process", "file", "cell" or "session". */
const char *cg_limit_scope(enum cg_limit limit, enum cg_limit_by by);
uint64_t cg_limit_get(const struct cg_sandbox_limits *l, enum cg_limit limit);
/* The limit in its setting's unit; 0: none. Cores have a fraction. */
double cg_limit_figure(const struct cg_sandbox_limits *l, enum cg_limit limit);

/* "memory limit of 512 MiB reached (cgroup v1)" */
void cg_limit_why(const struct cg_sandbox_limits *l, enum cg_limit limit, enum cg_limit_by by, char *buf,
                  size_t size);
/* The interface by which a limit was set, or would be: errors and hints name what the user used. */
enum cg_limit_said {
        CG_SAID_SETTINGS, /* "cellgate.limits.memoryMb" */
        CG_SAID_CLI,      /* "--limit memoryMb" */
        CG_SAID_API,      /* "memory_bytes" */
};

void cg_limit_where(enum cg_limit limit, enum cg_limit_said said, char *buf, size_t size);
/* "raise " followed by the name. */
void cg_limit_how(enum cg_limit limit, enum cg_limit_said said, char *buf, size_t size);

/* The minimum with which a kernel starts, in the limit's unit; 0: any. */
double cg_limit_least_for_kernel(enum cg_limit limit);

/* Sets a limit to @figure in its unit. Return: NULL, or the error. */
const char *cg_limit_set(struct cg_sandbox_limits *l, enum cg_limit limit, double figure);
/*
 * Time until processor time is checked again, of which @left_ms are left: when all CPUs together
 * could have used it up.
 */
int64_t cg_limit_next_look_ms(uint64_t left_ms);
/* Sets limits that @l does not have to those of @more. */
void cg_limits_fill(struct cg_sandbox_limits *l, const struct cg_sandbox_limits *more);
