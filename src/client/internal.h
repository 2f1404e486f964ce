/* libcellgate's own structures. See connection.c for who owns which thread. */
#pragma once

#include <pthread.h>
#include "base/fd.h"
#include "base/hold.h"
#include "base/json.h"
#include "base/ceilings.h"
#include "base/proc.h"
#include "base/wire.h"
#include "base/zconn.h"
#include "cellgate.h"

/* Requests have numbers above those of cells, so the number of a FAILED distinguishes them. */
#define CG_FIRST_REQUEST (UINT64_C(1) << 32)
/* Numbers of questions of this host's tool server; those of a node are below. */
#define CG_FIRST_HOST_NUMBER (UINT64_C(1) << 52)

/* Frees all items of the list at @head, which is empty then, by @free_fn. */
#define CG_FREE_ALL(head, link, free_fn) \
        do { \
                __typeof__(head) cg_item_; \
                while ((cg_item_ = (head))) { \
                        (head) = cg_item_->link; \
                        free_fn(cg_item_); \
                } \
        } while (0)

struct cg_event {
        struct cg_event *next;
        enum cg_event_type type;
        uint64_t cell, approval;
        int64_t question; /* of an INPUT_REQUEST */
        bool is_stderr, refused, foreign;
        bool own_window; /* of an operation of files.c */
        bool of_host;    /* of this host's tool server: a node gets no credit for it */
        enum cg_status status;
        int64_t execution_count;
        struct cg_costs costs; /* size is 0 where there are none */
        size_t cost;           /* of the session's window */
        char *text;            /* NUL-terminated; NULL: none */
        size_t text_len;
        char *json; /* checked JSON object text; NULL: none */
        size_t json_len;
        char *artifacts; /* of a RESULT; NULL: none */
        size_t artifacts_len;
        char *args;
        size_t args_len;
        char *server, *tool;
        const char *method; /* static */
        struct cg_frame **buffers;
        size_t n_buffers;
        struct cg_frame *held; /* the frame that text, json or args points into; NULL: none */
        json_t *parsed;        /* of json, made by the first cg_event_mime() */
};

/* A request that a thread waits for. Lives on that thread's stack; guarded by cg_client.lock. */
struct request {
        struct request *next;
        uint64_t id;
        bool to_tools; /* to this host's tool server */
        bool done, failed;
        struct cg_err err;
        /* added to the client's sessions once its number is known, so that no event is missed */
        struct cg_session *opening;
        char *body;
        size_t len;
        struct cg_msg *msg; /* gets the answer; NULL: only its body is wanted */
};

struct approval {
        struct approval *next;
        uint64_t id;
        enum cg_event_type type; /* of the event that announced it */
        uint64_t policy_key;     /* of the call, where a policy has left the question to the host */
        char *request;           /* SERVER_REQUEST: its content; as a tree it is 80 times as large */
        struct cg_event *call;   /* of a node: what the host gets once it has accepted it; NULL: none */
        /* of this host's tool server: its number, and the node's of the call */
        uint64_t asked, about;
};

/* A set of functions about whose calls a node's session asks. */
struct asked_functions {
        struct asked_functions *next;
        char *name;
};

/* Input of a command that it has not taken yet. */
struct command_input {
        struct command_input *next;
        uint64_t number;
        size_t waiting;
};

/* A command whose events a thread waits for (files.c). Lives on that thread's stack. */
struct operation {
        struct operation *next;
        uint64_t number;
        struct cg_event *events, **events_tail;
        size_t n;
        bool done; /* its result is among the events */
};

struct cg_session {
        struct cg_client *client;
        struct cg_session *next;
        uint64_t number;
        char *id, *info;
        uint64_t next_cell;
        int event_fd; /* readable while events wait, and after the end */
        bool readable;
        pthread_cond_t cond;
        struct cg_event *events, **events_tail;
        bool closed;
        bool input_wanted; /* the host has seen an INPUT_REQUEST that it has not answered */
        uint64_t input_cell;
        int64_t input_question;
        struct approval *approvals; /* announced and not decided */
        struct operation *operations;
        struct command_input *inputs; /* of commands that have not ended */
        size_t uncredited;
        size_t unread;        /* bytes of @events */
        uint64_t last_number; /* of a question or call of a node */
        /* With a node only */
        struct asked_functions *asked;
        json_t *servers;               /* {NAME: true}: MCP servers of this host; NULL: none yet */
        struct host_call *host_calls;  /* calls of theirs */
        uint64_t server_requests;      /* as in the options */
        int64_t ask_s;                 /* for questions of servers' sandboxes about hosts; 0: none */
        struct session_policy *policy; /* NULL: no files. Constant */
};

