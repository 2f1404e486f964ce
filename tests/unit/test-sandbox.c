/*
 * The sandbox's plan and spawn, from inside a program: what setters accept, and what comes back
 * from a spawn.
 */
#include <sys/eventfd.h>
#include <sys/prctl.h>

#include "base/path.h"
#include "sandbox/cgroup.h"
#include "sandbox/plan.h"
#include "unit.h"

#define DEADLINE_MS 20000

static int new_plan(void **state)
{
        struct cg_err err = { 0 };

        return cg_sandbox_new((struct cg_sandbox **)state, &err);
}

static int free_plan(void **state)
{
        *state = cg_sandbox_free(*state);
        return 0;
}

/* Reads the status within the deadline and reaps init. */
static struct cg_sandbox_status finish(struct cg_sandbox_child *child)
{
        struct cg_sandbox_status st = { 0 };
        struct pollfd p = { .fd = child->status_fd, .events = POLLIN };

        assert_int_equal(poll(&p, 1, DEADLINE_MS), 1);
        assert_int_equal(read(child->status_fd, &st, sizeof(st)), sizeof(st));
        assert_int_equal(st.magic, CG_SANDBOX_STATUS_MAGIC);
        p = (struct pollfd){ .fd = child->init_pidfd, .events = POLLIN };
        assert_int_equal(poll(&p, 1, DEADLINE_MS), 1);
        assert_int_equal(waitpid(child->init_pid, NULL, 0), child->init_pid);
        close(child->status_fd);
        close(child->init_pidfd);
        child->cgroup = cg_cgroup_free(child->cgroup);
        return st;
}

static void spawn_ok(struct cg_sandbox *sb, const int *keep, size_t n, int (*fn)(void *), void *data,
                     struct cg_sandbox_child *child)
{
        OK(cg_sandbox_spawn(sb, keep, n, fn, data, child, &err));
}

/* ---- the plan */

TEST_WITH(write_root_is_not_the_kernels, new_plan, free_plan)
{
        static const char *const bad[] = { "/proc", "/proc/sys", "/sys/fs", "/dev", "/dev/shm" };

        for (size_t i = 0; i < CG_ARRAY_LEN(bad); i++)
                FAILS(CG_E_INVAL, "", cg_sandbox_add_write(*state, bad[i], &err));
        OK(cg_sandbox_add_write(*state, "/usr", &err));
}

TEST_WITH(destination_is_plain, new_plan, free_plan)
{
        static const char *const bad[] = { "run/x",   "/",      "/run/",   "/run//x", "/run/./x", "/run/../x",
                                           "/run/..", "/run/.", "/proc/x", "/dev/x",  "/sys/x" };

        for (size_t i = 0; i < CG_ARRAY_LEN(bad); i++)
                FAILS(CG_E_INVAL, "", cg_sandbox_add_bind_ro(*state, "/usr", bad[i], &err));
        OK(cg_sandbox_add_bind_ro(*state, "/usr", "/run/..x", &err));
        /* the same again is one */
        OK(cg_sandbox_add_bind_ro(*state, "/usr", "/run/..x", &err));
        FAILS(CG_E_EXISTS, "", cg_sandbox_add_bind_ro(*state, "/etc", "/run/..x", &err));
}

TEST_WITH(absent_hide_is_left_out, new_plan, free_plan)
{
        struct cg_sandbox *sb = *state;
        size_t n = sb->n_mounts;

        OK(cg_sandbox_add_hide(sb, "/no/such/file", &err));
        assert_int_equal(sb->n_mounts, n);
        OK(cg_sandbox_add_hide(sb, "/etc/passwd", &err));
        OK(cg_sandbox_add_hide(sb, "/etc/../etc/passwd", &err));
        assert_int_equal(sb->n_mounts, n + 1);
        /* after everything else, deeper mounts as well */
        OK(cg_sandbox_add_bind_ro(sb, "/usr", "/run/a/b/c", &err));
        assert_string_equal(sb->mounts[n + 1].path, "/etc/passwd");
        FAILS(CG_E_INVAL, "", cg_sandbox_add_hide(sb, "/", &err));
        FAILS(CG_E_INVAL, "", cg_sandbox_add_hide(sb, "etc", &err));
}

