/* Explains a failure by the plan of this kernel's sandbox, which refused it. See explain.h. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "kernel/explain.h"

#include "base/util.h"
#include "sandbox/inside/access.h"
#include "sandbox/plan.h"

/*
 * Exceptions do not tell reading from writing. A path that is not hidden and is readable or absent
 * was to be written.
 */
static enum cg_access access_of(const struct cg_sandbox *plan, const char *path, int error)
{
        const char *setting;

        if (error == EROFS || error == EBUSY)
                return CG_ACCESS_WRITE;
        if (cg_access_explain(plan, CG_ACCESS_READ, path, error, false, &setting))
                return CG_ACCESS_READ;
        if (access(path, R_OK) == 0 || (error != ENOENT && errno == ENOENT))
                return CG_ACCESS_WRITE;
        return CG_ACCESS_READ;
}

static PyObject *result(const struct cg_sandbox *plan, enum cg_access_rule rule, const char *operation,
                        const char *setting, const char *path)
{
        struct cg_access_words w;
        PyObject *where = PyUnicode_DecodeUTF8(path, (Py_ssize_t)strlen(path), "replace"), *r = NULL;

        cg_access_words(rule, setting, path, cg_access_by_settings(plan), &w);
        if (where)
                r = Py_BuildValue("{s:s, s:s, s:z, s:O, s:s, s:z}", "operation", operation, "rule",
                                  cg_access_rule_name(rule), "setting", setting, "path", where, "why", w.why,
                                  "how", w.how);
        Py_XDECREF(where);
        return r;
}

PyObject *cg_py_hidden(const struct cg_sandbox *plan)
{
        PyObject *list = PyList_New(0), *name;
        bool failed = !list;

        for (size_t i = 0; plan && !plan->set.off && i < plan->n_mounts && !failed; i++) {
                const struct cg_plan_mount *m = &plan->mounts[i];

                if (m->kind != CG_PLAN_COVER && m->kind != CG_PLAN_HIDE && m->kind != CG_PLAN_EMPTY)
                        continue;
                name = PyUnicode_DecodeFSDefault(strrchr(m->path, '/') + 1);
                failed = !name || PyList_Append(list, name) < 0;
                Py_XDECREF(name);
        }
        if (failed)
                Py_CLEAR(list);
        return list;
}

static int on_audit(const char *event, PyObject *args, void *reader)
{
        static const char *const reads[] = { "open", "os.listdir", "os.scandir" };
        PyThreadState *thread;
        PyObject *r;
        size_t i = 0;

        while (i < CG_ARRAY_LEN(reads) && strcmp(event, reads[i]) != 0)
                i++;
        if (i == CG_ARRAY_LEN(reads))
                return 0;
        thread = PyThreadState_Get();
        /* @reader belongs to the main interpreter. */
        if (PyThreadState_GetInterpreter(thread) != PyInterpreterState_Main())
                return 0;
        PyThreadState_EnterTracing(thread); /* as for hooks of Python: no debugger stops there */
        r = PyObject_CallFunction(reader, "sO", event, args);
        PyThreadState_LeaveTracing(thread);
        Py_XDECREF(r);
        return r ? 0 : -1;
}

PyObject *cg_py_watch_reads(PyObject *reader)
{
        if (PySys_AddAuditHook(on_audit, Py_NewRef(reader)) < 0)
                return NULL;
        Py_RETURN_NONE;
}

PyObject *cg_py_explain(const struct cg_sandbox *plan, PyObject *args)
{
        const char *operation, *path, *setting = NULL;
        char real[PATH_MAX];
        enum cg_access_rule rule;
        int error, access;

        if (!PyArg_ParseTuple(args, "syi:explain", &operation, &path, &error))
                return NULL;
        if (!plan)
                Py_RETURN_NONE;
        if (strcmp(operation, "network-outbound") == 0) {
                rule = cg_access_explain_network(plan);
                return rule ? result(plan, rule, operation, NULL, path) : Py_NewRef(Py_None);
        }
        if (strcmp(operation, "socket") == 0) {
                rule = cg_access_explain_network(plan) ? CG_ACCESS_UNIX_SOCKETS : CG_ACCESS_NONE;
                return rule ? result(plan, rule, operation, NULL, path) : Py_NewRef(Py_None);
        }
        if (strcmp(operation, "home") == 0) {
                if (!cg_access_hidden_in_home(plan, path, real))
                        Py_RETURN_NONE;
                return result(plan, CG_ACCESS_CREDENTIALS, cg_access_operation(CG_ACCESS_READ), NULL, real);
        }
        if (!cg_access_resolve(path, real))
                Py_RETURN_NONE;
        access = cg_access_of_operation(operation);
        if (access < 0)
                access = (int)access_of(plan, real, error);
        rule = cg_access_explain(plan, (enum cg_access)access, real, error, geteuid() == 0, &setting);
        if (!rule)
                Py_RETURN_NONE;
        return result(plan, rule, cg_access_operation((enum cg_access)access), setting, real);
}
