/* Environments that kernels run in. See kernel_env.h. */
#include "base/kernel_env.h"

#include "base/fd.h"
#include "base/installed.h"
#include "base/path.h"
#include "config.h"

#define MAX_CONFIG ((size_t)64 << 10)
#define MAX_NAME   64u

int cg_kernel_envs_dir(char **ret, struct cg_err *err)
{
        const char *data = getenv("XDG_DATA_HOME"), *home = getenv("HOME");

        if (data && data[0] == '/')
                return cg_asprintf(ret, "path of environments", err, "%s/cellgate/envs", data);
        if (home && home[0] == '/')
                return cg_asprintf(ret, "path of environments", err, "%s/.local/share/cellgate/envs", home);
        return cg_fail(err, CG_E_INVAL,
                       "neither XDG_DATA_HOME nor HOME says where environments are: give a folder");
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
        struct stat st;

        if (strchr(name, '/')) {
                /* An interpreter is a symlink to that of its base: only the folder is resolved. */
                if (stat(name, &st) == 0 && S_ISREG(st.st_mode)) {
                        const char *last = strrchr(name, '/') + 1;

                        if (strncmp(last, "python", 6) != 0 ||
                            asprintf(&path, "%.*s..", (int)(last - name), name) < 0) {
                                path = NULL;
                                return cg_fail(err, CG_E_INVAL,
                                               "%s is neither an environment nor the interpreter of one",
                                               name);
                        }
                }
                *ret = realpath(path ?: name, NULL);
                if (*ret)
                        return 0;
                if (errno != ENOENT)
                        return cg_fail_errno(err, "environment %s", name);
                return cg_fail(err, CG_E_NOTFOUND,
                               "there is no environment %s: `cellgate env create %s` makes it", name, name);
        }
        if (!cg_kernel_env_is_name(name))
                return cg_fail(
                        err, CG_E_INVAL,
                        "\"%s\" is not a name of an environment: use at most %u letters, digits, \"-\", \"_\" and \".\", or a "
                        "folder with a slash in it",
                        name, MAX_NAME);
        if (cg_kernel_envs_dir(&dir, err) < 0)
                return -1;
        if (cg_asprintf(&path, "path of an environment", err, "%s/%s", dir, name) < 0)
                return -1;
        *ret = realpath(path, NULL);
        if (*ret)
                return 0;
        if (errno != ENOENT)
                return cg_fail_errno(err, "environment %s", path);
        return cg_fail(
                err, CG_E_NOTFOUND,
                "there is no environment %s in %s: `cellgate env create %s` makes it, `cellgate env list` "
                "shows those that are there; a folder is named with a slash, such as ./%s",
                name, dir, name, name);
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

        if (cg_asprintf(&path, "path of an environment", err, "%s/pyvenv.cfg", dir) < 0)
                return -1;
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

/* The version that pyvenv.cfg states. False, with "", if it states none. */
static bool stated_version(const char *dir, char version[64])
{
        cg_auto_free char *config = NULL;

        version[0] = '\0';
        return read_config(dir, &config, NULL) == 0 && (config_value(config, "version", version, 64) ||
                                                        config_value(config, "version_info", version, 64));
}

/* "3.11" of "3.11.2". */
static bool short_version(const char *version, char ret[16])
{
        unsigned int minor;

        if (sscanf(version, "3.%3u", &minor) != 1)
                return false;
        snprintf(ret, 16, "3.%u", minor);
        return true;
}

const char *cg_kernel_modules(char ret[PATH_MAX])
{
        return cg_installed(ret, CG_PYTHONDIR);
}

const char *cg_kernel_env_own_version(char ret[16])
{
        const char *found = NULL, *folder = CG_INSTALLED("/../..");

        snprintf(ret, 16, "%s", CG_PYTHON_VERSION);
        if (CG_WHEEL) {
                found = strrchr(folder, '/'); /* .../python3.11/site-packages/cellgate_runtime */
                if (!found || strncmp(found, "/python", 7) != 0 || !short_version(found + 7, ret))
                        snprintf(ret, 16, "3");
        }
        return ret;
}

bool cg_kernel_env_packages(const char *dir, char ret[PATH_MAX])
{
        char version[64], number[16] = CG_PYTHON_VERSION;

        if (CG_WHEEL && (!stated_version(dir, version) || !short_version(version, number)))
                return false;
        return snprintf(ret, PATH_MAX, "%s/lib/python%s/site-packages", dir, number) < PATH_MAX;
}

/* -------------------------------------------------------------- the module of a wheel's kernels */

/* Copies the path of the module for Python @version in @folder, and cellgate's version there. */
static bool module_in(const char *folder, const char *version, char ret[PATH_MAX], char cellgate[32])
{
        cg_auto_free char *text = NULL;
        size_t len;

        cellgate[0] = '\0';
        if (snprintf(ret, PATH_MAX, "%s/VERSION", folder) >= PATH_MAX ||
            cg_read_regular(ret, 31, &text, &len, NULL) < 0)
                return false;
        text[strcspn(text, "\n")] = '\0';
        snprintf(cellgate, 32, "%s", text);
        return snprintf(ret, PATH_MAX, "%s/_cellgate.cpython-3%s-" CG_MODULE_PLATFORM, folder,
                        version + strlen("3.")) < PATH_MAX &&
               access(ret, R_OK) == 0;
}

int cg_kernel_env_module(const char *dir, char ret[PATH_MAX], struct cg_err *err)
{
        char version[64], number[16], packages[PATH_MAX], folder[PATH_MAX + 32], cellgate[32];

        if (!stated_version(dir, version) || !short_version(version, number) ||
            !cg_kernel_env_packages(dir, packages))
                return cg_fail(err, CG_E_INVAL,
                               "environment %s: its pyvenv.cfg states no version of Python 3", dir);
        snprintf(folder, sizeof(folder), "%s/_cellgate_kernel", packages);
        if (module_in(folder, number, ret, cellgate) && strcmp(cellgate, CG_VERSION) == 0)
                return 0;
        if (module_in(CG_INSTALLED(CG_PYTHONDIR), number, ret, (char[32]){ "" }))
                return 0;
        if (cellgate[0] && strcmp(cellgate, CG_VERSION) != 0)
                return cg_fail(
                        err, CG_E_INVAL,
                        "environment %s has cellgate-kernel %s, and this is cellgate %s: install the same version in both",
                        dir, cellgate, CG_VERSION);
        return cg_fail(
                err, CG_E_INVAL,
                "environment %s is of Python %s, and has no module for kernels: install cellgate-kernel %s in it "
                "(%s/bin/python -m pip install cellgate-kernel==%s), or choose an environment of Python %s",
                dir, version, CG_VERSION, dir, CG_VERSION, cg_kernel_env_own_version((char[16]){ "" }));
}

bool cg_kernel_env_fits(const char *dir, char version[64])
{
        cg_auto_free char *config = NULL;
        char packages[PATH_MAX], module[PATH_MAX];

        stated_version(dir, version);
        return read_config(dir, &config, NULL) == 0 && has(dir, "bin/python") &&
               cg_kernel_env_packages(dir, packages) && access(packages, F_OK) == 0 &&
               (!CG_WHEEL ||
                (cg_kernel_env_module(dir, module, NULL) == 0 && home_of(config, module, sizeof(module))));
}

const char *cg_kernel_env_default(char ret[PATH_MAX])
{
        cg_auto_free char *named = NULL;
        char version[64];

        cg_installed(ret, CG_KERNEL_ENV);
        if (CG_WHEEL && !cg_kernel_env_fits(ret, version) &&
            cg_kernel_env_find(CG_ENV_DEFAULT, &named, NULL) == 0 && strlen(named) < PATH_MAX)
                strcpy(ret, named);
        return ret;
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
        if (strcmp(text, CG_ENV_IS_READY) == 0 || strcmp(text, CG_ENV_FOREIGN_READY) == 0)
                return CG_ENV_READY;
        return CG_ENV_UNFINISHED;
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

bool cg_kernel_env_system_packages(const char *dir, size_t i, char ret[PATH_MAX])
{
        /* Debian's Python has dist-packages. */
        static const struct {
                const char *lib, *version, *name;
        } folders[] = { { "lib", NULL, "site-packages" },
                        { "lib", NULL, "dist-packages" },
                        { "lib", "3", "dist-packages" },
                        { "local/lib", NULL, "dist-packages" } };
        cg_auto_free char *config = NULL, *base = NULL;
        char version[64], number[16] = CG_PYTHON_VERSION, value[8] = "true";

        if (i >= CG_ARRAY_LEN(folders) || read_config(dir, &config, NULL) < 0 ||
            cg_kernel_env_base(dir, &base, NULL) < 0 || !base)
                return false;
        if (config_value(config, "include-system-site-packages", value, sizeof(value)) &&
            strcasecmp(value, "true") != 0)
                return false;
        if (CG_WHEEL && (!stated_version(dir, version) || !short_version(version, number)))
                return false;
        return snprintf(ret, PATH_MAX, "%.*s/%s/python%s/%s", (int)(strrchr(base, '/') - base), base,
                        folders[i].lib, folders[i].version ?: number, folders[i].name) < PATH_MAX;
}

/* ------------------------------------------------------------------ packages that lie elsewhere */

struct inside {
        const char *dir;
        char packages[PATH_MAX]; /* a folder of installed packages */
        char lib[PATH_MAX];      /* the base Python's library folder; "" if unknown */
        char prefix[PATH_MAX];   /* the base Python's own folder, if @packages is in it; or "" */
};

static bool is_outside(const struct inside *in, const char *real)
{
        return !cg_path_within(real, in->dir) && !(in->lib[0] && cg_path_within(real, in->lib)) &&
               !(in->prefix[0] && cg_path_within(real, in->prefix));
}

static int fail_outside(const struct inside *in, const char *name, const char *where, struct cg_err *err)
{
        return cg_fail(
                err, CG_E_INVAL,
                "environment %s: %s/%s leads to %s, outside of it. Code that a kernel's environment imports runs outside of the sandbox as "
                "well, so its packages must be in it: install that one without -e; cells can import it from the workspace",
                in->dir, in->packages, name, where);
}

/*
 * Checks a line of code of a .pth file. Code belongs to the environment, and what it does cannot be
 * predicted; but a folder that it spells out is most likely added to sys.path.
 */
static int check_code(const struct inside *in, const char *name, const char *line, struct cg_err *err)
{
        char path[PATH_MAX], real[PATH_MAX];
        struct stat st;

        for (const char *p = line; (p = strpbrk(p, "'\"")); p++) {
                const char *end = strchr(p + 1, *p);

                if (p[1] == '/' && end && end - p > 2 && end - p < PATH_MAX) {
                        snprintf(path, sizeof(path), "%.*s", (int)(end - p - 1), p + 1);
                        if (realpath(path, real) && stat(real, &st) == 0 && S_ISDIR(st.st_mode) &&
                            is_outside(in, real))
                                return fail_outside(in, name, real, err);
                }
        }
        return 0;
}

/* Checks a line of a .pth file: it names a folder for sys.path, unless it is code. */
static int check_line(const struct inside *in, const char *name, const char *line, struct cg_err *err)
{
        char path[2 * PATH_MAX], real[PATH_MAX];

        if (!*line || *line == '#')
                return 0;
        if (strncmp(line, "import ", 7) == 0 || strncmp(line, "import\t", 7) == 0)
                return check_code(in, name, line, err);
        if (line[0] == '/')
                snprintf(path, sizeof(path), "%s", line);
        else
                snprintf(path, sizeof(path), "%s/%s", in->packages, line);
        if (realpath(path, real) && is_outside(in, real))
                return fail_outside(in, name, real, err);
        return 0;
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

/* The folder may be absent. */
static int check_packages(struct inside *in, struct cg_err *err)
{
        struct dirent *d;
        DIR *packages = opendir(in->packages);
        int r = 0;

        if (!packages)
                return errno == ENOENT ? 0 : cg_fail_errno(err, "environment %s", in->packages);
        while (r == 0 && (errno = 0, d = readdir(packages)))
                if (strcmp(d->d_name, ".") != 0 && strcmp(d->d_name, "..") != 0)
                        r = check_entry(in, d, err);
        if (r == 0 && errno)
                r = cg_fail_errno(err, "environment %s", in->packages);
        closedir(packages);
        return r;
}

static int check_inside(const char *dir, struct cg_err *err)
{
        cg_auto_free char *base = NULL;
        struct inside in = { .dir = dir };
        int r;

        if (cg_kernel_env_base(dir, &base, err) < 0)
                return -1;
        if (base && strrchr(base, '/') != base)
                snprintf(in.lib, sizeof(in.lib), "%.*s/lib", (int)(strrchr(base, '/') - base), base);
        if (!cg_kernel_env_packages(dir, in.packages))
                return cg_fail(err, CG_E_LIMIT, "path of environment %s is too long", dir);
        r = check_packages(&in, err);
        if (base)
                snprintf(in.prefix, sizeof(in.prefix), "%.*s", (int)(strrchr(base, '/') - base), base);
        for (size_t i = 0; r == 0 && cg_kernel_env_system_packages(dir, i, in.packages); i++)
                r = check_packages(&in, err);
        return r;
}

/* Why cg_kernel_env_fits() is false. */
static int fail_unfit(const char *dir, const char *version, struct cg_err *err)
{
        char number[16] = CG_PYTHON_VERSION, threaded[64], module[PATH_MAX];

        short_version(version, number);
        snprintf(threaded, sizeof(threaded), "lib/python%st", number);
        if (has(dir, threaded))
                return cg_fail(
                        err, CG_E_INVAL,
                        "environment %s is of a free-threaded build of Python, in which kernels do not run: make one with a "
                        "standard build of Python %s",
                        dir, number);
        if (CG_WHEEL && cg_kernel_env_module(dir, module, err) < 0)
                return CG_E_INVAL;
        if (CG_WHEEL)
                return cg_fail(
                        err, CG_E_INVAL,
                        "environment %s has no base Python (home in pyvenv.cfg), no bin/python or no folder lib/python%s/site-packages: make it anew",
                        dir, number);
        return cg_fail(
                err, CG_E_INVAL,
                "environment %s is of Python %s, but kernels need Python %s: make one with `cellgate env create`, or with "
                "%s -m venv",
                dir, version[0] ? version : "(unknown)", CG_PYTHON_VERSION, CG_INSTALLED(CG_PYTHON));
}

int cg_kernel_env_check(const char *dir, struct cg_err *err)
{
        char version[64];

        if (!has(dir, "pyvenv.cfg"))
                return cg_fail(
                        err, CG_E_INVAL,
                        "%s is no virtual environment: it has no pyvenv.cfg. Make one with `cellgate env create%s`, or with %s -m venv",
                        dir, CG_WHEEL ? " " CG_ENV_DEFAULT : "", CG_INSTALLED(CG_PYTHON));
        if (!cg_kernel_env_fits(dir, version))
                return fail_unfit(dir, version, err);
        if (cg_kernel_env_state(dir) == CG_ENV_UNFINISHED)
                return cg_fail(
                        err, CG_E_STATE,
                        "environment %s is being changed, or changing it was interrupted: `cellgate env add %s` finishes it",
                        dir, dir);
        return check_inside(dir, err);
}
