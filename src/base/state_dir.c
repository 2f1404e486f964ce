/* See state_dir.h. Linked into every process. */
#include "base/state_dir.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/fd.h"
#include "base/proc.h"

/* ".local", "state" and its own may be missing; a home may not. */
#define MISSING_MAX 3

bool cg_state_dir(char ret[PATH_MAX])
{
        const char *state = getenv("XDG_STATE_HOME"), *home = getenv("HOME");
        char account[PATH_MAX];
        int n;

        if (state && state[0] == '/') {
                n = snprintf(ret, PATH_MAX, "%s/cellgate", state);
        } else {
                if (!home || home[0] != '/')
                        home = cg_account_home(account) ? account : NULL;
                n = home ? snprintf(ret, PATH_MAX, "%s/.local/state/cellgate", home) : -1;
        }
        return n > 0 && n < PATH_MAX;
}

bool cg_make_state_dir(char ret[PATH_MAX])
{
        char above[PATH_MAX], *slash;
        struct stat st;
        int missing = 0;

        if (!cg_state_dir(ret))
                return false;
        snprintf(above, sizeof(above), "%s", ret);
        while (missing <= MISSING_MAX && stat(above, &st) < 0 && (slash = strrchr(above, '/')) &&
               slash != above) {
                *slash = '\0';
                missing++;
        }
        if (missing == 0)
                return true;
        return missing <= MISSING_MAX && st.st_uid == geteuid() && cg_make_dirs(ret, 0700, NULL) == 0;
}
