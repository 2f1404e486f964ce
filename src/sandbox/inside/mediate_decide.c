/*
 * Whether the plan allows an operation at a path: see mediate_int.h. The functions that take no
 * call are pure: the main process and explanations of denials use them, too.
 */
#include "sandbox/inside/mediate_int.h"

#include <sys/xattr.h>

#include "base/path.h"
#include "sandbox/names/names.h"
#include "sandbox/names/pattern.h"

/* ---- rules of the plan for a path */

bool cg_mediates(const struct cg_sandbox *sb)
{
        char self[32];
        ssize_t n;

        if (!sb->names || sb->set.off || sb->grants)
                return false;
        if (!sb->set.weak_proc)
                return true;
        /* In the /proc of another pid namespace the callers have other numbers. */
        n = readlink("/proc/self", self, sizeof(self) - 1);
        self[CG_MAX(n, 0)] = '\0';
        return n > 0 && atoi(self) == (int)getpid();
}

bool cg_mediate_holds_root(const struct cg_sandbox *sb, const char *path)
{
        for (size_t i = 0; i < sb->n_mounts; i++)
                if (sb->mounts[i].kind == CG_PLAN_WRITE && strcmp(sb->mounts[i].path, path) != 0 &&
                    cg_path_within(sb->mounts[i].path, path))
                        return true;
        return false;
}

enum cg_region cg_mediate_region(const struct cg_sandbox *sb, const char *path, size_t *len)
{
        /*
         * A cover that exists is a mount of its own and read-only; where it is missing, its path is
         * like those around it.
         */
        const struct cg_plan_mount *best = cg_plan_mount_at(sb, path);

        *len = 0;
        if (!best)
                return sb->set.root_writable ? CG_REGION_ROOT : CG_REGION_NATIVE;
        if (best->kind == CG_PLAN_TMPFS)
                return cg_mediate_holds_root(sb, best->path) ? CG_REGION_OWN : CG_REGION_NATIVE;
        /* A path that must not be made is not mounted; its parent decides. */
        if (best->kind == CG_PLAN_READ && cg_plan_is_absent(sb, best->path)) {
                char parent[PATH_MAX];

                cg_path_parent(best->path, parent);
                return cg_mediate_region(sb, parent, len);
        }
        if (best->kind != CG_PLAN_WRITE)
                return CG_REGION_NATIVE;
        *len = best->path[1] ? strlen(best->path) : 0;
        return CG_REGION_ROOT;
}

bool cg_med_is_writable_name(const struct cg_sandbox *sb, const char *path, size_t root)
{
        for (size_t i = 0; i < sb->n_writable_names; i++)
                if (cg_names_match(sb->writable_names[i], path, root))
                        return true;
        return false;
}

const char *cg_med_absent_rule(const struct cg_sandbox *sb, const char *path, bool leads,
                               const char **setting)
{
        for (size_t i = 0; i < sb->n_placeholders; i++) {
                const struct cg_plan_placeholder *p = &sb->placeholders[i];

                if (p->mount_point ||
                    (!cg_path_within(path, p->path) && !(leads && cg_path_within(p->path, path))))
                        continue;
                *setting = NULL;
                for (size_t k = 0; k < sb->n_mounts; k++)
                        if (sb->mounts[k].kind == CG_PLAN_READ && strcmp(sb->mounts[k].path, p->path) == 0)
                                *setting = sb->mounts[k].why;
                return p->path;
        }
        return NULL;
}

const char *cg_med_pattern_rule(const struct cg_sandbox *sb, const char *path, bool leads,
                                const char **setting)
{
        for (size_t i = 0; i < sb->n_patterns; i++) {
                const char *text = sb->patterns[i].text;
                struct cg_pattern pattern;
                size_t root = 0;

                if (text[0] != '/')
                        cg_mediate_region(sb, path, &root);
                if (!path[root] || !cg_pattern_init(&pattern, text) ||
                    (!cg_pattern_covers(&pattern, path + root) &&
                     !(leads && cg_pattern_leads(&pattern, path + root))))
                        continue;
                *setting = sb->patterns[i].why;
                return sb->patterns[i].text;
        }
        return NULL;
}

/* ---- decisions */

