/*
 * The Jupyter front: one session of the C API, served to any number of Jupyter clients. Owns the
 * five sockets; has no access to the kernel but the C API. Runs in `cellgate jupyter`, a host
 * application like any other.
 */
#pragma once

#include "base/buf.h"
#include "base/log.h"

enum cg_front_answer {
        CG_FRONT_REFUSE = 0,
        CG_FRONT_ACCEPT,
        CG_FRONT_ASK,
};

/* Decisions about tool calls by rules, and the text that shows a call to a person. */
struct cg_front_judge {
        void *data;
        /* About a call or a connection. @why: the reason of a refusal. */
        enum cg_front_answer (*decide)(void *data, const struct cg_event *e, struct cg_buf *why);
        /*
         * The question about a call as safe text. @digits: of the accepting words. @part: 0 for the
         * first view, which may leave something out; N for the Nth part of the whole. *last:
         * nothing follows. @all_shown: all was shown before; until then accepting words are not
         * offered.
         */
        int (*show)(void *data, const struct cg_event *e, size_t part, bool all_shown, const char *digits,
                    bool *last, struct cg_buf *text);
        /*
         * Checks the rules against the MCP servers that were added, with their @report (NULL: it
         * failed) and definitions (@mcp, may be NULL). Appends remarks to @notes, a line each.
         * Negative: the kernel must not start.
         */
        int (*check)(void *data, const char *report, const char *mcp, size_t mcp_len, struct cg_buf *notes,
                     struct cg_err *err);
        /* May the answer be "always"? */
        bool (*may_last)(void *data, const struct cg_event *e);
        /* The reason that the code gets when nobody can be asked about the call. */
        void (*nobody)(void *data, const struct cg_event *e, struct cg_buf *why);
        /* May it be "always", with the same arguments? */
        bool (*may_repeat)(void *data, const struct cg_event *e);
        /*
         * The answer was "always" (@same: with the same arguments); a person has accepted the call,
         * or has refused it.
         */
        void (*always)(void *data, const struct cg_event *e, bool same);
        void (*accepted)(void *data, const struct cg_event *e);
        void (*refused)(void *data, const struct cg_event *e);
};

struct cg_front_options {
        const char *connection_file;
        const struct cg_client_options *client;
        const struct cg_session_options *session; /* of a new session */
        /* id of a session to take part in, instead of a new one; or NULL */
        const char *attach;
        const char *mcp; /* text of MCP servers' definitions, or NULL */
        size_t mcp_len;
        struct cg_front_judge judge;
        /* of streams and displays for each cell; 0: 64 MiB */
        size_t output_bytes;
        pid_t parent; /* ends when this process does; 0: none */
        /* gets a byte once clients can connect, and is closed (takes); 0: none */
        int ready_fd;
        /* prints the connection file's path once clients can connect */
        bool announce;
        /* a kernel that ends is not replaced: the client notices, and runs no further cell */
        bool ends_with_kernel;
        struct cg_log log;
};

/*
 * Serves until a client, a signal, the parent's or the session's end ends it. 0; negative when it
 * could not be started, or the session ended by itself. *hangs: leave by _exit(), since not all was
 * freed: a thread is still blocked in the library, by a slow MCP server for example, or somebody
 * waits for this process's end. The supervisor notices that, and ends the rest.
 */
int cg_front_run(const struct cg_front_options *o, bool *hangs, struct cg_err *err);
