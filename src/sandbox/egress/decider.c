/*
 * The decider of cellgate-egress: may a connection be made, and if so, here it is. Speaks with the
 * host (control channel) and with the relay; reads nothing that a sandbox has written but host
 * names, which it parses itself. Here: the messages of the two, the verdict by name, timers, the
 * loop. The other files: decider_int.h.
 */
#include "sandbox/egress/decider_int.h"

#include <poll.h>

#include "base/fd.h"
#include "base/json.h"

#define TICK_MS  100
#define RELAY_MS 10000 /* until another part is ready */
#define BURST    64

static void send_error(struct decider *d, json_int_t sandbox, const struct cg_err *err)
{
        cg_decider_send_host(d,
                             json_pack("{s:s, s:I, s:i, s:s%}", "type", "error", "sandbox", sandbox, "code",
                                       err->code, "message", err->msg, strnlen(err->msg, sizeof(err->msg))));
}

/* ---- the relay */

static void refuse(struct decider *d, const struct cg_egress_msg *m, const char *why)
{
        struct cg_egress_msg a = {
                .type = CG_EGRESS_ANSWER, .box = m->box, .id = m->id, .result = CG_EGRESS_DENIED
        };
        struct cg_err err;

        snprintf(a.text, sizeof(a.text), "%s", why);
        if (cg_decider_send_relay(d, &a, NULL, 0, &err) < 0)
                cg_decider_end(d, 1);
}

static void on_ask(struct decider *d, const struct cg_egress_msg *m)
{
        struct box *b = cg_decider_box_find(d, m->box);
        struct cg_host host = { .is_addr = false };
        struct cg_decision dec;
        struct job *j;

        if (!b || m->kind >= CG_EGRESS_KINDS || (m->kind < CG_EGRESS_RAW_HTTP && m->port == 0)) {
                refuse(d, m, "sandbox policy unavailable");
                return;
        }
        /* Twice as many as there can be connections: lookups of cancelled ones go on. */
        if (b->n_jobs >= 2 * (size_t)cg_policy_options(b->policy)->limits.connections) {
                refuse(d, m, "too many lookups are under way already");
                return;
        }
        if (m->kind < CG_EGRESS_RAW_HTTP && cg_host_parse(m->host, strlen(m->host), &host, NULL) < 0) {
                refuse(d, m, "malformed host");
                return;
        }
        j = calloc(1, sizeof(*j));
        if (!j) {
                refuse(d, m, "out of memory");
                return;
        }
        j->d = d;
        j->box = b;
        j->id = m->id;
        j->kind = (enum cg_egress_kind)m->kind;
        j->host = host;
        j->port = m->port;
        j->fd = -1;
        LIST_INSERT_HEAD(&d->jobs, j, entry);
        b->n_jobs++;
        if (!uv_is_active((uv_handle_t *)&d->tick))
                uv_timer_start(&d->tick, d->tick.timer_cb, TICK_MS, TICK_MS);
        if (j->kind >= CG_EGRESS_RAW_HTTP) {
                cg_decider_dial_raw(j);
                return;
        }
        cg_policy_decide(b->policy, &j->host, j->port, &dec);
        snprintf(j->list, sizeof(j->list), "%s", dec.list ?: "");
        snprintf(j->rule, sizeof(j->rule), "%s", dec.rule ?: "");
        if (dec.verdict == CG_VERDICT_ALLOW)
                cg_decider_dial(j);
        else if (dec.verdict == CG_VERDICT_ASK)
                cg_decider_question_ask(j);
        else
                cg_decider_job_answer(j, CG_EGRESS_DENIED, dec.why);
}

/* The relay refused a request that names no host. The text is the relay's, not the sandbox's. */
static void on_note(struct decider *d, const struct cg_egress_msg *m)
{
        struct box *b = cg_decider_box_find(d, m->box);
        char text[sizeof(m->text)];

        if (!b)
                return;
        snprintf(text, sizeof(text), "%s", m->text);
        for (char *c = text; *c; c++)
                if (*c < 0x20 || *c >= 0x7f)
                        *c = '?';
        cg_decider_send_host(d, json_pack("{s:s, s:I, s:s, s:s, s:n, s:i, s:b, s:n, s:n, s:s, s:s}", "type",
                                          "decision", "sandbox", b->sandbox, "operation", "network-outbound",
                                          "protocol",
                                          m->kind < CG_EGRESS_KINDS ? cg_egress_protocols[m->kind] : "?",
                                          "host", "port", 0, "allowed", 0, "list", "rule", "why", text, "how",
                                          "send a request that a proxy takes"));
}

