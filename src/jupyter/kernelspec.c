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
#include "base/kernelspecs.h"
#include "base/util.h"
#include "jupyter/message.h"

#define MAX_LOGO ((size_t)1 << 20)
#define MAX_SPEC ((size_t)1 << 20)
/* The name of the entry point in pyproject.toml. */
#define CG_PROVISIONER "cellgate-provisioner"

int cg_kernelspec_user_dir(char **ret, struct cg_err *err)
{
        cg_auto_free char *data = NULL;
        int r = cg_jupyter_data_dir(&data, err);

        if (r < 0)
                return r;
        return cg_asprintf(ret, "folder of kernelspecs", err, "%s/kernels", data);
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

        if (cg_asprintf(&temporary, "kernelspec", err, ".%s.%u", name, (unsigned)getpid()) < 0)
                return -1;
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

static int foreign(struct cg_err *err)
{
        return cg_fail(err, CG_E_EXISTS,
                       "it has files of another kernel: choose another --name, or remove them first");
}

/*
 * Only a kernelspec of ours is replaced: the folder may be a symlink, and "python3" the user's only
 * kernel. A kernelspec of ours starts with PROGRAM jupyter run, with any path of the program.
 * Without one the folder must be empty, or have only files of an interrupted installation.
 */
static int check_folder(int dir, struct cg_err *err)
{
        cg_auto_fd int fd = openat(dir, "kernel.json", O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
        const char *program = NULL, *command = NULL, *what = NULL;
        cg_auto_json json_t *spec = NULL;
        cg_auto_free char *text = NULL;
        const struct dirent *e;
        struct stat st;
        bool ours;
        size_t len;
        DIR *d;

        if (fd >= 0) {
                ours = fstat(fd, &st) == 0 && S_ISREG(st.st_mode) &&
                       cg_read_fd(fd, "kernel.json", MAX_SPEC, &text, &len, NULL) == 0 &&
                       cg_json_object(text, len, "kernel.json", &spec, NULL) == 0 &&
                       json_unpack(spec, "{s:[s, s, s]}", "argv", &program, &command, &what) == 0 &&
                       strstr(program, "cellgate") && strcmp(command, "jupyter") == 0 &&
                       strcmp(what, "run") == 0;
                return ours ? 0 : foreign(err);
        }
        if (errno != ENOENT)
                return cg_fail_errno(err, "kernel.json");
        fd = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        d = fd < 0 ? NULL : fdopendir(fd);
        if (!d)
                return cg_fail_errno(err, "its folder");
        (void)cg_steal_fd(&fd); /* the stream's now */
        ours = true;
        while (ours && (e = readdir(d))) {
                ours = e->d_name[0] == '.';
                for (size_t i = 0; i < CG_ARRAY_LEN(logo_names); i++)
                        ours = ours || strcmp(e->d_name, logo_names[i]) == 0;
        }
        closedir(d);
        return ours ? 0 : foreign(err);
}

static int write_files(const char *dir, const char *logos, const char *text, struct cg_err *err)
{
        cg_auto_fd int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        int r = fd < 0 ? cg_fail_errno(err, "its folder") : check_folder(fd, err);

        for (size_t i = 0; i < CG_ARRAY_LEN(logo_names) && r == 0; i++) {
                cg_auto_free char *path = NULL, *data = NULL;
                struct cg_err missing;
                size_t len;

                if (asprintf(&path, "%s/%s", logos, logo_names[i]) < 0)
                        r = cg_fail(err, CG_E_NOMEM, "kernelspec");
                /* a kernel works without its picture */
                else if (cg_read_file(path, MAX_LOGO, &data, &len, &missing) == 0)
                        r = write_file(fd, logo_names[i], data, len, err);
        }
        if (r == 0)
                r = write_file(fd, "kernel.json", text, strlen(text), err);
        if (r < 0)
                return cg_err_prefix(err, "%s", dir);
        return 0;
}

int cg_kernelspec_write(const struct cg_kernelspec *spec, const char *kernels, const char *logos, char **ret,
                        struct cg_err *err)
{
        static const char allowed[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
        cg_auto_free char *dir = NULL, *text = NULL, *lines = NULL;
        cg_auto_json json_t *json = NULL;
        json_t *argv, *features;
        int r = 0;

        if (!*spec->name || *spec->name == '.' || *spec->name == '-' ||
            spec->name[strspn(spec->name, allowed)])
                return cg_fail(err, CG_E_INVAL,
                               "\"%s\" is not a name for a kernel: use letters, digits and ._-", spec->name);
        argv = json_array();
        for (size_t i = 0; argv && spec->argv[i]; i++)
                r |= json_array_append_new(argv, json_string(spec->argv[i]));
        features = json_array();
        if (spec->debugger)
                r |= json_array_append_new(features, json_string("debugger"));
        if (spec->subshells)
                r |= json_array_append_new(features, json_string("kernel subshells"));
        json = json_pack("{s:o, s:s, s:s, s:s, s:s, s:{}, s:{s:b, s:o, s:[s]}}", "argv", argv, "display_name",
                         spec->display_name, "language", spec->language, "interrupt_mode", "message",
                         "kernel_protocol_version", CG_JUPYTER_PROTOCOL, "env", "metadata", "debugger",
                         spec->debugger, "supported_features", features, "supported_encryption", "curve");
        if (json && spec->provisioner)
                r |= json_object_set_new(json_object_get(json, "metadata"), "kernel_provisioner",
                                         json_pack("{s:s}", "provisioner_name", CG_PROVISIONER));
        text = json && r == 0 ? json_dumps(json, JSON_INDENT(2)) : NULL;
        if (!text)
                return cg_fail(err, CG_E_INVAL, "a kernelspec's texts must be UTF-8");
        if (cg_asprintf(&lines, "kernelspec", err, "%s\n", text) < 0 ||
            cg_asprintf(&dir, "kernelspec", err, "%s/%s", kernels, spec->name) < 0)
                return -1;
        if (cg_make_dirs(dir, 0755, err) < 0 || write_files(dir, logos, lines, err) < 0)
                return -1;
        *ret = CG_STEAL(dir);
        return 0;
}
