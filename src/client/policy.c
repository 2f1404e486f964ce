/* libcellgate: policy files of a session (docs/policy.md). They decide before the host is asked. */
#include "client/internal.h"

#include <time.h>
#include "policy/policy.h"

struct session_policy {
        pthread_mutex_t lock; /* never taken with the client's: a decision may look at files */
        struct cg_pol *pol;
        char *session; /* namespace, or NULL */
};

struct session_policy *cg_session_policy_free(struct session_policy *p)
{
        if (!p)
                return NULL;
        cg_pol_free(p->pol);
        free(p->session);
        pthread_mutex_destroy(&p->lock);
        free(p);
        return NULL;
}

static int add_file(struct session_policy *p, const char *path, json_t *files, struct cg_err *err)
{
        cg_auto_free char *text = NULL, *real = realpath(path, NULL);
        struct stat st;
        size_t len;

        if (!real || stat(real, &st) < 0)
                return cg_fail_errno(err, "policy file %s", path);
        if (st.st_nlink > 1)
                return cg_fail(err, CG_E_INVAL,
                               "policy file %s has other names (hard links), which cells could write", path);
        if (cg_read_regular(real, CG_MAX_SETTINGS, &text, &len, err) < 0 ||
            cg_pol_add(p->pol, path, text, len, err) < 0)
                return -1;
        /* As it was given: the supervisor follows the links, which cells must not write either. */
        if (path[0] != '/')
                path = real;
        if (json_array_append_new(files, json_string(path)) < 0)
                return cg_fail(err, CG_E_INVAL, "policy file %s: its path must be UTF-8", path);
        return 0;
}

int cg_session_policy_new(const struct cg_session_options *o, json_t *files, struct session_policy **ret,
                          struct cg_err *err)
{
        struct session_policy *p = calloc(1, sizeof(*p));

        if (!p)
                return cg_fail(err, CG_E_NOMEM, "policy");
        pthread_mutex_init(&p->lock, NULL);
        p->session = cg_strdup(o->namespace_name);
        if ((o->namespace_name && !p->session) || cg_pol_new(&p->pol, err) < 0) {
                cg_session_policy_free(p);
                return cg_fail(err, CG_E_NOMEM, "policy");
        }
        for (size_t i = 0; o->policies[i]; i++) {
                if (add_file(p, o->policies[i], files, err) < 0) {
                        cg_session_policy_free(p);
                        return -1;
                }
        }
        *ret = p;
        return 0;
}

/* Rules about programs need a setting with which cells ask about them. */
int cg_session_policy_apply(const struct session_policy *p, struct cg_session_options *o, struct cg_err *err)
{
        cg_auto_json json_t *settings = NULL;
        const json_t *own;

        if (o->sandbox == CG_SANDBOX_OFF)
                return cg_fail(
                        err, CG_E_INVAL,
                        "policy files need a sandbox: without one cells can change them, and this program");
        if (cg_pol_is_about(p->pol, CG_METHOD_CONNECT) && !o->ask_egress)
                return cg_fail(
                        err, CG_E_INVAL,
                        "policy files have rules about connections, so ask_egress must be set: what they leave"
                        " open is asked");
        if (!cg_pol_is_about(p->pol, CG_METHOD_EXEC))
                return 0;
        if (o->settings &&
            cg_json_object(o->settings, strlen(o->settings), "sandbox settings", &settings, err) < 0)
                return -1;
        own = json_object_get(json_object_get(settings, "cellgate"), "exec");
        if (!o->exec && !own)
                o->exec = "ask";
        if (strcmp(o->exec ?: json_string_value(own) ?: "", "allow") != 0)
                return 0;
        return cg_fail(
                err, CG_E_INVAL,
                "policy files have rules about programs, but exec is \"allow\", so nothing would be asked");
}

int cg_session_policy_judge(struct session_policy *p, const struct cg_event *e, uint64_t *key,
                            struct cg_buf *why)
{
        bool exec = strcmp(cg_event_method(e), CG_METHOD_EXEC) == 0;
        struct cg_pol_verdict v = { .decision = CG_POL_NONE };
        struct cg_pol_call call = { .server = "",
                                    .method = CG_METHOD_CONNECT,
                                    .tool = "",
                                    .front = "api",
                                    .session = p->session,
                                    .cell = e->cell,
                                    .time_s = time(NULL),
                                    .now_ms = cg_now_ms() };

        if (e->type == CG_EVENT_EGRESS_REQUEST) {
                call.args = cg_event_json(e, &call.args_len);
        } else {
                call.server = cg_event_server(e);
                call.method = cg_event_method(e);
                call.args = cg_event_arguments(e, &call.args_len);
                call.tool = exec ? call.args : cg_event_tool(e);
        }
        *key = cg_pol_key(&call);
        CG_HOLD(&p->lock);
        cg_pol_decide(p->pol, &call, false, &v, NULL);
        cg_pol_explain(why, &v, false, NULL);
        return v.decision;
}

void cg_session_policy_refused(struct session_policy *p, uint64_t key)
{
        CG_HOLD(&p->lock);

        cg_pol_refuse(p->pol, key);
}
