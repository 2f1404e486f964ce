/*
 * libcellgate: files of a session. Each function runs one command that is built into the sandbox
 * (docs/wire.md) and waits for it. Its input or output is a socket, which the lifeline passes to
 * the supervisor, and that to the process inside: no byte of it is a message. From file to file,
 * pages go through it without a copy until the process that writes makes one. The command's events
 * do not join the session's, so that it goes on when the host does not read these.
 */
#include "client/internal.h"

#include <poll.h>
#include <signal.h>
#include <sys/sendfile.h>
#include <sys/socket.h>

#include "base/json_text.h"
#include "base/text.h"

#define DEFAULT_MS    60000
#define MEMORY_MAX    ((size_t)1 << 30) /* of a file or a list that is returned in memory */
#define CHUNK         (1u << 20)
#define MESSAGE_BYTES 1000
#define JSON_DEPTH    4 /* of lists and entries */

/* How long a descriptor is waited for before the operation's end is looked for. */
#define TURN_MS 100

/* Source of input and destination of output: a descriptor, or memory. */
struct transfer {
        int in_fd, out_fd; /* -1: memory */
        const char *data;  /* with @in_fd -1; NULL: no input */
        size_t len;
        struct cg_buf *out; /* NULL: output is not expected */
        int64_t max;        /* bytes of output; -1: no limit */
        bool pieces;        /* the input is sent as `write` in sandbox/inside/files.h expects it */
        char *chunk;
        int64_t end_ms;
};

static const char too_long[] = "the operation took too long";

/* Output of a node has a channel of its own, which ends after it; the result may come earlier. */
static bool has_ended(struct cg_session *s, const struct operation *op, const struct transfer *t)
{
        bool output = t->in_fd < 0 && !t->data, ended;
        CG_HOLD(&s->client->lock);

        ended = s->closed || (op->done && !(output && s->client->node));
        return ended;
}

/* Waits until @fd is ready for @event. CG_CLOSED: the operation has ended first. */
static int wait_ready(struct cg_session *s, const struct operation *op, const struct transfer *t, int fd,
                      short event, struct cg_err *err)
{
        for (;;) {
                int64_t left = t->end_ms - cg_now_ms();
                int r = cg_wait_fd(fd, event, CG_MAX(CG_MIN(left, TURN_MS), 0), err);

                if (r != CG_TIMEOUT)
                        return r;
                if (has_ended(s, op, t))
                        return CG_CLOSED;
                if (left <= 0)
                        return cg_fail(err, CG_E_TIMEDOUT, "%s", too_long);
        }
}

/* ------------------------------------------------------------------ input */

/* sendfile() without SIGPIPE, which it has no flag for: the signal would be this thread's. */
static ssize_t send_from_file(int sock, int file, size_t len)
{
        static const struct timespec now = { 0 };
        sigset_t sigpipe, pending, old;
        ssize_t n;
        int e;

        sigemptyset(&sigpipe);
        sigaddset(&sigpipe, SIGPIPE);
        pthread_sigmask(SIG_BLOCK, &sigpipe, &old);
        sigpending(&pending);
        n = sendfile(sock, file, NULL, len);
        e = errno;
        if (!sigismember(&pending, SIGPIPE))
                sigtimedwait(&sigpipe, NULL, &now);
        pthread_sigmask(SIG_SETMASK, &old, NULL);
        errno = e;
        return n;
}

/* Sends @data, or with @file >= 0 what that has. CG_CLOSED: the other end reads no more. */
static int send_bytes(struct cg_session *s, const struct operation *op, const struct transfer *t, int sock,
                      int file, const void *data, size_t len, struct cg_err *err)
{
        const char *p = data;
        int r = 0;

        while (len && r == 0) {
                ssize_t n = file >= 0 ? send_from_file(sock, file, len)
                                      : send(sock, p, len, MSG_NOSIGNAL | MSG_DONTWAIT);

                if (n < 0 && errno == EAGAIN)
                        r = wait_ready(s, op, t, sock, POLLOUT, err);
                else if (n < 0 && (errno == EPIPE || errno == ECONNRESET))
                        return CG_CLOSED;
                else if (n < 0 && errno != EINTR)
                        return cg_fail_errno(err, "reading the file of the host");
                else if (n == 0)
                        return cg_fail(err, CG_E_SYS, "the file of the host became shorter");
                if (n > 0 && file < 0)
                        p += n;
                if (n > 0)
                        len -= (size_t)n;
        }
        return r;
}

