/* Sessions: their options, kernels and ends. */
#pragma once

#include <jansson.h>
#include <stdint.h>
#include "base/err.h"
#include "base/wire.h"

struct host;
struct session;
struct sup;

extern const struct cg_kernel_ops cg_sup_session_kernel_ops;
extern const struct cg_session_ops cg_sup_session_ops;

void cg_sup_session_new(struct host *h, const struct cg_msg *m);
/* The session, where @h takes part in it. */
struct session *cg_sup_session_find(struct sup *s, const struct host *h, uint64_t number);
void cg_sup_session_message(struct session *ss, struct host *h, struct cg_msg *m);
json_t *cg_sup_session_info(const struct session *ss);
/* Ends it; @why NULL: the host asked (no event), else SESSION_CLOSED. */
void cg_sup_session_end(struct session *ss, const char *why);
void cg_sup_sessions_host_gone(struct sup *s, struct host *h);
