/*
 * JSON text of Python objects. Kernel process. The standard library's encoder needs several passes
 * and copies, which for a picture take longer than all other work on the message.
 */
#include "kernel/pyjson.h"

#include <math.h>
#include "base/base64.h"
#include "base/text.h"

/* Characters of non-ASCII text converted at a time, and most bytes of each. */
#define PIECE 4096
#define MOST  12

static int put_value(struct cg_buf *b, PyObject *v);

/* ------------------------------------------------------------------ bytes */

static int failed(const struct cg_err *err)
{
        PyErr_SetString(err->code == CG_E_NOMEM ? PyExc_MemoryError : PyExc_ValueError, err->msg);
        return -1;
}

static int put(struct cg_buf *b, const char *text, size_t len)
{
        struct cg_err err;

        if (cg_buf_try_add(b, text, len, &err) < 0)
                return failed(&err);
        return 0;
}

static char *room(struct cg_buf *b, size_t n)
{
        struct cg_err err;
        char *p;

        return cg_buf_reserve(b, n, &p, &err) < 0 ? (failed(&err), NULL) : p;
}

static void set_end(struct cg_buf *b, const char *end)
{
        b->len = (size_t)(end - b->data);
        cg_buf_terminate(b);
}

/* ------------------------------------------------------------------ text */

static char *put_u(char *p, Py_UCS4 c)
{
        static const char hex[] = "0123456789abcdef";

        *p++ = '\\';
        *p++ = 'u';
        for (int shift = 12; shift >= 0; shift -= 4)
                *p++ = hex[c >> shift & 15];
        return p;
}

/* A character that has to be escaped. NUL becomes U+FFFD: many readers cannot handle it. */
static char *put_special(char *p, Py_UCS4 c)
{
        static const char from[] = "\"\\\n\r\t\b\f", to[] = "\"\\nrtbf";
        const char *found = c && c < 0x80 ? strchr(from, (int)c) : NULL;

        if (found) {
                *p++ = '\\';
                *p++ = to[found - from];
                return p;
        }
        if (c < 0x10000)
                return put_u(p, c ?: 0xfffd);
        c -= 0x10000;
        return put_u(put_u(p, 0xd800 + (c >> 10)), 0xdc00 + (c & 0x3ff));
}

static int put_ascii(struct cg_buf *b, const char *s, size_t len)
{
        size_t i = 0;

        while (i < len) {
                size_t n = cg_json_run(s + i, len - i);
                const char *delete = memchr(s + i, 0x7f, n);
                char *p;

                if (delete)
                        n = (size_t)(delete - (s + i));
                if (put(b, s + i, n) < 0)
                        return -1;
                i += n;
                if (i == len)
                        break;
                p = room(b, MOST);
                if (!p)
                        return -1;
                set_end(b, put_special(p, (unsigned char)s[i++]));
        }
        return 0;
}

/* The character at @i, or U+FFFD for a surrogate that is not part of a pair. */
static Py_UCS4 valid_char(PyObject *s, Py_ssize_t i)
{
        Py_UCS4 c = PyUnicode_READ_CHAR(s, i);
        bool high = c >= 0xd800 && c < 0xdc00, low = c >= 0xdc00 && c < 0xe000;

        if (high && i + 1 < PyUnicode_GET_LENGTH(s) && (PyUnicode_READ_CHAR(s, i + 1) & ~0x3ffu) == 0xdc00)
                return c;
        if (low && i > 0 && (PyUnicode_READ_CHAR(s, i - 1) & ~0x3ffu) == 0xd800)
                return c;
        return high || low ? 0xfffd : c;
}

static int put_wide(struct cg_buf *b, PyObject *s)
{
        Py_ssize_t len = PyUnicode_GET_LENGTH(s);

        for (Py_ssize_t i = 0; i < len;) {
                Py_ssize_t end = len - i < PIECE ? len : i + PIECE;
                char *p = room(b, PIECE * MOST);

                if (!p)
                        return -1;
                for (; i < end; i++) {
                        Py_UCS4 c = valid_char(s, i);

                        if (c >= 0x20 && c < 0x7f && c != '"' && c != '\\')
                                *p++ = (char)c;
                        else
                                p = put_special(p, c);
                }
                set_end(b, p);
        }
        return 0;
}

static int put_text(struct cg_buf *b, PyObject *s)
{
        int r;

        if (PyUnicode_READY(s) < 0 || put(b, "\"", 1) < 0)
                return -1;
        if (PyUnicode_IS_ASCII(s))
                r = put_ascii(b, PyUnicode_DATA(s), (size_t)PyUnicode_GET_LENGTH(s));
        else
                r = put_wide(b, s);
        return r ?: put(b, "\"", 1);
}

