/* libcellgate: the events of a session that wait for the host. The client's lock is held. */
#include "client/internal.h"

/* The most pieces of error output of a file operation; one is a line. */
#define MAX_MESSAGES 1000

struct approval *cg_approval_free(struct approval *a)
{
        free(a->request);
        cg_event_free(a->call);
        free(a);
        return NULL;
}

void cg_session_forget_approval(struct cg_session *s, uint64_t id)
{
        for (struct approval **p = &s->approvals; *p; p = &(*p)->next) {
                if ((*p)->id == id) {
                        struct approval *a = *p;

                        *p = a->next;
                        cg_approval_free(a);
                        return;
                }
        }
}

/* Applies an event to the state of the session. False: out of memory. */
static bool note_event(struct cg_session *s, const struct cg_event *e)
{
        struct approval *a;

        if (cg_event_asks(e)) {
                a = calloc(1, sizeof(*a));
                if (!a)
                        return false;
                a->id = e->approval;
                a->type = e->type;
                if (e->type == CG_EVENT_SERVER_REQUEST && !(a->request = strdup(e->json))) {
                        free(a);
                        return false;
                }
                a->next = s->approvals;
                s->approvals = a;
                return true;
        }
        switch (e->type) {
        case CG_EVENT_APPROVAL_CLOSED:
                cg_session_forget_approval(s, e->approval);
                break;
        case CG_EVENT_SESSION_CLOSED:
                s->closed = true;
                if (s->client->tools)
                        CG_TOOLS_OPS(s->client)->end(s);
                break;
        case CG_EVENT_COMMAND_RESULT:
                for (struct command_input **p = &s->inputs; *p; p = &(*p)->next) {
                        if ((*p)->number == e->cell) {
                                struct command_input *i = *p;

                                *p = i->next;
                                free(i);
                                break;
                        }
                }
                break;
        default:
                break;
        }
        return true;
}

static bool is_of_command(const struct cg_event *e)
{
        return e->type == CG_EVENT_COMMAND_OUTPUT || e->type == CG_EVENT_COMMAND_RESULT;
}

void cg_session_update_fd(struct cg_session *s)
{
        bool readable = s->events || s->closed;
        uint64_t n = 1;

        if (readable == s->readable)
                return;
        s->readable = readable;
        if ((readable ? write(s->event_fd, &n, sizeof(n)) : read(s->event_fd, &n, sizeof(n))) < 0)
                errno = 0; /* does not happen: the counter is 0 or 1 */
}

static void wake(struct cg_session *s)
{
        if (s->client->reader.for_session != s || s->closed) /* else pop_event() follows */
                cg_session_update_fd(s);
        pthread_cond_broadcast(&s->cond); /* one may wait for events, and others to write input */
}

void cg_session_push(struct cg_session *s, struct cg_event *e)
{
        for (struct operation *op = s->operations; op; op = op->next) {
                if (op->number == e->cell && !e->foreign && is_of_command(e) && !op->done) {
                        if (e->type == CG_EVENT_COMMAND_OUTPUT && op->n++ > MAX_MESSAGES) {
                                cg_event_free(e);
                                return;
                        }
                        op->done |= e->type == CG_EVENT_COMMAND_RESULT;
                        *op->events_tail = e;
                        op->events_tail = &e->next;
                        pthread_cond_broadcast(&s->cond);
                        return;
                }
        }
        if (is_of_command(e) && e->own_window) { /* of an operation that was given up */
                cg_event_free(e);
                return;
        }
        if (s->closed || !note_event(s, e)) {
                cg_event_free(e);
                return;
        }
        *s->events_tail = e;
        s->events_tail = &e->next;
        s->unread += e->cost;
        wake(s);
}

void cg_session_input_taken(struct cg_session *s, uint64_t command, uint64_t bytes)
{
        for (struct command_input *i = s->inputs; i; i = i->next) {
                if (i->number == command)
                        i->waiting -= bytes < i->waiting ? (size_t)bytes : i->waiting;
        }
        pthread_cond_broadcast(&s->cond);
}

void cg_session_close_all(struct cg_client *c, const char *why)
{
        for (struct cg_session *s = c->sessions; s; s = s->next) {
                struct cg_event *e = cg_event_text_new(CG_EVENT_SESSION_CLOSED, why);

                if (e)
                        cg_session_push(s, e);
                s->closed = true;
                if (c->tools)
                        CG_TOOLS_OPS(c)->end(s);
                wake(s);
        }
}
