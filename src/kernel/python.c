/*
 * The embedded interpreter: its configuration, and calls into the package cellgate_kernel. Zygote
 * and kernel process.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "kernel/python.h"

#include <locale.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include "base/util.h"
#include "config.h"
#include "kernel/io.h"
#include "kernel/module.h"

/* ------------------------------------------------------------------ errors */

/* Turns the current exception into an error and clears it. */
static int fail_python(struct cg_err *err, const char *what)
{
        PyObject *type, *value, *tb, *text = NULL;
        const char *s = NULL;

        PyErr_Fetch(&type, &value, &tb);
        PyErr_NormalizeException(&type, &value, &tb);
        if (value)
                text = PyObject_Str(value);
        if (text)
                s = PyUnicode_AsUTF8(text);
        cg_fail(err, CG_E_STATE, "%s: %s: %s", what, type ? ((PyTypeObject *)type)->tp_name : "?",
                s ? s : "?");
        Py_XDECREF(text);
        Py_XDECREF(type);
        Py_XDECREF(value);
        Py_XDECREF(tb);
        PyErr_Clear();
        return CG_E_STATE;
}

static int fail_status(struct cg_err *err, PyStatus status)
{
        return cg_fail(err, CG_E_STATE, "cannot start Python: %s%s%s", status.func ? status.func : "",
                       status.func ? ": " : "", status.err_msg ? status.err_msg : "it exits at once");
}

/* ------------------------------------------------------------------ start */

static int pre_init(struct cg_err *err)
{
        PyPreConfig pre;
        PyStatus st;

        PyPreConfig_InitIsolatedConfig(&pre);
        /* files and names are UTF-8, although the locale of the clean environment is "C" */
        pre.utf8_mode = 1;
#ifdef __SANITIZE_ADDRESS__
        /* the sanitizer does not see errors inside of a memory pool */
        pre.allocator = PYMEM_ALLOCATOR_MALLOC;
#endif
        st = Py_PreInitialize(&pre);
        return PyStatus_Exception(st) ? fail_status(err, st) : 0;
}

int cg_py_init(const char *env, struct cg_err *err)
{
        cg_auto_free char *python = NULL;
        PyObject *path, *dir;
        PyConfig c;
        PyStatus st;
        int r;

        if (asprintf(&python, "%s/bin/python", env) < 0) {
                python = NULL;
                return cg_fail(err, CG_E_NOMEM, "Python");
        }
        setlocale(LC_CTYPE, "C.UTF-8");
        signal(SIGINT, SIG_IGN); /* the host handles Ctrl-C at its terminal */
        r = pre_init(err);
        if (r < 0)
                return r;
        if (PyImport_AppendInittab("_cellgate", cg_py_module_init) < 0)
                return cg_fail(err, CG_E_NOMEM, "module _cellgate");
        PyConfig_InitIsolatedConfig(&c);
        c.site_import = 1;
        /* The interpreter derives the paths of its libraries from the name of the program. */
        st = PyConfig_SetBytesString(&c, &c.program_name, python);
        if (!PyStatus_Exception(st))
                st = PyConfig_SetBytesString(&c, &c.executable, python);
        if (!PyStatus_Exception(st))
                st = Py_InitializeFromConfig(&c);
        PyConfig_Clear(&c);
        if (PyStatus_Exception(st))
                return fail_status(err, st);
        path = PySys_GetObject("path"); /* borrowed */
        dir = PyUnicode_DecodeFSDefault(CG_PYTHONDIR);
        r = path && dir ? PyList_Append(path, dir) : -1;
        Py_XDECREF(dir);
        return r < 0 ? fail_python(err, "sys.path") : 0;
}

/* ------------------------------------------------------------------ calls */

/* Calls cellgate_kernel.MODULE.FUNCTION(text or None). New reference, or NULL with *err filled. */
static PyObject *call(const char *module, const char *function, const char *text, Py_ssize_t len,
                      struct cg_err *err)
{
        PyObject *m = PyImport_ImportModule(module), *ret = NULL;

        if (m && text)
                ret = PyObject_CallMethod(m, function, "s#", text, len);
        else if (m)
                ret = PyObject_CallMethod(m, function, NULL);
        Py_XDECREF(m);
        if (!ret)
                fail_python(err, module);
        return ret;
}

int cg_py_prepare(const char *preload, struct cg_py_versions *ret, struct cg_err *err)
{
        const char *list = preload ? preload : "", *python, *ipython;
        PyObject *checked = call("cellgate_kernel.environment", "check", NULL, 0, err), *versions;
        int r = 0;

        Py_XDECREF(checked);
        versions = checked ? call("cellgate_kernel.zygote", "prepare", list, (Py_ssize_t)strlen(list), err)
                           : NULL;
        if (!versions)
                return CG_E_STATE;
        if (PyArg_ParseTuple(versions, "ss", &python, &ipython)) {
                snprintf(ret->python, sizeof(ret->python), "%s", python);
                snprintf(ret->ipython, sizeof(ret->ipython), "%s", ipython);
        } else {
                r = fail_python(err, "cellgate_kernel.zygote.prepare");
        }
        Py_DECREF(versions);
        return r;
}

int cg_py_idle(struct cg_err *err)
{
        PyObject *more = call("cellgate_kernel.zygote", "idle", NULL, 0, err);
        int r = more ? more == Py_True : CG_E_STATE;

        Py_XDECREF(more);
        return r;
}

void cg_py_before_fork(void)
{
        PyOS_BeforeFork();
}

void cg_py_after_fork_parent(void)
{
        PyOS_AfterFork_Parent();
}

void cg_py_after_fork_child(void)
{
        PyOS_AfterFork_Child();
}

int cg_py_make_kernel(const char *config, size_t len, struct cg_err *err)
{
        PyObject *r = call("cellgate_kernel.kernel", "make", config, (Py_ssize_t)len, err);

        Py_XDECREF(r);
        return r ? 0 : CG_E_STATE;
}

int cg_py_configure(struct cg_err *err)
{
        PyObject *r = call("cellgate_kernel.kernel", "configure", NULL, 0, err);

        Py_XDECREF(r);
        return r ? 0 : CG_E_STATE;
}

int cg_py_serve(struct cg_io *io, const struct cg_sandbox *plan, struct cg_err *err)
{
        PyObject *m = PyImport_ImportModule("_cellgate"), *r;

        if (!m)
                return fail_python(err, "_cellgate");
        cg_py_module_attach(m, io, plan);
        cg_io_set_control(io, cg_py_module_control, m); /* the control thread keeps @m */
        r = call("cellgate_kernel.kernel", "serve", NULL, 0, err);
        Py_XDECREF(r);
        return r ? 0 : CG_E_STATE;
}

/* A pending call of run_handlers() waits: one is enough for all attempts. */
static atomic_bool handlers_queued;

/* A pending call: runs in the main thread. */
static int run_handlers(void *io)
{
        atomic_store(&handlers_queued, false);
        if (cg_io_forked(io))
                return 0;
        if (!cg_io_interrupt_arrived(io))
                PyErr_SetInterruptEx(SIGINT);
        return PyErr_CheckSignals();
}

void cg_py_interrupt(struct cg_io *io, bool again)
{
        if (again)
                PyErr_SetInterruptEx(SIGINT);
        /* Fails where too many calls of others wait; the next attempt tries again. */
        if (!atomic_exchange(&handlers_queued, true) && Py_AddPendingCall(run_handlers, io) < 0)
                atomic_store(&handlers_queued, false);
}
