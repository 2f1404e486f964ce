/* The generator: from a tool list to a package on disk, and a report. Runs in trusted processes. */
#include "codegen/codegen.h"

#include "codegen/ceilings.h"
#include "codegen/names.h"
#include "codegen/package.h"
#include "codegen/tool.h"

/* One element of the list. */
struct entry {
        struct cg_slice text;   /* its JSON text */
        struct cg_slice name;   /* of the tool; p is NULL when there is none */
        struct cg_slice module; /* empty: rejected */
        struct cg_slice report; /* its JSON object */
        struct cg_slice reason; /* of a rejection, for the catalogue */
        /* the module got a hash because another tool would have had the same name */
        bool clashed;
        size_t index;
};

struct generator {
        const struct cg_codegen_options *o;
        struct cg_arena arena; /* names and reports; a tool's tree has an arena of its own */
        char package[CG_CODEGEN_PACKAGE_SIZE];
        struct entry *entries;
        size_t n;
        size_t n_parsed;
        struct cg_err first_bad; /* why the first unreadable element is unreadable */
        struct cg_buf data, catalogue;
        size_t n_data;
        struct cg_slice common; /* what all descriptions so far begin with */
        size_t n_described;
};

static void fini(struct generator *g)
{
        cg_arena_fini(&g->arena);
        free(g->entries);
        cg_buf_fini(&g->data);
        cg_buf_fini(&g->catalogue);
}
#define cg_auto_generator CG_CLEANUP(fini)

/* ------------------------------------------------------------------ report */

static void put_report(struct generator *g, struct entry *e, const struct cg_gen_report *r)
{
        static const char *const words[] = {
                [CG_GEN_FULL] = "full", [CG_GEN_DEGRADED] = "degraded", [CG_GEN_REJECTED] = "rejected"
        };
        cg_auto_buf struct cg_buf o = { .max = CG_GEN_MAX_MODULE_BYTES };

        cg_buf_adds(&o, "{\"tool\":");
        if (e->name.p)
                cg_put_json_text(&o, e->name);
        else
                cg_buf_adds(&o, "null");
        cg_buf_adds(&o, ",\"module\":");
        if (r->status != CG_GEN_REJECTED)
                cg_put_json_text(&o, e->module);
        else
                cg_buf_adds(&o, "null");
        cg_buf_addf(&o, ",\"status\":\"%s\",\"warnings\":[", words[r->status]);
        for (const struct cg_gen_warning *w = r->first; w; w = w->next) {
                cg_buf_adds(&o, w == r->first ? "{\"pointer\":" : ",{\"pointer\":");
                cg_put_json_text(&o, w->pointer);
                cg_buf_adds(&o, ",\"text\":");
                cg_put_json_text(&o, w->text);
                cg_buf_adds(&o, "}");
        }
        cg_buf_adds(&o, "]}");
        e->reason = cg_arena_copy(&g->arena, r->reason.p, r->reason.len);
        e->report = cg_arena_text(&g->arena, &o);
}

static void reject(struct generator *g, struct entry *e, const char *why)
{
        struct cg_gen_report r;

        cg_gen_report_init(&r, &g->arena);
        cg_gen_warn(&r, CG_GEN_REJECTED, NULL, "%s", why);
        put_report(g, e, &r);
        e->module = CG_SLICE("");
}

/* ------------------------------------------------------------------ reading the list */

static int read_tool(struct cg_arena *a, const struct entry *e, struct cg_j **ret, struct cg_err *err)
{
        if (e->text.len > CG_GEN_MAX_TOOL_TEXT)
                return cg_fail(err, CG_E_LIMIT, "the definition has %zu bytes; %u is the limit", e->text.len,
                               CG_GEN_MAX_TOOL_TEXT);
        return cg_j_read(a, e->text.p, e->text.len, CG_GEN_MAX_READ_DEPTH, ret, err);
}

