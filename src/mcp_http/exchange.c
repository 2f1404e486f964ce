/*
 * Connections and requests of HTTP: Streamable HTTP of MCP, revisions 2025-03-26 to 2025-11-25, at
 * /mcp, HTTP+SSE of 2024-11-05 at /sse, and /health. Runs in the front of cellgate-mcp-http.
 *
 * libmicrohttpd calls cg_hf_access() for a request when its head has come, for each part of its
 * body, when that is whole, and again each time the connection is resumed. A request that waits is
 * suspended: then our own epoll reports that the client has gone.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include "base/ceilings.h"
#include "base/base64.h"
#include "base/json.h"
#include "base/util.h"
#include "config.h"
#include "mcp/server.h"
#include "mcp_http/front.h"

#define SESSION_HEADER "Mcp-Session-Id"
#define VERSION_HEADER "MCP-Protocol-Version"
#define EVENT_BLOCK    ((size_t)32 << 10)
#define SERVER_ERROR   (-32000)
/* A header of the stateless era says something else than the body. */
#define HEADER_MISMATCH (-32020)

struct hf_exchange {
        struct hf_front *f;
        struct hf_conn *conn;
        struct MHD_Connection *c;
        const char *origin;       /* of a page that may read the response */
        struct cg_buf body;       /* counted in f->body_bytes */
        size_t received;          /* more than the body holds: it is too large */
        struct hf_stream *stream; /* that it sends; NULL: none yet */
        bool suspended;
        bool sse; /* to /messages */
        /* OAuth: number of the question to the verifier, and its answer (type 0: none). */
        uint64_t check;
        int64_t check_ms;
        struct hf_msg checked;
        struct hf_who who;
        const char *token_error; /* the end of WWW-Authenticate; NULL: none */
};

struct hf_conn {
        LIST_ENTRY(hf_conn) entry;
        struct hf_watch watch;
        int fd;
        unsigned n_requests;
        int64_t since_ms; /* the start, or the end of the last request */
        bool gone;        /* the client has closed it */
        bool busy;        /* the head of a request has come */
        struct hf_exchange *x;
};

/* ---- responses */

static void add_cors(const struct hf_exchange *x, struct MHD_Response *r)
{
        if (!x->origin)
                return;
        MHD_add_response_header(r, "Access-Control-Allow-Origin", x->origin);
        MHD_add_response_header(r, "Access-Control-Expose-Headers", SESSION_HEADER ", WWW-Authenticate");
        MHD_add_response_header(r, "Vary", "Origin");
}

/* Takes @r. */
static enum MHD_Result queue(const struct hf_exchange *x, unsigned status, struct MHD_Response *r)
{
        enum MHD_Result result = MHD_NO;

        if (!r)
                return MHD_NO;
        add_cors(x, r);
        result = MHD_queue_response(x->c, status, r);
        MHD_destroy_response(r);
        return result;
}

static enum MHD_Result empty(const struct hf_exchange *x, unsigned status)
{
        return queue(x, status,
                     MHD_create_response_from_buffer(0, (void *)(uintptr_t) "", MHD_RESPMEM_PERSISTENT));
}

/* Text of JSON, malloc()ed, is taken. */
static enum MHD_Result json(const struct hf_exchange *x, unsigned status, char *text, size_t len,
                            const char *header, const char *value)
{
        struct MHD_Response *r = text ? MHD_create_response_from_buffer(len, text, MHD_RESPMEM_MUST_FREE)
                                      : NULL;

        if (!r) {
                free(text);
                return MHD_NO;
        }
        MHD_add_response_header(r, "Content-Type", "application/json");
        if (header)
                MHD_add_response_header(r, header, value);
        return queue(x, status, r);
}

