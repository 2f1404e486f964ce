/* One tool: from its definition to its Python module. Runs in trusted processes. */
#include "codegen/tool.h"

#include <ctype.h>

#include "codegen/ceilings.h"

/* ------------------------------------------------------------------ reading the definition */

struct cg_slice cg_tool_description(const struct cg_tool *t)
{
        return cg_trim(cg_j_string(t->def, "description"));
}

struct cg_slice cg_tool_title(const struct cg_tool *t)
{
        struct cg_slice s = cg_trim(cg_j_string(t->def, "title"));

        return s.len ? s : cg_trim(cg_j_string(cg_j_getz(t->def, "annotations"), "title"));
}

/* Only real booleans count: "false" is not true. */
static void read_hints(struct cg_tool *t)
{
        static const struct {
                const char *key, *word;
        } known[] = { { "readOnlyHint", "read-only" },
                      { "destructiveHint", "destructive" },
                      { "idempotentHint", "idempotent" },
                      { "openWorldHint", NULL } };
        const struct cg_j *a = cg_j_getz(t->def, "annotations");

        if (a && a->kind != CG_J_OBJECT && a->kind != CG_J_NULL)
                cg_gen_warn(&t->report, CG_GEN_DEGRADED, a, "\"annotations\" is not an object: ignored");
        for (size_t i = 0; i < CG_ARRAY_LEN(known); i++) {
                const struct cg_j *h = cg_j_getz(a, known[i].key);

                if (h && h->kind != CG_J_TRUE && h->kind != CG_J_FALSE)
                        cg_gen_warn(&t->report, CG_GEN_DEGRADED, h, "not true or false: ignored");
                if (cg_j_is(h, CG_J_TRUE) && known[i].word)
                        t->hints[t->n_hints++] = known[i].word;
        }
}

static int prepare_input(struct cg_tool *t)
{
        struct cg_j *in = cg_j_getz(t->def, "inputSchema");
        const struct cg_j *type = cg_j_getz(in, "type");

        if (!in || in->kind == CG_J_NULL || in->kind == CG_J_TRUE) {
                cg_gen_warn(&t->report, CG_GEN_DEGRADED, in, "no inputSchema: any arguments are sent");
                in = cg_arena_alloc(t->arena, sizeof(*in)); /* {}: any arguments fit */
                if (!in)
                        return -1;
                in->kind = CG_J_OBJECT;
        }
        if (in->kind != CG_J_OBJECT) {
                cg_gen_warn(&t->report, CG_GEN_REJECTED, in, "inputSchema is not an object");
                return -1;
        }
        if (cg_j_is(type, CG_J_STRING) && !cg_slice_is(type->text, "object"))
                cg_gen_warn(&t->report, CG_GEN_DEGRADED, type,
                            "arguments are always an object: none can fit this schema");
        cg_schema_init(&t->in, in, false, &t->report);
        cg_types_params(&t->types, &t->in);
        return 0;
}

/*
 * Servers built with FastMCP put a result that is no object under the key "result"; run() returns
 * its value alone. They mark it, or (official SDK) the wrapper is called ...Output and has no other
 * property.
 */
static struct cg_j *wrapped_result(const struct cg_j *out)
{
        const struct cg_j *props = cg_j_getz(out, "properties"), *required = cg_j_getz(out, "required");
        struct cg_j *result = cg_j_getz(props, "result");
        struct cg_slice title = cg_j_string(out, "title");

        if (!result || props->n != 1)
                return NULL;
        if (cg_j_is(cg_j_getz(out, "x-fastmcp-wrap-result"), CG_J_TRUE))
                return result;
        if (!cg_j_is(required, CG_J_ARRAY) || required->n != 1 || required->first->kind != CG_J_STRING ||
            !cg_slice_is(required->first->text, "result"))
                return NULL;
        return title.len > 6 && memcmp(title.p + title.len - 6, "Output", 6) == 0 ? result : NULL;
}

