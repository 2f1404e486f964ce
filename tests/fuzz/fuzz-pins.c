/*
 * Files of pinned tools, and definitions of tools. The first byte selects the reader. Beside memory
 * safety: what is accepted can be written and read again, the canonical form of a canonical form is
 * itself, and differences are safe to show.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include "base/json.h"
#include "mcp/pins.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool ok)
{
        if (!ok)
                abort();
}

static void file(const char *text, size_t len)
{
        cg_auto_json json_t *pins = NULL, *again = NULL;
        cg_auto_free char *copy = NULL;
        struct cg_err err;
        const char *name;
        json_t *pin;

        if (cg_pins_parse(text, len, "x", &pins, &err) < 0) {
                must(err.msg[0]);
                return;
        }
        must(json_is_string(json_object_get(pins, "server")));
        json_object_foreach(json_object_get(pins, "tools"), name, pin)
                must(json_object_get(pin, "sha256") || json_object_get(pin, "pending"));
        copy = cg_json_text(pins, &len);
        must(copy && cg_pins_parse(copy, len, "x", &again, NULL) == 0 && json_equal(pins, again));
}

static void canonical(const char *text, size_t len, struct cg_buf *b)
{
        cg_auto_buf struct cg_buf twice = { .max = (size_t)64 << 20 };
        struct cg_slice tool;
        struct cg_err err;

        if (cg_json_object_slice(text, len, &tool, NULL) < 0)
                return;
        must(cg_pin_canonical(tool, b, &err) == 0);
        must(cg_pin_canonical((struct cg_slice){ b->data, b->len }, &twice, &err) == 0);
        must(twice.len == b->len && memcmp(twice.data, b->data, b->len) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
        cg_auto_buf struct cg_buf a = { .max = (size_t)64 << 20 }, b = { .max = (size_t)64 << 20 },
                                  diff = { .max = (size_t)1 << 20 };
        char *exact, *second;
        size_t first;

        if (!size)
                return 0;
        /* A copy without a byte behind it: reading over the end is seen. */
        exact = malloc(size);
        must(exact);
        memcpy(exact, data + 1, size - 1);
        if (data[0] % 2 == 0) {
                file(exact, size - 1);
        } else { /* two tools with a line end between them */
                second = memchr(exact, '\n', size - 1);
                first = second ? (size_t)(second - exact) : size - 1;
                canonical(exact, first, &a);
                if (second)
                        canonical(second + 1, size - 2 - first, &b);
                if (a.data && b.data)
                        cg_pin_diff(a.data, b.data, &diff);
                for (size_t i = 0; i < diff.len; i++)
                        must(diff.data[i] == '\n' || (unsigned char)diff.data[i] >= ' ');
        }
        free(exact);
        return 0;
}
