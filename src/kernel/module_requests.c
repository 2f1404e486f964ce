/* Functions of `_cellgate` for shells, requests and replies; the thread of the control shell. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "kernel/module_int.h"

#include <poll.h>

/* ------------------------------------------------------------------ shells */

static PyObject *m_ready(PyObject *module, PyObject *args)
{
        struct cg_io *io = cg_py_need_io(module, "ready");
        const char *body;
        Py_ssize_t len;
        struct cg_err err;

        if (!io || !PyArg_ParseTuple(args, "s#:ready", &body, &len))
                return NULL;
        if (cg_io_ready(io, body, (size_t)len, &err) < 0)
                return cg_py_raise(&err);
        Py_RETURN_NONE;
}

/* NULL with an exception: no shell has this name. */
static struct cg_shell *need_shell(struct cg_io *io, const char *name)
{
        struct cg_shell *sh = cg_io_shell(io, name);

        if (!sh)
                PyErr_Format(PyExc_KeyError, "no shell %.60s", name);
        return sh;
}

/* The shell that the only argument names; NULL with an exception. */
static struct cg_shell *shell_argument(PyObject *module, PyObject *args, const char *format)
{
        struct cg_io *io = cg_py_need_io(module, "a shell");
        const char *name;

        return io && PyArg_ParseTuple(args, format, &name) ? need_shell(io, name) : NULL;
}

static PyObject *m_request_fd(PyObject *module, PyObject *args)
{
        struct cg_shell *sh = shell_argument(module, args, "s:request_fd");

        return sh ? PyLong_FromLong(cg_io_request_fd(sh)) : NULL;
}

static PyObject *with_shell(PyObject *module, PyObject *args, const char *format,
                            int (*f)(struct cg_io *io, const char *name, struct cg_err *err))
{
        struct cg_io *io = cg_py_need_io(module, "a subshell");
        const char *name;
        struct cg_err err;

        if (!io || !PyArg_ParseTuple(args, format, &name))
                return NULL;
        if (f(io, name, &err) < 0)
                return cg_py_raise(&err);
        Py_RETURN_NONE;
}

static PyObject *m_open_shell(PyObject *module, PyObject *args)
{
        return with_shell(module, args, "s:open_shell", cg_io_shell_open);
}

static PyObject *m_close_shell(PyObject *module, PyObject *args)
{
        return with_shell(module, args, "s:close_shell", cg_io_shell_close);
}

static PyObject *m_call_main(PyObject *module, PyObject *unused)
{
        struct cg_io *io = cg_py_need_io(module, "a call in the main thread");
        struct cg_err err;

        if (!io)
                return NULL;
        if (cg_io_call_main(io, &err) < 0)
                return cg_py_raise(&err);
        Py_RETURN_NONE;
}

static PyObject *m_shell_gone(PyObject *module, PyObject *args)
{
        struct cg_shell *sh = shell_argument(module, args, "s:shell_gone");

        if (!sh)
                return NULL;
        cg_io_shell_gone(sh);
        Py_RETURN_NONE;
}

/* ------------------------------------------------------------------ the next request */

/*
 * The request with a cell's code, or the type of another request, as text and the other frames as a
 * tuple of bytes (takes @req).
 */
static PyObject *request_tuple(struct cg_request *req)
{
        size_t first = req->kind == CG_REQUEST_CELL;
        size_t n = req->n_frames > first ? req->n_frames - first : 0;
        PyObject *text, *frames = PyTuple_New((Py_ssize_t)n), *ret = NULL;

        if (first && req->n_frames) {
                struct cg_bytes code = cg_frame_bytes(req->frames[0]);

                text = PyUnicode_DecodeUTF8(code.data, (Py_ssize_t)code.len, "replace");
        } else {
                text = PyUnicode_FromString(req->type);
        }
        for (size_t i = 0; frames && i < n; i++) {
                struct cg_bytes f = cg_frame_bytes(req->frames[first + i]);
                PyObject *b = PyBytes_FromStringAndSize(f.data, (Py_ssize_t)f.len);

                if (!b)
                        Py_CLEAR(frames);
                else
                        PyTuple_SET_ITEM(frames, (Py_ssize_t)i, b);
        }
        if (text && frames)
                ret = Py_BuildValue("(iKOONNNNN)", (int)req->kind, (unsigned long long)req->id, text, frames,
                                    PyBool_FromLong(req->silent), PyBool_FromLong(req->store_history),
                                    PyBool_FromLong(req->allow_stdin), PyBool_FromLong(req->warm),
                                    PyBool_FromLong(req->offer));
        Py_XDECREF(text);
        Py_XDECREF(frames);
        cg_request_free(req);
        return ret;
}

static void reply_fallback(struct cg_shell *sh, const struct cg_out *out, bool ran);

/*
 * The request as a tuple. Without memory for that it is answered with an error here (None), or NULL
 * with an exception when it has no reply.
 */
