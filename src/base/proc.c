/* Child processes. Linked into every process that starts others. */
#include "base/proc.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include "base/fd.h"

/* A process that SIGKILL does not end in this time is stuck in a system call. */
#define KILLED_MS 5000
/* Data of the child, which shares the caller's memory until it executes the program. */
struct child_plan {
        const struct cg_proc_spec *spec;
        const char *path;
        int err_fd;  /* close-on-exec pipe: errno and step of what failed */
        int *moved;  /* one number for each of spec->fds, above all targets */
        int top;     /* first number above all targets */
        bool shared; /* set by the child where it has the caller's memory */
        pid_t parent;
};

struct child_failure {
        int err;
        int step; /* 0 descriptors, 1 folder, 2 exec */
};

static const char *const step_names[] = { "cannot set up descriptors for",
                                          "cannot enter the working folder of", "cannot start" };

static _Noreturn void child_fail(const struct child_plan *p, int step)
{
        struct child_failure f = { .err = errno, .step = step };

        if (write(p->err_fd, &f, sizeof(f)) < 0)
                _exit(126);
        _exit(127);
}

/* First everything above all targets, then onto the targets, so that no dup2 hits a source. */
static void child_fds(struct child_plan *p)
{
        const struct cg_proc_spec *s = p->spec;
        int null_fd = -1, err_fd;

        err_fd = fcntl(p->err_fd, F_DUPFD_CLOEXEC, p->top);
        if (err_fd < 0)
                child_fail(p, 0);
        p->err_fd = err_fd;
        for (size_t i = 0; i < s->n_fds; i++) {
                int src = s->fds[i].fd;

                if (src < 0) {
                        if (null_fd < 0)
                                null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
                        if (null_fd < 0)
                                child_fail(p, 0);
                        src = null_fd;
                }
                p->moved[i] = fcntl(src, F_DUPFD_CLOEXEC, p->top);
                if (p->moved[i] < 0)
                        child_fail(p, 0);
        }
        for (int i = 0; i < p->top; i++)
                close(i);
        for (size_t i = 0; i < s->n_fds; i++) {
                if (dup2(p->moved[i], s->fds[i].as) < 0)
                        child_fail(p, 0);
        }
        /* err_fd stays open to report a failed exec; this makes it and all others close-on-exec. */
        if (syscall(SYS_close_range, p->top, ~0U, 4 /* CLOSE_RANGE_CLOEXEC */) < 0)
                child_fail(p, 0);
}

static _Noreturn void child_main(struct child_plan *p)
{
        const struct cg_proc_spec *s = p->spec;
        static char *const no_env[] = { NULL };
        struct sigaction dfl = { .sa_handler = SIG_DFL };
        sigset_t none;

        for (int i = 1; i < NSIG; i++)
                sigaction(i, &dfl, NULL); /* fails for SIGKILL, SIGSTOP and libc's own: fine */
        sigemptyset(&none);
        sigprocmask(SIG_SETMASK, &none, NULL);
        if (s->new_session)
                setsid();
        if (s->die_with_parent) {
                prctl(PR_SET_PDEATHSIG, SIGKILL);
                if (getppid() != p->parent)
                        _exit(127);
        }
        child_fds(p);
        if (s->controlling_terminal && ioctl(0, TIOCSCTTY, 0) < 0)
                child_fail(p, 0);
        if (s->cwd && chdir(s->cwd) < 0)
                child_fail(p, 1);
        execve(p->path, s->argv, s->envp ?: no_env);
        child_fail(p, 2);
}

/*
 * By vfork(): a copy of the page tables of a large caller takes longer than all the rest. A
 * sanitizer may make it a fork, so failures are reported by a pipe.
 */
static pid_t start_child(struct child_plan *p)
{
        pid_t pid;

        pid = vfork(); /* NOLINT(clang-analyzer-security.insecureAPI.vfork): see above */
        if (pid == 0) {
                *(volatile bool *)&p->shared = true;
                child_main(p);
        }
        return pid;
}

static int find_program(const struct cg_proc_spec *s, char *buf, size_t size, const char **ret,
                        struct cg_err *err)
{
        const char *p = s->search_path;

        if (strchr(s->path, '/') || !p) {
                *ret = s->path;
                return 0;
        }
        while (*p) {
                size_t n = strcspn(p, ":");
                int len = snprintf(buf, size, "%.*s%s/%s", (int)n, p, n ? "" : ".", s->path);

                if (len > 0 && (size_t)len < size && access(buf, X_OK) == 0) {
                        *ret = buf;
                        return 0;
                }
                p += n;
                p += *p == ':';
        }
        return cg_fail(err, CG_E_NOTFOUND,
                       "program \"%s\" not found in PATH (%s); install it or give its whole path", s->path,
                       s->search_path);
}