static int put_base64(struct cg_buf *b, const Py_buffer *data)
{
        size_t size = cg_base64_size((size_t)data->len);
        char *p = room(b, size + 2);

        if (!p)
                return -1;
        *p++ = '"';
        cg_base64(p, data->buf, (size_t)data->len);
        p += size;
        *p++ = '"';
        set_end(b, p);
        return 0;
}

/* ------------------------------------------------------------------ numbers */

/* @text: a new reference, or NULL with an exception. */
static int put_plain(struct cg_buf *b, PyObject *text)
{
        Py_ssize_t len;
        const char *s = text ? PyUnicode_AsUTF8AndSize(text, &len) : NULL;
        int r = s ? put(b, s, (size_t)len) : -1;

        Py_XDECREF(text);
        return r;
}

/* ------------------------------------------------------------------ objects and lists */

static int put_key(struct cg_buf *b, PyObject *key)
{
        bool bare = key == Py_None || key == Py_True || key == Py_False || PyLong_Check(key) ||
                    PyFloat_Check(key);
        PyObject *text;
        int r;

        if (PyUnicode_Check(key))
                return put_text(b, key);
        if (bare)
                return put(b, "\"", 1) < 0 || put_value(b, key) < 0 ? -1 : put(b, "\"", 1);
        text = PyObject_Str(key);
        r = text ? put_text(b, text) : -1;
        Py_XDECREF(text);
        return r;
}

static int put_dict(struct cg_buf *b, PyObject *v)
{
        /* a copy: Python code called below may change the dict */
        PyObject *items = PyMapping_Items(v);
        int r = items ? put(b, "{", 1) : -1;

        for (Py_ssize_t i = 0; r == 0 && i < PyList_GET_SIZE(items); i++) {
                PyObject *item = PyList_GET_ITEM(items, i);

                /* items() of a subclass can return anything */
                if (!PyTuple_Check(item) || PyTuple_GET_SIZE(item) != 2) {
                        PyErr_SetString(PyExc_ValueError, "items must return 2-tuples");
                        r = -1;
                } else if ((i && put(b, ",", 1) < 0) || put_key(b, PyTuple_GET_ITEM(item, 0)) < 0 ||
                           put(b, ":", 1) < 0) {
                        r = -1;
                } else {
                        r = put_value(b, PyTuple_GET_ITEM(item, 1));
                }
        }
        Py_XDECREF(items);
        return r ?: put(b, "}", 1);
}

static int put_sequence(struct cg_buf *b, PyObject *v)
{
        int r = put(b, "[", 1);

        /* Python code called below may change a list */
        for (Py_ssize_t i = 0; r == 0 && i < PySequence_Fast_GET_SIZE(v); i++) {
                PyObject *item = Py_NewRef(PySequence_Fast_GET_ITEM(v, i));

                r = put(b, ",", i > 0) < 0 ? -1 : put_value(b, item);
                Py_DECREF(item);
        }
        return r ?: put(b, "]", 1);
}

/* ------------------------------------------------------------------ other objects */

static int put_bytes(struct cg_buf *b, PyObject *v)
{
        PyObject *copy = NULL;
        Py_buffer data;
        int r = PyObject_GetBuffer(v, &data, PyBUF_SIMPLE);

        if (r < 0) { /* a view that is not contiguous */
                PyErr_Clear();
                copy = PyObject_CallMethod(v, "tobytes", NULL);
                r = copy ? PyObject_GetBuffer(copy, &data, PyBUF_SIMPLE) : -1;
        }
        if (r == 0) {
                r = put_base64(b, &data);
                PyBuffer_Release(&data);
        }
        Py_XDECREF(copy);
        return r;
}

static int put_other(struct cg_buf *b, PyObject *v)
{
        PyObject *method = PyObject_GetAttrString(v, "item"), *plain = NULL;
        int r;

        /* The Python value of a numpy scalar. */
        if (method && PyCallable_Check(method))
                plain = PyObject_CallNoArgs(method);
        Py_XDECREF(method);
        if (!plain && PyErr_ExceptionMatches(PyExc_Exception)) /* item() of an array with several items */
                PyErr_Clear();
        if (plain) {
                r = put_value(b, plain);
        } else {
                plain = PyErr_Occurred() ? NULL : PyObject_Repr(v);
                r = plain ? put_text(b, plain) : -1;
        }
        Py_XDECREF(plain);
        return r;
}

static int put_nested(struct cg_buf *b, PyObject *v)
{
        int r;

        if (Py_EnterRecursiveCall(" while encoding JSON"))
                return -1;
        if (PyDict_Check(v))
                r = put_dict(b, v);
        else if (PyList_Check(v) || PyTuple_Check(v))
                r = put_sequence(b, v);
        else
                r = put_other(b, v);
        Py_LeaveRecursiveCall();
        return r;
}

