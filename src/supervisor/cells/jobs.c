/*
 * cellgate-supervisor: the queue. A waiting job is in the list of its session, and sessions take
 * turns: once a job of a session has started, the session is last in line. Queued jobs are started
 * from the loop, never while another job ends.
 *
 * A cell that waits for an answer or a tool gives up its slot, and takes one at once when it
 * continues: waiting for a slot could deadlock with jobs that need what the cell holds. So more
 * jobs than the limit may run, and none is started until fewer do. A hostile kernel can use this to
 * run outside of the queue; the limits of its sandbox bound what it uses, not the queue.
 */
#include "supervisor/cells/jobs.h"

#include "base/ceilings.h"
#include "supervisor/core/state.h"
#include "supervisor/core/sup.h"

/*
 * Many more than processors: a cell that sleeps, serves or waits for the network takes none, and a
 * notebook must not wait for four others. The limits of the sandboxes divide the machine.
 */
#define MAX_CONCURRENT 256
#define MAX_COMMANDS   16
#define MAX_LIMIT      4096
/* Enough for minutes of many sessions; cg_sup_bus_add() limits their bytes as well. */
#define MAX_EVENTS 4096
/* Bounds of the time after which a refused host should try again. */
#define RETRY_MIN_MS 100
#define RETRY_MAX_MS 60000

const char *const cg_sup_jobs_variables[CG_JOBS_LIMITS] = { "CELLGATE_JOBS_MAX_CONCURRENT_JOBS",
                                                            "CELLGATE_JOBS_MAX_COMMANDS_PER_SESSION",
                                                            "CELLGATE_JOBS_MAX_QUEUE",
                                                            "CELLGATE_JOBS_MAX_EVENTS" };

static int read_limit(const char *name, const char *text, size_t def, size_t *ret, struct cg_err *err)
{
        char *end = NULL;
        long n;

        *ret = def;
        if (!text)
                return 0;
        n = strtol(text, &end, 10);
        if (!*text || *end || n < 1 || n > MAX_LIMIT)
                return cg_fail(err, CG_E_INVAL, "%s must be a number from 1 to %d, not \"%.40s\"", name,
                               MAX_LIMIT, text);
        *ret = (size_t)n;
        return 0;
}

static void start_jobs(uv_timer_t *t);

int cg_sup_jobs_init(struct sup *s, const char *const texts[CG_JOBS_LIMITS], struct cg_err *err)
{
        static const size_t defaults[] = { MAX_CONCURRENT, MAX_COMMANDS, CG_MAX_QUEUE, MAX_EVENTS };
        size_t *limits[] = { &s->jobs.max, &s->jobs.max_commands, &s->jobs.max_queue, &s->bus.max };

        TAILQ_INIT(&s->jobs.turns);
        uv_timer_init(&s->loop, &s->jobs.timer);
        s->jobs.timer.data = s;
        for (size_t i = 0; i < CG_JOBS_LIMITS; i++)
                if (read_limit(cg_sup_jobs_variables[i], texts[i], defaults[i], limits[i], err) < 0)
                        return -1;
        return 0;
}

void cg_sup_job_init(struct queued_job *j, struct session *ss, bool is_command, void (*start)(void *data),
                     void *data)
{
        *j = (struct queued_job){ .ss = ss, .is_command = is_command, .start = start, .data = data };
}

/* Commands may run for ever, so the last slot is for cells. */
static bool may_start(const struct queued_job *j)
{
        const struct jobs *q = &j->ss->sup->jobs;

        if (q->running >= q->max)
                return false;
        return !j->is_command ||
               (j->ss->jobs.commands < q->max_commands && (q->commands + 1 < q->max || q->max == 1));
}

static void mark_running(struct queued_job *j)
{
        j->state = JOB_RUNS;
        j->since_ms = cg_now_ms();
        j->ss->sup->jobs.running++;
        j->ss->sup->jobs.commands += j->is_command;
        j->ss->jobs.commands += j->is_command;
}

static struct queued_job *next_job(const struct jobs *q)
{
        const struct session *ss;
        struct queued_job *j;

        if (q->running >= q->max)
                return NULL;
        TAILQ_FOREACH(ss, &q->turns, jobs.turn)
                TAILQ_FOREACH(j, &ss->jobs.waiting, entry)
                        if (may_start(j))
                                return j;
        return NULL;
}

