/*
 * Programs that the main process and its descendants start, where the plan restricts that
 * (cg_sandbox_set_exec()). The filter hands their execve() and execveat() to init.
 *
 *      DENY    init refuses each call
 *      ASK     a process that still has the image of the main process: init copies the arguments,
 *              sends them as a question to the caller of cg_sandbox_spawn(), and the call waits for
 *              the answer. After ACCEPTED the kernel executes the call (it continues), traced by
 *              init: the new image stops before its first instruction, and is killed if its file,
 *              arguments, variables or folder are not those of the question. Calls of all other
 *              processes continue: these have, or descend from, an image that was approved.
 *      ASK_EACH  as ASK, for all processes
 *
 * The main process may start the program of the plan's language without a question, in each of
 * these modes: its call is executed and checked as one that was approved. In ASK processes with its
 * image are asked about as well.
 *
 * The process keeps its number, parent, descriptors, terminal, limits and signals. It cannot trace
 * others or be traced by them, since the filter denies these calls and /proc is read-only.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/types.h>
#include "base/err.h"

struct cg_notify;
struct cg_sandbox;
struct seccomp_notif;

/* Calls that wait for an answer, or are executed, at once; the next fails with EAGAIN. */
#define CG_EXEC_CALLS 32
/* Bytes of the arguments and variables of a call, with a NUL each, and their number: else E2BIG. */
#define CG_EXEC_TEXT_MAX  (256u << 10)
#define CG_EXEC_TEXTS_MAX 4096

/*
 * Between init and the caller of cg_sandbox_spawn(), by cg_sandbox_child.commands_fd. ASKED has a
 * file with struct cg_exec_question, and is answered by ACCEPTED or REFUSED, unless WITHDRAWN comes
 * first: the process has ended.
 */
struct cg_exec_message {
        enum { CG_EXEC_ASKED = 1, CG_EXEC_WITHDRAWN, CG_EXEC_ACCEPTED, CG_EXEC_REFUSED } type;
        uint32_t number;
};

/*
 * Followed by texts with a NUL each: CG_EXEC_FIXED_TEXTS, then argc arguments, n_set variables
 * ("NAME=VALUE") that are not the plan's (cg_sandbox_set_commands()), and the names of n_unset that
 * are in the plan only.
 */
struct cg_exec_question {
        int32_t pid;
        uint32_t writable; /* processes inside can change what runs: the files, or the way to a script */
        uint32_t argc, n_set, n_unset;
        uint32_t text_len;
        /*
         * When the oldest began of the caller and the processes that have started it, up to the one
         * that the main process has started: ticks since the machine's start. 0: not known, because
         * one of them has ended.
         */
        uint64_t began;
};
enum {
        CG_EXEC_PROGRAM,     /* absolute, without symlinks */
        CG_EXEC_INTERPRETER, /* which executes it, of its first line "#!"; "": none */
        CG_EXEC_CWD,
        CG_EXEC_STDIN, /* path, "pipe", "socket"; "": closed */
        CG_EXEC_FIXED_TEXTS,
};

/* A file, to be recognised again. */
struct cg_exec_file {
        dev_t dev;
        ino_t ino;
};

struct cg_exec_call {
        enum { CG_EXEC_FREE, CG_EXEC_WAITS, CG_EXEC_RUNS, CG_EXEC_LEAVES } state;
        uint32_t number;
        uint64_t id; /* of the notification */
        pid_t tid;
        char *texts; /* what the new image must have: arguments, then variables */
        size_t args_len, texts_len;
        struct cg_exec_file image, cwd, in; /* in: standard input; 0: closed */
        char *path;                         /* of the program */
        uint64_t key;                       /* of caller, program, arguments and variables */
        int64_t deadline_ms;                /* executed: it has failed, or hangs */
};

struct cg_execs {
        const struct cg_sandbox *sb; /* NULL: nothing is restricted */
        struct cg_notify *notify;
        int sock;                     /* for struct cg_exec_message; borrowed */
        pid_t main;                   /* the main process */
        struct cg_exec_file own;      /* the image of init and the main process */
        struct cg_exec_file language; /* the image of the plan's language */
        int filters;                  /* system call filters of the main process */
        uint32_t next;
        struct cg_exec_call calls[CG_EXEC_CALLS];
        /*
         * Calls that were just refused: a search through PATH goes on, and finds the same program
         * by another name.
         */
        struct cg_exec_refusal {
                uint64_t key;
                int64_t until_ms;
        } refused[CG_EXEC_CALLS];
        size_t n_refused; /* ever */
};

/* @affinity: the main process has the filter of cg_seccomp_keep_affinity(), too. */
void cg_execs_init(struct cg_execs *e, const struct cg_sandbox *sb, struct cg_notify *n, int sock, pid_t main,
                   bool affinity);
/* For ASK: 0 if init may trace processes here. Before init seals itself. */
int cg_execs_check(struct cg_err *err);
/* An execve() or execveat(). */
void cg_execs_call(struct cg_execs *e, const struct seccomp_notif *call);
/* A message of the caller of cg_sandbox_spawn(). */
void cg_execs_answer(struct cg_execs *e, const struct cg_exec_message *m);
/* A status of waitpid(). True: it was about a traced process that goes on. */
bool cg_execs_status(struct cg_execs *e, pid_t pid, int status);
/* Milliseconds until cg_execs_tick(); -1: no call waits or is executed. */
int cg_execs_timeout(const struct cg_execs *e);
/* Withdraws questions of processes that have ended, and stops to trace where an execve() failed. */
void cg_execs_tick(struct cg_execs *e);
