/* From schemas to classes with annotated fields. Runs in trusted processes. */
#include "codegen/types.h"

#include <string.h>

#include "codegen/ceilings.h"
#include "codegen/names.h"

_Static_assert(CG_ARRAY_LEN(((struct cg_type *)0)->part) == CG_GEN_MAX_UNION, "parts of a union");

/*
 * Where a type is being made: in which class, how deep in its annotation, and what a class made
 * here would be called.
 */
struct place {
        struct cg_schema *schema;
        unsigned class_depth;
        unsigned depth;
        struct cg_slice hint;
        bool named; /* the hint is the name of a definition: better than a title */
};

static struct cg_type type_of(struct cg_types *t, struct place p, struct cg_j *at);

/* ------------------------------------------------------------------ annotations */

static struct cg_type single(struct cg_slice text, struct cg_slice spec)
{
        struct cg_type r = { .n = 1 };

        r.part[0].text = text;
        r.part[0].spec = spec;
        return r;
}

static struct cg_type plain(const char *text)
{
        return single(cg_slice_of(text), CG_SLICE(""));
}

static bool is_any(const struct cg_type *y)
{
        return y->n == 1 && cg_slice_is(y->part[0].text, "Any");
}

/* y |= more. False when the union is too wide. */
static bool unite(struct cg_type *y, const struct cg_type *more)
{
        if (is_any(more) || is_any(y)) {
                *y = plain("Any");
                return true;
        }
        for (size_t i = 0; i < more->n; i++) {
                size_t k = 0;

                while (k < y->n && !cg_slice_eq(y->part[k].text, more->part[i].text))
                        k++;
                if (k < y->n)
                        continue;
                if (y->n == CG_GEN_MAX_UNION)
                        return false;
                y->part[y->n++] = more->part[i];
        }
        return true;
}

static struct cg_slice join_text(struct cg_types *t, const struct cg_type *y)
{
        cg_auto_out struct cg_out o;

        cg_out_init(&o, CG_GEN_MAX_MODULE_BYTES);
        for (size_t i = 0; i < y->n; i++) {
                if (i)
                        cg_put(&o, " | ");
                cg_puts(&o, y->part[i].text);
        }
        return cg_out_copy(&o, t->arena);
}

/* *several: more than one alternative, so that it needs parentheses in a list. */
static struct cg_slice join_spec(struct cg_types *t, const struct cg_type *y, bool *several)
{
        cg_auto_out struct cg_out o;
        size_t n = 0;

        cg_out_init(&o, CG_GEN_MAX_MODULE_BYTES);
        for (size_t i = 0; i < y->n; i++) {
                if (!y->part[i].spec.len)
                        continue;
                if (n++)
                        cg_put(&o, "|");
                cg_puts(&o, y->part[i].spec);
        }
        *several = n > 1;
        return cg_out_copy(&o, t->arena);
}

/* list[Y] or dict[str, Y] */
static struct cg_type wrap(struct cg_types *t, struct place p, const struct cg_j *at, const char *before,
                           char mark, const struct cg_type *y)
{
        cg_auto_out struct cg_out text, spec;
        struct cg_slice inner = join_text(t, y);
        struct cg_slice inner_spec;
        bool several;

        cg_out_init(&text, CG_GEN_MAX_MODULE_BYTES);
        cg_out_init(&spec, CG_GEN_MAX_MODULE_BYTES);
        inner_spec = join_spec(t, y, &several);
        /*
         * Literals have a ceiling of their own; what is long without them is nested beyond reading.
         */
        if (inner.len > CG_GEN_MAX_ANNOTATION + CG_GEN_MAX_LITERAL_BYTES) {
                cg_gen_warn(t->report, CG_GEN_DEGRADED, at, "the annotation would be too long: typed as Any");
                return plain("Any");
        }
        cg_putf(&text, "%s", before);
        cg_puts(&text, inner);
        cg_put(&text, "]");
        if (inner_spec.len) {
                cg_putf(&spec, several ? "%c(" : "%c", mark);
                cg_puts(&spec, inner_spec);
                cg_put(&spec, several ? ")" : "");
        }
        return single(cg_out_copy(&text, t->arena), cg_out_copy(&spec, t->arena));
}

