/*
 * `cellgate mcp serve`: the tool bridge_data, which copies variables from the call, or from another
 * session, to a session. The job reads them in the first session, then sets them in the second, so
 * that each worker waits only for its own kernel. The JSON from a kernel is forwarded without being
 * parsed: the second kernel validates it.
 */
#include "cli/mcp_serve/mcp_serve.h"

#include "base/json.h"

#define MAX_BYTES  ((size_t)16 << 20)
#define TIMEOUT_MS 60000

struct cg_serve_bridge {
        char to[CG_SERVE_ID + 1];
        json_t *names; /* {name in the call or first session: name in the second} */
        bool lossy;
        char *data; /* JSON object whose members have the first names; NULL: not read yet */
        size_t len;
        uint64_t request;
        bool replied;
        struct cg_err err; /* the kernel's; code 0: none */
};

struct cg_serve_bridge *cg_serve_bridge_free(struct cg_serve_bridge *b)
{
        if (!b)
                return NULL;
        json_decref(b->names);
        free(b->data);
        free(b);
        return NULL;
}

/* ------------------------------------------------------------------ the call */

/* Adds @name, a JSON string. @as: name in the second session; NULL: the same. */
static int add_name(struct cg_serve_bridge *b, struct cg_slice name, const char *as, struct cg_err *err)
{
        cg_auto_free char *text = NULL;

        if (cg_json_strdup(name, &text, err) < 0)
                return cg_err_prefix(err, "the parameter \"names\"");
        if (json_object_set_new(b->names, text, json_string(as ?: text)) < 0)
                return cg_fail(err, CG_E_INVAL, "the parameter \"names\" is not UTF-8");
        return 0;
}

/* Adds the strings of a list, or the names of an object's members. */
static int read_names(struct cg_serve_bridge *b, struct cg_slice list, const char *as, struct cg_err *err)
{
        struct cg_slice name, value;
        struct cg_json_walk walk;
        bool is_object = cg_json_kind(list) == '{';
        int r;

        if (cg_json_walk_init(&walk, list, is_object ? '{' : '[', err) < 0)
                return cg_err_prefix(err, "the parameter \"%s\"", is_object ? "data" : "names");
        while ((r = cg_json_walk_next(&walk, &name, &value, err)) == 0) {
                if (is_object)
                        value = (struct cg_slice){ name.p - 1, name.len + 2 }; /* with its quotes */
                if (add_name(b, value, as, err) < 0)
                        return -1;
        }
        if (r < 0)
                return r;
        if (!json_object_size(b->names))
                return cg_fail(err, CG_E_INVAL, "the names of the variables are missing");
        if (as && json_object_size(b->names) > 1)
                return cg_fail(err, CG_E_INVAL, "the parameter \"as\" is the name of one variable");
        return 0;
}

static int read_data(struct cg_serve_bridge *b, struct cg_slice data, const char *as, struct cg_err *err)
{
        cg_auto_buf struct cg_buf text = { .max = MAX_BYTES };

        if (as) {
                cg_buf_adds(&text, "{");
                cg_json_quote(&text, as, strlen(as));
                cg_buf_adds(&text, ":");
        } else if (cg_json_kind(data) != '{') {
                return cg_fail(err, CG_E_INVAL,
                               "the parameter \"data\" is {NAME: VALUE}, or any value with \"as\"");
        }
        cg_buf_add(&text, data.p, data.len);
        if (as)
                cg_buf_adds(&text, "}");
        if (cg_buf_end(&text, err) < 0)
                return cg_err_prefix(err, "data");
        b->data = cg_buf_steal(&text, &b->len);
        return read_names(b, (struct cg_slice){ b->data, b->len }, NULL, err);
}

int cg_serve_bridge_new(const char *args, const char *to, struct cg_serve_bridge **ret, struct cg_err *err)
{
        struct cg_slice text = { args, strlen(args) }, data, names, lossy;
        struct cg_serve_bridge *b;
        cg_auto_free char *as = NULL;
        int r;

        if (cg_serve_arg_optional(args, "as", &as, err) < 0 || cg_json_member(text, "data", &data, err) < 0 ||
            cg_json_member(text, "names", &names, err) < 0 || cg_json_member(text, "lossy", &lossy, err) < 0)
                return -1;
        if (!data.p == !names.p)
                return cg_fail(err, CG_E_INVAL, "one of the parameters \"data\" and \"names\" is needed");
        b = calloc(1, sizeof(*b));
        if (!b || !(b->names = json_object())) {
                free(b);
                return cg_fail(err, CG_E_NOMEM, "bridge_data");
        }
        b->lossy = cg_slice_is(lossy, "true");
        snprintf(b->to, sizeof(b->to), "%s", to);
        r = data.p ? read_data(b, data, as, err) : read_names(b, names, as, err);
        if (r < 0) {
                cg_serve_bridge_free(b);
                return r;
        }
        *ret = b;
        return 0;
}

