/*
 * The built-in module `_cellgate`: its definition, the running cell, interrupts and some helpers.
 * Runs in the kernel process, and without a connection in the zygote. Other files: module_int.h.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "kernel/module_int.h"

#include <signal.h>

#include "base/base64.h"
#include "base/buf.h"
#include "base/json_text.h"
#include "kernel/crash.h"
#include "kernel/explain.h"
#include "kernel/procs.h"
#include "kernel/pyjson.h"

/* ------------------------------------------------------------------ running cells, interrupts */

static PyObject *m_current_cell(PyObject *module, PyObject *unused)
{
        struct cg_io *io = cg_py_io(module);
        uint64_t cell = cg_py_current_cell(module);

        if (cell == CG_IO_RUNNING)
                cell = io && !cg_io_forked(io) ? cg_io_running(io) : 0;
        return PyLong_FromUnsignedLongLong(cell);
}

static PyObject *m_set_running(PyObject *module, PyObject *number)
{
        struct cg_io *io = cg_py_io(module);
        unsigned long long cell = PyLong_AsUnsignedLongLong(number);

        if (cell == (unsigned long long)-1 && PyErr_Occurred())
                return NULL;
        if (io && !cg_io_forked(io))
                cg_io_set_running(io, cell);
        Py_RETURN_NONE;
}

static PyObject *m_may_ask(PyObject *module, PyObject *unused)
{
        struct cg_io *io = cg_py_io(module);

        return PyBool_FromLong(io && !cg_io_forked(io) && cg_io_may_ask(io, cg_py_current_cell(module)));
}

/*
 * Raises KeyboardInterrupt in the thread of a subshell's cell, in Python code or in a wait. Child
 * processes are interrupted after that: otherwise a subprocess.run() could return first, and the
 * cell would go on. The GIL is held throughout.
 */
static PyObject *m_interrupt_subshell(PyObject *module, PyObject *args)
{
        struct cg_io *io = cg_py_need_io(module, "interrupt_subshell");
        struct cg_io_target target;
        unsigned long long cell;

        if (!io || !PyArg_ParseTuple(args, "K:interrupt_subshell", &cell))
                return NULL;
        if (!cg_io_interrupt_subshell(io, cell, &target))
                Py_RETURN_FALSE;
        if (!target.waits)
                PyThreadState_SetAsyncExc((unsigned long)target.thread, PyExc_KeyboardInterrupt);
        /* not if other cells run: the children may be theirs */
        if (target.began)
                cg_procs_interrupt(target.began);
        Py_RETURN_TRUE;
}

/* Calls the debugger's hook, if any: it has to run before the stopped cell is left. */
static void call_before_interrupt(PyObject *module)
{
        PyObject *func = PyObject_GetAttrString(module, "before_interrupt"), *r = NULL;

        if (func && func != Py_None)
                r = PyObject_CallNoArgs(func);
        Py_XDECREF(func);
        Py_XDECREF(r);
        PyErr_Clear();
}

/*
 * True if the loop that runs the cell interrupts it without an exception in its own code. Not
 * traced: no debugger stops in the function, and a traced one of Python 3.11 may never begin here.
 */
static bool interrupts_in_loop(PyObject *module, PyObject *args)
{
        PyObject *func = PyObject_GetAttrString(module, "interrupt_in_loop"), *r = NULL;
        bool done;

        if (func && func != Py_None) {
                PyThreadState_EnterTracing(PyThreadState_Get());
                r = PyObject_CallObject(func, args);
                PyThreadState_LeaveTracing(PyThreadState_Get());
        }
        done = r == Py_True;
        Py_XDECREF(func);
        Py_XDECREF(r);
        PyErr_Clear();
        return done;
}

/* The handler of SIGINT. In C, so that tracebacks show the cell and not the handler. */
static PyObject *m_on_sigint(PyObject *module, PyObject *args)
{
        struct cg_io *io = cg_py_io(module);

        if (io && (cg_io_forked(io) || cg_io_take_interrupt(io))) {
                call_before_interrupt(module);
                if (!cg_io_forked(io) && interrupts_in_loop(module, args))
                        Py_RETURN_NONE;
                PyErr_SetNone(PyExc_KeyboardInterrupt);
                return NULL;
        }
        Py_RETURN_NONE;
}

/*
 * sys.unraisablehook. Python ignores an interrupt in a destructor or in the callback of a weak
 * reference: it is raised again, in the code that called those. In C, because a signal handler runs
 * at the next opportunity, which is in this function if it is one of Python.
 */
