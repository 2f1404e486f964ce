/* Options that the commands that start kernels have in common. */
#include "cli/common/kernel_options.h"

#include <stdlib.h>
#include <string.h>
#include "base/kernel_env.h"
#include "base/util.h"
#include "cli/common/limit_option.h"
#include "cli/common/mcp_file.h"
#include "cli/common/opts.h"
#include "cli/common/settings_file.h"
#include "sandbox/sandbox.h"

int cg_kernel_options_init(struct cg_kernel_options *o, int argc, struct cg_err *err)
{
        *o = (struct cg_kernel_options){ .log_level = 0 };
        if (cg_approve_new(&o->approve, err) < 0)
                return -1;
        /* As many places as words on the command line. */
        o->env = calloc((size_t)argc + 1, sizeof(*o->env));
        o->hosts = calloc((size_t)argc + 1, sizeof(*o->hosts));
        return o->env && o->hosts ? 0 : cg_fail(err, CG_E_NOMEM, "options");
}

void cg_kernel_options_fini(struct cg_kernel_options *o)
{
        o->approve = cg_approve_free(o->approve);
        free(CG_STEAL(o->kernel_env));
        free(o->env);
        free(o->hosts);
        o->env = o->hosts = NULL;
}

static int add_env(struct cg_kernel_options *o, const char *value, struct cg_err *err)
{
        if (!*value || *value == '=' || (!o->env_by_name && !strchr(value, '=')))
                return cg_fail(err, CG_E_INVAL, "--env needs %sNAME=VALUE, not \"%s\"",
                               o->env_by_name ? "NAME or " : "", value);
        o->env[o->n_env++] = value;
        return 0;
}

int cg_kernel_options_apply(struct cg_kernel_options *o, int id, const char *value, struct cg_err *err)
{
        switch (id) {
        case CG_KOPT_WORKSPACE:
                o->workspace = value;
                return 0;
        case CG_KOPT_MCP:
                o->mcp = value;
                return 0;
        case CG_KOPT_APPROVE:
                return cg_approve_add(o->approve, value, err);
        case CG_KOPT_ENV:
                return add_env(o, value, err);
        case CG_KOPT_SANDBOX:
                o->sandbox = value;
                return 0;
        case CG_KOPT_ALLOW_HOST:
                o->hosts[o->n_hosts++] = value;
                return cg_settings_check_host(value, err);
        case CG_KOPT_LIMIT:
                return cg_limit_option(&o->limits, value, err);
        case CG_KOPT_TIER:
                o->tier = value;
                return cg_tier_parse(value, &(struct cg_tier_choice){ .denials = CG_DENIALS_REFUSE }, err);
        case CG_KOPT_NO_SANDBOX:
                o->no_sandbox = true;
                return 0;
        case CG_KOPT_IMAGES:
                o->images = value;
                return 0;
        case CG_KOPT_PRELOAD:
                o->preload = value;
                return 0;
        case CG_KOPT_KERNEL_ENV:
                free(CG_STEAL(o->kernel_env));
                return cg_kernel_env_find(value, &o->kernel_env, err) < 0
                               ? -1
                               : cg_kernel_env_check(o->kernel_env, err);
        case CG_KOPT_LOG_LEVEL:
                return cg_opt_int("--log-level", value, 0, 3, &o->log_level, err);
        case CG_KOPT_HELP:
                o->help = true;
                return 0;
        default:
                return 1;
        }
}

int cg_kernel_options_check(const struct cg_kernel_options *o, struct cg_err *err)
{
        return cg_settings_check_together(o->sandbox, o->n_hosts, o->no_sandbox, err);
}

int cg_kernel_options_settings(const struct cg_kernel_options *o, char **ret, struct cg_err *err)
{
        return o->sandbox ? cg_settings_file_read(o->sandbox, ret, err)
                          : cg_settings_for_hosts(o->hosts, ret, err);
}

int cg_kernel_options_session(const struct cg_kernel_options *o, const char *workspace,
                              struct cg_kernel_hides *hides, struct cg_session_options *so,
                              struct cg_err *err)
{
        *hides = (struct cg_kernel_hides){ .mcp = NULL };
        if (!o->no_sandbox && (cg_mcp_file_find(o->mcp, workspace, &hides->mcp, err) < 0 ||
                               cg_mcp_file_find(o->sandbox, workspace, &hides->sandbox, err) < 0))
                return -1;
        hides->list[0] = hides->mcp ? hides->mcp : hides->sandbox;
        hides->list[1] = hides->mcp ? hides->sandbox : NULL;
        so->hide = hides->list;
        so->sandbox = o->no_sandbox ? CG_SANDBOX_OFF : CG_SANDBOX_ON;
        so->tier = o->tier;
        cg_limit_options(&o->limits, so);
        return 0;
}

void cg_kernel_hides_fini(struct cg_kernel_hides *hides)
{
        free(hides->mcp);
        free(hides->sandbox);
        hides->mcp = hides->sandbox = NULL;
}
