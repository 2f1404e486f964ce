/* cellgate-supervisor: events of all sessions. */
#include "supervisor/core/bus.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "base/json.h"
#include "base/text.h"
#include "base/util.h"
#include "supervisor/core/host_link.h"
#include "supervisor/core/state.h"
#include "supervisor/core/sup.h"

#define MAX_BYTES   (4u << 20) /* of all texts that are kept */
#define MAX_MESSAGE 2000
#define MAX_TEXT    (32u << 10) /* of one event */
#define MAX_REPLY   256         /* events, so that a reply fits in its message */

struct bus_event {
        TAILQ_ENTRY(bus_event) entry;
        uint64_t seq;
        int64_t time_ms; /* of CLOCK_REALTIME */
        char namespace[65];
        size_t len;
        char text[]; /* a JSON object */
};

static const struct {
        const char *name;
        bool clients_add;
} types[] = {
#define X(id, name, adds, what) [CG_BUS_##id] = { name, adds },
        CG_BUS_EVENTS(X)
#undef X
};

static int64_t realtime_ms(void)
{
        struct timespec t;

        clock_gettime(CLOCK_REALTIME, &t);
        return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* ------------------------------------------------------------------ what is kept */

void cg_sup_bus_init(struct sup *s)
{
        TAILQ_INIT(&s->bus.events);
}

static void drop_first(struct bus *bus)
{
        struct bus_event *e = TAILQ_FIRST(&bus->events);

        TAILQ_REMOVE(&bus->events, e, entry);
        bus->n--;
        bus->bytes -= e->len;
        free(e);
}

void cg_sup_bus_fini(struct sup *s)
{
        while (!TAILQ_EMPTY(&s->bus.events))
                drop_first(&s->bus);
}

static void tell_hosts(struct sup *s)
{
        struct cg_out out = { .type = CG_HOST_EVENTS_CHANGED };
        struct host *h;

        if (!s->bus.n_waiting)
                return;
        LIST_FOREACH(h, &s->hosts, entry) {
                if (!h->waits_for_events)
                        continue;
                h->waits_for_events = false;
                cg_sup_host_send(h, &out, NULL);
        }
        s->bus.n_waiting = 0;
}

static void keep(struct session *ss, int64_t time_ms, const struct cg_buf *text)
{
        struct bus *bus = &ss->sup->bus;
        struct bus_event *e = malloc(sizeof(*e) + text->len + 1);

        if (!e)
                return;
        *e = (struct bus_event){ .seq = bus->seq, .time_ms = time_ms, .len = text->len };
        snprintf(e->namespace, sizeof(e->namespace), "%s", cg_sup_namespace(ss));
        memcpy(e->text, text->data, text->len + 1);
        TAILQ_INSERT_TAIL(&bus->events, e, entry);
        bus->n++;
        bus->bytes += e->len;
        while (bus->n > bus->max || bus->bytes > MAX_BYTES)
                drop_first(bus);
}

/* ------------------------------------------------------------------ adding */

static void quote_message(struct cg_buf *b, const struct session *ss, char *message)
{
        cg_auto_buf struct cg_buf shown = { .max = MAX_TEXT };

        cg_secrets_redact(&ss->secrets, message);
        cg_text_render_as(&shown, message, strlen(message), MAX_MESSAGE, CG_TEXT_LINE);
        cg_buf_fail(b, cg_buf_end(&shown, NULL));
        cg_json_quote(b, cg_buf_str(&shown), shown.len);
}

static void add_data(struct cg_buf *b, const struct session *ss, json_t *data)
{
        cg_auto_free char *text = NULL;

        cg_secrets_redact_json(&ss->secrets, data);
        text = cg_json_text(data, NULL);
        if (text && b->len + strlen(text) + 2 < MAX_TEXT)
                cg_buf_adds(b, text);
        else
                cg_buf_adds(b, data ? "{\"left_out\":true}" : "{}");
}

/* Changes @message and @data. */
static void add(struct session *ss, enum cg_bus_event type, uint64_t id, json_t *data, char *message)
{
        cg_auto_buf struct cg_buf b = { .max = MAX_TEXT };
        struct bus *bus = &ss->sup->bus;
        int64_t ms = realtime_ms();
        char job[CG_JOB_ID];

        bus->seq++;
        cg_buf_addf(&b, "{\"type\":\"%s\",\"time\":%lld.%03lld,\"seq\":%llu,\"namespace\":\"%s\"",
                    types[type].name, (long long)ms / 1000, (long long)ms % 1000,
                    (unsigned long long)bus->seq, cg_sup_namespace(ss));
        cg_buf_addf(&b, ",\"session_id\":\"%s\",\"execution_id\":", ss->id);
        if (id) {
                cg_sup_job_id(ss, id, job);
                cg_buf_addf(&b, "\"%s\"", job);
        } else {
                cg_buf_adds(&b, "null");
        }
        cg_buf_adds(&b, ",\"message\":");
        quote_message(&b, ss, message);
        cg_buf_adds(&b, ",\"data\":");
        add_data(&b, ss, data);
        cg_buf_adds(&b, "}");
        if (cg_buf_end(&b, NULL) == 0)
                keep(ss, ms, &b);
        tell_hosts(ss->sup);
}

void cg_sup_bus_add(struct session *ss, enum cg_bus_event type, uint64_t id, json_t *data, const char *fmt,
                    ...)
{
        cg_auto_json json_t *owned = data;
        char message[MAX_MESSAGE];
        va_list ap;

        if (!ss->host && !ss->opened_ms)
                return;
        va_start(ap, fmt);
        vsnprintf(message, sizeof(message), fmt, ap);
        va_end(ap);
        add(ss, type, id, owned, message);
}

void cg_sup_bus_execution(struct session *ss, uint64_t id, const char *kind, const char *status,
                          const char *text)
{
        enum cg_bus_event type = CG_BUS_EXECUTION_FAILED;

        if (!status)
                type = CG_BUS_EXECUTION_STARTED;
        else if (strcmp(status, "ok") == 0)
                type = CG_BUS_EXECUTION_COMPLETED;
        else if (strcmp(status, "timeout") == 0)
                type = CG_BUS_EXECUTION_TIMEOUT;
        cg_sup_bus_add(ss, type, id, json_pack("{s:s, s:s*}", "kind", kind, "status", status), "%s%s%s%s%s",
                       kind, status ? ": " : " starts", status ?: "", *text ? ", " : "", text);
}

/* What DENIED says, without the parts that are known by the type or are only for its reader. */
static json_t *denied_data(const json_t *body)
{
        static const char *const keys[] = { "operation", "path", "host", "port", "limit", "rule" };
        json_t *data = json_object();

        for (size_t i = 0; i < CG_ARRAY_LEN(keys); i++)
                if (json_object_get(body, keys[i]))
                        json_object_set(data, keys[i], json_object_get(body, keys[i]));
        return data;
}

void cg_sup_bus_host_event(struct session *ss, const struct cg_out *event)
{
        static const struct {
                const char *operation;
                enum cg_bus_event type;
        } denied[] = { { "file-read", CG_BUS_FILE_DENIED },
                       { "file-write", CG_BUS_FILE_DENIED },
                       { "exec", CG_BUS_PROGRAM_REFUSED },
                       { "network-outbound", CG_BUS_EGRESS_DENIED },
                       { "limit", CG_BUS_RESOURCE_EXCEEDED } };
        cg_auto_json json_t *body = NULL;
        const char *operation, *text;

        if ((event->type != CG_HOST_DENIED && event->type != CG_HOST_KERNEL_DIED) ||
            cg_json_object(event->body, event->body_len, "event", &body, NULL) < 0)
                return;
        text = cg_json_text_of(body, "text");
        operation = cg_json_text_of(body, "operation");
        if (event->type == CG_HOST_KERNEL_DIED)
                cg_sup_bus_add(ss, CG_BUS_KERNEL_DIED, event->id, NULL, "%s", text);
        for (size_t i = 0; i < CG_ARRAY_LEN(denied); i++)
                if (strcmp(operation, denied[i].operation) == 0)
                        cg_sup_bus_add(ss, denied[i].type, event->id, denied_data(body), "%s", text);
}

/* ------------------------------------------------------------------ requests of hosts */

static int add_asked(struct session *ss, const struct cg_msg *m, struct cg_err *err)
{
        cg_auto_json json_t *body = NULL;
        const char *name, *message;
        json_t *data;

        if (cg_msg_json(m, &body, err) < 0 || cg_json_str(body, "type", "", &name, err) < 0 ||
            cg_json_str(body, "message", "", &message, err) < 0)
                return -1;
        data = json_object_get(body, "data");
        if (data && !json_is_object(data))
                return cg_fail(err, CG_E_INVAL, "the data of an event must be an object");
        for (size_t i = 0; i < CG_ARRAY_LEN(types); i++) {
                if (!types[i].clients_add || strcmp(types[i].name, name) != 0)
                        continue;
                cg_sup_bus_add(ss, (enum cg_bus_event)i, 0, json_incref(data), "%s", message);
                return 0;
        }
        return cg_fail(err, CG_E_INVAL,
                       "clients cannot add an event \"%.40s\": docs/events.md lists those that they can",
                       name);
}

void cg_sup_bus_add_asked(struct session *ss, struct host *h, const struct cg_msg *m)
{
        struct cg_out out = { .type = CG_HOST_DONE, .session = ss->number, .id = m->id };
        struct cg_err err;

        if (add_asked(ss, m, &err) < 0)
                cg_sup_host_failed(h, ss->number, m->id, &err);
        else
                cg_sup_host_send(h, &out, json_object());
}

/* Text, because thousands of events may have to be read. */
static void answer(struct host *h, uint64_t request, int64_t after, int64_t since_ms, const char *namespace)
{
        struct cg_out out = { .type = CG_HOST_EVENTS, .id = request };
        cg_auto_buf struct cg_buf b = { .max = MAX_BYTES + MAX_REPLY * (MAX_TEXT + 1) };
        struct bus *bus = &h->sup->bus;
        const struct bus_event *e = TAILQ_FIRST(&bus->events);
        uint64_t first = e ? e->seq : bus->seq + 1, last;
        size_t n = 0;

        /* A number greater than the last one comes from an earlier supervisor. */
        last = after >= 0 && (uint64_t)after <= bus->seq ? (uint64_t)after : first - 1;
        cg_buf_addf(&b, "{\"lost\":%llu,\"events\":[",
                    (unsigned long long)(last + 1 < first ? first - 1 - last : 0));
        for (last = CG_MAX(last, first - 1); e && n < MAX_REPLY; e = TAILQ_NEXT(e, entry)) {
                if (e->seq <= last)
                        continue;
                last = e->seq;
                if (e->time_ms < since_ms || (namespace && strcmp(namespace, e->namespace) != 0))
                        continue;
                cg_buf_addf(&b, "%s%s", n++ ? "," : "", e->text);
        }
        if (!e) {
                last = bus->seq; /* an event for which there was no memory is passed over */
                bus->n_waiting += !h->waits_for_events;
                h->waits_for_events = true;
        }
        cg_buf_addf(&b, "],\"last\":%llu}", (unsigned long long)last);
        if (cg_buf_end(&b, NULL) < 0) {
                cg_sup_host_failed(h, 0, request, &(struct cg_err){ .code = CG_E_NOMEM, .msg = "events" });
                return;
        }
        out.body = b.data;
        out.body_len = b.len;
        cg_sup_host_send(h, &out, NULL);
}

void cg_sup_bus_get(struct host *h, const struct cg_msg *m)
{
        cg_auto_json json_t *body = NULL;
        const char *namespace = NULL;
        int64_t after, since_ms;
        struct cg_err err;

        if (cg_msg_json(m, &body, &err) < 0 || cg_json_int(body, "after", -1, &after, &err) < 0 ||
            cg_json_int(body, "since_ms", 0, &since_ms, &err) < 0 ||
            cg_json_str(body, "namespace", NULL, &namespace, &err) < 0) {
                cg_sup_host_failed(h, 0, m->id, &err);
        } else if (h->place[0]) {
                cg_fail(&err, CG_E_STATE, "an approver can only decide");
                cg_sup_host_failed(h, 0, m->id, &err);
        } else {
                answer(h, m->id, after, since_ms, namespace);
        }
}