/* Who reads the socket: the library's thread, or one in cg_client_wait_event(). */
struct client_reader {
        int epoll;    /* has the socket while the library's thread is to read it */
        bool watched; /* it has it */
        bool led;     /* a thread in cg_client_wait_event() reads */
        pthread_cond_t done;
        struct cg_session *for_session; /* its thread has the messages and takes an event of them next */
};

struct cg_client {
        pthread_mutex_t lock; /* guards all members below except those marked */
        pthread_cond_t cond;  /* a request is done, or the connection ended */
        pthread_t thread;
        bool have_thread;
        struct cg_zconn conn;
        struct cg_err read_err;   /* code is 0 while there was no error */
        int life_fd;              /* constant while the thread runs */
        int start_fd;             /* to a supervisor that is being started, until it has the lifeline */
        int node_fd;              /* to a node's relay, until it is the connection */
        json_t *node;             /* what it has said of itself; NULL: this machine */
        struct host_tools *tools; /* with a node only */
        int wake_fd;              /* eventfd: look at the socket again, or at stop */
        struct client_reader reader;
        bool stop, broken;
        struct cg_err broken_err;
        uint64_t next_request, next_socket;
        struct request *requests;
        struct cg_session *sessions;
        int approvals_fd;    /* eventfd: the list of approvals has changed; -1: nobody has asked for it */
        int events_fd;       /* eventfd: likewise, of the supervisor's events */
        struct cg_proc proc; /* private supervisor */
        char dir[128];
        int64_t timeout_ms;
        int64_t answer_ms; /* longest wait for a supervisor that listens to answer */
        bool shared;       /* not a supervisor of our own */
        bool found;        /* by cg_shared_address(): its other clients are not the host's */
        char *why_private; /* although a shared one was wanted; NULL: it is shared, or was not */
};

/* shared.c */
/*
 * The folder of the user's shared supervisor for clients with options @o. Its parent is made, and
 * must be this user's alone.
 */
int cg_shared_address(const struct cg_client_options *o, char *buf, size_t size, struct cg_err *err);
/* The variables it is started with (returns; free() the list only); NULL: out of memory. */
char **cg_shared_environ(void);

/* remote.c: with a client option `connect` */
/* Opens a client by one of @o's commands, in random order while nodes are busy or unreachable. */
int cg_remote_open(const struct cg_client_options *o,
                   int (*open)(const struct cg_client_options *o, struct cg_client **ret, struct cg_err *err),
                   struct cg_client **ret, struct cg_err *err);
/* Starts the link: c->life_fd and c->node_fd, and c->start_fd, from which its report is read. */
int cg_remote_start(struct cg_client *c, const struct cg_client_options *o, struct cg_err *err);
/* Changes the session's request to what a node may get; CG_E_UNSUPPORTED: what it may not. */
int cg_remote_request(const struct cg_client *c, const struct cg_session_options *o, json_t *req,
                      struct cg_err *err);
/* Calls of the functions @name become questions. */
int cg_remote_ask_functions(struct cg_session *s, const char *name, struct cg_err *err);
void cg_remote_free(struct cg_session *s);
/* CG_E_PROTO: a node must not send it. */
int cg_remote_check(const struct cg_event *e, struct cg_err *err);
/* CG_E_PROTO: the node's report @text about the set of functions @name is none, or has failed. */
int cg_remote_check_report(const char *name, const char *text, struct cg_err *err);
/* Lock held. As cg_session_push(), for a node's event: takes @e. Negative ends the connection. */
int cg_remote_push(struct cg_session *s, struct cg_event *e, struct cg_err *err);
/* Lock held. The host gets the call that it was asked about. False: no such call waits. */
bool cg_remote_accept(struct cg_session *s, uint64_t approval);