static bool is_regular(int fd)
{
        struct stat st;

        return fstat(fd, &st) == 0 && S_ISREG(st.st_mode);
}

/* Bytes of a regular file from its offset on; 0: read() finds its end, or waits. */
static ssize_t left_in_file(int fd)
{
        struct stat st;
        off_t at;

        if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || (at = lseek(fd, 0, SEEK_CUR)) < 0)
                return 0;
        return st.st_size > at ? st.st_size - at : 0;
}

/* Sends the input to its end. CG_CLOSED: the operation reads no more; its result says why. */
static int send_input(struct cg_session *s, const struct operation *op, struct transfer *t, int sock,
                      struct cg_err *err)
{
        uint64_t size = 1;
        int r;

        while (size) {
                ssize_t n = (ssize_t)CG_MIN(t->len, CHUNK), left = left_in_file(t->in_fd);
                const char *data = t->data;
                int file = -1;

                if (left > 0) { /* without copies in memory */
                        file = t->in_fd;
                        n = CG_MIN(left, CHUNK);
                } else if (t->in_fd >= 0) {
                        data = t->chunk;
                        r = wait_ready(s, op, t, t->in_fd, POLLIN, err);
                        if (r != 0)
                                return r;
                        n = read(t->in_fd, t->chunk, CHUNK);
                        if (n < 0 && (errno == EINTR || errno == EAGAIN))
                                continue;
                        if (n < 0)
                                return cg_fail_errno(err, "reading the file of the host");
                } else {
                        t->data += n;
                        t->len -= (size_t)n;
                }
                size = (uint64_t)n;
                if (t->pieces) {
                        r = send_bytes(s, op, t, sock, -1, &size, sizeof(size), err);
                        if (r != 0)
                                return r;
                }
                r = send_bytes(s, op, t, sock, file, data, size, err);
                if (r != 0)
                        return r;
        }
        if (!t->pieces)
                shutdown(sock, SHUT_WR);
        return 0;
}

/* ------------------------------------------------------------------ output */

/* A blocking descriptor of a pipe has room for no more than this when it is writable. */
static int write_within(const struct transfer *t, const char *data, size_t len, struct cg_err *err)
{
        while (len) {
                int64_t left = t->end_ms - cg_now_ms();
                int r = cg_wait_fd(t->out_fd, POLLOUT, CG_MAX(left, 0), err);
                ssize_t n;

                if (r == CG_TIMEOUT)
                        return cg_fail(err, CG_E_TIMEDOUT, "the host does not read the file");
                if (r < 0)
                        return r;
                n = write(t->out_fd, data, CG_MIN(len, PIPE_BUF));
                if (n < 0 && errno != EINTR && errno != EAGAIN)
                        return cg_fail_errno(err, "writing the file of the host");
                n = CG_MAX(n, 0);
                data += n;
                len -= (size_t)n;
        }
        return 0;
}

/* Receives the output to its end; its result says whether that is all. */
static int receive_output(struct cg_session *s, const struct operation *op, struct transfer *t, int sock,
                          struct cg_err *err)
{
        bool ended = false, by_pipe = t->out_fd >= 0 && is_regular(t->out_fd);
        cg_auto_fd int from = -1, to = -1;
        int ends[2];

        if (by_pipe && pipe2(ends, O_CLOEXEC) < 0)
                return cg_fail_errno(err, "pipe");
        if (by_pipe) {
                from = ends[0];
                to = ends[1];
        }
        for (;;) {
                size_t room = t->out && t->out->len < CHUNK ? t->out->len + PIPE_BUF : CHUNK;
                char *data = t->chunk;
                int r = t->out ? cg_buf_reserve(t->out, room, &data, err) : 0;
                ssize_t n;

                if (r < 0)
                        return r;
                n = by_pipe ? splice(sock, NULL, to, NULL, room, SPLICE_F_MOVE | SPLICE_F_NONBLOCK)
                            : recv(sock, data, room, MSG_DONTWAIT);
                if (n == 0 || (n < 0 && (errno == ECONNRESET || (errno == EAGAIN && ended))))
                        return 0;
                if (n < 0 && errno == EAGAIN)
                        r = wait_ready(s, op, t, sock, POLLIN, err);
                else if (n < 0 && errno != EINTR)
                        return cg_fail_errno(err, "reading from the sandbox");
                else if (n > 0 && t->max >= 0 && t->max < n)
                        return cg_fail(err, CG_E_LIMIT, "more than %s",
                                       t->out ? "1 GiB, the most that is read into memory"
                                              : "the bytes that the host allows");
                t->max -= n > 0 && t->max >= 0 ? n : 0;
                if (n > 0 && t->out) {
                        t->out->len += (size_t)n;
                        cg_buf_terminate(t->out);
                } else if (n > 0 && t->out_fd >= 0) {
                        if (!by_pipe)
                                r = write_within(t, t->chunk, (size_t)n, err);
                        else if (cg_pipe_to_file(from, t->out_fd, (size_t)n, err) < 0)
                                r = cg_err_prefix(err, "the file of the host");
                }
                if (r < 0)
                        return r;
                ended |= r == CG_CLOSED; /* its last output may have come since */
        }
}

