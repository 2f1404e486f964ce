/* A sandbox's environment: the caller's without denied and masked variables, and the proxies. */
#pragma once

#include "sandbox/settings/settings.h"

/* Ports of the proxy inside: those of srt. */
#define CG_PROXY_HTTP_PORT  3128
#define CG_PROXY_SOCKS_PORT 1080

struct cg_environ {
        char **v; /* "NAME=VALUE", NULL-terminated */
        size_t n, cap;
};

struct cg_environ_options {
        const char *tmpdir;        /* NULL: as it is */
        int http_port, socks_port; /* 0: no proxy variables */
};

/* @from: NULL-terminated (copies). Masked variables keep their value here: see mask.h. */
int cg_environ_make(const struct cg_settings *s, char *const *from, const struct cg_environ_options *opts,
                    struct cg_environ *ret, struct cg_err *err);
void cg_environ_fini(struct cg_environ *env);
#define cg_auto_environ CG_CLEANUP(cg_environ_fini)
/* Replaces or adds; @value NULL removes. */
int cg_environ_set(struct cg_environ *env, const char *name, const char *value, struct cg_err *err);
const char *cg_environ_get(const struct cg_environ *env, const char *name);
