/*
 * What a server asks of its client. Roots are answered here. Forms and pages for a person
 * (elicitation) and messages of a model (sampling) are questions to the host, where it handles
 * them, and else declined.
 *
 * Until revision 2025-11-25 these are requests of the server. From 2026-07-28 on they are part of
 * an answer to a call, which is sent again with all answers (rounds.c).
 */
#include "mcp/client/internal.h"

#include "base/json.h"
#include "base/text.h"
#include "mcp/ceilings.h"

/* The answer where nobody decides, of the protocol's own example. */
#define DECLINED (-1)

/* ---- what is offered */

int cg_mcp_make_roots(const char *workspace, char **ret, struct cg_err *err)
{
        cg_auto_buf struct cg_buf b = { .max = 65536 };

        cg_buf_adds(&b, "{\"roots\":[");
        if (workspace) {
                cg_buf_adds(&b, "{\"uri\":\"file://");
                cg_percent_encode(&b, workspace, "/");
                cg_buf_adds(&b, "\"}");
        }
        cg_buf_adds(&b, "]}");
        if (cg_buf_end(&b, err) < 0)
                return b.failed;
        *ret = cg_buf_steal(&b, NULL);
        return cg_made(*ret, "roots", err);
}

/* 0: another method. */
static unsigned kind_of(const char *method)
{
        if (strcmp(method, "elicitation/create") == 0)
                return CG_MCP_ELICITATION;
        return strcmp(method, "sampling/createMessage") == 0 ? CG_MCP_SAMPLING : 0;
}

/* At least one mode of CG_MCP_ELICITATION. */
static bool is_handled(const struct cg_mcp_client *c, unsigned kind)
{
        return c->o.handles & (kind == CG_MCP_ELICITATION ? CG_MCP_ELICITATION | CG_MCP_URL : kind);
}

/* ---- questions */

/* The call in flight when there is exactly one, else NULL. @n: how many there are. */
static struct cg_mcp_req *only_call(const struct cg_mcp_client *c, unsigned *n)
{
        struct cg_mcp_req *found = NULL;

        *n = 0;
        for (struct cg_mcp_req *q = c->reqs; q; q = q->next) {
                if (q->kind != CALL || !q->id)
                        continue;
                found = q;
                ++*n;
        }
        return *n == 1 ? found : NULL;
}

static void question_free(struct cg_mcp_question *n)
{
        CG_UNLINK(n->c->questions, n, next);
        free(n->id);
        free(n->answer);
        free(n);
}

static struct cg_mcp_question *question_new(struct cg_mcp_client *c, struct cg_mcp_req *q, unsigned kind,
                                            struct cg_slice id)
{
        struct cg_mcp_question *n = calloc(1, sizeof(*n)), **p = &c->questions;

        if (n)
                n->id = strndup(id.p, id.len);
        if (!n || !n->id) {
                free(n);
                return NULL;
        }
        n->c = c;
        n->q = q;
        n->kind = kind;
        while (*p) /* the order is that of the server */
                p = &(*p)->next;
        *p = n;
        return n;
}

/* Whether the question belongs to the call @q, or may: to one in flight, where it is unknown. */
static bool may_belong(const struct cg_mcp_question *n, const struct cg_mcp_req *q)
{
        return q->kind == CALL && (n->q ? n->q == q : !n->round && q->id);
}

/* A call's own time stops while the host is asked on its behalf, or may be. */
static void update_clocks(struct cg_mcp_client *c)
{
        int64_t now = cg_now_ms();

        for (struct cg_mcp_req *q = c->reqs; q; q = q->next) {
                bool waits = false;

                for (const struct cg_mcp_question *n = c->questions; n; n = n->next)
                        waits |= n->number && may_belong(n, q);
                if (waits && q->deadline_ms) {
                        q->call.left_ms = q->deadline_ms > now ? q->deadline_ms - now : 1;
                        q->deadline_ms = 0;
                } else if (!waits && q->call.left_ms) {
                        q->deadline_ms = now + q->call.left_ms;
                        q->call.left_ms = 0;
                }
        }
        cg_mcp_client_rearm(c);
}

/*
 * A call may ask only so often, also where the server takes its questions back, and not again after
 * a question that nobody has answered: each of them stops the clocks of the call and of its cell.
 */
