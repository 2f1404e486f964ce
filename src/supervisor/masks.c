/*
 * cellgate-supervisor: masked credentials of a kernel. The real values are read here, once for each
 * kernel, and go to the egress proxy's injector alone. The zygote, whose memory every kernel has a
 * copy of, gets the placeholders.
 */
#include "supervisor/masks.h"

#include <string.h>
#include "base/json.h"
#include "base/util.h"
#include "sandbox/egress/mask.h"
#include "supervisor/kernel.h"
#include "supervisor/members.h"
#include "supervisor/state.h"
#include "supervisor/sup.h"

/* As hexadecimal digits, since a file's content may be binary. */
static json_t *hex_of(const char *data, size_t len)
{
        static const char digits[] = "0123456789abcdef";
        cg_auto_free char *text = malloc(2 * len + 1);

        if (!text)
                return NULL;
        for (size_t i = 0; i < len; i++) {
                text[2 * i] = digits[(unsigned char)data[i] >> 4];
                text[2 * i + 1] = digits[data[i] & 15];
        }
        text[2 * len] = '\0';
        return json_string(text);
}

static json_t *files_of(const struct cg_rules *rules)
{
        json_t *list = json_array();

        for (size_t i = 0; i < rules->n; i++) {
                const struct cg_rule *r = &rules->v[i];

                json_array_append_new(
                        list, json_pack("{s:s, s:o*}", "path", r->path, "data",
                                        r->kind == CG_RULE_MASK ? hex_of(r->data ?: "", r->len) : NULL));
        }
        return list;
}

/* The session's variables, as a list that the masks can change. */
static int copy_env(const json_t *from, struct cg_environ *ret, struct cg_err *err)
{
        const json_t *v;
        size_t i;
        int r = 0;

        json_array_foreach(from, i, v)
        {
                const char *line = json_string_value(v) ?: "", *value = strchr(line, '=');
                cg_auto_free char *name = strndup(line, strcspn(line, "="));

                if (r == 0 && value)
                        r = name ? cg_environ_set(ret, name, value + 1, err)
                                 : cg_fail(err, CG_E_NOMEM, "environment");
        }
        return r;
}

static json_t *env_of(const struct cg_environ *env)
{
        json_t *list = json_array();

        for (size_t i = 0; i < env->n; i++)
                json_array_append_new(list, json_string(env->v[i]));
        return list;
}

/* Sends each line about a value that could not be masked as requested. */
static void notice_warnings(struct session *ss, const struct cg_buf *b)
{
        const char *p = b->len ? b->data : "";

        while (*p) {
                size_t n = strcspn(p, "\n");

                cg_sup_notice(ss, "%.*s", (int)n, p);
                p += n + (p[n] == '\n');
        }
}

static bool masks_anything(const struct cg_settings *s)
{
        bool any = false;

        for (size_t i = 0; i < s->creds.n_vars; i++)
                any |= s->creds.vars[i].mode == CG_CRED_MASK;
        for (size_t i = 0; i < s->creds.n_files; i++)
                any |= s->creds.files[i].mode == CG_CRED_MASK;
        return any;
}

static int make(struct kernel *k, const struct cg_settings *s, struct cg_err *err)
{
        struct session *ss = k->session;
        struct cg_path_base base = { .cwd = json_string_value(json_object_get(ss->options, "workspace"))
                                                    ?: "/",
                                     .home = cg_sup_home() };
        struct cg_rules rules = { .off = s->filesystem.disabled };
        struct cg_environ env = { 0 };
        struct cg_masks masks = { 0 };
        int r = copy_env(ss->egress_env, &env, err);

        if (r == 0)
                r = cg_masks_make(s, &base, &env, &rules, &masks, err);
        if (r == 0 && ss->egress_policy)
                r = cg_masks_secrets(&masks, s, &k->secrets, err);
        if (r == 0) {
                k->masked_env = env_of(&env);
                k->masked_files = files_of(&rules);
                k->inject = cg_masks_hosts(&masks, s);
                notice_warnings(ss, &masks.warnings);
        }
        cg_masks_fini(&masks);
        cg_rules_fini(&rules);
        cg_environ_fini(&env);
        return r;
}

int cg_sup_masks_make(struct kernel *k, struct cg_err *err)
{
        const struct cg_settings *s = k->session->settings;

        cg_sup_masks_free(k);
        return s && masks_anything(s) ? make(k, s, err) : 0;
}

void cg_sup_masks_free(struct kernel *k)
{
        json_decref(CG_STEAL(k->masked_env));
        json_decref(CG_STEAL(k->masked_files));
        json_decref(CG_STEAL(k->inject));
        cg_closep_(&k->secrets);
}