static PyObject *take_request(struct cg_shell *sh, struct cg_request *req)
{
        bool cell = req->kind == CG_REQUEST_CELL, answered = cell || req->kind == CG_REQUEST_OTHER;
        struct cg_out out = { .type = cell ? CG_KERNEL_EXECUTE_REPLY : CG_KERNEL_REPLY,
                              .id = req->id,
                              .has_raw = true };
        PyObject *ret = request_tuple(req);

        if (ret || !answered)
                return ret;
        cg_io_cell_begin(sh, out.id, false);
        cg_io_cell_close(sh);
        reply_fallback(sh, &out, false);
        Py_RETURN_NONE;
}

static PyObject *m_next_offer(PyObject *module, PyObject *args)
{
        struct cg_shell *sh = shell_argument(module, args, "s:next_offer");
        struct cg_request *req;

        if (!sh)
                return NULL;
        req = cg_io_next_offer(sh);
        if (!req)
                Py_RETURN_NONE;
        return request_tuple(req);
}

static PyObject *m_next_request(PyObject *module, PyObject *args)
{
        struct cg_io *io = cg_py_need_io(module, "next_request");
        struct pollfd p[2] = { { .events = POLLIN }, { .events = POLLIN } };
        struct cg_shell *sh;
        const char *name;
        int block;

        if (!io || !PyArg_ParseTuple(args, "sip:next_request", &name, &p[1].fd, &block))
                return NULL;
        sh = need_shell(io, name);
        if (!sh)
                return NULL;
        p[0].fd = cg_io_request_fd(sh);
        for (;;) {
                struct cg_request *req = cg_io_next_request(sh);
                int n;

                if (req)
                        return take_request(sh, req);
                if (!block)
                        Py_RETURN_NONE;
                Py_BEGIN_ALLOW_THREADS
                n = poll(p, 2, -1);
                Py_END_ALLOW_THREADS
                if (n < 0 && PyErr_CheckSignals() < 0)
                        return NULL;
                if (n > 0 && p[1].revents)
                        Py_RETURN_NONE;
        }
}

/* ------------------------------------------------------------------ running a request, replies */

/* The error reply after the handler itself has failed; cannot fail. Clears the exception. */
static void fallback_text(char *buf, size_t size, bool cell, bool ran)
{
        PyObject *type = PyErr_Occurred(); /* borrowed */
        const char *name = type && PyType_Check(type) ? ((PyTypeObject *)type)->tp_name : "SystemError";

        for (const char *c = name; *c; c++)
                if (*c == '"' || *c == '\\' || (unsigned char)*c < ' ' || (unsigned char)*c > '~') {
                        name = "BaseException"; /* it would need escaping in JSON */
                        break;
                }
        snprintf(buf, size,
                 "{\"status\":\"error\",%s\"ename\":\"%.200s\","
                 "\"evalue\":\"the kernel could not %s %s%s\"}",
                 cell ? "\"execution_count\":0,\"refused\":false," : "", name,
                 ran ? "report how the" : "take the", cell ? "cell" : "request", ran ? " ended" : "");
        PyErr_Clear();
}

static int reply(struct cg_shell *sh, const struct cg_out *out)
{
        struct cg_err err;
        int r;

        Py_BEGIN_ALLOW_THREADS
        r = cg_io_reply(sh, out, &err);
        Py_END_ALLOW_THREADS
        return r < 0 ? (cg_py_raise(&err), -1) : 0;
}

/*
 * Sends what func() returned: (body, content) for a cell, (content, buffers) for another request.
 * -1 with an exception: nothing was sent.
 */
static int reply_with(struct cg_shell *sh, struct cg_out *out, PyObject *result)
{
        bool cell = out->type == CG_KERNEL_EXECUTE_REPLY;
        const char *text, *content = "";
        Py_ssize_t len, content_len = 0;
        PyObject *seq = NULL;
        struct buffers buffers;
        int r;

        buffers.n = 0;
        if (!PyArg_ParseTuple(result, cell ? "s#s#" : "s#O", &text, &len,
                              cell ? (void *)&content : (void *)&seq, &content_len))
                return -1;
        if (seq && cg_py_buffers_take(&buffers, seq) < 0)
                return -1;
        if (cell) {
                out->body = text;
                out->body_len = (size_t)len;
                out->raw = content;
                out->raw_len = (size_t)content_len;
        } else {
                out->raw = text;
                out->raw_len = (size_t)len;
                out->more = buffers.bytes;
                out->n_more = (size_t)buffers.n;
        }
        r = reply(sh, out);
        cg_py_buffers_release(&buffers);
        return r;
}

static void reply_fallback(struct cg_shell *sh, const struct cg_out *out, bool ran)
{
        struct cg_out plain = { .type = out->type, .id = out->id, .has_raw = true };
        char text[512];

        fallback_text(text, sizeof(text), out->type == CG_KERNEL_EXECUTE_REPLY, ran);
        if (out->type == CG_KERNEL_EXECUTE_REPLY) {
                plain.body = text;
                plain.body_len = strlen(text);
        } else {
                plain.raw = text;
                plain.raw_len = strlen(text);
        }
        if (reply(sh, &plain) < 0)
                _exit(1); /* the end of the kernel ends the request, which would wait for ever */
}

