/* JSON helpers. Linked into every process. */
#include "base/json.h"

#include "base/ceilings.h"
#include "base/proc.h"
#include "base/text.h"

int cg_json_object(const char *text, size_t len, const char *what, json_t **ret, struct cg_err *err)
{
        json_error_t e;
        json_t *j;

        /* a byte order mark: editors write it */
        if (len >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0) {
                text += 3;
                len -= 3;
        }
        j = json_loadb(text, len, JSON_ALLOW_NUL | JSON_REJECT_DUPLICATES, &e);
        if (!j)
                return cg_fail(err, CG_E_PARSE, "%s is not valid JSON: line %d, column %d: %s", what, e.line,
                               e.column, e.text);
        if (!json_is_object(j)) {
                json_decref(j);
                return cg_fail(err, CG_E_PARSE, "%s must be a JSON object", what);
        }
        *ret = j;
        return 0;
}

int cg_json_str(const json_t *o, const char *key, const char *def, const char **ret, struct cg_err *err)
{
        const json_t *v = json_object_get(o, key);

        if (v && !json_is_string(v))
                return cg_fail(err, CG_E_PARSE, "\"%s\" must be a string", key);
        if (v && json_string_length(v) != strlen(json_string_value(v)))
                return cg_fail(err, CG_E_PARSE, "\"%s\" contains a NUL character", key);
        *ret = v ? json_string_value(v) : def;
        return 0;
}

int cg_json_int(const json_t *o, const char *key, int64_t def, int64_t *ret, struct cg_err *err)
{
        const json_t *v = json_object_get(o, key);

        if (v && !json_is_integer(v))
                return cg_fail(err, CG_E_PARSE, "\"%s\" must be an integer", key);
        *ret = v ? json_integer_value(v) : def;
        return 0;
}

int cg_json_bool(const json_t *o, const char *key, bool def, bool *ret, struct cg_err *err)
{
        const json_t *v = json_object_get(o, key);

        if (v && !json_is_boolean(v))
                return cg_fail(err, CG_E_PARSE, "\"%s\" must be true or false", key);
        *ret = v ? json_is_true(v) : def;
        return 0;
}

char *cg_json_text(const json_t *j, size_t *len)
{
        char *s = json_dumps(j, JSON_COMPACT | JSON_ENSURE_ASCII | JSON_ENCODE_ANY);

        if (s && len)
                *len = strlen(s);
        return s;
}

static void quote_char(struct cg_buf *b, uint32_t c)
{
        char one = (char)c;

        if (c == '"' || c == '\\') {
                cg_buf_addf(b, "\\%c", one);
        } else if (c >= 0x20 && c < 0x7f) {
                cg_buf_add(b, &one, 1);
        } else if (c == '\n') {
                cg_buf_adds(b, "\\n");
        } else if (c < 0x10000) {
                cg_buf_addf(b, "\\u%04x", c);
        } else {
                c -= 0x10000;
                cg_buf_addf(b, "\\u%04x\\u%04x", 0xd800 + (c >> 10), 0xdc00 + (c & 0x3ff));
        }
}

void cg_json_quote(struct cg_buf *b, const char *s, size_t len)
{
        const unsigned char *p = (const unsigned char *)s;

        cg_buf_adds(b, "\"");
        for (size_t i = 0; i < len && !b->failed;) {
                uint32_t c = 0xfffd;
                size_t n = cg_utf8_next(p + i, len - i, &c);

                quote_char(b, c);
                i += n ?: 1;
        }
        cg_buf_adds(b, "\"");
}

int cg_json_mcp_servers(const json_t *file, json_t **ret, struct cg_err *err)
{
        const json_t *servers = json_object_get(file, "mcpServers"),
                     *other = json_object_get(file, "servers");
        const char *name;
        json_t *def, *list;

        if (servers && !json_is_object(servers))
                return cg_fail(err, CG_E_INVAL, "\"mcpServers\" must be an object");
        /* A server may be named "servers": then its definition has a command. */
        if (!servers && json_is_object(other) && !json_is_string(json_object_get(other, "command")) &&
            !json_is_string(json_object_get(other, "url")))
                servers = other;
        if (!servers)
                servers = file;
        list = json_object();
        json_object_foreach(cg_json_unconst(servers), name, def) {
                if (json_is_true(json_object_get(def, "disabled")) ||
                    json_is_false(json_object_get(def, "enabled")))
                        continue;
                if (json_object_set(list, name, def) < 0) {
                        json_decref(list);
                        return cg_fail(err, CG_E_NOMEM, "MCP servers");
                }
        }
        *ret = list;
        return cg_made(list, "MCP servers", err);
}

