/*
 * The guard of the tool server: its parent, which knows nothing and does next to nothing, so that
 * it is there when the tool server is not.
 *
 * MCP servers end with the tool server (PDEATHSIG), but what they have started themselves, in
 * sessions of their own, does not; only an ancestor can find it. The guard is the one to which it
 * falls (subreaper): it reaps what ends, and kills what is left when the tool server has ended,
 * also if that was killed together with the supervisor. Whoever kills the guard kills the tool
 * server with it; then the strays fall to the supervisor, which does the same.
 */
#include "mcp/toolserver/guard.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include "base/proc.h"

/* Ends as the tool server did, so that the supervisor can say how. */
static _Noreturn void end_as(int status)
{
        if (WIFSIGNALED(status)) {
                sigset_t all;

                sigfillset(&all);
                signal(WTERMSIG(status), SIG_DFL);
                prctl(PR_SET_DUMPABLE, 0); /* the core of it lies there already */
                kill(getpid(), WTERMSIG(status));
                sigprocmask(SIG_UNBLOCK, &all, NULL);
        }
        _exit(WIFEXITED(status) ? WEXITSTATUS(status) : 1);
}

/* Reaps all that have ended. true: the tool server is among them. */
static bool reap(pid_t child, int *status)
{
        bool ended = false;
        pid_t pid;
        int st;

        while ((pid = waitpid(-1, &st, WNOHANG)) > 0) {
                if (pid != child)
                        continue;
                *status = st;
                ended = true;
        }
        return ended;
}

static _Noreturn void guard(pid_t child, const sigset_t *signals)
{
        int status = 0, sig;

        close_range(3, ~0U, 0); /* the lifeline and the broker wire are the tool server's */
        while (!reap(child, &status)) {
                sig = sigwaitinfo(signals, NULL);
                if (sig > 0 && sig != SIGCHLD)
                        kill(child, sig);
        }
        cg_proc_kill_children(NULL, 0);
        end_as(status);
}

int cg_guard_stay_behind(struct cg_err *err)
{
        pid_t self = getpid(), pid;
        sigset_t signals, old;

        sigemptyset(&signals);
        sigaddset(&signals, SIGCHLD);
        sigaddset(&signals, SIGTERM);
        sigaddset(&signals, SIGINT);
        if (prctl(PR_SET_CHILD_SUBREAPER, 1) < 0 || sigprocmask(SIG_BLOCK, &signals, &old) < 0)
                return cg_fail_errno(err, "guard of the tool server");
        pid = fork();
        if (pid < 0)
                return cg_fail_errno(err, "guard of the tool server");
        if (pid > 0)
                guard(pid, &signals);
        sigprocmask(SIG_SETMASK, &old, NULL);
        if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0 || getppid() != self)
                _exit(1);
        return 0;
}
