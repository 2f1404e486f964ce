/* Lines of a kernel's output that report a refused file, however the output is cut into writes. */
#include "kernel/error_lines.h"
#include "unit.h"

static void add(struct cg_error_lines *e, int stream, const char *text)
{
        cg_error_lines_add(e, stream, text, strlen(text));
}

static void expect(struct cg_error_lines *e, const char *lines)
{
        assert_int_equal(e->len, strlen(lines));
        assert_memory_equal(e->lines, lines, e->len);
        e->len = 0;
}

TEST(finds_the_lines)
{
        struct cg_error_lines *e = calloc(1, sizeof(*e));

        add(e, 0, "one\ncat: a: Permission denied\ntwo\nb: Read-only file system\n");
        expect(e, "cat: a: Permission denied\nb: Read-only file system\n");
        add(e, 0, "EROFS: read-only file system, open 'x'\nls: y: No such file or directory");
        expect(e, "EROFS: read-only file system, open 'x'\nls: y: No such file or directory\n");
        add(e, 0, "\nnothing: denied\nPermission given\n");
        expect(e, "");
        free(e);
}

TEST(joins_writes_of_a_stream)
{
        struct cg_error_lines *e = calloc(1, sizeof(*e));

        add(e, 1, "before\ncat: ");
        add(e, 0, "of the other stream\n");
        add(e, 1, "a file");
        add(e, 1, ": Permission denied\nafter\n");
        expect(e, "cat: a file: Permission denied\n");
        free(e);
}

TEST(is_bounded)
{
        struct cg_error_lines *e = calloc(1, sizeof(*e));
        char text[3 * CG_ERROR_LINE_MAX];

        memset(text, 'x', sizeof(text));
        cg_error_lines_add(e, 0, text, sizeof(text));
        add(e, 0, ": Permission denied\n");
        expect(e, ""); /* the line is too long */
        cg_error_lines_add(e, 0, text, sizeof(text));
        add(e, 0, "\nPermission denied\n");
        expect(e, "Permission denied\n");
        for (int i = 0; i < 10000; i++)
                add(e, i % 2, "a: Permission denied\n");
        assert_in_range(e->len, CG_ERROR_LINES_MAX - 32, CG_ERROR_LINES_MAX);
        cg_error_lines_add(e, 0, "", 0);
        free(e);
}
