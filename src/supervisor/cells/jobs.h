/*
 * The queue of a supervisor: how many cells and commands of all sessions run at once. A session's
 * cells are one job at a time, which its subshells share; each command is one.
 */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>
#include <uv.h>
#include "base/err.h"

struct session;
struct sup;

enum job_state {
        JOB_NONE,
        JOB_WAITS,
        JOB_RUNS,
        JOB_PAUSED, /* a running cell that waits for an answer or a tool: it has no slot */
};

struct queued_job {
        TAILQ_ENTRY(queued_job) entry; /* waiting: in the order of its session */
        struct session *ss;
        enum job_state state;
        bool is_command;
        int64_t since_ms;          /* when it began to wait, or to run */
        void (*start)(void *data); /* called when a job that waited starts to run */
        void *data;
};

/* Waiting and running jobs of a session. */
struct session_jobs {
        TAILQ_HEAD(, queued_job) waiting;
        TAILQ_ENTRY(session) turn; /* while anything waits */
        size_t commands;           /* running ones */
        size_t calls;              /* accepted tool calls that have not ended */
};

struct jobs {
        TAILQ_HEAD(, session) turns; /* sessions with waiting jobs, in the order of their turns */
        size_t n_turns;
        size_t max, max_commands, max_queue;       /* see cg_sup_jobs_init() */
        size_t running, commands, waiting, paused; /* commands: running ones */
        uint64_t ended, refused;
        int64_t average_ms; /* moving average of the time that jobs ran */
        uv_timer_t timer;
};

/* @texts: values of these variables, NULL where they are not set. CG_E_INVAL. */
#define CG_JOBS_LIMITS 4
extern const char *const cg_sup_jobs_variables[CG_JOBS_LIMITS];
int cg_sup_jobs_init(struct sup *s, const char *const texts[CG_JOBS_LIMITS], struct cg_err *err);
void cg_sup_job_init(struct queued_job *j, struct session *ss, bool is_command, void (*start)(void *data),
                     void *data);
/* True: the job runs. False: it is queued, and j->start is called later, from the loop. */
bool cg_sup_job_take(struct queued_job *j);
/* Ends a running job, or removes a waiting one from the queue; else a no-op. */
void cg_sup_job_end(struct queued_job *j);
/* Call when the session's cell may have begun or ended to wait for an answer or a tool. */
void cg_sup_jobs_answers(struct session *ss);
/* Refuses a job of a session whose queue is full (@n @what): *err says when to try again. */
void cg_sup_jobs_refuse(struct session *ss, size_t n, const char *what, struct cg_err *err);
/* For STATUS_IS. */
json_t *cg_sup_jobs_status(const struct sup *s);
