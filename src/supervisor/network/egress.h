/* The egress proxy: which kernel may reach what, questions about connections, denials. */
#pragma once

#include <stddef.h>
#include "base/err.h"
#include "base/wire.h"

struct kernel;
struct session;
struct sup;

/* For the life of @s; the proxy is started when it is needed. */
int cg_sup_egress_new(struct sup *s, struct cg_err *err);
void cg_sup_egress_stop(struct sup *s);
/*
 * Makes the session's environment and network policy by its settings. CG_E_UNSUPPORTED: they need
 * `cellgate sandbox`.
 */
int cg_sup_egress_apply_settings(struct session *ss, struct cg_err *err);
/* The sandbox's listening sockets @ports (borrows) become the proxy's. */
int cg_sup_egress_open(struct kernel *k, const int *ports, size_t n, struct cg_err *err);
void cg_sup_egress_close(struct kernel *k);
/* Handles the proxy's events so far. A denial is reported before the program inside is refused. */
void cg_sup_egress_drain(struct sup *s);
