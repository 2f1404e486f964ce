/*
 * cellgate-supervisor: masked credentials of a kernel. The real values are read here, once for each
 * kernel, and go to the egress proxy's injector alone. The zygote, whose memory every kernel has a
 * copy of, gets the placeholders.
 */
#include "supervisor/network/masks.h"

#include "base/text.h"
#include "sandbox/egress/mask.h"
#include "supervisor/core/kernel.h"
#include "supervisor/core/members.h"
#include "supervisor/core/state.h"

/* As hexadecimal digits, since a file's content may be binary. */
static json_t *hex_of(const char *data, size_t len)
{
        cg_auto_free char *text = malloc(2 * len + 1);

        if (!text)
                return NULL;
        cg_hex(text, data, len);
        return json_string(text);
}

static bool has_masks(const struct cg_settings *s)
{
        bool any = false;

        for (size_t i = 0; s && i < s->creds.n_vars; i++)
                any |= s->creds.vars[i].mode == CG_CRED_MASK;
        for (size_t i = 0; s && i < s->creds.n_files; i++)
                any |= s->creds.files[i].mode == CG_CRED_MASK;
        return any;
}

void cg_sup_masks_report(struct session *ss)
{
        if (has_masks(ss->settings))
                cg_sup_bus_add(ss, CG_BUS_VAULT_ACCESSED, 0, NULL,
                               "masked credentials are read for the session's kernel");
}

int cg_sup_masks_make(struct kernel *k, struct cg_err *err)
{
        struct session *ss = k->session;
        const struct cg_settings *s = ss->settings;
        struct cg_path_base base = cg_sup_paths_of(ss, false);
        cg_auto_rules struct cg_rules rules = { .off = s && s->filesystem.disabled };
        cg_auto_environ struct cg_environ env = { 0 };
        cg_auto_masks struct cg_masks masks = { 0 };
        const json_t *v;
        size_t i, n;
        int r;

        cg_sup_masks_free(k);
        if (!has_masks(s))
                return 0;
        if (ss->life.opened_ms)
                cg_sup_masks_report(ss);

        /* The masks change this copy of the session's variables. */
        json_array_foreach(ss->egress.env, i, v) {
                const char *line = json_string_value(v) ?: "", *value = strchr(line, '=');
                cg_auto_free char *name = strndup(line, strcspn(line, "="));

                if (!name)
                        return cg_fail(err, CG_E_NOMEM, "environment");
                if (value && (r = cg_environ_set(&env, name, value + 1, err)) < 0)
                        return r;
        }
        if ((r = cg_masks_make(s, &base, &env, &rules, &masks, err)) < 0 ||
            (ss->egress.policy && (r = cg_masks_secrets(&masks, s, &k->secrets, err)) < 0))
                return r;

        k->masks.env = json_array();
        for (i = 0; i < env.n; i++)
                json_array_append_new(k->masks.env, json_string(env.v[i]));
        k->masks.files = json_array();
        for (i = 0; i < rules.n; i++) {
                const struct cg_rule *rule = &rules.v[i];

                json_array_append_new(
                        k->masks.files,
                        json_pack("{s:s, s:o*}", "path", rule->path, "data",
                                  rule->kind == CG_RULE_MASK ? hex_of(rule->data ?: "", rule->len) : NULL));
        }
        k->masks.inject = cg_masks_hosts(&masks, s);
        /* One notice for each line about a value that could not be masked as requested. */
        for (const char *p = cg_buf_str(&masks.warnings); *p; p += n + (p[n] == '\n')) {
                n = strcspn(p, "\n");
                cg_sup_notice(ss, "%.*s", (int)n, p);
        }
        return 0;
}

void cg_sup_masks_free(struct kernel *k)
{
        json_decref(CG_STEAL(k->masks.env));
        json_decref(CG_STEAL(k->masks.files));
        json_decref(CG_STEAL(k->masks.inject));
        cg_closep_(&k->secrets);
}
