/*
 * main of cellgate-selftest: runs the attempts of the tables one after another and prints a line
 * for each: NAME <tab> VERDICT <tab> NOTE. Runs inside the sandbox.
 *
 *      cellgate-selftest --list
 *      cellgate-selftest SCENE command|kernel [NAME...]
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "selftest/inside/attempt.h"

/* Longest time of one attempt; waits in attempts are shorter. */
#define ATTEMPT_MS 10000
#define SCENE_SIZE 16384

static const struct cg_attempts *const tables[] = {
        &cg_attempts_proc,  &cg_attempts_sockets,    &cg_attempts_ipc,       &cg_attempts_devices,
        &cg_attempts_calls, &cg_attempts_privileges, &cg_attempts_processes, &cg_attempts_files,
        &cg_attempts_setid, &cg_attempts_protected,  &cg_attempts_hidden,    &cg_attempts_proxy,
        &cg_attempts_names,
};
#define N_TABLES (sizeof(tables) / sizeof(tables[0]))

static const char *const verdicts[] = {
        [CG_HELD] = "held",   [CG_HOLE] = "hole", [CG_WORKS] = "works",
        [CG_FAILS] = "fails", [CG_SKIP] = "skip",
};
static const char *const bares[] = {
        [CG_BARE_ALL] = "all",
        [CG_BARE_ROOT] = "root",
        [CG_BARE_MACHINE] = "machine",
        [CG_BARE_NONE] = "none",
};
static const char *const places[] = {
        [CG_IN_COMMAND] = "command", [CG_IN_KERNEL] = "kernel", [CG_IN_BOTH] = "both"
};

static int place_of(const struct cg_attempt *a)
{
        return a->in ?: CG_IN_BOTH;
}

static int list(void)
{
        for (size_t i = 0; i < N_TABLES; i++) {
                for (size_t j = 0; j < tables[i]->n; j++) {
                        const struct cg_attempt *a = &tables[i]->list[j];

                        printf("%s\t%s\t%s\t%s\t%s\t%s\t%s\n", a->name, tables[i]->group,
                               a->allow ? "allow" : "deny", a->layer, bares[a->bare], places[place_of(a)],
                               a->what);
                }
        }
        return fflush(stdout) != 0;
}

/* Result of the attempt's process, in shared memory: the attempt may close all descriptors. */
struct attempt_outcome {
        bool done;
        enum cg_verdict verdict;
        char note[CG_NOTE_SIZE];
};

static int64_t now_ms(void)
{
        struct timespec ts;

        clock_gettime(CLOCK_MONOTONIC, &ts);
        return ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

/*
 * Waits for the process, and kills it when its time is over. By SIGCHLD, which is blocked, not by a
 * pidfd, which is the object of attempts.
 */
static int await(pid_t pid, int *status)
{
        const int64_t end = now_ms() + ATTEMPT_MS;
        sigset_t set;

        sigemptyset(&set);
        sigaddset(&set, SIGCHLD);
        while (waitpid(pid, status, WNOHANG) == 0) {
                const int64_t left = end - now_ms();
                struct timespec ts = { .tv_sec = left / 1000, .tv_nsec = left % 1000 * 1000000 };

                if (left <= 0) {
                        kill(pid, SIGKILL);
                        waitpid(pid, status, 0);
                        return -1;
                }
                sigtimedwait(&set, NULL, &ts);
        }
        kill(-pid, SIGKILL); /* its remaining processes */
        return 0;
}

static void run_one(const char *scene, const struct cg_attempt *a, struct attempt_outcome *o)
{
        struct cg_try t = { .scene = scene, .attempt = a };
        int status = 0, waited;
        pid_t pid;

        memset(o, 0, sizeof(*o));
        o->verdict = CG_FAILS;
        if (cg_scene_lacks(&t, a->layer) && !a->allow) {
                o->verdict = CG_SKIP;
                snprintf(o->note, sizeof(o->note), "this sandbox has no layer that denies it (%s)", a->layer);
                return;
        }
        fflush(stdout);
        pid = fork();
        if (pid < 0) {
                snprintf(o->note, sizeof(o->note), "no process for it: %s", cg_errno_name(errno));
                return;
        }
        if (pid == 0) {
                setpgid(0, 0);
                o->verdict = a->run(&t, a);
                memcpy(o->note, t.note, sizeof(o->note));
                o->done = true;
                _exit(0);
        }
        waited = await(pid, &status);
        if (o->done && waited == 0)
                return;
        o->verdict = CG_FAILS;
        if (waited < 0) {
                snprintf(o->note, sizeof(o->note), "not over after %d seconds", ATTEMPT_MS / 1000);
        } else if (WIFSIGNALED(status) && WTERMSIG(status) == SIGSYS) {
                o->verdict = CG_HELD;
                snprintf(o->note, sizeof(o->note), "the process was ended (SIGSYS)");
        } else if (WIFSIGNALED(status)) {
                snprintf(o->note, sizeof(o->note), "the attempt's process ended by itself (signal %d)",
                         WTERMSIG(status));
        } else {
                snprintf(o->note, sizeof(o->note), "the attempt's process ended by itself (status %d)",
                         WEXITSTATUS(status));
        }
}

static bool is_wanted(const struct cg_attempt *a, int place, char *const *names)
{
        if (!(place_of(a) & place))
                return false;
        for (char *const *n = names; *n; n++)
                if (strcmp(*n, a->name) == 0)
                        return true;
        return !*names;
}

int main(int argc, char **argv)
{
        static char scene[SCENE_SIZE];
        int place = argc > 2 && strcmp(argv[2], "kernel") == 0 ? CG_IN_KERNEL : CG_IN_COMMAND;
        struct attempt_outcome *o = mmap(NULL, sizeof(*o), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
                                         -1, 0);
        sigset_t set;

        if (argc == 2 && strcmp(argv[1], "--list") == 0)
                return list();
        if (argc < 3 || o == MAP_FAILED || cg_slurp(argv[1], scene, sizeof(scene)) <= 0) {
                fprintf(stderr,
                        "cellgate-selftest: to be started by `cellgate selftest`, which prepares its files\n");
                return 2;
        }
        sigemptyset(&set);
        sigaddset(&set, SIGCHLD);
        sigprocmask(SIG_BLOCK, &set, NULL);
        signal(SIGPIPE, SIG_IGN);
        for (size_t i = 0; i < N_TABLES; i++) {
                for (size_t j = 0; j < tables[i]->n; j++) {
                        const struct cg_attempt *a = &tables[i]->list[j];

                        if (!is_wanted(a, place, argv + 3))
                                continue;
                        run_one(scene, a, o);
                        printf("%s\t%s\t%s\n", a->name, verdicts[o->verdict], o->note);
                        fflush(stdout);
                }
        }
        return 0;
}
