/* The built-in module `_cellgate`: what a kernel's Python calls. Described in _cellgate.pyi. */
#pragma once

#include <Python.h>

struct cg_io;
struct cg_sandbox;

PyObject *cg_py_module_init(void);
/*
 * From now on the module's functions use @io and the sandbox's @plan (borrows). Until then output
 * is discarded and requests are errors.
 */
void cg_py_module_attach(PyObject *module, struct cg_io *io, const struct cg_sandbox *plan);

/* Serves the control shell in the calling thread, which Python did not start. Never returns. */
void cg_py_module_control(void *module);
