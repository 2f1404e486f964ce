/* JSON-RPC 2.0 in lines. Linked into the tool server and the command line. */
#include "mcp/jsonrpc.h"

#include <string.h>
#include "base/json.h"
#include "mcp/limits.h"

bool cg_span_is(struct cg_span s, const char *text)
{
        size_t n = strlen(text);

        return s.p && s.len == n && memcmp(s.p, text, n) == 0;
}

static bool is_space(char c)
{
        return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

struct cg_span cg_span_trim(struct cg_span s)
{
        while (s.len && is_space(s.p[0])) {
                s.p++;
                s.len--;
        }
        while (s.len && is_space(s.p[s.len - 1]))
                s.len--;
        return s;
}

/* ---- walking */

static void skip_space(struct cg_walk *w)
{
        while (w->p < w->end && is_space(*w->p))
                w->p++;
}

static int walk_fail(const struct cg_walk *w, const char *why, struct cg_err *err)
{
        return cg_fail(err, CG_E_PARSE, "not valid JSON at byte %zu: %s", (size_t)(w->p - w->start), why);
}

int cg_walk_init(struct cg_walk *w, struct cg_span text, char open, struct cg_err *err)
{
        if (!text.p)
                return cg_fail(err, CG_E_PARSE, "no JSON %s", open == '{' ? "object" : "array");
        *w = (struct cg_walk){ .p = text.p,
                               .start = text.p,
                               .end = text.p + text.len,
                               .close = open == '{' ? '}' : ']',
                               .first = true };
        skip_space(w);
        if (w->p == w->end || *w->p != open)
                return walk_fail(w, open == '{' ? "an object is expected" : "an array is expected", err);
        w->p++;
        return 0;
}

/* One value, without the space around it. */
static int take_value(struct cg_walk *w, struct cg_span *ret, struct cg_err *err)
{
        size_t n;
        int r;

        skip_space(w);
        r = cg_json_skip(w->p, (size_t)(w->end - w->p), CG_MCP_MAX_DEPTH, &n, err);
        if (r < 0) {
                cg_err_prefix(err, "in the value at byte %zu", (size_t)(w->p - w->start));
                return r;
        }
        *ret = (struct cg_span){ .p = w->p, .len = n };
        w->p += n;
        return 0;
}

static int take_key(struct cg_walk *w, struct cg_span *ret, struct cg_err *err)
{
        skip_space(w);
        if (w->p == w->end || *w->p != '"')
                return walk_fail(w, "a member's name must be a string", err);
        if (take_value(w, ret, err) < 0)
                return CG_E_PARSE;
        ret->p++;
        ret->len -= 2;
        skip_space(w);
        if (w->p == w->end || *w->p != ':')
                return walk_fail(w, "':' expected", err);
        w->p++;
        return 0;
}

int cg_walk_next(struct cg_walk *w, struct cg_span *key, struct cg_span *value, struct cg_err *err)
{
        skip_space(w);
        if (w->p < w->end && *w->p == w->close) {
                w->p++;
                skip_space(w);
                return w->p == w->end ? CG_WALK_END : walk_fail(w, "text after the end", err);
        }
        if (!w->first) {
                if (w->p == w->end || *w->p != ',')
                        return walk_fail(w, w->close == '}' ? "',' or '}' expected" : "',' or ']' expected",
                                         err);
                w->p++;
        }
        w->first = false;
        if (w->close == '}') {
                int r = take_key(w, key, err);

                if (r < 0)
                        return r;
        } else if (key) {
                *key = CG_SPAN_NONE;
        }
        return take_value(w, value, err);
}

int cg_span_member(struct cg_span text, const char *key, struct cg_span *ret, struct cg_err *err)
{
        struct cg_span k = CG_SPAN_NONE, v = CG_SPAN_NONE, found = CG_SPAN_NONE;
        struct cg_walk w;
        int r = cg_walk_init(&w, text, '{', err);

        while (r == 0) {
                r = cg_walk_next(&w, &k, &v, err);
                if (r != 0 || !cg_span_is(k, key))
                        continue;
                if (found.p)
                        return cg_fail(err, CG_E_PARSE, "member \"%s\" stands there twice", key);
                found = v;
        }
        if (r < 0)
                return r;
        *ret = found;
        return 0;
}

int cg_span_string(struct cg_span s, char **ret, struct cg_err *err)
{
        cg_auto_json json_t *j = NULL;
        json_error_t e;

        if (!s.len || s.p[0] != '"')
                return cg_fail(err, CG_E_PARSE, "a string is expected");
        j = json_loadb(s.p, s.len, JSON_DECODE_ANY, &e);
        if (!json_is_string(j))
                return cg_fail(err, CG_E_PARSE, "string that is no text: %s", e.text);
        *ret = strdup(json_string_value(j));
        return *ret ? 0 : cg_fail(err, CG_E_NOMEM, "string");
}

/* ---- messages */

/* The top level, found in one pass. */
struct top {
        struct cg_span jsonrpc, id, method, params, result, error;
};

static struct cg_span *top_slot(struct top *t, struct cg_span key)
{
        const struct {
                const char *key;
                struct cg_span *slot;
        } slots[] = {
                { "jsonrpc", &t->jsonrpc }, { "id", &t->id },         { "method", &t->method },
                { "params", &t->params },   { "result", &t->result }, { "error", &t->error },
        };

        for (size_t i = 0; i < CG_ARRAY_LEN(slots); i++)
                if (cg_span_is(key, slots[i].key))
                        return slots[i].slot;
        return NULL;
}

static bool seen_before(const struct cg_span *keys, size_t n, struct cg_span key)
{
        for (size_t i = 0; i < n; i++)
                if (keys[i].len == key.len && memcmp(keys[i].p, key.p, key.len) == 0)
                        return true;
        return false;
}

/*
 * Whoever reads a member with another library than we do must read the same one: so no name twice,
 * and no second spelling of a name ("\u0069d").
 */
static int check_top_key(const struct cg_span *keys, size_t n, struct cg_span key, struct cg_err *err)
{
        if (n == CG_MCP_MAX_MEMBERS)
                return cg_fail(err, CG_E_PROTO, "message of more than %u members", CG_MCP_MAX_MEMBERS);
        if (memchr(key.p, '\\', key.len))
                return cg_fail(err, CG_E_PROTO, "escape in the name of a top-level member");
        if (seen_before(keys, n, key))
                return cg_fail(err, CG_E_PROTO, "top-level member \"%.*s\" stands there twice",
                               (int)(key.len < 100 ? key.len : 100), key.p);
        return 0;
}

/*
 * Goes on to the end even when a rule is broken: text that is not JSON at all is CG_E_PARSE,
 * whatever came first.
 */
static int find_top(struct cg_span text, struct top *t, struct cg_err *err)
{
        struct cg_span keys[CG_MCP_MAX_MEMBERS], key = CG_SPAN_NONE, value = CG_SPAN_NONE, *slot;
        struct cg_walk w;
        struct cg_err other;
        size_t n = 0;
        int r, bad = 0;

        r = cg_walk_init(&w, text, '{', err);
        while (r == 0) {
                r = cg_walk_next(&w, &key, &value, bad ? &other : err);
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

static bool span_null(struct cg_span s)
{
        return !s.p || cg_span_is(s, "null");
}

static int parse_id(struct cg_span s, struct cg_rpc *m, struct cg_err *err)
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

static int parse_method(struct cg_span s, struct cg_rpc *m, struct cg_err *err)
{
        cg_auto_free char *text = NULL;

        if (cg_span_string(s, &text, NULL) < 0 || strlen(text) >= sizeof(m->method))
                return cg_fail(err, CG_E_PROTO, "method is not a short string");
        memcpy(m->method, text, strlen(text) + 1);
        return 0;
}

static int classify(const struct top *t, struct cg_rpc *m, struct cg_err *err)
{
        /* "error": null beside a result, and the reverse, is what several old libraries write. */
        bool has_result = t->result.p && (span_null(t->error) || !span_null(t->result));
        bool has_error = !span_null(t->error);

        if (t->method.p) {
                if (t->result.p || t->error.p)
                        return cg_fail(err, CG_E_PROTO, "both request and response");
                if (t->id.p && !m->id.p)
                        return cg_fail(err, CG_E_PROTO, "request with the id null");
                m->kind = t->id.p ? CG_RPC_REQUEST : CG_RPC_NOTIFICATION;
                m->params = t->params;
                return parse_method(t->method, m, err);
        }
        if (has_result == has_error)
                return cg_fail(err, CG_E_PROTO,
                               has_result ? "both result and error" : "neither method, result nor error");
        if (has_result && !m->id.p)
                return cg_fail(err, CG_E_PROTO, "result without an id");
        m->kind = has_result ? CG_RPC_RESULT : CG_RPC_ERROR;
        m->result = has_result ? t->result : CG_SPAN_NONE;
        m->error = has_error ? t->error : CG_SPAN_NONE;
        return 0;
}

int cg_rpc_parse(struct cg_span text, struct cg_rpc *ret, struct cg_err *err)
{
        struct cg_rpc m = { .kind = CG_RPC_REQUEST };
        struct top t = { .id = CG_SPAN_NONE };
        int r = find_top(text, &t, err);

        if (r == 0 && !cg_span_is(t.jsonrpc, "\"2.0\""))
                r = cg_fail(err, CG_E_PROTO, "no \"jsonrpc\": \"2.0\"");
        if (r == 0)
                r = parse_id(t.id, &m, err);
        if (r == 0)
                r = classify(&t, &m, err);
        if (r == 0)
                *ret = m;
        return r;
}

uint64_t cg_rpc_broken_answer(struct cg_span text)
{
        struct cg_rpc m = { .kind = CG_RPC_REQUEST };
        struct top t = { .id = CG_SPAN_NONE };

        if (find_top(text, &t, NULL) < 0 || t.method.p || parse_id(t.id, &m, NULL) < 0 || !m.id_is_number)
                return 0;
        return m.id_number;
}

int cg_rpc_add_request(struct cg_buf *b, uint64_t id, const char *method, const char *params,
                       struct cg_err *err)
{
        if (params)
                return cg_buf_addf(b, err,
                                   "{\"jsonrpc\":\"2.0\",\"id\":%llu,\"method\":\"%s\",\"params\":%s}\n",
                                   (unsigned long long)id, method, params);
        return cg_buf_addf(b, err, "{\"jsonrpc\":\"2.0\",\"id\":%llu,\"method\":\"%s\"}\n",
                           (unsigned long long)id, method);
}

int cg_rpc_add_notification(struct cg_buf *b, const char *method, const char *params, struct cg_err *err)
{
        if (params)
                return cg_buf_addf(b, err, "{\"jsonrpc\":\"2.0\",\"method\":\"%s\",\"params\":%s}\n", method,
                                   params);
        return cg_buf_addf(b, err, "{\"jsonrpc\":\"2.0\",\"method\":\"%s\"}\n", method);
}

static int add_answer_head(struct cg_buf *b, struct cg_span id, struct cg_err *err)
{
        int r = cg_buf_adds(b, "{\"jsonrpc\":\"2.0\",\"id\":", err);

        return r < 0 ? r : cg_buf_add(b, id.p ? id.p : "null", id.p ? id.len : 4, err);
}

int cg_rpc_add_result(struct cg_buf *b, struct cg_span id, const char *result, size_t len, struct cg_err *err)
{
        int r = add_answer_head(b, id, err);

        if (r == 0)
                r = cg_buf_adds(b, ",\"result\":", err);
        if (r == 0)
                r = cg_buf_add(b, result ? result : "{}", result ? len : 2, err);
        return r < 0 ? r : cg_buf_adds(b, "}\n", err);
}

int cg_rpc_add_error(struct cg_buf *b, struct cg_span id, int code, const char *message, struct cg_err *err)
{
        int r = add_answer_head(b, id, err);

        if (r == 0)
                r = cg_buf_addf(b, err, ",\"error\":{\"code\":%d,\"message\":", code);
        if (r == 0)
                r = cg_json_quote(b, message, strlen(message), err);
        return r < 0 ? r : cg_buf_adds(b, "}}\n", err);
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
        cg_buf_end(&l->buf);
}

/* No end of line yet: what is too long already is let go. */
static int lines_wait(struct cg_lines *l)
{
        l->scanned = l->buf.len;
        if (l->skipped || l->buf.len - l->at > l->max) {
                l->skipped += l->buf.len - l->at;
                l->buf.len = l->at = l->scanned = 0;
                cg_buf_end(&l->buf);
        }
        return CG_TIMEOUT;
}

static int line_too_long(struct cg_lines *l, size_t len, struct cg_err *err)
{
        len += l->skipped;
        l->skipped = 0;
        return cg_fail(err, CG_E_LIMIT, "line of %zu bytes, at most %zu", len, l->max);
}

int cg_lines_next(struct cg_lines *l, struct cg_span *ret, struct cg_err *err)
{
        const char *nl = NULL, *line;
        size_t len;

        if (l->buf.len > l->scanned)
                nl = memchr(l->buf.data + l->scanned, '\n', l->buf.len - l->scanned);
        if (!nl)
                return lines_wait(l);
        line = l->buf.data + l->at;
        len = (size_t)(nl - line);
        l->at = l->scanned = (size_t)(nl + 1 - l->buf.data);
        if (l->skipped || len > l->max)
                return line_too_long(l, len, err);
        if (len && line[len - 1] == '\r')
                len--;
        *ret = (struct cg_span){ .p = line, .len = len };
        return 0;
}

int cg_lines_rest(struct cg_lines *l, struct cg_span *ret)
{
        if (l->skipped || l->buf.len == l->at)
                return CG_TIMEOUT;
        *ret = (struct cg_span){ .p = l->buf.data + l->at, .len = l->buf.len - l->at };
        l->at = l->scanned = l->buf.len;
        return 0;
}
