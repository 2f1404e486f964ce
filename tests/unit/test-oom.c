/* Where a process's memory group is, by the texts of /proc; and what the counters say. */
#include "supervisor/limits/oom.h"

#include <sys/prctl.h>
#include "unit.h"

#define V1 \
        "30 25 0:27 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n" \
        "31 30 0:28 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n" \
        "32 30 0:29 / /sys/fs/cgroup/memory rw,relatime shared:9 - cgroup cgroup rw,memory\n" \
        "33 30 0:30 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n"
#define V2      "30 25 0:27 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"
#define V2_PART "30 25 0:27 /docker/abc /sys/fs/cgroup ro - cgroup2 cgroup rw\n"

TEST(test_find)
{
        static const struct {
                const char *mountinfo, *cgroup, *dir;
                int version;
        } cases[] = {
                { V1, "9:name=systemd:/\n4:memory:/a/b\n1:cpu:/x\n0::/\n", "/sys/fs/cgroup/memory/a/b", 1 },
                { V1, "4:hugetlb,memory:/a\n", "/sys/fs/cgroup/memory/a", 1 },
                { V1, "4:memory:/\n", "/sys/fs/cgroup/memory", 1 },
                { V2, "0::/user.slice/u.scope\n", "/sys/fs/cgroup/user.slice/u.scope", 2 },
                { V2, "0::/a:b\n", "/sys/fs/cgroup/a:b", 2 },
                { V2_PART, "0::/docker/abc/x\n", "/sys/fs/cgroup/x", 2 },
                { V2_PART, "0::/docker/abc\n", "/sys/fs/cgroup", 2 },
                { V2_PART, "0::/\n", "/sys/fs/cgroup", 2 },
                { V2_PART, "0::/docker/abcd\n", "/sys/fs/cgroup/docker/abcd", 2 },
                { V2, "4:memory:/a\n", NULL, 1 }, /* no such hierarchy is mounted */
                { V1, "4:memory_x:/a\n", NULL, 0 },
                { V1, "", NULL, 0 },
                { "", "0::/\n", NULL, 2 },
                { "garbage\n - cgroup\n30 25 x / \n", "0::/\n", NULL, 2 },
                { V2, "no colon\n:\n::\n", NULL, 0 },
        };
        char dir[64];
        int version;

        for (size_t i = 0; i < CG_ARRAY_LEN(cases); i++) {
                int r = cg_oom_find(cases[i].mountinfo, cases[i].cgroup, dir, sizeof(dir), &version);

                assert_int_equal(r, cases[i].dir ? 0 : -1);
                if (cases[i].dir)
                        assert_string_equal(dir, cases[i].dir);
                if (cases[i].version)
                        assert_int_equal(version, cases[i].version);
        }
}

TEST(test_too_long)
{
        char dir[16], cgroup[400] = "0::/";
        int version;

        assert_int_equal(cg_oom_find(V2, "0::/abc\n", dir, sizeof(dir), &version), -1);
        memset(cgroup + 4, 'x', sizeof(cgroup) - 5);
        assert_int_equal(cg_oom_find(V2, cgroup, dir, sizeof(dir), &version), -1);
}

TEST(test_since)
{
        struct cg_oom o;
        uint64_t limit;

        cg_oom_mark(getpid(), &o);
        assert_int_not_equal(cg_oom_since(&o, &limit), CG_OOM_GROUP);
        strcpy(o.file, "/tmp/cg-test-oom-XXXXXX");
        close(mkstemp(o.file));
        snprintf(o.limit, sizeof(o.limit), "%.99s.limit", o.file);
        o.group = 2;
        write_file(o.file, "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n");
        assert_int_equal(cg_oom_since(&o, &limit), CG_OOM_NO);
        write_file(o.file, "oom_kill_disable 0\nunder_oom 0\noom_kill 3\n");
        write_file(o.limit, "67108864\n");
        assert_int_equal(cg_oom_since(&o, &limit), CG_OOM_GROUP);
        assert_int_equal(limit, 64 << 20);
        write_file(o.limit, "9223372036854771712\n"); /* none, version 1 */
        cg_oom_since(&o, &limit);
        assert_int_equal(limit, 0);
        write_file(o.limit, "max\n");
        cg_oom_since(&o, &limit);
        assert_int_equal(limit, 0);
        unlink(o.limit);
        unlink(o.file); /* the group is gone */
        o.machine = -1;
        assert_int_equal(cg_oom_since(&o, &limit), CG_OOM_UNKNOWN);
}