/* ------------------------------------------------------------------ values */

static bool is_integer(const struct cg_j *j)
{
        return j->kind == CG_J_NUMBER && j->text.len <= 18 && !memchr(j->text.p, '.', j->text.len) &&
               !memchr(j->text.p, 'e', j->text.len) && !memchr(j->text.p, 'E', j->text.len) &&
               !cg_slice_is(j->text, "-0");
}

bool cg_put_scalar(struct cg_out *o, const struct cg_j *j)
{
        switch (j->kind) {
        case CG_J_NULL:
                cg_put(o, "None");
                return true;
        case CG_J_FALSE:
                cg_put(o, "False");
                return true;
        case CG_J_TRUE:
                cg_put(o, "True");
                return true;
        case CG_J_STRING:
                cg_put_str(o, j->text);
                return true;
        case CG_J_NUMBER:
                if (!is_integer(j))
                        return false;
                cg_puts(o, j->text);
                return true;
        default:
                return false;
        }
}

static bool kind_is(const struct cg_j *v, struct cg_slice type)
{
        switch (v->kind) {
        case CG_J_NULL:
                return cg_slice_is(type, "null");
        case CG_J_FALSE:
        case CG_J_TRUE:
                return cg_slice_is(type, "boolean");
        case CG_J_STRING:
                return cg_slice_is(type, "string");
        case CG_J_ARRAY:
                return cg_slice_is(type, "array");
        case CG_J_OBJECT:
                return cg_slice_is(type, "object");
        default:
                return cg_slice_is(type, "number") || cg_slice_is(type, "integer");
        }
}

/* Whether the schema's own "type" lets the value through. */
static bool type_allows(const struct cg_j *at, const struct cg_j *v)
{
        const struct cg_j *type = cg_j_getz(at, "type");

        if (cg_j_is(type, CG_J_STRING))
                return kind_is(v, type->text);
        if (!cg_j_is(type, CG_J_ARRAY))
                return true;
        for (const struct cg_j *x = type->first; x; x = x->next)
                if (x->kind == CG_J_STRING && kind_is(v, x->text))
                        return true;
        return false;
}

bool cg_enum_is_long(const struct cg_j *values)
{
        size_t bytes = 0;

        for (const struct cg_j *v = values->first; v; v = v->next)
                bytes += v->text.len + 4;
        return values->n > CG_GEN_MAX_LITERAL || bytes > CG_GEN_MAX_LITERAL_BYTES;
}

/* The common type of values that no Literal can hold. */
static struct cg_type loose_type(const struct cg_j *values)
{
        bool strings = true, integers = true, numbers = true;

        for (const struct cg_j *v = values->first; v; v = v->next) {
                strings &= v->kind == CG_J_STRING;
                integers &= is_integer(v);
                numbers &= v->kind == CG_J_NUMBER;
        }
        return plain(strings ? "str" : integers ? "int" : numbers ? "float" : "Any");
}

/* Appends one value to a Literal unless it is there; @seen are the texts so far. */
static bool add_literal(struct cg_types *t, struct cg_out *o, const struct cg_j *v, struct cg_slice *seen,
                        size_t *n)
{
        cg_auto_out struct cg_out one;

        cg_out_init(&one, 16 * CG_GEN_MAX_LITERAL_BYTES);
        if (!cg_put_scalar(&one, v))
                return false;
        for (size_t i = 0; i < *n; i++)
                if (cg_slice_eq(seen[i], cg_out_str(&one)))
                        return true;
        seen[*n] = cg_out_copy(&one, t->arena);
        cg_put(o, *n ? ", " : "");
        cg_puts(o, seen[(*n)++]);
        return true;
}

static struct cg_type enum_type(struct cg_types *t, const struct cg_j *at, const struct cg_j *values)
{
        struct cg_slice seen[CG_GEN_MAX_LITERAL];
        cg_auto_out struct cg_out o;
        size_t n = 0;

