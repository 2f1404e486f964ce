/* Sandboxes of the decider, and the messages about them to relay and injector. */
#include "sandbox/egress/decider_int.h"

struct box *cg_decider_box_find(struct decider *d, uint32_t number)
{
        struct box *b;

        LIST_FOREACH(b, &d->boxes, entry)
                if (b->number == number)
                        break;
        return b;
}

struct box *cg_decider_box_find_sandbox(struct decider *d, json_int_t sandbox)
{
        struct box *b;

        LIST_FOREACH(b, &d->boxes, entry)
                if (b->sandbox == sandbox)
                        break;
        return b;
}

static void free_box(struct box *b)
{
        cg_decider_grants_forget(b);
        cg_policy_free(b->policy);
        free(b);
}

static void fill_options(struct cg_egress_msg *m, const struct box *b)
{
        const struct cg_policy_options *o = cg_policy_options(b->policy);
        const struct cg_settings_network *net = cg_policy_network(b->policy);

        m->box = b->number;
        m->head_ms = o->limits.head_ms;
        m->idle_ms = o->limits.idle_ms;
        m->connections = o->limits.connections;
        m->raw_http = net->http_proxy_port != 0;
        m->raw_socks = net->socks_proxy_port != 0;
        m->require_host_match = net->require_host_match;
        memcpy(m->text, o->strip, sizeof(o->strip));
}

int cg_decider_box_open(struct decider *d, json_int_t sandbox, json_t *policy, int secrets, const int *fds,
                        size_t n, struct cg_err *err)
{
        struct cg_egress_msg m = { .type = CG_EGRESS_BOX_OPEN };
        size_t n_boxes = 0;
        struct box *b;
        int r;

        LIST_FOREACH(b, &d->boxes, entry)
                n_boxes++;
        if (n_boxes >= CG_EGRESS_BOXES_MAX)
                return cg_fail(err, CG_E_LIMIT, "at most %d sandboxes", CG_EGRESS_BOXES_MAX);
        if (cg_decider_box_find_sandbox(d, sandbox))
                return cg_fail(err, CG_E_EXISTS, "this sandbox is open already");
        b = calloc(1, sizeof(*b));
        if (!b)
                return cg_fail(err, CG_E_NOMEM, "sandbox");
        b->sandbox = sandbox;
        b->number = ++d->next_box;
        r = cg_policy_read(policy, &b->policy, err);
        if (r == 0)
                fill_options(&m, b);
        /* The secrets are passed on unread, before the relay can accept a request. */
        if (r == 0 && secrets >= 0)
                r = cg_decider_send_injector(d, &m, &secrets, 1, err);
        b->has_secrets = r == 0 && secrets >= 0;
        if (r == 0)
                r = cg_decider_send_relay(d, &m, fds, n, err);
        if (r < 0) {
                free_box(b);
                return r;
        }
        LIST_INSERT_HEAD(&d->boxes, b, entry);
        return 0;
}

int cg_decider_box_change(struct decider *d, json_int_t sandbox, json_t *policy, struct cg_err *err)
{
        struct box *b = cg_decider_box_find_sandbox(d, sandbox);
        struct cg_egress_msg m = { .type = CG_EGRESS_BOX_OPTIONS };
        struct cg_policy *p;
        int r;

        if (!b)
                return cg_fail(err, CG_E_NOTFOUND, "no such sandbox");
        r = cg_policy_read(policy, &p, err);
        if (r < 0)
                return r;
        cg_policy_free(b->policy);
        b->policy = p;
        /* Answers given under other rules do not count any more. */
        cg_decider_grants_forget(b);
        fill_options(&m, b);
        return cg_decider_send_relay(d, &m, NULL, 0, err);
}

void cg_decider_box_close(struct decider *d, struct box *b)
{
        struct cg_egress_msg m = { .type = CG_EGRESS_BOX_CLOSE, .box = b->number };
        struct cg_err err;

        for (struct job *j = LIST_FIRST(&d->jobs), *next; j; j = next) {
                next = LIST_NEXT(j, entry);
                if (j->box == b) {
                        struct question *q = j->question;

                        b->n_jobs--;
                        j->box = NULL;
                        cg_decider_job_drop(j);
                        cg_decider_question_leave(d, q, false);
                }
        }
        LIST_REMOVE(b, entry);
        if (cg_decider_send_relay(d, &m, NULL, 0, &err) < 0 ||
            (b->has_secrets && cg_decider_send_injector(d, &m, NULL, 0, &err) < 0))
                cg_decider_end(d, 1);
        free_box(b);
}
