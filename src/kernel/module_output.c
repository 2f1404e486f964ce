/* Functions of `_cellgate` for streams and rich output. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "kernel/module_int.h"

#include "base/buf.h"
#include "kernel/pyjson.h"

/* Longer writes are split, so that they wait for room in the queue between the pieces. */
#define PIECE (256u << 10)

/* ------------------------------------------------------------------ streams */

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
        struct line *line = &cg_py_state(module)->lines[i];
        size_t len = line->len;

        line->len = 0;
        return write_fd(i + 1, line->data, len);
}

/* In a process that the cell forked: output reaches the cell through the inherited pipe. */
static int write_forked(PyObject *module, int i, const char *data, size_t len)
{
        struct line *line = &cg_py_state(module)->lines[i];
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

typedef int (*write_fn)(struct cg_io *io, uint64_t cell, unsigned flags, const char *data, size_t len,
                        struct cg_err *err);

static int write_all(PyObject *module, write_fn fn, unsigned flags, const char *data, size_t len)
{
        struct cg_io *io = cg_py_io(module);
        uint64_t cell;

        if (cg_io_forked(io))
                return write_forked(module, (flags & CG_FLAG_STDERR) != 0, data, len);
        cell = cg_py_current_cell(module);
        while (len) {
                size_t n = CG_MIN(len, PIECE);
                struct cg_err err;
                int r;

                /* not inside a character */
                while (n < len && n > PIECE - 4 && ((unsigned char)data[n] & 0xc0) == 0x80)
                        n--;
                r = fn(io, cell, flags, data, n, &err);

                if (r == CG_TIMEOUT) {
                        if (cg_py_wait_room(io) < 0)
                                return -1;
                        continue;
                }
                if (r < 0) {
                        cg_py_raise(&err);
                        return -1;
                }
                data += n;
                len -= n;
        }
        return 0;
}

/* UTF-8 with U+FFFD for lone surrogates, which "surrogatepass" encodes in three bytes as well. */
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
        struct cg_io *io = cg_py_io(module);
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
                r = write_all(module, cg_io_write, flags, PyBytes_AS_STRING(bytes),
                              (size_t)PyBytes_GET_SIZE(bytes));
                Py_DECREF(bytes);
        } else {
                r = 0;
        }
        if (r < 0)
                return NULL;
        return PyLong_FromSsize_t(PyUnicode_GET_LENGTH(text));
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
        struct cg_io *io = cg_py_io(module);
        Py_buffer data;
        int is_stderr, r = 0;
        Py_ssize_t len;

        if (!PyArg_ParseTuple(args, "py*:write_bytes", &is_stderr, &data))
                return NULL;
        len = data.len;
        if (io)
                r = write_all(module, cg_io_write_bytes, is_stderr ? CG_FLAG_STDERR : 0, data.buf,
                              (size_t)len);
        PyBuffer_Release(&data);
        if (r < 0)
                return NULL;
        return PyLong_FromSsize_t(len);
}

static PyObject *m_flush(PyObject *module, PyObject *unused)
{
        struct cg_io *io = cg_py_io(module);

        if (io && cg_io_forked(io) && (flush_line(module, 0) < 0 || flush_line(module, 1) < 0))
                return NULL;
        if (io && !cg_io_forked(io) && cg_py_flush(io) < 0)
                return NULL;
        Py_RETURN_NONE;
}

static PyObject *m_error_lines(PyObject *module, PyObject *unused)
{
        struct cg_io *io = cg_py_io(module);
        char lines[CG_ERROR_LINES_MAX];
        size_t len = io && !cg_io_forked(io) ? cg_io_error_lines(io, lines) : 0;

        return PyBytes_FromStringAndSize(lines, (Py_ssize_t)len);
}

/* ------------------------------------------------------------------ rich output */

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

void cg_py_buffers_release(struct buffers *b)
{
        while (b->n)
                PyBuffer_Release(&b->views[--b->n]);
}

int cg_py_buffers_take(struct buffers *b, PyObject *seq)
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
        /* an exporter is Python code that may change the list: read its size each time */
        for (Py_ssize_t i = 0; i < n && i < PySequence_Fast_GET_SIZE(seq); i++) {
                if (PyObject_GetBuffer(PySequence_Fast_GET_ITEM(seq, i), &b->views[i], PyBUF_SIMPLE) < 0) {
                        cg_py_buffers_release(b);
                        return -1;
                }
                b->bytes[i] = (struct cg_bytes){ b->views[i].buf, (size_t)b->views[i].len };
                b->n = i + 1;
        }
        return 0;
}

/* Queues the message, waiting for room. @text is taken if it is the content. -1: exception. */
static int publish(struct cg_io *io, const struct cg_out *m, struct cg_buf *text)
{
        for (;;) {
                struct cg_err err;
                int r = cg_io_publish(io, m, text, &err);

                if (r == 0)
                        return 0;
                if (r < 0) {
                        cg_py_raise(&err);
                        return -1;
                }
                if (cg_py_wait_room(io) < 0)
                        return -1;
        }
}

static PyObject *m_publish(PyObject *module, PyObject *args)
{
        struct cg_io *io = cg_py_io(module);
        /* no limit here: the error of the message's own limit is clearer */
        cg_auto_buf struct cg_buf text = { .max = SIZE_MAX / 2 };
        struct cg_out out = { .has_raw = true };
        PyObject *content, *seq = NULL;
        struct buffers buffers;
        const char *name;
        Py_ssize_t len;
        int r;

        if (!PyArg_ParseTuple(args, "sO|O:publish", &name, &content, &seq))
                return NULL;
        for (size_t i = 0; i < CG_ARRAY_LEN(kinds); i++)
                if (strcmp(kinds[i].name, name) == 0)
                        out.type = kinds[i].type;
        if (!out.type)
                return PyErr_Format(PyExc_ValueError, "no message %.100s", name);
        if (!io)
                Py_RETURN_NONE;
        if (!cg_py_need_io(module, "rich output"))
                return NULL;
        if (PyUnicode_Check(content)) { /* JSON text */
                out.raw = PyUnicode_AsUTF8AndSize(content, &len);
                out.raw_len = (size_t)len;
                if (!out.raw)
                        return NULL;
        } else {
                if (cg_pyjson(&text, content) < 0)
                        return NULL;
                out.raw = text.data;
                out.raw_len = text.len;
        }
        buffers.n = 0;
        if (seq && cg_py_buffers_take(&buffers, seq) < 0)
                return NULL;
        out.id = out.type == CG_KERNEL_DEBUG_EVENT ? 0 : cg_py_current_cell(module);
        out.more = buffers.bytes;
        out.n_more = (size_t)buffers.n;
        r = publish(io, &out, &text);
        cg_py_buffers_release(&buffers);
        if (r < 0)
                return NULL;
        Py_RETURN_NONE;
}

PyMethodDef cg_py_output[] = {
        { "write_stdout", m_write_stdout, METH_O, NULL },
        { "write_stderr", m_write_stderr, METH_O, NULL },
        { "write_bytes", m_write_bytes, METH_VARARGS, NULL },
        { "flush", m_flush, METH_NOARGS, NULL },
        { "error_lines", m_error_lines, METH_NOARGS, NULL },
        { "publish", m_publish, METH_VARARGS, NULL },
        { NULL, NULL, 0, NULL },
};
