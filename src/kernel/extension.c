/*
 * The extension module of a Python wheel: `_cellgate`, and the zygote as a function of it. The
 * interpreter of the kernels' environment loads it; python_stubs/cellgate_kernel/__main__.py.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <locale.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include "kernel/module.h"
#include "kernel/program.h"
#include "kernel/python.h"

/* Python runs already. */
static int start_python(const char *env, struct cg_err *err)
{
        setlocale(LC_CTYPE, "C.UTF-8");
        cg_py_track_arenas();
        return 0;
}

/* zygote(OPTIONS): never returns, unless the arguments are wrong. */
static PyObject *zygote(PyObject *self, PyObject *args)
{
        PyObject *list;
        Py_ssize_t n;
        char **argv;

        if (!PyArg_ParseTuple(args, "O!:zygote", &PyList_Type, &list))
                return NULL;
        n = PyList_GET_SIZE(list);
        argv = calloc((size_t)n + 2, sizeof(*argv));
        if (!argv)
                return PyErr_NoMemory();
        argv[0] = (char *)"cellgate-kernel";
        for (Py_ssize_t i = 0; i < n; i++) {
                argv[i + 1] = (char *)(uintptr_t)PyUnicode_AsUTF8(PyList_GET_ITEM(list, i));
                if (!argv[i + 1]) {
                        free(argv);
                        return NULL;
                }
        }
        prctl(PR_SET_NAME, argv[0]);
        cg_kernel_program((int)n + 1, argv, start_python);
}

PyMODINIT_FUNC PyInit__cellgate(void);
PyMODINIT_FUNC PyInit__cellgate(void)
{
        static PyMethodDef methods[] = { { "zygote", zygote, METH_VARARGS, NULL }, { NULL, NULL, 0, NULL } };
        PyObject *m = cg_py_module_init();

        if (m && PyModule_AddFunctions(m, methods) < 0)
                Py_CLEAR(m);
        return m;
}
