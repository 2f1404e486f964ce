/* SPDX-License-Identifier: Apache-2.0 */
/**
 * cellgate.h - run an agent's Python in a sandboxed IPython kernel, and let no MCP tool call happen
 * unapproved
 *
 * The program that includes this header is the *host application*. A client is a connection to a
 * supervisor; a session is one sandboxed IPython kernel with its workspace, its MCP servers and its
 * approvals; a cell is a piece of Python. Everything that happens in a session reaches the host as
 * a stream of events, in order:
 *
 *      cg_client_open()  ->  cg_session_new()  ->  cg_session_execute()  ->
 *      cg_session_next_event() ...
 *
 * Results.   0 is success. A negative number is one of CG_E_*, and *err (where given) says what
 *            happened and what to do. A positive number is a named outcome the caller must handle
 *            (CG_TIMEOUT, CG_CLOSED).
 * Ownership. Arguments are borrowed for the time of the call. What a function *returns* through a
 *            `ret` argument belongs to the caller, who frees it with the function named there.
 *            `ret` is written on success only.
 * Threads.   A client may be used by several threads at once. A session may be used by one thread
 *            at a time, except for cg_session_cancel(), cg_approval_accept(), cg_approval_reject(),
 *            cg_approval_expire(), cg_function_return(), cg_server_request_answer(),
 *            cg_server_request_decline() and cg_session_input(), which any thread may call while
 *            another waits in cg_session_next_event(). The library has one thread of its own for
 *            each client; it never calls back into the host.
 * Time.      Milliseconds; -1 waits for ever where a function says so.
 * Text.      UTF-8. Text from a kernel or an MCP server is untrusted: show it to a person through
 *            cg_render().
 */
#ifndef CELLGATE_H
#define CELLGATE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define CG_API __attribute__((visibility("default")))
#else
#define CG_API
#endif

/* ------------------------------------------------------------------ errors */

enum {
        CG_E_NOMEM = -1,        /* out of memory */
        CG_E_SYS = -2,          /* a system call failed; err->sys_errno says how */
        CG_E_INVAL = -3,        /* the caller's argument is wrong */
        CG_E_PROTO = -4,        /* the other side broke the protocol */
        CG_E_LIMIT = -5,        /* a size, count or depth is over its ceiling */
        CG_E_NOTFOUND = -6,     /* no such thing */
        CG_E_EXISTS = -7,       /* it is there already */
        CG_E_STATE = -8,        /* not now: the thing is not in a state that allows it */
        CG_E_CLOSED = -9,       /* the connection, session or process has ended */
        CG_E_UNSUPPORTED = -10, /* this machine or build cannot do it */
        CG_E_TIMEDOUT = -11,    /* it did not happen in time */
        CG_E_PARSE = -12,       /* text is not what it should be; the message has line and column */
        CG_E_BUSY = -13,        /* the node is full or being drained: try another one, or later */
};

enum {
        CG_TIMEOUT = 1, /* nothing happened in the time given */
        CG_CLOSED = 2,  /* the session has ended and every event has been read */
};

/*
 * An error, with a message for a person: what failed, on what, and what to do. Fixed size, needs
 * no freeing.
 */
struct cg_err {
        int code;       /* one of CG_E_* */
        int sys_errno;  /* errno where code is CG_E_SYS, else 0 */
        char msg[1000]; /* NUL-terminated UTF-8; ends in "..." where it was cut */
};

/** cg_version() - the library's version, as "0.1.0". The string is static. */
CG_API const char *cg_version(void);

/* ------------------------------------------------------------------ client */

struct cg_client;

struct cg_client_options {
        /* sizeof(struct cg_client_options): set it, so that later versions can add fields */
        size_t size;
        /*
         * folder of a running supervisor (`cellgate-supervisor --dir`); NULL starts a private one
         * that ends with this client. See `start`
         */
        const char *address;
        const char *supervisor; /* program to start; NULL for the installed cellgate-supervisor */
        /* comma-separated modules that the zygote imports before any kernel; NULL none */
        const char *preload;
        /*
         * messages of a private supervisor: 0 errors (the default of zeroed options), 1 warnings, 2
         * information, 3 debugging
         */
        int log_level;
        /*
         * file descriptor for the log of a private supervisor, which gets a copy; 0 or negative:
         * standard error
         */
        int log_fd;
        int64_t timeout_ms; /* longest wait for the supervisor to answer; 0: 30 s */
        /*
         * 1: a private supervisor starts no session in advance. 0: after a session has opened, it
         * starts another one with the same options (about 9 MB), which the next cg_session_new()
         * with these options gets at once
         */
        int no_spare;
        /*
         * 1: start a supervisor at `address` if none runs there. Clients share it; it ends
         * `linger_ms` after the last of them has disconnected. 0: no supervisor there is an error.
         * The folder must not exist, or contain only files that a supervisor has left
         */
        int start;
        /*
         * for `start`: time that the supervisor, its zygote and its spares stay without a client;
         * 0: 10 min, with `share` in a job of a batch system 5 s
         */
        int64_t linger_ms;
        /* for `start` and private supervisors: sessions started in advance; 0: 1 (no_spare) */
        int spares;
        /*
         * environment that kernels run in, for `start` and private supervisors: a name that
         * `cellgate env` has made, or a folder or its interpreter (with a slash in it); NULL: the
         * built-in one. It must be of the Python version that cellgate was built with, and have
         * IPython. Its code runs outside of the sandbox as well: a session whose cells could write
         * there is refused. Kernels see it read-only
         */
        const char *kernel_env;
        /*
         * 1, without `address`: the supervisor that this user's programs share, which is started if
         * there is none. Only clients whose limits, rights and environment are the same for a
         * supervisor, and their options here, have the same one (docs/architecture.md, Shared
         * supervisors). Other clients can neither list this client's sessions nor attach to them,
         * except with CG_FRONT_JUPYTER. Where no shared supervisor can be used, the client has a
         * private one: see cg_client_why_private()
         */
        int share;
        /*
         * for `start`, private and shared supervisors, for sessions with `audit` (docs/audit.md):
         * absolute path of the key that signs the log (mode 0600) instead of the log's own; and the
         * absolute path of a file, or an http or https URL, that gets each signed head. Cells see
         * neither file. NULL: none
         */
        const char *audit_key, *audit_head;
        /*
         * where this client's user decides about questions of others (cg_client_decide()), as named
         * by `approvers` of their sessions, and the user's name for the audit log, at most 100
         * bytes each; NULL: at a terminal (CG_DECIDERS_USER), and none
         */
        const char *place, *approver;
        /*
         * command, NULL-terminated words, that reaches another machine (the node): "ssh", "host",
         * or `kubectl exec -i POD --`, `srun --jobid=N --overlap`. Sessions run there, in a
         * supervisor of their own that ends with this client. `cellgate relay` is appended unless
         * the last word ends with "relay"; the command has no terminal to ask at. Functions and
         * their approvals stay here; what the node says of itself (information, costs, denials,
         * connections) is its word. `workspace`, `kernel_env`, `python_path` and `hide` are paths
         * there. MCP servers run here. Not possible: masked credentials, `audit`
         * (docs/cluster.md). Several commands, between which the word ";" stands, are tried in
         * random order while one is busy (CG_E_BUSY) or cannot be reached; one alone three times
         * while it is busy. NULL: this machine
         */
        const char *const *connect;
        /*
         * for `connect`: when the connection is lost, the command is started again; for so long the
         * sessions wait on both sides, and go on as if nothing had happened. 0: 30 s, in a job of a
         * batch system not; negative: not; at most an hour
         */
        int64_t detach_ms;
};

/**
 * cg_client_open() - connect to a supervisor, or start a private one
 * @opts: options (borrows); NULL for a private supervisor with defaults
 * @ret:  the client (returns; cg_client_close())
 * @err:  set when negative; may be NULL
 * Return: 0; negative: CG_E_SYS or CG_E_TIMEDOUT when the supervisor does not start or answer,
 *         CG_E_PROTO when it speaks another version, CG_E_BUSY when nodes of `connect` are full.
 * Threads: any.  A private supervisor has no address that another process could connect to once
 *          this returns.
 */
CG_API int cg_client_open(const struct cg_client_options *opts, struct cg_client **ret, struct cg_err *err);

/**
 * cg_client_close() - end all sessions of this client and the connection; a private supervisor ends
 * with it
 * @c: client (takes); NULL is allowed. Sessions that were not freed before stay valid for
 *     cg_session_free() only.
 * Return: NULL. Returns when a private supervisor and all its processes are gone, 10 s at the
 *         latest (then it kills them).
 */
CG_API struct cg_client *cg_client_close(struct cg_client *c);

/**
 * cg_client_why_private() - why the client has a private supervisor although it asked to share one
 * @c: client (borrows)
 * Return: a sentence, which lives as long as the client; NULL: it shares one, or did not ask to.
 */
CG_API const char *cg_client_why_private(const struct cg_client *c);

