/*
 * cellgate-mcp-http: what the files of its front share.
 *
 * The front is one thread around one epoll. It reads the network's bytes with libmicrohttpd, and
 * passes messages on to session processes, each an ordinary `cellgate mcp serve` at the other end
 * of a socket. Of a message it reads what it needs to find the way: kind, method, id, progress
 * token.
 *
 *      front.c     the process: loop, timers, messages of the monitor
 *      exchange.c  connections of HTTP, routes; requests.c  what requests ask for; response.c
 *      guard.c     who may send a request at all
 *      certificate.c  the certificate of TLS
 *      session.c   session processes, and which stream a message of theirs belongs to
 *      stream.c    one request's answer and the messages before it, or the messages of GET
 */
#pragma once

#include <gnutls/abstract.h>
#include <microhttpd.h>
#include <sys/queue.h>
#include "base/buf.h"
#include "base/log.h"
#include "mcp/jsonrpc.h"
#include "mcp_http/wire.h"

/* Connections, those that are only refused on top of them, and bytes of a request's head. */
#define HF_MAX_CONNECTIONS 1024u
#define HF_MAX_REFUSED     16u
#define HF_MAX_HEAD        ((size_t)32 << 10)
/* Bodies of all requests that have not been passed on. */
#define HF_MAX_BODIES ((size_t)512 << 20)
/* Requests of one session that are not answered. */
#define HF_MAX_REQUESTS 100u
/* Bytes that a session process has not read. */
#define HF_MAX_OUT ((size_t)128 << 20)
/* Answers of one session that its clients have not read, beyond which only small ones are sent. */
#define HF_MAX_ANSWERS  ((size_t)256 << 20)
#define HF_SMALL_ANSWER ((size_t)64 << 10)
/* One message of a session process: as large as it makes them. */
#define HF_MAX_LINE ((size_t)256 << 20)
/* Events that a client has not read, above which its stream is closed; and that are kept for it. */
#define HF_MAX_UNREAD ((size_t)16 << 20)
#define HF_MAX_KEPT   ((size_t)64 << 10)
/* Streams of one session that have ended. */
#define HF_MAX_KEPT_STREAMS 32u
/* Events of all streams, above which none are kept. */
#define HF_MAX_ALL_KEPT ((size_t)256 << 20)

/* Tokens that are with the verifier: more would only wait longer. */
#define HF_MAX_CHECKS 64u

#define HF_CHECK_MS     30000 /* for the answer about a token */
#define HF_HEAD_MS      10000 /* for the head of a connection's first request */
#define HF_IDLE_MS      75000 /* between two requests of a connection */
#define HF_STALL_S      60    /* without a byte in either direction, in mid-request */
#define HF_KEEPALIVE_MS 15000
#define HF_KEPT_MS      60000 /* events of a stream that has ended */
#define HF_BUSY_MS      60000 /* for the answer whether a cell runs */
#define HF_GONE_MS      10000 /* until a request whose stream broke off is cancelled */

struct hf_front;

/* Whose a request or a session is. */
struct hf_who {
        unsigned char owner[CG_HF_OWNER];
        int64_t until_ms; /* when the token expires, of a session the last one; INT64_MAX: never */
};

/* A descriptor in the front's epoll. */
struct hf_watch {
        void (*fn)(void *data, uint32_t events);
        void *data;
};

/* ---- stream.c */

struct hf_event {
        TAILQ_ENTRY(hf_event) entry;
        uint64_t number;
        size_t len;
        char text[]; /* as it is sent */
};

enum hf_stream_kind { HF_REQUEST, HF_CALL, HF_INITIALIZE, HF_LISTEN, HF_GET };

/*
 * A request of a client, its answer, and the messages before it; or HF_GET: the messages that
 * belong to no request. Becomes a stream of events (begun) when something comes before the answer.
 */
