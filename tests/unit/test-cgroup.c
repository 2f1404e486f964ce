/*
 * Control groups: where they are found, and what is written to them. On a model of both versions in
 * an ordinary folder, since no machine has all kinds at once: mkdir() makes a group's files, and a
 * group with processes of its own does not share controllers out. What the operating system makes
 * of it is tested in tests/sandbox/test_cgroups.py, as far as the machine has it.
 */
#include <sys/xattr.h>

#include "sandbox/cgroup_int.h"
#include "unit.h"

struct model {
        char root[64];
        char files[80]; /* with cgroup and mountinfo */
};

static const char *file_of(const char *folder, const char *name)
{
        static char path[2 * PATH_MAX];

        snprintf(path, sizeof(path), "%s/%s", folder, name);
        return path;
}

static void put(const char *folder, const char *name, const char *text)
{
        write_file(file_of(folder, name), text);
}

static char *get(const char *folder, const char *name)
{
        static char text[4096];
        cg_auto_free char *all = NULL;
        size_t len;

        OK(cg_read_file(file_of(folder, name), sizeof(text), &all, &len, &err));
        snprintf(text, sizeof(text), "%s", all);
        return text;
}

/* ------------------------------------------------------------------ the model's own rules */

int __real_mkdir(const char *path, mode_t mode);
int __wrap_mkdir(const char *path, mode_t mode);
int __wrap_unlinkat(int dir, const char *path, int flags);
int __real_unlinkat(int dir, const char *path, int flags);
ssize_t __real_write(int fd, const void *data, size_t len);
ssize_t __wrap_write(int fd, const void *data, size_t len);

static const char *const group_files[] = { "memory.max",
                                           "memory.swap.max",
                                           "memory.events",
                                           "pids.max",
                                           "pids.events",
                                           "cpu.max",
                                           "cpu.stat",
                                           "cgroup.procs",
                                           "cgroup.type",
                                           "tasks",
                                           "memory.limit_in_bytes",
                                           "memory.memsw.limit_in_bytes",
                                           "memory.oom_control",
                                           "cpu.cfs_period_us",
                                           "cpu.cfs_quota_us",
                                           "cpuacct.usage" };

int __wrap_mkdir(const char *path, mode_t mode)
{
        if (__real_mkdir(path, mode) < 0)
                return -1;
        for (size_t i = 0; i < CG_ARRAY_LEN(group_files); i++)
                put(path, group_files[i], "");
        return 0;
}

int __wrap_unlinkat(int dir, const char *path, int flags)
{
        char file[PATH_MAX];

        for (size_t i = 0; (flags & AT_REMOVEDIR) && i < CG_ARRAY_LEN(group_files); i++) {
                snprintf(file, sizeof(file), "%s/%s", path, group_files[i]);
                __real_unlinkat(dir, file, 0);
        }
        return __real_unlinkat(dir, path, flags);
}

/* "No internal processes": EBUSY. And who moves into a leaf is in the group above no more. */
ssize_t __wrap_write(int fd, const void *data, size_t len)
{
        char link[40], path[PATH_MAX] = "", *name;

        snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
        if (readlink(link, path, sizeof(path) - 1) < 0 || !(name = strrchr(path, '/')))
                return __real_write(fd, data, len);
        *name++ = '\0';
        if (!strcmp(name, "cgroup.subtree_control") && *get(path, "cgroup.procs")) {
                errno = EBUSY;
                return -1;
        }
        if (!strcmp(name, "cgroup.procs") && strstr(path, "/cellgate-leaf")) {
                *strrchr(path, '/') = '\0';
                put(path, "cgroup.procs", "");
        }
        return __real_write(fd, data, len);
}

/* ------------------------------------------------------------------ making a model */

static int setup(void **state)
{
        static struct model m;

        strcpy(m.root, "/var/tmp/cg-model-XXXXXX"); /* a disk: user attributes work there */
        assert_non_null(mkdtemp(m.root));
        snprintf(m.files, sizeof(m.files), "%s/files", m.root);
        assert_int_equal(__real_mkdir(m.files, 0700), 0);
        *state = &m;
        return 0;
}