static enum MHD_Result refuse_request(const struct hf_exchange *x, struct cg_slice id, unsigned status,
                                      int code, const char *why)
{
        static const struct {
                unsigned status;
                const char *header, *value;
        } more[] = {
                { MHD_HTTP_SERVICE_UNAVAILABLE, "Retry-After", "5" },
                { MHD_HTTP_TOO_MANY_REQUESTS, "Retry-After", "1" },
                { MHD_HTTP_METHOD_NOT_ALLOWED, "Allow", "GET, POST, DELETE, OPTIONS" },
        };
        cg_auto_buf struct cg_buf b = { .max = CG_MAX_BODY };
        char challenge[sizeof(x->f->setup.challenge) + 64];
        size_t i = 0;
        char *text;
        size_t len;

        if (cg_rpc_add_error(&b, id, code, why, NULL) < 0)
                return MHD_NO;
        while (i < CG_ARRAY_LEN(more) && more[i].status != status)
                i++;
        text = cg_buf_steal(&b, &len);
        if (status == MHD_HTTP_UNAUTHORIZED || x->token_error) {
                snprintf(challenge, sizeof(challenge), "%s%s", x->f->setup.challenge, x->token_error ?: "");
                return json(x, status, text, len, "WWW-Authenticate", challenge);
        }
        if (i < CG_ARRAY_LEN(more))
                return json(x, status, text, len, more[i].header, more[i].value);
        return json(x, status, text, len, NULL, NULL);
}

static enum MHD_Result refuse(const struct hf_exchange *x, unsigned status, int code, const char *why)
{
        return refuse_request(x, CG_SLICE_NONE, status, code, why);
}

/* ---- waiting */

static void suspend(struct hf_exchange *x)
{
        x->suspended = true;
        MHD_suspend_connection(x->c);
}

static void wake(void *data)
{
        struct hf_exchange *x = data;

        if (x->suspended)
                MHD_resume_connection(x->c);
        x->suspended = false;
}

static void attach(struct hf_exchange *x, struct hf_stream *st)
{
        struct hf_exchange *before = st->reader;

        if (before) { /* a client that has not noticed that its connection is broken opens another one */
                before->stream = NULL;
                wake(before);
        }
        st->reader = x;
        st->wake = wake;
        st->since_ms = cg_now_ms();
        st->over = false;
        x->stream = st;
}

static ssize_t read_events(void *data, uint64_t pos, char *buf, size_t max)
{
        struct hf_exchange *x = data;
        ssize_t n;

        (void)pos;
        if (x->conn->gone || !x->stream)
                return MHD_CONTENT_READER_END_WITH_ERROR;
        n = cg_hf_stream_read(x->stream, buf, max);
        if (n == 0)
                suspend(x);
        if (n < 0)
                return n == -1 ? MHD_CONTENT_READER_END_OF_STREAM : MHD_CONTENT_READER_END_WITH_ERROR;
        return n;
}

static enum MHD_Result send_events(struct hf_exchange *x)
{
        struct MHD_Response *r = MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, EVENT_BLOCK, read_events,
                                                                   x, NULL);

        if (!r)
                return MHD_NO;
        MHD_add_response_header(r, "Content-Type", "text/event-stream");
        MHD_add_response_header(r, "Cache-Control", "no-cache, no-transform");
        MHD_add_response_header(r, "X-Accel-Buffering", "no");
        return queue(x, MHD_HTTP_OK, r);
}

/* The stream has something for the client, or not yet. */
static enum MHD_Result proceed(struct hf_exchange *x)
{
        struct hf_stream *st = x->stream;
        char *text;

        if (x->conn->gone || st->slow)
                return MHD_NO;
        if (st->begun)
                return send_events(x);
        if (!st->answer) {
                suspend(x);
                return MHD_YES;
        }
        text = CG_STEAL(st->answer);
        if (st->kind == HF_INITIALIZE && st->session)
                return json(x, MHD_HTTP_OK, text, st->answer_len, SESSION_HEADER, st->session->id);
        return json(x, st->status ?: MHD_HTTP_OK, text, st->answer_len, NULL, NULL);
}

/* ---- requests */

static const char *header(const struct hf_exchange *x, const char *name)
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

        (void)kind;
        (void)value;
        c->n += strcasecmp(name, c->name) == 0;
        return MHD_YES;
}

