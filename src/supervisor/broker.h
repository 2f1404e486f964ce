/* The tool server's process and wire; approvals. */
#ifndef CG_SUPERVISOR_BROKER_H
#define CG_SUPERVISOR_BROKER_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include "base/err.h"
#include "base/wire.h"

struct kernel;
struct session;
struct sup;

/* The tool server's answer to ATTACH; kernel.c implements it. */
struct cg_broker_ops {
        void (*attached)(struct kernel *k);
        void (*attach_failed)(struct kernel *k, const struct cg_err *err);
};

int cg_sup_broker_new(struct sup *s, struct cg_err *err);
int cg_sup_broker_start(struct sup *s, struct cg_err *err);
void cg_sup_broker_stop(struct sup *s);
void cg_sup_broker_attach(struct kernel *k);
void cg_sup_broker_detach(struct sup *s, uint64_t session, bool keep_servers);
/*
 * Takes @servers. The answer goes to the host as SERVERS_ADDED or FAILED of @request; 0: to nobody.
 */
void cg_sup_broker_servers(struct session *ss, json_t *servers, int64_t timeout_ms, uint64_t request);
void cg_sup_broker_decide(struct session *ss, uint64_t approval, bool accept, const char *reason);
/* SERVER_ANSWER of the host. */
void cg_sup_broker_answer(struct session *ss, struct cg_msg *m);
/* FUNCTION_RETURN of the host. A call that it refuses: cg_sup_broker_decide(). */
void cg_sup_broker_function_return(struct session *ss, struct cg_msg *m);
/*
 * Closes all of a session's open approvals and questions; DETACH reports that to the tool server.
 */
void cg_sup_broker_drop_asks(struct session *ss, const char *why);

#endif
