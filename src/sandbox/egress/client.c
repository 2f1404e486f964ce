/* Client side of cellgate-egress. Linked into programs that create sandboxes. */
#include "sandbox/egress/client.h"

#include <sys/socket.h>

#include "base/fd.h"
#include "base/json.h"
#include "base/proc.h"
#include "sandbox/egress/chan.h"
#include "sandbox/egress/policy.h"
#include "sandbox/settings/settings.h"

#define FD_CONTROL 3
#define SEND_MS    5000
#define END_MS     2000

struct cg_egress {
        struct cg_proc proc;
        struct cg_chan chan;
        bool ended;
};

/* ---- the policy */

/* First of the names that the environment has, or NULL. */
static const char *from_env(char *const *env, const char *const *names)
{
        for (; *names; names++) {
                size_t n = strlen(*names);

                for (char *const *p = env; *p; p++)
                        if (strncmp(*p, *names, n) == 0 && (*p)[n] == '=' && (*p)[n + 1])
                                return *p + n + 1;
        }
        return NULL;
}

int cg_egress_policy(const struct cg_settings *settings, char *const *env, json_t **ret, struct cg_err *err)
{
        static const char *const http[] = { "HTTP_PROXY", "http_proxy", NULL },
                                 *const https[] = { "HTTPS_PROXY", "https_proxy", NULL },
                                 *const no[] = { "NO_PROXY", "no_proxy", NULL };
        const char *h = from_env(env, http), *s = from_env(env, https);
        cg_auto_json json_t *o = json_object();
        struct cg_policy *check = NULL;
        int r;

        if (json_object_set(o, "network", json_object_get(settings->root, "network")) < 0)
                return cg_fail(err, CG_E_NOMEM, "network policy");
        /* The proxies that the caller uses: some machines reach the network only through one. */
        if (!settings->network.has_parent && (h || s))
                json_object_set_new(
                        o, "parentProxy",
                        json_pack("{s:s*, s:s*, s:s*}", "http", h, "https", s, "noProxy", from_env(env, no)));
        /*
         * As srt: a name that is allowed may lead into a private network, where
         * deniedResolvedAddresses does not say otherwise.
         */
        json_object_set_new(o, "privateAddresses", json_true());
        r = cg_policy_new(&settings->network, o, &check, err);
        cg_policy_free(check);
        if (r < 0)
                return cg_err_prefix(err, "network");
        *ret = CG_STEAL(o);
        return 0;
}

/* ---- the process */

int cg_egress_start(const char *program, struct cg_egress **ret, struct cg_err *err)
{
        struct cg_egress *e = calloc(1, sizeof(*e));
        char *argv[] = { (char *)(uintptr_t) "cellgate-egress", NULL };
        /* Resolvers have variables of their own (LOCALDOMAIN, RES_OPTIONS). */
        struct cg_proc_spec spec = {
                .path = program, .argv = argv, .envp = environ, .new_session = true, .die_with_parent = false
        };
        int pair[2], r;

        if (!e)
                return cg_fail(err, CG_E_NOMEM, "egress proxy");
        if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0) {
                free(e);
                return cg_fail_errno(err, "control channel of the egress proxy");
        }
        const struct cg_proc_fd fds[] = {
                { -1, 0 }, { -1, 1 }, { STDERR_FILENO, 2 }, { pair[1], FD_CONTROL }
        };

        spec.fds = fds;
        spec.n_fds = CG_ARRAY_LEN(fds);
        r = cg_proc_spawn(&spec, &e->proc, err);
        close(pair[1]);
        if (r < 0) {
                close(pair[0]);
                free(e);
                return r;
        }
        cg_chan_init(&e->chan, pair[0]);
        *ret = e;
        return 0;
}

struct cg_egress *cg_egress_free(struct cg_egress *e)
{
        if (!e)
                return NULL;
        /* The channel's end is its order to end. */
        cg_chan_fini(&e->chan);
        if (cg_proc_wait(&e->proc, END_MS, NULL, NULL) != 0)
                cg_proc_end(&e->proc, false, 0);
        free(e);
        return NULL;
}

static int send_message(struct cg_egress *e, json_t *m, const int *fds, size_t n, struct cg_err *err)
{
        int r;

        if (e->ended) {
                json_decref(m);
                return cg_fail(err, CG_E_CLOSED, "the egress proxy has ended");
        }
        r = cg_chan_send_fds(&e->chan, m, fds, n, SEND_MS, err);
        if (r < 0)
                cg_err_prefix(err, "egress proxy");
        return r;
}

int cg_egress_open(struct cg_egress *e, int64_t id, json_t *policy, int secrets, const int *listeners,
                   size_t n, struct cg_err *err)
{
        json_t *m = json_pack("{s:s, s:I, s:I, s:b, s:O}", "type", "open", "sandbox", (json_int_t)id,
                              "listeners", (json_int_t)n, "secrets", secrets >= 0, "policy", policy);
        int fds[CG_CHAN_FDS_MAX];

        if (n + 1 > CG_ARRAY_LEN(fds)) {
                json_decref(m);
                return cg_fail(err, CG_E_LIMIT, "egress proxy: %zu listeners", n);
        }
        memcpy(fds, listeners, n * sizeof(*fds));
        fds[n] = secrets;
        return send_message(e, m, fds, n + (secrets >= 0), err);
}

int cg_egress_change(struct cg_egress *e, int64_t id, json_t *policy, struct cg_err *err)
{
        json_t *m = json_pack("{s:s, s:I, s:O}", "type", "policy", "sandbox", (json_int_t)id, "policy",
                              policy);

        return send_message(e, m, NULL, 0, err);
}

int cg_egress_close(struct cg_egress *e, int64_t id, struct cg_err *err)
{
        return send_message(e, json_pack("{s:s, s:I}", "type", "close", "sandbox", (json_int_t)id), NULL, 0,
                            err);
}

static const char *const answers[] = {
        [CG_EGRESS_ONCE] = "once",
        [CG_EGRESS_SESSION] = "session",
        [CG_EGRESS_NO] = "no",
        [CG_EGRESS_NEVER] = "never",
};

enum cg_egress_answer cg_egress_answer_of(const char *decision)
{
        for (size_t i = 0; i < CG_ARRAY_LEN(answers); i++)
                if (strcmp(answers[i], decision) == 0)
                        return (enum cg_egress_answer)i;
        return CG_EGRESS_NO;
}

int cg_egress_answer(struct cg_egress *e, int64_t request, enum cg_egress_answer answer, const char *reason,
                     struct cg_err *err)
{
        json_t *m = json_pack("{s:s, s:I, s:s, s:s*}", "type", "answer", "id", (json_int_t)request,
                              "decision", answers[answer], "reason", reason);

        return send_message(e, m, NULL, 0, err);
}

pid_t cg_egress_pid(const struct cg_egress *e)
{
        return e->proc.pid;
}

int cg_egress_fd(const struct cg_egress *e)
{
        return e->chan.fd;
}

int cg_egress_next(struct cg_egress *e, json_t **ret, struct cg_err *err)
{
        int r = cg_chan_next(&e->chan, ret, err);

        if (r != CG_TIMEOUT)
                return r;
        if (e->ended)
                return CG_CLOSED;
        r = cg_chan_read(&e->chan, err);
        if (r == CG_CLOSED)
                e->ended = true;
        else if (r < 0)
                return r;
        r = cg_chan_next(&e->chan, ret, err);
        return r == CG_TIMEOUT && e->ended ? CG_CLOSED : r;
}
