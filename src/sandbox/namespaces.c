/* The small things that fresh namespaces need before anything works in them. Runs in init. */
#include "sandbox/steps.h"

#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/util.h"

static int write_file(const char *path, const char *text, struct cg_err *err)
{
        cg_auto_fd int fd = open(path, O_WRONLY | O_CLOEXEC);

        if (fd < 0 || write(fd, text, strlen(text)) < 0)
                return cg_fail_errno(err, "sandbox: writing %s", path);
        return 0;
}

/*
 * The caller's own ids, to themselves: files belong to whom they belonged before, everybody else is nobody. Without
 * setgroups nothing can leave a group, either: a group may be what denies access.
 */
int cg_ns_map_ids(uid_t uid, gid_t gid, struct cg_err *err)
{
        char text[64];

        if (write_file("/proc/self/setgroups", "deny", err) < 0)
                return -1;
        snprintf(text, sizeof(text), "%u %u 1", uid, uid);
        if (write_file("/proc/self/uid_map", text, err) < 0)
                return -1;
        snprintf(text, sizeof(text), "%u %u 1", gid, gid);
        return write_file("/proc/self/gid_map", text, err);
}

/* So that servers and clients inside find each other at 127.0.0.1 and ::1. There is no other interface. */
int cg_ns_loopback_up(struct cg_err *err)
{
        cg_auto_fd int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
        struct ifreq req = {.ifr_flags = IFF_UP};

        memcpy(req.ifr_name, "lo", sizeof("lo"));
        if (fd < 0 || ioctl(fd, SIOCSIFFLAGS, &req) < 0)
                return cg_fail_errno(err, "sandbox: loopback interface");
        return 0;
}