/* One of the types of "Accept: a/b, c/d;q=0.1". */
static bool accepts(const struct hf_exchange *x, const char *type)
{
        const char *all = header(x, "Accept");

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
                                : header(x, SESSION_HEADER),
                   *version = header(x, VERSION_HEADER);
        struct hf_session *s = id ? cg_hf_session_find(x->f, id) : NULL;
        size_t i = 0;

        if (s && (s->sse != x->sse || memcmp(s->who.owner, x->who.owner, sizeof(x->who.owner)) != 0))
                s = NULL;
        while (version && i < CG_ARRAY_LEN(versions) && strcmp(versions[i], version) != 0)
                i++;
        if (version && strcmp(version, CG_MCPD_STATELESS) == 0)
                *ret = refuse(x, MHD_HTTP_METHOD_NOT_ALLOWED, SERVER_ERROR,
                              "revision " CG_MCPD_STATELESS " has POST only");
        else if (i == CG_ARRAY_LEN(versions))
                *ret = refuse(
                        x, MHD_HTTP_BAD_REQUEST, SERVER_ERROR,
                        "MCP-Protocol-Version is none of 2024-11-05, 2025-03-26, 2025-06-18 and 2025-11-25: "
                        "send initialize, without a session");
        else if (!id)
                *ret = refuse(x, MHD_HTTP_BAD_REQUEST, SERVER_ERROR,
                              "the header " SESSION_HEADER
                              " is missing: send initialize first, whose response has it");
        else if (!s)
                *ret = refuse(x, MHD_HTTP_NOT_FOUND, SERVER_ERROR,
                              "there is no such session, or it has ended: send initialize for a new one");
        else
                return use(x, s);
        return NULL;
}

static enum MHD_Result get(struct hf_exchange *x)
{
        const char *last = header(x, "Last-Event-ID");
        unsigned long long number = 0, event = 0;
        enum MHD_Result result;
        struct hf_session *s;
        struct hf_stream *st;

        if (!accepts(x, "text/event-stream"))
                return refuse(x, MHD_HTTP_NOT_ACCEPTABLE, SERVER_ERROR, "Accept must have text/event-stream");
        s = find_session(x, &result);
        if (!s)
                return result;
        if (last && sscanf(last, "%20llu-%20llu", &number, &event) != 2)
                return refuse(x, MHD_HTTP_BAD_REQUEST, SERVER_ERROR,
                              "Last-Event-ID is none of this server's");
        TAILQ_FOREACH(st, &s->streams, entry) {
                if (st->number == number && st->begun)
                        break;
        }
        if (!st || (last && !cg_hf_stream_resume(st, event)))
                return refuse(x, MHD_HTTP_BAD_REQUEST, SERVER_ERROR,
                              "the stream of this Last-Event-ID is no longer kept: call the tool again");
        attach(x, st);
        if (st == s->get)
                cg_hf_session_back(s);
        return send_events(x);
}

static enum MHD_Result end_session(struct hf_exchange *x)
{
        enum MHD_Result result;
        struct hf_session *s = find_session(x, &result);

        if (!s)
                return result;
        cg_hf_session_end(s, "the session was ended by its client");
        return empty(x, MHD_HTTP_NO_CONTENT);
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
        const char *version = header(x, VERSION_HEADER);
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

/* HTTP+SSE: a session begins and ends with its stream, whose first event says where messages go. */
static enum MHD_Result open_sse(struct hf_exchange *x)
{
        struct hf_session *s;
        struct cg_err err;
        char text[80];
        int n;

        if (!accepts(x, "text/event-stream"))
                return refuse(x, MHD_HTTP_NOT_ACCEPTABLE, SERVER_ERROR, "Accept must have text/event-stream");
        s = new_session(x, NULL, false, &err);
        if (!s)
                return refuse(x, MHD_HTTP_SERVICE_UNAVAILABLE, SERVER_ERROR, err.msg);
        s->sse = true;
        attach(x, s->get);
        n = snprintf(text, sizeof(text), "/messages?session_id=%s\nevent: endpoint", s->id);
        cg_hf_stream_push(s->get, (struct cg_slice){ text, (size_t)n }, false);
        return send_events(x);
}

/* @s: NULL for a new one, which @m initializes. */
static enum MHD_Result request(struct hf_exchange *x, struct hf_session *s, const struct cg_rpc *m,
                               struct cg_slice text)
{
        enum hf_stream_kind kind = strcmp(m->method, "tools/call") == 0 ? HF_CALL : HF_REQUEST;
        const char *version = header(x, VERSION_HEADER);
        struct hf_stream *st;
        struct cg_err err;