static int teardown(void **state)
{
        struct model *m = *state;

        return cg_remove_tree(m->root, NULL);
}

/* A group's folder below the model's root. */
static const char *folder(const struct model *m, const char *name)
{
        static char path[PATH_MAX];

        snprintf(path, sizeof(path), "%s/%s", m->root, name);
        if (access(path, F_OK) < 0)
                assert_int_equal(__real_mkdir(path, 0755), 0);
        return path;
}

static void set_v2(const struct model *m, const char *group, const char *controllers, const char *shared,
                   const char *procs)
{
        const char *path = folder(m, group);

        put(path, "cgroup.controllers", controllers);
        put(path, "cgroup.subtree_control", shared);
        put(path, "cgroup.procs", procs);
}

static const struct cg_sandbox_limits all = {
        .memory_bytes = 512 << 20, .processes = 40, .cores_milli = 1500, .cpu_seconds = 9
};

/* "@" in @mounts is the model's root. */
static void say(const struct model *m, const char *groups, const char *mounts)
{
        char text[4096] = "";
        size_t n = 0;

        put(m->files, "cgroup", groups);
        for (; *mounts && n + sizeof(m->root) < sizeof(text); mounts++) {
                if (*mounts == '@')
                        n += (size_t)snprintf(text + n, sizeof(text) - n, "%s", m->root);
                else
                        text[n++] = *mounts;
        }
        put(m->files, "mountinfo", text);
}

#define V2_MOUNT "30 25 0:26 / @/v2 rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"

/* Version 2 alone, and our group in it, "v2/own". */
static void own_group(struct model *m, const char *controllers, const char *shared, const char *procs)
{
        folder(m, "v2");
        set_v2(m, "v2/own", controllers, shared, procs);
        say(m, "0::/own\n", V2_MOUNT);
}

/* The one group that was made. */
static const char *made(const struct model *m, const char *parent)
{
        static char found[PATH_MAX];
        char command[PATH_MAX];
        FILE *p;

        snprintf(command, sizeof(command), "ls -d %s/%s/cellgate-box-* 2>/dev/null", m->root, parent);
        p = popen(command, "r");
        assert_non_null(p);
        if (!fgets(found, sizeof(found), p))
                found[0] = '\0';
        found[strcspn(found, "\n")] = '\0';
        pclose(p);
        return found;
}

/* ------------------------------------------------------------------ tests */

TEST_WITH(version_2_where_controllers_are_shared, setup, teardown)
{
        struct model *m = *state;
        enum cg_limit_by by[CG_LIMITS] = { CG_BY_NOTHING };
        struct cg_limit_counts counts;
        struct cg_cgroup *g;

        own_group(m, "cpu memory pids io\n", "cpu memory pids\n", "");
        assert_int_equal(cg_cgroup_new(m->files, &all, by, &g, NULL), 0);
        assert_non_null(g);
        assert_string_equal(get(made(m, "v2/own"), "memory.max"), "536870912");
        assert_string_equal(get(made(m, "v2/own"), "memory.swap.max"), "0");
        assert_string_equal(get(made(m, "v2/own"), "pids.max"), "40");
        assert_string_equal(get(made(m, "v2/own"), "cpu.max"), "150000 100000");
        assert_int_equal(by[CG_LIMIT_MEMORY], CG_BY_CGROUP2);
        assert_int_equal(by[CG_LIMIT_PROCESSES], CG_BY_CGROUP2);
        assert_int_equal(by[CG_LIMIT_CORES], CG_BY_CGROUP2);
        assert_int_equal(by[CG_LIMIT_CPU_TIME], CG_BY_CGROUP2);
        assert_true(cg_cgroup_clone_fd(g) >= 0);
        put(made(m, "v2/own"), "memory.events",
            "low 0\nhigh 0\nmax 7\noom 3\noom_kill 2\noom_group_kill 5\n");
        put(made(m, "v2/own"), "pids.events", "max 4\n");
        put(made(m, "v2/own"), "cpu.stat", "usage_usec 2500000\nuser_usec 1\n");
        cg_cgroup_counts(g, &counts);
        assert_int_equal(counts.oom_kills, 2);
        assert_int_equal(counts.outer_kills, 0);
        assert_int_equal(counts.forks_denied, 4);
        assert_int_equal(counts.cpu_ms, 2500);
        /* Killed for want of memory elsewhere: the group's own limit was in nobody's way. */
        put(made(m, "v2/own"), "memory.events",
            "low 0\nhigh 0\nmax 0\noom 0\noom_kill 2\noom_group_kill 0\n");
        cg_cgroup_counts(g, &counts);
        assert_int_equal(counts.oom_kills, 0);
        assert_int_equal(counts.outer_kills, 2);
        put(made(m, "v2/own"), "memory.events",
            "low 0\nhigh 0\nmax 9\noom 1\noom_kill 3\noom_group_kill 0\n");
        cg_cgroup_counts(g, &counts);
        assert_int_equal(counts.oom_kills, 1);
        assert_int_equal(counts.outer_kills, 2);
        cg_cgroup_free(g);
        assert_string_equal(made(m, "v2/own"), "");
}