static void on_cancel(struct decider *d, const struct cg_egress_msg *m)
{
        struct job *j;

        LIST_FOREACH(j, &d->jobs, entry) {
                if (j->box && j->box->number == m->box && j->id == m->id && j->state != CANCELLED) {
                        struct question *q = j->question;

                        cg_decider_job_drop(j);
                        cg_decider_question_leave(d, q, true);
                        return;
                }
        }
}

static void on_relay(uv_poll_t *h, int status, int events)
{
        struct decider *d = h->data;
        struct cg_err err = { .code = 0 };
        struct cg_egress_msg m;
        int r = status < 0 ? CG_CLOSED : 0;

        if (status >= 0 && (events & UV_WRITABLE)) {
                for (struct job *j = LIST_FIRST(&d->jobs), *next; j; j = next) {
                        next = LIST_NEXT(j, entry);
                        if (j->state == ANSWERING && !cg_decider_job_send_answer(j))
                                break;
                }
        }
        for (int i = 0; i < BURST && r == 0 && !cg_decider_host_is_slow(d) && !d->ended; i++) {
                int fds[1];
                size_t n = 0;

                r = cg_egress_msg_recv(d->relay, &m, fds, &n, &err);
                if (r != 0)
                        break;
                switch (m.type) {
                case CG_EGRESS_ASK:
                        on_ask(d, &m);
                        break;
                case CG_EGRESS_CANCEL:
                        on_cancel(d, &m);
                        break;
                case CG_EGRESS_NOTE:
                        on_note(d, &m);
                        break;
                default:
                        cg_decider_end(d, 1);
                }
        }
        if (r == CG_CLOSED || r < 0) {
                cg_fail(&err, CG_E_CLOSED, "the relay has ended");
                send_error(d, 0, &err);
                cg_decider_end(d, 1);
        }
        cg_decider_watch(d);
}

/* ---- the host */

static int on_open(struct decider *d, const json_t *m, json_int_t sandbox, struct cg_err *err)
{
        int fds[CG_EGRESS_LISTENERS_MAX + 1];
        bool secrets = false;
        int64_t n;
        int r = cg_json_int(m, "listeners", 0, &n, err);

        if (r < 0)
                return r;
        if (n < 1 || n > CG_EGRESS_LISTENERS_MAX)
                return cg_fail(err, CG_E_INVAL, "open: 1 to %d listeners", CG_EGRESS_LISTENERS_MAX);
        if ((r = cg_json_bool(m, "secrets", false, &secrets, err)) < 0 ||
            (r = cg_chan_take_fds(&d->chan, (size_t)n + secrets, fds, err)) < 0)
                return r;
        r = cg_decider_box_open(d, sandbox, json_object_get(m, "policy"), secrets ? fds[n] : -1, fds,
                                (size_t)n, err);
        for (int64_t i = 0; i < n + secrets; i++)
                close(fds[i]);
        if (r < 0)
                return r;
        cg_decider_send_host(d, json_pack("{s:s, s:I}", "type", "opened", "sandbox", sandbox));
        return 0;
}

static int on_control_message(struct decider *d, const json_t *m, struct cg_err *err)
{
        const char *type;
        int64_t sandbox;
        struct box *b;
        int r;

        if (cg_json_str(m, "type", "", &type, err) < 0 || cg_json_int(m, "sandbox", 0, &sandbox, err) < 0)
                return CG_E_PARSE;
        if (strcmp(type, "answer") == 0) {
                r = cg_decider_question_on_answer(d, m, err);
        } else if (strcmp(type, "open") == 0) {
                r = on_open(d, m, sandbox, err);
        } else if (strcmp(type, "policy") == 0) {
                r = cg_decider_box_change(d, sandbox, json_object_get(m, "policy"), err);
        } else if (strcmp(type, "close") == 0) {
                b = cg_decider_box_find_sandbox(d, sandbox);
                if (b)
                        cg_decider_box_close(d, b);
                r = 0;
        } else {
                r = cg_fail(err, CG_E_PROTO, "unknown control message");
        }
        if (r < 0)
                send_error(d, sandbox, err);
        /* An invalid request is answered with an error; an unknown message ends the proxy. */
        return r == CG_E_PROTO ? r : 0;
}

