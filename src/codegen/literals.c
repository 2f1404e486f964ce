/* Types of enum and const: Literals, or the values' common type. Runs in trusted processes. */
#include "codegen/types.h"

#include "codegen/ceilings.h"

static bool is_integer(const struct cg_j *j)
{
        return j->kind == CG_J_NUMBER && j->text.len <= 18 && !memchr(j->text.p, '.', j->text.len) &&
               !memchr(j->text.p, 'e', j->text.len) && !memchr(j->text.p, 'E', j->text.len) &&
               !cg_slice_is(j->text, "-0");
}

bool cg_put_scalar(struct cg_buf *o, const struct cg_j *j)
{
        static const char *const words[] = {
                [CG_J_NULL] = "None", [CG_J_FALSE] = "False", [CG_J_TRUE] = "True"
        };

        if (j->kind < CG_ARRAY_LEN(words))
                cg_buf_adds(o, words[j->kind]);
        else if (j->kind == CG_J_STRING)
                cg_put_str(o, j->text);
        else if (is_integer(j))
                cg_puts(o, j->text);
        else
                return false;
        return true;
}

static bool kind_is(const struct cg_j *v, struct cg_slice type)
{
        static const char *const types[] = {
                [CG_J_NULL] = "null",     [CG_J_FALSE] = "boolean", [CG_J_TRUE] = "boolean",
                [CG_J_NUMBER] = "number", [CG_J_STRING] = "string", [CG_J_ARRAY] = "array",
                [CG_J_OBJECT] = "object",
        };

        return cg_slice_is(type, types[v->kind]) || (v->kind == CG_J_NUMBER && cg_slice_is(type, "integer"));
}

/* True if the schema's own "type" allows the value. */
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
        if (strings)
                return cg_type_plain("str");
        if (integers)
                return cg_type_plain("int");
        return cg_type_plain(numbers ? "float" : "Any");
}

struct cg_type cg_enum_type(struct cg_types *t, const struct cg_j *at, const struct cg_j *values)
{
        struct cg_slice seen[CG_GEN_MAX_LITERAL];
        cg_auto_buf struct cg_buf o = { .max = CG_GEN_MAX_MODULE_BYTES };
        size_t n = 0;

        if (!values->n) {
                cg_gen_warn(t->report, CG_GEN_DEGRADED, values, "an empty enum: no value fits");
                return cg_type_plain("Any");
        }
        if (cg_enum_is_long(values))
                return loose_type(values);
        cg_buf_adds(&o, "Literal[");
        for (const struct cg_j *v = values->first; v; v = v->next) {
                cg_auto_buf struct cg_buf one = { .max = 16 * CG_GEN_MAX_LITERAL_BYTES };
                size_t k = 0;

                if (!type_allows(at, v)) {
                        cg_gen_warn(t->report, CG_GEN_DEGRADED, v,
                                    "a value that contradicts \"type\" is not offered");
                        continue;
                }
                if (!cg_put_scalar(&one, v))
                        return loose_type(values);
                while (k < n && !cg_slice_eq(seen[k], cg_buf_slice(&one)))
                        k++;
                if (k < n)
                        continue;
                seen[n] = cg_arena_text(t->arena, &one);
                cg_put_if(&o, n, ", ");
                cg_puts(&o, seen[n++]);
        }
        cg_buf_adds(&o, "]");
        return n ? cg_type_single(cg_arena_text(t->arena, &o), CG_SLICE("")) : cg_type_plain("Any");
}

struct cg_type cg_const_type(struct cg_types *t, const struct cg_j *v)
{
        cg_auto_buf struct cg_buf o = { .max = CG_GEN_MAX_MODULE_BYTES };

        cg_buf_adds(&o, "Literal[");
        if (v->text.len > CG_GEN_MAX_LITERAL_BYTES)
                return cg_type_plain("str");
        if (v->kind == CG_J_OBJECT)
                return cg_type_plain("dict[str, Any]");
        if (v->kind == CG_J_ARRAY)
                return cg_type_plain("list[Any]");
        if (!cg_put_scalar(&o, v))
                return cg_type_plain("float");
        cg_buf_adds(&o, "]");
        return cg_type_single(cg_arena_text(t->arena, &o), CG_SLICE(""));
}
