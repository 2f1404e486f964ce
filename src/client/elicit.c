/*
 * libcellgate: checks the host's answers to requests of MCP servers. Forms have flat schemas:
 * strings, numbers, booleans and choices (revisions 2025-06-18 to 2026-07-28).
 */
#include "client/internal.h"

#include <math.h>
#include "base/text.h"

static size_t count_chars(const json_t *string)
{
        const unsigned char *p = (const unsigned char *)json_string_value(string);
        size_t len = json_string_length(string), n = 0;
        uint32_t c;

        for (size_t i = 0, k; i < len; i += k ?: 1, n++)
                k = cg_utf8_next(p + i, len - i, &c);
        return n;
}

/* Fields of a form, choices of a field, and items of an answer: all of them are compared. */
#define MAX_FIELDS  200u
#define MAX_CHOICES 1000u
#define MAX_ITEMS   1000u

static const json_t *choices_of(const json_t *schema, bool *titled)
{
        const json_t *list = json_object_get(schema, "enum");

        *titled = !json_is_array(list);
        if (*titled)
                list = json_object_get(schema, "oneOf");
        return json_is_array(list) ? list : json_object_get(schema, "anyOf");
}

/* True if @value is among the choices of the field or of its items, or there are no choices. */
static bool is_choice(const json_t *schema, const json_t *value)
{
        const json_t *one, *list;
        bool titled;
        size_t i;

        list = choices_of(schema, &titled);
        if (!json_is_array(list))
                return true;
        json_array_foreach(list, i, one) {
                if (json_equal(titled ? json_object_get(one, "const") : one, value))
                        return true;
        }
        return false;
}

/* @what: "characters", "items" or "". */
static int check_range(const char *name, double n, const json_t *schema, const char *min, const char *max,
                       const char *what, struct cg_err *err)
{
        const json_t *low = json_object_get(schema, min), *high = json_object_get(schema, max);

        if (json_is_number(low) && n < json_number_value(low))
                return cg_fail(err, CG_E_INVAL, "\"%.100s\" has %g%s, and at least %g are asked for", name, n,
                               what, json_number_value(low));
        if (json_is_number(high) && n > json_number_value(high))
                return cg_fail(err, CG_E_INVAL, "\"%.100s\" has %g%s, and at most %g are possible", name, n,
                               what, json_number_value(high));
        return 0;
}

static int check_items(const char *name, const json_t *schema, const json_t *value, struct cg_err *err)
{
        const json_t *items = json_object_get(schema, "items"), *one;
        size_t i;

        if (!json_is_array(value))
                return cg_fail(err, CG_E_INVAL, "\"%.100s\" must be a list of texts", name);
        if (json_array_size(value) > MAX_ITEMS)
                return cg_fail(err, CG_E_INVAL, "\"%.100s\" has over %u items", name, MAX_ITEMS);
        json_array_foreach(value, i, one) {
                if (!json_is_string(one) || !is_choice(items, one))
                        return cg_fail(err, CG_E_INVAL, "\"%.100s\": item %zu is none of the choices", name,
                                       i + 1);
        }
        return check_range(name, (double)json_array_size(value), schema, "minItems", "maxItems", " items",
                           err);
}

static int check_field(const char *name, const json_t *schema, const json_t *value, struct cg_err *err)
{
        const char *type = cg_json_text_of(schema, "type");

        if (strcmp(type, "array") == 0)
                return check_items(name, schema, value, err);
        if (strcmp(type, "boolean") == 0 && !json_is_boolean(value))
                return cg_fail(err, CG_E_INVAL, "\"%.100s\" must be true or false", name);
        if (strcmp(type, "string") == 0 && !json_is_string(value))
                return cg_fail(err, CG_E_INVAL, "\"%.100s\" must be a text", name);
        if (strcmp(type, "number") == 0 && !json_is_number(value))
                return cg_fail(err, CG_E_INVAL, "\"%.100s\" must be a number", name);
        if (strcmp(type, "integer") == 0 &&
            !(json_is_number(value) && floor(json_number_value(value)) == json_number_value(value)))
                return cg_fail(err, CG_E_INVAL, "\"%.100s\" must be a whole number", name);
        if (!is_choice(schema, value))
                return cg_fail(err, CG_E_INVAL, "\"%.100s\" is none of the choices", name);
        if (json_is_string(value))
                return check_range(name, (double)count_chars(value), schema, "minLength", "maxLength",
                                   " characters", err);
        if (json_is_number(value))
                return check_range(name, json_number_value(value), schema, "minimum", "maximum", "", err);
        if (json_is_object(value) || json_is_array(value) || json_is_null(value))
                return cg_fail(err, CG_E_INVAL, "\"%.100s\" must be a single value", name);
        return 0;
}

