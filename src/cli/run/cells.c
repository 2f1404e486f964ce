/*
 * The cells of a run. Runs in the command `cellgate`; what it reads is the user's own file, but
 * files are broken in every way.
 */
#include "cli/run/cells.h"

#include "base/fd.h"
#include "base/json.h"
#include "base/path.h"
#include "base/ceilings.h"
#include "base/text.h"

/* Notebooks carry their outputs: images of many cells. Only the code of it is kept. */
#define MAX_FILE (256u << 20)

void cg_cells_fini(struct cg_cells *c)
{
        for (size_t i = 0; i < c->n; i++)
                free(c->v[i].code);
        free(c->v);
        *c = CG_CELLS_EMPTY;
}

static int check_utf8(const char *text, size_t len, const char *what, struct cg_err *err)
{
        size_t line = 1;

        for (size_t i = 0; i < len;) {
                uint32_t cp;
                size_t n = cg_utf8_next((const unsigned char *)text + i, len - i, &cp);

                if (!n)
                        return cg_fail(err, CG_E_PARSE, "%s is not UTF-8 text: line %zu has the byte 0x%02x",
                                       what, line, (unsigned char)text[i]);
                line += text[i] == '\n';
                i += n;
        }
        return 0;
}

int cg_cells_add(struct cg_cells *c, const char *code, size_t len, const char *what, struct cg_err *err)
{
        struct cg_cell *grown;
        char *copy;

        if (len > CG_MAX_CODE)
                return cg_fail(err, CG_E_LIMIT, "%s: a cell of %zu bytes is over the limit of %u", what, len,
                               CG_MAX_CODE);
        if (check_utf8(code, len, what, err) < 0)
                return -1;
        grown = realloc(c->v, (c->n + 1) * sizeof(*grown));
        if (grown)
                c->v = grown;
        copy = malloc(len + 1);
        if (!grown || !copy) {
                free(copy);
                return cg_fail(err, CG_E_NOMEM, "cells");
        }
        memcpy(copy, code, len);
        copy[len] = '\0';
        c->v[c->n++] = (struct cg_cell){ .code = copy, .len = len, .timeout_ms = -1 };
        return 0;
}

/* The line, from 1, of a cell's first line that is not blank. IPython drops those before it. */
static size_t first_line(const char *text, const char *code, const char *end)
{
        const char *p = code, *line = code;
        size_t n = 1;

        while (p < end && *p && strchr(" \t\r\n\f\v", *p))
                if (*p++ == '\n')
                        line = p;
        for (p = text; p < line; p++)
                n += *p == '\n';
        return n;
}

/* A NUL, at which strchr() would match its own end, is not blank. */
static int add_unless_blank(struct cg_cells *c, const char *code, size_t len, const char *what,
                            struct cg_err *err)
{
        for (size_t i = 0; i < len; i++)
                if (!code[i] || !strchr(" \t\r\n\f\v", code[i]))
                        return cg_cells_add(c, code, len, what, err);
        return 0;
}

/*
 * "# %%" or "#%%" (in JavaScript "// %%"), sub-levels "%%%", then a blank or the line's end; "#%%time" is a magic that was
 * commented out.
 */
static bool is_marker(const char *p, const char *end)
{
        if (p < end && *p == '#')
                p++;
        else if (end - p > 1 && p[0] == '/' && p[1] == '/')
                p += 2;
        else
                return false;
        if (p < end && *p == ' ')
                p++;
        if (end - p < 2 || p[0] != '%' || p[1] != '%')
                return false;
        while (p < end && *p == '%')
                p++;
        return p == end || *p == ' ' || *p == '\t' || *p == '\r';
}

int cg_cells_add_py(struct cg_cells *c, const char *text, size_t len, const char *what, struct cg_err *err)
{
        const char *end = text + len, *start, *p;
        size_t n = c->n;
        bool skip = false;

        if (len >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0)
                text += 3;
        if (check_utf8(text, (size_t)(end - text), what, err) < 0)
                return -1;
        start = p = text;
        while (p < end) {
                const char *eol = memchr(p, '\n', (size_t)(end - p)) ?: end;
                const char *next = eol < end ? eol + 1 : end;

                if (is_marker(p, eol)) {
                        if (!skip && add_unless_blank(c, start, (size_t)(p - start), what, err) < 0)
                                return -1;
                        if (c->n > n)
                                c->v[n].line = first_line(text, start, p);
                        n = c->n;
                        skip = memmem(p, (size_t)(eol - p), "[markdown]", 10) ||
                               memmem(p, (size_t)(eol - p), "[md]", 4) ||
                               memmem(p, (size_t)(eol - p), "[raw]", 5);
                        start = next;
                }
                p = next;
        }
        if (!skip && add_unless_blank(c, start, (size_t)(end - start), what, err) < 0)
                return -1;
        if (c->n > n)
                c->v[n].line = first_line(text, start, end);
        return 0;
}

