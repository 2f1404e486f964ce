/*
 * sandbox-probe: tries one thing and prints "ok" or the name of the errno. Runs INSIDE the sandbox
 * (and outside, to show that the thing works there). Statically simple: no allocation, no library
 * but libc.
 *
 *      sandbox-probe PROBE [ARG]...
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <netinet/in.h>
#include <pthread.h>
#include <pty.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
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

/* ---- any system call: NUMBER [ARG]... */
static int p_syscall(void)
{
        return outcome(syscall(number(0), number(1), number(2), number(3), number(4), number(5), number(6)));
}

/* ---- sockets */
static int p_socket(void)
{
        return outcome(syscall(SYS_socket, number(0), number(1), number(2)));
}

static int p_socketpair(void)
{
        int sv[2];

        return outcome(syscall(SYS_socketpair, number(0), number(1), 0, sv));
}

static int p_accept(void)
{
        char byte;
        int fd = accept4((int)number(0), NULL, NULL, SOCK_CLOEXEC);

        if (fd < 0 || read(fd, &byte, 1) != 1 || write(fd, &byte, 1) != 1)
                return outcome(-1);
        return outcome(0);
}

static int serve_and_connect(int family, const struct sockaddr *any, socklen_t len)
{
        struct sockaddr_storage at;
        socklen_t at_len = sizeof(at);
        int server = socket(family, SOCK_STREAM, 0), client = socket(family, SOCK_STREAM, 0), conn;
        char byte = 'x';

        if (server < 0 || client < 0 || bind(server, any, len) < 0 || listen(server, 1) < 0)
                return -1;
        if (getsockname(server, (struct sockaddr *)&at, &at_len) < 0 ||
            connect(client, (struct sockaddr *)&at, at_len) < 0)
                return -1;
        conn = accept(server, NULL, NULL);
        return conn < 0 || write(client, &byte, 1) != 1 || read(conn, &byte, 1) != 1 ? -1 : 0;
}

static int p_tcp4(void)
{
        struct sockaddr_in any = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };

        return outcome(serve_and_connect(AF_INET, (struct sockaddr *)&any, sizeof(any)));
}

static int p_tcp6(void)
{
        struct sockaddr_in6 any = { .sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT };

        return outcome(serve_and_connect(AF_INET6, (struct sockaddr *)&any, sizeof(any)));
}

/* ADDRESS PORT */
static int p_connect4(void)
{
        struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons((uint16_t)number(1)) };
        int fd = socket(AF_INET, SOCK_STREAM, 0);

        inet_pton(AF_INET, arg[0], &to.sin_addr);
        return outcome(fd < 0 ? -1 : connect(fd, (struct sockaddr *)&to, sizeof(to)));
}

/* FD: a datagram to the unix socket PATH through an inherited or paired socket */
static int p_unix_send(void)
{
        struct sockaddr_un to = { .sun_family = AF_UNIX };
        int sv[2];

        if (socketpair(AF_UNIX, SOCK_DGRAM, 0, sv) < 0)
                return outcome(-1);
        snprintf(to.sun_path, sizeof(to.sun_path), "%s", arg[0]);
        return outcome(sendto(sv[0], "x", 1, 0, (struct sockaddr *)&to, sizeof(to)));
}

/* PATH: connect a stream of a pair to something else */
static int p_unix_reconnect(void)
{
        struct sockaddr_un to = { .sun_family = AF_UNIX };
        int sv[2];

        snprintf(to.sun_path, sizeof(to.sun_path), "%s", arg[0]);
        if (socketpair(AF_UNIX, SOCK_STREAM, 0, sv) < 0)
                return outcome(-1);
        close(sv[1]);
        return outcome(connect(sv[0], (struct sockaddr *)&to, sizeof(to)));
}

/* ---- processes */
static void *in_thread(void *data)
{
        *(int *)data = 1;
        return NULL;
}

static int p_thread(void)
{
        pthread_t t;
        int ran = 0;
        int e = pthread_create(&t, NULL, in_thread, &ran);

        if (e) {
                errno = e;
                return outcome(-1);
        }
        pthread_join(t, NULL);
        return outcome(ran ? 0 : -1);
}

static int p_fork(void)
{
        int status = -1;
        pid_t pid = fork();

        if (pid == 0)
                _exit(7);
        return outcome(pid > 0 && waitpid(pid, &status, 0) == pid && WEXITSTATUS(status) == 7 ? 0 : -1);
}

/* FLAGS */
static int p_clone(void)
{
        long pid = syscall(SYS_clone, number(0) | SIGCHLD, 0, 0, 0, 0);

        if (pid == 0)
                _exit(0);
        return outcome(pid);
}

