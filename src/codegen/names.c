/* Python names for foreign ones: packages, modules, fields, classes. Runs in trusted processes. */
#include "codegen/names.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "codegen/codegen.h"
#include "codegen/ceilings.h"
#include "codegen/text.h"

static const char *const keywords[] = {
        "False", "None",     "True",  "and",    "as",   "assert", "async",  "await",    "break",
        "class", "continue", "def",   "del",    "elif", "else",   "except", "finally",  "for",
        "from",  "global",   "if",    "import", "in",   "is",     "lambda", "nonlocal", "not",
        "or",    "pass",     "raise", "return", "try",  "while",  "with",   "yield",
};

/*
 * A field may not be called like a type that annotations use (it would change the fields after it
 * for type checkers), nor like what Model defines.
 */
static const char *const no_field[] = {
        "Any",        "Literal",           "Model",          "UNSET", "bool", "dict", "float", "int", "list",
        "model_dump", "model_json_schema", "model_validate", "str",
};

static const char *const no_class[] = {
        "Any", "Literal", "Model", "Params", "Result", "Text", "ToolResult", "UNSET",
};

/*
 * Top-level modules of Python 3.11 to 3.13. A package folder may end up on sys.path; it must not
 * hide one of these.
 */
static const char *const stdlib[] = {
        // clang-format off
        "abc", "aifc", "antigravity", "argparse", "array", "ast", "asynchat", "asyncio", "asyncore",
        "atexit", "audioop", "base64", "bdb", "binascii", "bisect", "builtins", "bz2", "calendar", "cgi",
        "cgitb", "chunk", "cmath", "cmd", "code", "codecs", "codeop", "collections", "colorsys",
        "compileall", "concurrent", "configparser", "contextlib", "contextvars", "copy", "copyreg",
        "cprofile", "crypt", "csv", "ctypes", "curses", "dataclasses", "datetime", "dbm", "decimal",
        "difflib", "dis", "distutils", "doctest", "email", "encodings", "ensurepip", "enum", "errno",
        "faulthandler", "fcntl", "filecmp", "fileinput", "fnmatch", "fractions", "ftplib", "functools",
        "gc", "genericpath", "getopt", "getpass", "gettext", "glob", "graphlib", "grp", "gzip", "hashlib",
        "heapq", "hmac", "html", "http", "idlelib", "imaplib", "imghdr", "imp", "importlib", "inspect",
        "io", "ipaddress", "itertools", "json", "keyword", "lib2to3", "linecache", "locale", "logging",
        "lzma", "mailbox", "mailcap", "marshal", "math", "mimetypes", "mmap", "modulefinder", "msilib",
        "msvcrt", "multiprocessing", "netrc", "nis", "nntplib", "nt", "ntpath", "nturl2path", "numbers",
        "opcode", "operator", "optparse", "os", "ossaudiodev", "pathlib", "pdb", "pickle", "pickletools",
        "pipes", "pkgutil", "platform", "plistlib", "poplib", "posix", "posixpath", "pprint", "profile",
        "pstats", "pty", "pwd", "py_compile", "pyclbr", "pydoc", "pydoc_data", "pyexpat", "queue", "quopri",
        "random", "re", "readline", "reprlib", "resource", "rlcompleter", "runpy", "sched", "secrets",
        "select", "selectors", "shelve", "shlex", "shutil", "signal", "site", "smtpd", "smtplib", "sndhdr",
        "socket", "socketserver", "spwd", "sqlite3", "sre_compile", "sre_constants", "sre_parse", "ssl",
        "stat", "statistics", "string", "stringprep", "struct", "subprocess", "sunau", "symtable", "sys",
        "sysconfig", "syslog", "tabnanny", "tarfile", "telnetlib", "tempfile", "termios", "textwrap",
        "this", "threading", "time", "timeit", "tkinter", "token", "tokenize", "tomllib", "trace",
        "traceback", "tracemalloc", "tty", "turtle", "turtledemo", "types", "typing", "unicodedata",
        "unittest", "urllib", "uu", "uuid", "venv", "warnings", "wave", "weakref", "webbrowser", "winreg",
        "winsound", "wsgiref", "xdrlib", "xml", "xmlrpc", "zipapp", "zipfile", "zipimport", "zlib",
        "zoneinfo",
        // clang-format on
};

/* What the root package and the kernel use themselves. */
static const char *const no_package[] = { "cellgate_kernel", "cellgate_tools", "mcptools", "search" };

static bool among(struct cg_slice s, const char *const *list, size_t n)
{
        for (size_t i = 0; i < n; i++)
                if (cg_slice_is(s, list[i]))
                        return true;
        return false;
}

bool cg_is_keyword(struct cg_slice s)
{
        return among(s, keywords, CG_ARRAY_LEN(keywords));
}

