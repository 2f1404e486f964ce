/* What sessions with the option "audit" do, for the audit log; its writer is src/audit. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/err.h"
#include "base/wire.h"

struct host;
struct session;
struct sup;

/* Outcome of a question. */
struct cg_audit_decision {
        const char *decision; /* "accept", "reject", "answered" or "closed" */
        const char *reason;
        const char *who;       /* "host", "terminal" or "approver"; NULL: nobody */
        const struct host *by; /* NULL: nobody */
        uint64_t approval;     /* its number; 0: it has none */
        /* of a function of the host, NULL: none; only its digest is recorded */
        const struct cg_frame *result;
};

/* Reads the options "audit" ("strict", "best-effort", or none) and "sign_artifacts". CG_E_INVAL. */
int cg_sup_audit_check(struct session *ss, struct cg_err *err);
void cg_sup_audit_free(struct session *ss);
/* The session belongs to a host from now on; it has ended. Ended without having opened: nothing. */
int cg_sup_audit_opened(struct session *ss, struct cg_err *err);
void cg_sup_audit_ended(struct session *ss, const char *why);
/* A host's message, before it is carried out. Negative: refuse it, it cannot be recorded. */
int cg_sup_audit_request(struct session *ss, uint64_t id, const struct cg_msg *m, struct cg_err *err);
/*
 * A question (@question: the body of its event, @raw: its raw frame, may be NULL) and what became
 * of it. Negative: an acceptance must not take effect.
 */
int cg_sup_audit_question(struct session *ss, const json_t *question, const struct cg_frame *raw,
                          const struct cg_audit_decision *d, struct cg_err *err);
/* OWN_DECIDED. Negative: the tool must not run, since that cannot be recorded. */
int cg_sup_audit_own(struct session *ss, const struct host *h, const struct cg_msg *m, struct cg_err *err);
/* A tool has returned: the body of CALL_ENDED. */
void cg_sup_audit_call_ended(struct session *ss, const char *body, size_t len);
/* An event for hosts. */
void cg_sup_audit_event(struct session *ss, uint16_t type, uint64_t id, const char *body, size_t len);
/* Whether files of the session's cells are signed. */
bool cg_sup_audit_signs(const struct session *ss);
/* Records a manifest of the files @found of the cell @id, signed by the writer: {"execution", "signature"}. */
int cg_sup_audit_artifacts(struct session *ss, uint64_t id, const json_t *found, json_t **ret,
                           struct cg_err *err);
void cg_sup_audit_stop(struct sup *s);
