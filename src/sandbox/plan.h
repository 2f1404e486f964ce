/* The plan's data. Private to src/sandbox; made by the caller, read by every step inside. */
#ifndef CG_SANDBOX_PLAN_H
#define CG_SANDBOX_PLAN_H

#include <linux/filter.h>
#include <stdbool.h>
#include "sandbox/sandbox.h"

/* Ceilings. A plan is a handful of entries; these only keep a wrong settings file from making thousands of mounts. */
#define CG_PLAN_MOUNTS_MAX 256
#define CG_PLAN_HIDES_MAX 512

/* Defaults of struct cg_sandbox_limits. */
#define CG_PLAN_PROCESSES 512
#define CG_PLAN_OPEN_FILES 4096

/*
 * Private tmpfs. They live in memory that no rlimit counts, so each has a ceiling: enough for a package build in /tmp
 * and for arrays shared between worker processes in /dev/shm. Inodes are kernel memory outside "size".
 */
#define CG_PLAN_TMP_SIZE "1g"
#define CG_PLAN_RUN_SIZE "64m"
#define CG_PLAN_SHM_SIZE "1g"
#define CG_PLAN_TMP_INODES "262144"

/* What is mounted at a path. Where two entries name one path, the later kind lies on top. */
enum cg_plan_kind {
        CG_PLAN_TMPFS,   /* private, writable, gone with the sandbox */
        CG_PLAN_DEV,
        CG_PLAN_PROC,
        CG_PLAN_SYS,
        CG_PLAN_WRITE,   /* the host's own path, writable */
        CG_PLAN_BIND_RO, /* src, read-only */
};

struct cg_plan_mount {
        enum cg_plan_kind kind;
        char *path;       /* absolute, without symlinks */
        char *src;        /* CG_PLAN_WRITE and CG_PLAN_BIND_RO */
        const char *mode; /* CG_PLAN_TMPFS: static text */
        const char *size; /* CG_PLAN_TMPFS: static text */
};

struct cg_sandbox {
        bool off;
        bool root_writable;                              /* "/" is a write root */
        struct cg_plan_mount mounts[CG_PLAN_MOUNTS_MAX]; /* parents before what lies in them */
        size_t n_mounts;
        char *hides[CG_PLAN_HIDES_MAX];                  /* absolute, without symlinks */
        size_t n_hides;
        char *cwd;
        struct cg_sandbox_limits limits;
        struct sock_fprog filter; /* compiled once, see seccomp.c */
};

/* @path is @dir or lies in it (both absolute, without symlinks). */
bool cg_plan_within(const char *path, const char *dir);

/* True where a pid namespace has a pid_max of its own (Linux 6.14); before, writing it would change the host's. */
bool cg_plan_has_own_pid_max(void);

#endif
