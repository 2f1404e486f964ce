/*
 * cellgate-supervisor: questions that other clients of the same user decide, in sessions whose host
 * allows it.
 *
 * A question is named by a random key, which is never used again, and a decision has the digest of
 * what was shown: neither a late answer nor one for another supervisor's question decides anything
 * else. The first decision ends the question. A client that watches has at most one unread
 * APPROVALS_CHANGED, and asks for the list again when it has read it, so that a slow one costs
 * nothing.
 */
#include "supervisor/ask/approvals.h"

#include "base/approval_digest.h"
#include "base/json.h"
#include "supervisor/ask/asks.h"
#include "supervisor/core/host_link.h"
#include "supervisor/core/state.h"
#include "supervisor/core/sup.h"

static const char *word(const struct ask *a, const char *key)
{
        return json_string_value(json_object_get(a->body, key)) ?: "";
}

static const char *method(const struct ask *a)
{
        return a->type->kind & ASK_CONNECT ? "connect" : word(a, "method");
}

/* What is asked: the raw frame, or of a connection the body as text, which @text keeps. */
static struct cg_bytes arguments(const struct ask *a, char **text)
{
        if (a->type->has_raw)
                return cg_frame_bytes(a->raw);
        *text = json_dumps(a->body, JSON_COMPACT | JSON_SORT_KEYS) ?: strdup("");
        return (struct cg_bytes){ *text, strlen(*text) };
}

static json_t *describe(const struct ask *a)
{
        const struct session *ss = a->session;
        const json_t *o = ss->options;
        int64_t waiting_ms = cg_now_ms() - a->asked_ms, left_ms = ss->approval_timeout_ms - waiting_ms;
        json_t *left = ss->approval_timeout_ms > 0 ? json_integer(CG_MAX(left_ms, 0)) : NULL;
        char id[17];

        snprintf(id, sizeof(id), "%016" PRIx64, a->key);
        return json_pack("{s:s, s:s, s:s, s:s, s:O*, s:O*, s:I, s:I, s:o*, s:s, s:s, s:O*, s:I}", "id", id,
                         "server", word(a, "server"), "method", method(a), "tool", word(a, "tool"), "host",
                         json_object_get(a->body, "host"), "port", json_object_get(a->body, "port"), "cell",
                         (json_int_t)a->cell, "waiting_ms", (json_int_t)waiting_ms, "left_ms", left,
                         "session", ss->id, "workspace", ss->workspace, "front", json_object_get(o, "front"),
                         "pid", (json_int_t)(ss->host ? ss->host->pid : 0));
}

/* Clients at a terminal, or at one of the places that the session names. */
static bool may_decide(const struct session *ss, const struct host *h)
{
        const char *place = json_string_value(json_object_get(ss->options, "approvers"));
        size_t len = strlen(h->place);

        if (!len)
                return cg_sup_terminals_decide(ss);
        for (; place; place = strchr(place, ',')) {
                place += *place == ',';
                if (strncmp(place, h->place, len) == 0 && (!place[len] || place[len] == ','))
                        return true;
        }
        return false;
}

/* Questions that @h may not decide are not there for it. */
static struct ask *find(const struct host *h, const json_t *body, struct cg_err *err)
{
        const struct sup *s = h->sup;
        const char *id;
        char *end;
        uint64_t key;
        struct ask *a;

        if (cg_json_str(body, "id", "", &id, err) < 0)
                return NULL;
        key = strlen(id) == 16 ? strtoull(id, &end, 16) : 0;
        for (size_t i = 0; key && !*end && i < CG_MAX_SESSIONS; i++) {
                if (!s->sessions[i] || !may_decide(s->sessions[i], h))
                        continue;
                LIST_FOREACH(a, &s->sessions[i]->asks.list, entry)
                        if (a->key == key)
                                return a;
        }
        cg_fail(err, CG_E_NOTFOUND,
                "no question %.40s waits: it was decided elsewhere, has ended, or never was", id);
        return NULL;
}

void cg_sup_approvals_list(struct host *h, const struct cg_msg *m)
{
        struct cg_out out = { .type = CG_HOST_APPROVALS, .id = m->id };
        json_t *list = json_array();
        json_int_t more = 0, others = 0;
        const struct ask *a;

        h->lists_approvals = true;
        for (size_t i = 0; i < CG_MAX_SESSIONS; i++) {
                const struct session *ss = h->sup->sessions[i];

                if (!ss)
                        continue;
                LIST_FOREACH(a, &ss->asks.list, entry)
                        if (!a->key || !may_decide(ss, h))
                                others += (a->type->kind & ASK_DECIDABLE) != 0;
                        else if (json_array_size(list) < CG_MAX_APPROVALS)
                                json_array_append_new(list, describe(a));
                        else
                                more++;
        }
        cg_sup_host_send(h, &out,
                         json_pack("{s:o, s:I, s:I}", "approvals", list, "more", more, "others", others));
}

void cg_sup_approval_show(struct host *h, const struct cg_msg *m)
{
        struct cg_out out = { .type = CG_HOST_APPROVAL_IS, .id = m->id, .has_raw = true, .n_more = 1 };
        cg_auto_json json_t *body = NULL;
        cg_auto_free char *text = NULL;
        struct cg_bytes args, code;
        const struct ask *a = NULL;
        struct cg_err err;

        if (cg_msg_json(m, &body, &err) == 0)
                a = find(h, body, &err);
        if (!a) {
                cg_sup_host_failed(h, 0, m->id, &err);
                return;
        }
        args = arguments(a, &text);
        code = cg_sup_cell_code(a->session, a->running);
        out.raw = args.data;
        out.raw_len = args.len;
        out.more = &code;
        cg_sup_host_send(h, &out, describe(a));
}

static int decide(struct host *h, const struct cg_msg *m, struct cg_err *err)
{
        cg_auto_json json_t *body = NULL;
        cg_auto_free char *text = NULL;
        char digest[CG_APPROVAL_DIGEST];
        struct decision d = { .answer = "no" };
        const char *shown;
        struct ask *a;

        if (cg_msg_json(m, &body, err) < 0 || cg_json_str(body, "digest", "", &shown, err) < 0 ||
            cg_json_bool(body, "accept", false, &d.accept, err) < 0 ||
            cg_json_str(body, "reason", "", &d.reason, err) < 0)
                return -1;
        a = find(h, body, err);
        if (!a)
                return -1;
        cg_approval_digest(word(a, "server"), method(a), word(a, "tool"), arguments(a, &text), digest);
        if (strcmp(digest, shown) != 0)
                return cg_fail(
                        err, CG_E_INVAL,
                        "the question is not the one that was shown (its digest differs): nothing was decided");
        if (d.accept)
                d.answer = "once";
        return cg_sup_ask_decide(a, h, d, err);
}

void cg_sup_approval_decide(struct host *h, const struct cg_msg *m)
{
        struct cg_out out = { .type = CG_HOST_DONE, .id = m->id };
        struct cg_err err;

        if (decide(h, m, &err) < 0)
                cg_sup_host_failed(h, 0, m->id, &err);
        else
                cg_sup_host_send(h, &out, json_object());
}

void cg_sup_approvals_changed(struct sup *s)
{
        struct cg_out out = { .type = CG_HOST_APPROVALS_CHANGED };
        struct host *h;

        LIST_FOREACH(h, &s->clients.hosts, entry) {
                if (!h->lists_approvals)
                        continue;
                h->lists_approvals = false;
                cg_sup_host_send(h, &out, NULL);
        }
}