TEST_WITH(mounts_are_ordered_by_depth, new_plan, free_plan)
{
        struct cg_sandbox *sb = *state;

        OK(cg_sandbox_add_write(sb, "/usr/share", &err));
        OK(cg_sandbox_add_write(sb, "/var", &err));
        OK(cg_sandbox_add_write(sb, "/", &err));
        assert_true(sb->set.root_writable);
        for (size_t i = 0; i + 1 < sb->n_mounts; i++) {
                for (size_t k = i + 1; k < sb->n_mounts; k++)
                        assert_false(cg_path_within(sb->mounts[i].path, sb->mounts[k].path));
        }
}

TEST_WITH(too_many_paths_are_refused, new_plan, free_plan)
{
        struct cg_err err = { 0 };
        char dst[64];
        int e = 0, i = 0;

        for (; i <= CG_PLAN_MOUNTS_MAX && e == 0; i++) {
                snprintf(dst, sizeof(dst), "/run/x%d", i);
                e = cg_sandbox_add_bind_ro(*state, "/usr", dst, &err);
        }
        assert_true(i > 200);
        assert_int_equal(e, CG_E_LIMIT);
}

TEST_WITH(copy_has_all, new_plan, free_plan)
{
        struct cg_sandbox *sb = *state, *other = NULL;

        OK(cg_sandbox_add_write(sb, "/usr", &err));
        OK(cg_sandbox_add_hide(sb, "/etc/passwd", &err));
        OK(cg_sandbox_set_cwd(sb, "/usr", &err));
        cg_sandbox_set_limits(sb, &(struct cg_sandbox_limits){ .file_bytes = 77 });
        OK(cg_sandbox_copy(sb, &other, &err));
        assert_int_equal(other->n_mounts, sb->n_mounts);
        for (size_t i = 0; i < sb->n_mounts; i++)
                assert_string_equal(other->mounts[i].path, sb->mounts[i].path);
        assert_int_equal(other->mounts[other->n_mounts - 1].kind, CG_PLAN_COVER);
        assert_string_equal(other->mounts[other->n_mounts - 1].path, "/etc/passwd");
        assert_string_equal(other->cwd, "/usr");
        assert_int_equal(other->set.limits.file_bytes, 77);
        assert_true(sb->filter.len > 0);
        assert_int_equal(other->filter.len, sb->filter.len);
        assert_ptr_equal(other->filter.filter, sb->filter.filter); /* static data */
        cg_sandbox_free(other);
}

static bool has_layer(const struct cg_sandbox *sb, const char *name)
{
        for (const char *const *l = cg_sandbox_layers(sb); *l; l++) {
                if (!strcmp(*l, name))
                        return true;
        }
        return false;
}

TEST_WITH(layers_say_what_holds, new_plan, free_plan)
{
        assert_true(has_layer(*state, "seccomp") && has_layer(*state, "landlock") &&
                    has_layer(*state, "net"));
        cg_sandbox_set_off(*state);
        assert_false(has_layer(*state, "seccomp"));
        assert_true(has_layer(*state, "rlimits"));
}

/* ---- spawn */

static int return_data(void *data)
{
        return *(int *)data;
}

static void *wait_for_go(void *fd)
{
        uint64_t v;
        ssize_t n = read(*(int *)fd, &v, sizeof(v));

        return n == sizeof(v) ? fd : NULL;
}

