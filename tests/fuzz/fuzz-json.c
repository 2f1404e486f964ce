/*
 * base/json.c and base/text.c on foreign bytes. The checker may accept less than jansson only in
 * depth; what jansson accepts of plain values it must accept too, and rendering must leave nothing
 * that a terminal would obey or that deceives the eye.
 */
#include "base/json.h"
#include "base/text.h"
#include "fuzz.h"

static void check_against_jansson(const char *text, size_t size)
{
        struct cg_err err;
        json_t *j;

        for (size_t i = 0, digits = 0; i < size; i++) /* numbers have a limit */
                if ((digits = text[i] >= '0' && text[i] <= '9' ? digits + 1 : 0) > 300)
                        return;
        if (memchr(text, '\0', size)) /* jansson passes over a NUL behind a number */
                return;
        j = json_loadb(text, size, JSON_ALLOW_NUL, NULL);
        if (json_is_object(j) && cg_json_check_object(text, size, 3000, &err) < 0)
                abort();
        json_decref(j);
}

/*
 * Characters beside controls that must not remain: from the code charts, not from the table that
 * text.c uses.
 */
static bool is_left_out(uint32_t c, bool judged)
{
        if ((c < 0x20 && c != '\n' && c != '\t') || (c >= 0x7f && c < 0xa0) || (c >= 0x200b && c <= 0x200f) ||
            (c >= 0x2028 && c <= 0x202e) || (c >= 0x2060 && c <= 0x206f) || (c >= 0xe000 && c <= 0xf8ff) ||
            c == 0xfeff || (c >= 0xfe00 && c <= 0xfe0f) || c >= 0xe0000)
                return true;
        return judged && (c == 0xa0 || (c >= 0x2000 && c <= 0x200a) || (c >= 0x5d0 && c <= 0x5ff) ||
                          (c >= 0x620 && c <= 0x64a) || c == 0x3000 || (c >= 0xff01 && c <= 0xff5e) ||
                          (c >= 0x1ee00 && c <= 0x1eeef));
}

static void check_rendered(const struct cg_buf *b, bool judged)
{
        unsigned marks = 0;

        for (size_t i = 0; i < b->len;) {
                uint32_t c;
                size_t n = cg_utf8_next((const unsigned char *)b->data + i, b->len - i, &c);

                marks = c >= 0x300 && c <= 0x36f ? marks + 1 : 0;
                if (!n || is_left_out(c, judged) || marks > 6)
                        abort();
                i += n;
        }
}

static void check_render(const char *text, size_t size)
{
        struct cg_err err;
        struct cg_buf b;

        cg_buf_init(&b, 1 << 24);
        for (enum cg_text_for what = CG_TEXT_OUTPUT; what <= CG_TEXT_LINE; what++) {
                b.len = 0;
                if (cg_text_try_render_as(&b, text, size, 0, what, &err) == 0)
                        check_rendered(&b, what != CG_TEXT_OUTPUT);
        }
        /* the last one was a line */
        if (b.len && (memchr(b.data, '\n', b.len) || memchr(b.data, '\t', b.len)))
                abort();
        b.len = 0;
        if (cg_text_try_render(&b, text, size, 100, &err) == 0 && b.len > 100)
                abort();
        cg_buf_fini(&b);
}

static void check_quote(const char *text, size_t size)
{
        struct cg_err err;
        struct cg_buf b;

        cg_buf_init(&b, 1 << 24);
        if (cg_buf_try_adds(&b, "{\"a\":", &err) == 0 && cg_json_try_quote(&b, text, size, &err) == 0 &&
            cg_buf_try_adds(&b, "}", &err) == 0 && cg_json_check_object(b.data, b.len, 2, &err) < 0)
                abort();
        cg_buf_fini(&b);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
        const char *text = (const char *)data;
        struct cg_err err;
        json_t *o;

        check_against_jansson(text, size);
        check_render(text, size);
        check_quote(text, size);
        if (cg_json_object(text, size, "input", &o, &err) == 0)
                json_decref(o);
        return 0;
}