static int check_calls(const struct cg_mcp_question *n, struct cg_err *err)
{
        for (const struct cg_mcp_req *q = n->c->reqs; q; q = q->next) {
                if (!may_belong(n, q))
                        continue;
                if (q->call.unanswered)
                        return cg_fail(err, CG_E_STATE,
                                       "nobody has answered an earlier question of this call");
                if (q->call.n_asked >= CG_MCP_MAX_CALL_QUESTIONS)
                        return cg_fail(err, CG_E_LIMIT, "this call has asked %u questions already",
                                       q->call.n_asked);
        }
        return 0;
}

/* Whether all hosts read the same in the params, and this one handles what they ask for. */
static int check_params(const struct cg_mcp_question *n, struct cg_slice params, struct cg_err *err)
{
        cg_auto_json json_t *o = NULL;
        const char *mode, *url;
        json_error_t why;
        int r;

        if (params.len > CG_MAX_BODY)
                return cg_fail(err, CG_E_LIMIT, "the question has %zu bytes, over the limit of %u",
                               params.len, CG_MAX_BODY);
        r = cg_json_check_encodable(params.p, params.len, CG_JSON_PARAMS_DEPTH, err);
        if (r < 0)
                return r;
        o = json_loadb(params.p, params.len, JSON_ALLOW_NUL | JSON_REJECT_DUPLICATES, &why);
        if (!o)
                return cg_fail(err, CG_E_INVAL, "the question cannot be read by hosts: %s", why.text);
        if (n->kind != CG_MCP_ELICITATION)
                return 0;
        mode = json_string_value(json_object_get(o, "mode"));
        if (!json_object_get(o, "mode") || (mode && strcmp(mode, "form") == 0))
                return n->c->o.handles & CG_MCP_ELICITATION
                               ? 0
                               : cg_fail(err, CG_E_UNSUPPORTED, "the host shows no forms");
        if (!mode || strcmp(mode, "url") != 0 || !(n->c->o.handles & CG_MCP_URL))
                return cg_fail(err, CG_E_UNSUPPORTED, "the host does not handle this mode of elicitation");
        url = json_string_value(json_object_get(o, "url"));
        if (!url || (strncasecmp(url, "https://", 8) != 0 && strncasecmp(url, "http://", 7) != 0))
                return cg_fail(err, CG_E_INVAL, "the URL to open is neither https nor http");
        return 0;
}

/* Asks the host. Negative: it is not asked, and why. */
static int ask_host(struct cg_mcp_question *n, const char *method, struct cg_slice params, struct cg_err *err)
{
        struct cg_mcp_client *c = n->c;
        unsigned open = 0;
        int r;

        for (const struct cg_mcp_question *o = c->questions; o; o = o->next)
                open += o->number != 0;
        if (open >= CG_MCP_MAX_QUESTIONS)
                return cg_fail(err, CG_E_LIMIT, "%u questions of this server wait already", open);
        r = check_calls(n, err);
        if (r < 0)
                return r;
        r = check_params(n, params, err);
        if (r < 0)
                return r;
        r = c->o.ask(c->o.data, n->q ? n->q->data : NULL, c->def->name, method, params, &n->number, err);
        if (r < 0)
                return r;
        n->deadline_ms = cg_now_ms() + (c->def->call_timeout_ms ?: CG_MCP_QUESTION_MS);
        for (struct cg_mcp_req *q = c->reqs; q; q = q->next)
                q->call.n_asked += may_belong(n, q);
        if (n->q)
                n->q->call.n_open++;
        update_clocks(c);
        return 0;
}

/* Answers the server's request; @result NULL: an error with the text @why. */
static void respond(struct cg_mcp_client *c, struct cg_slice id, const char *result, size_t len,
                    const char *why)
{
        struct cg_mcp_msg answer = { .repeatable = true };
        cg_auto_buf struct cg_buf b = { .max = CG_MAX_BODY + 65536 };
        struct cg_err err;
        int r = result ? cg_rpc_add_result(&b, id, result, len, &err)
                       : cg_rpc_add_error(&b, id, DECLINED, why, &err);

        if (r < 0 || cg_mcp_send(c, &answer, &b, &err) < 0)
                cg_log(c->o.log, CG_LOG_WARN, "MCP server %s: its request cannot be answered: %s",
                       c->def->name, err.msg);
}

/*
 * The end of a question: @result is the host's answer; NULL: @action, "decline" or "cancel", because
 * of @why. A call that has all its answers is sent again. Takes @n.
 */