        cg_out_init(&o, CG_GEN_MAX_MODULE_BYTES);
        if (!values->n) {
                cg_gen_warn(t->report, CG_GEN_DEGRADED, values, "an empty enum: no value fits");
                return plain("Any");
        }
        if (cg_enum_is_long(values))
                return loose_type(values);
        cg_put(&o, "Literal[");
        for (const struct cg_j *v = values->first; v; v = v->next) {
                if (!type_allows(at, v))
                        cg_gen_warn(t->report, CG_GEN_DEGRADED, v,
                                    "a value that contradicts \"type\" is not offered");
                else if (!add_literal(t, &o, v, seen, &n))
                        return loose_type(values);
        }
        cg_put(&o, "]");
        return n ? single(cg_out_copy(&o, t->arena), CG_SLICE("")) : plain("Any");
}

static struct cg_type const_type(struct cg_types *t, const struct cg_j *v)
{
        cg_auto_out struct cg_out o;

        cg_out_init(&o, CG_GEN_MAX_MODULE_BYTES);
        cg_put(&o, "Literal[");
        if (v->text.len > CG_GEN_MAX_LITERAL_BYTES)
                return plain("str");
        if (!cg_put_scalar(&o, v))
                return plain(v->kind == CG_J_OBJECT  ? "dict[str, Any]"
                             : v->kind == CG_J_ARRAY ? "list[Any]"
                                                     : "float");
        cg_put(&o, "]");
        return single(cg_out_copy(&o, t->arena), CG_SLICE(""));
}

/*
 * ------------------------------------------------------------------ which schemas become classes
 */

static bool has_properties(const struct cg_j *at)
{
        const struct cg_j *p = cg_j_getz(at, "properties");

        return cg_j_is(p, CG_J_OBJECT) && p->n;
}

/* Properties of its own, or through allOf. */
static bool has_fields(struct cg_schema *s, const struct cg_j *at, unsigned depth)
{
        const struct cg_j *all = cg_j_getz(at, "allOf");
        size_t looked_at = 0;

        if (has_properties(at))
                return true;
        if (!cg_j_is(all, CG_J_ARRAY) || depth > 3)
                return false;
        for (struct cg_j *x = all->first; x && looked_at++ < CG_GEN_MAX_UNION; x = x->next) {
                struct cg_j *to = cg_schema_follow(s, x);

                if (to && has_fields(s, to, depth + 1))
                        return true;
        }
        return false;
}

/* "type" is absent or says object and nothing else. */
static bool only_object(const struct cg_j *at)
{
        const struct cg_j *type = cg_j_getz(at, "type");

        if (cg_j_is(type, CG_J_ARRAY) && type->n == 1)
                type = type->first;
        return !type || (type->kind == CG_J_STRING && cg_slice_is(type->text, "object"));
}

static struct cg_slice unique_class_name(struct cg_types *t, struct cg_slice hint)
{
        struct cg_slice base = cg_class_base(t->arena, hint), name = base;

        for (unsigned i = 2;; i++) {
                struct cg_class *c = t->first;
                cg_auto_out struct cg_out o;

                cg_out_init(&o, 4 * CG_GEN_MAX_NAME);
                while (c && !cg_slice_eq(c->name, name))
                        c = c->next;
                if (!c || t->arena->failed)
                        return name;
                cg_puts(&o, base);
                cg_putf(&o, "%u", i);
                name = cg_out_copy(&o, t->arena);
        }
}

static struct cg_class *add_class(struct cg_types *t, struct place p, struct cg_j *at, struct cg_slice name)
{
        struct cg_class *c = cg_arena_alloc(t->arena, sizeof(*c));

        if (!c)
                return NULL;
        *c = (struct cg_class){ .name = name, .schema = p.schema, .at = at, .depth = p.class_depth + 1 };
        at->note_class = c;
        *t->last = c;
        t->last = &c->next;
        t->n++;
        return c;
}

static struct cg_slice class_hint(struct place p, const struct cg_j *at)
{
        struct cg_slice title = cg_j_string(at, "title");

        return !p.named && title.len && cg_count_chars(title) <= 30 ? title : p.hint;
}

