/* See confinement.h. Runs in hosts (libcellgate) and in cellgate-supervisor. */
#include "base/confinement.h"

#include <sched.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include "base/fd.h"
#include "base/proc.h"

#define FILE_MAX CG_CONFINEMENT_MAX
#define CGROUPS  "/sys/fs/cgroup"
/*
 * A limit of processes counts below this. systemd sets one of thousands for each scope, so that
 * each tab of a terminal would have a supervisor of its own.
 */
#define MANY_PROCESSES 1024
#define IOPRIO_PROCESS 1

/* Adds the lines of /proc/PID/status that @keys names. */
static int add_status(const char *dir, struct cg_buf *b, struct cg_err *err)
{
        static const char *const keys[] = { "Umask:",        "Uid:",         "Gid:",     "Groups:",
                                            "CapInh:",       "CapPrm:",      "CapEff:",  "CapBnd:",
                                            "CapAmb:",       "NoNewPrivs:",  "Seccomp:", "Seccomp_filters:",
                                            "Cpus_allowed:", "Mems_allowed:" };
        cg_auto_free char *text = NULL;
        char path[64];
        size_t len, n;
        int r;

        snprintf(path, sizeof(path), "%s/status", dir);
        r = cg_read_file(path, FILE_MAX, &text, &len, err);
        if (r < 0)
                return r;
        for (const char *line = text; *line; line += n + (line[n] == '\n')) {
                n = strcspn(line, "\n");
                if (strncmp(line, "NoNewPrivs:\t1", 13) == 0)
                        return cg_fail(err, CG_E_UNSUPPORTED,
                                       "the process has no_new_privs: it may be in a sandbox whose rules no "
                                       "other process can read");
                for (size_t i = 0; i < CG_ARRAY_LEN(keys); i++)
                        if (strncmp(line, keys[i], strlen(keys[i])) == 0)
                                cg_buf_add(b, line, n + (line[n] == '\n'));
        }
        return 0;
}

static int add_namespaces(const char *dir, struct cg_buf *b, struct cg_err *err)
{
        static const char *const names[] = { "cgroup", "ipc", "mnt", "net", "pid", "time", "user", "uts" };
        char path[64], to[64];
        struct stat st;

        for (size_t i = 0; i < CG_ARRAY_LEN(names); i++) {
                ssize_t n;

                snprintf(path, sizeof(path), "%s/ns/%s", dir, names[i]);
                n = readlink(path, to, sizeof(to));
                if (n < 0 && errno != ENOENT)
                        return cg_fail_errno(err, "%s", path);
                if (n > 0)
                        cg_buf_addf(b, "%.*s\n", (int)n, to);
        }
        snprintf(path, sizeof(path), "%s/root", dir);
        if (stat(path, &st) < 0)
                return cg_fail_errno(err, "%s", path);
        cg_buf_addf(b, "root %llu %llu\n", (unsigned long long)st.st_dev, (unsigned long long)st.st_ino);
        return 0;
}

/* A value of a control group's file that limits nothing. */
static bool is_no_limit(const char *file, const char *value)
{
        return !*value || strncmp(value, "max", 3) == 0 ||
               (strcmp(file, "pids.max") == 0 && strtoull(value, NULL, 10) >= MANY_PROCESSES);
}

/*
 * Version 2: the groups with a limit among the process's own and those above it. All processes of a
 * group share its limits, so these are equal for the same group only. @group: as in
 * /proc/PID/cgroup.
 */
static int add_limited_groups(const char *group, struct cg_buf *b, struct cg_err *err)
{
        static const char *const files[] = { "memory.max", "memory.high", "memory.swap.max",
                                             "cpu.max",    "io.max",      "pids.max" };
        char dir[PATH_MAX], path[PATH_MAX + 32], value[256];

        if (snprintf(dir, sizeof(dir), CGROUPS "%s", group) >= (int)sizeof(dir))
                return cg_fail(err, CG_E_LIMIT, "the path of the control group is too long");
        snprintf(path, sizeof(path), "%s/cgroup.procs", dir);
        if (access(path, F_OK) < 0) { /* not where it is looked for: each group is its own */
                cg_buf_addf(b, "group %s\n", group);
                return 0;
        }
        /* Where a group can be made for a kernel, its limits are stronger. */
        cg_buf_addf(b, "groups %s\n", access(path, W_OK) == 0 ? "can be made" : "cannot be made");
        for (char *end = dir + strlen(dir); end >= dir + strlen(CGROUPS); end = strrchr(dir, '/')) {
                *end = '\0';
                for (size_t i = 0; i < CG_ARRAY_LEN(files); i++) {
                        snprintf(path, sizeof(path), "%s/%s", dir, files[i]);
                        if (cg_proc_read_text(path, value, sizeof(value)) && !is_no_limit(files[i], value))
                                cg_buf_addf(b, "%s %s\n", path, value);
                }
        }
        return 0;
}

static int add_groups(const char *dir, struct cg_buf *b, struct cg_err *err)
{
        cg_auto_free char *text = NULL;
        char path[64];
        size_t len;
        int r;

        snprintf(path, sizeof(path), "%s/cgroup", dir);
        r = cg_read_file(path, FILE_MAX, &text, &len, err);
        if (r < 0)
                return r;
        for (char *line = text; *line;) {
                char *end = line + strcspn(line, "\n"), *next = end + (*end == '\n');

                *end = '\0';
                if (strncmp(line, "0::", 3) == 0) {
                        r = add_limited_groups(line + 3, b, err);
                        if (r < 0)
                                return r;
                } else if (!strstr(line, ":name=")) { /* version 1: each group counts */
                        cg_buf_addf(b, "%s\n", line);
                }
                line = next;
        }
        return 0;
}

int cg_confinement(pid_t pid, struct cg_buf *b, struct cg_err *err)
{
        static const char *const files[] = { "limits", "oom_score_adj" };
        char dir[32], path[64], label[4096];
        int r;

        /* /proc may be that of another pid namespace, where our number is another process's. */
        snprintf(dir, sizeof(dir), "/proc/%lld", (long long)pid);
        if (pid == getpid())
                snprintf(dir, sizeof(dir), "/proc/self");
        r = add_status(dir, b, err);
        if (r < 0)
                return r;
        r = add_namespaces(dir, b, err);
        if (r < 0)
                return r;
        for (size_t i = 0; i < CG_ARRAY_LEN(files); i++) {
                cg_auto_free char *text = NULL;
                size_t len;

                snprintf(path, sizeof(path), "%s/%s", dir, files[i]);
                r = cg_read_file(path, FILE_MAX, &text, &len, err);
                if (r < 0)
                        return r;
                cg_buf_add(b, text, len);
        }
        /* Without a security module there is no label. */
        snprintf(path, sizeof(path), "%s/attr/current", dir);
        if (cg_proc_read_text(path, label, sizeof(label)))
                cg_buf_addf(b, "label %s\n", label);
        cg_buf_addf(b, "priority %d %d %ld\n", getpriority(PRIO_PROCESS, (id_t)pid), sched_getscheduler(pid),
                    syscall(SYS_ioprio_get, IOPRIO_PROCESS, pid));
        r = add_groups(dir, b, err);
        if (r < 0)
                return r;
        return cg_buf_end(b, err);
}
