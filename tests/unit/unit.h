/*
 * Shared by the unit tests: cmocka, the headers that most of them need, tests that register
 * themselves (TEST(name) { ... }, run in their order in the file), calls that fill a struct cg_err,
 * and a folder for a test's files.
 */
#pragma once

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>
#include "base/fd.h"
#include "base/json.h"
#include "base/util.h"

enum { CG_FIRST_TEST = __COUNTER__ + 1, CG_MAX_TESTS = 100 };
static struct CMUnitTest cg_tests[CG_MAX_TESTS];
static size_t cg_n_tests;
/* The program's argument: cases.h. */
__attribute__((unused)) static const char *cg_cases_path;
static char *cg_cases_text;

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

/* The case of a loop over cases (cases.h) that has not ended: where a test fails, its case. */
static char cg_case_now[400];

static inline void cg_case_report(void)
{
        if (cg_case_now[0])
                print_error("the case was %s\n", cg_case_now);
        cg_case_now[0] = '\0';
}

/* Runs them between @setup and @teardown. */
static inline int cg_run_tests(CMFixtureFunction setup, CMFixtureFunction teardown)
{
        int r = _cmocka_run_group_tests("tests", cg_tests, cg_n_tests, setup, teardown);

        cg_case_report();
        free(cg_cases_text);
        return r;
}

/*
 * Rounds of a long loop: @n; under valgrind (scripts/run_tests.py sets CG_VALGRIND), where a round
 * takes thirty times as long, as few as still run every line.
 */
static inline size_t rounds(size_t n, size_t valgrind)
{
        return getenv("CG_VALGRIND") ? valgrind : n;
}

/* The call, which may fill the macro's own "err", returns 0. */
#define OK(...) \
        do { \
                struct cg_err err = { .msg = "" }; \
                if ((__VA_ARGS__) != 0) \
                        fail_msg("%s: %s", #__VA_ARGS__, err.msg); \
        } while (0)

enum { ANY_ERROR };

/* The call returns @code (ANY_ERROR: any failure), and @text is in the message. */
#define FAILS(code, text, ...) \
        do { \
                struct cg_err err = { .msg = "" }; \
                int cg_got = (__VA_ARGS__), cg_want = (code); \
                if (cg_want == ANY_ERROR ? cg_got >= 0 : cg_got != cg_want) \
                        fail_msg("%s: %d, not %s: %s", #__VA_ARGS__, cg_got, #code, err.msg); \
                if (!strstr(err.msg, text)) \
                        fail_msg("%s: \"%s\" is not in \"%s\"", #__VA_ARGS__, text, err.msg); \
        } while (0)

/* ---- a folder of its own for each test: TEST_WITH(name, enter_folder, leave_folder) */

static char test_dir[32];

static inline int enter_folder(void **state)
{
        strcpy(test_dir, "/tmp/cg-test-XXXXXX");
        return mkdtemp(test_dir) ? 0 : -1;
}

static inline int leave_folder(void **state)
{
        return cg_remove_tree(test_dir, NULL);
}

/* The path of @name in it, until the fourth call from now. */
static inline const char *path_in(const char *name)
{
        static char paths[4][PATH_MAX];
        static unsigned next;
        char *path = paths[next++ % 4];

        assert_true(snprintf(path, PATH_MAX, "%s/%s", test_dir, name) < PATH_MAX);
        return path;
}

static inline void write_file(const char *path, const char *text)
{
        FILE *f = fopen(path, "we");

        assert_non_null(f);
        assert_true(fputs(text, f) >= 0);
        assert_int_equal(fclose(f), 0);
}

static inline void make_folders(const char *path)
{
        OK(cg_make_dirs(path, 0700, &err));
}

#ifndef CG_OWN_MAIN
int main(int argc, char **argv)
{
        cg_cases_path = argc > 1 ? argv[1] : NULL;
        return cg_run_tests(NULL, NULL);
}
#endif
