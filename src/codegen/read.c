/*
 * Reading tool definitions: memory, a JSON tree, and splitting a tool list. Runs in trusted
 * processes, on foreign bytes.
 */
#include "codegen/read.h"

#include <string.h>

#include "base/json_text.h"
#include "base/text.h"
#include "codegen/ceilings.h"

/* ------------------------------------------------------------------ memory */

struct cg_arena_chunk {
        struct cg_arena_chunk *next;
        size_t used, size;
        _Alignas(max_align_t) char data[];
};

void cg_arena_fini(struct cg_arena *a)
{
        while (a->chunks) {
                struct cg_arena_chunk *c = a->chunks;

                a->chunks = c->next;
                free(c);
        }
}

static struct cg_arena_chunk *add_chunk(struct cg_arena *a, size_t need)
{
        size_t room = need > 1 << 16 ? need : 1 << 16, total;
        struct cg_arena_chunk *c = NULL;

        if (cg_size_add(sizeof(*c), room, &total))
                c = calloc(1, total);
        if (!c) {
                a->failed = true;
                return NULL;
        }
        c->size = room;
        c->next = a->chunks;
        a->chunks = c;
        return c;
}

void *cg_arena_alloc(struct cg_arena *a, size_t size)
{
        struct cg_arena_chunk *c = a->chunks;
        size_t need;

        if (!cg_size_add(size, _Alignof(max_align_t) - 1, &need)) {
                a->failed = true;
                return NULL;
        }
        need &= ~(size_t)(_Alignof(max_align_t) - 1);
        if (!c || c->size - c->used < need)
                c = add_chunk(a, need);
        if (!c)
                return NULL;
        c->used += need;
        return c->data + c->used - need;
}

struct cg_slice cg_arena_copy(struct cg_arena *a, const char *s, size_t n)
{
        char *p = cg_arena_alloc(a, n + 1);

        if (!p)
                return CG_SLICE("");
        if (n)
                memcpy(p, s, n);
        return (struct cg_slice){ p, n };
}

/* ------------------------------------------------------------------ the tree */

struct reader {
        const char *start, *p, *end;
        struct cg_arena *arena;
        unsigned depth, max_depth;
        struct cg_err *err;
};

/* Line and column are counted only when something is wrong. */
static int bad(struct reader *r, const char *what)
{
        size_t line = 1, column = 1;

        for (const char *p = r->start; p < r->p; p++) {
                column++;
                if (*p == '\n') {
                        line++;
                        column = 1;
                }
        }
        return cg_fail(r->err, CG_E_PARSE, "line %zu column %zu: %s", line, column, what);
}

static int no_memory(struct reader *r)
{
        return cg_fail(r->err, CG_E_NOMEM, "tool definition");
}

static void skip_space(struct reader *r)
{
        while (r->p < r->end && cg_json_is_space(*r->p))
                r->p++;
}

/* Where the string that starts at @p (behind its quote) ends; NULL when it does not. */
static const char *string_end(const char *p, const char *end)
{
        while (p < end && *p != '"') {
                if (*p == '\\' && ++p == end)
                        return NULL;
                p++;
        }
        return p < end ? p : NULL;
}

static const char *why_no_char(char first)
{
        return first == '\\'                 ? "bad escape in a string"
               : (unsigned char)first < 0x20 ? "control character in a string"
                                             : "not UTF-8";
}

static int read_string(struct reader *r, struct cg_slice *ret)
{
        const char *stop;
        char *to, *out;

        if (r->p == r->end || *r->p != '"')
                return bad(r, "a string should stand here");
        r->p++;
        stop = string_end(r->p, r->end);
        if (!stop)
                return bad(r, "unfinished string");
        /* decoding never makes it longer */
        out = to = cg_arena_alloc(r->arena, (size_t)(stop - r->p) + 1);
        if (!out)
                return no_memory(r);
        while (r->p < stop) {
                uint32_t c = 0;
                size_t n = cg_json_char(r->p, stop, &c);

                if (!n)
                        return bad(r, why_no_char(*r->p));
                to += cg_utf8_put(c, to); /* lone surrogates take three bytes and survive */
                r->p += n;
        }
        r->p = stop + 1;
        *ret = (struct cg_slice){ out, (size_t)(to - out) };
        return 0;
}

static bool digit(struct reader *r)
{
        return r->p < r->end && *r->p >= '0' && *r->p <= '9';
}

static int digits(struct reader *r)
{
        if (!digit(r))
                return bad(r, "bad number");
        while (digit(r))
                r->p++;
        return 0;
}

