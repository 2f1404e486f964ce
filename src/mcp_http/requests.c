/*
 * Requests of MCP over Streamable HTTP, revisions 2025-03-26 to 2025-11-25 and the stateless one,
 * and over HTTP+SSE of 2024-11-05. Runs in the front of cellgate-mcp-http.
 */
#include "mcp_http/exchange.h"

#include "base/base64.h"
#include "base/ceilings.h"
#include "base/json.h"
#include "mcp/server.h"

/* A header of the stateless era says something else than the body. */
#define HEADER_MISMATCH (-32020)

const char *cg_hf_header(const struct hf_exchange *x, const char *name)
{
        return MHD_lookup_connection_value(x->c, MHD_HEADER_KIND, name);
}

struct header_count {
        const char *name;
        unsigned n;
};

static enum MHD_Result count_header(void *data, enum MHD_ValueKind kind, const char *name, const char *value)
{
        struct header_count *c = data;

        c->n += strcasecmp(name, c->name) == 0;
        return MHD_YES;
}

bool cg_hf_accepts(const struct hf_exchange *x, const char *type)
{
        const char *all = cg_hf_header(x, "Accept");

        return !all || strcasestr(all, type) || strstr(all, "*/*");
}

/* A request that may use the session keeps the streams of it open as long as its token is valid. */
static struct hf_session *use(const struct hf_exchange *x, struct hf_session *s)
{
        s->who.until_ms = CG_MAX(s->who.until_ms, x->who.until_ms);
        return s;
}

/* The session that the request names. NULL: *ret is the response. */
static struct hf_session *find_session(const struct hf_exchange *x, enum MHD_Result *ret)
{
        static const char *const versions[] = { "2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05" };
        const char *id = x->sse ? MHD_lookup_connection_value(x->c, MHD_GET_ARGUMENT_KIND, "session_id")
                                : cg_hf_header(x, SESSION_HEADER),
                   *version = cg_hf_header(x, VERSION_HEADER);
        struct hf_session *s = id ? cg_hf_session_find(x->f, id) : NULL;
        size_t i = 0;

        if (s && (s->sse != x->sse || memcmp(s->who.owner, x->who.owner, sizeof(x->who.owner)) != 0))
                s = NULL;
        while (version && i < CG_ARRAY_LEN(versions) && strcmp(versions[i], version) != 0)
                i++;
        if (version && strcmp(version, CG_MCPD_STATELESS) == 0)
                *ret = cg_hf_refuse(x, MHD_HTTP_METHOD_NOT_ALLOWED, SERVER_ERROR,
                                    "revision " CG_MCPD_STATELESS " has POST only");
        else if (i == CG_ARRAY_LEN(versions))
                *ret = cg_hf_refuse(
                        x, MHD_HTTP_BAD_REQUEST, SERVER_ERROR,
                        "MCP-Protocol-Version is none of 2024-11-05, 2025-03-26, 2025-06-18 and 2025-11-25: "
                        "send initialize, without a session");
        else if (!id)
                *ret = cg_hf_refuse(x, MHD_HTTP_BAD_REQUEST, SERVER_ERROR,
                                    "the header " SESSION_HEADER
                                    " is missing: send initialize first, whose response has it");
        else if (!s)
                *ret = cg_hf_refuse(
                        x, MHD_HTTP_NOT_FOUND, SERVER_ERROR,
                        "there is no such session, or it has ended: send initialize for a new one");
        else
                return use(x, s);
        return NULL;
}

enum MHD_Result cg_hf_get(struct hf_exchange *x)
{
        const char *last = cg_hf_header(x, "Last-Event-ID");
        unsigned long long number = 0, event = 0;
        enum MHD_Result result;
        struct hf_session *s;
        struct hf_stream *st;

        if (!cg_hf_accepts(x, "text/event-stream"))
                return cg_hf_refuse(x, MHD_HTTP_NOT_ACCEPTABLE, SERVER_ERROR,
                                    "Accept must have text/event-stream");
        s = find_session(x, &result);
        if (!s)
                return result;
        if (last && sscanf(last, "%20llu-%20llu", &number, &event) != 2)
                return cg_hf_refuse(x, MHD_HTTP_BAD_REQUEST, SERVER_ERROR,
                                    "Last-Event-ID is none of this server's");
        TAILQ_FOREACH(st, &s->streams, entry) {
                if (st->number == number && st->begun)
                        break;
        }
        if (!st || (last && !cg_hf_stream_resume(st, event)))
                return cg_hf_refuse(
                        x, MHD_HTTP_BAD_REQUEST, SERVER_ERROR,
                        "the stream of this Last-Event-ID is no longer kept: call the tool again");
        cg_hf_attach(x, st);
        if (st == s->get)
                cg_hf_session_back(s);
        return cg_hf_send_events(x);
}

