/* Python names for foreign ones: packages, modules, fields, classes. Runs in trusted processes. */
#include "codegen/names.h"

#include "base/text.h"
#include "codegen/codegen.h"
#include "codegen/ceilings.h"
#include "codegen/text.h"

static const char *const keywords[] = {
        "False", "None",     "True",  "and",    "as",   "assert", "async",  "await",    "break",
        "class", "continue", "def",   "del",    "elif", "else",   "except", "finally",  "for",
        "from",  "global",   "if",    "import", "in",   "is",     "lambda", "nonlocal", "not",
        "or",    "pass",     "raise", "return", "try",  "while",  "with",   "yield",
};

/*
 * A field may not be called like a type that annotations use (it would change the fields after it
 * for type checkers), nor like what Model defines.
 */
static const char *const no_field[] = {
        "Any",        "Literal",           "Model",          "UNSET", "bool", "dict", "float", "int", "list",
        "model_dump", "model_json_schema", "model_validate", "str",
};

/* Objects in results are dicts, whose methods json, pandas and others call. */
static const char *const no_result_field[] = {
        "clear", "copy",    "fromkeys",   "get",    "items",  "keys",
        "pop",   "popitem", "setdefault", "update", "values",
};

static const char *const no_class[] = {
        "Any", "DictModel", "Literal", "Model", "Open", "Params", "Result", "Returns", "Text", "UNSET",
};

/* Attributes of a server's package, and of the package that holds the servers' packages. */
static const char *const no_module[] = { "TOOLS" };
static const char *const no_package[] = {
        "aget_prompt", "aread_resource", "get_prompt", "prompts",   "read_resource", "resource_templates",
        "resources",   "search",         "servers",    "signature", "tools",
};

static bool among(struct cg_slice s, const char *const *list, size_t n)
{
        for (size_t i = 0; i < n; i++)
                if (cg_slice_is(s, list[i]))
                        return true;
        return false;
}

bool cg_is_keyword(struct cg_slice s)
{
        return among(s, keywords, CG_ARRAY_LEN(keywords));
}

/* FNV-1a and a final mix, so that the first six digits depend on every byte. */
static uint64_t name_hash(struct cg_slice s)
{
        uint64_t h = cg_fnv1a(CG_FNV1A, s.p, s.len);

        h ^= h >> 33;
        h *= 0xff51afd7ed558ccdu;
        h ^= h >> 33;
        return h;
}

static bool letter_or_digit(uint32_t c)
{
        return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
}

static void put_hash(struct cg_buf *o, struct cg_slice original, int digits)
{
        char hex[17];

        snprintf(hex, sizeof(hex), "%016" PRIx64, name_hash(original));
        cg_puts(o, (struct cg_slice){ hex, (size_t)digits });
}

static bool is_field(enum cg_name_kind kind)
{
        return kind == CG_NAME_FIELD || kind == CG_NAME_RESULT_FIELD;
}

static bool taken(enum cg_name_kind kind, struct cg_slice s)
{
        if (cg_is_keyword(s))
                return true;
        if (kind == CG_NAME_RESULT_FIELD && among(s, no_result_field, CG_ARRAY_LEN(no_result_field)))
                return true;
        if (is_field(kind))
                return among(s, no_field, CG_ARRAY_LEN(no_field));
        if (kind == CG_NAME_MODULE)
                return among(s, no_module, CG_ARRAY_LEN(no_module));
        return among(s, no_package, CG_ARRAY_LEN(no_package));
}

/* The name by the rules, not yet unique. */
static struct cg_slice base_name(struct cg_arena *a, struct cg_slice original, enum cg_name_kind kind)
{
        /* comes before a name that would start with a digit or be empty */
        static const char *const prefixes[] = { [CG_NAME_PACKAGE] = "s_",
                                                [CG_NAME_MODULE] = "t_",
                                                [CG_NAME_FIELD] = "p_",
                                                [CG_NAME_RESULT_FIELD] = "p_" };
        const char *prefix = prefixes[kind];
        cg_auto_buf struct cg_buf raw = { .max = CG_GEN_MAX_TOOL_TEXT };
        cg_auto_buf struct cg_buf o = { .max = 4 * CG_GEN_MAX_NAME };
        struct cg_slice s = original;

