/*
 * A tool's entry in _tools.json, which the runtime works with. Runs in trusted processes.
 *
 *      in, out   the schemas, without keywords that are only for readers; they decide what is valid
 *      ret       how run() wraps the result (struct cg_type in types.h); unwrap: property that it
 *                returns alone
 *      classes   per class: s "out" when it belongs to the output schema, p pointer to its schema,
 *                w Python name to original name where they differ, x original names that are not in
 *                its own "properties", m original name to classes in it, open: unknown names are
 *                data
 *      module, title, description, hints, sig   for search()
 */

#include "codegen/ceilings.h"
#include "codegen/tool.h"

struct data {
        struct cg_buf *o;
        struct cg_schema *schema;
        struct cg_gen_report *report;
};

/* Form of a keyword's value. */
enum form {
        DROP,        /* for readers only */
        SCHEMA,      /* a schema */
        SCHEMAS,     /* a list of schemas */
        ITEMS,       /* a schema, or a list of them (draft-07) */
        MAP,         /* an object of schemas */
        MAP_OR_LIST, /* an object of schemas or lists of names */
        NUMBER,
        NUMBER_OR_BOOL, /* draft-04's exclusiveMinimum: true */
        STRING,
        BOOL,
        ARRAY,
        NAMES, /* an object of lists of names */
};

static const struct {
        const char *keyword;
        enum form form;
} forms[] = {
        { "$comment", DROP },
        { "$defs", MAP },
        { "$ref", STRING },
        { "additionalItems", SCHEMA },
        { "additionalProperties", SCHEMA },
        { "allOf", SCHEMAS },
        { "anyOf", SCHEMAS },
        { "contains", SCHEMA },
        { "definitions", MAP },
        { "dependencies", MAP_OR_LIST },
        { "dependentRequired", NAMES },
        { "dependentSchemas", MAP },
        { "description", DROP },
        { "else", SCHEMA },
        { "enum", ARRAY },
        { "examples", DROP },
        { "exclusiveMaximum", NUMBER_OR_BOOL },
        { "exclusiveMinimum", NUMBER_OR_BOOL },
        { "format", STRING },
        { "if", SCHEMA },
        { "items", ITEMS },
        { "maxContains", NUMBER },
        { "maxItems", NUMBER },
        { "maxLength", NUMBER },
        { "maxProperties", NUMBER },
        { "maximum", NUMBER },
        { "minContains", NUMBER },
        { "minItems", NUMBER },
        { "minLength", NUMBER },
        { "minProperties", NUMBER },
        { "minimum", NUMBER },
        { "multipleOf", NUMBER },
        { "not", SCHEMA },
        { "oneOf", SCHEMAS },
        { "pattern", STRING },
        { "patternProperties", MAP },
        { "prefixItems", SCHEMAS },
        { "properties", MAP },
        { "propertyNames", SCHEMA },
        { "required", ARRAY },
        { "then", SCHEMA },
        { "title", DROP },
        { "unevaluatedItems", SCHEMA },
        { "unevaluatedProperties", SCHEMA },
        { "uniqueItems", BOOL },
};

static bool has_form(const struct cg_j *v, enum form f)
{
        enum { OBJ = 1 << CG_J_OBJECT, ARR = 1 << CG_J_ARRAY, BOOLS = 1 << CG_J_TRUE | 1 << CG_J_FALSE };
        static const unsigned kinds[] = {
                [SCHEMA] = OBJ | BOOLS,
                [SCHEMAS] = ARR,
                [ITEMS] = ARR | OBJ | BOOLS,
                [MAP] = OBJ,
                [MAP_OR_LIST] = OBJ,
                [NUMBER] = 1 << CG_J_NUMBER,
                [NUMBER_OR_BOOL] = 1 << CG_J_NUMBER | BOOLS,
                [STRING] = 1 << CG_J_STRING,
                [BOOL] = BOOLS,
                [ARRAY] = ARR,
                [NAMES] = OBJ,
        };

        return kinds[f] >> v->kind & 1;
}

