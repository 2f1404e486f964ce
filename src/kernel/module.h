/*
 * The built-in module `_cellgate`: what the Python side of a kernel calls. Its functions are
 * described in _cellgate.pyi.
 */
#ifndef CG_KERNEL_MODULE_H
#define CG_KERNEL_MODULE_H

#include <Python.h>

struct cg_io;
struct cg_sandbox;

PyObject *cg_py_module_init(void);
/*
 * From now on the module's functions act on @io and know the sandbox's @plan (borrows). Until then
 * output vanishes and requests are errors.
 */
void cg_py_module_attach(PyObject *module, struct cg_io *io, const struct cg_sandbox *plan);

/*
 * Serves the control shell; @module is what was attached. The calling thread is none of Python's.
 * Does not return.
 */
void cg_py_module_control(void *module);

#endif