static PyObject *m_on_unraisable(PyObject *module, PyObject *unraisable)
{
        struct cg_io *io = cg_py_io(module);
        PyObject *type = PyObject_GetAttrString(unraisable, "exc_type"), *hook;
        bool interrupt = type && PyErr_GivenExceptionMatches(type, PyExc_KeyboardInterrupt), subshell;

        Py_XDECREF(type);
        PyErr_Clear();
        if (interrupt && io && !cg_io_forked(io) && cg_io_repeat_interrupt(io, &subshell)) {
                if (subshell)
                        PyThreadState_SetAsyncExc(PyThread_get_thread_ident(), PyExc_KeyboardInterrupt);
                else
                        PyErr_SetInterruptEx(SIGINT);
                Py_RETURN_NONE;
        }
        hook = PySys_GetObject("__unraisablehook__"); /* borrowed */
        if (!hook)
                Py_RETURN_NONE;
        return PyObject_CallOneArg(hook, unraisable);
}

static PyObject *m_forked(PyObject *module, PyObject *unused)
{
        struct cg_io *io = cg_py_io(module);

        return PyBool_FromLong(io && cg_io_forked(io));
}

static PyObject *m_exit(PyObject *module, PyObject *args)
{
        struct cg_io *io = cg_py_io(module);
        int status;

        if (!PyArg_ParseTuple(args, "i:exit", &status))
                return NULL;
        if (!io)
                _exit(status);
        cg_io_exit(io, status);
}

static PyObject *m_crash_fd(PyObject *module, PyObject *unused)
{
        return PyLong_FromLong(cg_crash_fd());
}

/* ------------------------------------------------------------------ helpers */

static PyObject *m_explain(PyObject *module, PyObject *args)
{
        return cg_py_explain(cg_py_state(module)->plan, args);
}

static PyObject *m_hidden(PyObject *module, PyObject *unused)
{
        return cg_py_hidden(cg_py_state(module)->plan);
}

static PyObject *m_watch_reads(PyObject *module, PyObject *reader)
{
        return cg_py_watch_reads(reader);
}

static PyObject *m_dumps(PyObject *module, PyObject *value)
{
        cg_auto_buf struct cg_buf b = { .max = SIZE_MAX / 2 };

        if (cg_pyjson(&b, value) < 0)
                return NULL;
        return PyUnicode_DecodeASCII(b.data, (Py_ssize_t)b.len, NULL);
}

static PyObject *m_exact(PyObject *module, PyObject *args)
{
        cg_auto_buf struct cg_buf b = { 0 };
        PyObject *value;
        unsigned levels;
        Py_ssize_t max;

        if (!PyArg_ParseTuple(args, "OnI:exact", &value, &max, &levels))
                return NULL;
        b.max = (size_t)max;
        if (!cg_pyjson_exact(&b, value, levels))
                Py_RETURN_NONE;
        return PyBytes_FromStringAndSize(b.data, (Py_ssize_t)b.len);
}

static int add_member(PyObject *members, struct cg_slice key, struct cg_slice value)
{
        cg_auto_buf struct cg_buf name = { .max = SIZE_MAX / 2 };
        PyObject *k, *v;
        struct cg_err err;
        int r;

        if (cg_json_decode(key, &name, &err) < 0)
                return cg_py_raise(&err), -1;
        k = PyUnicode_DecodeUTF8(cg_buf_str(&name), (Py_ssize_t)name.len, NULL);
        v = PyBytes_FromStringAndSize(value.p, (Py_ssize_t)value.len);
        r = k && v ? PyDict_SetItem(members, k, v) : -1;
        Py_XDECREF(k);
        Py_XDECREF(v);
        return r;
}

/* 0, or -1 with an exception. */
static int read_members(struct cg_slice text, unsigned levels, PyObject *members, size_t *digits)
{
        struct cg_slice key, value;
        struct cg_json_walk w;
        struct cg_err err;
        int r = cg_json_walk_init(&w, text, '{', &err);

        w.encodable = true;
        w.depth = levels;
        while (r == 0) {
                r = cg_json_walk_next(&w, &key, &value, &err);
                if (r == 0 && add_member(members, key, value) < 0)
                        return -1;
        }
        if (r < 0)
                return PyErr_SetString(PyExc_ValueError, err.msg), -1;
        *digits = w.digits;
        return 0;
}

static PyObject *m_members(PyObject *module, PyObject *args)
{
        PyObject *members, *ret = NULL;
        size_t digits = 0;
        unsigned levels;
        Py_buffer data;

        if (!PyArg_ParseTuple(args, "y*I:members", &data, &levels))
                return NULL;
        members = PyDict_New();
        if (members &&
            read_members((struct cg_slice){ data.buf, (size_t)data.len }, levels, members, &digits) == 0)
                ret = Py_BuildValue("(On)", members, (Py_ssize_t)digits);
        Py_XDECREF(members);
        PyBuffer_Release(&data);
        return ret;
}