enum MHD_Result cg_hf_end_session(struct hf_exchange *x)
{
        enum MHD_Result result;
        struct hf_session *s = find_session(x, &result);

        if (!s)
                return result;
        cg_hf_session_end(s, "the session was ended by its client");
        return cg_hf_respond_empty(x, MHD_HTTP_NO_CONTENT);
}

/* The version that a request of the stateless era names in its _meta. */
static bool find_version(const struct cg_rpc *m, struct cg_slice *ret)
{
        struct cg_slice meta;

        return m->params.p && cg_json_find(m->params, "_meta", &meta) &&
               cg_json_find(meta, "io.modelcontextprotocol/protocolVersion", ret) && ret->p[0] == '"';
}

static bool is_stateless(const struct hf_exchange *x, const struct cg_rpc *m)
{
        const char *version = cg_hf_header(x, VERSION_HEADER);
        struct cg_slice named;

        return (version && strcmp(version, CG_MCPD_STATELESS) == 0) ||
               strcmp(m->method, "server/discover") == 0 || find_version(m, &named);
}

/*
 * Clients of one token are told apart by their names, which are cut where they are long. @m:
 * initialize; NULL: a session for more clients, or one whose name is not known yet.
 */
static struct hf_session *new_session(const struct hf_exchange *x, const struct cg_rpc *m, bool stateless,
                                      struct cg_err *err)
{
        cg_auto_free char *name = NULL;
        struct cg_slice client, v;
        const char *token = "";

        if (m && !x->f->setup.metadata[0] && m->params.p && cg_json_find(m->params, "clientInfo", &client) &&
            cg_json_find(client, "name", &v))
                cg_json_strdup(v, &name, NULL);

        if (x->f->setup.metadata[0] || cg_hf_is_approver(x->who.owner))
                token = cg_hf_bearer(x->c);
        return cg_hf_session_new(x->f, &x->who, name ?: "", token, stateless, err);
}

enum MHD_Result cg_hf_open_sse(struct hf_exchange *x)
{
        struct hf_session *s;
        struct cg_err err;
        char text[80];
        int n;

        if (!cg_hf_accepts(x, "text/event-stream"))
                return cg_hf_refuse(x, MHD_HTTP_NOT_ACCEPTABLE, SERVER_ERROR,
                                    "Accept must have text/event-stream");
        s = new_session(x, NULL, false, &err);
        if (!s)
                return cg_hf_refuse(x, MHD_HTTP_SERVICE_UNAVAILABLE, SERVER_ERROR, err.msg);
        s->sse = true;
        cg_hf_attach(x, s->get);
        n = snprintf(text, sizeof(text), "/messages?session_id=%s\nevent: endpoint", s->id);
        cg_hf_stream_push(s->get, (struct cg_slice){ text, (size_t)n }, false);
        return cg_hf_send_events(x);
}

/* @s: NULL for a new one, which @m initializes. */
static enum MHD_Result request(struct hf_exchange *x, struct hf_session *s, const struct cg_rpc *m,
                               struct cg_slice text)
{
        enum hf_stream_kind kind = strcmp(m->method, "tools/call") == 0 ? HF_CALL : HF_REQUEST;
        const char *version = cg_hf_header(x, VERSION_HEADER);
        struct hf_stream *st;
        struct cg_err err;

        if (!s)
                kind = HF_INITIALIZE;
        if (s && s->n_open >= HF_MAX_REQUESTS)
                return cg_hf_refuse(
                        x, MHD_HTTP_TOO_MANY_REQUESTS, SERVER_ERROR,
                        "100 requests of this session are not answered yet: wait for one of them");
        if (!s)
                s = new_session(x, m, false, &err);
        if (!s)
                return cg_hf_refuse(x, MHD_HTTP_SERVICE_UNAVAILABLE, SERVER_ERROR, err.msg);
        st = cg_hf_stream_new(x->f, use(x, s), kind);
        if (!st)
                return MHD_NO;
        st->stateless = !x->sse && (s->stateless || is_stateless(x, m));
        st->can_stream = !x->sse && kind != HF_INITIALIZE && cg_hf_accepts(x, "text/event-stream");
        if (st->stateless && strcmp(m->method, "subscriptions/listen") == 0 &&
            !cg_mcpd_wants_undeclared_tasks(m->params))
                st->kind = HF_LISTEN;
        st->primes = version && strcmp(version, "2025-11-25") == 0;
        if (cg_hf_session_request(st, m, text, &err) < 0) {
                cg_hf_stream_free(st);
                return cg_hf_refuse(x, MHD_HTTP_SERVICE_UNAVAILABLE, SERVER_ERROR, err.msg);
        }
        if (x->sse)
                return cg_hf_respond_empty(x, MHD_HTTP_ACCEPTED);
        cg_hf_attach(x, st);
        return cg_hf_proceed(x);
}

