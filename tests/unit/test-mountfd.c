/* src/sandbox/mountfd.c where the system refuses. */
#include <sys/mount.h>
#include <sys/syscall.h>

#include "sandbox/mountfd.h"
#include "unit.h"

static int refusals, refusal, calls;

long __wrap_syscall(long number, ...);
long __wrap_syscall(long number, ...)
{
        const struct mount_attr *attr;
        va_list ap;

        va_start(ap, number);
        assert_int_equal(number, SYS_mount_setattr);
        assert_int_equal(va_arg(ap, int), 7);
        assert_string_equal(va_arg(ap, const char *), "");
        assert_true(va_arg(ap, unsigned int) & AT_RECURSIVE);
        attr = va_arg(ap, const struct mount_attr *);
        assert_int_equal(attr->attr_set, MOUNT_ATTR_RDONLY);
        assert_int_equal(va_arg(ap, size_t), sizeof(*attr));
        va_end(ap);
        calls++;
        if (refusals-- <= 0)
                return 0;
        errno = refusal;
        return -1;
}

static int set(int n, int error)
{
        refusals = n;
        refusal = error;
        calls = 0;
        return cg_mount_set(7, MOUNT_ATTR_RDONLY, true);
}

TEST(test_a_write_that_is_under_way_is_waited_for)
{
        assert_int_equal(set(3, EBUSY), 0);
        assert_int_equal(calls, 4);
}

TEST(test_other_refusals_are_final)
{
        assert_int_equal(set(3, EPERM), -1);
        assert_int_equal(errno, EPERM);
        assert_int_equal(calls, 1);
}

TEST(test_nothing_is_waited_for_for_ever)
{
        assert_int_equal(set(1000000, EBUSY), -1);
        assert_int_equal(errno, EBUSY);
}
