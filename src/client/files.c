/*
 * libcellgate: files of a session. Each function runs one command that is built into the sandbox
 * (docs/wire.md) and waits for it. Its events do not join the session's, and have a window of their
 * own, so that it goes on when the host does not read the session's events.
 */
#include "client/internal.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/json_text.h"
#include "base/text.h"
#include "base/util.h"

#define DEFAULT_MS 60000
#define MEMORY_MAX ((size_t)1 << 30) /* of a file or a list that is returned in memory */
#define CHUNK      (256u << 10)
/* Less than the window of an operation, which is 1 MiB. */
#define CREDIT_BYTES  (256u << 10)
#define MESSAGE_BYTES 1000
#define JSON_DEPTH    4 /* of lists and entries */

/* How long the host's input is waited for before the operation's end is looked for. */
#define INPUT_TURN_MS 100

/* Where input comes from and output goes to: a descriptor, or memory. */
struct transfer {
        int in_fd, out_fd; /* -1: memory */
        const char *data;
        size_t len;
        struct cg_buf *out; /* NULL: output is not expected */
        int64_t max;        /* bytes for @out_fd; -1: no limit */
        char *chunk;        /* of @in_fd */
        bool fed;
};

/* Lock held. Sends some input. */
static int feed(struct cg_session *s, struct operation *op, struct transfer *t, int64_t left_ms,
                struct cg_err *err)
{
        struct cg_out out = { .type = CG_HOST_COMMAND_INPUT,
                              .session = s->number,
                              .id = op->number,
                              .raw = t->data,
                              .has_raw = true };
        ssize_t n = (ssize_t)(t->len < CHUNK ? t->len : CHUNK);
        int r = 0;

        if (t->in_fd >= 0) {
                out.raw = t->chunk;
                pthread_mutex_unlock(&s->client->lock);
                r = cg_wait_fd(t->in_fd, POLLIN, left_ms < INPUT_TURN_MS ? left_ms : INPUT_TURN_MS, err);
                n = r == 0 ? read(t->in_fd, t->chunk, CHUNK) : 0;
                if (n < 0 && (errno == EINTR || errno == EAGAIN))
                        r = CG_TIMEOUT;
                else if (n < 0)
                        r = cg_fail_errno(err, "reading the file of the host");
                pthread_mutex_lock(&s->client->lock);
                if (r != 0)
                        return r == CG_TIMEOUT ? 0 : r;
        } else {
                t->data += n;
                t->len -= (size_t)n;
        }
        out.raw_len = (size_t)n;
        t->fed = n == 0;
        op->waiting += (size_t)n;
        return cg_client_send(s->client, &out, NULL, err);
}

/* A blocking descriptor of a pipe has room for no more than this when it is writable. */
static int write_within(int fd, const char *data, size_t len, int64_t left_ms, struct cg_err *err)
{
        int64_t end = cg_now_ms() + left_ms;
        struct stat st;
        size_t most = fstat(fd, &st) == 0 && S_ISREG(st.st_mode) ? len : PIPE_BUF;

        while (len) {
                int64_t left = end - cg_now_ms();
                int r = cg_wait_fd(fd, POLLOUT, left > 0 ? left : 0, err);
                ssize_t n = r == 0 ? write(fd, data, len < most ? len : most) : 0;

                if (r == CG_TIMEOUT)
                        return cg_fail(err, CG_E_TIMEDOUT, "the host does not read the file");
                if (r < 0)
                        return r;
                if (n < 0 && errno != EINTR && errno != EAGAIN)
                        return cg_fail_errno(err, "writing the file of the host");
                data += n > 0 ? n : 0;
                len -= n > 0 ? (size_t)n : 0;
        }
        return 0;
}

/* Lock not held. */
static int take_output(struct transfer *t, const struct cg_event *e, char message[MESSAGE_BYTES],
                       int64_t left_ms, struct cg_err *err)
{
        size_t n = strlen(message);

        if (e->is_stderr) {
                snprintf(message + n, MESSAGE_BYTES - n, "%.*s", (int)e->text_len, e->text);
                return 0;
        }
        if (t->out)
                return cg_buf_add(t->out, e->text, e->text_len, err);
        if (t->out_fd < 0)
                return 0;
        if (t->max >= 0 && (uint64_t)t->max < e->text_len)
                return cg_fail(err, CG_E_LIMIT, "more than the bytes that the host allows");
        t->max -= t->max >= 0 ? (int64_t)e->text_len : 0;
        return write_within(t->out_fd, e->text, e->text_len, left_ms, err);
}