TEST(test_room)
{
        uint64_t available, reserve,
                machine = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);

        assert_in_range(cg_oom_room(), 1 << 20, machine);
        cg_oom_left(&available, &reserve);
        assert_in_range(available, 1, machine);
        assert_in_range(reserve, machine / 40, machine / 20);
}

TEST(test_next_look)
{
        const uint64_t gib = UINT64_C(1) << 30;

        assert_int_equal(cg_oom_next_check_ms(100 * gib, gib), 2000);
        assert_int_equal(cg_oom_next_check_ms(9 * gib, gib), 1024);
        assert_int_equal(cg_oom_next_check_ms(gib, gib), 50);
        assert_int_equal(cg_oom_next_check_ms(0, gib), 50);
}

static void *fork_in_thread(void *arg)
{
        int *pipes = arg;
        char *memory, byte;

        if (fork() == 0) {
                memory = mmap(NULL, 32 << 20, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
                memset(memory, 1, 32 << 20);
                if (write(pipes[1], "x", 1) == 1 && read(pipes[2], &byte, 1) == 0)
                        _exit(0);
                _exit(1);
        }
        return NULL;
}

/* Memory of its own and shared memory, of it and of what one of its threads has started. */
TEST(test_use)
{
        int ready[2], end[2];
        char byte, *memory;
        pthread_t thread;
        pid_t pid;

        assert_int_equal(pipe(ready) | pipe(end), 0);
        pid = fork();
        if (pid == 0) {
                int pipes[3] = { ready[0], ready[1], end[0] };

                close(end[1]);
                prctl(PR_SET_NAME, "RssAnon: 0"); /* precedes the figures in its status */
                memory = mmap(NULL, 64 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
                memset(memory, 1, 64 << 20);
                pthread_create(&thread, NULL, fork_in_thread, pipes);
                pthread_join(thread, NULL);
                _exit(read(end[0], &byte, 1) == 0 && memory[9] == 1 ? 0 : 1);
        }
        close(end[0]);
        assert_int_equal(read(ready[0], &byte, 1), 1);
        assert_in_range(cg_oom_use(pid), (64 + 32) << 20, UINT64_C(4) << 30);
        close(end[1]);
        assert_int_equal(waitpid(pid, NULL, 0), pid);
        assert_int_equal(cg_oom_use(0), 0);
}

/* Memory of a memfd that no process has mapped and two have open. */
TEST(test_use_of_memfds)
{
        int ready[2], end[2];
        char byte, *block = calloc(1, 1 << 20);
        pid_t pid;

        assert_non_null(block);
        assert_int_equal(pipe(ready) | pipe(end), 0);
        pid = fork();
        if (pid == 0) {
                int fd = memfd_create("anything at all, and longer than what is read of it", 0);
                bool ok = fd >= 0;

                close(end[1]);
                for (int i = 0; i < 300 && ok; i++)
                        ok = write(fd, block, 1 << 20) == 1 << 20;
                if (fork() == 0)
                        _exit(read(end[0], &byte, 1) == 0 ? 0 : 1);
                ok = ok && write(ready[1], "x", 1) == 1;
                _exit(ok && read(end[0], &byte, 1) == 0 ? 0 : 1);
        }
        close(ready[1]);
        close(end[0]);
        assert_int_equal(read(ready[0], &byte, 1), 1);
        assert_in_range(cg_oom_use(pid), 300 << 20, 500 << 20);
        close(end[1]);
        assert_int_equal(waitpid(pid, NULL, 0), pid);
        free(block);
}
