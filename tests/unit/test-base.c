/* base: buffers, errors, JSON, text, descriptors, processes. */
#include <sched.h>
#include <stdatomic.h>
#include "base/base64.h"
#include "base/log.h"
#include "base/proc.h"
#include "base/secrets.h"
#include "base/text.h"
#include "cases.h"

TEST(test_buf_ceiling)
{
        cg_auto_buf struct cg_buf b;

        cg_buf_init(&b, 10);
        OK(cg_buf_try_adds(&b, "0123456789", &err));
        FAILS(CG_E_LIMIT, "", cg_buf_try_adds(&b, "x", &err));
        assert_string_equal(b.data, "0123456789");
        cg_buf_consume(&b, 4);
        assert_string_equal(b.data, "456789");
        OK(cg_buf_try_addf(&b, &err, "%d", 1234));
        FAILS(CG_E_LIMIT, "", cg_buf_try_addf(&b, &err, "%d", 1));
}

TEST(test_buf_keeps_the_first_failure)
{
        cg_auto_buf struct cg_buf b;
        char *text;

        cg_buf_init(&b, 10);
        cg_buf_addf(&b, "%d", 12345);
        OK(cg_buf_end(&b, &err));
        cg_buf_adds(&b, "678901");
        cg_buf_adds(&b, "6");
        cg_buf_addf(&b, "%d", 7);
        cg_buf_fail(&b, CG_E_NOMEM);
        FAILS(CG_E_LIMIT, "limit of 10 bytes", cg_buf_end(&b, &err));
        FAILS(CG_E_LIMIT, "", cg_buf_try_adds(&b, "x", &err));
        assert_string_equal(b.data, "12345");
        cg_buf_clear(&b);
        cg_buf_adds(&b, "again");
        OK(cg_buf_end(&b, &err));
        assert_string_equal(b.data, "again");
        cg_buf_fail(&b, CG_E_NOMEM);
        assert_null(cg_buf_steal(&b, NULL));
        cg_buf_adds(&b, "stolen");
        text = cg_buf_steal(&b, NULL);
        assert_string_equal(text, "stolen");
        free(text);
}

TEST(test_err_cut_is_marked)
{
        struct cg_err err;
        char big[3000];

        memset(big, 'x', sizeof(big));
        big[sizeof(big) - 1] = '\0';
        assert_int_equal(cg_fail(&err, CG_E_INVAL, "%s", big), CG_E_INVAL);
        assert_string_equal(err.msg + strlen(err.msg) - 3, "...");
        errno = ENOENT;
        assert_int_equal(cg_fail_errno(&err, "open %s", "/x"), CG_E_SYS);
        assert_int_equal(err.sys_errno, ENOENT);
        assert_string_equal(err.msg, "open /x: No such file or directory");
        cg_err_prefix(&err, "settings");
        assert_string_equal(err.msg, "settings: open /x: No such file or directory");
}

TEST(test_json_object_errors_have_places)
{
        cg_auto_json json_t *o = NULL;
        struct cg_err err;

        assert_int_equal(cg_json_object("{\n \"a\": }", 9, "x.json", &o, &err), CG_E_PARSE);
        assert_non_null(strstr(err.msg, "x.json"));
        assert_non_null(strstr(err.msg, "line 2, column"));
        assert_int_equal(cg_json_object("[]", 2, "x.json", &o, &err), CG_E_PARSE);
        assert_int_equal(cg_json_object("{\"a\":1,\"a\":2}", 13, "x.json", &o, &err), CG_E_PARSE);
        assert_int_equal(cg_json_object("\xef\xbb\xbf{}", 5, "x.json", &o, &err), 0);
}

TEST(test_json_check)
{
        EACH_CASE(c, "objects")
        OK(cg_json_check_object(c.in, c.len, 20, &err));
        EACH_CASE(c, "no objects")
        FAILS(CG_E_PARSE, "", cg_json_check_object(c.in, c.len, 20, &err));
        EACH_CASE(c, "encodable")
        OK(cg_json_check_encodable(c.in, c.len, 20, &err));
        EACH_CASE(c, "not encodable")
        FAILS(CG_E_PARSE, "", cg_json_check_encodable(c.in, c.len, 20, &err));
}

