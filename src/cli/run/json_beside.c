/* Commands and file operations of `cellgate run --json`: see json_int.h. */
#include "cli/run/json_int.h"

#include <linux/openat2.h>
#include <pthread.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/queue.h>
#include <sys/syscall.h>
#include "base/base64.h"
#include "base/ceilings.h"
#include "base/fd.h"
#include "base/json.h"
#include "base/path.h"
#include "base/text.h"
#include "cli/run/cell_queue.h"
#include "cli/run/run.h"

/* Threads at the same time. */
#define MAX_JOBS 16
/* Bytes of a file in one line: the host's lines are not much longer. */
#define MAX_DATA ((size_t)16 << 20)

struct beside_command {
        LIST_ENTRY(beside_command) entry;
        uint64_t number;
        char *id;     /* JSON text, or NULL */
        bool input;   /* the host may write to it */
        bool writing; /* a thread does */
};

/* Members of operations, and whether they have a path in the sandbox. */
enum { PATH = 1, TO = 2, RANGE = 4, DATA = 8, MODE = 16, HOST = 32, MAX = 64 };

enum job_kind { WRITE_INPUT, LIST, STAT, READ, WRITE, MKDIR, REMOVE, RENAME, GET, PUT, PACK, UNPACK };

static const struct file_operation {
        const char *name;
        enum job_kind kind;
        unsigned members;
} operations[] = {
        { "file_list", LIST, PATH },
        { "file_stat", STAT, PATH },
        { "file_read", READ, PATH | RANGE },
        { "file_write", WRITE, PATH | DATA | MODE },
        { "file_mkdir", MKDIR, PATH | MODE },
        { "file_remove", REMOVE, PATH },
        { "file_rename", RENAME, PATH | TO },
        { "file_get", GET, PATH | HOST | MAX },
        { "file_put", PUT, PATH | HOST | MODE },
        { "file_pack", PACK, PATH | HOST | MAX },
        { "file_unpack", UNPACK, PATH | HOST },
};

/* The work of a thread. */
struct beside_job {
        LIST_ENTRY(beside_job) entry;
        struct cg_beside *b;
        enum job_kind kind;
        uint64_t line, command; /* of WRITE_INPUT */
        char *id;
        char *path, *to, *host;
        struct cg_buf data;
        unsigned mode;
        int64_t offset, max, timeout_ms;
        int folder; /* of @host */
        char fresh[NAME_MAX + 1];
        pthread_t thread;
        bool done; /* under the lock */
        int r;
        struct cg_err err;
        char *result;
        size_t result_len;
};

struct cg_beside {
        struct cg_run *run;
        LIST_HEAD(, beside_command) commands;
        LIST_HEAD(, beside_job) jobs;
        size_t n_jobs;
        int done_fd; /* eventfd: a job is done */
        pthread_mutex_t lock;
};

/* ------------------------------------------------------------------ reading lines */

/* An object of the host's whose members are taken one by one; what is left over is an error. */
struct members {
        const json_t *o;
        size_t taken;
};

static const json_t *take(struct members *m, const char *name)
{
        const json_t *v = json_object_get(m->o, name);

        m->taken += v != NULL;
        return v;
}

/* *ret: NULL where it is missing. */
static int take_text(struct members *m, const char *name, const char **ret, struct cg_err *err)
{
        const json_t *v = take(m, name);

        *ret = json_string_value(v);
        if (v && (!*ret || strlen(*ret) != json_string_length(v)))
                return cg_fail(err, CG_E_INVAL, "\"%s\" must be a text without NUL", name);
        return 0;
}

/* *ret keeps its value where it is missing. */
static int take_int(struct members *m, const char *name, int64_t min, int64_t max, int64_t *ret,
                    struct cg_err *err)
{
        const json_t *v = take(m, name);

        if (!v)
                return 0;
        if (!json_is_integer(v) || json_integer_value(v) < min || json_integer_value(v) > max)
                return cg_fail(err, CG_E_INVAL, "\"%s\" must be an integer from %lld to %lld", name,
                               (long long)min, (long long)max);
        *ret = json_integer_value(v);
        return 0;
}