int cg_tool_prepare(struct cg_tool *t, struct cg_err *err)
{
        struct cg_j *out = cg_j_getz(t->def, "outputSchema");

        cg_gen_report_init(&t->report, t->arena);
        t->report.def = t->def;
        cg_types_init(&t->types, &t->report);
        read_hints(t);
        if (prepare_input(t) < 0)
                return t->arena->failed ? cg_fail(err, CG_E_NOMEM, "tool definition") : 0;

        t->returns = t->function ? CG_SLICE("Any") : CG_SLICE("Text");
        if (cg_j_is(out, CG_J_OBJECT)) {
                struct cg_j *inner = wrapped_result(out);

                cg_schema_init(&t->out, out, true, &t->report);
                if (inner)
                        t->unwrap = CG_SLICE("result");
                cg_types_result(&t->types, &t->out, inner ?: out, &t->returns, &t->returns_spec);
        } else if (out && out->kind != CG_J_NULL) {
                cg_gen_warn(&t->report, CG_GEN_DEGRADED, out, "outputSchema is not an object: ignored");
        }

        /* Fields without a unique name are in no class; their original names can still be given. */
        cg_types_name_fields(&t->types);
        for (struct cg_class *c = t->types.first; c; c = c->next)
                for (size_t i = 0; i < c->n_fields; i++)
                        if (!c->fields[i].name.len)
                                cg_gen_warn(
                                        &t->report, CG_GEN_DEGRADED, c->fields[i].schema,
                                        "no Python name could be found for this property: give it by its own name");
        if (t->arena->failed)
                return cg_fail(err, CG_E_NOMEM, "tool definition");
        return 0;
}

/* ------------------------------------------------------------------ docstrings of fields */

/* The schema that describes a field: behind a $ref, or the only branch that is not null. */
static const struct cg_j *described_by(const struct cg_class *c, const struct cg_class_field *f)
{
        const struct cg_j *at = f->schema ? cg_schema_follow(c->schema, f->schema) : NULL;
        const struct cg_j *branches = cg_j_getz(at, "anyOf"), *only = NULL;

        for (struct cg_j *x = cg_j_elements(branches); x; x = x->next) {
                if (cg_slice_is(cg_j_string(x, "type"), "null"))
                        continue;
                if (only)
                        return at;
                only = x;
        }
        if (only)
                only = cg_schema_follow(c->schema, (struct cg_j *)only);
        return only ?: at;
}

/* A number as it is written; numbers nobody reads (2^53-1, 10^400) are left out. */
static bool shown(const struct cg_j *n)
{
        return cg_j_is(n, CG_J_NUMBER) && n->text.len <= 24 && !cg_slice_is(n->text, "9007199254740991") &&
               !cg_slice_is(n->text, "-9007199254740991");
}

static void begin_note(struct cg_buf *o, bool *any)
{
        cg_buf_adds(o, *any ? ", " : "(");
        *any = true;
}

static void note_range(struct cg_buf *o, const struct cg_j *at, const char *min, const char *max,
                       const char *of, bool *any)
{
        const struct cg_j *lo = cg_j_getz(at, min), *hi = cg_j_getz(at, max);
        bool low = shown(lo) && !cg_slice_is(lo->text, "0"), high = shown(hi);

        if (!low && !high)
                return;
        begin_note(o, any);
        if (low && high && cg_slice_eq(lo->text, hi->text)) {
                cg_puts(o, lo->text);
        } else {
                if (!low || !high)
                        cg_buf_adds(o, low ? "at least " : "at most ");
                if (low)
                        cg_puts(o, lo->text);
                cg_put_if(o, low && high, " to ");
                if (high)
                        cg_puts(o, hi->text);
        }
        cg_buf_adds(o, of);
}

/* As Python would show it: only for the docstring, where cg_put_doc() makes it safe. */
static void put_shown_value(struct cg_buf *o, const struct cg_j *v)
{
        cg_auto_buf struct cg_buf text = { .max = CG_GEN_MAX_TOOL_TEXT * 6 };

        if (v->kind == CG_J_STRING) {
                cg_buf_adds(o, "\"");
                cg_put_folded(o, v->text, 60);
                cg_buf_adds(o, "\"");
                return;
        }
        if (v->kind <= CG_J_TRUE)
                cg_put_scalar(&text, v);
        else if (v->kind == CG_J_NUMBER)
                cg_puts(&text, v->text);
        else if (v->height < 20)
                cg_put_json(&text, v);
        else
                cg_buf_adds(&text, "...");
        cg_put_folded(o, cg_buf_slice(&text), 60);
}

