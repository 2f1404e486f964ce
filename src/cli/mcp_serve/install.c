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
#include "base/proc.h"
#include "base/util.h"
#include "cli/common/pip.h"
#include "config.h"

#define MAX_REQUIREMENT 256u
#define INSTALL_MS      600000
/* Of pip's output; the end is kept. */
#define MAX_CHARS 4000u

/* ------------------------------------------------------------------ the requirement */

static bool is_name_char(char c)
{
        return isalnum((unsigned char)c) || c == '-' || c == '_' || c == '.';
}

static void skip_blanks(const char **p)
{
        while (**p == ' ' || **p == '\t')
                (*p)++;
}

static bool take_name(const char **p)
{
        const char *start = *p;

        while (is_name_char(**p))
                (*p)++;
        return *p > start && isalnum((unsigned char)*start) && isalnum((unsigned char)(*p)[-1]);
}

static bool take_extras(const char **p)
{
        if (**p != '[')
                return true;
        do {
                (*p)++;
                skip_blanks(p);
                if (!take_name(p))
                        return false;
                skip_blanks(p);
        } while (**p == ',');
        if (**p != ']')
                return false;
        (*p)++;
        skip_blanks(p);
        return true;
}

static bool take_version(const char **p)
{
        static const char *const operators[] = { "===", "==", "~=", "!=", "<=", ">=", "<", ">" };
        size_t i = 0, n;

        while (i < CG_ARRAY_LEN(operators) && strncmp(*p, operators[i], strlen(operators[i])) != 0)
                i++;
        if (i == CG_ARRAY_LEN(operators))
                return false;
        *p += strlen(operators[i]);
        skip_blanks(p);
        n = strspn(*p, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.*+!_-");
        *p += n;
        skip_blanks(p);
        return n > 0;
}

static bool take_versions(const char **p)
{
        if (!**p)
                return true;
        while (take_version(p)) {
                if (!**p)
                        return true;
                if (**p != ',')
                        return false;
                (*p)++;
                skip_blanks(p);
        }
        return false;
}

/* pip takes "x.whl" and "x.tar.gz" for files. */
static bool looks_like_file(const char *name, size_t len)
{
        static const char *const endings[] = { ".whl", ".zip", ".tar", ".gz",   ".tgz", ".bz2",
                                               ".tbz", ".xz",  ".txz", ".lzma", ".egg" };

        for (size_t i = 0; i < CG_ARRAY_LEN(endings); i++) {
                size_t n = strlen(endings[i]);

                if (len > n && strncasecmp(name + len - n, endings[i], n) == 0)
                        return true;
        }
        return false;
}

int cg_serve_check_requirement(const char *text, struct cg_err *err)
{
        const char *p = text, *name;
        size_t len;

        if (strlen(text) > MAX_REQUIREMENT)
                return cg_fail(err, CG_E_INVAL, "package_name is longer than %u bytes", MAX_REQUIREMENT);
        skip_blanks(&p);
        name = p;
        if (take_name(&p)) {
                len = (size_t)(p - name);
                skip_blanks(&p);
                if (!looks_like_file(name, len) && take_extras(&p) && take_versions(&p))
                        return 0;
        }
        return cg_fail(err, CG_E_INVAL,
                       "package_name must be one package of the index, such as humanize, humanize==4.9.0 or"
                       " rich[jupyter]>=13,<15: no URL, no path, no option, no marker, not several");
}

/* ------------------------------------------------------------------ pip */

/* *ret_fd: pip's standard output and error. */
static int start_pip(const struct cg_serve *sv, const char *requirement, struct cg_proc *ret, int *ret_fd,
                     struct cg_err *err)
{
        char python[] = CG_KERNEL_ENV "/bin/python", isolated[] = "-I", m[] = "-m", pip[] = "pip",
             install[] = "install", only[] = "--only-binary", all[] = ":all:", target[] = "--target",
             upgrade[] = "--upgrade", no_input[] = "--no-input", no_version[] = "--disable-pip-version-check",
             no_color[] = "--no-color", bar[] = "--progress-bar=off", end[] = "--";
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

/* false: end of file. */
static bool read_some(int fd, struct cg_answer *a)
{
        char buf[8192];
        ssize_t n = read(fd, buf, sizeof(buf));

        if (n > 0)
                cg_answer_text(a, buf, (size_t)n);
        return n > 0 || (n < 0 && errno == EINTR);
}

/* Reads pip's output. Returns why pip has to be killed, or NULL at the end of its output. */
static const char *follow(struct cg_serve *sv, const struct cg_job *job, cg_serve_wait_fn wait_fn, int fd,
                          struct cg_answer *a)
{
        int64_t end = cg_now_ms() + INSTALL_MS;

        for (;;) {
                struct pollfd p = { .fd = fd, .events = POLLIN };
                int64_t left = end - cg_now_ms();

                if (cg_serve_given_up(sv, job))
                        return "it was cancelled";
                if (left <= 0)
                        return "it took longer than 10 minutes";
                wait_fn(sv, fd, left);
                if (poll(&p, 1, 0) > 0 && !read_some(fd, a))
                        return NULL;
        }
}

void cg_serve_install(struct cg_serve *sv, const struct cg_job *job, cg_serve_wait_fn wait_fn,
                      const char *requirement, struct cg_answer *a)
{
        struct cg_proc pip = CG_PROC_NONE;
        cg_auto_fd int fd = -1;
        const char *why;
        struct cg_err err;
        int status = -1;

        cg_log(&sv->log, CG_LOG_INFO, "install_package %s", requirement);
        if (start_pip(sv, requirement, &pip, &fd, &err) < 0) {
                cg_answer_error(a);
                cg_answer_note(a, "pip could not be started: %s", err.msg);
                return;
        }
        why = follow(sv, job, wait_fn, fd, a);
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