TEST_WITH(only_what_is_offered, setup, teardown)
{
        struct model *m = *state;
        enum cg_limit_by by[CG_LIMITS] = { CG_BY_NOTHING };
        struct cg_cgroup *g;

        own_group(m, "cpuset pids\n", "pids\n", "");
        by[CG_LIMIT_MEMORY] = CG_BY_RLIMIT;
        assert_int_equal(cg_cgroup_new(m->files, &all, by, &g, NULL), 0);
        assert_int_equal(by[CG_LIMIT_MEMORY], CG_BY_RLIMIT);
        assert_int_equal(by[CG_LIMIT_PROCESSES], CG_BY_CGROUP2);
        assert_int_equal(by[CG_LIMIT_CORES], CG_BY_NOTHING);
        cg_cgroup_free(g);
}

/*
 * systemd-run --user --scope -p Delegate=yes: the group is the user's, and holds the processes that
 * ask.
 */
TEST_WITH(a_delegated_group_gets_a_leaf, setup, teardown)
{
        struct model *m = *state;
        enum cg_limit_by by[CG_LIMITS] = { CG_BY_NOTHING };
        struct cg_cgroup *g;

        own_group(m, "memory pids\n", "", "4711\n");
        /* Nobody has given it away. */
        assert_int_equal(cg_cgroup_new(m->files, &all, by, &g, NULL), 0);
        assert_null(g);
        assert_int_equal(by[CG_LIMIT_MEMORY], CG_BY_NOTHING);
        if (setxattr(folder(m, "v2/own"), "user.delegate", "1", 1, 0) < 0)
                skip(); /* no attributes on this disk */
        cg_cgroup_probe(m->files, &all, by);
        assert_int_equal(by[CG_LIMIT_MEMORY], CG_BY_CGROUP2);
        /* looking changes nothing */
        assert_string_equal(get(folder(m, "v2/own"), "cgroup.subtree_control"), "");
        assert_int_equal(cg_cgroup_new(m->files, &all, by, &g, NULL), 0);
        assert_non_null(g);
        assert_string_equal(get(folder(m, "v2/own"), "cgroup.subtree_control"), "+memory +pids");
        assert_string_equal(get(folder(m, "v2/own/cellgate-leaf"), "cgroup.procs"), "4711");
        assert_int_equal(by[CG_LIMIT_PROCESSES], CG_BY_CGROUP2);
        cg_cgroup_free(g);
        /* From now on our processes are in the leaf; groups are made beside it. */
        put(folder(m, "v2/own"), "cgroup.subtree_control", "memory pids\n");
        say(m, "0::/own/cellgate-leaf\n", V2_MOUNT);
        assert_int_equal(cg_cgroup_new(m->files, &all, by, &g, NULL), 0);
        assert_non_null(g);
        assert_string_not_equal(made(m, "v2/own"), "");
        cg_cgroup_free(g);
}

