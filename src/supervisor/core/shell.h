/* Cells and requests of one session, and the shells that run them. */
#pragma once

#include <sys/queue.h>
#include <uv.h>
#include "base/buf.h"
#include "base/wire.h"

struct session;

enum cell_kind {
        CELL_EXECUTE, /* code, answered with RESULT */
        CELL_REQUEST, /* answered with REPLY */
};

/* Activity of the hosts' code in a session, as far as the supervisor sees it. */
struct counted {
        int64_t tool_calls, connections, denials;
};

/* What a kernel's process has used: processor time, resident memory, faults, peak. -1: unknown. */
struct process_use {
        int64_t cpu_us, rss, faults, peak;
};

/* Figures at the start of a cell: see costs.c. -1: not known. */
struct cell_costs {
        int64_t started_us; /* 0: it has not run */
        uint64_t kernel;    /* its number */
        struct process_use use;
        int64_t written;  /* bytes */
        bool peak_is_old; /* at the end: what is used now is much less */
        struct counted start;
        int64_t commands; /* programs that it has started, as its kernel says */
        bool shared;      /* other code of the session that is known here ran in the meantime */
};

/* The RESULT of a cell that has ended, while its artifacts are searched for. */
struct ended_cell {
        struct cg_buf body; /* without its last members */
        struct cg_msg reply;
};

/* A cell or a request, from the host's message to its result. */
struct cell {
        TAILQ_ENTRY(cell) entry;
        uint64_t id; /* on the kernel wire: see CELL_SLOT */
        enum cell_kind kind;
        const char *request; /* type of a request, from the table in cells.c; NULL for a cell */
        int64_t timeout_ms;  /* 0: none */
        int64_t queued_ms;
        int64_t deadline_ms; /* of a request in `unordered` */
        bool silent, allow_stdin, store_history, announce, artifacts;
        int64_t since_ns, clocks_ns; /* its start: see artifacts.c */
        struct ended_cell *ended;    /* NULL: it has not ended, or its RESULT has been sent */
        uint64_t output;             /* bytes it has printed */
        bool answered; /* in `unordered`: the host has its answer, the kernel's is still to come */
        struct cell_costs costs;
        size_t n_frames;
        struct cg_frame *frames[]; /* code and extra, or content and buffers */
};

TAILQ_HEAD(cell_queue, cell);

/* A number on the kernel wire consists of the slot of a host, and the host's own number. */
#define CELL_SLOT(id)         ((uint16_t)((id) >> 48))
#define CELL_NUMBER(id)       ((id) & ((UINT64_C(1) << 48) - 1))
#define CELL_ID(slot, number) (((uint64_t)(slot) << 48) | (number))

/* Why the running cell was interrupted. */
enum stop_reason { STOP_NONE, STOP_TIMEOUT, STOP_CANCEL, STOP_GONE };

/* The main shell or a subshell: a queue of cells and the one that runs. */
struct shell {
        struct shell *next;
        struct session *ss;
        char subshell[64]; /* "" the main shell */
        struct cell_queue queue;
        struct cell *running;
        enum stop_reason stop;
        unsigned interrupts; /* sent for the running cell */
        /* how often its grace period has started again because the host did not read */
        unsigned grace_restarts;
        uint64_t pauses;          /* of the kernel, when the grace period started */
        bool timed_out;           /* the running request's host has been sent its timeout */
        int64_t left_ms;          /* of the running cell's time, while the clock is stopped */
        int64_t clock_started_ms; /* when it was last started; -1: it is stopped */
        uint64_t last_ask;        /* before the running cell: this and earlier ones do not stop its clock */
        uv_timer_t clock, grace;
        void (*on_clock)(uv_timer_t *t); /* the running cell's time is over */
};
