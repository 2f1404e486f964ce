/*
 * The decider of cellgate-egress, by file. Private to decider*.c.
 *
 *      decider.c       messages of relay and host, the verdict by name, time, the start
 *      decider_box.c   sandboxes
 *      decider_ask.c   questions to the host, and answers that are remembered
 *      decider_dial.c  the way to a server: lookup, vetting, connecting, the injector in between
 *      decider_job.c   a question of the relay: its end, its answer, and the event of it
 *      decider_loop.c  sending to the other processes, what is waited for, the end
 *
 * Each calls only those below it.
 *
 * The steps of a job: verdict by name (policy) -> question to the host, if the policy asks -> one
 * lookup -> each address vetted -> connection to a vetted address -> the socket goes to the relay.
 * When the host is gone, everything ends.
 */
#pragma once

#include <jansson.h>
#include <sys/queue.h>
#include <uv.h>
#include "sandbox/egress/chan.h"
#include "sandbox/egress/internal.h"

#define ADDRS_MAX 16 /* of one name; more are never needed to find one that answers */

struct grant;
struct decider;

struct box {
        LIST_ENTRY(box) entry;
        uint32_t number;
        json_int_t sandbox; /* the host's name for it */
        struct cg_policy *policy;
        bool has_secrets; /* the injector knows it */
        SLIST_HEAD(, grant) grants;
        size_t n_grants;
        size_t n_jobs, n_lookups;
};

/* A question to the host; jobs for the same host and port wait for the same answer. */
struct question {
        LIST_ENTRY(question) entry;
        uint32_t id;
        struct box *box;
        struct cg_host host;
        uint16_t port;
        int64_t deadline_ms;
};

enum state { ASKING, LOOKING_UP, CONNECTING, ANSWERING, CANCELLED };

struct job {
        LIST_ENTRY(job) entry;
        struct decider *d;
        struct box *box;
        enum state state;
        uint32_t id;
        enum cg_egress_kind kind;
        struct cg_host host;
        uint16_t port;
        struct question *question;
        uv_getaddrinfo_t lookup;
        char name[CG_HOST_MAX + 1]; /* to look up */
        bool looking_up;
        bool to_proxy; /* the address is another proxy's: not vetted */
        uint16_t to_port;
        struct cg_addr addrs[ADDRS_MAX];
        size_t n_addrs, at;
        int fd;
        uv_poll_t *poll;
        int64_t attempt_end_ms, deadline_ms;
        int last_error;
        struct cg_egress_msg answer;
        char list[20], rule[CG_AUTHORITY_MAX + 8]; /* what decided, for the event */
};

struct decider {
        uv_loop_t loop;
        uv_poll_t control_poll, relay_poll, injector_poll;
        uv_poll_cb on_control, on_relay;
        int control_events, relay_events; /* that the two wait for now */
        uv_timer_t tick;
        struct cg_chan chan;
        int relay, injector;
        LIST_HEAD(, box) boxes;
        uint32_t next_box, next_question;
        LIST_HEAD(, question) questions;
        LIST_HEAD(, job) jobs;
        bool ended;
        int status;
};

/* decider_loop.c */
void cg_decider_end(struct decider *d, int status);
/* Sends @message (takes) to the host. The decider ends when the host cannot be reached. */
void cg_decider_send_host(struct decider *d, json_t *message);
int cg_decider_send_relay(struct decider *d, const struct cg_egress_msg *m, const int *fds, size_t n,
                          struct cg_err *err);
int cg_decider_send_injector(struct decider *d, const struct cg_egress_msg *m, const int *fds, size_t n,
                             struct cg_err *err);
bool cg_decider_host_is_slow(const struct decider *d);
/* Updates what the two channels wait for, after anything that may have changed it. */
void cg_decider_watch(struct decider *d);

/* decider_box.c */
struct box *cg_decider_box_find(struct decider *d, uint32_t number);
struct box *cg_decider_box_find_sandbox(struct decider *d, json_int_t sandbox);
/* @secrets: -1 none. Descriptors are borrowed. */
int cg_decider_box_open(struct decider *d, json_int_t sandbox, json_t *policy, int secrets, const int *fds,
                        size_t n, struct cg_err *err);
int cg_decider_box_change(struct decider *d, json_int_t sandbox, json_t *policy, struct cg_err *err);
void cg_decider_box_close(struct decider *d, struct box *b);

/*
 * Refuses a job that has waited, if a policy that came meanwhile denies it: an answer counts, but
 * not against the deny list. @j may be freed.
 */
bool cg_decider_job_refuse(struct job *j);

/* decider_ask.c */
void cg_decider_grants_forget(struct box *b);
/* Asks the host, unless it has answered before. @j may be freed. */
void cg_decider_question_ask(struct job *j);
/* A job stops waiting for @q (NULL: none). The last one ends @q; @notify reports it to the host. */
void cg_decider_question_leave(struct decider *d, struct question *q, bool notify);
/* The host's message. */
int cg_decider_question_on_answer(struct decider *d, const json_t *m, struct cg_err *err);
/* Refuses questions whose time is over, or whose sandbox may not ask any more. */
void cg_decider_questions_expire(struct decider *d, int64_t now_ms);

/* decider_dial.c: @j may be freed */
void cg_decider_dial(struct job *j);
/* Connects to an external proxy, which decides itself. */
void cg_decider_dial_raw(struct job *j);
void cg_decider_dial_expire(struct decider *d, int64_t now_ms);

/* decider_job.c */
extern const char *const cg_egress_protocols[CG_EGRESS_KINDS];
void cg_decider_job_stop_connecting(struct job *j, bool keep_fd);
void cg_decider_job_free(struct job *j);
/* A lookup cannot be taken back: the job stays until it returns. */
void cg_decider_job_drop(struct job *j);
/* Sends the event of a decision, unless the policy leaves it out. */
void cg_decider_job_report(struct job *j, enum cg_egress_result result, const char *why);
/* @j may be freed. */
void cg_decider_job_answer(struct job *j, enum cg_egress_result result, const char *why);
/* True when the job was freed. */
bool cg_decider_job_send_answer(struct job *j);
