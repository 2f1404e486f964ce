/* See state_dir.h. Linked into every process. */
#include "base/account.h"
#include "base/state_dir.h"

#include "base/fd.h"
#include "base/json.h"

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
                        home = cg_account_home(account);
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

int cg_state_folder(const char *name, char ret[PATH_MAX], struct cg_err *err)
{
        char above[PATH_MAX];
        struct stat st;
        size_t n;
        int why;

        if (!cg_state_dir(ret))
                return cg_fail(err, CG_E_NOTFOUND,
                               "neither XDG_STATE_HOME nor HOME says where cellgate stores it");
        n = strlen(ret);
        if (n + 1 + strlen(name) + CG_STATE_NAME > PATH_MAX)
                return cg_fail(err, CG_E_LIMIT, "the path of the state folder is too long");
        snprintf(ret + n, PATH_MAX - n, "/%s", name);
        if (cg_make_state_dir(above) && cg_make_own_dir(ret))
                return 0;
        why = errno;
        if (lstat(ret, &st) < 0 && (errno == ENOENT || errno == ENOTDIR))
                return cg_fail(err, CG_E_NOTFOUND,
                               "%s cannot be made%s; end all sandboxes, which could not hide it, and make "
                               "the folder with mode 0700",
                               above,
                               why == EROFS ? ": Read-only file system"
                                            : ", or too much of its path is missing");
        return cg_fail(err, CG_E_STATE, "%s is not a folder of this user with mode 0700: chmod or remove it",
                       ret);
}

int cg_state_files(const char *folder, size_t max, json_t **ret, struct cg_err *err)
{
        cg_auto_json json_t *paths = json_array();
        DIR *dir = opendir(folder);
        const struct dirent *d;
        int r = 0;

        if (!dir)
                return cg_fail_errno(err, "%s", folder);
        while (r == 0 && json_array_size(paths) < max && (d = readdir(dir))) {
                const char *dot = strchr(d->d_name, '.');

                if (dot && strcmp(dot, ".json") == 0)
                        r = json_array_append_new(paths, json_sprintf("%s/%s", folder, d->d_name));
        }
        closedir(dir);
        if (!paths || r < 0)
                return cg_fail(err, CG_E_NOMEM, "files of %s", folder);
        *ret = CG_STEAL(paths);
        return 0;
}
