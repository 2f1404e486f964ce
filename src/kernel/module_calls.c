/* Functions of `_cellgate` for input and tool calls. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "kernel/module_int.h"

#include "base/buf.h"
#include "base/json.h"

/* Waits until no other question is open, then sends this one. NULL with an exception. */
static struct cg_wait *start_input(struct cg_io *io, uint64_t cell, const char *content, size_t len)
{
        for (;;) {
                struct cg_wait *w = NULL;
                struct cg_err err;
                int r = cg_io_input(io, cell, content, len, &w, &err);

                if (r == 0)
                        return w;
                if (r < 0) {
                        cg_py_raise(&err);
                        return NULL;
                }
                r = cg_py_wait_done(io, w);
                cg_wait_free(w);
                if (r < 0)
                        return NULL;
        }
}

static PyObject *m_input(PyObject *module, PyObject *args)
{
        struct cg_io *io = cg_py_need_io(module, "input()");
        const char *content, *text;
        Py_ssize_t len;
        size_t n;
        struct cg_wait *w;
        PyObject *ret = NULL;

        if (!io || !PyArg_ParseTuple(args, "s#:input", &content, &len))
                return NULL;
        w = start_input(io, cg_py_current_cell(module), content, (size_t)len);
        if (!w)
                return NULL;
        if (cg_py_wait_done(io, w) == 0) {
                text = cg_wait_text(w, &n);
                ret = text ? PyUnicode_DecodeUTF8(text, (Py_ssize_t)n, "replace") : Py_NewRef(Py_None);
        }
        cg_wait_free(w);
        return ret;
}

static PyObject *m_goes_on(PyObject *module, PyObject *unused)
{
        struct cg_io *io = cg_py_need_io(module, "goes_on");

        if (!io)
                return NULL;
        cg_io_goes_on(io, cg_py_current_cell(module));
        Py_RETURN_NONE;
}

static int call_body(struct cg_buf *b, const char *server, size_t server_len, const char *tool,
                     size_t tool_len, long long timeout_ms, struct cg_err *err)
{
        int r = cg_buf_adds(b, "{\"server\":", err);

        if (r == 0)
                r = cg_json_quote(b, server, server_len, err);
        if (r == 0)
                r = cg_buf_adds(b, ",\"tool\":", err);
        if (r == 0)
                r = cg_json_quote(b, tool, tool_len, err);
        if (r == 0)
                r = cg_buf_addf(b, err, ",\"timeout_ms\":%lld}", timeout_ms);
        return r;
}

/* Waits until another call is allowed, then sends this one. NULL with an exception. */
static struct cg_wait *start_call(struct cg_io *io, const struct cg_buf *body, const Py_buffer *args)
{
        for (;;) {
                struct cg_wait *w = NULL;
                struct cg_err err;
                int r = cg_io_call(io, body->data, body->len, args->buf, (size_t)args->len, &w, &err);

                if (r == 0)
                        return w;
                if (r < 0) {
                        cg_py_raise(&err);
                        return NULL;
                }
                r = cg_py_wait_done(io, w);
                cg_wait_free(w);
                if (r < 0)
                        return NULL;
        }
}

static PyObject *m_tool_call(PyObject *module, PyObject *args)
{
        struct cg_io *io = cg_py_need_io(module, "a tool call");
        cg_auto_buf struct cg_buf body;
        const char *server, *tool;
        Py_ssize_t server_len, tool_len;
        Py_buffer arguments;
        long long timeout_ms;
        struct cg_err err;
        struct cg_wait *w = NULL;
        PyObject *ret = NULL;

        cg_buf_init(&body, CG_MAX_BODY);
        if (!io || !PyArg_ParseTuple(args, "s#s#y*L:tool_call", &server, &server_len, &tool, &tool_len,
                                     &arguments, &timeout_ms))
                return NULL;
        if (server_len > CG_MAX_NAME || tool_len > CG_MAX_NAME)
                PyErr_Format(PyExc_ValueError, "names of server and tool have at most %d bytes", CG_MAX_NAME);
        else if (call_body(&body, server, (size_t)server_len, tool, (size_t)tool_len, timeout_ms, &err) < 0)
                cg_py_raise(&err);
        else
                w = start_call(io, &body, &arguments);
        if (w && cg_py_wait_done(io, w) == 0) {
                const void *data;
                size_t len;
                const char *status = cg_wait_result(w, &data, &len);

                ret = Py_BuildValue("(sy#)", status, (const char *)data, (Py_ssize_t)len);
        }
        cg_wait_free(w); /* cancels a call that has no result yet */
        PyBuffer_Release(&arguments);
        return ret;
}

static PyMethodDef methods[] = {
        { "goes_on", m_goes_on, METH_NOARGS, NULL },
        { "input", m_input, METH_VARARGS, NULL },
        { "tool_call", m_tool_call, METH_VARARGS, NULL },
        { NULL, NULL, 0, NULL },
};

int cg_py_add_calls(PyObject *module)
{
        return PyModule_AddFunctions(module, methods);
}
