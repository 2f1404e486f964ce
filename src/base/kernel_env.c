/* Environments that kernels run in. See kernel_env.h. */
#include "base/kernel_env.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/fd.h"
#include "base/installed.h"
#include "base/path.h"
#include "base/util.h"
#include "config.h"

#define MAX_CONFIG ((size_t)64 << 10)
#define MAX_NAME   64u

int cg_kernel_envs_dir(char **ret, struct cg_err *err)
{
        const char *data = getenv("XDG_DATA_HOME"), *home = getenv("HOME");
        int r;

        if (data && data[0] == '/')
                r = asprintf(ret, "%s/cellgate/envs", data);
        else if (home && home[0] == '/')
                r = asprintf(ret, "%s/.local/share/cellgate/envs", home);
        else
                return cg_fail(err, CG_E_INVAL,
                               "neither XDG_DATA_HOME nor HOME says where environments are: give a folder");
        return r < 0 ? cg_fail(err, CG_E_NOMEM, "path of environments") : 0;
}

bool cg_kernel_env_is_name(const char *text)
{
        static const char allowed[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.";
        size_t len = strlen(text);

        return len && len <= MAX_NAME && strspn(text, allowed) == len && text[0] != '.' && text[0] != '-';
}

int cg_kernel_env_find(const char *name, char **ret, struct cg_err *err)
{
        cg_auto_free char *dir = NULL, *path = NULL;

        if (strchr(name, '/')) {
                *ret = realpath(name, NULL);
                return *ret ? 0
                       : errno == ENOENT
                               ? cg_fail(err, CG_E_NOTFOUND,
                                         "there is no environment %s: `cellgate env create %s` makes it",
                                         name, name)
                               : cg_fail_errno(err, "environment %s", name);
        }
        if (!cg_kernel_env_is_name(name))
                return cg_fail(
                        err, CG_E_INVAL,
                        "\"%s\" is not a name of an environment: use at most %u letters, digits, \"-\", \"_\" and \".\", or a "
                        "folder with a slash in it",
                        name, MAX_NAME);
        if (cg_kernel_envs_dir(&dir, err) < 0)
                return -1;
        if (asprintf(&path, "%s/%s", dir, name) < 0)
                return cg_fail(err, CG_E_NOMEM, "path of an environment");
        *ret = realpath(path, NULL);
        if (*ret)
                return 0;
        return errno == ENOENT
                       ? cg_fail(err, CG_E_NOTFOUND,
                                 "there is no environment %s in %s: `cellgate env create %s` makes it, `cellgate env list` "
                                 "shows those that are there; a folder is named with a slash, such as ./%s",
                                 name, dir, name, name)
                       : cg_fail_errno(err, "environment %s", path);
}

/* Copies the value of the line "KEY = VALUE" of pyvenv.cfg. False if there is none, or no room. */
static bool config_value(const char *text, const char *key, char *ret, size_t size)
{
        size_t len = strlen(key);

        for (const char *line = text; line; line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL) {
                const char *p = line + strspn(line, " \t");
                size_t n;

                if (strncmp(p, key, len) != 0)
                        continue;
                p += len + strspn(p + len, " \t");
                if (*p != '=')
                        continue;
                p += 1 + strspn(p + 1, " \t");
                n = strcspn(p, "\r\n");
                while (n && (p[n - 1] == ' ' || p[n - 1] == '\t'))
                        n--;
                if (n >= size)
                        return false;
                memcpy(ret, p, n);
                ret[n] = '\0';
                return true;
        }
        return false;
}

static int read_config(const char *dir, char **ret, struct cg_err *err)
{
        cg_auto_free char *path = NULL;
        size_t len;

        if (asprintf(&path, "%s/pyvenv.cfg", dir) < 0) {
                path = NULL;
                return cg_fail(err, CG_E_NOMEM, "path of an environment");
        }
        return cg_read_regular(path, MAX_CONFIG, ret, &len, err);
}

static bool home_of(const char *config, char *ret, size_t size)
{
        return config_value(config, "home", ret, size) && ret[0] == '/' && ret[1];
}

bool cg_pyvenv_home(const char *dir, char *ret, size_t size)
{
        cg_auto_free char *config = NULL;

        return read_config(dir, &config, NULL) == 0 && home_of(config, ret, size);
}

static bool has(const char *dir, const char *name)
{
        char path[PATH_MAX];

        return snprintf(path, sizeof(path), "%s/%s", dir, name) < (int)sizeof(path) &&
               access(path, F_OK) == 0;
}

bool cg_kernel_env_fits(const char *dir, char version[64])
{
        cg_auto_free char *config = NULL;

        version[0] = '\0';
        if (read_config(dir, &config, NULL) < 0)
                return false;
        if (!config_value(config, "version", version, 64))
                config_value(config, "version_info", version, 64);
        return has(dir, "bin/python") && has(dir, "lib/python" CG_PYTHON_VERSION "/site-packages");
}

/* Returns the content of the state file of @dir; NULL if it has none. */
static char *read_state(const char *dir)
{
        char path[PATH_MAX], *text = NULL;
        size_t len;

        if (snprintf(path, sizeof(path), "%s/" CG_ENV_STATE, dir) >= (int)sizeof(path) ||
            cg_read_regular(path, 64, &text, &len, NULL) < 0)
                return NULL;
        return text;
}

enum cg_env_state cg_kernel_env_state(const char *dir)
{
        cg_auto_free char *text = read_state(dir);

        if (!text)
                return CG_ENV_UNTOUCHED;
        return strcmp(text, CG_ENV_IS_READY) == 0 || strcmp(text, CG_ENV_FOREIGN_READY) == 0
                       ? CG_ENV_READY
                       : CG_ENV_UNFINISHED;
}

bool cg_kernel_env_is_ours(const char *dir)
{
        cg_auto_free char *text = read_state(dir);

        return text && (strcmp(text, CG_ENV_IS_READY) == 0 || strcmp(text, CG_ENV_IS_CHANGING) == 0);
}

int cg_kernel_env_base(const char *dir, char **ret, struct cg_err *err)
{
        cg_auto_free char *config = NULL;
        char home[PATH_MAX];

        *ret = NULL;
        if (read_config(dir, &config, err) < 0)
                return -1;
        if (home_of(config, home, sizeof(home)))
                *ret = realpath(home, NULL);
        return 0;
}

/* ------------------------------------------------------------------ packages that lie elsewhere */

struct inside {
        const char *dir;
        char packages[PATH_MAX]; /* the folder of installed packages */
        char lib[PATH_MAX];      /* the base Python's library folder; "" if unknown */
};

static bool is_outside(const struct inside *in, const char *real)
{
        return !cg_path_within(real, in->dir) && !(in->lib[0] && cg_path_within(real, in->lib));
}

static int fail_outside(const struct inside *in, const char *name, const char *where, struct cg_err *err)
{
        return cg_fail(
                err, CG_E_INVAL,
                "environment %s: %s leads to %s, outside of it. Code that a kernel's environment imports runs outside of the sandbox as "
                "well, so its packages must be in it: install that one without -e; cells can import it from the workspace",
                in->dir, name, where);
}

/*
 * Checks a line of a .pth file. It names a folder for sys.path, unless it is code: code belongs to
 * the environment, and what it does cannot be predicted.
 */
static int check_line(const struct inside *in, const char *name, const char *line, struct cg_err *err)
{
        char path[2 * PATH_MAX], real[PATH_MAX];

        if (!*line || *line == '#' || strncmp(line, "import ", 7) == 0 || strncmp(line, "import\t", 7) == 0)
                return 0;
        snprintf(path, sizeof(path), "%s%s%s", line[0] == '/' ? "" : in->packages, line[0] == '/' ? "" : "/",
                 line);
        return realpath(path, real) && is_outside(in, real) ? fail_outside(in, name, real, err) : 0;
}

static int check_pth(const struct inside *in, const char *name, struct cg_err *err)
{
        cg_auto_free char *text = NULL;
        char path[2 * PATH_MAX], *save = NULL;
        size_t len;
        int r = 0;

        snprintf(path, sizeof(path), "%s/%s", in->packages, name);
        if (cg_read_regular(path, MAX_CONFIG, &text, &len, err) < 0)
                return -1;
        for (char *line = strtok_r(text, "\r\n", &save); line && r == 0; line = strtok_r(NULL, "\r\n", &save))
                r = check_line(in, name, line, err);
        return r;
}

static int check_entry(const struct inside *in, const struct dirent *d, struct cg_err *err)
{
        const char *name = d->d_name, *end = strrchr(name, '.');
        char path[2 * PATH_MAX], real[PATH_MAX];

        /* Build tools give such names to the finders of editable installations. */
        if (strstr(name, "editable") && end && strcmp(end, ".py") == 0)
                return fail_outside(in, name, "a package's source folder", err);
        snprintf(path, sizeof(path), "%s/%s", in->packages, name);
        if (d->d_type != DT_DIR && d->d_type != DT_REG && realpath(path, real) && is_outside(in, real))
                return fail_outside(in, name, real, err);
        return end && strcmp(end, ".pth") == 0 ? check_pth(in, name, err) : 0;
}

static int check_inside(const char *dir, struct cg_err *err)
{
        cg_auto_free char *base = NULL;
        struct inside in = { .dir = dir };
        struct dirent *d;
        DIR *packages;
        int r = 0;

        if (cg_kernel_env_base(dir, &base, err) < 0)
                return -1;
        if (base && strrchr(base, '/') != base)
                snprintf(in.lib, sizeof(in.lib), "%.*s/lib", (int)(strrchr(base, '/') - base), base);
        if (snprintf(in.packages, sizeof(in.packages), "%s/lib/python" CG_PYTHON_VERSION "/site-packages",
                     dir) >= (int)sizeof(in.packages))
                return cg_fail(err, CG_E_LIMIT, "path of environment %s is too long", dir);
        packages = opendir(in.packages);
        if (!packages)
                return cg_fail_errno(err, "environment %s", in.packages);
        while (r == 0 && (errno = 0, d = readdir(packages)))
                if (strcmp(d->d_name, ".") != 0 && strcmp(d->d_name, "..") != 0)
                        r = check_entry(&in, d, err);
        if (r == 0 && errno)
                r = cg_fail_errno(err, "environment %s", in.packages);
        closedir(packages);
        return r;
}

int cg_kernel_env_check(const char *dir, struct cg_err *err)
{
        char version[64];

        if (!has(dir, "pyvenv.cfg"))
                return cg_fail(
                        err, CG_E_INVAL,
                        "%s is no virtual environment: it has no pyvenv.cfg. Make one with `cellgate env create`, or with %s -m venv",
                        dir, CG_INSTALLED(CG_PYTHON));
        if (!cg_kernel_env_fits(dir, version))
                return cg_fail(
                        err, CG_E_INVAL,
                        "environment %s is of Python %s, but kernels need Python %s: make one with `cellgate env create`, or with "
                        "%s -m venv",
                        dir, version[0] ? version : "(unknown)", CG_PYTHON_VERSION, CG_INSTALLED(CG_PYTHON));
        if (cg_kernel_env_state(dir) == CG_ENV_UNFINISHED)
                return cg_fail(
                        err, CG_E_STATE,
                        "environment %s is being changed, or changing it was interrupted: `cellgate env add %s` finishes it",
                        dir, dir);
        return check_inside(dir, err);
}
