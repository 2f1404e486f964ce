/* Headers that repeat arguments. Linked into the tool server and the command line. */
#include "mcp/client/param_headers.h"

#include <ctype.h>
#include <jansson.h>
#include "base/base64.h"
#include "base/json.h"
#include "base/json_text.h"
#include "mcp/ceilings.h"

#define KEY "x-mcp-header"

struct annotations {
        struct cg_param_headers *found; /* with room for all */
        const char *path[CG_MCP_MAX_PARAM_DEPTH + 1];
        struct cg_err *err;
};

struct cg_param_headers *cg_param_headers_free(struct cg_param_headers *h)
{
        while (h) {
                struct cg_param_headers *next = h->next;

                for (size_t i = 0; i < h->n; i++) {
                        for (size_t k = 0; h->list[i].path && h->list[i].path[k]; k++)
                                free(h->list[i].path[k]);
                        free(h->list[i].path);
                        free(h->list[i].name);
                }
                free(h->tool);
                free(h);
                h = next;
        }
        return NULL;
}

static int add(struct annotations *a, const json_t *schema, size_t depth)
{
        const char *name = json_string_value(json_object_get(schema, KEY)),
                   *type = json_string_value(json_object_get(schema, "type")) ?: "";
        struct cg_param_headers *h = a->found;
        struct cg_param_header *p;

        if (!depth || !name || !*name || strlen(name) != json_string_length(json_object_get(schema, KEY)))
                return cg_fail(a->err, CG_E_INVAL, "\"" KEY "\" is not a name at a property");
        for (const char *c = name; *c; c++)
                if (!isalnum((unsigned char)*c) && !strchr("!#$%&'*+-.^_`|~", *c))
                        return cg_fail(a->err, CG_E_INVAL,
                                       "\"" KEY "\" has a character that no header's name has");
        if (strcmp(type, "string") != 0 && strcmp(type, "integer") != 0 && strcmp(type, "boolean") != 0)
                return cg_fail(a->err, CG_E_INVAL,
                               "\"" KEY "\" is at a property that is neither string nor integer nor boolean");
        for (size_t i = 0; i < h->n; i++)
                if (strcasecmp(h->list[i].name, name) == 0)
                        return cg_fail(a->err, CG_E_INVAL, "\"" KEY "\" has the same name twice");
        if (h->n == CG_MCP_MAX_PARAM_HEADERS)
                return cg_fail(a->err, CG_E_INVAL, "\"" KEY "\" is at more than %u properties",
                               CG_MCP_MAX_PARAM_HEADERS);
        h->size += sizeof(*p) + strlen(name);
        for (size_t i = 0; i < depth; i++)
                h->size += sizeof(*p->path) + strlen(a->path[i]);
        if (h->size > CG_MCP_MAX_PARAM_NAMES)
                return cg_fail(a->err, CG_E_INVAL,
                               "names of arguments with \"" KEY "\" need more than %zu bytes",
                               CG_MCP_MAX_PARAM_NAMES);
        p = &h->list[h->n++];
        p->name = strdup(name);
        p->path = calloc(depth + 1, sizeof(*p->path));
        for (size_t i = 0; p->path && i < depth; i++)
                if (!(p->path[i] = strdup(a->path[i])))
                        return cg_fail(a->err, CG_E_NOMEM, "tool");
        return cg_made(p->name && p->path, "tool", a->err);
}

/*
 * Looks through a schema and those in it. @reachable: it is that of an argument; else an annotation
 * is invalid, because nobody could say which value it means.
 */
static int search(struct annotations *a, json_t *schema, size_t depth, unsigned level, bool reachable)
{
        json_t *value, *sub;
        const char *key, *name;
        size_t i;
        int r = 0;

        if (level > CG_MCP_MAX_PARAM_DEPTH)
                return cg_fail(a->err, CG_E_INVAL, "its schema is nested too deeply");
        json_array_foreach(schema, i, sub) {
                r = search(a, sub, depth, level + 1, false);
                if (r < 0)
                        return r;
        }
        if (json_object_get(schema, KEY)) {
                if (!reachable)
                        return cg_fail(a->err, CG_E_INVAL,
                                       "\"" KEY "\" is where no single argument is meant");
                r = add(a, schema, depth);
                if (r < 0)
                        return r;
        }
        json_object_foreach(schema, key, value) {
                if (strcmp(key, "default") == 0 || strcmp(key, "const") == 0 || strcmp(key, "enum") == 0 ||
                    strcmp(key, "examples") == 0)
                        continue; /* data, not schemas */
                if (strcmp(key, "properties") != 0 || !json_is_object(value)) {
                        r = search(a, value, depth, level + 1, false);
                        if (r < 0)
                                return r;
                        continue;
                }
                json_object_foreach(value, name, sub) {
                        a->path[depth] = name;
                        r = search(a, sub, depth + 1, level + 1, reachable);
                        if (r < 0)
                                return r;
                }
        }
        return 0;
}

