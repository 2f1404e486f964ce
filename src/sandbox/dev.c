/*
 * A /dev with nothing in it but the harmless devices, terminals of its own and shared memory. The
 * host's has disks, /dev/kvm, /dev/fuse, /dev/vsock and more, guarded by file modes only. Runs in
 * init.
 */
#include "sandbox/places.h"

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
                dev->nodes[i] = cg_mount_clone(fd, false);
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

int cg_dev_mount(struct cg_dev *dev, uint64_t memory, int target, struct cg_err *err)
{
        static const struct cg_mount_option options[] = {
                { "mode", "0755" }, { "size", "64k" }, { "nr_inodes", "64" }, { NULL, NULL }
        };
        /* Only terminals that this sandbox made. */
        static const struct cg_mount_option pts[] = {
                { "newinstance", NULL }, { "mode", "0620" }, { "ptmxmode", "0666" }, { NULL, NULL }
        };
        char size[CG_PLAN_SIZE_TEXT];
        const struct cg_mount_option shm[] = { { "mode", "1777" },
                                               { "size", cg_plan_tmpfs_size(memory, CG_PLAN_SHM_SIZE, size) },
                                               { "nr_inodes", CG_PLAN_TMP_INODES },
                                               { NULL, NULL } };
        cg_auto_fd int fs = cg_mount_new("tmpfs", options, CG_MOUNT_PLAIN | MOUNT_ATTR_NOEXEC);

        /* Attached first: older kernels cannot mount in a detached mount. */
        if (fs < 0 || cg_mount_attach(fs, target) < 0)
                return cg_fail_errno(err, "sandbox: /dev");
        for (size_t i = 0; i < CG_DEV_NODES; i++) {
                cg_auto_fd int node = -1;

                if (mknodat(fs, nodes[i], S_IFREG | 0644, 0) < 0)
                        return cg_fail_errno(err, "sandbox: /dev/%s", nodes[i]);
                node = cg_mount_open_at(fs, nodes[i]);
                if (node < 0 || cg_mount_attach(dev->nodes[i], node) < 0)
                        return cg_fail_errno(err, "sandbox: /dev/%s", nodes[i]);
        }
        for (size_t i = 0; i < CG_ARRAY_LEN(links); i++)
                if (symlinkat(links[i].target, fs, links[i].name) < 0)
                        return cg_fail_errno(err, "sandbox: /dev/%s", links[i].name);
        if (add_file_system(fs, "pts", "devpts", pts, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC, err) < 0 ||
            add_file_system(fs, "shm", "tmpfs", shm, CG_MOUNT_PLAIN, err) < 0)
                return -1;
        if (cg_mount_set(fs, MOUNT_ATTR_RDONLY, false) < 0)
                return cg_fail_errno(err, "sandbox: /dev read-only");
        return 0;
}
