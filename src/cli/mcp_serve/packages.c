/*
 * `cellgate mcp serve`: the folder that install_package fills and kernels see read-only.
 *
 * Each server has its own, and removes it at its end. Packages are large, so it is in the user's
 * cache folder and not in a temporary one, which is memory on many machines. A server that is
 * killed leaves its folder behind; the next one removes it: a folder that is in use is locked, and
 * the kernel of the operating system unlocks it when its process ends, however that happens.
 */
#include "cli/mcp_serve/mcp_serve.h"

#include <sys/file.h>
#include "base/fd.h"

#define PREFIX "mcp-"
/* Another server makes its folder, and removes what stale ones there are. */
#define LOCK_MS 60000

/* -1: in use, or removed. The lock lives as long as the descriptor. */
static int lock_folder(int base, const char *name)
{
        cg_auto_fd int fd = openat(base, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

        if (fd < 0 || flock(fd, LOCK_EX | LOCK_NB) < 0)
                return -1;
        return cg_steal_fd(&fd);
}

static int make_own(struct cg_packages *p, int base, const char *path, struct cg_err *err)
{
        cg_auto_free char *own = NULL;

        if (cg_asprintf(&own, "folder for installed packages", err, "%s/" PREFIX "XXXXXX", path) < 0)
                return -1;
        if (!mkdtemp(own))
                return cg_fail_errno(err, "cannot make a folder for installed packages in %s", path);
        p->fd = lock_folder(base, strrchr(own, '/') + 1);
        if (p->fd < 0)
                return cg_fail_errno(err, "cannot lock %s", own);
        p->path = CG_STEAL(own);
        return 0;
}

/*
 * Serialized, so that no server removes a folder that another one has made but not locked yet. The
 * locked file has no read permission: kernels can read this folder, and a process that can open a
 * file can lock it.
 */
static int lock_base(int base, const char *path, struct cg_err *err)
{
        cg_auto_fd int fd = openat(base, "../packages.lock",
                                   O_WRONLY | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0200);
        int r;

        if (fd < 0)
                return cg_fail_errno(err, "cannot open %s.lock", path);
        r = cg_lock_fd(fd, LOCK_MS, NULL, err);
        if (r == CG_TIMEOUT)
                return cg_fail(err, CG_E_STATE, "another program keeps %s.lock locked: end it", path);
        if (r < 0)
                return r;
        return cg_steal_fd(&fd);
}

/* Removes folders of servers that were killed; failures are left to the next server. */
static void remove_stale(int base, const char *path)
{
        cg_auto_dir DIR *dir = opendir(path);
        struct dirent *e;

        while (dir && (e = readdir(dir))) {
                cg_auto_fd int unused = -1;
                cg_auto_free char *stale = NULL;

                if (strncmp(e->d_name, PREFIX, strlen(PREFIX)) != 0)
                        continue;
                unused = lock_folder(base, e->d_name);
                if (unused >= 0 && cg_asprintf(&stale, "folder", NULL, "%s/%s", path, e->d_name) == 0)
                        cg_remove_tree(stale, NULL);
        }
}

int cg_packages_init(struct cg_packages *p, struct cg_err *err)
{
        static const char what[] = "folder for installed packages";
        const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
        cg_auto_fd int base = -1, lock = -1;
        cg_auto_free char *path = NULL;
        struct stat st;
        int r;

        *p = (struct cg_packages){ .fd = -1 };
        if (cache && cache[0] == '/')
                r = cg_asprintf(&path, what, err, "%s/cellgate/packages", cache);
        else if (home && home[0] == '/')
                r = cg_asprintf(&path, what, err, "%s/.cache/cellgate/packages", home);
        else
                r = cg_asprintf(&path, what, err, "/var/tmp/cellgate-%u/packages", (unsigned)getuid());
        if (r < 0 || cg_make_dirs(path, 0700, err) < 0)
                return -1;
        /* In /var/tmp it could be another user's, who can change it at any time. */
        base = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (base < 0 || fstat(base, &st) < 0)
                return cg_fail_errno(err, "cannot open %s, the folder for installed packages", path);
        if (st.st_uid != geteuid() || (st.st_mode & 022))
                return cg_fail(err, CG_E_INVAL,
                               "%s, the folder for installed packages, can be written by others", path);
        lock = lock_base(base, path, err);
        if (lock < 0)
                return lock;
        remove_stale(base, path);
        return make_own(p, base, path, err);
}

void cg_packages_fini(struct cg_packages *p)
{
        if (p->path)
                cg_remove_tree(p->path, NULL);
        free(p->path);
        p->path = NULL;
        if (p->fd >= 0)
                close(p->fd);
        p->fd = -1;
}