/**
 * cg_client_status() - the client's supervisor and its clients
 * @ret: a JSON object text (returns; cg_free()): {"version", "pid", "address", "uptime_ms",
 *       "linger_ms": missing where it does not end by itself, "kernel_env", "preload", "spares",
 *       "spare_workspaces": [path]: folders that these keep in use, "memory_bytes": of all its
 *       processes, where pages that they share count once, "queue": {"running", "waiting", "paused",
 *       "ended", "refused", "average_ms", "max_concurrent_jobs", "max_commands_per_session",
 *       "max_queue"} (docs/jobs.md),
 *       "clients": [{"pid", "sessions", "own": bool}], "sessions" of all clients, "slots" of a node
 *       (0: none), "draining": bool, "questions" that wait, "started", "refused": sessions so far,
 *       "start_p50_ms", "start_p99_ms": from the request to the answer, of the last 512}
 * Return: 0; negative.
 */
CG_API int cg_client_status(struct cg_client *c, char **ret, struct cg_err *err);

/**
 * cg_client_stop() - end the client's supervisor with all sessions
 * @force: 0: CG_E_STATE where other clients have sessions
 * Return: 0 when it has begun to end; negative.
 */
CG_API int cg_client_stop(struct cg_client *c, int force, struct cg_err *err);

/*
 * Questions that wait in sessions with CG_DECIDERS_USER, also in those of other clients of the same
 * supervisor; for a client with a `place`, in sessions whose `approvers` name it. Threads: any.
 */

/**
 * cg_client_approvals() - list them
 * @ret: a JSON object text (returns; cg_free()): {"approvals": [...], at most 256, "more": how many
 *       are not listed, "others": how many others wait that only their own client decides}. Each has
 *       "id" (random, never used again), "method" of cg_event_method() or "connect", "server",
 *       "tool", or "host" and "port"; "cell", "waiting_ms", "left_ms" (missing: no limit),
 *       "session", "workspace", "front" and "pid" of the client that opened the session. Server,
 *       tool and host are untrusted: show them through cg_render().
 * Return: 0; negative.
 */
CG_API int cg_client_approvals(struct cg_client *c, char **ret, struct cg_err *err);

/**
 * cg_client_approvals_fd() - to poll: readable once the list may differ from the one that
 * cg_client_approvals() has returned last, and when the connection has ended
 * Return: a descriptor of the client's; negative.
 */
CG_API int cg_client_approvals_fd(struct cg_client *c, struct cg_err *err);

/**
 * cg_client_approval() - one of them, whole
 * @id:  as listed
 * @ret: a JSON object text (returns; cg_free()): as listed, with "arguments", exactly their bytes as
 *       a string, "code", that of the cell if it is known, else "", and "digest" of server, method,
 *       tool and arguments. All of it is untrusted.
 * Return: 0; negative: CG_E_NOTFOUND: it does not wait (any more).
 */
CG_API int cg_client_approval(struct cg_client *c, const char *id, char **ret, struct cg_err *err);

/**
 * cg_client_decide() - decide about one of them, once; its own client gets
 * CG_EVENT_APPROVAL_CLOSED
 * @digest: of cg_client_approval(), which was shown
 * @accept: 1: exactly this may happen, once; 0: refuse it
 * @reason: as of cg_approval_reject(); NULL for none
 * Return: 0; negative: CG_E_NOTFOUND: it does not wait (any more), such as when somebody else was
 *         first; CG_E_INVAL: the digest is of another question; CG_E_STATE: it was refused, since
 *         the decision to accept could not be recorded in the audit log.
 */
CG_API int cg_client_decide(struct cg_client *c, const char *id, const char *digest, int accept,
                            const char *reason, struct cg_err *err);

/* ------------------------------------------------------------------ session */

struct cg_session;

enum cg_sandbox_mode {
        /*
         * the default: namespaces, read-only file system but for the workspace, no network, seccomp
         */
        CG_SANDBOX_ON = 0,
        /*
         * none: code in the kernel can do everything that the user can, without tools and so
         * without approval
         */
        CG_SANDBOX_OFF = 1,
};

/* The kind of front-end whose cells the session runs. */
enum cg_front {
        CG_FRONT_AGENT = 0, /* an agent, or a program: a cell cannot end the session */
        /* a Jupyter client: exit() and quit() ask it, in the RESULT's payload, to end the kernel */
        CG_FRONT_JUPYTER = 1,
        CG_FRONT_MCP = 2, /* an agent that has the tool install_package: advice names it */
};

/* Who may decide about a session's calls, programs and connections. */
enum cg_deciders {
        CG_DECIDERS_HOST = 0, /* only the client that opened the session */
        /*
         * also this user's other clients of the supervisor, about what the host shares with them
         * (cg_approval_share()): cg_client_decide(), `cellgate approvals`. The first decision
         * counts. Only with a sandbox and with `share`, since that supervisor refuses clients in
         * any sandbox; every other program of this user can decide
         */
        CG_DECIDERS_USER = 1,
};

struct cg_session_options {
        size_t size; /* sizeof(struct cg_session_options) */
        /*
         * folder that the kernel may write, its working directory; NULL: the current one. Cells can
         * change all files in it, except existing files that programs obey, such as a repository's
         * hooks and settings, .mcp.json, .vscode and .bashrc (docs/settings.md). Other files that
         * the host runs later should be outside of it, or named in `hide`
         */
        const char *workspace;
        /*
         * "NAME=VALUE"..., NULL-terminated: variables for the kernel, which inherits none of the
         * host's; NULL none
         */
        const char *const *env;
        /* folders for the kernel's sys.path, shown read-only inside; NULL-terminated; NULL none */
        const char *const *python_path;
        enum cg_sandbox_mode sandbox;
        int color; /* 1: ANSI colour in tracebacks and tools; 0: plain text */
        /*
         * Limits: 0 is none, or the one in `settings`. The mechanism of each, and whether it
         * applies to a process or the sandbox, depend on the machine: see cg_session_info(). A
         * CG_EVENT_DENIED names a limit that was reached.
         */
        /*
         * all processes and files in memory together, where there is a control group; and the data
         * of each process (RLIMIT_DATA), so that one allocation that is too large fails where it is
         * made. 0: half of the machine's memory, or of what the supervisor may have of it; without
         * a sandbox no limit. Files in the private /tmp, /var/tmp and /dev/shm are limited to 1 GiB
         * each in any case
         */
        uint64_t memory_bytes;
        /*
         * processes and threads in the sandbox; 0: 512. Without a sandbox 0 is no limit, since
         * there all that the user runs may count
         */
        uint64_t processes;
        uint64_t file_bytes; /* largest file that can be written */
        int64_t timeout_ms;  /* longest wait for the kernel's start; 0: 30 s */
        /* a call not decided in this time is refused; 0: no limit of its own */
        int64_t approval_timeout_ms;
        /*
         * absolute paths of files and folders that the kernel can neither read nor change, such as
         * definitions of MCP servers in the workspace; those that do not exist when a kernel starts
         * are not kept from being made; NULL-terminated; NULL none
         */
        const char *const *hide;
        /*
         * current directory of every cell, which is restored after a cell that has changed it, with
         * a notice; NULL: the first cell starts in the workspace, and a cell's change stays
         */
        const char *working_dir;
        enum cg_front front;
        /*
         * settings of the sandbox, JSON object text (docs/settings.md); relative paths start at the
         * workspace. NULL: the default settings, in which all files but credentials and `hide` may
         * be read, the workspace may be written, and there is no network. Other settings must allow
         * to write the workspace ("allowWrite": ["."])
         */
        const char *settings;
        /*
         * 1: a host that no entry of the settings decides causes a
         * CG_EVENT_EGRESS_REQUEST; 0: it is refused. Not with "strictAllowlist". The same for the
         * settings of MCP servers' own sandboxes
         */
        int ask_egress;
        /* More limits. */
        /* processor time for each second: 1500 is one and a half CPUs */
        uint64_t cores_milli;
        uint64_t open_files; /* of each process; 0: 4096 */
        /*
         * processor time of a kernel: of all its processes together where there is a control group,
         * else of each; then the kernel ends
         */
        uint64_t cpu_seconds;
        uint64_t wall_seconds; /* the session's time, from its opening; then it ends */
        uint64_t output_bytes; /* printed and shown by one cell; the rest is left out */
        /*
         * "full", "landlock" or "auto" (docs/settings.md, Tiers); NULL: the tier in the settings,
         * or else "full". Where the machine has no such tier, no session opens, and the error has
         * the reason
         */
        const char *tier;
        /*
         * 1: errors and hints about limits name options of the command cellgate (--limit memoryMb)
         * instead of members of this struct
         */
        int cli_hints;
        /*
         * The requests of MCP servers to their client that the host answers: bits of enum
         * cg_server_requests. Only these are offered to servers, and everything else is declined
         */
        unsigned server_requests;
        /*
         * whether cells may start programs (docs/settings.md, Programs of cells): "allow", "deny",
         * "ask" (each causes a CG_EVENT_APPROVAL_REQUEST), or rules, a JSON object text; NULL: as
         * in `settings`, or else "allow". Commands of cg_session_exec() are not concerned.
         * CG_E_UNSUPPORTED where nothing could enforce it
         */
        const char *exec;
        /*
         * records what happens in the session in this user's audit log (docs/audit.md): "strict",
         * where what cannot be recorded does not happen, or "best-effort", where a
         * CG_EVENT_NOTICE says so; NULL: nothing is recorded
         */
        const char *audit;
        enum cg_deciders deciders;
        /*
         * policy files (docs/policy.md), NULL-terminated; NULL none. They decide about calls,
         * programs and connections in cg_session_next_event(): the host gets only the questions
         * that they ask or leave open. CG_E_INVAL for files that cells could write. Rules about
         * programs set `exec` to "ask"; those about connections need `ask_egress`. A call that
         * cg_approval_reject() has refused is refused again without a question
         */
        const char *const *policies;
        /*
         * as CG_DECIDERS_USER, of clients at other places than terminals: names of places with
         * commas between. "mcp" are processes of `cellgate mcp serve --toolsets approvals`; NULL
         * none
         */
        const char *approvers;
        /*
         * the language of the cells (docs/languages.md): "python" or NULL; "shell", which one bash
         * runs that stays; "node"; "jupyter:NAME", a kernel that is installed for Jupyter.
         * Everything else is as with Python, except what docs/languages.md names
         */
        const char *language;
        /* the program of "node"; NULL: the first `node` of PATH */
        const char *node;
        /*
         * 1: the files that each cell made or changed are named in its RESULT, and a list of them
         * is signed with the key of the audit log, which `audit` must turn on: docs/audit.md,
         * Signed files. CG_E_INVAL without a sandbox, where cells could sign themselves
         */
        int sign_artifacts;
        /*
         * name of a group of the user's sessions, for lists and cg_client_events(): up to 64
         * letters, digits and "._-"; NULL: "default". It separates what is shown, and protects nothing
         */
        const char *namespace_name;
};

