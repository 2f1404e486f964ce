/*
 * Makes the sandbox's view of the file system. Runs in init, which is alone in a mount namespace
 * that is a copy of the caller's.
 *
 * The copy is changed in place: no second copy of the tree and no pivot_root. This is as safe
 * (nothing inside has the capability to unmount), faster, and works if the root is an initramfs,
 * which cannot be pivoted away.
 */
#include "sandbox/steps.h"

#include <sys/resource.h>

#include "base/path.h"
#include "base/util.h"
#include "sandbox/mountfd.h"
#include "sandbox/places.h"

/* Copies of mounts that stay accessible, taken while everything is still visible and writable. */
struct view {
        const struct cg_sandbox *sb;
        uint64_t memory; /* limit for the sizes of private tmpfs */
        /* of WRITE, BIND_RO and MASK; of EMPTY from its mount until it is read-only; else -1 */
        int *sources;
        struct cg_dev dev;
        struct cg_cover cover;
};

/* Files of masks are made in /dev, which the sandbox's own later covers: each is a mount itself. */
static int collect_masks(struct view *v, struct cg_err *err)
{
        static const struct cg_mount_option options[] = { { "mode", "0700" },
                                                          { "size", "64m" },
                                                          { NULL, NULL } };
        cg_auto_fd int stage = -1;

        for (size_t i = 0; i < v->sb->n_mounts; i++) {
                const struct cg_plan_mount *m = &v->sb->mounts[i];
                cg_auto_fd int fd = -1, copy = -1;
                char name[24];

                if (m->kind != CG_PLAN_MASK)
                        continue;
                if (stage < 0) {
                        cg_auto_fd int dev = cg_mount_open("/dev");

                        stage = dev < 0 ? -1 : cg_mount_new("tmpfs", options, CG_MOUNT_PLAIN);
                        if (stage < 0 || cg_mount_attach(stage, dev) < 0)
                                return cg_fail_errno(err, "sandbox: place for masks");
                }
                snprintf(name, sizeof(name), "%zu", i);
                fd = openat(stage, name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0444);
                if (fd < 0 || write(fd, m->data, m->len) != (ssize_t)m->len)
                        return cg_fail_errno(err, "sandbox: mask of %s", m->path);
                copy = cg_mount_clone(fd, false);
                if (copy < 0 ||
                    cg_mount_set(copy, CG_MOUNT_PLAIN | MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOEXEC, false) < 0)
                        return cg_fail_errno(err, "sandbox: mask of %s", m->path);
                v->sources[i] = cg_steal_fd(&copy);
        }
        return 0;
}

/* A write root with nothing protected or hidden in it, which could have another name now. */
static bool holds_no_rule(const struct cg_sandbox *sb, const struct cg_plan_mount *m)
{
        for (size_t i = 0; i < sb->n_mounts; i++)
                if (&sb->mounts[i] != m && cg_path_within(sb->mounts[i].path, m->path))
                        return false;
        return m->kind == CG_PLAN_WRITE;
}

static int collect(struct view *v, struct cg_err *err)
{
        for (size_t i = 0; i < v->sb->n_mounts; i++) {
                const struct cg_plan_mount *m = &v->sb->mounts[i];
                uint64_t attrs = CG_MOUNT_PLAIN | (m->kind == CG_PLAN_BIND_RO ? MOUNT_ATTR_RDONLY : 0);
                cg_auto_fd int fd = -1, copy = -1;

                /*
                 * The root cannot be mounted onto itself while processes have it as root; it stays
                 * writable instead.
                 */
                if (!m->src || !m->path[1])
                        continue;
                fd = cg_mount_open(m->src);
                if (fd < 0 && errno == ENOENT && holds_no_rule(v->sb, m))
                        continue;
                copy = cg_mount_clone(fd, true);
                if (fd < 0 && errno == EACCES && getuid() == 0)
                        return cg_fail_errno(
                                err, "sandbox: %s (root has no power over other users' folders inside)",
                                m->src);
                if (copy < 0 || cg_mount_set(copy, attrs, true) < 0)
                        return cg_fail_errno(err, "sandbox: %s", m->src);
                v->sources[i] = cg_steal_fd(&copy);
        }
        if (cg_dev_collect(&v->dev, err) < 0)
                return -1;
        return collect_masks(v, err);
}

/* Mounts one of the sandbox's own file systems. */
static int place_own(struct view *v, const struct cg_plan_mount *m, struct cg_err *err)
{
        cg_auto_fd int target = -1, fs = -1;

        if (cg_cover_target(m->path, true, &target, err) < 0)
                return -1;
        if (m->kind == CG_PLAN_DEV)
                return cg_dev_mount(&v->dev, v->memory, target, err);
        if (m->kind == CG_PLAN_PROC)
                return cg_proc_mount(v->sb, &v->cover, target, err);
        if (m->kind == CG_PLAN_TMPFS) {
                char size[CG_PLAN_SIZE_TEXT];
                const struct cg_mount_option options[] = { { "mode", m->mode },
                                                           { "size",
                                                             cg_plan_tmpfs_size(v->memory, m->size, size) },
                                                           { "nr_inodes", CG_PLAN_TMP_INODES },
                                                           { NULL, NULL } };

                fs = cg_mount_new("tmpfs", options, CG_MOUNT_PLAIN);
                if (fs < 0 || cg_mount_attach(fs, target) < 0)
                        return cg_fail_errno(err, "sandbox: private %s", m->path);
                return 0;
        }
        return cg_sys_mount(&v->cover, target, err);
}

