/* Starts cellgate-post: see post.h. */
#include "base/post.h"

#include <sys/socket.h>
#include "base/fd.h"
#include "base/installed.h"
#include "config.h"

int cg_post_start(const char *url, struct cg_proc *ret, int *fd, struct cg_err *err)
{
        const char *argv[] = { "cellgate-post", NULL };
        struct cg_proc_fd fds[] = { { -1, 0 }, { -1, 1 }, { 2, 2 } };
        struct cg_proc_spec spec = CG_PROC_SPEC(CG_INSTALLED(CG_LIBEXECDIR "/cellgate-post"), argv, environ,
                                                fds);
        cg_auto_fd int ours = -1, theirs = -1;
        int pair[2];

        if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
                return cg_fail_errno(err, "socketpair");
        ours = pair[0];
        fds[0].fd = fds[1].fd = theirs = pair[1];
        /* The URL may have a secret: it is no argument, which every user could read. */
        if (cg_write_all(ours, url, strlen(url), err) < 0 || cg_write_all(ours, "\n", 1, err) < 0 ||
            cg_proc_spawn(&spec, ret, err) < 0)
                return -1;
        *fd = cg_steal_fd(&ours);
        return 0;
}
