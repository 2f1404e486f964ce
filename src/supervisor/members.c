/*
 * cellgate-supervisor: who takes part in a session. The host that opened it has slot 0; hosts that
 * attached have slots of their own, which are never used again in that session. A cell's number on
 * the kernel wire begins with its host's slot, so that whatever the kernel says about it, however
 * late, finds its way without a table.
 */
#include "supervisor/supervisor.h"

#include <stdio.h>
#include <string.h>

/*
 * An attached host that lets so much wait is detached: it must not hold up the others, and what it
 * would miss it must know.
 */
#define MEMBER_MAX  ((size_t)32 << 20)
#define MAX_MEMBERS 64
/* What an event costs beside its bytes, so that many tiny ones are bounded as well. */
#define EVENT_COST 64

static bool is_full(const struct session *ss)
{
        uint64_t running = cells_running(ss);

        if (ss->unread >= CG_EVENT_WINDOW)
                return true;
        for (const struct member *mb = ss->members; mb; mb = mb->next)
                if (mb->unread >= CG_EVENT_WINDOW && running && mb->slot == CELL_SLOT(running))
                        return true;
        return false;
}

void session_pause_if_full(struct session *ss)
{
        kernel_pause(ss->kernel, is_full(ss));
}

void session_sent(struct session *ss, size_t bytes)
{
        ss->unread += bytes + EVENT_COST;
        session_pause_if_full(ss);
}

struct member *session_member(struct session *ss, const struct host *h)
{
        struct member *mb;

        for (mb = ss->members; mb && mb->host != h; mb = mb->next)
                ;
        return mb;
}

void session_credit(struct session *ss, struct member *mb, uint64_t bytes)
{
        size_t *unread = mb ? &mb->unread : &ss->unread;

        *unread = bytes < *unread ? *unread - (size_t)bytes : 0;
        session_pause_if_full(ss);
}

/* ------------------------------------------------------------------ events */

/*
 * Answers and questions are their own host's; the rest is to be seen by everyone who looks into the
 * session.
 */
static bool is_public(uint16_t type)
{
        return type != CG_HOST_REPLY && type != CG_HOST_INPUT_REQUEST && type != CG_HOST_INPUT_CLOSED &&
               type != CG_HOST_DEBUG_EVENT;
}

/*
 * What the host will give credit for, but the fixed part: else the window would grow or shrink with
 * every event.
 */
static size_t event_bytes(const json_t *body, const struct cg_out *out, const struct cg_msg *m)
{
        size_t n = out->raw_len + (body ? json_dumpb(body, NULL, 0, JSON_COMPACT | JSON_ENSURE_ASCII) : 0),
               len;

        for (size_t i = 0; m && i + 1 < m->n_frames; i++) {
                cg_msg_raw(m, i, &len);
                n += len;
        }
        return n;
}

static void send_one(struct host *h, const struct cg_out *out, json_t *body, struct cg_msg *m)
{
        if (m && body) {
                struct cg_out o = *out;
                cg_auto_free char *text = cg_json_text(body, &o.body_len);

                o.body = text;
                host_forward(h, &o, m);
        } else if (m) {
                host_forward(h, out, m);
        } else {
                host_send(h, out, json_incref(body));
        }
}

/* The frames are shared, not copied. */
static bool share_frames(const struct cg_msg *m, struct cg_msg *ret)
{
        *ret = CG_MSG_EMPTY;
        for (size_t i = 0; i < m->n_frames; i++) {
                zmq_msg_init(&ret->frames[i]);
                ret->n_frames++;
                if (zmq_msg_copy(&ret->frames[i], (zmq_msg_t *)(uintptr_t)&m->frames[i]) < 0) {
                        cg_msg_fini(ret);
                        return false;
                }
        }
        return true;
}

static void send_member(struct member *mb, const struct cg_out *event, json_t *body, const struct cg_msg *m)
{
        struct cg_out out = *event;
        cg_auto_msg struct cg_msg copy = CG_MSG_EMPTY;

        copy.n_frames = 0;
        if (CELL_SLOT(out.id) == mb->slot)
                out.id = CELL_NUMBER(out.id);
        else if (out.id)
                out.flags |= CG_FLAG_FOREIGN;
        if (m && !share_frames(m, &copy))
                return;
        send_one(mb->host, &out, body, m ? &copy : NULL);
        mb->unread += event_bytes(body, event, m) + EVENT_COST;
}

static void drop_slow_members(struct session *ss)
{
        struct member *next;

        for (struct member *mb = ss->members; mb; mb = next) {
                next = mb->next;
                if (mb->unread > MEMBER_MAX)
                        session_detach(ss, mb, "this client did not read the session's events");
        }
}

