/* cellgate-supervisor: events of all sessions. */
#include "supervisor/core/bus.h"

#include <stdarg.h>
#include <time.h>
#include "base/json.h"
#include "base/text.h"
#include "supervisor/core/host_link.h"
#include "supervisor/core/state.h"
#include "supervisor/core/sup.h"

#define MAX_BYTES   (4u << 20) /* of all texts that are kept */
#define MAX_MESSAGE 2000
#define MAX_TEXT    (32u << 10) /* of one event */
#define MAX_REPLY   256         /* events, so that a reply fits in its message */

/* What is kept of a session: beyond its limits the bus drops events of the one that has most. */
struct bus_share {
        LIST_ENTRY(bus_share) entry;
        TAILQ_HEAD(, bus_event) events;
        char session[33];
        size_t bytes;
};

struct bus_event {
        TAILQ_ENTRY(bus_event) entry, of_session;
        struct bus_share *share;
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
        LIST_INIT(&s->bus.shares);
}

static struct bus_share *share_of(struct bus *bus, const char *session)
{
        struct bus_share *share;

        LIST_FOREACH(share, &bus->shares, entry)
                if (strcmp(share->session, session) == 0)
                        return share;
        share = calloc(1, sizeof(*share));
        if (!share)
                return NULL;
        snprintf(share->session, sizeof(share->session), "%s", session);
        TAILQ_INIT(&share->events);
        LIST_INSERT_HEAD(&bus->shares, share, entry);
        return share;
}

static void drop(struct bus *bus, struct bus_event *e)
{
        struct bus_share *share = e->share;

        TAILQ_REMOVE(&bus->events, e, entry);
        TAILQ_REMOVE(&share->events, e, of_session);
        bus->n--;
        bus->bytes -= e->len;
        share->bytes -= e->len;
        free(e);
        if (!TAILQ_EMPTY(&share->events))
                return;
        LIST_REMOVE(share, entry);
        free(share);
}

/* The oldest event of the session that has most, so that one session cannot push out all others. */
static struct bus_event *least_needed(const struct bus *bus)
{
        const struct bus_share *share, *largest = LIST_FIRST(&bus->shares);

        LIST_FOREACH(share, &bus->shares, entry)
                if (share->bytes >= largest->bytes)
                        largest = share;
        return TAILQ_FIRST(&largest->events);
}

void cg_sup_bus_fini(struct sup *s)
{
        while (!TAILQ_EMPTY(&s->bus.events))
                drop(&s->bus, TAILQ_FIRST(&s->bus.events));
}

static void tell_hosts(struct sup *s)
{
        struct cg_out out = { .type = CG_HOST_EVENTS_CHANGED };
        struct host *h;

        if (!s->bus.n_waiting)
                return;
        LIST_FOREACH(h, &s->clients.hosts, entry) {
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
        struct bus_share *share = e ? share_of(bus, ss->id) : NULL;

        if (!share) {
                free(e);
                return;
        }
        *e = (struct bus_event){ .share = share, .seq = bus->seq, .time_ms = time_ms, .len = text->len };
        snprintf(e->namespace, sizeof(e->namespace), "%s", cg_sup_namespace(ss));
        memcpy(e->text, text->data, text->len + 1);
        TAILQ_INSERT_TAIL(&bus->events, e, entry);
        TAILQ_INSERT_TAIL(&share->events, e, of_session);
        bus->n++;
        bus->bytes += e->len;
        share->bytes += e->len;
        while (bus->n > bus->max || bus->bytes > MAX_BYTES)
                drop(bus, least_needed(bus));
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

        if (!ss->host && !ss->life.opened_ms)
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
                       kind, status ? ": " : " starts", status ?: "", cg_sep(*text, ", "), text);
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

/* Events between two numbers: what was dropped before the reader began is not lost. */
static uint64_t not_kept(const struct host *h, uint64_t last, uint64_t next)
{
        last = CG_MAX(last, h->events_from);
        return last < next ? next - 1 - last : 0;
}

/* Text, because thousands of events may have to be read. */
static void answer(struct host *h, uint64_t request, int64_t after, int64_t since_ms, const char *namespace)
{
        struct cg_out out = { .type = CG_HOST_EVENTS, .id = request };
        cg_auto_buf struct cg_buf b = { .max = MAX_BYTES + MAX_REPLY * (MAX_TEXT + 1) };
        struct bus *bus = &h->sup->bus;
        const struct bus_event *e = TAILQ_FIRST(&bus->events);
        uint64_t lost = 0, last = (uint64_t)after;
        size_t n = 0;

        /* A number greater than the last one comes from an earlier supervisor. */
        if (after < 0 || last > bus->seq) {
                last = e ? e->seq - 1 : bus->seq;
                h->events_from = bus->seq;
        }
        cg_buf_adds(&b, "{\"events\":[");
        for (; e && n < MAX_REPLY; e = TAILQ_NEXT(e, entry)) {
                if (e->seq <= last)
                        continue;
                lost += not_kept(h, last, e->seq);
                last = e->seq;
                if (e->time_ms < since_ms || (namespace && strcmp(namespace, e->namespace) != 0))
                        continue;
                cg_buf_addf(&b, "%s%s", cg_sep(n++, ","), e->text);
        }
        if (!e) {
                lost += not_kept(h, last, bus->seq + 1);
                last = bus->seq;
                bus->n_waiting += !h->waits_for_events;
                h->waits_for_events = true;
        }
        cg_buf_addf(&b, "],\"lost\":%llu,\"last\":%llu}", (unsigned long long)lost, (unsigned long long)last);
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
        } else {
                answer(h, m->id, after, since_ms, namespace);
        }
}
