/* Differences between definitions of tools: each change is shown, and never looks the same. */
#include "base/ceilings.h"
#include "mcp/ceilings.h"
#include "mcp/pins/pins.h"
#include "cases.h"

static void canonical(const char *tool, struct cg_buf *b)
{
        struct cg_err err = { .msg = "" };

        *b = (struct cg_buf){ .max = (size_t)64 << 20 };
        if (cg_pin_canonical(cg_slice_of(tool), b, &err) < 0)
                fail_msg("%.300s: %s", tool, err.msg);
}

/* The lines of a difference as what was (@now false) or what is. */
static char *side(const char *diff, bool now)
{
        char *out = malloc(strlen(diff) + 1), *p = out;

        assert_non_null(out);
        for (const char *line = diff; *line;) {
                size_t n = (size_t)(strchr(line, '\n') - line) + 1;
                bool removed = strncmp(line, "    - ", 6) == 0, added = strncmp(line, "    + ", 6) == 0;
                size_t sign = removed || added ? 6 : 0;

                if (now ? !removed : !added) {
                        memcpy(p, line + sign, n - sign);
                        p += n - sign;
                }
                line += n;
        }
        *p = '\0';
        return out;
}

/* The difference of two tools, checked for what holds for any two that differ. Returns; free(). */
static char *diff(const char *then, const char *now, size_t max, size_t *left_out)
{
        cg_auto_buf struct cg_buf a, b, out = { .max = (size_t)64 << 20 };
        cg_auto_free char *was = NULL, *is = NULL;

        canonical(then, &a);
        canonical(now, &b);
        OK(cg_pin_diff((struct cg_slice){ a.data, a.len }, (struct cg_slice){ b.data, b.len }, max, &out,
                       left_out, &err));
        for (size_t i = 0; i < out.len; i++)
                assert_true(out.data[i] == '\n' || (unsigned char)out.data[i] >= ' ');
        if (a.len == b.len && memcmp(a.data, b.data, a.len) == 0) {
                assert_int_equal(out.len, 0);
                return strdup("");
        }
        was = side(out.data, false);
        is = side(out.data, true);
        if (strcmp(was, is) == 0)
                fail_msg("the sides look the same:\n%s\n%.3000s\n%.3000s", out.data, a.data, b.data);
        return cg_buf_steal(&out, NULL);
}

#define D(text) "{\"name\":\"t\",\"description\":\"" text "\"}"

TEST(test_samples)
{
        size_t left_out;

        EACH_CASE(c, "differences")
        {
                cg_auto_free char *text = diff(c.in, c.out, CG_PINS_MAX_DIFF, &left_out);

                assert_string_equal(text, c.third);
                assert_int_equal(left_out, 0);
        }
}

TEST(test_definitions_without_a_canonical_form)
{
        cg_auto_buf struct cg_buf b = { .max = 4096 }, deep = { .max = 4096 };

        EACH_CASE(c, "no canonical form")
        FAILS(CG_E_PARSE, "", cg_pin_canonical(cg_slice_of(c.in), &b, &err));
        cg_buf_try_adds(&deep, "{\"inputSchema\":", NULL);
        for (int i = 0; i < CG_JSON_DEPTH; i++)
                cg_buf_try_adds(&deep, "[", NULL);
        for (int i = 0; i < CG_JSON_DEPTH; i++)
                cg_buf_try_adds(&deep, "]", NULL);
        cg_buf_try_adds(&deep, "}", NULL);
        FAILS(CG_E_LIMIT, "", cg_pin_canonical((struct cg_slice){ deep.data, deep.len }, &b, &err));
}

TEST(test_texts_that_were_not_kept)
{
        cg_auto_buf struct cg_buf b = { .max = 4096 };
        struct cg_slice tool = CG_SLICE("{\"description\":\"x\"}");
        size_t left_out;

        OK(cg_pin_diff(tool, CG_SLICE_NONE, 4096, &b, &left_out, &err));
        assert_true(left_out > 0);
        b.len = 0;
        OK(cg_pin_diff(CG_SLICE_NONE, tool, 4096, &b, &left_out, &err));
        assert_int_equal(left_out, 0);
        assert_non_null(strstr(b.data, "  description\n    + \"x\"\n"));
}

