/* cmocka, and tests that register themselves: TEST(name) { ... }, in their order in the file. */
#ifndef CG_TEST_UNIT_H
#define CG_TEST_UNIT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

enum { CG_FIRST_TEST = __COUNTER__ + 1, CG_MAX_TESTS = 100 };
static struct CMUnitTest cg_tests[CG_MAX_TESTS];
static size_t cg_n_tests;

#define TEST(test) TEST_AT(__COUNTER__ - CG_FIRST_TEST, test, NULL, NULL)
/* @setup and @teardown run before and after it. */
#define TEST_WITH(test, setup, teardown) TEST_AT(__COUNTER__ - CG_FIRST_TEST, test, setup, teardown)
#define TEST_AT(at, test, setup, teardown) \
        static void test(void **state); \
        __attribute__((constructor)) static void register_##test(void) \
        { \
                _Static_assert((at) < CG_MAX_TESTS, "more tests than there are places"); \
                cg_tests[at] = (struct CMUnitTest){ #test, test, setup, teardown, NULL }; \
                cg_n_tests++; \
        } \
        static void test(__attribute__((unused)) void **state)

/* Runs them between @setup and @teardown. */
static inline int cg_run_tests(CMFixtureFunction setup, CMFixtureFunction teardown)
{
        return _cmocka_run_group_tests("tests", cg_tests, cg_n_tests, setup, teardown);
}

#ifndef CG_OWN_MAIN
int main(void)
{
        return cg_run_tests(NULL, NULL);
}
#endif

#endif