TEST_WITH(hybrid_takes_each_from_where_it_is, setup, teardown)
{
        struct model *m = *state;
        enum cg_limit_by by[CG_LIMITS] = { CG_BY_NOTHING };
        struct cg_limit_counts counts;
        struct cg_cgroup *g;

        folder(m, "v2");
        set_v2(m, "v2/own", "", "", "");
        folder(m, "v2/memory");
        folder(m, "v2/memory/a:b");
        folder(m, "v2/cpu,cpuacct");
        say(m, "5:cpu,cpuacct:/\n4:memory:/a:b\n1:name=systemd:/x\n0::/own\n",
            V2_MOUNT "31 25 0:27 / @/v2/memory rw - cgroup cgroup rw,memory\n"
                     "32 25 0:28 / @/v2/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n");
        assert_int_equal(cg_cgroup_new(m->files, &all, by, &g, NULL), 0);
        assert_non_null(g);
        assert_int_equal(by[CG_LIMIT_MEMORY], CG_BY_CGROUP1);
        assert_int_equal(by[CG_LIMIT_PROCESSES], CG_BY_NOTHING); /* no hierarchy has pids */
        assert_int_equal(by[CG_LIMIT_CORES], CG_BY_CGROUP1);
        assert_int_equal(by[CG_LIMIT_CPU_TIME], CG_BY_CGROUP1);
        assert_int_equal(cg_cgroup_clone_fd(g), -1);
        assert_string_equal(get(made(m, "v2/memory/a:b"), "memory.limit_in_bytes"), "536870912");
        assert_string_equal(get(made(m, "v2/memory/a:b"), "memory.memsw.limit_in_bytes"), "536870912");
        assert_string_equal(get(made(m, "v2/cpu,cpuacct"), "cpu.cfs_quota_us"), "150000");
        assert_int_equal(cg_cgroup_join(g, true, NULL), 0);
        assert_string_equal(get(made(m, "v2/memory/a:b"), "tasks"), "0");
        put(made(m, "v2/memory/a:b"), "memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 1\n");
        put(made(m, "v2/cpu,cpuacct"), "cpuacct.usage", "1234567890\n");
        put(made(m, "v2/memory/a:b"), "memory.max_usage_in_bytes", "400000000\n");
        put(made(m, "v2/memory/a:b"), "memory.memsw.max_usage_in_bytes", "400000000\n");
        cg_cgroup_counts(g, &counts);
        assert_int_equal(counts.oom_kills, 0);
        assert_int_equal(counts.outer_kills, 1);
        put(made(m, "v2/memory/a:b"), "memory.memsw.max_usage_in_bytes", "536866816\n");
        cg_cgroup_counts(g, &counts);
        assert_int_equal(counts.oom_kills, 1);
        assert_int_equal(counts.outer_kills, 0);
        assert_int_equal(counts.cpu_ms, 1234);
        cg_cgroup_free(g);
}

/* A container shows a part of the tree; what another mount shows is not ours. */
TEST_WITH(mounts_of_a_part_of_the_tree, setup, teardown)
{
        struct model *m = *state;
        enum cg_limit_by by[CG_LIMITS] = { CG_BY_NOTHING };

        folder(m, "v2");
        folder(m, "v2/memory");
        folder(m, "v2/memory/in");
        say(m, "4:memory:/docker/1234/in\n",
            "31 25 0:27 /docker/9 @/v2 rw - cgroup cgroup rw,memory\n31 25 0:27 /docker/1234 @/v2/memory rw - cgroup cgroup rw,memory\n");
        cg_cgroup_probe(m->files, &all, by);
        assert_int_equal(by[CG_LIMIT_MEMORY], CG_BY_CGROUP1);
        by[CG_LIMIT_MEMORY] = CG_BY_NOTHING;
        say(m, "4:memory:/docker/12345\n",
            "31 25 0:27 /docker/1234 @/v2/memory rw - cgroup cgroup rw,memory\n");
        cg_cgroup_probe(m->files, &all, by);
        assert_int_equal(by[CG_LIMIT_MEMORY], CG_BY_NOTHING);
        say(m, "4:memory:/../../elsewhere\n", "31 25 0:27 / @/v2/memory/in rw - cgroup cgroup rw,memory\n");
        cg_cgroup_probe(m->files, &all, by);
        assert_int_equal(by[CG_LIMIT_MEMORY], CG_BY_NOTHING);
}

