/* The checks of `cellgate doctor`: each makes one primitive, as a sandbox would, in a child. */
#include "cli/sandbox/doctor.h"

#include <linux/filter.h>
#include <linux/landlock.h>
#include <linux/sched.h>
#include <linux/seccomp.h>
#include <net/if.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>

#include "base/installed.h"
#include "base/util.h"
#include "config.h"
#include "sandbox/apparmor.h"
#include "sandbox/cgroup.h"
#include "sandbox/mountfd.h"
#include "sandbox/plan.h"
#include "sandbox/steps.h"

/* ---- helpers */

static bool reads_as(const char *path, const char *text)
{
        char buf[16] = "";
        cg_auto_fd int fd = open(path, O_RDONLY | O_CLOEXEC);

        return fd >= 0 && read(fd, buf, sizeof(buf) - 1) > 0 && !strncmp(buf, text, strlen(text));
}

/* 0, or the errno of a call that has failed. */
static int error_of(int r)
{
        return r < 0 ? errno : 0;
}

static int enter(int flags)
{
        uid_t uid = geteuid();
        gid_t gid = getegid();
        struct cg_err err;

        if (unshare(flags | CLONE_NEWUSER) < 0)
                return errno;
        return cg_ns_map_ids(uid, gid, &err) < 0 ? err.sys_errno : 0;
}

/* ---- checks */

static int check_users(char *note, size_t size)
{
        return enter(0);
}

/* In a chroot to a folder that is no mount point no mount is at /. */
static bool in_chroot(void)
{
        FILE *f = fopen("/proc/self/mountinfo", "re");
        char line[8192], at[4096];
        bool found = !f;

        while (!found && fgets(line, sizeof(line), f))
                found = sscanf(line, "%*s %*s %*s %*s %4095s", at) == 1 && strcmp(at, "/") == 0;
        if (f)
                fclose(f);
        return !found;
}

static const char *advise_users(void)
{
        if (in_chroot())
                return "this is a chroot, in which Linux allows no user namespaces: enter the folder by pivot_root, as containers do";
        if (cg_apparmor_restricts())
                return "AppArmor forbids them to programs without a profile: run once " CG_APPARMOR_FIX;
        if (reads_as("/proc/sys/kernel/unprivileged_userns_clone", "0"))
                return "as root: sysctl kernel.unprivileged_userns_clone=1";
        if (reads_as("/proc/sys/user/max_user_namespaces", "0"))
                return "as root: sysctl user.max_user_namespaces=15000 (inside another sandbox it cannot be changed)";
        return "in a container: allow user namespaces (its seccomp profile denies unshare or clone); in a chroot: enter it by "
               "pivot_root instead; is CONFIG_USER_NS in the kernel?";
}

static int check_namespaces(char *note, size_t size)
{
        static const struct {
                int flag;
                const char *name;
        } kinds[] = { { CLONE_NEWNS, "mount" }, { CLONE_NEWPID, "pid" }, { CLONE_NEWNET, "net" },
                      { CLONE_NEWIPC, "ipc" },  { CLONE_NEWUTS, "uts" }, { CLONE_NEWCGROUP, "cgroup" } };
        int e = enter(0);

        for (size_t i = 0; i < CG_ARRAY_LEN(kinds) && e == 0; i++) {
                if (unshare(kinds[i].flag) < 0) {
                        e = errno;
                        snprintf(note, size, "%s", kinds[i].name);
                }
        }
        return e;
}

static int check_mounts(char *note, size_t size)
{
        int e = enter(CLONE_NEWNS);
        cg_auto_fd int root = -1, copy = -1;

        if (e)
                return e;
        root = cg_mount_open("/usr");
        if (root < 0)
                return errno;
        copy = cg_mount_clone(root, true);
        if (copy < 0 || cg_mount_set(copy, CG_MOUNT_PLAIN | MOUNT_ATTR_RDONLY, true) < 0 ||
            cg_mount_attach(copy, root) < 0)
                return errno;
        return 0;
}

static int check_proc(char *note, size_t size)
{
        int e = enter(CLONE_NEWNS | CLONE_NEWPID), status;
        pid_t pid;

        if (e)
                return e;
        /* A fresh /proc wants a process in the new pid namespace. */
        pid = fork();
        if (pid == 0)
                _exit(error_of(cg_mount_new("proc", NULL, CG_MOUNT_PLAIN | MOUNT_ATTR_NOEXEC)));
        if (pid < 0)
                return errno;
        while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
                ;
        return WIFEXITED(status) ? WEXITSTATUS(status) : EIO;
}

