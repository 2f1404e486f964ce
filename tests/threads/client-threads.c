/*
 * Many threads use libcellgate at once, as the header allows: sessions in parallel on one client,
 * events read by one thread while another decides approvals and a third cancels cells; one more
 * watches what waits; at the end the supervisor is killed while threads wait. Built with
 * ThreadSanitizer by scripts/test (step tsan).
 *
 * usage: client-threads SUPERVISOR SERVERS-JSON SERVERS-JSON defines one server "echo" with a tool
 * "echo" (text).  Exit status 0: everything had the outcome it must have.
 */
#include <cellgate.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define THREADS    3
#define CELLS      15
#define TIMEOUT_MS 120000

static const char tool_cell[] = "from mcptools.echo import echo\n"
                                "print(echo.run(text='t'))";
/* An interrupt at any moment is caught or ends the cell. */
static const char endless_cell[] = "print('spinning', flush=True)\n"
                                   "while True: pass";

/*
 * Hands approvals from the thread that reads events to the one that decides: one slot, empty at 0.
 */
struct desk {
        struct cg_session *session;
        pthread_mutex_t lock;
        pthread_cond_t changed;
        uint64_t approval;
        int closed;
        atomic_int decided;
};

struct job {
        struct cg_client *client;
        const char *servers, *workspace;
};

static void check(int ok, const char *what, const struct cg_err *err)
{
        if (ok)
                return;
        fprintf(stderr, "client-threads: %s: %s\n", what, err ? err->msg : "not as expected");
        exit(1);
}

static void *decide(void *arg)
{
        struct desk *d = arg;
        struct cg_err err = { 0 };

        pthread_mutex_lock(&d->lock);
        for (;;) {
                while (!d->approval && !d->closed)
                        pthread_cond_wait(&d->changed, &d->lock);
                if (!d->approval)
                        break;
                check(cg_approval_accept(d->session, d->approval, &err) == 0, "accept", &err);
                check(cg_approval_accept(d->session, d->approval, &err) < 0, "a decision is used once", NULL);
                d->approval = 0;
                atomic_fetch_add(&d->decided, 1);
                pthread_cond_signal(&d->changed);
        }
        pthread_mutex_unlock(&d->lock);
        return NULL;
}

static void put(struct desk *d, uint64_t approval, int closed)
{
        pthread_mutex_lock(&d->lock);
        while (d->approval)
                pthread_cond_wait(&d->changed, &d->lock);
        d->approval = approval;
        d->closed = closed;
        pthread_cond_signal(&d->changed);
        pthread_mutex_unlock(&d->lock);
}

static void *cancel(void *arg)
{
        struct cg_err err = { 0 };

        check(cg_session_cancel(arg, 0, &err) == 0, "cancel", &err);
        return NULL;
}

/* Runs one cell to its result; a cell that says "spinning" is cancelled by another thread. */
static enum cg_status run(struct cg_session *s, struct desk *d, const char *code)
{
        struct cg_err err = { 0 };
        pthread_t canceller;
        int cancelling = 0;

        check(cg_session_execute(s, code, strlen(code), NULL, NULL, &err) == 0, "execute", &err);
        for (;;) {
                struct cg_event *e;
                enum cg_event_type type;
                enum cg_status status;

                check(cg_session_next_event(s, TIMEOUT_MS, &e, &err) == 0, "next event", &err);
                type = cg_event_type(e);
                status = cg_event_status(e);
                if (type == CG_EVENT_APPROVAL_REQUEST)
                        put(d, cg_event_approval(e), 0);
                if (type == CG_EVENT_STREAM && strstr(cg_event_text(e, NULL), "spinning") && !cancelling)
                        cancelling = pthread_create(&canceller, NULL, cancel, s) == 0;
                cg_event_free(e);
                if (type != CG_EVENT_RESULT)
                        continue;
                if (cancelling)
                        pthread_join(canceller, NULL);
                return status;
        }
}

static void *work(void *arg)
{
        struct job *job = arg;
        struct cg_session_options opts = { .size = sizeof(opts), .workspace = job->workspace };
        struct desk desk = { .lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER };
        struct cg_err err = { 0 };
        pthread_t decider;

        check(cg_session_new(job->client, &opts, &desk.session, &err) == 0, "session", &err);
        check(cg_session_add_mcp_servers(desk.session, job->servers, strlen(job->servers), 0, NULL, &err) ==
                      0,
              "servers", &err);
        check(pthread_create(&decider, NULL, decide, &desk) == 0, "thread", NULL);
        for (int i = 0; i < CELLS; i++) {
                check(run(desk.session, &desk, "print('x' * 5000)\n1") == CG_STATUS_OK, "plain cell", NULL);
                check(run(desk.session, &desk, tool_cell) == CG_STATUS_OK, "cell with a tool", NULL);
                check(run(desk.session, &desk, "1/0") == CG_STATUS_ERROR, "failing cell", NULL);
        }
        check(run(desk.session, &desk, endless_cell) == CG_STATUS_CANCELLED, "cancelled cell", NULL);
        check(cg_session_reset(desk.session, 0, &err) == 0, "reset", &err);
        check(run(desk.session, &desk, "1") == CG_STATUS_OK, "cell after reset", NULL);
        put(&desk, 0, 1);
        pthread_join(decider, NULL);
        check(atomic_load(&desk.decided) == CELLS, "number of approvals", NULL);
        cg_session_free(desk.session);
        return NULL;
}

