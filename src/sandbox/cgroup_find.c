/*
 * Finds where a control group can be made, by the kernel's lists of groups and mounts. Runs in the
 * process that starts a sandbox.
 */
#include "sandbox/cgroup_int.h"

#include <sys/xattr.h>

#include "base/slice.h"
#include "base/fd.h"
#include "base/proc.h"

/* A machine with thousands of mounts has a mountinfo of a few hundred kilobytes. */
#define TEXT_MAX (4u << 20)
/* Retries if a new process joins the group meanwhile. */
#define LEAF_TRIES 5
/*
 * Child group for the caller's processes in a delegated subtree: a version 2 group with processes
 * cannot enable controllers for child groups.
 */
#define LEAF "cellgate-leaf"

static const char *const names[][2] = {
        { "memory", "memory" }, { "pids", "pids" }, { "cpu", "cpu" }, { "cpuacct", NULL }
};

struct texts {
        char *groups, *mounts;
};

/* The next line; the last one may lack its newline. */
static const char *next_line(const char *p, size_t *len)
{
        *len = strcspn(p, "\n");
        return *len ? p : NULL;
}

/*
 * The folder of the caller's group in a mount that shows it. A line of the list of mounts is "ID
 * PARENT MAJOR:MINOR ROOT POINT OPTIONS [FIELD...] - TYPE SOURCE OPTIONS".
 */
static bool own_folder(const struct texts *t, const char *controller, char path[PATH_MAX])
{
        char line[2 * PATH_MAX + 1024], root[PATH_MAX], at[PATH_MAX], type[32], options[512];
        const char *group = NULL;
        size_t group_len, len;

        /* The caller's group in the hierarchy of @controller; NULL: version 2. */
        for (const char *p = t->groups; !group && (p = next_line(p, &len)); p += len + (p[len] == '\n')) {
                const char *list = memchr(p, ':', len), *end;

                if (!list++)
                        continue;
                end = memchr(list, ':', len - (size_t)(list - p));
                if (!end || (controller ? !cg_slice_has_word((struct cg_slice){ list, (size_t)(end - list) },
                                                             ',', controller)
                                        : strncmp(p, "0::", 3) != 0))
                        continue;
                group = end + 1;
        }
        if (!group)
                return false;
        group_len = strcspn(group, "\n");
        for (const char *p = t->mounts; (p = next_line(p, &len)); p += len + (p[len] == '\n')) {
                const char *dash;
                size_t n_root;
                int n;

                /* Fast path: most mounts are of other types. */
                if (!memmem(p, len, " - cgroup", 9) || len >= sizeof(line))
                        continue;
                memcpy(line, p, len);
                line[len] = '\0';
                dash = strstr(line, " - cgroup");
                if (!dash || sscanf(line, "%*s %*s %*s %4095s %4095s", root, at) != 2 ||
                    sscanf(dash + 3, "%31s %*s %511s", type, options) != 2 || strchr(root, '\\') ||
                    strchr(at, '\\'))
                        continue;
                if (controller ? strcmp(type, "cgroup") != 0 ||
                                         !cg_slice_has_word(cg_slice_of(options), ',', controller)
                               : strcmp(type, "cgroup2") != 0)
                        continue;
                n_root = root[1] ? strlen(root) : 0;
                if (group_len < n_root || strncmp(group, root, n_root) != 0 ||
                    (group_len > n_root && group[n_root] != '/'))
                        continue; /* a mount of another part of the tree */
                n = snprintf(path, PATH_MAX, "%s%.*s", at, (int)(group_len - n_root), group + n_root);
                if (n < 0 || n >= PATH_MAX)
                        return false;
                while (n > 1 && path[n - 1] == '/')
                        path[--n] = '\0';
                return !strstr(path, "/../");
        }
        return false;
}

static bool may_write(const char *folder, const char *file)
{
        char path[PATH_MAX + 64];

        snprintf(path, sizeof(path), "%s/%s", folder, file);
        return faccessat(AT_FDCWD, path, W_OK, AT_EACCESS) == 0;
}

/* The controllers of @want that a version 2 file lists. */
static unsigned int listed(const char *folder, const char *file, unsigned int want)
{
        char path[PATH_MAX + 64], text[512] = "";
        unsigned int has = 0;
        size_t n;

        snprintf(path, sizeof(path), "%s/%s", folder, file);
        cg_proc_read_text(path, text, sizeof(text));
        n = strlen(text);
        if (n)
                n -= text[n - 1] == '\n';
        for (size_t i = 0; i < CG_ARRAY_LEN(names); i++)
                if (names[i][1] && (want & 1u << i) &&
                    cg_slice_has_word((struct cg_slice){ text, n }, ' ', names[i][1]))
                        has |= 1u << i;
        return has;
}

/* The group is delegated: systemd sets an attribute; in a container the root is. */
static bool is_delegated(const char *folder)
{
        static const char *const marks[] = { "user.delegate", "trusted.delegate" };
        char value[8], type[PATH_MAX + 32], parent[PATH_MAX + 32];
        struct stat here, above;

        for (size_t i = 0; i < CG_ARRAY_LEN(marks); i++)
                if (getxattr(folder, marks[i], value, sizeof(value)) == 1 && value[0] == '1')
                        return true;
        /* The root of the mount, but not the machine's root, which has no type. */
        snprintf(type, sizeof(type), "%s/cgroup.type", folder);
        snprintf(parent, sizeof(parent), "%s/..", folder);
        return access(type, F_OK) == 0 && stat(folder, &here) == 0 && stat(parent, &above) == 0 &&
               here.st_dev != above.st_dev;
}

