/* Decides which calls init refuses: see mediate_int.h. */
#include "sandbox/notify/mediate_int.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/util.h"
#include "sandbox/names.h"

int cg_med_deny(struct cg_med_call *c, const struct cg_med_where *w, const char *setting)
{
        c->setting = setting;
        snprintf(c->path, sizeof(c->path), "%s", w->path);
        return CG_MED_DENIED;
}

static bool has_entry(const char *folder, size_t len, const char *name)
{
        char path[PATH_MAX + NAME_MAX];

        snprintf(path, sizeof(path), "%.*s/%s", (int)len, folder, name);
        return faccessat(AT_FDCWD, path, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

/* The folder of @w has an entry that git obeys if @w is a HEAD. */
static bool has_git_files_beside(const struct cg_med_where *w)
{
        static const char *const names[] = { "config", "config.worktree", "commondir",
                                             "hooks",  "modules",         "worktrees" };
        size_t len = (size_t)(strrchr(w->path, '/') - w->path);

        for (size_t i = 0; i < CG_ARRAY_LEN(names); i++) {
                if (has_entry(w->path, len, names[i]))
                        return true;
        }
        return false;
}

/* A configuration beside @w is protected: @w is directly in a repository's own folder. */
static bool is_in_repository(const struct cg_med_where *w)
{
        char beside[PATH_MAX + NAME_MAX];

        snprintf(beside, sizeof(beside), "%.*s/config", (int)(strrchr(w->path, '/') - w->path), w->path);
        return cg_git_part(beside, w->root) == CG_GIT_CONFIG;
}

enum cg_git_part cg_med_git_part(const struct cg_med_where *w)
{
        enum cg_git_part part = cg_git_part(w->path, w->root), bare;
        size_t next = 0, top;

        while (part == CG_GIT_FREE &&
               (bare = cg_git_part_bare(w->path, w->root, &next, &top)) != CG_GIT_FREE) {
                if (has_entry(w->path, top, "HEAD"))
                        part = bare;
        }
        return part;
}

/* Reads a configuration that is as git init writes it. */
bool cg_med_read_plain(int dir, const char *name, char *text, size_t *len)
{
        cg_auto_fd int fd = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
        struct stat st;
        ssize_t n;

        if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
                return false;
        n = pread(fd, text, CG_GIT_CONFIG_MAX + 1, 0);
        *len = n > 0 ? (size_t)n : 0;
        return n >= 0 && n <= (ssize_t)CG_GIT_CONFIG_MAX && cg_git_config_is_plain(text, *len);
}

/*
 * 0, or -1: the file system has no creation time, so that another file may get the same inode
 * number later.
 */
static int identify(int dir, const char *name, struct cg_made *ret)
{
        struct statx st;

        if (statx(dir, name, AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH, STATX_INO | STATX_BTIME, &st) < 0 ||
            !(st.stx_mask & STATX_BTIME))
                return -1;
        *ret = (struct cg_made){ (uint64_t)st.stx_dev_major << 32 | st.stx_dev_minor, st.stx_ino,
                                 st.stx_btime.tv_sec, st.stx_btime.tv_nsec };
        return 0;
}

void cg_med_remember(struct cg_made_list *list, int dir, const char *name)
{
        if (identify(dir, name, &list->v[list->n % CG_MEDIATE_MADE]) == 0)
                list->n++;
}

bool cg_med_is_made_here(const struct cg_made_list *list, int dir, const char *name)
{
        struct cg_made it;

        if (identify(dir, name, &it) < 0)
                return false;
        for (size_t i = 0; i < CG_MEDIATE_MADE && i < list->n; i++) {
                const struct cg_made *k = &list->v[i];

                if (k->ino == it.ino && k->dev == it.dev && k->born_s == it.born_s &&
                    k->born_ns == it.born_ns)
                        return true;
        }
        return false;
}

static bool is_folder(const struct cg_med_where *w)
{
        struct stat st;

        return fstatat(w->dir, w->name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(st.st_mode);
}

static const char *git_rule(const struct cg_med_call *c, const struct cg_med_where *w, enum cg_med_act act)
{
        const char *last = strrchr(w->path, '/') + 1;
        struct stat st;

        switch (cg_med_git_part(w)) {
        case CG_GIT_SELF:
                /* Only an empty folder can be removed. */
                return act == CG_MED_FOLDER || (act == CG_MED_REMOVE && is_folder(w)) ? NULL : ".git";
        case CG_GIT_CONFIG:
                /*
                 * A configuration that was made here: git init changes its mode and back, to
                 * find out whether the file system has modes.
                 */
                if (c->m->sb->git_config || ((act == CG_MED_REMOVE || act == CG_MED_ATTRIBUTES) &&
                                             cg_med_is_made_here(&c->m->configs, w->dir, w->name)))
                        return NULL;
                return ".git/config";
        case CG_GIT_HOOKS:
                return act == CG_MED_FOLDER || (act == CG_MED_REMOVE && is_folder(w)) ? NULL : ".git/hooks";
        case CG_GIT_SAMPLE:
                return act == CG_MED_LINK || act == CG_MED_FOLDER ? ".git/hooks" : NULL;
        case CG_GIT_DENIED:
                return ".git/hooks";
        default:
                break;
        }
        if (strcmp(last, "HEAD") != 0 || is_in_repository(w))
                return NULL;
        switch (act) {
        case CG_MED_REMOVE:
                /*
                 * A repository without a work tree whose configuration was not made here:
                 * without its HEAD the rest would not be protected any more.
                 */
                return has_entry(w->path, (size_t)(last - 1 - w->path), "config") &&
                                       !cg_med_is_made_here(&c->m->configs, w->dir, "config")
                               ? "HEAD"
                               : NULL;
        case CG_MED_CHANGE:
        case CG_MED_ATTRIBUTES:
                return NULL;
        default:
                /*
                 * A HEAD may be made in a folder that has nothing that git obeys or is a repository
                 * already. A socket named HEAD does not make one: processes can make sockets
                 * without init.
                 */
                return has_git_files_beside(w) && (fstatat(w->dir, w->name, &st, AT_SYMLINK_NOFOLLOW) < 0 ||
                                                   (!S_ISREG(st.st_mode) && !S_ISLNK(st.st_mode)))
                               ? "HEAD"
                               : NULL;
        }
}

/* 0, or CG_MED_DENIED. */
int cg_med_judge(struct cg_med_call *c, const struct cg_med_where *w, enum cg_med_act act)
{
        const struct cg_sandbox *sb = c->m->sb;
        const char *rule, *setting = NULL;

        if (w->region != CG_REGION_ROOT)
                return 0;
        rule = cg_med_absent_rule(sb, w->path, act == CG_MED_LINK, &setting);
        if (rule)
                return cg_med_deny(c, w, setting);
        if (cg_med_is_writable_name(sb, w->path, w->root))
                return 0;
        rule = cg_names_find(w->path, w->root, CG_NAME_WRITE);
        if (!rule && act == CG_MED_LINK)
                rule = cg_names_leads(w->path, w->root);
        if (!rule)
                rule = git_rule(c, w, act);
        return rule ? cg_med_deny(c, w, NULL) : 0;
}

/*
 * Git finds @w, which has just been made, as HEAD: also "head" on a case-insensitive file system.
 */
static bool is_head(const struct cg_med_where *w)
{
        const char *last = strrchr(w->path, '/') + 1;
        struct stat made, head;

        if (strcasecmp(last, "HEAD") != 0)
                return false;
        return strcmp(last, "HEAD") == 0 || (fstatat(w->dir, w->name, &made, AT_SYMLINK_NOFOLLOW) == 0 &&
                                             fstatat(w->dir, "HEAD", &head, AT_SYMLINK_NOFOLLOW) == 0 &&
                                             made.st_dev == head.st_dev && made.st_ino == head.st_ino);
}

bool cg_med_may_stay(struct cg_med_call *c, const struct cg_med_where *w, enum cg_med_act act)
{
        size_t next = 0, top;

        if (w->region != CG_REGION_ROOT || cg_med_is_writable_name(c->m->sb, w->path, w->root))
                return true;
        if (is_head(w))
                return is_in_repository(w) || !has_git_files_beside(w);
        return cg_git_part_bare(w->path, w->root, &next, &top) == CG_GIT_FREE || cg_med_judge(c, w, act) == 0;
}

int cg_med_recheck(struct cg_med_call *c, const struct cg_med_where *w, enum cg_med_act act, int r)
{
        if (r < 0 || cg_med_may_stay(c, w, act))
                return r;
        unlinkat(w->dir, w->name, act == CG_MED_FOLDER ? AT_REMOVEDIR : 0);
        return cg_med_deny(c, w, NULL);
}