        if (!s)
                kind = HF_INITIALIZE;
        if (s && s->n_open >= HF_MAX_REQUESTS)
                return refuse(x, MHD_HTTP_TOO_MANY_REQUESTS, SERVER_ERROR,
                              "100 requests of this session are not answered yet: wait for one of them");
        if (!s)
                s = new_session(x, m, false, &err);
        if (!s)
                return refuse(x, MHD_HTTP_SERVICE_UNAVAILABLE, SERVER_ERROR, err.msg);
        st = cg_hf_stream_new(x->f, use(x, s), kind);
        if (!st)
                return MHD_NO;
        st->stateless = !x->sse && (s->stateless || is_stateless(x, m));
        st->can_stream = !x->sse && kind != HF_INITIALIZE && accepts(x, "text/event-stream");
        if (st->stateless && strcmp(m->method, "subscriptions/listen") == 0 &&
            !cg_mcpd_wants_undeclared_tasks(m->params))
                st->kind = HF_LISTEN;
        st->primes = version && strcmp(version, "2025-11-25") == 0;
        if (cg_hf_session_request(st, m, text, &err) < 0) {
                cg_hf_stream_free(st);
                return refuse(x, MHD_HTTP_SERVICE_UNAVAILABLE, SERVER_ERROR, err.msg);
        }
        if (x->sse)
                return empty(x, MHD_HTTP_ACCEPTED);
        attach(x, st);
        return proceed(x);
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

/* Whether a header is there once, with the value of a member of the body, perhaps in base64. */
static bool says_same(const struct hf_exchange *x, const char *name, struct cg_slice value)
{
        static const char begin[] = "=?base64?", end[] = "?=";
        const size_t n_begin = sizeof(begin) - 1, n_end = sizeof(end) - 1;
        cg_auto_buf struct cg_buf decoded = { .max = HF_MAX_HEAD };
        cg_auto_free char *text = NULL;
        const char *said = header(x, name);
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
 * What the session process cannot see is checked here: that proxies which read the headers, and we,
 * who read the body, understand the same. A version that is missing or wrong is its error.
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
                return refuse_request(
                        x, m->id, MHD_HTTP_BAD_REQUEST, HEADER_MISMATCH,
                        VERSION_HEADER
                        ", Mcp-Method and, of tools/call, resources/read and tasks, Mcp-Name must be there once"
                        " and say what the body says");
        if (strcmp(m->method, "subscriptions/listen") == 0 && !accepts(x, "text/event-stream"))
                return refuse_request(x, m->id, MHD_HTTP_NOT_ACCEPTABLE, SERVER_ERROR,
                                      "a subscription is a stream: Accept must have text/event-stream");
        if (!s)
                s = new_session(x, NULL, true, &err);
        if (!s)
                return refuse_request(x, m->id, MHD_HTTP_SERVICE_UNAVAILABLE, SERVER_ERROR, err.msg);
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
                return refuse(x, MHD_HTTP_SERVICE_UNAVAILABLE, SERVER_ERROR, err.msg);
        return empty(x, MHD_HTTP_ACCEPTED);
}

static enum MHD_Result post(struct hf_exchange *x)
{
        struct cg_slice text = { x->body.data, x->body.len };
        struct hf_session *s;
        struct cg_err err;
        struct cg_rpc m;

        if (x->received > CG_MAX_MCP_MESSAGE)
                return refuse(x, MHD_HTTP_CONTENT_TOO_LARGE, CG_RPC_INVALID_REQUEST,
                              "the body has more than 64 MiB");
        if (x->received > x->body.len)
                return refuse(x, MHD_HTTP_SERVICE_UNAVAILABLE, SERVER_ERROR,
                              "the server has no memory left for the body");
        if (cg_json_trim(text).len && cg_json_trim(text).p[0] == '[')
                return refuse(x, MHD_HTTP_BAD_REQUEST, CG_RPC_INVALID_REQUEST,
                              "send each message in a request of its own");
        if (cg_json_object_slice(text.p ?: "", text.len, &text, &err) < 0)
                return refuse(x, MHD_HTTP_BAD_REQUEST, CG_RPC_PARSE_ERROR, err.msg);
        if (cg_rpc_parse(text, &m, &err) < 0)
                return refuse(x, MHD_HTTP_BAD_REQUEST, CG_RPC_INVALID_REQUEST, err.msg);
        if (x->sse)
                return pass_on(x, NULL, &m, text);
        if (m.kind == CG_RPC_REQUEST && is_stateless(x, &m))
                return stateless(x, &m, text);
        if (m.kind == CG_RPC_REQUEST && strcmp(m.method, "initialize") == 0)
                return request(x, NULL, &m, text);
        if (m.kind == CG_RPC_NOTIFICATION && is_stateless(x, &m)) /* there are none of this era */
                return empty(x, MHD_HTTP_ACCEPTED);
        /* Some clients lose the header. */
        s = m.kind == CG_RPC_REQUEST && !header(x, SESSION_HEADER) ? find_named(x, &m) : NULL;
        return pass_on(x, s, &m, text);
}

static enum MHD_Result health(struct hf_exchange *x)
{
        char *text = NULL;
        int n = asprintf(&text, "{\"status\":\"ok\",\"version\":\"%s\",\"tier\":\"%s\",\"sessions\":%u}\n",
                         CG_VERSION, x->f->setup.tier, x->f->n_sessions);