int cg_med_deny(struct cg_med_call *call, const struct cg_path_arg *arg, const char *setting)
{
        call->denied_setting = setting;
        snprintf(call->denied_path, sizeof(call->denied_path), "%s", arg->path);
        return CG_MED_DENIED;
}

/*
 * True as well if that cannot be found out: a process inside may close a folder above for a moment,
 * and use its descriptor of one below.
 */
static bool has_entry(const char *folder, size_t len, const char *name)
{
        char path[PATH_MAX + NAME_MAX];

        snprintf(path, sizeof(path), "%.*s/%s", (int)len, folder, name);
        return faccessat(AT_FDCWD, path, F_OK, AT_SYMLINK_NOFOLLOW) == 0 ||
               (errno != ENOENT && errno != ENOTDIR);
}

/* The folder of @arg has an entry that git obeys if @arg is a HEAD. */
static bool has_git_files_beside(const struct cg_path_arg *arg)
{
        static const char *const names[] = { "config", "config.worktree", "commondir",
                                             "hooks",  "modules",         "worktrees" };
        size_t len = (size_t)(strrchr(arg->path, '/') - arg->path);

        for (size_t i = 0; i < CG_ARRAY_LEN(names); i++)
                if (has_entry(arg->path, len, names[i]))
                        return true;
        return false;
}

/* A configuration beside @arg is protected: @arg is directly in a repository's own folder. */
static bool is_in_repository(const struct cg_path_arg *arg)
{
        char beside[PATH_MAX + NAME_MAX];

        snprintf(beside, sizeof(beside), "%.*s/config", (int)(strrchr(arg->path, '/') - arg->path),
                 arg->path);
        return cg_git_part(beside, arg->root) == CG_GIT_CONFIG;
}

enum cg_git_part cg_med_git_part(const struct cg_path_arg *arg)
{
        enum cg_git_part part = cg_git_part(arg->path, arg->root), bare;
        size_t next = 0, top;

        while (part == CG_GIT_FREE &&
               (bare = cg_git_part_bare(arg->path, arg->root, &next, &top)) != CG_GIT_FREE)
                if (has_entry(arg->path, top, "HEAD"))
                        part = bare;
        return part;
}

/* 0, or -1: the file system has no creation time: another file may get the inode number. */
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

void cg_made_add(struct cg_made_list *list, int dir, const char *name)
{
        if (!list->v)
                list->v = calloc(CG_MEDIATE_MADE, sizeof(*list->v));
        if (list->v && identify(dir, name, &list->v[list->n % CG_MEDIATE_MADE]) == 0)
                list->n++;
}

bool cg_made_has(const struct cg_made_list *list, int dir, const char *name)
{
        struct cg_made it;

        if (!list->n)
                return false;
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

#define MADE_MARK "user.cellgate.made"

void cg_made_mark(int fd, const char *text, size_t len)
{
        uint64_t hash = cg_fnv1a(CG_FNV1A, text, len);

        fsetxattr(fd, MADE_MARK, &hash, sizeof(hash), 0);
}

/* The file has the contents that init gave it. */
static bool is_marked(int dir, const char *name)
{
        cg_auto_fd int fd = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
        cg_auto_free char *text = malloc(CG_GIT_CONFIG_MAX + 1);
        uint64_t hash;
        struct stat st;
        ssize_t n = text && fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode) &&
                                    fgetxattr(fd, MADE_MARK, &hash, sizeof(hash)) == sizeof(hash)
                            ? read(fd, text, CG_GIT_CONFIG_MAX + 1)
                            : -1;

        return n >= 0 && hash == cg_fnv1a(CG_FNV1A, text, (size_t)n);
}

static bool brings_names(enum cg_operation operation)
{
        return operation == CG_OP_CREATE_LINK || operation == CG_OP_CREATE_TREE;
}

