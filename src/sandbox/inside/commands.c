/* The command server and its runners: see commands.h. */
#include "sandbox/inside/commands.h"

#include <poll.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "base/ceilings.h"
#include "base/fd.h"
#include "base/proc.h"
#include "sandbox/inside/files.h"
#include "sandbox/steps.h"

/* ---- the runner */

struct runner {
        const struct cg_spawn *sp;
        int orders;
        int signals; /* SIGCHLD */
        pid_t pid;   /* of the program; 0: ended */
};

/* The specification's texts, and the lists made of them. */
struct command_request {
        struct cg_command_spec spec;
        char *text;
        const char *cwd;
        char **argv, **envp;
};

static void report(const struct runner *r, const struct cg_command_report *what, int fd)
{
        /* Fails if the caller has ended; then the socket ends as well. */
        cg_send_fds(r->orders, what, sizeof(*what), &fd, fd >= 0, NULL);
}

/* @list: of @n texts from @at on, or of none. Returns what follows, or NULL. */
static char *take_texts(char *at, const char *end, char **list, size_t n)
{
        for (size_t i = 0; i < n; i++) {
                char *next = memchr(at, '\0', (size_t)(end - at));

                if (!next)
                        return NULL;
                list[i] = at;
                at = next + 1;
        }
        return at;
}

/* @env replaces the entry of its name. */
static void set_variable(char **list, size_t *n, char *env)
{
        size_t len = strcspn(env, "=") + 1;

        for (size_t i = 0; i < *n; i++) {
                if (strncmp(list[i], env, len) == 0) {
                        list[i] = env;
                        return;
                }
        }
        list[(*n)++] = env;
}

static int read_request(const struct cg_sandbox *sb, int fd, struct command_request *q, struct cg_err *err)
{
        size_t n_plan = 0, n = 0;
        char **own, *end, *at;

        if (pread(fd, &q->spec, sizeof(q->spec), 0) != (ssize_t)sizeof(q->spec) || !q->spec.argc ||
            q->spec.text_len > CG_MAX_COMMAND_TEXT || q->spec.argc > q->spec.text_len ||
            q->spec.envc > q->spec.text_len)
                return cg_fail(err, CG_E_PROTO, "command: its specification is not one");
        while (sb->environ && sb->environ[n_plan])
                n_plan++;
        q->text = malloc(q->spec.text_len + 1);
        q->argv = calloc(q->spec.argc + 1, sizeof(*q->argv));
        q->envp = calloc(n_plan + q->spec.envc + 1, sizeof(*q->envp));
        own = calloc(q->spec.envc + 1, sizeof(*own));
        if (!q->text || !q->argv || !q->envp || !own)
                return cg_fail(err, CG_E_NOMEM, "command");
        if (pread(fd, q->text, q->spec.text_len, sizeof(q->spec)) != (ssize_t)q->spec.text_len)
                return cg_fail_errno(err, "command: its specification");
        end = q->text + q->spec.text_len;
        at = take_texts(q->text, end, (char **)(uintptr_t)&q->cwd, 1);
        if (at)
                at = take_texts(at, end, q->argv, q->spec.argc);
        if (at)
                at = take_texts(at, end, own, q->spec.envc);
        if (!at)
                return cg_fail(err, CG_E_PROTO, "command: its specification is too short");
        for (size_t i = 0; i < n_plan; i++)
                q->envp[n++] = sb->environ[i];
        for (size_t i = 0; i < q->spec.envc; i++)
                set_variable(q->envp, &n, own[i]);
        return 0;
}

static const char *variable(char *const *env, const char *name)
{
        size_t len = strlen(name);

        for (; *env; env++)
                if (strncmp(*env, name, len) == 0 && (*env)[len] == '=')
                        return *env + len + 1;
        return NULL;
}

