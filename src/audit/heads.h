/*
 * Heads of the log, sent elsewhere: appended to a file, or sent to a URL by cellgate-post. Used by
 * the writer, which never waits for a server, except at its own end.
 */
#pragma once

#include "audit/log.h"
#include "base/proc.h"

struct cg_audit_heads {
        const char *target;              /* file or URL; "": nothing is sent */
        char newest[CG_AUDIT_HEAD_TEXT]; /* that was not sent yet; "": none */
        char failure[1000];              /* of the last try; "": it did not fail */
        struct cg_proc sender;           /* of a URL; pid 0: none runs */
        int fd;                          /* to it and from it; -1: none */
        int64_t seq, in_flight;          /* numbers of the newest and of the one under way; 0: none */
};

#define CG_AUDIT_NO_HEADS(to) ((struct cg_audit_heads){ .target = (to), .sender = CG_PROC_NONE, .fd = -1 })

/* A head was signed. */
void cg_audit_heads_add(struct cg_audit_heads *h, const struct cg_audit_record *head,
                        const uint8_t key[CG_AUDIT_KEY]);
/* Sends what waits, reads the sender's answers, and sets `failure`. Never waits. */
void cg_audit_heads_send(struct cg_audit_heads *h);
/* Waits a moment until the newest head was sent or has failed, and ends the sender. */
void cg_audit_heads_end(struct cg_audit_heads *h);
