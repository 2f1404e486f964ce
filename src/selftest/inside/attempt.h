/*
 * cellgate-selftest: attempts to get out of the sandbox, each a row of a table. Runs INSIDE the
 * sandbox (and without one, to show that an attempt detects a missing layer). `cellgate selftest`
 * (src/selftest/host/selftest.c) makes the scene, starts this program, and judges the results.
 *
 * Each attempt runs in its own process. It does no harm if it succeeds: files of the system are
 * opened and not written, and calls that would change the machine get arguments that are rejected
 * after the permission check.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#define CG_NOTE_SIZE 300

enum cg_verdict {
        CG_HELD, /* a denied operation was denied */
        CG_HOLE, /* a denied operation was possible */
        /* a required operation was possible: the related denial is not caused by a failure */
        CG_WORKS,
        CG_FAILS, /* a required operation failed */
        CG_SKIP,  /* cannot be tested here: the note has the reason */
};

/* Users that succeed without a sandbox (--no-sandbox). */
enum cg_bare {
        CG_BARE_ALL,     /* all users */
        CG_BARE_ROOT,    /* root; Linux itself denies it to ordinary users */
        CG_BARE_MACHINE, /* depends on the machine: hardware, modules, its network */
        CG_BARE_NONE,    /* none on most machines: Linux denies it to all */
};

/* Sandboxes that an attempt applies to. */
enum { CG_IN_COMMAND = 1, CG_IN_KERNEL = 2, CG_IN_BOTH = 3 };

struct cg_try {
        const char *scene; /* lines NAME=VALUE */
        const struct cg_attempt *attempt;
        char note[CG_NOTE_SIZE];
};

typedef enum cg_verdict (*cg_attempt_fn)(struct cg_try *t, const struct cg_attempt *a);

/* Changes of files by name. A change of the name "fresh" makes that file first. */
enum cg_change {
        CG_MAKE = 1, /* file arg */
        CG_REMOVE,
        CG_MKDIR,
        CG_RMDIR,
        CG_MKFIFO,
        CG_TRUNCATE, /* to its size, so that nothing is lost */
        CG_CHMOD,
        CG_FCHMOD,
        CG_TIMES,
        CG_ATTRIBUTE,
        CG_ACCESS_LIST,
        CG_FLAGS,
        CG_RENAME,   /* arg to arg2 */
        CG_EXCHANGE, /* arg and arg2 */
        CG_LINK,     /* arg2: another name of arg */
        CG_SYMLINK,  /* arg2: a link to arg */
};

struct cg_attempt {
        const char *name;
        /*
         * the layer that denies it; "a|b": either. Names of cg_sandbox_layers(), and "proxy",
         * "environment", "descriptors", "session"
         */
        const char *layer;
        cg_attempt_fn run;
        const char *what;
        bool allow; /* must be possible */
        enum cg_bare bare;
        int in; /* sandboxes that it applies to; 0: both */
        /* Arguments of functions that several attempts share. */
        const char *arg, *arg2;
        unsigned long call[7]; /* number and arguments of a system call */
        enum cg_change change;
        cg_attempt_fn then; /* tried after the change, at @at */
        const char *at;
        /* Errors that count as denials, too: see cg_filtered() and cg_refused(). */
        int also[4];
};

/* Rows of the tables. After @what: members that are not 0. */
#define CG_DENY(name_, layer_, run_, what_, ...) \
        { \
                .name = name_, .layer = layer_, .run = run_, .what = what_, __VA_ARGS__ \
        }
#define CG_ALLOW(name_, run_, what_, ...) CG_DENY(name_, "", run_, what_, .allow = true, __VA_ARGS__)

/* Values of cg_attempt.call. */
#define CG_ADDR(x) ((unsigned long)(x))

struct cg_attempts {
        const char *group;
        const struct cg_attempt *list;
        size_t n;
};

extern const struct cg_attempts cg_attempts_proc, cg_attempts_sockets, cg_attempts_ipc, cg_attempts_devices,
        cg_attempts_calls, cg_attempts_privileges, cg_attempts_processes, cg_attempts_files,
        cg_attempts_setid, cg_attempts_protected, cg_attempts_hidden, cg_attempts_proxy, cg_attempts_names;

