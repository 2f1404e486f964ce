/*
 * `cellgate env`: Python environments for kernels, in the user's data folder or at a path of the
 * user's choice. venv and pip do the work, as the user and outside of any sandbox. Runs in the
 * command `cellgate`.
 *
 * An environment that is being changed is marked in a file, whose update is the last step: an
 * unfinished environment is not used, and the next command finishes or removes it. A command that
 * changes it holds a lock on a file that cells cannot open.
 */
#include <errno.h>
#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/buf.h"
#include "base/fd.h"
#include "base/installed.h"
#include "base/kernel_env.h"
#include "base/path.h"
#include "base/proc.h"
#include "base/text.h"
#include "base/util.h"
#include "cli/common/cli.h"
#include "cli/common/opts.h"
#include "cli/common/pip.h"
#include "config.h"

/* Large packages over a slow line. */
#define STEP_MS (60 * 60 * 1000)
/* Limit of the output kept of a program; its end is kept. */
#define TAIL_BYTES   4096u
#define MAX_PACKAGES 256u
#define REQUIREMENTS CG_DATADIR "/kernel-requirements.txt"
/* Folder of matplotlib's font cache. */
#define FONTS "share/cellgate/matplotlib"

static const char help[] =
        "Usage: cellgate env create ENV [PACKAGE...]\n"
        "       cellgate env add ENV [PACKAGE...]\n"
        "       cellgate env list\n"
        "       cellgate env remove ENV\n"
        "\n"
        "Python environments for kernels, for the option --kernel-env of run, mcp serve and jupyter.\n"
        "\n"
        "  create    makes an environment with IPython, its dependencies and the PACKAGEs\n"
        "  add       installs PACKAGEs, and missing dependencies of kernels. Open sessions keep the modules\n"
        "            that they have imported\n"
        "  list      lists the environments that have a name\n"
        "  remove    removes an environment that `create` has made, and no other\n"
        "\n"
        "  ENV       a name, for an environment in $XDG_DATA_HOME/cellgate/envs (or in\n"
        "            ~/.local/share/cellgate/envs), or a folder with a slash in it, such as ./env. It must\n"
        "            not be a folder that cells can write: its programs run outside of the sandbox as well\n"
        "  PACKAGE   for pip: numpy, 'pandas>=2', a path or a URL. It is installed outside of the sandbox,\n"
        "            with your rights\n"
        "\n"
        "  -h, --help  this text\n"
        "\n"
        "Exit status: 0; 1 pip or venv failed; 2 command line, or a folder that cannot be used; 130\n"
        "interrupted.\n"
        "\n"
        "Example: cellgate env create science numpy pandas matplotlib\n"
        "         cellgate run --kernel-env science analysis.py\n";

/* ^C. A signal handler has nothing but file scope. */
static volatile sig_atomic_t interrupted;

static void on_signal(int sig)
{
        interrupted = 1;
}

