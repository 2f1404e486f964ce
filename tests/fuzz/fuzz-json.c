/*
 * base/json.c and base/text.c on foreign bytes. The checker may accept less than jansson only in depth; what jansson accepts of
 * plain values it must accept too, and rendering must leave nothing that a terminal would obey.
 */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include "base/json.h"
#include "base/text.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_against_jansson(const char *text, size_t size)
{
        struct cg_err err;
        json_t *j;

        if (memchr(text, '\0', size)) /* jansson passes over a NUL behind a number */
                return;
        j = json_loadb(text, size, JSON_ALLOW_NUL, NULL);
        if (json_is_object(j) && cg_json_check_object(text, size, 3000, &err) < 0)
                abort();
        json_decref(j);
}

static void check_render(const char *text, size_t size)
{
        struct cg_err err;
        struct cg_buf b;

        cg_buf_init(&b, 1 << 24);
        if (cg_text_render(&b, text, size, 0, &err) == 0) {
                for (size_t i = 0; i < b.len; i++) {
                        unsigned char c = (unsigned char)b.data[i];

                        if ((c < 0x20 && c != '\n' && c != '\t') || c == 0x7f)
                                abort();
                }
                if (memmem(b.data ? b.data : "", b.len, "\xe2\x80\xae", 3) || memmem(b.data ? b.data : "", b.len, "\xc2\x9b", 2))
                        abort();
        }
        b.len = 0;
        if (cg_text_render(&b, text, size, 100, &err) == 0 && b.len > 100)
                abort();
        cg_buf_fini(&b);
}

static void check_quote(const char *text, size_t size)
{
        struct cg_err err;
        struct cg_buf b;

        cg_buf_init(&b, 1 << 24);
        if (cg_buf_adds(&b, "{\"a\":", &err) == 0 && cg_json_quote(&b, text, size, &err) == 0 && cg_buf_adds(&b, "}", &err) == 0 &&
            cg_json_check_object(b.data, b.len, 2, &err) < 0)
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