TEST(test_json_quote)
{
        cg_auto_buf struct cg_buf b;

        cg_buf_init(&b, 1000);
        OK(cg_json_try_quote(&b, "a\"\\\n\x01\xc3\xa4\xf0\x9f\x98\x80\xff\0z", 14, &err));
        assert_string_equal(b.data, "\"a\\\"\\\\\\n\\u0001\\u00e4\\ud83d\\ude00\\ufffd\\u0000z\"");
}

/* Every byte at every place of texts of every length around a word's. */
TEST(test_runs_end_where_they_must)
{
        char text[40];

        for (size_t len = 0; len <= sizeof(text); len++) {
                memset(text, 'x', sizeof(text));
                assert_int_equal(cg_json_run(text, len), len);
                for (size_t at = 0; at < len; at++) {
                        for (unsigned c = 0; c < 256; c++) {
                                bool plain = c >= 0x20 && c < 0x80 && c != '"' && c != '\\';

                                memset(text, c & 1 ? ' ' : 0x7f, sizeof(text));
                                text[at] = (char)c;
                                assert_int_equal(cg_json_run(text, len), plain ? len : at);
                        }
                }
        }
}

static void render_as(enum cg_text_for what, const char *in, const char *out)
{
        cg_auto_buf struct cg_buf b = { .max = 10000 };

        assert_int_equal(cg_text_try_render_as(&b, in, strlen(in), 0, what, NULL), 0);
        assert_string_equal(b.data ? b.data : "", out);
}

TEST(test_render_shows_what_could_fool)
{
        cg_auto_buf struct cg_buf b;
        char big[1000];

        EACH_CASE(c, "rendered")
        render_as(CG_TEXT_OUTPUT, c.in, c.out);
        memset(big, 'x', sizeof(big));
        cg_buf_init(&b, 10000);
        OK(cg_text_try_render(&b, big, sizeof(big), 200, &err));
        assert_true(b.len <= 200);
        assert_non_null(strstr(b.data, "more bytes not shown]"));
}

/* Blanks, format characters, and letters that are written from right to left. */
TEST(test_render_leaves_nothing_that_deceives)
{
        EACH_CASE(c, "escaped characters")
        {
                uint32_t point = (uint32_t)strtoul(c.in, NULL, 16);
                char in[16] = "a", out[32];

                in[1 + cg_utf8_put(point, in + 1)] = 'b';
                snprintf(out, sizeof(out),
                         point < 0x100     ? "a\\x%02xb"
                         : point < 0x10000 ? "a\\u%04xb"
                                           : "a\\U%08xb",
                         point);
                render_as(CG_TEXT_JUDGED, in, out);
                render_as(CG_TEXT_OUTPUT, in, strcmp(c.out, "always") ? in : out);
        }
        render_as(CG_TEXT_LINE, "a\tb\nc", "a\\x09b\\x0ac");
}

TEST(test_render_marks_letters_of_other_scripts)
{
        static const char *const plain[] = {
                "Привет, мир: /home/ivan/Документы/отчёт.txt",
                "Ελληνικά",
                "日本語のテキスト iPhone版 Tシャツ",
                "한국어",
                "naïve Çelik ısı e\u0301",
                "ภาษาไทยที่นี่",
                "नमस्ते",
                "မြွှေ့",
                "Straße – “quoted” … ’s 5 × 3 😀",
                "中文 hello",
                "Հայերեն գիրք",
        };

        for (size_t i = 0; i < CG_ARRAY_LEN(plain); i++)
                render_as(CG_TEXT_JUDGED, plain[i], plain[i]);
        EACH_CASE(c, "marked")
        render_as(CG_TEXT_JUDGED, c.in, c.out);
        render_as(CG_TEXT_OUTPUT, "p\u0430ul", "p\u0430ul");
}

