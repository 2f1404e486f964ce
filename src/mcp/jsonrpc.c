/* JSON-RPC 2.0 in lines. Linked into the tool server and the command line. */
#include "mcp/jsonrpc.h"

#include "base/json.h"
#include "mcp/ceilings.h"

/* ---- messages */

/* The top level, found in one pass. */
struct top {
        struct cg_slice jsonrpc, id, method, params, result, error;
};

static struct cg_slice *top_slot(struct top *t, struct cg_slice key)
{
        const struct {
                const char *key;
                struct cg_slice *slot;
        } slots[] = {
                { "jsonrpc", &t->jsonrpc }, { "id", &t->id },         { "method", &t->method },
                { "params", &t->params },   { "result", &t->result }, { "error", &t->error },
        };

        for (size_t i = 0; i < CG_ARRAY_LEN(slots); i++)
                if (cg_slice_is(key, slots[i].key))
                        return slots[i].slot;
        return NULL;
}

/* No name twice, in no other spelling ("\u0069d"): another JSON library must read the same. */
static int check_top_key(const struct cg_slice *keys, size_t n, struct cg_slice key, struct cg_err *err)
{
        if (n == CG_MCP_MAX_MEMBERS)
                return cg_fail(err, CG_E_PROTO, "message of more than %u members", CG_MCP_MAX_MEMBERS);
        if (memchr(key.p, '\\', key.len))
                return cg_fail(err, CG_E_PROTO, "escape in the name of a top-level member");
        for (size_t i = 0; i < n; i++)
                if (cg_slice_eq(keys[i], key))
                        return cg_fail(err, CG_E_PROTO, "top-level member \"%.*s\" stands there twice",
                                       (int)CG_MIN(key.len, 100), key.p);
        return 0;
}

/* Goes on when a rule is broken: text that is not JSON is CG_E_PARSE, whatever came first. */
static int find_top(struct cg_slice text, struct top *t, struct cg_err *err)
{
        struct cg_slice keys[CG_MCP_MAX_MEMBERS], key = CG_SLICE_NONE, value = CG_SLICE_NONE, *slot;
        struct cg_json_walk w;
        struct cg_err other;
        size_t n = 0;
        int r, bad = 0;

        r = cg_json_walk_init(&w, text, '{', err);
        while (r == 0) {
                r = cg_json_walk_next(&w, &key, &value, bad ? &other : err);
                if (r != 0 || bad)
                        continue;
                bad = check_top_key(keys, n, key, err);
                if (bad)
                        continue;
                keys[n++] = key;
                slot = top_slot(t, key);
                if (slot)
                        *slot = value;
        }
        if (r < 0 && bad && err)
                *err = other;
        return r < 0 ? r : bad;
}

static bool span_null(struct cg_slice s)
{
        return !s.p || cg_slice_is(s, "null");
}

static int parse_id(struct cg_slice s, struct cg_rpc *m, struct cg_err *err)
{
        size_t i;

        if (span_null(s))
                return 0;
        if (s.len > CG_MCP_MAX_ID)
                return cg_fail(err, CG_E_PROTO, "id of %zu bytes", s.len);
        m->id = s;
        if (s.p[0] == '"')
                return 0;
        i = s.p[0] == '-';
        m->id_is_number = !i && s.len < 16;
        for (; i < s.len; i++) {
                if (s.p[i] < '0' || s.p[i] > '9')
                        return cg_fail(err, CG_E_PROTO, "id is neither a string nor an integer");
                if (m->id_is_number)
                        m->id_number = m->id_number * 10 + (uint64_t)(s.p[i] - '0');
        }
        return 0;
}

static int classify(const struct top *t, struct cg_rpc *m, struct cg_err *err)
{
        /* "error": null beside a result, and the reverse, is what several old libraries write. */
        bool has_result = t->result.p && (span_null(t->error) || !span_null(t->result));
        bool has_error = !span_null(t->error);
        cg_auto_free char *method = NULL;

        if (t->method.p) {
                if (t->result.p || t->error.p)
                        return cg_fail(err, CG_E_PROTO, "both request and response");
                if (t->id.p && !m->id.p)
                        return cg_fail(err, CG_E_PROTO, "request with the id null");
                m->kind = t->id.p ? CG_RPC_REQUEST : CG_RPC_NOTIFICATION;
                m->params = t->params;
                if (cg_json_strdup(t->method, &method, NULL) < 0 || strlen(method) >= sizeof(m->method))
                        return cg_fail(err, CG_E_PROTO, "method is not a short string");
                memcpy(m->method, method, strlen(method) + 1);
                return 0;
        }
        if (has_result == has_error)
                return cg_fail(err, CG_E_PROTO,
                               has_result ? "both result and error" : "neither method, result nor error");
        if (has_result && !m->id.p)
                return cg_fail(err, CG_E_PROTO, "result without an id");
        m->kind = has_result ? CG_RPC_RESULT : CG_RPC_ERROR;
        m->result = has_result ? t->result : CG_SLICE_NONE;
        m->error = has_error ? t->error : CG_SLICE_NONE;
        return 0;
}

