/* Kernelspecs. Runs in `cellgate jupyter install`. */
#include "jupyter/kernelspec.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/fd.h"
#include "base/json.h"
#include "base/util.h"
#include "jupyter/message.h"

#define MAX_LOGO ((size_t)1 << 20)

int cg_make_dirs(const char *path, unsigned mode, struct cg_err *err)
{
        cg_auto_free char *copy = strdup(path);

        if (!copy)
                return cg_fail(err, CG_E_NOMEM, "%s", path);
        for (char *p = copy + 1; *p; p++) {
                if (*p != '/')
                        continue;
                *p = '\0';
                if (mkdir(copy, mode) < 0 && errno != EEXIST)
                        return cg_fail_errno(err, "cannot make the folder %s", copy);
                *p = '/';
        }
        if (mkdir(copy, mode) < 0 && errno != EEXIST)
                return cg_fail_errno(err, "cannot make the folder %s", copy);
        return 0;
}

int cg_jupyter_data_dir(char **ret, struct cg_err *err)
{
        const char *own = getenv("JUPYTER_DATA_DIR"), *xdg = getenv("XDG_DATA_HOME"), *home = getenv("HOME");
        int n;

        if (own && *own)
                n = asprintf(ret, "%s", own);
        else if (xdg && *xdg)
                n = asprintf(ret, "%s/jupyter", xdg);
        else if (home && *home)
                n = asprintf(ret, "%s/.local/share/jupyter", home);
        else
                return cg_fail(err, CG_E_NOTFOUND, "HOME is not set: say where by --prefix DIR");
        return n < 0 ? cg_fail(err, CG_E_NOMEM, "folder of Jupyter") : 0;
}

int cg_kernelspec_user_dir(char **ret, struct cg_err *err)
{
        cg_auto_free char *data = NULL;
        int r = cg_jupyter_data_dir(&data, err);

        if (r < 0)
                return r;
        return asprintf(ret, "%s/kernels", data) < 0 ? cg_fail(err, CG_E_NOMEM, "folder of kernelspecs") : 0;
}

static bool is_name(const char *s)
{
        return *s && *s != '.' && strspn(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-") == strlen(s);
}

static json_t *make_json(const struct cg_kernelspec *spec)
{
        json_t *argv = json_array(), *features;

        for (size_t i = 0; argv && spec->argv[i]; i++)
                if (json_array_append_new(argv, json_string(spec->argv[i])) < 0) {
                        json_decref(argv);
                        return NULL; /* not UTF-8 */
                }
        features = spec->debugger ? json_pack("[s, s]", "debugger", "kernel subshells") : json_pack("[s]", "kernel subshells");
        return json_pack("{s:o, s:s, s:s, s:s, s:s, s:{}, s:{s:b, s:o, s:[s]}}", "argv", argv, "display_name", spec->display_name,
                         "language", "python", "interrupt_mode", "message", "kernel_protocol_version", CG_JUPYTER_PROTOCOL, "env",
                         "metadata", "debugger", spec->debugger, "supported_features", features, "supported_encryption", "curve");
}

/* Half a file is never seen. */
static int write_file(const char *dir, const char *name, const char *data, size_t len, struct cg_err *err)
{
        cg_auto_free char *path = NULL, *temporary = NULL;
        cg_auto_fd int fd = -1;

        if (asprintf(&path, "%s/%s", dir, name) < 0 || asprintf(&temporary, "%s/.%s.%u", dir, name, (unsigned)getpid()) < 0)
                return cg_fail(err, CG_E_NOMEM, "kernelspec");
        fd = open(temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0644);
        if (fd < 0)
                return cg_fail_errno(err, "%s", temporary);
        if (cg_write_all(fd, data, len, err) < 0)
                return cg_err_prefix(err, "%s", path);
        if (rename(temporary, path) < 0)
                return cg_fail_errno(err, "%s", path);
        return 0;
}

static int copy_logos(const char *from, const char *to, struct cg_err *err)
{
        static const char *const names[] = { "logo-32x32.png", "logo-64x64.png", "logo-svg.svg" };

        for (size_t i = 0; i < CG_ARRAY_LEN(names); i++) {
                cg_auto_free char *path = NULL, *data = NULL;
                struct cg_err missing;
                size_t len;
                int r;

                if (asprintf(&path, "%s/%s", from, names[i]) < 0)
                        return cg_fail(err, CG_E_NOMEM, "kernelspec");
                if (cg_read_file(path, MAX_LOGO, &data, &len, &missing) < 0)
                        continue; /* a kernel works without its picture */
                r = write_file(to, names[i], data, len, err);
                if (r < 0)
                        return r;
        }
        return 0;
}

int cg_kernelspec_write(const struct cg_kernelspec *spec, const char *kernels, const char *logos, char **ret, struct cg_err *err)
{
        cg_auto_json json_t *json = NULL;
        cg_auto_free char *dir = NULL, *text = NULL, *lines = NULL;

        if (!is_name(spec->name))
                return cg_fail(err, CG_E_INVAL, "\"%s\" is no name for a kernel: letters, digits and ._- are possible", spec->name);
        json = make_json(spec);
        text = json ? json_dumps(json, JSON_INDENT(2)) : NULL;
        if (!text)
                return cg_fail(err, CG_E_INVAL, "a kernelspec's texts must be UTF-8");
        if (asprintf(&lines, "%s\n", text) < 0 || asprintf(&dir, "%s/%s", kernels, spec->name) < 0)
                return cg_fail(err, CG_E_NOMEM, "kernelspec");
        if (cg_make_dirs(dir, 0755, err) < 0 || copy_logos(logos, dir, err) < 0 ||
            write_file(dir, "kernel.json", lines, strlen(lines), err) < 0)
                return -1;
        *ret = CG_STEAL(dir);
        return 0;
}
