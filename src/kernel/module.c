/*
 * The built-in module `_cellgate`; runs in the kernel process (and, attached to nothing, in the zygote while it warms
 * up).
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "kernel/module.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <stdint.h>
#include <string.h>
#include "base/buf.h"
#include "base/json.h"
#include "base/util.h"
#include "kernel/io.h"

/* Longer writes go piece by piece, so that they wait for room between the pieces. */
#define PIECE (256u << 10)

/* In a process that the cell forked, a line is one write: lines of several such processes do not mix. */
struct line {
        size_t len;
        char data[PIPE_BUF];
};

struct state {
        struct cg_io *io;
        struct line lines[2];
};

static struct state *get_state(PyObject *module)
{
        return PyModule_GetState(module);
}

static struct cg_io *get_io(PyObject *module)
{
        return get_state(module)->io;
}

/* For functions that need a living kernel: NULL with an exception set where there is none. */
static struct cg_io *need_io(PyObject *module, const char *what)
{
        struct cg_io *io = get_io(module);

        if (!io)
                PyErr_Format(PyExc_RuntimeError, "%s: the kernel is not running yet", what);
        else if (cg_io_forked(io))
                PyErr_Format(PyExc_RuntimeError,
                             "%s does not work in a forked process: do it in the process that runs the cell", what);
        else
                return io;
        return NULL;
}

static PyObject *raise_err(const struct cg_err *err)
{
        PyObject *type = PyExc_RuntimeError;

        if (err->code == CG_E_LIMIT)
                type = PyExc_ValueError;
        else if (err->code == CG_E_NOMEM)
                type = PyExc_MemoryError;
        PyErr_SetString(type, err->msg);
        return NULL;
}

/* Waits with the GIL released; signal handlers run meanwhile. -1 with an exception when one of them raises. */
static int wait_done(struct cg_wait *w)
{
        for (;;) {
                int r;

                Py_BEGIN_ALLOW_THREADS
                r = cg_wait_once(w);
                Py_END_ALLOW_THREADS
                if (r == 0)
                        return 0;
                if (PyErr_CheckSignals() < 0)
                        return -1;
        }
}

static int wait_room(struct cg_io *io)
{
        struct cg_err err;
        struct cg_wait *w = cg_io_wait_room(io, &err);
        int r;

        if (!w) {
                raise_err(&err);
                return -1;
        }
        r = wait_done(w);
        cg_wait_free(w);
        return r;
}

/* ------------------------------------------------------------------ streams */

static size_t piece_len(const char *text, size_t len)
{
        size_t n = PIECE;

        if (len <= PIECE)
                return len;
        while (n > PIECE - 4 && ((unsigned char)text[n] & 0xc0) == 0x80)
                n--;
        return n;
}

static int write_fd(int fd, const char *data, size_t len)
{
        while (len) {
                ssize_t n;

                Py_BEGIN_ALLOW_THREADS
                n = write(fd, data, len);
                Py_END_ALLOW_THREADS
                if (n < 0 && errno == EINTR && PyErr_CheckSignals() == 0)
                        continue;
                if (n < 0)
                        return PyErr_Occurred() ? -1 : (PyErr_SetFromErrno(PyExc_OSError), -1);
                data += n;
                len -= (size_t)n;
        }
        return 0;
}

static int flush_line(PyObject *module, int i)
{
        struct line *line = &get_state(module)->lines[i];
        size_t len = line->len;

        line->len = 0;
        return write_fd(i + 1, line->data, len);
}

/* In a process that the cell forked: its output still reaches the cell, through the inherited pipe. */
static int write_forked(PyObject *module, int i, const char *data, size_t len)
{
        struct line *line = &get_state(module)->lines[i];
        bool ends = len && data[len - 1] == '\n';

        if (line->len + len > sizeof(line->data)) {
                if (flush_line(module, i) < 0)
                        return -1;
                if (len > sizeof(line->data))
                        return write_fd(i + 1, data, len);
        }
        memcpy(line->data + line->len, data, len);
        line->len += len;
        return ends ? flush_line(module, i) : 0;
}

