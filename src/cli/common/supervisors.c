/* The supervisors that this user's commands share. See supervisors.h. */
#include "cli/common/supervisors.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/fd.h"

int cg_supervisors(int (*each)(const char *address, void *data), void *data, struct cg_err *err)
{
        static const char prefix[] = "shared-";
        char parent[128], path[400];
        struct dirent *e;
        struct stat st;
        int r = 0;
        DIR *d;

        if (cg_runtime_parent("cellgate", parent, sizeof(parent), err) < 0)
                return -1;
        d = opendir(parent);
        while (d && r == 0 && (e = readdir(d))) {
                if (strncmp(e->d_name, prefix, sizeof(prefix) - 1) != 0)
                        continue;
                snprintf(path, sizeof(path), "%s/%s", parent, e->d_name);
                if (lstat(path, &st) == 0 && S_ISDIR(st.st_mode) && st.st_uid == geteuid())
                        r = each(path, data);
        }
        if (d)
                closedir(d);
        return r;
}