TEST(test_render_bounds_combining_marks)
{
        char in[1 + 2 * 50 + 1] = "a", out[1 + 2 * 6 + 6 * 44 + 1] = "a";

        for (int i = 0; i < 50; i++) {
                strcat(in, "\u0301");
                strcat(out, i < 6 ? "\u0301" : "\\u0301");
        }
        render_as(CG_TEXT_JUDGED, in, out);
        render_as(CG_TEXT_OUTPUT, in, out);
        render_as(CG_TEXT_JUDGED, "/\u0301", "/\\u0301"); /* on what is no letter */
        render_as(CG_TEXT_OUTPUT, "\u0301", "\\u0301");   /* on what was written before */
}

TEST(test_log_is_one_line)
{
        int p[2];
        char line[500];
        struct cg_log log = { .level = CG_LOG_INFO, .who = "test" };
        ssize_t n;

        assert_int_equal(pipe(p), 0);
        log.fd = p[1];
        cg_log(&log, CG_LOG_DEBUG, "not this");
        cg_log(&log, CG_LOG_WARN, "two\nlines %s", "\x1b[0m");
        n = read(p[0], line, sizeof(line) - 1);
        assert_true(n > 0);
        line[n] = '\0';
        assert_non_null(strstr(line, " warn test: two\\x0alines \\x1b[0m\n"));
        assert_ptr_equal(strchr(line, '\n'), line + n - 1);
        /*
         * Control characters of eight bits, and what changes the direction of text, are no less
         * dangerous.
         */
        cg_log(&log, CG_LOG_WARN,
               "\u00e9 \xc2\x9b"
               "2J \u202e \xff");
        n = read(p[0], line, sizeof(line) - 1);
        assert_true(n > 0);
        line[n] = '\0';
        assert_non_null(strstr(line, " warn test: \u00e9 \\x9b2J \\u202e \\xff\n"));
        close(p[0]);
        close(p[1]);
}

TEST(test_fds_pass_and_are_cloexec)
{
        int s[2], p[2], got[4];
        size_t n = 4;
        char text[16];
        struct cg_err err;

        assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, s), 0);
        assert_int_equal(pipe(p), 0);
        assert_int_equal(cg_send_fds(s[0], "hi", 2, p, 2, &err), 0);
        assert_int_equal(cg_recv_fds(s[1], text, sizeof(text), got, &n, &err), 2);
        assert_int_equal(n, 2);
        assert_int_equal(fcntl(got[0], F_GETFD), FD_CLOEXEC);
        assert_int_equal(write(got[1], "x", 1), 1);
        assert_int_equal(read(p[0], text, 1), 1);
        close(got[0]);
        close(got[1]);
        /* More than there is room for: refused, and nothing stays open. */
        n = 1;
        assert_int_equal(cg_send_fds(s[0], "hi", 2, p, 2, &err), 0);
        assert_int_equal(cg_recv_fds(s[1], text, sizeof(text), got, &n, &err), CG_E_LIMIT);
        assert_int_equal(n, 0);
        assert_int_equal(fcntl(got[0], F_GETFD), -1);
        n = 4;
        close(s[0]);
        assert_int_equal(cg_recv_fds(s[1], text, sizeof(text), got, &n, &err), 0);
        close(s[1]);
        close(p[0]);
        close(p[1]);
}

TEST(test_spawn_gives_exactly_the_table)
{
        int p[2], extra = open("/dev/null", O_RDONLY); /* deliberately not close-on-exec */
        /*
         * Only built-in commands: a pipe of the shell's own would show among its descriptors now
         * and then.
         */
        static const char look[] =
                "i=0; while [ $i -lt 64 ]; do [ -e /proc/self/fd/$i ] && printf \"$i \"; i=$((i+1)); done; "
                "echo $A$HOME >&5; exit 3";
        const char *argv[] = { "sh", "-c", look, NULL };
        const char *envp[] = { "A=1", "PATH=/usr/bin:/bin", NULL };
        struct cg_proc proc;
        cg_auto_free char *out = NULL;
        size_t len;
        int status;

        assert_int_equal(pipe2(p, O_CLOEXEC), 0);
        {
                struct cg_proc_fd fds[] = { { -1, 0 }, { p[1], 1 }, { -1, 2 }, { p[1], 5 } };
                struct cg_proc_spec spec = { .path = "/bin/sh",
                                             .argv = (char *const *)argv,
                                             .envp = (char *const *)envp,
                                             .fds = fds,
                                             .n_fds = 4 };

                OK(cg_proc_spawn(&spec, &proc, &err));
        }
        close(p[1]);
        OK(cg_read_fd(p[0], "output", 1000, &out, &len, &err));
        OK(cg_proc_wait(&proc, 5000, &status, &err));
        assert_int_equal(WEXITSTATUS(status), 3);
        assert_string_equal(out, "0 1 2 5 1\n");
        close(p[0]);
        close(extra);
}