static int check_sys(char *note, size_t size)
{
        int e = enter(CLONE_NEWNS | CLONE_NEWNET);
        cg_auto_fd int fs = -1;

        if (e)
                return e;
        fs = cg_mount_new("sysfs", NULL, CG_MOUNT_PLAIN | MOUNT_ATTR_RDONLY);
        return error_of(fs);
}

static int check_files(char *note, size_t size)
{
        static const char *const types[] = { "tmpfs", "devpts" };
        int e = enter(CLONE_NEWNS);

        for (size_t i = 0; i < CG_ARRAY_LEN(types) && e == 0; i++) {
                cg_auto_fd int fs = cg_mount_new(types[i], NULL, CG_MOUNT_PLAIN);

                if (fs < 0) {
                        e = errno;
                        snprintf(note, size, "%s", types[i]);
                }
        }
        return e;
}

static int check_loopback(char *note, size_t size)
{
        int e = enter(CLONE_NEWNET);
        struct cg_err err;

        if (e)
                return e;
        return cg_ns_loopback_up(&err) < 0 ? err.sys_errno : 0;
}

static int check_landlock(char *note, size_t size)
{
        int abi = (int)syscall(SYS_landlock_create_ruleset, NULL, 0, LANDLOCK_CREATE_RULESET_VERSION);

        if (abi < 1)
                return errno;
        snprintf(note, size, "ABI %d", abi);
        return 0;
}

static int check_seccomp(char *note, size_t size)
{
        struct sock_fprog prog;
        struct cg_err err;

        cg_seccomp_filter(0, &prog);
        if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
                return errno;
        if (cg_seccomp_install(&prog, &err) < 0)
                return err.sys_errno;
        snprintf(note, size, "%u instructions", prog.len);
        return socket(AF_UNIX, SOCK_STREAM, 0) >= 0 ? EINVAL : 0;
}

static int check_scopes(char *note, size_t size)
{
        int abi = cg_landlock_abi();

        if (abi < 0)
                return -abi;
        snprintf(note, size, "ABI %d, wanted %d", abi, CG_TIER_LANDLOCK_ABI);
        return abi < CG_TIER_LANDLOCK_ABI ? EOPNOTSUPP : 0;
}

static int check_listener(char *note, size_t size)
{
        struct sock_fprog prog;
        struct cg_err err;
        int fd = -1;

        cg_seccomp_filter(CG_FILTER_LANDLOCK, &prog);
        if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
                return errno;
        return cg_seccomp_install_brokered(&prog, &fd, &err) < 0 ? err.sys_errno : 0;
}

/* The broker reads paths and memory of its callers in these ways. */
static int check_host_proc(char *note, size_t size)
{
        char own[8] = "x", copy[8] = "";
        struct iovec from = { own, sizeof(own) }, to = { copy, sizeof(copy) };

        if (access("/proc/self/fd", R_OK) < 0)
                return errno;
        return error_of((int)process_vm_readv(getpid(), &to, 1, &from, 1, 0));
}

static int check_pidfd(char *note, size_t size)
{
        int fd = -1;
        struct clone_args args = { .flags = CLONE_PIDFD,
                                   .pidfd = (uint64_t)(uintptr_t)&fd,
                                   .exit_signal = SIGCHLD };
        long pid = syscall(SYS_clone3, &args, sizeof(args));

        if (pid < 0 && errno == ENOSYS) {
                pid = syscall(SYS_clone, CLONE_PIDFD | SIGCHLD, NULL, &fd, NULL, NULL);
                snprintf(note, size, "by clone: clone3 is forbidden");
        }
        if (pid == 0)
                _exit(0);
        if (pid < 0)
                return errno;
        waitpid((pid_t)pid, NULL, 0);
        return fd < 0 ? EBADF : 0;
}

static int check_links(char *note, size_t size)
{
        int e = enter(CLONE_NEWNS);
        cg_auto_fd int fd = -1, copy = -1;

        if (e)
                return e;
        fd = cg_mount_open_link("/proc/self");
        if (fd >= 0)
                copy = cg_mount_clone(fd, false);
        return error_of(copy);
}

static int check_process_limit(char *note, size_t size)
{
        return geteuid() || cg_plan_has_own_pid_max() ? 0 : EOPNOTSUPP;
}

