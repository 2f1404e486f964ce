/*
 * A tool's definition while it is worked on: $ref, pointers, warnings. Runs in trusted processes;
 * nothing is ever fetched.
 */
#include "codegen/schema.h"

#include <stdarg.h>

#include "base/text.h"
#include "codegen/ceilings.h"
#include "codegen/text.h"

/* ------------------------------------------------------------------ report */

void cg_gen_report_init(struct cg_gen_report *r, struct cg_arena *a)
{
        *r = (struct cg_gen_report){ .arena = a };
        r->last = &r->first;
}

void cg_gen_warn(struct cg_gen_report *r, enum cg_gen_status status, const struct cg_j *at, const char *fmt,
                 ...)
{
        struct cg_gen_warning *w;
        char *text = NULL;
        va_list ap;
        int n;

        if (r->status < status)
                r->status = status;
        /* The reason for a rejection is always kept. */
        if (r->n++ >= CG_GEN_MAX_WARNINGS && status != CG_GEN_REJECTED)
                return;
        va_start(ap, fmt);
        n = vasprintf(&text, fmt, ap);
        va_end(ap);
        w = cg_arena_alloc(r->arena, sizeof(*w));
        if (n < 0 || !w) {
                r->arena->failed = true;
                return;
        }
        w->text = cg_arena_copy(r->arena, text, (size_t)n);
        free(text);
        if (status == CG_GEN_REJECTED && !r->reason.len)
                r->reason = w->text;
        w->pointer = at ? cg_schema_pointer(r->arena, r->def, at) : CG_SLICE("");
        *r->last = w;
        r->last = &w->next;
}

/* ------------------------------------------------------------------ pointers */

/* Longer pointers are cut, for readers only. No classes are that deep (cg_schema_reachable). */
#define MAX_POINTER 4000

struct cg_slice cg_schema_pointer(struct cg_arena *a, const struct cg_j *root, const struct cg_j *at)
{
        const struct cg_j *path[CG_GEN_MAX_DATA_DEPTH];
        cg_auto_buf struct cg_buf o = { .max = CG_GEN_MAX_TOOL_TEXT };
        size_t n = 0;

        for (; at != root && at->parent && n < CG_ARRAY_LEN(path); at = at->parent)
                path[n++] = at;
        while (n && !o.failed && o.len <= MAX_POINTER) {
                at = path[--n];
                cg_buf_adds(&o, "/");
                if (at->parent->kind == CG_J_ARRAY) {
                        cg_buf_addf(&o, "%zu", at->index);
                        continue;
                }
                for (size_t i = 0; i < at->key.len && o.len <= MAX_POINTER; i++) {
                        char c = at->key.p[i];

                        if (c == '~' || c == '/')
                                cg_buf_adds(&o, c == '~' ? "~0" : "~1");
                        else
                                cg_puts(&o, (struct cg_slice){ &c, 1 });
                }
        }
        cg_put_if(&o, o.len > MAX_POINTER, "...");
        return cg_arena_text(a, &o);
}

bool cg_schema_reachable(const struct cg_j *root, const struct cg_j *at)
{
        size_t depth = 0, bytes = 0;

        for (; at != root && at->parent; at = at->parent) {
                /* every character may need an escape; an index has 8 digits at most */
                bytes += 2 * at->key.len + 10;
                if (++depth > CG_GEN_MAX_DATA_DEPTH - 20 || bytes > MAX_POINTER)
                        return false;
        }
        return at == root;
}

/* ------------------------------------------------------------------ $ref */

void cg_schema_init(struct cg_schema *s, struct cg_j *root, bool output, struct cg_gen_report *report)
{
        static const char *const old[] = { "draft-07", "draft-06", "draft-04", "draft-03" };
        struct cg_slice dialect = cg_j_string(root, "$schema");

        *s = (struct cg_schema){ .root = root, .output = output, .report = report };
        for (size_t i = 0; i < CG_ARRAY_LEN(old); i++)
                if (memmem(dialect.p, dialect.len, old[i], strlen(old[i])))
                        s->draft7 = true;
}

struct cg_slice cg_schema_ref_of(const struct cg_j *at)
{
        return cg_j_string(at, "$ref");
}

/* The next value after @at in document order, inside @root. */
static struct cg_j *walk(const struct cg_j *root, struct cg_j *at)
{
        /* Values of these keywords are data, even if they look like schemas. */
        static const char *const keywords[] = { "const", "default", "enum", "examples" };
        bool is_data = false;

        for (size_t i = 0; i < CG_ARRAY_LEN(keywords); i++)
                is_data |= cg_slice_is(at->key, keywords[i]);
        if (at->first && !is_data)
                return at->first;
        while (at != root && !at->next)
                at = at->parent;
        return at == root ? NULL : at->next;
}

