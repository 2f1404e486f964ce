/* Lines of `cellgate run --json`: see json_line.h. */
#include "cli/run/json_line.h"

#include <inttypes.h>
#include "base/json.h"
#include "cli/common/pretty.h"
#include "cli/run/run.h"

void cg_json_line_begin(struct cg_json_line *l, const char *type, uint64_t cell)
{
        *l = (struct cg_json_line){ .r = 0 };
        cg_buf_init(&l->b, SIZE_MAX - 1);
        l->r = cg_buf_try_addf(&l->b, &l->err, "{\"type\":\"%s\"", type);
        if (l->r == 0 && cell)
                l->r = cg_buf_try_addf(&l->b, &l->err, ",\"cell\":%" PRIu64, cell);
}

static void name_member(struct cg_json_line *l, const char *name)
{
        if (l->r == 0)
                l->r = cg_buf_try_addf(&l->b, &l->err, ",\"%s\":", name);
}

void cg_json_line_string(struct cg_json_line *l, const char *name, const char *text, size_t len)
{
        name_member(l, name);
        if (l->r == 0)
                l->r = cg_json_try_quote(&l->b, text, len, &l->err);
}

void cg_json_line_int(struct cg_json_line *l, const char *name, int64_t n)
{
        name_member(l, name);
        if (l->r == 0)
                l->r = cg_buf_try_addf(&l->b, &l->err, "%" PRId64, n);
}

void cg_json_line_json(struct cg_json_line *l, const char *name, const char *json)
{
        if (!json)
                return;
        name_member(l, name);
        if (l->r == 0)
                l->r = cg_buf_try_adds(&l->b, json, &l->err);
}

void cg_json_line_bool(struct cg_json_line *l, const char *name, bool v)
{
        name_member(l, name);
        if (l->r == 0)
                l->r = cg_buf_try_adds(&l->b, v ? "true" : "false", &l->err);
}

void cg_json_line_object(struct cg_json_line *l, const char *name, const char *json, size_t len)
{
        struct cg_slice v;

        if (cg_json_object_slice(json, len, &v, NULL) < 0) {
                cg_json_line_string(l, "invalid", json, len);
                return;
        }
        name_member(l, name);
        if (l->r == 0)
                l->r = cg_pretty_ascii(v, &l->b, &l->err);
}

int cg_json_line_end(struct cg_run *run, struct cg_json_line *l, struct cg_err *err)
{
        int r = l->r;

        if (r == 0)
                r = cg_buf_try_adds(&l->b, "}\n", &l->err);
        if (r == 0)
                cg_screen_write(&run->screen, 1, l->b.data, l->b.len);
        else if (err)
                *err = l->err;
        cg_buf_fini(&l->b);
        return r;
}
