/* Results that stay with the tool server: limits, and a file that cannot be written. */
#include "mcp/ceilings.h"
#include "mcp/toolserver/kept.h"
#include "unit.h"

#define LONG ((size_t)100000)

/* A result with one string of LONG characters. */
static char *result(size_t *len)
{
        static const char before[] = "{\"t\":\"", after[] = "\"}";
        char *p = malloc(sizeof(before) + LONG + sizeof(after));

        assert_non_null(p);
        memcpy(p, before, sizeof(before) - 1);
        memset(p + sizeof(before) - 1, 'x', LONG);
        memcpy(p + sizeof(before) - 1 + LONG, after, sizeof(after));
        *len = sizeof(before) - 1 + LONG + sizeof(after) - 1;
        return p;
}

static int write_to(int fd, size_t max, struct cg_buf *out, struct cg_err *err)
{
        cg_auto_free char *json = NULL;
        size_t len, size = 0;
        int r;

        json = result(&len);
        r = cg_kept_write(fd, 7, max, json, len, &size, out, err);
        assert_int_equal(size, r == 0 ? LONG : size);
        return r;
}

TEST(test_disk_full)
{
        cg_auto_buf struct cg_buf out = { .max = 4096 };
        struct cg_err err;
        int fd = open("/dev/full", O_WRONLY | O_CLOEXEC);

        assert_true(write_to(fd, LONG, &out, &err) < 0);
        assert_string_equal(err.msg, "its file cannot be written: write: No space left on device");
        close(fd);
}

TEST(test_limit_of_bytes)
{
        cg_auto_buf struct cg_buf out = { .max = 4096 };
        struct cg_err err;
        int fd = memfd_create("kept", MFD_CLOEXEC);

        assert_true(write_to(fd, LONG - 1, &out, &err) < 0);
        assert_int_equal(err.code, CG_E_LIMIT);
        assert_int_equal(write_to(fd, LONG, &out, &err), 0);
        assert_string_equal(out.data, "{\"handle\":7,\"parts\":[[6,0,100000,1]]}\n{\"t\":\"\"}");
        close(fd);
}

/* The room of a kernel, and of all of them: files and bytes. */
TEST(test_room)
{
        struct cg_kept_sum all = { 0 };
        struct cg_kept_list a = { .all = &all }, b = { .all = &all };

        assert_int_equal(cg_kept_room(&a), CG_MCP_MAX_KEPT_BYTES);
        OK(cg_kept_add(&a, 1, dup(0), CG_MCP_MAX_KEPT_BYTES - 10, &err));
        assert_int_equal(cg_kept_room(&a), 10);
        FAILS(CG_E_LIMIT, "", cg_kept_add(&a, 2, dup(0), 11, &err));
        assert_false(cg_kept_has(&a, 2));
        assert_int_equal(cg_kept_room(&b), CG_MCP_MAX_KEPT_BYTES);
        all.bytes += CG_MCP_MAX_ALL_KEPT_BYTES - CG_MCP_MAX_KEPT_BYTES;
        assert_int_equal(cg_kept_room(&b), 10);
        cg_kept_free(&a, 1);
        assert_int_equal(cg_kept_room(&b), CG_MCP_MAX_KEPT_BYTES);
        all.bytes = 0;
        for (unsigned i = 0; i < CG_MCP_MAX_KEPT; i++)
                OK(cg_kept_add(&a, i, dup(0), 1, &err));
        assert_int_equal(cg_kept_room(&a), 0);
        assert_int_equal(cg_kept_room(&b), CG_MCP_MAX_KEPT_BYTES);
        all.n = CG_MCP_MAX_ALL_KEPT;
        assert_int_equal(cg_kept_room(&b), 0);
        all.n = CG_MCP_MAX_KEPT;
        cg_kept_free_all(&a);
        assert_int_equal(all.n, 0);
        assert_int_equal(all.bytes, 0);
        assert_int_equal(cg_kept_room(&a), CG_MCP_MAX_KEPT_BYTES);
}

TEST(test_a_file_that_was_cut_off)
{
        struct cg_kept_sum all = { 0 };
        struct cg_kept_list list = { .all = &all };
        int fd = memfd_create("kept", MFD_CLOEXEC);
        char buf[8];

        assert_int_equal(write(fd, "1234567", 7), 7);
        OK(cg_kept_add(&list, 1, fd, 8, &err));
        OK(cg_kept_read(&list, 1, 0, 7, buf, &err));
        FAILS(CG_E_STATE, "was cut off", cg_kept_read(&list, 1, 0, 8, buf, &err));
        cg_kept_free_all(&list);
}