int cg_proc_spawn(const struct cg_proc_spec *spec, struct cg_proc *ret, struct cg_err *err)
{
        struct child_plan plan = { .spec = spec, .top = 3, .parent = getpid() };
        cg_auto_free int *moved = calloc(spec->n_fds + 1, sizeof(*moved));
        cg_auto_fd int rd = -1, wr = -1;
        struct child_failure failure;
        char path[4096];
        int pipe_fds[2], cancel, r;
        sigset_t all, old;
        ssize_t n;
        pid_t pid;

        if (!moved)
                return cg_fail(err, CG_E_NOMEM, "descriptor table");
        r = find_program(spec, path, sizeof(path), &plan.path, err);
        if (r < 0)
                return r;
        if (pipe2(pipe_fds, O_CLOEXEC) < 0)
                return cg_fail_errno(err, "pipe");
        rd = pipe_fds[0];
        wr = pipe_fds[1];
        plan.err_fd = wr;
        plan.moved = moved;
        for (size_t i = 0; i < spec->n_fds; i++)
                if (spec->fds[i].as >= plan.top)
                        plan.top = spec->fds[i].as + 1;

        /* In the child no signal handler of the host may run, and no cancellation of its thread. */
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &old);
        pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel);
        pid = start_child(&plan);
        pthread_setcancelstate(cancel, NULL);
        pthread_sigmask(SIG_SETMASK, &old, NULL);
        if (pid < 0)
                return cg_fail_errno(err, "vfork");

        ret->pid = pid;
        ret->pidfd = cg_pidfd_open(pid, err);
        close(cg_steal_fd(&wr));
        /*
         * After a vfork() the child has started its program or ended. A process that another thread
         * has forked meanwhile may keep the pipe open.
         */
        if (*(volatile bool *)&plan.shared)
                fcntl(rd, F_SETFL, O_NONBLOCK);
        do
                n = read(rd, &failure, sizeof(failure));
        while (n < 0 && errno == EINTR);
        if (n < 0 && errno == EAGAIN)
                n = 0;
        if (n == 0 && ret->pidfd >= 0)
                return 0;
        if (n != sizeof(failure)) /* its program may run already */
                kill(pid, SIGKILL);
        while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
                ;
        if (ret->pidfd >= 0)
                close(ret->pidfd);
        *ret = CG_PROC_NONE;
        if (n == 0)
                return CG_E_SYS; /* pidfd_open failed: err says so */
        if (n != sizeof(failure))
                return cg_fail(err, CG_E_SYS, "\"%s\" ended before it started", spec->path);
        errno = failure.err;
        return cg_fail_errno(err, "%s \"%s\"", step_names[failure.step], spec->path);
}

/* As waitpid(2) gives it. */
static int status_of(const siginfo_t *info)
{
        if (info->si_code == CLD_EXITED)
                return info->si_status << 8;
        return info->si_status | (info->si_code == CLD_DUMPED ? WCOREFLAG : 0);
}

int cg_block_end_signals(sigset_t *old, int *ret, struct cg_err *err)
{
        sigset_t set;

        sigemptyset(&set);
        sigaddset(&set, SIGINT);
        sigaddset(&set, SIGTERM);
        sigaddset(&set, SIGHUP);
        pthread_sigmask(SIG_BLOCK, &set, old);
        *ret = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
        return *ret < 0 ? cg_fail_errno(err, "signals") : 0;
}

int cg_proc_wait(struct cg_proc *p, int64_t timeout_ms, int *status, struct cg_err *err)
{
        siginfo_t info = { .si_pid = 0 };
        int st = -1, r;

        if (p->pidfd < 0)
                return cg_fail(err, CG_E_STATE, "no such child");
        r = cg_wait_fd(p->pidfd, POLLIN, timeout_ms, err);
        if (r != 0)
                return r;
        do
                r = waitid(P_PIDFD, (id_t)p->pidfd, &info, WEXITED);
        while (r < 0 && errno == EINTR);
        if (r == 0) /* else a host that reaps all children has reaped it: the status is lost */
                st = status_of(&info);
        close(p->pidfd);
        *p = CG_PROC_NONE;
        if (status)
                *status = st;
        return 0;
}

void cg_proc_end(struct cg_proc *p, bool group, int64_t grace_ms)
{
        pid_t pid = p->pid;

        if (p->pidfd < 0)
                return;
        if (grace_ms > 0) {
                if (group)
                        kill(-pid, SIGTERM);
                else
                        cg_pidfd_kill(p->pidfd, SIGTERM);
                if (cg_wait_fd(p->pidfd, POLLIN, grace_ms, NULL) == 0 && !group) {
                        cg_proc_wait(p, 0, NULL, NULL);
                        return;
                }
        }
        /* The leader is not reaped yet, so its number cannot have been given to another group. */
        if (group)
                kill(-pid, SIGKILL);
        cg_pidfd_kill(p->pidfd, SIGKILL);
        cg_proc_wait(p, KILLED_MS, NULL, NULL);
}