struct hf_stream {
        TAILQ_ENTRY(hf_stream) entry; /* of the session, oldest first */
        struct hf_front *f;
        struct hf_session *session; /* NULL: it has ended */
        enum hf_stream_kind kind;
        uint64_t number;   /* the request's id at the session process; of HF_GET 0 */
        char *id, *token;  /* the client's, JSON text; token: NULL when it wants no progress */
        unsigned status;   /* of an answer that is an error of the stateless era; 0: 200 */
        bool stateless;    /* of the stateless era: nothing is resumed, and its end cancels it */
        bool can_stream;   /* the client accepts events */
        bool primes;       /* it understands an event without data */
        bool begun, ended; /* ended: nothing follows */
        bool asked_again;  /* it broke off, and its questions were asked by another stream */
        bool slow;         /* the client does not read */
        bool over;         /* of HF_GET, HF_LISTEN: no token of the session's is valid any more */
        char *answer;      /* of a request that has not begun a stream; NULL: none yet */
        size_t answer_len;
        TAILQ_HEAD(hf_events, hf_event) events; /* that are kept or not sent yet */
        struct hf_event *next;                  /* to be sent; NULL: all were */
        size_t at;                              /* bytes of it that were sent */
        size_t bytes, unread;                   /* of all events, and from next on */
        uint64_t last, dropped, lost; /* events; dropped: before the first; lost: of these, unread */
        bool ping;                    /* a comment is due */
        int64_t since_ms;             /* the last byte; without a reader: when it went */
        /* The exchange that sends it; NULL: none. Must not free the stream. */
        void (*wake)(void *reader);
        void *reader;
};

struct hf_stream *cg_hf_stream_new(struct hf_front *f, struct hf_session *s, enum hf_stream_kind kind);
/* Frees it and takes it out of its session. */
void cg_hf_stream_free(struct hf_stream *st);
/* Adds one message; @last: the answer. Out of memory, the stream ends. */
void cg_hf_stream_push(struct hf_stream *st, struct cg_slice text, bool last);
/* Begins to send events although none is there: the answer takes long. */
void cg_hf_stream_begin(struct hf_stream *st);
/* Bytes of events for the client; 0: none now; -1: the stream has ended, -2: it is broken off. */
ssize_t cg_hf_stream_read(struct hf_stream *st, char *buf, size_t max);
/* Continues behind the event @after, or with the first that is kept; false: there is no @after. */
bool cg_hf_stream_resume(struct hf_stream *st, uint64_t after);
/* Moves what @from has not sent to @to. */
void cg_hf_stream_move(struct hf_stream *from, struct hf_stream *to);
/* Frees what is kept beyond the limits. */
void cg_hf_stream_trim(struct hf_stream *st);

/* ---- session.c */

struct hf_session {
        TAILQ_ENTRY(hf_session) entry; /* of the front, oldest first */
        struct hf_watch watch;
        struct hf_front *f;
        uint64_t number;            /* the monitor's */
        char id[CG_HF_SESSION + 1]; /* the client's */
        struct hf_who who;
        char client[100]; /* the name that it gives itself, where the owner does not tell clients apart */
        bool sse;         /* HTTP+SSE: all that the client gets comes on the stream get, with which it ends */
        int fd;           /* -1: not there yet, or at its end */
        bool writable_wanted; /* epoll reports room in the socket */
        struct cg_buf out;    /* for the session process, */
        size_t written;       /* and how much of it is written */
        struct cg_lines in;
        TAILQ_HEAD(, hf_stream) streams;
        struct hf_stream *get;
        bool stateless;  /* of all requests of the stateless era; no client knows its id */
        unsigned n_open; /* requests that are not answered */
        uint64_t asked;  /* our request whether a cell runs; 0: none */
        int64_t since_ms, used_ms;
};

/*
 * A new one of the client @client ("" is one as well) of @who, who has sent @token ("" where the
 * monitor needs none), whose process is being started. NULL: *err is for the client.
 */
struct hf_session *cg_hf_session_new(struct hf_front *f, const struct hf_who *who, const char *client,
                                     const char *token, bool stateless, struct cg_err *err);
int cg_hf_tell_monitor(const struct hf_front *f, enum hf_type type, uint64_t number, const char *token,
                       struct cg_err *err);