static void put_schema(struct data *d, const struct cg_j *at, unsigned depth);

/* One keyword's value of the form @f. */
static void put_value(struct data *d, const struct cg_j *v, enum form f, unsigned depth)
{
        bool list = f == SCHEMAS || (f == ITEMS && v->kind == CG_J_ARRAY), map = f == MAP || f == MAP_OR_LIST;

        if (f == SCHEMA || (f == ITEMS && !list)) {
                put_schema(d, v, depth);
                return;
        }
        if (!list && !map) {
                cg_put_json(d->o, v);
                return;
        }
        cg_buf_adds(d->o, list ? "[" : "{");
        for (const struct cg_j *x = v->first; x; x = x->next) {
                cg_put_if(d->o, !(x == v->first), ",");
                if (map) {
                        cg_put_json_str(d->o, x->key);
                        cg_buf_adds(d->o, ":");
                }
                if (f == MAP_OR_LIST && x->kind == CG_J_ARRAY && x->height <= 1)
                        cg_put_json(d->o, x);
                else
                        put_schema(d, x, depth + 1);
        }
        cg_buf_adds(d->o, list ? "]" : "}");
}

/* The form in which keyword @v is written; ARRAY: unchanged. False: it is left out. */
static bool form_of(struct data *d, const struct cg_j *v, unsigned depth, enum form *ret)
{
        size_t i = 0;

        while (i < CG_ARRAY_LEN(forms) && !cg_slice_is(v->key, forms[i].keyword))
                i++;
        *ret = i < CG_ARRAY_LEN(forms) ? forms[i].form : ARRAY;
        if (*ret == DROP)
                return false;
        if (i < CG_ARRAY_LEN(forms) && !has_form(v, *ret)) {
                cg_gen_warn(d->report, CG_GEN_DEGRADED, v,
                            "this keyword has a value of the wrong kind: ignored");
                return false;
        }
        if (*ret >= NUMBER && depth + v->height > CG_GEN_MAX_DATA_DEPTH) {
                cg_gen_warn(d->report, CG_GEN_DEGRADED, v, "nested too deep: not checked");
                return false;
        }
        return true;
}

static void put_schema(struct data *d, const struct cg_j *at, unsigned depth)
{
        const struct cg_j *ref = cg_j_getz(at, "$ref");
        bool first = true;
        struct cg_j *to;

        if (at->kind != CG_J_OBJECT) {
                cg_buf_adds(d->o, at->kind == CG_J_FALSE ? "false" : "true");
                return;
        }
        if (depth + 4 > CG_GEN_MAX_DATA_DEPTH) {
                cg_gen_warn(d->report, CG_GEN_DEGRADED, at, "nested too deep: not checked from here on");
                cg_buf_adds(d->o, "true");
                return;
        }
        /*
         * Nothing is ever fetched or read for a $ref; a schema that needs it is refused rather than
         * taken for permissive.
         */
        if (cg_j_is(ref, CG_J_STRING) && ref->text.len) {
                enum cg_ref found = cg_schema_ref(d->schema, ref->text, &to);

                if (found == CG_REF_DANGLING)
                        cg_gen_warn(d->report, CG_GEN_DEGRADED, ref, "this $ref leads nowhere: not checked");
                else if (found == CG_REF_EXTERNAL)
                        cg_gen_warn(d->report, CG_GEN_REJECTED, ref,
                                    "this $ref leads out of the schema; nothing is fetched for it");
        }
        cg_buf_adds(d->o, "{");
        for (const struct cg_j *v = at->first; v; v = v->next) {
                enum form f;

                if (!form_of(d, v, depth + 1, &f))
                        continue;
                cg_put_if(d->o, !first, ",");
                first = false;
                cg_put_json_str(d->o, v->key);
                cg_buf_adds(d->o, ":");
                put_value(d, v, f, depth + 1);
        }
        cg_buf_adds(d->o, "}");
}

