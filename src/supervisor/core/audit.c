/*
 * cellgate-supervisor: records for the audit log. What must not happen unrecorded waits for the
 * writer's reply: cells, commands, servers, and decisions that accept. The rest is written in order
 * and without a wait; the next reply counts for it too.
 */
#include "supervisor/core/audit.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <time.h>
#include "audit/audit.h"
#include "base/installed.h"
#include "base/json.h"
#include "base/proc.h"
#include "base/secrets.h"
#include "base/sha256_hex.h"
#include "base/state_dir.h"
#include "config.h"
#include "supervisor/core/host.h"
#include "supervisor/core/host_link.h"
#include "supervisor/core/state.h"

/* The writer's disk may be slow, but every session of this supervisor waits meanwhile. */
#define WAIT_S    5
#define FINISH_MS 3000
#define FD_WRITER 3

/* A record has no longer arguments, but for their beginning: an agent that writes files with a tool
 * must not fill the log with them. */
#define MAX_ARGUMENTS ((size_t)64 << 10)
#define BEGINNING     ((size_t)16 << 10)

/* Of read_replies(): the record is written, but heads of the log cannot be sent elsewhere. */
#define CG_E_UNSENT CG_E_CLOSED

struct session_audit {
        bool strict;
        bool opened;
        bool reported; /* best effort: the host knows that records are missing */
        bool signs;    /* files of cells */
};

struct audit {
        struct cg_proc proc;
        int fd;
        unsigned replies;    /* that are due */
        unsigned unasked;    /* records since the last one that wants a reply */
        unsigned unanswered; /* records that no reply says are written, and those of a gap before */
        struct cg_audit_reply last;
};

/* ------------------------------------------------------------------ the writer */

static void end_writer(struct sup *s)
{
        struct audit *a = s->audit;

        close(a->fd);
        s->children[CG_CHILD_AUDIT] = 0;
        if (cg_proc_wait(&a->proc, FINISH_MS, NULL, NULL) != 0)
                cg_proc_end(&a->proc, false, 0);
        free(a);
        s->audit = NULL;
}

void cg_sup_audit_stop(struct sup *s)
{
        if (s->audit)
                end_writer(s);
}

static int start_writer(struct sup *s, struct cg_err *err)
{
        char dir[PATH_MAX], number[16];
        const char *argv[] = { "cellgate-audit",          "--writer", number, dir, s->setup.audit_key ?: "",
                               s->setup.audit_head ?: "", NULL };
        struct cg_proc_fd fds[] = { { -1, 0 }, { -1, 1 }, { s->log.fd, 2 }, { -1, FD_WRITER } };
        /* with proxies, for what sends heads */
        struct cg_proc_spec spec = CG_PROC_SPEC(CG_INSTALLED(CG_LIBEXECDIR "/cellgate-audit"), argv, environ,
                                                fds, .new_session = true);
        struct timeval limit = { .tv_sec = WAIT_S };
        cg_auto_fd int ours = -1, theirs = -1;
        cg_auto_free struct audit *a = calloc(1, sizeof(*a));
        int pair[2];

        if (!a)
                return cg_fail(err, CG_E_NOMEM, "audit log");
        if (cg_state_folder("audit", dir, err) < 0)
                return -1;
        snprintf(number, sizeof(number), "%d", FD_WRITER);
        if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
                return cg_fail_errno(err, "audit log: socketpair");
        ours = pair[0];
        fds[3].fd = theirs = pair[1];
        if (setsockopt(ours, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit)) < 0 ||
            setsockopt(ours, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit)) < 0)
                return cg_fail_errno(err, "audit log: socket");
        if (cg_proc_spawn(&spec, &a->proc, err) < 0)
                return -1;
        a->fd = cg_steal_fd(&ours);
        s->children[CG_CHILD_AUDIT] = a->proc.pid;
        s->audit = CG_STEAL(a);
        return 0;
}

static int send_all(int fd, struct iovec *v, size_t n, struct cg_err *err)
{
        while (n) {
                struct msghdr m = { .msg_iov = v, .msg_iovlen = n };
                ssize_t sent = sendmsg(fd, &m, MSG_NOSIGNAL);

                if (sent < 0 && errno == EINTR)
                        continue;
                if (sent < 0)
                        return cg_fail(err, CG_E_SYS, "its writer %s",
                                       errno == EAGAIN ? "does not read" : "has ended");
                for (; n && (size_t)sent >= v->iov_len; v++, n--)
                        sent -= (ssize_t)v->iov_len;
                if (n) {
                        v->iov_base = (char *)v->iov_base + sent;
                        v->iov_len -= (size_t)sent;
                }
        }
        return 0;
}

