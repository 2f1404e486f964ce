/* Bytes from one socket to another, in one direction. For the parts of cellgate-egress. */
#pragma once

#include "base/buf.h"
#include "sandbox/egress/http.h"

/* The most bytes of one read, and those buffered for a slow receiver. */
#define CG_FLOW_CHUNK (64u << 10)
/* Bytes in one direction after which they go through a pipe, without a copy to here and back. */
#define CG_FLOW_SPLICE_AFTER (256u << 10)
#define CG_FLOW_PIPE_SIZE    (1 << 20)
/* Bytes of one direction before the other connections get a turn. */
#define CG_FLOW_TURN (4u << 20)

/* Shared by all flows of the process. */
struct cg_flow_common {
        char *scratch; /* CG_FLOW_CHUNK */
        int n_pipes;   /* open now */
        int max_pipes;
};

enum cg_flow_mode {
        CG_FLOW_ALL,     /* until the end of the connection, which goes on as one */
        CG_FLOW_COUNTED, /* @left bytes */
        CG_FLOW_CHUNKED, /* chunks, written anew or (@plain) as what they hold */
};

struct cg_flow {
        int from, to; /* borrowed */
        enum cg_flow_mode mode;
        uint64_t left;
        struct cg_chunked chunked;
        bool plain;
        bool wrap; /* CG_FLOW_COUNTED: written as chunks */
        /* borrowed: bytes that were read from @from already; what is not ours stays in it */
        struct cg_buf *before;
        struct cg_buf out; /* to be written */
        int pipe[2];
        size_t piped;
        uint64_t moved;
        bool source_done; /* nothing more is read */
        bool done;        /* all is written */
        /* After cg_flow_run(): what it waits for */
        bool want_read, want_write;
};

/* Writes @b to a socket. 0: all is written; CG_TIMEOUT: the receiver is slow; negative. */
int cg_flow_write(int fd, struct cg_buf *b, struct cg_err *err);
void cg_flow_init(struct cg_flow *f, int from, int to, enum cg_flow_mode mode, struct cg_buf *before);
void cg_flow_fini(struct cg_flow *f, struct cg_flow_common *c);
/*
 * Moves what can be moved. 0: it is done or waits; CG_TIMEOUT: its turn is over and there is more;
 * negative: the connection is broken (CG_E_PROTO: the sender broke its framing). *activity is set
 * when a byte moved.
 */
int cg_flow_run(struct cg_flow *f, struct cg_flow_common *c, bool *activity, struct cg_err *err);
