/* /proc and /sys: the machine's settings, and other processes. Runs inside the sandbox. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "selftest/inside/attempt.h"

/*
 * The canary is a process of the same user outside. Inside, its number may be another process's, so
 * its command line is compared.
 */
static const char *canary_path(const struct cg_try *t, const char *name)
{
        static char path[64];

        snprintf(path, sizeof(path), "/proc/%lu/%s", cg_scene_number(t, "canary_pid"), name);
        return path;
}

static enum cg_verdict canary_file(struct cg_try *t, const struct cg_attempt *a)
{
        struct cg_attempt b = { .arg = canary_path(t, a->arg), .arg2 = a->arg2 };

        return cg_try_leak(t, &b);
}

static enum cg_verdict canary_memory(struct cg_try *t, const struct cg_attempt *a)
{
        const char *secret = cg_scene(t, "canary_memory");
        int fd = open(canary_path(t, "mem"), O_RDONLY);
        char buf[64];
        long n = fd < 0 ? -1 : pread(fd, buf, sizeof(buf), (off_t)cg_scene_number(t, "canary_address"));

        if (n > 0 && secret && cg_has(buf, (size_t)n, secret))
                return cg_hole(t, "its memory was read");
        return n < 0 ? cg_held(t, "%s", cg_errno_name(errno))
                     : cg_held(t, "what is there is another process");
}

/* Opens a file that is hidden inside by the canary's root or working folder. */
static enum cg_verdict by_canary(struct cg_try *t, const struct cg_attempt *a)
{
        char path[4200];
        struct cg_attempt b = { .arg = path, .arg2 = "hidden_content" };

        snprintf(path, sizeof(path), "%s%s", canary_path(t, a->arg),
                 strcmp(a->arg, "root") ? "/secret.txt" : cg_scene(t, "hidden_path"));
        return cg_try_leak(t, &b);
}

/* By a process's own root, which must show the same view. */
static enum cg_verdict by_root_of(struct cg_try *t, const struct cg_attempt *a)
{
        char path[4200];
        struct cg_attempt b = { .arg = path, .arg2 = "hidden_content" };

        snprintf(path, sizeof(path), "%s%s", a->arg, cg_scene(t, "hidden_path"));
        return cg_try_leak(t, &b);
}

/* All visible processes. */
static enum cg_verdict scan(struct cg_try *t, const struct cg_attempt *a)
{
        const char *secret = cg_scene(t, a->arg2);
        DIR *d = opendir("/proc");
        struct dirent *e;
        char path[300], buf[32768];
        int seen = 0;

        while (d && (e = readdir(d))) {
                long n;

                if (e->d_name[0] < '1' || e->d_name[0] > '9')
                        continue;
                seen++;
                snprintf(path, sizeof(path), "/proc/%s/%s", e->d_name, a->arg);
                n = cg_slurp(path, buf, sizeof(buf));
                if (n > 0 && secret && cg_has(buf, (size_t)n, secret))
                        return cg_hole(t, "%s has it", path);
        }
        if (d)
                closedir(d);
        return cg_held(t, "%d processes are there, none of them from outside", seen);
}

static bool is_canary(const struct cg_try *t)
{
        const char *wanted = cg_scene(t, "canary_argument");
        char buf[4096];
        long n = cg_slurp(canary_path(t, "cmdline"), buf, sizeof(buf));

        return n > 0 && wanted && cg_has(buf, (size_t)n, wanted);
}

static enum cg_verdict canary_namespace(struct cg_try *t, const struct cg_attempt *a)
{
        int fd = open(canary_path(t, a->arg), O_RDONLY);

        if (fd < 0)
                return cg_held(t, "%s", cg_errno_name(errno));
        return is_canary(t) ? cg_hole(t, "it was opened")
                            : cg_held(t, "that number is another process in here");
}

static enum cg_verdict canary_link(struct cg_try *t, const struct cg_attempt *a)
{
        const char *wanted = cg_scene(t, a->arg2);
        char buf[4200];
        long n = readlink(canary_path(t, a->arg), buf, sizeof(buf) - 1);

        if (n < 0)
                return cg_held(t, "%s", cg_errno_name(errno));
        if (wanted && cg_has(buf, (size_t)n, wanted))
                return cg_hole(t, "its link can be read");
        return cg_held(t, "another process's");
}

/* The host's sockets, recognized by a listener with a known port. */
static enum cg_verdict host_ports(struct cg_try *t, const struct cg_attempt *a)
{
        char buf[65536], wanted[16];
        long n = cg_slurp(a->arg, buf, sizeof(buf));

        snprintf(wanted, sizeof(wanted), ":%04lX ", cg_scene_number(t, "port_denied"));
        if (n > 0 && cg_has(buf, (size_t)n, wanted))
                return cg_hole(t, "the host's listening ports are shown");
        return n < 0 ? cg_held(t, "%s", cg_errno_name(errno)) : cg_held(t, "the host's ports are not in it");
}

/* The first of several names that exists; the list is separated by blanks. */
static enum cg_verdict open_first(struct cg_try *t, const struct cg_attempt *a)
{
        char *names = strdup(a->arg), *save = NULL;

