/*
 * sandbox-launch: runs one command in a sandbox made from options. The tests' stand-in for the
 * zygote; runs on the host.
 *
 *      sandbox-launch [OPTION]... -- COMMAND [ARG]...
 *      sandbox-launch --tidy [FILES]   removes control groups that nobody uses
 *
 * Exit status: the command's, 128 + n for signal n, 125 when the sandbox could not be made (the
 * reason on standard error, with its code), 126 when it ended without a status, 2 for wrong usage.
 */
#include <errno.h>
#include <pthread.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/util.h"
#include "sandbox/cgroup.h"
#include "sandbox/sandbox.h"

#define KEEP_MAX 16

struct launch {
        struct cg_sandbox *sb;
        struct cg_sandbox_limits limits;
        int keep[KEEP_MAX];
        size_t n_keep;
        bool report;  /* say on standard error what init's pid is, and how the command ended */
        bool abandon; /* close the status pipe while the command runs */
        bool share;   /* another process holds the status pipe as well */
        /* say on standard error by what each limit is held, and what the group counted */
        bool say_limits;
        char **argv;
};

static int run_command(void *data)
{
        struct launch *l = data;

        execvp(l->argv[0], l->argv);
        fprintf(stderr, "sandbox-launch: %s: %s\n", l->argv[0], strerror(errno));
        return 127;
}

static void *other_thread(void *unused)
{
        pause();
        return unused;
}

/* "SRC=DST" */
static int add_ro(struct launch *l, char *pair, struct cg_err *err)
{
        char *eq = strchr(pair, '=');

        if (!eq)
                return cg_fail(err, CG_E_INVAL, "--ro %s: no \"=\"", pair);
        *eq = '\0';
        return cg_sandbox_add_bind_ro(l->sb, pair, eq + 1, err);
}

static int set_option(struct launch *l, const char *name, char *value, struct cg_err *err)
{
        if (!strcmp(name, "--write"))
                return cg_sandbox_add_write(l->sb, value, err);
        if (!strcmp(name, "--hide"))
                return cg_sandbox_add_hide(l->sb, value, err);
        if (!strcmp(name, "--default-hides"))
                return cg_sandbox_add_default_hides(l->sb, *value ? value : NULL, NULL, err);
        if (!strcmp(name, "--cwd"))
                return cg_sandbox_set_cwd(l->sb, value, err);
        if (!strcmp(name, "--ro"))
                return add_ro(l, value, err);
        if (!strcmp(name, "--memory"))
                l->limits.memory_bytes = strtoull(value, NULL, 10);
        else if (!strcmp(name, "--processes"))
                l->limits.processes = strtoull(value, NULL, 10);
        else if (!strcmp(name, "--file-size"))
                l->limits.file_bytes = strtoull(value, NULL, 10);
        else if (!strcmp(name, "--cores"))
                l->limits.cores_milli = strtoull(value, NULL, 10);
        else if (!strcmp(name, "--cpu"))
                l->limits.cpu_seconds = strtoull(value, NULL, 10);
        else if (!strcmp(name, "--cgroup-files"))
                cg_sandbox_set_cgroup_files(l->sb, value);
        else if (!strcmp(name, "--open-files"))
                l->limits.open_files = strtoull(value, NULL, 10);
        else if (!strcmp(name, "--keep") && l->n_keep < KEEP_MAX)
                l->keep[l->n_keep++] = atoi(value);
        else
                return cg_fail(err, CG_E_INVAL, "unknown option %s", name);
        return 0;
}

/* Options without a value; false when @name is none of them. */
static bool set_flag(struct launch *l, const char *name)
{
        pthread_t t;

        if (!strcmp(name, "--off"))
                cg_sandbox_set_off(l->sb);
        else if (!strcmp(name, "--report"))
                l->report = true;
        else if (!strcmp(name, "--stopped")) {
                cg_sandbox_report_denials(l->sb);
                cg_sandbox_report_stopped(l->sb);
        } else if (!strcmp(name, "--abandon"))
                l->abandon = true;
        else if (!strcmp(name, "--share"))
                l->share = true;
        else if (!strcmp(name, "--say-limits"))
                l->say_limits = true;
        else if (!strcmp(name, "--undumpable"))
                prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
        else if (!strcmp(name, "--ignore-sigchld"))
                signal(SIGCHLD, SIG_IGN);
        else if (!strcmp(name, "--second-thread"))
                pthread_create(&t, NULL, other_thread, NULL);
        else
                return false;
        return true;
}