enum cg_server_requests {
        /* a form for a person to fill in: "elicitation/create" without a mode, or of "form" */
        CG_SERVER_REQUEST_ELICITATION = 1,
        /* a message of the host's language model: "sampling/createMessage" */
        CG_SERVER_REQUEST_SAMPLING = 2,
        /* an http or https page for a person to open: "elicitation/create" of the mode "url" */
        CG_SERVER_REQUEST_URL = 4,
};

/**
 * cg_session_new() - start a session: a fresh kernel, sandboxed unless options say otherwise
 * @c:    client (borrows, for the session's whole life)
 * @opts: options (borrows); NULL for defaults
 * @ret:  the session (returns; cg_session_free())
 * @err:  set when negative; may be NULL. A step of the sandbox that this machine cannot do is an
 *        error here.
 * Return: 0; negative.
 */
CG_API int cg_session_new(struct cg_client *c, const struct cg_session_options *opts, struct cg_session **ret,
                          struct cg_err *err);

/**
 * cg_session_attach() - take part in a session that another client of the same supervisor has
 * opened
 * @c:   client with an address (borrows, for the session's whole life)
 * @id:  the session's id, from cg_session_id() or cg_client_sessions()
 * @ret: the session (returns; cg_session_free(), which leaves it and ends nothing)
 * Return: 0; negative: CG_E_NOTFOUND when there is no such session.
 *
 * Cells and requests of this client run in the same kernel, each with its own events. Those of the
 * others are seen too: cg_event_foreign() is 1, and an EXECUTE_INPUT event with the code starts
 * each cell. Approvals stay with the client that opened the session. Reset, MCP servers and the
 * session's end are the opener's: CG_E_STATE here. A client that attaches and does not read its
 * events is detached when 32 MiB wait: its session closes, the others go on.
 */
CG_API int cg_session_attach(struct cg_client *c, const char *id, struct cg_session **ret,
                             struct cg_err *err);

/**
 * cg_client_sessions() - the sessions of the client's supervisor that are open, spares left out
 * @ret: a JSON array text (returns; cg_free()): [{"id", "workspace", "sandbox": bool, "python",
 *       "running": bool, "own": bool}]
 * Return: 0; negative.
 */
CG_API int cg_client_sessions(struct cg_client *c, char **ret, struct cg_err *err);

/**
 * cg_client_jobs() - the sessions of all clients of the supervisor, and what runs and waits there
 * @ret: a JSON array text (returns; cg_free()): [{"id", "workspace", "namespace", "language",
 *       "front", "pid": of its client, "sandbox": bool, "uptime_ms", "jobs": [{"id", "kind": "cell"
 *       or "command", "state": "running", "paused" (it waits for an answer or a tool) or "waiting",
 *       "ms": how long}]}]
 * Return: 0; negative.
 */
CG_API int cg_client_jobs(struct cg_client *c, char **ret, struct cg_err *err);

/**
 * cg_client_session_kill() - end a session, also one of another client, which gets
 * CG_EVENT_SESSION_CLOSED
 * @id: of cg_client_jobs()
 * Return: 0; negative: CG_E_NOTFOUND.
 */
CG_API int cg_client_session_kill(struct cg_client *c, const char *id, struct cg_err *err);

/**
 * cg_client_job_cancel() - what cg_session_cancel() does, also for a job of another client
 * @id: of a job of cg_client_jobs()
 * Return: 0; negative: CG_E_NOTFOUND when it neither runs nor waits.
 */
CG_API int cg_client_job_cancel(struct cg_client *c, const char *id, struct cg_err *err);

struct cg_events_options {
        size_t size; /* sizeof(struct cg_events_options) */
        /*
         * only later events than this number: "last" of the call before; 0: also the oldest that are
         * kept (4096, or 4 MiB)
         */
        uint64_t after;
        int64_t since_ms;           /* only events since then, of CLOCK_REALTIME; 0: all */
        const char *namespace_name; /* only of sessions with this name; NULL: all */
};

/**
 * cg_client_events() - what has happened in the sessions of all clients of the supervisor
 * @opts: options (borrows); NULL for defaults
 * @ret:  a JSON object text (returns; cg_free()): {"events": [...], at most 256, "last": for `after`
 *        of the next call, "lost": events after `after` that are not kept any more}. Each has "type"
 *        (docs/events.md), "time" in seconds, "seq" (one more than the event before), "namespace",
 *        "session_id", "execution_id" (of a job of cg_client_jobs(), or null), "message", which is
 *        safe to show, and "data". Text in "data" is untrusted. Secrets of `env` are "***"
 * Return: 0, perhaps with no events; negative.
 */
CG_API int cg_client_events(struct cg_client *c, const struct cg_events_options *opts, char **ret,
                            struct cg_err *err);

/**
 * cg_client_events_fd() - to poll: readable once there may be events after the "last" of the last
 * cg_client_events() that has returned none, and when the connection has ended
 * Return: a descriptor, which lives as long as the client; negative.
 */
CG_API int cg_client_events_fd(struct cg_client *c, struct cg_err *err);

/**
 * cg_session_add_event() - report something that only the host knows
 * @type:    "package.installed", "artifact.signed" or "vault.accessed"
 * @message: one line (borrows)
 * @data:    a JSON object text (borrows); NULL: {}
 * Return: 0; negative: CG_E_INVAL for another type.
 */
CG_API int cg_session_add_event(struct cg_session *s, const char *type, const char *message, const char *data,
                                struct cg_err *err);

/**
 * cg_session_own_decision() - record in the audit log what the host has decided about a tool of its
 * own, whose calls are not made by cells
 * @server: what the host calls itself, such as "cellgate" (borrows)
 * @args:   JSON object text of @len bytes (borrows)
 * @reason: of a refusal why; of an acceptance the rule, "" if a person has accepted (borrows)
 * Return: 0, also without an audit log; negative: with `audit` "strict" an acceptance could not be
 *         recorded, so the tool must not run.
 */
CG_API int cg_session_own_decision(struct cg_session *s, const char *server, const char *tool,
                                   const char *args, size_t len, int accept, const char *reason,
                                   struct cg_err *err);

/**
 * cg_client_runtimes() - the languages that sessions of this client can have (docs/languages.md)
 * @node: as in struct cg_session_options
 * @ret:  a JSON array text (returns; cg_free()): [{"language", "version", "path", "available": bool,
 *        "why": why not, or null, "start_ms": until the first cell had ended, "state": bool,
 *        "tools": bool, "packages": "pip" or null}]; kernels of Jupyter also have "kernelspec", its
 *        file, and "env", the variables that it sets
 * Return: 0; negative.
 *
 * Opens a session of each with an empty workspace, and runs a cell in it. Kernels of Jupyter are
 * not started; on another machine they are not listed.
 */
CG_API int cg_client_runtimes(struct cg_client *c, const char *node, char **ret, struct cg_err *err);

/*
 * cg_session_free() - end the session: its kernel, its MCP servers and its open approvals. Returns
 * NULL. NULL is allowed. When it has returned, no code of the session runs any more, and its files
 * are as they stay; the system may free the kernel's memory a little later.
 */
CG_API struct cg_session *cg_session_free(struct cg_session *s);

/*
 * cg_session_id() - the session's id: lower-case hexadecimal, unique for the supervisor. Lives as
 * long as the session.
 */
CG_API const char *cg_session_id(const struct cg_session *s);

