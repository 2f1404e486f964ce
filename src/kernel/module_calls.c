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

/* The kind of a call: a tool, another request of MCP, or a function of the host. */
enum what { TOOL, METHOD, FUNCTION };

/* @name: of the tool, method or function. */
static void call_body(struct cg_buf *b, const char *server, size_t server_len, enum what what,
                      const char *name, size_t name_len, long long timeout_ms)
{
        cg_buf_adds(b, "{\"server\":");
        cg_json_quote(b, server, server_len);
        cg_buf_adds(b, what == METHOD ? ",\"method\":" : ",\"tool\":");
        cg_json_quote(b, name, name_len);
        cg_buf_addf(b, ",\"timeout_ms\":%lld}", timeout_ms);
}

/* Queues a call. @args: server, name, arguments, timeout_ms and the key. -1 with an exception. */
static int start_call(struct cg_wait *w, enum what what, PyObject *args)
{
        unsigned long long key = 1;
        cg_auto_buf struct cg_buf body;
        const char *server, *name;
        Py_ssize_t server_len, name_len;
        Py_buffer arguments;
        long long timeout_ms;
        struct cg_err err;
        int r = -1;

        cg_buf_init(&body, CG_MAX_BODY);
        if (!PyArg_ParseTuple(args, "s#s#y*L|K", &server, &server_len, &name, &name_len, &arguments,
                              &timeout_ms, &key))
                return -1;
        call_body(&body, server, (size_t)server_len, what, name, (size_t)name_len, timeout_ms);
        if (server_len > CG_MAX_NAME || name_len > CG_MAX_NAME)
                PyErr_Format(PyExc_ValueError, "names of server and tool have at most %d bytes", CG_MAX_NAME);
        else if (cg_buf_end(&body, &err) < 0 ||
                 cg_io_call(w, what == FUNCTION, key, (struct cg_bytes){ body.data, body.len },
                            (struct cg_bytes){ arguments.buf, (size_t)arguments.len }, &err) < 0)
                cg_py_raise(&err);
        else
                r = 0;
        PyBuffer_Release(&arguments);
        return r;
}

/* (status, content, kind). NULL with an exception. */
static PyObject *result_tuple(const struct cg_tool_call_result *r)
{
        struct cg_bytes content = cg_frame_bytes(r->content);

        return Py_BuildValue("(sy#s)", r->status, content.data, (Py_ssize_t)content.len, r->kind);
}

static PyObject *wait_for_call(PyObject *module, enum what what, PyObject *args)
{
        struct cg_io *io = cg_py_need_io(module, "a tool call");
        struct cg_err err;
        struct cg_wait *w;
        PyObject *ret = NULL;
        uint64_t key;

        if (!io || cg_py_flush(io) < 0)
                return NULL;
        w = cg_io_calls(io, true, &err);
        if (!w)
                return cg_py_raise(&err);
        if (start_call(w, what, args) == 0 && cg_py_wait_done(io, w) == 0) {
                struct cg_tool_call *c = cg_wait_results(w);

                ret = result_tuple(cg_tool_call_result(c, &key));
                if (!ret)
                        cg_tool_call_drop_kept(io, c);
                cg_tool_call_free(c);
        }
        cg_wait_free(w); /* cancels a call that has no result yet */
        return ret;
}

static PyObject *m_tool_call(PyObject *module, PyObject *args)
{
        return wait_for_call(module, TOOL, args);
}

static PyObject *m_mcp_request(PyObject *module, PyObject *args)
{
        return wait_for_call(module, METHOD, args);
}

static PyObject *m_function_call(PyObject *module, PyObject *args)
{
        return wait_for_call(module, FUNCTION, args);
}