TEST_WITH(threads_are_refused, new_plan, free_plan)
{
        int zero = 0, go = eventfd(0, EFD_CLOEXEC);
        struct cg_sandbox_child child = { .init_pid = -7 };
        pthread_t t;

        assert_int_equal(pthread_create(&t, NULL, wait_for_go, &go), 0);
        FAILS(CG_E_STATE, "2 threads", cg_sandbox_spawn(*state, NULL, 0, return_data, &zero, &child, &err));
        assert_int_equal(child.init_pid, -7); /* written on success only */
        eventfd_write(go, 1);
        pthread_join(t, NULL);
        close(go);
        spawn_ok(*state, NULL, 0, return_data, &zero, &child);
        finish(&child);
}

/* Bits of the descriptors below 64 that are open. */
static uint64_t open_fds(void)
{
        uint64_t found = 0;

        for (int fd = 0; fd < 64; fd++) {
                if (fcntl(fd, F_GETFD) >= 0)
                        found |= 1ull << fd;
        }
        return found;
}

static int send_open_fds(void *data)
{
        uint64_t found = open_fds();

        return write(*(int *)data, &found, sizeof(found)) == sizeof(found) ? 0 : 1;
}

TEST_WITH(main_has_exactly_what_it_keeps, new_plan, free_plan)
{
        struct cg_sandbox_child child;
        uint64_t found = 0;
        int p[2], keep[3], leak = open("/dev/null", O_RDONLY); /* not even close-on-exec */

        assert_int_equal(pipe2(p, O_CLOEXEC), 0);
        keep[0] = 40; /* out of order, and one twice */
        keep[1] = keep[2] = p[1];
        assert_int_equal(dup2(leak, 40), 40);
        spawn_ok(*state, keep, 3, send_open_fds, &p[1], &child);
        assert_int_equal(finish(&child).exit_code, 0);
        assert_int_equal(read(p[0], &found, sizeof(found)), sizeof(found));
        assert_int_equal(found & ~7ull, 1ull << 40 | 1ull << p[1]);
        close(leak);
        close(40);
        close(p[0]);
        close(p[1]);
}

static int mask_is_empty(void *data)
{
        sigset_t now;

        sigprocmask(SIG_BLOCK, NULL, &now);
        return sigismember(&now, SIGUSR1) == 1 && sigismember(&now, SIGUSR2) == 0 && !data ? 0 : 1;
}

TEST_WITH(main_has_the_callers_mask, new_plan, free_plan)
{
        struct cg_sandbox_child child;
        sigset_t mine, after;

        sigemptyset(&mine);
        sigaddset(&mine, SIGUSR1);
        sigprocmask(SIG_SETMASK, &mine, NULL);
        spawn_ok(*state, NULL, 0, mask_is_empty, NULL, &child);
        assert_int_equal(finish(&child).exit_code, 0);
        sigprocmask(SIG_SETMASK, NULL, &after);
        assert_int_equal(sigismember(&after, SIGUSR1), 1);
        assert_int_equal(sigismember(&after, SIGUSR2), 0);
        sigemptyset(&mine);
        sigprocmask(SIG_SETMASK, &mine, NULL);
}

/* Without an exec in between, which would reset it: as a kernel is. */
static int is_dumpable(void *unused)
{
        int fd = open("/proc/self/environ", O_RDONLY);

        return prctl(PR_GET_DUMPABLE, 0, 0, 0, 0) == 1 && fd >= 0 && !unused ? 0 : 1;
}

TEST_WITH(main_can_use_its_own_proc, new_plan, free_plan)
{
        struct cg_sandbox_child child;

        spawn_ok(*state, NULL, 0, is_dumpable, NULL, &child);
        assert_int_equal(finish(&child).exit_code, 0);
}

