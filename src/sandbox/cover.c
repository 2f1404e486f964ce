/* Covers and mount points. Runs in init. */
#include "sandbox/cover.h"

#include "base/util.h"
#include "sandbox/mountfd.h"
#include "sandbox/plan.h"

void cg_cover_init(struct cg_cover *c)
{
        *c = (struct cg_cover){ .empty_fd = -1, .unreadable_fd = -1 };
}

void cg_cover_fini(struct cg_cover *c)
{
        cg_closep_(&c->empty_fd);
        cg_closep_(&c->unreadable_fd);
}

static int make_empty_folder(void)
{
        static const struct cg_mount_option options[] = {
                { "mode", "0555" }, { "size", "4k" }, { "nr_inodes", "1" }, { NULL, NULL }
        };

        return cg_mount_new("tmpfs", options, CG_MOUNT_PLAIN | MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOEXEC);
}

/* A device on a mount without devices: open() is EACCES, for root as well. */
static int make_unreadable(void)
{
        cg_auto_fd int null = cg_mount_open("/dev/null");
        cg_auto_fd int copy = cg_mount_clone(null, false);

        if (copy < 0 || cg_mount_set(copy, CG_MOUNT_PLAIN | MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOEXEC, false) < 0)
                return -1;
        return cg_steal_fd(&copy);
}

/* Attaches the result of @make the first time and then copies, which take a third of the time. */
static int attach(int *first, int (*make)(void), int target)
{
        cg_auto_fd int copy = -1;

        if (*first < 0) {
                *first = make();
                if (*first < 0)
                        return -1;
                return cg_mount_attach(*first, target);
        }
        copy = cg_mount_clone(*first, false);
        if (copy < 0)
                return -1;
        return cg_mount_attach(copy, target);
}

int cg_cover_fd(struct cg_cover *c, int fd, const char *path, struct cg_err *err)
{
        struct stat st;

        if (fstat(fd, &st) < 0)
                return cg_fail_errno(err, "sandbox: hiding %s", path);
        if (S_ISDIR(st.st_mode) && attach(&c->empty_fd, make_empty_folder, fd) == 0)
                return 0;
        if (!S_ISDIR(st.st_mode) && attach(&c->unreadable_fd, make_unreadable, fd) == 0)
                return 0;
        return cg_fail_errno(err, "sandbox: hiding %s", path);
}

int cg_cover_path(struct cg_cover *c, const char *path, struct cg_err *err)
{
        cg_auto_fd int fd = cg_mount_open(path);
        char closed[PATH_MAX];

        /* A process inside could open the folder above again. */
        if (fd < 0 && errno == EACCES && cg_plan_closed_folder(path, closed))
                fd = cg_mount_open(closed);
        if (fd < 0 && (errno == ENOENT || errno == ENOTDIR || errno == EACCES))
                return 0;
        if (fd < 0)
                return cg_fail_errno(err, "sandbox: hiding %s", path);
        return cg_cover_fd(c, fd, path, err);
}

/* Opens @path, with the folders and the file that are missing made. Or -1 and errno. */
static int make_target(const char *path, bool folder)
{
        char copy[PATH_MAX], *save = NULL, *name;
        cg_auto_fd int dir = cg_mount_open("/");
        size_t len = strlen(path);

        if (dir < 0)
                return -1;
        if (len >= sizeof(copy)) {
                errno = ENAMETOOLONG;
                return -1;
        }
        memcpy(copy, path, len + 1);
        for (name = strtok_r(copy, "/", &save); name;) {
                char *next = strtok_r(NULL, "/", &save);
                int fd = cg_mount_open_at(dir, name);

                if (fd < 0 && errno == ENOENT) {
                        if ((next || folder ? mkdirat(dir, name, 0755)
                                            : mknodat(dir, name, S_IFREG | 0644, 0)) < 0)
                                return -1;
                        fd = cg_mount_open_at(dir, name);
                }
                if (fd < 0)
                        return -1;
                cg_closep_(&dir);
                dir = fd;
                name = next;
        }
        return cg_steal_fd(&dir);
}

int cg_cover_target(const char *path, bool folder, int *ret, struct cg_err *err)
{
        int fd = cg_mount_open(path);

        if (fd < 0 && errno == ENOENT)
                fd = make_target(path, folder);
        if (fd < 0)
                return cg_fail_errno(err, "sandbox: mount point %s", path);
        *ret = fd;
        return 0;
}
