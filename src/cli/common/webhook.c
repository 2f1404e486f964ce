/*
 * --webhook: see webhook.h. No decision waits for this thread, nor it for the server: cellgate-post
 * sends. What is sent names nothing but the question's number, since who gets it is another party.
 */
#include "cli/common/webhook.h"

#include <jansson.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/socket.h>
#include "base/fd.h"
#include "base/json.h"
#include "base/log.h"
#include "base/post.h"

/* Who sits at the terminal needs no message. */
#define DUE_MS   10000
#define AGAIN_MS 10000 /* until the next attempt to reach a supervisor */

static const struct cg_log log_to = { .fd = 2, .level = CG_LOG_WARN, .who = "webhook" };

struct webhook {
        const char *url;
        struct cg_client_options client;
        struct cg_proc sender;
        int fd;         /* of the sender; -1: none runs */
        bool failed;    /* reported */
        json_t *posted; /* questions that wait and were sent, by id */
};

static void report(struct webhook *w, const char *why)
{
        if (!w->failed)
                cg_log(&log_to, CG_LOG_WARN, "a waiting question could not be announced (reported once): %s",
                       why);
        w->failed = true;
}

static void drop_sender(struct webhook *w, const char *why)
{
        report(w, why);
        close(cg_steal_fd(&w->fd));
        cg_proc_end(&w->sender, false, 0);
}

static void post(struct webhook *w, const json_t *question)
{
        cg_auto_json json_t *o = json_pack("{s:O, s:O, s:O}", "id", json_object_get(question, "id"), "kind",
                                           json_object_get(question, "method"), "session",
                                           json_object_get(question, "session"));
        cg_auto_free char *line = json_dumps(o, JSON_COMPACT);
        struct cg_err err;
        size_t len;

        if (!line)
                return;
        if (w->fd < 0 && cg_post_start(w->url, &w->sender, &w->fd, &err) < 0) {
                report(w, err.msg);
                return;
        }
        len = strlen(line);
        line[len] = '\n'; /* in place of the NUL */
        if (send(w->fd, line, len + 1, MSG_DONTWAIT | MSG_NOSIGNAL) != (ssize_t)len + 1)
                drop_sender(w, "cellgate-post does not read");
}

static void read_answers(struct webhook *w)
{
        char text[1024];
        ssize_t n;

        if (w->fd < 0)
                return;
        n = recv(w->fd, text, sizeof(text) - 1, MSG_DONTWAIT);
        if (n == 0)
                drop_sender(w, "cellgate-post has ended");
        if (n <= 0)
                return;
        text[n] = '\0';
        if (text[strspn(text, "\n")])
                report(w, text + strspn(text, "\n"));
}

/* Sends what is due. Returns the time until it has to be called again; negative: no supervisor. */
static int64_t check(struct webhook *w, struct cg_client *client)
{
        cg_auto_json json_t *list = NULL, *old = NULL;
        int64_t next_ms = AGAIN_MS;
        char *text = NULL;
        json_t *q;
        size_t i;

        if (cg_client_approvals(client, &text, NULL) < 0)
                return -1;
        old = w->posted;
        w->posted = json_object();
        list = json_loads(text, 0, NULL);
        cg_free(text);
        json_array_foreach(json_object_get(list, "approvals"), i, q) {
                const char *id = json_string_value(json_object_get(q, "id"));
                int64_t left_ms = DUE_MS - json_integer_value(json_object_get(q, "waiting_ms"));

                if (!id || json_integer_value(json_object_get(q, "pid")) != getpid())
                        continue;
                if (left_ms > 0) {
                        if (left_ms < next_ms)
                                next_ms = left_ms;
                        continue;
                }
                json_object_set_new(w->posted, id, json_true());
                if (!json_object_get(old, id))
                        post(w, q);
        }
        return next_ms;
}

static void *watch(void *data)
{
        struct webhook *w = data;

        for (;; poll(NULL, 0, AGAIN_MS)) {
                cg_auto_buf struct cg_buf why = { .max = 4096 };
                struct cg_client *client = NULL;
                struct cg_err err;
                int64_t wait_ms;

                if (cg_client_open(&w->client, &client, &err) < 0)
                        continue;
                if (cg_client_why_private(client)) { /* no questions of others are there */
                        cg_buf_addf(&why, "nothing is announced: %s", cg_client_why_private(client));
                        report(w, cg_buf_str(&why));
                        cg_client_close(client);
                        return NULL;
                }
                for (wait_ms = check(w, client); wait_ms >= 0; wait_ms = check(w, client)) {
                        struct pollfd p[] = { { .fd = cg_client_approvals_fd(client, &err),
                                                .events = POLLIN },
                                              { .fd = w->fd, .events = POLLIN } };

                        poll(p, CG_ARRAY_LEN(p), (int)wait_ms);
                        read_answers(w);
                }
                cg_client_close(client);
        }
        return NULL;
}

int cg_webhook_start(const char *url, const struct cg_client_options *o, struct cg_err *err)
{
        struct webhook *w;
        sigset_t all, before;
        pthread_t thread;
        int r;

        if (!url)
                return 0;
        if (!o->share)
                return cg_fail(err, CG_E_INVAL,
                               "--webhook needs the supervisor that your programs share: not with "
                               "CELLGATE_PRIVATE and a higher --log-level");
        w = calloc(1, sizeof(*w));
        if (!w)
                return cg_fail(err, CG_E_NOMEM, "--webhook");
        *w = (struct webhook){ .url = url, .client = *o, .sender = CG_PROC_NONE, .fd = -1 };
        sigfillset(&all); /* signals are for the threads that decide */
        pthread_sigmask(SIG_BLOCK, &all, &before);
        r = pthread_create(&thread, NULL, watch, w);
        pthread_sigmask(SIG_SETMASK, &before, NULL);
        if (r == 0) {
                pthread_detach(thread);
                return 0;
        }
        free(w);
        return cg_fail(err, CG_E_SYS, "--webhook: %s", strerror(r));
}
