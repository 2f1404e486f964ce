/*
 * Fuzz target: a tool list through the code generator, up to but without writing files.
 *
 * For any input the output must be ASCII without control characters other than line ends;
 * that is the last defence against text that becomes code (tests/codegen parses it with Python).
 */
#include <stdio.h>

#include "base/util.h"
#include "codegen/ceilings.h"
#include "codegen/names.h"
#include "codegen/tool.h"
#include "fuzz.h"

static void check(const struct cg_buf *o, const char *what)
{
        struct cg_slice s = cg_buf_slice(o);

        if (o->failed < 0)
                return;
        for (size_t i = 0; i < s.len; i++) {
                if ((s.p[i] < 0x20 && s.p[i] != '\n') || s.p[i] > 0x7e) {
                        fprintf(stderr, "byte %02x in %s: %.*s\n", (unsigned char)s.p[i], what, (int)s.len,
                                s.p);
                        __builtin_trap();
                }
        }
}

static void check_name(struct cg_slice s)
{
        bool ok = s.len > 0 && s.len < 100 && (s.p[0] < '0' || s.p[0] > '9') && s.p[0] != '_' &&
                  !cg_is_keyword(s);

        for (size_t i = 0; i < s.len; i++)
                ok &= s.p[i] &&
                      strchr("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_", s.p[i]);
        if (!ok)
                __builtin_trap();
}

/* The catalogue's line goes through cg_put_doc() later; the others are final. */
static void generate(struct cg_tool *t)
{
        cg_auto_buf struct cg_buf module = { .max = CG_GEN_MAX_MODULE_BYTES };
        cg_auto_buf struct cg_buf data = { .max = CG_GEN_MAX_MODULE_BYTES };
        cg_auto_buf struct cg_buf summary = { .max = CG_GEN_MAX_MODULE_BYTES };
        cg_auto_buf struct cg_buf doc = { .max = CG_GEN_MAX_MODULE_BYTES };
        struct cg_err err;

        if (cg_tool_prepare(t, &err) < 0)
                return;
        for (struct cg_class *c = t->types.first; c; c = c->next) {
                check_name(c->name);
                for (size_t i = 0; i < c->n_fields; i++)
                        if (c->fields[i].name.len)
                                check_name(c->fields[i].name);
        }
        if (t->report.status == CG_GEN_REJECTED)
                return;
        cg_tool_put_data(t, &data);
        cg_tool_put_module(t, &module);
        cg_tool_put_summary(t, 0, &summary);
        cg_put_doc(&doc, cg_buf_slice(&summary), 0, SIZE_MAX);
        check(&data, "data");
        check(&module, "module");
        check(&doc, "catalogue");
}

static void one_tool(struct cg_slice text)
{
        cg_auto_arena struct cg_arena a = { 0 };
        struct cg_tool t = { .arena = &a, .server = CG_SLICE("server") };
        struct cg_python_name name = { 0 };
        struct cg_err err;

        cg_split_name(text);
        if (cg_j_read(&a, text.p, text.len, CG_GEN_MAX_READ_DEPTH, &t.def, &err) < 0)
                return;
        name.original = cg_j_string(t.def, "name");
        if (!cg_names_assign(&a, CG_NAME_MODULE, &name, 1, NULL, 0))
                return;
        check_name(name.name);
        t.name = name.original;
        t.module = name.name;
        generate(&t);
}

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size);

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size)
{
        cg_auto_free struct cg_slice *items = NULL;
        struct cg_err err;
        size_t n;

        if (cg_split_tools((const char *)data, size, &items, &n, &err) < 0)
                return 0;
        for (size_t i = 0; i < n; i++)
                one_tool(items[i]);
        return 0;
}