/* @zero: the number for no limit. *ret: 0 where it is missing. */
static int take_timeout(struct members *m, int64_t zero, int64_t *ret, struct cg_err *err)
{
        const json_t *v = take(m, "timeout");

        *ret = 0;
        if (cg_cell_timeout(v, ret, err) < 0)
                return -1;
        if (v && *ret == 0)
                *ret = zero;
        return 0;
}

static int take_id(struct members *m, char **ret, struct cg_err *err)
{
        const json_t *v = take(m, "id");

        if (v && !(*ret = cg_cell_id(v)))
                return cg_fail(err, CG_E_INVAL, "\"id\" must be an integer, or a string of at most %u bytes",
                               CG_CELL_ID_MAX);
        return 0;
}

/* "text" or "base64". */
static int take_data(struct members *m, size_t max, struct cg_buf *b, struct cg_err *err)
{
        const json_t *text = take(m, "text"), *base64 = take(m, "base64");
        int r;

        if (!json_is_string(text) == !json_is_string(base64) || (text && base64))
                return cg_fail(err, CG_E_INVAL, "either \"text\" or \"base64\" must be given");
        cg_buf_init(b, max);
        if (text)
                r = cg_buf_try_add(b, json_string_value(text), json_string_length(text), err);
        else
                r = cg_base64_decode(json_string_value(base64), json_string_length(base64), b, err);
        if (r == CG_E_LIMIT)
                return cg_fail(err, CG_E_LIMIT, "more than %zu bytes in one line", max);
        return r;
}

/* A path in the sandbox: NAME, or as hexadecimal digits of its bytes NAME_hex. */
static int take_path(struct members *m, const char *name, char **ret, struct cg_err *err)
{
        char hex_name[32];
        const char *text, *hex;
        size_t len;

        snprintf(hex_name, sizeof(hex_name), "%s_hex", name);
        if (take_text(m, name, &text, err) < 0 || take_text(m, hex_name, &hex, err) < 0)
                return -1;
        if (!text == !hex || (text && !*text))
                return cg_fail(err, CG_E_INVAL, "\"%s\" must be a path, or \"%s\" the digits of its bytes",
                               name, hex_name);
        if (text) {
                *ret = strdup(text);
                return cg_made(*ret, "path", err);
        }
        len = strlen(hex) / 2;
        if (!len || strlen(hex) % 2 || strspn(hex, "0123456789abcdef") != strlen(hex))
                return cg_fail(err, CG_E_INVAL, "\"%s\" must be lower-case hexadecimal digits", hex_name);
        *ret = calloc(1, len + 1);
        if (!*ret)
                return cg_fail(err, CG_E_NOMEM, "path");
        for (size_t i = 0; i < len; i++)
                (*ret)[i] = (char)(cg_hex_digit(hex[2 * i]) << 4 | cg_hex_digit(hex[2 * i + 1]));
        if (strlen(*ret) < len)
                return cg_fail(err, CG_E_INVAL, "\"%s\" has 00", hex_name);
        return 0;
}

static int no_others(const struct members *m, const char *name, struct cg_err *err)
{
        if (m->taken != json_object_size(m->o))
                return cg_fail(err, CG_E_INVAL, "\"%s\" has a member that is not known", name);
        return 0;
}

/* ------------------------------------------------------------------ commands */

static struct beside_command *find(const struct cg_beside *b, uint64_t number)
{
        struct beside_command *c;

        LIST_FOREACH(c, &b->commands, entry)
                if (c->number == number)
                        break;
        return c;
}

static void command_free(struct beside_command *c)
{
        free(c->id);
        free(c);
}

/* The line of an event: "command" and the host's "id" of it. */
static void begin(struct cg_buf *l, const char *type, const struct cg_beside *b, uint64_t command)
{
        const struct beside_command *c = find(b, command);

        cg_json_line_begin(l, type, 0);
        cg_json_line_int(l, "command", (int64_t)command);
        cg_json_line_json(l, "id", c ? c->id : NULL);
}

