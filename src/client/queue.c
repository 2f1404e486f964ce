/* libcellgate: the events of a session that wait for the host. The client's lock is held. */
#include "client/internal.h"

#include <sys/eventfd.h>

/* The most pieces of error output of a file operation; one is a line. */
#define MAX_MESSAGES 1000

struct approval *cg_approval_free(struct approval *a)
{
        free(a->request);
        cg_event_free(a->call);
        free(a);
        return NULL;
}

struct approval *cg_session_approval(const struct cg_session *s, uint64_t id)
{
        struct approval *a = s->approvals;

        while (a && a->id != id)
                a = a->next;
        return a;
}

void cg_session_forget_approval(struct cg_session *s, uint64_t id)
{
        struct approval *a = cg_session_approval(s, id);

        if (!a)
                return;
        CG_UNLINK(s->approvals, a, next);
        cg_approval_free(a);
}

struct command_input *cg_command_input(const struct cg_session *s, uint64_t number)
{
        struct command_input *i = s->inputs;

        while (i && i->number != number)
                i = i->next;
        return i;
}

/* Applies an event to the state of the session. False: out of memory. */
static bool note_event(struct cg_session *s, const struct cg_event *e)
{
        struct command_input *input;
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
                input = cg_command_input(s, e->cell);
                CG_UNLINK(s->inputs, input, next);
                free(input);
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
        uint64_t n;

        if (readable && !s->readable)
                eventfd_write(s->event_fd, 1);
        else if (!readable && s->readable)
                eventfd_read(s->event_fd, &n);
        s->readable = readable;
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
        struct command_input *i = cg_command_input(s, command);

        if (i)
                i->waiting -= CG_MIN(bytes, i->waiting);
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