static void annotations_fini(struct annotations *a)
{
        cg_param_headers_free(a->found);
}

int cg_param_headers_read(struct cg_slice tool, struct cg_param_headers **ret, struct cg_err *err)
{
        cg_auto_json json_t *schema = NULL;
        struct cg_slice text = CG_SLICE_NONE, name = CG_SLICE_NONE;
        CG_CLEANUP(annotations_fini) struct annotations a = { .err = err };
        int r;

        *ret = NULL;
        if (!memmem(tool.p, tool.len, KEY, sizeof(KEY) - 1) || !cg_json_find(tool, "inputSchema", &text) ||
            !cg_json_find(tool, "name", &name))
                return 0;
        schema = json_loadb(text.p, text.len, JSON_ALLOW_NUL | JSON_DECODE_INT_AS_REAL, NULL);
        if (!schema)
                return cg_fail(err, CG_E_INVAL, "its schema has \"" KEY "\" and cannot be read");
        a.found = calloc(1, sizeof(*a.found) + CG_MCP_MAX_PARAM_HEADERS * sizeof(a.found->list[0]));
        if (!a.found)
                return cg_fail(err, CG_E_NOMEM, "tool");
        r = cg_json_strdup(name, &a.found->tool, err);
        if (r < 0)
                return r;
        r = search(&a, schema, 0, 0, true);
        if (r < 0 || !a.found->n)
                return r;
        a.found->size += sizeof(*a.found) + strlen(a.found->tool);
        *ret = realloc(a.found, sizeof(*a.found) + a.found->n * sizeof(a.found->list[0])) ?: a.found;
        a.found = NULL;
        return 0;
}

void cg_param_headers_encode(struct cg_buf *b, const char *text)
{
        size_t n = strlen(text);
        bool plain = !n || (!cg_json_is_space(text[0]) && !cg_json_is_space(text[n - 1]));

        for (size_t i = 0; i < n; i++)
                plain &= text[i] == '\t' || (text[i] >= 0x20 && text[i] <= 0x7e);
        if (plain && n >= 11 && strncmp(text, "=?base64?", 9) == 0 && strcmp(text + n - 2, "?=") == 0)
                plain = false;
        if (plain) {
                cg_buf_adds(b, text);
                return;
        }
        cg_buf_adds(b, "=?base64?");
        cg_base64_add(b, text, n);
        cg_buf_adds(b, "?=");
}

/* The value of one header; nothing where there is no such argument. */
static int add_value(const struct cg_param_header *p, struct cg_slice args, struct cg_buf *b,
                     struct cg_err *err)
{
        cg_auto_free char *text = NULL;
        struct cg_slice value = args;

        for (size_t i = 0; p->path[i]; i++)
                if (cg_json_kind(value) != '{' || !cg_json_find(value, p->path[i], &value))
                        return 0;
        if (!strchr("\"tf-0123456789", cg_json_kind(value)) || !value.len)
                return 0; /* null, or of a type that the server refuses */
        if (cg_json_kind(value) != '"')
                text = strndup(value.p, value.len);
        else if (cg_json_strdup(value, &text, NULL) < 0)
                return cg_fail(err, CG_E_INVAL,
                               "the argument \"%s\" is sent in a header and cannot contain NUL", p->path[0]);
        if (!text)
                return cg_fail(err, CG_E_NOMEM, "request");
        cg_buf_addf(b, "Mcp-Param-%s: ", p->name);
        cg_param_headers_encode(b, text);
        if (b->failed)
                return cg_fail(err, CG_E_LIMIT,
                               "the argument \"%s\" is sent in a header and is over %u bytes", p->path[0],
                               CG_MCP_MAX_PARAM_VALUE);
        return 0;
}

int cg_param_headers_make(const struct cg_param_headers *list, const char *tool, struct cg_slice args,
                          char ***ret, struct cg_err *err)
{
        cg_auto_list char **made = NULL;
        size_t n = 0;

        while (list && strcmp(list->tool, tool) != 0)
                list = list->next;
        made = calloc(list ? list->n + 1 : 1, sizeof(*made));
        if (!made)
                return cg_fail(err, CG_E_NOMEM, "request");
        for (size_t i = 0; list && i < list->n; i++) {
                cg_auto_buf struct cg_buf b = { .max = CG_MCP_MAX_PARAM_VALUE };
                int r = add_value(&list->list[i], args, &b, err);

                if (r < 0)
                        return r;
                if (b.len && !(made[n++] = cg_buf_steal(&b, NULL)))
                        return cg_fail(err, CG_E_NOMEM, "request");
        }
        *ret = CG_STEAL(made);
        return 0;
}