/* The member of the params that the header Mcp-Name repeats; NULL: there is none. */
static const char *named_by(const struct cg_rpc *m)
{
        if (strcmp(m->method, "resources/read") == 0)
                return "uri";
        if (strcmp(m->method, "tasks/get") == 0 || strcmp(m->method, "tasks/update") == 0 ||
            strcmp(m->method, "tasks/cancel") == 0)
                return "taskId";
        return strcmp(m->method, "tools/call") == 0 ? "name" : NULL;
}

/*
 * The process of the session that a call names by its argument session_id or to_session, a read by
 * its URI, or a request about a task by the taskId. NULL: it names none, or one that is not there.
 * The session is found in the process.
 */
static struct hf_session *find_named(const struct hf_exchange *x, const struct cg_rpc *m)
{
        static const char begin[] = "cellgate://session/";
        cg_auto_free char *text = NULL;
        struct cg_slice args = m->params, v;
        const char *by = named_by(m);
        bool read = by && strcmp(by, "uri") == 0, call = by && strcmp(by, "name") == 0;
        struct hf_session *s;
        char *id;
        size_t len;

        if (!by || !args.p || (call && !cg_json_find(args, "arguments", &args)) ||
            (!cg_json_find(args, call ? "session_id" : by, &v) && !cg_json_find(args, "to_session", &v)) ||
            cg_json_strdup(v, &text, NULL) < 0 || (read && strncmp(text, begin, sizeof(begin) - 1) != 0))
                return NULL;
        id = text + (read ? sizeof(begin) - 1 : 0);
        len = call ? strlen(id) : strcspn(id, read ? "/" : "-");
        if (len != CG_HF_SESSION || strspn(id, "0123456789abcdef") != len)
                return NULL;
        id[8] = '\0';
        s = cg_hf_session_numbered(x->f, strtoull(id, NULL, 16));
        return s && !s->sse && memcmp(s->who.owner, x->who.owner, sizeof(x->who.owner)) == 0 ? s : NULL;
}

/* ---- the stateless era */

/* Checks that a header is there once, with the value of a member of the body, perhaps in base64. */
static bool says_same(const struct hf_exchange *x, const char *name, struct cg_slice value)
{
        static const char begin[] = "=?base64?", end[] = "?=";
        const size_t n_begin = sizeof(begin) - 1, n_end = sizeof(end) - 1;
        cg_auto_buf struct cg_buf decoded = { .max = HF_MAX_HEAD };
        cg_auto_free char *text = NULL;
        const char *said = cg_hf_header(x, name);
        size_t n = cg_strlen(said);
        struct header_count count = { name, 0 };

        MHD_get_connection_values(x->c, MHD_HEADER_KIND, count_header, &count);
        if (count.n != 1 || cg_json_strdup(value, &text, NULL) < 0)
                return false;
        while (n && (said[n - 1] == ' ' || said[n - 1] == '\t')) /* libmicrohttpd leaves it there */
                n--;
        if (n < n_begin + n_end || strncmp(said, begin, n_begin) != 0 ||
            strncmp(said + n - n_end, end, n_end) != 0)
                return n == strlen(text) && strncmp(said, text, n) == 0;
        return cg_base64_decode(said + n_begin, n - n_begin - n_end, &decoded, NULL) == 0 &&
               decoded.len == strlen(text) && memcmp(decoded.data, text, decoded.len) == 0;
}

/*
 * Checks what the session process cannot see: proxies, which read the headers, and cellgate, which
 * reads the body, must understand the same. A version that is missing or wrong is its error.
 */
