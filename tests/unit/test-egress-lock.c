/* What a process that reads foreign bytes has left, beside what it still needs: lock.h. */
#include <arpa/inet.h>
#include <sched.h>
#include <sys/ptrace.h>
#include "sandbox/egress/lock.h"
#include "unit.h"

/* Of the process that is locked. */
static int listener = -1, pair[2];
static struct sockaddr_in elsewhere = { .sin_family = AF_INET };

static bool denied(long r)
{
        return r == -1 && (errno == EPERM || errno == EACCES);
}

static bool accepts(void)
{
        return accept4(listener, NULL, NULL, SOCK_CLOEXEC) >= 0;
}

static bool talks(void)
{
        char byte = 'x';

        return write(pair[0], &byte, 1) == 1 && send(pair[0], &byte, 1, MSG_NOSIGNAL) == 1 &&
               recv(pair[1], &byte, 1, 0) == 1 && fcntl(pair[0], F_SETFL, O_NONBLOCK) == 0;
}

static bool no_files(void)
{
        return denied(open("/etc/passwd", O_RDONLY)) &&
               denied(openat(AT_FDCWD, "/tmp/x", O_CREAT | O_RDWR, 0600)) && denied(unlink("/tmp/x")) &&
               denied(mkdir("/tmp/x", 0700)) && denied(chdir("/tmp"));
}

static bool no_sockets(void)
{
        return denied(socket(AF_INET, SOCK_STREAM, 0)) && denied(socket(AF_UNIX, SOCK_STREAM, 0)) &&
               denied(connect(pair[0], (struct sockaddr *)&elsewhere, sizeof(elsewhere))) &&
               denied(bind(listener, (struct sockaddr *)&elsewhere, sizeof(elsewhere)));
}

/* TCP Fast Open connects without connect(). */
static bool no_connection_by_sending(void)
{
        char byte[] = "x";
        struct msghdr m = { .msg_name = &elsewhere,
                            .msg_namelen = sizeof(elsewhere),
                            .msg_iov = &(struct iovec){ byte, 1 },
                            .msg_iovlen = 1 };

        shutdown(listener, SHUT_RD); /* an unconnected socket from here on */
        return denied(sendto(listener, "x", 1, MSG_FASTOPEN, (struct sockaddr *)&elsewhere,
                             sizeof(elsewhere))) &&
               denied(sendmsg(listener, &m, MSG_FASTOPEN));
}

/* The operating system sends the signal, when the socket is readable. */
static bool no_signals(void)
{
        struct f_owner_ex ex = { F_OWNER_PID, getppid() };

        return denied(kill(getppid(), SIGTERM)) && denied(fcntl(pair[1], F_SETOWN, getppid())) &&
               denied(fcntl(pair[1], F_SETOWN_EX, &ex)) && denied(fcntl(pair[1], F_SETSIG, SIGKILL));
}

static bool no_programs(void)
{
        char program[] = "/bin/true", *const argv[] = { program, NULL };

        return denied(fork()) && denied(execv(program, argv)) &&
               denied(ptrace(PTRACE_ATTACH, getppid(), 0, 0)) &&
               mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) ==
                       MAP_FAILED &&
               denied(unshare(CLONE_NEWUSER)) && denied(dup2(0, 1));
}

static int listen_on(struct sockaddr_in *at)
{
        socklen_t len = sizeof(*at);
        int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

        *at = (struct sockaddr_in){ .sin_family = AF_INET, .sin_addr = { htonl(INADDR_LOOPBACK) } };
        assert_int_equal(bind(fd, (struct sockaddr *)at, len), 0);
        assert_int_equal(listen(fd, 4), 0);
        assert_int_equal(getsockname(fd, (struct sockaddr *)at, &len), 0);
        return fd;
}

/* The exit status of a locked process that tries @what. */
static int locked(bool (*what)(void))
{
        int status = -1;
        pid_t pid = fork();

        if (pid == 0)
                _exit(cg_egress_lock_part(CG_EGRESS_RELAY, NULL) < 0 ? 2 : !what());
        assert_int_equal(waitpid(pid, &status, 0), pid);
        return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

TEST(test_the_rights_of_a_part)
{
        static bool (*const all[])(void) = {
                talks, accepts, no_files, no_sockets, no_connection_by_sending, no_signals, no_programs
        };
        struct pollfd other = { .events = POLLIN };
        struct sockaddr_in at;
        int client;

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
        skip(); /* see lock.c */
#endif
        other.fd = listen_on(&elsewhere);
        listener = listen_on(&at);
        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
        client = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        assert_int_equal(connect(client, (struct sockaddr *)&at, sizeof(at)), 0);
        for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
                assert_int_equal(locked(all[i]), 0);
        assert_int_equal(poll(&other, 1, 100), 0);
        close(client);
        close(other.fd);
        close(listener);
        close(pair[0]);
        close(pair[1]);
}