/**
 * cg_session_info() - what protects this session, as a JSON object text
 *
 * {"sandbox": true, "exec": "allow", "tier": "full", "layers": ["user", "mount", ...], "python":
 * "3.11.2", "ipython": "9.1.0", "language": "python", "debugger": false, "limits": {"memory":
 * {"value": 512, "unit": "MiB", "by": "cgroup v1", "scope": "sandbox"}, ...}}. `by` is the mechanism of a limit: "cgroup v2", "cgroup
 * v1", "rlimit", "pid namespace", "affinity", "timer", "count", or "nothing" if this machine has
 * none; `scope` is the unit that is counted: "sandbox", "process", "file", "cell", "session".
 * `tier` is "full", "landlock" (then "landlock_abi" is Landlock's version) or "off". Lives as long
 * as the session.
 */
CG_API const char *cg_session_info(const struct cg_session *s);

/**
 * cg_session_reset() - replace the kernel by a fresh one; workspace, MCP servers and wrappers stay
 * @timeout_ms: longest wait for the new kernel; 0: 30 s
 * Return: 0; negative. A running cell ends with a CG_EVENT_RESULT of status CG_STATUS_CANCELLED
 *         first.
 */
CG_API int cg_session_reset(struct cg_session *s, int64_t timeout_ms, struct cg_err *err);

/**
 * cg_session_add_mcp_servers() - define MCP servers and generate their typed wrapper modules
 * @s:          session
 * @json:       the `mcpServers` object that MCP clients use, or an object with that key or
 *              "servers" (VS Code): {"NAME": {"command": "...", "args": [...], "env": {...}, "cwd":
 *              "..."}}. ${VAR} and ${VAR:-DEFAULT} in its strings are taken from this process's
 *              environment. Without "cwd" a server starts in a private folder. "startTimeout"
 *              (seconds) takes the place of @timeout_ms. Servers with "disabled": true or
 *              "enabled": false are left out; docs/mcp-servers.md has all keys, others are ignored.
 *              Names have no dot, since approval rules say SERVER.TOOL, and are not "cellgate".
 * @len:        bytes of @json
 * @timeout_ms: longest wait for one server's start and tool list; 0: 60 s
 * @ret:        report, a JSON object text (returns; cg_free()); may be NULL: {"NAME": {"package":
 *              "PACKAGE", "tools": [{"tool", "module", "status": "full" | "degraded" | "rejected",
 *              "warnings": [{"pointer", "text"}]}]}}: the tool named "tool" is
 *              mcptools.PACKAGE.MODULE in the kernel. For a server that could not be added:
 *              {"NAME": {"error": "..."}}; importing its package raises an ImportError with that
 *              text. A member "pins" is there where tools are new or are not called because they
 *              have changed since they were accepted: {"file", "first", "new": ["TOOL"], "changed":
 *              [{"tool", "state": "changed" | "held" | "ambiguous" | "invalid", "diff"}], "text"};
 *              "first" and "text" are for people, and safe to show. Later changes come as
 *              CG_EVENT_NOTICE.
 *              "started": false is there for a server that was not started, because its tools are
 *              known from the last time: the first call starts it. "start": "eager" in a definition
 *              prevents this
 * @err:        set when negative; may be NULL
 * Return: 0: some server was added, or there was none to be added; negative: none was. A name that
 *         exists already is replaced, unless the new server fails; calls to it that wait for a
 *         decision then fail (CG_EVENT_APPROVAL_CLOSED).
 *
 * A definition that leads to code which cells of a session can write ("cwd", variables, command or
 * arguments) is an error of that server; so is a program in a folder that cells of the client's
 * sessions could write when some ran: add servers before the first cell.
 *
 * Programs and scripts in folders below a write root become read-only for all kernels of the
 * client, with what belongs to them (their folder, virtual environment, node_modules). A kernel
 * that has run no cell is replaced for that.
 *
 * While a server does not answer, a CG_EVENT_PROGRESS comes every few seconds, for hosts that read
 * events in another thread.
 *
 * The kernel never sees the definition: it names server and tool, no more. After this the session's
 * cells can say `from mcptools.PACKAGE import MODULE`.
 */
CG_API int cg_session_add_mcp_servers(struct cg_session *s, const char *json, size_t len, int64_t timeout_ms,
                                      char **ret, struct cg_err *err);

/* ------------------------------------------------------------------ functions of the host */

struct cg_functions_options {
        size_t size; /* sizeof(struct cg_functions_options) */
        /*
         * 1: each call is a CG_EVENT_APPROVAL_REQUEST first, and a CG_EVENT_FUNCTION_CALL once it
         * was accepted; 0: what the host returns is its decision
         */
        int ask;
};

/**
 * cg_session_add_functions() - let cells call functions that the host carries out
 * @name:  of the set, as of an MCP server, and in one series with the servers' names
 * @tools: JSON array of definitions as in MCP's tools/list: {"name", "description", "inputSchema",
 *         "outputSchema", "annotations"}. Replaces the set of that name, if there is one, whose
 *         calls that wait then fail; [] leaves it without functions. From the next cell on,
 *         imports give the new ones
 * @len:   bytes of @tools, at most 512 KiB
 * @opts:  options (borrows); NULL for defaults
 * @ret:   report as of cg_session_add_mcp_servers() (returns; cg_free()); may be NULL. A function
 *         whose schema cannot be used is "rejected" in it; its arguments are not checked
 * Return: 0; negative, and then nothing has changed: CG_E_EXISTS when an MCP server has the name,
 *         or another name has the same package, CG_E_INVAL, CG_E_PARSE, CG_E_LIMIT (sets and
 *         servers: 64 in all).
 *
 * Cells call `from mcptools.PACKAGE import MODULE; MODULE.run(...)`, as they call tools of servers.
 * Code in the kernel can leave out the modules and their check of arguments: a function must check
 * its arguments itself, and must expect calls of any number, at most 256 at once. There is no MCP
 * server and no process, and calls go on when the tool server ends. The cell's clock stands still
 * during a call.
 */
CG_API int cg_session_add_functions(struct cg_session *s, const char *name, const char *tools, size_t len,
                                    const struct cg_functions_options *opts, char **ret, struct cg_err *err);

enum cg_function_outcome {
        /* @data: any JSON value, which run() returns as it is, or as the outputSchema says */
        CG_FUNCTION_VALUE,
        /* @data: a CallToolResult of MCP, {"content": [...], "structuredContent", "isError"} */
        CG_FUNCTION_RESULT,
        CG_FUNCTION_ERROR,   /* @data: text of the ToolError that the call raises */
        CG_FUNCTION_REFUSED, /* @data: reason of the RejectedError that the call raises */
};

/**
 * cg_function_return() - end the call of a CG_EVENT_FUNCTION_CALL, once
 * @call: from cg_event_approval()
 * @data: JSON or text, by @outcome (copies); the result with what MCP puts around a value has at
 *        most 64 MiB
 * Return: 0; negative: CG_E_NOTFOUND when no such call waits (any more); CG_E_PARSE, CG_E_INVAL or
 *         CG_E_LIMIT with what is wrong: it then still waits.
 */
CG_API int cg_function_return(struct cg_session *s, uint64_t call, enum cg_function_outcome outcome,
                              const char *data, size_t len, struct cg_err *err);

/* ------------------------------------------------------------------ cells */

struct cg_execute_options {
        size_t size; /* sizeof(struct cg_execute_options) */
        /* longest running time of the cell, without waits for approvals; 0: no limit */
        int64_t timeout_ms;
        int silent; /* 1: no execution count, no history, no result */
        /* 1: input() becomes a CG_EVENT_INPUT_REQUEST; 0: it raises in the cell */
        int allow_stdin;
        /* 1: the cell neither counts nor is remembered (Jupyter's store_history: false) */
        int no_history;
        /* 1: a CG_EVENT_EXECUTE_INPUT says when the cell starts, and with which number */
        int announce;
        /*
         * JSON object text or NULL: {"user_expressions": {NAME: EXPRESSION}, "metadata": {...},
         * "header": {...}, "variables": true}. Expressions are evaluated after a cell that
         * succeeded; "metadata" and "header" are those of the front-end's request, for code that
         * asks for its parent message; "variables" adds to the RESULT's content which of the user's
         * variables the cell has made, changed and deleted: see cg_event_json()
         */
        const char *extra;
        /*
         * id from a create_subshell_request: the cell runs concurrently with those of the main
         * shell, in a thread of its own; NULL: the main shell
         */
        const char *subshell;
        int artifacts; /* 1: the RESULT names files that were made or changed: cg_event_artifacts() */
};

/**
 * cg_session_execute() - run a cell; its events follow, the last of them CG_EVENT_RESULT
 * @s:    session
 * @code: Python, UTF-8
 * @len:  bytes of @code
 * @opts: options (borrows); NULL for defaults
 * @cell: the cell's number (may be NULL): 1, 2, 3... in the session
 * Return: 0 when the cell was accepted; negative: CG_E_LIMIT when 256 cells wait already,
 *         CG_E_CLOSED when the session has ended. Cells that are sent while one runs wait their
 *         turn. Does not block.
 */
CG_API int cg_session_execute(struct cg_session *s, const char *code, size_t len,
                              const struct cg_execute_options *opts, uint64_t *cell, struct cg_err *err);