static int read_number(struct reader *r, struct cg_j *j)
{
        const char *from = r->p;
        int rc = 0;

        if (r->p < r->end && *r->p == '-')
                r->p++;
        if (r->p < r->end && *r->p == '0')
                r->p++;
        else
                rc = digits(r);
        if (rc == 0 && r->p < r->end && *r->p == '.') {
                r->p++;
                rc = digits(r);
        }
        if (rc == 0 && r->p < r->end && (*r->p | 32) == 'e') {
                r->p++;
                if (r->p < r->end && (*r->p == '+' || *r->p == '-'))
                        r->p++;
                rc = digits(r);
        }
        j->kind = CG_J_NUMBER;
        j->text = (struct cg_slice){ from, (size_t)(r->p - from) };
        return rc;
}

static int read_word(struct reader *r, struct cg_j *j)
{
        static const struct {
                const char *word;
                enum cg_j_kind kind;
        } words[] = { { "null", CG_J_NULL }, { "false", CG_J_FALSE }, { "true", CG_J_TRUE } };

        for (size_t i = 0; i < CG_ARRAY_LEN(words); i++) {
                size_t n = strlen(words[i].word);

                if ((size_t)(r->end - r->p) >= n && memcmp(r->p, words[i].word, n) == 0) {
                        r->p += n;
                        j->kind = words[i].kind;
                        return 0;
                }
        }
        return bad(r, "no JSON value");
}

static int by_key(const void *a, const void *b)
{
        const struct cg_j *x = *(struct cg_j *const *)a, *y = *(struct cg_j *const *)b;
        int c = cg_slice_cmp(x->key, y->key);

        return c ? c : (x->index > y->index) - (x->index < y->index);
}

/*
 * Takes the members out whose key comes again later. @o->sorted has @n entries, equal keys side by
 * side, in order.
 */
static void drop_duplicates(struct cg_j *o, size_t n)
{
        struct cg_j **link = &o->first, *m;
        size_t kept = 0;

        for (size_t i = 0; i < n; i++) {
                if (i + 1 < n && cg_slice_eq(o->sorted[i]->key, o->sorted[i + 1]->key))
                        o->sorted[i]->parent = NULL;
                else
                        o->sorted[kept++] = o->sorted[i];
        }
        for (m = o->first; m; m = m->next) {
                if (!m->parent)
                        continue;
                *link = m;
                link = &m->next;
                o->last = m;
        }
        *link = NULL;
        o->n = kept;
}

/*
 * Members are found by binary search in a sorted list, not in a hash table: keys are the server's,
 * and it could choose them to collide.
 */
static int close_container(struct reader *r, struct cg_j *c)
{
        size_t i = 0;

        r->depth--;
        if (c->parent && c->parent->height < c->height + 1)
                c->parent->height = c->height + 1;
        if (c->kind != CG_J_OBJECT || !c->n)
                return 0;
        c->sorted = cg_arena_alloc(r->arena, c->n * sizeof(struct cg_j *));
        if (!c->sorted)
                return no_memory(r);
        for (struct cg_j *m = c->first; m; m = m->next)
                c->sorted[i++] = m;
        qsort(c->sorted, c->n, sizeof(struct cg_j *), by_key);
        drop_duplicates(c, c->n);
        return 0;
}

static struct cg_j *new_value(struct reader *r, struct cg_j *parent, struct cg_slice key)
{
        struct cg_j *j = cg_arena_alloc(r->arena, sizeof(*j));

        if (!j || !parent)
                return j;
        j->parent = parent;
        j->key = key;
        j->index = parent->n++;
        if (parent->last)
                parent->last->next = j;
        else
                parent->first = j;
        parent->last = j;
        if (!parent->height)
                parent->height = 1;
        return j;
}

static int read_key(struct reader *r, struct cg_slice *ret)
{
        int rc;

        skip_space(r);
        rc = read_string(r, ret);
        if (rc < 0)
                return rc;
        skip_space(r);
        if (r->p == r->end || *r->p != ':')
                return bad(r, "':' should stand here");
        r->p++;
        return 0;
}

/*
 * Behind a value: closes what ends here. *cur is the container that goes on, NULL when all is read.
 */
static int after_value(struct reader *r, struct cg_j **cur, struct cg_slice *key)
{
        while (*cur) {
                char close = (*cur)->kind == CG_J_OBJECT ? '}' : ']';
                int rc;

                skip_space(r);
                if (r->p < r->end && *r->p == ',') {
                        r->p++;
                        return close == '}' ? read_key(r, key) : 0;
                }
                if (r->p == r->end || *r->p != close)
                        return bad(r, close == '}' ? "',' or '}' should stand here"
                                                   : "',' or ']' should stand here");
                r->p++;
                rc = close_container(r, *cur);
                if (rc < 0)
                        return rc;
                *cur = (*cur)->parent;
        }
        return 0;
}

