/* The hosts of a session: events to those they concern, flow control. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>
#include "base/err.h"
#include "base/wire.h"

struct host;
struct session;

/* A host that attached to the session. */
struct member {
        LIST_ENTRY(member) entry;
        struct host *host;
        uint16_t slot;
        size_t unread; /* bytes of events it has not acknowledged */
};

/*
 * Sends an event to the hosts it concerns: @event->id is a number of the kernel wire, @m (may be
 * NULL) has its raw frames, which are moved out of it. Takes @body.
 */
void cg_sup_event(struct session *ss, const struct cg_out *event, json_t *body, struct cg_msg *m);
/* Only to the host whose cell it is about, or that opened the session; only to the others. */
void cg_sup_event_to_host(struct session *ss, const struct cg_out *event, json_t *body, struct cg_msg *m);
void cg_sup_event_to_others(struct session *ss, const struct cg_out *event, json_t *body);
/* Sends an event of @type that has only a text. */
void cg_sup_event_text(struct session *ss, uint16_t type, uint64_t cell, const char *text);
/* Reports something to the people at the session's hosts: a NOTICE, of the running cell. */
void cg_sup_notice(struct session *ss, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* @mb NULL: of the host that opened the session. */
void cg_sup_credit(struct session *ss, struct member *mb, uint64_t bytes);
/* The host with that slot; NULL: it has left. */
struct host *cg_sup_host_of(const struct session *ss, uint16_t slot);
/* The host with that slot has read enough for further events. */
bool cg_sup_has_room(const struct session *ss, uint16_t slot);
void cg_sup_pause_if_full(struct session *ss);
/* NULL: @h has not attached (it may have opened the session). */
struct member *cg_sup_member(struct session *ss, const struct host *h);
struct member *cg_sup_member_new(struct session *ss, struct host *h, struct cg_err *err);
/* @why NULL: the host knows. */
void cg_sup_detach(struct session *ss, struct member *mb, const char *why);
