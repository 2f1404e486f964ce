/* Shared by the functions of `_cellgate`: the current cell, errors, waits. Kernel process. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "kernel/module_int.h"

uint64_t cg_py_current_cell(PyObject *module)
{
        PyObject *v = NULL;
        unsigned long long cell;

        if (PyContextVar_Get(cg_py_state(module)->cell, NULL, &v) < 0 || !v) {
                PyErr_Clear();
                return CG_IO_RUNNING;
        }
        cell = PyLong_AsUnsignedLongLong(v);
        if (cell == (unsigned long long)-1 && PyErr_Occurred())
                PyErr_Clear(); /* user code has set the variable to something else */
        Py_DECREF(v);
        return cell;
}

struct cg_io *cg_py_need_io(PyObject *module, const char *what)
{
        struct cg_io *io = cg_py_io(module);

        if (!io)
                PyErr_Format(PyExc_RuntimeError, "%s: the kernel is not running yet", what);
        else if (cg_io_forked(io))
                PyErr_Format(PyExc_RuntimeError,
                             "%s does not work in a forked process: do it in the process that runs the cell",
                             what);
        else
                return io;
        return NULL;
}

PyObject *cg_py_raise(const struct cg_err *err)
{
        PyObject *type = PyExc_RuntimeError;

        if (err->code == CG_E_LIMIT)
                type = PyExc_ValueError;
        else if (err->code == CG_E_NOMEM)
                type = PyExc_MemoryError;
        PyErr_SetString(type, err->msg);
        return NULL;
}

int cg_py_wait_done(struct cg_io *io, struct cg_wait *w)
{
        for (;;) {
                int r;

                Py_BEGIN_ALLOW_THREADS
                r = cg_wait_once(w);
                Py_END_ALLOW_THREADS
                /* also when @w is done: an interrupt must not be left for the caller's next wait */
                if (PyErr_CheckSignals() < 0) /* the main thread's signal handlers */
                        return -1;
                if (cg_io_take_subshell_interrupt(io)) {
                        PyErr_SetNone(PyExc_KeyboardInterrupt);
                        return -1;
                }
                if (r == 0)
                        return 0;
        }
}

/* Takes @w; NULL: it could not be made, as *err says. */
static int wait_for(struct cg_io *io, struct cg_wait *w, const struct cg_err *err)
{
        int r;

        if (!w) {
                cg_py_raise(err);
                return -1;
        }
        r = cg_py_wait_done(io, w);
        cg_wait_free(w);
        return r;
}

int cg_py_wait_room(struct cg_io *io)
{
        struct cg_err err;

        return wait_for(io, cg_io_wait_room(io, &err), &err);
}

int cg_py_flush(struct cg_io *io)
{
        struct cg_err err;
        uint64_t mark;

        return cg_io_flush(io, &mark) ? 0 : wait_for(io, cg_io_wait_sent(io, mark, &err), &err);
}
