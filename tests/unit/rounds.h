/* Rounds of the unit tests' long loops. scripts/run_tests.py sets CG_VALGRIND. */
#ifndef CG_TEST_ROUNDS_H
#define CG_TEST_ROUNDS_H

#include <stdlib.h>

/* @n; under valgrind, where a round takes thirty times as long, as few as still run every line. */
static inline size_t rounds(size_t n, size_t valgrind)
{
        return getenv("CG_VALGRIND") ? valgrind : n;
}

#endif