struct hf_session *cg_hf_session_find(const struct hf_front *f, const char *id);
struct hf_session *cg_hf_session_stateless(const struct hf_front *f, const unsigned char owner[CG_HF_OWNER]);
struct hf_session *cg_hf_session_numbered(const struct hf_front *f, uint64_t number);
/* Messages of the monitor. */
void cg_hf_session_opened(struct hf_front *f, uint64_t number, int fd); /* takes @fd */
void cg_hf_session_ended(struct hf_front *f, uint64_t number, const char *why);
/* Ends it: its requests are answered with the error @why. */
void cg_hf_session_end(struct hf_session *s, const char *why);
/* Passes a notification or an answer of the client on. */
int cg_hf_session_send(struct hf_session *s, const struct cg_rpc *m, struct cg_slice text,
                       struct cg_err *err);
/* Passes the request of @st on. */
int cg_hf_session_request(struct hf_stream *st, const struct cg_rpc *m, struct cg_slice text,
                          struct cg_err *err);
/* The client of @st has gone: cancels the request, or keeps the events for a while. Frees @st. */
void cg_hf_session_leave(struct hf_stream *st);
/* The client is back by another stream: what it was asked by one that broke off is asked again. */
void cg_hf_session_back(struct hf_session *s);
void cg_hf_session_tick(struct hf_session *s, int64_t now);

/* ---- guard.c */

/*
 * Whether the request may be handled: 0, HF_ASK (below), or the status of its refusal with *why.
 * *origin (borrowed): of a page that may read the response; NULL: none.
 */
int cg_hf_guard(const struct hf_front *f, struct MHD_Connection *c, const char *method, bool open,
                struct hf_who *who, const char **origin, const char **why);

/* The token of "Bearer TOKEN"; "": there is none. */
const char *cg_hf_bearer(struct MHD_Connection *c);
/*
 * With OAuth: 0 when the token is known to be valid, and then @who is whose it is; HF_ASK when the
 * verifier has to decide; or the status of the refusal.
 */
#define HF_ASK 1
int cg_hf_grant_find(const struct hf_front *f, const char *token, struct hf_who *who, const char **why);
/* Keeps the verifier's answer @m about @token. */
void cg_hf_grant_keep(struct hf_front *f, const char *token, const struct hf_msg *m, struct hf_who *who);

/* ---- certificate.c */

/* The certificate for handshakes from now on. Erases the text of the key. */
int cg_hf_certificate_set(struct hf_tls *tls, struct cg_err *err);
/* A gnutls_certificate_retrieve_function2. */
int cg_hf_certificate_give(gnutls_session_t session, const gnutls_datum_t *authorities, int n_authorities,
                           const gnutls_pk_algorithm_t *algorithms, int n_algorithms, gnutls_pcert_st **chain,
                           unsigned int *n, gnutls_privkey_t *key);

/* ---- exchange.c */

struct hf_conn;

enum MHD_Result cg_hf_access(void *data, struct MHD_Connection *c, const char *url, const char *method,
                             const char *version, const char *upload, size_t *size, void **state);
void cg_hf_completed(void *data, struct MHD_Connection *c, void **state, enum MHD_RequestTerminationCode how);
void cg_hf_connection(void *data, struct MHD_Connection *c, void **context,
                      enum MHD_ConnectionNotificationCode what);
/* The verifier's answer. */
void cg_hf_checked(struct hf_front *f, const struct hf_msg *m);
void cg_hf_conns_tick(struct hf_front *f, int64_t now);
/* Breaks off all connections: none is suspended afterwards. */
void cg_hf_conns_end(struct hf_front *f);

/* ---- the front */

struct hf_front {
        struct hf_watch control_watch, mhd_watch;
        int epoll, control;
        uid_t uid;
        bool ending, tls;
        struct MHD_Daemon *mhd;
        struct hf_setup setup;
        struct cg_log log;
        LIST_HEAD(, hf_conn) conns;
        unsigned n_conns;
        TAILQ_HEAD(, hf_session) sessions; /* oldest first */
        unsigned n_sessions;
        uint64_t last_session, last_request;
        size_t body_bytes, event_bytes; /* of all requests and streams */
        unsigned n_checks;              /* tokens that the verifier has not answered */
        /* Tokens that were found valid, by a byte of their digest. */
        struct hf_grant {
                unsigned char token[CG_HF_OWNER];
                struct hf_who who;
                int64_t check_ms; /* when the verifier is asked again */
        } grants[256];
};

/* front.c, started by exec with the control socket at descriptor 3. The exit status. */
int cg_hf_front(void);
/* verifier.c, likewise. */
int cg_hf_verifier(void);
