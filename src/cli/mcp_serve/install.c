/*
 * `cellgate mcp serve`: install_package and uninstall_package. Packages are installed in two steps.
 * In a sandbox of its own, a session with an empty workspace, the network of the cells and the
 * hosts of the package index and of the requirements, pip downloads wheels and builds what has
 * none: that runs code of packages. After the end of that sandbox, pip on the host unpacks the
 * wheels, which runs none. Where pip's settings have a password for an index, nothing is built:
 * what is built could read it.
 */
#include "cli/mcp_serve/mcp_serve.h"

#include <ctype.h>
#include <glob.h>
#include <poll.h>
#include "base/fd.h"
#include "base/installed.h"
#include "base/json.h"
#include "base/kernel_env.h"
#include "base/proc.h"
#include "cli/common/pip.h"
#include "cli/mcp_serve/texts.h"
#include "config.h"

#define MAX_REQUIREMENTS 2048u
#define MAX_WORDS        32u
/* Packages and what they need; an agent's data science environment has 60. */
#define MAX_WHEELS 256u
/* Output of pip on the host, for its settings and as an error. */
#define MAX_OUTPUT ((size_t)64 << 10)
/* Settings of pip that are passed on. */
#define MAX_SETTINGS 12u
#define INSTALL_MS   600000
#define PIP_MS       120000

/* ------------------------------------------------------------------ the requirements */

/* Joins "numpy >= 2, < 3" and "x[a, b]" to words without blanks, as pip takes them. */
static void join_words(char *text)
{
        static const char binding[] = "=<>!~@,[";
        char *to = text;
        bool blank = false;

        for (const char *p = text; *p; p++) {
                if (strchr(" \t\n", *p)) {
                        blank = to > text;
                        continue;
                }
                if (blank && !strchr(binding, to[-1]) && !strchr("=<>!~@,]", *p))
                        *to++ = ' ';
                blank = false;
                *to++ = *p;
        }
        *to = '\0';
}

/* URL or NAME@URL, without a password. */
static bool is_url(const char *word)
{
        static const char *const schemes[] = { "https://", "http://", "git+https://", "git+http://" };
        const char *url = strstr(word, "://"), *host = url ? url + 3 : NULL;

        while (url && url > word && (isalpha((unsigned char)url[-1]) || url[-1] == '+'))
                url--;
        if (!url || (url > word && url[-1] != '@'))
                return false;
        for (size_t i = 0; i < CG_ARRAY_LEN(schemes); i++)
                if (strncmp(url, schemes[i], strlen(schemes[i])) == 0)
                        return strcspn(host, "/:?#@") > 0 && host[strcspn(host, "/?#@")] != '@';
        return false;
}

/* pip takes "x.whl" and all with a slash for files, and what begins with - for options. */
static bool is_name(const char *word)
{
        static const char *const endings[] = { ".whl", ".zip", ".tar", ".gz", ".tgz", ".bz2", ".xz" };
        size_t len = strlen(word), n;

        if (!isalnum((unsigned char)word[0]) || strpbrk(word, "/\\:;@#%?&"))
                return false;
        for (size_t i = 0; i < CG_ARRAY_LEN(endings); i++) {
                n = strlen(endings[i]);
                if (len > n && strcasecmp(word + len - n, endings[i]) == 0)
                        return false;
        }
        return true;
}

int cg_serve_requirements(const char *text, char **ret, struct cg_err *err)
{
        cg_auto_free char *words = strdup(text), *copy = NULL;
        char *save = NULL;
        size_t n = 0;

        if (!words)
                return cg_fail(err, CG_E_NOMEM, "package_name");
        if (strlen(text) > MAX_REQUIREMENTS)
                return cg_fail(err, CG_E_INVAL, "package_name is longer than %u bytes", MAX_REQUIREMENTS);
        join_words(words);
        copy = strdup(words);
        if (!copy)
                return cg_fail(err, CG_E_NOMEM, "package_name");
        for (char *w = strtok_r(copy, " ", &save); w; w = strtok_r(NULL, " ", &save), n++) {
                for (const char *p = w; *p; p++)
                        if (!isgraph((unsigned char)*p) || strchr("$`'\"(){}|", *p))
                                n = MAX_WORDS;
                if (n >= MAX_WORDS || (!is_name(w) && !is_url(w)))
                        return cg_fail(
                                err, CG_E_INVAL,
                                "package_name must be one or more of: names with extras and versions"
                                " (humanize==4.9.0, rich[jupyter]>=13,<15), https:// or git+https:// URLs;"
                                " no option, no path, no password, no marker: \"%.100s\"",
                                w);
        }
        if (n == 0)
                return cg_fail(err, CG_E_INVAL, "package_name must be the name of a package");
        *ret = CG_STEAL(words);
        return 0;
}

