/* Unit tests for src/mcp_http/stream.c: what is sent, kept, resumed and dropped. */
#include "mcp_http/front.h"
#include "unit.h"

struct scene {
        struct hf_front f;
        struct hf_session s;
        struct hf_stream *st;
        int wakes;
};

static void wake(void *reader)
{
        ((struct scene *)reader)->wakes++;
}

static int set_up(void **state)
{
        struct scene *c = calloc(1, sizeof(*c));

        TAILQ_INIT(&c->s.streams);
        c->st = cg_hf_stream_new(&c->f, &c->s, HF_CALL);
        c->st->number = 7;
        c->st->reader = c;
        c->st->wake = wake;
        *state = c;
        return 0;
}

static int tear_down(void **state)
{
        struct scene *c = *state;

        cg_hf_stream_free(c->st);
        assert_int_equal(c->f.event_bytes, 0);
        assert_true(TAILQ_EMPTY(&c->s.streams));
        free(c);
        return 0;
}

static void push(struct scene *c, const char *text, bool last)
{
        cg_hf_stream_push(c->st, cg_slice_of(text), last);
}

/* Reads all that is there in pieces of @piece bytes. Returns the last result of a read. */
static ssize_t read_all(struct scene *c, size_t piece, char *text, size_t size)
{
        size_t len = 0;
        ssize_t n;

        while ((n = cg_hf_stream_read(c->st, text + len, piece)) > 0) {
                len += (size_t)n;
                assert_true(len + piece < size);
        }
        text[len] = '\0';
        return n;
}

TEST_WITH(test_events_in_pieces, set_up, tear_down)
{
        struct scene *c = *state;
        char text[1024];

        push(c, "{1}", false);
        push(c, "{2}", false);
        assert_int_equal(read_all(c, 3, text, sizeof(text)), 0);
        assert_string_equal(text, "id: 7-1\ndata: {1}\n\nid: 7-2\ndata: {2}\n\n");
        push(c, "{3}", true);
        assert_int_equal(read_all(c, 100, text, sizeof(text)), -1);
        assert_string_equal(text, "id: 7-3\ndata: {3}\n\n");
        assert_int_equal(c->wakes, 3);
}

TEST_WITH(test_the_first_event_primes, set_up, tear_down)
{
        struct scene *c = *state;
        char text[1024];

        c->st->primes = true;
        push(c, "{1}", false);
        read_all(c, 100, text, sizeof(text));
        assert_string_equal(text, "id: 7-1\nretry: 1000\ndata: \n\nid: 7-2\ndata: {1}\n\n");
        assert_true(cg_hf_stream_resume(c->st, 1));
        read_all(c, 100, text, sizeof(text));
        assert_string_equal(text, "id: 7-2\ndata: {1}\n\n");
}

TEST_WITH(test_comments_come_between_events, set_up, tear_down)
{
        struct scene *c = *state;
        char text[1024];

        c->st->primes = true;
        cg_hf_stream_begin(c->st);
        assert_int_equal(read_all(c, 100, text, sizeof(text)), 0);
        assert_string_equal(text, ": keepalive\n\nid: 7-1\nretry: 1000\ndata: \n\n");
        push(c, "{1}", false);
        assert_int_equal(cg_hf_stream_read(c->st, text, 5), 5);
        cg_hf_stream_begin(c->st);
        assert_int_equal(read_all(c, 100, text, sizeof(text)), 0);
        assert_string_equal(text, "-2\ndata: {1}\n\n: keepalive\n\n");
}

/* What was sent is kept up to the limit; a client that comes too late is told how much is lost. */
TEST_WITH(test_kept_events_have_a_limit, set_up, tear_down)
{
        static char large[HF_MAX_KEPT / 4 + 1], text[4 * HF_MAX_KEPT];
        struct scene *c = *state;

        memset(large, 'x', sizeof(large) - 1);
        for (int i = 0; i < 10; i++) {
                push(c, large, false);
                read_all(c, 4096, text, sizeof(text));
        }
        assert_true(c->st->bytes <= HF_MAX_KEPT);
        assert_int_equal(c->st->dropped, 7);
        assert_true(cg_hf_stream_resume(c->st, 5));
        read_all(c, 4096, text, sizeof(text));
        assert_memory_equal(text, ": 2 events are no longer kept\n\nid: 7-8\n", 39);
        assert_true(cg_hf_stream_resume(c->st, 7));
        read_all(c, 4096, text, sizeof(text));
        assert_memory_equal(text, "id: 7-8\n", 8);
}

/* A reader that does not read is cut off; without one only the limit is kept, and the answer. */
TEST_WITH(test_unread_events_have_a_limit, set_up, tear_down)
{
        static char large[((size_t)1 << 20) + 1];
        struct scene *c = *state;
        char text[256];

        memset(large, 'x', sizeof(large) - 1);
        for (int i = 0; i < 16; i++) {
                push(c, large, false);
                assert_false(c->st->slow);
        }
        push(c, large, false);
        assert_true(c->st->slow);
        assert_int_equal(cg_hf_stream_read(c->st, text, sizeof(text)), -2);
        c->st->reader = NULL;
        push(c, large, true);
        assert_int_equal(c->st->dropped, 17);
        assert_int_equal(c->st->bytes, c->f.event_bytes);
        assert_true(cg_hf_stream_resume(c->st, 0));
        assert_int_equal(c->st->unread, c->st->bytes);
        assert_true(cg_hf_stream_read(c->st, text, sizeof(text)) > 0);
        assert_memory_equal(text, ": 17 events", 11);
}

TEST_WITH(test_unread_events_move, set_up, tear_down)
{
        struct scene *c = *state;
        struct hf_stream *from = cg_hf_stream_new(&c->f, &c->s, HF_GET);
        char text[256];

        cg_hf_stream_push(from, cg_slice_of("{\"sent\": 1}"), false);
        assert_true(cg_hf_stream_read(from, text, sizeof(text)) > 0);
        cg_hf_stream_push(from, cg_slice_of("{\"a\": 1}"), false);
        cg_hf_stream_push(from, cg_slice_of("{}"), false);
        cg_hf_stream_move(from, c->st);
        assert_int_equal(cg_hf_stream_read(from, text, sizeof(text)), 0);
        assert_int_equal(from->bytes + from->unread, 0);
        read_all(c, 100, text, sizeof(text));
        assert_string_equal(text, "id: 7-1\ndata: {\"a\": 1}\n\nid: 7-2\ndata: {}\n\n");
        cg_hf_stream_free(from);
}
