/* Child processes: spawned by exec with exactly the descriptors of a table, held by a pidfd. */
#pragma once

#include <linux/limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <signal.h>
#include <sys/types.h>
#include "base/err.h"

struct cg_proc_fd {
        int fd; /* the caller's descriptor; -1: /dev/null */
        int as; /* its number in the child */
};

struct cg_proc_spec {
        /* program; looked up in @search_path when it has no slash and that is given */
        const char *path;
        const char *search_path; /* PATH-like list or NULL */
        char *const *argv;
        char *const *envp;            /* NULL: empty environment */
        const char *cwd;              /* NULL: the caller's */
        const struct cg_proc_fd *fds; /* numbers not named here are closed in the child */
        size_t n_fds;
        /* setsid(): own session and process group, so that the group can be ended whole */
        bool new_session;
        /* with @new_session: the terminal at descriptor 0 becomes the session's */
        bool controlling_terminal;
        /* PDEATHSIG SIGKILL, in addition to the lifeline that the child watches */
        bool die_with_parent;
};

/* A program by its path, words, environment and array of descriptors; then other members. */
#define CG_PROC_SPEC(path_, argv_, envp_, fds_, ...) \
        { \
                .path = (path_), .argv = (char *const *)(uintptr_t)(argv_), .envp = (envp_), .fds = (fds_), \
                .n_fds = CG_ARRAY_LEN(fds_), __VA_ARGS__ \
        }

struct cg_proc {
        pid_t pid;
        int pidfd;
};

#define CG_PROC_NONE ((struct cg_proc){ .pid = 0, .pidfd = -1 })

/*
 * Starts the program. An exec that fails is this function's error (with the errno), not a child
 * that ends by itself. The caller reaps by cg_proc_wait(). Signal mask and dispositions are reset
 * to the defaults in the child.
 * Threads: any; only async-signal-safe calls happen between vfork and exec.
 */
int cg_proc_spawn(const struct cg_proc_spec *spec, struct cg_proc *ret, struct cg_err *err);

/*
 * Blocks SIGINT, SIGTERM and SIGHUP, which end programs; *ret: a signalfd that does not block. @old
 * (may be NULL): the mask before.
 */
int cg_block_end_signals(sigset_t *old, int *ret, struct cg_err *err);

/*
 * Waits up to @timeout_ms (-1 for ever) and reaps. 0: ended, *status as waitpid(2) gives it (-1
 * when somebody else reaped it); CG_TIMEOUT; negative. Closes the pidfd once reaped.
 */
int cg_proc_wait(struct cg_proc *p, int64_t timeout_ms, int *status, struct cg_err *err);

/*
 * SIGTERM, then SIGKILL after @grace_ms, to the process, or to its whole group, which gets it once
 * the process has ended; reaps it.
 */
void cg_proc_end(struct cg_proc *p, bool group, int64_t grace_ms);

/*
 * Kills and reaps the calling process's children except those in @keep, and all their descendants
 * when the process is a subreaper (PR_SET_CHILD_SUBREAPER).
 */
void cg_proc_kill_children(const pid_t *keep, size_t n);

/* Reaps the children that have ended, except those in @keep; kills none. */
void cg_proc_reap_children(const pid_t *keep, size_t n);

/*
 * Returns true when MCP servers inherit this variable, "NAME" or "NAME=VALUE": variables that
 * programs need to run, none with secrets.
 */
bool cg_proc_env_passes(const char *var);

/* Fields of /proc/PID/stat. */
struct cg_proc_stat {
        pid_t pid, parent, group;
        uint64_t ticks;   /* processor time, with that of children it has waited for */
        uint64_t started; /* in ticks since the machine's start */
};

/* @pid 0: the calling process, through /proc/self. False when there is no such process. */
bool cg_proc_read_stat(pid_t pid, struct cg_proc_stat *ret);

/* The process that an entry of /proc is named after; 0 for all other entries. */
pid_t cg_proc_of_entry(const char *name);

/* Reads the start of a file of /proc as text; "" and false when it cannot be read. */
bool cg_proc_read_text(const char *path, char *text, size_t size);

/* "exit status 3", "killed by SIGSEGV": what @status of waitpid(2) says, for messages. */
void cg_proc_describe(int status, char *buf, size_t size);