/* "NAME":VALUE of an object as NAME=VALUE, and of a list its texts. */
static int take_texts(struct members *m, const char *name, bool pairs, char ***ret, struct cg_err *err)
{
        const json_t *v = take(m, name);
        json_t *item;
        const char *key;
        size_t n = 0, i;

        if (v && !(pairs ? json_is_object(v) : json_is_array(v)))
                return cg_fail(err, CG_E_INVAL, "\"%s\" must be %s of texts", name,
                               pairs ? "an object" : "a list");
        *ret = calloc((pairs ? json_object_size(v) : json_array_size(v)) + 1, sizeof(**ret));
        if (!*ret)
                return cg_fail(err, CG_E_NOMEM, "command");
        json_array_foreach(v, i, item) {
                const char *text = json_string_value(item);

                if (!text || strlen(text) != json_string_length(item))
                        return cg_fail(err, CG_E_INVAL, "\"%s\" must be a list of texts without NUL", name);
                if (!((*ret)[n++] = strdup(text)))
                        return cg_fail(err, CG_E_NOMEM, "command");
        }
        json_object_foreach(cg_json_unconst(v), key, item) {
                const char *text = json_string_value(item);

                if (!text || strlen(text) != json_string_length(item) || !*key || strchr(key, '='))
                        return cg_fail(err, CG_E_INVAL, "\"%s\" must have names without =, and texts", name);
                if (cg_asprintf(&(*ret)[n], "command", err, "%s=%s", key, text) < 0)
                        return -1;
                n++;
        }
        return 0;
}

static void free_texts(char ***list)
{
        for (char **p = *list; p && *p; p++)
                free(*p);
        free(*list);
}

static int exec_line(struct cg_beside *b, const json_t *o, uint64_t line, struct cg_err *err)
{
        CG_CLEANUP(free_texts) char **argv = NULL;
        CG_CLEANUP(free_texts) char **env = NULL;
        cg_auto_free char *id = NULL;
        struct cg_exec_options opts = { .size = sizeof(opts) };
        struct members m = { .o = o }, t;
        const json_t *input, *terminal;
        int64_t rows = 0, columns = 0;
        struct cg_buf l;
        struct beside_command *c;

        if (take_id(&m, &id, err) < 0 || take_texts(&m, "argv", false, &argv, err) < 0 ||
            take_texts(&m, "env", true, &env, err) < 0 || take_text(&m, "cwd", &opts.cwd, err) < 0 ||
            take_timeout(&m, 0, &opts.timeout_ms, err) < 0)
                return -1;
        input = take(&m, "input");
        if (input && !json_is_boolean(input) && !json_is_string(input))
                return cg_fail(err, CG_E_INVAL, "\"input\" must be a text, or true for \"write\" lines");
        if (json_string_length(input) > CG_MAX_COMMAND_INPUT)
                return cg_fail(err, CG_E_LIMIT, "more than %u bytes of input at once", CG_MAX_COMMAND_INPUT);
        terminal = take(&m, "terminal");
        t.o = terminal;
        t.taken = 0;
        if (terminal && (take_int(&t, "rows", 1, UINT16_MAX, &rows, err) < 0 ||
                         take_int(&t, "columns", 1, UINT16_MAX, &columns, err) < 0))
                return -1;
        if (terminal && (!rows || !columns || no_others(&t, "terminal", NULL) < 0))
                return cg_fail(err, CG_E_INVAL,
                               "\"terminal\" must be {\"rows\": NUMBER, \"columns\": NUMBER}");
        if (no_others(&m, "exec", err) < 0)
                return -1;
        opts.argv = (const char *const *)argv;
        opts.env = (const char *const *)env;
        opts.input = json_is_true(input) || json_is_string(input);
        opts.rows = (uint16_t)rows;
        opts.columns = (uint16_t)columns;
        c = calloc(1, sizeof(*c));
        if (!c)
                return cg_fail(err, CG_E_NOMEM, "command");
        if (cg_session_exec(b->run->session, &opts, &c->number, err) < 0) {
                free(c);
                return -1;
        }
        c->id = CG_STEAL(id);
        c->input = (json_is_true(input) || terminal) && !json_is_string(input);
        LIST_INSERT_HEAD(&b->commands, c, entry);
        begin(&l, "command_started", b, c->number);
        cg_json_line_int(&l, "line", (int64_t)line);
        if (cg_json_line_end(b->run, &l, err) < 0)
                return -1;
        if (json_is_string(input) && (cg_command_write(b->run->session, c->number, json_string_value(input),
                                                       json_string_length(input), 0, err) < 0 ||
                                      (json_string_length(input) &&
                                       cg_command_write(b->run->session, c->number, NULL, 0, 0, err) < 0)))
                return -1;
        return 0;
}