/* FNV-1a and a final mix, so that the first six digits depend on every byte. */
uint64_t cg_name_hash(struct cg_slice s)
{
        uint64_t h = 0xcbf29ce484222325u;

        for (size_t i = 0; i < s.len; i++)
                h = (h ^ (unsigned char)s.p[i]) * 0x100000001b3u;
        h ^= h >> 33;
        h *= 0xff51afd7ed558ccdu;
        h ^= h >> 33;
        return h;
}

static bool letter_or_digit(uint32_t c)
{
        return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
}

static void put_hash(struct cg_source *o, struct cg_slice original, int digits)
{
        char hex[17];

        snprintf(hex, sizeof(hex), "%016" PRIx64, cg_name_hash(original));
        cg_puts(o, (struct cg_slice){ hex, (size_t)digits });
}

/* Every character that cannot stand in a name becomes one '_'. */
static void put_sanitised(struct cg_source *o, struct cg_slice s, bool lower)
{
        while (s.len) {
                uint32_t c = cg_next_char(&s);
                char out = letter_or_digit(c) ? (char)c : '_';

                if (lower && out >= 'A' && out <= 'Z')
                        out = (char)(out | 32);
                cg_puts(o, (struct cg_slice){ &out, 1 });
        }
}

static struct cg_slice strip_underscores(struct cg_slice s, bool tail)
{
        while (s.len && *s.p == '_') {
                s.p++;
                s.len--;
        }
        while (tail && s.len && s.p[s.len - 1] == '_')
                s.len--;
        return s;
}

static bool has_letter_or_digit(struct cg_slice s)
{
        for (size_t i = 0; i < s.len; i++)
                if (letter_or_digit((unsigned char)s.p[i]))
                        return true;
        return false;
}

/*
 * The name the rules give, not yet unique. @prefix stands before what would start with a digit or
 * be empty.
 */
static struct cg_slice base_name(struct cg_arena *a, struct cg_slice original, bool lower, const char *prefix)
{
        cg_auto_source struct cg_source raw = CG_SOURCE(CG_GEN_MAX_TOOL_TEXT),
                                        o = CG_SOURCE(4 * CG_GEN_MAX_NAME);
        struct cg_slice s;

        put_sanitised(&raw, original, lower);
        s = cg_source_str(&raw);
        /*
         * A leading underscore means private (fields: name mangling); a dunder has a meaning of its
         * own.
         */
        if (s.len && *s.p == '_')
                s = strip_underscores(s, lower);
        if (!has_letter_or_digit(s)) {
                cg_put(&o, prefix);
                put_hash(&o, original, 6);
                return cg_source_copy(&o, a);
        }
        if (s.p[0] >= '0' && s.p[0] <= '9')
                cg_put(&o, prefix);
        if (s.len > CG_GEN_MAX_NAME) {
                cg_puts(&o, (struct cg_slice){ s.p, CG_GEN_MAX_NAME - 7 });
                cg_put(&o, "_");
                put_hash(&o, original, 6);
        } else {
                cg_puts(&o, s);
        }
        if (cg_is_keyword(cg_source_str(&o)) ||
            (!lower && among(cg_source_str(&o), no_field, CG_ARRAY_LEN(no_field))))
                cg_put(&o, "_");
        return cg_source_copy(&o, a);
}

/* ------------------------------------------------------------------ making them unique */

static int by_name(const void *x, const void *y)
{
        const struct cg_python_name *a = *(struct cg_python_name *const *)x,
                                    *b = *(struct cg_python_name *const *)y;
        int c = cg_slice_cmp(a->name, b->name);

        return c ? c : cg_slice_cmp(a->original, b->original);
}

static struct cg_slice with_hash(struct cg_arena *a, const struct cg_python_name *n, struct cg_slice base)
{
        cg_auto_source struct cg_source o = CG_SOURCE(4 * CG_GEN_MAX_NAME);

        cg_puts(&o, base);
        cg_put(&o, "_");
        put_hash(&o, n->original, n->level == 1 ? 6 : 16);
        return cg_source_copy(&o, a);
}

static void raise_level(struct cg_arena *a, enum cg_name_kind kind, struct cg_python_name *n)
{
        struct cg_slice base = base_name(a, n->original, kind == CG_NAME_MODULE,
                                         kind == CG_NAME_MODULE ? "t_" : "p_");

        n->level++;
        n->name = n->level <= 2 ? with_hash(a, n, base) : CG_SLICE("");
}