        for (char *p = strtok_r(names, " ", &save); p; p = strtok_r(NULL, " ", &save)) {
                if (access(p, F_OK) == 0)
                        return cg_refused(t, open(p, O_WRONLY | O_NONBLOCK));
        }
        return cg_held(t, "none of these is there");
}

/* A folder that must be empty or missing. */
static enum cg_verdict is_empty(struct cg_try *t, const struct cg_attempt *a)
{
        DIR *d = opendir(a->arg);
        struct dirent *e;

        if (!d)
                return cg_held(t, "%s", cg_errno_name(errno));
        while ((e = readdir(d))) {
                if (e->d_name[0] != '.')
                        return cg_hole(t, "%.100s is there", e->d_name);
        }
        return cg_held(t, "empty");
}

static enum cg_verdict only_loopback(struct cg_try *t, const struct cg_attempt *a)
{
        DIR *d = opendir("/sys/class/net");
        struct dirent *e;

        while (d && (e = readdir(d))) {
                if (e->d_name[0] != '.' && strcmp(e->d_name, "lo") != 0)
                        return cg_hole(t, "%.100s is there", e->d_name);
        }
        return cg_held(t, d ? "only lo" : "there is no /sys/class/net");
}

static enum cg_verdict oom_score(struct cg_try *t, const struct cg_attempt *a)
{
        int fd = open("/proc/self/oom_score_adj", O_WRONLY);

        return cg_refused(t, fd < 0 ? -1 : write(fd, "-1000", 5));
}

static enum cg_verdict own_proc(struct cg_try *t, const struct cg_attempt *a)
{
        char buf[4096];

        return cg_slurp(a->arg, buf, sizeof(buf)) > 0 ? cg_works(t, "%s", "")
                                                      : cg_fails(t, "%s", cg_errno_name(errno));
}

