/* The kernel's output queue: order, coalescing, limits, UTF-8. */
#include "base/ceilings.h"
#include "base/text.h"
#include "base/wire.h"
#include "kernel/outq.h"
#include "unit.h"

#define FFFD "\xef\xbf\xbd"

static void expect(struct cg_outq *q, int64_t now, unsigned flags, uint64_t cell, const char *text)
{
        int64_t due;
        struct cg_outq_item *it = cg_outq_pop(q, now, &due);

        assert_non_null(it);
        assert_int_equal(it->flags, flags);
        assert_int_equal(it->cell, cell);
        assert_int_equal(it->len, strlen(text));
        assert_memory_equal(it->data, text, it->len);
        cg_outq_item_free(it);
}

static void expect_empty(struct cg_outq *q)
{
        int64_t due;

        assert_null(cg_outq_pop(q, INT64_MAX, &due));
        assert_int_equal(due, -1);
        assert_int_equal(q->bytes, 0);
}

TEST(test_coalescing)
{
        struct cg_outq q = { .head = NULL };

        assert_int_equal(cg_outq_text(&q, 0, 1, "a", 1, 10, NULL), 0);
        assert_int_equal(cg_outq_text(&q, 0, 1, "b", 1, 12, NULL), 0);
        assert_int_equal(cg_outq_text(&q, CG_FLAG_STDERR, 1, "e", 1, 12, NULL), 0);
        assert_int_equal(cg_outq_text(&q, 0, 1, "c", 1, 13, NULL), 0);
        assert_int_equal(cg_outq_text(&q, 0, 2, "d", 1, 14, NULL), 0);
        expect(&q, 0, 0, 1, "ab");
        expect(&q, 0, CG_FLAG_STDERR, 1, "e");
        expect(&q, 0, 0, 1, "c");
        expect(&q, 54, 0, 2, "d");
        expect_empty(&q);
}

TEST(test_last_text_waits_until_it_is_due_or_flushed)
{
        struct cg_outq q = { .head = NULL };
        int64_t due;

        cg_outq_text(&q, 0, 1, "a", 1, 10, NULL);
        assert_null(cg_outq_pop(&q, 9, &due));
        assert_int_equal(due, 10);
        cg_outq_text(&q, 0, 1, "b\n", 2, 19, NULL);
        expect(&q, 10, 0, 1, "ab\n");
        cg_outq_text(&q, 0, 1, "line", 4, 20, NULL); /* its end comes a moment later */
        assert_null(cg_outq_pop(&q, 10, &due));
        assert_int_equal(due, 20);
        assert_null(cg_outq_pop(&q, 20, &due));
        assert_int_equal(due, 60);
        assert_null(cg_outq_pop(&q, 59, &due));
        cg_outq_text(&q, 0, 1, "\n", 1, 70, NULL);
        expect(&q, 59, 0, 1, "line\n");
        cg_outq_text(&q, 0, 1, "no end", 6, 70, NULL);
        expect(&q, 110, 0, 1, "no end");
        cg_outq_text(&q, 0, 1, "c", 1, 100, NULL);
        q.flush = true;
        expect(&q, 11, 0, 1, "c");
        cg_outq_text(&q, 0, 1, "d", 1, 100, NULL);
        assert_null(cg_outq_pop(&q, 11, &due)); /* a flush is for what was there */
        cg_outq_add(&q,
                    &(struct cg_out){
                            .type = CG_KERNEL_ERROR, .id = 1, .raw = "{}", .raw_len = 2, .has_raw = true },
                    NULL, NULL);
        expect(&q, 11, 0, 1, "d");
        expect(&q, 11, 0, 1, "{}");
        expect_empty(&q);
}

/*
 * Any bytes in any pieces come out as valid UTF-8 in messages within the limit; valid text comes
 * out unchanged.
 */
static void feed(const char *data, size_t len, size_t piece, char *out, size_t *out_len)
{
        struct cg_outq q = { .head = NULL };
        struct cg_utf8_state st = { .n = 0 };
        struct cg_outq_item *it;
        int64_t due;

        *out_len = 0;
        for (size_t i = 0; i < len; i += piece)
                OK(cg_outq_bytes(&q, &st, 0, 1, data + i, len - i < piece ? len - i : piece, 0, NULL));
        assert_int_equal(cg_outq_bytes_end(&q, &st, 0, 1, 0, NULL), 0);
        assert_int_equal(st.n, 0);
        while ((it = cg_outq_pop(&q, 100, &due))) {
                assert_true(it->len > 0 && it->len <= CG_MAX_STREAM);
                for (size_t i = 0, n; i < it->len; i += n) {
                        uint32_t cp;

                        n = cg_utf8_next((const unsigned char *)it->data + i, it->len - i, &cp);
                        assert_true(n > 0);
                }
                memcpy(out + *out_len, it->data, it->len);
                *out_len += it->len;
                cg_outq_item_free(it);
        }
        expect_empty(&q);
}

TEST(test_random_bytes)
{
        static char in[4096], out[3 * 4096 + 16];
        uint32_t seed = 12345;
        size_t len;

        for (int round = 0; round < 300; round++) {
                for (size_t i = 0; i < sizeof(in); i++) {
                        seed = seed * 1664525u + 1013904223u;
                        /* Mostly lead and continuation bytes: that is where the trouble is. */
                        in[i] = (char)((seed >> 24) | (seed & 0x100 ? 0x80 : 0));
                }
                feed(in, sizeof(in), 1 + (size_t)round % 17, out, &len);
        }
}

/* The ends of each length, and of each range of second bytes. */
TEST(test_characters_in_pieces)
{
        static const char in[] = "\xc2\x80\xdf\xbf\xe0\xa0\x80\xed\x9f\xbf\xee\x80\x80\xef\xbf\xbf"
                                 "\xf0\x90\x80\x80\xf0\xbf\xbf\xbf\xf4\x80\x80\x80\xf4\x8f\xbf\xbf";
        char out[3 * sizeof(in)];
        size_t len;

        for (size_t piece = 1; piece < 5; piece++) {
                feed(in, sizeof(in) - 1, piece, out, &len);
                assert_int_equal(len, sizeof(in) - 1);
                assert_memory_equal(out, in, len);
        }
}

TEST(test_content_that_is_taken)
{
        struct cg_buf raw = { .max = SIZE_MAX };
        struct cg_outq q = { .head = NULL };
        struct cg_out m = { .type = CG_KERNEL_ERROR, .id = 1, .has_raw = true };

        cg_buf_try_adds(&raw, "{}", NULL);
        m.raw = raw.data;
        m.raw_len = raw.len;
        assert_int_equal(cg_outq_add(&q, &m, &raw, NULL), 0);
        assert_null(raw.data);
        assert_ptr_equal(q.head->data, m.raw);
        /* The buffer has another content: it remains unchanged, and the content is copied. */
        cg_buf_try_adds(&raw, "other", NULL);
        m.raw = "[]";
        assert_int_equal(cg_outq_add(&q, &m, &raw, NULL), 0);
        assert_string_equal(raw.data, "other");
        expect(&q, 0, 0, 1, "{}");
        expect(&q, 0, 0, 1, "[]");
        expect_empty(&q);
        cg_buf_fini(&raw);
}