/* Makes one, as a sandbox with all limits would, and removes it. */
static int check_cgroup(char *note, size_t size)
{
        static const struct cg_sandbox_limits all = {
                .memory_bytes = 1 << 30, .processes = 100, .cores_milli = 1000, .cpu_seconds = 9
        };
        enum cg_limit_by by[CG_LIMITS] = { CG_BY_NOTHING };
        struct cg_cgroup *group = NULL;
        struct cg_err err = { 0 };
        size_t n = 0;

        if (cg_cgroup_new(NULL, &all, by, &group, &err) < 0)
                return ENOMEM;
        for (enum cg_limit i = 0; i < CG_LIMITS && n < size; i++) {
                if (by[i])
                        n += (size_t)snprintf(note + n, size - n, "%s%s by %s", cg_sep(n, ", "),
                                              cg_limit_setting(i), cg_limit_by_name(by[i]));
        }
        cg_cgroup_free(group);
        return group ? 0 : EOPNOTSUPP;
}

static int check_egress(char *note, size_t size)
{
        return error_of(access(CG_INSTALLED(CG_LIBEXECDIR "/cellgate-egress"), X_OK));
}

const struct cg_doctor_check cg_doctor_checks[] = {
        { "user namespaces", "everything", true, false, check_users, .advise = advise_users },
        { "namespaces", "mount, pid, net, ipc, uts, cgroup", true, true, check_namespaces,
          .advice =
                  "a kernel with CONFIG_NAMESPACES and all of its kinds; in a container, a less strict seccomp profile",
          ENOSPC, "a limit in /proc/sys/user/max_*_namespaces is reached: as root, raise it" },
        { "mounts", "the view of the file system", true, true, check_mounts,
          .advice = "in a container: allow mounts in user namespaces (AppArmor: an unconfined profile)",
          ENOSYS, "Linux 5.12 or newer (open_tree, mount_setattr)" },
        { "own file systems", "/dev, private folders", true, true, check_files,
          .advice = "in a container: allow mounts in user namespaces" },
        { "own /proc", "no other processes in sight", true, true, check_proc,
          .advice =
                  "parts of this /proc are covered, as in containers: start the container with an unmasked /proc (docker: "
                  "--security-opt systempaths=unconfined), or set enableWeakerNestedSandbox, which shows the container's own "
                  "processes" },
        { "own /sys", "the own network in /sys", false, true, check_sys,
          .advice = "not needed: where it is refused, /sys is empty inside" },
        { "loopback", "servers and the proxy inside", true, true, check_loopback,
          .advice = "a kernel with CONFIG_NET_NS; in a container, a less strict seccomp profile" },
        { "Landlock", "writing to FIFOs and devices, signals", true, false, check_landlock,
          .advice = "Linux 5.13 or newer with CONFIG_SECURITY_LANDLOCK", EOPNOTSUPP,
          "add landlock to lsm= of the kernel's command line" },
        { "seccomp", "system calls that lead around all this", true, false, check_seccomp,
          .advice = "a kernel with CONFIG_SECCOMP_FILTER" },
        { "Landlock scopes", "the landlock tier: files, TCP, signals", false, false, check_scopes,
          .advice =
                  "only the landlock tier needs it: Linux 6.12 or newer with landlock in lsm= of the kernel's command line; in a container, "
                  "a seccomp profile that knows the landlock calls" },
        { "seccomp listener", "the landlock tier's broker; telling of denied calls", false, false,
          check_listener,
          .advice = "only the landlock tier needs it: Linux 5.19 or newer (seccomp user notification)", EBUSY,
          "a sandbox around this one has the listener: the landlock tier is not available in it" },
        { "/proc", "looking at those who ask the broker", true, false, check_host_proc,
          .advice = "in a container, a seccomp profile that allows process_vm_readv", ENOENT, "mount /proc" },
        { "pidfd", "ending everything for sure", true, false, check_pidfd,
          .advice = "Linux 5.3 or newer; in a container, a seccomp profile that knows clone3" },
        { "pinned symlinks", "denied paths through symlinks", false, true, check_links,
          .advice = "denied paths that go through symlinks then fail: name the targets of the symlinks" },
        { "process limit", "limits.processes", false, false, check_process_limit,
          .advice = "limits.processes does not bind root before Linux 6.14: run as an ordinary user" },
        { "cgroup", "limits of a sandbox as a whole", false, false, check_cgroup,
          .advice =
                  "not needed: limits are of single processes (rlimits) then, and cores are whole CPUs. systemd-run --user --scope -p "
                  "Delegate=yes COMMAND gives one" },
        { "egress proxy", "allowedDomains", false, false, check_egress,
          .advice =
                  "install cellgate completely: meson install. Without it nothing inside reaches the network" },
};
const size_t cg_doctor_n_checks = CG_ARRAY_LEN(cg_doctor_checks);