static const struct cg_attempt attempts[] = {
#define WRITE(name, path, what) \
        { \
                name, "mount|landlock", false, CG_BARE_ROOT, 0, cg_try_open_write, what, path, NULL, \
                { \
                        0 \
                } \
        }
        WRITE("proc-core-pattern", "/proc/sys/kernel/core_pattern",
              "a program that the host runs on the next crash"),
        WRITE("proc-sys-vm", "/proc/sys/vm/swappiness", "the machine's settings"),
        WRITE("proc-sys-net", "/proc/sys/net/ipv4/ip_forward", "the network's settings"),
        WRITE("proc-irq", "/proc/irq/default_smp_affinity", "interrupts"),
        WRITE("system-write", "/usr/lib/os-release", "overwriting a file of the system"),
#undef WRITE
#define WRITE(name, path, what) \
        { \
                name, "mount|landlock", false, CG_BARE_MACHINE, 0, cg_try_open_write, what, path, NULL, \
                { \
                        0 \
                } \
        }
        WRITE("init-oom-score", "/proc/1/oom_score_adj", "that pid 1 is ended first when memory is short"),
        WRITE("init-core-filter", "/proc/1/coredump_filter", "what pid 1 leaves in a core dump"),
        WRITE("init-timer-slack", "/proc/1/timerslack_ns", "how late pid 1 is woken"),
        WRITE("init-autogroup", "/proc/1/autogroup", "the priority of pid 1's session"),
        WRITE("init-clear-refs", "/proc/1/clear_refs", "the state of pid 1's pages"),
        WRITE("init-comm", "/proc/1/comm", "the name of pid 1"),
        WRITE("proc-modprobe", "/proc/sys/kernel/modprobe",
              "a program that the host runs for the next module"),
        WRITE("proc-sysrq", "/proc/sysrq-trigger", "a crash or restart at once"),
#undef WRITE
#define READ(name, path, who, what) \
        { \
                name, "mount|landlock", false, CG_BARE_##who, 0, cg_try_open_read, what, path, NULL, \
                { \
                        0 \
                } \
        }
        READ("proc-kcore", "/proc/kcore", MACHINE, "all of the machine's memory"),
        READ("proc-kmsg", "/proc/kmsg", MACHINE, "the kernel's messages"),
        READ("proc-keys", "/proc/keys", MACHINE, "names of keys"),
        READ("proc-timers", "/proc/timer_list", MACHINE, "other users' timers"),
        READ("proc-slabs", "/proc/slabinfo", MACHINE, "the kernel's allocations"),
        READ("proc-vmalloc", "/proc/vmallocinfo", MACHINE, "addresses in the kernel"),
        READ("sys-dmi", "/sys/class/dmi/id/product_uuid", MACHINE, "the machine's serial numbers"),
        READ("proc-init-environ", "/proc/1/environ", MACHINE, "the environment of pid 1"),
        READ("proc-init-mem", "/proc/1/maps", MACHINE, "the memory map of pid 1"),
#undef READ
        { "proc-init-root",
          "mount|landlock",
          false,
          CG_BARE_MACHINE,
          0,
          by_root_of,
          "a hidden file by pid 1's root",
          "/proc/1/root",
          NULL,
          { 0 } },
        { "proc-self-root",
          "mount|landlock",
          false,
          CG_BARE_ALL,
          0,
          by_root_of,
          "a hidden file by /proc/self/root",
          "/proc/self/root",
          NULL,
          { 0 } },
        { "proc-task-root",
          "mount|landlock",
          false,
          CG_BARE_ALL,
          0,
          by_root_of,
          "the same by a thread's root",
          "/proc/thread-self/root",
          NULL,
          { 0 } },
        { "proc-environ",
          "pid|landlock",
          false,
          CG_BARE_ALL,
          0,
          canary_file,
          "the environment of a process outside",
          "environ",
          "secret",
          { 0 } },
        { "proc-cmdline",
          "pid|landlock",
          false,
          CG_BARE_ALL,
          0,
          canary_file,
          "the arguments of a process outside",
          "cmdline",
          "canary_argument",
          { 0 } },
        { "proc-mem",
          "pid|landlock",
          false,
          CG_BARE_ALL,
          0,
          canary_memory,
          "the memory of a process outside",
          NULL,
          NULL,
          { 0 } },
        { "proc-fd",
          "pid|landlock",
          false,
          CG_BARE_ALL,
          0,
          canary_file,
          "an open file of a process outside",
          "fd/60",
          "canary_content",
          { 0 } },
        { "proc-root",
          "pid|landlock",
          false,
          CG_BARE_ALL,
          0,
          by_canary,
          "a hidden file by the root of a process outside",
          "root",
          NULL,
          { 0 } },
        { "proc-cwd",
          "pid|landlock",
          false,
          CG_BARE_ALL,
          0,
          by_canary,
          "a hidden file by the folder of a process outside",
          "cwd",
          NULL,
          { 0 } },
        { "proc-exe",
          "pid|landlock",
          false,
          CG_BARE_ALL,
          0,
          canary_link,
          "which program runs outside",
          "exe",
          "canary_exe",
          { 0 } },
        { "proc-ns-net",
          "pid|landlock",
          false,
          CG_BARE_ALL,
          0,
          canary_namespace,
          "the network of a process outside",
          "ns/net",
          NULL,
          { 0 } },
        { "proc-ns-mnt",
          "pid|landlock",
          false,
          CG_BARE_ALL,
          0,
          canary_namespace,
          "the mounts of a process outside",
          "ns/mnt",
          NULL,
          { 0 } },
        { "proc-scan-environ",
          "pid|landlock",
          false,
          CG_BARE_ALL,
          0,
          scan,
          "the environment of any process",
          "environ",
          "canary_environ",
          { 0 } },
        { "proc-scan-cmdline",
          "pid|landlock",
          false,
          CG_BARE_ALL,
          0,
          scan,
          "the arguments of any process",
          "cmdline",
          "canary_argument",
          { 0 } },
        { "proc-net-tcp",
          "net|seccomp|broker",
          false,
          CG_BARE_ALL,
          0,
          host_ports,
          "the host's listening ports",
          "/proc/net/tcp",
          NULL,
          { 0 } },
        { "proc-oom-score",
          "mount|capabilities",
          false,
          CG_BARE_MACHINE,
          0,
          oom_score,
          "a process that runs out of memory last",
          NULL,
          NULL,
          { 0 } },
        { "sys-write",
          "mount|landlock",
          false,
          CG_BARE_ROOT,
          0,
          open_first,
          "the machine's state",
          "/sys/kernel/uevent_helper /sys/power/state /sys/kernel/mm/transparent_hugepage/enabled /sys/kernel/profiling /sys/module/kernel/parameters/panic",
          NULL,
          { 0 } },
        { "sys-cgroup-escape",
          "mount|landlock",
          false,
          CG_BARE_MACHINE,
          0,
          open_first,
          "a program that the host runs for a cgroup",
          "/sys/fs/cgroup/release_agent /sys/fs/cgroup/memory/release_agent /sys/fs/cgroup/pids/release_agent "
          "/sys/fs/cgroup/cpu/release_agent /sys/fs/cgroup/cgroup.procs",
          NULL,
          { 0 } },
        { "sys-tracing",
          "mount|landlock",
          false,
          CG_BARE_MACHINE,
          0,
          is_empty,
          "the kernel's tracing",
          "/sys/kernel/tracing",
          NULL,
          { 0 } },
        { "sys-debug",
          "mount|landlock",
          false,
          CG_BARE_MACHINE,
          0,
          is_empty,
          "the kernel's debugging files",
          "/sys/kernel/debug",
          NULL,
          { 0 } },
        { "sys-interfaces",
          "net|seccomp|broker",
          false,
          CG_BARE_MACHINE,
          0,
          only_loopback,
          "the host's network interfaces",
          NULL,
          NULL,
          { 0 } },
        { "proc-own",
          "",
          true,
          0,
          0,
          own_proc,
          "a process's own /proc can be read",
          "/proc/self/status",
          NULL,
          { 0 } },
};

CG_TABLE(proc, "/proc and /sys");
