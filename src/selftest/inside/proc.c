/* /proc and /sys: the machine's settings, and other processes. Runs inside the sandbox. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "selftest/inside/attempt.h"

static enum cg_verdict canary_file(struct cg_try *t, const struct cg_attempt *a)
{
        struct cg_attempt b = { .arg = cg_canary_path(t, a->arg), .arg2 = a->arg2 };

        return cg_try_leak(t, &b);
}

static enum cg_verdict canary_memory(struct cg_try *t, const struct cg_attempt *a)
{
        const char *secret = cg_scene(t, "canary_memory");
        int fd = open(cg_canary_path(t, "mem"), O_RDONLY);
        char buf[64];
        long n = fd < 0 ? -1 : pread(fd, buf, sizeof(buf), (off_t)cg_scene_number(t, "canary_address"));

        if (n > 0 && secret && cg_has(buf, (size_t)n, secret))
                return cg_hole(t, "its memory was read");
        return cg_held(t, "%s", cg_error_or(n, "the number is another process's"));
}

/* A hidden file below @folder, a link of /proc to a process's root or working folder. */
static enum cg_verdict below(struct cg_try *t, const char *folder, bool is_root)
{
        char path[4200];
        const struct cg_attempt b = { .arg = path };

        snprintf(path, sizeof(path), "%s%s", folder, is_root ? cg_scene(t, "hidden_path") : "/secret.txt");
        return cg_try_leak(t, &b);
}

static enum cg_verdict by_canary(struct cg_try *t, const struct cg_attempt *a)
{
        return below(t, cg_canary_path(t, a->arg), strcmp(a->arg, "root") == 0);
}

/* A process's own root must show the same view. */
static enum cg_verdict by_root_of(struct cg_try *t, const struct cg_attempt *a)
{
        return below(t, a->arg, true);
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

static enum cg_verdict canary_namespace(struct cg_try *t, const struct cg_attempt *a)
{
        int fd = open(cg_canary_path(t, a->arg), O_RDONLY);

        if (fd < 0)
                return cg_held(t, "%s", cg_errno_name(errno));
        return cg_hole_if(t, cg_is_canary(t), "it was opened", "that number is another process in here");
}

static enum cg_verdict canary_link(struct cg_try *t, const struct cg_attempt *a)
{
        const char *wanted = cg_scene(t, a->arg2);
        char buf[4200];
        long n = readlink(cg_canary_path(t, a->arg), buf, sizeof(buf) - 1);

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
        return cg_held(t, "%s", cg_error_or(n, "the host's ports are not in it"));
}

/* The first of several names that exists; the list is separated by blanks. */
static enum cg_verdict open_first(struct cg_try *t, const struct cg_attempt *a)
{
        char *names = strdup(a->arg), *save = NULL;

        for (char *p = strtok_r(names, " ", &save); p; p = strtok_r(NULL, " ", &save))
                if (access(p, F_OK) == 0)
                        return cg_refused(t, open(p, O_WRONLY | O_NONBLOCK));
        return cg_held(t, "none of these is there");
}

static enum cg_verdict oom_score(struct cg_try *t, const struct cg_attempt *a)
{
        int fd = open("/proc/self/oom_score_adj", O_WRONLY);