static int read_options(struct launch *l, int argc, char **argv, struct cg_err *err)
{
        int i = 1;

        for (; i < argc && strcmp(argv[i], "--"); i++) {
                if (set_flag(l, argv[i]))
                        continue;
                if (i + 1 == argc)
                        return cg_fail(err, CG_E_INVAL, "%s needs a value", argv[i]);
                if (set_option(l, argv[i], argv[i + 1], err) < 0)
                        return err->code;
                i++;
        }
        if (i + 1 >= argc)
                return cg_fail(err, CG_E_INVAL, "no command");
        l->argv = argv + i + 1;
        cg_sandbox_set_limits(l->sb, &l->limits);
        return 0;
}

static int failed(const struct cg_err *err, int status)
{
        fprintf(stderr, "sandbox-launch: error %d (errno %d): %s\n", err->code, err->sys_errno, err->msg);
        return status;
}

/*
 * As a zygote's supervisor does: holds the pipe, and nothing else, until there is no more to come.
 */
static void share_status(int fd)
{
        char byte;

        if (fork())
                return;
        if (dup2(fd, 0) == 0 && close_range(1, ~0U, 0) == 0) {
                while (read(0, &byte, 1) > 0)
                        ;
        }
        _exit(0);
}

static void say_limits(const struct cg_sandbox_child *child)
{
        for (enum cg_limit i = 0; i < CG_LIMITS; i++)
                fprintf(stderr, "%s: %s\n", cg_limit_name(i), cg_limit_by_name(child->by[i]));
}

/* Init has been reaped, so all that was inside is gone. */
static void end_group(const struct launch *l, struct cg_cgroup *group)
{
        struct cg_limit_counts counts;

        if (l->say_limits && group) {
                cg_cgroup_counts(group, &counts);
                fprintf(stderr, "counts %llu %llu %llu\n", (unsigned long long)counts.oom_kills,
                        (unsigned long long)counts.forks_denied, (unsigned long long)counts.cpu_ms);
        }
        cg_cgroup_free(group);
}

static int follow(const struct launch *l, struct cg_sandbox_child *child)
{
        struct cg_sandbox_status st = { 0 };
        struct pollfd ended = { .fd = child->init_pidfd, .events = POLLIN };
        ssize_t n = 0;

        if (l->share)
                share_status(child->status_fd);
        if (l->report)
                fprintf(stderr, "init %d\n", (int)child->init_pid);
        if (l->say_limits)
                say_limits(child);
        if (l->abandon)
                cg_closep_(&child->status_fd);
        else
                n = read(child->status_fd, &st, sizeof(st));
        if (n == (ssize_t)sizeof(st) && st.magic == CG_SANDBOX_STOPPED_MAGIC) {
                fprintf(stderr, "stopped\n");
                n = read(child->status_fd, &st, sizeof(st));
        }
        while (poll(&ended, 1, -1) < 0 && errno == EINTR)
                ;
        waitpid(child->init_pid, NULL, 0);
        end_group(l, child->cgroup);
        if (n != (ssize_t)sizeof(st) || st.magic != CG_SANDBOX_STATUS_MAGIC)
                return 126;
        if (l->report)
                fprintf(stderr, "status exit_code=%d signal=%d core=%d\n", st.exit_code, st.signal, st.core);
        return st.signal ? 128 + st.signal : st.exit_code;
}

int main(int argc, char **argv)
{
        struct launch l = { 0 };
        struct cg_sandbox_child child;
        struct cg_err err = { 0 };
        int status;

        if (argc >= 2 && !strcmp(argv[1], "--tidy")) {
                cg_cgroup_tidy(argv[2]);
                return 0;
        }
        if (cg_sandbox_new(&l.sb, &err) < 0)
                return failed(&err, 125);
        if (read_options(&l, argc, argv, &err) < 0)
                status = failed(&err, 2);
        else if (cg_sandbox_spawn(l.sb, l.keep, l.n_keep, run_command, &l, &child, &err) < 0)
                status = failed(&err, 125);
        else
                status = follow(&l, &child);
        cg_sandbox_free(l.sb);
        return status;
}
