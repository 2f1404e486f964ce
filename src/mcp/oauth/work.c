/* See work.h. */
#include "mcp/oauth/work.h"

#include "base/state_dir.h"
#include "mcp/ceilings.h"
#include "mcp/oauth/fetch.h"

struct cg_oauth_work {
        uv_thread_t thread;
        uv_async_t finished;
        uv_loop_t *loop;
        const struct cg_log *log;
        void (*done)(void *data, const struct cg_err *err);
        void *data;
        char *header;
        bool busy, freed;
        atomic_bool stop;

        /* ---- the thread reads and writes these while it is busy */
        char *name, *url, *ca_file, *proxy, *no_proxy;
        struct cg_oauth_config config;
        int status, result;
        struct cg_oauth_challenge challenge;
        enum cg_addr_class place; /* of the server */
        char *next;               /* the new header */
        struct cg_err err, cause;
};

static void destroy(struct cg_oauth_work *w)
{
        free(w->header);
        free(w->name);
        free(w->url);
        free(w->ca_file);
        free(w->proxy);
        free(w->no_proxy);
        cg_oauth_config_fini(&w->config);
        cg_oauth_challenge_fini(&w->challenge);
        free(w->next);
        free(w);
}

static bool copy(char **to, const char *from)
{
        *to = cg_strdup(from);
        return !from || *to;
}

int cg_oauth_work_new(const struct cg_oauth_work_options *o, struct cg_oauth_work **ret, struct cg_err *err)
{
        struct cg_oauth_work *w = calloc(1, sizeof(*w));
        const struct cg_oauth_config *c = o->config;
        char state[PATH_MAX];

        /* Threads ask for it later, and its first look at the account's home must not be two. */
        cg_state_dir(state);
        if (!w)
                return cg_fail(err, CG_E_NOMEM, "OAuth");
        w->loop = o->loop;
        w->log = o->log;
        w->done = o->done;
        w->data = o->data;
        w->config = (struct cg_oauth_config){ .off = c->off,
                                              .client_credentials = c->client_credentials,
                                              .callback_port = c->callback_port };
        if (!copy(&w->name, o->name) || !copy(&w->url, o->url) || !copy(&w->ca_file, o->ca_file) ||
            !copy(&w->proxy, o->proxy) || !copy(&w->no_proxy, o->no_proxy) ||
            !copy(&w->config.client_id, c->client_id) || !copy(&w->config.client_secret, c->client_secret) ||
            !copy(&w->config.issuer, c->issuer) ||
            !copy(&w->config.client_metadata_url, c->client_metadata_url) ||
            !copy(&w->config.scopes, c->scopes)) {
                destroy(w);
                return cg_fail(err, CG_E_NOMEM, "OAuth");
        }
        *ret = w;
        return 0;
}

struct cg_oauth_work *cg_oauth_work_free(struct cg_oauth_work *w)
{
        if (!w)
                return NULL;
        w->freed = true;
        atomic_store(&w->stop, true);
        if (!w->busy)
                destroy(w); /* else on_closed() does it */
        return NULL;
}

bool cg_oauth_work_is_busy(const struct cg_oauth_work *w)
{
        return w->busy;
}

const char *cg_oauth_work_header(const struct cg_oauth_work *w)
{
        return w->header;
}

void cg_oauth_work_redact(const struct cg_oauth_work *w, char *text)
{
        const char *token = w->header ? strchr(w->header, ' ') : NULL;
        size_t n = token ? strlen(++token) : 0;

        for (char *p = text; n >= 3 && (p = strstr(p, token)); p += 3) {
                memcpy(p, "***", 3);
                memmove(p + 3, p + n, strlen(p + n) + 1);
        }
}

/* In the thread. */
static void run(void *data)
{
        struct cg_oauth_work *w = data;
        struct cg_oauth_net net = { .ca_file = w->ca_file,
                                    .proxy = w->proxy,
                                    .no_proxy = w->no_proxy,
                                    .stop = &w->stop,
                                    .end_ms = cg_now_ms() + CG_OAUTH_WORK_MS };
        struct cg_oauth_server s = { .name = w->name,
                                     .url = w->url,
                                     .config = &w->config,
                                     .fetch = cg_oauth_net_fetch,
                                     .data = &net,
                                     .stop = &w->stop,
                                     .place = &w->place,
                                     .cause = &w->cause };

        w->result = cg_oauth_net_init(&net, &w->err);
        if (w->result == 0) {
                w->result = w->status ? cg_oauth_challenged(&s, w->status, &w->challenge, w->header, &w->next,
                                                            &w->err)
                                      : cg_oauth_authorization(&s, &w->next, &w->err);
                cg_oauth_net_fini(&net);
        }
        uv_async_send(&w->finished);
}

static void on_closed(uv_handle_t *h)
{
        struct cg_oauth_work *w = h->data;

        w->busy = false;
        if (w->freed) {
                destroy(w);
                return;
        }
        if (w->result == 0) {
                free(w->header);
                w->header = CG_STEAL(w->next);
        } else if (w->cause.msg[0] && w->log) {
                cg_log(w->log, CG_LOG_WARN, "MCP server %s: no token: %s", w->name, w->cause.msg);
        }
        w->done(w->data, w->result < 0 ? &w->err : NULL);
}

static void on_finished(uv_async_t *a)
{
        struct cg_oauth_work *w = a->data;

        uv_thread_join(&w->thread);
        cg_oauth_challenge_fini(&w->challenge);
        uv_close((uv_handle_t *)a, on_closed);
}

int cg_oauth_work_begin(struct cg_oauth_work *w, int status, struct cg_oauth_challenge *challenge,
                        enum cg_addr_class place, struct cg_err *err)
{
        w->status = status;
        w->place = place;
        w->result = 0;
        w->cause = (struct cg_err){ 0 };
        if (challenge) {
                w->challenge = *challenge;
                *challenge = (struct cg_oauth_challenge){ 0 };
        }
        if (uv_async_init(w->loop, &w->finished, on_finished) < 0)
                return cg_fail(err, CG_E_SYS, "OAuth: no event");
        w->finished.data = w;
        w->busy = true;
        if (uv_thread_create(&w->thread, run, w) == 0)
                return 0;
        w->result = cg_fail(&w->err, CG_E_SYS, "OAuth: no thread");
        uv_close((uv_handle_t *)&w->finished, on_closed);
        return 0;
}