TEST_WITH(failing_step_comes_back, new_plan, free_plan)
{
        int zero = 0;
        uint64_t before = open_fds();
        struct cg_sandbox_child child;
        struct cg_err err = { 0 };

        assert_int_equal(cg_sandbox_set_cwd(*state, "/no/such/folder", &err), 0);
        assert_int_equal(cg_sandbox_spawn(*state, NULL, 0, return_data, &zero, &child, &err), CG_E_SYS);
        assert_int_equal(err.sys_errno, ENOENT);
        assert_non_null(strstr(err.msg, "working directory /no/such/folder"));
        assert_int_equal(waitpid(-1, NULL, WNOHANG), -1); /* reaped */
        assert_int_equal(errno, ECHILD);
        assert_int_equal(open_fds(), before);
        /* the error may be of no interest */
        assert_int_equal(cg_sandbox_spawn(*state, NULL, 0, return_data, &zero, &child, NULL), CG_E_SYS);
}

static size_t lines_of(const char *path)
{
        FILE *f = fopen(path, "re");
        size_t n = 0;
        int c;

        assert_non_null(f);
        while ((c = getc(f)) != EOF)
                n += c == '\n';
        fclose(f);
        return n;
}

/* Also the case of a main process that ends before init looks. */
TEST_WITH(many_leave_nothing, new_plan, free_plan)
{
        size_t mounts = lines_of("/proc/self/mountinfo");
        uint64_t before = open_fds();
        int zero = 0;

        for (int i = 0; i < 400; i++) {
                struct cg_sandbox_child child;

                spawn_ok(*state, NULL, 0, return_data, &zero, &child);
                assert_int_equal(finish(&child).exit_code, 0);
        }
        assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
        assert_int_equal(errno, ECHILD);
        assert_int_equal(open_fds(), before);
        assert_int_equal(lines_of("/proc/self/mountinfo"), mounts);
}

/* ---- a main process that prepares itself */

struct prepared {
        int fd; /* kept */
        /* by prepare(); another process's memory, so main() sees it and we do not */
        int opened;
        uint64_t seen[3]; /* inherited descriptors, capabilities before, capabilities inside */
};

static uint64_t capabilities(void)
{
        FILE *f = fopen("/proc/self/status", "re");
        unsigned long long caps = 1;
        char line[256];

        while (f && fgets(line, sizeof(line), f) && sscanf(line, "CapEff: %llx", &caps) != 1)
                ;
        if (f)
                fclose(f);
        return caps;
}

static int prepare(void *data, struct cg_err *err)
{
        struct prepared *p = data;

        p->seen[0] = open_fds();
        p->seen[1] = capabilities();
        p->opened = eventfd(0, EFD_CLOEXEC);
        return p->opened < 0 ? cg_fail_errno(err, "eventfd") : 0;
}

static int say_prepared(void *data)
{
        struct prepared *p = data;

        p->seen[2] = capabilities();
        return fcntl(p->opened, F_GETFD) >= 0 && write(p->fd, p->seen, sizeof(p->seen)) == sizeof(p->seen)
                       ? 0
                       : 1;
}

TEST_WITH(main_prepares_itself_and_is_inside_afterwards, new_plan, free_plan)
{
        struct cg_sandbox_child child;
        struct prepared p = { .opened = -1 };
        int fds[2], leak = open("/dev/null", O_RDONLY);

        assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
        p.fd = fds[1];
        OK(cg_sandbox_spawn_prepared(*state, &p.fd, 1, prepare, say_prepared, &p, &child, &err));
        assert_int_equal(finish(&child).exit_code, 0);
        assert_int_equal(read(fds[0], p.seen, sizeof(p.seen)), sizeof(p.seen));
        assert_false(p.seen[0] & 1ull << leak);
        assert_true(p.seen[0] & 1ull << fds[1]);
        assert_true(p.seen[1] != 0); /* the other half: of the namespace that it is in by then */
        assert_true(p.seen[2] == 0);
        close(fds[0]);
        close(fds[1]);
        close(leak);
}

/* Shared with the processes of the sandbox. */
static _Atomic pid_t *freed_by;

static void free_memory(void)
{
        *freed_by = getpid();
}

static int wait_for_free(void *data)
{
        while (!*freed_by)
                usleep(1000);
        return *freed_by == 1 ? 0 : 1;
}