char *cg_json_mcp_identity(const json_t *definition)
{
        static const char *const parts[] = {
                "type", "command", "args", "cwd", "url", "serverUrl", "httpUrl"
        };
        cg_auto_json json_t *all = json_object();

        for (size_t i = 0; all && i < CG_ARRAY_LEN(parts); i++) {
                json_t *v = json_object_get(definition, parts[i]);

                if (v && json_object_set(all, parts[i], v) < 0)
                        return NULL;
        }
        return json_dumps(all, JSON_COMPACT | JSON_SORT_KEYS);
}

json_t *cg_json_passed_env(void)
{
        json_t *all = json_object();

        for (char **v = environ; all && *v; v++) {
                char name[64];
                size_t n = strcspn(*v, "=");

                if (!(*v)[n] || n >= sizeof(name) || !cg_proc_env_passes(*v))
                        continue;
                memcpy(name, *v, n);
                name[n] = '\0';
                json_object_set_new(all, name, json_string(*v + n + 1));
        }
        return all;
}

/* VAR or VAR:-DEFAULT, also after "env:". The default also replaces an empty variable. */
static int expand_var(const char *p, const char *end, struct cg_buf *b, json_t *values, const char *where,
                      struct cg_err *err)
{
        const char *fallback = memmem(p, (size_t)(end - p), ":-", 2), *value;
        char name[256];
        size_t n;

        if (fallback != p + 3 && end - p > 4 && strncmp(p, "env:", 4) == 0)
                p += 4;
        n = (size_t)((fallback ?: end) - p);
        if (n >= sizeof(name))
                return cg_fail(err, CG_E_INVAL, "%s: variable name is too long", where);
        memcpy(name, p, n);
        name[n] = '\0';
        value = getenv(name);
        if (fallback && (!value || !*value))
                return cg_buf_try_add(b, fallback + 2, (size_t)(end - fallback - 2), err);
        if (!value)
                return cg_fail(
                        err, CG_E_NOTFOUND,
                        "%s: environment variable %s is not set; set it, write ${%s:-DEFAULT}, or write the value itself",
                        where, name, name);
        if (!cg_proc_env_passes(name) && json_array_append_new(values, json_string(value)) < 0)
                return cg_fail(err, CG_E_INVAL, "%s: the value of %s is not UTF-8", where, name);
        return cg_buf_try_adds(b, value, err);
}

/* @values gets the variables' values. */
static json_t *expand(const json_t *v, json_t *values, const char *where, struct cg_err *err)
{
        cg_auto_buf struct cg_buf b = { .max = CG_MAX_SETTINGS };
        json_t *out, *item, *new_item;
        const char *key;
        size_t i;
        int r = 0;

        if (json_is_string(v)) {
                for (const char *text = json_string_value(v); *text && r == 0;) {
                        const char *end = text[0] == '$' && text[1] == '{' ? strchr(text, '}') : NULL;

                        r = end ? expand_var(text + 2, end, &b, values, where, err)
                                : cg_buf_try_add(&b, text, 1, err);
                        text = end ? end + 1 : text + 1;
                }
                out = r == 0 ? json_string(b.data ?: "") : NULL;
                if (r == 0 && !out)
                        cg_fail(err, CG_E_INVAL, "%s: a variable's value is not UTF-8", where);
                return out;
        }
        if (!json_is_object(v) && !json_is_array(v))
                return json_deep_copy(v);
        out = json_is_object(v) ? json_object() : json_array();
        json_object_foreach(cg_json_unconst(v), key, item) {
                new_item = expand(item, values, where, err);
                if (!new_item || json_object_set_new(out, key, new_item) < 0)
                        goto fail;
        }
        json_array_foreach(v, i, item) {
                new_item = expand(item, values, where, err);
                if (!new_item || json_array_append_new(out, new_item) < 0)
                        goto fail;
        }
        return out;
fail:
        json_decref(out);
        return NULL;
}

json_t *cg_json_expand_server(const json_t *definition, const char *where, struct cg_err *err)
{
        static const char *const internal[] = { "invalid", "inherit", "host_functions", "host_tools", "base",
                                                "hide",    "ask",     "identity" };
        cg_auto_json json_t *values = json_array(), *out = NULL;
        cg_auto_free char *identity = NULL;

        cg_fail(err, CG_E_NOMEM, "%s", where); /* what does not say more is out of memory */
        out = values ? expand(definition, values, where, err) : NULL;
        if (!out)
                return NULL;
        for (size_t i = 0; i < CG_ARRAY_LEN(internal); i++)
                json_object_del(out, internal[i]);
        identity = cg_json_mcp_identity(definition);
        if (!identity || json_object_set_new(out, "identity", json_string(identity)) < 0 ||
            json_object_set(out, "secrets", values) < 0)
                return NULL;
        return CG_STEAL(out);
}
