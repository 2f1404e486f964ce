/*
 * The C library asks nscd, a cache that hardly anybody runs, before it looks up a user, a group or
 * a host: `ls -l` and `id` make a Unix socket for that and go on without. Nobody wants to hear of
 * these. They are known by their arguments and by who calls: the C library itself. Runs in init;
 * what it is told wrong only hides a line from a report.
 */
#include "sandbox/notify/notify.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/util.h"

/* Of /proc/PID/maps: more than programs have that look up users. */
#define LINES_MAX 4096

/* Where a thread is that waits in a system call, and its stack. */
static bool where(pid_t tid, uint64_t *pc, uint64_t *sp)
{
        char path[64], text[256];
        ssize_t n;
        int fd;

        snprintf(path, sizeof(path), "/proc/%d/syscall", (int)tid);
        fd = open(path, O_RDONLY | O_CLOEXEC);
        if (fd < 0)
                return false;
        n = read(fd, text, sizeof(text) - 1);
        close(fd);
        text[n > 0 ? n : 0] = '\0';
        return sscanf(text, "%*d %*x %*x %*x %*x %*x %*x %" SCNx64 " %" SCNx64, sp, pc) == 2;
}

static bool is_libc(const char *path)
{
        const char *name = strrchr(path, '/');

        return name && (!strncmp(name, "/libc.so", 8) || !strncmp(name, "/libc-2", 7) ||
                        !strncmp(name, "/ld-musl-", 9));
}

/* Both lie in the same piece of the C library. */
static bool in_libc(pid_t tid, uint64_t a, uint64_t b)
{
        char path[512];
        bool found = false;
        FILE *f;

        snprintf(path, sizeof(path), "/proc/%d/maps", (int)tid);
        f = fopen(path, "re");
        for (int i = 0; f && i < LINES_MAX && !found; i++) {
                uint64_t from, to;
                int n = fscanf(f, "%" SCNx64 "-%" SCNx64 " %*4s %*x %*s %*u%*[ ]%511[^\n]", &from, &to, path);

                if (n == EOF)
                        break;
                if (n >= 2 && a >= from && a < to) {
                        found = n == 3 && b >= from && b < to && is_libc(path);
                        break;
                }
        }
        if (f)
                fclose(f);
        return found;
}

bool cg_notify_is_nscd(const struct seccomp_notif *call)
{
        const struct seccomp_data *d = &call->data;
        uint64_t pc = 0, sp = 0, back = 0;
        struct iovec to = { &back, sizeof(back) }, from;

        if (d->nr != SYS_socket || d->args[0] != AF_UNIX ||
            d->args[1] != (SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK) || d->args[2])
                return false;
#ifdef __x86_64__
        /* The library's socket() has made no frame: on top of the stack is where it returns to. */
        if (!where((pid_t)call->pid, &pc, &sp))
                return false;
        from = (struct iovec){ (void *)(uintptr_t)sp, sizeof(back) };
        return process_vm_readv((pid_t)call->pid, &to, 1, &from, 1, 0) == (ssize_t)sizeof(back) &&
               in_libc((pid_t)call->pid, pc, back);
#else
        return true;
#endif
}