TEST(test_spawn_reports_exec_errors)
{
        const char *argv[] = { "x", NULL };
        struct cg_proc_spec spec = { .path = "/dev/null/program", .argv = (char *const *)argv };
        struct cg_proc proc;
        struct cg_err err;

        assert_int_equal(cg_proc_spawn(&spec, &proc, &err), CG_E_SYS);
        assert_int_equal(err.sys_errno, ENOTDIR);
        assert_non_null(strstr(err.msg, "/dev/null/program"));
        spec.path = "surely-no-such-program";
        spec.search_path = "/usr/bin:/bin";
        assert_int_equal(cg_proc_spawn(&spec, &proc, &err), CG_E_NOTFOUND);
        spec.path = "/bin/true";
        spec.cwd = "/dev/null";
        assert_int_equal(cg_proc_spawn(&spec, &proc, &err), CG_E_SYS);
        assert_non_null(strstr(err.msg, "working folder"));
        assert_int_equal(waitpid(-1, NULL, WNOHANG), -1); /* nothing is left to reap */
}

TEST_WITH(test_a_missing_home_is_not_made, enter_folder, leave_folder)
{
        const char *home = path_in("home"), *inside = path_in("home/.cache/cellgate");

        assert_int_equal(setenv("HOME", home, 1), 0);
        FAILS(CG_E_NOTFOUND, "HOME", cg_make_dirs(inside, 0700, &err));
        FAILS(CG_E_NOTFOUND, "", cg_make_dirs(home, 0700, &err));
        assert_int_equal(access(home, F_OK), -1);
        make_folders(path_in("homes/.cache"));
        assert_int_equal(mkdir(home, 0700), 0);
        make_folders(inside);
        assert_int_equal(access(inside, F_OK), 0);
}

TEST(test_end_kills_the_group)
{
        const char *argv[] = { "sh", "-c", "trap '' TERM; sleep 1000 & echo $!; wait; wait", NULL };
        const char *envp[] = { "PATH=/usr/bin:/bin", NULL };
        struct cg_proc proc;
        char text[32];
        ssize_t n;
        int p[2];

        assert_int_equal(pipe2(p, O_CLOEXEC), 0);
        {
                struct cg_proc_fd fds[] = { { -1, 0 }, { p[1], 1 } };
                struct cg_proc_spec spec = { .path = "/bin/sh",
                                             .argv = (char *const *)argv,
                                             .envp = (char *const *)envp,
                                             .fds = fds,
                                             .n_fds = 2,
                                             .new_session = true };

                OK(cg_proc_spawn(&spec, &proc, &err));
        }
        close(p[1]);
        n = read(p[0], text, sizeof(text) - 1);
        assert_true(n > 0);
        cg_proc_end(&proc, true, 50);
        assert_int_equal(proc.pidfd, -1);
        /* The grandchild held the pipe's write end too: end of file says that it is gone. */
        OK(cg_wait_fd(p[0], 1, 5000, &err));
        assert_int_equal(read(p[0], text, 1), 0);
        close(p[0]);
}

