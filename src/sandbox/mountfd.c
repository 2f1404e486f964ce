/*
 * The system calls of mountfd.h. Runs in init. By number: glibc has functions for those of mounts
 * from 2.36 on only, and a Python wheel runs with older ones.
 */
#include "sandbox/mountfd.h"

#include <linux/openat2.h>
#include <poll.h>
#include <sys/syscall.h>

#include "base/util.h"

#ifndef STATX_ATTR_MOUNT_ROOT
#define STATX_ATTR_MOUNT_ROOT 0x00002000
#endif

/* Running writes end within this time, also on a slow disk; a file may stay open for ever. */
#define BUSY_MS 5000

int cg_open_path(int dir_fd, const char *path, uint64_t flags, uint64_t resolve)
{
        struct open_how how = { .flags = O_PATH | O_CLOEXEC | flags, .resolve = resolve };

        return (int)syscall(SYS_openat2, dir_fd, path, &how, sizeof(how));
}

int cg_mount_open(const char *path)
{
        return cg_open_path(AT_FDCWD, path, 0, RESOLVE_NO_SYMLINKS);
}

int cg_mount_open_at(int dir_fd, const char *path)
{
        return cg_open_path(dir_fd, path, 0, RESOLVE_NO_SYMLINKS | RESOLVE_BENEATH);
}

int cg_mount_open_link(const char *path)
{
        return cg_open_path(AT_FDCWD, path, O_NOFOLLOW, RESOLVE_NO_SYMLINKS);
}

int cg_mount_clone(int fd, bool recursive)
{
        if (fd < 0)
                return -1;
        return (int)syscall(SYS_open_tree, fd, "",
                            AT_EMPTY_PATH | OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC |
                                    (recursive ? AT_RECURSIVE : 0u));
}

int cg_mount_set(int fd, uint64_t attrs, bool recursive)
{
        struct mount_attr attr = { .attr_set = attrs, .propagation = MS_PRIVATE };
        int64_t end = cg_now_ms() + BUSY_MS;
        int r;

        for (;;) {
                r = (int)syscall(SYS_mount_setattr, fd, "", AT_EMPTY_PATH | (recursive ? AT_RECURSIVE : 0u),
                                 &attr, sizeof(attr));
                if (r == 0 || errno != EBUSY || cg_now_ms() >= end)
                        return r;
                poll(NULL, 0, 1);
        }
}

int cg_mount_new(const char *type, const struct cg_mount_option *options, uint64_t attrs)
{
        cg_auto_fd int fs = (int)syscall(SYS_fsopen, type, FSOPEN_CLOEXEC);

        if (fs < 0)
                return -1;
        for (; options && options->key; options++) {
                unsigned int cmd = options->value ? FSCONFIG_SET_STRING : FSCONFIG_SET_FLAG;

                if (syscall(SYS_fsconfig, fs, cmd, options->key, options->value, 0) < 0)
                        return -1;
        }
        if (syscall(SYS_fsconfig, fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0) < 0)
                return -1;
        return (int)syscall(SYS_fsmount, fs, FSMOUNT_CLOEXEC, (unsigned int)attrs);
}

int cg_mount_attach(int mount_fd, int target_fd)
{
        return (int)syscall(SYS_move_mount, mount_fd, "", target_fd, "",
                            MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH);
}

bool cg_mount_is_root(int fd)
{
        struct statx st;

        if (statx(fd, "", AT_EMPTY_PATH, 0, &st) < 0)
                return false;
        return (st.stx_attributes_mask & STATX_ATTR_MOUNT_ROOT) &&
               (st.stx_attributes & STATX_ATTR_MOUNT_ROOT);
}