/* Bytes of a kept result. */
static PyObject *m_result_read(PyObject *module, PyObject *args)
{
        struct cg_io *io = cg_py_need_io(module, "reading a result");
        unsigned long long result, offset;
        Py_ssize_t length;
        struct cg_err err;
        struct cg_wait *w;
        PyObject *ret = NULL;
        uint64_t key;

        if (!io || !PyArg_ParseTuple(args, "KKn:result_read", &result, &offset, &length))
                return NULL;
        if (length < 1 || length > (Py_ssize_t)CG_MAX_RESULT_PART || result > INT64_MAX ||
            offset > INT64_MAX) {
                PyErr_Format(PyExc_ValueError, "a part of a result has 1 to %d bytes",
                             (int)CG_MAX_RESULT_PART);
                return NULL;
        }
        w = cg_io_calls(io, true, &err);
        if (!w)
                return cg_py_raise(&err);
        if (cg_io_read_result(w, result, offset, (size_t)length, &err) < 0) {
                cg_py_raise(&err);
        } else if (cg_py_wait_done(io, w) == 0) {
                struct cg_tool_call *c = cg_wait_results(w);
                const struct cg_tool_call_result *r = cg_tool_call_result(c, &key);
                struct cg_bytes content = cg_frame_bytes(r->content);

                if (strcmp(r->status, "ok") == 0)
                        ret = PyBytes_FromStringAndSize(content.data, (Py_ssize_t)content.len);
                else
                        PyErr_Format(PyExc_RuntimeError, "%s", (const char *)content.data);
                cg_tool_call_free(c);
        }
        cg_wait_free(w);
        return ret;
}

static PyObject *m_result_free(PyObject *module, PyObject *number)
{
        struct cg_io *io = cg_py_io(module);
        unsigned long long result = PyLong_AsUnsignedLongLong(number);

        if (PyErr_Occurred())
                return NULL;
        if (io && !cg_io_forked(io))
                cg_io_free_result(io, result);
        Py_RETURN_NONE;
}

/* ------------------------------------------------------------------ calls of an event loop */

struct loop_calls {
        PyObject_HEAD struct cg_io *io;
        struct cg_wait *wait; /* NULL: closed */
};

static PyObject *calls_new(PyTypeObject *type, PyObject *args, PyObject *options)
{
        PyObject *module = PyType_GetModule(type);
        struct cg_io *io = module ? cg_py_need_io(module, "a tool call") : NULL;
        struct cg_err err;
        struct loop_calls *c;

        if (!io || !PyArg_ParseTuple(args, ":Calls"))
                return NULL;
        c = (struct loop_calls *)type->tp_alloc(type, 0);
        if (!c)
                return NULL;
        c->io = io;
        c->wait = cg_io_calls(io, false, &err);
        if (!c->wait) {
                Py_DECREF(c);
                return cg_py_raise(&err);
        }
        return (PyObject *)c;
}

/* NULL with an exception: closed, or in a forked process. */
static struct cg_wait *calls_wait(PyObject *self)
{
        struct loop_calls *c = (struct loop_calls *)self;

        if (c->wait && !cg_io_forked(c->io))
                return c->wait;
        PyErr_SetString(PyExc_RuntimeError,
                        c->wait ? "a tool call does not work in a forked process: do it in the process "
                                  "that runs the cell"
                                : "these calls are closed");
        return NULL;
}

static PyObject *calls_fileno(PyObject *self, PyObject *unused)
{
        struct cg_wait *w = calls_wait(self);

        return w ? PyLong_FromLong(cg_calls_fd(w)) : NULL;
}

static PyObject *calls_queue(PyObject *self, enum what what, PyObject *args)
{
        struct loop_calls *c = (struct loop_calls *)self;
        struct cg_wait *w;

        if (!calls_wait(self) || cg_py_flush(c->io) < 0)
                return NULL;
        w = calls_wait(self); /* another thread, or a signal handler, may have closed them */
        if (!w || start_call(w, what, args) < 0)
                return NULL;
        Py_RETURN_NONE;
}

static PyObject *calls_start(PyObject *self, PyObject *args)
{
        return calls_queue(self, TOOL, args);
}

static PyObject *calls_request(PyObject *self, PyObject *args)
{
        return calls_queue(self, METHOD, args);
}

static PyObject *calls_function(PyObject *self, PyObject *args)
{
        return calls_queue(self, FUNCTION, args);
}

