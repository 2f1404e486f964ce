/*
 * Internals of the module `_cellgate`. module.c: its definition, interrupts, helpers;
 * module_output.c: streams and display; module_requests.c: requests, replies, the control shell;
 * module_calls.c: input and tool calls; module_util.c: what they all use. Functions need the GIL.
 */
#pragma once

#include <Python.h>
#include "kernel/io.h"
#include "kernel/module.h"

/* Processes that a cell forked write whole lines, so that those of several do not mix. */
struct line {
        size_t len;
        char data[PIPE_BUF];
};

struct cg_py_state {
        struct cg_io *io;
        const struct cg_sandbox *plan;
        PyObject *cell;    /* context variable: the cell that started this code */
        PyObject *control; /* handles requests of the control shell */
        struct line lines[2];
};

static inline struct cg_py_state *cg_py_state(PyObject *module)
{
        return PyModule_GetState(module);
}

/* NULL: the module is not attached yet. */
static inline struct cg_io *cg_py_io(PyObject *module)
{
        return cg_py_state(module)->io;
}

/* NULL with an exception: not attached, or in a forked process, where @what does not work. */
struct cg_io *cg_py_need_io(PyObject *module, const char *what);
/* The cell that the caller's output belongs to, or CG_IO_RUNNING. */
uint64_t cg_py_current_cell(PyObject *module);
/* Sets the exception and returns NULL. */
PyObject *cg_py_raise(const struct cg_err *err);
/* Waits with the GIL released and runs signal handlers. -1 with an exception: interrupted. */
int cg_py_wait_done(struct cg_io *io, struct cg_wait *w);
int cg_py_wait_room(struct cg_io *io);
/* Sends all output so far, waiting for room in the socket. -1 with an exception: interrupted. */
int cg_py_flush(struct cg_io *io);

/* Raw frames after the first, with references to their Python objects. */
struct buffers {
        Py_ssize_t n;
        Py_buffer views[CG_MAX_FRAMES];
        struct cg_bytes bytes[CG_MAX_FRAMES];
};

/* From a tuple or list of objects with contiguous bytes. -1 with an exception. */
int cg_py_buffers_take(struct buffers *b, PyObject *seq);
void cg_py_buffers_release(struct buffers *b);

/* The functions of each file. */
extern PyMethodDef cg_py_output[], cg_py_requests[], cg_py_calls[];
/* Adds a class to the module. -1 with an exception. */
int cg_py_add_calls(PyObject *module);