static struct cg_type class_type(struct cg_types *t, struct place p, struct cg_j *at)
{
        struct cg_class *c = at->note_class;

        if (!c && (t->n >= CG_GEN_MAX_CLASSES || p.class_depth >= CG_GEN_MAX_CLASS_DEPTH ||
                   !cg_schema_reachable(p.schema->root, at))) {
                cg_gen_warn(t->report, CG_GEN_DEGRADED, at, "too many objects, or too deep: a plain dict");
                return plain("dict[str, Any]");
        }
        if (!c)
                c = add_class(t, p, at, unique_class_name(t, class_hint(p, at)));
        return c ? single(c->name, c->name) : plain("Any");
}

/* ------------------------------------------------------------------ types of schemas */

/* "edits" holds things called "edit". */
static struct cg_slice singular(struct cg_types *t, struct cg_slice s)
{
        cg_auto_out struct cg_out o;

        cg_out_init(&o, CG_GEN_MAX_TOOL_TEXT);
        if (s.len > 4 && !memcmp(s.p + s.len - 3, "ies", 3)) {
                cg_puts(&o, (struct cg_slice){ s.p, s.len - 3 });
                cg_put(&o, "y");
        } else if (s.len > 2 && s.p[s.len - 1] == 's' && s.p[s.len - 2] != 's') {
                return (struct cg_slice){ s.p, s.len - 1 };
        } else if (s.len > 200) {
                return s;
        } else {
                cg_puts(&o, s);
                cg_put(&o, "_item");
        }
        return cg_out_copy(&o, t->arena);
}

static struct cg_slice last_token(struct cg_slice ref)
{
        size_t n = ref.len;

        while (n && ref.p[n - 1] != '/' && ref.p[n - 1] != '#')
                n--;
        return (struct cg_slice){ ref.p + n, ref.len - n };
}

static struct cg_type array_type(struct cg_types *t, struct place p, struct cg_j *at)
{
        struct cg_j *items = cg_j_getz(at, "items");
        struct cg_type y;

        if (!cg_j_is(items, CG_J_OBJECT) || (!p.schema->draft7 && cg_j_getz(at, "prefixItems")))
                return plain("list[Any]");
        p.depth++;
        p.hint = singular(t, p.hint);
        p.named = false;
        y = type_of(t, p, items);
        return wrap(t, p, at, "list[", '[', &y);
}

static struct cg_type object_type(struct cg_types *t, struct place p, struct cg_j *at)
{
        struct cg_j *more = cg_j_getz(at, "additionalProperties");
        struct cg_type y;

        if (has_fields(p.schema, at, 0))
                return class_type(t, p, at);
        if (!cg_j_is(more, CG_J_OBJECT) || !more->n)
                return plain("dict[str, Any]");
        p.depth++;
        p.hint = singular(t, p.hint);
        p.named = false;
        y = type_of(t, p, more);
        return wrap(t, p, at, "dict[str, ", '{', &y);
}

static struct cg_type simple_type(struct cg_types *t, struct place p, struct cg_j *at,
                                  const struct cg_j *type)
{
        static const char *const names[][2] = { { "string", "str" },   { "integer", "int" },
                                                { "number", "float" }, { "boolean", "bool" },
                                                { "null", "None" },    { "any", "Any" } };

        if (type->kind == CG_J_STRING) {
                for (size_t i = 0; i < CG_ARRAY_LEN(names); i++)
                        if (cg_slice_is(type->text, names[i][0]))
                                return plain(names[i][1]);
                if (cg_slice_is(type->text, "array"))
                        return array_type(t, p, at);
                if (cg_slice_is(type->text, "object"))
                        return object_type(t, p, at);
        }
        cg_gen_warn(t->report, CG_GEN_DEGRADED, type, "not a type of JSON Schema: ignored");
        return plain("Any");
}

static struct cg_type too_wide(struct cg_types *t, const struct cg_j *at)
{
        cg_gen_warn(t->report, CG_GEN_DEGRADED, at, "more than %u alternatives: typed as Any",
                    CG_GEN_MAX_UNION);
        return plain("Any");
}

