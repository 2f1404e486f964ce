/*
 * cellgate-egress: the filtering proxy of sandboxes. Started by whoever makes sandboxes, with exec: descriptor 3 is the control
 * channel (docs/egress.md), descriptor 2 the log; both a lifeline: when the channel closes, everything ends. Forks once, while
 * it is nothing yet, into the two processes of egress_int.h.
 *
 *      cellgate-egress
 *      cellgate-egress --connect PROXY:PORT HOST PORT    inside a sandbox: standard input and output through its proxy
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/util.h"
#include "sandbox/egress_int.h"

#define FD_CONTROL 3

/* Lookups block, for seconds where a server is gone: so many at once. */
#define LOOKUP_THREADS "16"

static int fail(const char *what)
{
        fprintf(stderr, "cellgate-egress: %s: %s\n", what, strerror(errno));
        return 1;
}

static int run_relay(int sock, pid_t decider)
{
        prctl(PR_SET_NAME, "cg-relay", 0, 0, 0);
        /* A second net: the first is the end of the socket. */
        prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
        if (getppid() != decider || close_range(FD_CONTROL, FD_CONTROL, 0) < 0)
                return 1;
        return eg_relay_run(sock);
}

static int run(void)
{
        int pair[2];
        pid_t self = getpid(), pid;
        struct stat st;

        if (fstat(FD_CONTROL, &st) < 0 || !S_ISSOCK(st.st_mode)) {
                fprintf(stderr, "cellgate-egress: descriptor 3 is not the control channel: this program is started by cellgate\n");
                return 2;
        }
        signal(SIGPIPE, SIG_IGN);
        /* What a terminal sends to all is the host's to handle; this ends with the channel. */
        signal(SIGINT, SIG_IGN);
        signal(SIGHUP, SIG_IGN);
        setenv("UV_THREADPOOL_SIZE", LOOKUP_THREADS, 1);
        if (close_range(FD_CONTROL + 1, ~0U, 0) < 0 || chdir("/") < 0)
                return fail("starting");
        if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) < 0)
                return fail("socketpair");
        pid = fork();
        if (pid < 0)
                return fail("fork");
        if (pid == 0) {
                close(pair[0]);
                _exit(run_relay(pair[1], self));
        }
        close(pair[1]);
        prctl(PR_SET_NAME, "cg-egress", 0, 0, 0);
        _exit(eg_decider_run(FD_CONTROL, pair[0]));
}

int main(int argc, char **argv)
{
        if (argc == 5 && strcmp(argv[1], "--connect") == 0)
                return eg_connect_main(argv[2], argv[3], argv[4]);
        if (argc != 1) {
                fprintf(stderr, "usage: cellgate-egress [--connect PROXY:PORT HOST PORT]\n");
                return 2;
        }
        return run();
}
