/* The fields of a class: all properties in the schema of an object. Runs in trusted processes. */
#include "codegen/types.h"

#include "codegen/ceilings.h"

static const struct cg_j *own_properties(const struct cg_class *c)
{
        const struct cg_j *p = cg_j_getz(c->at, "properties");

        return cg_j_is(p, CG_J_OBJECT) ? p : NULL;
}

static struct cg_class_field *find_field(struct cg_class *c, struct cg_slice wire)
{
        const struct cg_j *own = cg_j_get(own_properties(c), wire);

        if (own)
                return own->note_field ? &c->fields[own->note_field - 1] : NULL;
        for (size_t i = c->n_fields; i && c->fields[i - 1].elsewhere; i--)
                if (cg_slice_eq(c->fields[i - 1].wire, wire))
                        return &c->fields[i - 1];
        return NULL;
}

/* Own properties come first, those from elsewhere after them. */
static struct cg_class_field *add_field(struct cg_types *t, struct cg_class *c, struct cg_slice wire,
                                        struct cg_j *schema, bool own)
{
        const struct cg_j *props = own_properties(c);
        size_t n_own = props ? props->n : 0;
        size_t most = own ? CG_GEN_MAX_FIELDS : n_own + CG_GEN_MAX_MERGED;
        struct cg_class_field *f, *more;

        if (c->n_fields >= most) {
                cg_gen_warn(
                        t->report, CG_GEN_DEGRADED, c->at,
                        "too many properties: the last ones are not shown, but can be given by their names");
                return NULL;
        }
        if (c->n_fields == c->room) {
                size_t room = c->room ? c->room * 2 : 8;

                more = cg_arena_alloc(t->arena, room * sizeof(*more));
                if (!more)
                        return NULL;
                if (c->n_fields)
                        memcpy(more, c->fields, c->n_fields * sizeof(*more));
                c->fields = more;
                c->room = room;
        }
        f = &c->fields[c->n_fields++];
        *f = (struct cg_class_field){ .wire = wire, .schema = schema, .elsewhere = !own };
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
        for (size_t i = 0; i < CG_ARRAY_LEN(many); i++) {
                const struct cg_j *b = cg_j_getz(at, many[i]);
                bool is_map = strcmp(many[i], "dependentSchemas") == 0;

                if (cg_j_is(b, CG_J_ARRAY) || (is_map && cg_j_is(b, CG_J_OBJECT)))
                        for (struct cg_j *x = b->first; x; x = x->next)
                                collect(t, c, x, depth + 1);
        }
        for (size_t i = 0; i < CG_ARRAY_LEN(one); i++) {
                to = cg_j_getz(at, one[i]);
                if (to)
                        collect(t, c, to, depth + 1);
        }
}

static void require(struct cg_types *t, struct cg_class *c, struct cg_slice wire)
{
        struct cg_class_field *f = find_field(c, wire);

        if (!f && !cg_j_get(own_properties(c), wire))
                f = add_field(t, c, wire, NULL, false);
        if (f)
                f->required = true;
}

static bool lists(const struct cg_j *required, struct cg_slice name)
{
        for (const struct cg_j *x = cg_j_elements(required); x; x = x->next)
                if (x->kind == CG_J_STRING && cg_slice_eq(x->text, name))
                        return true;
        return false;
}

/*
 * Marks properties that every alternative requires. Only for few and small alternatives: the mark
 * only helps the reader.
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

/* Marks properties that are required in every case. */
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
        for (const struct cg_j *x = cg_j_elements(list); x; x = x->next) {
                if (x->kind == CG_J_STRING)
                        require(t, c, x->text);
                else
                        cg_gen_warn(t->report, CG_GEN_DEGRADED, x, "not the name of a property: ignored");
        }
        for (struct cg_j *x = cg_j_elements(all); x; x = x->next)
                collect_required(t, c, x, depth + 1);
        require_common(t, c, cg_j_getz(at, "anyOf"));
        require_common(t, c, cg_j_getz(at, "oneOf"));
}

/* True if names outside of the schema are data. Without a keyword they count as typing errors. */
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

void cg_class_fields(struct cg_types *t, struct cg_class *c)
{
        t->visit++;
        collect(t, c, c->at, 0);
        t->visit++;
        collect_required(t, c, c->at, 0);
        c->open = is_open(c);
}