typedef int (*write_fn)(struct cg_io *io, unsigned flags, const char *data, size_t len, struct cg_err *err);

static int write_all(PyObject *module, write_fn fn, unsigned flags, const char *data, size_t len)
{
        struct cg_io *io = get_io(module);

        if (cg_io_forked(io))
                return write_forked(module, flags & CG_FLAG_STDERR ? 1 : 0, data, len);
        while (len) {
                size_t n = piece_len(data, len);
                struct cg_err err;
                int r = fn(io, flags, data, n, &err);

                if (r == CG_TIMEOUT) {
                        if (wait_room(io) < 0)
                                return -1;
                        continue;
                }
                if (r < 0) {
                        raise_err(&err);
                        return -1;
                }
                data += n;
                len -= n;
        }
        return 0;
}

/* UTF-8 with U+FFFD for lone surrogates, which no encoding can carry. They are three bytes each, as U+FFFD is. */
static PyObject *encode_replacing(PyObject *text)
{
        PyObject *bytes = PyUnicode_AsEncodedString(text, "utf-8", "surrogatepass");
        unsigned char *p;
        Py_ssize_t len;

        if (!bytes)
                return NULL;
        p = (unsigned char *)PyBytes_AS_STRING(bytes);
        len = PyBytes_GET_SIZE(bytes);
        for (Py_ssize_t i = 0; i + 2 < len; i++)
                if (p[i] == 0xed && p[i + 1] >= 0xa0) {
                        memcpy(p + i, "\xef\xbf\xbd", 3);
                        i += 2;
                }
        return bytes;
}

static PyObject *write_text(PyObject *module, PyObject *text, unsigned flags)
{
        struct cg_io *io = get_io(module);
        PyObject *bytes;
        int r;

        if (!PyUnicode_Check(text))
                return PyErr_Format(PyExc_TypeError, "write() argument must be str, not %.100s",
                                    Py_TYPE(text)->tp_name);
        if (PyUnicode_READY(text) < 0)
                return NULL;
        if (io && PyUnicode_IS_COMPACT_ASCII(text)) {
                r = write_all(module, cg_io_write, flags, (const char *)PyUnicode_1BYTE_DATA(text),
                              (size_t)PyUnicode_GET_LENGTH(text));
        } else if (io) {
                bytes = encode_replacing(text);
                if (!bytes)
                        return NULL;
                r = write_all(module, cg_io_write, flags, PyBytes_AS_STRING(bytes), (size_t)PyBytes_GET_SIZE(bytes));
                Py_DECREF(bytes);
        } else {
                r = 0;
        }
        return r < 0 ? NULL : PyLong_FromSsize_t(PyUnicode_GET_LENGTH(text));
}

static PyObject *m_write_stdout(PyObject *module, PyObject *text)
{
        return write_text(module, text, 0);
}

static PyObject *m_write_stderr(PyObject *module, PyObject *text)
{
        return write_text(module, text, CG_FLAG_STDERR);
}

static PyObject *m_write_bytes(PyObject *module, PyObject *args)
{
        struct cg_io *io = get_io(module);
        Py_buffer data;
        int is_stderr, r = 0;
        Py_ssize_t len;

        if (!PyArg_ParseTuple(args, "py*:write_bytes", &is_stderr, &data))
                return NULL;
        len = data.len;
        if (io)
                r = write_all(module, cg_io_write_bytes, is_stderr ? CG_FLAG_STDERR : 0, data.buf, (size_t)len);
        PyBuffer_Release(&data);
        return r < 0 ? NULL : PyLong_FromSsize_t(len);
}