static atomic_int waiting;

/* Waits for the end of the session, with and without a time limit. */
static void *wait_for_end(void *arg)
{
        struct cg_err err = { 0 };
        struct cg_event *e;
        int r;

        for (int i = 0; i < 20; i++)
                check(cg_session_next_event(arg, 5, &e, &err) == CG_TIMEOUT, "no event yet", &err);
        atomic_fetch_add(&waiting, 1);
        check(cg_session_next_event(arg, -1, &e, &err) == 0, "end", &err);
        check(cg_event_type(e) == CG_EVENT_SESSION_CLOSED, "type of the last event", NULL);
        cg_event_free(e);
        r = cg_session_next_event(arg, -1, &e, &err);
        check(r == CG_CLOSED, "nothing after the end", &err);
        return NULL;
}

/* One of the threads reads the connection when it ends, the others wait for it. */
static void kill_supervisor(struct cg_client *c, const char *workspace)
{
        struct cg_session_options opts = { .size = sizeof(opts), .workspace = workspace };
        struct cg_session *sessions[THREADS];
        pthread_t threads[THREADS];
        struct cg_err err = { 0 };
        FILE *f = fopen("/proc/thread-self/children", "r");
        int pid = 0;

        check(f && fscanf(f, "%d", &pid) == 1 && pid > 1, "the supervisor's process", NULL);
        fclose(f);
        for (int i = 0; i < THREADS; i++)
                check(cg_session_new(c, &opts, &sessions[i], &err) == 0, "session", &err);
        for (int i = 0; i < THREADS; i++)
                check(pthread_create(&threads[i], NULL, wait_for_end, sessions[i]) == 0, "thread", NULL);
        while (atomic_load(&waiting) < THREADS)
                usleep(1000);
        usleep(100000); /* so that they do wait */
        check(kill(pid, SIGKILL) == 0, "kill", NULL);
        for (int i = 0; i < THREADS; i++) {
                pthread_join(threads[i], NULL);
                cg_session_free(sessions[i]);
        }
}

/* Lists what other clients may decide until the supervisor ends, which its descriptor shows. */
static void *watch(void *arg)
{
        static const char id[] = "0123456789abcdef";
        struct pollfd p = { .events = POLLIN };
        struct cg_err err = { 0 };
        char *list, *one;

        p.fd = cg_client_approvals_fd(arg, &err);
        check(p.fd >= 0, "descriptor", &err);
        while (cg_client_approvals(arg, &list, &err) == 0) {
                cg_free(list);
                check(cg_client_approval(arg, id, &one, &err) < 0, "no such question", NULL);
                check(cg_client_decide(arg, id, "", 1, NULL, &err) < 0, "no such question", NULL);
                poll(&p, 1, 5);
        }
        check(err.code == CG_E_CLOSED && poll(&p, 1, TIMEOUT_MS) == 1, "end of the watch", &err);
        return NULL;
}

int main(int argc, char **argv)
{
        struct cg_client_options opts = { .size = sizeof(opts) };
        struct cg_err err = { 0 };
        struct job job = { 0 };
        pthread_t threads[THREADS], watcher;

        if (argc != 4) {
                fprintf(stderr, "usage: client-threads SUPERVISOR SERVERS-JSON WORKSPACE\n");
                return 2;
        }
        opts.supervisor = argv[1];
        job.servers = argv[2];
        job.workspace = argv[3];
        check(cg_client_open(&opts, &job.client, &err) == 0, "client", &err);
        check(pthread_create(&watcher, NULL, watch, job.client) == 0, "thread", NULL);
        for (int i = 0; i < THREADS; i++)
                check(pthread_create(&threads[i], NULL, work, &job) == 0, "thread", NULL);
        for (int i = 0; i < THREADS; i++)
                pthread_join(threads[i], NULL);
        kill_supervisor(job.client, job.workspace);
        pthread_join(watcher, NULL);
        cg_client_close(job.client);
        puts("ok");
        return 0;
}
