/*
 * Commands beside a sandbox's main process: in its view, with its rights and limits, and neither
 * started nor seen by it. For a plan with cg_sandbox_set_commands().
 *
 *      caller          has cg_sandbox_child.commands_fd; sends init one end of a socket pair
 *      init            forks the command server for it
 *      command server  enters the sandbox as the main process has done; the caller sends it one
 *                      request for each command; it forks a runner
 *      runner          starts the program; the parent of all that the program leaves behind; takes
 *                      orders from the caller, and reports to it
 *
 * Server and runners are copies of init that never run code of the sandbox. Processes inside have
 * the same user: they can kill them, which ends sockets and is thereby noticed, or stop them, for
 * which the caller has deadlines, but cannot trace them (not dumpable) or reach their sockets.
 *
 * All sockets are SOCK_SEQPACKET pairs; what comes from the caller is trusted.
 */
#pragma once

#include <stdint.h>
#include "base/err.h"

/* From the server, once, when ready or failed; later a byte for each request that it has taken. */
struct cg_command_server_ready {
        uint32_t ok;
        struct cg_err err;
};

/*
 * To the server: this byte, with the descriptors in this order. The specification is a file with
 * struct cg_command_spec and the texts, each with its NUL: folder ("": the plan's), arguments,
 * variables, which replace or join those of the plan. With a terminal the last three are absent.
 */
#define CG_COMMAND_REQUEST 'c'
/* How long killed processes of a command may take to end: they may hang on a dead disk. */
#define CG_COMMAND_END_MS 5000
enum {
        CG_COMMAND_SPEC_FD,
        CG_COMMAND_ORDERS_FD,
        CG_COMMAND_STDIN_FD,
        CG_COMMAND_FDS = CG_COMMAND_STDIN_FD + 3
};

struct cg_command_spec {
        uint32_t argc, envc;
        uint32_t builtin;  /* an operation of files.h */
        uint32_t terminal; /* its own terminal, of this size */
        uint16_t rows, columns;
        uint32_t text_len;
};

/* To the runner. The end of its socket is CG_COMMAND_END, too. */
struct cg_command_order {
        enum { CG_COMMAND_SIGNAL = 1, CG_COMMAND_END } type;
        int32_t signal; /* to the program's process group */
};

/*
 * From the runner: STARTED (with a terminal: and its other end as a descriptor) or FAILED; after
 * STARTED, ENDED. The socket ends when no process of the command is left.
 */
struct cg_command_report {
        enum { CG_COMMAND_STARTED = 1, CG_COMMAND_FAILED, CG_COMMAND_ENDED } type;
        int32_t pid;       /* inside */
        int32_t exit_code; /* -1: ended by @signal */
        int32_t signal;
        struct cg_err err; /* of FAILED */
};

struct cg_spawn;

/*
 * The server; runs in a child of init. @sp: with listener_in for the filter's listener. @sock: to
 * the caller. Does not return.
 */
_Noreturn void cg_command_server_run(const struct cg_spawn *sp, int sock);
