/*
 * The canonical form of a tool's definition, whose text is an MCP server's: untrusted. Linked into
 * the tool server and the command line.
 */
#include "base/json.h"
#include "mcp/pins/pins.h"

struct pin_member {
        char *key; /* with its quotes; NULL: an element of an array */
        struct cg_slice value;
};

struct pin_members {
        struct pin_member *v;
        size_t n, cap;
};

static void pin_members_fini(struct pin_members *m)
{
        for (size_t i = 0; i < m->n; i++)
                free(m->v[i].key);
        free(m->v);
}

static int order(const void *a, const void *b)
{
        const struct pin_member *x = a, *y = b;

        return strcmp(x->key, y->key);
}

/* Appends the one spelling of a string, ASCII only. */
static int add_string(struct cg_slice literal, struct cg_buf *b, struct cg_err *err)
{
        cg_auto_free char *text = NULL;
        int r = cg_json_strdup(literal, &text, err);

        if (r < 0)
                return r;
        cg_json_quote(b, text, strlen(text));
        return 0;
}

static bool is_part(struct cg_slice key)
{
        static const char *const parts[] = { "name",        "title",        "description",
                                             "inputSchema", "outputSchema", "annotations" };

        for (size_t i = 0; i < CG_ARRAY_LEN(parts); i++)
                if (cg_slice_is(key, parts[i]))
                        return true;
        return false;
}

/* Reads one member or element at @depth. *left_out: it is no part of the tool. */
static int read_member(struct cg_slice key, unsigned depth, struct pin_member *m, bool *left_out,
                       struct cg_err *err)
{
        cg_auto_buf struct cg_buf plain = { .max = 4096 }, quoted = { .max = SIZE_MAX - 1 };
        int r;

        *left_out = depth == 0 && (cg_json_decode(key, &plain, NULL) < 0 || !is_part(cg_buf_slice(&plain)));
        if (*left_out)
                return 0;
        r = add_string((struct cg_slice){ key.p - 1, key.len + 2 }, &quoted, err);
        if (r < 0)
                return r;
        m->key = cg_buf_steal(&quoted, NULL);
        return cg_made(m->key, "tool", err);
}

/* Reads the members of an object, which are sorted, or the elements of an array. */
static int read_members(struct cg_slice v, unsigned depth, struct pin_members *ret, struct cg_err *err)
{
        char open = cg_json_kind(v);
        struct cg_slice key, value;
        struct cg_json_walk w;
        int r = cg_json_walk_init(&w, v, open, err);

        while (r == 0) {
                struct pin_member *m;
                bool left_out = false;

                r = cg_json_walk_next(&w, &key, &value, err);
                if (r != 0)
                        break;
                if (!CG_GROW(ret->v, ret->n, ret->cap))
                        return cg_fail(err, CG_E_NOMEM, "tool");
                m = &ret->v[ret->n];
                *m = (struct pin_member){ .value = cg_json_trim(value) };
                if (open == '{')
                        r = read_member(key, depth, m, &left_out, err);
                ret->n += !left_out;
        }
        if (r < 0)
                return r;
        if (open == '{' && ret->n)
                qsort(ret->v, ret->n, sizeof(*ret->v), order);
        return 0;
}

/* @depth: levels above; at 0, the tool itself, members that are no part of it are left out. */
static int add_value(struct cg_slice v, unsigned depth, struct cg_buf *b, struct cg_err *err)
{
        CG_CLEANUP(pin_members_fini) struct pin_members all = { 0 };
        char open = cg_json_kind(v);
        int r;

        if (open == '"')
                return add_string(v, b, err);
        if (open != '{' && open != '[') {
                cg_buf_add(b, v.p, v.len);
                return 0;
        }
        if (depth >= CG_JSON_DEPTH)
                return cg_fail(err, CG_E_LIMIT, "it has over %d levels", CG_JSON_DEPTH);
        r = read_members(v, depth, &all, err);
        if (r < 0)
                return r;
        cg_buf_add(b, &open, 1);
        for (size_t i = 0; i < all.n; i++) {
                if (i && open == '{' && strcmp(all.v[i - 1].key, all.v[i].key) == 0)
                        return cg_fail(err, CG_E_PARSE, "it has the member %.100s twice", all.v[i].key);
                if (i)
                        cg_buf_adds(b, ",");
                if (open == '{')
                        cg_buf_addf(b, "%s:", all.v[i].key);
                r = add_value(all.v[i].value, depth + 1, b, err);
                if (r < 0)
                        return r;
        }
        cg_buf_adds(b, open == '{' ? "}" : "]");
        return 0;
}

int cg_pin_canonical(struct cg_slice tool, struct cg_buf *b, struct cg_err *err)
{
        int r = add_value(tool, 0, b, err);

        return r < 0 ? r : cg_buf_end(b, err);
}