static struct cg_type type_list(struct cg_types *t, struct place p, struct cg_j *at, const struct cg_j *types)
{
        struct cg_type y = { 0 };

        for (const struct cg_j *x = types->first; x; x = x->next) {
                struct cg_type one = simple_type(t, p, at, x);

                if (!unite(&y, &one))
                        return too_wide(t, types);
        }
        return y.n ? y : plain("Any");
}

static struct cg_type union_type(struct cg_types *t, struct place p, const struct cg_j *branches)
{
        struct cg_type y = { 0 };

        if (branches->n > CG_GEN_MAX_UNION)
                return too_wide(t, branches);
        p.depth++;
        p.named = false;
        for (struct cg_j *x = branches->first; x; x = x->next) {
                struct cg_type one = type_of(t, p, x);

                if (!unite(&y, &one))
                        return too_wide(t, branches);
        }
        return y;
}

/* All of several: the first branch that says anything. */
static struct cg_type all_of_type(struct cg_types *t, struct place p, const struct cg_j *branches)
{
        size_t looked_at = 0;

        p.depth++;
        for (struct cg_j *x = branches->first; x && looked_at++ < CG_GEN_MAX_UNION; x = x->next) {
                struct cg_type y = type_of(t, p, x);

                if (!is_any(&y))
                        return y;
        }
        return plain("Any");
}

/*
 * A definition is typed once, however often it is named: so the work stays linear, and a loop ends
 * in Any.
 */
static struct cg_type ref_type(struct cg_types *t, struct place p, struct cg_j *at, struct cg_slice ref)
{
        struct cg_j *to = cg_schema_follow(p.schema, at);
        struct cg_type *memo;

        if (!to) {
                cg_gen_warn(t->report, CG_GEN_DEGRADED, at,
                            "this $ref leads nowhere, or in a circle: typed as Any");
                return plain("Any");
        }
        if (to == p.schema->root && to->note_class)
                return class_type(t, p, to);
        if (to->note_type)
                return *(struct cg_type *)to->note_type;
        memo = cg_arena_alloc(t->arena, sizeof(*memo));
        if (!memo)
                return plain("Any");
        *memo = plain("Any");
        to->note_type = memo;
        p.hint = last_token(ref);
        p.named = p.hint.len > 0;
        p.depth++;
        *memo = type_of(t, p, to);
        return *memo;
}

static const struct cg_j *branches_of(const struct cg_j *at, const char *keyword)
{
        const struct cg_j *b = cg_j_getz(at, keyword);

        return cg_j_is(b, CG_J_ARRAY) && b->n ? b : NULL;
}

static struct cg_type type_of(struct cg_types *t, struct place p, struct cg_j *at)
{
        struct cg_slice ref = cg_schema_ref_of(at);
        const struct cg_j *x, *type;

        if (at->kind != CG_J_OBJECT)
                return plain("Any");
        if (p.depth > CG_GEN_MAX_TYPE_DEPTH) {
                cg_gen_warn(t->report, CG_GEN_DEGRADED, at, "nested too deep: typed as Any");
                return plain("Any");
        }
        if (ref.len && (p.schema->draft7 || !has_properties(at)))
                return ref_type(t, p, at, ref);
        x = cg_j_getz(at, "enum");
        if (cg_j_is(x, CG_J_ARRAY))
                return enum_type(t, at, x);
        x = cg_j_getz(at, "const");
        if (x)
                return const_type(t, x);
        if (only_object(at) && has_fields(p.schema, at, 0))
                return class_type(t, p, at);
        x = branches_of(at, "anyOf");
        if (!x)
                x = branches_of(at, "oneOf");
        if (x)
                return union_type(t, p, x);
        type = cg_j_getz(at, "type");
        x = branches_of(at, "allOf");
        if (x && (!type || cg_j_is(type, CG_J_STRING)) && only_object(at))
                return all_of_type(t, p, x);
        if (cg_j_is(type, CG_J_ARRAY))
                return type_list(t, p, at, type);
        return type ? simple_type(t, p, at, type) : plain("Any");
}