/* "command": the number of one that has not ended. */
static int take_command(const struct cg_beside *b, struct members *m, struct beside_command **ret,
                        struct cg_err *err)
{
        const json_t *v = take(m, "command");

        *ret = find(b, (uint64_t)json_integer_value(v)); /* 0 is no number */
        if (*ret)
                return 0;
        return cg_fail(err, CG_E_NOTFOUND, "\"command\" is not the number of a command that runs");
}

static int signal_line(struct cg_beside *b, const json_t *o, uint64_t line, struct cg_err *err)
{
        struct members m = { .o = o };
        struct beside_command *c;
        int64_t sig = 0;

        if (take_command(b, &m, &c, err) < 0 || take_int(&m, "signal", 1, NSIG - 1, &sig, err) < 0 ||
            no_others(&m, "signal", err) < 0)
                return -1;
        if (!sig)
                return cg_fail(err, CG_E_INVAL, "\"signal\" must be the number of a signal");
        return cg_command_signal(b->run->session, c->number, (int)sig, err);
}

static int resize_line(struct cg_beside *b, const json_t *o, uint64_t line, struct cg_err *err)
{
        int64_t rows = 0, columns = 0;
        struct members m = { .o = o };
        struct beside_command *c;

        if (take_command(b, &m, &c, err) < 0 || take_int(&m, "rows", 1, UINT16_MAX, &rows, err) < 0 ||
            take_int(&m, "columns", 1, UINT16_MAX, &columns, err) < 0 || no_others(&m, "resize", err) < 0)
                return -1;
        if (!rows || !columns)
                return cg_fail(err, CG_E_INVAL, "to resize needs \"rows\" and \"columns\"");
        return cg_command_resize(b->run->session, c->number, (uint16_t)rows, (uint16_t)columns, err);
}

/* "text", or "base64" of bytes that are not UTF-8. */
static void add_data(struct cg_buf *l, const char *data, size_t len)
{
        if (cg_utf8_valid(data, len)) {
                cg_json_line_string(l, "text", data, len);
                return;
        }
        cg_buf_adds(l, ",\"base64\":\"");
        cg_base64_add(l, data, len);
        cg_buf_adds(l, "\"");
}

int cg_beside_event(struct cg_beside *b, const struct cg_event *e, struct cg_err *err)
{
        struct beside_command *c = find(b, cg_event_cell(e));
        bool ended = cg_event_type(e) == CG_EVENT_COMMAND_RESULT;
        const char *text, *status, *json;
        cg_auto_json json_t *o = NULL;
        size_t len, json_len;
        struct cg_buf l;

        text = cg_event_text(e, &len);
        begin(&l, cg_event_type_name(cg_event_type(e)), b, cg_event_cell(e));
        if (!ended) {
                cg_json_line_string(&l, "name", cg_event_is_stderr(e) ? "stderr" : "stdout", 6);
                add_data(&l, text, len);
        } else {
                static const char *const how[] = { "exit_code", "signal" };

                status = cg_status_name(cg_event_status(e));
                json = cg_event_json(e, &json_len);
                cg_json_line_text(&l, "status", status);
                cg_buf_fail(&l, cg_json_object(json, json_len, "result", &o, NULL));
                for (size_t i = 0; i < CG_ARRAY_LEN(how); i++)
                        if (json_is_integer(json_object_get(o, how[i])))
                                cg_json_line_int(&l, how[i], json_integer_value(json_object_get(o, how[i])));
                cg_json_line_string(&l, "text", text, len);
        }
        if (ended && c) {
                LIST_REMOVE(c, entry);
                command_free(c);
        }
        return cg_json_line_end(b->run, &l, err);
}

