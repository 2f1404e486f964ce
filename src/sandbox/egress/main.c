/*
 * cellgate-egress: the filtering proxy of sandboxes. Programs that create sandboxes start it by
 * exec: descriptor 3 is the control channel (docs/egress.md), descriptor 2 the log. When the
 * channel closes, everything ends. Forks at its start into the three processes of internal.h.
 *
 *      cellgate-egress
 *      cellgate-egress --doors ...                          the outer side of doors (doors.c)
 *      cellgate-egress --connect PROXY:PORT HOST PORT       inside a sandbox: standard input and
 *                                                           output through its proxy
 */
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>

#include "sandbox/egress/internal.h"

#define FD_CONTROL 3

/* Lookups block, for seconds if a server does not answer: the most at once. */
#define LOOKUP_THREADS "32"

static int fail(const char *what)
{
        fprintf(stderr, "cellgate-egress: %s: %s\n", what, strerror(errno));
        return 1;
}

struct part {
        const char *name;
        int (*run)(int sock);
};

/* Returns the decider's end of the socket pair, or -1. */
static int start_part(const struct part *part, pid_t self)
{
        int pair[2];
        pid_t pid;

        if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) < 0)
                return -1;
        pid = fork();
        if (pid < 0)
                return -1;
        if (pid == 0) {
                prctl(PR_SET_NAME, part->name, 0, 0, 0);
                /* A second net: the first is the end of the socket. */
                prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
                /* Nothing but its own socket: neither the control channel nor another part's. */
                if (getppid() != self || dup2(pair[1], FD_CONTROL) < 0 ||
                    close_range(FD_CONTROL + 1, ~0U, 0) < 0)
                        _exit(1);
                _exit(part->run(FD_CONTROL));
        }
        close(pair[1]);
        return pair[0];
}

static int run(void)
{
        static const struct part relay = { "cg-relay", cg_relay_run },
                                 injector = { "cg-injector", cg_inject_run };
        pid_t self = getpid();
        int to_relay, to_injector;
        struct cg_err err;
        struct stat st;

        if (fstat(FD_CONTROL, &st) < 0 || !S_ISSOCK(st.st_mode)) {
                fprintf(stderr,
                        "cellgate-egress: descriptor 3 is not the control channel: this program is started by cellgate\n");
                return 2;
        }
        signal(SIGPIPE, SIG_IGN);
        /* Signals of a terminal are for the host to handle; this process ends with its channel. */
        signal(SIGINT, SIG_IGN);
        signal(SIGHUP, SIG_IGN);
        setenv("UV_THREADPOOL_SIZE", LOOKUP_THREADS, 1);
        if (close_range(FD_CONTROL + 1, ~0U, 0) < 0 || chdir("/") < 0)
                return fail("starting");
        if (cg_egress_lock_io_uring(&err) < 0) {
                fprintf(stderr, "cellgate-egress: %s\n", err.msg);
                return 1;
        }
        to_relay = start_part(&relay, self);
        to_injector = to_relay < 0 ? -1 : start_part(&injector, self);
        if (to_injector < 0)
                return fail("starting its parts");
        prctl(PR_SET_NAME, "cg-egress", 0, 0, 0);
        _exit(cg_decider_run(FD_CONTROL, to_relay, to_injector));
}

int main(int argc, char **argv)
{
        if (argc == 5 && strcmp(argv[1], "--connect") == 0)
                return cg_connect_main(argv[2], argv[3], argv[4]);
        if (argc >= 2 && strcmp(argv[1], "--doors") == 0)
                return cg_doors_main(argc - 2, argv + 2);
        if (argc != 1) {
                fprintf(stderr, "usage: cellgate-egress [--connect PROXY:PORT HOST PORT]\n");
                return 2;
        }
        return run();
}