/* ------------------------------------------------------------------ fields of a class */

static const struct cg_j *own_properties(const struct cg_class *c)
{
        const struct cg_j *p = cg_j_getz(c->at, "properties");

        return cg_j_is(p, CG_J_OBJECT) ? p : NULL;
}

static struct cg_field *find_field(struct cg_class *c, struct cg_slice wire)
{
        const struct cg_j *own = cg_j_get(own_properties(c), wire);

        if (own)
                return own->note_field ? &c->fields[own->note_field - 1] : NULL;
        for (size_t i = c->n_fields; i && c->fields[i - 1].elsewhere; i--)
                if (cg_slice_eq(c->fields[i - 1].wire, wire))
                        return &c->fields[i - 1];
        return NULL;
}

/* Room for one more field. */
static bool grow(struct cg_types *t, struct cg_class *c)
{
        size_t room = c->room ? c->room * 2 : 8;
        struct cg_field *more;

        if (c->n_fields < c->room)
                return true;
        more = cg_arena_alloc(t->arena, room * sizeof(*more));
        if (!more)
                return false;
        if (c->n_fields)
                memcpy(more, c->fields, c->n_fields * sizeof(*more));
        c->fields = more;
        c->room = room;
        return true;
}

/* Own properties come first, those from elsewhere behind them. */
static struct cg_field *add_field(struct cg_types *t, struct cg_class *c, struct cg_slice wire,
                                  struct cg_j *schema, bool own)
{
        const struct cg_j *props = own_properties(c);
        size_t n_own = props ? props->n : 0;
        size_t most = own ? CG_GEN_MAX_FIELDS : n_own + CG_GEN_MAX_MERGED;
        struct cg_field *f;

        if (c->n_fields >= most) {
                cg_gen_warn(
                        t->report, CG_GEN_DEGRADED, c->at,
                        "too many properties: the last ones are not shown, but can be given by their names");
                return NULL;
        }
        if (!grow(t, c))
                return NULL;
        f = &c->fields[c->n_fields++];
        *f = (struct cg_field){ .wire = wire, .schema = schema, .elsewhere = !own };
        if (own)
                schema->note_field = c->n_fields;
        return f;
}

static void collect_properties(struct cg_types *t, struct cg_class *c, const struct cg_j *at)
{
        const struct cg_j *props = cg_j_getz(at, "properties");

        if (props && props->kind != CG_J_OBJECT)
                cg_gen_warn(t->report, CG_GEN_DEGRADED, props, "\"properties\" is not an object: ignored");
        if (!cg_j_is(props, CG_J_OBJECT))
                return;
        for (struct cg_j *m = props->first; m; m = m->next) {
                if (m->kind != CG_J_OBJECT && m->kind != CG_J_TRUE && m->kind != CG_J_FALSE)
                        cg_gen_warn(t->report, CG_GEN_DEGRADED, m, "not a schema: ignored, anything fits");
                if (at != c->at && find_field(c, m->key))
                        continue;
                if (!add_field(t, c, m->key, m, at == c->at))
                        return;
        }
}

static void collect(struct cg_types *t, struct cg_class *c, struct cg_j *at, unsigned depth);

static void collect_branches(struct cg_types *t, struct cg_class *c, const struct cg_j *at,
                             const char *keyword, unsigned depth)
{
        const struct cg_j *b = cg_j_getz(at, keyword);

        if (cg_j_is(b, CG_J_ARRAY) || (cg_j_is(b, CG_J_OBJECT) && !strcmp(keyword, "dependentSchemas")))
                for (struct cg_j *x = b->first; x; x = x->next)
                        collect(t, c, x, depth + 1);
}