/* ------------------------------------------------------------------ pip's settings */

/*
 * The interpreter whose pip is used: that of the kernels' environment, because pip chooses wheels
 * for the Python that runs it. The installed environment has the same Python, except in a wheel.
 */
static int find_python(const struct cg_serve_session *s, char ret[PATH_MAX], struct cg_err *err)
{
        char own[PATH_MAX], packages[PATH_MAX], pip[PATH_MAX + 8];
        const char *env = s->sv->opts.kernel.kernel_env ?: cg_kernel_env_default(own);

        if (cg_kernel_env_packages(env, packages)) {
                snprintf(pip, sizeof(pip), "%s/pip", packages);
                if (access(pip, F_OK) == 0 && snprintf(ret, PATH_MAX, "%s/bin/python", env) < PATH_MAX)
                        return 0;
        }
        if (CG_WHEEL)
                return cg_fail(err, CG_E_NOTFOUND,
                               "the kernels' environment %s has no pip; `%s/bin/python -m ensurepip`, or "
                               "`uv pip install pip`, adds it",
                               env, env);
        cg_installed(ret, CG_KERNEL_ENV "/bin/python");
        return 0;
}

int cg_serve_package_python(struct cg_serve_session *s, const struct cg_job *job, const char *const *words,
                            struct cg_buf *out, struct cg_err *err)
{
        char python[PATH_MAX], isolated[] = "-I";
        char *argv[MAX_WHEELS + 16] = { python, isolated };
        cg_auto_free char **env = cg_pip_environment();
        struct cg_proc_fd fds[] = { { -1, 0 }, { -1, 1 }, { -1, 2 } };
        struct cg_proc_spec spec = CG_PROC_SPEC(python, argv, env, fds, .cwd = "/", .new_session = true,
                                                .die_with_parent = true);
        int64_t end = cg_now_ms() + PIP_MS, left;
        struct cg_proc pip = CG_PROC_NONE;
        cg_auto_fd int in = -1;
        char part[4096];
        int p[2], r, status = -1;
        ssize_t n = 1;

        for (size_t i = 0; words[i]; i++)
                argv[2 + i] = (char *)(uintptr_t)words[i];
        if (!env)
                return cg_fail(err, CG_E_NOMEM, "pip");
        if (find_python(s, python, err) < 0)
                return -1;
        if (pipe2(p, O_CLOEXEC) < 0)
                return cg_fail_errno(err, "pipe");
        in = p[0];
        fds[1].fd = fds[2].fd = p[1];
        r = cg_proc_spawn(&spec, &pip, err);
        close(p[1]);
        if (r < 0)
                return cg_err_prefix(err, "%s", python);
        while (n > 0 && (left = end - cg_now_ms()) > 0 && !cg_serve_given_up(job)) {
                struct pollfd f = { .fd = in, .events = POLLIN };

                cg_serve_wait(s, in, left);
                if (poll(&f, 1, 0) <= 0)
                        continue;
                n = read(in, part, sizeof(part));
                if (n > 0)
                        cg_buf_try_add(out, part, (size_t)n, NULL);
        }
        /* Its output has ended, so it is about to exit; the rest of its group is killed anyway. */
        if (n > 0 || cg_proc_wait(&pip, 5000, &status, NULL) != 0)
                cg_proc_end(&pip, true, 1000);
        if (status == 0)
                return 0;
        return cg_fail(err, CG_E_STATE, "%.2000s", out->data ?: "it was cancelled, or took too long");
}

static int get_settings(struct cg_serve_session *s, const struct cg_job *job, const char *requirements,
                        json_t **ret, struct cg_err *err)
{
        const char *words[] = { "-c", CG_SERVE_PIP_SETTINGS_PY, requirements, NULL };
        cg_auto_buf struct cg_buf out = { .max = MAX_OUTPUT };

        if (cg_serve_package_python(s, job, words, &out, err) < 0)
                return cg_err_prefix(err, "pip's settings");
        return cg_json_object(out.data ?: "", out.len, "pip's settings", ret, err);
}

/* ------------------------------------------------------------------ the sandbox */

