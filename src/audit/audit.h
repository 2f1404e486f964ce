/* cellgate-audit: what its files share, and the messages between a supervisor and its writer. */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* The longest body: a cell of CG_MAX_CODE, every character of which needs an escape. */
#define CG_AUDIT_MAX_BODY ((size_t)128 << 20)

/* A record of this kind is a manifest of files, which the writer signs. */
#define CG_AUDIT_MANIFEST      "artifacts.signed"
#define CG_AUDIT_SIGNATURE_HEX 129

/*
 * A record on its way to the writer: this, then session, kind and body, each with a NUL. The writer
 * answers those that want a reply, in order; a reply counts for all records before it as well.
 */
struct cg_audit_request {
        uint64_t time_us;
        uint32_t session_len, kind_len, body_len;
        uint32_t reply; /* 1: wanted */
};

struct cg_audit_reply {
        char error[1000];  /* as in struct cg_err; "": all is written */
        uint32_t recorded; /* 1: all is written; the error is that heads cannot be sent elsewhere */
        /* of the last record, if it is a manifest (else ""), in hexadecimal digits */
        char signature[CG_AUDIT_SIGNATURE_HEX];
};

/*
 * Both return the exit status. @key: file of the key, NULL: the log's own; @head: file or URL that
 * gets the heads, "": none.
 */
int cg_audit_artifacts_command(int argc, char **argv);
int cg_audit_verify_command(int argc, char **argv);
int cg_audit_writer(int fd, const char *dir, const char *key, const char *head);
int cg_audit_command(int argc, char **argv);

/* In local time, as 2026-11-24T09:30:00. */
void cg_audit_time_text(int64_t seconds, char ret[32]);
