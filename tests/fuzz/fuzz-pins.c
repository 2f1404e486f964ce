/*
 * Files of pinned tools, and definitions of tools. The first byte selects the reader. Beside memory
 * safety: what is accepted can be written and read again, the canonical form of a canonical form is
 * itself, and differences are safe to show.
 */
#include "base/json.h"
#include "mcp/pins/pins.h"
#include "fuzz.h"

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
        if (cg_pin_canonical(tool, b, &err) < 0) {
                must(err.msg[0]);
                b->len = 0;
                return;
        }
        must(cg_pin_canonical((struct cg_slice){ b->data, b->len }, &twice, &err) == 0);
        must(twice.len == b->len && memcmp(twice.data, b->data, b->len) == 0);
}

/* The lines of a difference without those of one side, and without the signs of the other. */
static void side(const struct cg_buf *diff, char without, struct cg_buf *b)
{
        for (const char *line = diff->data; *line;) {
                size_t n = (size_t)(strchr(line, '\n') - line) + 1;
                bool one = n > 6 && strncmp(line, "    ", 4) == 0 && (line[4] == '-' || line[4] == '+');

                if (!one || line[4] != without)
                        must(cg_buf_try_add(b, line + (one ? 6 : 0), n - (one ? 6 : 0), NULL) == 0);
                line += n;
        }
}

static void differ(const struct cg_buf *a, const struct cg_buf *b, size_t max)
{
        cg_auto_buf struct cg_buf diff = { .max = (size_t)1 << 26 }, was = { .max = (size_t)1 << 26 },
                                  is = { .max = (size_t)1 << 26 };
        size_t left_out;

        must(cg_pin_diff((struct cg_slice){ a->data, a->len }, (struct cg_slice){ b->data, b->len }, max,
                         &diff, &left_out, NULL) == 0);
        for (size_t i = 0; i < diff.len; i++)
                must(diff.data[i] == '\n' || (unsigned char)diff.data[i] >= ' ');
        if (a->len == b->len && memcmp(a->data, b->data, a->len) == 0) {
                must(diff.len == 0 && left_out == 0);
                return;
        }
        must(diff.len > 0 && diff.data[diff.len - 1] == '\n');
        side(&diff, '+', &was);
        side(&diff, '-', &is);
        must(was.len != is.len || memcmp(was.data, is.data, was.len) != 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
        cg_auto_buf struct cg_buf a = { .max = (size_t)64 << 20 }, b = { .max = (size_t)64 << 20 };
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
                if (a.len && b.len) {
                        differ(&a, &b, (size_t)1 << 22);
                        differ(&b, &a, 100);
                }
        }
        free(exact);
        return 0;
}
