/* File descriptors: passing them, sockets with a path, pidfds. All are born close-on-exec. */
#pragma once

#include <linux/limits.h>
#include <stdatomic.h>
#include "base/util.h"

#define CG_MAX_FDS 32

/* Listening AF_UNIX stream socket at @path (mode 0600; must not exist). *ret: caller closes. */
int cg_listen_unix(const char *path, int backlog, int *ret, struct cg_err *err);

/*
 * Connected AF_UNIX stream socket of a process of this user (else CG_E_INVAL), whoever can write
 * the folder; non-blocking from then on. EAGAIN: the listener's queue was full for @timeout_ms.
 */
int cg_connect_own(const char *path, int64_t timeout_ms, int *ret, struct cg_err *err);
/* Of any user. Does not wait for a full queue, as a hostile listener's may be. */
int cg_connect_unix_now(const char *path, int *ret, struct cg_err *err);

/* One datagram with up to CG_MAX_FDS descriptors (which stay the caller's) over SOCK_SEQPACKET. */
int cg_send_fds(int sock, const void *data, size_t len, const int *fds, size_t n_fds, struct cg_err *err);

/*
 * Receives one: returns its length (0 at end of file), or negative. *n_fds: in, room; out, how many
 * came (close-on-exec, caller closes). A datagram or descriptors that do not fit are CG_E_LIMIT and
 * nothing leaks. EAGAIN is CG_E_SYS with that errno.
 */
ssize_t cg_recv_fds(int sock, void *data, size_t size, int *fds, size_t *n_fds, struct cg_err *err);

int cg_pidfd_open(pid_t pid, struct cg_err *err); /* the descriptor, or negative error code */
/* its number in our pid namespace; 0: it has none here, or has ended */
pid_t cg_pidfd_pid(int pidfd);
int cg_pidfd_kill(int pidfd, int sig); /* 0, or -errno; -ESRCH when it has ended */

/* Waits until @fd has one of @events (poll's). 0 yes, CG_TIMEOUT, negative. -1 waits for ever. */
int cg_wait_fd(int fd, short events, int64_t timeout_ms, struct cg_err *err);

/* Writes everything; EINTR is handled; blocking descriptors only. */
int cg_write_all(int fd, const void *data, size_t len, struct cg_err *err);
/* Moves @n bytes, in the pipe already, into a regular file: with one copy if it has splice(). */
int cg_pipe_to_file(int pipe, int fd, size_t n, struct cg_err *err);

/*
 * Replaces the file @path by one with @text, or makes it: all of it, or nothing has changed. @mode
 * is that of the new file. The bytes are on the disk before the name is.
 */
int cg_write_atomically(const char *path, const void *text, size_t len, unsigned mode, struct cg_err *err);
/* The same below the folder @dir. */
int cg_write_atomically_at(int dir, const char *path, const void *text, size_t len, unsigned mode,
                           struct cg_err *err);
/*
 * The same for a file that can be made again, and is checked when it is read: without the wait for
 * the disk, of which nothing or a part may be left after a crash of the machine.
 */
int cg_write_cache(const char *path, const void *text, size_t len, unsigned mode, struct cg_err *err);

/*
 * Locks the file @fd against other processes, as flock(2), which has no deadline. CG_TIMEOUT:
 * another process holds it. @stop: ends the wait (CG_E_CLOSED); NULL: never. Closing @fd unlocks.
 */
int cg_lock_fd(int fd, int64_t timeout_ms, const atomic_bool *stop, struct cg_err *err);
/* Opens the file @path, which is made with mode 0600, and locks it. *ret: set only when 0. */
int cg_lock_file(const char *path, int64_t timeout_ms, const atomic_bool *stop, int *ret, struct cg_err *err);

/* Reads a whole file or pipe of at most @max bytes. *ret NUL-terminated (caller frees). */
int cg_read_file(const char *path, size_t max, char **ret, size_t *len, struct cg_err *err);
/* The same in a folder that cells can write to: never blocks, fails for all but regular files. */
int cg_read_regular(const char *path, size_t max, char **ret, size_t *len, struct cg_err *err);
int cg_read_fd(int fd, const char *what, size_t max, char **ret, size_t *len, struct cg_err *err);
/* For a pipe whose writers may never close it: CG_TIMEOUT when there was no end of file in time. */
int cg_read_fd_within(int fd, const char *what, size_t max, int64_t timeout_ms, char **ret, size_t *len,
                      struct cg_err *err);

/*
 * realpath(3) with three system calls, or one when @path does not exist: a kernel's start resolves
 * dozens of paths. False: errno is set.
 */
bool cg_real_path(const char *path, char ret[PATH_MAX]);

/*
 * The path of PREFIX-UID, where all runtime folders of this user lie: in $XDG_RUNTIME_DIR where
 * that is a folder of this user's that nobody else can write, and short enough for sockets below
 * it, else in /tmp.
 */
int cg_runtime_parent(const char *prefix, char *buf, size_t size, struct cg_err *err);

/*
 * Makes the folder @path with mode 0700, or accepts an existing one that nobody else can change.
 * False: the name is taken by something else.
 */
bool cg_make_own_dir(const char *path);

/*
 * Makes a folder of mode 0700 in PREFIX-UID, a folder of this user's under $XDG_RUNTIME_DIR or /tmp
 * that stays; @buf gets its absolute path. All in one folder can be hidden together, those of the
 * future as well.
 */
int cg_make_runtime_dir(const char *prefix, char *buf, size_t size, struct cg_err *err);

/* mkdir -p: makes @path and missing folders above it, each with @mode; never the user's home. */
int cg_make_dirs(const char *path, unsigned mode, struct cg_err *err);

/*
 * Removes a folder and all in it, never following a symlink. Absent is fine. CG_E_TIMEDOUT after
 * CG_REMOVE_MS, since another process could make files as fast as they are removed; the rest stays
 * in the folder.
 */
#define CG_REMOVE_MS \
        120000 /* a million files take some seconds, or tens of them where a file system is slow */
int cg_remove_tree(const char *path, struct cg_err *err);
int cg_remove_tree_within(const char *path, int64_t timeout_ms, struct cg_err *err);
