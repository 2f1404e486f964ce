/*
 * Masked credentials: inside, a file or a variable has a fake value; the egress proxy replaces it
 * by the real one in requests to the hosts that may have it. Runs on the host.
 */
#pragma once

#include "base/buf.h"
#include "sandbox/settings/environ.h"
#include "sandbox/settings/rules.h"

/* Largest file that is masked: a credential's file is small, and it is copied. */
#define CG_MASK_FILE_MAX (1u << 20)

struct cg_mask {
        char *fake;
        char *real;                          /* may hold any byte but NUL */
        const struct cg_settings_cred *cred; /* borrowed from the settings: its inject_hosts */
};

struct cg_masks {
        struct cg_mask *v;
        size_t n, cap;
        struct cg_buf warnings; /* lines for standard error: what could not be masked as asked */
};

/*
 * Input of the egress proxy. For its injector, the secrets in a memfd (*ret: caller closes; -1 when
 * nothing is to be put back). For its decider, the "inject" list of a policy: the hosts that may
 * have them (returns; NULL as above).
 */
int cg_masks_secrets(const struct cg_masks *masks, const struct cg_settings *s, int *ret, struct cg_err *err);
json_t *cg_masks_hosts(const struct cg_masks *masks, const struct cg_settings *s);

/* Changes @env, adds to @rules. On failure nothing may run: a real value may still be in them. */
int cg_masks_make(const struct cg_settings *s, const struct cg_path_base *base, struct cg_environ *env,
                  struct cg_rules *rules, struct cg_masks *ret, struct cg_err *err);
void cg_masks_fini(struct cg_masks *masks);
#define cg_auto_masks CG_CLEANUP(cg_masks_fini)