static void collect_anchors(struct cg_schema *s)
{
        struct cg_arena *a = s->report->arena;

        s->anchors_known = true;
        s->anchors = cg_arena_alloc(a, CG_GEN_MAX_ANCHORS * sizeof(struct cg_j *));
        if (!s->anchors)
                return;
        for (struct cg_j *j = s->root; j && s->n_anchors < CG_GEN_MAX_ANCHORS; j = walk(s->root, j))
                if (j->kind == CG_J_STRING && j->parent && j->parent->kind == CG_J_OBJECT &&
                    (cg_slice_is(j->key, "$anchor") || cg_slice_is(j->key, "$dynamicAnchor") ||
                     cg_slice_is(j->key, "$id") || cg_slice_is(j->key, "id")))
                        s->anchors[s->n_anchors++] = j;
}

/* The schema whose $anchor (@id false) or $id is @name. */
static struct cg_j *find_anchor(struct cg_schema *s, struct cg_slice name, bool id)
{
        if (!s->anchors_known)
                collect_anchors(s);
        for (size_t i = 0; i < s->n_anchors; i++) {
                struct cg_j *j = s->anchors[i];
                struct cg_slice v = j->text;
                bool is_id = cg_slice_is(j->key, "$id") || cg_slice_is(j->key, "id");

                if (is_id && !id && v.len && *v.p == '#') { /* draft-07's way to write an anchor */
                        v.p++;
                        v.len--;
                        is_id = false;
                } else if (is_id && v.len && v.p[v.len - 1] == '#') {
                        v.len--;
                }
                if (is_id == id && cg_slice_eq(v, name))
                        return j->parent;
        }
        return NULL;
}

/* Decodes one token of a pointer in place of a URI: %xx, then ~1 and ~0. */
static struct cg_slice decode_token(struct cg_arena *a, struct cg_slice token)
{
        char *to = cg_arena_alloc(a, token.len + 1);
        size_t n = 0, m = 0;

        if (!to)
                return CG_SLICE("");
        for (size_t i = 0; i < token.len; i++) {
                char c = token.p[i];

                int high = c == '%' && i + 2 < token.len ? cg_hex_digit(token.p[i + 1]) : -1;
                int low = high >= 0 ? cg_hex_digit(token.p[i + 2]) : -1;

                if (low >= 0) {
                        c = (char)(high * 16 + low);
                        i += 2;
                }
                to[n++] = c;
        }
        for (size_t i = 0; i < n; i++) {
                char c = to[i];

                if (c == '~' && i + 1 < n && (to[i + 1] == '0' || to[i + 1] == '1'))
                        c = to[++i] == '0' ? '~' : '/';
                to[m++] = c;
        }
        return (struct cg_slice){ to, m };
}

/* One step of a pointer: an item by its number, a member by its key. */
static struct cg_j *step(struct cg_j *from, struct cg_slice token)
{
        struct cg_j *j = from->first;
        size_t i = 0;

        if (from->kind != CG_J_ARRAY)
                return cg_j_get(from, token);
        if (!token.len || token.len > 7)
                return NULL;
        for (size_t k = 0; k < token.len; k++) {
                if (token.p[k] < '0' || token.p[k] > '9')
                        return NULL;
                i = i * 10 + (size_t)(token.p[k] - '0');
        }
        while (j && i--)
                j = j->next;
        return j;
}

enum cg_ref cg_schema_ref(struct cg_schema *s, struct cg_slice ref, struct cg_j **ret)
{
        const char *hash = memchr(ref.p, '#', ref.len);
        struct cg_slice base = { ref.p, hash ? (size_t)(hash - ref.p) : ref.len };
        struct cg_slice part = hash ? (struct cg_slice){ hash + 1, ref.len - base.len - 1 } : CG_SLICE("");
        struct cg_j *from = base.len ? find_anchor(s, base, true) : s->root;

        if (!from)
                return CG_REF_EXTERNAL;
        if (part.len && *part.p != '/')
                from = find_anchor(s, decode_token(s->report->arena, part), false);
        while (part.len && *part.p == '/' && from) {
                struct cg_slice token, rest = { part.p + 1, part.len - 1 };
                const char *slash = memchr(rest.p, '/', rest.len);

                token = (struct cg_slice){ rest.p, slash ? (size_t)(slash - rest.p) : rest.len };
                part = (struct cg_slice){ rest.p + token.len, rest.len - token.len };
                from = step(from, decode_token(s->report->arena, token));
        }
        if (!from || (from->kind != CG_J_OBJECT && from->kind != CG_J_TRUE && from->kind != CG_J_FALSE))
                return CG_REF_DANGLING;
        *ret = from;
        return CG_REF_OK;
}

struct cg_j *cg_schema_follow(struct cg_schema *s, struct cg_j *at)
{
        for (unsigned hop = 0; hop < CG_GEN_MAX_REF_HOPS; hop++) {
                struct cg_slice ref = cg_schema_ref_of(at);

                if (!ref.len)
                        return at;
                if (cg_schema_ref(s, ref, &at) != CG_REF_OK)
                        return NULL;
        }
        return NULL;
}