static PyObject *calls_cancel(PyObject *self, PyObject *list)
{
        struct loop_calls *c = (struct loop_calls *)self;
        uint64_t *keys;
        size_t n;

        if (!PyList_Check(list)) {
                PyErr_SetString(PyExc_TypeError, "cancel() needs a list");
                return NULL;
        }
        n = (size_t)PyList_GET_SIZE(list);
        keys = PyMem_Calloc(n, sizeof(*keys));
        if (!keys)
                return PyErr_NoMemory();
        for (size_t i = 0; i < n && !PyErr_Occurred(); i++)
                keys[i] = PyLong_AsUnsignedLongLong(PyList_GET_ITEM(list, (Py_ssize_t)i));
        if (!PyErr_Occurred() && c->wait && !cg_io_forked(c->io))
                cg_io_cancel(c->wait, keys, n);
        PyMem_Free(keys);
        if (PyErr_Occurred())
                return NULL;
        Py_RETURN_NONE;
}

static PyObject *calls_results(PyObject *self, PyObject *list)
{
        struct cg_wait *w = calls_wait(self);
        struct cg_tool_call *c, *next;

        if (!w)
                return NULL;
        if (!PyList_Check(list)) {
                PyErr_SetString(PyExc_TypeError, "results() needs a list");
                return NULL;
        }
        for (c = cg_wait_results(w); c; c = next) {
                static const char text[] = "the kernel is out of memory: the result could not be taken";
                uint64_t key;
                const struct cg_tool_call_result *r = cg_tool_call_result(c, &key);
                PyObject *result = result_tuple(r), *item;

                if (!result) {
                        PyErr_Clear();
                        result = Py_BuildValue("(sy#s)", "failed", text, (Py_ssize_t)sizeof(text) - 1,
                                               "too_large");
                        if (result)
                                cg_tool_call_drop_kept(((struct loop_calls *)self)->io, c);
                }
                item = result ? Py_BuildValue("(KN)", (unsigned long long)key, result) : NULL;
                if (!item || PyList_Append(list, item) < 0) {
                        Py_XDECREF(item);
                        cg_wait_put_back(w, c);
                        return NULL;
                }
                Py_DECREF(item);
                next = cg_tool_call_next(c);
                cg_tool_call_free(c);
        }
        Py_RETURN_NONE;
}

static PyObject *calls_close(PyObject *self, PyObject *unused)
{
        struct loop_calls *c = (struct loop_calls *)self;

        if (c->wait && !cg_io_forked(c->io)) /* in a forked process the lock may be held for ever */
                c->wait = cg_wait_free(c->wait);
        Py_RETURN_NONE;
}

static void calls_dealloc(PyObject *self)
{
        PyTypeObject *type = Py_TYPE(self);

        Py_DECREF(calls_close(self, NULL));
        type->tp_free(self);
        Py_DECREF(type);
}

static PyMethodDef calls_methods[] = {
        { "fileno", calls_fileno, METH_NOARGS, NULL },    { "start", calls_start, METH_VARARGS, NULL },
        { "request", calls_request, METH_VARARGS, NULL }, { "function", calls_function, METH_VARARGS, NULL },
        { "cancel", calls_cancel, METH_O, NULL },         { "results", calls_results, METH_O, NULL },
        { "close", calls_close, METH_NOARGS, NULL },      { NULL, NULL, 0, NULL },
};

static PyType_Slot calls_slots[] = {
        { Py_tp_new, (void *)calls_new },
        { Py_tp_dealloc, (void *)calls_dealloc },
        { Py_tp_methods, calls_methods },
        { 0, NULL },
};

static PyType_Spec calls_spec = {
        .name = "_cellgate.Calls",
        .basicsize = sizeof(struct loop_calls),
        .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE,
        .slots = calls_slots,
};

PyMethodDef cg_py_calls[] = {
        { "goes_on", m_goes_on, METH_NOARGS, NULL },
        { "input", m_input, METH_VARARGS, NULL },
        { "tool_call", m_tool_call, METH_VARARGS, NULL },
        { "mcp_request", m_mcp_request, METH_VARARGS, NULL },
        { "function_call", m_function_call, METH_VARARGS, NULL },
        { "result_read", m_result_read, METH_VARARGS, NULL },
        { "result_free", m_result_free, METH_O, NULL },
        { NULL, NULL, 0, NULL },
};

int cg_py_add_calls(PyObject *module)
{
        PyObject *type = PyType_FromModuleAndSpec(module, &calls_spec, NULL);
        int r = type ? PyModule_AddObjectRef(module, "Calls", type) : -1;

        Py_XDECREF(type);
        return r;
}
