/* See exec.h. Runs in init; everything in a call comes from inside the sandbox. */
#include "sandbox/notify/exec.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/util.h"
#include "sandbox/notify/caller.h"
#include "sandbox/notify/mediate_int.h"
#include "sandbox/notify/notify.h"
#include "sandbox/notify/reply.h"

/*
 * Opens (O_PATH) the file that the call would execute, as the caller would find it. @path: the text
 * that the caller gave. A descriptor, or -errno: what the call would fail with anyway, or -EACCES
 * where init cannot find out.
 */
static int open_program(struct cg_notify *n, const struct seccomp_notif *call, char path[PATH_MAX])
{
        struct cg_med_call c = {
                .mediator = n->mediator, .notify = n, .notif = call, .tid = (pid_t)call->pid
        };
        bool at = call->data.nr == SYS_execveat;
        int flags = at ? (int)call->data.args[4] : 0, dirfd = at ? (int)call->data.args[0] : AT_FDCWD;
        int r = cg_caller_read_path(call, call->data.args[at ? 1 : 0], path);
        cg_auto_fd int base = -1, fd = -1;
        struct stat st;

        if (r < 0)
                path[0] = '\0';
        if (r < 0)
                return r;
        if (path[0] != '/') {
                base = cg_med_open_dirfd(&c, dirfd);
                if (base < 0)
                        return -EACCES;
        }
        if (path[0]) {
                fd = cg_med_resolve(&c, base, path, true);
                if (fd < 0)
                        return -errno;
        } else if (at && flags & AT_EMPTY_PATH) {
                fd = cg_steal_fd(&base);
        } else {
                return -ENOENT;
        }
        if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || !(st.st_mode & 0111))
                return -EACCES;
        return cg_steal_fd(&fd);
}

void cg_exec_call(struct cg_notify *n, const struct seccomp_notif *call)
{
        struct seccomp_notif same = *call;
        char path[PATH_MAX], real[PATH_MAX];
        cg_auto_fd int fd = open_program(n, call, path);

        /* A search through PATH finds most names missing. */
        if (fd == -ENOENT || fd == -EFAULT || fd == -ENAMETOOLONG) {
                cg_reply_result(n, call, fd);
                return;
        }
        /* A search finds /bin/ls after /usr/bin/ls: one report, although the addresses differ. */
        memset(same.data.args, 0, sizeof(same.data.args));
        real[0] = '\0';
        if (fd >= 0)
                cg_med_fd_path(fd, real);
        cg_reply_deny(n, &same, EPERM, real[0] ? real : path);
}
