/*
 * The thread that waits for init's answer to a system call: its memory, descriptors and status, by
 * its number. The thread may be killed at any time and its number given to another: what was read
 * is the caller's only if cg_caller_waits() is true afterwards. Its memory can change between two
 * reads, so each argument is read once.
 */
#pragma once

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct cg_notify;
struct seccomp_notif;

/* The call still waits for its answer. */
bool cg_caller_waits(const struct cg_notify *n, const struct seccomp_notif *call);
/* @len bytes at @at. 0, -EFAULT, or -EPERM. */
int cg_caller_read(const struct seccomp_notif *call, uint64_t at, void *buf, size_t len);
/* The path at @at with its NUL. 0, -EFAULT, -EPERM, or -ENAMETOOLONG. */
int cg_caller_read_path(const struct seccomp_notif *call, uint64_t at, char path[PATH_MAX]);
/* The link in /proc to the file of the descriptor @fd, or to the working folder with AT_FDCWD. */
#define CG_CALLER_LINK_MAX 64
void cg_caller_link(const struct seccomp_notif *call, int fd, char link[CG_CALLER_LINK_MAX]);
/* Opens (O_PATH) that file if the call still waits. A descriptor, -EBADF, -EPERM, or -ESRCH. */
int cg_caller_open(const struct cg_notify *n, const struct seccomp_notif *call, int fd);
/* Processes that have made calls, the last one first. */
#define CG_CALLER_PROCESSES 16
struct cg_caller_process {
        pid_t pid;
        int fd;     /* pidfd; -1: a thread other than the first, or unknown */
        int folder; /* its working directory, kept by mediate_path.c; -1 */
};
/*
 * The process of the call in @list, which gets it as its first entry. A number that was given to
 * another process is noticed. NULL: the call is that of a thread other than the first, which may
 * have descriptors and a working directory of its own.
 */
struct cg_caller_process *cg_caller_find(struct cg_caller_process list[CG_CALLER_PROCESSES],
                                         const struct seccomp_notif *call);
/* A copy of the process's descriptor @fd, which is the same open file; -1: unknown. */
int cg_caller_take(const struct cg_notify *n, const struct seccomp_notif *call, int fd,
                   struct cg_caller_process list[CG_CALLER_PROCESSES]);
/* The text after @key ("\nTgid:") in /proc/@tid/status, which is read into @text. NULL: none. */
#define CG_CALLER_STATUS_MAX 4096
/* Reads the start of /proc/TID/@name as text; "" and false when it cannot be read. */
bool cg_caller_proc_text(pid_t tid, const char *name, char *text, size_t size);
const char *cg_caller_status(pid_t tid, const char *key, char text[CG_CALLER_STATUS_MAX]);
/* The process of the thread @tid, or -1. */
pid_t cg_caller_process(pid_t tid);
