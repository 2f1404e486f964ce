/* The processes of a kernel, read from /proc. Kernel process, I/O thread. See procs.h. */
#include "kernel/procs.h"

#include <signal.h>
#include <sys/syscall.h>
#include <time.h>
#include "base/util.h"

static bool is_ours(const struct cg_process *list, size_t n, pid_t pid)
{
        for (size_t i = 0; i < n; i++)
                if (list[i].stat.pid == pid)
                        return list[i].ours;
        return false;
}

/* Marks this process and its descendants. Parents mostly come first, so few rounds are needed. */
static void mark_ours(struct cg_process *list, size_t n)
{
        pid_t self = getpid();
        bool changed = true;

        while (changed) {
                changed = false;
                for (size_t i = 0; i < n; i++)
                        if (!list[i].ours &&
                            (list[i].stat.pid == self || is_ours(list, n, list[i].stat.parent)))
                                list[i].ours = changed = true;
        }
}

size_t cg_procs_read(struct cg_process *list, size_t max)
{
        cg_auto_dir DIR *dir = opendir("/proc");
        struct dirent *e;
        size_t n = 0;

        while (dir && n < max && (e = readdir(dir))) {
                pid_t pid = cg_proc_of_entry(e->d_name);

                if (pid && cg_proc_read_stat(pid, &list[n].stat))
                        list[n++].ours = false;
        }
        /* In the landlock tier /proc cannot be listed, and other processes cannot be read. */
        if (!dir && max && cg_proc_read_stat(0, &list[0].stat))
                list[n++].ours = false;
        mark_ours(list, n);
        return n;
}

uint64_t cg_procs_now(void)
{
        uint64_t hz = (uint64_t)sysconf(_SC_CLK_TCK);
        struct timespec t;

        clock_gettime(CLOCK_BOOTTIME, &t);
        return (uint64_t)t.tv_sec * hz + (uint64_t)t.tv_nsec * hz / 1000000000;
}

/* The main thread's children, where other processes cannot be read in /proc. */
static void interrupt_children(void)
{
        pid_t self = getpid(), group = getpgrp();
        char path[64], text[4096], *p = text;

        snprintf(path, sizeof(path), "/proc/%d/task/%d/children", (int)self, (int)self);
        if (!cg_proc_read_text(path, text, sizeof(text)))
                return;
        for (char *end; *p; p = end) {
                pid_t pid = (pid_t)strtol(p, &end, 10);

                if (end == p)
                        return;
                if (pid > 0 && getpgid(pid) == group)
                        kill(pid, SIGINT);
        }
}

void cg_procs_interrupt(uint64_t since)
{
        cg_auto_free struct cg_process *list = calloc(CG_MAX_PROCESSES, sizeof(*list));
        size_t n = list ? cg_procs_read(list, CG_MAX_PROCESSES) : 0;
        pid_t self = getpid(), group = getpgrp();

        if (n == 1 && list[0].stat.pid == self)
                interrupt_children(); /* there are no others, or they cannot be read */
        for (size_t i = 0; i < n; i++) {
                const struct cg_proc_stat *p = &list[i].stat;
                cg_auto_fd int fd = -1;
                struct cg_proc_stat now;

                if (!list[i].ours || p->pid == self || p->group != group || p->started < since)
                        continue;
                /* By pidfd, and only if it is the same process: process numbers are reused. */
                fd = (int)syscall(SYS_pidfd_open, p->pid, 0);
                if (fd >= 0 && cg_proc_read_stat(p->pid, &now) && now.started == p->started)
                        syscall(SYS_pidfd_send_signal, fd, SIGINT, NULL, 0);
        }
}
