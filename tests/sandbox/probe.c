/*
 * sandbox-probe: tries one thing and prints "ok" or the name of the errno. Runs INSIDE the sandbox
 * (and outside, to show that the thing works there). Statically simple: no allocation, no library
 * but libc.
 *
 *      sandbox-probe PROBE [ARG]...
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static char **arg;
static int n_args;

static long number(int i)
{
        return i < n_args ? (long)strtoull(arg[i], NULL, 0) : 0;
}

/* Prints the outcome of a call that returns -1 and errno. */
static int outcome(long result)
{
        printf("%s\n", result < 0 ? strerrorname_np(errno) : "ok");
        return 0;
}

/* ---- sockets */
static int p_socket(void)
{
        return outcome(syscall(SYS_socket, number(0), number(1), number(2)));
}

static int p_accept(void)
{
        char byte;
        int fd = accept4((int)number(0), NULL, NULL, SOCK_CLOEXEC);

        if (fd < 0 || read(fd, &byte, 1) != 1 || write(fd, &byte, 1) != 1)
                return outcome(-1);
        return outcome(0);
}

/* ---- processes */
static int p_fork(void)
{
        int status = -1;
        pid_t pid = fork();

        if (pid == 0)
                _exit(7);
        return outcome(pid > 0 && waitpid(pid, &status, 0) == pid && WEXITSTATUS(status) == 7 ? 0 : -1);
}

/* COUNT: how many children live at once, before fork fails */
static int p_forks(void)
{
        long n = 0, want = number(0);

        for (; n < want; n++) {
                pid_t pid = fork();

                if (pid < 0)
                        break;
                if (pid == 0) {
                        pause();
                        _exit(0);
                }
        }
        printf("%ld\n", n);
        fflush(stdout);
        kill(0, SIGKILL); /* a session of its own: nobody else is in the group */
        return 0;
}

/*
 * Leaves a process behind that has left session, parent and group. It holds FD (if given) until it
 * ends.
 */
static int p_stray(void)
{
        if (fork() == 0) {
                setsid();
                if (fork() == 0) {
                        close(0);
                        close(1);
                        close(2);
                        pause();
                }
                _exit(0);
        }
        wait(NULL);
        return outcome(0);
}

static int p_pause(void)
{
        printf("ready\n");
        fflush(stdout);
        pause();
        return 0;
}

/* SIGNAL */
static int p_die(void)
{
        signal((int)number(0), SIG_DFL);
        raise((int)number(0));
        return 1;
}

/* BYTES */
static int p_malloc(void)
{
        size_t n = (size_t)number(0);
        volatile char *p = malloc(n);

        if (p)
                p[n - 1] = 1;
        return outcome(p ? 0 : -1);
}

/* ---- files */
static int p_read(void)
{
        char byte;
        int fd = open(arg[0], O_RDONLY | O_NONBLOCK);

        return outcome(fd < 0 ? -1 : read(fd, &byte, 1));
}

static int p_write(void)
{
        int fd = open(arg[0], O_WRONLY | O_APPEND | O_NONBLOCK);

        return outcome(fd < 0 ? -1 : write(fd, "x", 1));
}

/* Opened for writing, nothing written: what matters is whether a file of the system could be. */
static int p_open_write(void)
{
        return outcome(open(arg[0], O_WRONLY | O_NONBLOCK));
}

static int p_create(void)
{
        return outcome(open(arg[0], O_WRONLY | O_CREAT | O_EXCL, 0644));
}

static int p_truncate(void)
{
        return outcome(truncate(arg[0], 0));
}

static int p_unlink(void)
{
        return outcome(unlink(arg[0]));
}

static int p_rmdir(void)
{
        return outcome(rmdir(arg[0]));
}

static int p_rename(void)
{
        return outcome(rename(arg[0], arg[1]));
}

static int p_mknod(void)
{
        return outcome(mknod(arg[0], S_IFCHR | 0600, 0x103 /* null */));
}

/* ---- descriptors and terminals */
static int p_fds(void)
{
        for (int fd = 0; fd < 4096; fd++) {
                if (fcntl(fd, F_GETFD) >= 0)
                        printf("%d ", fd);
        }
        printf("\n");
        return 0;
}

static const struct {
        const char *name;
        int (*fn)(void);
        int args;
} probes[] = {
        { "socket", p_socket, 3 },     { "accept", p_accept, 1 },         { "fork", p_fork, 0 },
        { "forks", p_forks, 1 },       { "stray", p_stray, 0 },           { "pause", p_pause, 0 },
        { "die", p_die, 1 },           { "malloc", p_malloc, 1 },         { "read", p_read, 1 },
        { "write", p_write, 1 },       { "open-write", p_open_write, 1 }, { "create", p_create, 1 },
        { "truncate", p_truncate, 1 }, { "unlink", p_unlink, 1 },         { "rmdir", p_rmdir, 1 },
        { "rename", p_rename, 2 },     { "mknod", p_mknod, 1 },           { "fds", p_fds, 0 },
};

int main(int argc, char **argv)
{
        for (size_t i = 0; argc > 1 && i < sizeof(probes) / sizeof(*probes); i++) {
                if (strcmp(argv[1], probes[i].name))
                        continue;
                arg = argv + 2;
                n_args = argc - 2;
                if (n_args >= probes[i].args)
                        return probes[i].fn();
        }
        fprintf(stderr, "sandbox-probe: no such probe, or too few arguments\n");
        return 2;
}
