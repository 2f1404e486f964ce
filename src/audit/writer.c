/*
 * cellgate-audit: the writer. Reads records from its supervisor, appends as many at once as have
 * come, and ends when the supervisor does.
 */
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <time.h>
#include "audit/audit.h"
#include "audit/heads.h"
#include "base/json.h"

/* Records of one transaction. */
#define BATCH 256
/* Bytes of one read: mostly several records. */
#define READ_SIZE 16384
/* Records of a transaction that are the writer's own. */
#define OWN 2

struct writer {
        int fd;
        char in[READ_SIZE]; /* bytes of the socket, those before in_at are used */
        size_t in_at, in_len;
        const char *dir, *key;
        struct cg_audit_log *log;
        struct cg_audit_heads heads;
        bool unsent; /* recorded: heads cannot be sent */
        struct cg_audit_record records[BATCH + OWN];
        char *texts[BATCH]; /* of the records */
        size_t n;
        /* records that could not be written, since the last that was */
        uint64_t lost;
        bool failed;                            /* since the last reply */
        struct cg_buf manifest;                 /* the last record, signed */
        char signature[CG_AUDIT_SIGNATURE_HEX]; /* of it; "": it is no manifest */
        struct cg_err err;
};

static bool receive(struct writer *w, void *data, size_t len)
{
        for (char *p = data;;) {
                size_t some = CG_MIN(len, w->in_len - w->in_at);
                ssize_t n;

                memcpy(p, w->in + w->in_at, some);
                w->in_at += some;
                p += some;
                len -= some;
                if (!len)
                        return true;
                do
                        n = recv(w->fd, w->in, READ_SIZE, 0);
                while (n < 0 && errno == EINTR);
                if (n <= 0)
                        return false;
                w->in_at = 0;
                w->in_len = (size_t)n;
        }
}

/* The next record, or a part of it, has come. */
static bool has_more(const struct writer *w)
{
        int waiting;

        return w->in_at < w->in_len || (ioctl(w->fd, FIONREAD, &waiting) == 0 && waiting > 0);
}

/* False: the supervisor has ended. */
static bool receive_record(struct writer *w, bool *reply)
{
        struct cg_audit_record *r = &w->records[w->n];
        struct cg_audit_request q;
        size_t len;
        char *text;

        if (!receive(w, &q, sizeof(q)))
                return false;
        len = (size_t)q.session_len + q.kind_len + q.body_len + 3;
        text = len <= CG_AUDIT_MAX_BODY ? malloc(len) : NULL;
        if (!text || !receive(w, text, len)) {
                free(text);
                return false;
        }
        *r = (struct cg_audit_record){ .time_us = (int64_t)q.time_us,
                                       .session = text,
                                       .kind = text + q.session_len + 1,
                                       .body = text + q.session_len + q.kind_len + 2,
                                       .body_len = q.body_len };
        w->texts[w->n++] = text;
        *reply = q.reply;
        return true;
}

/* Manifests want a reply, and are the last record of their transaction. */
static int sign_last(struct writer *w)
{
        struct cg_audit_record *r = w->n ? &w->records[w->n - 1] : NULL;

        w->signature[0] = '\0';
        if (!r || strcmp(r->kind, CG_AUDIT_MANIFEST) != 0)
                return 0;
        cg_buf_clear(&w->manifest);
        cg_buf_add(&w->manifest, r->body, r->body_len);
        if (cg_audit_sign_manifest(w->log, &w->manifest, w->signature, &w->err) < 0)
                return -1;
        r->body = w->manifest.data;
        r->body_len = w->manifest.len;
        return 0;
}