TEST(test_remove_tree_does_not_follow_links)
{
        char dir[128];
        struct stat st;

        OK(cg_make_runtime_dir("cg-test", dir, sizeof(dir), &err));
        assert_int_equal(stat(dir, &st), 0);
        assert_int_equal(st.st_mode & 0777, 0700);
        strcpy(test_dir, dir);
        make_folders(path_in("keep"));
        make_folders(path_in("tree"));
        assert_int_equal(symlink("../keep", path_in("tree/link")), 0);
        OK(cg_remove_tree(path_in("tree"), &err));
        assert_int_equal(access(path_in("tree"), F_OK), -1);
        assert_int_equal(access(path_in("keep"), F_OK), 0);
        OK(cg_remove_tree(dir, &err));
        OK(cg_remove_tree(dir, &err)); /* absent is fine */
}

/*
 * Files of a hostile program: folders deeper than the longest path, without permissions, with
 * names like cellgate's.
 */
TEST(test_remove_tree_at_any_depth)
{
        char dir[200];
        size_t depth = rounds(3000, 300);
        struct stat st;
        int fd;

        OK(cg_make_runtime_dir("cg-test", dir, sizeof(dir), &err));
        fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        assert_int_equal(mkdirat(fd, ".cellgate-0", 0700), 0);
        assert_int_equal(mkdirat(fd, ".cellgate-0/.cellgate-1", 0700), 0);
        for (size_t i = 0; i < depth; i++) {
                int next;

                assert_int_equal(mkdirat(fd, "folder", 0700), 0);
                assert_int_equal(symlinkat("/", fd, "link"), 0);
                next = openat(fd, "folder", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
                assert_true(next >= 0);
                assert_int_equal(fchmod(fd, i % 2 ? 0 : 0500), 0);
                close(fd);
                fd = next;
        }
        close(fd);
        OK(cg_remove_tree(dir, &err));
        assert_int_equal(stat(dir, &st), -1);
}

struct maker {
        int dir;
        atomic_bool stop;
        atomic_ulong made;
};

static void *make_files(void *arg)
{
        struct maker *m = arg;
        char name[40];

        while (!atomic_load(&m->stop)) {
                snprintf(name, sizeof(name), "%lu", atomic_fetch_add(&m->made, 1));
                mkdirat(m->dir, name, 0700);
        }
        return NULL;
}

/* The removal ends although another process adds files. */
TEST(test_remove_tree_has_an_end)
{
        char dir[200];
        struct maker m = { .stop = false };
        pthread_t threads[2];
        struct cg_err err;

        assert_int_equal(cg_make_runtime_dir("cg-test", dir, sizeof(dir), &err), 0);
        m.dir = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        assert_int_equal(mkdirat(m.dir, "kept", 0700), 0);
        assert_int_equal(cg_remove_tree_within(dir, 0, &err), CG_E_TIMEDOUT);
        assert_non_null(strstr(err.msg, dir));
        assert_int_equal(faccessat(m.dir, "kept", F_OK, 0), 0);
        for (size_t i = 0; i < CG_ARRAY_LEN(threads); i++)
                assert_int_equal(pthread_create(&threads[i], NULL, make_files, &m), 0);
        while (atomic_load(&m.made) < 100)
                sched_yield();
        cg_remove_tree_within(dir, 300, &err); /* it comes back; mostly because its time is over */
        atomic_store(&m.stop, true);
        for (size_t i = 0; i < CG_ARRAY_LEN(threads); i++)
                pthread_join(threads[i], NULL);
        close(m.dir);
        assert_int_equal(cg_remove_tree(dir, &err), 0);
        assert_int_equal(cg_remove_tree(dir, &err), 0);
}

/* It says of @path what realpath(3) says. */
static void check_real(const char *path)
{
        char want[PATH_MAX], got[PATH_MAX];
        bool there = realpath(path, want) != NULL;
        int e = errno;

        assert_int_equal(cg_real_path(path, got), there);
        if (there)
                assert_string_equal(got, want);
        else
                assert_int_equal(errno, e);
}

TEST_WITH(test_real_path, enter_folder, leave_folder)
{
        static const char *const names[] = { ".",         "file",       "file (deleted)", "link",
                                             "dangling",  "loop",       "link/file",      "none",
                                             "none/file", "file/below", "folder/../file", "folder//" };

        assert_int_equal(chdir(test_dir), 0);
        for (size_t i = 1; i < 3; i++)
                write_file(names[i], "");
        assert_int_equal(mkdir("folder", 0700), 0);
        assert_int_equal(symlink(".", "link"), 0);
        assert_int_equal(symlink("none", "dangling"), 0);
        assert_int_equal(symlink("loop", "loop"), 0);
        for (size_t i = 0; i < CG_ARRAY_LEN(names); i++) {
                check_real(path_in(names[i]));
                check_real(names[i]);
        }
        check_real("/");
        assert_int_equal(chdir("/"), 0);
}

TEST_WITH(test_write_atomically, enter_folder, leave_folder)
{
        const char *path = path_in("f");
        struct stat st;
        size_t len;
        char *text;

        OK(cg_write_atomically(path, "a\0b", 3, 0640, &err));
        OK(cg_read_file(path, 100, &text, &len, &err));
        assert_int_equal(len, 3);
        assert_memory_equal(text, "a\0b", 3);
        free(text);
        assert_int_equal(stat(path, &st), 0);
        assert_int_equal(st.st_mode & 0777, 0640);
        /* A link is replaced and not followed. */
        unlink(path);
        assert_int_equal(symlink("/dev/null", path), 0);
        OK(cg_write_atomically(path, "x", 1, 0600, &err));
        assert_int_equal(lstat(path, &st), 0);
        assert_true(S_ISREG(st.st_mode) && st.st_size == 1);
        /* Nothing is left of one that fails. */
        unlink(path);
        assert_int_equal(mkdir(path, 0700), 0);
        FAILS(ANY_ERROR, "", cg_write_atomically(path, "x", 1, 0600, &err));
        assert_int_equal(rmdir(path), 0);
        FAILS(CG_E_SYS, "", cg_write_atomically(path_in("none/f"), "x", 1, 0600, &err));
}

TEST(test_lock_fd)
{
        int a = open("/tmp", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600), b;
        atomic_bool stop = false;
        char path[32];
        struct cg_err err;

        assert_true(a >= 0);
        snprintf(path, sizeof(path), "/proc/self/fd/%d", a);
        b = open(path, O_RDWR | O_CLOEXEC);
        assert_true(b >= 0);
        assert_int_equal(cg_lock_fd(a, 0, NULL, &err), 0);
        assert_int_equal(cg_lock_fd(b, 0, NULL, &err), CG_TIMEOUT);
        assert_int_equal(cg_lock_fd(b, 30, &stop, &err), CG_TIMEOUT);
        stop = true;
        assert_int_equal(cg_lock_fd(b, 60000, &stop, &err), CG_E_CLOSED);
        close(a);
        assert_int_equal(cg_lock_fd(b, 0, &stop, &err), 0);
        close(b);
        assert_int_equal(cg_lock_fd(b, 0, NULL, &err), CG_E_SYS);
}

TEST(test_base64)
{
        char out[16];

        EACH_CASE(c, "base64")
        {
                assert_int_equal(cg_base64_size(c.len), strlen(c.out));
                cg_base64(out, c.in, c.len);
                assert_memory_equal(out, c.out, strlen(c.out));
        }
        EACH_CASE(c, "decoded base64")
        {
                cg_auto_buf struct cg_buf b = { .max = 1000 };

                OK(cg_base64_decode(c.in, c.len, &b, &err));
                assert_string_equal(b.data ? b.data : "", c.out);
        }
        EACH_CASE(c, "no base64")
        {
                cg_auto_buf struct cg_buf b = { .max = 1000 };

                FAILS(CG_E_PARSE, "", cg_base64_decode(c.in, c.len, &b, &err));
        }
        assert_int_equal(cg_base64_size(SIZE_MAX), 0);
}

TEST(test_proc_stat)
{
        struct cg_proc_stat self, same;

        assert_true(cg_proc_read_stat(0, &self));
        assert_int_equal(self.pid, getpid());
        assert_int_equal(self.parent, getppid());
        assert_int_equal(self.group, getpgrp());
        assert_true(cg_proc_read_stat(getpid(), &same));
        assert_true(self.started > 0 && self.started == same.started);
        assert_false(cg_proc_read_stat(0x7fffffff, &same));
        assert_int_equal(cg_proc_of_entry("12"), 12);
        assert_int_equal(cg_proc_of_entry("self"), 0);
}

TEST(test_hex)
{
        char a[33], b[33];

        cg_hex(a, "\x00\x0f\xa5\xff", 4);
        assert_string_equal(a, "000fa5ff");
        for (int c = 0; c < 256; c++) {
                const char *digits = "0123456789abcdefABCDEF", *at = c ? strchr(digits, c) : NULL;
                int value = at ? (int)(at - digits) : -1;

                assert_int_equal(cg_hex_digit((char)c), value < 16 ? value : value - 6);
        }
        OK(cg_random_hex(a, 16, &err));
        OK(cg_random_hex(b, 16, &err));
        assert_int_equal(strspn(a, "0123456789abcdef"), 32);
        assert_int_equal(strlen(b), 32);
        assert_string_not_equal(a, b);
}

TEST(test_fnv1a)
{
        assert_true(cg_fnv1a(CG_FNV1A, "", 0) == UINT64_C(0xcbf29ce484222325));
        assert_true(cg_fnv1a(CG_FNV1A, "foobar", 6) == UINT64_C(0x85944171f73967e8));
        assert_true(cg_fnv1a(cg_fnv1a(CG_FNV1A, "foo", 3), "bar", 3) == UINT64_C(0x85944171f73967e8));
}

TEST(test_utf8_put)
{
        static const uint32_t points[] = { 0, 0x7f, 0x80, 0x7ff, 0x800, 0xffff, 0x10000, 0x10ffff };
        char out[4];

        for (size_t i = 0; i < CG_ARRAY_LEN(points); i++) {
                uint32_t c = 1;
                size_t n = cg_utf8_put(points[i], out);

                assert_int_equal(cg_utf8_next((const unsigned char *)out, n, &c), n);
                assert_int_equal(c, points[i]);
        }
        assert_int_equal(cg_utf8_put(0xd800, out), 3);
        assert_memory_equal(out, "\xed\xa0\x80", 3);
}

static void check_redacted(const struct cg_secrets *s, const char *text, const char *want)
{
        cg_auto_free char *copy = strdup(text);

        cg_secrets_redact(s, copy);
        assert_string_equal(copy, want);
}

TEST(test_secrets)
{
        static const char *const values[] = { "tok-31415 92\"65\nend", "pin7", "1",
                                              "db://u:open-sesame@h/x" };
        cg_auto_secrets struct cg_secrets s = { .v = NULL };

        check_redacted(&s, "tok-31415", "tok-31415");
        for (size_t i = 0; i < CG_ARRAY_LEN(values); i++)
                assert_int_equal(cg_secrets_add(&s, values[i], NULL), 0);
        EACH_CASE(c, "redacted")
        check_redacted(&s, c.in, c.out);
        s.whole = true;
        EACH_CASE(c, "redacted as a whole")
        check_redacted(&s, c.in, c.out);
}

TEST(test_secrets_in_json)
{
        cg_auto_secrets struct cg_secrets s = { .v = NULL };
        cg_auto_json json_t *o = json_pack("{s:s%, s:[s, {s:s}], s:i}", "nul", "a\0b", (size_t)3, "list",
                                           "tok-31415926", "in", "x tok-31415926", "n", 3);
        cg_auto_free char *text = NULL;

        cg_secrets_redact_json(&s, o);
        assert_int_equal(json_string_length(json_object_get(o, "nul")), 3);
        assert_int_equal(cg_secrets_add(&s, "tok-31415926", NULL), 0);
        cg_secrets_redact_json(&s, o);
        assert_int_equal(json_string_length(json_object_get(o, "nul")), 3);
        text = json_dumps(o, JSON_COMPACT | JSON_SORT_KEYS);
        assert_string_equal(text, "{\"list\":[\"***\",{\"in\":\"x ***\"}],\"n\":3,\"nul\":\"a\\u0000b\"}");
}