static PyObject *m_flush(PyObject *module, PyObject *unused)
{
        struct cg_io *io = get_io(module);

        if (io && cg_io_forked(io) && (flush_line(module, 0) < 0 || flush_line(module, 1) < 0))
                return NULL;
        if (io && !cg_io_forked(io))
                cg_io_flush(io);
        Py_RETURN_NONE;
}

static const struct {
        const char *name;
        uint16_t type;
} kinds[] = {
        { "display_data", CG_KERNEL_DISPLAY_DATA },
        { "update_display_data", CG_KERNEL_UPDATE_DISPLAY_DATA },
        { "execute_result", CG_KERNEL_EXECUTE_RESULT },
        { "clear_output", CG_KERNEL_CLEAR_OUTPUT },
        { "error", CG_KERNEL_ERROR },
};

static uint16_t find_kind(const char *name)
{
        for (size_t i = 0; i < CG_ARRAY_LEN(kinds); i++)
                if (strcmp(kinds[i].name, name) == 0)
                        return kinds[i].type;
        PyErr_Format(PyExc_ValueError, "no message %.100s", name);
        return 0;
}

static PyObject *m_publish(PyObject *module, PyObject *args)
{
        struct cg_io *io = get_io(module);
        const char *name, *content;
        Py_ssize_t len;
        uint16_t type;

        if (!PyArg_ParseTuple(args, "ss#:publish", &name, &content, &len))
                return NULL;
        type = find_kind(name);
        if (!type)
                return NULL;
        if (!io)
                Py_RETURN_NONE;
        if (!need_io(module, "rich output"))
                return NULL;
        for (;;) {
                struct cg_err err;
                int r = cg_io_publish(io, type, content, (size_t)len, &err);

                if (r == 0)
                        Py_RETURN_NONE;
                if (r < 0)
                        return raise_err(&err);
                if (wait_room(io) < 0)
                        return NULL;
        }
}

/* ------------------------------------------------------------------ requests */

static PyObject *m_ready(PyObject *module, PyObject *args)
{
        struct cg_io *io = need_io(module, "ready");
        const char *body;
        Py_ssize_t len;
        struct cg_err err;

        if (!io || !PyArg_ParseTuple(args, "s#:ready", &body, &len))
                return NULL;
        if (cg_io_ready(io, body, (size_t)len, &err) < 0)
                return raise_err(&err);
        Py_RETURN_NONE;
}

static PyObject *m_request_fd(PyObject *module, PyObject *unused)
{
        struct cg_io *io = need_io(module, "request_fd");

        return io ? PyLong_FromLong(cg_io_request_fd(io)) : NULL;
}

static PyObject *request_tuple(struct cg_request *req)
{
        PyObject *code = PyUnicode_DecodeUTF8(req->code, (Py_ssize_t)req->code_len, "replace"), *ret = NULL;

        if (code)
                ret = Py_BuildValue("(LNNNN)", req->shutdown ? -1LL : (long long)req->cell, code,
                                    PyBool_FromLong(req->silent), PyBool_FromLong(req->store_history),
                                    PyBool_FromLong(req->allow_stdin));
        free(req);
        return ret;
}