/* Appends the records, after one about those that were lost before them. */
static int append(struct writer *w)
{
        char gap[64];
        cg_auto_buf struct cg_buf unsent = { .max = 8192 };
        struct cg_audit_record own[OWN];
        size_t n = 0;

        if (!w->log && cg_audit_open(w->dir, w->key, true, &w->log, &w->err) < 0)
                return -1;
        if (w->lost) {
                own[n++] = (struct cg_audit_record){ .kind = "log.gap",
                                                     .body = gap,
                                                     .body_len = (size_t)snprintf(
                                                             gap, sizeof(gap), "{\"records\":%llu}",
                                                             (unsigned long long)w->lost) };
        }
        if (sign_last(w) < 0)
                return -1;
        if (w->heads.failure[0] && !w->unsent) {
                cg_buf_try_adds(&unsent, "{\"why\":", NULL);
                cg_json_try_quote(&unsent, w->heads.failure, strlen(w->heads.failure), NULL);
                if (cg_buf_try_adds(&unsent, "}", &w->err) < 0)
                        return -1;
                own[n++] = (struct cg_audit_record){ .kind = "head.unsent",
                                                     .body = unsent.data,
                                                     .body_len = unsent.len };
        }
        for (size_t i = 0; i < n; i++) {
                own[i].session = "";
                own[i].time_us = w->n ? w->records[0].time_us : (int64_t)time(NULL) * 1000000;
        }
        memmove(w->records + n, w->records, w->n * sizeof(w->records[0]));
        memcpy(w->records, own, n * sizeof(own[0]));
        return cg_audit_append(w->log, w->records, w->n + n, &w->err);
}

static void write_records(struct writer *w)
{
        struct cg_audit_record head;

        cg_audit_heads_send(&w->heads);
        if (append(w) < 0) {
                w->lost += w->n;
                w->failed = true;
                /* The next try opens the log anew: its folder may have been replaced. */
                w->log = cg_audit_close(w->log);
        } else { /* what was lost is in the log as a gap */
                w->lost = 0;
                w->failed = false;
                w->unsent = w->heads.failure[0] != '\0';
                if (cg_audit_take_head(w->log, &head))
                        cg_audit_heads_add(&w->heads, &head, cg_audit_public_key(w->log));
                cg_audit_heads_send(&w->heads);
        }
        for (size_t i = 0; i < w->n; i++)
                free(w->texts[i]);
        w->n = 0;
}

static bool send_reply(struct writer *w)
{
        struct cg_audit_reply reply = { .error = "" };

        if (w->failed)
                snprintf(reply.error, sizeof(reply.error), "%s", w->err.msg);
        else if (w->heads.failure[0])
                snprintf(reply.error, sizeof(reply.error), "%s", w->heads.failure);
        reply.recorded = !w->failed;
        memcpy(reply.signature, w->signature, sizeof(reply.signature));
        w->failed = false;
        return send(w->fd, &reply, sizeof(reply), MSG_NOSIGNAL) == sizeof(reply);
}

int cg_audit_writer(int fd, const char *dir, const char *key, const char *head)
{
        struct writer w = { .fd = fd,
                            .dir = dir,
                            .key = key,
                            .heads = CG_AUDIT_NO_HEADS(head),
                            .manifest = { .max = CG_AUDIT_MAX_BODY } };
        bool open = true, reply = false;

        umask(077);
        /* It ends with its supervisor, after the last record. */
        signal(SIGINT, SIG_IGN);
        signal(SIGTERM, SIG_IGN);
        signal(SIGHUP, SIG_IGN);
        signal(SIGPIPE, SIG_IGN);
        signal(SIGXFSZ, SIG_IGN); /* reported as an error of the write */
        while (open) {
                open = receive_record(&w, &reply);
                if (open && !reply && w.n < BATCH && has_more(&w))
                        continue;
                if (w.n)
                        write_records(&w);
                if (open && reply)
                        open = send_reply(&w);
                if (w.log)
                        cg_audit_tidy(w.log);
        }
        cg_audit_heads_end(&w.heads);
        if (w.lost || (w.log && w.heads.failure[0] && !w.unsent))
                append(&w);
        cg_audit_close(w.log);
        cg_buf_fini(&w.manifest);
        return 0;
}