static int put_value(struct cg_buf *b, PyObject *v)
{
        if (PyUnicode_Check(v))
                return put_text(b, v);
        if (v == Py_None)
                return put(b, "null", 4);
        if (v == Py_True)
                return put(b, "true", 4);
        if (v == Py_False)
                return put(b, "false", 5);
        if (PyLong_Check(v))
                return put_plain(b, PyLong_Type.tp_repr(v)); /* repr() of a subclass can be anything */
        if (PyFloat_Check(v))
                return isfinite(PyFloat_AS_DOUBLE(v)) ? put_plain(b, PyFloat_Type.tp_repr(v))
                                                      : put(b, "null", 4);
        if (PyBytes_Check(v) || PyByteArray_Check(v) || PyMemoryView_Check(v))
                return put_bytes(b, v);
        return put_nested(b, v);
}

int cg_pyjson(struct cg_buf *b, PyObject *value)
{
        return put_value(b, value);
}

/* ------------------------------------------------------------------ exact */

/* UTF-8 text as it is, but for characters that JSON escapes. */
static void exact_quote(struct cg_buf *b, const char *s, size_t len)
{
        cg_buf_adds(b, "\"");
        while (len) {
                size_t n = cg_json_run(s, len);

                while (n < len && (unsigned char)s[n] >= 0x80)
                        n++;
                cg_buf_add(b, s, n);
                if (!n) {
                        char special[MOST],
                                *end = *s ? put_special(special, (unsigned char)*s) : put_u(special, 0);

                        cg_buf_add(b, special, (size_t)(end - special));
                        n = 1;
                }
                s += n;
                len -= n;
        }
        cg_buf_adds(b, "\"");
}

static bool exact_text(struct cg_buf *b, PyObject *s)
{
        PyObject *utf8;

        if (PyUnicode_READY(s) < 0)
                return false;
        if (PyUnicode_IS_ASCII(s)) {
                exact_quote(b, PyUnicode_DATA(s), (size_t)PyUnicode_GET_LENGTH(s));
                return true;
        }
        utf8 = PyUnicode_AsUTF8String(s); /* PyUnicode_AsUTF8() would keep it in the user's object */
        if (!utf8)
                return false;
        exact_quote(b, PyBytes_AS_STRING(utf8), (size_t)PyBytes_GET_SIZE(utf8));
        Py_DECREF(utf8);
        return true;
}

static bool exact_value(struct cg_buf *b, PyObject *v, unsigned levels);

static bool exact_dict(struct cg_buf *b, PyObject *v, unsigned levels)
{
        PyObject *key, *value;
        const char *before = "{";
        Py_ssize_t i = 0;

        while (PyDict_Next(v, &i, &key, &value)) {
                cg_buf_adds(b, before);
                before = ",";
                if (!PyUnicode_CheckExact(key) || !exact_text(b, key))
                        return false;
                cg_buf_adds(b, ":");
                if (!exact_value(b, value, levels))
                        return false;
        }
        cg_buf_adds(b, *before == '{' ? "{}" : "}");
        return true;
}

static bool exact_list(struct cg_buf *b, PyObject *v, unsigned levels)
{
        cg_buf_adds(b, "[");
        for (Py_ssize_t i = 0; i < PyList_GET_SIZE(v); i++) {
                if (i)
                        cg_buf_adds(b, ",");
                if (!exact_value(b, PyList_GET_ITEM(v, i), levels))
                        return false;
        }
        cg_buf_adds(b, "]");
        return true;
}

/*
 * False, perhaps with an exception, where there is no exact text. Runs no Python, so that no thread
 * changes the value meanwhile.
 */
static bool exact_value(struct cg_buf *b, PyObject *v, unsigned levels)
{
        if (b->failed)
                return false;
        if (PyUnicode_CheckExact(v))
                return exact_text(b, v);
        if (v == Py_None || PyBool_Check(v) || PyLong_CheckExact(v) ||
            (PyFloat_CheckExact(v) && isfinite(PyFloat_AS_DOUBLE(v))))
                return put_value(b, v) == 0;
        if (!levels)
                return false;
        if (PyDict_CheckExact(v))
                return exact_dict(b, v, levels - 1);
        return PyList_CheckExact(v) && exact_list(b, v, levels - 1);
}

bool cg_pyjson_exact(struct cg_buf *b, PyObject *value, unsigned levels)
{
        bool exact = exact_value(b, value, levels) && !b->failed;

        PyErr_Clear();
        return exact;
}