static int code_of(int errnum)
{
        if (errnum == ENOENT)
                return CG_E_NOTFOUND;
        if (errnum == EEXIST)
                return CG_E_EXISTS;
        return errnum == EINVAL ? CG_E_INVAL : CG_E_SYS;
}

/* @message: error output, untrusted. The exit status of a built-in operation is an errno. */
static int result_of(const struct cg_event *e, bool builtin, const char *message, struct cg_err *err)
{
        cg_auto_buf struct cg_buf shown = { .max = 4 * MESSAGE_BYTES };
        cg_auto_json json_t *o = NULL;
        int64_t status = -1;
        size_t len = strlen(message);
        const char *why;
        int code;

        if (cg_json_object(e->json, e->json_len, "result", &o, err) < 0 ||
            cg_json_int(o, "exit_code", -1, &status, err) < 0)
                return CG_E_PROTO;
        if (status == 0)
                return 0;
        while (len && message[len - 1] == '\n')
                len--;
        cg_text_render_as(&shown, message, len, 0, builtin ? CG_TEXT_LINE : CG_TEXT_JUDGED);
        if (cg_buf_end(&shown, err) < 0)
                return shown.failed;
        why = cg_buf_str(&shown);
        if (e->status == CG_STATUS_TIMEOUT)
                return cg_fail(err, CG_E_TIMEDOUT, "%s", e->text);
        if (status < 0)
                return cg_fail(err, CG_E_CLOSED, "%s",
                               e->text_len ? e->text : "the operation was ended in the sandbox");
        if (!builtin)
                return cg_fail(err, CG_E_SYS, "exit status %d: %s", (int)status, why);
        code = cg_fail(err, code_of((int)status), "%s", cg_text_or(why, strerror((int)status)));
        if (err)
                err->sys_errno = (int)status;
        return code;
}

/* Lock held. Waits for the operation's result, and collects its error output. */
static int await(struct cg_session *s, struct operation *op, bool builtin, const struct transfer *t,
                 struct cg_err *err)
{
        char message[MESSAGE_BYTES] = "";

        for (;;) {
                int64_t left = t->end_ms - cg_now_ms();
                struct cg_event *e = op->events;
                struct timespec end = cg_client_deadline(CG_MAX(left, 0));
                size_t n = strlen(message);

                if (e && e->type == CG_EVENT_COMMAND_RESULT)
                        return result_of(e, builtin, message, err);
                if (e) {
                        if (e->is_stderr)
                                snprintf(message + n, sizeof(message) - n, "%.*s", (int)e->text_len, e->text);
                        op->events = e->next;
                        if (!op->events)
                                op->events_tail = &op->events;
                        cg_event_free(e);
                } else if (s->closed) {
                        return cg_fail(err, CG_E_CLOSED, "the session has ended");
                } else if (left <= 0) {
                        return cg_fail(err, CG_E_TIMEDOUT, "%s", too_long);
                } else {
                        pthread_cond_timedwait(&s->cond, &s->client->lock, &end);
                }
        }
}

/* Lock held. Requests the operation, with the other end of *sock. */
static int request(struct cg_session *s, struct cg_out *out, json_t *body, int *sock, uint64_t *number,
                   struct cg_err *err)
{
        cg_auto_json json_t *owned = body;
        uint64_t id = ++s->client->next_socket;
        int fds[2], r;

        if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) < 0)
                return cg_fail_errno(err, "socketpair");
        *sock = fds[0];
        /* At most what net.core.wmem_max allows. */
        for (int i = 0; i < 2; i++)
                setsockopt(fds[i], SOL_SOCKET, SO_SNDBUF, &(int){ CHUNK }, sizeof(int));
        if (fcntl(fds[0], F_SETFL, O_NONBLOCK) < 0) {
                close(fds[1]);
                return cg_fail_errno(err, "socketpair");
        }
        r = cg_send_fds(s->client->life_fd, &id, sizeof(id), &fds[1], 1, err);
        close(fds[1]);
        if (r >= 0 && json_object_set_new(body, "socket", json_integer((json_int_t)id)) < 0)
                r = cg_fail(err, CG_E_NOMEM, "operation");
        return r < 0 ? r : cg_session_send_numbered(s, out, CG_STEAL(owned), number, err);
}

