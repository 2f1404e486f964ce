/*
 * Reading tool definitions: memory, a JSON tree, and splitting a tool list. Runs in trusted
 * processes, on foreign bytes.
 */
#include "codegen/read.h"

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

void *cg_arena_alloc(struct cg_arena *a, size_t size)
{
        struct cg_arena_chunk *c = a->chunks;
        size_t need, room, total;

        if (!cg_size_add(size, _Alignof(max_align_t) - 1, &need)) {
                a->failed = true;
                return NULL;
        }
        need &= ~(size_t)(_Alignof(max_align_t) - 1);
        if (!c || c->size - c->used < need) {
                room = CG_MAX(need, 1 << 16);
                c = cg_size_add(sizeof(*c), room, &total) ? calloc(1, total) : NULL;
                if (!c) {
                        a->failed = true;
                        return NULL;
                }
                c->size = room;
                c->next = a->chunks;
                a->chunks = c;
        }
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
static int bad(struct reader *in, const char *what)
{
        size_t line = 1, column = 1;

        for (const char *p = in->start; p < in->p; p++) {
                column++;
                if (*p == '\n') {
                        line++;
                        column = 1;
                }
        }
        return cg_fail(in->err, CG_E_PARSE, "line %zu column %zu: %s", line, column, what);
}

static int no_memory(struct reader *in)
{
        return cg_fail(in->err, CG_E_NOMEM, "tool definition");
}

static void skip_space(struct reader *in)
{
        while (in->p < in->end && cg_json_is_space(*in->p))
                in->p++;
}

/* Takes @c, if it stands here. */
static bool take(struct reader *in, char c)
{
        if (in->p == in->end || *in->p != c)
                return false;
        in->p++;
        return true;
}

/* The same behind white space. */
static bool take_next(struct reader *in, char c)
{
        skip_space(in);
        return take(in, c);
}

/* Steps over a string. *ret: its text as it is written, with escapes. */
static int skip_string(struct reader *in, struct cg_slice *ret)
{
        const char *p;

        if (!take(in, '"'))
                return bad(in, "a string should stand here");
        for (p = in->p; p < in->end && *p != '"'; p++)
                if (*p == '\\' && p + 1 < in->end)
                        p++;
        if (p == in->end)
                return bad(in, "unfinished string");
        *ret = (struct cg_slice){ in->p, (size_t)(p - in->p) };
        in->p = p + 1;
        return 0;
}

static int read_string(struct reader *in, struct cg_slice *ret)
{
        struct cg_slice raw;
        char *to, *out;
        int r;

        r = skip_string(in, &raw);
        if (r < 0)
                return r;
        /* decoding never makes it longer */
        out = to = cg_arena_alloc(in->arena, raw.len + 1);
        if (!out)
                return no_memory(in);
        for (const char *p = raw.p, *stop = p + raw.len; p < stop;) {
                uint32_t c = 0;
                size_t n = cg_json_char(p, stop, &c);

                if (!n) {
                        in->p = p;
                        if (*p == '\\')
                                return bad(in, "bad escape in a string");
                        return bad(in,
                                   (unsigned char)*p < 0x20 ? "control character in a string" : "not UTF-8");
                }
                to += cg_utf8_put(c, to); /* lone surrogates take three bytes and survive */
                p += n;
        }
        *ret = (struct cg_slice){ out, (size_t)(to - out) };
        return 0;
}

static int read_digits(struct reader *in)
{
        const char *from = in->p;

        while (in->p < in->end && cg_is_digit(*in->p))
                in->p++;
        return in->p > from ? 0 : bad(in, "bad number");
}

static int read_number(struct reader *in, struct cg_j *j)
{
        const char *from = in->p;
        int r = 0;

        take(in, '-');
        if (!take(in, '0'))
                r = read_digits(in);
        if (r == 0 && take(in, '.'))
                r = read_digits(in);
        if (r == 0 && (take(in, 'e') || take(in, 'E'))) {
                if (!take(in, '+'))
                        take(in, '-');
                r = read_digits(in);
        }
        j->kind = CG_J_NUMBER;
        j->text = (struct cg_slice){ from, (size_t)(in->p - from) };
        return r;
}

static int by_key(const void *a, const void *b)
{
        const struct cg_j *x = *(struct cg_j *const *)a, *y = *(struct cg_j *const *)b;
        int c = cg_slice_cmp(x->key, y->key);

        return c ?: (x->index > y->index) - (x->index < y->index);
}

/*
 * Members are found by binary search in a sorted list, not in a hash table: keys are the server's,
 * and it could choose them to collide. Of members with equal keys only the last one stays.
 */
static int close_container(struct reader *in, struct cg_j *c)
{
        struct cg_j **link = &c->first;
        size_t n = 0, kept = 0;

        in->depth--;
        if (c->parent && c->parent->height < c->height + 1)
                c->parent->height = c->height + 1;
        if (c->kind != CG_J_OBJECT || !c->n)
                return 0;
        c->sorted = cg_arena_alloc(in->arena, c->n * sizeof(struct cg_j *));
        if (!c->sorted)
                return no_memory(in);
        for (struct cg_j *m = c->first; m; m = m->next)
                c->sorted[n++] = m;
        qsort(c->sorted, n, sizeof(struct cg_j *), by_key);
        for (size_t i = 0; i < n; i++) {
                if (i + 1 < n && cg_slice_eq(c->sorted[i]->key, c->sorted[i + 1]->key))
                        c->sorted[i]->parent = NULL;
                else
                        c->sorted[kept++] = c->sorted[i];
        }
        for (struct cg_j *m = c->first; m; m = m->next) {
                if (!m->parent)
                        continue;
                *link = m;
                link = &m->next;
                c->last = m;
        }
        *link = NULL;
        c->n = kept;
        return 0;
}

static struct cg_j *new_value(struct reader *in, struct cg_j *parent, struct cg_slice key)
{
        struct cg_j *j = cg_arena_alloc(in->arena, sizeof(*j));

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

static int read_key(struct reader *in, struct cg_slice *ret)
{
        int r;

        skip_space(in);
        r = read_string(in, ret);
        return r < 0 || take_next(in, ':') ? r : bad(in, "':' should stand here");
}

/*
 * After a value: closes the containers that end here. *cur is the container that goes on, NULL when
 * all is read.
 */
static int after_value(struct reader *in, struct cg_j **cur, struct cg_slice *key)
{
        while (*cur) {
                char close = (*cur)->kind == CG_J_OBJECT ? '}' : ']';
                int r;

                if (take_next(in, ','))
                        return close == '}' ? read_key(in, key) : 0;
                if (!take(in, close))
                        return bad(in, close == '}' ? "',' or '}' should stand here"
                                                    : "',' or ']' should stand here");
                r = close_container(in, *cur);
                if (r < 0)
                        return r;
                *cur = (*cur)->parent;
        }
        return 0;
}

/* One value without its members or items. *open: it is a container that is not closed yet. */
static int read_head(struct reader *in, struct cg_j *j, struct cg_slice *key, bool *open)
{
        static const struct {
                const char *word;
                enum cg_j_kind kind;
        } words[] = { { "null", CG_J_NULL }, { "false", CG_J_FALSE }, { "true", CG_J_TRUE } };

        *open = false;
        if (in->p == in->end)
                return bad(in, "the text ends too early");
        switch (*in->p) {
        case '{':
        case '[':
                if (++in->depth > in->max_depth)
                        return cg_fail(in->err, CG_E_LIMIT, "nested more than %u levels deep", in->max_depth);
                j->kind = *in->p == '{' ? CG_J_OBJECT : CG_J_ARRAY;
                in->p++;
                if (take_next(in, j->kind == CG_J_OBJECT ? '}' : ']'))
                        return close_container(in, j);
                *open = true;
                return j->kind == CG_J_OBJECT ? read_key(in, key) : 0;
        case '"':
                j->kind = CG_J_STRING;
                return read_string(in, &j->text);
        case '-':
        case '0' ... '9':
                return read_number(in, j);
        default:
                for (size_t i = 0; i < CG_ARRAY_LEN(words); i++) {
                        size_t n = strlen(words[i].word);

                        if ((size_t)(in->end - in->p) < n || memcmp(in->p, words[i].word, n) != 0)
                                continue;
                        in->p += n;
                        j->kind = words[i].kind;
                        return 0;
                }
                return bad(in, "no JSON value");
        }
}

int cg_j_read(struct cg_arena *a, const char *text, size_t len, unsigned depth, struct cg_j **ret,
              struct cg_err *err)
{
        struct reader in = {
                .start = text, .p = text, .end = text + len, .arena = a, .max_depth = depth, .err = err
        };
        struct cg_j *root = NULL, *cur = NULL, *j;
        struct cg_slice key = { 0 };
        bool open;
        int r;

        do {
                skip_space(&in);
                j = new_value(&in, cur, key);
                if (!j)
                        return no_memory(&in);
                if (!root)
                        root = j;
                r = read_head(&in, j, &key, &open);
                if (r < 0)
                        return r;
                if (open) {
                        cur = j;
                        continue;
                }
                r = after_value(&in, &cur, &key);
                if (r < 0)
                        return r;
        } while (cur);
        skip_space(&in);
        if (in.p < in.end)
                return bad(&in, "text behind the end");
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
static int skip_value(struct reader *in)
{
        struct cg_slice text;
        size_t depth = 0;
        int r = 0;

        do {
                skip_space(in);
                if (in->p == in->end)
                        return bad(in, "the text ends too early");
                switch (*in->p) {
                case '"':
                        r = skip_string(in, &text);
                        break;
                case '[':
                case '{':
                        depth++;
                        in->p++;
                        break;
                case ']':
                case '}':
                case ',':
                case ':':
                        if (!depth)
                                return bad(in, "a value should stand here");
                        depth -= *in->p == ']' || *in->p == '}';
                        in->p++;
                        break;
                default:
                        while (in->p < in->end && !(*in->p && strchr("[]{},:\" \t\r\n", *in->p)))
                                in->p++;
                }
        } while (depth && r == 0);
        return r;
}

/*
 * The value of the member @name of the object at @in, the last one where there are several; its p
 * is NULL when there is none.
 */
static int find_member(struct reader *in, const char *name, struct cg_slice *ret)
{
        *ret = (struct cg_slice){ 0 };
        in->p++;
        for (bool first = true; !take_next(in, '}'); first = false) {
                struct cg_slice key;
                const char *from;
                int r;

                if (!first && !take(in, ','))
                        return bad(in, "',' or '}' should stand here");
                skip_space(in);
                r = skip_string(in, &key);
                if (r == 0 && !take_next(in, ':'))
                        r = bad(in, "':' should stand here");
                if (r < 0)
                        return r;
                skip_space(in);
                from = in->p;
                r = skip_value(in);
                if (r < 0)
                        return r;
                if (cg_slice_is(key, name))
                        *ret = (struct cg_slice){ from, (size_t)(in->p - from) };
        }
        return 0;
}

static int split_items(struct reader *in, struct cg_slice **ret, size_t *n)
{
        cg_auto_free struct cg_slice *items = NULL;
        size_t count = 0, room = 0;

        in->p++;
        while (!take_next(in, ']')) {
                const char *from;
                int r;

                if (count && in->p < in->end && !take(in, ','))
                        return bad(in, "',' or ']' should stand here");
                if (count == CG_GEN_MAX_TOOLS)
                        return cg_fail(in->err, CG_E_LIMIT, "the list has more than %u tools",
                                       CG_GEN_MAX_TOOLS);
                if (!CG_GROW(items, count, room))
                        return no_memory(in);
                skip_space(in);
                from = in->p;
                r = skip_value(in);
                if (r < 0)
                        return r;
                items[count++] = (struct cg_slice){ from, (size_t)(in->p - from) };
        }
        *ret = CG_STEAL(items);
        *n = count;
        return 0;
}

int cg_split_tools(const char *text, size_t len, struct cg_slice **ret, size_t *n, struct cg_err *err)
{
        struct reader in = { .start = text, .p = text, .end = text + len, .err = err }, again;
        struct cg_slice list, result;
        int r;

        if (len >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0)
                in.p += 3;
        skip_space(&in);
        if (in.p < in.end && *in.p == '{') {
                /* {"tools": [...]} or {"result": {"tools": [...]}} */
                again = in;
                r = find_member(&in, "tools", &list);
                if (r == 0 && !list.p) {
                        r = find_member(&again, "result", &result);
                        again.p = result.p;
                        if (r == 0 && result.p && *result.p == '{')
                                r = find_member(&again, "tools", &list);
                }
                if (r < 0)
                        return r;
                if (!list.p || *list.p != '[')
                        return cg_fail(err, CG_E_PARSE, "no \"tools\" array in the tool list");
                skip_space(&in);
                if (in.p < in.end)
                        return bad(&in, "text behind the end");
                in.p = list.p;
                return split_items(&in, ret, n);
        }
        if (in.p == in.end || *in.p != '[')
                return bad(&in, "a tool list should stand here: {\"tools\": [...]} or [...]");
        r = split_items(&in, ret, n);
        if (r < 0)
                return r;
        skip_space(&in);
        if (in.p == in.end)
                return 0;
        free(CG_STEAL(*ret));
        return bad(&in, "text behind the end");
}

struct cg_slice cg_split_name(struct cg_slice element)
{
        struct reader in = { .start = element.p, .p = element.p, .end = element.p + element.len };
        struct cg_slice v = { 0 };

        if (!element.len || *element.p != '{')
                return CG_SLICE("");
        /* An error later in the element does not take back what was found before it. */
        find_member(&in, "name", &v);
        if (v.len < 2 || *v.p != '"')
                return CG_SLICE("");
        return (struct cg_slice){ v.p + 1, v.len - 2 };
}