struct cg_buffer {
        const void *data;
        size_t len;
};

struct cg_request_options {
        size_t size;                     /* sizeof(struct cg_request_options) */
        int64_t timeout_ms;              /* of the request's own running time; 0: 10 s */
        const char *subshell;            /* as in struct cg_execute_options */
        const struct cg_buffer *buffers; /* comm messages, set_variables (borrows); at most 63 */
        size_t n_buffers;
        /*
         * 1: of comm messages: only for a cell that runs now and waits in `await`, perhaps for this
         * very message. The REPLY's content is {"status": "later"} when none has until it ended
         */
        int offer;
};

/**
 * cg_session_request() - send the kernel a request other than a cell; ends in exactly one
 * CG_EVENT_REPLY
 * @type:    a request type of the Jupyter protocol: complete_request, inspect_request,
 *           is_complete_request, history_request, comm_info_request, comm_open, comm_msg,
 *           comm_close; set_variables, get_variables (below); or one of those that do not wait for
 *           cells: debug_request, usage_request, create_subshell_request, delete_subshell_request,
 *           list_subshell_request
 * @content: the request's content, one JSON object text
 * @len:     bytes of @content
 * @opts:    options (borrows); NULL for defaults
 * @number:  its number, of the same series as cells (may be NULL); events that it causes carry it
 *           as cg_event_cell()
 * Return: 0; negative: CG_E_INVAL for another type, CG_E_LIMIT when 256 cells and requests wait or
 *         the content is over 64 MiB, CG_E_CLOSED. Does not block. Requests and cells run in the
 *         order in which they were sent.
 *
 * comm_open, comm_msg and comm_close have no reply of their own in the protocol: their REPLY says
 * that they were handled.
 *
 * set_variables: {"variables": {NAME: JSON, ...}, "pickled": [NAME, ...], "arrow": [NAME, ...]},
 * with a pickle in @opts->buffers for each name in "pickled", which the kernel loads, then a table
 * in Arrow's IPC stream format for each one in "arrow", which becomes a pyarrow.Table. All are set,
 * or none.
 *
 * get_variables: {"names": [NAME, ...], "lossy": false, "untrusted_pickle": [NAME, ...],
 * "untrusted_arrow": [NAME, ...]}. The reply is {"status": "ok", "variables": {NAME: JSON, ...},
 * "untrusted_pickle": [NAME, ...], "untrusted_arrow": [NAME, ...]}, with a buffer in
 * cg_event_buffer() for each name of the two lists. The kernel is hostile, and to load a pickle of
 * its making (pickle.loads()) is to run its code in your process, outside of the sandbox: only
 * store it, to give it back in a set_variables. Tables in Arrow's format are of whatever has one
 * (pyarrow, pandas, polars): pyarrow in the kernel's environment writes them. A reader of such a
 * table must take no harm from any bytes (pyarrow: 14.0.1 or newer, and validate(full=True)). JSON
 * is always one valid text, but what it says is the kernel's.
 *
 * For another session of any language, get_variables with "json": true has the values as one JSON
 * object text of at most 16 MiB in the last buffer, whose size the reader checks, instead of in
 * "variables"; NULs and larger integers are exact there, tables of pandas, polars and pyarrow lists
 * of rows, or, with "tables": true where pyarrow is there, in "untrusted_arrow". set_variables takes
 * such a text, which it reads as data, as the last buffer, with "json": {NAME: NAME HERE, ...} for
 * its members; more or fewer are an error. With "lossy" node gets the nearest number of an integer
 * beyond 2^53.
 *
 * All members of both are optional. At most 1000 names (63 with a buffer), which are identifiers of
 * the session's language, no keywords, and not in use by Python or IPython (__name__, _, In, ...),
 * node (JSON, process, ...) or the shell (PATH, BASH_ENV, ...); 64 MiB less 64 KiB of values.
 * Pickles and Arrow are for Python only.
 *
 * A value that get_variables cannot express exactly is an error: {"status": "error", "ename",
 * "evalue", "name", "type", "path"}, with the variable's name, the type, and the place in its value
 * ("['a'][3]"). "ename" is NameError, NotJSON, ValueTooLarge, PicklingError or ArrowError, and
 * UnpicklingError, ArrowError, NotJSON or NotSet for set_variables; mistakes in a request have
 * other names and lack the last three members. JSON expresses exactly: None, bool, float, int of 64
 * bits, str, list, and dict with keys of str, of just these types, up to 190 levels; and the dicts
 * and texts that tools return. It does not: NaN, infinities, larger integers, texts with NUL or
 * half of a surrogate pair, tuples, sets, bytes, other keys, objects of other subclasses (enums,
 * named tuples, OrderedDict) and all others (of numpy and pandas, too). set_variables refuses
 * numbers that do not fit a float, and objects with two members of the same name.
 *
 * With "lossy" NaN and infinities become null, large integers texts, such characters U+FFFD,
 * tuples and sets arrays, bytes base64, keys their str(), subclasses their base, objects with a
 * method tolist() or isoformat() what that returns, others their repr(). Keys that become equal,
 * and values that contain themselves, are still errors.
 */
CG_API int cg_session_request(struct cg_session *s, const char *type, const char *content, size_t len,
                              const struct cg_request_options *opts, uint64_t *number, struct cg_err *err);

/**
 * cg_session_cancel() - interrupt a cell (KeyboardInterrupt in it), or take it out of the queue
 * @cell: number of the cell; 0: the one that runs. A cell that has ended is left alone: the
 *        interrupt cannot hit the next.
 * Return: 0. When the cell neither ends nor asks for input (as a debugger's prompt does) within 2
 *         s, it is interrupted again; 2 s later its kernel is replaced, and the result says so.
 *         Time in which the host does not read the session's events does not count, up to 60 s: the
 *         cell's end may be among them.
 */
CG_API int cg_session_cancel(struct cg_session *s, uint64_t cell, struct cg_err *err);

/* ------------------------------------------------------------------ commands */

struct cg_exec_options {
        size_t size; /* sizeof(struct cg_exec_options) */
        /*
         * program and arguments, NULL-terminated; the program is looked up in PATH inside. For a
         * line of a shell: { "bash", "-c", LINE, NULL }
         */
        const char *const *argv;
        /* "NAME=VALUE", NULL-terminated: replace or join the session's; NULL: none */
        const char *const *env;
        const char *cwd;    /* NULL: the workspace */
        int64_t timeout_ms; /* all processes of the command end then, also left ones; 0: no limit */
        /* 1: cg_command_write() feeds its standard input; 0: that is empty */
        int input;
        /*
         * both not 0: it runs in a terminal of its own of that size, always with input. Not in the
         * landlock tier, where it does not start
         */
        uint16_t rows, columns;
};

/**
 * cg_session_exec() - run a program beside the cells of a session
 * @opts:    copies
 * @command: its number, as of a cell (may be NULL)
 * Return: 0; negative: CG_E_INVAL, CG_E_LIMIT, CG_E_CLOSED. That the program cannot be started
 *         comes as its result.
 * Threads: any.  Source: docs/wire.md.
 *
 * The program runs in the sandbox of the session's kernel, with its files, network, limits and
 * control group, but not through the kernel: also while a cell runs, or before a kernel is up. It
 * is a process group of its own. It ends with that sandbox, so at cg_session_reset() and when the
 * kernel ends. Events: CG_EVENT_COMMAND_OUTPUT, in order for each stream, and then one
 * CG_EVENT_COMMAND_RESULT. When the host does not read, the program's writes block.
 * The session's limit of output does not apply; its size is the host's to limit.
 * cg_session_cancel() ends it with all processes that it has started; those that it leaves behind
 * when it ends by itself run on, and end in the same way, at its time limit, or with the session.
 * Input and output are closed with the result: a process that is to live on must redirect its
 * output, or it gets SIGPIPE (with a terminal SIGHUP). At most 64 commands run, or have left
 * processes, at the same time.
 *
 * Programs can stop (SIGSTOP) or kill the process that runs their command: its result comes, at the
 * latest 6 seconds after its time limit or cancel, but what then still runs ends with the session's
 * sandbox. Since Linux 6.12 commands and cells cannot signal each other's processes; commands can.
 * Cells cannot change the limits, priorities and processors of a command's processes.
 */
CG_API int cg_session_exec(struct cg_session *s, const struct cg_exec_options *opts, uint64_t *command,
                           struct cg_err *err);

/**
 * cg_command_write() - feed the standard input of a command
 * @len:        bytes; 0: the end of input
 * @timeout_ms: how long to wait while the program has not read 1 MiB of earlier input; -1: for ever
 * Return: 0; CG_TIMEOUT: nothing was sent; negative: CG_E_NOTFOUND when the command has no input or
 *         has ended (the host has read its result); CG_E_LIMIT: more than 1 MiB at once.
 * Threads: any but the only one that reads events, for which @timeout_ms must be 0.
 */
CG_API int cg_command_write(struct cg_session *s, uint64_t command, const void *data, size_t len,
                            int64_t timeout_ms, struct cg_err *err);