TEST_WITH(init_frees_memory_once_the_main_process_runs, new_plan, free_plan)
{
        struct cg_sandbox_child child;

        freed_by = mmap(NULL, sizeof(*freed_by), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        assert_ptr_not_equal(freed_by, MAP_FAILED);
        cg_sandbox_free_in_init(*state, free_memory);
        OK(cg_sandbox_spawn(*state, NULL, 0, wait_for_free, NULL, &child, &err));
        assert_int_equal(finish(&child).exit_code, 0);
        munmap((void *)(uintptr_t)freed_by, sizeof(*freed_by));
}

static int prepare_badly(void *data, struct cg_err *err)
{
        return cg_fail(err, CG_E_PARSE, "number %d is bad", *(int *)data);
}

TEST_WITH(failing_preparation_comes_back, new_plan, free_plan)
{
        uint64_t before = open_fds();
        struct cg_sandbox_child child;
        struct cg_err err = { 0 };
        int seven = 7;

        assert_int_equal(
                cg_sandbox_spawn_prepared(*state, NULL, 0, prepare_badly, return_data, &seven, &child, &err),
                CG_E_PARSE);
        assert_string_equal(err.msg, "number 7 is bad");
        assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
        assert_int_equal(open_fds(), before);
}

static void *sleep_long(void *unused)
{
        sleep(1000);
        return unused;
}

static int prepare_with_a_thread(void *data, struct cg_err *err)
{
        pthread_t t;

        (void)data;
        return pthread_create(&t, NULL, sleep_long, NULL) ? cg_fail(err, CG_E_SYS, "no thread") : 0;
}

/* It would have no layer on. */
TEST_WITH(preparation_may_not_leave_a_thread, new_plan, free_plan)
{
        struct cg_sandbox_child child;
        int zero = 0;

        FAILS(CG_E_STATE, "a thread was started",
              cg_sandbox_spawn_prepared(*state, NULL, 0, prepare_with_a_thread, return_data, &zero, &child,
                                        &err));
        assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
}

static int prepare_for_ever(void *data, struct cg_err *err)
{
        (void)data;
        (void)err;
        while (pause())
                ;
        return 0;
}

/*
 * A view that cannot be made, while the main process is busy: all of it ends, with init's reason.
 */
TEST_WITH(failing_init_ends_the_preparation, new_plan, free_plan)
{
        struct cg_sandbox *sb = *state;
        struct cg_sandbox_child child;
        char folder[] = "/tmp/cg-gone-XXXXXX";
        int zero = 0;

        assert_non_null(mkdtemp(folder));
        OK(cg_sandbox_add_bind_ro(sb, folder, "/run/gone", &err));
        assert_int_equal(rmdir(folder), 0);
        FAILS(ANY_ERROR, folder,
              cg_sandbox_spawn_prepared(sb, NULL, 0, prepare_for_ever, return_data, &zero, &child, &err));
        assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
        assert_int_equal(errno, ECHILD);
}

static int kill_init(void *data, struct cg_err *err)
{
        pid_t init = getppid();

        (void)data;
        (void)err;
        kill(init, SIGKILL);
        while (getppid() == init)
                usleep(1000);
        return 0;
}

/* Nothing else would end a main process whose init was killed before it was to end with it. */
TEST_WITH(main_ends_with_an_init_that_was_killed_early, new_plan, free_plan)
{
        struct cg_sandbox_child child;
        int zero = 0;

        cg_sandbox_set_off(*state);
        FAILS(CG_E_CLOSED, "",
              cg_sandbox_spawn_prepared(*state, NULL, 0, kill_init, return_data, &zero, &child, &err));
}

/* Where init waits, which is the second to fork after the clone: the guard is the first. */
static int gate = -1, forks;

static void count_fork(void)
{
        forks++;
}

static void wait_at_gate(void)
{
        char byte;

        while (gate >= 0 && forks == 2 && read(gate, &byte, 1) < 0)
                ;
}

static int wait_for_ever(void *unused)
{
        while (pause())
                ;
        return !unused;
}

/* While the caller still has the status pipe. */
TEST_WITH(init_sees_that_the_guard_ended_early, new_plan, free_plan)
{
        struct cg_sandbox_child child;
        struct pollfd status = { .events = POLLIN };
        int p[2];

        if (cg_landlock_abi() < CG_TIER_LANDLOCK_ABI) {
                print_message("the landlock tier needs Linux 6.12 with Landlock\n");
                skip();
        }
        OK(cg_sandbox_set_landlock(*state, CG_DENY_RULES_ACCEPT, NULL, &err));
        assert_int_equal(pipe2(p, O_CLOEXEC), 0);
        assert_int_equal(pthread_atfork(count_fork, wait_at_gate, NULL), 0);
        gate = p[0];
        forks = 0;
        spawn_ok(*state, NULL, 0, wait_for_ever, NULL, &child);
        gate = -1;
        assert_int_equal(kill(child.init_pid, SIGKILL), 0); /* the guard */
        assert_int_equal(waitpid(child.init_pid, NULL, 0), child.init_pid);
        assert_int_equal(write(p[1], "x", 1), 1);
        status.fd = child.status_fd;
        assert_int_equal(poll(&status, 1, DEADLINE_MS), 1);
        assert_int_equal(status.revents, POLLHUP); /* init has ended, and the main process with it */
        close(child.status_fd);
        close(child.init_pidfd);
        close(p[0]);
        close(p[1]);
        cg_cgroup_free(child.cgroup);
}

static int make_file(void *path)
{
        int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);

        return fd < 0 ? errno : close(fd);
}

