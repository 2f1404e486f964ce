/* The processes of a kernel, read from /proc. Kernel process, I/O thread. See procs.h. */
#include "kernel/procs.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#include "base/util.h"

bool cg_procs_text(const char *path, char *buf, size_t size)
{
        cg_auto_fd int fd = open(path, O_RDONLY | O_CLOEXEC);
        ssize_t n = fd < 0 ? -1 : read(fd, buf, size - 1);

        if (n < 0)
                return false;
        buf[n] = '\0';
        return true;
}

/* /proc/PID/stat. The name in brackets can contain brackets too: find its end from the right. */
static bool read_process(const char *pid, struct cg_process *ret)
{
        char path[64], text[1024];
        const char *rest;
        unsigned long utime, stime;
        unsigned long long started;
        long cutime, cstime;
        int parent, group;

        snprintf(path, sizeof(path), "/proc/%.20s/stat", pid);
        if (!cg_procs_text(path, text, sizeof(text)))
                return false;
        rest = strrchr(text, ')');
        if (!rest ||
            sscanf(rest, ") %*c %d %d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu %ld %ld %*d %*d %*d %*d %llu",
                   &parent, &group, &utime, &stime, &cutime, &cstime, &started) != 7)
                return false;
        *ret = (struct cg_process){ .pid = (pid_t)strtol(pid, NULL, 10),
                                    .parent = parent,
                                    .group = group,
                                    .started = started,
                                    .ticks = utime + stime + (uint64_t)cutime + (uint64_t)cstime };
        return true;
}

static bool is_ours(const struct cg_process *list, size_t n, pid_t pid)
{
        for (size_t i = 0; i < n; i++)
                if (list[i].pid == pid)
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
                        if (!list[i].ours && (list[i].pid == self || is_ours(list, n, list[i].parent)))
                                list[i].ours = changed = true;
        }
}

size_t cg_procs_read(struct cg_process *list, size_t max)
{
        DIR *dir = opendir("/proc");
        struct dirent *e;
        size_t n = 0;

        while (dir && n < max && (e = readdir(dir)))
                if (e->d_name[0] >= '1' && e->d_name[0] <= '9' && read_process(e->d_name, &list[n]))
                        n++;
        if (dir)
                closedir(dir);
        /* In the landlock tier /proc cannot be listed, and other processes cannot be read. */
        if (!dir && max && read_process("self", &list[0])) {
                list[0].pid = getpid();
                n = 1;
        }
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

/* By pidfd, and only if it is still the same process: process numbers are reused. */
static void interrupt_one(const struct cg_process *p)
{
        cg_auto_fd int fd = (int)syscall(SYS_pidfd_open, p->pid, 0);
        struct cg_process now;
        char name[16];

        snprintf(name, sizeof(name), "%d", (int)p->pid);
        if (fd >= 0 && read_process(name, &now) && now.started == p->started)
                syscall(SYS_pidfd_send_signal, fd, SIGINT, NULL, 0);
}

/* The main thread's children, where other processes cannot be read in /proc. */
static void interrupt_children(void)
{
        pid_t self = getpid(), group = getpgrp();
        char path[64], text[4096], *p = text;

        snprintf(path, sizeof(path), "/proc/%d/task/%d/children", (int)self, (int)self);
        if (!cg_procs_text(path, text, sizeof(text)))
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

        if (n == 1 && list[0].pid == self)
                interrupt_children(); /* there are no others, or they cannot be read */
        for (size_t i = 0; i < n; i++)
                if (list[i].ours && list[i].pid != self && list[i].group == group && list[i].started >= since)
                        interrupt_one(&list[i]);
}
