/*
 * `_cellgate.explain()`: which rule of the sandbox an exception comes from. Kernel process, with
 * the GIL.
 */
#ifndef CG_KERNEL_EXPLAIN_H
#define CG_KERNEL_EXPLAIN_H

#include <Python.h>

struct cg_sandbox;

/* See _cellgate.pyi. @plan NULL: nothing is explained. */
PyObject *cg_py_explain(const struct cg_sandbox *plan, PyObject *args);

#endif
