/*
 * The code generator's parts: reading, splitting, emitting, names, references. Whole packages are
 * tested in tests/codegen.
 */
#include "codegen/codegen.h"
#include "codegen/names.h"
#include "codegen/schema.h"
#include "codegen/text.h"
#include "cases.h"

static struct cg_slice str(const char *s)
{
        return cg_slice_of(s);
}

static struct cg_j *read_ok(struct cg_arena *a, const char *text)
{
        struct cg_err err = { 0 };
        struct cg_j *j = NULL;

        if (cg_j_read(a, text, strlen(text), 100, &j, &err) < 0)
                fail_msg("%s: %s", text, err.msg);
        return j;
}

TEST(test_read_keeps_everything)
{
        static const char text[] =
                " {\"n\":18446744073709551615,\"s\":\"\\ud83d\\ude00 \\ud800 \\u0000 \\n\",\"a\":[true,null,-0.0e+5],"
                "\"n\":1e999,\"o\":{\"a\":{}}} ";
        cg_auto_arena struct cg_arena a = { 0 };
        struct cg_j *j = read_ok(&a, text), *s = cg_j_getz(j, "s");

        assert_int_equal(j->n, 4); /* the last "n" counts */
        assert_true(cg_slice_is(cg_j_getz(j, "n")->text, "1e999"));
        assert_int_equal(s->text.len, 12);
        assert_memory_equal(s->text.p, "\xf0\x9f\x98\x80 \xed\xa0\x80 \0 \n", 12);
        assert_int_equal(cg_j_getz(j, "a")->n, 3);
        assert_int_equal(j->height, 2);
        assert_null(cg_j_getz(j, "x"));
        assert_null(cg_j_getz(NULL, "x"));
        assert_true(cg_slice_is(j->last->key, "o"));
}

TEST(test_read_refuses)
{
        cg_auto_arena struct cg_arena a = { 0 };
        struct cg_j *j;

        EACH_CASE(c, "no JSON")
        FAILS(CG_E_PARSE, "", cg_j_read(&a, c.in, c.len, 100, &j, &err));
        FAILS(CG_E_PARSE, "line 3 column 2", cg_j_read(&a, "[\n 1,\n x]", 9, 100, &j, &err));
        OK(cg_j_read(&a, "[[[]]]", 6, 3, &j, &err));
        FAILS(CG_E_LIMIT, "", cg_j_read(&a, "[[[[]]]]", 8, 3, &j, &err));
}

static void check_split(const char *text, int want, const char *const *items, size_t n_items)
{
        cg_auto_free struct cg_slice *got = NULL;
        struct cg_err err = { 0 };
        size_t n = 0;

        assert_int_equal(cg_split_tools(text, strlen(text), &got, &n, &err), want);
        if (want < 0)
                return;
        assert_int_equal(n, n_items);
        for (size_t i = 0; got && items && i < n; i++)
                assert_true(cg_slice_is(got[i], items[i]));
}

TEST(test_split)
{
        static const char *const two[] = { "{\"a\":\"]}\\\"\"}", "NaN" };
        static const char *const one[] = { "[[{}]]" };

        check_split("[{\"a\":\"]}\\\"\"} , NaN]", 0, two, 2);
        check_split("\xef\xbb\xbf{\"x\":[1,{}],\"tools\":[{\"a\":\"]}\\\"\"},NaN]}", 0, two, 2);
        check_split("{\"result\":{\"x\":1,\"tools\":[[[{}]]]},\"id\":1}", 0, one, 1);
        check_split("{\"tools\":[1],\"tools\":[[[{}]]]}", 0, one, 1);
        check_split(" [ ] ", 0, NULL, 0);
        check_split("{\"tools\":{}}", CG_E_PARSE, NULL, 0);
        check_split("{}", CG_E_PARSE, NULL, 0);
        check_split("[1", CG_E_PARSE, NULL, 0);
        check_split("[1]x", CG_E_PARSE, NULL, 0);
        check_split("[1,]", CG_E_PARSE, NULL, 0);
        check_split("[\"a]", CG_E_PARSE, NULL, 0);
        check_split("{\"tools\":[1]", CG_E_PARSE, NULL, 0);
        assert_true(cg_slice_is(cg_split_name(str("{\"x\":{\"name\":\"no\"},\"name\":\"yes\",\"y\":NaN}")),
                                "yes"));
        assert_int_equal(cg_split_name(str("{\"name\":7}")).len, 0);
        assert_int_equal(cg_split_name(str("[")).len, 0);
}

