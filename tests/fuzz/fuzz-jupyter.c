/*
 * Messages to a Jupyter socket: the input is cut into frames (a byte of length before each),
 * read with no key, so that nothing is held back by a signature. What was believed must lie in the
 * frames and be objects.
 */
#include "base/json.h"
#include "jupyter/message.h"
#include "fuzz.h"

/*
 * Frames as memory of their own: reading over an end is seen. Lengths are a byte, or two after 255.
 */
static size_t cut(const uint8_t *data, size_t size, struct cg_slice *frames, size_t max)
{
        size_t n = 0, i = 0;

        while (i < size && n < max) {
                size_t len = data[i++];
                char *p;

                if (len == 255 && i < size)
                        len += (size_t)data[i++] * 16;
                len = len < size - i ? len : size - i;
                p = malloc(len ? len : 1);
                must(p != NULL);
                memcpy(p, data + i, len);
                frames[n++] = (struct cg_slice){ p, len };
                i += len;
        }
        return n;
}

static void look(struct cg_jparsed *m)
{
        static const char *const keys[] = { "code", "value", "restart", "content", "" };
        const struct cg_slice parts[] = { m->header, m->parent, m->metadata, m->content };
        struct cg_slice v;
        size_t n;

        must(m->type[0] && m->n_ids <= CG_JMSG_MAX_IDS && m->n_buffers <= CG_JMSG_MAX_BUFFERS);
        for (size_t i = 0; i < 4; i++) {
                must(cg_json_check_object(parts[i].p, parts[i].len, CG_JSON_DEPTH, NULL) == 0);
                (void)cg_json_is_empty(parts[i]);
                for (size_t k = 0; k < 5; k++)
                        if (cg_json_find(parts[i], keys[k], &v))
                                must(v.p >= parts[i].p && v.p + v.len <= parts[i].p + parts[i].len &&
                                     cg_json_skip(v.p, v.len, CG_JSON_DEPTH, &n, NULL) == 0 && n == v.len);
        }
}

static void quoted(const uint8_t *data, size_t size)
{
        struct cg_buf b = { .max = SIZE_MAX / 2 };
        size_t n;

        cg_json_quote_utf8(&b, (const char *)data, size);
        must(cg_buf_end(&b, NULL) == 0);
        /* One string, unless the bytes were no UTF-8. */
        if (cg_json_skip(b.data, b.len, 1, &n, NULL) == 0)
                must(n == b.len);
        cg_buf_fini(&b);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
        struct cg_slice frames[CG_JMSG_MAX_FRAMES + 4];
        struct cg_jsign none = { .on = false };
        struct cg_jparsed m;
        struct cg_err err = { 0 };
        size_t n = cut(data, size, frames, CG_JMSG_MAX_FRAMES + 4);
        int r = cg_jmsg_parse(&none, frames, n, &m, &err);

        must(r == 0 || err.msg[0]);
        if (r == 0) {
                look(&m);
                cg_jparsed_fini(&m);
        }
        for (size_t i = 0; i < n; i++) {
                struct cg_slice v;

                (void)cg_json_find(frames[i], "code", &v);
                free((char *)(uintptr_t)frames[i].p);
        }
        quoted(data, size);
        return 0;
}