/* A terminal of the sandbox's own: *ours for the caller, *theirs for the program. */
static int open_terminal(const struct cg_sandbox *sb, const struct cg_command_spec *spec, int *ours,
                         int *theirs, struct cg_err *err)
{
        struct winsize size = { .ws_row = spec->rows, .ws_col = spec->columns };
        cg_auto_fd int fd = open("/dev/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC);
        int unlock = 0;

        if (sb->grants)
                return cg_fail(err, CG_E_UNSUPPORTED, "command: the landlock tier has no terminals");
        if (fd < 0 || ioctl(fd, TIOCSPTLCK, &unlock) < 0 ||
            (*theirs = ioctl(fd, TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC)) < 0)
                return cg_fail_errno(err, "command: terminal");
        ioctl(fd, TIOCSWINSZ, &size);
        *ours = cg_steal_fd(&fd);
        return 0;
}

/* The process of a file operation. */
static pid_t fork_builtin(const struct cg_sandbox *sb, const struct command_request *q, const int fds[3])
{
        pid_t pid = fork();

        if (pid != 0)
                return pid;
        /* The runner's own 0, 1 and 2 are /dev/null, so none of these is one of them. */
        for (int i = 0; i < 3; i++)
                if (dup2(fds[i], i) < 0)
                        _exit(125);
        close_range(3, ~0U, 0);
        /* As the main process: init reads the paths of its calls. */
        if (prctl(PR_SET_DUMPABLE, 1, 0, 0, 0) < 0)
                _exit(125);
        signal(SIGPIPE, SIG_IGN);
        if (q->cwd[0] && chdir(q->cwd) < 0)
                _exit(errno & 0xff);
        _exit(cg_files_run(sb, q->argv));
}

/* Starts the program. *fds: its 0, 1 and 2, closed here. */
static int start_program(struct runner *r, const struct command_request *q, int fds[3], struct cg_err *err)
{
        struct cg_proc_fd table[] = { { fds[0], 0 }, { fds[1], 1 }, { fds[2], 2 } };
        struct cg_proc_spec spec = { .path = q->argv[0],
                                     .search_path = variable(q->envp, "PATH") ?: "/usr/bin:/bin",
                                     .argv = q->argv,
                                     .envp = q->envp,
                                     .cwd = cg_or_null(q->cwd),
                                     .fds = table,
                                     .n_fds = CG_ARRAY_LEN(table),
                                     .new_session = true,
                                     .controlling_terminal = q->spec.terminal,
                                     .die_with_parent = !cg_plan_has_namespaces(r->sp->sb) };
        struct cg_proc proc = CG_PROC_NONE;
        int status;

        if (q->spec.builtin) {
                proc.pid = fork_builtin(r->sp->sb, q, fds);
                status = proc.pid < 0 ? cg_fail_errno(err, "command") : 0;
        } else {
                status = cg_proc_spawn(&spec, &proc, err);
        }

        for (size_t i = 3; i-- > 0;) /* of a terminal all are the same */
                if (i == 0 || fds[i] != fds[i - 1])
                        cg_closep_(&fds[i]);
        if (status < 0)
                return status;
        cg_closep_(&proc.pidfd);
        r->pid = proc.pid;
        return 0;
}

static void report_end(struct runner *r, int status)
{
        struct cg_command_report end = { .type = CG_COMMAND_ENDED, .pid = r->pid, .exit_code = -1 };

        if (WIFEXITED(status))
                end.exit_code = WEXITSTATUS(status);
        else if (WIFSIGNALED(status))
                end.signal = WTERMSIG(status);
        r->pid = 0;
        report(r, &end, -1);
}

/* Reaps, and reports the program's end. False when no child is left. */
static bool reap(struct runner *r)
{
        int status;
        pid_t pid;

        while ((pid = waitpid(-1, &status, WNOHANG)) > 0)
                if (pid == r->pid)
                        report_end(r, status);
        return pid == 0;
}

/* Ends the program, and all processes that it has left behind. */
static void end_all(struct runner *r)
{
        int64_t deadline = cg_now_ms() + CG_COMMAND_END_MS;

        if (r->pid)
                kill(r->pid, SIGKILL);
        while (reap(r) && cg_now_ms() < deadline) {
                struct pollfd p = { .fd = r->signals, .events = POLLIN };
                struct signalfd_siginfo info;

                /* The program is not among them before its end is reported. */
                cg_proc_kill_children(&r->pid, r->pid != 0);
                poll(&p, 1, 10);
                while (read(r->signals, &info, sizeof(info)) == (ssize_t)sizeof(info))
                        ;
        }
}

/* False: all processes of the command are to be ended. */
static bool take_order(const struct runner *r)
{
        struct cg_command_order order;
        ssize_t n = recv(r->orders, &order, sizeof(order), MSG_DONTWAIT);

        if (n < 0 && (errno == EAGAIN || errno == EINTR))
                return true;
        if (n != (ssize_t)sizeof(order) || order.type != CG_COMMAND_SIGNAL)
                return false;
        if (r->pid)
                kill(-r->pid, order.signal);
        return true;
}

static void watch(struct runner *r)
{
        struct pollfd fds[] = { { .fd = r->orders, .events = POLLIN },
                                { .fd = r->signals, .events = POLLIN } };
        struct signalfd_siginfo info;

        while (reap(r)) {
                if (poll(fds, CG_ARRAY_LEN(fds), -1) < 0 && errno != EINTR)
                        break;
                while (read(r->signals, &info, sizeof(info)) == (ssize_t)sizeof(info))
                        ;
                if (fds[0].revents && !take_order(r))
                        break;
        }
        end_all(r);
}

static _Noreturn void runner_run(const struct cg_spawn *sp, int fds[CG_COMMAND_FDS], size_t n_fds)
{
        struct runner r = { .sp = sp, .orders = fds[CG_COMMAND_ORDERS_FD] };
        struct cg_command_report first = { .type = CG_COMMAND_FAILED };
        int ours = -1, theirs = -1, *stdio = fds + CG_COMMAND_STDIN_FD;
        struct command_request q = { .text = NULL };
        sigset_t child;
        int status;

        prctl(PR_SET_NAME, "cg-command", 0, 0, 0);
        if (!cg_plan_has_namespaces(sp->sb))
                prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
        signal(SIGCHLD, SIG_DFL);
        sigemptyset(&child);
        sigaddset(&child, SIGCHLD);
        r.signals = signalfd(-1, &child, SFD_CLOEXEC | SFD_NONBLOCK);
        if (r.signals < 0 || prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) < 0)
                status = cg_fail_errno(&first.err, "command");
        else
                status = read_request(sp->sb, fds[CG_COMMAND_SPEC_FD], &q, &first.err);
        if (status == 0 && q.spec.terminal) {
                status = open_terminal(sp->sb, &q.spec, &ours, &theirs, &first.err);
                stdio[0] = stdio[1] = stdio[2] = theirs;
        } else if (status == 0 && n_fds != CG_COMMAND_FDS) {
                status = cg_fail(&first.err, CG_E_PROTO, "command: descriptors are missing");
        }
        if (status == 0)
                status = start_program(&r, &q, stdio, &first.err);
        if (status < 0) {
                report(&r, &first, -1);
                _exit(0);
        }
        close(fds[CG_COMMAND_SPEC_FD]);
        first.type = CG_COMMAND_STARTED;
        first.pid = r.pid;
        report(&r, &first, ours);
        cg_closep_(&ours);
        watch(&r);
        _exit(0);
}