/** cg_command_signal() - send a signal to the program's process group, if it runs. */
CG_API int cg_command_signal(struct cg_session *s, uint64_t command, int sig, struct cg_err *err);

/** cg_command_resize() - set the size of its terminal; the program gets SIGWINCH. */
CG_API int cg_command_resize(struct cg_session *s, uint64_t command, uint16_t rows, uint16_t columns,
                             struct cg_err *err);

/* ------------------------------------------------------------------ files */

/*
 * Files as the programs in the session's sandbox see them, its private /tmp included, read and
 * changed with their rights by a process inside: links, mounts and races lead it nowhere that these
 * programs cannot reach, FIFOs and devices are refused, and a read or write that the sandbox
 * refuses fails. Relative paths are below the workspace.
 *
 * Content, names and messages come from the sandbox: untrusted. JSON is checked to be JSON; its
 * content is not checked.
 *
 * All block for at most @timeout_ms (0: 60 s; -1: for ever), also for the host's descriptors.
 * Threads: any; the session's events need not be read meanwhile, but all operations must have
 * returned before cg_session_free() or cg_client_close().
 * Return: 0; negative: CG_E_NOTFOUND, CG_E_EXISTS, CG_E_INVAL (not a regular file), CG_E_TIMEDOUT,
 * CG_E_CLOSED, CG_E_PROTO, or CG_E_SYS with err->sys_errno (0 of the sandbox's `tar`).
 */

/**
 * cg_session_files_read() - read a file into memory
 * @max: bytes at most, from @offset on; -1: all, up to 1 GiB
 * @ret: its bytes and a NUL (returns; cg_free())
 */
CG_API int cg_session_files_read(struct cg_session *s, const char *path, int64_t offset, int64_t max,
                                 int64_t timeout_ms, char **ret, size_t *len, struct cg_err *err);

/**
 * cg_session_files_write() - replace a file, or make it with @mode (less the sandbox's umask)
 *
 * Programs see either the old file or the new one, which has the old one's mode. If the operation
 * does not end, the old one stays (and in the landlock tier a file NAME.<16 hexadecimal digits>).
 */
CG_API int cg_session_files_write(struct cg_session *s, const char *path, unsigned int mode, const void *data,
                                  size_t len, int64_t timeout_ms, struct cg_err *err);

/**
 * cg_session_files_get() - copy a file to the host's @fd (borrows; may block or not)
 * @max: CG_E_LIMIT for a larger file, after that many bytes or fewer; -1: any size
 */
CG_API int cg_session_files_get(struct cg_session *s, const char *path, int fd, int64_t max,
                                int64_t timeout_ms, struct cg_err *err);

/** cg_session_files_put() - as cg_session_files_write(), from the host's @fd to its end. */
CG_API int cg_session_files_put(struct cg_session *s, const char *path, unsigned int mode, int fd,
                                int64_t timeout_ms, struct cg_err *err);

/**
 * cg_session_files_stat() - what is at a path; a link is not followed
 * @ret: {"type": "file" | "folder" | "link" | "fifo" | "socket" | "device", "size", "mode",
 *       "mtime_ns", "target" of a link} (returns; cg_free())
 */
CG_API int cg_session_files_stat(struct cg_session *s, const char *path, int64_t timeout_ms, char **ret,
                                 struct cg_err *err);

/**
 * cg_session_files_list() - what is in a folder, in no order; at most 200,000 entries
 * @ret: array of objects as of cg_session_files_stat() with "name" (returns; cg_free()). Of names
 *       and targets that are not UTF-8: "name_hex", "target_hex"
 */
CG_API int cg_session_files_list(struct cg_session *s, const char *path, int64_t timeout_ms, char **ret,
                                 struct cg_err *err);

/** cg_session_files_mkdir() - make a folder with missing parents; one that exists is no error. */
CG_API int cg_session_files_mkdir(struct cg_session *s, const char *path, unsigned int mode,
                                  int64_t timeout_ms, struct cg_err *err);

/**
 * cg_session_files_remove() - remove a file, a link, or a folder with all that it contains
 *
 * A folder more than 512 deep is not removed, or not wholly: CG_E_SYS with ELOOP.
 */
CG_API int cg_session_files_remove(struct cg_session *s, const char *path, int64_t timeout_ms,
                                   struct cg_err *err);

CG_API int cg_session_files_rename(struct cg_session *s, const char *from, const char *to, int64_t timeout_ms,
                                   struct cg_err *err);

/**
 * cg_session_files_pack(), cg_session_files_unpack() - a folder's content as tar to @fd, or from it
 *
 * By the sandbox's `tar`. @max: as of cg_session_files_get(). An archive comes from the sandbox:
 * unpack it on the host with the care that any foreign archive needs.
 */
CG_API int cg_session_files_pack(struct cg_session *s, const char *path, int fd, int64_t max,
                                 int64_t timeout_ms, struct cg_err *err);
CG_API int cg_session_files_unpack(struct cg_session *s, const char *path, int fd, int64_t timeout_ms,
                                   struct cg_err *err);

/* ------------------------------------------------------------------ events */

struct cg_event;

enum cg_event_type {
        /* text written to stdout or stderr: cg_event_text(), cg_event_is_stderr() */
        CG_EVENT_STREAM = 1,
        /* rich output: cg_event_json() is {"data": {MIME: ...}, "metadata", "transient"} */
        CG_EVENT_DISPLAY_DATA,
        /* the same, replacing the display with the same transient.display_id */
        CG_EVENT_UPDATE_DISPLAY_DATA,
        /* the value of the cell's last expression, like DISPLAY_DATA */
        CG_EVENT_EXECUTE_RESULT,
        CG_EVENT_CLEAR_OUTPUT, /* cg_event_json() is {"wait": bool} */
        /* an exception: cg_event_json() is {"ename", "evalue", "traceback": [...]} */
        CG_EVENT_ERROR,
        /*
         * a tool call, a request for a resource or a prompt, or a program that a cell wants to
         * start (cg_event_method()), waits for cg_approval_accept() or _reject(): cg_event_json()
         * is {"server", "method", "tool", "cell"}
         */
        CG_EVENT_APPROVAL_REQUEST,
        /* the request is no longer pending: cancelled, timed out, or its kernel ended */
        CG_EVENT_APPROVAL_CLOSED,
        /* input() waits for cg_session_input(): cg_event_json() is {"prompt", "password"} */
        CG_EVENT_INPUT_REQUEST,
        /* the last event of a cell: cg_event_status(), cg_event_text() */
        CG_EVENT_RESULT,
        /* the kernel ended by itself; text says why. A fresh one is being started */
        CG_EVENT_KERNEL_DIED,
        /* the session has ended; text says why. The last event of all */
        CG_EVENT_SESSION_CLOSED,
        CG_EVENT_NOTICE, /* a message for the host's user; text */
        /*
         * a cell starts: cg_event_execution_count(), and cg_event_text() is its code when it is
         * another client's. For cells with `announce`, and for all of other clients
         */
        CG_EVENT_EXECUTE_INPUT,
        /*
         * the end of a cg_session_request(): cg_event_json() is the content of the protocol's
         * reply, cg_event_status() how it ended; where that is not CG_STATUS_OK the content is
         * {"status": "error", ...}
         */
        CG_EVENT_REPLY,
        /*
         * a comm's message: cg_event_json() is {"msg_type": "comm_open" | "comm_msg" |
         * "comm_close", "content": {...}, "metadata": {...}}; cg_event_buffer()
         */
        CG_EVENT_COMM,
        CG_EVENT_DEBUG_EVENT, /* cg_event_json() is the debugger's event */
        /*
         * a connection waits for cg_egress_decide(): cg_event_json() is {"host", "port",
         * "protocol"}, and "server" where an MCP server with a sandbox of its own wants it;
         * cg_event_approval() is its number. CG_EVENT_APPROVAL_CLOSED ends it early
         */
        CG_EVENT_EGRESS_REQUEST,
        /*
         * the sandbox refused an operation: cg_event_json() is {"operation", "why", "how", ...}:
         * what was refused, by which rule, and how to allow it (docs/denials.md), and "server"
         * where it was the sandbox of an MCP server; cg_event_text()
         * says it in one sentence, rendered; cg_event_cell() is the cell, 0 where none is known
         */
        CG_EVENT_DENIED,
        /*
         * the last INPUT_REQUEST of cg_event_cell() wants no answer any more: an interrupt, or an
         * exception of the cell's own, has ended its input(). A RESULT ends a question as well
         */
        CG_EVENT_INPUT_CLOSED,
        /*
         * only for display; cg_event_text() says it in one line. cg_session_add_mcp_servers() waits
         * for a server; or a server has reported progress of a tool call: then cg_event_json() is
         * {"server", "method", "tool", "call", "progress", "total", "message"}: `call` is the number
         * of its approval; `total` and `message` may be missing, and the message is rendered and
         * short. `progress` is missing where a call without a time limit is silent: the message
         * says for how long.
         * `progress` grows with each event of a call, of which there are at most about 10 a second.
         * The last value comes before the call ends; values of calls that were given up do not
         * come, nor those that a host does not read in time
         */
        CG_EVENT_PROGRESS,
        /*
         * an MCP server asks the host for something, of a kind in `server_requests`:
         * cg_event_json() is {"server", "method", "call", "params"}, with the params exactly as the
         * server sent them (untrusted, but without duplicate names, and numbers fit 64 bits), and
         * the number of the approval of the call that it belongs
         * to, where that is known. Waits for cg_server_request_answer() or _decline() about
         * cg_event_approval(); CG_EVENT_APPROVAL_CLOSED ends it early: the call or the server has
         * ended, the server takes it back, or nobody has answered within approval_timeout_ms, the
         * `timeout` of the server's definition, or else an hour. The cell's clock stands still. At
         * most 8 of a server wait at once, a call asks at most 32 times, and no more after a
         * question that nobody has answered
         */
        CG_EVENT_SERVER_REQUEST,
        /*
         * a command has written: cg_event_text() is bytes of any kind, cg_event_is_stderr();
         * cg_event_cell() is the command's number. A terminal's output is all stdout
         */
        CG_EVENT_COMMAND_OUTPUT,
        /*
         * the last event of a command: cg_event_status(), and cg_event_json() is {"exit_code": N} or
         * {"signal": N}; {} where the program did not start or its end is not known, and
         * cg_event_text() says why
         */
        CG_EVENT_COMMAND_RESULT,
        /*
         * a cell calls a function of the host, which answers by cg_function_return() about
         * cg_event_approval(): cg_event_json() is {"server", "tool", "cell"}, cg_event_arguments()
         * the arguments. No decision about tools answers it. CG_EVENT_APPROVAL_CLOSED ends it
         * early: it was cancelled, its kernel has ended, or the host has not answered within
         * approval_timeout_ms or the time that the cell has set
         */
        CG_EVENT_FUNCTION_CALL,
};