static void say(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
static void say(const char *fmt, ...)
{
        cg_auto_buf struct cg_buf b = { .max = 65536 };
        char text[2048];
        va_list ap;

        va_start(ap, fmt);
        vsnprintf(text, sizeof(text), fmt, ap);
        va_end(ap);
        cg_text_render(&b, text, strlen(text), 0);
        if (cg_buf_end(&b, NULL) == 0)
                fprintf(stderr, "cellgate env: %s\n", b.data);
}

/* ------------------------------------------------------------------ programs */

/* Keeps the end of the output; at a terminal it is also shown at once. */
static bool read_some(int fd, struct cg_buf *tail)
{
        char buf[4096];
        ssize_t n = read(fd, buf, sizeof(buf));

        if (n < 0 && errno == EINTR)
                return true;
        if (n <= 0)
                return false;
        if (tail->len + (size_t)n > tail->max)
                cg_buf_consume(tail, tail->len + (size_t)n - tail->max);
        cg_buf_try_add(tail, buf, (size_t)n, NULL);
        if (isatty(2))
                cg_write_all(2, buf, (size_t)n, NULL);
        return true;
}

/*
 * Runs @argv to its end. CG_E_STATE: it failed, and the end of its output is shown. @extra, @cwd:
 * an environment variable and a folder for it, or NULL.
 */
static int run_program(const char *const *argv, const char *extra, const char *cwd, struct cg_err *err)
{
        cg_auto_buf struct cg_buf tail = { .max = TAIL_BYTES }, shown = { .max = 65536 };
        cg_auto_free char **passed = cg_pip_environment(), **env = NULL;
        struct cg_proc_fd fds[] = { { -1, 0 }, { -1, 1 }, { -1, 2 } };
        struct cg_proc_spec spec = { .path = argv[0],
                                     .argv = (char *const *)(uintptr_t)argv,
                                     .cwd = cwd,
                                     .fds = fds,
                                     .n_fds = CG_ARRAY_LEN(fds),
                                     .new_session = true,
                                     .die_with_parent = true };
        struct cg_proc proc = CG_PROC_NONE;
        cg_auto_fd int out = -1;
        int64_t end = cg_now_ms() + STEP_MS;
        int p[2], status = -1, r;
        size_t n = 0;

        while (passed && passed[n])
                n++;
        env = passed ? calloc(n + 2, sizeof(*env)) : NULL;
        if (!env)
                return cg_fail(err, CG_E_NOMEM, "environment");
        memcpy(env, passed, n * sizeof(*env));
        env[n] = (char *)(uintptr_t)extra;
        spec.envp = env;
        if (pipe2(p, O_CLOEXEC) < 0)
                return cg_fail_errno(err, "pipe");
        out = p[0];
        fds[1].fd = fds[2].fd = p[1];
        r = cg_proc_spawn(&spec, &proc, err);
        close(p[1]);
        if (r < 0)
                return cg_err_prefix(err, "%s", argv[0]);
        for (bool more = true; more && !interrupted && cg_now_ms() < end;) {
                struct pollfd poll_fd = { .fd = out, .events = POLLIN };

                if (poll(&poll_fd, 1, 1000) > 0)
                        more = read_some(out, &tail);
        }
        if (interrupted || cg_now_ms() >= end || cg_proc_wait(&proc, 5000, &status, NULL) != 0)
                cg_proc_end(&proc, true, 2000);
        if (interrupted)
                return cg_fail(err, CG_E_STATE, "interrupted");
        if (status == 0)
                return 0;
        if (!isatty(2) && tail.len) {
                cg_text_render(&shown, tail.data, tail.len, 0);
                fprintf(stderr, "%s\n", shown.data ?: "");
        }
        return cg_fail(err, CG_E_STATE, "%s of %s failed; %s",
                       strcmp(argv[2], "-m") == 0 ? argv[3] : "the list of fonts", argv[0],
                       isatty(2) ? "its last lines say why" : "its last lines are above");
}

/* Isolated (-I): nothing of the current folder or of the user's own packages is taken for pip. */
static int run_pip(const char *dir, const char *const *words, size_t n, struct cg_err *err)
{
        static const char *const first[] = { "-I",        "-m",         "pip",
                                             "install",   "--no-input", "--disable-pip-version-check",
                                             "--no-color" };
        cg_auto_free const char **argv = calloc(CG_ARRAY_LEN(first) + n + 2, sizeof(*argv));
        char python[PATH_MAX];

        if (!argv)
                return cg_fail(err, CG_E_NOMEM, "pip");
        snprintf(python, sizeof(python), "%s/bin/python", dir);
        argv[0] = python;
        memcpy(argv + 1, first, sizeof(first));
        memcpy(argv + 1 + CG_ARRAY_LEN(first), words, n * sizeof(*words));
        return run_program(argv, NULL, NULL, err);
}

/* ------------------------------------------------------------------ states and locks */

static int write_state(const char *dir, const char *state, struct cg_err *err)
{
        char path[PATH_MAX];

        snprintf(path, sizeof(path), "%s/" CG_ENV_STATE, dir);
        return cg_write_atomically(path, state, strlen(state), 0644, err);
}

/*
 * The lock lives as long as the descriptor. The file has no read permission, since a process that
 * can open a file can lock it.
 */
static int lock(const char *dir, struct cg_err *err)
{
        char path[PATH_MAX];
        cg_auto_fd int fd = -1;

        snprintf(path, sizeof(path), "%s/" CG_ENV_LOCK, dir);
        fd = open(path, O_WRONLY | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0200);
        if (fd < 0)
                return cg_fail_errno(err, "cannot write %s", path);
        if (flock(fd, LOCK_EX | LOCK_NB) == 0)
                return cg_steal_fd(&fd);
        if (errno == EWOULDBLOCK)
                return cg_fail(err, CG_E_STATE, "another `cellgate env` is changing %s", dir);
        return cg_fail_errno(err, "lock %s", path);
}

/* ------------------------------------------------------------------ steps of create and add */

static bool has_package(const char *dir, const char *name)
{
        char packages[PATH_MAX], path[PATH_MAX];

        return cg_kernel_env_packages(dir, packages) &&
               snprintf(path, sizeof(path), "%s/%s", packages, name) < (int)sizeof(path) &&
               access(path, F_OK) == 0;
}

/*
 * matplotlib reads every font of the machine when it is first imported, and caches the list: made
 * here once, instead of in every kernel.
 */
static int list_fonts(const char *dir, struct cg_err *err)
{
        char folder[PATH_MAX], python[PATH_MAX], variable[PATH_MAX + 16];
        const char *argv[] = { python, "-I", "-c", "import matplotlib.font_manager", NULL };

        if (!has_package(dir, "matplotlib"))
                return 0;
        snprintf(python, sizeof(python), "%s/bin/python", dir);
        snprintf(folder, sizeof(folder), "%s/" FONTS, dir);
        snprintf(variable, sizeof(variable), "MPLCONFIGDIR=%s", folder);
        if (cg_remove_tree(folder, err) < 0 || cg_make_dirs(folder, 0755, err) < 0)
                return -1;
        /* matplotlib reads settings of the current folder, perhaps a workspace: they run code. */
        return run_program(argv, variable, folder, err);
}

/*
 * Installs the packages that kernels need, then @packages. An environment of the user's own keeps
 * its versions. @whole: no package in it is half installed.
 */
static int install(const char *dir, bool made_here, bool whole, const char *const *packages, size_t n,
                   struct cg_err *err)
{
        const char *const pinned[] = { "-r", CG_INSTALLED(REQUIREMENTS) }, *const names[] = {
                "ipython>=9.0", "comm", "matplotlib-inline"
        };
        /* A name that is wrong is found before the packages that kernels need are downloaded. */
        const char *find[3 + MAX_PACKAGES] = { "--quiet", "--dry-run", "--no-deps" };
        char list[512] = "";

        memcpy(find + 3, packages, n * sizeof(*packages));
        if (n && !has_package(dir, "IPython") && run_pip(dir, find, 3 + n, err) < 0)
                return -1;
        if (made_here) {
                if (run_pip(dir, pinned, CG_ARRAY_LEN(pinned), err) < 0)
                        return -1;
        } else if (!whole || !has_package(dir, "IPython") || !has_package(dir, "comm") ||
                   !has_package(dir, "matplotlib_inline")) {
                if (run_pip(dir, names, CG_ARRAY_LEN(names), err) < 0)
                        return -1;
        }
        for (size_t i = 0; i < n && strlen(list) < sizeof(list) - 64; i++)
                snprintf(list + strlen(list), sizeof(list) - strlen(list), " %.50s", packages[i]);
        if (n) {
                say("installing%s", list);
                if (run_pip(dir, packages, n, err) < 0)
                        return -1;
        }
        if (list_fonts(dir, err) < 0)
                return -1;
        return interrupted ? cg_fail(err, CG_E_STATE, "interrupted") : 0;
}

/* ------------------------------------------------------------------ create */

/* The folder that @name will be: its parent exists afterwards. *ret: caller frees. */
static int place_for(const char *name, char **ret, struct cg_err *err)
{
        cg_auto_free char *dir = NULL, *parent = NULL, *real = NULL;
        const char *last = name;

        if (!strchr(name, '/')) {
                if (!cg_kernel_env_is_name(name))
                        return cg_fail(
                                err, CG_E_INVAL,
                                "\"%s\" is not a name: use at most 64 letters, digits, \"-\", \"_\" and \".\", or a folder with a slash in "
                                "it",
                                name);
                if (cg_kernel_envs_dir(&real, err) < 0 || cg_make_dirs(real, 0700, err) < 0)
                        return -1;
        } else {
                parent = strdup(name);
                if (!parent)
                        return cg_fail(err, CG_E_NOMEM, "path");
                while (strlen(parent) > 1 && parent[strlen(parent) - 1] == '/')
                        parent[strlen(parent) - 1] = '\0';
                last = strrchr(parent, '/');
                last = last ? last + 1 : "";
                if (!last[0] || strcmp(last, ".") == 0 || strcmp(last, "..") == 0)
                        return cg_fail(err, CG_E_INVAL, "%s names no new folder", name);
                dir = strndup(parent, (size_t)(last - parent));
                if (!dir)
                        return cg_fail(err, CG_E_NOMEM, "path");
                real = realpath(dir, NULL);
                if (!real)
                        return cg_fail_errno(err, "folder %s", dir);
        }
        if (asprintf(ret, "%s/%s", cg_path_prefix(real), last) < 0)
                return cg_fail(err, CG_E_NOMEM, "path");
        return 0;
}

/*
 * Makes the folder, in place of an empty one or an unfinished environment. Returns the lock, or
 * negative.
 */
static int take_folder(const char *dir, struct cg_err *err)
{
        cg_auto_fd int locked = -1;

        if (mkdir(dir, 0700) == 0)
                return lock(dir, err);
        if (errno != EEXIST)
                return cg_fail_errno(err, "cannot make %s", dir);
        if (rmdir(dir) < 0) {
                if (cg_kernel_env_state(dir) != CG_ENV_UNFINISHED || !cg_kernel_env_is_ours(dir))
                        return cg_fail(err, CG_E_INVAL,
                                       "%s exists; `cellgate env add` installs packages in an environment,"
                                       " `cellgate env remove` removes one that `create` has made",
                                       dir);
                locked = lock(dir, err);
                if (locked < 0 || cg_remove_tree_within(dir, 60000, err) < 0)
                        return -1;
        }
        if (mkdir(dir, 0700) < 0)
                return cg_fail_errno(err, "cannot make %s", dir);
        return lock(dir, err);
}

static int create(const char *name, const char *const *packages, size_t n, struct cg_err *err)
{
        cg_auto_free char *dir = NULL;
        cg_auto_fd int locked = -1;
        int r = place_for(name, &dir, err);

        if (r < 0)
                return r;
        locked = take_folder(dir, err);
        if (locked < 0)
                return locked;
        say("making %s with Python %s", dir, cg_kernel_env_own_version((char[16]){ "" }));
        const char *const venv[] = { CG_INSTALLED(CG_PYTHON), "-I", "-m", "venv", dir, NULL };
        if (write_state(dir, CG_ENV_IS_CHANGING, err) < 0 || run_program(venv, NULL, NULL, err) < 0 ||
            install(dir, true, true, packages, n, err) < 0 || write_state(dir, CG_ENV_IS_READY, err) < 0) {
                cg_remove_tree_within(dir, 60000, NULL);
                return -1;
        }
        printf("%s\n", dir);
        say("ready. Use it with --kernel-env %s: cellgate run, mcp serve, jupyter. More packages: cellgate env add %s PACKAGE",
            name, name);
        return 0;
}

/* ------------------------------------------------------------------ add, remove, list */

/* The steps of add, with the lock. */
static int change(const char *dir, bool ours, const char *const *packages, size_t n, struct cg_err *err)
{
        bool unfinished = cg_kernel_env_state(dir) == CG_ENV_UNFINISHED;
        const char *const check[] = { "--dry-run", "-r", CG_INSTALLED(REQUIREMENTS) };
        const char *ready = ours ? CG_ENV_IS_READY : CG_ENV_FOREIGN_READY;

        if (write_state(dir, ours ? CG_ENV_IS_CHANGING : CG_ENV_FOREIGN_CHANGING, err) < 0)
                return -1;
        if (install(dir, ours, !unfinished, packages, n, err) < 0 ||
            (ours && unfinished && run_pip(dir, check, CG_ARRAY_LEN(check), err) < 0)) {
                /* pip takes back what it could not finish, unless it was ended itself. */
                if (!interrupted && !unfinished)
                        write_state(dir, ready, NULL);
                return -1;
        }
        return write_state(dir, ready, err);
}

static int add(const char *name, const char *const *packages, size_t n, struct cg_err *err)
{
        cg_auto_free char *dir = NULL;
        cg_auto_fd int locked = -1;
        char version[64];

        if (cg_kernel_env_find(name, &dir, err) < 0)
                return -1;
        if (!cg_kernel_env_fits(dir, version))
                return cg_fail(err, CG_E_INVAL, "%s is not an environment of Python %s%s%s", dir,
                               cg_kernel_env_own_version((char[16]){ "" }), version[0] ? ", but of " : "",
                               version);
        locked = lock(dir, err);
        if (locked < 0 || change(dir, cg_kernel_env_is_ours(dir), packages, n, err) < 0)
                return -1;
        say("done: new sessions with --kernel-env %s have it", name);
        return 0;
}

static int remove_one(const char *name, struct cg_err *err)
{
        cg_auto_free char *dir = NULL;
        cg_auto_fd int locked = -1;
        int r = cg_kernel_env_find(name, &dir, err);

        if (r < 0)
                return r;
        if (!cg_kernel_env_is_ours(dir))
                return cg_fail(err, CG_E_INVAL,
                               "%s was not made by `cellgate env create`: remove it yourself", dir);
        locked = lock(dir, err);
        if (locked < 0)
                return locked;
        if (write_state(dir, CG_ENV_IS_CHANGING, err) < 0) /* what is left of it is not used */
                return -1;
        return cg_remove_tree_within(dir, 60000, err);
}

static int by_name(const void *a, const void *b)
{
        const struct dirent *const *x = a, *const *y = b;

        return strcmp((*x)->d_name, (*y)->d_name);
}

static int list(struct cg_err *err)
{
        cg_auto_buf struct cg_buf b = { .max = 1 << 20 };
        cg_auto_free char *dir = NULL;
        char path[PATH_MAX], version[64], own[16];
        struct dirent **names = NULL;
        int r = cg_kernel_envs_dir(&dir, err), n;

        if (r < 0)
                return r;
        cg_kernel_env_own_version(own);
        cg_buf_addf(&b, "%-20s Python %-8s %s\n", "(built in)", own, CG_INSTALLED(CG_KERNEL_ENV));
        n = scandir(dir, &names, NULL, NULL);
        if (n > 0)
                qsort(names, (size_t)n, sizeof(*names), by_name);
        for (int i = 0; i < n; i++) {
                if (cg_kernel_env_is_name(names[i]->d_name)) {
                        bool fits;

                        snprintf(path, sizeof(path), "%s/%s", dir, names[i]->d_name);
                        fits = cg_kernel_env_fits(path, version);
                        cg_buf_addf(&b, "%-20s Python %-8s %s", names[i]->d_name, version[0] ? version : "?",
                                    path);
                        if (!fits)
                                cg_buf_addf(&b, "  (not of Python %s: kernels cannot use it)", own);
                        else if (cg_kernel_env_state(path) == CG_ENV_UNFINISHED)
                                cg_buf_adds(&b, "  (unfinished: `cellgate env add` finishes it)");
                        cg_buf_adds(&b, "\n");
                }
                free(names[i]);
        }
        free(names);
        r = cg_buf_end(&b, err);
        if (r == 0 && cg_cli_print(b.data) != CG_EXIT_OK)
                return cg_fail(err, CG_E_SYS, "standard output cannot be written");
        return r;
}

/* ------------------------------------------------------------------ the command */

static int run_command(int argc, char **argv, struct cg_err *err)
{
        const char *what = argv[1];
        const char *const *packages = (const char *const *)(uintptr_t)(argv + 3);
        bool lists = strcmp(what, "list") == 0, removes = strcmp(what, "remove") == 0,
             creates = strcmp(what, "create") == 0;
        int n = argc - 2, most = INT_MAX;

        if (!lists && !removes && !creates && strcmp(what, "add") != 0)
                return cg_fail(err, CG_E_INVAL,
                               "there is no command \"env %s\": use create, add, list or remove", what);
        if (lists || removes)
                most = removes;
        if (n < 1 && !lists)
                return cg_fail(err, CG_E_INVAL, "%s: which environment? --help says more", what);
        if (n > most)
                return cg_fail(err, CG_E_INVAL, "%s: unexpected argument \"%s\"", what, argv[2 + most]);
        if (lists)
                return list(err);
        if (argv[2][0] == '-')
                return cg_fail(err, CG_E_INVAL, "there is no option \"%s\": --help lists the options",
                               argv[2]);
        if (removes)
                return remove_one(argv[2], err);
        if (n - 1 > (int)MAX_PACKAGES)
                return cg_fail(err, CG_E_LIMIT, "at most %u packages at once", MAX_PACKAGES);
        for (int k = 3; k < argc; k++)
                if (argv[k][0] == '-' || !argv[k][0])
                        return cg_fail(err, CG_E_INVAL,
                                       "\"%s\" is not a package: options of pip are set in its own settings"
                                       " (pip.conf, PIP_INDEX_URL, ...)",
                                       argv[k]);
        if (creates)
                return create(argv[2], packages, (size_t)n - 1, err);
        return add(argv[2], packages, (size_t)n - 1, err);
}

int cg_cli_env(int argc, char **argv)
{
        static const int signals[] = { SIGINT, SIGTERM, SIGHUP };
        struct sigaction sa = { .sa_handler = on_signal }; /* no SA_RESTART: it wakes poll() */
        struct cg_err err;

        for (int i = 1; i < argc; i++)
                if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0)
                        return cg_cli_print(help);
        if (argc < 2) {
                cg_fail(&err, CG_E_INVAL, "create, add, list or remove? --help says more");
                return cg_cli_fail("env", &err);
        }
        for (size_t i = 0; i < CG_ARRAY_LEN(signals); i++)
                sigaction(signals[i], &sa, NULL);
        umask(022);
        if (run_command(argc, argv, &err) == 0)
                return CG_EXIT_OK;
        cg_cli_fail("env", &err);
        if (interrupted)
                return CG_EXIT_CANCELLED;
        return err.code == CG_E_STATE ? CG_EXIT_RAISED : CG_EXIT_USAGE;
}
