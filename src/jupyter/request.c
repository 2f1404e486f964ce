/* Requests of clients, from their arrival to their `idle`. Runs in `cellgate jupyter`. */
#include "jupyter/internal.h"

/*
 * After this time the kernel replies with the completions that it has found so far. The first
 * completion of a kernel whose zygote has not prepared it reads the stubs of the standard library,
 * which takes a second, or several on a busy machine.
 */
#define COMPLETE_MS 5000
#define INSPECT_MS  3000
/* Callbacks of widgets may compute for long; users can interrupt them. */
#define COMM_MS (INT64_C(24) * 3600 * 1000)

static const struct kind_spec kinds[] = {
        { "execute_request", "execute_reply", KIND_EXECUTE, 0 },
        { "kernel_info_request", "kernel_info_reply", KIND_INFO, 0 },
        { "complete_request", "complete_reply", KIND_RELAY, COMPLETE_MS },
        { "inspect_request", "inspect_reply", KIND_RELAY, INSPECT_MS },
        { "is_complete_request", "is_complete_reply", KIND_RELAY, INSPECT_MS },
        { "history_request", "history_reply", KIND_RELAY, 0 },
        { "comm_info_request", "comm_info_reply", KIND_RELAY, 0 },
        { "comm_open", NULL, KIND_COMM, COMM_MS },
        { "comm_msg", NULL, KIND_COMM, COMM_MS },
        { "comm_close", NULL, KIND_COMM, COMM_MS },
        { "connect_request", "connect_reply", KIND_CONNECT, 0 },
        { "interrupt_request", "interrupt_reply", KIND_INTERRUPT, 0 },
        { "shutdown_request", "shutdown_reply", KIND_SHUTDOWN, 0 },
        { "debug_request", "debug_reply", KIND_SIDE, 0 },
        { "usage_request", "usage_reply", KIND_SIDE, 0 },
        { "create_subshell_request", "create_subshell_reply", KIND_SIDE, 0 },
        { "delete_subshell_request", "delete_subshell_reply", KIND_SIDE, 0 },
        { "list_subshell_request", "list_subshell_reply", KIND_SIDE, 0 },
};
static const struct kind_spec unknown_kind = { "unknown", NULL, KIND_UNKNOWN, 0 };

struct jreq *cg_jreq_new(struct front *f, enum cg_jchannel channel, struct cg_jmsg *msg)
{
        struct jreq *r = calloc(1, sizeof(*r));

        if (r)
                r->origin = cg_origin_new(0, msg->m.header);
        if (!r || !r->origin) {
                free(r);
                cg_jmsg_free(msg);
                return NULL;
        }
        r->spec = &unknown_kind;
        for (size_t i = 0; i < CG_ARRAY_LEN(kinds); i++)
                if (strcmp(msg->m.type, kinds[i].type) == 0)
                        r->spec = &kinds[i];
        r->channel = channel;
        r->msg = msg;
        return r;
}

void cg_jreq_begin(struct front *f, struct jreq *r)
{
        if (r->begun)
                return;
        r->begun = true;
        cg_jidentity_date(&f->me, r->started, sizeof(r->started));
        cg_iopub_status(&f->iopub, r->origin, "busy");
}

/* Takes @o. */
void cg_front_add_past(struct front *f, struct cg_origin *o)
{
        struct cg_origin **place = &f->past.origins[f->past.n++ % MAX_PAST];

        cg_origin_unref(*place);
        *place = o;
}

struct jreq *cg_in_flight_find(struct front *f, uint64_t number)
{
        const struct shell_queue *q;
        struct jreq *r;

        if (!number)
                return NULL;
        TAILQ_FOREACH(r, &f->in_flight, entry)
                if (r->origin->number == number)
                        return r;
        if (f->main.offered && f->main.offered->origin->number == number)
                return f->main.offered;
        LIST_FOREACH(q, &f->subshells, entry)
                if (q->offered && q->offered->origin->number == number)
                        return q->offered;
        return NULL;
}

void cg_queue_free_if_idle(struct front *f, struct shell_queue *q)
{
        if (!q->id || q->running || !TAILQ_EMPTY(&q->waiting))
                return;
        LIST_REMOVE(q, entry);
        free(q->id);
        free(q);
}

void cg_jreq_finish(struct front *f, struct jreq *r)
{
        struct shell_queue *q = r->queue;

        if (r->in_flight)
                TAILQ_REMOVE(&f->in_flight, r, entry);
        if (r->begun)
                cg_iopub_status(&f->iopub, r->origin, "idle");
        if (r->origin->number)
                cg_front_add_past(f, cg_origin_ref(r->origin));
        if (q) {
                q->running = NULL;
                cg_queue_free_if_idle(f, q);
        }
        cg_stdin_request_ended(f, r);
        cg_origin_unref(r->origin);
        cg_jmsg_free(r->msg);
        free(r);
}

void cg_jreq_end_with_error(struct front *f, struct jreq *r, const char *ename, const char *evalue)
{
        cg_jreq_begin(f, r);
        cg_jreq_fail(f, r, ename, evalue);
        cg_jreq_finish(f, r);
}