        return n < 0 ? MHD_NO : json(x, MHD_HTTP_OK, text, (size_t)n, NULL, NULL);
}

static enum MHD_Result metadata(struct hf_exchange *x)
{
        char *text = strdup(x->f->setup.metadata);

        return json(x, MHD_HTTP_OK, text, cg_strlen(text), NULL, NULL);
}

static enum MHD_Result options(struct hf_exchange *x)
{
        struct MHD_Response *r = MHD_create_response_from_buffer(0, (void *)(uintptr_t) "",
                                                                 MHD_RESPMEM_PERSISTENT);

        if (!r)
                return MHD_NO;
        MHD_add_response_header(r, "Access-Control-Allow-Methods", "GET, POST, DELETE");
        MHD_add_response_header(
                r, "Access-Control-Allow-Headers",
                "Authorization, Content-Type, Last-Event-ID, Mcp-Method, Mcp-Name, " VERSION_HEADER
                ", " SESSION_HEADER);
        return queue(x, MHD_HTTP_NO_CONTENT, r);
}

/* In the order of the functions below. */
enum hf_route { NO_PATH, NO_METHOD, HEALTH, METADATA, OPTIONS, GET, DELETE, POST, SSE, MESSAGES };

static enum hf_route route_of(const struct hf_front *f, const char *url, const char *method)
{
        static const struct {
                const char *url, *method;
                enum hf_route route;
        } routes[] = { { "/mcp", "POST", POST },
                       { "/mcp", "GET", GET },
                       { "/mcp", "DELETE", DELETE },
                       { "/mcp", "OPTIONS", OPTIONS },
                       { "/health", "GET", HEALTH },
                       { "/health", "HEAD", HEALTH },
                       { CG_HF_METADATA_PLACE, "GET", METADATA },
                       { CG_HF_METADATA_PLACE, "OPTIONS", OPTIONS },
                       { "/sse", "GET", SSE },
                       { "/messages", "POST", MESSAGES } };
        enum hf_route found = NO_PATH;

        /* The path of the server's own URL follows, which a proxy may have chosen. */
        if (strncmp(url, CG_HF_METADATA_PLACE, strlen(CG_HF_METADATA_PLACE)) == 0)
                url = f->setup.metadata[0] ? CG_HF_METADATA_PLACE : "";
        for (size_t i = 0; i < CG_ARRAY_LEN(routes); i++) {
                if (strcmp(url, routes[i].url) != 0 || (routes[i].route >= SSE && !f->setup.sse))
                        continue;
                if (strcmp(method, routes[i].method) == 0)
                        return routes[i].route;
                found = NO_METHOD;
        }
        return found;
}

/* The request is allowed. */
static enum MHD_Result check_route(struct hf_exchange *x, enum hf_route route)
{
        const char *length = header(x, "Content-Length"), *type = header(x, "Content-Type");

        if (route == NO_PATH)
                return refuse(x, MHD_HTTP_NOT_FOUND, SERVER_ERROR, "there are only /mcp and /health");
        if (route == NO_METHOD)
                return refuse(x, MHD_HTTP_METHOD_NOT_ALLOWED, SERVER_ERROR, "there is no such method here");
        x->sse = route == MESSAGES;
        if (route != POST && route != MESSAGES)
                return MHD_YES;
        /* Pages can send other types to foreign servers without being asked. */
        if (!type || strncasecmp(type, "application/json", 16) != 0 ||
            (type[16] && !strchr("; \t", type[16])))
                return refuse(x, MHD_HTTP_UNSUPPORTED_MEDIA_TYPE, SERVER_ERROR,
                              "Content-Type must be application/json");
        if (!accepts(x, "application/json"))
                return refuse(x, MHD_HTTP_NOT_ACCEPTABLE, SERVER_ERROR,
                              "Accept must have application/json, and should have text/event-stream");
        if (length && strtoull(length, NULL, 10) > CG_MAX_MCP_MESSAGE)
                return refuse(x, MHD_HTTP_CONTENT_TOO_LARGE, CG_RPC_INVALID_REQUEST,
                              "the body has more than 64 MiB");
        return MHD_YES;
}

static enum MHD_Result refuse_token(struct hf_exchange *x, int status, const char *why)
{
        if (status == MHD_HTTP_UNAUTHORIZED && *cg_hf_bearer(x->c))
                x->token_error = ", error=\"invalid_token\"";
        else if (status == MHD_HTTP_FORBIDDEN)
                x->token_error = ", error=\"insufficient_scope\"";
        return refuse(x, (unsigned)status, SERVER_ERROR, why);
}

/* The request waits for the verifier before its body is read. */
static enum MHD_Result ask_about_token(struct hf_exchange *x)
{
        struct cg_err err;