static int check_form(const json_t *params, json_t *content, struct cg_err *err)
{
        const json_t *schema = json_object_get(params, "requestedSchema");
        json_t *properties = json_object_get(schema, "properties"), *required, *field, *value;
        const char *name;
        bool titled;
        size_t i;
        int r;

        if (!json_is_object(properties))
                return cg_fail(err, CG_E_INVAL, "the form of the MCP server has no fields: decline it");
        if (json_object_size(properties) > MAX_FIELDS)
                return cg_fail(err, CG_E_INVAL, "the form of the MCP server has over %u fields: decline it",
                               MAX_FIELDS);
        json_object_foreach(properties, name, field) {
                const json_t *items = json_object_get(field, "items");

                if (json_array_size(choices_of(field, &titled)) > MAX_CHOICES ||
                    json_array_size(choices_of(items, &titled)) > MAX_CHOICES)
                        return cg_fail(err, CG_E_INVAL,
                                       "the field \"%.100s\" of the form has over %u choices: decline it",
                                       name, MAX_CHOICES);
        }
        json_object_foreach(content, name, value) {
                field = json_object_get(properties, name);
                if (!field)
                        return cg_fail(err, CG_E_INVAL, "the form has no field \"%.100s\"", name);
                r = check_field(name, field, value, err);
                if (r < 0)
                        return r;
        }
        json_object_foreach(properties, name, field) {
                value = json_object_get(field, "default");
                if (!value || json_object_get(content, name) || check_field(name, field, value, NULL) < 0)
                        continue;
                if (json_object_set(content, name, value) < 0)
                        return cg_fail(err, CG_E_NOMEM, "answer");
        }
        required = json_object_get(schema, "required");
        json_array_foreach(required, i, value) {
                name = json_string_value(value);
                if (name && !json_object_get(content, name))
                        return cg_fail(err, CG_E_INVAL, "the field \"%.100s\" is required", name);
        }
        return 0;
}

static int check_elicitation(const json_t *params, json_t *answer, struct cg_err *err)
{
        bool form = strcmp(cg_json_text_of(params, "mode"), "url") != 0;
        const char *action = cg_json_text_of(answer, "action");
        json_t *content = json_object_get(answer, "content");
        bool accept = strcmp(action, "accept") == 0;

        if (!accept && strcmp(action, "decline") != 0 && strcmp(action, "cancel") != 0)
                return cg_fail(err, CG_E_INVAL,
                               "the answer's \"action\" must be \"accept\", \"decline\" or \"cancel\"");
        if (content && (!accept || !form))
                return cg_fail(err, CG_E_INVAL, "only the answer to a form that is accepted has \"content\"");
        if (!accept || !form)
                return 0;
        if (!content && json_object_set_new(answer, "content", json_object()) == 0)
                content = json_object_get(answer, "content");
        if (!json_is_object(content))
                return cg_fail(err, CG_E_INVAL, "the answer's \"content\" must be an object");
        return check_form(params, content, err);
}

int cg_server_answer_check(const char *text, json_t *answer, struct cg_err *err)
{
        cg_auto_json json_t *request = json_loads(text, JSON_ALLOW_NUL, NULL);
        const json_t *params = json_object_get(request, "params"), *content;

        if (!request)
                return cg_fail(err, CG_E_INVAL, "the request cannot be read: decline it");
        if (strcmp(cg_json_text_of(request, "method"), "elicitation/create") == 0)
                return check_elicitation(params, answer, err);
        content = json_object_get(answer, "content");
        if (!json_is_string(json_object_get(answer, "role")) ||
            !json_is_string(json_object_get(answer, "model")) ||
            (!json_is_object(content) && !json_is_array(content)))
                return cg_fail(err, CG_E_INVAL, "the answer must have \"role\", \"model\" and \"content\"");
        return 0;
}
