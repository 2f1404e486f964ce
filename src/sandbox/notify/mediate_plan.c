/*
 * Rules of a plan for a path: see mediate.h. Pure functions; used by init, by the main process, and
 * to explain denials.
 */
#include "sandbox/notify/mediate_int.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/path.h"
#include "base/util.h"
#include "sandbox/names.h"

bool cg_mediates(const struct cg_sandbox *sb)
{
        char self[32];
        ssize_t n;

        if (!sb->names || sb->off || sb->grants)
                return false;
        if (!sb->weak_proc)
                return true;
        /* In the /proc of another pid namespace the callers have other numbers. */
        n = readlink("/proc/self", self, sizeof(self) - 1);
        self[n > 0 ? n : 0] = '\0';
        return n > 0 && atoi(self) == (int)getpid();
}

bool cg_mediate_holds_root(const struct cg_sandbox *sb, const char *path)
{
        for (size_t i = 0; i < sb->n_mounts; i++) {
                if (sb->mounts[i].kind == CG_PLAN_WRITE && strcmp(sb->mounts[i].path, path) != 0 &&
                    cg_path_within(sb->mounts[i].path, path))
                        return true;
        }
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
                return sb->root_writable ? CG_REGION_ROOT : CG_REGION_NATIVE;
        if (best->kind == CG_PLAN_TMPFS)
                return cg_mediate_holds_root(sb, best->path) ? CG_REGION_OWN : CG_REGION_NATIVE;
        /* A path that must not be made is not mounted; its parent decides. */
        if (best->kind == CG_PLAN_READ && cg_plan_is_absent(sb, best->path)) {
                char parent[PATH_MAX];
                const char *slash = strrchr(best->path, '/');

                snprintf(parent, sizeof(parent), "%.*s", slash > best->path ? (int)(slash - best->path) : 1,
                         best->path);
                return cg_mediate_region(sb, parent, len);
        }
        if (best->kind != CG_PLAN_WRITE)
                return CG_REGION_NATIVE;
        *len = best->path[1] ? strlen(best->path) : 0;
        return CG_REGION_ROOT;
}

bool cg_med_is_writable_name(const struct cg_sandbox *sb, const char *path, size_t root)
{
        for (size_t i = 0; i < sb->n_writable_names; i++) {
                if (cg_names_match(sb->writable_names[i], path, root))
                        return true;
        }
        return false;
}

/* See mediate_int.h. */
const char *cg_med_absent_rule(const struct cg_sandbox *sb, const char *path, bool leads,
                               const char **setting)
{
        for (size_t i = 0; i < sb->n_placeholders; i++) {
                const struct cg_plan_placeholder *p = &sb->placeholders[i];

                if (p->mount_point ||
                    (!cg_path_within(path, p->path) && !(leads && cg_path_within(p->path, path))))
                        continue;
                *setting = NULL;
                for (size_t k = 0; k < sb->n_mounts; k++) {
                        if (sb->mounts[k].kind == CG_PLAN_READ && strcmp(sb->mounts[k].path, p->path) == 0)
                                *setting = sb->mounts[k].why;
                }
                return p->path;
        }
        return NULL;
}

const char *cg_mediate_why(const struct cg_sandbox *sb, const char *path, const char **setting)
{
        enum cg_git_part part;
        const char *rule;
        size_t root;

        *setting = NULL;
        if (!sb->names || cg_mediate_region(sb, path, &root) != CG_REGION_ROOT)
                return NULL;
        rule = cg_med_absent_rule(sb, path, false, setting);
        if (rule || cg_med_is_writable_name(sb, path, root))
                return rule;
        rule = cg_names_find(path, root, CG_NAME_WRITE);
        if (!rule)
                rule = cg_names_leads(path, root);
        part = rule ? CG_GIT_FREE : cg_git_part(path, root);
        if (part == CG_GIT_CONFIG && sb->git_config)
                return NULL;
        return rule                                           ? rule
               : part == CG_GIT_FREE || part == CG_GIT_SAMPLE ? NULL
               : part == CG_GIT_SELF                          ? ".git"
                                                              : ".git/*";
}
