/*
 * cellgate-supervisor: the hosts of a session. The host that opened it has slot 0; hosts that
 * attached have slots of their own, which are never used again in that session. A cell's number on
 * the kernel wire begins with its host's slot, so that messages about it are routed without a
 * table, however late they come.
 */
#include "supervisor/core/members.h"

#include <stdarg.h>
#include "base/json.h"
#include "supervisor/core/audit.h"
#include "supervisor/core/host_link.h"
#include "supervisor/core/kernel_link.h"
#include "supervisor/core/state.h"

/*
 * An attached host with so many unread bytes is detached: it must not delay the others, and events
 * must not be dropped silently.
 */
#define MEMBER_MAX  ((size_t)32 << 20)
#define MAX_MEMBERS 64
/* Added to the size of each event, so that many tiny ones are bounded as well. */
#define EVENT_COST 64

void cg_sup_pause_if_full(struct session *ss)
{
        uint64_t running = cg_sup_running_cell(ss);
        const struct member *mb;
        bool full = ss->unread >= CG_EVENT_WINDOW;

        LIST_FOREACH(mb, &ss->members, entry)
                full |= running && mb->unread >= CG_EVENT_WINDOW && mb->slot == CELL_SLOT(running);
        cg_sup_kernel_pause(ss->kernel, full);
}

/* Counts an event's bytes against the window of the host that opened the session. */
static void count_unread(struct session *ss, size_t bytes)
{
        ss->unread += bytes + EVENT_COST;
        cg_sup_pause_if_full(ss);
}

struct member *cg_sup_member(struct session *ss, const struct host *h)
{
        struct member *mb;

        LIST_FOREACH(mb, &ss->members, entry)
                if (mb->host == h)
                        break;
        return mb;
}

void cg_sup_credit(struct session *ss, struct member *mb, uint64_t bytes)
{
        size_t *unread = mb ? &mb->unread : &ss->unread;

        *unread = bytes < *unread ? *unread - (size_t)bytes : 0;
        cg_sup_pause_if_full(ss);
        ss->sup->upper.session->room(ss);
}

struct host *cg_sup_host_of(const struct session *ss, uint16_t slot)
{
        const struct member *mb;

        LIST_FOREACH(mb, &ss->members, entry)
                if (mb->slot == slot)
                        return mb->host;
        return slot == 0 ? ss->host : NULL;
}

bool cg_sup_has_room(const struct session *ss, uint16_t slot)
{
        const struct member *mb;

        LIST_FOREACH(mb, &ss->members, entry)
                if (mb->slot == slot)
                        return mb->unread < CG_EVENT_WINDOW;
        return ss->unread < CG_EVENT_WINDOW;
}

/* ------------------------------------------------------------------ events */

/*
 * An event is encoded once, for all hosts and for its size: @text (the caller frees it) becomes the
 * body of @out. Takes @body; without one, @out stays as it is. False: out of memory.
 */
static bool encode(struct session *ss, struct cg_out *out, json_t *body, char **text)
{
        *text = cg_json_text(body, &out->body_len);
        if (!body)
                return true;
        json_decref(body);
        out->body = *text;
        if (!*text)
                cg_log(&ss->sup->log, CG_LOG_WARN, "cannot send an event: out of memory");
        return *text;
}

/*
 * The bytes that the host will give credit for, without EVENT_COST: any other count would change
 * the window with every event.
 */
static size_t event_bytes(const struct cg_out *out, const struct cg_msg *m)
{
        size_t n = out->raw_len + out->body_len, len;

        for (size_t i = 0; m && i + 1 < m->n_frames; i++) {
                cg_msg_raw(m, i, &len);
                n += len;
        }
        return n;
}

static void send_one(struct host *h, const struct cg_out *out, struct cg_msg *m)
{
        if (m)
                cg_sup_host_forward(h, out, m);
        else
                cg_sup_host_send(h, out, NULL);
}

static void send_member(struct member *mb, const struct cg_out *event, const struct cg_msg *m)
{
        struct cg_out out = *event;
        cg_auto_msg struct cg_msg copy = CG_MSG_EMPTY;

        if (CELL_SLOT(out.id) == mb->slot)
                out.id = CELL_NUMBER(out.id);
        else if (out.id)
                out.flags |= CG_FLAG_FOREIGN;
        /* The bytes of the frames are shared, not copied. */
        for (size_t i = 0; m && i < m->n_frames; i++)
                copy.frames[copy.n_frames++] = cg_frame_ref(m->frames[i]);
        send_one(mb->host, &out, m ? &copy : NULL);
        mb->unread += event_bytes(event, m) + EVENT_COST;
}

