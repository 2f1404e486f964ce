/* Devices and terminals. Runs inside the sandbox. */
#include <errno.h>
#include <fcntl.h>
#include <pty.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "selftest/inside/attempt.h"

static enum cg_verdict make_node(struct cg_try *t, const struct cg_attempt *a)
{
        int r = mknod("node", (mode_t)(a->call[0] | 0600),
                      makedev((unsigned)a->call[1], (unsigned)a->call[2]));
        int opened;

        if (r < 0)
                return cg_refused(t, r);
        opened = open("node", O_RDONLY | O_NONBLOCK);
        unlink("node");
        return cg_hole(t, opened < 0 ? "it was made" : "it was made and opened");
}

static enum cg_verdict disks(struct cg_try *t, const struct cg_attempt *a)
{
        char buf[16384], *save = NULL, name[64], path[80];
        long n = cg_slurp("/proc/partitions", buf, sizeof(buf));
        int tried = 0, fd;

        for (char *line = n < 0 ? NULL : strtok_r(buf, "\n", &save); line;
             line = strtok_r(NULL, "\n", &save)) {
                if (sscanf(line, "%*u %*u %*u %63s", name) != 1)
                        continue;
                tried++;
                snprintf(path, sizeof(path), "/dev/%s", name);
                fd = open(path, O_RDONLY | O_NONBLOCK);
                if (fd >= 0)
                        return cg_hole(t, "%s can be read", path);
        }
        return cg_held(t, "%d disks, none can be opened", tried);
}

/* Standard input is a host's terminal: text pushed into it would be executed there later. */
static enum cg_verdict host_terminal(struct cg_try *t, const struct cg_attempt *a)
{
        char c = ' ';

        if (!isatty(0))
                return cg_skip(t, "standard input is not a terminal");
        return cg_filtered(t, ioctl(0, a->call[0], &c));
}

/* Terminals of other programs, by their number. Only those made inside exist. */
static enum cg_verdict host_pts(struct cg_try *t, const struct cg_attempt *a)
{
        const char *path = cg_scene(t, "terminal");

        if (!path)
                return cg_skip(t, "there is no terminal outside");
        return cg_refused(t, open(path, O_RDWR | O_NOCTTY | O_NONBLOCK));
}

static enum cg_verdict own_terminal(struct cg_try *t, const struct cg_attempt *a)
{
        int master, slave;
        char byte = 0;

        if (openpty(&master, &slave, NULL, NULL, NULL) < 0 || write(slave, "y", 1) != 1 ||
            read(master, &byte, 1) != 1)
                return cg_fails(t, "%s", cg_errno_name(errno));
        return cg_works(t, "%s", "");
}

static enum cg_verdict null_works(struct cg_try *t, const struct cg_attempt *a)
{
        return cg_possible(t, cg_append(a->arg));
}

static const struct cg_attempt attempts[] = {
        CG_DENY("mknod-memory", "capabilities", make_node, "a node for the machine's memory",
                .bare = CG_BARE_ROOT, .call = { S_IFCHR, 1, 1 }),
        CG_DENY("mknod-null", "capabilities|landlock", make_node, "any character device",
                .bare = CG_BARE_ROOT, .call = { S_IFCHR, 1, 3 }),
        CG_DENY("mknod-disk", "capabilities", make_node, "a node for a disk", .bare = CG_BARE_ROOT,
                .call = { S_IFBLK, 8, 0 }),
        CG_DENY("dev-nodes", "mount|landlock|broker", cg_try_list, "devices that programs do not need",
                .arg = "/dev",
                .arg2 = "null zero full random urandom tty fd stdin stdout stderr ptmx pts shm"),
        CG_DENY("dev-disks", "mount|landlock|broker", disks, "the host's disks", .bare = CG_BARE_MACHINE),
#define DEVICE(name, path, what) \
        CG_DENY(name, "mount|landlock", cg_try_open_write, what, .bare = CG_BARE_MACHINE, .arg = path)
        DEVICE("dev-mem", "/dev/mem", "the machine's memory"),
        DEVICE("dev-kmsg", "/dev/kmsg", "the kernel's log"),
        DEVICE("dev-fuse", "/dev/fuse", "file systems of its own"),
        DEVICE("dev-kvm", "/dev/kvm", "virtual machines"),
        DEVICE("dev-tun", "/dev/net/tun", "network devices"),
        DEVICE("dev-vsock", "/dev/vsock", "the hypervisor's socket device"),
        DEVICE("dev-loop", "/dev/loop-control", "loop devices"),
#undef DEVICE
        CG_DENY("dev-create", "mount|landlock", cg_try_create, "a file in /dev", .bare = CG_BARE_ROOT,
                .arg = "/dev/cellgate-selftest"),
        CG_DENY("tty-inject", "seccomp", host_terminal, "typing into the caller's terminal",
                .bare = CG_BARE_MACHINE, .in = CG_IN_COMMAND, .call = { TIOCSTI }),
        CG_DENY("tty-paste", "seccomp", host_terminal, "TIOCLINUX on the caller's terminal",
                .bare = CG_BARE_MACHINE, .in = CG_IN_COMMAND, .call = { TIOCLINUX }),
        CG_DENY("tty-controlling", "session", cg_try_open_write, "the caller's terminal by /dev/tty",
                .in = CG_IN_COMMAND, .arg = "/dev/tty", .also = { ENXIO }),
        CG_DENY("tty-of-others", "mount|landlock|broker", host_pts,
                "another program's terminal by its number"),
        CG_ALLOW("dev-null", null_works, "/dev/null can be written", .arg = "/dev/null"),
        CG_ALLOW("dev-urandom", cg_try_readable, "/dev/urandom can be read", .arg = "/dev/urandom"),
        CG_ALLOW("own-terminal", own_terminal, "a terminal of its own"),
};

CG_TABLE(devices, "devices and terminals");