/* @message: error output, untrusted. The exit status of a built-in operation is an errno. */
static int result_of(const struct cg_event *e, bool builtin, const char *message, struct cg_err *err)
{
        cg_auto_buf struct cg_buf shown = { .max = 4 * MESSAGE_BYTES };
        cg_auto_json json_t *o = NULL;
        int64_t status = -1;
        size_t len = strlen(message);
        const char *why;

        if (cg_json_object(e->json, e->json_len, "result", &o, err) < 0 ||
            cg_json_int(o, "exit_code", -1, &status, err) < 0)
                return CG_E_PROTO;
        if (status == 0)
                return 0;
        while (len && message[len - 1] == '\n')
                len--;
        if (cg_text_render_as(&shown, message, len, 0, builtin ? CG_TEXT_LINE : CG_TEXT_JUDGED, err) < 0 ||
            cg_buf_add(&shown, "", 1, err) < 0)
                return err ? err->code : CG_E_NOMEM;
        why = shown.data;
        if (e->status == CG_STATUS_TIMEOUT)
                return cg_fail(err, CG_E_TIMEDOUT, "%s", e->text);
        if (status < 0)
                return cg_fail(err, CG_E_CLOSED, "%s",
                               e->text_len ? e->text : "the operation was ended in the sandbox");
        if (!builtin)
                return cg_fail(err, CG_E_SYS, "exit status %d: %s", (int)status, why);
        cg_fail(err,
                status == ENOENT   ? CG_E_NOTFOUND
                : status == EEXIST ? CG_E_EXISTS
                : status == EINVAL ? CG_E_INVAL
                                   : CG_E_SYS,
                "%s", *why ? why : strerror((int)status));
        if (err)
                err->sys_errno = (int)status;
        return err ? err->code : CG_E_SYS;
}

/* Lock held. Gives back room for what was read, not for each event. */
static void credit(struct cg_session *s, const struct operation *op, const struct cg_event *e, size_t *owed)
{
        struct cg_out out = { .type = CG_HOST_COMMAND_CONTROL, .session = s->number, .id = op->number };

        if (e->type != CG_EVENT_COMMAND_OUTPUT || s->closed)
                return;
        *owed += e->text_len;
        if (*owed >= CREDIT_BYTES) {
                cg_client_send(s->client, &out, json_pack("{s:I}", "credit", (json_int_t)*owed), NULL);
                *owed = 0;
        }
}

/* Lock held. Waits for the end of the operation, whose events it handles. */
static int await(struct cg_session *s, struct operation *op, bool builtin, struct transfer *t, int64_t ms,
                 struct cg_err *err)
{
        struct timespec end = cg_client_deadline(ms);
        int64_t end_ms = cg_now_ms() + ms;
        char message[MESSAGE_BYTES] = "";
        size_t owed = 0;
        int r = 0;

        while (r == 0) {
                struct cg_event *e = op->events;
                int64_t left = end_ms - cg_now_ms();

                if (e && e->type == CG_EVENT_COMMAND_RESULT)
                        return result_of(e, builtin, message, err);
                if (left <= 0) {
                        r = cg_fail(err, CG_E_TIMEDOUT, "the operation took too long");
                } else if (e) {
                        op->events = e->next;
                        if (!op->events)
                                op->events_tail = &op->events;
                        credit(s, op, e, &owed);
                        pthread_mutex_unlock(&s->client->lock);
                        r = take_output(t, e, message, left, err);
                        cg_event_free(e);
                        pthread_mutex_lock(&s->client->lock);
                } else if (s->closed) {
                        r = cg_fail(err, CG_E_CLOSED, "the session has ended");
                } else if (!t->fed && op->waiting + CHUNK <= CG_MAX_COMMAND_INPUT) {
                        r = feed(s, op, t, left, err);
                } else {
                        pthread_cond_timedwait(&s->cond, &s->client->lock, &end);
                }
        }
        /* It is not wanted any more; what is left of it ends. */
        if (!s->closed) {
                struct cg_out out = { .type = CG_HOST_CANCEL, .session = s->number, .id = op->number };

                cg_client_send(s->client, &out, NULL, NULL);
        }
        return r;
}