/* Shortens g->common to what the description begins with as well. */
static void note_description(struct generator *g, struct cg_slice d)
{
        size_t n = 0;

        if (!d.len)
                return;
        if (!g->n_described++) {
                g->common = cg_arena_copy(&g->arena, d.p, d.len);
                return;
        }
        while (n < d.len && n < g->common.len && d.p[n] == g->common.p[n])
                n++;
        g->common.len = n;
}

/* Finds the tool's name, or rejects the element. Negative only when out of memory. */
static int read_name(struct generator *g, struct entry *e, struct cg_err *err)
{
        cg_auto_arena struct cg_arena a = { 0 };
        struct cg_err why;
        struct cg_j *def = NULL;
        const struct cg_j *name;
        int r = read_tool(&a, e, &def, &why);

        if (r == CG_E_NOMEM) {
                *err = why;
                return r;
        }
        if (r < 0) {
                /* Only printable ASCII of a name that is not valid JSON is reported. */
                struct cg_slice s = cg_split_name(e->text);
                size_t n = 0;

                while (n < s.len && n < 200 && s.p[n] >= 0x20 && s.p[n] < 0x7f)
                        n++;
                if (n)
                        e->name = cg_arena_copy(&g->arena, s.p, n);
                if (!g->first_bad.code)
                        g->first_bad = why;
                reject(g, e, why.msg);
                return 0;
        }
        g->n_parsed++;
        name = cg_j_getz(def, "name");
        if (!cg_j_is(name, CG_J_STRING)) {
                reject(g, e, def->kind == CG_J_OBJECT ? "the tool has no name" : "not an object");
        } else if (name->text.len > CG_GEN_MAX_TOOL_NAME) {
                e->name = cg_arena_copy(&g->arena, name->text.p, 200);
                reject(g, e, "the name is too long");
        } else {
                e->name = cg_arena_copy(&g->arena, name->text.p, name->text.len);
                note_description(g, cg_trim(cg_j_string(def, "description")));
        }
        return 0;
}

static int read_list(struct generator *g, const char *tools, size_t len, struct cg_err *err)
{
        cg_auto_free struct cg_slice *items = NULL;
        int r;

        if (len > CG_GEN_MAX_TEXT)
                return cg_fail(err, CG_E_LIMIT, "the tool list has %zu bytes; %u is the limit", len,
                               CG_GEN_MAX_TEXT);
        r = cg_split_tools(tools, len, &items, &g->n, err);
        if (r < 0)
                return r;
        g->entries = calloc(g->n + 1, sizeof(*g->entries));
        if (!g->entries)
                return cg_fail(err, CG_E_NOMEM, "tool list");
        for (size_t i = 0; i < g->n && r == 0; i++) {
                g->entries[i].text = items[i];
                g->entries[i].index = i;
                r = read_name(g, &g->entries[i], err);
        }
        if (r == 0 && g->n && !g->n_parsed) {
                if (err)
                        *err = g->first_bad;
                r = cg_err_prefix(err, "not one tool can be read; the first");
                return r < 0 ? r : CG_E_PARSE;
        }
        while (g->common.len && g->common.p[g->common.len - 1] != ' ')
                g->common.len--;
        return r;
}

/* ------------------------------------------------------------------ names of modules */

static int by_tool(const void *x, const void *y)
{
        const struct entry *a = *(struct entry *const *)x, *b = *(struct entry *const *)y;
        int c = cg_slice_cmp(a->name, b->name);

        return c ?: (a->index > b->index) - (a->index < b->index);
}

static int by_module(const void *x, const void *y)
{
        return cg_slice_cmp((*(struct entry *const *)x)->module, (*(struct entry *const *)y)->module);
}

/* Entries that are still in, sorted by name; of equal names the first in the list stays. */
static struct entry **unique_tools(struct generator *g, size_t *ret_n)
{
        struct entry **list = calloc(g->n + 1, sizeof(struct entry *));
        size_t n = 0, kept = 0;