TEST_WITH(nothing_to_be_had_is_no_error, setup, teardown)
{
        struct model *m = *state;
        static const struct cg_sandbox_limits none = { .open_files = 9, .file_bytes = 9, .wall_seconds = 9 };
        enum cg_limit_by by[CG_LIMITS] = { CG_BY_NOTHING };
        struct cg_cgroup *g = (void *)1;

        say(m, "garbage\n:\n::\n0:\n\n0::/x\n", "garbage\n - cgroup2\n1 2 3 / - cgroup\n\n@\n");
        assert_int_equal(cg_cgroup_new(m->files, &all, by, &g, NULL), 0);
        assert_null(g);
        assert_int_equal(cg_cgroup_new("/nonexistent", &all, by, &g, NULL), 0);
        assert_null(g);
        assert_int_equal(cg_cgroup_new(NULL, &none, by, &g, NULL), 0);
        assert_null(g);
}

TEST_WITH(tidying_leaves_what_is_in_use, setup, teardown)
{
        struct model *m = *state;
        enum cg_limit_by by[CG_LIMITS] = { CG_BY_NOTHING };
        struct cg_cgroup *g;

        own_group(m, "memory\n", "memory\n", "");
        assert_int_equal(cg_cgroup_new(m->files, &all, by, &g, NULL), 0);
        folder(m, "v2/own/other");
        cg_cgroup_tidy(m->files);
        assert_string_not_equal(made(m, "v2/own"), "");
        cg_cgroup_free(g);
        folder(m, "v2/own/cellgate-box-0123456789abcdef"); /* nobody holds its lock */
        cg_cgroup_tidy(m->files);
        assert_string_equal(made(m, "v2/own"), "");
        assert_int_equal(access(folder(m, "v2/own/other"), F_OK), 0);
}

TEST(figures_in_words)
{
        struct cg_sandbox_limits l = { .memory_bytes = 512 << 20, .cores_milli = 1500, .cpu_seconds = 3600 };
        char text[128];

        cg_limit_why(&l, CG_LIMIT_MEMORY, CG_BY_CGROUP2, text, sizeof(text));
        assert_string_equal(text, "memory limit of 512 MiB reached (cgroup v2)");
        cg_limit_why(&l, CG_LIMIT_CPU_TIME, CG_BY_TIMER, text, sizeof(text));
        assert_string_equal(text, "processor time limit of 3600 s reached (timer)");
        cg_limit_how(CG_LIMIT_MEMORY, CG_SAID_SETTINGS, text, sizeof(text));
        assert_string_equal(text, "raise cellgate.limits.memoryMb");
        cg_limit_how(CG_LIMIT_MEMORY, CG_SAID_CLI, text, sizeof(text));
        assert_string_equal(text, "raise --limit memoryMb");
        cg_limit_how(CG_LIMIT_MEMORY, CG_SAID_API, text, sizeof(text));
        assert_string_equal(text, "raise memory_bytes");
        assert_null(cg_limit_set(&l, CG_LIMIT_CORES, 0.25));
        assert_int_equal(l.cores_milli, 250);
        assert_non_null(cg_limit_set(&l, CG_LIMIT_CORES, 0));
        assert_non_null(cg_limit_set(&l, CG_LIMIT_MEMORY, 1.5));
        assert_non_null(cg_limit_set(&l, CG_LIMIT_MEMORY, 1e10));
        assert_non_null(cg_limit_set(&l, CG_LIMIT_MEMORY, -1));
        assert_non_null(cg_limit_set(&l, CG_LIMIT_MEMORY, __builtin_nan("")));
        assert_int_equal(l.memory_bytes, 512 << 20);
}