int cg_rpc_parse(struct cg_slice text, struct cg_rpc *ret, struct cg_err *err)
{
        struct cg_rpc m = { .kind = CG_RPC_REQUEST };
        struct top t = { .id = CG_SLICE_NONE };
        int r = find_top(text, &t, err);

        if (r < 0)
                return r;
        if (!cg_slice_is(t.jsonrpc, "\"2.0\""))
                return cg_fail(err, CG_E_PROTO, "no \"jsonrpc\": \"2.0\"");
        if (parse_id(t.id, &m, err) < 0 || classify(&t, &m, err) < 0)
                return CG_E_PROTO;
        *ret = m;
        return 0;
}

/* ---- messages that cannot be read */

struct outline {
        struct cg_slice id;
        bool jsonrpc, method, answer, id_twice, closed;
};

/* The end of the string that begins at @p, behind its quote; @end: it is not closed. */
static const char *string_end(const char *p, const char *end)
{
        for (p++; p < end && *p != '"'; p++)
                if (*p == '\\' && p + 1 < end)
                        p++;
        return p < end ? p + 1 : end;
}

static void add_member(struct outline *m, struct cg_slice key, struct cg_slice value)
{
        value = cg_json_trim(value);
        m->jsonrpc |= cg_slice_is(key, "\"jsonrpc\"");
        m->method |= cg_slice_is(key, "\"method\"");
        m->answer |= cg_slice_is(key, "\"result\"") || cg_slice_is(key, "\"error\"");
        if (!cg_slice_is(key, "\"id\""))
                return;
        m->id_twice |= m->id.p && !cg_slice_eq(m->id, value);
        m->id = value;
}

/* The members of an object, as far as quotes and brackets show them. */
static void find_members(struct cg_slice text, struct outline *m)
{
        const char *p = text.p + 1, *end = text.p + text.len, *value = NULL;
        struct cg_slice last = CG_SLICE_NONE, key = CG_SLICE_NONE;
        size_t depth = 1;

        while (p < end && depth) {
                const char *at = p;

                p = *p == '"' ? string_end(p, end) : p + 1;
                if (*at == '[' || *at == '{') {
                        depth++;
                } else if (*at == ']' || *at == '}') {
                        depth--;
                } else if (depth == 1 && *at == '"') {
                        last = (struct cg_slice){ at, (size_t)(p - at) };
                } else if (depth == 1 && *at == ':' && !value) {
                        key = last;
                        value = p;
                }
                if (value && (!depth || (depth == 1 && *at == ','))) {
                        add_member(m, key, (struct cg_slice){ value, (size_t)(at - value) });
                        value = NULL;
                }
        }
        m->closed = !depth;
        if (value) /* the text ends in it: a number may be only its beginning */
                add_member(m, key, CG_SLICE_NONE);
}

static bool begins_with(struct cg_slice text, const char *prefix)
{
        return text.len >= strlen(prefix) && memcmp(text.p, prefix, strlen(prefix)) == 0;
}

void cg_rpc_inspect(struct cg_slice text, struct cg_rpc_unreadable *ret)
{
        static const char version[] = "\"jsonrpc\"";
        struct outline m = { .id = CG_SLICE_NONE };
        struct cg_rpc parsed = { .kind = CG_RPC_REQUEST };
        struct cg_slice rest;

        *ret = (struct cg_rpc_unreadable){ .kind = CG_RPC_NO_MESSAGE, .id = CG_SLICE_NONE };
        text = cg_json_trim(text);
        rest = text.len && text.p[0] == '[' ? cg_json_trim((struct cg_slice){ text.p + 1, text.len - 1 })
                                            : CG_SLICE_NONE;
        /* A batch, or a line of a message that was written over several. */
        if (begins_with(text, version) ||
            (rest.len && rest.p[0] == '{' && memmem(rest.p, rest.len, version, sizeof(version) - 1))) {
                ret->kind = CG_RPC_UNREADABLE_ANSWER;
                ret->certain = true;
                return;
        }
        if (!text.len || text.p[0] != '{')
                return;
        find_members(text, &m);
        if (!m.jsonrpc && !(m.answer && m.id.p))
                return;
        ret->certain = m.jsonrpc;
        if (!m.id_twice && m.id.len && parse_id(m.id, &parsed, NULL) == 0) {
                ret->id = parsed.id;
                ret->id_number = parsed.id_is_number ? parsed.id_number : 0;
        }
        if (m.answer || (!m.method && (m.id.p || !m.closed)))
                ret->kind = CG_RPC_UNREADABLE_ANSWER;
        else if (m.method)
                ret->kind = m.id.p ? CG_RPC_UNREADABLE_REQUEST : CG_RPC_UNREADABLE_NOTIFICATION;
}

/* ---- writing */

