/* Devices and terminals. Runs inside the sandbox. */
#include <dirent.h>
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
        long opened = 0;

        if (r == 0) {
                opened = open("node", O_RDONLY | O_NONBLOCK);
                unlink("node");
        }
        return r < 0 ? cg_refused(t, r) : cg_hole(t, opened < 0 ? "it was made" : "it was made and opened");
}

/* Entries of /dev other than the harmless devices. */
static enum cg_verdict unknown_nodes(struct cg_try *t, const struct cg_attempt *a)
{
        static const char known[] =
                " . .. null zero full random urandom tty fd stdin stdout stderr ptmx pts shm ";
        DIR *d = opendir("/dev");
        struct dirent *e;
        char word[300];

        while (d && (e = readdir(d))) {
                snprintf(word, sizeof(word), " %s ", e->d_name);
                if (!strstr(known, word))
                        return cg_hole(t, "/dev/%.100s is there", e->d_name);
        }
        return cg_held(t, "only the harmless ones");
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

/*
 * Standard input is a terminal of the host: text pushed into it would be executed there after the
 * sandbox's end.
 */
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

static enum cg_verdict controlling(struct cg_try *t, const struct cg_attempt *a)
{
        int fd = open("/dev/tty", O_RDWR | O_NOCTTY | O_NONBLOCK);

        return fd < 0 ? cg_held(t, "%s", cg_errno_name(errno))
                      : cg_hole(t, "the caller's terminal was opened");
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

static enum cg_verdict device_works(struct cg_try *t, const struct cg_attempt *a)
{
        int fd = open(a->arg, (int)a->call[0]);
        char byte = 0;

        return cg_possible(t, fd < 0                   ? -1
                              : a->call[0] == O_RDONLY ? read(fd, &byte, 1)
                                                       : write(fd, &byte, 1));
}

static const struct cg_attempt attempts[] = {
        { "mknod-memory",
          "capabilities",
          false,
          CG_BARE_ROOT,
          0,
          make_node,
          "a node for the machine's memory",
          NULL,
          NULL,
          { S_IFCHR, 1, 1 } },
        { "mknod-null",
          "capabilities|landlock",
          false,
          CG_BARE_ROOT,
          0,
          make_node,
          "any character device",
          NULL,
          NULL,
          { S_IFCHR, 1, 3 } },
        { "mknod-disk",
          "capabilities",
          false,
          CG_BARE_ROOT,
          0,
          make_node,
          "a node for a disk",
          NULL,
          NULL,
          { S_IFBLK, 8, 0 } },
        { "dev-nodes",
          "mount|landlock|broker",
          false,
          CG_BARE_ALL,
          0,
          unknown_nodes,
          "devices that programs do not need",
          NULL,
          NULL,
          { 0 } },
        { "dev-disks",
          "mount|landlock|broker",
          false,
          CG_BARE_MACHINE,
          0,
          disks,
          "the host's disks",
          NULL,
          NULL,
          { 0 } },
#define DEVICE(name, who, path, what) \
        { \
                name, "mount|landlock", false, CG_BARE_##who, 0, cg_try_open_write, what, path, NULL, \
                { \
                        0 \
                } \
        }
        DEVICE("dev-mem", MACHINE, "/dev/mem", "the machine's memory"),
        DEVICE("dev-kmsg", MACHINE, "/dev/kmsg", "the kernel's log"),
        DEVICE("dev-fuse", MACHINE, "/dev/fuse", "file systems of its own"),
        DEVICE("dev-kvm", MACHINE, "/dev/kvm", "virtual machines"),
        DEVICE("dev-tun", MACHINE, "/dev/net/tun", "network devices"),
        DEVICE("dev-vsock", MACHINE, "/dev/vsock", "the hypervisor's socket device"),
        DEVICE("dev-loop", MACHINE, "/dev/loop-control", "loop devices"),
#undef DEVICE
        { "dev-create",
          "mount|landlock",
          false,
          CG_BARE_ROOT,
          0,
          cg_try_create,
          "a file in /dev",
          "/dev/cellgate-selftest",
          NULL,
          { 0 } },
        { "tty-inject",
          "seccomp",
          false,
          CG_BARE_MACHINE,
          CG_IN_COMMAND,
          host_terminal,
          "typing into the caller's terminal",
          NULL,
          NULL,
          { TIOCSTI } },
        { "tty-paste",
          "seccomp",
          false,
          CG_BARE_MACHINE,
          CG_IN_COMMAND,
          host_terminal,
          "TIOCLINUX on the caller's terminal",
          NULL,
          NULL,
          { TIOCLINUX } },
        { "tty-controlling",
          "session",
          false,
          CG_BARE_ALL,
          CG_IN_COMMAND,
          controlling,
          "the caller's terminal by /dev/tty",
          NULL,
          NULL,
          { 0 } },
        { "tty-of-others",
          "mount|landlock|broker",
          false,
          CG_BARE_ALL,
          0,
          host_pts,
          "another program's terminal by its number",
          NULL,
          NULL,
          { 0 } },
        { "dev-null",
          "",
          true,
          0,
          0,
          device_works,
          "/dev/null can be written",
          "/dev/null",
          NULL,
          { O_WRONLY } },
        { "dev-urandom",
          "",
          true,
          0,
          0,
          device_works,
          "/dev/urandom can be read",
          "/dev/urandom",
          NULL,
          { O_RDONLY } },
        { "own-terminal", "", true, 0, 0, own_terminal, "a terminal of its own", NULL, NULL, { 0 } },
};

CG_TABLE(devices, "devices and terminals");