static void check_emitted(void (*put)(struct cg_buf *, struct cg_slice), struct cg_slice s, const char *want)
{
        cg_auto_buf struct cg_buf o = { .max = 10000 };

        put(&o, s);
        assert_int_equal(o.failed, 0);
        assert_string_equal(o.data, want);
}

static void put_doc(struct cg_buf *o, struct cg_slice s)
{
        cg_put_doc(o, s, 4, 20);
}

TEST(test_emit_str)
{
        check_emitted(cg_put_str, str(""), "\"\"");
        check_emitted(cg_put_str, str("a\"\\\n\r\t{}'\x7f"), "\"a\\\"\\\\\\n\\x0d\\x09{}'\\x7f\"");
        check_emitted(cg_put_str, CG_SLICE("\0\xc3\xa9\xe6\x97\xa5\xf0\x9f\x98\x80\xed\xa0\x80"),
                      "\"\\x00\\xe9\\u65e5\\U0001f600\\ud800\"");
        check_emitted(cg_put_json_str, CG_SLICE("\0\"\\\n\xc3\xa9\xf0\x9f\x98\x80\xed\xa0\x80"),
                      "\"\\u0000\\\"\\\\\\n\\u00e9\\ud83d\\ude00\\ud800\"");
        check_emitted(cg_put_json_text, CG_SLICE("\xf0\x9f\x98\x80\xed\xa0\x80x"),
                      "\"\\ud83d\\ude00\\ufffdx\"");
}

TEST(test_emit_doc)
{
        check_emitted(put_doc, str("say \"it\" now"), "\"\"\"say \"it\" now\"\"\"");
        check_emitted(put_doc, str("\"a\"\"\"b\""), "\"\"\"\\\"a\\\"\\\"\\\"b\\\"\"\"\"");
        check_emitted(put_doc, str("a\r\n\nb\r\\"), "\"\"\"a\n\n    b\\\\x0d\\\\\"\"\"");
        check_emitted(put_doc, str("\x1b[2J\xe2\x80\xae\xc3\xa9"), "\"\"\"\\\\x1b[2J\\\\u202e\\xe9\"\"\"");
        check_emitted(put_doc, str("123456789012345678901"),
                      "\"\"\"12345678901234567890... (cut: 21 characters in all)\"\"\"");
}

TEST(test_names_avoid_reserved)
{
        struct cg_slice reserved[] = { CG_SLICE("Edit"), CG_SLICE("Node") };
        struct cg_python_name names[] = { { .original = CG_SLICE("Edit") },
                                          { .original = CG_SLICE("edit") } };
        cg_auto_arena struct cg_arena a = { 0 };

        assert_true(cg_names_assign(&a, CG_NAME_FIELD, names, 2, reserved, 2));
        assert_int_equal(names[0].name.len, 11);
        assert_true(cg_slice_is(names[1].name, "edit"));
}

TEST(test_class_names)
{
        cg_auto_arena struct cg_arena a = { 0 };

        EACH_CASE(c, "classes")
        assert_true(cg_slice_is(cg_class_base(&a, str(c.in)), c.out));
}

TEST(test_references)
{
        static const char *const results[] = {
                [CG_REF_OK] = "ok", [CG_REF_DANGLING] = "dangling", [CG_REF_EXTERNAL] = "external"
        };
        cg_auto_arena struct cg_arena a = { 0 };
        struct cg_j *root = read_ok(
                &a,
                "{\"title\":\"t\",\"$defs\":{\"a/b%\":{\"$anchor\":\"here\"},\"i\":{\"$id\":\"urn:x\",\"properties\":"
                "{\"y\":{}}}},\"anyOf\":[{},true],\"const\":{\"$anchor\":\"data\"}}");
        struct cg_gen_report report;
        struct cg_schema s;
        struct cg_j *to;

        cg_gen_report_init(&report, &a);
        cg_schema_init(&s, root, false, &report);
        EACH_CASE(c, "references")
        assert_string_equal(results[cg_schema_ref(&s, str(c.in), &to)], c.out);
        assert_int_equal(cg_schema_ref(&s, str("#/$defs/a~1b%25"), &to), CG_REF_OK);
        assert_true(cg_slice_is(cg_schema_pointer(&a, root, to), "/$defs/a~1b%"));
}
