/*
 * A /dev with nothing in it but the harmless devices, terminals of its own and shared memory. The
 * host's has disks, /dev/kvm, /dev/fuse, /dev/vsock and more, guarded by file modes only. Runs in
 * init.
 */
#include "sandbox/places.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/util.h"
#include "sandbox/mountfd.h"

static const char *const nodes[CG_DEV_NODES] = { "null", "zero", "full", "random", "urandom", "tty" };

static const struct {
        const char *name;
        const char *target;
} links[] = {
        { "fd", "/proc/self/fd" },       { "stdin", "/proc/self/fd/0" }, { "stdout", "/proc/self/fd/1" },
        { "stderr", "/proc/self/fd/2" }, { "ptmx", "pts/ptmx" },
};

int cg_dev_collect(struct cg_dev *dev, struct cg_err *err)
{
        for (size_t i = 0; i < CG_DEV_NODES; i++)
                dev->nodes[i] = -1;
        for (size_t i = 0; i < CG_DEV_NODES; i++) {
                char path[32];
                cg_auto_fd int fd = -1;

                snprintf(path, sizeof(path), "/dev/%s", nodes[i]);
                fd = cg_mount_open(path);
                dev->nodes[i] = fd < 0 ? -1 : cg_mount_clone(fd, false);
                if (dev->nodes[i] < 0 ||
                    cg_mount_set(dev->nodes[i], MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC, false) < 0)
                        return cg_fail_errno(err, "sandbox: device %s", path);
        }
        return 0;
}

void cg_dev_close(struct cg_dev *dev)
{
        for (size_t i = 0; i < CG_DEV_NODES; i++)
                cg_closep_(&dev->nodes[i]);
}

static int add_node(int dir, const char *name, int node, struct cg_err *err)
{
        cg_auto_fd int target = -1;

        if (mknodat(dir, name, S_IFREG | 0644, 0) < 0)
                return cg_fail_errno(err, "sandbox: /dev/%s", name);
        target = cg_mount_open_at(dir, name);
        if (target < 0 || cg_mount_attach(node, target) < 0)
                return cg_fail_errno(err, "sandbox: /dev/%s", name);
        return 0;
}

static int add_file_system(int dir, const char *name, const char *type, const struct cg_mount_option *options,
                           uint64_t attrs, struct cg_err *err)
{
        cg_auto_fd int fs = cg_mount_new(type, options, attrs);
        cg_auto_fd int target = -1;

        if (fs < 0 || mkdirat(dir, name, 0755) < 0)
                return cg_fail_errno(err, "sandbox: /dev/%s", name);
        target = cg_mount_open_at(dir, name);
        if (target < 0 || cg_mount_attach(fs, target) < 0)
                return cg_fail_errno(err, "sandbox: /dev/%s", name);
        return 0;
}

static int populate(struct cg_dev *dev, uint64_t memory, int dir, struct cg_err *err)
{
        /* Only terminals that this sandbox made. */
        static const struct cg_mount_option pts[] = {
                { "newinstance", NULL }, { "mode", "0620" }, { "ptmxmode", "0666" }, { NULL, NULL }
        };
        char size[CG_PLAN_SIZE_TEXT];
        const struct cg_mount_option shm[] = { { "mode", "1777" },
                                               { "size", cg_plan_tmpfs_size(memory, CG_PLAN_SHM_SIZE, size) },
                                               { "nr_inodes", CG_PLAN_TMP_INODES },
                                               { NULL, NULL } };

        for (size_t i = 0; i < CG_DEV_NODES; i++) {
                if (add_node(dir, nodes[i], dev->nodes[i], err) < 0)
                        return -1;
        }
        for (size_t i = 0; i < CG_ARRAY_LEN(links); i++) {
                if (symlinkat(links[i].target, dir, links[i].name) < 0)
                        return cg_fail_errno(err, "sandbox: /dev/%s", links[i].name);
        }
        if (add_file_system(dir, "pts", "devpts", pts, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC, err) < 0)
                return -1;
        return add_file_system(dir, "shm", "tmpfs", shm, CG_MOUNT_PLAIN, err);
}

int cg_dev_mount(struct cg_dev *dev, uint64_t memory, int target, struct cg_err *err)
{
        static const struct cg_mount_option options[] = {
                { "mode", "0755" }, { "size", "64k" }, { "nr_inodes", "64" }, { NULL, NULL }
        };
        cg_auto_fd int fs = cg_mount_new("tmpfs", options, CG_MOUNT_PLAIN | MOUNT_ATTR_NOEXEC);

        /* Attached first: older kernels cannot mount in a detached mount. */
        if (fs < 0 || cg_mount_attach(fs, target) < 0)
                return cg_fail_errno(err, "sandbox: /dev");
        if (populate(dev, memory, fs, err) < 0)
                return -1;
        if (cg_mount_set(fs, MOUNT_ATTR_RDONLY, false) < 0)
                return cg_fail_errno(err, "sandbox: /dev read-only");
        return 0;
}