        if (!list)
                return NULL;
        for (size_t i = 0; i < g->n; i++)
                if (g->entries[i].name.p && !g->entries[i].report.len)
                        list[n++] = &g->entries[i];
        qsort(list, n, sizeof(struct entry *), by_tool);
        for (size_t i = 0; i < n; i++) {
                if (kept && cg_slice_eq(list[kept - 1]->name, list[i]->name))
                        reject(g, list[i],
                               "another tool of this name stands earlier in the list: that one counts");
                else
                        list[kept++] = list[i];
        }
        *ret_n = kept;
        return list;
}

/* Gives every tool its module and sorts by it: the list's order makes no difference. */
static int name_modules(struct generator *g, struct entry **list, size_t *n, struct cg_err *err)
{
        cg_auto_free struct cg_python_name *names = calloc(*n + 1, sizeof(*names));
        size_t kept = 0;

        if (!names)
                return cg_fail(err, CG_E_NOMEM, "names");
        for (size_t i = 0; i < *n; i++)
                names[i].original = list[i]->name;
        if (!cg_names_assign(&g->arena, CG_NAME_MODULE, names, *n, NULL, 0))
                return cg_fail(err, CG_E_NOMEM, "names");
        for (size_t i = 0; i < *n; i++) {
                list[i]->module = names[i].name;
                list[i]->clashed = names[i].level > 0;
                if (names[i].name.len)
                        list[kept++] = list[i];
                else
                        reject(g, list[i], "no module name could be found that tells it from the others");
        }
        *n = kept;
        qsort(list, kept, sizeof(struct entry *), by_module);
        return 0;
}

/* ------------------------------------------------------------------ writing */

static int write_tool(struct generator *g, struct cg_package *p, struct entry *e, struct cg_err *err)
{
        cg_auto_arena struct cg_arena a = { 0 };
        struct cg_tool t = { .arena = &a,
                             .server = cg_slice_of(g->o->server),
                             .name = e->name,
                             .module = e->module,
                             .function = g->o->functions };
        cg_auto_buf struct cg_buf data = { .max = CG_GEN_MAX_MODULE_BYTES };
        cg_auto_buf struct cg_buf module = { .max = CG_GEN_MAX_MODULE_BYTES };
        char name[4 * CG_GEN_MAX_NAME];
        struct cg_err why;
        int r = read_tool(&a, e, &t.def, err);

        if (r == 0)
                r = cg_tool_prepare(&t, err);
        if (r < 0)
                return r;
        if (t.report.status != CG_GEN_REJECTED)
                cg_tool_put_data(&t, &data);
        if (data.failed == CG_E_LIMIT) {
                cg_buf_end(&data, &why);
                cg_gen_warn(&t.report, CG_GEN_REJECTED, NULL, "its data would be too big: %s", why.msg);
        } else if (cg_buf_end(&data, err) < 0) {
                return data.failed;
        }

        if (t.report.status != CG_GEN_REJECTED) {
                if (e->clashed)
                        cg_gen_warn(&t.report, CG_GEN_FULL, NULL,
                                    "the module is called %.*s: another tool's name is too similar",
                                    (int)e->module.len, e->module.p);
                cg_tool_put_module(&t, &module);
                snprintf(name, sizeof(name), "%.*s.py", (int)t.module.len, t.module.p);
                r = cg_buf_end(&module, err);
                if (r == 0)
                        r = cg_package_add(p, name, cg_buf_slice(&module), err);
                if (r == CG_E_LIMIT)
                        cg_gen_warn(&t.report, CG_GEN_REJECTED, NULL, "its module would be too big");
                else if (r < 0)
                        return r;
        }
        if (t.report.status != CG_GEN_REJECTED) {
                cg_buf_adds(&g->data, g->n_data++ ? ",\n" : "\n");
                cg_puts(&g->data, cg_buf_slice(&data));
                cg_tool_put_summary(&t, g->n_described > 2 ? g->common.len : 0, &g->catalogue);
        }
        put_report(g, e, &t.report);
        if (t.report.status == CG_GEN_REJECTED)
                e->module = CG_SLICE("");
        if (a.failed)
                return cg_fail(err, CG_E_NOMEM, "tool definition");
        return 0;
}