/* The start of an enum that is too long for a Literal. */
static void note_enum(struct cg_buf *o, const struct cg_j *at, bool *any)
{
        const struct cg_j *values = cg_j_getz(at, "enum");
        size_t shown_values = 0;

        if (!cg_j_is(values, CG_J_ARRAY) || !cg_enum_is_long(values))
                return;
        begin_note(o, any);
        cg_buf_adds(o, "one of ");
        for (const struct cg_j *v = values->first; v && shown_values < CG_GEN_MAX_LITERAL; v = v->next) {
                cg_put_if(o, shown_values++, ", ");
                put_shown_value(o, v);
        }
        if (shown_values < values->n)
                cg_buf_addf(o, " ... %zu values", values->n);
}

/* "name: description (limits)" in @o, a line or more; nothing for a field without any. */
static void put_field_doc(struct cg_buf *o, const struct cg_class *c, const struct cg_class_field *f)
{
        static const char *const bounds[][2] = { { "minimum", ">= " },
                                                 { "exclusiveMinimum", "> " },
                                                 { "maximum", "<= " },
                                                 { "exclusiveMaximum", "< " },
                                                 { "multipleOf", "multiple of " } };
        const struct cg_j *at = described_by(c, f), *v;
        struct cg_slice d = cg_trim(cg_j_string(f->schema, "description"));
        struct cg_slice format = cg_j_string(at, "format"), pattern = cg_j_string(at, "pattern");
        cg_auto_buf struct cg_buf text = { .max = CG_GEN_MAX_MODULE_BYTES };
        bool any = false, cut, plain = format.len && format.len <= 20;

        if (!d.len)
                d = cg_trim(cg_j_string(at, "description"));
        cg_puts(&text, cg_cut_chars(d, CG_GEN_MAX_FIELD_DOC, &cut));
        cg_put_if(&text, cut, "...");
        if (d.len)
                cg_buf_adds(&text, " ");

        note_enum(&text, at, &any);
        for (size_t i = 0; i < CG_ARRAY_LEN(bounds); i++) {
                v = cg_j_getz(at, bounds[i][0]);
                if (!shown(v))
                        continue;
                begin_note(&text, &any);
                cg_buf_adds(&text, bounds[i][1]);
                cg_puts(&text, v->text);
        }
        note_range(&text, at, "minLength", "maxLength", " characters", &any);
        note_range(&text, at, "minItems", "maxItems", " items", &any);
        for (size_t i = 0; i < format.len && plain; i++)
                plain = strchr("abcdefghijklmnopqrstuvwxyz0123456789-", format.p[i]) && format.p[i];
        if (plain) {
                begin_note(&text, &any);
                cg_puts(&text, format);
        }
        if (pattern.len && pattern.len <= 80) {
                begin_note(&text, &any);
                cg_buf_adds(&text, "pattern ");
                cg_puts(&text, pattern);
        }
        v = cg_j_getz(f->schema, "default");
        if (!v)
                v = cg_j_getz(at, "default");
        if (v && v->kind != CG_J_NULL) {
                begin_note(&text, &any);
                cg_buf_adds(&text, "server default: ");
                put_shown_value(&text, v);
        }
        cg_put_if(&text, any, ")");

        d = cg_trim(cg_buf_slice(&text));
        if (!d.len || text.failed < 0)
                return;
        cg_put_if(o, o->len, "\n");
        cg_buf_addf(o, "%.*s: ", CG_SHOWN(f->name));
        for (const char *end = d.p + d.len, *p = d.p, *line; p < end; p = line) {
                line = memchr(p, '\n', (size_t)(end - p));
                line = line ? line + 1 : end;
                cg_put_if(o, p > d.p && *p != '\n' && *p != '\r', "  ");
                cg_puts(o, (struct cg_slice){ p, (size_t)(line - p) });
        }
}

/* ------------------------------------------------------------------ the module */

enum base { DICT_MODEL, MODEL, OPEN };

static const char *const bases[] = { [DICT_MODEL] = "DictModel", [MODEL] = "Model", [OPEN] = "Open" };

static enum base base_of(const struct cg_class *c)
{
        if (c->schema->output)
                return DICT_MODEL;
        return c->open && !c->n_fields ? OPEN : MODEL;
}