/* ---- verdicts with their note, printf-like */
enum cg_verdict cg_held(struct cg_try *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
enum cg_verdict cg_hole(struct cg_try *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
enum cg_verdict cg_works(struct cg_try *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
enum cg_verdict cg_fails(struct cg_try *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
enum cg_verdict cg_skip(struct cg_try *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* A hole if @hole, else held; with one of the notes. */
enum cg_verdict cg_hole_if(struct cg_try *t, bool hole, const char *note, const char *held);
/* Works, or fails with the note. */
enum cg_verdict cg_works_if(struct cg_try *t, bool works, const char *note);
/* The name of errno if @result is negative, else @text. */
const char *cg_error_or(long result, const char *text);
/* write(2) of @text; where @fd is none, -1 with the errno of before. */
long cg_write_to(int fd, const char *text);

/*
 * Verdict on a system call's result (-1 and errno): held if it failed with EPERM, EACCES, ENOSYS or
 * an error of a->also.
 */
enum cg_verdict cg_filtered(struct cg_try *t, long result);
/* The same for calls with paths: EROFS, ENOENT, EXDEV, EBUSY and ENOTDIR count as denials, too. */
enum cg_verdict cg_refused(struct cg_try *t, long result);
/* Verdict on a required operation. */
enum cg_verdict cg_possible(struct cg_try *t, long result);

/* ---- the scene. The text, or NULL; a number, or 0. */
const char *cg_scene(const struct cg_try *t, const char *name);
unsigned long cg_scene_number(const struct cg_try *t, const char *name);
/* All the layers of @layer are missing in the scene's "layers". */
bool cg_scene_lacks(const struct cg_try *t, const char *layer);

/* Reads up to @size - 1 bytes, adds a NUL; the length, or -1 and errno. Never waits for a FIFO. */
long cg_slurp(const char *path, char *buf, size_t size);
/* The @len bytes at @buf contain @text. */
bool cg_has(const char *buf, size_t len, const char *text);
/* "EPERM"; never NULL. */
const char *cg_errno_name(int error);

/* Opens for writing, making it if needed, and closes. -1 and errno. */
int cg_make(const char *path);
/* Appends one byte; -1 and errno. */
long cg_append(const char *path);
/* Closes @fd and removes @path, if they are there (-1, NULL: not given). errno stays. */
void cg_drop(int fd, const char *path);
/* -1 and errno */
int cg_change(enum cg_change change, const char *from, const char *to);
/* A race is run for 0.3 s. */
bool cg_race_goes_on(const struct timespec *start);

/*
 * The canary is a process of the same user outside. Inside, its number may be another process's:
 * success is a hole only if the command line is the canary's.
 */
const char *cg_canary_path(const struct cg_try *t, const char *name);
bool cg_is_canary(const struct cg_try *t);

/* ---- shared by tables */
/* a->call must be refused */
enum cg_verdict cg_try_call(struct cg_try *t, const struct cg_attempt *a);
/* a->arg opened for writing; nothing is written */
enum cg_verdict cg_try_open_write(struct cg_try *t, const struct cg_attempt *a);
/* a->arg opened and one byte read */
enum cg_verdict cg_try_open_read(struct cg_try *t, const struct cg_attempt *a);
/* a->arg opened with the flags call[0], and again by /proc/self/fd with call[1] */
enum cg_verdict cg_try_reopen(struct cg_try *t, const struct cg_attempt *a);
/* a->arg appended to */
enum cg_verdict cg_try_append(struct cg_try *t, const struct cg_attempt *a);
/* a->arg made, and removed again */
enum cg_verdict cg_try_create(struct cg_try *t, const struct cg_attempt *a);
/* a->change made, a->then tried if there is one, and the change undone */
enum cg_verdict cg_try_change(struct cg_try *t, const struct cg_attempt *a);
/* appended to by a name that becomes a link to a->arg */
enum cg_verdict cg_try_link_race(struct cg_try *t, const struct cg_attempt *a);
/* a->arg read; has the scene's value a->arg2, or that of a hidden file */
enum cg_verdict cg_try_leak(struct cg_try *t, const struct cg_attempt *a);
/* names in the folder a->arg other than those of a->arg2, which are separated by blanks */
enum cg_verdict cg_try_list(struct cg_try *t, const struct cg_attempt *a);
/* a->arg can be made, written and removed */
enum cg_verdict cg_try_write(struct cg_try *t, const struct cg_attempt *a);
/* a->arg can be read and is not empty */
enum cg_verdict cg_try_readable(struct cg_try *t, const struct cg_attempt *a);

#define CG_TABLE(name, title) \
        const struct cg_attempts cg_attempts_##name = { title, attempts, \
                                                        sizeof(attempts) / sizeof(attempts[0]) }
