/*
 * Files that git worktree add makes: see mediate_int.h. They name the repository that a work tree
 * is of, so a process inside must not choose their contents: init writes what git would write, and
 * what the process writes goes nowhere.
 */
#include "sandbox/inside/mediate_int.h"

#include <linux/openat2.h>
#include <sys/mman.h>

#include "base/fd.h"

/* @path is REPOSITORY/worktrees/NAME, of a repository that is called .git. */
static bool is_worktree_folder(const char *path)
{
        static const char below[] = "/.git/worktrees/";
        const char *name = strrchr(path, '/');
        size_t n = sizeof(below) - 1;

        return name && (size_t)(name + 1 - path) > n && strncmp(name + 1 - n, below, n) == 0 && name[1];
}

bool cg_med_read_plain_config(int dir, const char *name, char *text, size_t *len)
{
        cg_auto_fd int fd = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
        struct stat st;
        ssize_t n;

        if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
                return false;
        n = pread(fd, text, CG_GIT_CONFIG_MAX + 1, 0);
        *len = CG_MAX(n, 0);
        return n >= 0 && n <= (ssize_t)CG_GIT_CONFIG_MAX && cg_git_config_is_plain(text, *len);
}

/*
 * The repository of this folder has no settings that name a program or a file: these may be
 * relative to the work tree, and are not protected in one that is made later.
 */
static bool has_plain_repository(const char *folder)
{
        cg_auto_free char *text = malloc(CG_GIT_CONFIG_MAX + 1);
        char path[PATH_MAX + 16];
        cg_auto_fd int dir = -1;
        size_t len;

        snprintf(path, sizeof(path), "%s/../..", folder);
        dir = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
        return text && dir >= 0 && faccessat(dir, "HEAD", F_OK, AT_SYMLINK_NOFOLLOW) == 0 &&
               faccessat(dir, "config.worktree", F_OK, AT_SYMLINK_NOFOLLOW) < 0 &&
               cg_med_read_plain_config(dir, "config", text, &len);
}

void cg_med_made_folder(struct cg_med_call *call, const struct cg_path_arg *arg)
{
        if (is_worktree_folder(arg->path))
                snprintf(call->mediator->worktree, sizeof(call->mediator->worktree), "%s", arg->path);
}

/* The contents of REPOSITORY/worktrees/NAME/commondir, whose folder was made in this sandbox. */
static bool commondir_text(const struct cg_med_call *call, const struct cg_path_arg *arg, char *text,
                           size_t size)
{
        char folder[PATH_MAX];

        snprintf(folder, sizeof(folder), "%.*s", (int)(strrchr(arg->path, '/') - arg->path), arg->path);
        snprintf(text, size, "../..\n");
        return strcmp(arg->name, "commondir") == 0 && is_worktree_folder(folder) &&
               cg_made_has(&call->mediator->folders, arg->dir, "") && has_plain_repository(folder);
}

/*
 * The contents of the file .git in a work tree: git has made the repository's folder for it just
 * now, and has noted there where this file is to be.
 */
static bool gitdir_text(const struct cg_med_call *call, const struct cg_path_arg *arg, char *text,
                        size_t size)
{
        const char *folder = call->mediator->worktree;
        char noted[PATH_MAX + 2];
        cg_auto_fd int dir = -1, fd = -1;
        struct stat st;
        ssize_t n;

        if (strcmp(arg->name, ".git") != 0 || !folder[0])
                return false;
        dir = cg_open_path(AT_FDCWD, folder, O_DIRECTORY | O_NOFOLLOW, RESOLVE_NO_SYMLINKS);
        if (dir < 0 || !cg_made_has(&call->mediator->folders, dir, ""))
                return false;
        fd = openat(dir, "gitdir", O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
        n = fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) ? -1 : read(fd, noted, sizeof(noted) - 1);
        noted[CG_MAX(n, 0)] = '\0';
        noted[strcspn(noted, "\n")] = '\0';
        return strcmp(noted, arg->path) == 0 && has_plain_repository(folder) &&
               (size_t)snprintf(text, size, "gitdir: %s\n", folder) < size && !strchr(folder, '\n');
}

int cg_med_new_worktree_file(struct cg_med_call *call, const struct cg_path_arg *arg, mode_t mode, int *ret)
{
        char text[PATH_MAX + 16];
        cg_auto_fd int fd = -1, own = -1;

        /* Not what another rule denies, nor where git would obey names that are only then made. */
        if (arg->region != CG_REGION_ROOT || call->denied_setting ||
            cg_names_find(arg->path, arg->root, CG_NAME_WRITE) ||
            (!commondir_text(call, arg, text, sizeof(text)) && !gitdir_text(call, arg, text, sizeof(text))))
                return CG_MED_UNKNOWN;
        own = memfd_create("git", MFD_CLOEXEC);
        if (own < 0)
                return -errno;
        cg_med_apply_umask(call, mode);
        fd = openat(arg->dir, arg->name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode & 0666);
        if (fd < 0)
                return -errno;
        if (cg_write_all(fd, text, strlen(text), NULL) < 0) {
                unlinkat(arg->dir, arg->name, 0);
                return -ENOSPC;
        }
        cg_made_mark(fd, text, strlen(text));
        *ret = cg_steal_fd(&own);
        return 0;
}