/* All properties that any part of an object's schema names; each part is visited once. */
static void collect(struct cg_types *t, struct cg_class *c, struct cg_j *at, unsigned depth)
{
        static const char *const many[] = { "allOf", "anyOf", "oneOf", "dependentSchemas" };
        static const char *const one[] = { "if", "then", "else" };
        struct cg_slice ref = cg_schema_ref_of(at);
        struct cg_j *to;

        if (at->kind != CG_J_OBJECT || at->note_visit == t->visit || depth > CG_GEN_MAX_MERGE_DEPTH)
                return;
        at->note_visit = t->visit;
        if (!ref.len || !c->schema->draft7)
                collect_properties(t, c, at);
        if (ref.len && cg_schema_ref(c->schema, ref, &to) == CG_REF_OK)
                collect(t, c, to, depth + 1);
        if (ref.len && c->schema->draft7)
                return;
        for (size_t i = 0; i < CG_ARRAY_LEN(many); i++)
                collect_branches(t, c, at, many[i], depth);
        for (size_t i = 0; i < CG_ARRAY_LEN(one); i++) {
                to = cg_j_getz(at, one[i]);
                if (to)
                        collect(t, c, to, depth + 1);
        }
}

static void require(struct cg_types *t, struct cg_class *c, struct cg_slice wire)
{
        struct cg_field *f = find_field(c, wire);

        if (!f && !cg_j_get(own_properties(c), wire))
                f = add_field(t, c, wire, NULL, false);
        if (f)
                f->required = true;
}

static bool lists(const struct cg_j *required, struct cg_slice name)
{
        for (const struct cg_j *x = cg_j_is(required, CG_J_ARRAY) ? required->first : NULL; x; x = x->next)
                if (x->kind == CG_J_STRING && cg_slice_eq(x->text, name))
                        return true;
        return false;
}

/*
 * What every alternative requires is required. Only for few and small ones: it is a help for the
 * reader, no more.
 */
static void require_common(struct cg_types *t, struct cg_class *c, const struct cg_j *branches)
{
        const struct cg_j *lists_of[CG_GEN_MAX_UNION];
        size_t n = 0;

        if (!cg_j_is(branches, CG_J_ARRAY) || !branches->n || branches->n > CG_GEN_MAX_UNION)
                return;
        for (struct cg_j *x = branches->first; x; x = x->next) {
                const struct cg_j *to = cg_schema_follow(c->schema, x);

                lists_of[n] = cg_j_getz(to, "required");
                if (!cg_j_is(lists_of[n], CG_J_ARRAY) || lists_of[n]->n > 100)
                        return;
                n++;
        }
        for (const struct cg_j *x = lists_of[0]->first; x; x = x->next) {
                bool all = x->kind == CG_J_STRING;

                for (size_t i = 1; i < n && all; i++)
                        all = lists(lists_of[i], x->text);
                if (all)
                        require(t, c, x->text);
        }
}

/* Marks what is required whatever else is given. */
static void collect_required(struct cg_types *t, struct cg_class *c, struct cg_j *at, unsigned depth)
{
        const struct cg_j *list = cg_j_getz(at, "required"), *all = cg_j_getz(at, "allOf");
        struct cg_slice ref = cg_schema_ref_of(at);
        struct cg_j *to;

        if (at->kind != CG_J_OBJECT || at->note_visit == t->visit || depth > CG_GEN_MAX_MERGE_DEPTH)
                return;
        at->note_visit = t->visit;
        if (ref.len && cg_schema_ref(c->schema, ref, &to) == CG_REF_OK)
                collect_required(t, c, to, depth + 1);
        if (ref.len && c->schema->draft7)
                return;
        if (list && list->kind != CG_J_ARRAY)
                cg_gen_warn(t->report, CG_GEN_DEGRADED, list, "\"required\" is not a list: ignored");
        for (const struct cg_j *x = cg_j_is(list, CG_J_ARRAY) ? list->first : NULL; x; x = x->next) {
                if (x->kind == CG_J_STRING)
                        require(t, c, x->text);
                else
                        cg_gen_warn(t->report, CG_GEN_DEGRADED, x, "not the name of a property: ignored");
        }
        for (struct cg_j *x = cg_j_is(all, CG_J_ARRAY) ? all->first : NULL; x; x = x->next)
                collect_required(t, c, x, depth + 1);
        require_common(t, c, cg_j_getz(at, "anyOf"));
        require_common(t, c, cg_j_getz(at, "oneOf"));
}

