/*
 * Mounts by file descriptor (Linux 5.12): source and target of a mount are open files, so that no
 * name is resolved twice. Private to src/sandbox; all return -1 with errno set on failure.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/mount.h>

/* Attributes of every mount inside: no set-user-id programs, no devices. */
#define CG_MOUNT_PLAIN (MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV)

/* Option of a new file system; value NULL for a flag. A list ends with key NULL. */
struct cg_mount_option {
        const char *key;
        const char *value;
};

/* openat2() with O_PATH and these other @flags. */
int cg_open_path(int dir_fd, const char *path, uint64_t flags, uint64_t resolve);
/* O_PATH descriptor of absolute @path; any symlink in it is ELOOP: plans hold resolved paths. */
int cg_mount_open(const char *path);
/* The same; if the last part is a symlink, the symlink itself. */
int cg_mount_open_link(const char *path);
/* The same relative to @dir_fd, which it cannot leave. */
int cg_mount_open_at(int dir_fd, const char *path);
/* A detached copy of the mount at @fd, with all that is mounted in it when @recursive. */
int cg_mount_clone(int fd, bool recursive);
/*
 * Sets attributes and makes the mount private: later mounts of the host do not appear in it. Waits
 * for running writes (also of access times), during which a mount cannot become read-only. EBUSY: a
 * file is kept open for writing.
 */
int cg_mount_set(int fd, uint64_t attrs, bool recursive);
/* A detached new file system. */
int cg_mount_new(const char *type, const struct cg_mount_option *options, uint64_t attrs);
/* Mounts detached @mount_fd on @target_fd. */
int cg_mount_attach(int mount_fd, int target_fd);
/* @fd is the root of a mount. */
bool cg_mount_is_root(int fd);