static enum MHD_Result stateless(struct hf_exchange *x, const struct cg_rpc *m, struct cg_slice text)
{
        struct hf_session *s = find_named(x, m) ?: cg_hf_session_stateless(x->f, x->who.owner);
        const char *by = named_by(m);
        cg_auto_buf struct cg_buf method = { .max = CG_MAX_BODY };
        struct cg_slice version, name = { "\"\"", 2 };
        struct cg_err err;

        if (cg_json_try_quote(&method, m->method, strlen(m->method), NULL) < 0)
                return MHD_NO;
        if (find_version(m, &version) &&
            (!says_same(x, VERSION_HEADER, version) ||
             !says_same(x, "Mcp-Method", (struct cg_slice){ method.data, method.len }) ||
             (by && cg_json_find(m->params, by, &name) && !says_same(x, "Mcp-Name", name))))
                return cg_hf_refuse_request(
                        x, m->id, MHD_HTTP_BAD_REQUEST, HEADER_MISMATCH,
                        VERSION_HEADER
                        ", Mcp-Method and, of tools/call, resources/read and tasks, Mcp-Name must be there once"
                        " and say what the body says");
        if (strcmp(m->method, "subscriptions/listen") == 0 && !cg_hf_accepts(x, "text/event-stream"))
                return cg_hf_refuse_request(x, m->id, MHD_HTTP_NOT_ACCEPTABLE, SERVER_ERROR,
                                            "a subscription is a stream: Accept must have text/event-stream");
        if (!s)
                s = new_session(x, NULL, true, &err);
        if (!s)
                return cg_hf_refuse_request(x, m->id, MHD_HTTP_SERVICE_UNAVAILABLE, SERVER_ERROR, err.msg);
        return request(x, s, m, text);
}

/* @s: NULL: the session that the request names. */
static enum MHD_Result pass_on(struct hf_exchange *x, struct hf_session *s, const struct cg_rpc *m,
                               struct cg_slice text)
{
        enum MHD_Result result;
        struct cg_err err;

        if (!s)
                s = find_session(x, &result);
        if (!s)
                return result;
        if (m->kind == CG_RPC_REQUEST)
                return request(x, s, m, text);
        if (cg_hf_session_send(s, m, text, &err) < 0)
                return cg_hf_refuse(x, MHD_HTTP_SERVICE_UNAVAILABLE, SERVER_ERROR, err.msg);
        return cg_hf_respond_empty(x, MHD_HTTP_ACCEPTED);
}

enum MHD_Result cg_hf_post(struct hf_exchange *x)
{
        struct cg_slice text = { x->body.data, x->body.len };
        struct hf_session *s;
        struct cg_err err;
        struct cg_rpc m;

        if (x->received > CG_MAX_MCP_MESSAGE)
                return cg_hf_refuse(x, MHD_HTTP_CONTENT_TOO_LARGE, CG_RPC_INVALID_REQUEST,
                                    "the body has more than 64 MiB");
        if (x->received > x->body.len)
                return cg_hf_refuse(x, MHD_HTTP_SERVICE_UNAVAILABLE, SERVER_ERROR,
                                    "the server has no memory left for the body");
        if (cg_json_trim(text).len && cg_json_trim(text).p[0] == '[')
                return cg_hf_refuse(x, MHD_HTTP_BAD_REQUEST, CG_RPC_INVALID_REQUEST,
                                    "send each message in a request of its own");
        if (cg_json_object_slice(text.p ?: "", text.len, &text, &err) < 0)
                return cg_hf_refuse(x, MHD_HTTP_BAD_REQUEST, CG_RPC_PARSE_ERROR, err.msg);
        if (cg_rpc_parse(text, &m, &err) < 0)
                return cg_hf_refuse(x, MHD_HTTP_BAD_REQUEST, CG_RPC_INVALID_REQUEST, err.msg);
        if (x->sse)
                return pass_on(x, NULL, &m, text);
        if (m.kind == CG_RPC_REQUEST && is_stateless(x, &m))
                return stateless(x, &m, text);
        if (m.kind == CG_RPC_REQUEST && strcmp(m.method, "initialize") == 0)
                return request(x, NULL, &m, text);
        if (m.kind == CG_RPC_NOTIFICATION && is_stateless(x, &m)) /* there are none of this era */
                return cg_hf_respond_empty(x, MHD_HTTP_ACCEPTED);
        /* Some clients lose the header. */
        s = m.kind == CG_RPC_REQUEST && !cg_hf_header(x, SESSION_HEADER) ? find_named(x, &m) : NULL;
        return pass_on(x, s, &m, text);
}