/*
 * Whether names that the schema does not list are data. When it says nothing they are taken for
 * typing errors.
 */
static bool is_open(const struct cg_class *c)
{
        static const char *const keywords[] = { "additionalProperties", "unevaluatedProperties" };
        bool closed = false;

        for (size_t i = 0; i < CG_ARRAY_LEN(keywords); i++) {
                const struct cg_j *x = cg_j_getz(c->at, keywords[i]);

                if (cg_j_is(x, CG_J_TRUE) || cg_j_is(x, CG_J_OBJECT))
                        return true;
                closed |= cg_j_is(x, CG_J_FALSE);
        }
        if (cg_j_getz(c->at, "patternProperties"))
                return true;
        return !closed && !c->n_fields && !own_properties(c);
}

static void fill_class(struct cg_types *t, struct cg_class *c)
{
        t->visit++;
        collect(t, c, c->at, 0);
        t->visit++;
        collect_required(t, c, c->at, 0);
        c->open = is_open(c);
        for (size_t i = 0; i < c->n_fields; i++) {
                struct cg_field *f = &c->fields[i];
                struct place p = { .schema = c->schema, .class_depth = c->depth, .hint = f->wire };
                struct cg_type y = f->schema ? type_of(t, p, f->schema) : plain("Any");
                bool several;

                f->annotation = join_text(t, &y);
                f->spec = join_spec(t, &y, &several);
        }
}

/* ------------------------------------------------------------------ a tool */

void cg_types_init(struct cg_types *t, struct cg_gen_report *report)
{
        *t = (struct cg_types){ .arena = report->arena, .report = report };
        t->last = &t->first;
}

/* Filling a class may append others: the list is also the queue. */
static void fill_from(struct cg_types *t, struct cg_class *c)
{
        for (; c && !t->arena->failed; c = c->next)
                fill_class(t, c);
}

void cg_types_params(struct cg_types *t, struct cg_schema *s)
{
        struct place p = { .schema = s };

        fill_from(t, add_class(t, p, s->root, CG_SLICE("Params")));
}

void cg_types_result(struct cg_types *t, struct cg_schema *s, struct cg_j *at, struct cg_slice *annotation,
                     struct cg_slice *spec)
{
        const struct cg_j *items = cg_j_getz(at, "items");
        struct place p = { .schema = s, .hint = items ? CG_SLICE("items") : CG_SLICE("item") };
        struct cg_class **from = t->last;
        struct cg_type y;
        bool several;

        if (at == s->root && only_object(at) && has_fields(s, at, 0)) {
                struct cg_class *c = add_class(t, p, at, CG_SLICE("Result"));

                y = c ? single(c->name, c->name) : plain("Any");
        } else {
                y = type_of(t, p, at);
        }
        *annotation = join_text(t, &y);
        *spec = join_spec(t, &y, &several);
        fill_from(t, *from);
}

static int by_str(const void *x, const void *y)
{
        return cg_slice_cmp(*(const struct cg_slice *)x, *(const struct cg_slice *)y);
}

static void name_fields(struct cg_types *t, struct cg_class *c, const struct cg_slice *classes,
                        size_t n_classes)
{
        struct cg_name *names = cg_arena_alloc(t->arena, (c->n_fields + 1) * sizeof(*names));

        if (!names)
                return;
        for (size_t i = 0; i < c->n_fields; i++)
                names[i].original = c->fields[i].wire;
        cg_names_assign(t->arena, CG_NAME_FIELD, names, c->n_fields, classes, n_classes);
        for (size_t i = 0; i < c->n_fields; i++)
                c->fields[i].name = names[i].name;
}

void cg_types_name_fields(struct cg_types *t)
{
        struct cg_slice *classes = cg_arena_alloc(t->arena, (t->n + 1) * sizeof(*classes));
        size_t n = 0;

        if (!classes)
                return;
        for (struct cg_class *c = t->first; c; c = c->next)
                classes[n++] = c->name;
        qsort(classes, n, sizeof(*classes), by_str);
        for (struct cg_class *c = t->first; c; c = c->next)
                name_fields(t, c, classes, n);
}
