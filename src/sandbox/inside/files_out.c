/* Output of file operations inside a sandbox: see files_out.h. */
#include "sandbox/inside/files_out.h"

#include "base/buf.h"
#include "base/fd.h"
#include "base/json.h"
#include "base/text.h"

int cg_files_failed(const char *what, const char *path)
{
        int e = errno ?: EIO;

        dprintf(STDERR_FILENO, "%s %s: %s\n", what, path, strerror(e));
        return e & 0xff;
}

void cg_files_add_name(struct cg_buf *b, const char *key, const char *text)
{
        if (cg_utf8_valid(text, strlen(text))) {
                cg_buf_addf(b, "\"%s\":", key);
                cg_json_quote(b, text, strlen(text));
                return;
        }
        cg_buf_addf(b, "\"%s_hex\":\"", key);
        for (const char *p = text; *p; p++)
                cg_buf_addf(b, "%02x", (unsigned char)*p);
        cg_buf_adds(b, "\"");
}

bool cg_files_flush(struct cg_buf *b)
{
        bool ok = cg_buf_end(b, NULL) == 0;

        if (ok)
                ok = cg_write_all(STDOUT_FILENO, b->data, b->len, NULL) == 0;
        else
                errno = ENOMEM;
        cg_buf_clear(b);
        return ok;
}