/* Opens a container. *empty: it is closed already. */
static int open_container(struct reader *r, struct cg_j *j, struct cg_slice *key, bool *empty)
{
        char close = *r->p == '{' ? '}' : ']';

        if (++r->depth > r->max_depth)
                return cg_fail(r->err, CG_E_LIMIT, "nested more than %u levels deep", r->max_depth);
        j->kind = *r->p == '{' ? CG_J_OBJECT : CG_J_ARRAY;
        r->p++;
        skip_space(r);
        *empty = r->p < r->end && *r->p == close;
        if (*empty) {
                r->p++;
                return close_container(r, j);
        }
        return j->kind == CG_J_OBJECT ? read_key(r, key) : 0;
}

/* One value without what it holds. *open: it is a container that goes on. */
static int read_head(struct reader *r, struct cg_j *j, struct cg_slice *key, bool *open)
{
        bool empty = true;
        int rc;

        *open = false;
        if (r->p == r->end)
                return bad(r, "the text ends too early");
        switch (*r->p) {
        case '{':
        case '[':
                rc = open_container(r, j, key, &empty);
                *open = !empty;
                return rc;
        case '"':
                j->kind = CG_J_STRING;
                return read_string(r, &j->text);
        case '-':
        case '0' ... '9':
                return read_number(r, j);
        default:
                return read_word(r, j);
        }
}

int cg_j_read(struct cg_arena *a, const char *text, size_t len, unsigned depth, struct cg_j **ret,
              struct cg_err *err)
{
        struct reader r = {
                .start = text, .p = text, .end = text + len, .arena = a, .max_depth = depth, .err = err
        };
        struct cg_j *root = NULL, *cur = NULL, *j;
        struct cg_slice key = { 0 };
        bool open;
        int rc;

        do {
                skip_space(&r);
                j = new_value(&r, cur, key);
                if (!j)
                        return no_memory(&r);
                if (!root)
                        root = j;
                rc = read_head(&r, j, &key, &open);
                if (rc < 0)
                        return rc;
                if (open) {
                        cur = j;
                        continue;
                }
                rc = after_value(&r, &cur, &key);
                if (rc < 0)
                        return rc;
        } while (cur);
        skip_space(&r);
        if (r.p < r.end)
                return bad(&r, "text behind the end");
        *ret = root;
        return 0;
}

struct cg_j *cg_j_get(const struct cg_j *o, struct cg_slice key)
{
        size_t lo = 0, hi = cg_j_is(o, CG_J_OBJECT) ? o->n : 0;

        while (lo < hi) {
                size_t mid = lo + (hi - lo) / 2;
                int c = cg_slice_cmp(key, o->sorted[mid]->key);

                if (!c)
                        return o->sorted[mid];
                if (c < 0)
                        hi = mid;
                else
                        lo = mid + 1;
        }
        return NULL;
}

struct cg_j *cg_j_getz(const struct cg_j *o, const char *key)
{
        return cg_j_get(o, cg_slice_of(key));
}

struct cg_slice cg_j_string(const struct cg_j *o, const char *key)
{
        const struct cg_j *m = cg_j_getz(o, key);

        return cg_j_is(m, CG_J_STRING) ? m->text : CG_SLICE("");
}

/* ------------------------------------------------------------------ splitting */

/* Steps over one value, by quotes and brackets. */
static int skip_value(struct reader *r)
{
        size_t depth = 0;

        do {
                skip_space(r);
                if (r->p == r->end)
                        return bad(r, "the text ends too early");
                if (*r->p == '"') {
                        const char *stop = string_end(r->p + 1, r->end);

                        if (!stop)
                                return bad(r, "unfinished string");
                        r->p = stop + 1;
                } else if (strchr("[{", *r->p) && *r->p) {
                        depth++;
                        r->p++;
                } else if (strchr("]}", *r->p) && *r->p) {
                        if (!depth)
                                return bad(r, "a value should stand here");
                        depth--;
                        r->p++;
                } else if (strchr(",:", *r->p) && *r->p) {
                        if (!depth)
                                return bad(r, "a value should stand here");
                        r->p++;
                } else {
                        while (r->p < r->end && !(*r->p && strchr("[]{},:\" \t\r\n", *r->p)))
                                r->p++;
                }
        } while (depth);
        return 0;
}

/*
 * Steps to the next member of the object that @r is in; *key is its raw text. 1: there is none
 * (more).
 */
