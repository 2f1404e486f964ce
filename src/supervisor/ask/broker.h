/* The tool server's process and wire; approvals. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include "base/err.h"
#include "base/wire.h"

struct kernel;
struct session;
struct sup;

/* Calls to kernel.c and functions.c. */
struct cg_broker_ops {
        /* The tool server's answer to ATTACH. */
        void (*attached)(struct kernel *k);
        void (*attach_failed)(struct kernel *k, const struct cg_err *err);
        /* See functions.h. */
        void (*added)(struct session *ss, const json_t *definitions);
        void (*kept)(struct session *ss, struct cg_msg *m);
        void (*unkept)(struct session *ss);
};

int cg_sup_broker_new(struct sup *s, struct cg_err *err);
int cg_sup_broker_start(struct sup *s, struct cg_err *err);
void cg_sup_broker_stop(struct sup *s);
void cg_sup_broker_attach(struct kernel *k);
void cg_sup_broker_detach(struct sup *s, uint64_t session, bool keep_servers);
/* Takes @servers. The host gets SERVERS_ADDED or FAILED of @request; 0: nobody does. */
void cg_sup_broker_servers(struct session *ss, json_t *servers, int64_t timeout_ms, uint64_t request);
/*
 * Gives the raw frame of @m, the result of @call of the kernel @k, to the tool server, which keeps
 * its long strings if it can, and answers with KEPT. False: there is no tool server.
 */
bool cg_sup_broker_keep(struct kernel *k, uint64_t call, struct cg_msg *m);