/* Lists the rejected tools in the catalogue: a reader may search for them. */
static void put_rejected(struct generator *g, struct cg_buf *o)
{
        cg_auto_free struct entry **list = calloc(g->n + 1, sizeof(struct entry *));
        size_t n = 0;

        if (!list)
                return;
        for (size_t i = 0; i < g->n; i++)
                if (!g->entries[i].module.len && g->entries[i].name.p)
                        list[n++] = &g->entries[i];
        qsort(list, n, sizeof(struct entry *), by_tool);
        for (size_t i = 0; i < n; i++) {
                cg_buf_adds(o, "Not available: ");
                cg_put_folded(o, list[i]->name, CG_GEN_MAX_NAME);
                cg_buf_adds(o, " (");
                cg_put_folded(o, list[i]->reason, CG_GEN_MAX_SUMMARY);
                cg_buf_adds(o, ")\n");
        }
}

/* "mcptools." when the package is going to be a part of it. */
static const char *root_name(const struct cg_codegen_options *o)
{
        static const char name[] = "mcptools";
        size_t n = strlen(o->out_dir);

        while (n && o->out_dir[n - 1] == '/')
                n--;
        if (o->root_package ||
            (n >= sizeof(name) - 1 && memcmp(o->out_dir + n - sizeof(name) + 1, name, sizeof(name) - 1) == 0))
                return "mcptools.";
        return "";
}

static void put_catalogue_doc(struct generator *g, struct entry **list, size_t n, struct cg_buf *o)
{
        cg_auto_buf struct cg_buf doc = { .max = CG_GEN_MAX_DATA_BYTES };

        cg_buf_adds(&doc, g->o->functions ? "Functions of the host, \"" : "MCP server \"");
        cg_put_folded(&doc, cg_slice_of(g->o->server), CG_GEN_MAX_SERVER_NAME);
        cg_buf_addf(&doc, "\": %zu tool%s.", g->n_data, g->n_data == 1 ? "" : "s");
        for (size_t i = 0; i < n; i++) {
                int len = (int)list[i]->module.len;

                if (!len)
                        continue;
                cg_buf_addf(&doc,
                            " `from %s%s import %.*s`; `%.*s.run(...)`, or `await %.*s.run_async(...)`.",
                            root_name(g->o), g->package, len, list[i]->module.p, len, list[i]->module.p, len,
                            list[i]->module.p);
                break;
        }
        cg_buf_adds(&doc, "\n\n");
        cg_puts(&doc, cg_buf_slice(&g->catalogue));
        put_rejected(g, &doc);
        cg_buf_fail(o, doc.failed);
        cg_put_doc(o, cg_buf_slice(&doc), 0, SIZE_MAX);
}

static int write_init(struct generator *g, struct cg_package *p, struct entry **list, size_t n,
                      struct cg_err *err)
{
        cg_auto_buf struct cg_buf o = { .max = CG_GEN_MAX_DATA_BYTES };

        if (g->o->unavailable) {
                cg_buf_adds(&o, "raise ImportError(");
                cg_put_str(&o, cg_slice_of(g->o->unavailable));
                cg_buf_adds(&o, ")\n");
                if (cg_buf_end(&o, err) < 0)
                        return o.failed;
                return cg_package_add(p, "__init__.py", cg_buf_slice(&o), err);
        }
        put_catalogue_doc(g, list, n, &o);
        cg_buf_adds(
                &o,
                "\nimport typing as _typing\n\nfrom cellgate_tools import package as _package\n\nTOOLS = (");
        for (size_t i = 0; i < n; i++) {
                if (!list[i]->module.len)
                        continue;
                cg_put_str(&o, list[i]->module);
                cg_buf_adds(&o, ", ");
        }
        /* Attributes of the package, which it imports when they are used. */
        cg_buf_adds(&o, ")\nif _typing.TYPE_CHECKING:\n    ...\n");
        for (size_t i = 0; i < n; i++) {
                struct cg_slice m = list[i]->module;

                if (m.len)
                        cg_buf_addf(&o, "    from . import %.*s as %.*s\n", (int)m.len, m.p, (int)m.len, m.p);
        }
        cg_buf_adds(&o, "_package(__name__)\n");
        if (cg_buf_end(&o, err) < 0)
                return o.failed;
        return cg_package_add(p, "__init__.py", cg_buf_slice(&o), err);
}