        x->check = ++x->f->last_request;
        if (x->f->n_checks >= HF_MAX_CHECKS ||
            cg_hf_tell_monitor(x->f, HF_CHECK, x->check, cg_hf_bearer(x->c), &err) < 0) {
                x->check = 0;
                return refuse(x, MHD_HTTP_SERVICE_UNAVAILABLE, SERVER_ERROR,
                              "too many tokens are being checked: send the request again");
        }
        x->f->n_checks++;
        x->check_ms = cg_now_ms();
        suspend(x);
        return MHD_YES;
}

static void end_check(struct hf_exchange *x)
{
        x->f->n_checks -= x->check != 0;
        x->check = 0;
}

void cg_hf_checked(struct hf_front *f, const struct hf_msg *m)
{
        struct hf_conn *conn;

        LIST_FOREACH(conn, &f->conns, entry) {
                if (!conn->x || conn->x->check != m->session)
                        continue;
                conn->x->checked = *m;
                end_check(conn->x);
                wake(conn->x);
                return;
        }
}

static enum MHD_Result after_check(struct hf_exchange *x, enum hf_route route)
{
        struct hf_msg *m = &x->checked;

        m->type = 0;
        if (m->status)
                return refuse_token(x, m->status, m->why);
        cg_hf_grant_keep(x->f, cg_hf_bearer(x->c), m, &x->who);
        return check_route(x, route);
}

/* The head has come. */
static enum MHD_Result check_head(struct hf_exchange *x, const char *url, const char *method)
{
        enum hf_route route = route_of(x->f, url, method);
        const char *why = NULL;
        int status = cg_hf_guard(x->f, x->c, method, route == HEALTH || route == METADATA, &x->who,
                                 &x->origin, &why);

        if (status == HF_ASK)
                return ask_about_token(x);
        if (status == MHD_HTTP_UNAUTHORIZED && x->f->setup.metadata[0])
                return refuse_token(x, status, why);
        if (status)
                return refuse(x, (unsigned)status, SERVER_ERROR, why);
        return check_route(x, route);
}

static void release_body(struct hf_exchange *x)
{
        x->f->body_bytes -= x->body.len;
        cg_buf_fini(&x->body);
}

/*
 * A body that is too long is read up to a limit, so that the client gets the response.
 * The part of a body that cannot be whole any more is freed for other bodies: else all that come at
 * the same time would be refused.
 */
static enum MHD_Result add_body(struct hf_exchange *x, const char *data, size_t *size)
{
        bool whole = x->received == x->body.len;
        size_t n = *size;

