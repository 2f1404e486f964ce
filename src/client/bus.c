/* libcellgate: the supervisor's events. */
#include "client/internal.h"

#include <sys/eventfd.h>

CG_API int cg_client_events_fd(struct cg_client *c, struct cg_err *err)
{
        return cg_client_event_fd(c, &c->events_fd, err);
}

CG_API int cg_client_events(struct cg_client *c, const struct cg_events_options *opts, char **ret,
                            struct cg_err *err)
{
        struct cg_events_options o = { 0 };
        json_t *body;
        uint64_t n;

        if (cg_take_options(opts, &o, sizeof(o), "cg_events_options", err) < 0)
                return CG_E_INVAL;
        body = json_pack("{s:I, s:I, s:s*}", "after", (json_int_t)o.after, "since_ms", (json_int_t)o.since_ms,
                         "namespace", o.namespace_name);
        if (!body)
                return cg_fail(err, CG_E_INVAL, "a namespace must be UTF-8");
        if (!o.after)
                json_object_del(body, "after");
        /* First, so that a change after the answer makes it readable again. */
        pthread_mutex_lock(&c->lock);
        if (c->events_fd >= 0 && !c->broken)
                eventfd_read(c->events_fd, &n);
        pthread_mutex_unlock(&c->lock);
        return cg_client_request(c, CG_HOST_EVENTS_GET, 0, body, c->timeout_ms, NULL, ret, err);
}

CG_API int cg_session_own_decision(struct cg_session *s, const char *server, const char *tool,
                                   const char *args, size_t len, int accept, const char *reason,
                                   struct cg_err *err)
{
        struct cg_out out = { .type = CG_HOST_OWN_DECIDED,
                              .session = s->number,
                              .raw = args,
                              .raw_len = len,
                              .has_raw = true };
        json_t *body = json_pack("{s:s, s:s, s:b, s:s}", "server", server, "tool", tool, "accept", accept,
                                 "reason", reason);

        if (!body)
                return cg_fail(err, CG_E_INVAL, "the decision must be UTF-8");
        return cg_client_request_out(s->client, &out, body, err);
}

CG_API int cg_session_add_event(struct cg_session *s, const char *type, const char *message, const char *data,
                                struct cg_err *err)
{
        cg_auto_json json_t *o = NULL;
        json_t *body;

        if (data && cg_json_object(data, strlen(data), "data", &o, err) < 0)
                return CG_E_INVAL;
        body = json_pack("{s:s, s:s, s:O*}", "type", type, "message", message, "data", o);
        if (!body)
                return cg_fail(err, CG_E_INVAL, "the event must be UTF-8");
        return cg_client_request(s->client, CG_HOST_EVENT_ADD, s->number, body, s->client->timeout_ms, NULL,
                                 NULL, err);
}
