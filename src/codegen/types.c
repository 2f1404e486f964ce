/* From schemas to classes with annotated fields. Runs in trusted processes. */
#include "codegen/types.h"

#include "codegen/ceilings.h"
#include "codegen/names.h"

_Static_assert(CG_ARRAY_LEN(((struct cg_type *)0)->part) == CG_GEN_MAX_UNION, "parts of a union");

/* The position of a type: its class, depth in the annotation, and the name of a class for it. */
struct position {
        struct cg_schema *schema;
        unsigned class_depth;
        unsigned depth;
        struct cg_slice hint;
        bool named; /* the hint is the name of a definition: better than a title */
};

static struct cg_type type_of(struct cg_types *t, struct position p, struct cg_j *at);

/* ------------------------------------------------------------------ annotations */

static bool is_any(const struct cg_type *y)
{
        return y->n == 1 && cg_slice_is(y->part[0].text, "Any");
}

/* y |= more. False when the union is too wide. */
static bool unite(struct cg_type *y, const struct cg_type *more)
{
        if (is_any(more) || is_any(y)) {
                *y = cg_type_plain("Any");
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

/*
 * The annotation and the notation of the classes in it; *several: the notation has more than one
 * alternative, so it needs parentheses in a list.
 */
static void join(struct cg_types *t, const struct cg_type *y, struct cg_slice *text, struct cg_slice *spec,
                 bool *several)
{
        cg_auto_buf struct cg_buf texts = { .max = CG_GEN_MAX_MODULE_BYTES };
        cg_auto_buf struct cg_buf specs = { .max = CG_GEN_MAX_MODULE_BYTES };
        size_t n = 0;

        for (size_t i = 0; i < y->n; i++) {
                cg_put_if(&texts, i, " | ");
                cg_puts(&texts, y->part[i].text);
                if (!y->part[i].spec.len)
                        continue;
                cg_put_if(&specs, n++, "|");
                cg_puts(&specs, y->part[i].spec);
        }
        *text = cg_arena_text(t->arena, &texts);
        *spec = cg_arena_text(t->arena, &specs);
        *several = n > 1;
}

/* ------------------------------------------------------------------ classes */

static bool has_properties(const struct cg_j *at)
{
        const struct cg_j *p = cg_j_getz(at, "properties");

        return cg_j_is(p, CG_J_OBJECT) && p->n;
}

/* Properties of its own, or through allOf. */
static bool has_fields(struct cg_schema *s, const struct cg_j *at, unsigned depth)
{
        const struct cg_j *all = cg_j_getz(at, "allOf");
        size_t n = 0;

        if (has_properties(at))
                return true;
        if (!cg_j_is(all, CG_J_ARRAY) || depth > 3)
                return false;
        for (struct cg_j *x = all->first; x && n++ < CG_GEN_MAX_UNION; x = x->next) {
                struct cg_j *to = cg_schema_follow(s, x);

                if (to && has_fields(s, to, depth + 1))
                        return true;
        }
        return false;
}

/* True if "type" is absent or object alone. */
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
                cg_auto_buf struct cg_buf o = { .max = 4 * CG_GEN_MAX_NAME };

                while (c && !cg_slice_eq(c->name, name))
                        c = c->next;
                if (!c || t->arena->failed)
                        return name;
                cg_puts(&o, base);
                cg_buf_addf(&o, "%u", i);
                name = cg_arena_text(t->arena, &o);
        }
}

static struct cg_class *add_class(struct cg_types *t, struct position p, struct cg_j *at,
                                  struct cg_slice name)
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

static struct cg_type class_type(struct cg_types *t, struct position p, struct cg_j *at)
{
        struct cg_slice title = cg_j_string(at, "title");
        struct cg_class *c = at->note_class;

        if (!c && (t->n >= CG_GEN_MAX_CLASSES || p.class_depth >= CG_GEN_MAX_CLASS_DEPTH ||
                   !cg_schema_reachable(p.schema->root, at))) {
                cg_gen_warn(t->report, CG_GEN_DEGRADED, at, "too many objects, or too deep: a plain dict");
                return cg_type_plain("dict[str, Any]");
        }
        if (!c) {
                bool has_title = !p.named && title.len && cg_count_chars(title) <= 30;

                c = add_class(t, p, at, unique_class_name(t, has_title ? title : p.hint));
        }
        return c ? cg_type_single(c->name, c->name) : cg_type_plain("Any");
}

/* ------------------------------------------------------------------ types of schemas */

/* The name of an item: "edit" for a list called "edits". */
static struct cg_slice singular(struct cg_types *t, struct cg_slice s)
{
        cg_auto_buf struct cg_buf o = { .max = CG_GEN_MAX_TOOL_TEXT };

