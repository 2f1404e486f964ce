/* What file operations inside a sandbox write: see files_out.h. */
#include "sandbox/inside/files_out.h"

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/fd.h"
#include "base/json.h"
#include "base/text.h"
#include "base/util.h"

int cg_files_failed(const char *what, const char *path)
{
        int e = errno ?: EIO;

        dprintf(STDERR_FILENO, "%s %s: %s\n", what, path, strerror(e));
        return e & 0xff;
}

static bool is_utf8(const char *text)
{
        size_t len = strlen(text);
        uint32_t c;

        for (size_t i = 0, n; i < len; i += n) {
                n = cg_utf8_next((const unsigned char *)text + i, len - i, &c);
                if (!n)
                        return false;
        }
        return true;
}

int cg_files_add_name(struct cg_buf *b, const char *key, const char *text)
{
        bool plain = is_utf8(text);
        int r = cg_buf_try_addf(b, NULL, "\"%s%s\":", key, plain ? "" : "_hex");

        if (r == 0 && plain)
                return cg_json_try_quote(b, text, strlen(text), NULL);
        for (const char *p = text; r == 0 && *p; p++)
                r = cg_buf_try_addf(b, NULL, "%s%02x", p == text ? "\"" : "", (unsigned char)*p);
        return r == 0 ? cg_buf_try_adds(b, "\"", NULL) : r;
}

bool cg_files_flush(struct cg_buf *b)
{
        bool ok = cg_write_all(STDOUT_FILENO, b->data, b->len, NULL) == 0;

        b->len = 0;
        return ok;
}