static PyObject *m_b2a_base64(PyObject *module, PyObject *args, PyObject *options)
{
        static const char *const names[] = { "", "newline", NULL };
        PyObject *ret = NULL;
        Py_buffer data;
        int newline = 1;
        size_t size;

        if (!PyArg_ParseTupleAndKeywords(args, options, "y*|$p:b2a_base64", (char **)(uintptr_t)names, &data,
                                         &newline))
                return NULL;
        size = cg_base64_size((size_t)data.len);
        ret = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)size + newline);
        if (ret) {
                cg_base64(PyBytes_AS_STRING(ret), data.buf, (size_t)data.len);
                if (newline)
                        PyBytes_AS_STRING(ret)[size] = '\n';
        }
        PyBuffer_Release(&data);
        return ret;
}

/* MurmurHash2 by Austin Appleby (public domain). Front-ends use it for the file names of cells. */
static uint32_t murmur2(const unsigned char *p, size_t len, uint32_t seed)
{
        const uint32_t m = 0x5bd1e995;
        uint32_t h = seed ^ (uint32_t)len;

        for (; len >= 4; p += 4, len -= 4) {
                uint32_t k = (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 |
                             (uint32_t)p[3] << 24;

                k *= m;
                k = (k ^ (k >> 24)) * m;
                h = (h * m) ^ k;
        }
        for (size_t i = len; i > 0; i--)
                h ^= (uint32_t)p[i - 1] << (8 * (i - 1));
        if (len)
                h *= m;
        h = (h ^ (h >> 13)) * m;
        return h ^ (h >> 15);
}

static PyObject *m_murmur2(PyObject *module, PyObject *args)
{
        Py_buffer data;
        unsigned int seed;
        uint32_t h;

        if (!PyArg_ParseTuple(args, "y*I:murmur2", &data, &seed))
                return NULL;
        h = murmur2(data.buf, (size_t)data.len, seed);
        PyBuffer_Release(&data);
        return PyLong_FromUnsignedLong(h);
}

/* ------------------------------------------------------------------ the module */

static PyMethodDef methods[] = {
        { "explain", m_explain, METH_VARARGS, NULL },
        { "hidden", m_hidden, METH_NOARGS, NULL },
        { "watch_reads", m_watch_reads, METH_O, NULL },
        { "dumps", m_dumps, METH_O, NULL },
        { "exact", m_exact, METH_VARARGS, NULL },
        { "members", m_members, METH_VARARGS, NULL },
        { "b2a_base64", (PyCFunction)(void (*)(void))m_b2a_base64, METH_VARARGS | METH_KEYWORDS, NULL },
        { "murmur2", m_murmur2, METH_VARARGS, NULL },
        { "interrupt_subshell", m_interrupt_subshell, METH_VARARGS, NULL },
        { "current_cell", m_current_cell, METH_NOARGS, NULL },
        { "set_running", m_set_running, METH_O, NULL },
        { "may_ask", m_may_ask, METH_NOARGS, NULL },
        { "on_sigint", m_on_sigint, METH_VARARGS, NULL },
        { "on_unraisable", m_on_unraisable, METH_O, NULL },
        { "forked", m_forked, METH_NOARGS, NULL },
        { "exit", m_exit, METH_VARARGS, NULL },
        { "crash_fd", m_crash_fd, METH_NOARGS, NULL },
        { NULL, NULL, 0, NULL },
};

static struct PyModuleDef module_def = {
        .m_base = PyModuleDef_HEAD_INIT,
        .m_name = "_cellgate",
        .m_size = sizeof(struct cg_py_state),
        .m_methods = methods,
};

PyObject *cg_py_module_init(void)
{
        PyObject *m = PyModule_Create(&module_def);

        if (!m)
                return NULL;
        cg_py_state(m)->cell = PyContextVar_New("cellgate_cell", NULL);
        if (!cg_py_state(m)->cell || PyModule_AddObjectRef(m, "cell", cg_py_state(m)->cell) < 0 ||
            PyModule_AddObjectRef(m, "before_interrupt", Py_None) < 0 ||
            PyModule_AddObjectRef(m, "interrupt_in_loop", Py_None) < 0 ||
            PyModule_AddFunctions(m, cg_py_output) < 0 || PyModule_AddFunctions(m, cg_py_requests) < 0 ||
            PyModule_AddFunctions(m, cg_py_calls) < 0 || cg_py_add_calls(m) < 0)
                Py_CLEAR(m);
        return m;
}

void cg_py_module_attach(PyObject *module, struct cg_io *io, const struct cg_sandbox *plan)
{
        cg_py_state(module)->io = io;
        cg_py_state(module)->plan = plan;
}