static void settle(struct cg_mcp_question *n, const char *result, size_t len, const char *action,
                   const char *why)
{
        struct cg_mcp_client *c = n->c;
        struct cg_mcp_req *q = n->q;
        char declined[32];

        if (!result && n->kind == CG_MCP_ELICITATION) {
                len = (size_t)snprintf(declined, sizeof(declined), "{\"action\":\"%s\"}", action);
                result = declined;
        }
        n->number = 0;
        if (q)
                q->call.n_open--;
        update_clocks(c);
        if (!n->round) {
                respond(c, cg_slice_of(n->id), result, len, why);
                question_free(n);
        } else if (result && (n->answer = strndup(result, len))) {
                if (!q->call.n_open)
                        c->upper.questions->send_round(q);
        } else {
                cg_mcp_req_fail(q, "MCP server \"%s\": %s \"%s\" needs input: %s", c->def->name,
                                cg_mcp_methods[q->method].what, q->tool, result ? "out of memory" : why);
        }
        cg_mcp_client_rearm(c);
}

/* The same, of a question that the host had time to answer: without an answer it asks no more. */
static void end_question(struct cg_mcp_question *n, const char *result, size_t len, const char *action,
                         const char *why)
{
        for (struct cg_mcp_req *q = n->c->reqs; q; q = q->next)
                q->call.unanswered |= !result && strcmp(action, "cancel") == 0 && may_belong(n, q);
        settle(n, result, len, action, why);
}

static struct cg_mcp_question *question_by_number(const struct cg_mcp_client *c, uint64_t number)
{
        struct cg_mcp_question *n = number ? c->questions : NULL;

        while (n && n->number != number)
                n = n->next;
        return n;
}

bool cg_mcp_client_answer(struct cg_mcp_client *c, uint64_t number, const char *result, size_t len,
                          const char *action, const char *why)
{
        struct cg_mcp_question *n = question_by_number(c, number);
        struct cg_err err;

        if (!n)
                return false;
        /* A line of the protocol has no newlines within. */
        if (result && (memchr(result, '\n', len) || memchr(result, '\r', len) ||
                       cg_json_check_object(result, len, CG_JSON_DEPTH, &err) < 0))
                settle(n, NULL, 0, "cancel", "the answer was not valid");
        else
                end_question(n, result, len, action, why);
        return true;
}

void cg_mcp_questions_expire(struct cg_mcp_client *c, int64_t now_ms)
{
        static const char why[] = "nobody answered in time";

        for (struct cg_mcp_question *n = c->questions; n && !c->ending;) {
                if (!n->number || n->deadline_ms > now_ms) {
                        n = n->next;
                        continue;
                }
                c->o.ask_closed(c->o.data, n->number, why);
                end_question(n, NULL, 0, "cancel", why);
                n = c->questions; /* a callback may have changed the list */
        }
}

/* The host is not asked any more. The server gets no answer. */
static void close_question(struct cg_mcp_question *n, const char *why)
{
        struct cg_mcp_client *c = n->c;

        if (n->number)
                c->o.ask_closed(c->o.data, n->number, why);
        if (n->number && n->q)
                n->q->call.n_open--;
        question_free(n);
        update_clocks(c);
}

void cg_mcp_questions_of_call(struct cg_mcp_client *c, const struct cg_mcp_req *q)
{
        static const char why[] = "the call that it belongs to has ended";
        struct cg_mcp_question *next;
        unsigned n_calls;

        only_call(c, &n_calls);
        for (struct cg_mcp_question *n = c->questions; n; n = next) {
                next = n->next;
                if (n->q != q && (n->q || n_calls))
                        continue;
                n->q = NULL;
                if (n->round) {
                        close_question(n, why);
                } else {
                        c->o.ask_closed(c->o.data, n->number, why);
                        settle(n, NULL, 0, "cancel", why);
                }
        }
}

void cg_mcp_questions_of_server(struct cg_mcp_client *c)
{
        struct cg_mcp_question *next;

        for (struct cg_mcp_question *n = c->questions; n; n = next) {
                next = n->next;
                if (!n->round)
                        close_question(n, "the MCP server has ended");
        }
}

/* ---- requests of a server, until 2025-11-25 */