enum cg_status {
        CG_STATUS_OK = 0,
        CG_STATUS_ERROR,       /* the cell raised: a CG_EVENT_ERROR came before */
        CG_STATUS_TIMEOUT,     /* over its time; interrupted */
        CG_STATUS_CANCELLED,   /* cg_session_cancel() or _reset() */
        CG_STATUS_KERNEL_DIED, /* the kernel ended while the cell ran; text says why */
};

/**
 * cg_session_next_event() - wait for the session's next event
 * @s:          session (borrows)
 * @timeout_ms: longest wait; -1 for ever, 0 does not wait
 * @ret:        the event (returns; cg_event_free()), set only when 0
 * @err:        set when negative; may be NULL
 * Return: 0; CG_TIMEOUT; CG_CLOSED when the session has ended; negative: CG_E_PROTO when the
 *         supervisor broke the protocol (connection over), CG_E_CLOSED when the supervisor is gone.
 * Threads: one at a time per session.  Source: docs/wire.md.
 *
 * Output is bounded: when the host does not read, the kernel's writes block once about 8 MiB wait
 * unread.
 */
CG_API int cg_session_next_event(struct cg_session *s, int64_t timeout_ms, struct cg_event **ret,
                                 struct cg_err *err);

/*
 * cg_session_fd() - a descriptor that is readable while an event waits (poll for POLLIN; never read
 * it). Owned by the session.
 */
CG_API int cg_session_fd(const struct cg_session *s);

/** cg_event_free() - returns NULL; NULL is allowed. */
CG_API struct cg_event *cg_event_free(struct cg_event *e);

CG_API enum cg_event_type cg_event_type(const struct cg_event *e);

/*
 * cg_event_type_name() - "stream", "display_data", ... as `cellgate run --json` prints it. Static.
 */
CG_API const char *cg_event_type_name(enum cg_event_type t);

/** cg_event_cell() - number of the cell that caused the event; 0 where none did. */
CG_API uint64_t cg_event_cell(const struct cg_event *e);

/** cg_event_is_stderr() - 1 for a STREAM event of standard error. */
CG_API int cg_event_is_stderr(const struct cg_event *e);

/**
 * cg_event_text() - the event's text: STREAM's output, RESULT's and KERNEL_DIED's explanation,
 * NOTICE's message
 * @len: bytes (may be NULL). The text is UTF-8 and NUL-terminated, and may contain NULs. "" where
 *       the type has none. Lives as long as the event. Of an APPROVAL_REQUEST for a program, in a
 *       session of the shell: number and text of the line of the cell that names it, if one does;
 *       or words that say that no cell that runs has started it.
 */
CG_API const char *cg_event_text(const struct cg_event *e, size_t *len);

/**
 * cg_event_json() - the event's content as JSON object text, "{}" where it has none; see enum
 * cg_event_type
 *
 * For a RESULT: the members of the protocol's execute_reply other than status and count:
 * {"payload": [...], "user_expressions": {...}}, and for an exception "ename", "evalue",
 * "traceback". On request "variables": {"made": [{"name", "type", "length" or "bytes"}], "changed":
 * [the same], "deleted": [NAME], "left_out": N}, at most 200 of each. Changed are those that are
 * bound to another object, and built-in containers, texts and arrays of numpy of another size;
 * other changes inside of an object are not seen. All of it is the kernel's word. Lives as long as
 * the event.
 */
CG_API const char *cg_event_json(const struct cg_event *e, size_t *len);

/**
 * cg_event_artifacts() - files that were made or changed while the cell of a RESULT event ran
 * @len: bytes (may be NULL)
 * Return: {"files": [{"path", "size", "sha256"}, ...], "truncated": WHY}, living as long as the
 *         event; NULL when the cell did not ask for it, or has not run.
 *
 * Regular files in all folders that the session can write but /dev, its private /tmp included, in
 * no order, with absolute paths as they are inside ("path_hex" if not UTF-8). A process inside
 * finds them after the cell's end and before the session's next cell, by the time of each file's
 * last change: contents, modes, owners, names and links count, and so do changes by all other
 * programs in this time, also outside, and up to 10 ms before it. Not named are files in a folder
 * that got another name, and what a process wrote through a mapping of a file that it had changed
 * before. On network file systems the times are their server's.
 *
 * "sha256" (hexadecimal) is of the "size" bytes that were read; it is missing of files that cannot
 * be read or have more than 64 MiB, and after 256 MiB of all. The file may have changed since:
 * compare the digest. "truncated" says why files may be missing, and is missing if none is: there
 * are more than 1,000 of them, the folders have more than 100,000 entries, the search took 2 s, a
 * folder cannot be read, or the search failed, as when the cell's processes stop it (then the
 * RESULT comes up to 5 s later). cg_session_cancel() ends it.
 *
 * In a session with `sign_artifacts` there is also "signed": {"execution", "signature"} of the list
 * in the audit log (`cellgate artifacts EXECUTION`), or "unsigned" with the reason why there is none.
 *
 * The result of a command (cg_session_exec()) names no files: commands run beside each other and
 * beside cells, so that the time of a change says little about who made it.
 */
CG_API const char *cg_event_artifacts(const struct cg_event *e, size_t *len);

/**
 * cg_event_mime() - one representation out of a DISPLAY_DATA, UPDATE_DISPLAY_DATA or EXECUTE_RESULT
 * event
 * @mime: for example "text/plain" or "image/png" (base64 text, as in notebooks)
 * @len:  bytes (may be NULL)
 * Return: the text, living as long as the event; NULL where the event has no such representation,
 *         or it is not a string.
 */
CG_API const char *cg_event_mime(struct cg_event *e, const char *mime, size_t *len);

/** cg_event_status() - how the cell of a RESULT event ended. */
CG_API enum cg_status cg_event_status(const struct cg_event *e);

/** cg_status_name() - "ok", "error", "timeout", "cancelled", "kernel_died". Static. */
CG_API const char *cg_status_name(enum cg_status st);

/*
 * cg_event_execution_count() - the cell's In[] number of a RESULT or EXECUTE_INPUT event; 0
 * elsewhere. An EXECUTE_RESULT has it in its JSON, as "execution_count".
 */
CG_API int64_t cg_event_execution_count(const struct cg_event *e);

/*
 * cg_event_foreign() - 1 when another client of the session caused the event; cg_event_cell() then
 * is no number of this one's.
 */
CG_API int cg_event_foreign(const struct cg_event *e);

/** cg_event_n_buffers() - binary buffers of a COMM or REPLY event. */
CG_API size_t cg_event_n_buffers(const struct cg_event *e);

/*
 * cg_event_buffer() - the @i-th of them, @len bytes; NULL where there is none. Lives as long as the
 * event.
 */
CG_API const void *cg_event_buffer(const struct cg_event *e, size_t i, size_t *len);

/*
 * cg_event_refused() - for a RESULT with CG_STATUS_ERROR: 1 when the exception is a refused
 * approval that the cell did not catch.
 */
CG_API int cg_event_refused(const struct cg_event *e);

/*
 * The costs of a cell: differences between its end and its start; -1: not known. They count all
 * that runs in the session's kernel in this time, also threads and tasks of earlier cells. Of what
 * runs between cells, nothing is counted.
 */