/* The settings of the cells, with one write root, and with these hosts. */
static char *sandbox_settings(const struct cg_serve_session *s, json_t *hosts)
{
        cg_auto_json json_t *o = s->sv->settings ? json_loads(s->sv->settings, 0, NULL)
                                                 : json_pack("{s:{s:[], s:[]}, s:{s:[s]}}", "network",
                                                             "allowedDomains", "deniedDomains", "filesystem",
                                                             "denyRead", ".env");
        json_t *network = json_object_get(o, "network"), *files = json_object_get(o, "filesystem");

        if (json_array_extend(json_object_get(network, "allowedDomains"), hosts) < 0 ||
            json_object_set_new(files, "allowWrite", json_pack("[s]", ".")) < 0 ||
            json_object_set_new(files, "denyWrite", json_array()) < 0)
                return NULL;
        return json_dumps(o, JSON_COMPACT);
}

int cg_serve_package_sandbox(struct cg_serve_session *s, const char *folder, json_t *hosts,
                             struct cg_session **ret, struct cg_err *err)
{
        cg_auto_free char *settings = sandbox_settings(s, hosts);
        struct cg_session_options so = { .size = sizeof(so),
                                         .front = CG_FRONT_MCP,
                                         .workspace = folder,
                                         .settings = s->sv->opts.kernel.no_sandbox ? NULL : settings };
        CG_CLEANUP(cg_kernel_hides_fini) struct cg_kernel_hides hides = { .list = { NULL } };

        if (!settings)
                return cg_fail(err, CG_E_INVAL, "the sandbox's settings have no network or filesystem");
        if (cg_kernel_options_session(&s->sv->opts.kernel, folder, &hides, &so, err) < 0)
                return -1;
        so.exec = NULL; /* of programs that cells start */
        return cg_session_new(s->client, &so, ret, err);
}

/* Adds what one event says. Returns true at the command's end. */
static bool on_event(const struct cg_event *e, uint64_t command, bool *ok, struct cg_answer *a)
{
        const char *text;
        size_t len;

        text = cg_event_text(e, &len);
        if (cg_event_type(e) == CG_EVENT_COMMAND_OUTPUT)
                cg_answer_text(a, text, len);
        else if (cg_event_type(e) == CG_EVENT_DENIED || cg_event_type(e) == CG_EVENT_SESSION_CLOSED)
                cg_answer_note(a, "[cellgate: %s]", text);
        if (cg_event_type(e) != CG_EVENT_COMMAND_RESULT || cg_event_cell(e) != command)
                return cg_event_type(e) == CG_EVENT_SESSION_CLOSED;
        *ok = strcmp(cg_event_json(e, NULL), "{\"exit_code\":0}") == 0;
        if (len)
                cg_answer_note(a, "%s", text);
        return true;
}

const char *cg_serve_package_run(struct cg_serve_session *s, const struct cg_job *job,
                                 struct cg_session *kernel, const char *const *argv, const char *const *env,
                                 struct cg_answer *a)
{
        struct cg_exec_options o = { .size = sizeof(o), .argv = argv, .env = env, .timeout_ms = INSTALL_MS };
        bool ended = false, ok = false;
        struct cg_err err;
        uint64_t command;

        if (cg_session_exec(kernel, &o, &command, &err) < 0) {
                cg_answer_note(a, "%s", err.msg);
                return "its installer was not started";
        }
        while (!ended) {
                struct cg_event *e;
                int r;

                if (cg_serve_given_up(job))
                        return "it was cancelled";
                r = cg_session_next_event(kernel, 0, &e, &err);
                if (r == CG_TIMEOUT) {
                        cg_serve_wait(s, cg_session_fd(kernel), INSTALL_MS);
                        continue;
                }
                if (r != 0)
                        return "its sandbox has ended";
                ended = on_event(e, command, &ok, a);
                cg_event_free(e);
        }
        return ok ? NULL : "its installer failed";
}