static void put_schema_of(struct cg_tool *t, struct cg_schema *s, const char *key, struct cg_buf *o)
{
        struct data d = { .o = o, .schema = s, .report = &t->report };

        cg_buf_addf(o, ",\"%s\":", key);
        put_schema(&d, s->root, 4);
}

/* ------------------------------------------------------------------ classes */

/* The start of one pair of the object @key, which is left out while it has no pairs. */
static void put_pair(struct cg_buf *o, const char *key, bool *any, struct cg_slice from, struct cg_slice to)
{
        cg_buf_addf(o, *any ? "," : ",\"%s\":{", key);
        *any = true;
        cg_put_json_str(o, from);
        cg_buf_adds(o, ":");
        cg_put_json_str(o, to);
}

static void put_class_data(struct cg_tool *t, struct cg_buf *o, const struct cg_class *c)
{
        bool any = false;

        cg_put_json_str(o, c->name);
        cg_buf_adds(o, ":{\"p\":");
        cg_put_json_str(o, cg_schema_pointer(t->arena, c->schema->root, c->at));
        cg_put_if(o, c->schema->output, ",\"s\":\"out\"");
        for (size_t i = 0; i < c->n_fields; i++)
                if (c->fields[i].name.len && !cg_slice_eq(c->fields[i].name, c->fields[i].wire))
                        put_pair(o, "w", &any, c->fields[i].name, c->fields[i].wire);
        cg_put_if(o, any, "}");
        any = false;
        for (size_t i = 0; i < c->n_fields; i++) {
                if (!c->fields[i].elsewhere)
                        continue;
                cg_buf_adds(o, any ? "," : ",\"x\":[");
                any = true;
                cg_put_json_str(o, c->fields[i].wire);
        }
        cg_put_if(o, any, "]");
        any = false;
        for (size_t i = 0; i < c->n_fields; i++)
                if (c->fields[i].spec.len)
                        put_pair(o, "m", &any, c->fields[i].wire, c->fields[i].spec);
        cg_put_if(o, any, "}");
        cg_buf_adds(o, c->open ? ",\"open\":true}" : "}");
}

/* ------------------------------------------------------------------ the entry */

static void put_text(struct cg_buf *o, const char *key, struct cg_slice s, size_t max)
{
        bool cut;

        if (!s.len)
                return;
        cg_buf_addf(o, ",\"%s\":", key);
        cg_put_json_str(o, cg_cut_chars(s, max, &cut));
}

void cg_tool_put_data(struct cg_tool *t, struct cg_buf *o)
{
        cg_auto_buf struct cg_buf sig = { .max = CG_GEN_MAX_MODULE_BYTES };

        cg_tool_put_signature(t, &sig);
        cg_put_json_str(o, t->name);
        cg_buf_adds(o, ":{\"module\":");
        cg_put_json_str(o, t->module);
        put_text(o, "title", cg_tool_title(t), CG_GEN_MAX_SUMMARY);
        put_text(o, "description", cg_tool_description(t), CG_GEN_MAX_FIELD_DOC);
        for (size_t i = 0; i < t->n_hints; i++)
                cg_buf_addf(o, "%s\"%s\"", i ? "," : ",\"hints\":[", t->hints[i]);
        cg_put_if(o, t->n_hints, "]");
        put_text(o, "sig", cg_buf_slice(&sig), SIZE_MAX);
        put_schema_of(t, &t->in, "in", o);
        if (t->out.root) {
                put_schema_of(t, &t->out, "out", o);
                put_text(o, "ret", t->returns_spec, SIZE_MAX);
                put_text(o, "unwrap", t->unwrap, SIZE_MAX);
        }
        cg_buf_adds(o, ",\"classes\":{");
        for (const struct cg_class *c = t->types.first; c; c = c->next) {
                cg_put_if(o, !(c == t->types.first), ",");
                put_class_data(t, o, c);
        }
        cg_buf_adds(o, "}}");
}