static int write_root(struct cg_package *p, struct cg_err *err)
{
        static const char text[] = CG_PACKAGE_ROOT_MARK
                "one package for each: `from mcptools.SERVER import TOOL`, then `TOOL.run(...)`.\n"
                "\n"
                "`search(\"words\")` finds tools, `servers()`, `tools(\"SERVER\")` and `signature(\"SERVER.TOOL\")` show them in levels,\n"
                "`help(mcptools.SERVER)` is a server's catalogue, `help(TOOL)` has everything about a tool.\n"
                "`resources(\"SERVER\")`, `read_resource(\"SERVER\", \"URI\")`, `prompts(\"SERVER\")` and `get_prompt(\"SERVER\", \"NAME\")`\n"
                "are for what a server has beside tools.\n"
                "\"\"\"\n"
                "from cellgate_tools import Lines as _Lines, Matches as _Matches, catalogue as _catalogue, package as _package, resources as _resources\n"
                "\n\n"
                "def search(query: str = \"\", *, server: str | None = None, detail: str = \"signature\", limit: int = 10) -> _Matches:\n"
                "    \"\"\"Find tools by words in their names, descriptions and parameters, best first; no words: all of them.\n"
                "\n"
                "    detail: \"name\" (name and first sentence), \"signature\" (and parameters), \"full\" (the module's text).\n"
                "    \"\"\"\n"
                "    return _catalogue.search(__path__, query, server=server, detail=detail, limit=limit)\n"
                "\n\n"
                "def servers() -> _Lines:\n"
                "    \"\"\"Names of the servers' packages.\"\"\"\n"
                "    return _catalogue.servers(__path__)\n"
                "\n\n"
                "def tools(server: str, *, describe: bool = False) -> _Lines:\n"
                "    \"\"\"Names of a server's tools; describe: with the start of what distinguishes each from the others.\"\"\"\n"
                "    return _catalogue.tools(__path__, server, describe=describe)\n"
                "\n\n"
                "def signature(tool: str, server: str | None = None) -> str:\n"
                "    \"\"\"How a tool, NAME or \\\"SERVER.NAME\\\", is called: name(path: str, dryRun?: bool) -> Result.\"\"\"\n"
                "    return _catalogue.signature(__name__, __path__, tool, server)\n"
                "\n\n"
                "def resources(server: str) -> _resources.Listing[_resources.ResourceInfo]:\n"
                "    \"\"\"The resources that a server lists: uri, name, title, description, mime, size.\"\"\"\n"
                "    return _resources.resources(__path__, server)\n"
                "\n\n"
                "def resource_templates(server: str) -> _resources.Listing[_resources.TemplateInfo]:\n"
                "    \"\"\"Templates of further URIs: template, name, title, description, mime.\"\"\"\n"
                "    return _resources.resource_templates(__path__, server)\n"
                "\n\n"
                "def read_resource(server: str, uri: str) -> _resources.Contents:\n"
                "    \"\"\"A resource, once the host has approved it: its text as str; .data, .save(path), .images, .content.\"\"\"\n"
                "    return _resources.read_resource(__path__, server, uri)\n"
                "\n\n"
                "async def aread_resource(server: str, uri: str) -> _resources.Contents:\n"
                "    \"\"\"Like read_resource(), to be awaited.\"\"\"\n"
                "    return await _resources.aread_resource(__path__, server, uri)\n"
                "\n\n"
                "def prompts(server: str) -> _resources.Listing[_resources.PromptInfo]:\n"
                "    \"\"\"The prompts that a server lists: name, title, description, arguments.\"\"\"\n"
                "    return _resources.prompts(__path__, server)\n"
                "\n\n"
                "def get_prompt(server: str, name: str, /, **arguments: str) -> _resources.Prompt:\n"
                "    \"\"\"A prompt, once the host has approved it: .description, .messages (role, content); str() is readable.\"\"\"\n"
                "    return _resources.get_prompt(__path__, server, name, arguments)\n"
                "\n\n"
                "async def aget_prompt(server: str, name: str, /, **arguments: str) -> _resources.Prompt:\n"
                "    \"\"\"Like get_prompt(), to be awaited.\"\"\"\n"
                "    return await _resources.aget_prompt(__path__, server, name, arguments)\n"
                "\n\n"
                "_package(__name__)\n";
        int r = cg_package_put_root(p, "__init__.py", CG_PACKAGE_ROOT_MARK, CG_SLICE(text), err);

        return r < 0 ? r : cg_package_put_root(p, "py.typed", "", CG_SLICE(""), err);
}

