/* `_cellgate.explain()`: the sandbox rule that caused an exception. Needs the GIL. */
#pragma once

#include <Python.h>

struct cg_sandbox;

/* See _cellgate.pyi. @plan NULL: nothing is explained. */
PyObject *cg_py_explain(const struct cg_sandbox *plan, PyObject *args);
PyObject *cg_py_hidden(const struct cg_sandbox *plan);
PyObject *cg_py_watch_reads(PyObject *reader);
