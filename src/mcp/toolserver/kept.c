/*
 * Large results that stay with the tool server. See kept.h.
 *
 * Strings are kept decoded, with one, two or four bytes a character: Latin-1, UTF-16 code units
 * without pairs, or UTF-32, little endian. So the offset of a character follows from its index, and
 * Python can read a slice without the text before it.
 */
#include "mcp/toolserver/kept.h"

#include "base/fd.h"
#include "base/json_text.h"
#include "base/text.h"
#include "mcp/ceilings.h"

struct cg_kept {
        struct cg_kept *next;
        uint64_t id;
        int fd;
        size_t size;
};

/* Buffered writer of a result's file. */
struct spool {
        int fd;
        size_t size, max;
        size_t n; /* bytes in buf */
        char buf[65536];
};

/* Counts the characters and finds the largest code point. */
static int measure(const char *s, size_t len, size_t *chars, uint32_t *largest, struct cg_err *err)
{
        *chars = 0;
        *largest = 0;
        for (size_t i = 0, n; i < len; i += n) {
                uint32_t c = 0x7f;

                n = cg_json_run(s + i, len - i);
                *chars += n;
                if (n)
                        continue;
                n = cg_json_char(s + i, s + len, &c); /* Python keeps lone surrogates, too */
                if (!n)
                        return cg_fail(err, CG_E_PROTO, "a string of the result is no JSON");
                ++*chars;
                if (c > *largest)
                        *largest = c;
        }
        return 0;
}

static int write_file(const struct spool *sp, const char *p, size_t len, struct cg_err *err)
{
        if (cg_write_all(sp->fd, p, len, err) < 0)
                return cg_err_prefix(err, "its file cannot be written");
        return 0;
}

static int flush(struct spool *sp, struct cg_err *err)
{
        size_t n = sp->n;

        sp->n = 0;
        return write_file(sp, sp->buf, n, err);
}

/* Appends the string's characters, @width bytes each. measure() has accepted it. */
static int spool_string(struct spool *sp, const char *s, size_t len, unsigned width, struct cg_err *err)
{
        for (size_t i = 0, n; i < len; i += n) {
                uint32_t c;

                n = width == 1 ? cg_json_run(s + i, len - i) : 0;
                if (n > sizeof(sp->buf) - sp->n && flush(sp, err) < 0)
                        return -1;
                if (n > sizeof(sp->buf)) {
                        if (write_file(sp, s + i, n, err) < 0)
                                return -1;
                        continue;
                }
                if (n) {
                        memcpy(sp->buf + sp->n, s + i, n);
                        sp->n += n;
                        continue;
                }
                n = cg_json_char(s + i, s + len, &c);
                if (sizeof(sp->buf) - sp->n < 4 && flush(sp, err) < 0)
                        return -1;
                for (unsigned b = 0; b < width; b++)
                        sp->buf[sp->n++] = (char)(c >> (8 * b));
        }
        return flush(sp, err);
}

/* The closing quote of the string that begins at @s, or NULL. */
static const char *string_end(const char *s, const char *end)
{
        for (const char *q = s; (q = memchr(q, '"', (size_t)(end - q))); q++) {
                const char *b = q;

                while (b > s && b[-1] == '\\')
                        b--;
                if ((q - b) % 2 == 0)
                        return q;
        }
        return NULL;
}

static unsigned width_of(uint32_t largest)
{
        if (largest < 0x100)
                return 1;
        return largest < 0x10000 ? 2 : 4;
}

/* Writes a string to the file and adds its entry to @parts. @at: its offset in the skeleton. */
static int keep_string(struct spool *sp, const char *s, size_t len, size_t at, struct cg_buf *parts,
                       struct cg_err *err)
{
        uint32_t largest;
        unsigned width;
        size_t chars;

        if (measure(s, len, &chars, &largest, err) < 0)
                return -1;
        width = width_of(largest);
        if (chars * width > sp->max - sp->size)
                return cg_fail(err, CG_E_LIMIT,
                               "the large results would be over the limit of %zu bytes for a kernel, or %zu "
                               "for all kernels; del those that are not needed any more",
                               CG_MCP_MAX_KEPT_BYTES, CG_MCP_MAX_ALL_KEPT_BYTES);
        cg_buf_addf(parts, "%s[%zu,%zu,%zu,%u]", cg_sep(parts->len, ","), at, sp->size, chars, width);
        if (cg_buf_end(parts, err) < 0 || spool_string(sp, s, len, width, err) < 0)
                return -1;
        sp->size += chars * width;
        return 0;
}

/* True if a colon follows the string that ends with @quote: it names a member. */
static bool is_member_name(const char *quote, const char *end)
{
        const char *p = quote + 1;

        while (p < end && cg_json_is_space(*p))
                p++;
        return p < end && *p == ':';
}

/* Writes the long strings of @json to the file, and the rest to @skeleton. */
static int take_strings(struct spool *sp, const char *json, size_t len, struct cg_buf *parts,
                        struct cg_buf *skeleton, struct cg_err *err)
{
        const char *end = json + len, *from = json, *s, *e;

