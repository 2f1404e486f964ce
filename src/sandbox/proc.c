/*
 * A /proc that shows this sandbox's processes only, and a /sys that shows its network only. Both
 * are read-only as a whole: a sandbox that root starts owns the files in the host's /proc/sys,
 * core_pattern among them, capabilities or not. Runs in init.
 */
#include "sandbox/places.h"

#include "base/util.h"
#include "sandbox/mountfd.h"

/*
 * Files about the whole machine: memory, addresses, keys, other users' timers. Relative to the
 * mount; missing ones are skipped.
 */
static const char *const proc_masks[] = {
        "kcore",       "kmsg",          "keys",        "key-users",  "timer_list", "timer_stats",
        "sched_debug", "latency_stats", "kpagecgroup", "kpagecount", "kpageflags", "vmallocinfo",
        "slabinfo",    "acpi",          "asound",      "scsi",
};
static const char *const sys_masks[] = { "firmware", "devices/virtual/powercap", "devices/virtual/dmi" };

/* Pids below this are not reused, so a pid_max of n allows at least n - 300 processes. */
#define RESERVED_PIDS 300

static int cover_all(struct cg_cover *cover, int dir, const char *const *names, size_t n, struct cg_err *err)
{
        for (size_t i = 0; i < n; i++) {
                cg_auto_fd int fd = cg_mount_open_at(dir, names[i]);

                if (fd < 0 && errno == ENOENT)
                        continue;
                if (fd < 0)
                        return cg_fail_errno(err, "sandbox: hiding %s", names[i]);
                if (cg_cover_fd(cover, fd, names[i], err) < 0)
                        return -1;
        }
        return 0;
}

static int write_sysctl(int proc, const char *name, uint64_t value, struct cg_err *err)
{
        char text[32];
        int n = snprintf(text, sizeof(text), "%llu", (unsigned long long)value);
        cg_auto_fd int fd = openat(proc, name, O_WRONLY | O_CLOEXEC | O_NOFOLLOW);

        if (fd < 0 || write(fd, text, (size_t)n) != n)
                return cg_fail_errno(err, "sandbox: setting %s", name);
        return 0;
}

/* Mounts @fd (O_PATH) onto itself, read-only. The mount (returns), or -1 and errno. */
static int mount_read_only(int fd)
{
        cg_auto_fd int copy = cg_mount_clone(fd, true);

        if (copy < 0 ||
            cg_mount_set(copy, CG_MOUNT_PLAIN | MOUNT_ATTR_NOEXEC | MOUNT_ATTR_RDONLY, true) < 0 ||
            cg_mount_attach(copy, fd) < 0)
                return -1;
        return cg_steal_fd(&copy);
}

int cg_proc_mount(const struct cg_sandbox *sb, struct cg_cover *cover, int target, struct cg_err *err)
{
        static const char *const protected[] = {
                "sys",           "sysrq-trigger", "irq",      "bus",    "fs",    "mtrr", "driver",
                "dynamic_debug", "tty",           "pressure", "mdstat", "swaps", "net",  "1"
        };
        cg_auto_fd int fs = cg_mount_new("proc", NULL, CG_MOUNT_PLAIN | MOUNT_ATTR_NOEXEC);

        if (fs < 0 && errno == EPERM && sb->set.weak_proc) {
                /* Keeps the existing one: it shows processes outside, not those of the sandbox. */
                cg_auto_fd int old = cg_mount_open("/proc");

                fs = mount_read_only(old);
                if (fs < 0)
                        return cg_fail_errno(err, "sandbox: the existing /proc");
                return cover_all(cover, fs, proc_masks, CG_ARRAY_LEN(proc_masks), err);
        }
        if (fs < 0 && errno == EPERM)
                return cg_fail_errno(
                        err, "sandbox: a fresh /proc is refused, because parts of this one are covered "
                             "(is this a container? start it with an unmasked /proc, or set "
                             "enableWeakerNestedSandbox, which shows the container's processes)");
        if (fs < 0)
                return cg_fail_errno(err, "sandbox: /proc");
        /* Second layer: the filter denies nested namespaces already. */
        if (!sb->set.nested_users && write_sysctl(fs, "sys/user/max_user_namespaces", 0, err) < 0)
                return -1;
        /* RLIMIT_NPROC does not apply to root; the number of pids applies to everybody. */
        if (cg_plan_has_own_pid_max() && sb->set.limits.processes < UINT16_MAX &&
            write_sysctl(fs, "sys/kernel/pid_max", sb->set.limits.processes + RESERVED_PIDS, err) < 0)
                return -1;
        if ((!sb->set.nested_users && cg_mount_set(fs, MOUNT_ATTR_RDONLY, false) < 0) ||
            cg_mount_attach(fs, target) < 0)
                return cg_fail_errno(err, "sandbox: /proc");
        /*
         * For nested user namespaces a process writes its own uid_map, so /proc stays writable, and
         * all but the processes' folders is made read-only, as is init's folder ("1"): a sandbox
         * that root starts owns these files.
         */
        for (size_t i = 0; i < CG_ARRAY_LEN(protected) && sb->set.nested_users; i++) {
                cg_auto_fd int fd = cg_mount_open_at(fs, protected[i]), copy = -1;

                /* net is a symlink */
                if (fd < 0 && (errno == ENOENT || errno == ELOOP))
                        continue;
                copy = mount_read_only(fd);
                if (copy < 0)
                        return cg_fail_errno(err, "sandbox: protecting /proc/%s", protected[i]);
        }
        return cover_all(cover, fs, proc_masks, CG_ARRAY_LEN(proc_masks), err);
}

int cg_sys_mount(struct cg_cover *cover, int target, struct cg_err *err)
{
        cg_auto_fd int fs = cg_mount_new("sysfs", NULL,
                                         CG_MOUNT_PLAIN | MOUNT_ATTR_NOEXEC | MOUNT_ATTR_RDONLY);

        /*
         * If the kernel refuses a new one (in a container that covers parts of it), /sys is empty
         * rather than the host's.
         */
        if (fs < 0 && errno == EPERM)
                return cg_cover_fd(cover, target, "/sys", err);
        if (fs < 0 || cg_mount_attach(fs, target) < 0)
                return cg_fail_errno(err, "sandbox: /sys");
        return cover_all(cover, fs, sys_masks, CG_ARRAY_LEN(sys_masks), err);
}