struct cg_costs {
        size_t size;     /* sizeof(struct cg_costs): set it before the call */
        int64_t wall_us; /* with waits for approvals */
        /*
         * processor time of the kernel's process, and of its child processes that have ended and
         * been waited for, these in steps of 10 ms
         */
        int64_t cpu_us;
        /*
         * most memory in use (resident) less that at the start, of the kernel's process; about. Of
         * a cell that starts right after one that used more, maybe only what it has kept. Processes
         * that the kernel has started, and files in memory, are not counted
         */
        int64_t memory_bytes;
        /*
         * bytes written by system calls such as write(), to files, pipes and terminals, of the same
         * processes as `cpu_us`; not through mappings of files
         */
        int64_t written_bytes;
        /* tool calls, resources and prompts that the host was asked about; calls of functions */
        int64_t tool_calls;
        /*
         * programs that the kernel's Python has started (subprocess, os.system(), `!`...), not
         * those which they have started. The only figure from the kernel, which may lie
         */
        int64_t commands;
        int64_t connections; /* made by the sandbox's proxy; -1 without a sandbox */
        int64_t denials;     /* CG_EVENT_DENIED, and denials that were not reported one by one */
        /*
         * 1: other code of the session ran at the same time, and the figures count it as well:
         * cells of subshells, requests, commands, or processes that commands have left
         */
        int shared;
};

/**
 * cg_event_costs() - what the cell of a RESULT event cost
 * @ret: written only when 0; its `size` must be set
 * Return: 0; negative: CG_E_NOTFOUND when the event is no RESULT, or its cell has not run;
 *         CG_E_INVAL when `size` is wrong.
 */
CG_API int cg_event_costs(const struct cg_event *e, struct cg_costs *ret);

/* ------------------------------------------------------------------ approvals */

/*
 * cg_event_approval() - the number of the call, connection or question of an APPROVAL_REQUEST,
 * FUNCTION_CALL, EGRESS_REQUEST, SERVER_REQUEST or APPROVAL_CLOSED event; 0 for other events.
 */
CG_API uint64_t cg_event_approval(const struct cg_event *e);

/*
 * cg_event_server(), cg_event_tool() - names of an APPROVAL_REQUEST or FUNCTION_CALL, as the host
 * registered them and as the server lists them. The tool is "" where the method is no "tools/call":
 * what a host decides by the names of tools is about no resource and no prompt.
 */
CG_API const char *cg_event_server(const struct cg_event *e);
CG_API const char *cg_event_tool(const struct cg_event *e);

/*
 * cg_event_method() - what an APPROVAL_REQUEST asks for, by the name of MCP: "tools/call",
 * "resources/read" or "prompts/get"; or "exec", a program that a cell wants to start (`exec` of the
 * session's options); "" for other events. Static. The names of tools may look like it.
 */
CG_API const char *cg_event_method(const struct cg_event *e);

/**
 * cg_event_arguments() - the arguments of a FUNCTION_CALL, or of an APPROVAL_REQUEST: exactly the
 * bytes that go to the MCP server
 * @len: bytes (may be NULL)
 *
 * "resources/read" has {"uri"}, "prompts/get" {"name", "arguments": {NAME: text}}, and "exec" what
 * docs/settings.md lists (Programs of cells): exactly that runs.
 * Return: one JSON object text (untrusted: show it through cg_render()). Lives as long as the
 *         event.
 */
CG_API const char *cg_event_arguments(const struct cg_event *e, size_t *len);

/**
 * cg_approval_share() - let this user's other clients decide about it, too (CG_DECIDERS_USER)
 * @approval: from cg_event_approval(), of an APPROVAL_REQUEST or EGRESS_REQUEST
 * Return: 0, also where the session's option does not allow it; negative: CG_E_NOTFOUND when
 *         nothing of this number waits (any more).
 *
 * For what the host's own rules leave open: before it, no other client sees the question.
 */
CG_API int cg_approval_share(struct cg_session *s, uint64_t approval, struct cg_err *err);

/**
 * cg_approval_accept() - let exactly this call or program run, once
 * @approval: from cg_event_approval()
 * Return: 0; negative: CG_E_NOTFOUND when no such call waits (any more); a decision is used once.
 */
CG_API int cg_approval_accept(struct cg_session *s, uint64_t approval, struct cg_err *err);

/**
 * cg_approval_accept_by() - the same, by a rule of the host's
 * @by: its name, for the audit log; NULL for none
 */
CG_API int cg_approval_accept_by(struct cg_session *s, uint64_t approval, const char *by, struct cg_err *err);

/**
 * cg_approval_reject() - refuse it: the call raises RejectedError in the cell, a program
 * PermissionError
 * @reason: part of the exception in the kernel, or of the CG_EVENT_DENIED about the program; NULL
 *          for none
 */
CG_API int cg_approval_reject(struct cg_session *s, uint64_t approval, const char *reason,
                              struct cg_err *err);

/**
 * cg_approval_expire() - refuse it because nobody decided in time
 * @reason: as of cg_approval_reject()
 * Return: as cg_approval_accept(). The call raises ApprovalTimeoutError, as after
 *         approval_timeout_ms: for hosts that measure the time themselves, such as from the moment
 *         at which a question is shown.
 */
CG_API int cg_approval_expire(struct cg_session *s, uint64_t approval, const char *reason,
                              struct cg_err *err);

enum cg_egress_decision {
        /* this host and port, for the connections that wait for this answer */
        CG_EGRESS_ALLOW_ONCE,
        CG_EGRESS_ALLOW_SESSION, /* until the kernel ends */
        CG_EGRESS_DENY_ONCE,
        CG_EGRESS_DENY_SESSION,
};

/**
 * cg_egress_decide() - answer an EGRESS_REQUEST
 * @request: from cg_event_approval()
 * @reason:  for the audit log, and part of the refusal that the program in the sandbox receives;
 *           NULL for none
 * Return: 0; negative: CG_E_NOTFOUND when no such request waits (any more).
 */
CG_API int cg_egress_decide(struct cg_session *s, uint64_t request, enum cg_egress_decision decision,
                            const char *reason, struct cg_err *err);

/**
 * cg_server_request_answer() - answer a SERVER_REQUEST, once
 * @number: from cg_event_approval()
 * @result: one JSON object text (borrows), at most 1 MiB. Elicitation: {"action": "accept" |
 *          "decline" | "cancel", "content": {...}}, with `content` where a form was accepted: its
 *          fields by the `requestedSchema` of the params; what is missing gets the form's defaults.
 *          A form with over 200 fields, or over 1000 choices of a field, can only be declined.
 *          Sampling: {"role", "content", "model", "stopReason"}
 * Return: 0; negative: CG_E_NOTFOUND when no such question waits (any more); CG_E_PARSE, CG_E_INVAL
 *         or CG_E_LIMIT with what is wrong: it then still waits.
 *
 * Ask a person before data of theirs goes to a server, and name the server. Show the whole of a URL
 * before it is opened, and never open it without being told to. A kernel cannot see or answer these
 * requests.
 */
CG_API int cg_server_request_answer(struct cg_session *s, uint64_t number, const char *result,
                                    struct cg_err *err);

/*
 * cg_server_request_decline() - the server learns that nothing was given. Returns as
 * cg_server_request_answer().
 */
CG_API int cg_server_request_decline(struct cg_session *s, uint64_t number, struct cg_err *err);

/**
 * cg_session_input() - answer the last INPUT_REQUEST that cg_session_next_event() has returned
 * @text: without the newline (copies), or NULL for end of file
 * Return: 0, also when that question was cancelled meanwhile: then the answer is dropped;
 *         negative: CG_E_STATE when none waits.
 */
CG_API int cg_session_input(struct cg_session *s, const char *text, size_t len, struct cg_err *err);

/**
 * cg_event_refuse() - refuse a question of any kind, as hosts do that cannot ask anybody about it
 * @e:      any event: nothing is done about one that waits for no answer
 * @reason: as of cg_approval_reject(); an input() reads the end of a file instead
 * Return: 0, also when the question waits no more; negative.
 *
 * For the default case of a host that knows some kinds of questions: none waits for its time limit.
 */
CG_API int cg_event_refuse(struct cg_session *s, const struct cg_event *e, const char *reason,
                           struct cg_err *err);

/* ------------------------------------------------------------------ helpers */

/**
 * cg_render() - untrusted text made safe to show on a terminal
 * @text: bytes that should be UTF-8
 * @len:  bytes of @text
 * @max:  longest output in bytes (at least 64); what was left out is counted at the end. 0: no
 *        limit.
 * @ret:  the text (returns; cg_free())
 * Return: 0; negative: CG_E_NOMEM.
 *
 * Escaped, such as \x1b or \u202e: bytes that are not UTF-8; control characters other than newline
 * and tab (and so ANSI sequences); format and zero-width characters, line separators, blanks other
 * than the space, private-use and unassigned characters; right-to-left letters; combining marks
 * after the sixth of a letter; letters of another script than their word's, and words that consist
 * of look-alikes of ASCII letters.
 */
CG_API int cg_render(const char *text, size_t len, size_t max, char **ret, struct cg_err *err);

/** cg_free() - frees memory that this library returned; NULL is allowed. */
CG_API void cg_free(void *p);

#ifdef __cplusplus
}
#endif
#endif