static bool is_folder(const struct cg_path_arg *arg)
{
        struct stat st;

        return fstatat(arg->dir, arg->name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(st.st_mode);
}

static const char *git_rule(const struct cg_med_call *call, const struct cg_path_arg *arg,
                            enum cg_operation operation)
{
        const char *last = strrchr(arg->path, '/') + 1;
        struct stat st;

        switch (cg_med_git_part(arg)) {
        case CG_GIT_SELF:
                /* An empty folder, or the file of a work tree that was made in a sandbox. */
                if (operation == CG_OP_REMOVE && (is_folder(arg) || is_marked(arg->dir, arg->name)))
                        return NULL;
                return operation == CG_OP_MKDIR ? NULL : ".git";
        case CG_GIT_CONFIG:
                /*
                 * A configuration that was made here: git init changes its mode and back, to
                 * find out whether the file system has modes.
                 */
                if (call->mediator->sb->git_config ||
                    (operation == CG_OP_REMOVE &&
                     (strcasecmp(last, "opts") == 0 || is_marked(arg->dir, arg->name))) ||
                    ((operation == CG_OP_REMOVE || operation == CG_OP_SETATTR) &&
                     cg_made_has(&call->mediator->configs, arg->dir, arg->name)))
                        return NULL;
                return ".git/config";
        case CG_GIT_HOOKS:
                if (operation == CG_OP_MKDIR || (operation == CG_OP_REMOVE && is_folder(arg)))
                        return NULL;
                return ".git/hooks";
        case CG_GIT_SAMPLE:
                return brings_names(operation) || operation == CG_OP_MKDIR ? ".git/hooks" : NULL;
        case CG_GIT_DENIED:
                return operation == CG_OP_REMOVE && is_marked(arg->dir, arg->name) ? NULL : ".git/hooks";
        default:
                break;
        }
        if (strcmp(last, "HEAD") != 0 || is_in_repository(arg))
                return NULL;
        switch (operation) {
        case CG_OP_REMOVE:
                /*
                 * A repository without a work tree whose configuration was not made here:
                 * without its HEAD the rest would not be protected any more.
                 */
                if (has_entry(arg->path, (size_t)(last - 1 - arg->path), "config") &&
                    !cg_made_has(&call->mediator->configs, arg->dir, "config") &&
                    !is_marked(arg->dir, "config"))
                        return "HEAD";
                return NULL;
        case CG_OP_MODIFY:
        case CG_OP_SETATTR:
                return NULL;
        default:
                /*
                 * A HEAD may be made in a folder that has nothing that git obeys or is a repository
                 * already. A socket named HEAD does not make one: processes can make sockets
                 * without init.
                 */
                if (has_git_files_beside(arg) &&
                    (fstatat(arg->dir, arg->name, &st, AT_SYMLINK_NOFOLLOW) < 0 ||
                     (!S_ISREG(st.st_mode) && !S_ISLNK(st.st_mode))))
                        return "HEAD";
                return NULL;
        }
}

bool cg_med_is_linked(struct cg_mediator *m, int dir, const char *name)
{
        const struct cg_sandbox *sb = m->sb;
        struct stat st;

        if ((!sb->unwritten.n && !sb->linked[0]) ||
            fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH) < 0 || !S_ISREG(st.st_mode) ||
            st.st_nlink < 2)
                return false;
        if (sb->linked[0] && !m->linked_known) {
                m->linked.n = 0;
                m->linked_known = cg_inodes_add_below(&m->linked, sb->linked) == 0;
                if (!m->linked_known)
                        return true;
        }
        return cg_inodes_has(&sb->unwritten, &st) || cg_inodes_has(&m->linked, &st);
}

/* 0, or CG_MED_DENIED. */
int cg_med_decide(struct cg_med_call *call, const struct cg_path_arg *arg, enum cg_operation operation)
{
        const struct cg_sandbox *sb = call->mediator->sb;
        const char *rule, *setting = NULL;

        if (arg->region != CG_REGION_ROOT)
                return 0;
        rule = cg_med_absent_rule(sb, arg->path, brings_names(operation), &setting);
        if (!rule)
                rule = cg_med_pattern_rule(sb, arg->path, operation == CG_OP_CREATE_LINK, &setting);
        if (rule)
                return cg_med_deny(call, arg, setting);
        if ((operation == CG_OP_SETATTR || operation == CG_OP_REMOVE) &&
            cg_med_is_linked(call->mediator, arg->dir, arg->name))
                return cg_med_deny(call, arg, CG_WHY_LINK);
        if (cg_med_is_writable_name(sb, arg->path, arg->root))
                return 0;
        rule = cg_names_find(arg->path, arg->root, CG_NAME_WRITE);
        if (!rule && brings_names(operation))
                rule = cg_names_leads(arg->path, arg->root);
        if (!rule)
                rule = git_rule(call, arg, operation);
        return rule ? cg_med_deny(call, arg, NULL) : 0;
}

