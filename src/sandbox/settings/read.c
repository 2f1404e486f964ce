/* Reading JSON by tables. Texts stay in the JSON object, which the settings keep. */
#include "sandbox/settings/read.h"

#include <stdarg.h>

#include "base/json.h"
#include "base/text.h"

int cg_reader_fail(struct cg_reader *r, const char *fmt, ...)
{
        const char *path = r->path_len ? r->path : "(root)";
        char text[600];
        va_list ap;

        va_start(ap, fmt);
        vsnprintf(text, sizeof(text), fmt, ap);
        va_end(ap);
        if (r->failed && r->err) {
                size_t n = strlen(r->err->msg);

                snprintf(r->err->msg + n, sizeof(r->err->msg) - n, "; %s: %s", path, text);
                return CG_E_PARSE;
        }
        r->failed = true;
        return cg_fail(r->err, CG_E_PARSE, "%s does not hold a valid config — %s: %s", r->what, path, text);
}

int cg_reader_unsupported(struct cg_reader *r, const char *why)
{
        return cg_fail(r->err, CG_E_UNSUPPORTED, "%s asks for what is not supported — %s: %s", r->what,
                       r->path, why);
}

size_t cg_reader_enter(struct cg_reader *r, const char *key)
{
        size_t mark = r->path_len, room = sizeof(r->path) - r->path_len;
        int n = snprintf(r->path + r->path_len, room, "%s%s", mark ? "." : "", key);

        if (n > 0)
                r->path_len += (size_t)n < room ? (size_t)n : room - 1;
        return mark;
}

size_t cg_reader_enter_index(struct cg_reader *r, size_t i)
{
        char text[24];

        snprintf(text, sizeof(text), "%zu", i);
        return cg_reader_enter(r, text);
}

void cg_reader_leave(struct cg_reader *r, size_t mark)
{
        r->path_len = mark;
        r->path[mark] = '\0';
}

static const char *type_name(const json_t *v)
{
        switch (v ? json_typeof(v) : JSON_NULL) {
        case JSON_OBJECT:
                return "object";
        case JSON_ARRAY:
                return "array";
        case JSON_STRING:
                return "string";
        case JSON_INTEGER:
        case JSON_REAL:
                return "number";
        case JSON_TRUE:
        case JSON_FALSE:
                return "boolean";
        default:
                return "null";
        }
}

static int reader_type(struct cg_reader *r, const json_t *v, json_type want, const char *name)
{
        json_type is = json_typeof(v);

        if (is == want || (want == JSON_TRUE && is == JSON_FALSE))
                return 0;
        return cg_reader_fail(r, "Expected %s, received %s", name, type_name(v));
}

static char ignore_case(char c)
{
        return (char)(c | 0x20);
}

static int unknown_key(struct cg_reader *r, const char *key, const struct cg_field *fields, size_t n,
                       enum cg_unknown unknown)
{
        struct cg_settings *s = r->settings;
        size_t mark;

        for (size_t i = 0; i < n; i++) {
                if (cg_text_distance(key, fields[i].key, ignore_case) <= 2)
                        return cg_reader_fail(r,
                                              "Unrecognized key(s) in object: '%.100s' (did you mean '%s'?)",
                                              key, fields[i].key);
        }
        if (unknown == CG_UNKNOWN_IS_ERROR || !(r->flags & CG_SETTINGS_LENIENT))
                return cg_reader_fail(r, "Unrecognized key(s) in object: '%.100s'", key);
        if (!s->unknown) {
                mark = cg_reader_enter(r, key);
                snprintf(s->text, sizeof(s->text), "%s", r->path);
                s->unknown = s->text;
                cg_reader_leave(r, mark);
        }
        return 0;
}

static bool is_field(const char *key, const struct cg_field *fields, size_t n)
{
        for (size_t i = 0; i < n; i++)
                if (strcmp(key, fields[i].key) == 0)
                        return true;
        return false;
}

/* True if a key of @o is @wanted with a typing error, which unknown_key() reports. */
static bool is_misspelt(const json_t *o, const char *wanted, const struct cg_field *fields, size_t n)
{
        const char *key;
        json_t *v;

        json_object_foreach(cg_json_unconst(o), key, v)
                if (cg_text_distance(key, wanted, ignore_case) <= 2 && !is_field(key, fields, n))
                        return true;
        return false;
}

