/* Kernelspecs. Runs in `cellgate jupyter install`. */
#include "jupyter/kernelspec.h"

#include <dirent.h>
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
#define MAX_SPEC ((size_t)1 << 20)

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
        return *s && *s != '.' && *s != '-' &&
               strspn(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-") == strlen(s);
}

static json_t *make_json(const struct cg_kernelspec *spec)
{
        json_t *argv = json_array(), *features;

        for (size_t i = 0; argv && spec->argv[i]; i++)
                if (json_array_append_new(argv, json_string(spec->argv[i])) < 0) {
                        json_decref(argv);
                        return NULL; /* not UTF-8 */
                }
        features = spec->debugger ? json_pack("[s, s]", "debugger", "kernel subshells")
                                  : json_pack("[s]", "kernel subshells");
        return json_pack("{s:o, s:s, s:s, s:s, s:s, s:{}, s:{s:b, s:o, s:[s]}}", "argv", argv, "display_name",
                         spec->display_name, "language", "python", "interrupt_mode", "message",
                         "kernel_protocol_version", CG_JUPYTER_PROTOCOL, "env", "metadata", "debugger",
                         spec->debugger, "supported_features", features, "supported_encryption", "curve");
}

static const char *const logo_names[] = { "logo-32x32.png", "logo-64x64.png", "logo-svg.svg" };

/*
 * Written under a temporary name, so that no partial file is visible. An existing file of that
 * name, perhaps a FIFO, is not opened.
 */
static int write_file(int dir, const char *name, const char *data, size_t len, struct cg_err *err)
{
        cg_auto_free char *temporary = NULL;
        cg_auto_fd int fd = -1;
        int r;

        if (asprintf(&temporary, ".%s.%u", name, (unsigned)getpid()) < 0)
                return cg_fail(err, CG_E_NOMEM, "kernelspec");
        unlinkat(dir, temporary, 0);
        fd = openat(dir, temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0644);
        if (fd < 0)
                return cg_fail_errno(err, "%s", name);
        r = cg_write_all(fd, data, len, err);
        if (r < 0)
                cg_err_prefix(err, "%s", name);
        else if (renameat(dir, temporary, dir, name) < 0)
                r = cg_fail_errno(err, "%s", name);
        if (r < 0)
                unlinkat(dir, temporary, 0);
        return r;
}

static int copy_logos(const char *from, int to, struct cg_err *err)
{
        for (size_t i = 0; i < CG_ARRAY_LEN(logo_names); i++) {
                cg_auto_free char *path = NULL, *data = NULL;
                struct cg_err missing;
                size_t len;
                int r;

                if (asprintf(&path, "%s/%s", from, logo_names[i]) < 0)
                        return cg_fail(err, CG_E_NOMEM, "kernelspec");
                if (cg_read_file(path, MAX_LOGO, &data, &len, &missing) < 0)
                        continue; /* a kernel works without its picture */
                r = write_file(to, logo_names[i], data, len, err);
                if (r < 0)
                        return r;
        }
        return 0;
}

static int foreign(struct cg_err *err)
{
        return cg_fail(err, CG_E_EXISTS,
                       "another kernel's files are there: choose another --name, or remove them first");
}

/* A kernelspec of ours starts with PROGRAM jupyter run, with any path of the program. */
static int check_spec(int fd, struct cg_err *err)
{
        cg_auto_free char *text = NULL;
        cg_auto_json json_t *spec = NULL;
        const char *program = NULL, *command = NULL, *what = NULL;
        struct stat st;
        size_t len;

        if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) ||
            cg_read_fd(fd, "kernel.json", MAX_SPEC, &text, &len, NULL) < 0 ||
            cg_json_object(text, len, "kernel.json", &spec, NULL) < 0 ||
            json_unpack(spec, "{s:[s, s, s]}", "argv", &program, &command, &what) < 0)
                return foreign(err);
        return strstr(program, "cellgate") && strcmp(command, "jupyter") == 0 && strcmp(what, "run") == 0
                       ? 0
                       : foreign(err);
}

/* The folder must be empty, or have only files of an interrupted installation. */
static int check_rest(int dir, struct cg_err *err)
{
        int fd = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), r = 0;
        DIR *d = fd < 0 ? NULL : fdopendir(fd);
        const struct dirent *e;

        if (!d) {
                if (fd >= 0)
                        close(fd);
                return cg_fail_errno(err, "its folder");
        }
        while (r == 0 && (e = readdir(d))) {
                bool ours = e->d_name[0] == '.';

                for (size_t i = 0; i < CG_ARRAY_LEN(logo_names) && !ours; i++)
                        ours = strcmp(e->d_name, logo_names[i]) == 0;
                if (!ours)
                        r = foreign(err);
        }
        closedir(d);
        return r;
}

/*
 * Only a kernelspec of ours is replaced: the folder may be a symlink, and "python3" the user's only
 * kernel.
 */
static int check_folder(int dir, struct cg_err *err)
{
        cg_auto_fd int fd = openat(dir, "kernel.json", O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);

        if (fd >= 0)
                return check_spec(fd, err);
        return errno == ENOENT ? check_rest(dir, err) : cg_fail_errno(err, "kernel.json");
}

static int write_files(const char *dir, const char *logos, const char *text, struct cg_err *err)
{
        cg_auto_fd int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        int r = fd < 0 ? cg_fail_errno(err, "its folder") : check_folder(fd, err);

        if (r == 0)
                r = copy_logos(logos, fd, err);
        if (r == 0)
                r = write_file(fd, "kernel.json", text, strlen(text), err);
        return r < 0 ? cg_err_prefix(err, "%s", dir) : 0;
}

int cg_kernelspec_write(const struct cg_kernelspec *spec, const char *kernels, const char *logos, char **ret,
                        struct cg_err *err)
{
        cg_auto_json json_t *json = NULL;
        cg_auto_free char *dir = NULL, *text = NULL, *lines = NULL;

        if (!is_name(spec->name))
                return cg_fail(err, CG_E_INVAL,
                               "\"%s\" is no name for a kernel: letters, digits and ._- are possible",
                               spec->name);
        json = make_json(spec);
        text = json ? json_dumps(json, JSON_INDENT(2)) : NULL;
        if (!text)
                return cg_fail(err, CG_E_INVAL, "a kernelspec's texts must be UTF-8");
        if (asprintf(&lines, "%s\n", text) < 0 || asprintf(&dir, "%s/%s", kernels, spec->name) < 0)
                return cg_fail(err, CG_E_NOMEM, "kernelspec");
        if (cg_make_dirs(dir, 0755, err) < 0 || write_files(dir, logos, lines, err) < 0)
                return -1;
        *ret = CG_STEAL(dir);
        return 0;
}