static PyObject *m_run(PyObject *module, PyObject *args)
{
        struct cg_io *io = cg_py_need_io(module, "run");
        struct cg_out out = { .has_raw = true };
        unsigned long long id;
        int kind, allow_stdin;
        PyObject *func, *result;
        struct cg_shell *sh;
        const char *name;
        bool early;

        if (!io || !PyArg_ParseTuple(args, "siKpO:run", &name, &kind, &id, &allow_stdin, &func))
                return NULL;
        sh = need_shell(io, name);
        if (!sh)
                return NULL;
        out.type = kind == CG_REQUEST_CELL ? CG_KERNEL_EXECUTE_REPLY : CG_KERNEL_REPLY;
        out.id = id;
        early = cg_io_cell_begin(sh, id, allow_stdin);
        result = PyObject_CallOneArg(func, early ? Py_True : Py_False);
        /* a child after os.fork() has left the cell: it must not serve requests */
        if (cg_io_forked(io))
                _exit(!result);
        /* no Python code runs between the end of the call and this: no interrupt is lost */
        cg_io_cell_close(sh);
        if (*name) /* drop an interrupt of this thread that was too late */
                PyThreadState_SetAsyncExc(PyThread_get_thread_ident(), NULL);
        if (!result || reply_with(sh, &out, result) < 0)
                reply_fallback(sh, &out, true);
        Py_XDECREF(result);
        PyErr_Clear();
        Py_RETURN_NONE;
}

/* ------------------------------------------------------------------ the control shell */

static PyObject *m_on_control(PyObject *module, PyObject *func)
{
        Py_XSETREF(cg_py_state(module)->control, Py_NewRef(func));
        Py_RETURN_NONE;
}

/* Sends the text that the handler returned, or its exception as an error. Clears the exception. */
static void answer(struct cg_io *io, uint64_t id, PyObject *result)
{
        struct cg_out out = { .type = CG_KERNEL_REPLY, .id = id, .has_raw = true };
        Py_ssize_t len = 0;
        char fallback[512];
        struct cg_err err;

        out.raw = result ? PyUnicode_AsUTF8AndSize(result, &len) : NULL;
        out.raw_len = (size_t)len;
        if (!out.raw || cg_io_answer(io, &out, &err) < 0) {
                fallback_text(fallback, sizeof(fallback), false, true);
                out.raw = fallback;
                out.raw_len = strlen(fallback);
                cg_io_answer(io, &out, &err);
        }
        PyErr_Clear();
}

static void serve_control(PyObject *module, struct cg_request *req)
{
        struct cg_py_state *st = cg_py_state(module);
        bool wants_reply = req->kind == CG_REQUEST_OTHER;
        uint64_t id = req->id;
        PyObject *cell = PyLong_FromUnsignedLongLong(id), *token = NULL, *args, *result = NULL;

        if (cell)
                token = PyContextVar_Set(st->cell, cell);
        args = request_tuple(req);
        if (args && st->control)
                result = PyObject_CallOneArg(st->control, args);
        if (wants_reply)
                answer(st->io, id, result);
        Py_XDECREF(result);
        Py_XDECREF(args);
        Py_XDECREF(token);
        Py_XDECREF(cell);
        PyErr_Clear();
}

void cg_py_module_control(void *module)
{
        struct cg_io *io = cg_py_io(module);
        struct cg_request *req;

        PyGILState_Ensure(); /* never released: objects may refer to this thread state */
        for (;;) {
                Py_BEGIN_ALLOW_THREADS
                req = cg_io_wait_control(io);
                Py_END_ALLOW_THREADS
                serve_control(module, req);
        }
}

static PyObject *m_answer(PyObject *module, PyObject *args)
{
        struct cg_io *io = cg_py_need_io(module, "answer");
        struct cg_out out = { .type = CG_KERNEL_REPLY, .has_raw = true };
        unsigned long long id;
        const char *text;
        Py_ssize_t len;
        struct cg_err err;

        if (!io || !PyArg_ParseTuple(args, "Ks#:answer", &id, &text, &len))
                return NULL;
        out.id = id;
        out.raw = text;
        out.raw_len = (size_t)len;
        if (cg_io_answer(io, &out, &err) < 0)
                return cg_py_raise(&err);
        Py_RETURN_NONE;
}

PyMethodDef cg_py_requests[] = {
        { "ready", m_ready, METH_VARARGS, NULL },
        { "request_fd", m_request_fd, METH_VARARGS, NULL },
        { "open_shell", m_open_shell, METH_VARARGS, NULL },
        { "close_shell", m_close_shell, METH_VARARGS, NULL },
        { "shell_gone", m_shell_gone, METH_VARARGS, NULL },
        { "call_main", m_call_main, METH_NOARGS, NULL },
        { "on_control", m_on_control, METH_O, NULL },
        { "next_request", m_next_request, METH_VARARGS, NULL },
        { "next_offer", m_next_offer, METH_VARARGS, NULL },
        { "answer", m_answer, METH_VARARGS, NULL },
        { "run", m_run, METH_VARARGS, NULL },
        { NULL, NULL, 0, NULL },
};
