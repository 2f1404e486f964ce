/* The Python package's binding: names of docs/names.md. */
#include "_names.h"

#include <limits.h>
#include <stddef.h>
#include <stdio.h>
#include <unistd.h>
#include "sandbox/names/names.h"
#include "sandbox/plan.h"

const char *cg_protected_name(const char *path, int write)
{
        const char *name = cg_plan_system_credentials(path);
        char head[PATH_MAX];
        size_t next = 0, top;

        if (!name)
                name = cg_names_find(path, 0, CG_NAME_HIDE | CG_NAME_BELOW);
        if (name || !write)
                return name;
        if (cg_names_find(path, 0, CG_NAME_WRITE) || cg_names_leads(path, 0) ||
            cg_git_part(path, 0) != CG_GIT_FREE)
                return cg_names_of(path);
        while (cg_git_part_bare(path, 0, &next, &top) != CG_GIT_FREE) {
                snprintf(head, sizeof(head), "%.*s/HEAD", (int)top, path);
                if (access(head, F_OK) == 0)
                        return cg_names_of(path);
        }
        return NULL;
}