/* Fills @folder with wheels. Returns NULL, or why it did not succeed. */
static const char *make_wheels(struct cg_serve_session *s, const struct cg_job *job, const char *folder,
                               char *requirements, struct cg_answer *a)
{
        char python[PATH_MAX], *save = NULL;
        const char *argv[MAX_WORDS + 20] = { python,       "-I",
                                             "-m",         "pip",
                                             "wheel",      "--wheel-dir",
                                             ".",          "--no-input",
                                             "--no-color", "--disable-pip-version-check",
                                             "-q",         "--progress-bar=off" };
        const char *env[MAX_SETTINGS + 1] = { NULL }, *why;
        cg_auto_json json_t *settings = NULL;
        struct cg_session *kernel = NULL;
        struct cg_err err;
        const json_t *one;
        bool password;
        size_t n, i;

        if (find_python(s, python, &err) < 0 || get_settings(s, job, requirements, &settings, &err) < 0 ||
            cg_serve_package_sandbox(s, folder, json_object_get(settings, "hosts"), &kernel, &err) < 0) {
                cg_answer_note(a, "%s", err.msg);
                return "pip was not started";
        }
        password = json_is_true(json_object_get(settings, "password"));
        if (password) {
                argv[2] = "-c";
                argv[3] = CG_SERVE_NO_BUILDS_PY;
        }
        for (n = 0; argv[n]; n++)
                ;
        argv[n++] = "--";
        for (char *w = strtok_r(requirements, " ", &save); w; w = strtok_r(NULL, " ", &save))
                argv[n++] = w;
        json_array_foreach(json_object_get(settings, "env"), i, one)
                if (i < MAX_SETTINGS)
                        env[i] = json_string_value(one);
        why = cg_serve_package_run(s, job, kernel, argv, env, a);
        if (why && password)
                cg_answer_note(
                        a,
                        "What has no ready-made wheel is not built, since pip's settings have a password.");
        cg_session_free(kernel);
        return why;
}

/* Nobody writes to @folder any more. */
static int unpack(struct cg_serve_session *s, const struct cg_job *job, const char *folder,
                  struct cg_buf *out, struct cg_err *err)
{
        const char *words[MAX_WHEELS + 16] = {
                "-m",         "pip",           "install",        "--no-index",
                "--no-deps",  "--target",      s->packages.path, "--upgrade",
                "--no-input", "--only-binary", ":all:",          "--disable-pip-version-check",
                "--"
        };
        CG_CLEANUP(globfree) glob_t found = { .gl_pathc = 0 };
        cg_auto_free char *pattern = NULL;
        struct stat st;
        size_t n = 0;

        while (words[n])
                n++;
        if (cg_asprintf(&pattern, "wheels", err, "%s/*.whl", folder) < 0)
                return -1;
        if (glob(pattern, GLOB_NOSORT, NULL, &found) == 0 && found.gl_pathc > MAX_WHEELS)
                return cg_fail(err, CG_E_LIMIT, "more than %u packages", MAX_WHEELS);
        for (size_t i = 0; i < found.gl_pathc; i++)
                if (lstat(found.gl_pathv[i], &st) == 0 && S_ISREG(st.st_mode))
                        words[n++] = found.gl_pathv[i];
        return cg_serve_package_python(s, job, words, out, err);
}

void cg_serve_install(struct cg_serve_session *s, const struct cg_job *job, char *requirements,
                      struct cg_answer *a)
{
        char folder[] = "/var/tmp/cellgate-wheels-XXXXXX";
        cg_auto_buf struct cg_buf out = { .max = MAX_OUTPUT };
        const char *why = NULL;
        struct cg_err err;

        cg_log(&s->sv->log, CG_LOG_INFO, "install_package %s", requirements);
        if (!mkdtemp(folder))
                why = "/var/tmp cannot be written";
        else
                why = make_wheels(s, job, folder, requirements, a);
        if (!why && unpack(s, job, folder, &out, &err) < 0)
                why = err.msg;
        if (why) {
                cg_answer_error(a);
                cg_answer_note(a, "Not installed: %s.", why);
        } else {
                cg_answer_lines(a, out.data ?: "", out.len);
                cg_serve_list_fonts(s);
                cg_session_add_event(s->session, "package.installed", requirements, NULL, NULL);
                cg_answer_note(
                        a, "Installed for the kernel: import it in the next cell. What was imported before"
                           " stays as it was until reset.");
        }
        cg_remove_tree(folder, NULL);
}

/* ------------------------------------------------------------------ uninstall_package */

int cg_serve_uninstall(struct cg_serve_session *s, struct cg_job *job, struct cg_answer *a,
                       struct cg_err *err)
{
        cg_auto_buf struct cg_buf out = { .max = MAX_OUTPUT };
        cg_auto_free char *names = NULL;
        const char *words[] = { "-c", CG_SERVE_REMOVE_PACKAGES_PY, s->packages.path, NULL, NULL };

        if (cg_serve_arg_string(job->args, "package_name", &names, err) < 0)
                return -1;
        if (strlen(names) > MAX_REQUIREMENTS)
                return cg_fail(err, CG_E_INVAL, "package_name is longer than %u bytes", MAX_REQUIREMENTS);
        words[3] = names;
        if (cg_serve_package_python(s, job, words, &out, err) < 0)
                return cg_err_prefix(err, "uninstall_package");
        cg_answer_lines(a, out.data ?: "", out.len);
        cg_answer_note(a, "What it needed itself is still there, and what was imported stays until reset.");
        return 0;
}