int cg_rpc_add_request(struct cg_buf *b, uint64_t id, const char *method, const char *params,
                       struct cg_err *err)
{
        if (params)
                return cg_buf_try_addf(b, err,
                                       "{\"jsonrpc\":\"2.0\",\"id\":%llu,\"method\":\"%s\",\"params\":%s}\n",
                                       (unsigned long long)id, method, params);
        return cg_buf_try_addf(b, err, "{\"jsonrpc\":\"2.0\",\"id\":%llu,\"method\":\"%s\"}\n",
                               (unsigned long long)id, method);
}

int cg_rpc_add_notification(struct cg_buf *b, const char *method, const char *params, struct cg_err *err)
{
        if (params)
                return cg_buf_try_addf(b, err, "{\"jsonrpc\":\"2.0\",\"method\":\"%s\",\"params\":%s}\n",
                                       method, params);
        return cg_buf_try_addf(b, err, "{\"jsonrpc\":\"2.0\",\"method\":\"%s\"}\n", method);
}

static void add_answer_head(struct cg_buf *b, struct cg_slice id)
{
        cg_buf_adds(b, "{\"jsonrpc\":\"2.0\",\"id\":");
        if (!id.p)
                id = CG_SLICE("null");
        cg_buf_add(b, id.p, id.len);
}

int cg_rpc_add_result(struct cg_buf *b, struct cg_slice id, const char *result, size_t len,
                      struct cg_err *err)
{
        size_t start = b->len;

        add_answer_head(b, id);
        cg_buf_adds(b, ",\"result\":");
        if (result)
                cg_buf_add(b, result, len);
        else
                cg_buf_adds(b, "{}");
        cg_buf_adds(b, "}\n");
        return cg_buf_end_entry(b, start, err);
}

int cg_rpc_add_error_data(struct cg_buf *b, struct cg_slice id, int code, const char *message,
                          const char *data, struct cg_err *err)
{
        size_t start = b->len;

        add_answer_head(b, id);
        cg_buf_addf(b, ",\"error\":{\"code\":%d,\"message\":", code);
        cg_json_quote(b, message, strlen(message));
        if (data)
                cg_buf_addf(b, ",\"data\":%s", data);
        cg_buf_adds(b, "}}\n");
        return cg_buf_end_entry(b, start, err);
}

int cg_rpc_add_error(struct cg_buf *b, struct cg_slice id, int code, const char *message, struct cg_err *err)
{
        return cg_rpc_add_error_data(b, id, code, message, NULL, err);
}

/* ---- lines */

void cg_lines_init(struct cg_lines *l, size_t max)
{
        *l = (struct cg_lines){ .max = max };
        /* Behind a line of the longest kind a part of the next has been read already. */
        cg_buf_init(&l->buf, max > SIZE_MAX / 2 ? SIZE_MAX : max * 2 + (1 << 20));
}

void cg_lines_fini(struct cg_lines *l)
{
        cg_buf_fini(&l->buf);
}

/* Keeps the buffer from staying as large as the largest line ever was. */
#define LINES_KEEP ((size_t)1 << 20)

int cg_lines_room(struct cg_lines *l, size_t n, char **ret, struct cg_err *err)
{
        if (l->at) {
                cg_buf_consume(&l->buf, l->at);
                l->scanned -= l->at;
                l->at = 0;
        }
        if (!l->buf.len && l->buf.cap > LINES_KEEP)
                cg_buf_fini(&l->buf);
        return cg_buf_reserve(&l->buf, n, ret, err);
}

void cg_lines_added(struct cg_lines *l, size_t n)
{
        l->buf.len += n;
        cg_buf_terminate(&l->buf);
}

int cg_lines_next(struct cg_lines *l, struct cg_slice *ret, struct cg_err *err)
{
        const char *nl = NULL, *line;
        size_t len;

        if (l->buf.len > l->scanned)
                nl = memchr(l->buf.data + l->scanned, '\n', l->buf.len - l->scanned);
        if (!nl) {
                l->scanned = l->buf.len;
                if (l->skipped || l->buf.len - l->at > l->max) { /* drops what is too long already */
                        l->skipped += l->buf.len - l->at;
                        l->buf.len = l->at = l->scanned = 0;
                        cg_buf_terminate(&l->buf);
                }
                return CG_TIMEOUT;
        }
        line = l->buf.data + l->at;
        len = (size_t)(nl - line);
        l->at = l->scanned = (size_t)(nl + 1 - l->buf.data);
        if (l->skipped || len > l->max) {
                len += l->skipped;
                l->skipped = 0;
                return cg_fail(err, CG_E_LIMIT, "line of %zu bytes, at most %zu", len, l->max);
        }
        if (len && line[len - 1] == '\r')
                len--;
        *ret = (struct cg_slice){ .p = line, .len = len };
        return 0;
}

int cg_lines_rest(struct cg_lines *l, struct cg_slice *ret)
{
        if (l->skipped || l->buf.len == l->at)
                return CG_TIMEOUT;
        *ret = (struct cg_slice){ .p = l->buf.data + l->at, .len = l->buf.len - l->at };
        l->at = l->scanned = l->buf.len;
        return 0;
}