/*
 * Mounts the folders between write root and hidden path onto themselves, so that they cannot be
 * renamed. Otherwise the cover would move along in this sandbox, but the next one would not find
 * the hidden path and would show it under its new name.
 */
static int pin_parents(const struct cg_sandbox *sb, const char *hidden, struct cg_err *err)
{
        const char *root = NULL, *slash;
        char path[PATH_MAX];

        /* Sorted by depth: the first one is the outermost. */
        for (size_t i = 0; i < sb->n_mounts && !root; i++)
                if (sb->mounts[i].kind == CG_PLAN_WRITE && cg_path_within(hidden, sb->mounts[i].path))
                        root = sb->mounts[i].path;
        if (!root || strcmp(root, hidden) == 0)
                return 0;
        /* After the root's path; "/" is the only one that ends with a slash. */
        slash = hidden + (root[1] ? strlen(root) : 0);
        while ((slash = strchr(slash + 1, '/'))) {
                cg_auto_fd int fd = -1, copy = -1;

                snprintf(path, sizeof(path), "%.*s", (int)(slash - hidden), hidden);
                fd = cg_mount_open(path);
                if (fd < 0 && (errno == ENOENT || errno == ENOTDIR || errno == EACCES))
                        return 0; /* then the hidden path in it is missing as well */
                if (fd >= 0 && cg_mount_is_root(fd))
                        continue;
                copy = cg_mount_clone(fd, true);
                if (copy < 0 || cg_mount_set(copy, CG_MOUNT_PLAIN, true) < 0 || cg_mount_attach(copy, fd) < 0)
                        return cg_fail_errno(err, "sandbox: keeping %s in place", path);
        }
        return 0;
}

/* Covers a hidden path, also where a read-only bind shows it a second time. */
static int place_cover(struct view *v, const char *hidden, struct cg_err *err)
{
        char path[PATH_MAX];

        if (pin_parents(v->sb, hidden, err) < 0)
                return -1;
        for (size_t i = 0; i < v->sb->n_mounts; i++) {
                const struct cg_plan_mount *m = &v->sb->mounts[i];
                int n;

                if (m->kind != CG_PLAN_BIND_RO || strcmp(hidden, m->src) == 0 ||
                    !cg_path_within(hidden, m->src))
                        continue;
                n = snprintf(path, sizeof(path), "%s%s", m->path,
                             m->src[1] ? hidden + strlen(m->src) : hidden);
                if (n < 0 || (size_t)n >= sizeof(path))
                        return cg_fail(err, CG_E_LIMIT, "sandbox: path of %s at %s is too long", hidden,
                                       m->path);
                if (cg_cover_path(&v->cover, path, err) < 0)
                        return -1;
        }
        return cg_cover_path(&v->cover, hidden, err);
}

/* It is about a path of the host that a folder of the sandbox's own covers, such as /tmp. */
static bool is_covered(const struct cg_sandbox *sb, size_t i)
{
        const struct cg_plan_mount *m = &sb->mounts[i], *above = NULL;
        struct stat st;

        if (m->kind != CG_PLAN_READ && m->kind != CG_PLAN_PIN && m->kind != CG_PLAN_HIDE &&
            m->kind != CG_PLAN_EMPTY)
                return false;
        for (size_t k = 0; k < i; k++) {
                const struct cg_plan_mount *o = &sb->mounts[k];

                if (o->kind != CG_PLAN_READ && o->kind != CG_PLAN_PIN && o->kind != CG_PLAN_COVER &&
                    cg_path_within(m->path, o->path))
                        above = o;
        }
        return above && above->kind == CG_PLAN_TMPFS && lstat(m->path, &st) < 0 && errno == ENOENT;
}