        return cg_refused(t, cg_write_to(fd, "-1000"));
}

static const struct cg_attempt attempts[] = {
#define WRITE(name, path, who, what) \
        CG_DENY(name, "mount|landlock", cg_try_open_write, what, .bare = CG_BARE_##who, .arg = path)
#define READ(name, path, who, what) \
        CG_DENY(name, "mount|landlock", cg_try_open_read, what, .bare = CG_BARE_##who, .arg = path)
        WRITE("proc-core-pattern", "/proc/sys/kernel/core_pattern", ROOT,
              "a program that the host runs on the next crash"),
        WRITE("proc-sys-vm", "/proc/sys/vm/swappiness", ROOT, "the machine's settings"),
        WRITE("proc-sys-net", "/proc/sys/net/ipv4/ip_forward", ROOT, "the network's settings"),
        WRITE("proc-irq", "/proc/irq/default_smp_affinity", ROOT, "interrupts"),
        WRITE("system-write", "/usr/lib/os-release", ROOT, "overwriting a file of the system"),
        WRITE("init-oom-score", "/proc/1/oom_score_adj", MACHINE,
              "making pid 1 the first victim of the OOM killer"),
        WRITE("init-core-filter", "/proc/1/coredump_filter", MACHINE, "the contents of pid 1's core dump"),
        WRITE("init-timer-slack", "/proc/1/timerslack_ns", MACHINE, "the timer slack of pid 1"),
        WRITE("init-autogroup", "/proc/1/autogroup", MACHINE, "the priority of pid 1's session"),
        WRITE("init-clear-refs", "/proc/1/clear_refs", MACHINE, "the state of pid 1's pages"),
        WRITE("init-comm", "/proc/1/comm", MACHINE, "the name of pid 1"),
        WRITE("proc-modprobe", "/proc/sys/kernel/modprobe", MACHINE,
              "a program that the host runs for the next module"),
        WRITE("proc-sysrq", "/proc/sysrq-trigger", MACHINE, "a crash or restart at once"),
        READ("proc-kcore", "/proc/kcore", MACHINE, "all of the machine's memory"),
        READ("proc-kmsg", "/proc/kmsg", MACHINE, "the kernel's messages"),
        READ("proc-keys", "/proc/keys", MACHINE, "names of keys"),
        READ("proc-timers", "/proc/timer_list", MACHINE, "other users' timers"),
        READ("proc-slabs", "/proc/slabinfo", MACHINE, "the kernel's allocations"),
        READ("proc-vmalloc", "/proc/vmallocinfo", MACHINE, "addresses in the kernel"),
        READ("proc-pages", "/proc/kpageflags", MACHINE, "what each page of the memory is used for"),
        READ("sys-dmi", "/sys/class/dmi/id/product_uuid", MACHINE, "the machine's serial numbers"),
        READ("proc-init-environ", "/proc/1/environ", MACHINE, "the environment of pid 1"),
        READ("proc-init-mem", "/proc/1/maps", MACHINE, "the memory map of pid 1"),
#undef READ
#undef WRITE
        CG_DENY("proc-init-root", "mount|landlock", by_root_of, "a hidden file by pid 1's root",
                .bare = CG_BARE_MACHINE, .arg = "/proc/1/root"),
        CG_DENY("proc-self-root", "mount|landlock", by_root_of, "a hidden file by /proc/self/root",
                .arg = "/proc/self/root"),
        CG_DENY("proc-task-root", "mount|landlock", by_root_of, "the same by a thread's root",
                .arg = "/proc/thread-self/root"),
        CG_DENY("proc-environ", "pid|landlock", canary_file, "the environment of a process outside",
                .arg = "environ", .arg2 = "secret"),
        CG_DENY("proc-cmdline", "pid|landlock", canary_file, "the arguments of a process outside",
                .arg = "cmdline", .arg2 = "canary_argument"),
        CG_DENY("proc-mem", "pid|landlock", canary_memory, "the memory of a process outside"),
        CG_DENY("proc-fd", "pid|landlock", canary_file, "an open file of a process outside", .arg = "fd/60",
                .arg2 = "canary_content"),
        CG_DENY("proc-root", "pid|landlock", by_canary, "a hidden file by the root of a process outside",
                .arg = "root"),
        CG_DENY("proc-cwd", "pid|landlock", by_canary, "a hidden file by the folder of a process outside",
                .arg = "cwd"),
        CG_DENY("proc-exe", "pid|landlock", canary_link, "which program runs outside", .arg = "exe",
                .arg2 = "canary_exe"),
        CG_DENY("proc-ns-net", "pid|landlock", canary_namespace, "the network of a process outside",
                .arg = "ns/net"),
        CG_DENY("proc-ns-mnt", "pid|landlock", canary_namespace, "the mounts of a process outside",
                .arg = "ns/mnt"),
        CG_DENY("proc-scan-environ", "pid|landlock", scan, "the environment of any process", .arg = "environ",
                .arg2 = "canary_environ"),
        CG_DENY("proc-scan-cmdline", "pid|landlock", scan, "the arguments of any process", .arg = "cmdline",
                .arg2 = "canary_argument"),
        CG_DENY("proc-net-tcp", "net|seccomp|broker", host_ports, "the host's listening ports",
                .arg = "/proc/net/tcp"),
        CG_DENY("proc-oom-score", "mount|capabilities", oom_score, "a process that runs out of memory last",
                .bare = CG_BARE_MACHINE),
        CG_DENY("sys-write", "mount|landlock", open_first, "the machine's state", .bare = CG_BARE_ROOT,
                .arg = "/sys/kernel/uevent_helper /sys/power/state /sys/kernel/mm/transparent_hugepage/enabled "
                       "/sys/kernel/profiling /sys/module/kernel/parameters/panic"),
        CG_DENY("sys-cgroup-escape", "mount|landlock", open_first,
                "a program that the host runs for a cgroup", .bare = CG_BARE_MACHINE,
                .arg = "/sys/fs/cgroup/release_agent /sys/fs/cgroup/memory/release_agent "
                       "/sys/fs/cgroup/pids/release_agent /sys/fs/cgroup/cpu/release_agent /sys/fs/cgroup/cgroup.procs"),
        CG_DENY("sys-tracing", "mount|landlock", cg_try_list, "the kernel's tracing", .bare = CG_BARE_MACHINE,
                .arg = "/sys/kernel/tracing"),
        CG_DENY("sys-debug", "mount|landlock", cg_try_list, "the kernel's debugging files",
                .bare = CG_BARE_MACHINE, .arg = "/sys/kernel/debug"),
        CG_DENY("sys-interfaces", "net|seccomp|broker", cg_try_list, "the host's network interfaces",
                .bare = CG_BARE_MACHINE, .arg = "/sys/class/net", .arg2 = "lo"),
        CG_ALLOW("proc-own", cg_try_readable, "a process's own /proc can be read",
                 .arg = "/proc/self/status"),
};

CG_TABLE(proc, "/proc and /sys");
