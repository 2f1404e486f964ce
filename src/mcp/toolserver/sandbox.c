/*
 * MCP servers with a sandbox of ours: what it denies becomes an event of the session and a sentence
 * in the error of the call, what it asks about hosts a question to the host, and the entries of its
 * settings a notice. Runs in cellgate-toolserver. The lines come from `cellgate sandbox`, not from
 * the server, but what they are about does: names of files and hosts.
 */
#include "base/json.h"
#include "base/text.h"
#include "mcp/ceilings.h"
#include "mcp/toolserver/toolserver.h"

/* Sentences that are kept, for the errors of calls. */
#define SENTENCES 4
/* Questions of one sandbox that wait. The proxy's own limit for each sandbox is lower. */
#define MAX_ASKS 64
/* The text about entries; as JSON, which must fit a message, it may be three times as long. */
#define MAX_ENTRIES_TEXT 20000
#define CUT              "... [more is not shown]"

/* A question about a host. */
struct box_ask {
        struct box_ask *next;
        uint64_t number; /* the supervisor's */
        json_int_t id;   /* the sandbox's */
};

struct ts_box {
        struct ts_box *next; /* of the session */
        struct ts_session *session;
        const struct cg_mcp_client *client;
        const struct cg_mcp_def *def; /* the client's */
        void (*synced)(struct ts_session *s, const struct ts_box *box, uint64_t number);
        uint64_t n_denials;
        char *sentences[SENTENCES]; /* of the last ones, different from each other; n_denials then: */
        uint64_t at[SENTENCES];
        size_t n_sentences;
        uint64_t entries; /* digest of the entries that were reported last */
        uint64_t last_sync;
        struct box_ask *asks;
        unsigned n_asks;
};

struct ts_box *cg_ts_box_new(struct ts_session *s, const struct cg_mcp_def *def,
                             void (*synced)(struct ts_session *s, const struct ts_box *box, uint64_t number))
{
        struct ts_box *box = calloc(1, sizeof(*box));

        if (!box)
                return NULL;
        box->session = s;
        box->def = def;
        box->synced = synced;
        box->next = s->boxes;
        s->boxes = box;
        return box;
}

void cg_ts_box_of(struct ts_box *box, const struct cg_mcp_client *client)
{
        box->client = client;
}

static void close_asks(struct ts_box *box, const char *why)
{
        while (box->asks) {
                struct box_ask *a = box->asks;
                struct cg_out out = { .type = CG_BROKER_ASK_CLOSED,
                                      .session = box->session->number,
                                      .id = a->number };

                box->asks = a->next;
                free(a);
                cg_ts_broker_send_text(box->session->ts, &out, "why", why);
        }
        box->n_asks = 0;
}

void cg_ts_box_free(void *data)
{
        struct ts_box *box = data;

        CG_UNLINK(box->session->boxes, box, next);
        close_asks(box, "the MCP server has ended");
        for (size_t i = 0; i < box->n_sentences; i++)
                free(box->sentences[i]);
        free(box);
}

/* ---- to the host */

/* Takes @body, of which strings of the server's secrets are masked. */
static void send_out(const struct ts_box *box, struct cg_out *out, json_t *body)
{
        cg_auto_free char *text = NULL;

        out->session = box->session->number;
        text = cg_json_text(body, &out->body_len);
        json_decref(body);
        out->body = text;
        if (text && box->session->ts->broker.conn.queued <= CG_MCP_MAX_BROKER_QUEUE / 2)
                cg_ts_broker_send(box->session->ts, out, NULL, NULL);
}

/* " /a, /b and 3 more": the paths of the entries of the lists @which. */
static void add_paths(struct cg_buf *b, const char *before, const json_t *entries, const char *which,
                      bool absent)
{
        const json_t *v;
        size_t i, n = 0;

        json_array_foreach(entries, i, v) {
                const char *path = json_string_value(json_object_get(v, "path")),
                           *setting = json_string_value(json_object_get(v, "setting"));

                if (!path || !setting || (which && strncmp(setting, which, strlen(which)) != 0) ||
                    (absent && json_integer_value(json_object_get(v, "matches"))))
                        continue;
                if (n++ >= CG_MCP_MAX_NAMES_SHOWN)
                        continue;
                cg_buf_adds(b, n == 1 ? before : ", ");
                cg_text_render_as(b, path, strlen(path), 0, CG_TEXT_LINE);
                if (absent)
                        cg_buf_addf(b, " (%s)", setting);
        }
        if (n > CG_MCP_MAX_NAMES_SHOWN)
                cg_buf_addf(b, " and %zu more", n - CG_MCP_MAX_NAMES_SHOWN);
}