static void schedule_start(struct sup *s)
{
        if (!TAILQ_EMPTY(&s->jobs.turns) && !uv_is_active((uv_handle_t *)&s->jobs.timer) && !s->stopping)
                uv_timer_start(&s->jobs.timer, start_jobs, 0, 0);
}

static void dequeue(struct queued_job *j)
{
        struct session *ss = j->ss;
        struct jobs *q = &ss->sup->jobs;

        TAILQ_REMOVE(&ss->jobs.waiting, j, entry);
        TAILQ_REMOVE(&q->turns, ss, jobs.turn);
        q->waiting--;
        if (TAILQ_EMPTY(&ss->jobs.waiting))
                q->n_turns--;
        else
                TAILQ_INSERT_TAIL(&q->turns, ss, jobs.turn);
}

static void start_jobs(uv_timer_t *t)
{
        struct sup *s = t->data;
        struct queued_job *j;

        while ((j = next_job(&s->jobs))) {
                dequeue(j);
                mark_running(j);
                j->start(j->data);
        }
}

bool cg_sup_job_take(struct queued_job *j)
{
        struct session *ss = j->ss;
        struct jobs *q = &ss->sup->jobs;

        j->since_ms = cg_now_ms();
        if (TAILQ_EMPTY(&q->turns) && may_start(j)) {
                mark_running(j);
                return true;
        }
        j->state = JOB_WAITS;
        if (TAILQ_EMPTY(&ss->jobs.waiting)) {
                TAILQ_INSERT_TAIL(&q->turns, ss, jobs.turn);
                q->n_turns++;
        }
        TAILQ_INSERT_TAIL(&ss->jobs.waiting, j, entry);
        q->waiting++;
        schedule_start(ss->sup);
        return false;
}

void cg_sup_job_end(struct queued_job *j)
{
        enum job_state state = j->state;
        struct jobs *q;

        if (state == JOB_NONE)
                return;
        q = &j->ss->sup->jobs;
        j->state = JOB_NONE;
        if (state == JOB_WAITS) {
                dequeue(j);
                return;
        }
        q->running -= state == JOB_RUNS;
        q->paused -= state == JOB_PAUSED;
        q->commands -= j->is_command;
        j->ss->jobs.commands -= j->is_command;
        q->ended++;
        q->average_ms += (cg_now_ms() - j->since_ms - q->average_ms) / 8;
        schedule_start(j->ss->sup);
}

void cg_sup_jobs_answers(struct session *ss)
{
        struct queued_job *j = &ss->queue.job;
        struct jobs *q = &ss->sup->jobs;
        bool waiting = ss->asks.open || ss->jobs.calls;

        if (j->state == JOB_RUNS && waiting) {
                j->state = JOB_PAUSED;
                q->running--;
                q->paused++;
                schedule_start(ss->sup);
        } else if (j->state == JOB_PAUSED && !waiting) {
                j->state = JOB_RUNS;
                q->running++;
                q->paused--;
        }
}

void cg_sup_jobs_refuse(struct session *ss, size_t n, const char *what, struct cg_err *err)
{
        struct jobs *q = &ss->sup->jobs;
        /* One job of each waiting session, max at a time, runs before the session's next one. */
        int64_t ms = q->average_ms * (int64_t)(1 + q->n_turns / q->max);

        q->refused++;
        ms = CG_MAX(ms, RETRY_MIN_MS);
        ms = CG_MIN(ms, RETRY_MAX_MS);
        cg_fail(err, CG_E_LIMIT, "%zu %s; try again in %.1f s", n, what, (double)ms / 1000);
        cg_sup_bus_add(ss, CG_BUS_QUEUE_BACKPRESSURE, 0,
                       json_pack("{s:I, s:I}", "waiting", (json_int_t)n, "retry_ms", (json_int_t)ms), "%s",
                       err->msg);
}

json_t *cg_sup_jobs_status(const struct sup *s)
{
        const struct jobs *q = &s->jobs;

        return json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "running", (json_int_t)q->running,
                         "waiting", (json_int_t)q->waiting, "paused", (json_int_t)q->paused, "ended",
                         (json_int_t)q->ended, "refused", (json_int_t)q->refused, "average_ms",
                         (json_int_t)q->average_ms, "max_concurrent_jobs", (json_int_t)q->max,
                         "max_commands_per_session", (json_int_t)q->max_commands, "max_queue",
                         (json_int_t)q->max_queue);
}