/* ---- the server */

static void serve_one(const struct cg_spawn *sp, int sock, int fds[CG_COMMAND_FDS], size_t n_fds)
{
        struct cg_command_report failed = { .type = CG_COMMAND_FAILED };
        pid_t pid = fork();

        if (pid == 0) {
                close(sock);
                runner_run(sp, fds, n_fds);
        }
        if (pid < 0) {
                cg_fail_errno(&failed.err, "command");
                cg_send_fds(fds[CG_COMMAND_ORDERS_FD], &failed, sizeof(failed), NULL, 0, NULL);
        }
}

_Noreturn void cg_command_server_run(const struct cg_spawn *sp, int sock)
{
        struct cg_command_server_ready ready = { .ok = 0 };
        sigset_t all;

        prctl(PR_SET_NAME, "cg-commands", 0, 0, 0);
        /* No signal ends it. Programs get the mask of cg_proc_spawn(). */
        sigfillset(&all);
        sigprocmask(SIG_SETMASK, &all, NULL);
        signal(SIGCHLD, SIG_IGN); /* runners are reaped by the kernel */
        if (cg_enter(sp, &ready.err) == 0)
                ready.ok = 1;
        if (write(sock, &ready, sizeof(ready)) != (ssize_t)sizeof(ready) || !ready.ok)
                _exit(125);
        for (;;) {
                int fds[CG_COMMAND_FDS];
                size_t n_fds = CG_COMMAND_FDS;
                char type = 0;
                ssize_t n = cg_recv_fds(sock, &type, 1, fds, &n_fds, NULL);

                if (n <= 0 && !(n < 0 && errno == EINTR))
                        _exit(0);
                if (n == 1 && type == CG_COMMAND_REQUEST && n_fds > CG_COMMAND_ORDERS_FD)
                        serve_one(sp, sock, fds, n_fds);
                if (n == 1 && write(sock, &type, 1) != 1)
                        _exit(0);
                for (size_t i = 0; n == 1 && i < n_fds; i++)
                        close(fds[i]);
        }
}