/* A notice of where the entries of the settings lead, once as long as that does not change. */
static void report_entries(struct ts_box *box, const json_t *line)
{
        struct cg_out out = { .type = CG_BROKER_NOTICE, .session = box->session->number };
        const json_t *entries = json_object_get(line, "entries");
        cg_auto_buf struct cg_buf b = { .max = MAX_ENTRIES_TEXT };
        uint64_t digest;

        cg_buf_addf(&b, "MCP server %s runs in a sandbox", box->def->name);
        add_paths(&b, "; it may write ", entries, "filesystem.allowWrite", false);
        add_paths(&b, "; but not ", entries, "filesystem.denyWrite", false);
        add_paths(&b, "; it cannot read ", entries, "filesystem.denyRead", false);
        add_paths(&b, "; but ", entries, "filesystem.allowRead", false);
        add_paths(&b, "; nothing is there now that these entries name: ", entries, NULL, true);
        if (b.failed) { /* what there was room for is shown */
                b.max += sizeof(CUT);
                cg_buf_cut(&b, b.len);
                cg_buf_adds(&b, CUT);
        }
        if (!json_array_size(entries) || b.failed)
                return;
        cg_mcp_def_redact(box->def, b.data);
        digest = cg_fnv1a(CG_FNV1A, b.data, strlen(b.data));
        if (digest == box->entries)
                return;
        box->entries = digest;
        cg_log(&box->session->ts->log, CG_LOG_INFO, "session %llu: %s",
               (unsigned long long)box->session->number, b.data);
        cg_ts_broker_send_text(box->session->ts, &out, "text", b.data);
}

/* ---- denials */

static void keep_sentence(struct ts_box *box, const char *text)
{
        size_t i = 0;
        bool known;
        char *copy;

        while (i < box->n_sentences && strcmp(box->sentences[i], text) != 0)
                i++;
        known = i < box->n_sentences;
        copy = known ? box->sentences[i] : strdup(text);
        if (!copy)
                return;
        if (!known && box->n_sentences == SENTENCES) { /* the oldest one makes room */
                i = 0;
                free(box->sentences[0]);
        }
        if (i < box->n_sentences) {
                memmove(box->sentences + i, box->sentences + i + 1,
                        (box->n_sentences - i - 1) * sizeof(*box->sentences));
                memmove(box->at + i, box->at + i + 1, (box->n_sentences - i - 1) * sizeof(*box->at));
                box->n_sentences--;
        }
        box->at[box->n_sentences] = box->n_denials;
        box->sentences[box->n_sentences++] = copy;
}

static void report_denial(struct ts_box *box, const json_t *line)
{
        /* Cells choose paths and hosts, and the error of the call shows what was denied. */
        const struct cg_secrets secrets = cg_secrets_whole(&box->def->secrets);
        json_t *denial = json_object_get(line, "denial");
        struct cg_out out = { .type = CG_BROKER_DENIED };
        cg_auto_free char *text = NULL;

        text = strdup(json_string_value(json_object_get(line, "text")) ?: "");
        if (!json_is_object(denial) || !text)
                return;
        box->n_denials++;
        cg_secrets_redact(&secrets, text);
        if (*text)
                keep_sentence(box, text);
        cg_secrets_redact_json(&secrets, denial);
        json_object_set_new(denial, "server", json_string(box->def->name));
        /* For a session on another machine; a supervisor of this one makes its own. */
        json_object_set_new(denial, "text", json_sprintf("MCP server %s: %s", box->def->name, text));
        send_out(box, &out, json_incref(denial));
}

uint64_t cg_ts_box_denials(const struct ts_box *box)
{
        return box ? box->n_denials : 0;
}

void cg_ts_box_add_denials(const struct ts_box *box, uint64_t before, struct cg_buf *b)
{
        for (size_t i = 0; i < box->n_sentences; i++)
                if (box->at[i] > before)
                        cg_buf_addf(b, "%s[cellgate] the sandbox of MCP server \"%s\": %s",
                                    cg_sep(b->len, "\n"), box->def->name, box->sentences[i]);
}