        *size = 0;
        x->received += n;
        if (x->received > 2 * CG_MAX_MCP_MESSAGE)
                return MHD_NO;
        if (whole && x->f->body_bytes + n <= HF_MAX_BODIES && cg_buf_try_add(&x->body, data, n, NULL) == 0)
                x->f->body_bytes += n;
        else
                release_body(x);
        return MHD_YES;
}

enum MHD_Result cg_hf_access(void *data, struct MHD_Connection *c, const char *url, const char *method,
                             const char *version, const char *upload, size_t *size, void **state)
{
        static enum MHD_Result (*const handlers[])(struct hf_exchange *) = {
                [HEALTH] = health,      [METADATA] = metadata, [OPTIONS] = options, [GET] = get,
                [DELETE] = end_session, [POST] = post,         [SSE] = open_sse,    [MESSAGES] = post,
        };
        const union MHD_ConnectionInfo *info = MHD_get_connection_info(c, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
        struct hf_exchange *x = *state;
        enum MHD_Result result;

        (void)version;
        if (!x) {
                x = info && info->socket_context ? calloc(1, sizeof(*x)) : NULL;
                if (!x)
                        return MHD_NO;
                x->f = data;
                x->c = c;
                x->who.until_ms = INT64_MAX;
                x->conn = info->socket_context;
                x->conn->x = x;
                x->conn->busy = true;
                x->conn->n_requests++;
                cg_buf_init(&x->body, CG_MAX_MCP_MESSAGE + 1);
                *state = x;
                return check_head(x, url, method);
        }
        if (*size)
                return add_body(x, upload, size);
        if (x->conn->gone)
                return MHD_NO;
        if (x->checked.type)
                return after_check(x, route_of(x->f, url, method));
        if (x->stream)
                return proceed(x);
        result = handlers[route_of(x->f, url, method)](x);
        release_body(x);
        return result;
}

void cg_hf_completed(void *data, struct MHD_Connection *c, void **state, enum MHD_RequestTerminationCode how)
{
        struct hf_exchange *x = *state;

        (void)data;
        (void)c;
        (void)how;
        if (!x)
                return;
        *state = NULL;
        x->conn->x = NULL;
        x->conn->busy = false;
        x->conn->since_ms = cg_now_ms();
        release_body(x);
        end_check(x);
        if (x->stream)
                cg_hf_session_leave(x->stream);
        free(x);
}

/* ---- connections */

static void on_hang_up(void *data, uint32_t events)
{
        struct hf_conn *conn = data;

        (void)events;
        conn->gone = true;
        if (conn->x)
                wake(conn->x);
}

void cg_hf_connection(void *data, struct MHD_Connection *c, void **context,
                      enum MHD_ConnectionNotificationCode what)
{
        const union MHD_ConnectionInfo *info = MHD_get_connection_info(c, MHD_CONNECTION_INFO_CONNECTION_FD);
        struct epoll_event e = { .events = EPOLLRDHUP | EPOLLET };
        struct hf_conn *conn = *context;
        struct hf_front *f = data;

        if (what == MHD_CONNECTION_NOTIFY_CLOSED && conn) {
                epoll_ctl(f->epoll, EPOLL_CTL_DEL, conn->fd, NULL);
                LIST_REMOVE(conn, entry);
                f->n_conns--;
                free(conn);
                *context = NULL;
                return;
        }
        conn = what == MHD_CONNECTION_NOTIFY_STARTED && info ? calloc(1, sizeof(*conn)) : NULL;
        if (!conn)
                return;
        conn->fd = info->connect_fd;
        conn->since_ms = cg_now_ms();
        conn->watch = (struct hf_watch){ on_hang_up, conn };
        e.data.ptr = &conn->watch;
        epoll_ctl(f->epoll, EPOLL_CTL_ADD, conn->fd, &e);
        LIST_INSERT_HEAD(&f->conns, conn, entry);
        f->n_conns++;
        *context = conn;
}

void cg_hf_conns_tick(struct hf_front *f, int64_t now)
{
        static const char late[] =
                "HTTP/1.1 408 Request Timeout\r\nConnection: close\r\nContent-Length: 0\r\n\r\n";
        struct hf_msg m = { .type = HF_CHECK,
                            .status = MHD_HTTP_SERVICE_UNAVAILABLE,
                            .why = "the token was not checked in time" };
        struct hf_conn *conn;

        LIST_FOREACH(conn, &f->conns, entry) {
                if (conn->x && conn->x->check && now - conn->x->check_ms >= HF_CHECK_MS) {
                        m.session = conn->x->check;
                        cg_hf_checked(f, &m);
                }
                /* libmicrohttpd may have read what came before the end, and wait for more. */
                if (conn->gone)
                        shutdown(conn->fd, SHUT_RDWR);
                if (conn->busy || now - conn->since_ms < (conn->n_requests ? HF_IDLE_MS : HF_HEAD_MS))
                        continue;
                if (!conn->n_requests && !f->tls)
                        send(conn->fd, late, sizeof(late) - 1, MSG_DONTWAIT | MSG_NOSIGNAL);
                shutdown(conn->fd, SHUT_RDWR); /* libmicrohttpd closes it then */
        }
}

void cg_hf_conns_end(struct hf_front *f)
{
        struct hf_conn *conn;

        LIST_FOREACH(conn, &f->conns, entry)
                on_hang_up(conn, 0);
}