/* ------------------------------------------------------------------ threads */

static void job_free(struct beside_job *j)
{
        free(j->id);
        free(j->path);
        free(j->to);
        free(j->host);
        free(j->result);
        cg_buf_fini(&j->data);
        cg_closep_(&j->folder);
        free(j);
}

/*
 * A file of the host that an operation copies from. No link leads to another: cells can make links
 * in the workspace, where the host's path may be.
 */
static int open_host(const char *path, int flags, struct cg_err *err)
{
        struct open_how how = { .flags = (uint64_t)(flags | O_CLOEXEC),
                                .resolve = RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS };
        int fd = (int)syscall(SYS_openat2, AT_FDCWD, path, &how, sizeof(how));

        if (fd < 0 && errno == ELOOP)
                return cg_fail(
                        err, CG_E_INVAL,
                        "%s: a part of this path of the host is a symbolic link; name what it leads to",
                        path);
        if (fd < 0)
                return cg_fail_errno(err, "%s, a path of the host", path);
        return fd;
}

static int copy_from_host(struct beside_job *j)
{
        cg_auto_fd int fd = open_host(j->host, O_RDONLY | O_NONBLOCK | O_NOCTTY, &j->err);
        struct stat st;

        if (fd < 0)
                return -1;
        if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
                return cg_fail(&j->err, CG_E_INVAL, "%s of the host is not a regular file", j->host);
        if (j->kind == PUT)
                return cg_session_files_put(j->b->run->session, j->path, j->mode, fd, j->timeout_ms, &j->err);
        return cg_session_files_unpack(j->b->run->session, j->path, fd, j->timeout_ms, &j->err);
}