/* @argv: of a built-in operation, or with @builtin false of a program. */
static int run(struct cg_session *s, bool builtin, const char *const *argv, struct transfer *t,
               int64_t timeout_ms, struct cg_err *err)
{
        int64_t ms = timeout_ms < 0 ? INT_MAX : cg_ms_or(timeout_ms, DEFAULT_MS);
        bool input = t->in_fd >= 0 || t->data;
        struct operation op = { .events_tail = &op.events };
        cg_auto_buf struct cg_buf text = { .max = CG_MAX_COMMAND_TEXT };
        struct cg_out out = { .type = CG_HOST_EXEC, .has_raw = true };
        cg_auto_free char *chunk = malloc(CHUNK);
        cg_auto_fd int sock = -1;
        json_int_t argc = 0;
        int r;

        cg_buf_add(&text, "", 1); /* the session's folder */
        for (; argv[argc]; argc++)
                cg_buf_add(&text, argv[argc], strlen(argv[argc]) + 1);
        if (cg_buf_end(&text, err) < 0)
                return cg_err_prefix(err, "path");
        if (!chunk)
                return cg_fail(err, CG_E_NOMEM, "operation");
        t->chunk = chunk;
        t->pieces = builtin;
        t->end_ms = cg_now_ms() + ms;
        out.raw = text.data;
        out.raw_len = text.len;
        r = cg_session_enter(s, err);
        if (r < 0)
                return r;
        r = request(s, &out,
                    json_pack("{s:I, s:b, s:b, s:I}", "argc", argc, "input", input, "builtin", builtin,
                              "timeout_ms", (json_int_t)ms),
                    &sock, &op.number, err);
        if (r < 0) {
                pthread_mutex_unlock(&s->client->lock);
                return r;
        }
        op.next = s->operations;
        s->operations = &op;
        pthread_mutex_unlock(&s->client->lock);
        r = input ? send_input(s, &op, t, sock, err) : receive_output(s, &op, t, sock, err);
        pthread_mutex_lock(&s->client->lock);
        if (r >= 0)
                r = await(s, &op, builtin, t, err);
        if (!op.done && !s->closed) { /* it is not wanted any more; what is left of it ends */
                struct cg_out cancel = { .type = CG_HOST_CANCEL, .session = s->number, .id = op.number };

                cg_client_send(s->client, &cancel, NULL, NULL);
        }
        CG_UNLINK(s->operations, &op, next);
        pthread_mutex_unlock(&s->client->lock);
        CG_FREE_ALL(op.events, next, cg_event_free);
        return r;
}

/* The output as text that the caller frees. */
static int run_for_text(struct cg_session *s, const char *const *argv, int64_t timeout_ms, char **ret,
                        size_t *len, struct cg_err *err)
{
        cg_auto_buf struct cg_buf out = { .max = MEMORY_MAX + CHUNK };
        struct transfer t = { .in_fd = -1, .out_fd = -1, .out = &out, .max = MEMORY_MAX };
        int r = run(s, true, argv, &t, timeout_ms, err);

        if (r < 0)
                return r;
        *ret = cg_buf_steal(&out, len);
        return cg_made(*ret, "file", err);
}

/* As run_for_text(), one JSON value that starts with @open: untrusted. */
static int run_for_json(struct cg_session *s, const char *const *argv, char open, int64_t timeout_ms,
                        char **ret, struct cg_err *err)
{
        cg_auto_free char *text = NULL;
        size_t len, used;
        int r = run_for_text(s, argv, timeout_ms, &text, &len, err);

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

        snprintf(from, sizeof(from), "%lld", (long long)CG_MAX(offset, 0));
        snprintf(count, sizeof(count), "%lld", (long long)CG_MAX(max, -1));
        return run_for_text(s, argv, timeout_ms, ret, len, err);
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
        struct transfer t = { .in_fd = -1, .out_fd = -1, .data = data ?: "", .len = len };

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

        return run_for_json(s, argv, '{', timeout_ms, ret, err);
}

CG_API int cg_session_files_list(struct cg_session *s, const char *path, int64_t timeout_ms, char **ret,
                                 struct cg_err *err)
{
        const char *argv[] = { "list", path, NULL };

        return run_for_json(s, argv, '[', timeout_ms, ret, err);
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