bool cg_ts_box_sync(struct ts_box *box, uint64_t *number)
{
        char line[64];
        int n = snprintf(line, sizeof(line), "{\"type\":\"sync\",\"id\":%llu}\n",
                         (unsigned long long)box->last_sync + 1);

        if (!cg_mcp_client_send_sandbox(box->client, line, (size_t)n))
                return false;
        *number = ++box->last_sync;
        return true;
}

/* ---- questions about hosts */

static void answer(const struct ts_box *box, json_int_t id, const char *decision, const char *reason)
{
        cg_auto_json json_t *o = json_pack("{s:s, s:I, s:s, s:s*}", "type", "answer", "id", id, "decision",
                                           decision, "reason", reason);
        cg_auto_free char *text = NULL;
        size_t len;

        text = cg_json_text(o, &len);
        if (!text)
                return;
        text[len++] = '\n'; /* in the place of the NUL */
        if (!cg_mcp_client_send_sandbox(box->client, text, len))
                cg_log(&box->session->ts->log, CG_LOG_DEBUG, "MCP server %s: its sandbox takes no answer",
                       box->def->name);
}

static void ask(struct ts_box *box, const json_t *line)
{
        struct box_ask *a = box->n_asks < MAX_ASKS && box->session->kernel ? calloc(1, sizeof(*a)) : NULL;
        struct cg_out out = { .type = CG_BROKER_EGRESS_ASK };

        json_int_t id = json_integer_value(json_object_get(line, "id"));

        if (!a) {
                answer(box, id, "no", "nobody can be asked");
                return;
        }
        a->id = id;
        a->number = out.id = ++box->session->ts->last_ask;
        a->next = box->asks;
        box->asks = a;
        box->n_asks++;
        send_out(box, &out,
                 json_pack("{s:s, s:O?, s:O?, s:O?, s:O?}", "server", box->def->name, "host",
                           json_object_get(line, "host"), "port", json_object_get(line, "port"), "protocol",
                           json_object_get(line, "protocol"), "address", json_object_get(line, "address")));
}

/* Removes one. The caller frees it; NULL: there is none. */
static struct box_ask *take_ask(struct ts_box *box, uint64_t number, json_int_t id)
{
        for (struct box_ask **p = &box->asks; *p; p = &(*p)->next) {
                struct box_ask *a = *p;

                if (number ? a->number != number : a->id != id)
                        continue;
                *p = a->next;
                box->n_asks--;
                return a;
        }
        return NULL;
}

static void cancel_ask(struct ts_box *box, const json_t *line)
{
        cg_auto_free struct box_ask *a = take_ask(box, 0, json_integer_value(json_object_get(line, "id")));
        struct cg_out out = { .type = CG_BROKER_ASK_CLOSED, .session = box->session->number };

        if (!a)
                return;
        out.id = a->number;
        cg_ts_broker_send_text(box->session->ts, &out, "why", "no program waits for the connection any more");
}

void cg_ts_box_decided(struct ts_session *s, uint64_t number, const char *decision, const char *reason)
{
        for (struct ts_box *box = s->boxes; box; box = box->next) {
                cg_auto_free struct box_ask *a = take_ask(box, number, 0);

                if (!a)
                        continue;
                answer(box, a->id, decision, reason);
                return;
        }
}

/* ---- its lines */

void cg_ts_box_line(void *data, struct cg_slice line, bool old)
{
        struct ts_box *box = data;
        cg_auto_json json_t *o = NULL;
        const char *type;

        if (!line.len) {
                close_asks(box, "the MCP server has ended");
                box->synced(box->session, box, UINT64_MAX);
                return;
        }
        if (cg_json_object(line.p, line.len, "sandbox", &o, NULL) < 0)
                return;
        type = json_string_value(json_object_get(o, "type")) ?: "";
        if (strcmp(type, "denied") == 0)
                report_denial(box, o);
        else if (old)
                return;
        else if (strcmp(type, "entries") == 0)
                report_entries(box, o);
        else if (strcmp(type, "synced") == 0)
                box->synced(box->session, box, (uint64_t)json_integer_value(json_object_get(o, "id")));
        else if (strcmp(type, "egress_request") == 0)
                ask(box, o);
        else if (strcmp(type, "egress_cancel") == 0)
                cancel_ask(box, o);
}