static PyObject *m_next_request(PyObject *module, PyObject *args)
{
        struct cg_io *io = need_io(module, "next_request");
        struct pollfd p[2] = { { .events = POLLIN }, { .events = POLLIN } };
        int block;

        if (!io || !PyArg_ParseTuple(args, "ip:next_request", &p[1].fd, &block))
                return NULL;
        p[0].fd = cg_io_request_fd(io);
        for (;;) {
                struct cg_request *req = cg_io_next_request(io);
                int n;

                if (req)
                        return request_tuple(req);
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

/* A type's name that needs no escaping in JSON: names can be made of anything. */
static const char *plain_name(const char *name)
{
        for (const char *c = name; *c; c++)
                if (*c == '"' || *c == '\\' || (unsigned char)*c < ' ' || (unsigned char)*c > '~')
                        return "BaseException";
        return name;
}

/* A reply for a cell whose handler itself failed: built here, where nothing can fail any more. Clears the exception. */
static void fallback_body(char *buf, size_t size)
{
        PyObject *type = PyErr_Occurred(); /* borrowed */
        const char *name = type && PyType_Check(type) ? plain_name(((PyTypeObject *)type)->tp_name) : "SystemError";

        snprintf(buf, size, "{\"status\":\"error\",\"execution_count\":0,\"ename\":\"%.200s\","
                 "\"evalue\":\"the kernel could not report how the cell ended\",\"refused\":false}", name);
        PyErr_Clear();
}

static int reply(struct cg_io *io, uint64_t cell, const char *body, size_t len)
{
        struct cg_err err;
        int r;

        Py_BEGIN_ALLOW_THREADS
        r = cg_io_reply(io, cell, body, len, &err);
        Py_END_ALLOW_THREADS
        return r;
}

static PyObject *m_run_cell(PyObject *module, PyObject *args)
{
        struct cg_io *io = need_io(module, "run_cell");
        unsigned long long cell;
        int allow_stdin;
        PyObject *func, *body;
        const char *text = NULL;
        Py_ssize_t len = 0;
        char fallback[512];

        if (!io || !PyArg_ParseTuple(args, "KpO:run_cell", &cell, &allow_stdin, &func))
                return NULL;
        cg_io_cell_begin(io, cell, allow_stdin);
        body = PyObject_CallNoArgs(func);
        if (cg_io_forked(io)) /* a child that ran on after os.fork(): the loop that serves is not its business */
                _exit(body ? 0 : 1);
        /* No Python runs between the end of the call and this: an interrupt hits the cell, or nothing. */
        cg_io_cell_close(io);
        if (body)
                text = PyUnicode_AsUTF8AndSize(body, &len);
        if (!text || reply(io, cell, text, (size_t)len) < 0) {
                fallback_body(fallback, sizeof(fallback));
                reply(io, cell, fallback, strlen(fallback));
        }
        Py_XDECREF(body);
        PyErr_Clear();
        Py_RETURN_NONE;
}

/* The handler of SIGINT. In C, so that tracebacks show the cell and not the handler. */
static PyObject *m_on_sigint(PyObject *module, PyObject *args)
{
        struct cg_io *io = get_io(module);

        if (io && (cg_io_forked(io) || cg_io_take_interrupt(io))) {
                PyErr_SetNone(PyExc_KeyboardInterrupt);
                return NULL;
        }
        Py_RETURN_NONE;
}

static PyObject *m_forked(PyObject *module, PyObject *unused)
{
        struct cg_io *io = get_io(module);

        return PyBool_FromLong(io && cg_io_forked(io));
}

static PyObject *m_exit(PyObject *module, PyObject *args)
{
        struct cg_io *io = get_io(module);
        int status;

        if (!PyArg_ParseTuple(args, "i:exit", &status))
                return NULL;
        if (!io)
                _exit(status);
        cg_io_exit(io, status);
}

/* ------------------------------------------------------------------ questions to the outside */

static PyObject *m_input(PyObject *module, PyObject *args)
{
        struct cg_io *io = need_io(module, "input()");
        const char *content, *text;
        Py_ssize_t len;
        size_t n;
        struct cg_wait *w = NULL;
        struct cg_err err;
        PyObject *ret = NULL;

        if (!io || !PyArg_ParseTuple(args, "s#:input", &content, &len))
                return NULL;
        if (cg_io_input(io, content, (size_t)len, &w, &err) < 0)
                return raise_err(&err);
        if (wait_done(w) == 0) {
                text = cg_wait_text(w, &n);
                ret = text ? PyUnicode_DecodeUTF8(text, (Py_ssize_t)n, "replace") : Py_NewRef(Py_None);
        }
        cg_wait_free(w);
        return ret;
}

static int call_body(struct cg_buf *b, const char *server, size_t server_len, const char *tool, size_t tool_len,
                     long long timeout_ms, struct cg_err *err)
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

/* Sends the call, waiting for a free place first. NULL with an exception. */
static struct cg_wait *start_call(struct cg_io *io, const struct cg_buf *body, const Py_buffer *args)
{
        for (;;) {
                struct cg_wait *w = NULL;
                struct cg_err err;
                int r = cg_io_call(io, body->data, body->len, args->buf, (size_t)args->len, &w, &err);

                if (r == 0)
                        return w;
                if (r < 0) {
                        raise_err(&err);
                        return NULL;
                }
                r = wait_done(w);
                cg_wait_free(w);
                if (r < 0)
                        return NULL;
        }
}

static PyObject *call_and_wait(struct cg_io *io, const struct cg_buf *body, const Py_buffer *args)
{
        struct cg_wait *w = start_call(io, body, args);
        PyObject *ret = NULL;

        if (!w)
                return NULL;
        if (wait_done(w) == 0) {
                const void *data;
                size_t len;
                const char *status = cg_wait_result(w, &data, &len);

                ret = Py_BuildValue("(sy#)", status, (const char *)data, (Py_ssize_t)len);
        }
        cg_wait_free(w); /* given up before its result: this cancels it */
        return ret;
}

static PyObject *m_tool_call(PyObject *module, PyObject *args)
{
        struct cg_io *io = need_io(module, "a tool call");
        cg_auto_buf struct cg_buf body;
        const char *server, *tool;
        Py_ssize_t server_len, tool_len;
        Py_buffer arguments;
        long long timeout_ms;
        struct cg_err err;
        PyObject *ret = NULL;

        cg_buf_init(&body, CG_MAX_BODY);
        if (!io || !PyArg_ParseTuple(args, "s#s#y*L:tool_call", &server, &server_len, &tool, &tool_len, &arguments,
                                     &timeout_ms))
                return NULL;
        if (server_len > CG_MAX_NAME || tool_len > CG_MAX_NAME)
                PyErr_Format(PyExc_ValueError, "names of server and tool have at most %d bytes", CG_MAX_NAME);
        else if (call_body(&body, server, (size_t)server_len, tool, (size_t)tool_len, timeout_ms, &err) < 0)
                raise_err(&err);
        else
                ret = call_and_wait(io, &body, &arguments);
        PyBuffer_Release(&arguments);
        return ret;
}

/* ------------------------------------------------------------------ the module */

static PyMethodDef methods[] = {
        { "write_stdout", m_write_stdout, METH_O, NULL },
        { "write_stderr", m_write_stderr, METH_O, NULL },
        { "write_bytes", m_write_bytes, METH_VARARGS, NULL },
        { "flush", m_flush, METH_NOARGS, NULL },
        { "publish", m_publish, METH_VARARGS, NULL },
        { "ready", m_ready, METH_VARARGS, NULL },
        { "request_fd", m_request_fd, METH_NOARGS, NULL },
        { "next_request", m_next_request, METH_VARARGS, NULL },
        { "run_cell", m_run_cell, METH_VARARGS, NULL },
        { "on_sigint", m_on_sigint, METH_VARARGS, NULL },
        { "forked", m_forked, METH_NOARGS, NULL },
        { "exit", m_exit, METH_VARARGS, NULL },
        { "input", m_input, METH_VARARGS, NULL },
        { "tool_call", m_tool_call, METH_VARARGS, NULL },
        { NULL, NULL, 0, NULL },
};

static struct PyModuleDef module_def = {
        .m_base = PyModuleDef_HEAD_INIT,
        .m_name = "_cellgate",
        .m_size = sizeof(struct state),
        .m_methods = methods,
};

PyObject *cg_py_module_init(void)
{
        return PyModule_Create(&module_def);
}

void cg_py_module_attach(PyObject *module, struct cg_io *io)
{
        get_state(module)->io = io;
}