/* Asks the host @m, whose question is @n; NULL: there was no memory for it. */
static int ask_for_server(struct cg_mcp_question *n, const struct cg_rpc *m, unsigned n_calls,
                          struct cg_err *err)
{
        if (!n)
                return cg_fail(err, CG_E_NOMEM, "question");
        if (!n_calls)
                return cg_fail(err, CG_E_STATE, "questions are answered only while a tool is called");
        return ask_host(n, m->method, m->params.p ? m->params : CG_SLICE("{}"), err);
}

bool cg_mcp_on_server_request(struct cg_mcp_client *c, const struct cg_rpc *m)
{
        unsigned kind = kind_of(m->method), n_calls;
        struct cg_mcp_req *q = only_call(c, &n_calls);
        struct cg_mcp_question *n;
        struct cg_err err;

        if (strcmp(m->method, "roots/list") == 0) {
                if (c->roots)
                        respond(c, m->id, c->roots, strlen(c->roots), NULL);
                return c->roots != NULL;
        }
        if (!is_handled(c, kind))
                return false;
        n = question_new(c, q, kind, m->id);
        if (ask_for_server(n, m, n_calls, &err) == 0)
                return true;
        cg_log(c->o.log, CG_LOG_WARN, "MCP server %s: %s was declined: %s", c->def->name, m->method, err.msg);
        if (kind == CG_MCP_ELICITATION && n_calls == 0)
                respond(c, m->id, "{\"action\":\"decline\"}", 20, NULL);
        else
                respond(c, m->id, NULL, 0, err.msg);
        if (n)
                question_free(n);
        return true;
}

void cg_mcp_on_server_cancelled(struct cg_mcp_client *c, struct cg_slice id)
{
        struct cg_mcp_question *n = id.p ? c->questions : NULL;

        while (n && (n->round || !cg_slice_is(id, n->id)))
                n = n->next;
        if (n)
                close_question(n, "the MCP server has taken its question back");
}

/* ---- questions in the answer to a call, from 2026-07-28 on */

int cg_mcp_ask_round(struct cg_mcp_req *q, struct cg_slice key, struct cg_slice request, struct cg_err *err)
{
        cg_auto_buf struct cg_buf shown = { .max = 1024 };
        struct cg_slice value = CG_SLICE_NONE, params = CG_SLICE("{}");
        struct cg_mcp_client *c = q->c;
        cg_auto_free char *method = NULL;
        struct cg_mcp_question *n;
        struct cg_err why;
        unsigned kind;

        if (!cg_json_find(request, "method", &value) || cg_json_strdup(value, &method, NULL) < 0)
                return cg_fail(err, CG_E_PROTO, "one of its questions has no method");
        kind = kind_of(method);
        n = question_new(c, q, kind, key);
        if (!n)
                return cg_fail(err, CG_E_NOMEM, "question");
        n->round = true;
        if (strcmp(method, "roots/list") == 0) {
                n->answer = strdup(c->roots ?: "{\"roots\":[]}");
                return cg_made(n->answer, "roots", err);
        }
        cg_json_find(request, "params", &params);
        if (is_handled(c, kind)) {
                if (ask_host(n, method, params, &why) == 0)
                        return 0;
                cg_log(c->o.log, CG_LOG_WARN, "MCP server %s: %s was declined: %s", c->def->name, method,
                       why.msg);
        }
        if (kind == CG_MCP_ELICITATION) {
                n->answer = strdup("{\"action\":\"decline\"}");
                return cg_made(n->answer, "answer", err);
        }
        if (is_handled(c, kind))
                return cg_fail(err, CG_E_STATE, "%s", why.msg);
        cg_text_render_as(&shown, method, strlen(method), 100, CG_TEXT_LINE);
        return cg_fail(err, CG_E_UNSUPPORTED, "it needs %s, which this client does not offer",
                       shown.data ?: "something");
}

void cg_mcp_add_round_answers(struct cg_mcp_req *q, struct cg_buf *b)
{
        struct cg_mcp_question *next;
        const char *before = "";

        cg_buf_adds(b, ",\"inputResponses\":{");
        for (struct cg_mcp_question *n = q->c->questions; n; n = next) {
                next = n->next;
                if (n->q != q)
                        continue;
                cg_buf_addf(b, "%s\"%s\":%s", before, n->id, n->answer);
                before = ",";
                question_free(n);
        }
        cg_buf_adds(b, "}");
}
