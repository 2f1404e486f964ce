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
        JOB_PAUSED, /* of a cell that waits for an answer: it runs, and does not count */
};

struct queued_job {
        TAILQ_ENTRY(queued_job) entry; /* waiting: in the order of its session */
        struct session *ss;
        enum job_state state;
        bool is_command;
        int64_t since_ms;          /* in this state, but for pauses */
        void (*start)(void *data); /* it waited, and runs from now on */
        void *data;
};

/* Jobs of a session that wait, and those that run. */
struct session_jobs {
        TAILQ_HEAD(, queued_job) waiting;
        TAILQ_ENTRY(session) turn; /* while anything waits */
        size_t commands;           /* that run */
        size_t calls;              /* of tools, which were accepted and have not ended */
};

struct jobs {
        TAILQ_HEAD(, session) turns; /* sessions in which jobs wait; the first is the next */
        size_t n_turns;
        size_t max, max_commands, max_queue;       /* see cg_sup_jobs_init() */
        size_t running, commands, waiting, paused; /* commands: of those that run */
        uint64_t ended, refused;
        int64_t average_ms; /* of the jobs that have ended lately */
        uv_timer_t timer;
};

/* @texts: values of these variables, NULL where they are not set. CG_E_INVAL. */
#define CG_JOBS_LIMITS 4
extern const char *const cg_sup_jobs_variables[CG_JOBS_LIMITS];
int cg_sup_jobs_init(struct sup *s, const char *const texts[CG_JOBS_LIMITS], struct cg_err *err);
void cg_sup_job_init(struct queued_job *j, struct session *ss, bool is_command, void (*start)(void *data),
                     void *data);
/* True: it runs. False: it waits, and j->start is called later, from the loop. */
bool cg_sup_job_take(struct queued_job *j);
/* It has ended, or waits no longer. Nothing if it did neither. */
void cg_sup_job_end(struct queued_job *j);
/* Whether the session's cell waits for an answer or a tool may have changed. */
void cg_sup_jobs_answers(struct session *ss);
/* Refuses a job of a session whose queue is full (@n @what): *err says when to try again. */
void cg_sup_jobs_refuse(struct session *ss, size_t n, const char *what, struct cg_err *err);
/* For STATUS_IS. */
json_t *cg_sup_jobs_status(const struct sup *s);