        /* Every character that cannot be in a name becomes one '_'. */
        while (s.len) {
                uint32_t c = cg_next_char(&s);
                char out = letter_or_digit(c) ? (char)c : '_';

                if (kind == CG_NAME_PACKAGE)
                        out = cg_ascii_lower(out);
                cg_puts(&raw, (struct cg_slice){ &out, 1 });
        }
        s = cg_buf_slice(&raw);
        /* A leading underscore means private (fields: name mangling); dunders are special. */
        if (s.len && *s.p == '_') {
                size_t n = strspn(s.p, "_");

                s = (struct cg_slice){ s.p + n, s.len - n };
                while (!is_field(kind) && s.len && s.p[s.len - 1] == '_')
                        s.len--;
        }
        if (!s.len) {
                cg_buf_adds(&o, prefix);
                put_hash(&o, original, 6);
                return cg_arena_text(a, &o);
        }
        if (cg_is_digit(*s.p))
                cg_buf_adds(&o, prefix);
        if (s.len > CG_GEN_MAX_NAME) {
                cg_puts(&o, (struct cg_slice){ s.p, CG_GEN_MAX_NAME - 7 });
                cg_buf_adds(&o, "_");
                put_hash(&o, original, 6);
        } else {
                cg_puts(&o, s);
        }
        cg_put_if(&o, taken(kind, cg_buf_slice(&o)), "_");
        return cg_arena_text(a, &o);
}

/* ------------------------------------------------------------------ making them unique */

/* Files of modules may be copied to a file system that does not tell case apart. */
static int fold_cmp(struct cg_slice x, struct cg_slice y)
{
        for (size_t i = 0; i < x.len && i < y.len; i++) {
                char a = cg_ascii_lower(x.p[i]), b = cg_ascii_lower(y.p[i]);

                if (a != b)
                        return a < b ? -1 : 1;
        }
        return (x.len > y.len) - (x.len < y.len);
}

static int compare(enum cg_name_kind kind, struct cg_slice a, struct cg_slice b)
{
        return is_field(kind) ? cg_slice_cmp(a, b) : fold_cmp(a, b);
}

static int by_name(const void *x, const void *y, void *kind)
{
        const struct cg_python_name *a = *(struct cg_python_name *const *)x,
                                    *b = *(struct cg_python_name *const *)y;
        int c = compare(*(enum cg_name_kind *)kind, a->name, b->name);

        return c ?: cg_slice_cmp(a->original, b->original);
}

/* Makes the names of one group of equal names longer; true when something changed. */
static bool settle(struct cg_arena *a, enum cg_name_kind kind, struct cg_python_name **group, size_t n,
                   bool reserved)
{
        size_t owner = n;

        if (!group[0]->name.len || (n == 1 && !reserved))
                return false;
        /* If names differ in case only, the last in byte order keeps its name: "getuser". */
        for (size_t i = 0; i < n && !reserved; i++)
                if (group[i]->level == 0 && cg_slice_eq(group[i]->name, group[i]->original))
                        owner = i;
        for (size_t i = 0; i < n; i++) {
                cg_auto_buf struct cg_buf o = { .max = 4 * CG_GEN_MAX_NAME };

                if (i == owner)
                        continue;
                if (++group[i]->level > 2) {
                        group[i]->name = CG_SLICE("");
                        continue;
                }
                cg_puts(&o, base_name(a, group[i]->original, kind));
                cg_buf_adds(&o, "_");
                put_hash(&o, group[i]->original, group[i]->level == 1 ? 6 : 16);
                group[i]->name = cg_arena_text(a, &o);
        }
        return n > 1 || reserved;
}