bool cg_serve_bridge_has_data(const struct cg_serve_bridge *b)
{
        return b->data != NULL;
}

/* ------------------------------------------------------------------ the kernels */

/* Sets b->err unless the status of the reply is "ok". */
static void read_status(struct cg_serve_bridge *b, const struct cg_event *e)
{
        cg_auto_buf struct cg_buf why = { .max = 4096 };
        struct cg_slice content, v;
        const char *json;
        size_t len;

        json = cg_event_json(e, &len);
        if (cg_json_object_slice(json, len, &content, NULL) < 0)
                content = CG_SLICE_NONE;
        if (cg_json_find(content, "status", &v) && cg_slice_is(v, "\"ok\""))
                return;
        if (cg_json_find(content, "ename", &v) && cg_json_string(v, &why, NULL) == 0)
                cg_buf_adds(&why, ": ");
        if (cg_json_find(content, "evalue", &v))
                cg_json_string(v, &why, NULL);
        cg_fail(&b->err, CG_E_INVAL, "%s",
                cg_buf_end(&why, NULL) == 0 && why.len ? why.data : "the kernel failed");
}

void cg_serve_bridge_replied(struct cg_serve_bridge *b, const struct cg_event *e)
{
        const void *data;
        size_t len;

        if (!b || cg_event_cell(e) != b->request || b->replied)
                return;
        b->replied = true;
        read_status(b, e);
        if (b->err.code < 0 || b->data)
                return;
        data = cg_event_buffer(e, 0, &len);
        if (!data || len > MAX_BYTES) {
                cg_fail(&b->err, CG_E_PROTO, "the kernel's reply is no text of at most 16 MiB");
                return;
        }
        b->data = malloc(len + 1);
        if (!b->data) {
                cg_fail(&b->err, CG_E_NOMEM, "bridge_data");
                return;
        }
        memcpy(b->data, data, len);
        b->len = len;
}

int cg_serve_bridge_send(struct cg_serve_session *s, struct cg_serve_bridge *b, struct cg_err *err)
{
        struct cg_buffer buffer = { b->data, b->len };
        struct cg_request_options o = { .size = sizeof(o), .timeout_ms = TIMEOUT_MS };
        cg_auto_json json_t *content = NULL, *names = json_array();
        cg_auto_free char *text = NULL;
        const char *name;
        json_t *unused;
        size_t len;

        if (b->data) {
                o.buffers = &buffer;
                o.n_buffers = 1;
                content = json_pack("{s:O, s:b}", "json", b->names, "lossy", b->lossy);
        } else {
                json_object_foreach(b->names, name, unused)
                        json_array_append_new(names, json_string(name));
                content = json_pack("{s:O, s:b, s:b}", "names", names, "json", 1, "lossy", b->lossy);
        }
        text = cg_json_text(content, &len);
        if (!text)
                return cg_fail(err, CG_E_NOMEM, "bridge_data");
        b->replied = false;
        return cg_session_request(s->session, b->data ? "set_variables" : "get_variables", text, len, &o,
                                  &b->request, err);
}

bool cg_serve_bridge_waits(const struct cg_serve_bridge *b)
{
        return !b->replied;
}

const char *cg_serve_bridge_to(const struct cg_serve_bridge *b)
{
        return b->to;
}

int cg_serve_bridge_result(struct cg_serve_bridge *b, struct cg_answer *a, struct cg_err *err)
{
        size_t n = json_object_size(b->names);

        if (b->err.code < 0) {
                *err = b->err;
                return err->code;
        }
        if (a)
                cg_answer_note(a, "%zu variable%s set, %zu bytes of JSON.", n, n == 1 ? " was" : "s were",
                               b->len);
        return 0;
}
