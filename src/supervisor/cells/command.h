/* One command beside cells, for the files of this folder that have to do with commands. */
#pragma once

#include <sys/queue.h>
#include <uv.h>
#include "base/buf.h"
#include "sandbox/inside/commands.h"
#include "supervisor/core/state.h"

enum command_state { WAITING, STARTED, ENDED, LEFT };

/* A host's file operation: its events are not the session's, other output is error messages. */
struct command_socket {
        bool own, is_input; /* its input or output goes through @fd */
        int fd;             /* -1: given to it */
        size_t messages;    /* bytes */
};

struct program_input {
        struct watch watch;   /* writable end; active as long as it is open */
        bool open;            /* @watch has been set */
        char *pending;        /* what the program has not read yet: @n_pending */
        size_t n_pending, at; /* bytes from @at on */
        bool ended;           /* closed once pending is written */
};

struct command {
        TAILQ_ENTRY(command) entry;
        struct session *ss;
        struct kernel *kernel; /* NULL: waiting, or being freed */
        uint64_t id;           /* as in struct cell */
        enum command_state state;
        bool terminal, has_input, builtin;
        bool begun; /* the runner has reported */
        struct queued_job job;
        struct command_socket socket;
        int64_t timeout_ms;
        int spec;                            /* until it is started; else -1 */
        struct watch orders, output, errors; /* a terminal: output has both */
        size_t last_output, last_errors;     /* ended: what is still read at most */
        struct program_input input;
        uv_timer_t timer;
        int closing;        /* handles whose close callback is still to come, 1 for the command itself */
        const char *status; /* why it was ended from here; NULL: it was not */
        struct cg_command_report end;
        char why[200];
        /* For operations of the supervisor itself, which have no host and no number. */
        void (*done)(void *data, const char *out, size_t len, const char *why);
        void *done_data;
        struct cg_buf out;
        bool out_full;
};

/* ---- command.c */
void cg_sup_command_event(struct command *c, struct cg_out *out, json_t *body);
/* Reports its end to clients that want events of all sessions. */
void cg_sup_command_report_end(const struct command *c, const char *status, const char *why);
/* Its sockets close, which ends all that is left of it. */
void cg_sup_command_free(struct command *c);
/* It can end no other way than this: no report of its end comes. */
void cg_sup_command_end_now(struct command *c, const char *status, const char *why);
/* Moves output to the host; after the program's end, the result follows the last of it. */
void cg_sup_command_pump(struct command *c);
void cg_sup_command_write_input(struct command *c);
/* No report of its end came in time: its stopped processes end with the sandbox. */
void cg_sup_command_lost(uv_timer_t *t);
/* Its sockets and pipes. @fds: those of the request, which the caller closes. */
int cg_sup_command_connect(struct command *c, int fds[CG_COMMAND_FDS], struct cg_err *err);

/* ---- command_server.c */
/* Starts commands whose turn it is, if there is a sandbox. */
void cg_sup_commands_start(struct session *ss);
