/*
 * `cellgate mcp serve`: install_package. pip runs on the host, as the user, so what it may do is
 * narrow: wheels only, because building a source package runs its code; one name with versions,
 * because pip takes options, URLs and paths in the same place.
 */
#include "cli/mcp_serve/mcp_serve.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>
#include "base/fd.h"
#include "base/installed.h"
#include "base/kernel_env.h"
#include "base/proc.h"
#include "base/util.h"
#include "cli/common/pip.h"
#include "config.h"

#define MAX_REQUIREMENT 256u
#define INSTALL_MS      600000

/* ------------------------------------------------------------------ the requirement */

static void skip_blanks(const char **p)
{
        while (**p == ' ' || **p == '\t')
                (*p)++;
}

static bool take_name(const char **p)
{
        const char *start = *p;

        while (isalnum((unsigned char)**p) || (**p && strchr("-_.", **p)))
                (*p)++;
        return *p > start && isalnum((unsigned char)*start) && isalnum((unsigned char)(*p)[-1]);
}

/* NAME [EXTRA, ...] OPERATOR VERSION, ... */
static bool is_requirement(const char *p)
{
        /* pip takes "x.whl" and "x.tar.gz" for files. */
        static const char *const endings[] = { ".whl", ".zip", ".tar", ".gz",   ".tgz", ".bz2",
                                               ".tbz", ".xz",  ".txz", ".lzma", ".egg" };
        static const char *const operators[] = { "===", "==", "~=", "!=", "<=", ">=", "<", ">" };
        const char *name;
        size_t n;

        skip_blanks(&p);
        name = p;
        if (!take_name(&p))
                return false;
        for (size_t i = 0; i < CG_ARRAY_LEN(endings); i++) {
                n = strlen(endings[i]);
                if ((size_t)(p - name) > n && strncasecmp(p - n, endings[i], n) == 0)
                        return false;
        }
        skip_blanks(&p);
        if (*p == '[') {
                do {
                        p++;
                        skip_blanks(&p);
                        if (!take_name(&p))
                                return false;
                        skip_blanks(&p);
                } while (*p == ',');
                if (*p++ != ']')
                        return false;
                skip_blanks(&p);
        }
        while (*p) {
                size_t i = 0;

                while (i < CG_ARRAY_LEN(operators) && strncmp(p, operators[i], strlen(operators[i])) != 0)
                        i++;
                if (i == CG_ARRAY_LEN(operators))
                        return false;
                p += strlen(operators[i]);
                skip_blanks(&p);
                n = strspn(p, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.*+!_-");
                if (n == 0)
                        return false;
                p += n;
                skip_blanks(&p);
                if (!*p)
                        return true;
                if (*p++ != ',')
                        return false;
                skip_blanks(&p);
                if (!*p) /* nothing follows the comma */
                        return false;
        }
        return true;
}

int cg_serve_check_requirement(const char *text, struct cg_err *err)
{
        if (strlen(text) > MAX_REQUIREMENT)
                return cg_fail(err, CG_E_INVAL, "package_name is longer than %u bytes", MAX_REQUIREMENT);
        if (is_requirement(text))
                return 0;
        return cg_fail(err, CG_E_INVAL,
                       "package_name must be one package of the index, such as humanize, humanize==4.9.0 or"
                       " rich[jupyter]>=13,<15: no URL, no path, no option, no marker, not several");
}

/* ------------------------------------------------------------------ pip */

/*
 * The interpreter whose pip is used: that of the kernels' environment, because pip chooses wheels
 * for the Python that runs it. The installed environment has the same Python, except in a wheel.
 */
static int find_python(const struct cg_serve *sv, char ret[PATH_MAX], struct cg_err *err)
{
        char own[PATH_MAX], packages[PATH_MAX], pip[PATH_MAX + 8];
        const char *env = sv->opts.kernel.kernel_env ?: cg_kernel_env_default(own);

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

/* *ret_fd: pip's standard output and error. */
static int start_pip(const struct cg_serve *sv, const char *requirement, struct cg_proc *ret, int *ret_fd,
                     struct cg_err *err)
{
        char python[PATH_MAX], isolated[] = "-I", m[] = "-m", pip[] = "pip", install[] = "install",
                               only[] = "--only-binary", all[] = ":all:", target[] = "--target",
                               upgrade[] = "--upgrade", no_input[] = "--no-input",
                               no_version[] = "--disable-pip-version-check", no_color[] = "--no-color",
                               bar[] = "--progress-bar=off", end[] = "--";
        cg_auto_free char *req = strdup(requirement);
        char *argv[] = {
                python,  isolated, m,          pip,      install, only, all, target, sv->packages.path,
                upgrade, no_input, no_version, no_color, bar,     end,  req, NULL
        };
        cg_auto_free char **env = cg_pip_environment();
        struct cg_proc_fd fds[] = { { -1, 0 }, { -1, 1 }, { -1, 2 } };
        /* In a folder where no file can be taken for the package. */
        struct cg_proc_spec spec = { .path = python,
                                     .argv = argv,
                                     .envp = env,
                                     .cwd = "/",
                                     .fds = fds,
                                     .n_fds = CG_ARRAY_LEN(fds),
                                     .new_session = true,
                                     .die_with_parent = true };
        int p[2], r;

        if (!req || !env)
                return cg_fail(err, CG_E_NOMEM, "pip");
        if (find_python(sv, python, err) < 0)
                return -1;
        if (pipe2(p, O_CLOEXEC) < 0)
                return cg_fail_errno(err, "pipe");
        fds[1].fd = fds[2].fd = p[1];
        r = cg_proc_spawn(&spec, ret, err);
        close(p[1]);
        if (r < 0)
                close(p[0]);
        else
                *ret_fd = p[0];
        return r < 0 ? cg_err_prefix(err, "%s", python) : 0;
}

void cg_serve_install(struct cg_serve *sv, const struct cg_job *job, cg_serve_wait_fn wait_fn,
                      const char *requirement, struct cg_answer *a)
{
        int64_t end = cg_now_ms() + INSTALL_MS, left;
        struct cg_proc pip = CG_PROC_NONE;
        cg_auto_fd int fd = -1;
        const char *why = NULL; /* pip has to be killed */
        struct cg_err err;
        char buf[8192];
        ssize_t n = 1;
        int status = -1;

        cg_log(&sv->log, CG_LOG_INFO, "install_package %s", requirement);
        if (start_pip(sv, requirement, &pip, &fd, &err) < 0) {
                cg_answer_error(a);
                cg_answer_note(a, "pip could not be started: %s", err.msg);
                return;
        }
        while (n != 0) {
                struct pollfd p = { .fd = fd, .events = POLLIN };

                left = end - cg_now_ms();
                if (cg_serve_given_up(sv, job)) {
                        why = "it was cancelled";
                        break;
                }
                if (left <= 0) {
                        why = "it took longer than 10 minutes";
                        break;
                }
                wait_fn(sv, fd, left);
                if (poll(&p, 1, 0) <= 0)
                        continue;
                n = read(fd, buf, sizeof(buf));
                if (n > 0)
                        cg_answer_text(a, buf, (size_t)n);
                else if (n < 0 && errno != EINTR)
                        break;
        }
        /* Its output has ended, so it is about to exit; the rest of its group is killed anyway. */
        if (why || cg_proc_wait(&pip, 5000, &status, NULL) != 0)
                cg_proc_end(&pip, true, 1000);
        if (!why && status == 0) {
                cg_serve_list_fonts(sv);
                cg_answer_note(
                        a, "Installed for the kernel: import it in the next cell. What was imported before"
                           " stays as it was until reset.");
                return;
        }
        cg_answer_error(a);
        if (why)
                cg_answer_note(a, "Not installed: %s.", why);
        else
                cg_answer_note(
                        a, "Not installed. Only ready-made wheels for this Python are installed: a package"
                           " that would have to be compiled from source is refused, because its build would"
                           " run code outside the sandbox.");
}