/* Atomic: a new file gets the name when it is complete. */
static int copy_to_host(struct beside_job *j)
{
        const char *name = cg_path_base(j->host);
        char folder[PATH_MAX], random[17], fresh[NAME_MAX + 1];
        cg_auto_fd int fd = -1;
        struct stat st;
        int r;

        if (snprintf(folder, sizeof(folder), "%.*s", (int)(name - j->host), j->host) >= (int)sizeof(folder) ||
            cg_random_hex(random, 8, &j->err) < 0 ||
            snprintf(fresh, sizeof(fresh), "%s.%s", name, random) >= (int)sizeof(fresh))
                return cg_fail(&j->err, CG_E_LIMIT, "the path %s of the host is too long", j->host);
        j->folder = open_host(folder[0] ? folder : ".", O_PATH | O_DIRECTORY, &j->err);
        if (j->folder < 0)
                return -1;
        if (!*name || strcmp(name, ".") == 0 || strcmp(name, "..") == 0 ||
            (fstatat(j->folder, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && !S_ISREG(st.st_mode)))
                return cg_fail(&j->err, CG_E_INVAL, "%s of the host is not a regular file", j->host);
        fd = openat(j->folder, fresh, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
        if (fd < 0)
                return cg_fail_errno(&j->err, "%s, a path of the host", j->host);
        pthread_mutex_lock(&j->b->lock);
        memcpy(j->fresh, fresh, sizeof(fresh));
        pthread_mutex_unlock(&j->b->lock);
        if (j->kind == GET)
                r = cg_session_files_get(j->b->run->session, j->path, fd, j->max, j->timeout_ms, &j->err);
        else
                r = cg_session_files_pack(j->b->run->session, j->path, fd, j->max, j->timeout_ms, &j->err);
        if (r == 0 && renameat(j->folder, fresh, j->folder, name) < 0)
                r = cg_fail_errno(&j->err, "%s, a path of the host", j->host);
        if (r < 0)
                unlinkat(j->folder, fresh, 0);
        return r;
}

static int work(struct beside_job *j)
{
        struct cg_session *s = j->b->run->session;
        struct cg_err *err = &j->err;

        switch (j->kind) {
        case WRITE_INPUT:
                return cg_command_write(s, j->command, j->data.data, j->data.len, -1, err);
        case LIST:
                return cg_session_files_list(s, j->path, j->timeout_ms, &j->result, err);
        case STAT:
                return cg_session_files_stat(s, j->path, j->timeout_ms, &j->result, err);
        case READ:
                return cg_session_files_read(s, j->path, j->offset, j->max, j->timeout_ms, &j->result,
                                             &j->result_len, err);
        case WRITE:
                return cg_session_files_write(s, j->path, j->mode, j->data.data, j->data.len, j->timeout_ms,
                                              err);
        case MKDIR:
                return cg_session_files_mkdir(s, j->path, j->mode, j->timeout_ms, err);
        case REMOVE:
                return cg_session_files_remove(s, j->path, j->timeout_ms, err);
        case RENAME:
                return cg_session_files_rename(s, j->path, j->to, j->timeout_ms, err);
        case GET:
        case PACK:
                return copy_to_host(j);
        default:
                return copy_from_host(j);
        }
}

static void *run_job(void *data)
{
        struct beside_job *j = data;
        uint64_t one = 1;
        int r = work(j), fd = j->b->done_fd;

        pthread_mutex_lock(&j->b->lock);
        j->r = r;
        j->done = true;
        pthread_mutex_unlock(&j->b->lock);
        if (write(fd, &one, sizeof(one)) < 0)
                _exit(1); /* an eventfd's counter cannot be full */
        return NULL;
}

/* Takes @j. */
static int start_job(struct cg_beside *b, struct beside_job *j, struct cg_err *err)
{
        sigset_t all, old;
        int e;

        if (b->n_jobs >= MAX_JOBS) {
                job_free(j);
                return cg_fail(err, CG_E_LIMIT,
                               "%d operations run; send the line again after one of them has ended",
                               MAX_JOBS);
        }
        /* ^C is for the thread that waits for it. */
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &old);
        e = pthread_create(&j->thread, NULL, run_job, j);
        pthread_sigmask(SIG_SETMASK, &old, NULL);
        if (e) {
                job_free(j);
                errno = e;
                return cg_fail_errno(err, "thread");
        }
        LIST_INSERT_HEAD(&b->jobs, j, entry);
        b->n_jobs++;
        return 0;
}

static int write_written(struct cg_beside *b, uint64_t command, uint64_t line, struct cg_err *err)
{
        struct cg_buf l;

        begin(&l, "command_written", b, command);
        cg_json_line_int(&l, "line", (int64_t)line);
        return cg_json_line_end(b->run, &l, err);
}

static int write_line(struct cg_beside *b, const json_t *o, uint64_t line, struct cg_err *err)
{
        cg_auto_buf struct cg_buf data = { .max = 0 };
        struct members m = { .o = o };
        const json_t *ends;
        struct beside_command *c;
        struct beside_job *j;
        int r;

        if (take_command(b, &m, &c, err) < 0)
                return -1;
        ends = take(&m, "end");
        if (ends && !json_is_true(ends))
                return cg_fail(err, CG_E_INVAL, "\"end\" must be true");
        if (!ends && take_data(&m, CG_MAX_COMMAND_INPUT, &data, err) < 0)
                return -1;
        if (no_others(&m, "write", err) < 0)
                return -1;
        if (c->writing)
                return cg_fail(err, CG_E_STATE,
                               "the program has not read earlier input yet; send the line again after "
                               "command_written");
        if (!c->input)
                return cg_fail(err, CG_E_STATE, "the command has no input, or it was ended");
        if (!ends && !data.len)
                return cg_fail(err, CG_E_INVAL, "input of no bytes; its end is \"end\": true");
        r = cg_command_write(b->run->session, c->number, data.data, data.len, 0, err);
        c->input = !ends;
        if (r < 0)
                return r;
        if (r != CG_TIMEOUT)
                return write_written(b, c->number, line, err);
        j = calloc(1, sizeof(*j));
        if (!j)
                return cg_fail(err, CG_E_NOMEM, "input");
        *j = (struct beside_job){
                .b = b, .kind = WRITE_INPUT, .line = line, .command = c->number, .folder = -1
        };
        j->data = data;
        data = (struct cg_buf){ .max = 0 };
        r = start_job(b, j, err);
        c->writing = r == 0;
        return r;
}

/* ------------------------------------------------------------------ files */

static int file_line(struct cg_beside *b, const struct file_operation *op, const json_t *o, uint64_t line,
                     struct cg_err *err)
{
        struct beside_job *j = calloc(1, sizeof(*j));
        struct members m = { .o = o };
        int64_t mode = op->kind == MKDIR ? 0777 : 0666;
        const char *host = NULL;

        if (!j)
                return cg_fail(err, CG_E_NOMEM, "file");
        *j = (struct beside_job){ .b = b, .kind = op->kind, .line = line, .folder = -1 };
        j->max = -1;
        if (op->members & RANGE)
                j->max = (int64_t)MAX_DATA;
        if (take_id(&m, &j->id, err) < 0 || take_path(&m, "path", &j->path, err) < 0 ||
            (op->members & TO && take_path(&m, "to", &j->to, err) < 0) ||
            (op->members & DATA && take_data(&m, MAX_DATA, &j->data, err) < 0) ||
            (op->members & MODE && take_int(&m, "mode", 0, 0777, &mode, err) < 0) ||
            (op->members & RANGE && (take_int(&m, "offset", 0, INT64_MAX, &j->offset, err) < 0 ||
                                     take_int(&m, "max", 0, (int64_t)MAX_DATA, &j->max, err) < 0)) ||
            (op->members & MAX && take_int(&m, "max", 0, INT64_MAX, &j->max, err) < 0) ||
            (op->members & HOST && take_text(&m, "host", &host, err) < 0) ||
            take_timeout(&m, -1, &j->timeout_ms, err) < 0 || no_others(&m, op->name, err) < 0) {
                job_free(j);
                return -1;
        }
        j->mode = (unsigned)mode;
        if (op->members & HOST) {
                j->host = strdup(host ?: "");
                if (!j->host || !*j->host) {
                        job_free(j);
                        return cg_fail(err, CG_E_INVAL, "\"host\" must be a path outside of the sandbox");
                }
        }
        return start_job(b, j, err);
}

static int write_result(struct cg_beside *b, struct beside_job *j, struct cg_err *err)
{
        struct cg_buf l;

        cg_json_line_answer(&l, "file_result", j->id, j->line);
        cg_json_line_text(&l, "status", j->r < 0 ? "error" : "ok");
        if (j->r < 0) {
                const char *name = strerrorname_np(j->err.sys_errno);

                cg_json_line_text(&l, "text", j->err.msg);
                if (j->err.sys_errno && name)
                        cg_json_line_text(&l, "errno", name);
        } else if (j->kind == READ) {
                add_data(&l, j->result, j->result_len);
        } else if (j->kind == STAT) {
                cg_json_line_object(&l, "content", j->result, strlen(j->result));
        } else if (j->kind == LIST) {
                cg_auto_buf struct cg_buf wrapped = { .max = SIZE_MAX / 8 };

                cg_buf_addf(&wrapped, "{\"entries\":%s}", j->result);
                cg_buf_fail(&l, wrapped.failed);
                cg_json_line_object(&l, "content", wrapped.data, wrapped.len);
        }
        return cg_json_line_end(b->run, &l, err);
}

/* Input that could not be written: the program or its input has ended. */
static int write_late(struct cg_beside *b, const struct beside_job *j, struct cg_err *err)
{
        struct cg_buf l;

        cg_json_line_begin(&l, "input_error", 0);
        cg_json_line_int(&l, "line", (int64_t)j->line);
        cg_json_line_text(&l, "text", j->err.msg);
        return cg_json_line_end(b->run, &l, err);
}

int cg_beside_woken(struct cg_beside *b, struct cg_err *err)
{
        struct beside_job *j, *next;
        struct beside_command *c;
        uint64_t n;
        int r = 0;

        if (read(b->done_fd, &n, sizeof(n)) < 0)
                return 0;
        for (j = LIST_FIRST(&b->jobs); j && r == 0; j = next) {
                bool done;

                next = LIST_NEXT(j, entry);
                pthread_mutex_lock(&b->lock);
                done = j->done;
                pthread_mutex_unlock(&b->lock);
                if (!done)
                        continue;
                pthread_join(j->thread, NULL);
                LIST_REMOVE(j, entry);
                b->n_jobs--;
                c = find(b, j->command); /* 0 is no number */
                if (c)
                        c->writing = false;
                if (j->kind != WRITE_INPUT)
                        r = write_result(b, j, err);
                else if (j->r == 0)
                        r = write_written(b, j->command, j->line, err);
                else
                        r = write_late(b, j, err);
                if (c && !c->input) /* its end was asked for meanwhile, by the end of the host's input */
                        cg_command_write(b->run->session, c->number, NULL, 0, 0, NULL);
                job_free(j);
        }
        return r;
}

/* ------------------------------------------------------------------ */

static const struct {
        const char *name;
        int (*take)(struct cg_beside *b, const json_t *o, uint64_t line, struct cg_err *err);
} lines[] = {
        { "exec", exec_line },
        { "write", write_line },
        { "signal", signal_line },
        { "resize", resize_line },
};

bool cg_beside_takes(const char *name)
{
        for (size_t i = 0; i < CG_ARRAY_LEN(lines); i++)
                if (strcmp(lines[i].name, name) == 0)
                        return true;
        for (size_t i = 0; i < CG_ARRAY_LEN(operations); i++)
                if (strcmp(operations[i].name, name) == 0)
                        return true;
        return false;
}

int cg_beside_take(struct cg_beside *b, const char *name, const json_t *o, uint64_t line, struct cg_err *why)
{
        if (!json_is_object(o))
                return cg_fail(why, CG_E_INVAL, "\"%s\" must be an object", name);
        for (size_t i = 0; i < CG_ARRAY_LEN(lines); i++)
                if (strcmp(lines[i].name, name) == 0)
                        return lines[i].take(b, o, line, why);
        for (size_t i = 0; i < CG_ARRAY_LEN(operations); i++)
                if (strcmp(operations[i].name, name) == 0)
                        return file_line(b, &operations[i], o, line, why);
        return cg_fail(why, CG_E_INVAL, "no such line");
}

int cg_beside_fd(const struct cg_beside *b)
{
        return b->done_fd;
}

bool cg_beside_busy(const struct cg_beside *b)
{
        return b->n_jobs || !LIST_EMPTY(&b->commands);
}

void cg_beside_input_ended(struct cg_beside *b)
{
        struct beside_command *c;

        LIST_FOREACH(c, &b->commands, entry) {
                if (c->input && !c->writing)
                        cg_command_write(b->run->session, c->number, NULL, 0, 0, NULL);
                c->input = false;
        }
}

bool cg_beside_abandon(struct cg_beside *b)
{
        bool left = false;
        struct beside_job *j;

        pthread_mutex_lock(&b->lock);
        LIST_FOREACH(j, &b->jobs, entry) {
                left |= !j->done;
                if (!j->done && *j->fresh)
                        unlinkat(j->folder, j->fresh, 0);
        }
        pthread_mutex_unlock(&b->lock);
        return left;
}

int cg_beside_new(struct cg_run *run, struct cg_beside **ret, struct cg_err *err)
{
        struct cg_beside *b = calloc(1, sizeof(*b));

        if (!b)
                return cg_fail(err, CG_E_NOMEM, "run");
        b->run = run;
        b->done_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        if (b->done_fd < 0) {
                free(b);
                return cg_fail_errno(err, "eventfd");
        }
        pthread_mutex_init(&b->lock, NULL);
        *ret = b;
        return 0;
}

struct cg_beside *cg_beside_free(struct cg_beside *b)
{
        struct beside_command *c;
        struct beside_job *j;

        if (!b)
                return NULL;
        while ((c = LIST_FIRST(&b->commands))) {
                LIST_REMOVE(c, entry);
                command_free(c);
        }
        while ((j = LIST_FIRST(&b->jobs))) { /* done */
                pthread_join(j->thread, NULL);
                LIST_REMOVE(j, entry);
                job_free(j);
        }
        close(b->done_fd);
        pthread_mutex_destroy(&b->lock);
        free(b);
        return NULL;
}