static bool write_text(const char *folder, const char *file, const char *text)
{
        char path[PATH_MAX + 128];
        cg_auto_fd int fd = -1;

        if ((size_t)snprintf(path, sizeof(path), "%s/%s", folder, file) >= sizeof(path))
                return false;
        fd = open(path, O_WRONLY | O_CLOEXEC);
        return fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);
}

static bool share_out(const char *folder, unsigned int what)
{
        char text[64] = "";
        size_t n = 0;

        for (size_t i = 0; i < CG_ARRAY_LEN(names); i++)
                if ((what & 1u << i) && names[i][1])
                        n += (size_t)snprintf(text + n, sizeof(text) - n, "%s+%s", cg_sep(n, " "),
                                              names[i][1]);
        return !n || write_text(folder, "cgroup.subtree_control", text);
}

bool cg_cgroup_prepare(const struct cg_cgroup_place *place)
{
        char leaf[PATH_MAX + 64], procs[PATH_MAX + 64], pid[24];

        if (!place->to_prepare)
                return true;
        if (share_out(place->path, place->to_prepare)) /* has no processes */
                return true;
        snprintf(leaf, sizeof(leaf), "%s/" LEAF, place->path);
        snprintf(procs, sizeof(procs), "%s/cgroup.procs", place->path);
        if (mkdir(leaf, 0755) < 0 && errno != EEXIST)
                return false;
        for (int i = 0; i < LEAF_TRIES; i++) {
                FILE *f = fopen(procs, "re");

                while (f && fscanf(f, "%23s", pid) == 1)
                        write_text(leaf, "cgroup.procs", pid);
                if (f)
                        fclose(f);
                if (share_out(place->path, place->to_prepare))
                        return true;
        }
        return false;
}

/* Version 2: the caller's group, or its parent if the caller has been moved to the child group. */
static void find_v2(const struct texts *t, unsigned int want, struct cg_cgroup_places *ret)
{
        struct cg_cgroup_place *p = &ret->v[ret->n];
        unsigned int offered, shared;
        char *slash;

        if (!own_folder(t, NULL, p->path))
                return;
        slash = strrchr(p->path, '/');
        if (slash && strcmp(slash + 1, LEAF) == 0)
                *slash = '\0';
        offered = listed(p->path, "cgroup.controllers", want);
        shared = listed(p->path, "cgroup.subtree_control", want);
        if (!offered || !may_write(p->path, ".") || !may_write(p->path, "cgroup.procs"))
                return;
        if (shared != offered && !is_delegated(p->path))
                offered = shared; /* not permitted to enable more */
        if (!offered)
                return;
        p->version = 2;
        p->has = offered | (want & CG_CGROUP_USAGE);
        p->to_prepare = offered & ~shared;
        ret->n++;
}

static void find_v1(const struct texts *t, size_t controller, struct cg_cgroup_places *ret)
{
        struct cg_cgroup_place *p = &ret->v[ret->n];

        if (!own_folder(t, names[controller][0], p->path) || !may_write(p->path, "."))
                return;
        for (size_t i = 0; i < ret->n; i++) {
                if (strcmp(ret->v[i].path, p->path) == 0) { /* two controllers in the same hierarchy */
                        ret->v[i].has |= 1u << controller;
                        return;
                }
        }
        p->version = 1;
        p->has = 1u << controller;
        p->to_prepare = 0;
        ret->n++;
}

/*
 * Every version 2 group counts processor time, without any controller. A group with controllers is
 * managed by another program.
 */
static void find_usage(const struct texts *t, struct cg_cgroup_places *ret)
{
        struct cg_cgroup_place *p = &ret->v[ret->n];

        if (!own_folder(t, NULL, p->path) || !may_write(p->path, ".") || !may_write(p->path, "cgroup.procs"))
                return;
        if (listed(p->path, "cgroup.controllers", CG_CGROUP_ALL) && !is_delegated(p->path))
                return;
        p->version = 2;
        p->has = CG_CGROUP_USAGE;
        p->to_prepare = 0;
        ret->n++;
}

static char *read_one(const char *files, const char *name)
{
        char path[PATH_MAX], *text = NULL;
        size_t len;

        snprintf(path, sizeof(path), "%s/%s", files ?: "/proc/self", name);
        return cg_read_file(path, TEXT_MAX, &text, &len, NULL) < 0 ? NULL : text;
}

static unsigned int had(const struct cg_cgroup_places *places)
{
        unsigned int has = 0;

        for (size_t i = 0; i < places->n; i++)
                has |= places->v[i].has;
        return has;
}

void cg_cgroup_find(const char *files, unsigned int want, struct cg_cgroup_places *ret)
{
        struct texts t = { .groups = read_one(files, "cgroup"), .mounts = read_one(files, "mountinfo") };

        ret->n = 0;
        if (t.groups && t.mounts) {
                find_v2(&t, want, ret);
                for (size_t i = 0; i < CG_ARRAY_LEN(names); i++)
                        if (want & ~had(ret) & 1u << i)
                                find_v1(&t, i, ret);
                if (want & ~had(ret) & CG_CGROUP_USAGE)
                        find_usage(&t, ret);
        }
        free(t.groups);
        free(t.mounts);
}
