/*
 * A stream of server-sent events. Beside memory safety it checks that cutting the input differently
 * changes nothing, and that no event is over its limit.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "mcp/sse.h"

#define MAX_DATA 64

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool ok)
{
        if (!ok)
                abort();
}

/* Writes what was read in pieces of @step bytes to @out. */
static void read_all(const char *p, size_t len, size_t step, struct cg_buf *out)
{
        struct cg_sse s;
        char retry[32];

        cg_sse_init(&s, MAX_DATA);
        for (size_t at = 0; at < len;) {
                size_t n = len - at < step ? len - at : step, used = 0;
                struct cg_sse_event e;
                int r = cg_sse_read(&s, p + at, n, &used, &e, NULL);

                must(used <= n && (used > 0 || r) && (r || used == n));
                at += used;
                if (r < 0)
                        cg_buf_adds(out, "!", NULL);
                if (r != 1)
                        continue;
                must(e.len > 0 && e.len <= MAX_DATA && e.data[e.len] == '\0' &&
                     strlen(e.type) <= CG_SSE_MAX_NAME);
                cg_buf_adds(out, e.type, NULL);
                cg_buf_add(out, e.data, e.len, NULL);
        }
        must(s.retry_ms >= -1 && s.retry_ms <= 600000);
        snprintf(retry, sizeof(retry), "%lld", (long long)s.retry_ms);
        cg_buf_adds(out, retry, NULL);
        cg_buf_adds(out, cg_sse_last_id(&s) ?: "", NULL);
        cg_sse_fini(&s);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
        struct cg_buf whole, cut;

        cg_buf_init(&whole, 1 << 20);
        cg_buf_init(&cut, 1 << 20);
        read_all((const char *)data, size, size ? size : 1, &whole);
        read_all((const char *)data, size, size % 7 + 1, &cut);
        must(whole.len == cut.len && memcmp(whole.data, cut.data, whole.len) == 0);
        cg_buf_fini(&whole);
        cg_buf_fini(&cut);
        return 0;
}