static int next_member(struct reader *r, bool first, struct cg_slice *key)
{
        const char *stop;

        skip_space(r);
        if (r->p < r->end && *r->p == '}') {
                r->p++;
                return 1;
        }
        if (!first) {
                if (r->p == r->end || *r->p != ',')
                        return bad(r, "',' or '}' should stand here");
                r->p++;
                skip_space(r);
        }
        if (r->p == r->end || *r->p != '"')
                return bad(r, "a string should stand here");
        stop = string_end(r->p + 1, r->end);
        if (!stop)
                return bad(r, "unfinished string");
        *key = (struct cg_slice){ r->p + 1, (size_t)(stop - r->p - 1) };
        r->p = stop + 1;
        skip_space(r);
        if (r->p == r->end || *r->p != ':')
                return bad(r, "':' should stand here");
        r->p++;
        skip_space(r);
        return 0;
}

/*
 * The value of the member @name of the object at @r, the last one where there are several; its p
 * is NULL when there is none.
 */
static int find_member(struct reader *r, const char *name, struct cg_slice *ret)
{
        struct cg_slice key = { 0 };
        bool first = true;
        int rc;

        *ret = (struct cg_slice){ 0 };
        r->p++;
        while ((rc = next_member(r, first, &key)) == 0) {
                const char *from = r->p;

                first = false;
                rc = skip_value(r);
                if (rc < 0)
                        return rc;
                if (cg_slice_is(key, name))
                        *ret = (struct cg_slice){ from, (size_t)(r->p - from) };
        }
        return rc < 0 ? rc : 0;
}

static int split_items(struct reader *r, struct cg_slice **ret, size_t *n)
{
        cg_auto_free struct cg_slice *items = NULL;
        size_t count = 0, room = 0;
        int rc;

        r->p++;
        skip_space(r);
        while (r->p < r->end && *r->p != ']') {
                const char *from = r->p;

                if (count == CG_GEN_MAX_TOOLS)
                        return cg_fail(r->err, CG_E_LIMIT, "the list has more than %u tools",
                                       CG_GEN_MAX_TOOLS);
                if (count == room) {
                        struct cg_slice *more;

                        room = room ? room * 2 : 64;
                        more = reallocarray(items, room, sizeof(*items));
                        if (!more)
                                return no_memory(r);
                        items = more;
                }
                rc = skip_value(r);
                if (rc < 0)
                        return rc;
                items[count++] = (struct cg_slice){ from, (size_t)(r->p - from) };
                skip_space(r);
                if (r->p < r->end && *r->p == ',') {
                        r->p++;
                        skip_space(r);
                        if (r->p < r->end && *r->p == ']')
                                return bad(r, "a value should stand here");
                } else if (r->p < r->end && *r->p != ']') {
                        return bad(r, "',' or ']' should stand here");
                }
        }
        if (r->p == r->end)
                return bad(r, "the text ends too early");
        r->p++;
        *ret = CG_STEAL(items);
        *n = count;
        return 0;
}

/* {"tools": [...]} and {"result": {"tools": [...]}}: *list is the array's text. */
static int find_list(struct reader *r, struct cg_slice *list)
{
        struct reader in = *r;
        struct cg_slice result;
        int rc = find_member(r, "tools", list);

        if (rc < 0 || list->p)
                return rc;
        rc = find_member(&in, "result", &result);
        if (rc < 0 || !result.p || *result.p != '{')
                return rc;
        in.p = result.p;
        return find_member(&in, "tools", list);
}

int cg_split_tools(const char *text, size_t len, struct cg_slice **ret, size_t *n, struct cg_err *err)
{
        struct reader r = { .start = text, .p = text, .end = text + len, .err = err };
        struct cg_slice list;
        int rc;

        if (len >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0)
                r.p += 3;
        skip_space(&r);
        if (r.p < r.end && *r.p == '{') {
                rc = find_list(&r, &list);
                if (rc < 0)
                        return rc;
                if (!list.p || *list.p != '[')
                        return cg_fail(err, CG_E_PARSE, "no \"tools\" array in the tool list");
                skip_space(&r);
                if (r.p < r.end)
                        return bad(&r, "text behind the end");
                r.p = list.p;
                return split_items(&r, ret, n);
        }
        if (r.p == r.end || *r.p != '[')
                return bad(&r, "a tool list should stand here: {\"tools\": [...]} or [...]");
        rc = split_items(&r, ret, n);
        if (rc < 0)
                return rc;
        skip_space(&r);
        if (r.p == r.end)
                return 0;
        free(CG_STEAL(*ret));
        return bad(&r, "text behind the end");
}

struct cg_slice cg_split_name(struct cg_slice element)
{
        struct reader r = { .start = element.p, .p = element.p, .end = element.p + element.len };
        struct cg_slice v = { 0 };

        if (!element.len || *element.p != '{')
                return CG_SLICE("");
        /* An error later in the element does not take back what was found before it. */
        find_member(&r, "name", &v);
        if (v.len < 2 || *v.p != '"')
                return CG_SLICE("");
        return (struct cg_slice){ v.p + 1, v.len - 2 };
}
