/* See caller.h. Runs in init. */
#include "sandbox/inside/caller.h"

#include <linux/seccomp.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <sys/uio.h>

#include "base/proc.h"
#include "base/util.h"
#include "sandbox/inside/notify.h"

#define PAGE  4096u
#define SHORT 256u /* bytes of a path that are read first */

bool cg_caller_waits(const struct cg_notify *n, const struct seccomp_notif *call)
{
        uint64_t id = call->id;

        return ioctl(n->listener, SECCOMP_IOCTL_NOTIF_ID_VALID, &id) == 0;
}

static ssize_t read_some(const struct seccomp_notif *call, uint64_t at, void *buf, size_t len)
{
        struct iovec local = { .iov_base = buf, .iov_len = len },
                     remote = { .iov_base = (void *)(uintptr_t)at, .iov_len = len };

        return process_vm_readv((pid_t)call->pid, &local, 1, &remote, 1, 0);
}

int cg_caller_read(const struct seccomp_notif *call, uint64_t at, void *buf, size_t len)
{
        ssize_t n = read_some(call, at, buf, len);

        if (n == (ssize_t)len)
                return 0;
        return n < 0 && errno != EFAULT ? -EPERM : -EFAULT;
}

int cg_caller_read_path(const struct seccomp_notif *call, uint64_t at, char path[PATH_MAX])
{
        size_t len = 0;

        while (len < PATH_MAX) {
                /* Not across the end of a page: the next may be unmapped. Most paths are short. */
                size_t page = PAGE - (size_t)((at + len) % PAGE), most = len ? PATH_MAX - len : SHORT;
                ssize_t n = read_some(call, at + len, path + len, CG_MIN(page, most));

                if (n <= 0)
                        return n < 0 && errno != EFAULT ? -EPERM : -EFAULT;
                if (memchr(path + len, '\0', (size_t)n))
                        return 0;
                len += (size_t)n;
        }
        return -ENAMETOOLONG;
}

void cg_caller_link(const struct seccomp_notif *call, int fd, char link[CG_CALLER_LINK_MAX])
{
        if (fd == AT_FDCWD)
                snprintf(link, CG_CALLER_LINK_MAX, "/proc/%d/cwd", (int)call->pid);
        else
                snprintf(link, CG_CALLER_LINK_MAX, "/proc/%d/fd/%d", (int)call->pid, fd);
}

int cg_caller_open(const struct cg_notify *n, const struct seccomp_notif *call, int fd)
{
        char path[CG_CALLER_LINK_MAX];
        int copy;

        if (fd < 0 && fd != AT_FDCWD)
                return -EBADF;
        /* Not by pidfd_getfd(), which containers forbid. */
        cg_caller_link(call, fd, path);
        copy = open(path, O_PATH | O_CLOEXEC);
        if (copy < 0)
                return fd >= 0 && errno == ENOENT ? -EBADF : -EPERM;
        if (!cg_caller_waits(n, call)) {
                close(copy);
                return -ESRCH;
        }
        return copy;
}

struct cg_caller_process *cg_caller_find(struct cg_caller_process list[CG_CALLER_PROCESSES],
                                         const struct seccomp_notif *call)
{
        pid_t pid = (pid_t)call->pid;
        struct cg_caller_process p;
        size_t i = 0;

        while (i < CG_CALLER_PROCESSES - 1 && list[i].pid != pid)
                i++;
        p = list[i];
        /* The number is not given to another process while its owner can be signalled. */
        if (p.pid != pid || syscall(SYS_pidfd_send_signal, p.fd, 0, NULL, 0) < 0) {
                cg_closep_(&p.fd);
                cg_closep_(&p.folder);
                p.fd = (int)syscall(SYS_pidfd_open, pid, 0);
                p.pid = pid;
        }
        memmove(list + 1, list, i * sizeof(*list));
        list[0] = p;
        return p.fd < 0 ? NULL : list;
}

int cg_caller_take(const struct cg_notify *n, const struct seccomp_notif *call, int fd,
                   struct cg_caller_process list[CG_CALLER_PROCESSES])
{
        const struct cg_caller_process *p;
        int copy = -1;

        errno = ESRCH;
        if (list->pid == (pid_t)call->pid)
                copy = (int)syscall(SYS_pidfd_getfd, list->fd, fd, 0);
        if (copy >= 0 || errno != ESRCH)
                return copy;
        p = cg_caller_find(list, call);
        copy = p ? (int)syscall(SYS_pidfd_getfd, p->fd, fd, 0) : -1;
        if (copy >= 0 && !cg_caller_waits(n, call))
                cg_closep_(&copy);
        return copy;
}

bool cg_caller_proc_text(pid_t tid, const char *name, char *text, size_t size)
{
        char path[64];

        snprintf(path, sizeof(path), "/proc/%d/%s", (int)tid, name);
        return cg_proc_read_text(path, text, size);
}

const char *cg_caller_status(pid_t tid, const char *key, char text[CG_CALLER_STATUS_MAX])
{
        const char *p;

        cg_caller_proc_text(tid, "status", text, CG_CALLER_STATUS_MAX);
        p = strstr(text, key);
        return p ? p + strlen(key) : NULL;
}

pid_t cg_caller_process(pid_t tid)
{
        char text[CG_CALLER_STATUS_MAX];
        const char *p = cg_caller_status(tid, "\nTgid:", text);

        return p ? atoi(p) : -1;
}