bool cg_proc_env_passes(const char *var)
{
        static const char *const names[] = { "HOME", "LOGNAME", "PATH", "SHELL",
                                             "TERM", "USER",    "LANG", "TMPDIR" };
        size_t n = strcspn(var, "=");

        if (strncmp(var, "LC_", 3) == 0)
                return true;
        for (size_t i = 0; i < CG_ARRAY_LEN(names); i++)
                if (strlen(names[i]) == n && memcmp(var, names[i], n) == 0)
                        return true;
        return false;
}

static bool listed(pid_t pid, const pid_t *list, size_t n)
{
        for (size_t i = 0; i < n; i++)
                if (list[i] == pid)
                        return true;
        return false;
}

/* Kills and reaps the process; false: it does not end in time, as when it waits for a dead disk. */
static bool end_child(pid_t pid)
{
        cg_auto_fd int pidfd = cg_pidfd_open(pid, NULL);

        if (pidfd < 0)
                return false;
        cg_pidfd_kill(pidfd, SIGKILL);
        return cg_wait_fd(pidfd, POLLIN, KILLED_MS, NULL) == 0 && waitpid(pid, NULL, WNOHANG) == pid;
}

/*
 * Reaps the children except those in @keep, after killing them or only if they have ended. Returns
 * true when there was one. The list has the children of this thread only; in our processes one
 * thread starts all of them.
 */
static bool reap_children(const pid_t *keep, size_t n, bool kill_them)
{
        cg_auto_free char *list = NULL;
        char path[64], *p, *end;
        bool any = false;
        size_t len;

        snprintf(path, sizeof(path), "/proc/self/task/%d/children", (int)getpid());
        if (cg_read_file(path, 1 << 20, &list, &len, NULL) < 0)
                return false;
        for (p = list; *p; p = end) {
                pid_t pid = (pid_t)strtol(p, &end, 10);

                if (end == p)
                        break;
                if (listed(pid, keep, n))
                        continue;
                any = (kill_them ? end_child(pid) : waitpid(pid, NULL, WNOHANG) == pid) || any;
        }
        return any;
}

void cg_proc_kill_children(const pid_t *keep, size_t n)
{
        /* A killed child's children become ours if we are a subreaper: bounded rounds. */
        for (int round = 0; round < 16 && reap_children(keep, n, true); round++)
                ;
}

void cg_proc_reap_children(const pid_t *keep, size_t n)
{
        reap_children(keep, n, false);
}

bool cg_proc_read_text(const char *path, char *text, size_t size)
{
        cg_auto_fd int fd = open(path, O_RDONLY | O_CLOEXEC);
        ssize_t n = fd < 0 ? -1 : read(fd, text, size - 1);

        text[CG_MAX(n, 0)] = '\0';
        return n >= 0;
}

pid_t cg_proc_of_entry(const char *name)
{
        return name[0] >= '1' && name[0] <= '9' ? (pid_t)strtol(name, NULL, 10) : 0;
}

bool cg_proc_read_stat(pid_t pid, struct cg_proc_stat *ret)
{
        char path[64] = "/proc/self/stat", text[1024];
        const char *rest;
        unsigned long utime, stime;
        unsigned long long started;
        long cutime, cstime;
        int parent, group;

        if (pid)
                snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
        if (!cg_proc_read_text(path, text, sizeof(text)))
                return false;
        rest = strrchr(text, ')'); /* the process chooses its name, which may contain ")" */
        if (!rest ||
            sscanf(rest, ") %*c %d %d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu %ld %ld %*d %*d %*d %*d %llu",
                   &parent, &group, &utime, &stime, &cutime, &cstime, &started) != 7)
                return false;
        *ret = (struct cg_proc_stat){ .pid = pid ?: getpid(),
                                      .parent = parent,
                                      .group = group,
                                      .started = started,
                                      .ticks = utime + stime + (uint64_t)cutime + (uint64_t)cstime };
        return true;
}

void cg_proc_describe(int status, char *buf, size_t size)
{
        if (WIFSIGNALED(status)) {
                const char *name = sigabbrev_np(WTERMSIG(status));

                snprintf(buf, size, "killed by SIG%s", name ?: "?");
        } else if (WIFEXITED(status)) {
                snprintf(buf, size, "exit status %d", WEXITSTATUS(status));
        } else {
                snprintf(buf, size, "ended");
        }
}