/* @argv: of a built-in operation, or with @builtin false of a program. */
static int run(struct cg_session *s, bool builtin, const char *const *argv, struct transfer *t,
               int64_t timeout_ms, struct cg_err *err)
{
        int64_t ms = timeout_ms > 0 ? timeout_ms : timeout_ms < 0 ? INT_MAX : DEFAULT_MS;
        struct operation op = { .events_tail = &op.events };
        cg_auto_buf struct cg_buf text = { .max = CG_MAX_COMMAND_TEXT };
        struct cg_out out = { .type = CG_HOST_EXEC, .has_raw = true };
        cg_auto_free char *chunk = t->in_fd >= 0 ? malloc(CHUNK) : NULL;
        json_int_t argc = 0;
        json_t *body;
        int r = cg_buf_add(&text, "", 1, err); /* the session's folder */

        for (; r == 0 && argv[argc]; argc++)
                r = cg_buf_add(&text, argv[argc], strlen(argv[argc]) + 1, err);
        if (r < 0)
                return cg_err_prefix(err, "path");
        if (t->in_fd >= 0 && !chunk)
                return cg_fail(err, CG_E_NOMEM, "input");
        t->chunk = chunk;
        t->fed = t->in_fd < 0 && !t->data;
        out.raw = text.data;
        out.raw_len = text.len;
        body = json_pack("{s:I, s:b, s:b, s:b, s:I}", "argc", argc, "input", !t->fed, "builtin", builtin,
                         "own_window", true, "timeout_ms", (json_int_t)ms);
        r = cg_session_enter(s, err);
        if (r < 0) {
                json_decref(body);
                return r;
        }
        r = cg_session_send_numbered(s, &out, body, &op.number, err);
        if (r == 0) {
                op.next = s->operations;
                s->operations = &op;
                r = await(s, &op, builtin, t, ms, err);
                for (struct operation **p = &s->operations; *p; p = &(*p)->next) {
                        if (*p == &op) {
                                *p = op.next;
                                break;
                        }
                }
                while (op.events) {
                        struct cg_event *e = op.events;

                        op.events = e->next;
                        cg_event_free(e);
                }
        }
        pthread_mutex_unlock(&s->client->lock);
        return r;
}

/* The output as text that the caller frees. @input: NULL for none. */
static int run_for_text(struct cg_session *s, const char *const *argv, const char *input, int64_t timeout_ms,
                        char **ret, size_t *len, struct cg_err *err)
{
        cg_auto_buf struct cg_buf out = { .max = MEMORY_MAX };
        struct transfer t = {
                .in_fd = -1, .out_fd = -1, .data = input, .len = input ? strlen(input) : 0, .out = &out
        };
        int r = run(s, true, argv, &t, timeout_ms, err);

        if (r < 0)
                return r;
        if (!out.data && cg_buf_add(&out, "", 0, err) < 0)
                return CG_E_NOMEM;
        *ret = cg_buf_steal(&out, len);
        return *ret ? 0 : cg_fail(err, CG_E_NOMEM, "file");
}

/* As run_for_text(), one JSON value that starts with @open: untrusted. */
static int run_for_json(struct cg_session *s, const char *const *argv, const char *input, char open,
                        int64_t timeout_ms, char **ret, struct cg_err *err)
{
        cg_auto_free char *text = NULL;
        size_t len, used;
        int r = run_for_text(s, argv, input, timeout_ms, &text, &len, err);

        if (r < 0)
                return r;
        if (text[0] != open || cg_json_skip(text, len, JSON_DEPTH, &used, NULL) < 0 || used != len)
                return cg_fail(err, CG_E_PROTO, "the sandbox's answer about %s is not one", argv[1]);
        *ret = CG_STEAL(text);
        return 0;
}

