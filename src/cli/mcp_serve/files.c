/*
 * `cellgate mcp serve`: the toolset `files`, by the file operations of libcellgate: a process in
 * the session's sandbox carries them out, with the rights of its cells. Runs in the worker.
 */
#include "cli/mcp_serve/mcp_serve.h"

#include "base/base64.h"
#include "base/json.h"
#include "base/path.h"
#include "base/text.h"

/* Bytes of one call: of a part that is read, whose base64 an answer can have, and of a new file. */
#define READ_BYTES     20000u
#define MAX_READ_BYTES 2000000u
#define MAX_WRITE      ((size_t)16 << 20)
#define MAX_LISTED     1000u
#define MAX_OFFSET     ((size_t)1 << 53) /* exact in JSON */

/* ------------------------------------------------------------------ paths */

static bool has_parent(const char *path)
{
        for (const char *p = path; *p; p += strcspn(p, "/"), p += strspn(p, "/"))
                if (strcspn(p, "/") == 2 && p[0] == '.' && p[1] == '.')
                        return true;
        return false;
}

int cg_serve_path_below(const char *base, const char *name, const char *given, char **ret, struct cg_err *err)
{
        bool absolute = given[0] == '/';

        if (has_parent(given) || !*given || (absolute && !cg_path_within(given, base)))
                return cg_fail(err, CG_E_INVAL,
                               "the parameter \"%s\" must be a path below %s, without \"..\"", name, base);
        if (absolute)
                return cg_asprintf(ret, "path", err, "%s", given);
        return cg_asprintf(ret, "path", err, "%s/%s", base, given);
}

/* The path of the argument @name, which is below the session's folder. @def: where it is absent. */
static int read_path(struct cg_serve_session *s, const char *args, const char *name, const char *def,
                     char **ret, struct cg_err *err)
{
        cg_auto_free char *given = NULL;

        if (cg_serve_arg_optional(args, name, &given, err) < 0)
                return -1;
        if (!given && def)
                given = strdup(def);
        if (!given)
                return cg_fail(err, CG_E_INVAL, "the parameter \"%s\" is missing", name);
        return cg_serve_path_below(s->given.folder ?: s->sv->workspace, name, given, ret, err);
}

/* ------------------------------------------------------------------ list_files */

static int compare(const void *a, const void *b)
{
        const json_t *const *one = a, *const *two = b;
        const char *x = json_string_value(json_object_get(*one, "name")) ?: "";
        const char *y = json_string_value(json_object_get(*two, "name")) ?: "";

        return strcmp(x, y);
}

static int list_files(struct cg_serve_session *s, const char *args, struct cg_answer *a, struct cg_err *err)
{
        cg_auto_free char *path = NULL, *line = NULL;
        cg_auto_free json_t **entries = NULL;
        cg_auto_json json_t *list = NULL;
        json_t *entry;
        char *text;
        size_t n, i;

        if (read_path(s, args, "path", ".", &path, err) < 0 ||
            cg_session_files_list(s->session, path, 0, &text, err) < 0)
                return -1;
        list = json_loads(text, 0, NULL);
        cg_free(text);
        n = json_array_size(list);
        entries = calloc(n + 1, sizeof(json_t *));
        if (!list || !entries)
                return cg_fail(err, CG_E_NOMEM, "list of files");
        json_array_foreach(list, i, entry)
                entries[i] = entry;
        qsort(entries, n, sizeof(json_t *), compare);
        for (i = 0; i < n && i < MAX_LISTED; i++) {
                json_object_del(entries[i], "mode");
                if (strcmp(json_string_value(json_object_get(entries[i], "type")) ?: "", "file") != 0)
                        json_object_del(entries[i], "size");
                free(line);
                line = json_dumps(entries[i], JSON_COMPACT | JSON_SORT_KEYS);
                if (!line)
                        return cg_fail(err, CG_E_NOMEM, "list of files");
                cg_answer_lines(a, line, strlen(line));
        }
        if (n > MAX_LISTED)
                cg_answer_note(a, "[The first %u of %zu names]", MAX_LISTED, n);
        return 0;
}

/* ------------------------------------------------------------------ read_file, write_file */

/* A last character may be cut unless the data ends where the file does. */
size_t cg_serve_text_of(const char *data, size_t len, bool to_end)
{
        size_t n = 0, one = 1;
        uint32_t c;

        while (n < len && one && data[n]) {
                one = cg_utf8_next((const unsigned char *)data + n, len - n, &c);
                n += one;
        }
        return n == len || (!to_end && len - n < 4 && data[n]) ? n : 0;
}