void session_event(struct session *ss, const struct cg_out *event, json_t *body, struct cg_msg *m)
{
        struct cg_out out = *event;
        bool alone = !is_public(out.type);
        size_t bytes;

        out.session = ss->number;
        for (struct member *mb = ss->members; mb; mb = mb->next)
                if (!alone || mb->slot == CELL_SLOT(out.id))
                        send_member(mb, &out, body, m);
        if (ss->members)
                drop_slow_members(ss);
        if (CELL_SLOT(out.id) == 0) {
                bytes = event_bytes(body, &out, m);
                send_one(ss->host, &out, body, m);
                session_sent(ss, bytes);
        }
        json_decref(body);
}

void session_event_to_others(struct session *ss, const struct cg_out *event, json_t *body)
{
        struct cg_out out = *event;

        out.session = ss->number;
        for (struct member *mb = ss->members; mb; mb = mb->next)
                if (mb->slot != CELL_SLOT(out.id))
                        send_member(mb, &out, body, NULL);
        json_decref(body);
        drop_slow_members(ss);
}

void session_event_to_host(struct session *ss, const struct cg_out *event, json_t *body)
{
        struct cg_out out = *event;
        struct member *mb;

        out.session = ss->number;
        for (mb = ss->members; mb && mb->slot != CELL_SLOT(out.id); mb = mb->next)
                ;
        if (mb) {
                send_member(mb, &out, body, NULL);
        } else if (CELL_SLOT(out.id) == 0) {
                send_one(ss->host, &out, body, NULL);
                session_sent(ss, event_bytes(body, &out, NULL));
        }
        json_decref(body);
}

/* ------------------------------------------------------------------ coming and going */

static struct session *find_by_id(struct sup *s, const char *id)
{
        for (size_t i = 0; i < CG_MAX_SESSIONS; i++) {
                struct session *ss = s->sessions[i];

                if (ss && ss->host && ss->opened && !ss->ending && strcmp(ss->id, id) == 0)
                        return ss;
        }
        return NULL;
}

static struct member *member_new(struct session *ss, struct host *h, struct cg_err *err)
{
        struct member *mb;
        size_t n = 0;

        if (ss->host == h || session_member(ss, h)) {
                cg_fail(err, CG_E_EXISTS, "this client takes part in the session already");
                return NULL;
        }
        for (mb = ss->members; mb; mb = mb->next)
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
        mb->next = ss->members;
        ss->members = mb;
        return mb;
}

void session_attach(struct host *h, const struct cg_msg *m)
{
        struct cg_out out = { .type = CG_HOST_SESSION_OPENED, .id = m->id };
        cg_auto_json json_t *body = NULL;
        struct session *ss = NULL;
        const char *id = "";
        struct cg_err err;

        if (cg_msg_json(m, &body, &err) < 0 || cg_json_str(body, "id", "", &id, &err) < 0)
                goto fail;
        ss = find_by_id(h->sup, id);
        if (!ss) {
                cg_fail(&err, CG_E_NOTFOUND, "the supervisor has no session %.40s", id);
                goto fail;
        }
        if (!member_new(ss, h, &err))
                goto fail;
        cg_log(&h->sup->log, CG_LOG_INFO, "host %.8s attached to session %llu", h->token,
               (unsigned long long)ss->number);
        out.session = ss->number;
        host_send(h, &out, json_pack("{s:s, s:o}", "id", ss->id, "info", session_info(ss)));
        return;
fail:
        host_failed(h, 0, m->id, &err);
}

void session_detach(struct session *ss, struct member *mb, const char *why)
{
        struct cg_out out = { .type = CG_HOST_SESSION_CLOSED, .session = ss->number };

        for (struct member **p = &ss->members; *p; p = &(*p)->next) {
                if (*p == mb) {
                        *p = mb->next;
                        break;
                }
        }
        if (why)
                host_send(mb->host, &out, json_pack("{s:o}", "text", text_json(why)));
        if (!ss->ending)
                cells_of_slot_end(ss, mb->slot);
        free(mb);
        session_pause_if_full(ss);
}

void session_list(struct host *h, const struct cg_msg *m)
{
        struct cg_out out = { .type = CG_HOST_SESSIONS, .id = m->id };
        json_t *list = json_array();

        for (size_t i = 0; i < CG_MAX_SESSIONS; i++) {
                struct session *ss = h->sup->sessions[i];

                if (!ss || !ss->host || !ss->opened || ss->ending)
                        continue;
                json_array_append_new(
                        list, json_pack("{s:s, s:O, s:b, s:s, s:b, s:b}", "id", ss->id, "workspace",
                                        json_object_get(ss->options, "workspace"), "sandbox",
                                        !json_is_false(json_object_get(ss->options, "sandbox")), "python",
                                        ss->kernel && ss->kernel->python ? ss->kernel->python : "", "running",
                                        cells_running(ss) != 0, "own", ss->host == h));
        }
        host_send(h, &out, json_pack("{s:o}", "sessions", list));
}