/* host_tools.c: with a client option `connect`. What other files need of it; lock held. */
struct pollfd;
struct host_tools_ops {
        void (*serve)(struct cg_client *c, short revents);
        struct pollfd (*polled)(const struct cg_client *c);
        /* Takes @body. */
        int (*send)(struct cg_client *c, const struct cg_out *out, json_t *body, struct cg_err *err);
        /* FUNCTION_CALL about a server of the host. */
        int (*call)(struct cg_session *s, const struct cg_event *e, struct cg_err *err);
        /*
         * APPROVAL_CLOSED, perhaps about such a call: then @e becomes one about the question.
         * False: the host has not been asked.
         */
        bool (*closed)(struct cg_session *s, struct cg_event *e);
        /* The host's @decision about @a, which has been forgotten. Takes @body. */
        int (*decided)(struct cg_session *s, const struct approval *a, const struct cg_out *decision,
                       json_t *body, struct cg_err *err);
        void (*end)(struct cg_session *s);
};
/* Its first member is a const struct host_tools_ops *. */
#define CG_TOOLS_OPS(c) (*(const struct host_tools_ops *const *)(const void *)(c)->tools)
int cg_tools_new(struct cg_client *c, const struct cg_client_options *o, struct cg_err *err);
/* Lock not needed: the client's thread has ended. */
void cg_tools_free(struct cg_client *c);
/* Adds MCP servers to a session at a node. Takes @servers. No lock held. */
int cg_tools_add(struct cg_session *s, json_t *servers, int64_t timeout_ms, int64_t longest_ms, char **ret,
                 struct cg_err *err);

/* approvals.c: the eventfd @fd of @c, which is made when it is first asked for. */
int cg_client_event_fd(struct cg_client *c, int *fd, struct cg_err *err);

/* connection.c */
/* Makes the connected socket @fd (takes) the connection and starts the library's thread. */
int cg_client_connected(struct cg_client *c, int fd, struct cg_err *err);
/* Makes the library's thread look at its socket and at c->stop. */
void cg_client_wake(struct cg_client *c);
/* Lock held. Ends all sessions and fails all requests, now and later. */
void cg_client_break(struct cg_client *c, int code, const char *why);
/* @timeout_ms from now, in the clock of the client's conditions. */
struct timespec cg_client_deadline(int64_t timeout_ms);
/*
 * Lock held, and released meanwhile: waits for an event or the end of @s, @timeout_ms at most (-1:
 * no limit); it may also return earlier. See connection.c.
 */
void cg_client_wait_event(struct cg_session *s, int64_t timeout_ms);
/* lock held; takes body */
int cg_client_send(struct cg_client *c, const struct cg_out *out, json_t *body, struct cg_err *err);
/* Sends @out, which may have a raw frame, and waits for the answer. Takes @body. */
int cg_client_request_out(struct cg_client *c, const struct cg_out *out, json_t *body, struct cg_err *err);
/*
 * Sends and waits for the answer. Takes @body. On success *ret_body (may be NULL) is the answer's
 * text, caller frees. @opening: the session that SESSION_NEW makes, else NULL; once it has a number
 * it is in the client's list, also when this then fails.
 */
int cg_client_request(struct cg_client *c, uint16_t type, uint64_t session, json_t *body, int64_t timeout_ms,
                      struct cg_session *opening, char **ret_body, struct cg_err *err);

/* The same to this host's tool server. */
int cg_client_request_tools(struct cg_client *c, uint16_t type, uint64_t session, json_t *body,
                            int64_t timeout_ms, char **ret_body, struct cg_err *err);
/* Lock held. The answer @m is given to the thread that waits for it. */
void cg_client_answer(struct cg_client *c, struct cg_msg *m);
/* Lock held. Requests to this host's tool server fail. */
void cg_client_fail_requests(struct cg_client *c, const char *why);

/* The same for an answer with raw frames; cg_msg_fini(@ret), also when it fails. Takes @body. */
int cg_client_request_msg(struct cg_client *c, uint16_t type, json_t *body, struct cg_msg *ret,
                          struct cg_err *err);

/* event.c */
/* The event a message is; NULL when it is none (or out of memory). Lock not needed. */
struct cg_event *cg_event_from_message(struct cg_msg *m);
/* A question, which is in cg_session.approvals until it is answered or closed. Not input(). */
bool cg_event_asks(const struct cg_event *e);
/*
 * The question about a function's call @e, with its bytes (returns). The host's reading of the
 * question counts for the window, that of the call does not. NULL: out of memory.
 */
