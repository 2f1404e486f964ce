/*
 * Results that stay with the tool server, and what a kernel does with their handles. Beside memory
 * safety it checks that the strings in the file, put back, make the same JSON, that reads stay
 * inside of the file, and that nothing is left at the end.
 *
 * Input: up to 8 operations of 5 bytes each, behind their number; then the result, in which a byte
 * 1 stands for a long text.
 */
#include <jansson.h>
#include <sys/mman.h>
#include <unistd.h>
#include "base/util.h"
#include "mcp/ceilings.h"
#include "mcp/toolserver/kept.h"
#include "fuzz.h"

#define MAX_RESULT ((size_t)1 << 20)

/* Appends a character as JSON. */
static void add_char(struct cg_buf *b, uint32_t c)
{
        char utf8[5];
        size_t n = 0;

        if (c < 0x20 || c == '"' || c == '\\' || (c >= 0xd800 && c <= 0xdfff)) {
                must(cg_buf_try_addf(b, NULL, "\\u%04x", c) == 0);
                return;
        }
        if (c < 0x80) {
                utf8[n++] = (char)c;
        } else if (c < 0x800) {
                utf8[n++] = (char)(0xc0 | c >> 6);
        } else if (c < 0x10000) {
                utf8[n++] = (char)(0xe0 | c >> 12);
                utf8[n++] = (char)(0x80 | (c >> 6 & 0x3f));
        } else {
                must(c < 0x110000);
                utf8[n++] = (char)(0xf0 | c >> 18);
                utf8[n++] = (char)(0x80 | (c >> 12 & 0x3f));
                utf8[n++] = (char)(0x80 | (c >> 6 & 0x3f));
        }
        if (c >= 0x80)
                utf8[n++] = (char)(0x80 | (c & 0x3f));
        must(cg_buf_try_add(b, utf8, n, NULL) == 0);
}

/* What the kernel gets, with the strings in their places. */
static void put_back(struct cg_kept_list *list, uint64_t id, size_t size, const struct cg_buf *out,
                     struct cg_buf *whole)
{
        const char *skeleton = memchr(out->data, '\n', out->len);
        json_t *head = json_loadb(out->data, (size_t)(skeleton - out->data), 0, NULL), *part;
        size_t at = 0, end = 0, left = out->len - (size_t)(++skeleton - out->data), i;

        must(json_integer_value(json_object_get(head, "handle")) == (json_int_t)id);
        json_array_foreach(json_object_get(head, "parts"), i, part) {
                size_t place = (size_t)json_integer_value(json_array_get(part, 0));
                size_t offset = (size_t)json_integer_value(json_array_get(part, 1));
                size_t chars = (size_t)json_integer_value(json_array_get(part, 2));
                size_t width = (size_t)json_integer_value(json_array_get(part, 3));
                char *p = malloc(chars * width);

                must(place >= at && place <= left && offset == end && chars && p);
                must(cg_kept_read(list, id, offset, chars * width, p, NULL) == 0);
                must(cg_buf_try_add(whole, skeleton + at, place - at, NULL) == 0);
                for (size_t k = 0; k < chars; k++) {
                        uint32_t c = 0;

                        for (size_t b = 0; b < width; b++)
                                c |= (uint32_t)(unsigned char)p[k * width + b] << 8 * b;
                        add_char(whole, c);
                }
                free(p);
                at = place;
                end = offset + chars * width;
        }
        must(end == size);
        must(cg_buf_try_add(whole, skeleton + at, left - at, NULL) == 0);
        json_decref(head);
}

static void operate(struct cg_kept_list *list, const uint8_t *op)
{
        uint64_t id = op[0] % 4, offset = (uint64_t)op[1] << 8 | op[2];
        size_t length = ((size_t)op[3] << 8 | op[4]) + 1;
        char *buf = malloc(length);

        must(buf);
        if (op[0] & 0x80)
                cg_kept_free(list, id);
        else if (op[0] & 0x40)
                must(cg_kept_read(list, id, UINT64_MAX - offset, length, buf, NULL) < 0);
        else
                must(cg_kept_read(list, id, offset * 4, length, buf, NULL) <= 0);
        free(buf);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
        struct cg_kept_sum all = { 0 };
        struct cg_kept_list list = { .all = &all };
        struct cg_buf json, out, whole;
        size_t n = size ? data[0] % 8 : 0, file = 0;
        int fd, r;

        if (size < 1 + 5 * n)
                return 0;
        cg_buf_init(&json, MAX_RESULT);
        cg_buf_init(&out, MAX_RESULT + CG_MAX_BODY);
        cg_buf_init(&whole, 16 * MAX_RESULT);
        for (size_t i = 1 + 5 * n; i < size; i++) {
                if (data[i] != 1)
                        must(cg_buf_try_add(&json, &data[i], 1, NULL) == 0 || json.len == MAX_RESULT);
                for (size_t k = 0; data[i] == 1 && k < CG_MCP_KEPT_STRING; k += 64)
                        cg_buf_try_add(&json,
                                       "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef", 64,
                                       NULL);
        }
        fd = memfd_create("kept", MFD_CLOEXEC);
        must(fd >= 0);
        r = json.len ? cg_kept_write(fd, 1, cg_kept_room(&list), json.data, json.len, &file, &out, NULL) : 1;
        if (r == 0) {
                json_t *before = json_loadb(json.data, json.len, JSON_ALLOW_NUL, NULL), *after;

                must(cg_kept_add(&list, 1, fd, file, NULL) == 0 && cg_kept_has(&list, 1));
                put_back(&list, 1, file, &out, &whole);
                after = before ? json_loadb(whole.data, whole.len, JSON_ALLOW_NUL, NULL) : NULL;
                must(json_equal(before, after) || !before);
                json_decref(before);
                json_decref(after);
        } else {
                close(fd);
        }
        for (size_t i = 0; i < n; i++)
                operate(&list, data + 1 + 5 * i);
        cg_kept_free_all(&list);
        must(!all.n && !all.bytes);
        cg_buf_fini(&json);
        cg_buf_fini(&out);
        cg_buf_fini(&whole);
        return 0;
}