/* Reads the replies that have come, or with @wait all that are due. */
static int read_replies(struct audit *a, bool wait, struct cg_err *err)
{
        struct pollfd p = { .fd = a->fd, .events = POLLIN };
        struct cg_audit_reply reply;
        ssize_t n;
        int r = 0;

        for (; a->replies && (wait || poll(&p, 1, 0) == 1); a->replies--) {
                do /* SIGCHLD may come meanwhile */
                        n = recv(a->fd, &reply, sizeof(reply), MSG_WAITALL);
                while (n < 0 && errno == EINTR);
                if (n != sizeof(reply))
                        return cg_fail(err, CG_E_SYS, "its writer does not answer");
                reply.error[sizeof(reply.error) - 1] = 0;
                a->last = reply;
                if (!reply.error[0])
                        r = 0;
                else
                        r = cg_fail(err, reply.recorded ? CG_E_UNSENT : CG_E_STATE, "%s", reply.error);
        }
        if (!a->replies && a->last.recorded)
                a->unanswered = a->unasked;
        return r;
}

static int send_record(struct audit *a, const char *session, const char *kind, const struct cg_buf *body,
                       bool reply, struct cg_err *err)
{
        struct cg_audit_request q = { .session_len = (uint32_t)strlen(session),
                                      .kind_len = (uint32_t)strlen(kind),
                                      .body_len = (uint32_t)body->len,
                                      .reply = reply };
        struct iovec v[] = { { &q, sizeof(q) },
                             { (void *)(uintptr_t)session, q.session_len + 1 },
                             { (void *)(uintptr_t)kind, q.kind_len + 1 },
                             { body->data, body->len + 1 } };
        struct timespec now;

        clock_gettime(CLOCK_REALTIME, &now);
        q.time_us = (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
        a->unanswered++;
        a->unasked = reply ? 0 : a->unasked + 1;
        a->replies += reply;
        return send_all(a->fd, v, CG_ARRAY_LEN(v), err);
}

/* Sends the record, after one about those that an earlier writer may not have written. */
static int send_after_gap(struct sup *s, const char *session, const char *kind, const struct cg_buf *body,
                          bool reply, struct cg_err *err)
{
        char text[64];
        struct cg_buf gap = { .data = text };

        if (s->audit_gap) {
                gap.len = (size_t)snprintf(text, sizeof(text), "{\"records_at_most\":%u}", s->audit_gap);
                if (send_record(s->audit, "", "log.gap", &gap, false, err) < 0)
                        return -1;
                s->audit->unanswered += s->audit_gap;
                s->audit_gap = 0;
        }
        return send_record(s->audit, session, kind, body, reply, err);
}

/* A writer that broke off is replaced; what it may not have written is a gap in the log. */
static int write_record(struct sup *s, const char *session, const char *kind, const struct cg_buf *body,
                        bool reply, bool wait, struct cg_err *err)
{
        int r;

        if (!s->audit && start_writer(s, err) < 0) {
                s->audit_gap++;
                return -1;
        }
        r = send_after_gap(s, session, kind, body, reply, err) ?: read_replies(s->audit, wait, err);
        if (r < 0 && err->code == CG_E_SYS) {
                s->audit_gap += s->audit->unanswered;
                end_writer(s);
        }
        return r;
}

/* ------------------------------------------------------------------ records */

/* The host is told once; the text does not count against its window of events. */
static void report_gap(struct session *ss, const struct cg_err *why)
{
        struct cg_out out = { .type = CG_HOST_NOTICE, .session = ss->number };
        char text[1200];

        if (ss->audit->reported || !ss->life.opened ||
            ss->start.opening) /* before the host knows the session */
                return;
        ss->audit->reported = true;
        snprintf(text, sizeof(text), "%s: %s",
                 why->code == CG_E_UNSENT
                         ? "heads of the audit log cannot be sent; what happens is recorded here only"
                         : "the audit log cannot be written, so what happens is not recorded",
                 why->msg);
        cg_sup_host_send(ss->host, &out, json_pack("{s:o}", "text", cg_sup_text_json(text)));
}

/* Negative: it must not happen; *err says why. @ask: must it be written before it happens? */
static int record(struct session *ss, const char *kind, struct cg_buf *body, bool ask, struct cg_err *err)
{
        struct session_audit *a = ss->audit;
        struct cg_err why;

        if (cg_buf_end(body, &why) == 0) {
                cg_secrets_redact_buf(&ss->secrets, body);
                if (write_record(ss->sup, ss->id, kind, body, ask, ask && a->strict, &why) == 0)
                        return 0;
        }
        cg_log(&ss->sup->log, CG_LOG_WARN, "audit log: %s", why.msg);
        if (a->strict)
                return cg_fail(err, CG_E_STATE, "%s, so nothing may happen: %s",
                               why.code == CG_E_UNSENT ? "heads of the audit log cannot be sent"
                                                       : "the audit log cannot be written",
                               why.msg);
        report_gap(ss, &why);
        return 0;
}

static void add_json(struct cg_buf *b, const json_t *value)
{
        cg_auto_free char *text = cg_json_text(value, NULL);

        cg_buf_adds(b, text ?: "null");
}

int cg_sup_audit_check(struct session *ss, struct cg_err *err)
{
        struct session_audit *a;
        const json_t *v;
        const char *mode;
        bool signs;
        size_t i;

        if (cg_json_str(ss->options, "audit", NULL, &mode, err) < 0 ||
            cg_json_bool(ss->options, "sign_artifacts", false, &signs, err) < 0)
                return -1;
        cg_sup_audit_free(ss);
        if (signs && (!mode || json_is_false(json_object_get(ss->options, "sandbox"))))
                return cg_fail(err, CG_E_INVAL, "\"sign_artifacts\" needs \"audit\" and a sandbox");
        json_array_foreach(json_object_get(ss->options, "env"), i, v) {
                const char *const one[] = { json_string_value(v), NULL };

                if (cg_secrets_add_env(&ss->secrets, one, err) < 0)
                        return -1;
        }
        if (!mode)
                return 0;
        if (strcmp(mode, "strict") != 0 && strcmp(mode, "best-effort") != 0)
                return cg_fail(err, CG_E_INVAL, "\"audit\" must be \"strict\" or \"best-effort\"");
        ss->audit = a = calloc(1, sizeof(*a));
        if (!a)
                return cg_fail(err, CG_E_NOMEM, "audit log");
        a->strict = strcmp(mode, "strict") == 0;
        a->signs = signs;
        return 0;
}

void cg_sup_audit_free(struct session *ss)
{
        cg_secrets_fini(&ss->secrets);
        free(CG_STEAL(ss->audit));
}

int cg_sup_audit_opened(struct session *ss, struct cg_err *err)
{
        static const char *const shown[] = { "front", "workspace", "tier",    "sandbox",
                                             "exec",  "settings",  "language" };
        cg_auto_buf struct cg_buf b = { .max = CG_MAX_SETTINGS };
        const json_t *spec = json_object_get(ss->options, "language_spec");

        if (!ss->audit || !ss->host) /* a spare's warm-up is nobody's */
                return 0;
        ss->audit->opened = true;
        cg_buf_addf(&b, "{\"pid\":%lld", (long long)ss->host->pid);
        for (size_t i = 0; i < CG_ARRAY_LEN(shown); i++) {
                cg_buf_addf(&b, ",\"%s\":", shown[i]);
                add_json(&b, json_object_get(ss->options, shown[i]));
        }
        if (spec) {
                cg_buf_adds(&b, ",\"kernelspec\":");
                add_json(&b, json_object_get(spec, "file"));
        }
        cg_buf_adds(&b, "}");
        return record(ss, "session.opened", &b, true, err);
}

void cg_sup_audit_ended(struct session *ss, const char *why)
{
        cg_auto_buf struct cg_buf b = { .max = 65536 };

        if (!ss->audit || !ss->audit->opened)
                return;
        ss->audit->opened = false;
        cg_buf_adds(&b, "{\"why\":");
        why = why ?: "";
        cg_json_quote(&b, why, strlen(why));
        cg_buf_adds(&b, "}");
        record(ss, "session.ended", &b, false, NULL);
}

/* ------------------------------------------------------------------ what happens in a session */

/* Folder and arguments of an EXEC, each of which ends with a NUL; its variables may be secrets. */
static void add_command(struct cg_buf *b, const struct cg_msg *m)
{
        cg_auto_json json_t *body = NULL;
        int64_t words = 0;
        size_t len, left;
        const char *p = cg_msg_raw(m, 0, &left);

        cg_buf_adds(b, "{\"words\":[");
        if (cg_msg_json(m, &body, NULL) == 0)
                cg_json_int(body, "argc", 0, &words, NULL);
        for (int64_t i = 0; i <= words && left; i++) {
                len = strnlen(p, left);
                if (i)
                        cg_buf_adds(b, ",");
                cg_json_quote(b, p, len);
                p += len + (len < left);
                left -= len + (len < left);
        }
        cg_buf_adds(b, "]}");
}

/* Names only: definitions contain secrets. */
static void add_servers(struct cg_buf *b, const struct cg_msg *m)
{
        cg_auto_json json_t *body = NULL;
        const char *name, *comma = "";
        json_t *v;

        cg_buf_adds(b, "{\"servers\":[");
        cg_buf_fail(b, cg_msg_json(m, &body, NULL));
        json_object_foreach(json_object_get(body, "servers"), name, v) {
                cg_buf_adds(b, comma);
                cg_json_quote(b, name, strlen(name));
                comma = ",";
        }
        cg_buf_adds(b, "]}");
}

int cg_sup_audit_request(struct session *ss, uint64_t id, const struct cg_msg *m, struct cg_err *err)
{
        cg_auto_buf struct cg_buf b = { .max = CG_AUDIT_MAX_BODY };
        const char *code;
        size_t len;

        if (!ss->audit)
                return 0;
        switch (m->type) {
        case CG_HOST_EXECUTE:
                code = cg_msg_raw(m, 0, &len);
                cg_buf_addf(&b, "{\"cell\":%llu,\"code\":", (unsigned long long)id);
                cg_json_quote(&b, code, len);
                cg_buf_adds(&b, "}");
                return record(ss, "cell.started", &b, true, err);
        case CG_HOST_EXEC:
                add_command(&b, m);
                return record(ss, "command.started", &b, true, err);
        case CG_HOST_SERVERS_ADD:
                add_servers(&b, m);
                return record(ss, "servers.added", &b, true, err);
        case CG_HOST_SESSION_RESET:
                cg_buf_adds(&b, "{}");
                return record(ss, "session.reset", &b, true, err);
        default:
                return 0;
        }
}

static void add_digest(struct cg_buf *b, struct cg_bytes bytes)
{
        char sha256[CG_SHA256_HEX];

        cg_sha256_hex(bytes.data, bytes.len, sha256);
        cg_buf_addf(b, "\"bytes\":%zu,\"sha256\":\"%s\"", bytes.len, sha256);
}

/*
 * Large arguments are recorded by their digest and beginning. Secrets are removed before the cut,
 * which could leave the beginning of one.
 */
static void add_arguments(struct cg_buf *b, const struct cg_secrets *secrets, struct cg_bytes arguments)
{
        cg_auto_buf struct cg_buf start = { .max = MAX_ARGUMENTS + 1 };
        size_t n = BEGINNING;

        if (arguments.len <= MAX_ARGUMENTS) {
                cg_json_quote(b, arguments.data, arguments.len);
                return;
        }
        cg_buf_add(&start, arguments.data, MAX_ARGUMENTS);
        if (cg_buf_end(&start, NULL) < 0) {
                cg_buf_fail(b, CG_E_NOMEM);
                return;
        }
        cg_secrets_redact_buf(secrets, &start);
        n = CG_MIN(n, start.len);
        while (n > 0 && n < start.len && ((unsigned char)start.data[n] & 0xc0) == 0x80)
                n--; /* not within a character */
        cg_buf_adds(b, "{");
        add_digest(b, arguments);
        cg_buf_adds(b, ",\"beginning\":");
        cg_json_quote(b, start.data, n);
        cg_buf_adds(b, "}");
}

int cg_sup_audit_question(struct session *ss, const json_t *question, const struct cg_frame *raw,
                          const struct cg_audit_decision *d, struct cg_err *err)
{
        cg_auto_buf struct cg_buf b = { .max = CG_AUDIT_MAX_BODY };
        cg_auto_json json_t *who = NULL;

        if (!ss->audit || !ss->host)
                return 0;
        if (d->by) /* hosts of other users are refused */
                who = json_pack("{s:s, s:I, s:I}", "by", d->who, "pid", (json_int_t)d->by->pid, "uid",
                                (json_int_t)geteuid());
        if (who && d->by->place[0]) {
                json_object_set_new(who, "place", json_string(d->by->place));
                json_object_set_new(who, "name", json_string(d->by->approver));
        }
        cg_buf_addf(&b, "{\"decision\":\"%s\",\"approval\":%llu,\"reason\":", d->decision,
                    (unsigned long long)d->approval);
        cg_json_quote(&b, d->reason, strlen(d->reason));
        cg_buf_adds(&b, ",\"who\":");
        add_json(&b, who);
        cg_buf_adds(&b, ",\"question\":");
        add_json(&b, question);
        cg_buf_adds(&b, ",\"arguments\":");
        add_arguments(&b, &ss->secrets, cg_frame_bytes(raw));
        if (d->result) {
                cg_buf_adds(&b, ",\"result\":{");
                add_digest(&b, cg_frame_bytes(d->result));
                cg_buf_adds(&b, "}");
        }
        cg_buf_adds(&b, "}");
        return record(ss, "question", &b, strcmp(d->decision, "accept") == 0, err);
}

int cg_sup_audit_own(struct session *ss, const struct host *h, const struct cg_msg *m, struct cg_err *err)
{
        struct cg_audit_decision d = { .who = "host", .by = h };
        cg_auto_json json_t *body = NULL, *question = NULL;
        const char *server, *tool;
        bool accept;

        if (cg_msg_json(m, &body, err) < 0 || cg_json_str(body, "server", "", &server, err) < 0 ||
            cg_json_str(body, "tool", "", &tool, err) < 0 ||
            cg_json_str(body, "reason", "", &d.reason, err) < 0 ||
            cg_json_bool(body, "accept", false, &accept, err) < 0)
                return -1;
        d.decision = accept ? "accept" : "reject";
        question = json_pack("{s:s, s:s, s:s}", "server", server, "method", "tools/call", "tool", tool);
        return cg_sup_audit_question(ss, question, m->frames[1], &d, err);
}

void cg_sup_audit_call_ended(struct session *ss, const char *body, size_t len)
{
        cg_auto_buf struct cg_buf b = { .max = 65536 };

        if (!ss->audit || !ss->host)
                return;
        cg_buf_add(&b, body, len);
        record(ss, "call.ended", &b, false, NULL);
}

void cg_sup_audit_event(struct session *ss, uint16_t type, uint64_t id, const char *body, size_t len)
{
        static const struct {
                uint16_t type;
                const char *kind;
        } kinds[] = {
                { CG_HOST_RESULT, "cell.ended" }, { CG_HOST_COMMAND_RESULT, "command.ended" },
                { CG_HOST_DENIED, "denied" },     { CG_HOST_KERNEL_DIED, "kernel.died" },
                { CG_HOST_NOTICE, "notice" },     { CG_HOST_FUNCTION_CALL, "function.called" },
        };

        if (!ss->audit || !ss->host)
                return;
        for (size_t i = 0; i < CG_ARRAY_LEN(kinds); i++) {
                cg_auto_buf struct cg_buf b = { .max = CG_AUDIT_MAX_BODY };

                if (kinds[i].type != type)
                        continue;
                cg_buf_addf(&b, "{\"id\":%llu,\"event\":", (unsigned long long)id);
                cg_buf_add(&b, body, len);
                cg_buf_adds(&b, "}");
                record(ss, kinds[i].kind, &b, false, NULL);
        }
}

bool cg_sup_audit_signs(const struct session *ss)
{
        return ss->audit && ss->audit->signs && ss->host;
}

/* Removes secrets. A path that had one is "path_redacted": it must not be taken for a file's name. */
static void redact_manifest(const struct session *ss, json_t *manifest, const json_t *files)
{
        json_t *file, *path;
        size_t i;

        cg_secrets_redact_json(&ss->secrets, manifest);
        json_array_foreach(json_object_get(manifest, "files"), i, file) {
                path = json_object_get(file, "path");
                if (!path || json_equal(path, json_object_get(json_array_get(files, i), "path")))
                        continue;
                json_object_set(file, "path_redacted", path);
                json_object_del(file, "path");
        }
}

int cg_sup_audit_artifacts(struct session *ss, uint64_t id, const json_t *found, json_t **ret,
                           struct cg_err *err)
{
        cg_auto_buf struct cg_buf b = { .max = CG_AUDIT_MAX_BODY };
        char execution[sizeof(ss->id) + 32];
        cg_auto_json json_t *manifest = NULL;

        snprintf(execution, sizeof(execution), "%s/%llu", ss->id, (unsigned long long)id);
        manifest = json_pack("{s:s, s:I, s:s, s:o, s:O*}", "execution", execution, "time",
                             (json_int_t)time(NULL), "workspace", ss->workspace, "files",
                             json_deep_copy(json_object_get(found, "files")), "truncated",
                             json_object_get(found, "truncated"));
        if (manifest)
                redact_manifest(ss, manifest, json_object_get(found, "files"));
        add_json(&b, manifest);
        if (!manifest || cg_buf_end(&b, err) < 0)
                return cg_fail(err, CG_E_NOMEM, "signature of files");
        if (write_record(ss->sup, ss->id, CG_AUDIT_MANIFEST, &b, true, true, err) < 0 &&
            (err->code != CG_E_UNSENT || !ss->sup->audit->last.signature[0]))
                return -1;
        *ret = json_pack("{s:s, s:s}", "execution", execution, "signature", ss->sup->audit->last.signature);
        return cg_made(*ret, "signature of files", err);
}