        if (s.len > 4 && memcmp(s.p + s.len - 3, "ies", 3) == 0) {
                cg_puts(&o, (struct cg_slice){ s.p, s.len - 3 });
                cg_buf_adds(&o, "y");
        } else if (s.len > 2 && s.p[s.len - 1] == 's' && s.p[s.len - 2] != 's') {
                return (struct cg_slice){ s.p, s.len - 1 };
        } else if (s.len > 200) {
                return s;
        } else {
                cg_puts(&o, s);
                cg_buf_adds(&o, "_item");
        }
        return cg_arena_text(t->arena, &o);
}

/* list[Y] or dict[str, Y], where Y is the type of @items. */
static struct cg_type container_type(struct cg_types *t, struct position p, const struct cg_j *at,
                                     struct cg_j *items, const char *before, char mark)
{
        cg_auto_buf struct cg_buf text = { .max = CG_GEN_MAX_MODULE_BYTES };
        cg_auto_buf struct cg_buf spec = { .max = CG_GEN_MAX_MODULE_BYTES };
        struct cg_slice inner, inner_spec;
        struct cg_type y;
        bool several;

        p.depth++;
        p.hint = singular(t, p.hint);
        p.named = false;
        y = type_of(t, p, items);
        join(t, &y, &inner, &inner_spec, &several);
        /* Literals have a ceiling of their own; a longer annotation is nested beyond reading. */
        if (inner.len > CG_GEN_MAX_ANNOTATION + CG_GEN_MAX_LITERAL_BYTES) {
                cg_gen_warn(t->report, CG_GEN_DEGRADED, at, "the annotation would be too long: typed as Any");
                return cg_type_plain("Any");
        }
        cg_buf_addf(&text, "%s%.*s]", before, CG_SHOWN(inner));
        if (inner_spec.len)
                cg_buf_addf(&spec, several ? "%c(%.*s)" : "%c%.*s", mark, CG_SHOWN(inner_spec));
        return cg_type_single(cg_arena_text(t->arena, &text), cg_arena_text(t->arena, &spec));
}

static struct cg_type simple_type(struct cg_types *t, struct position p, struct cg_j *at,
                                  const struct cg_j *type)
{
        static const char *const names[][2] = { { "string", "str" },   { "integer", "int" },
                                                { "number", "float" }, { "boolean", "bool" },
                                                { "null", "None" },    { "any", "Any" } };
        struct cg_j *items;

        for (size_t i = 0; i < CG_ARRAY_LEN(names); i++)
                if (type->kind == CG_J_STRING && cg_slice_is(type->text, names[i][0]))
                        return cg_type_plain(names[i][1]);
        if (type->kind == CG_J_STRING && cg_slice_is(type->text, "array")) {
                items = cg_j_getz(at, "items");
                if (!cg_j_is(items, CG_J_OBJECT) || (!p.schema->draft7 && cg_j_getz(at, "prefixItems")))
                        return cg_type_plain("list[Any]");
                return container_type(t, p, at, items, "list[", '[');
        }
        if (type->kind == CG_J_STRING && cg_slice_is(type->text, "object")) {
                if (has_fields(p.schema, at, 0))
                        return class_type(t, p, at);
                items = cg_j_getz(at, "additionalProperties");
                if (!cg_j_is(items, CG_J_OBJECT) || !items->n)
                        return cg_type_plain("dict[str, Any]");
                return container_type(t, p, at, items, "dict[str, ", '{');
        }
        cg_gen_warn(t->report, CG_GEN_DEGRADED, type, "not a type of JSON Schema: ignored");
        return cg_type_plain("Any");
}

static struct cg_type too_wide(struct cg_types *t, const struct cg_j *at)
{
        cg_gen_warn(t->report, CG_GEN_DEGRADED, at, "more than %u alternatives: typed as Any",
                    CG_GEN_MAX_UNION);
        return cg_type_plain("Any");
}

static struct cg_type type_list(struct cg_types *t, struct position p, struct cg_j *at,
                                const struct cg_j *types)
{
        struct cg_type y = { 0 };

        for (const struct cg_j *x = types->first; x; x = x->next) {
                struct cg_type one = simple_type(t, p, at, x);

                if (!unite(&y, &one))
                        return too_wide(t, types);
        }
        return y.n ? y : cg_type_plain("Any");
}

static struct cg_type union_type(struct cg_types *t, struct position p, const struct cg_j *branches)
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

/* allOf: the first branch with a type. */
static struct cg_type all_of_type(struct cg_types *t, struct position p, const struct cg_j *branches)
{
        size_t n = 0;

        p.depth++;
        for (struct cg_j *x = branches->first; x && n++ < CG_GEN_MAX_UNION; x = x->next) {
                struct cg_type y = type_of(t, p, x);

                if (!is_any(&y))
                        return y;
        }
        return cg_type_plain("Any");
}