bool cg_names_assign(struct cg_arena *a, enum cg_name_kind kind, struct cg_python_name *names, size_t n,
                     const struct cg_slice *reserved, size_t n_reserved)
{
        cg_auto_free struct cg_python_name **order = calloc(n + 1, sizeof(struct cg_python_name *));
        bool changed = true;

        if (!order)
                return false;
        for (size_t i = 0; i < n; i++) {
                order[i] = &names[i];
                names[i].level = 0;
                names[i].name = base_name(a, names[i].original, kind);
        }
        /*
         * Each round moves at least one name up; a name moves up three times at most. In practice
         * one or two rounds.
         */
        while (changed && !a->failed) {
                changed = false;
                qsort_r(order, n, sizeof(struct cg_python_name *), by_name, &kind);
                for (size_t i = 0, end; i < n; i = end) {
                        struct cg_slice name = order[i]->name;

                        for (end = i + 1; end < n && compare(kind, order[end]->name, name) == 0;)
                                end++;
                        changed |= settle(a, kind, order + i, end - i,
                                          reserved && bsearch(&name, reserved, n_reserved, sizeof(name),
                                                              cg_slice_order));
                }
        }
        return !a->failed;
}

/* ------------------------------------------------------------------ classes */

struct cg_slice cg_class_base(struct cg_arena *a, struct cg_slice hint)
{
        cg_auto_buf struct cg_buf o = { .max = 4 * CG_GEN_MAX_NAME };
        bool start = true;

        while (hint.len && o.len < 40) {
                uint32_t c = cg_next_char(&hint);
                char out = (char)c;

                if (!letter_or_digit(c)) {
                        start = true;
                        continue;
                }
                cg_put_if(&o, !o.len && cg_is_digit(out), "C");
                if (start && out >= 'a' && out <= 'z')
                        out = (char)(out & ~32);
                start = false;
                cg_puts(&o, (struct cg_slice){ &out, 1 });
        }
        cg_put_if(&o, !o.len, "Item");
        if (cg_is_keyword(cg_buf_slice(&o)) || among(cg_buf_slice(&o), no_class, CG_ARRAY_LEN(no_class)))
                cg_buf_adds(&o, "2");
        return cg_arena_text(a, &o);
}

/* ------------------------------------------------------------------ packages */

int cg_codegen_package_name(const char *server, char *buf, size_t size, struct cg_err *err)
{
        cg_auto_arena struct cg_arena a = { 0 };
        size_t len, step;
        struct cg_slice s;
        uint32_t c;
        int n;

        if (!server)
                return cg_fail(err, CG_E_INVAL, "no server name");
        len = strlen(server);
        if (!len || strcmp(server, ".") == 0 || strcmp(server, "..") == 0)
                return cg_fail(err, CG_E_INVAL, "\"%s\" cannot be the name of a server", server);
        for (const char *p = server; *p; p += step) {
                step = cg_utf8_next((const unsigned char *)p, len - (size_t)(p - server), &c);
                if (!step)
                        return cg_fail(err, CG_E_INVAL, "the server's name is not UTF-8");
                if (c < 0x20 || c == 0x7f || c == '/' || c == '\\')
                        return cg_fail(
                                err, CG_E_INVAL,
                                "a server's name cannot have slashes, backslashes or control characters");
        }
        if (cg_count_chars(cg_slice_of(server)) > CG_GEN_MAX_SERVER_NAME)
                return cg_fail(err, CG_E_INVAL, "the server's name has more than %u characters",
                               CG_GEN_MAX_SERVER_NAME);
        s = base_name(&a, cg_slice_of(server), CG_NAME_PACKAGE);
        if (a.failed)
                return cg_fail(err, CG_E_NOMEM, "server name");
        n = snprintf(buf, size, "%.*s", (int)s.len, s.p);
        if (n < 0 || (size_t)n >= size)
                return cg_fail(err, CG_E_INVAL, "no room for the package name");
        return 0;
}
