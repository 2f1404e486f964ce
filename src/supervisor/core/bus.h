/*
 * Events of all sessions, for programs of the same user (docs/events.md). The last ones are kept as
 * texts without secrets, and clients fetch them, so that a slow reader costs nothing.
 */
#pragma once

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>
#include "base/bus_events.h"
#include "base/wire.h"

struct bus_event;
struct bus_share;
struct host;
struct session;
struct sup;

struct bus {
        TAILQ_HEAD(, bus_event) events;
        LIST_HEAD(, bus_share) shares;
        size_t n, bytes, max; /* max: of n, see cg_sup_jobs_init() */
        uint64_t seq;         /* of the last event, which may not be kept any more */
        size_t n_waiting;     /* hosts that are told about the next event */
};

void cg_sup_bus_init(struct sup *s);
void cg_sup_bus_fini(struct sup *s);
/*
 * Adds an event of the session, and of the cell or command @id (0: of none). Nothing for a spare.
 * @data: an object, NULL for {} (takes). The message is made safe to show.
 */
void cg_sup_bus_add(struct session *ss, enum cg_bus_event type, uint64_t id, json_t *data, const char *fmt,
                    ...) __attribute__((format(printf, 5, 6)));
/*
 * A "cell" or "command" (@kind) starts (@status NULL), or has ended with a status of RESULT and the
 * supervisor's words.
 */
void cg_sup_bus_execution(struct session *ss, uint64_t id, const char *kind, const char *status,
                          const char *text);
/* Adds what an event for the session's hosts says, if it is one for the bus. */
void cg_sup_bus_host_event(struct session *ss, const struct cg_out *event);
/* Requests of hosts: EVENTS_GET, EVENT_ADD. */
void cg_sup_bus_get(struct host *h, const struct cg_msg *m);
void cg_sup_bus_add_asked(struct session *ss, struct host *h, const struct cg_msg *m);
