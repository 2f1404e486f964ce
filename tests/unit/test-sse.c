/* Server-sent events: the standard's examples, and each input cut at every byte. */
#include "mcp/http/sse.h"
#include "cases.h"

#define BYTES(s) s, sizeof(s) - 1

static void read_some(struct cg_sse *s, const char *p, size_t len, char *events, size_t size)
{
        while (len) {
                char *copy = memcpy(test_malloc(len), p, len); /* so that a read behind it is seen */
                size_t used = 0, n = strlen(events);
                struct cg_sse_event e;
                int r = cg_sse_read(s, copy, len, &used, &e, NULL);

                assert_true(used <= len && (used > 0 || r));
                if (r < 0)
                        snprintf(events + n, size - n, "!|");
                if (r == 1) {
                        assert_int_equal(e.data[e.len], '\0');
                        snprintf(events + n, size - n, "%s=%s|", e.type, e.data);
                }
                if (r == 0)
                        assert_int_equal(used, len);
                test_free(copy);
                p += used;
                len -= used;
        }
}

TEST(test_samples)
{
        EACH_CASE(c, "streams")
        {
                for (size_t cut = 0; cut <= c.len; cut++) {
                        char events[512] = "";
                        struct cg_sse s;

                        cg_sse_init(&s, 50);
                        read_some(&s, c.in, cut, events, sizeof(events));
                        read_some(&s, c.in + cut, c.len - cut, events, sizeof(events));
                        if (strcmp(events, c.out) != 0)
                                fail_msg("cut at %zu: %s", cut, events);
                        assert_string_equal(cg_sse_last_id(&s) ?: "-", c.third);
                        assert_int_equal(s.retry_ms, atoi(c.fourth));
                        cg_sse_fini(&s);
                }
        }
}

/* A stream that is taken up again keeps the last id and "retry", and nothing else. */
TEST(test_restart)
{
        static const char *const cuts[] = {
                "",           "id: 2\n", "id: 2", "data: x\ndata: y",
                "event: e\n", "da",      ": c",   "data: 01234567890123456789012345678901234567890123456789xx"
        };

        for (size_t i = 0; i < sizeof(cuts) / sizeof(cuts[0]); i++) {
                static const char next[] = "\xef\xbb\xbf"
                                           "data: b\n\n";
                char events[512] = "";
                struct cg_sse s;

                cg_sse_init(&s, 50);
                read_some(&s, BYTES("id: 1\nretry: 7\ndata: a\n\n"), events, sizeof(events));
                read_some(&s, cuts[i], strlen(cuts[i]), events, sizeof(events));
                cg_sse_restart(&s);
                assert_string_equal(cg_sse_last_id(&s), "1");
                read_some(&s, BYTES(next), events, sizeof(events));
                assert_string_equal(events, "message=a|message=b|");
                assert_string_equal(cg_sse_last_id(&s), "1");
                assert_int_equal(s.retry_ms, 7);
                cg_sse_fini(&s);
        }
}

/* Memory of a large event is not kept, nor that of an event over the limit until it ends. */
TEST(test_memory)
{
        static char large[200000];
        struct cg_sse_event e;
        struct cg_sse s;
        size_t used;

        memset(large, 'x', sizeof(large));
        memcpy(large, "data: ", 6);
        cg_sse_init(&s, sizeof(large));
        assert_int_equal(cg_sse_read(&s, large, sizeof(large), &used, &e, NULL), 0);
        cg_sse_shrink(&s);
        assert_int_equal(s.data.len, sizeof(large) - 6);
        assert_int_equal(cg_sse_read(&s, BYTES("\n\n"), &used, &e, NULL), 1);
        assert_int_equal(e.len, sizeof(large) - 6);
        cg_sse_shrink(&s);
        assert_int_equal(s.data.cap, 0);
        cg_sse_fini(&s);

        cg_sse_init(&s, 150000);
        assert_int_equal(cg_sse_read(&s, large, 100000, &used, &e, NULL), 0);
        assert_int_equal(cg_sse_read(&s, large, sizeof(large), &used, &e, NULL), 0);
        assert_int_equal(s.data.cap, 0);
        assert_int_equal(cg_sse_read(&s, BYTES("\n\ndata: a\n\n"), &used, &e, NULL), CG_E_LIMIT);
        assert_int_equal(cg_sse_read(&s, BYTES("data: a\n\n"), &used, &e, NULL), 1);
        assert_string_equal(e.data, "a");
        cg_sse_fini(&s);
}