static int add_notebook_cell(struct cg_cells *c, struct cg_slice cell, const char *what, struct cg_err *err)
{
        cg_auto_buf struct cg_buf b = { .max = CG_MAX_CODE };
        struct cg_slice type, source, item;
        struct cg_json_walk walk;
        int r = 0;

        if (!cg_json_find(cell, "cell_type", &type) || cg_json_kind(type) != '"')
                return cg_fail(err, CG_E_PARSE, "it has no \"cell_type\"");
        if (!cg_slice_is(type, "\"code\""))
                return 0;
        if (!cg_json_find(cell, "source", &source))
                return cg_fail(err, CG_E_PARSE, "it has no \"source\"");
        /* one string, or a list of lines */
        if (cg_json_kind(source) == '"') {
                r = cg_json_string(source, &b, err);
        } else if (cg_json_kind(source) == '[') {
                cg_json_walk_init(&walk, source, '[', NULL);
                while (r == 0 && cg_json_walk_next(&walk, NULL, &item, NULL) == 0)
                        r = cg_json_string(item, &b, err);
                if (r == CG_E_PARSE)
                        return cg_fail(err, CG_E_PARSE, "its \"source\" has an item that is not a string");
        } else {
                return cg_fail(err, CG_E_PARSE, "its \"source\" is neither a string nor a list of strings");
        }
        if (r < 0)
                return r;
        return add_unless_blank(c, b.data ?: "", b.len, what, err);
}

int cg_cells_add_ipynb(struct cg_cells *c, const char *text, size_t len, const char *what, struct cg_err *err)
{
        struct cg_slice book, format, cells, cell;
        struct cg_json_walk walk;
        size_t number = 0;
        json_t *j;
        int r;

        if (len >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0) {
                text += 3;
                len -= 3;
        }
        r = cg_json_object_slice(text, len, &book, err);
        /* jansson reports line and column, but refuses some valid texts as well. */
        if (r < 0 && cg_json_object(text, len, what, &j, err) == 0) {
                json_decref(j);
                return cg_fail(err, CG_E_PARSE, "%s is nested too deeply for a notebook", what);
        }
        if (r < 0)
                return r;
        if (!cg_json_find(book, "nbformat", &format))
                return cg_fail(err, CG_E_PARSE, "%s is not a notebook: it has no \"nbformat\"", what);
        if (format.len != 1 || format.p[0] != '4')
                return cg_fail(err, CG_E_PARSE,
                               "%s has notebook format %.*s; only format 4 is read. Convert it with "
                               "`jupyter nbconvert --to notebook`",
                               what, (int)CG_MIN(format.len, 20), format.p);
        if (!cg_json_find(book, "cells", &cells) || cg_json_kind(cells) != '[')
                return cg_fail(err, CG_E_PARSE, "%s is not a notebook: it has no list \"cells\"", what);
        cg_json_walk_init(&walk, cells, '[', NULL);
        while (cg_json_walk_next(&walk, NULL, &cell, NULL) == 0) {
                number++;
                if (add_notebook_cell(c, cell, what, err) < 0)
                        return cg_err_prefix(err, "%s: cell %zu", what, number);
        }
        return 0;
}

static bool has_suffix(const char *path, const char *suffix)
{
        size_t n = strlen(path), m = strlen(suffix);

        return n > m && strcmp(path + n - m, suffix) == 0;
}

static const struct {
        const char *suffix, *language;
} endings[] = { { ".py", "python" }, { ".ipynb", NULL }, { ".sh", "shell" }, { ".bash", "shell" },
                { ".js", "node" },   { ".mjs", "node" }, { ".cjs", "node" }, { ".ts", "node" } };

/* The language that the first line "#!" names, or NULL. */
static const char *language_of_line(const char *text, size_t len)
{
        static const struct {
                const char *program, *language;
        } programs[] = { { "python", "python" }, { "bash", "shell" }, { "sh", "shell" }, { "node", "node" } };
        const char *end = memchr(text, '\n', len) ?: text + len;
        char line[256], *word, *rest = line;

        if (len < 2 || text[0] != '#' || text[1] != '!')
                return NULL;
        snprintf(line, sizeof(line), "%.*s", (int)CG_MIN(end - text - 2, 255), text + 2);
        /* The program, or that of env(1) after its options. */
        while ((word = strsep(&rest, " \t\r"))) {
                const char *name = cg_path_base(word);

                if (!*name || *name == '-' || strcmp(name, "env") == 0)
                        continue;
                for (size_t i = 0; i < CG_ARRAY_LEN(programs); i++) {
                        size_t n = strlen(programs[i].program);

                        /* python3 and python3.11 as well */
                        if (strncmp(name, programs[i].program, n) == 0 &&
                            !name[n + strspn(name + n, "0123456789.")])
                                return programs[i].language;
                }
                return NULL;
        }
        return NULL;
}

int cg_cells_add_file(struct cg_cells *c, const char *path, const char **language, struct cg_err *err)
{
        cg_auto_free char *text = NULL;
        const char *own = NULL;
        size_t len, i = 0;
        struct stat st;

        if (strcmp(path, "-") == 0) {
                if (cg_read_fd(0, "standard input", MAX_FILE, &text, &len, err) < 0)
                        return -1;
                return cg_cells_add_py(c, text, len, "standard input", err);
        }
        if (cg_read_file(path, MAX_FILE, &text, &len, err) < 0)
                return -1;
        while (i < CG_ARRAY_LEN(endings) && !has_suffix(path, endings[i].suffix))
                i++;
        if (i < CG_ARRAY_LEN(endings))
                own = endings[i].language;
        else
                own = language_of_line(text, len);
        if (!*language)
                *language = own;
        if (i < CG_ARRAY_LEN(endings) && !own)
                return cg_cells_add_ipynb(c, text, len, path, err);
        /* Pipes such as /dev/stdin and <(command) have no meaningful name: they are Python. */
        if (!*language && stat(path, &st) == 0 && S_ISREG(st.st_mode))
                return cg_fail(
                        err, CG_E_INVAL,
                        "%s is neither a .py file nor a notebook (.ipynb) nor a script of a shell (.sh, .bash or its first "
                        "line); --language says what it is, and `-` reads standard input",
                        path);
        return cg_cells_add_py(c, text, len, path, err);
}