static int write_package(struct generator *g, struct entry **list, size_t n, struct cg_err *err)
{
        cg_auto_buf struct cg_buf mark = { .max = 1 << 16 };
        cg_auto_package struct cg_package *p = NULL;
        int r;

        cg_buf_adds(&mark, CG_PACKAGE_MARK);
        cg_put_json_str(&mark, cg_slice_of(g->o->server));
        cg_buf_adds(&mark, ",\n");
        r = cg_buf_end(&mark, err);
        if (r < 0)
                return r;
        r = cg_package_new(g->o->out_dir, g->package, cg_buf_slice(&mark), &p, err);
        if (r < 0)
                return r;
        cg_puts(&g->data, cg_buf_slice(&mark));
        cg_buf_adds(&g->data, g->o->functions ? "\"functions\":true,\n\"tools\":{" : "\"tools\":{");
        for (size_t i = 0; i < n; i++) {
                r = write_tool(g, p, list[i], err);
                if (r < 0)
                        return r;
        }
        cg_buf_adds(&g->data, "}}\n");
        if (cg_buf_end(&g->data, err) < 0 || cg_buf_end(&g->catalogue, err) < 0)
                return err->code;
        r = cg_package_add(p, CG_PACKAGE_DATA, cg_buf_slice(&g->data), err);
        if (r < 0)
                return r;
        r = write_init(g, p, list, n, err);
        if (r < 0)
                return r;
        if (g->o->root_package && write_root(p, err) < 0)
                return err->code;
        return cg_package_commit(p, err);
}

int cg_codegen(const struct cg_codegen_options *o, const char *tools, size_t len, char **ret_report,
               struct cg_err *err)
{
        cg_auto_generator struct generator g = { .o = o,
                                                 .data = { .max = CG_GEN_MAX_DATA_BYTES },
                                                 .catalogue = { .max = CG_GEN_MAX_DATA_BYTES } };
        cg_auto_buf struct cg_buf report = { .max = CG_GEN_MAX_DATA_BYTES };
        cg_auto_free struct entry **list = NULL;
        struct cg_err local = { 0 };
        size_t n = 0;
        int r;

        err = err ?: &local;
        if (!o->out_dir || !*o->out_dir)
                return cg_fail(err, CG_E_INVAL, "no output folder");
        r = cg_codegen_package_name(o->server, g.package, sizeof(g.package), err);
        if (r < 0)
                return r;
        r = read_list(&g, tools, len, err);
        if (r < 0)
                return r;
        list = unique_tools(&g, &n);
        if (!list)
                return cg_fail(err, CG_E_NOMEM, "tool list");
        r = name_modules(&g, list, &n, err);
        if (r == 0)
                r = write_package(&g, list, n, err);
        if (r < 0)
                return r;
        if (g.arena.failed)
                return cg_fail(err, CG_E_NOMEM, "report");

        cg_buf_addf(&report, "{\"package\":\"%s\",\"tools\":[", g.package);
        for (size_t i = 0; i < g.n; i++) {
                cg_buf_adds(&report, i ? ",\n" : "\n");
                cg_puts(&report, g.entries[i].report);
        }
        cg_buf_adds(&report, "]}\n");
        if (cg_buf_end(&report, err) < 0)
                return report.failed;
        *ret_report = cg_buf_steal(&report, NULL);
        return cg_made(*ret_report, "report", err);
}
