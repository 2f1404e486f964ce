/*
 * The built-in module `_cellgate`; runs in the kernel process (and, attached to nothing, in the zygote while it warms
 * up).
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "kernel/module.h"
#include "kernel/pyjson.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <stdint.h>
#include <string.h>
#include "base/buf.h"
#include "base/json.h"
#include "base/util.h"
#include "kernel/base64.h"
#include "kernel/explain.h"
#include "kernel/io.h"
#include "kernel/procs.h"

/* Longer writes go piece by piece, so that they wait for room between the pieces. */
#define PIECE (256u << 10)

/* In a process that the cell forked, a line is one write: lines of several such processes do not mix. */
struct line {
        size_t len;
        char data[PIPE_BUF];
};

struct state {
        struct cg_io *io;
        const struct cg_sandbox *plan;
        PyObject *cell;    /* context variable: the cell that this code was started by */
        PyObject *control; /* serves requests of the control shell */
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

/* Whose output the caller's is. */
static uint64_t current_cell(PyObject *module)
{
        PyObject *v = NULL;
        unsigned long long cell;

        if (PyContextVar_Get(get_state(module)->cell, NULL, &v) < 0 || !v) {
                PyErr_Clear();
                return CG_IO_RUNNING;
        }
        cell = PyLong_AsUnsignedLongLong(v);
        if (cell == (unsigned long long)-1 && PyErr_Occurred())
                PyErr_Clear(); /* somebody has put something else there */
        Py_DECREF(v);
        return cell;
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

/* The main thread's signal handlers run here; a subshell's thread has none. -1 with an exception. */
static int check_interrupt(struct cg_io *io)
{
        if (PyErr_CheckSignals() < 0)
                return -1;
        if (!cg_io_take_subshell_interrupt(io))
                return 0;
        PyThreadState_SetAsyncExc(PyThread_get_thread_ident(), NULL); /* it has arrived */
        PyErr_SetNone(PyExc_KeyboardInterrupt);
        return -1;
}

/* Waits with the GIL released; signal handlers run meanwhile. -1 with an exception when one of them raises. */
static int wait_done(struct cg_io *io, struct cg_wait *w)
{
        for (;;) {
                int r;

                Py_BEGIN_ALLOW_THREADS
                r = cg_wait_once(w);
                Py_END_ALLOW_THREADS
                if (r == 0)
                        return 0;
                if (check_interrupt(io) < 0)
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
        r = wait_done(io, w);
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

typedef int (*write_fn)(struct cg_io *io, uint64_t cell, unsigned flags, const char *data, size_t len, struct cg_err *err);

static int write_all(PyObject *module, write_fn fn, unsigned flags, const char *data, size_t len)
{
        struct cg_io *io = get_io(module);
        uint64_t cell;

        if (cg_io_forked(io))
                return write_forked(module, flags & CG_FLAG_STDERR ? 1 : 0, data, len);
        cell = current_cell(module);
        while (len) {
                size_t n = piece_len(data, len);
                struct cg_err err;
                int r = fn(io, cell, flags, data, n, &err);

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
        { "comm", CG_KERNEL_COMM },
        { "debug_event", CG_KERNEL_DEBUG_EVENT },
        { "denied", CG_KERNEL_DENIED },
};

static uint16_t find_kind(const char *name)
{
        for (size_t i = 0; i < CG_ARRAY_LEN(kinds); i++)
                if (strcmp(kinds[i].name, name) == 0)
                        return kinds[i].type;
        PyErr_Format(PyExc_ValueError, "no message %.100s", name);
        return 0;
}

/* Raw frames after the first, held as long as they are used. */
struct buffers {
        Py_ssize_t n;
        Py_buffer views[CG_MAX_FRAMES];
        struct cg_bytes bytes[CG_MAX_FRAMES];
};

static void buffers_release(struct buffers *b)
{
        while (b->n)
                PyBuffer_Release(&b->views[--b->n]);
}

/* From a tuple or list of objects with contiguous bytes. -1 with an exception. */
static int buffers_take(struct buffers *b, PyObject *seq)
{
        Py_ssize_t n;

        if (!PyTuple_Check(seq) && !PyList_Check(seq)) {
                PyErr_SetString(PyExc_TypeError, "buffers must be a list or a tuple");
                return -1;
        }
        n = PySequence_Fast_GET_SIZE(seq);
        if (n > CG_MAX_FRAMES - 2) {
                PyErr_Format(PyExc_ValueError, "%zd buffers: a message can have %d", n, CG_MAX_FRAMES - 2);
                return -1;
        }
        /* A buffer's exporter is Python code that could change a list: the size is read again. */
        for (Py_ssize_t i = 0; i < n && i < PySequence_Fast_GET_SIZE(seq); i++) {
                if (PyObject_GetBuffer(PySequence_Fast_GET_ITEM(seq, i), &b->views[i], PyBUF_SIMPLE) < 0) {
                        buffers_release(b);
                        return -1;
                }
                b->bytes[i] = (struct cg_bytes){ b->views[i].buf, (size_t)b->views[i].len };
                b->n = i + 1;
        }
        return 0;
}

/* A message's content: JSON text, or an object that it is made of, in @text. -1 with an exception. */
static int content_text(struct cg_buf *text, PyObject *content, struct cg_out *out)
{
        Py_ssize_t len;

        if (!PyUnicode_Check(content)) {
                if (cg_pyjson(text, content) < 0)
                        return -1;
                out->raw = text->data;
                out->raw_len = text->len;
                return 0;
        }
        out->raw = PyUnicode_AsUTF8AndSize(content, &len);
        out->raw_len = (size_t)len;
        return out->raw ? 0 : -1;
}

/* Waits for room as often as needed. @text is taken where it is the content. -1 with an exception. */
static int publish(struct cg_io *io, const struct cg_out *m, struct cg_buf *text)
{
        for (;;) {
                struct cg_err err;
                int r = cg_io_publish(io, m, text, &err);

                if (r == 0)
                        return 0;
                if (r < 0) {
                        raise_err(&err);
                        return -1;
                }
                if (wait_room(io) < 0)
                        return -1;
        }
}

static PyObject *m_publish(PyObject *module, PyObject *args)
{
        struct cg_io *io = get_io(module);
        cg_auto_buf struct cg_buf text = { .max = SIZE_MAX / 2 }; /* the message's own limit says it better */
        struct cg_out out = { .has_raw = true };
        PyObject *content, *seq = NULL;
        struct buffers buffers;
        const char *name;
        int r;

        if (!PyArg_ParseTuple(args, "sO|O:publish", &name, &content, &seq))
                return NULL;
        out.type = find_kind(name);
        if (!out.type)
                return NULL;
        if (!io)
                Py_RETURN_NONE;
        if (!need_io(module, "rich output") || content_text(&text, content, &out) < 0)
                return NULL;
        buffers.n = 0;
        if (seq && buffers_take(&buffers, seq) < 0)
                return NULL;
        out.id = out.type == CG_KERNEL_DEBUG_EVENT ? 0 : current_cell(module);
        out.more = buffers.bytes;
        out.n_more = (size_t)buffers.n;
        r = publish(io, &out, &text);
        buffers_release(&buffers);
        if (r < 0)
                return NULL;
        Py_RETURN_NONE;
}

static PyObject *m_explain(PyObject *module, PyObject *args)
{
        return cg_py_explain(get_state(module)->plan, args);
}

static PyObject *m_dumps(PyObject *module, PyObject *value)
{
        cg_auto_buf struct cg_buf b = { .max = SIZE_MAX / 2 };

        return cg_pyjson(&b, value) < 0 ? NULL : PyUnicode_DecodeASCII(b.data, (Py_ssize_t)b.len, NULL);
}

static PyObject *m_b2a_base64(PyObject *module, PyObject *args, PyObject *options)
{
        static const char *const names[] = { "", "newline", NULL };
        PyObject *ret = NULL;
        Py_buffer data;
        int newline = 1;
        size_t size;

        if (!PyArg_ParseTupleAndKeywords(args, options, "y*|$p:b2a_base64", (char **)(uintptr_t)names, &data, &newline))
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

/* By its name. NULL with an exception. */
static struct cg_shell *need_shell(struct cg_io *io, const char *name)
{
        struct cg_shell *sh = cg_io_shell(io, name);

        if (!sh)
                PyErr_Format(PyExc_KeyError, "no shell %.60s", name);
        return sh;
}

static PyObject *m_request_fd(PyObject *module, PyObject *args)
{
        struct cg_io *io = need_io(module, "request_fd");
        struct cg_shell *sh;
        const char *name;

        if (!io || !PyArg_ParseTuple(args, "s:request_fd", &name))
                return NULL;
        sh = need_shell(io, name);
        return sh ? PyLong_FromLong(cg_io_request_fd(sh)) : NULL;
}

static PyObject *m_open_shell(PyObject *module, PyObject *args)
{
        struct cg_io *io = need_io(module, "a subshell");
        const char *name;
        struct cg_err err;

        if (!io || !PyArg_ParseTuple(args, "s:open_shell", &name))
                return NULL;
        if (cg_io_shell_open(io, name, &err) < 0)
                return raise_err(&err);
        Py_RETURN_NONE;
}

static PyObject *m_close_shell(PyObject *module, PyObject *args)
{
        struct cg_io *io = need_io(module, "a subshell");
        const char *name;
        struct cg_err err;

        if (!io || !PyArg_ParseTuple(args, "s:close_shell", &name))
                return NULL;
        if (cg_io_shell_close(io, name, &err) < 0)
                return raise_err(&err);
        Py_RETURN_NONE;
}

static PyObject *m_call_main(PyObject *module, PyObject *unused)
{
        struct cg_io *io = need_io(module, "a call in the main thread");
        struct cg_err err;

        if (!io)
                return NULL;
        if (cg_io_call_main(io, &err) < 0)
                return raise_err(&err);
        Py_RETURN_NONE;
}

static PyObject *m_shell_gone(PyObject *module, PyObject *args)
{
        struct cg_io *io = need_io(module, "a subshell");
        struct cg_shell *sh;
        const char *name;

        if (!io || !PyArg_ParseTuple(args, "s:shell_gone", &name))
                return NULL;
        sh = need_shell(io, name);
        if (!sh)
                return NULL;
        cg_io_shell_gone(sh);
        Py_RETURN_NONE;
}

/* The frames from @first on, as bytes. */
static PyObject *frames_tuple(struct cg_request *req, size_t first)
{
        size_t n = req->n_frames > first ? req->n_frames - first : 0;
        PyObject *ret = PyTuple_New((Py_ssize_t)n);

        for (size_t i = 0; ret && i < n; i++) {
                zmq_msg_t *f = &req->frames[first + i];
                PyObject *b = PyBytes_FromStringAndSize(zmq_msg_data(f), (Py_ssize_t)zmq_msg_size(f));

                if (!b)
                        Py_CLEAR(ret);
                else
                        PyTuple_SET_ITEM(ret, (Py_ssize_t)i, b);
        }
        return ret;
}

/* A cell's code, or the type of another request. */
static PyObject *request_text(struct cg_request *req)
{
        if (req->kind != CG_REQUEST_CELL || !req->n_frames)
                return PyUnicode_FromString(req->type);
        return PyUnicode_DecodeUTF8(zmq_msg_data(&req->frames[0]), (Py_ssize_t)zmq_msg_size(&req->frames[0]), "replace");
}

static PyObject *request_tuple(struct cg_request *req)
{
        PyObject *text = request_text(req), *frames = frames_tuple(req, req->kind == CG_REQUEST_CELL), *ret = NULL;

        if (text && frames)
                ret = Py_BuildValue("(iKOOOOO)", (int)req->kind, (unsigned long long)req->id, text, frames,
                                    req->silent ? Py_True : Py_False, req->store_history ? Py_True : Py_False,
                                    req->allow_stdin ? Py_True : Py_False);
        Py_XDECREF(text);
        Py_XDECREF(frames);
        cg_request_free(req);
        return ret;
}

static PyObject *m_next_request(PyObject *module, PyObject *args)
{
        struct cg_io *io = need_io(module, "next_request");
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

/* A reply where the handler itself failed: built here, where nothing can fail any more. Clears the exception. */
static void fallback_text(char *buf, size_t size, bool cell)
{
        PyObject *type = PyErr_Occurred(); /* borrowed */
        const char *name = type && PyType_Check(type) ? plain_name(((PyTypeObject *)type)->tp_name) : "SystemError";

        snprintf(buf, size, "{\"status\":\"error\",%s\"ename\":\"%.200s\","
                 "\"evalue\":\"the kernel could not report how the %s ended\"}",
                 cell ? "\"execution_count\":0,\"refused\":false," : "", name, cell ? "cell" : "request");
        PyErr_Clear();
}

static int reply(struct cg_shell *sh, const struct cg_out *out)
{
        struct cg_err err;
        int r;

        Py_BEGIN_ALLOW_THREADS
        r = cg_io_reply(sh, out, &err);
        Py_END_ALLOW_THREADS
        return r < 0 ? (raise_err(&err), -1) : 0;
}

/*
 * Replies with what func() returned: (body, content) of a cell, (content, buffers) of another request. -1 with an
 * exception: nothing was sent.
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
        if (!PyArg_ParseTuple(result, cell ? "s#s#" : "s#O", &text, &len, cell ? (void *)&content : (void *)&seq, &content_len))
                return -1;
        if (seq && buffers_take(&buffers, seq) < 0)
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
        buffers_release(&buffers);
        return r;
}

static void reply_fallback(struct cg_shell *sh, const struct cg_out *out)
{
        struct cg_out plain = { .type = out->type, .id = out->id, .has_raw = true };
        char text[512];

        fallback_text(text, sizeof(text), out->type == CG_KERNEL_EXECUTE_REPLY);
        if (out->type == CG_KERNEL_EXECUTE_REPLY) {
                plain.body = text;
                plain.body_len = strlen(text);
        } else {
                plain.raw = text;
                plain.raw_len = strlen(text);
        }
        reply(sh, &plain);
}

static PyObject *m_run(PyObject *module, PyObject *args)
{
        struct cg_io *io = need_io(module, "run");
        struct cg_out out = { .has_raw = true };
        unsigned long long id;
        int kind, allow_stdin;
        PyObject *func, *result;
        struct cg_shell *sh;
        const char *name;

        if (!io || !PyArg_ParseTuple(args, "siKpO:run", &name, &kind, &id, &allow_stdin, &func))
                return NULL;
        sh = need_shell(io, name);
        if (!sh)
                return NULL;
        out.type = kind == CG_REQUEST_CELL ? CG_KERNEL_EXECUTE_REPLY : CG_KERNEL_REPLY;
        out.id = id;
        cg_io_cell_begin(sh, id, allow_stdin);
        result = PyObject_CallNoArgs(func);
        if (cg_io_forked(io)) /* a child that ran on after os.fork(): the loop that serves is not its business */
                _exit(result ? 0 : 1);
        /* No Python runs between the end of the call and this: an interrupt hits the cell, or nothing. */
        cg_io_cell_close(sh);
        if (*name) /* an interrupt that came too late for this thread */
                PyThreadState_SetAsyncExc(PyThread_get_thread_ident(), NULL);
        if (!result || reply_with(sh, &out, result) < 0)
                reply_fallback(sh, &out);
        Py_XDECREF(result);
        PyErr_Clear();
        Py_RETURN_NONE;
}

/*
 * KeyboardInterrupt in the thread of a subshell's cell: where it runs Python, or waits for us. Only then its child processes are interrupted:
 * a subprocess.run() that returns before would let the cell go on, or end. The GIL is held all the time.
 */
static PyObject *m_interrupt_subshell(PyObject *module, PyObject *args)
{
        struct cg_io *io = need_io(module, "interrupt_subshell");
        unsigned long long cell;
        pthread_t thread;
        uint64_t began;

        if (!io || !PyArg_ParseTuple(args, "K:interrupt_subshell", &cell))
                return NULL;
        if (!cg_io_interrupt_subshell(io, cell, &thread, &began))
                Py_RETURN_FALSE;
        PyThreadState_SetAsyncExc((unsigned long)thread, PyExc_KeyboardInterrupt);
        if (began) /* else other cells run as well, and whose children they are is not known */
                cg_procs_interrupt(began);
        Py_RETURN_TRUE;
}

static PyObject *m_current_cell(PyObject *module, PyObject *unused)
{
        struct cg_io *io = get_io(module);
        uint64_t cell = current_cell(module);

        if (cell == CG_IO_RUNNING)
                cell = io && !cg_io_forked(io) ? cg_io_running(io) : 0;
        return PyLong_FromUnsignedLongLong(cell);
}

static PyObject *m_may_ask(PyObject *module, PyObject *unused)
{
        struct cg_io *io = get_io(module);

        return PyBool_FromLong(io && !cg_io_forked(io) && cg_io_may_ask(io, current_cell(module)));
}

/* The debugger's, when there is one: it must know of the interrupt before the stopped cell is left. */
static void before_interrupt(PyObject *module)
{
        PyObject *func = PyObject_GetAttrString(module, "before_interrupt"), *r = NULL;

        if (func && func != Py_None)
                r = PyObject_CallNoArgs(func);
        Py_XDECREF(func);
        Py_XDECREF(r);
        PyErr_Clear();
}

/* The handler of SIGINT. In C, so that tracebacks show the cell and not the handler. */
static PyObject *m_on_sigint(PyObject *module, PyObject *args)
{
        struct cg_io *io = get_io(module);

        if (io && (cg_io_forked(io) || cg_io_take_interrupt(io))) {
                before_interrupt(module);
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

/* ------------------------------------------------------------------ the control shell */

static PyObject *m_on_control(PyObject *module, PyObject *func)
{
        Py_XSETREF(get_state(module)->control, Py_NewRef(func));
        Py_RETURN_NONE;
}

/* Sends the text that the handler has returned, or what it failed with. Clears the exception. */
static void answer(struct cg_io *io, uint64_t id, PyObject *result)
{
        struct cg_out out = { .type = CG_KERNEL_REPLY, .id = id, .has_raw = true };
        Py_ssize_t len = 0;
        char fallback[512];
        struct cg_err err;

        out.raw = result ? PyUnicode_AsUTF8AndSize(result, &len) : NULL;
        out.raw_len = (size_t)len;
        if (!out.raw || cg_io_answer(io, &out, &err) < 0) {
                fallback_text(fallback, sizeof(fallback), false);
                out.raw = fallback;
                out.raw_len = strlen(fallback);
                cg_io_answer(io, &out, &err);
        }
        PyErr_Clear();
}

static void serve_control(PyObject *module, struct cg_request *req)
{
        struct state *st = get_state(module);
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
        PyGILState_STATE gil = PyGILState_Ensure(); /* kept: what it runs may keep things of this thread */
        struct cg_shell *sh = cg_io_shell(get_io(module), CG_IO_CONTROL);
        struct pollfd p = { .fd = cg_io_request_fd(sh), .events = POLLIN };

        for (;;) {
                struct cg_request *req = cg_io_next_request(sh);

                if (req) {
                        serve_control(module, req);
                        continue;
                }
                Py_BEGIN_ALLOW_THREADS
                if ((poll(&p, 1, -1) < 0 && errno != EINTR) || p.revents & POLLNVAL)
                        sleep(1); /* a cell has closed it: there is no way back, and no reason to spin */
                Py_END_ALLOW_THREADS
        }
        PyGILState_Release(gil);
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
        if (cg_io_input(io, current_cell(module), content, (size_t)len, &w, &err) < 0)
                return raise_err(&err);
        if (wait_done(io, w) == 0) {
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
                r = wait_done(io, w);
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
        if (wait_done(io, w) == 0) {
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

/* ------------------------------------------------------------------ for the debugger */

/* MurmurHash2 by Austin Appleby, who has put it into the public domain: front-ends name the files of cells by it. */
static uint32_t murmur2(const unsigned char *p, size_t len, uint32_t seed)
{
        const uint32_t m = 0x5bd1e995;
        uint32_t h = seed ^ (uint32_t)len;

        for (; len >= 4; p += 4, len -= 4) {
                uint32_t k = (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;

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
        { "write_stdout", m_write_stdout, METH_O, NULL },
        { "write_stderr", m_write_stderr, METH_O, NULL },
        { "write_bytes", m_write_bytes, METH_VARARGS, NULL },
        { "flush", m_flush, METH_NOARGS, NULL },
        { "publish", m_publish, METH_VARARGS, NULL },
        { "explain", m_explain, METH_VARARGS, NULL },
        { "dumps", m_dumps, METH_O, NULL },
        { "b2a_base64", (PyCFunction)(void (*)(void))m_b2a_base64, METH_VARARGS | METH_KEYWORDS, NULL },
        { "ready", m_ready, METH_VARARGS, NULL },
        { "request_fd", m_request_fd, METH_VARARGS, NULL },
        { "open_shell", m_open_shell, METH_VARARGS, NULL },
        { "close_shell", m_close_shell, METH_VARARGS, NULL },
        { "shell_gone", m_shell_gone, METH_VARARGS, NULL },
        { "call_main", m_call_main, METH_NOARGS, NULL },
        { "murmur2", m_murmur2, METH_VARARGS, NULL },
        { "interrupt_subshell", m_interrupt_subshell, METH_VARARGS, NULL },
        { "on_control", m_on_control, METH_O, NULL },
        { "current_cell", m_current_cell, METH_NOARGS, NULL },
        { "may_ask", m_may_ask, METH_NOARGS, NULL },
        { "next_request", m_next_request, METH_VARARGS, NULL },
        { "run", m_run, METH_VARARGS, NULL },
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
        PyObject *m = PyModule_Create(&module_def);

        if (!m)
                return NULL;
        get_state(m)->cell = PyContextVar_New("cellgate_cell", NULL);
        if (!get_state(m)->cell || PyModule_AddObjectRef(m, "cell", get_state(m)->cell) < 0 ||
            PyModule_AddObjectRef(m, "before_interrupt", Py_None) < 0)
                Py_CLEAR(m);
        return m;
}

void cg_py_module_attach(PyObject *module, struct cg_io *io, const struct cg_sandbox *plan)
{
        get_state(module)->io = io;
        get_state(module)->plan = plan;
}