int cg_reader_object(struct cg_reader *r, const json_t *o, const struct cg_field *fields, size_t n,
                     enum cg_unknown unknown, void *to)
{
        const char *key;
        json_t *v;
        int one, status = reader_type(r, o, JSON_OBJECT, "object");

        if (status < 0)
                return status;
        for (size_t i = 0; i < n && (status == 0 || status == CG_E_PARSE); i++) {
                size_t mark = cg_reader_enter(r, fields[i].key);

                one = 0;
                v = json_object_get(o, fields[i].key);
                if (v)
                        one = fields[i].read(r, v, &fields[i], (char *)to + fields[i].offset);
                else if (fields[i].required && !is_misspelt(o, fields[i].key, fields, n))
                        one = cg_reader_fail(r, "Required");
                status = one < 0 ? one : status;
                cg_reader_leave(r, mark);
        }
        json_object_foreach(cg_json_unconst(o), key, v) {
                if (status < 0 && status != CG_E_PARSE)
                        break;
                one = is_field(key, fields, n) ? 0 : unknown_key(r, key, fields, n, unknown);
                status = one < 0 ? one : status;
        }
        return status;
}

int cg_reader_table(struct cg_reader *r, const json_t *v, const struct cg_field *f, void *to)
{
        return cg_reader_object(r, v, f->fields, f->n_fields, f->unknown, to);
}

int cg_reader_list(struct cg_reader *r, const json_t *v, const struct cg_field *f, cg_field_fn each,
                   size_t size, void **ret, size_t *n)
{
        size_t len, mark;
        char *list;
        int status = reader_type(r, v, JSON_ARRAY, "array");

        if (status < 0)
                return status;
        len = json_array_size(v);
        if (len > CG_SETTINGS_LIST_MAX)
                return cg_reader_fail(r, "more than %d entries", CG_SETTINGS_LIST_MAX);
        list = len ? calloc(len, size) : NULL;
        if (len && !list)
                return cg_fail(r->err, CG_E_NOMEM, "settings");
        *ret = list; /* freed with the settings, half filled or not */
        *n = len;
        for (size_t i = 0; i < len && status == 0; i++) {
                mark = cg_reader_enter_index(r, i);
                status = each(r, json_array_get(v, i), f, list + i * size);
                cg_reader_leave(r, mark);
        }
        return status;
}

int cg_reader_members(struct cg_reader *r, const json_t *v, const struct cg_field *f, size_t size, void **ret,
                      size_t *n)
{
        const char *key;
        json_t *value;
        char *at;
        int status = reader_type(r, v, JSON_OBJECT, "object");

        if (status < 0)
                return status;
        if (json_object_size(v) > CG_SETTINGS_LIST_MAX)
                return cg_reader_fail(r, "more than %d entries", CG_SETTINGS_LIST_MAX);
        at = calloc(json_object_size(v) + 1, size);
        if (!at)
                return cg_fail(r->err, CG_E_NOMEM, "settings");
        *ret = at; /* as in cg_reader_list() */
        json_object_foreach(cg_json_unconst(v), key, value) {
                size_t mark = cg_reader_enter(r, key);

                memcpy(at, &key, sizeof(key));
                (*n)++;
                status = f->read(r, value, f, at + f->offset);
                cg_reader_leave(r, mark);
                if (status < 0)
                        return status;
                at += size;
        }
        return 0;
}

/* A text of any content, the empty one included. */
static int read_text(struct cg_reader *r, const json_t *v, const struct cg_field *f, void *to)
{
        const char *wrong;
        int status = reader_type(r, v, JSON_STRING, "string");

        if (status < 0)
                return status;
        if (json_string_length(v) != strlen(json_string_value(v)))
                return cg_reader_fail(r, "contains a NUL character");
        if (json_string_length(v) > CG_SETTINGS_TEXT_MAX)
                return cg_reader_fail(r, "longer than %d bytes", CG_SETTINGS_TEXT_MAX);
        wrong = f->check ? f->check(json_string_value(v)) : NULL;
        if (wrong)
                return cg_reader_fail(r, "%s", wrong);
        *(const char **)to = json_string_value(v);
        return 0;
}

