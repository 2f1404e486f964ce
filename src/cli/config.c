/* `cellgate config`: what a configuration sets, and its schema. Runs in the command `cellgate`. */
#include "cli/common/config.h"

#include "base/buf.h"
#include "base/json.h"
#include "cli/help.h"
#include "config.h"

#define FRONTS (CG_CMD_RUN | CG_CMD_SERVE | CG_JUP_RUN)

/* ---- the values */

/* A text as it may be shown (returns): of a URL neither the user with a password nor the path. */
static json_t *shown_text(const char *text)
{
        const char *host = strstr(text, "://");

        if (host && strchr(host, '@'))
                return json_sprintf("%.*s***", (int)(host + 3 - text), text);
        if (host && host[3 + strcspn(host + 3, "/?#")])
                return json_sprintf("%.*s/***", (int)(host + 3 + strcspn(host + 3, "/?#") - text), text);
        return json_string(text);
}

static json_t *shown_json(const json_t *value)
{
        json_t *copy, *v;
        const char *key;
        size_t i;

        if (json_is_string(value))
                return shown_text(json_string_value(value));
        copy = json_copy(cg_json_unconst(value));
        json_object_foreach(copy, key, v)
                json_object_set_new(copy, key, shown_json(v));
        json_array_foreach(copy, i, v)
                json_array_set_new(copy, i, shown_json(v));
        return copy;
}

/* A value as it may be shown (returns): not of a variable. */
static json_t *shown(const char *key, const json_t *value)
{
        const char *text = json_string_value(value);
        cg_auto_json json_t *object = NULL;

        if (strncmp(key, "env ", 4) == 0)
                return json_string("***");
        if (text && strncmp(key, "limit ", 6) == 0)
                return json_loads(strchr(text, '=') + 1, JSON_DECODE_ANY, NULL)
                               ?: json_real(strtod(strchr(text, '=') + 1, NULL)); /* ".5" */
        if (text && text[0] == '{')
                object = json_loads(text, 0, NULL);
        return shown_json(object ?: value);
}

/* The members of one key, as the file would have them: {"limits": {"memoryMb": 512}}. */
static void add_entry(json_t *all, const char *key, const json_t *entry, bool origin)
{
        const char *member = strchr(key, ' ');
        cg_auto_free char *name = strndup(key, strcspn(key, " "));
        bool policy = member && name && strcmp(name, "policy") == 0;
        json_t *values = json_object_get(entry, "values"), *list = json_array(), *one, *value, *group;
        size_t i;

        json_array_foreach(values, i, value)
                json_array_append_new(list, shown(key, value));
        if (json_array_size(list) == 0)
                one = json_false();
        else if (json_array_size(list) == 1)
                one = json_incref(json_array_get(list, 0));
        else
                one = json_incref(list);
        json_decref(list);
        if (origin)
                one = json_pack("{s:o, s:O}", "value", one, "from", json_object_get(entry, "from"));
        if (!member || !name) {
                json_object_set_new(all, key, one);
                return;
        }
        if (strcmp(name, "limit") == 0) {
                free(name);
                name = strdup("limits");
        }
        group = json_object_get(all, name);
        if (!group) {
                group = policy ? json_array() : json_object();
                json_object_set_new(all, name, group);
        }
        if (policy)
                json_array_append_new(group, one);
        else
                json_object_set_new(group, member + 1, one);
}

static int show(int argc, char **argv, struct cg_err *err)
{
        cg_auto_json json_t *values = NULL, *all = json_object();
        bool origin = false;
        const char *key;
        json_t *entry;
        int n = 1;

        for (int i = 1; i < argc; i++) {
                if (strcmp(argv[i], "--origin") == 0)
                        origin = true;
                else
                        argv[n++] = argv[i];
        }
        if (cg_config_read(FRONTS, n, argv, &values, err) < 0)
                return -1;
        if (!values)
                return cg_fail(err, CG_E_INVAL, "which configuration? --config FILE");
        json_object_foreach(values, key, entry)
                add_entry(all, key, entry, origin);
        return cg_cli_print_json(all, JSON_INDENT(2));
}

/* ---- the schema */

static json_t *schema_of(const struct cg_opt *o)
{
        if (o->id == CG_KOPT_SANDBOX)
                return json_pack("{s:[s, s], s:s}", "type", "string", "object", "description", o->help);
        if (!o->value)
                return json_pack("{s:s, s:s}", "type", "boolean", "description", o->help);
        if (cg_config_is_list(o))
                return json_pack("{s:[s, s, s], s:{s:[s, s]}, s:s}", "type", "string", "number", "array",
                                 "items", "type", "string", "number", "description", o->help);
        return json_pack("{s:[s, s], s:s}", "type", "string", "number", "description", o->help);
}

static int print_schema(struct cg_err *err)
{
        cg_auto_json json_t *all = NULL;
        json_t *keys = json_pack("{s:{s:s}, s:{s:s, s:s}, s:{s:s, s:{s:[s, s]}, s:s}, s:{s:s, s:{s:s}, s:s}}",
                                 "$schema", "type", "string", "mcpServers", "type", "object", "description",
                                 "MCP servers, as in the files of --mcp", "env", "type", "object",
                                 "additionalProperties", "type", "string", "number", "description",
                                 "variables for the kernel, which inherits none", "limits", "type", "object",
                                 "additionalProperties", "type", "number", "description",
                                 "limits of the kernel, instead of those of the settings");
        struct cg_optscan scan = cg_kernel_options_scan(FRONTS, 0, NULL);

        for (const struct cg_opt *o = scan.table; keys && o < scan.table + scan.n; o++) {
                if (cg_config_has(o) && o->id != CG_KOPT_LIMIT && !json_object_get(keys, o->name))
                        json_object_set_new(keys, o->name, schema_of(o));
        }
        all = json_pack("{s:s, s:s, s:s, s:b, s:o}", "$schema",
                        "https://json-schema.org/draft/2020-12/schema", "title", "cellgate " CG_VERSION,
                        "type", "object", "additionalProperties", 0, "properties", keys);
        return cg_cli_print_json(all, JSON_INDENT(2));
}

int cg_cli_config(int argc, char **argv)
{
        struct cg_err err;
        int r;

        for (int i = 1; i < argc; i++)
                if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0)
                        return cg_cli_print(CG_HELP_CONFIG);
        if (argc < 2)
                return cg_cli_print(CG_HELP_CONFIG);
        if (strcmp(argv[1], "schema") == 0)
                r = print_schema(&err);
        else
                r = show(argc, argv, &err);
        if (r < 0)
                return cg_cli_fail("config", &err);
        return r;
}