/* One group of equal names; true when something changed. */
static bool settle(struct cg_arena *a, enum cg_name_kind kind, struct cg_python_name **group, size_t n,
                   bool reserved)
{
        bool changed = false;

        if (!group[0]->name.len || (n == 1 && !reserved))
                return false;
        for (size_t i = 0; i < n; i++) {
                bool owner = group[i]->level == 0 && cg_slice_eq(group[i]->name, group[i]->original);

                if (owner && !reserved)
                        continue;
                raise_level(a, kind, group[i]);
                changed = true;
        }
        return changed;
}

bool cg_names_assign(struct cg_arena *a, enum cg_name_kind kind, struct cg_python_name *names, size_t n,
                     const struct cg_slice *reserved, size_t n_reserved)
{
        cg_auto_free struct cg_python_name **order = calloc(n + 1, sizeof(struct cg_python_name *));
        bool changed = true;

        if (!order)
                return false;
        for (size_t i = 0; i < n; i++) {
                order[i] = &names[i];
                names[i].level = 0;
                names[i].name = base_name(a, names[i].original, kind == CG_NAME_MODULE,
                                          kind == CG_NAME_MODULE ? "t_" : "p_");
        }
        /*
         * Each round moves at least one name up; a name moves up three times at most. In practice
         * one or two rounds.
         */
        while (changed && !a->failed) {
                changed = false;
                qsort(order, n, sizeof(struct cg_python_name *), by_name);
                for (size_t i = 0, end; i < n; i = end) {
                        struct cg_slice name = order[i]->name;

                        for (end = i + 1; end < n && cg_slice_eq(order[end]->name, name);)
                                end++;
                        changed |= settle(a, kind, order + i, end - i,
                                          reserved && bsearch(&name, reserved, n_reserved, sizeof(name),
                                                              cg_slice_order));
                }
        }
        return !a->failed;
}

/* ------------------------------------------------------------------ classes */

struct cg_slice cg_class_base(struct cg_arena *a, struct cg_slice hint)
{
        cg_auto_source struct cg_source o = CG_SOURCE(4 * CG_GEN_MAX_NAME);
        bool start = true;

        while (hint.len && o.buf.len < 40) {
                uint32_t c = cg_next_char(&hint);
                char out = (char)c;

                if (!letter_or_digit(c)) {
                        start = true;
                        continue;
                }
                if (!o.buf.len && c >= '0' && c <= '9')
                        cg_put(&o, "C");
                if (start && out >= 'a' && out <= 'z')
                        out = (char)(out & ~32);
                start = false;
                cg_puts(&o, (struct cg_slice){ &out, 1 });
        }
        if (!o.buf.len)
                cg_put(&o, "Item");
        if (cg_is_keyword(cg_source_str(&o)) || among(cg_source_str(&o), no_class, CG_ARRAY_LEN(no_class)))
                cg_put(&o, "2");
        return cg_source_copy(&o, a);
}

/* ------------------------------------------------------------------ packages */

static int check_server_name(const char *server, struct cg_err *err)
{
        size_t len = strlen(server), n;
        uint32_t c;

        if (!len || strcmp(server, ".") == 0 || strcmp(server, "..") == 0)
                return cg_fail(err, CG_E_INVAL, "\"%s\" cannot be the name of a server", server);
        for (const char *p = server; *p; p += n) {
                n = cg_utf8_next((const unsigned char *)p, len - (size_t)(p - server), &c);
                if (!n)
                        return cg_fail(err, CG_E_INVAL, "the server's name is not UTF-8");
                if (c < 0x20 || c == 0x7f || c == '/' || c == '\\')
                        return cg_fail(
                                err, CG_E_INVAL,
                                "a server's name cannot have slashes, backslashes or control characters");
        }
        if (cg_count_chars(cg_slice_of(server)) > CG_GEN_MAX_SERVER_NAME)
                return cg_fail(err, CG_E_INVAL, "the server's name has more than %u characters",
                               CG_GEN_MAX_SERVER_NAME);
        return 0;
}

int cg_codegen_package_name(const char *server, char *buf, size_t size, struct cg_err *err)
{
        cg_auto_arena struct cg_arena a = { 0 };
        struct cg_slice s;
        bool taken;
        int r, n;

        if (!server)
                return cg_fail(err, CG_E_INVAL, "no server name");
        r = check_server_name(server, err);
        if (r < 0)
                return r;
        s = base_name(&a, cg_slice_of(server), true, "s_");
        if (a.failed)
                return cg_fail(err, CG_E_NOMEM, "server name");
        taken = among(s, stdlib, CG_ARRAY_LEN(stdlib)) || among(s, no_package, CG_ARRAY_LEN(no_package));
        n = snprintf(buf, size, "%.*s%s", (int)s.len, s.p, taken ? "_" : "");
        return n < 0 || (size_t)n >= size ? cg_fail(err, CG_E_INVAL, "no room for the package name") : 0;
}