static void drop_slow_members(struct session *ss)
{
        struct member *mb = LIST_FIRST(&ss->members);

        while (mb) {
                if (mb->unread <= MEMBER_MAX) {
                        mb = LIST_NEXT(mb, entry);
                        continue;
                }
                cg_sup_detach(ss, mb, "this client did not read the session's events");
                mb = LIST_FIRST(&ss->members); /* the results of its cells may have detached others */
        }
}

enum audience { TO_ALL, TO_OWN, TO_OTHERS };

/* @to: the host whose cell the event is about, or the others. */
static void send_event(struct session *ss, const struct cg_out *event, json_t *body, struct cg_msg *m,
                       enum audience to)
{
        struct cg_out out = *event;
        cg_auto_free char *text = NULL;
        struct member *mb;
        size_t bytes;

        if (!encode(ss, &out, body, &text))
                return;
        cg_sup_audit_event(ss, out.type, out.id, out.body, out.body_len);
        cg_sup_bus_host_event(ss, &out);
        out.session = ss->number;
        LIST_FOREACH(mb, &ss->members, entry)
                if (to == TO_ALL || (mb->slot == CELL_SLOT(out.id)) == (to == TO_OWN))
                        send_member(mb, &out, m);
        if (CELL_SLOT(out.id) == 0 && to != TO_OTHERS) {
                bytes = event_bytes(&out, m);
                send_one(ss->host, &out, m);
                count_unread(ss, bytes);
        }
}

void cg_sup_event(struct session *ss, const struct cg_out *event, json_t *body, struct cg_msg *m)
{
        bool alone = event->type == CG_HOST_REPLY || event->type == CG_HOST_DEBUG_EVENT;

        send_event(ss, event, body, m, alone ? TO_OWN : TO_ALL);
        drop_slow_members(ss);
}

void cg_sup_event_to_others(struct session *ss, const struct cg_out *event, json_t *body)
{
        send_event(ss, event, body, NULL, TO_OTHERS);
        drop_slow_members(ss);
}

void cg_sup_event_to_host(struct session *ss, const struct cg_out *event, json_t *body, struct cg_msg *m)
{
        send_event(ss, event, body, m, TO_OWN);
}

void cg_sup_event_text(struct session *ss, uint16_t type, uint64_t cell, const char *text)
{
        struct cg_out out = { .type = type, .id = cell };

        cg_sup_event(ss, &out, json_pack("{s:o}", "text", cg_sup_text_json(text)), NULL);
}

void cg_sup_notice(struct session *ss, const char *fmt, ...)
{
        char text[1000];
        va_list ap;

        va_start(ap, fmt);
        vsnprintf(text, sizeof(text), fmt, ap);
        va_end(ap);
        cg_sup_event_text(ss, CG_HOST_NOTICE, cg_sup_running_cell(ss), text);
}

/* ------------------------------------------------------------------ attached hosts */

struct member *cg_sup_member_new(struct session *ss, struct host *h, struct cg_err *err)
{
        struct member *mb;
        size_t n = 0;

        if (ss->host == h || cg_sup_member(ss, h)) {
                cg_fail(err, CG_E_EXISTS, "this client takes part in the session already");
                return NULL;
        }
        LIST_FOREACH(mb, &ss->members, entry)
                n++;
        if (n >= MAX_MEMBERS || ss->last_slot == UINT16_MAX) {
                cg_fail(err, CG_E_LIMIT, "at most %d clients can be attached to a session", MAX_MEMBERS);
                return NULL;
        }
        mb = calloc(1, sizeof(*mb));
        if (!mb) {
                cg_fail(err, CG_E_NOMEM, "attached client");
                return NULL;
        }
        mb->host = h;
        mb->slot = ++ss->last_slot;
        LIST_INSERT_HEAD(&ss->members, mb, entry);
        return mb;
}

void cg_sup_detach(struct session *ss, struct member *mb, const char *why)
{
        struct cg_out out = { .type = CG_HOST_SESSION_CLOSED, .session = ss->number };

        LIST_REMOVE(mb, entry);
        if (why)
                cg_sup_host_send(mb->host, &out, json_pack("{s:o}", "text", cg_sup_text_json(why)));
        if (!ss->life.ending)
                ss->sup->upper.session->member_gone(ss, mb->slot);
        free(mb);
        cg_sup_pause_if_full(ss);
}