        for (const char *p = json; (s = memchr(p, '"', (size_t)(end - p))); p = e + 1) {
                e = string_end(++s, end);
                if (!e)
                        return cg_fail(err, CG_E_PROTO, "the result is no JSON");
                if ((size_t)(e - s) < CG_MCP_KEPT_STRING || is_member_name(e, end))
                        continue;
                cg_buf_add(skeleton, from, (size_t)(s - from));
                if (keep_string(sp, s, (size_t)(e - s), skeleton->len, parts, err) < 0)
                        return -1;
                from = e;
        }
        cg_buf_add(skeleton, from, (size_t)(end - from));
        return cg_buf_end(skeleton, err);
}

size_t cg_kept_room(const struct cg_kept_list *list)
{
        size_t own = CG_MCP_MAX_KEPT_BYTES - list->bytes, all = CG_MCP_MAX_ALL_KEPT_BYTES - list->all->bytes;

        if (list->n >= CG_MCP_MAX_KEPT || list->all->n >= CG_MCP_MAX_ALL_KEPT)
                return 0;
        return CG_MIN(own, all);
}

int cg_kept_write(int fd, uint64_t id, size_t max, const char *json, size_t len, size_t *size,
                  struct cg_buf *out, struct cg_err *err)
{
        cg_auto_buf struct cg_buf parts = { .max = CG_MAX_BODY / 2 };
        cg_auto_buf struct cg_buf skeleton = { .max = CG_MCP_MAX_LINE };
        cg_auto_free struct spool *sp = malloc(sizeof(*sp));
        int r;

        if (!sp)
                return cg_fail(err, CG_E_NOMEM, "large result");
        sp->fd = fd;
        sp->max = max;
        sp->n = sp->size = 0;
        r = take_strings(sp, json, len, &parts, &skeleton, err);
        if (r < 0)
                return r;
        if (!sp->size)
                return 1;
        if (skeleton.len > CG_MAX_TOOL_RESULT - CG_MAX_BODY)
                return cg_fail(err, CG_E_LIMIT, "without its long strings it is over the limit of %u bytes",
                               CG_MAX_TOOL_RESULT - CG_MAX_BODY);
        cg_buf_addf(out, "{\"handle\":%llu,\"parts\":[", (unsigned long long)id);
        cg_buf_add(out, parts.data, parts.len);
        cg_buf_adds(out, "]}\n");
        cg_buf_add(out, skeleton.data, skeleton.len);
        *size = sp->size;
        return cg_buf_end(out, err);
}

int cg_kept_add(struct cg_kept_list *list, uint64_t id, int fd, size_t size, struct cg_err *err)
{
        bool room = size <= cg_kept_room(list);
        struct cg_kept *k = room ? malloc(sizeof(*k)) : NULL;

        if (!k) {
                close(fd);
                return room ? cg_fail(err, CG_E_NOMEM, "large result")
                            : cg_fail(err, CG_E_LIMIT, "other large results have taken its place");
        }
        *k = (struct cg_kept){ .next = list->first, .id = id, .fd = fd, .size = size };
        list->first = k;
        list->n++;
        list->bytes += size;
        list->all->n++;
        list->all->bytes += size;
        return 0;
}

static struct cg_kept **find(struct cg_kept_list *list, uint64_t id)
{
        struct cg_kept **p = &list->first;

        while (*p && (*p)->id != id)
                p = &(*p)->next;
        return p;
}

bool cg_kept_has(struct cg_kept_list *list, uint64_t id)
{
        return *find(list, id);
}

int cg_kept_read(struct cg_kept_list *list, uint64_t id, uint64_t offset, size_t length, char *buf,
                 struct cg_err *err)
{
        const struct cg_kept *k = *find(list, id);

        if (!k)
                return cg_fail(err, CG_E_NOTFOUND,
                               "the result is gone: the tool server has been started again, or it was freed");
        if (offset > k->size || length > k->size - offset)
                return cg_fail(err, CG_E_NOTFOUND, "the result has %zu bytes", k->size);
        while (length) {
                ssize_t n = pread(k->fd, buf, length, (off_t)offset);

                if (n < 0 && errno == EINTR)
                        continue;
                if (n < 0)
                        return cg_fail_errno(err, "reading a kept result");
                if (n == 0)
                        return cg_fail(err, CG_E_STATE,
                                       "the file of the kept result was cut off; call the tool again");
                buf += n;
                offset += (size_t)n;
                length -= (size_t)n;
        }
        return 0;
}

void cg_kept_free(struct cg_kept_list *list, uint64_t id)
{
        struct cg_kept **p = find(list, id), *k = *p;

        if (!k)
                return;
        *p = k->next;
        list->n--;
        list->bytes -= k->size;
        list->all->n--;
        list->all->bytes -= k->size;
        close(k->fd);
        free(k);
}

void cg_kept_free_all(struct cg_kept_list *list)
{
        while (list->first)
                cg_kept_free(list, list->first->id);
}