int cg_reader_str(struct cg_reader *r, const json_t *v, const struct cg_field *f, void *to)
{
        if (json_is_string(v) && !json_string_length(v))
                return cg_reader_fail(r, "String must contain at least 1 character(s)");
        return read_text(r, v, f, to);
}

int cg_reader_strs(struct cg_reader *r, const json_t *v, const struct cg_field *f, void *to)
{
        struct cg_strs *list = to;
        void *items = NULL;
        int status;

        status = cg_reader_list(r, v, f, f->min ? cg_reader_str : read_text, sizeof(*list->v), &items,
                                &list->n);
        list->v = items;
        return status;
}

int cg_reader_bool(struct cg_reader *r, const json_t *v, const struct cg_field *f, void *to)
{
        int status = reader_type(r, v, JSON_TRUE, "boolean");

        if (status == 0)
                *(bool *)to = json_is_true(v);
        return status;
}

int cg_reader_int(struct cg_reader *r, const json_t *v, const struct cg_field *f, void *to)
{
        double d;

        if (!json_is_number(v))
                return cg_reader_fail(r, "Expected number, received %s", type_name(v));
        d = json_number_value(v);
        if (d < f->min)
                return cg_reader_fail(r, "Number must be greater than or equal to %d", f->min);
        if (d > f->max)
                return cg_reader_fail(r, "Number must be less than or equal to %d", f->max);
        if (d != (double)(int)d)
                return cg_reader_fail(r, "Expected integer, received float");
        *(int *)to = (int)d;
        return 0;
}

int cg_reader_limit(struct cg_reader *r, const json_t *v, const struct cg_field *f, void *to)
{
        const char *wrong = NULL;

        if (!json_is_number(v))
                return cg_reader_fail(r, "Expected number, received %s", type_name(v));
        for (enum cg_limit i = 0; i < CG_LIMITS; i++)
                if (strcmp(f->key, cg_limit_setting(i)) == 0)
                        wrong = cg_limit_set(to, i, json_number_value(v));
        if (wrong)
                return cg_reader_fail(r, "%s", wrong);
        return 0;
}

static int read_path_text(struct cg_reader *r, const json_t *v, const char **ret)
{
        static const struct cg_field plain = { 0 };

        if (json_is_string(v) && !json_string_length(v))
                return cg_reader_fail(r, "Path cannot be empty");
        return read_text(r, v, &plain, ret);
}

/* "PATH", or { "path": "PATH", "literal": true } */
static int read_path(struct cg_reader *r, const json_t *v, const struct cg_field *f, void *to)
{
        const json_t *path = json_object_get(v, "path");
        struct cg_path_entry *entry = to;

        if (json_is_string(v))
                return read_path_text(r, v, &entry->path);
        if (!json_is_string(path) || !json_is_true(json_object_get(v, "literal")) || json_object_size(v) != 2)
                return cg_reader_fail(r, "Expected a path, or { \"path\": \"<path>\", \"literal\": true }");
        entry->literal = true;
        return read_path_text(r, path, &entry->path);
}

int cg_reader_paths(struct cg_reader *r, const json_t *v, const struct cg_field *f, void *to)
{
        struct cg_path_list *list = to;
        void *items = NULL;
        int status = cg_reader_list(r, v, f, read_path, sizeof(*list->v), &items, &list->n);

        list->v = items;
        return status;
}

int cg_reader_ignored_bool(struct cg_reader *r, const json_t *v, const struct cg_field *f, void *to)
{
        return reader_type(r, v, JSON_TRUE, "boolean");
}

int cg_reader_ignored_str(struct cg_reader *r, const json_t *v, const struct cg_field *f, void *to)
{
        const char *text;

        return read_text(r, v, f, &text);
}

int cg_reader_ignored_strs(struct cg_reader *r, const json_t *v, const struct cg_field *f, void *to)
{
        struct cg_strs list = { 0 };
        int status = cg_reader_strs(r, v, f, &list);

        free(list.v);
        return status;
}

int cg_reader_ignored_object(struct cg_reader *r, const json_t *v, const struct cg_field *f, void *to)
{
        return reader_type(r, v, JSON_OBJECT, "object");
}

int cg_reader_refused(struct cg_reader *r, const json_t *v, const struct cg_field *f, void *to)
{
        return cg_reader_unsupported(r, f->check(NULL));
}