/* CG_TIMEOUT: no whole message is there. CG_CLOSED: the host has ended. */
static int serve_control(struct decider *d, int events, struct cg_err *err)
{
        int r;

        if ((events & UV_WRITABLE) && cg_chan_flush(&d->chan, err) < 0)
                return CG_CLOSED;
        if ((events & UV_READABLE) && (r = cg_chan_read(&d->chan, err)) != 0)
                return r;
        while (!d->ended) {
                cg_auto_json json_t *m = NULL;

                if ((r = cg_chan_next(&d->chan, &m, err)) != 0 || (r = on_control_message(d, m, err)) != 0)
                        return r;
        }
        return 0;
}

static void on_control(uv_poll_t *h, int status, int events)
{
        struct decider *d = h->data;
        struct cg_err err = { .code = 0 };
        int r = status < 0 ? CG_CLOSED : serve_control(d, events, &err);

        if (r == CG_CLOSED) {
                cg_decider_end(d, 0);
                return;
        }
        if (r < 0) {
                send_error(d, 0, &err);
                cg_decider_end(d, 1);
                return;
        }
        cg_decider_watch(d);
}

/* ---- time */

static void on_tick(uv_timer_t *t)
{
        struct decider *d = t->data;
        int64_t now = cg_now_ms();

        cg_decider_questions_expire(d, now);
        cg_decider_dial_expire(d, now); /* only now: an answer above may have ended some */
        if (LIST_EMPTY(&d->jobs))
                uv_timer_stop(&d->tick);
        cg_decider_watch(d);
}

/* ---- the beginning */

/* The injector sends nothing after READY, so this is its end. */
static void on_injector(uv_poll_t *h, int status, int events)
{
        struct decider *d = h->data;
        struct cg_err err;

        cg_fail(&err, CG_E_CLOSED, "the injector has ended");
        send_error(d, 0, &err);
        cg_decider_end(d, 1);
}

/* Waits until the process of @sock is locked down: before that nothing may connect. */
static int wait_for_part(int sock, const char *name, struct cg_err *err)
{
        struct cg_egress_msg m;
        size_t n_fds = 0;

        if (cg_wait_fd(sock, POLLIN, RELAY_MS, err) != 0 ||
            cg_egress_msg_recv(sock, &m, NULL, &n_fds, err) != 0 || m.type != CG_EGRESS_READY)
                return cg_fail(err, CG_E_CLOSED, "the %s could not be locked down", name);
        return 0;
}

int cg_decider_run(int control, int relay, int injector)
{
        struct decider d = {
                .control_events = -1,
                .relay_events = -1,
                .relay = relay,
                .injector = injector,
                .on_control = on_control,
                .on_relay = on_relay,
        };
        struct cg_err err = { .code = 0 };
        char layers[128];

        cg_chan_init(&d.chan, control);
        if (uv_loop_init(&d.loop) < 0 || uv_poll_init(&d.loop, &d.control_poll, control) < 0 ||
            uv_poll_init(&d.loop, &d.relay_poll, relay) < 0 ||
            uv_poll_init(&d.loop, &d.injector_poll, injector) < 0 || uv_timer_init(&d.loop, &d.tick) < 0)
                return 1;
        d.loop.data = &d;
        d.control_poll.data = d.relay_poll.data = d.injector_poll.data = d.tick.data = &d;
        d.tick.timer_cb = on_tick;
        if (cg_egress_lock_decider(NULL, layers, sizeof(layers), &err) < 0 ||
            wait_for_part(relay, "relay", &err) < 0 || wait_for_part(injector, "injector", &err) < 0) {
                send_error(&d, 0, &err);
                return 1;
        }
        cg_decider_send_host(&d, json_pack("{s:s, s:s}", "type", "ready", "layers", layers));
        cg_decider_watch(&d);
        uv_poll_start(&d.injector_poll, UV_READABLE | UV_DISCONNECT, on_injector);
        if (!d.ended)
                uv_run(&d.loop, UV_RUN_DEFAULT);
        return d.status;
}