struct cg_event *cg_event_question_about(struct cg_event *e);
struct cg_event *cg_event_text_new(enum cg_event_type type, const char *text);

/* elicit.c */
/*
 * Checks the answer to @request, {"method", "params"}, and adds what its form has as defaults. This
 * takes a while with large forms: the lock must not be held.
 */
int cg_server_answer_check(const char *request, json_t *answer, struct cg_err *err);

/* policy.c */
struct session_policy;
/* The files of @o. @files: gets their absolute paths. */
int cg_session_policy_new(const struct cg_session_options *o, json_t *files, struct session_policy **ret,
                          struct cg_err *err);
struct session_policy *cg_session_policy_free(struct session_policy *p);
/*
 * Sets what the rules about programs need in @o. CG_E_INVAL: other options of the session keep
 * rules from being asked.
 */
int cg_session_policy_apply(const struct session_policy *p, struct cg_session_options *o, struct cg_err *err);
/*
 * Decides about a question (enum cg_pol_decision) and counts it. @why: gets the reason of a
 * refusal. No lock held: links of paths are followed.
 */
int cg_session_policy_judge(struct session_policy *p, const struct cg_event *e, uint64_t *key,
                            struct cg_buf *why);
/* The host has refused the question with this key. */
void cg_session_policy_refused(struct session_policy *p, uint64_t key);

#define CG_MAX_WAIT_MS (INT64_MAX / 2) /* it can be added to any time */

/* @ms; @def where it is not set (0 or less). */
static inline int64_t cg_ms_or(int64_t ms, int64_t def)
{
        return ms > 0 ? CG_MIN(ms, CG_MAX_WAIT_MS) : def;
}

/* session.c */
/*
 * Copies the options @opts, struct @name, of which a host may know only the first members, to @to
 * with @size bytes; NULL: nothing.
 */
int cg_take_options(const void *opts, void *to, size_t size, const char *name, struct cg_err *err);
/* CG_E_INVAL: an entry of @env (may be NULL) is no NAME=VALUE. */
int cg_check_variables(const char *const *env, struct cg_err *err);
/* Takes the lock, unless the session has ended. */
int cg_session_enter(struct cg_session *s, struct cg_err *err);
/* The same; otherwise takes @body. */
int cg_session_enter_with(struct cg_session *s, json_t *body, struct cg_err *err);
/* Sends a message of the session. Takes @body. */
int cg_session_send(struct cg_session *s, struct cg_out *out, json_t *body, struct cg_err *err);
/* Lock held. Sends a cell, request or command under the next number, @out->id. Takes @body. */
int cg_session_send_numbered(struct cg_session *s, struct cg_out *out, json_t *body, uint64_t *number,
                             struct cg_err *err);

/* Lock held. NULL: what an event of @type has announced does not wait (any more); *err says so. */
struct approval *cg_session_find_approval(struct cg_session *s, enum cg_event_type type, uint64_t id,
                                          struct cg_err *err);

/* Sends the decision @out about what an event @of announced. Takes @body. */
int cg_session_send_decision(struct cg_session *s, struct cg_out *out, enum cg_event_type of, json_t *body,
                             struct cg_err *err);

/* decisions.c */
/* Decides about the call that an event @of announced; of @reason the start, if it is UTF-8. */
int cg_session_decide(struct cg_session *s, enum cg_event_type of, uint64_t id, bool accept,
                      const char *reason, size_t len, bool timed_out, struct cg_err *err);

/* queue.c; lock held */
/* Takes @e. */
void cg_session_push(struct cg_session *s, struct cg_event *e);
/* The program of @command has got @bytes of its input. */
void cg_session_input_taken(struct cg_session *s, uint64_t command, uint64_t bytes);
/* Makes s->event_fd readable, or not. */
void cg_session_update_fd(struct cg_session *s);
void cg_session_close_all(struct cg_client *c, const char *why);
/* The question with this number, or the input of the command; NULL: there is none (any more). */
struct approval *cg_session_approval(const struct cg_session *s, uint64_t id);
struct command_input *cg_command_input(const struct cg_session *s, uint64_t number);
void cg_session_forget_approval(struct cg_session *s, uint64_t id);
/* Returns NULL. */
struct approval *cg_approval_free(struct approval *a);