CG_API int cg_session_files_read(struct cg_session *s, const char *path, int64_t offset, int64_t max,
                                 int64_t timeout_ms, char **ret, size_t *len, struct cg_err *err)
{
        char from[24], count[24];
        const char *argv[] = { "read", path, from, count, NULL };

        snprintf(from, sizeof(from), "%lld", (long long)(offset > 0 ? offset : 0));
        snprintf(count, sizeof(count), "%lld", (long long)(max >= 0 ? max : -1));
        return run_for_text(s, argv, NULL, timeout_ms, ret, len, err);
}

CG_API int cg_session_files_get(struct cg_session *s, const char *path, int fd, int64_t max,
                                int64_t timeout_ms, struct cg_err *err)
{
        const char *argv[] = { "read", path, NULL };
        struct transfer t = { .in_fd = -1, .out_fd = fd, .max = max };

        return run(s, true, argv, &t, timeout_ms, err);
}

CG_API int cg_session_files_write(struct cg_session *s, const char *path, unsigned int mode, const void *data,
                                  size_t len, int64_t timeout_ms, struct cg_err *err)
{
        char octal[16];
        const char *argv[] = { "write", path, octal, NULL };
        struct transfer t = { .in_fd = -1, .out_fd = -1, .data = data ? data : "", .len = len };

        snprintf(octal, sizeof(octal), "%o", mode & 0777);
        return run(s, true, argv, &t, timeout_ms, err);
}

CG_API int cg_session_files_put(struct cg_session *s, const char *path, unsigned int mode, int fd,
                                int64_t timeout_ms, struct cg_err *err)
{
        char octal[16];
        const char *argv[] = { "write", path, octal, NULL };
        struct transfer t = { .in_fd = fd, .out_fd = -1 };

        snprintf(octal, sizeof(octal), "%o", mode & 0777);
        return run(s, true, argv, &t, timeout_ms, err);
}

CG_API int cg_session_files_stat(struct cg_session *s, const char *path, int64_t timeout_ms, char **ret,
                                 struct cg_err *err)
{
        const char *argv[] = { "stat", path, NULL };

        return run_for_json(s, argv, NULL, '{', timeout_ms, ret, err);
}

CG_API int cg_session_files_list(struct cg_session *s, const char *path, int64_t timeout_ms, char **ret,
                                 struct cg_err *err)
{
        const char *argv[] = { "list", path, NULL };

        return run_for_json(s, argv, NULL, '[', timeout_ms, ret, err);
}

/* A change without output. */
static int change(struct cg_session *s, const char *const *argv, int64_t timeout_ms, struct cg_err *err)
{
        struct transfer t = { .in_fd = -1, .out_fd = -1 };

        return run(s, true, argv, &t, timeout_ms, err);
}

CG_API int cg_session_files_mkdir(struct cg_session *s, const char *path, unsigned int mode,
                                  int64_t timeout_ms, struct cg_err *err)
{
        char octal[16];
        const char *argv[] = { "mkdir", path, octal, NULL };

        snprintf(octal, sizeof(octal), "%o", mode & 0777);
        return change(s, argv, timeout_ms, err);
}

CG_API int cg_session_files_remove(struct cg_session *s, const char *path, int64_t timeout_ms,
                                   struct cg_err *err)
{
        const char *argv[] = { "remove", path, NULL };

        return change(s, argv, timeout_ms, err);
}

CG_API int cg_session_files_rename(struct cg_session *s, const char *from, const char *to, int64_t timeout_ms,
                                   struct cg_err *err)
{
        const char *argv[] = { "rename", from, to, NULL };

        return change(s, argv, timeout_ms, err);
}

CG_API int cg_session_files_pack(struct cg_session *s, const char *path, int fd, int64_t max,
                                 int64_t timeout_ms, struct cg_err *err)
{
        const char *argv[] = { "tar", "-C", path, "-cf", "-", ".", NULL };
        struct transfer t = { .in_fd = -1, .out_fd = fd, .max = max };

        return run(s, false, argv, &t, timeout_ms, err);
}

CG_API int cg_session_files_unpack(struct cg_session *s, const char *path, int fd, int64_t timeout_ms,
                                   struct cg_err *err)
{
        const char *argv[] = { "tar", "-C", path, "-xf", "-", NULL };
        struct transfer t = { .in_fd = fd, .out_fd = -1 };

        return run(s, false, argv, &t, timeout_ms, err);
}