static bool is_in_programs(const struct cg_sandbox *sb, const char *path)
{
        size_t len = (size_t)(strrchr(path, '/') - path);

        for (size_t i = 0; i < sb->n_programs; i++)
                if (strlen(sb->programs[i]) == len && memcmp(sb->programs[i], path, len) == 0)
                        return true;
        return false;
}

int cg_med_decide_program(struct cg_med_call *call, const struct cg_path_arg *arg, mode_t mode, nlink_t names)
{
        const struct cg_sandbox *sb = call->mediator->sb;
        struct stat st;

        if (!sb->n_programs || arg->region != CG_REGION_ROOT || !is_in_programs(sb, arg->path) ||
            cg_med_is_writable_name(sb, arg->path, arg->root))
                return 0;
        if (!S_ISLNK(mode) && !(S_ISREG(mode) && (mode & 0111 || names > 1)))
                return 0;
        /* A program of that name is there already. */
        if (S_ISREG(mode) && names <= 1 && fstatat(arg->dir, arg->name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
            S_ISREG(st.st_mode) && st.st_mode & 0111)
                return 0;
        return cg_med_deny(call, arg, CG_WHY_PATH);
}

bool cg_mediate_may_run(struct cg_mediator *m, const char *path, mode_t mode)
{
        struct cg_med_call call = { .mediator = m };
        struct cg_path_arg arg = { .dir = -1 };

        if (path[0] != '/')
                return true;
        snprintf(arg.path, sizeof(arg.path), "%s", path);
        arg.region = cg_mediate_region(m->sb, path, &arg.root);
        return cg_med_decide_program(&call, &arg, mode, 1) == 0;
}

/* Git finds @arg, just made, as HEAD: also "head" on a case-insensitive file system. */
static bool is_head(const struct cg_path_arg *arg)
{
        const char *last = strrchr(arg->path, '/') + 1;
        struct stat made, head;

        if (strcasecmp(last, "HEAD") != 0)
                return false;
        return strcmp(last, "HEAD") == 0 || (fstatat(arg->dir, arg->name, &made, AT_SYMLINK_NOFOLLOW) == 0 &&
                                             fstatat(arg->dir, "HEAD", &head, AT_SYMLINK_NOFOLLOW) == 0 &&
                                             made.st_dev == head.st_dev && made.st_ino == head.st_ino);
}

bool cg_med_may_keep(struct cg_med_call *call, const struct cg_path_arg *arg, enum cg_operation operation)
{
        size_t next = 0, top;

        if (arg->region != CG_REGION_ROOT ||
            cg_med_is_writable_name(call->mediator->sb, arg->path, arg->root))
                return true;
        if (is_head(arg))
                return is_in_repository(arg) || !has_git_files_beside(arg);
        return cg_git_part_bare(arg->path, arg->root, &next, &top) == CG_GIT_FREE ||
               cg_med_decide(call, arg, operation) == 0;
}

int cg_med_check_created(struct cg_med_call *call, const struct cg_path_arg *arg, enum cg_operation operation,
                         int r)
{
        if (r < 0 || cg_med_may_keep(call, arg, operation))
                return r;
        unlinkat(arg->dir, arg->name, operation == CG_OP_MKDIR ? AT_REMOVEDIR : 0);
        return cg_med_deny(call, arg, NULL);
}

const char *cg_mediate_explain(const struct cg_sandbox *sb, const char *path, const char **setting)
{
        enum cg_git_part part;
        const char *rule;
        size_t root;

        *setting = NULL;
        if (!sb->names || cg_mediate_region(sb, path, &root) != CG_REGION_ROOT)
                return NULL;
        rule = cg_med_absent_rule(sb, path, false, setting);
        if (!rule)
                rule = cg_med_pattern_rule(sb, path, false, setting);
        if (rule || cg_med_is_writable_name(sb, path, root))
                return rule;
        rule = cg_names_find(path, root, CG_NAME_WRITE);
        if (!rule)
                rule = cg_names_leads(path, root);
        part = rule ? CG_GIT_FREE : cg_git_part(path, root);
        if (part == CG_GIT_CONFIG && sb->git_config)
                return NULL;
        if (rule || part == CG_GIT_FREE || part == CG_GIT_SAMPLE)
                return rule;
        return part == CG_GIT_SELF ? ".git" : ".git/*";
}