TEST(test_first_difference_is_shown_where_not_all_is)
{
        char a[30000], b[30000];
        cg_auto_free char *text = NULL;
        size_t left_out;

        snprintf(a, sizeof(a), "{\"name\":\"t\",\"description\":\"%0*d\",\"title\":\"first\"}", 20000, 1);
        snprintf(b, sizeof(b), "{\"name\":\"t\",\"description\":\"%0*d\",\"title\":\"second\"}", 20000, 0);
        text = diff(a, b, 100, &left_out);
        assert_int_equal(left_out, 2);
        assert_non_null(
                strstr(text, "  2 differences are not shown; the definitions first differ at byte 20015:\n"));
        assert_non_null(strstr(text, "0001\",\"name\":\"t\",\"title\":\"first\"}\n"));
        assert_non_null(strstr(text, "0000\",\"name\":\"t\",\"title\":\"second\"}\n"));
}

/* ---- random definitions, changed at random places */

struct random {
        uint64_t state;
};

static unsigned pick(struct random *r, unsigned n)
{
        r->state ^= r->state << 13;
        r->state ^= r->state >> 7;
        r->state ^= r->state << 17;
        return (unsigned)((r->state >> 11) % n);
}

/* One definition is written twice with the same numbers; one time the nodes in @at are changed. */
struct writer {
        struct random numbers, change;
        struct cg_buf b;
        const char *tokens[2];
        int node, at[2];
        unsigned nodes_left;
        bool moves; /* a name was changed, and so the order of the members */
};

static const char *const pieces[] = { "a",
                                      "b",
                                      " ",
                                      "x1b",
                                      "\\\\",
                                      "\\n",
                                      "\\\"",
                                      "\\u001b",
                                      "\\u202e",
                                      "\\u00e9",
                                      "\\ud83d\\ude00",
                                      "\\u0430",
                                      "\\u007f",
                                      "\\t",
                                      "202e",
                                      "u",
                                      "0",
                                      "\\u4e2d",
                                      "The quick brown fox ",
                                      "\\\\x1b",
                                      "Z",
                                      "X",
                                      "- ",
                                      "+ " };
static const char *const marks[] = { "ZQX0", "ZQX1" };

static void write_string(struct writer *w, const char *token)
{
        unsigned n = pick(&w->numbers, 8) ? pick(&w->numbers, 12) : pick(&w->numbers, 3000);
        unsigned place = token ? pick(&w->change, n + 1) : 0;

        cg_buf_try_adds(&w->b, "\"", NULL);
        for (unsigned i = 0; i <= n; i++) {
                if (token && i == place)
                        cg_buf_try_adds(&w->b, token, NULL);
                if (i < n)
                        cg_buf_try_adds(&w->b, pieces[pick(&w->numbers, CG_ARRAY_LEN(pieces))], NULL);
        }
        cg_buf_try_adds(&w->b, "\"", NULL);
}

static void write_value(struct writer *w, unsigned depth)
{
        int node = w->node++;
        const char *token = node == w->at[0] ? w->tokens[0] : node == w->at[1] ? w->tokens[1] : NULL;
        unsigned kind = pick(&w->numbers, depth < 6 ? 8 : 4), n = pick(&w->numbers, 6);

        if (kind < 2) {
                write_string(w, token);
        } else if (kind < 4) {
                if (token) /* a string in place of another value */
                        cg_buf_try_addf(&w->b, NULL, "\"%s\"", token);
                else
                        cg_buf_try_addf(&w->b, NULL, "%u", n);
        } else {
                bool object = kind < 6;
                unsigned what = token ? pick(&w->change, 2) : 0, place = pick(&w->change, n + 1);

                cg_buf_try_adds(&w->b, object ? "{" : "[", NULL);
                for (unsigned i = 0; i <= n; i++) {
                        bool renamed = object && what && i == place && i < n;

                        if (token && !renamed && i == place) { /* one more */
                                cg_buf_try_addf(&w->b, NULL, object ? "%s\"%s\":{}" : "%s\"%s\"",
                                                i ? "," : "", token);
                                w->moves = w->moves || !object;
                        }
                        if (i == n)
                                break;
                        cg_buf_try_adds(&w->b, i || (token && !renamed && place == 0) ? "," : "", NULL);
                        w->moves = w->moves || renamed;
                        if (object)
                                cg_buf_try_addf(&w->b, NULL, "\"%s%s.%u\":", pieces[pick(&w->numbers, 16)],
                                                renamed ? token : "", i);
                        write_value(w, depth + 1);
                }
                cg_buf_try_adds(&w->b, object ? "}" : "]", NULL);
        }
}