static int p_clone3(void)
{
        struct clone_args a = { .flags = (uint64_t)number(0), .exit_signal = SIGCHLD };
        long pid = syscall(SYS_clone3, &a, sizeof(a));

        if (pid == 0)
                _exit(0);
        return outcome(pid);
}

/* PID SIGNAL */
static int p_kill(void)
{
        return outcome(kill((pid_t)number(0), (int)number(1)));
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

/* Another architecture's way in: killed, or the number printed. */
static int p_x32(void)
{
        printf("%ld\n", syscall(0x40000000 + 39 /* getpid */));
        return 0;
}

static int p_i386(void)
{
#if defined(__x86_64__)
        long result;

        __asm__ volatile("int $0x80"
                         : "=a"(result)
                         : "a"(20 /* getpid */)
                         : "memory", "r8", "r9", "r10", "r11");
        printf("%ld\n", result);
#else
        printf("none\n");
#endif
        return 0;
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

static int p_mkdir(void)
{
        return outcome(mkdir(arg[0], 0755));
}

static int p_rmdir(void)
{
        return outcome(rmdir(arg[0]));
}

static int p_rename(void)
{
        return outcome(rename(arg[0], arg[1]));
}

static int p_link(void)
{
        return outcome(link(arg[0], arg[1]));
}

static int p_symlink(void)
{
        return outcome(symlink(arg[0], arg[1]));
}

static int p_mkfifo(void)
{
        return outcome(mkfifo(arg[0], 0600));
}

static int p_mknod(void)
{
        return outcome(mknod(arg[0], S_IFCHR | 0600, 0x103 /* null */));
}

static int p_chmod(void)
{
        return outcome(chmod(arg[0], 0777));
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

static int p_events(void)
{
        struct epoll_event ev = { .events = EPOLLIN };
        int ep = epoll_create1(EPOLL_CLOEXEC), efd = eventfd(1, EFD_CLOEXEC), p[2];

        if (ep < 0 || efd < 0 || pipe2(p, O_CLOEXEC) < 0 || epoll_ctl(ep, EPOLL_CTL_ADD, efd, &ev) < 0)
                return outcome(-1);
        return outcome(epoll_wait(ep, &ev, 1, 1000) == 1 ? 0 : -1);
}

static int p_pty(void)
{
        int master, slave;
        char byte = 0;

        if (openpty(&master, &slave, NULL, NULL, NULL) < 0 || write(slave, "y", 1) != 1 ||
            read(master, &byte, 1) != 1)
                return outcome(-1);
        return outcome(byte == 'y' ? 0 : -1);
}

/* REQUEST: on a terminal of our own */
static int p_tty_ioctl(void)
{
        int master, slave, value = 'x';

        if (openpty(&master, &slave, NULL, NULL, NULL) < 0)
                return outcome(-1);
        return outcome(syscall(SYS_ioctl, slave, number(0), &value));
}

static int p_ctty(void)
{
        return outcome(open("/dev/tty", O_RDWR));
}

static const struct {
        const char *name;
        int (*fn)(void);
        int args;
} probes[] = {
        { "syscall", p_syscall, 1 },
        { "socket", p_socket, 3 },
        { "socketpair", p_socketpair, 2 },
        { "accept", p_accept, 1 },
        { "tcp4", p_tcp4, 0 },
        { "tcp6", p_tcp6, 0 },
        { "connect4", p_connect4, 2 },
        { "unix-send", p_unix_send, 1 },
        { "unix-reconnect", p_unix_reconnect, 1 },
        { "thread", p_thread, 0 },
        { "fork", p_fork, 0 },
        { "clone", p_clone, 1 },
        { "clone3", p_clone3, 1 },
        { "kill", p_kill, 2 },
        { "forks", p_forks, 1 },
        { "stray", p_stray, 0 },
        { "pause", p_pause, 0 },
        { "die", p_die, 1 },
        { "malloc", p_malloc, 1 },
        { "x32", p_x32, 0 },
        { "i386", p_i386, 0 },
        { "read", p_read, 1 },
        { "write", p_write, 1 },
        { "open-write", p_open_write, 1 },
        { "create", p_create, 1 },
        { "truncate", p_truncate, 1 },
        { "unlink", p_unlink, 1 },
        { "mkdir", p_mkdir, 1 },
        { "rmdir", p_rmdir, 1 },
        { "rename", p_rename, 2 },
        { "link", p_link, 2 },
        { "symlink", p_symlink, 2 },
        { "mkfifo", p_mkfifo, 1 },
        { "mknod", p_mknod, 1 },
        { "chmod", p_chmod, 1 },
        { "fds", p_fds, 0 },
        { "events", p_events, 0 },
        { "pty", p_pty, 0 },
        { "tty-ioctl", p_tty_ioctl, 1 },
        { "ctty", p_ctty, 0 },
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