/* Looks at both ends only: a second None in a union is harmless. */
static bool takes_none(struct cg_slice annotation)
{
        static const char last[] = " | None";
        size_t n = sizeof(last) - 1;

        return cg_slice_is(annotation, "Any") || cg_slice_is(annotation, "None") ||
               (annotation.len > n && memcmp(annotation.p + annotation.len - n, last, n) == 0) ||
               (annotation.len > n && memcmp(annotation.p, "None | ", n) == 0);
}

static bool contains(struct cg_slice s, const char *what)
{
        return memmem(s.p, s.len, what, strlen(what));
}

/* An argument that may be null, so that None cannot stand for an absent one. */
static bool is_unset(const struct cg_class *c, const struct cg_class_field *f)
{
        return !c->schema->output && !f->required &&
               (contains(f->annotation, "None") || cg_slice_is(f->annotation, "Any"));
}

static void put_class(struct cg_buf *o, const struct cg_class *c)
{
        struct cg_slice d = c->at == c->schema->root ? CG_SLICE("")
                                                     : cg_trim(cg_j_string(c->at, "description"));
        cg_auto_buf struct cg_buf doc = { .max = CG_GEN_MAX_MODULE_BYTES };
        bool cut;

        cg_puts(&doc, cg_cut_chars(d, CG_GEN_MAX_FIELD_DOC, &cut));
        cg_put_if(&doc, cut, "...");
        for (size_t i = 0; i < c->n_fields; i++)
                if (c->fields[i].name.len)
                        put_field_doc(&doc, c, &c->fields[i]);

        cg_buf_addf(o, "\n\nclass %.*s(%s):\n", CG_SHOWN(c->name), bases[base_of(c)]);
        cg_buf_fail(o, doc.failed);
        if (doc.len) {
                cg_buf_adds(o, "    ");
                cg_put_doc(o, cg_buf_slice(&doc), 4, SIZE_MAX);
                cg_buf_adds(o, "\n");
        }
        for (size_t i = 0; i < c->n_fields; i++) {
                const struct cg_class_field *f = &c->fields[i];

                if (!f->name.len)
                        continue;
                cg_buf_addf(o, "    %.*s: %.*s", CG_SHOWN(f->name), CG_SHOWN(f->annotation));
                if (!f->required)
                        cg_buf_addf(o, "%s = %s", takes_none(f->annotation) ? "" : " | None",
                                    is_unset(c, f) ? "UNSET" : "None");
                cg_buf_adds(o, "\n");
        }
        cg_put_if(o, !c->n_fields, "    pass\n");
}

/* Nested classes first, in the order of their discovery; the class that has them follows. */
static void put_classes(struct cg_tool *t, struct cg_buf *o, bool output)
{
        const struct cg_class *root = NULL;

        for (const struct cg_class *c = t->types.first; c; c = c->next) {
                if (c->schema->output != output)
                        continue;
                if (c->at == c->schema->root)
                        root = c;
                else
                        put_class(o, c);
        }
        if (root)
                put_class(o, root);
}

/* The names that the module needs: "from typing import ...", "from cellgate_tools import ...". */
static void put_imports(struct cg_tool *t, struct cg_buf *o, bool returns)
{
        bool any = contains(t->returns, "Any"), literal = contains(t->returns, "Literal[");
        bool unset = false, used[CG_ARRAY_LEN(bases)] = { false };

        for (const struct cg_class *c = t->types.first; c; c = c->next) {
                used[base_of(c)] = true;
                for (size_t i = 0; i < c->n_fields; i++) {
                        any |= contains(c->fields[i].annotation, "Any");
                        literal |= contains(c->fields[i].annotation, "Literal[");
                        unset |= is_unset(c, &c->fields[i]);
                }
        }
        cg_buf_adds(o, "from __future__ import annotations\n");
        if (any || literal)
                cg_buf_addf(o, "from typing import %s%s%s\n", any ? "Any" : "", cg_sep(any && literal, ", "),
                            literal ? "Literal" : "");
        cg_buf_adds(o, "from cellgate_tools import ");
        cg_put_if(o, unset, "UNSET, ");
        for (size_t i = 0; i < CG_ARRAY_LEN(bases); i++)
                if (used[i])
                        cg_buf_addf(o, "%s, ", bases[i]);
        cg_put_if(o, returns, "Returns, ");
        if (cg_slice_is(t->returns, "Text"))
                cg_buf_adds(o, "Text, ");
        cg_buf_adds(o, "bind\n");
}

