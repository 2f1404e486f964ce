/* See kernelspecs.h. */
#include "base/kernelspecs.h"

#include "base/fd.h"
#include "base/json.h"
#include "base/language.h"

#define MAX_SPEC  ((size_t)1 << 20)
#define MAX_NAMES 64
#define IN_PREFIX "/share/jupyter/kernels/"

int cg_jupyter_data_dir(char **ret, struct cg_err *err)
{
        const char *own = getenv("JUPYTER_DATA_DIR"), *xdg = getenv("XDG_DATA_HOME"), *home = getenv("HOME");

        if (own && *own)
                return cg_asprintf(ret, "folder of Jupyter", err, "%s", own);
        if (xdg && *xdg)
                return cg_asprintf(ret, "folder of Jupyter", err, "%s/jupyter", xdg);
        if (home && *home)
                return cg_asprintf(ret, "folder of Jupyter", err, "%s/.local/share/jupyter", home);
        return cg_fail(err, CG_E_NOTFOUND, "HOME is not set: say where by --prefix DIR");
}

static void add_folder(json_t *list, const char *folder, const char *rest)
{
        if (folder && folder[0] == '/')
                json_array_append_new(list, json_sprintf("%s%s", folder, rest));
}

/* In the order in which Jupyter searches them. */
static json_t *folders(void)
{
        cg_auto_free char *path = strdup(getenv("JUPYTER_PATH") ?: ""), *data = NULL;
        char *rest = path, *folder;
        json_t *list = json_array();

        while (rest && (folder = strsep(&rest, ":")))
                add_folder(list, folder, "/kernels");
        add_folder(list, getenv("VIRTUAL_ENV"), "/share/jupyter/kernels");
        add_folder(list, getenv("CONDA_PREFIX"), "/share/jupyter/kernels");
        if (cg_jupyter_data_dir(&data, NULL) == 0)
                add_folder(list, data, "/kernels");
        add_folder(list, "/usr/local", "/share/jupyter/kernels");
        add_folder(list, "/usr", "/share/jupyter/kernels");
        return list;
}

/*
 * The program argv[0]: of the environment that the kernelspec is in, or of PATH. "python" stands for
 * the Python that Jupyter runs in, which may have the name python3 only.
 */
static int find_program(json_t *spec, const char *file, struct cg_err *err)
{
        json_t *argv = json_object_get(spec, "argv");
        const char *name = json_string_value(json_array_get(argv, 0));
        const char *end = strstr(file, IN_PREFIX);
        cg_auto_free char *search = NULL, *real = NULL;
        char found[PATH_MAX];

        if (cg_asprintf(&search, "kernelspec", err, "%.*s%s%s", end ? (int)(end - file) : 0, file,
                        end ? "/bin:" : "", getenv("PATH") ?: "/usr/local/bin:/usr/bin:/bin") < 0)
                return -1;
        real = cg_program_find(name, search, found);
        if (!real && strcmp(name, "python") == 0)
                real = cg_program_find("python3", search, found);
        if (!real)
                return cg_fail(err, CG_E_INVAL, "%s: its program %s is not there", file, name);
        if (json_array_set_new(argv, 0, json_string(found)) < 0 ||
            json_object_set_new(spec, "program", json_string(real)) < 0)
                return cg_fail(err, CG_E_INVAL, "%s: its program must be UTF-8", file);
        return 0;
}

static int read_spec(const char *file, json_t **ret, struct cg_err *err)
{
        cg_auto_json json_t *json = NULL, *spec = NULL;
        cg_auto_free char *text = NULL;
        const char *mode, *language, *shown, *key;
        json_t *argv, *env, *v;
        size_t len, i;

        if (cg_read_regular(file, MAX_SPEC, &text, &len, err) < 0 ||
            cg_json_object(text, len, file, &json, err) < 0 ||
            cg_json_str(json, "interrupt_mode", "signal", &mode, err) < 0 ||
            cg_json_str(json, "language", "", &language, err) < 0 ||
            cg_json_str(json, "display_name", "", &shown, err) < 0)
                return -1;
        argv = json_object_get(json, "argv");
        env = json_object_get(json, "env");
        if (!json_array_size(argv) || (env && !json_is_object(env)))
                return cg_fail(err, CG_E_PARSE, "%s: \"argv\" must be a list, and \"env\" an object", file);
        json_array_foreach(argv, i, v)
                if (!json_is_string(v))
                        return cg_fail(err, CG_E_PARSE, "%s: \"argv\" must have texts", file);
        json_object_foreach(env, key, v)
                if (!json_is_string(v) || strchr(key, '='))
                        return cg_fail(err, CG_E_PARSE, "%s: \"env\" must have texts", file);
        spec = json_pack("{s:s, s:s%, s:O, s:o, s:s, s:s, s:s}", "file", file, "folder", file,
                         strlen(file) - strlen("/kernel.json"), "argv", argv, "env",
                         env ? json_incref(env) : json_object(), "interrupt_mode", mode, "language", language,
                         "display_name", shown);
        if (!spec)
                return cg_fail(err, CG_E_INVAL, "%s: its path must be UTF-8", file);
        *ret = CG_STEAL(spec);
        return 0;
}

int cg_kernelspec_find(const char *name, json_t **ret, struct cg_err *err)
{
        cg_auto_json json_t *list = folders(), *spec = NULL;
        json_t *folder;
        size_t i;

        json_array_foreach(list, i, folder) {
                cg_auto_free char *file = NULL;

                if (cg_asprintf(&file, "kernelspec", err, "%s/%s/kernel.json", json_string_value(folder),
                                name) < 0)
                        return -1;
                if (access(file, F_OK) < 0)
                        continue;
                if (read_spec(file, &spec, err) < 0 || find_program(spec, file, err) < 0)
                        return -1;
                *ret = CG_STEAL(spec);
                return 0;
        }
        return cg_fail(
                err, CG_E_NOTFOUND,
                "no kernel of Jupyter is named \"%.100s\" on this machine: `jupyter kernelspec list` and "
                "`cellgate runtimes` show those that there are, JUPYTER_PATH adds folders",
                name);
}

/* It starts cellgate, with a sandbox of its own. */
static bool is_own(const json_t *spec)
{
        const char *command = NULL, *what = NULL;

        return json_unpack(cg_json_unconst(spec), "{s:[s, s, s]}", "argv", &(const char *){ NULL }, &command,
                           &what) == 0 &&
               strcmp(command, "jupyter") == 0 && strcmp(what, "run") == 0;
}

json_t *cg_kernelspec_names(void)
{
        cg_auto_json json_t *list = folders();
        json_t *names = json_object(), *folder;
        size_t i;

        json_array_foreach(list, i, folder) {
                cg_auto_dir DIR *dir = opendir(json_string_value(folder));
                const struct dirent *d;

                while (dir && json_object_size(names) < MAX_NAMES && (d = readdir(dir))) {
                        cg_auto_json json_t *spec = NULL;
                        struct cg_err err;
                        int r = d->d_name[0] == '.' ? 1 : cg_kernelspec_find(d->d_name, &spec, &err);

                        if (r == 0 ? !is_own(spec) : r < 0 && err.code != CG_E_NOTFOUND)
                                json_object_set_new(names, d->d_name, json_true());
                }
        }
        return names;
}