/*
 * Another process removes a folder of the workspace after the plan was made. If something in it is
 * protected it may have been renamed, and the start fails.
 */
TEST_WITH(removed_write_root_is_left_out, new_plan, free_plan)
{
        struct cg_sandbox *sb = *state;
        struct cg_sandbox_child child;
        char work[256], kept[300], gone[300], in[310], file[310];
        struct cg_plan_mount protected = { .kind = CG_PLAN_READ, .path = in, .why = (char *)"test" };

        assert_non_null(getcwd(work, sizeof(work)));
        if (strncmp(work, "/tmp/", 5) == 0 || strncmp(work, "/var/tmp/", 9) == 0) {
                print_message("the build is in %s: /tmp and /var/tmp are the sandbox's own\n", work);
                skip();
        }
        snprintf(kept, sizeof(kept), "%s/cg-kept-XXXXXX", work);
        snprintf(gone, sizeof(gone), "%s/cg-gone-XXXXXX", work);
        assert_non_null(mkdtemp(kept));
        assert_non_null(mkdtemp(gone));
        snprintf(in, sizeof(in), "%s/in", gone);
        snprintf(file, sizeof(file), "%s/file", kept);
        assert_int_equal(mkdir(in, 0700), 0);
        assert_int_equal(cg_sandbox_add_write(sb, kept, NULL), 0);
        assert_int_equal(cg_sandbox_add_write(sb, gone, NULL), 0);
        assert_int_equal(rmdir(in), 0);
        assert_int_equal(rmdir(gone), 0);
        spawn_ok(sb, NULL, 0, make_file, file, &child);
        assert_int_equal(finish(&child).exit_code, 0);
        spawn_ok(sb, NULL, 0, make_file, gone, &child);
        assert_int_equal(finish(&child).exit_code, EROFS);
        assert_int_equal(cg_plan_insert(sb, &protected, NULL), 0);
        FAILS(ANY_ERROR, gone, cg_sandbox_spawn(sb, NULL, 0, make_file, gone, &child, &err));
        assert_int_equal(unlink(file), 0);
        assert_int_equal(rmdir(kept), 0);
}
