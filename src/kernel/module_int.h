/*
 * What the parts of the module `_cellgate` share. module.c makes it; module_output.c has what a
 * cell writes and shows, module_requests.c the requests, their replies and the control shell,
 * module_calls.c what a cell asks of the outside. Functions need the GIL.
 */
#ifndef CG_KERNEL_MODULE_INT_H
#define CG_KERNEL_MODULE_INT_H

#include <Python.h>
#include <limits.h>
#include "kernel/io.h"
#include "kernel/module.h"

/*
 * In a process that the cell forked, a line is one write: lines of several such processes do not
 * mix.
 */
struct line {
        size_t len;
        char data[PIPE_BUF];
};

struct cg_py_state {
        struct cg_io *io;
        const struct cg_sandbox *plan;
        PyObject *cell;    /* context variable: the cell that this code was started by */
        PyObject *control; /* serves requests of the control shell */
        struct line lines[2];
};

static inline struct cg_py_state *cg_py_state(PyObject *module)
{
        return PyModule_GetState(module);
}

/* NULL: attached to nothing yet. */
static inline struct cg_io *cg_py_io(PyObject *module)
{
        return cg_py_state(module)->io;
}

/* For functions that need a living kernel: NULL with an exception set where there is none. */
struct cg_io *cg_py_need_io(PyObject *module, const char *what);
/* Whose output the caller's is. */
uint64_t cg_py_current_cell(PyObject *module);
/* NULL, with the exception. */
PyObject *cg_py_raise(const struct cg_err *err);
/*
 * Waits with the GIL released; signal handlers run meanwhile. -1 with an exception when one of them
 * raises.
 */
int cg_py_wait_done(struct cg_io *io, struct cg_wait *w);
int cg_py_wait_room(struct cg_io *io);

/* Raw frames after the first, held as long as they are used. */
struct buffers {
        Py_ssize_t n;
        Py_buffer views[CG_MAX_FRAMES];
        struct cg_bytes bytes[CG_MAX_FRAMES];
};

/* From a tuple or list of objects with contiguous bytes. -1 with an exception. */
int cg_py_buffers_take(struct buffers *b, PyObject *seq);
void cg_py_buffers_release(struct buffers *b);

/* Each file's functions, added to the module. -1 with an exception. */
int cg_py_add_output(PyObject *module);
int cg_py_add_requests(PyObject *module);
int cg_py_add_calls(PyObject *module);

#endif