/* A definition is typed once, so the work stays linear and a loop ends in Any. */
static struct cg_type ref_type(struct cg_types *t, struct position p, struct cg_j *at, struct cg_slice ref)
{
        struct cg_j *to = cg_schema_follow(p.schema, at);
        struct cg_type *memo;
        size_t start = ref.len;

        if (!to) {
                cg_gen_warn(t->report, CG_GEN_DEGRADED, at,
                            "this $ref leads nowhere, or in a circle: typed as Any");
                return cg_type_plain("Any");
        }
        if (to == p.schema->root && to->note_class)
                return class_type(t, p, to);
        if (to->note_type)
                return *(struct cg_type *)to->note_type;
        memo = cg_arena_alloc(t->arena, sizeof(*memo));
        if (!memo)
                return cg_type_plain("Any");
        *memo = cg_type_plain("Any");
        to->note_type = memo;

        while (start && ref.p[start - 1] != '/' && ref.p[start - 1] != '#')
                start--;
        p.hint = (struct cg_slice){ ref.p + start, ref.len - start };
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

static struct cg_type type_of(struct cg_types *t, struct position p, struct cg_j *at)
{
        struct cg_slice ref = cg_schema_ref_of(at);
        const struct cg_j *x, *type;

        if (at->kind != CG_J_OBJECT)
                return cg_type_plain("Any");
        if (p.depth > CG_GEN_MAX_TYPE_DEPTH) {
                cg_gen_warn(t->report, CG_GEN_DEGRADED, at, "nested too deep: typed as Any");
                return cg_type_plain("Any");
        }
        if (ref.len && (p.schema->draft7 || !has_properties(at)))
                return ref_type(t, p, at, ref);
        x = cg_j_getz(at, "enum");
        if (cg_j_is(x, CG_J_ARRAY))
                return cg_enum_type(t, at, x);
        x = cg_j_getz(at, "const");
        if (x)
                return cg_const_type(t, x);
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
        return type ? simple_type(t, p, at, type) : cg_type_plain("Any");
}

/* ------------------------------------------------------------------ a tool */

void cg_types_init(struct cg_types *t, struct cg_gen_report *report)
{
        *t = (struct cg_types){ .arena = report->arena, .report = report };
        t->last = &t->first;
}

/* Finds the fields of classes. That may append classes: the list is also the queue. */
static void fill_from(struct cg_types *t, struct cg_class *c)
{
        for (; c && !t->arena->failed; c = c->next) {
                cg_class_fields(t, c);
                for (size_t i = 0; i < c->n_fields; i++) {
                        struct cg_class_field *f = &c->fields[i];
                        struct position p = { .schema = c->schema, .class_depth = c->depth, .hint = f->wire };
                        struct cg_type y = f->schema ? type_of(t, p, f->schema) : cg_type_plain("Any");
                        bool several;

                        join(t, &y, &f->annotation, &f->spec, &several);
                }
        }
}

void cg_types_params(struct cg_types *t, struct cg_schema *s)
{
        struct position p = { .schema = s };

        fill_from(t, add_class(t, p, s->root, CG_SLICE("Params")));
}

void cg_types_result(struct cg_types *t, struct cg_schema *s, struct cg_j *at, struct cg_slice *annotation,
                     struct cg_slice *spec)
{
        const struct cg_j *items = cg_j_getz(at, "items");
        struct position p = { .schema = s, .hint = items ? CG_SLICE("items") : CG_SLICE("item") };
        struct cg_class **from = t->last;
        struct cg_type y;
        bool several;

        if (at == s->root && only_object(at) && has_fields(s, at, 0)) {
                struct cg_class *c = add_class(t, p, at, CG_SLICE("Result"));

                y = c ? cg_type_single(c->name, c->name) : cg_type_plain("Any");
        } else {
                y = type_of(t, p, at);
        }
        join(t, &y, annotation, spec, &several);
        fill_from(t, *from);
}

void cg_types_name_fields(struct cg_types *t)
{
        struct cg_slice *classes = cg_arena_alloc(t->arena, (t->n + 1) * sizeof(*classes));
        size_t n = 0;

        if (!classes)
                return;
        for (struct cg_class *c = t->first; c; c = c->next)
                classes[n++] = c->name;
        qsort(classes, n, sizeof(*classes), cg_slice_order);
        for (struct cg_class *c = t->first; c; c = c->next) {
                struct cg_python_name *names = cg_arena_alloc(t->arena, (c->n_fields + 1) * sizeof(*names));
                enum cg_name_kind kind = c->schema->output ? CG_NAME_RESULT_FIELD : CG_NAME_FIELD;

                if (!names)
                        return;
                for (size_t i = 0; i < c->n_fields; i++)
                        names[i].original = c->fields[i].wire;
                cg_names_assign(t->arena, kind, names, c->n_fields, classes, n);
                for (size_t i = 0; i < c->n_fields; i++)
                        c->fields[i].name = names[i].name;
        }
}
