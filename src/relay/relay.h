/*
 * Carries a host's connection to a supervisor on another machine through a pair of byte streams,
 * such as the pipes of `ssh`. One relay runs beside the host, one beside the supervisor (the node).
 * Neither reads what it carries: lifeline, host wire and the sockets that are passed over the
 * lifeline are channels of bytes.
 *
 * A link begins with a line in each direction: CG_LINK_LINE, then a JSON object. The host's is
 * first: {"relay", "wire", "version"} and options for the supervisor. The node's has the same
 * numbers and what the host needs to know of it, or "error" and "code". Frames follow: number of
 * the channel (32 bits), type (8) and length (24), big-endian, then the bytes.
 *
 * The bytes of frames have numbers. Each side keeps what the other has not acknowledged, so that
 * another pair of streams can go on where a lost one ended: the lines of both sides then have
 * "received", the number of the byte that is expected next. Channels do not notice it.
 */
#pragma once

#include "base/buf.h"
#include "base/json.h"

#define CG_LINK_LINE    "cellgate-relay "
#define CG_LINK_VERSION 3
/* Silence after which a link counts as lost: one side may notice it so much later. */
#define CG_LINK_LOST_MS 15000
/* Longest line, with what the other side's start files print before it. */
#define CG_LINK_LINE_MAX ((size_t)1 << 20)

enum { CG_LINK_LIFE, CG_LINK_WIRE, CG_LINK_FIRST }; /* numbers of channels */

struct cg_link_channel {
        bool used;
        uint32_t number;
        int fd;            /* connected AF_UNIX stream socket, non-blocking */
        struct cg_buf out; /* from the other side, from @written on not written yet */
        size_t written;
        uint32_t owed;  /* bytes that were taken and are to be reported to the other side */
        uint32_t room;  /* bytes that the other side takes */
        bool read_end;  /* nothing more is read here, and the other side knows it */
        bool write_end; /* nothing more comes from the other side */
        bool shut;      /* the end of what comes was passed on */
        bool stopped;   /* nobody reads @fd: what comes is dropped */
};

#define CG_LINK_CHANNELS 128
struct cg_link {
        bool host;         /* sockets come from the lifeline; else they are sent there */
        int in, out;       /* the link */
        bool closed;       /* by the other side */
        bool mute;         /* nobody reads what is written, although more may come */
        struct cg_buf got; /* read from the link, not yet handled */
        /* for the link, from byte @base on: acknowledged up to @acked, written up to @sent */
        struct cg_buf kept;
        size_t acked, sent;
        uint64_t base;
        uint64_t end_at;         /* at the node: the byte after the supervisor's last */
        uint64_t received, told; /* bytes of frames, and how many of them were acknowledged */
        bool is_line;            /* what was put ends with a newline */
        /*
         * Gets another pair of streams, by cg_link_resume(); NULL: a lost link is the end. @lost:
         * until then nothing else is served. CG_TIMEOUT: none has come; negative: none will.
         */
        int (*renew)(struct cg_link *r, bool lost, struct cg_err *err);
        int listener; /* readable: renew() may get one although this one is not known to be lost; -1: none */
        int log;      /* what is read here is written to descriptor 2; 0, -1: none */
        struct cg_link_channel channels[CG_LINK_CHANNELS]; /* the first two: lifeline and wire */
        uint32_t next;                                     /* number of the next channel */
        int64_t heard_ms, said_ms;
        int64_t end_ms; /* one end has closed: what is left is carried over until then; 0: none */
};

/*
 * Reads the other side's first line within @timeout_ms; what follows stays in r->got. Ends when
 * @life (-1: none) has ended. CG_E_CLOSED, CG_E_TIMEDOUT: *err has what came instead of it.
 */
int cg_link_read_line(struct cg_link *r, int life, int64_t timeout_ms, json_t **ret, struct cg_err *err);
/* Sends ours. Takes @o. */
int cg_link_send_line(const struct cg_link *r, json_t *o, struct cg_err *err);

/*
 * Goes on with the streams @in and @out (takes), on which the other side has @received the bytes
 * before that one, and which begin with what @got has. CG_E_PROTO: these are not kept; nothing has
 * changed.
 */
int cg_link_resume(struct cg_link *r, int in, int out, uint64_t received, const struct cg_buf *got,
                   struct cg_err *err);

/*
 * Relays until one end has closed: 0. Negative: the link was lost, or the other side broke the
 * protocol. Takes @life and @wire.
 */
int cg_link_run(struct cg_link *r, int life, int wire, struct cg_err *err);
/* Closes the link's descriptors. */
void cg_link_fini(struct cg_link *r);
#define cg_auto_link CG_CLEANUP(cg_link_fini)
