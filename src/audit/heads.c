/* Heads of the log, sent elsewhere. See heads.h. */
#include "audit/heads.h"

#include <poll.h>
#include <sys/socket.h>
#include "base/fd.h"
#include "base/post.h"

/* The supervisor waits for its writer's end a little longer than this. */
#define END_MS 2000

static bool is_url(const char *target)
{
        return strncmp(target, "http://", 7) == 0 || strncmp(target, "https://", 8) == 0;
}

static void append_to_file(struct cg_audit_heads *h)
{
        char line[CG_AUDIT_HEAD_TEXT + 1];
        cg_auto_fd int fd = open(h->target, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
        int n = snprintf(line, sizeof(line), "%s\n", h->newest);
        struct cg_err err;

        if (fd < 0)
                cg_fail_errno(&err, "%s", h->target);
        if (fd < 0 || cg_write_all(fd, line, (size_t)n, &err) < 0) {
                snprintf(h->failure, sizeof(h->failure), "%s", err.msg);
                return;
        }
        h->newest[0] = h->failure[0] = '\0';
}

/* ---- a URL */

static void lost_sender(struct cg_audit_heads *h, const char *why)
{
        snprintf(h->failure, sizeof(h->failure), "%s", why);
        h->in_flight = 0;
        cg_closep_(&h->fd);
        if (h->sender.pid)
                cg_proc_end(&h->sender, false, 0);
        h->sender = CG_PROC_NONE;
}

/* Its answer is a line: why the head was not sent, or nothing. */
static void read_answer(struct cg_audit_heads *h, int wait_ms)
{
        struct pollfd p = { .fd = h->fd, .events = POLLIN };
        char text[sizeof(h->failure)];
        ssize_t n;

        if (!h->in_flight || poll(&p, 1, wait_ms) != 1)
                return;
        n = recv(h->fd, text, sizeof(text) - 1, 0);
        if (n <= 0) {
                lost_sender(h, "cellgate-post has ended");
                return;
        }
        text[n] = '\0';
        text[strcspn(text, "\n")] = '\0';
        snprintf(h->failure, sizeof(h->failure), "%s", text);
        if (!text[0] && h->in_flight == h->seq)
                h->newest[0] = '\0';
        h->in_flight = 0;
}

static void send_to_url(struct cg_audit_heads *h)
{
        struct cg_err err;

        if (h->fd < 0 && cg_post_start(h->target, &h->sender, &h->fd, &err) < 0) {
                lost_sender(h, err.msg);
                return;
        }
        if (dprintf(h->fd, "%s\n", h->newest) < 0) {
                lost_sender(h, "cellgate-post has ended");
                return;
        }
        h->in_flight = h->seq;
}

/* ------------------------------------------------------------------ both */

void cg_audit_heads_add(struct cg_audit_heads *h, const struct cg_audit_record *head,
                        const uint8_t key[CG_AUDIT_KEY])
{
        if (!h->target[0])
                return;
        h->seq = head->seq;
        cg_audit_head_text(head, key, h->newest);
}

void cg_audit_heads_send(struct cg_audit_heads *h)
{
        read_answer(h, 0);
        if (!h->newest[0] || h->in_flight)
                return;
        if (is_url(h->target))
                send_to_url(h);
        else
                append_to_file(h);
}

void cg_audit_heads_end(struct cg_audit_heads *h)
{
        int64_t end = cg_now_ms() + END_MS, left;

        cg_audit_heads_send(h);
        while (h->in_flight && (left = end - cg_now_ms()) > 0) {
                read_answer(h, (int)left);
                if (!h->failure[0])
                        cg_audit_heads_send(h);
        }
        if (h->in_flight)
                snprintf(h->failure, sizeof(h->failure),
                         "the server had not answered when the log was closed");
        cg_closep_(&h->fd);
        if (h->sender.pid)
                cg_proc_end(&h->sender, false, 0);
}