static int read_file(struct cg_serve_session *s, const char *args, struct cg_answer *a, struct cg_err *err)
{
        cg_auto_buf struct cg_buf base64 = { .max = SIZE_MAX - 1 };
        cg_auto_free char *path = NULL;
        cg_auto_json json_t *o = NULL;
        size_t offset, max, len, n, size;
        char *data, *text;

        if (read_path(s, args, "path", NULL, &path, err) < 0 ||
            cg_serve_arg_size(args, "offset", 0, 0, MAX_OFFSET, &offset, err) < 0 ||
            cg_serve_arg_size(args, "max_bytes", READ_BYTES, 1, MAX_READ_BYTES, &max, err) < 0 ||
            cg_session_files_stat(s->session, path, 0, &text, err) < 0)
                return -1;
        o = json_loads(text, 0, NULL);
        cg_free(text);
        if (cg_session_files_read(s->session, path, (int64_t)offset, (int64_t)max, 0, &data, &len, err) < 0)
                return -1;
        /* A link has another size than its target, and a file may grow. */
        size = (size_t)json_integer_value(json_object_get(o, "size"));
        if (len < max || size < offset + len)
                size = offset + len;
        n = cg_serve_text_of(data, len, offset + len == size);
        if (!n && len) {
                n = len;
                cg_base64_add(&base64, data, len);
                cg_answer_text(a, cg_buf_str(&base64), base64.len);
                cg_answer_note(a, "[Base64, since it is not UTF-8 text]");
        } else {
                cg_answer_text(a, data, n);
        }
        cg_free(data);
        if (cg_buf_end(&base64, err) < 0)
                return -1;
        cg_answer_exact(a);
        if (offset || offset + n < size)
                cg_answer_note(a, "[Bytes %zu to %zu of %zu%s]", offset, offset + n, size,
                               offset + n < size ? "; offset: the next" : "");
        return 0;
}

static int write_file(struct cg_serve_session *s, const char *args, struct cg_answer *a, struct cg_err *err)
{
        cg_auto_free char *path = NULL, *content = NULL, *encoding = NULL;
        cg_auto_buf struct cg_buf decoded = { .max = CG_MAX_MCP_MESSAGE };
        const char *data;
        size_t len;

        if (read_path(s, args, "path", NULL, &path, err) < 0 ||
            cg_serve_arg_string(args, "content", &content, err) < 0 ||
            cg_serve_arg_optional(args, "encoding", &encoding, err) < 0)
                return -1;
        data = content;
        len = strlen(content);
        if (encoding && strcmp(encoding, "base64") == 0) {
                if (cg_base64_decode(content, len, &decoded, err) < 0)
                        return cg_err_prefix(err, "the parameter \"content\"");
                data = decoded.data ?: "";
                len = decoded.len;
        } else if (encoding && strcmp(encoding, "utf-8") != 0) {
                return cg_fail(err, CG_E_INVAL, "the parameter \"encoding\" must be utf-8 or base64");
        }
        if (len > MAX_WRITE)
                return cg_fail(err, CG_E_LIMIT, "the content has more than %zu MiB", MAX_WRITE >> 20);
        if (cg_session_files_write(s->session, path, 0666, data, len, 0, err) < 0)
                return -1;
        cg_answer_note(a, "%zu bytes were written to %s.", len, path);
        return 0;
}

/* ------------------------------------------------------------------ move_file, remove_file */

static int move_file(struct cg_serve_session *s, const char *args, struct cg_answer *a, struct cg_err *err)
{
        cg_auto_free char *from = NULL, *to = NULL;
        char *there;

        if (read_path(s, args, "from", NULL, &from, err) < 0 || read_path(s, args, "to", NULL, &to, err) < 0)
                return -1;
        if (cg_session_files_stat(s->session, to, 0, &there, NULL) == 0) {
                cg_free(there);
                return cg_fail(err, CG_E_EXISTS, "%s exists: remove it first", to);
        }
        if (cg_session_files_rename(s->session, from, to, 0, err) < 0)
                return -1;
        cg_answer_note(a, "%s was moved to %s.", from, to);
        return 0;
}

static int remove_file(struct cg_serve_session *s, const char *args, struct cg_answer *a, struct cg_err *err)
{
        cg_auto_free char *path = NULL;

        if (read_path(s, args, "path", NULL, &path, err) < 0 ||
            cg_session_files_remove(s->session, path, 0, err) < 0)
                return -1;
        cg_answer_note(a, "%s was removed.", path);
        return 0;
}

int cg_serve_file(struct cg_serve_session *s, const struct cg_job *job, struct cg_answer *a,
                  struct cg_err *err)
{
        static int (*const tools[])(struct cg_serve_session *, const char *, struct cg_answer *,
                                    struct cg_err *) = {
                [CG_SERVE_LIST_FILES] = list_files,   [CG_SERVE_READ_FILE] = read_file,
                [CG_SERVE_WRITE_FILE] = write_file,   [CG_SERVE_MOVE_FILE] = move_file,
                [CG_SERVE_REMOVE_FILE] = remove_file,
        };

        return tools[job->tool](s, job->args, a, err);
}