static char *write_tool(uint64_t seed, int first, int second, const char *const tokens[2], int *nodes,
                        bool *moves)
{
        struct writer w = { .numbers = { seed },
                            .change = { seed * 31 + 7 },
                            .at = { first, second },
                            .tokens = { tokens[0], tokens[1] } };

        w.b.max = (size_t)64 << 20;
        cg_buf_try_adds(&w.b, "{\"name\":\"t\",\"description\":", NULL);
        w.node++;
        write_string(&w, first == 0 ? tokens[0] : second == 0 ? tokens[1] : NULL);
        cg_buf_try_adds(&w.b, ",\"inputSchema\":", NULL);
        write_value(&w, 0);
        cg_buf_try_adds(&w.b, "}", NULL);
        *nodes = w.node;
        *moves = w.moves;
        return cg_buf_steal(&w.b, NULL);
}

TEST(test_any_change_is_shown)
{
        static const size_t limits[] = { CG_PINS_MAX_SHOWN, CG_PINS_MAX_DIFF, 80 };
        unsigned cut = 0, whole = 0;
        size_t seeds = rounds(400, 12);

        for (uint64_t seed = 1; seed <= seeds; seed++) {
                struct random choice = { seed * 97 + 5 };
                int nodes, first, second;
                bool none, moves;
                cg_auto_free char *then = write_tool(seed, -1, -1, marks, &nodes, &none), *now = NULL;

                first = (int)pick(&choice, (unsigned)nodes);
                second = pick(&choice, 2) ? (int)pick(&choice, (unsigned)nodes) : -1;
                now = write_tool(seed, first, second, marks, &nodes, &moves);
                for (unsigned i = 0; i < 2 * CG_ARRAY_LEN(limits); i++) {
                        size_t left_out, max = limits[i / 2];
                        cg_auto_free char *text = diff(i % 2 ? now : then, i % 2 ? then : now, max,
                                                       &left_out);
                        bool all = max == CG_PINS_MAX_SHOWN, one = second < 0 || second == first;

                        assert_true(!all || left_out == 0);
                        cut += left_out > 0;
                        whole += left_out == 0;
                        /* Moved names are not around the first byte that differs. */
                        if ((all || (one && !moves)) && !strstr(text, marks[0]))
                                fail_msg("seed %u: the change is not shown:\n%.3000s", (unsigned)seed, text);
                        if (all && !one && strstr(now, marks[1]) && !strstr(text, marks[1]))
                                fail_msg("seed %u: the second change is not shown:\n%.3000s", (unsigned)seed,
                                         text);
                }
        }
        assert_true(cut > seeds / 4 && whole > seeds / 4);
}

/* Characters that are shown alike, or not at all, in place of the marks. */
TEST(test_changes_never_look_the_same)
{
        size_t seeds = rounds(600, 15);

        for (uint64_t seed = 1; seed <= seeds; seed++) {
                struct random choice = { seed * 89 + 3 };
                unsigned n = pick(&choice, CG_ARRAY_LEN(pieces)), m = pick(&choice, CG_ARRAY_LEN(pieces));
                const char *const one[2] = { pieces[n], pieces[m] }, *const other[2] = { pieces[m],
                                                                                         pieces[n] };
                int nodes, at[2];
                bool moves;
                cg_auto_free char *then = write_tool(seed, -1, -1, one, &nodes, &moves), *now = NULL;

                for (int i = 0; i < 2; i++)
                        at[i] = (int)pick(&choice, (unsigned)nodes);
                free(then);
                then = write_tool(seed, at[0], at[1], one, &nodes, &moves);
                now = write_tool(seed, at[0], at[1], other, &nodes, &moves);
                for (size_t max = 80; max < 100000; max *= 30) {
                        size_t left_out;

                        free(diff(then, now, max, &left_out));
                }
        }
}

TEST(test_one_more_of_a_character_that_is_repeated)
{
        char a[400], b[400];
        cg_auto_free char *text = NULL;
        size_t left_out;

        snprintf(a, sizeof(a), D("%0200d"), 0);
        snprintf(b, sizeof(b), D("%0201d"), 0);
        text = diff(a, b, CG_PINS_MAX_DIFF, &left_out);
        assert_int_equal(strlen(text), strlen("  description\n    - \n    + \n") + 81);
        free(diff(b, a, CG_PINS_MAX_DIFF, &left_out));
        snprintf(b, sizeof(b), D("%0300d"), 0);
        free(diff(b, a, CG_PINS_MAX_DIFF, &left_out));
}