void cg_tool_put_module(struct cg_tool *t, struct cg_buf *o)
{
        bool returns = cg_slice_is(t->returns, "Any") || cg_slice_is(t->returns, "None");
        cg_auto_buf struct cg_buf head = { .max = CG_GEN_MAX_MODULE_BYTES };
        struct cg_slice title = cg_tool_title(t), d = cg_tool_description(t);
        bool cut;

        /* bind() takes a class; other types are put into Returns[]. */
        for (size_t i = 0; i < t->returns.len; i++)
                returns |= !isalnum((unsigned char)t->returns.p[i]);
        cg_put_folded(&head, t->server, CG_GEN_MAX_SUMMARY);
        cg_buf_adds(&head, " / ");
        cg_put_folded(&head, t->name, CG_GEN_MAX_SUMMARY);
        if (title.len && d.len) {
                cg_buf_adds(&head, ": ");
                cg_put_folded(&head, title, CG_GEN_MAX_SUMMARY);
        }
        cg_buf_adds(&head, ".");
        for (size_t i = 0; i < t->n_hints; i++)
                cg_buf_addf(&head, " %c%s.", t->hints[i][0] & ~32, t->hints[i] + 1);
        cg_buf_adds(&head, " run() takes the fields of Params.");
        if (!d.len)
                d = title;
        if (!d.len)
                d = CG_SLICE("The server gives no description.");
        cg_buf_adds(&head, "\n\n");
        cg_puts(&head, cg_cut_chars(d, CG_GEN_MAX_DOC, &cut));
        if (cut)
                cg_buf_addf(&head, "... (cut: %zu characters in all)", cg_count_chars(d));
        cg_put_doc(o, cg_buf_slice(&head), 0, SIZE_MAX);
        cg_buf_adds(o, "\n");

        put_imports(t, o, returns);
        put_classes(t, o, false);
        put_classes(t, o, true);
        cg_buf_adds(o, "\n\nrun, call, run_async, call_async, arun, acall = bind(globals(), ");
        cg_put_str(o, t->name);
        if (returns) {
                /* In quotes: only type checkers read it. */
                cg_buf_adds(o, ", Params, Returns[");
                cg_put_str(o, t->returns);
                cg_buf_adds(o, "])\n");
        } else {
                cg_buf_addf(o, ", Params, %.*s)\n", CG_SHOWN(t->returns));
        }
}

/* ------------------------------------------------------------------ the catalogue */

static struct cg_slice first_sentence(struct cg_slice s)
{
        for (size_t i = 0; i < s.len; i++) {
                if (s.p[i] == '\n' || s.p[i] == '\r')
                        return (struct cg_slice){ s.p, i };
                if (s.p[i] == '.' && i + 1 < s.len && (s.p[i + 1] == ' ' || s.p[i + 1] == '\n'))
                        return (struct cg_slice){ s.p, i + 1 };
        }
        return s;
}

void cg_tool_put_signature(struct cg_tool *t, struct cg_buf *o)
{
        const struct cg_class *params = t->types.first;
        size_t shown_fields = 0;

        cg_buf_adds(o, "(");
        for (size_t i = 0; i < params->n_fields; i++) {
                if (!params->fields[i].name.len)
                        continue;
                cg_put_if(o, shown_fields, ", ");
                if (shown_fields++ == 16) {
                        cg_buf_adds(o, "...");
                        break;
                }
                cg_puts(o, params->fields[i].name);
                cg_put_if(o, !params->fields[i].required, "?");
        }
        cg_buf_adds(o, ") -> ");
        cg_put_folded(o, t->returns, 60);
}

void cg_tool_put_summary(struct cg_tool *t, size_t common, struct cg_buf *o)
{
        struct cg_slice s = cg_tool_description(t);

        if (s.len)
                s = first_sentence((struct cg_slice){ s.p + common, s.len - common });
        cg_puts(o, t->module);
        cg_tool_put_signature(t, o);
        if (!s.len)
                s = cg_tool_title(t);
        if (s.len) {
                cg_buf_adds(o, ": ");
                cg_put_folded(o, s, CG_GEN_MAX_SUMMARY);
        }
        for (size_t i = 0; i < t->n_hints; i++)
                cg_buf_addf(o, "%s%s", i ? ", " : " [", t->hints[i]);
        cg_put_if(o, t->n_hints, "]");
        cg_buf_adds(o, "\n");
}
