/*
 * cellgate-kernel: the zygote, and by fork every kernel. Started by the supervisor with a clean
 * environment, its control socket at descriptor 3 and its log at 2. The only program that links
 * libpython; in a Python wheel an interpreter loads the extension module (extension.c) instead.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <locale.h>
#include <signal.h>
#include "base/util.h"
#include "config.h"
#include "kernel/module.h"
#include "kernel/program.h"
#include "kernel/python.h"

static int fail_status(struct cg_err *err, PyStatus status)
{
        if (status.func)
                return cg_fail(err, CG_E_STATE, "cannot start Python: %s: %s", status.func,
                               status.err_msg ?: "it exits at once");
        return cg_fail(err, CG_E_STATE, "cannot start Python: %s", status.err_msg ?: "it exits at once");
}

static int pre_init(struct cg_err *err)
{
        PyPreConfig pre;
        PyStatus st;

        PyPreConfig_InitIsolatedConfig(&pre);
        /* files and names are UTF-8, although the locale of the clean environment is "C" */
        pre.utf8_mode = 1;
        st = Py_PreInitialize(&pre);
        if (PyStatus_Exception(st))
                return fail_status(err, st);
        return 0;
}

/*
 * From the environment @env, with cellgate's modules on sys.path; ignores environment variables and
 * the user site. __main__.py does the same in a wheel: whatever is changed here is changed there.
 */
static int start_python(const char *env, struct cg_err *err)
{
        cg_auto_free char *python = NULL;
        PyObject *path, *dir;
        PyConfig c;
        PyStatus st;
        int r;

        if (cg_asprintf(&python, "Python", err, "%s/bin/python", env) < 0)
                return -1;
        setlocale(LC_CTYPE, "C.UTF-8");
        cg_py_track_arenas();
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
        r = path && dir ? PyList_Insert(path, 0, dir) : -1;
        Py_XDECREF(dir);
        if (r < 0)
                return cg_py_fail(err, "sys.path");
        return cg_py_check_path(err);
}

int main(int argc, char **argv)
{
        cg_kernel_program(argc, argv, start_python);
}
