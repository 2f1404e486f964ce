/*
 * A stream of server-sent events, which breaks off and is taken up again at a byte 255. Beside
 * memory safety it checks that cutting the input differently changes nothing, that no event is over
 * its limit, and that nothing of a broken event is left in the next stream.
 */
#include <stdio.h>
#include "base/util.h"
#include "mcp/http/sse.h"
#include "fuzz.h"

#define MAX_DATA 64

/* Writes what was read in pieces of @step bytes to @out. */
static void read_all(const char *p, size_t len, size_t step, struct cg_buf *out)
{
        struct cg_sse s;
        char retry[32];

        cg_sse_init(&s, MAX_DATA);
        for (size_t at = 0; at < len;) {
                const char *cut = memchr(p + at, 0xff, len - at);
                size_t whole = cut ? (size_t)(cut - (p + at)) : len - at;
                size_t n = whole < step ? whole : step, used = 0;
                struct cg_sse_event e;
                int r;

                if (!n) {
                        cg_auto_free char *id = strdup(cg_sse_last_id(&s) ?: "");
                        int64_t retry_ms = s.retry_ms;

                        cg_sse_restart(&s);
                        must(!s.data.len && !strcmp(cg_sse_last_id(&s) ?: "", id) && s.retry_ms == retry_ms);
                        cg_buf_try_adds(out, "~", NULL);
                        at++;
                        continue;
                }
                r = cg_sse_read(&s, p + at, n, &used, &e, NULL);

                must(used <= n && (used > 0 || r) && (r || used == n));
                at += used;
                if (r < 0)
                        cg_buf_try_adds(out, "!", NULL);
                if (r != 1)
                        continue;
                must(e.len > 0 && e.len <= MAX_DATA && e.data[e.len] == '\0' &&
                     strlen(e.type) <= CG_SSE_MAX_NAME);
                cg_buf_try_adds(out, e.type, NULL);
                cg_buf_try_add(out, e.data, e.len, NULL);
        }
        must(s.retry_ms >= -1 && s.retry_ms <= 600000);
        snprintf(retry, sizeof(retry), "%lld", (long long)s.retry_ms);
        cg_buf_try_adds(out, retry, NULL);
        cg_buf_try_adds(out, cg_sse_last_id(&s) ?: "", NULL);
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