static int place(struct view *v, size_t i, struct cg_err *err)
{
        const struct cg_plan_mount *m = &v->sb->mounts[i];
        uint64_t attrs = CG_MOUNT_PLAIN | (m->kind == CG_PLAN_READ ? MOUNT_ATTR_RDONLY : 0);
        const struct cg_mount_option empty[] = {
                { "mode", m->mode }, { "size", m->size }, { "nr_inodes", "8192" }, { NULL, NULL }
        };
        cg_auto_fd int target = -1, fs = -1;
        struct stat st;

        if (is_covered(v->sb, i))
                return 0;
        switch (m->kind) {
        case CG_PLAN_TMPFS:
        case CG_PLAN_DEV:
        case CG_PLAN_PROC:
        case CG_PLAN_SYS:
                return place_own(v, m, err);
        case CG_PLAN_READ:
        case CG_PLAN_PIN:
                /* Init prevents that missing paths are made. */
                if (cg_plan_is_absent(v->sb, m->path))
                        return 0;
                target = cg_mount_open_link(m->path);
                fs = cg_mount_clone(target, true);
                if (fs < 0 || cg_mount_set(fs, attrs, true) < 0 || cg_mount_attach(fs, target) < 0)
                        return cg_fail_errno(err, "sandbox: %s %s",
                                             m->kind == CG_PLAN_READ ? "protecting" : "keeping in place",
                                             m->path);
                return 0;
        case CG_PLAN_HIDE:
                target = cg_mount_open(m->path);
                if (target < 0 && errno == EACCES)
                        return cg_cover_path(&v->cover, m->path, err);
                /* A path that existed when the plan was made may have another name now. */
                if (target < 0)
                        return cg_fail_errno(err, "sandbox: hiding %s, which was there a moment ago",
                                             m->path);
                return cg_cover_fd(&v->cover, target, m->path, err);
        case CG_PLAN_EMPTY:
                target = cg_mount_open(m->path);
                if (target < 0 && errno == EACCES)
                        return cg_cover_path(&v->cover, m->path, err);
                fs = target < 0 ? -1 : cg_mount_new("tmpfs", empty, CG_MOUNT_PLAIN | MOUNT_ATTR_NOEXEC);
                if (fs < 0 || cg_mount_attach(fs, target) < 0)
                        return cg_fail_errno(err, "sandbox: hiding %s", m->path);
                v->sources[i] = cg_steal_fd(&fs);
                return 0;
        case CG_PLAN_COVER:
                return place_cover(v, m->path, err);
        default:
                if (v->sources[i] < 0)
                        return 0;
                if (fstat(v->sources[i], &st) < 0)
                        return cg_fail_errno(err, "sandbox: %s", m->src);
                if (cg_cover_target(m->path, S_ISDIR(st.st_mode), &target, err) < 0)
                        return -1;
                if (cg_mount_attach(v->sources[i], target) < 0)
                        return cg_fail_errno(err, "sandbox: %s at %s", m->src, m->path);
                return 0;
        }
}

static int apply(struct view *v, struct cg_err *err)
{
        cg_auto_fd int root = -1;

        if (collect(v, err) < 0)
                return -1;
        /* Everything becomes read-only, without set-user-ID programs and device nodes. */
        root = cg_mount_open("/");
        if (root < 0 ||
            cg_mount_set(root, CG_MOUNT_PLAIN | (v->sb->set.root_writable ? 0 : MOUNT_ATTR_RDONLY), true) < 0)
                return cg_fail_errno(err, "sandbox: read-only root");
        for (size_t i = 0; i < v->sb->n_mounts; i++)
                if (place(v, i, err) < 0)
                        return -1;
        /* Folders become read-only once all mounts in them are done. */
        for (size_t i = 0; i < v->sb->n_mounts; i++) {
                const struct cg_plan_mount *m = &v->sb->mounts[i];

                if (m->kind == CG_PLAN_EMPTY && v->sources[i] >= 0 &&
                    cg_mount_set(v->sources[i], MOUNT_ATTR_RDONLY, false) < 0)
                        return cg_fail_errno(err, "sandbox: hiding %s", m->path);
        }
        return 0;
}

int cg_mounts_apply(const struct cg_sandbox *sb, uint64_t memory, struct cg_err *err)
{
        struct view v = { .sb = sb,
                          .memory = memory,
                          .sources = calloc(sb->n_mounts + 1, sizeof(*v.sources)) };
        mode_t old = umask(0); /* so that modes of mount points are exact */
        struct rlimit files = { 0 }, all;
        int result;

        if (!v.sources)
                return cg_fail(err, CG_E_NOMEM, "sandbox: view");
        /* Many paths need many descriptors. If the limit cannot be raised only such plans fail. */
        if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
                all = (struct rlimit){ .rlim_cur = files.rlim_max, .rlim_max = files.rlim_max };
                setrlimit(RLIMIT_NOFILE, &all);
        }
        cg_cover_init(&v.cover);
        for (size_t i = 0; i < sb->n_mounts; i++)
                v.sources[i] = -1;
        for (size_t i = 0; i < CG_DEV_NODES; i++)
                v.dev.nodes[i] = -1;
        result = apply(&v, err);
        for (size_t i = 0; i < sb->n_mounts; i++)
                cg_closep_(&v.sources[i]);
        free(v.sources);
        if (files.rlim_max)
                setrlimit(RLIMIT_NOFILE, &files);
        cg_dev_close(&v.dev);
        cg_cover_fini(&v.cover);
        umask(old);
        return result;
}
