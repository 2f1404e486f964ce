/*
 * A host application that measures cellgate through its C API. Started by bench/run, from which it
 * reads one command a line and which it answers with one line of JSON: {"samples": [seconds...]} or
 * {"error": "..."}.
 *
 *      cold              open the client, start a session, run `1`
 *      kernel            start one more session, run `1`, end it
 *      whole 0 SERVER    the same with SERVER and one approved call of its tool `echo`
 *                        (scripts/soak.py)
 *      rtt N CODE        run CODE N times
 *      prints N CODE     run CODE, which prints N bytes; seconds until the last of them is here
 *      tool N SERVER     N approved calls of SERVER's tool `echo`, each timed by the code in the
 *                        kernel; SERVER is a program or the URL of a server over HTTP
 *      function N        N calls of a function of this program, timed in the same way
 *      direct N SERVER   the same calls over a pipe, by this program itself
 *      keep N            have N idle sessions (0: none); for bench/run to look at the memory
 *      exec N PROGRAM    N times from the start of PROGRAM in the session's sandbox to its result
 *      spawn N PROGRAM   the same by posix_spawn() and waitpid(), outside
 *      get N PATH TO     N copies of the sandbox's file PATH to TO outside
 *      put N PATH FROM   the other way
 */
#include <cellgate.h>
#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MAX_SAMPLES 100000
#define MAX_KEPT    100

extern char **environ;

struct bench {
        struct cg_client *client;
        struct cg_session *session; /* the one that rtt, prints and tool use */
        struct cg_session *kept[MAX_KEPT];
        size_t n_kept;
        /* the session has the MCP server over stdio, the one over HTTP, the function */
        int has_server, has_web, has_functions;
        double *samples;
        size_t n;
        char workspace[64];
};

static double now(void)
{
        struct timespec t;

        clock_gettime(CLOCK_MONOTONIC, &t);
        return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static int fail(struct cg_err *err, const char *what)
{
        err->code = CG_E_PROTO;
        snprintf(err->msg, sizeof(err->msg), "%s", what);
        return -1;
}

static void sample(struct bench *b, double seconds)
{
        if (b->n < MAX_SAMPLES)
                b->samples[b->n++] = seconds;
}

static int new_session(struct bench *b, struct cg_session **ret, struct cg_err *err)
{
        struct cg_session_options opts = { .size = sizeof(opts),
                                           .workspace = b->workspace,
                                           .audit = getenv("BENCH_AUDIT") }; /* "strict" */

        return cg_session_new(b->client, &opts, ret, err);
}

/* A cell's result, as far as a measurement needs it. */
struct outcome {
        size_t bytes; /* of its output */
        char *text;   /* its standard output, where keep_text was asked */
        int keep_text;
};

static int take_event(struct cg_session *s, struct cg_event *e, struct outcome *o, int *done,
                      struct cg_err *err)
{
        size_t len;
        const char *text = cg_event_text(e, &len);

        switch (cg_event_type(e)) {
        case CG_EVENT_STREAM:
                if (o->keep_text && !cg_event_is_stderr(e)) {
                        char *more = realloc(o->text, o->bytes + len + 1);

                        if (!more)
                                return fail(err, "out of memory");
                        memcpy(more + o->bytes, text, len + 1);
                        o->text = more;
                }
                o->bytes += len;
                return 0;
        case CG_EVENT_APPROVAL_REQUEST:
                return cg_approval_accept(s, cg_event_approval(e), err);
        case CG_EVENT_FUNCTION_CALL:
                return cg_function_return(s, cg_event_approval(e), CG_FUNCTION_VALUE, "\"hello\"", 7, err);
        case CG_EVENT_ERROR:
                return fail(err, cg_event_json(e, NULL));
        case CG_EVENT_RESULT:
                *done = 1;
                return cg_event_status(e) == CG_STATUS_OK ? 0 : fail(err, text);
        case CG_EVENT_KERNEL_DIED:
        case CG_EVENT_SESSION_CLOSED:
                return fail(err, text);
        default:
                return 0;
        }
}

static int run_cell(struct cg_session *s, const char *code, struct outcome *o, struct cg_err *err)
{
        int done = 0;

        if (cg_session_execute(s, code, strlen(code), NULL, NULL, err) < 0)
                return -1;
        while (!done) {
                struct cg_event *e;
                int r = cg_session_next_event(s, 120000, &e, err);

                if (r != 0)
                        return r < 0 ? -1 : fail(err, "no event in 120 s");
                r = take_event(s, e, o, &done, err);
                cg_event_free(e);
                if (r < 0)
                        return -1;
        }
        return 0;
}

/*
 * BENCH_NO_SPARE in the environment: for who counts processes, and wants them to be those of the
 * sessions that are open.
 */
static int cold(struct bench *b, struct cg_err *err)
{
        struct cg_client_options opts = { .size = sizeof(opts),
                                          .no_spare = getenv("BENCH_NO_SPARE") != NULL };
        struct outcome o = { 0 };
        double start = now();

        if (cg_client_open(&opts, &b->client, err) < 0 || new_session(b, &b->session, err) < 0 ||
            run_cell(b->session, "1", &o, err) < 0)
                return -1;
        sample(b, now() - start);
        return 0;
}

static int kernel(struct bench *b, struct cg_err *err)
{
        struct outcome o = { 0 };
        struct cg_session *s;
        double start = now();
        int r;

        if (new_session(b, &s, err) < 0)
                return -1;
        r = run_cell(s, "1", &o, err);
        sample(b, now() - start);
        cg_session_free(s);
        return r;
}

/*
 * The same by a supervisor that starts nothing ahead: what a session costs when it is not the one
 * that was expected.
 */
static int kernel_from_zygote(struct bench *b, struct cg_err *err)
{
        struct cg_client_options opts = { .size = sizeof(opts), .no_spare = 1 };
        struct cg_client *shared = b->client;
        struct cg_session *first = NULL;
        struct outcome o = { 0 };
        int r;

        if (cg_client_open(&opts, &b->client, err) < 0) {
                b->client = shared;
                return -1;
        }
        r = new_session(b, &first, err);
        if (r == 0)
                r = run_cell(first, "1", &o, err);
        if (r == 0)
                r = kernel(b, err);
        cg_client_close(b->client);
        cg_session_free(first); /* its memory; it has ended with its client */
        b->client = shared;
        return r;
}

static int rtt(struct bench *b, long n, const char *code, struct cg_err *err)
{
        for (long i = 0; i < n; i++) {
                struct outcome o = { 0 };
                double start = now();

                if (run_cell(b->session, code, &o, err) < 0)
                        return -1;
                sample(b, now() - start);
        }
        return 0;
}

static int prints(struct bench *b, long n, const char *code, struct cg_err *err)
{
        struct outcome o = { 0 };
        double start = now();

        if (run_cell(b->session, code, &o, err) < 0)
                return -1;
        sample(b, now() - start);
        return o.bytes == (size_t)n ? 0 : fail(err, "the output is not complete");
}

/* Reads "[0.1, 0.2]" as the kernel printed it. */
static int read_samples(struct bench *b, const char *text, struct cg_err *err)
{
        char *end;

        if (!text || *text != '[')
                return fail(err, "the cell printed no list of numbers");
        for (text++; *text && *text != ']'; text = end + (*end == ',')) {
                double v = strtod(text, &end);

                if (end == text)
                        return fail(err, "the cell printed no list of numbers");
                sample(b, v);
        }
        return 0;
}

static int over_http(const char *server)
{
        return strncmp(server, "http://", 7) == 0;
}

static int add_server(struct cg_session *s, const char *server, struct cg_err *err)
{
        char json[4200];

        if (over_http(server))
                snprintf(json, sizeof(json), "{\"web\": {\"url\": \"%s\"}}", server);
        else
                snprintf(json, sizeof(json), "{\"echo\": {\"command\": \"%s\"}}", server);
        return cg_session_add_mcp_servers(s, json, strlen(json), 0, NULL, err);
}

static int whole(struct bench *b, const char *server, struct cg_err *err)
{
        struct outcome o = { 0 };
        struct cg_session *s;
        double start = now();
        int r;

        if (new_session(b, &s, err) < 0)
                return -1;
        r = add_server(s, server, err);
        if (r == 0)
                r = run_cell(s, "from mcptools.echo import echo\nassert echo.run(text='hello') == 'hello'",
                             &o, err);
        cg_session_free(s);
        sample(b, now() - start);
        return r;
}

/* Calls of the tool `echo` in the package @from. */
static int time_calls(struct bench *b, long n, const char *from, struct cg_err *err)
{
        struct outcome o = { .keep_text = 1 };
        char code[512];
        int r;

        snprintf(code, sizeof(code),
                 "import time\n"
                 "from mcptools.%s import echo\n"
                 "samples = []\n"
                 "for i in range(%ld):\n"
                 "    start = time.perf_counter()\n"
                 "    assert echo.run(text='hello') == 'hello'\n"
                 "    samples.append(time.perf_counter() - start)\n"
                 "print(samples)",
                 from, n);
        r = run_cell(b->session, code, &o, err);
        if (r == 0)
                r = read_samples(b, o.text, err);
        free(o.text);
        return r;
}

static int tool(struct bench *b, long n, const char *server, struct cg_err *err)
{
        int *has = over_http(server) ? &b->has_web : &b->has_server;

        if (!*has && add_server(b->session, server, err) < 0)
                return -1;
        *has = 1;
        return time_calls(b, n, over_http(server) ? "web" : "echo", err);
}

static int function(struct bench *b, long n, struct cg_err *err)
{
        static const char echo[] = "[{\"name\": \"echo\", \"inputSchema\": {\"type\": \"object\", "
                                   "\"properties\": {\"text\": {\"type\": \"string\"}}}}]";

        if (!b->has_functions &&
            cg_session_add_functions(b->session, "own", echo, strlen(echo), NULL, NULL, err) < 0)
                return -1;
        b->has_functions = 1;
        return time_calls(b, n, "own", err);
}

/* ------------------------------------------------- the same calls, directly */

struct peer {
        pid_t pid;
        FILE *to, *from;
        char *line;
        size_t size;
};

static int peer_open(struct peer *p, const char *server, struct cg_err *err)
{
        posix_spawn_file_actions_t actions;
        char *argv[] = { (char *)server, NULL };
        int in[2], out[2], r;

        if (pipe2(in, O_CLOEXEC) < 0)
                return fail(err, strerror(errno));
        if (pipe2(out, O_CLOEXEC) < 0)
                return fail(err, strerror(errno));
        posix_spawn_file_actions_init(&actions);
        posix_spawn_file_actions_adddup2(&actions, in[0], STDIN_FILENO);
        posix_spawn_file_actions_adddup2(&actions, out[1], STDOUT_FILENO);
        r = posix_spawn(&p->pid, server, &actions, NULL, argv, environ);
        posix_spawn_file_actions_destroy(&actions);
        close(in[0]);
        close(out[1]);
        p->to = fdopen(in[1], "w");
        p->from = fdopen(out[0], "r");
        return r == 0 ? 0 : fail(err, strerror(r));
}

static void peer_close(struct peer *p)
{
        if (p->to)
                fclose(p->to);
        if (p->from)
                fclose(p->from);
        if (p->pid > 0)
                waitpid(p->pid, NULL, 0);
        free(p->line);
}

static int peer_call(struct peer *p, const char *request, const char *expect, struct cg_err *err)
{
        fputs(request, p->to);
        fflush(p->to);
        if (getline(&p->line, &p->size, p->from) <= 0 || !strstr(p->line, expect))
                return fail(err, "the server did not answer as expected");
        return 0;
}

static int direct(struct bench *b, long n, const char *server, struct cg_err *err)
{
        struct peer p = { 0 };
        char request[200];
        int r = peer_open(&p, server, err);

        if (r == 0)
                r = peer_call(&p, "{\"jsonrpc\":\"2.0\",\"id\":0,\"method\":\"initialize\",\"params\":{}}\n",
                              "echo", err);
        for (long i = 1; i <= n && r == 0; i++) {
                double start = now();

                snprintf(
                        request, sizeof(request),
                        "{\"jsonrpc\":\"2.0\",\"id\":%ld,\"method\":\"tools/call\",\"params\":{\"name\":\"echo\","
                        "\"arguments\":{\"text\":\"hello\"}}}\n",
                        i);
                r = peer_call(&p, request, "hello", err);
                sample(b, now() - start);
        }
        peer_close(&p);
        return r;
}

/* ------------------------------------------------- commands and files beside cells */

static int exec_beside(struct bench *b, long n, const char *program, struct cg_err *err)
{
        const char *argv[] = { program, NULL };
        struct cg_exec_options opts = { .size = sizeof(opts), .argv = argv };

        for (long i = 0; i < n; i++) {
                double start = now();
                int done = 0;

                if (cg_session_exec(b->session, &opts, NULL, err) < 0)
                        return -1;
                while (!done) {
                        struct cg_event *e;
                        int r = cg_session_next_event(b->session, 120000, &e, err);

                        if (r != 0)
                                return r < 0 ? -1 : fail(err, "no event in 120 s");
                        done = cg_event_type(e) == CG_EVENT_COMMAND_RESULT;
                        if (done && cg_event_status(e) != CG_STATUS_OK)
                                r = fail(err, cg_event_text(e, NULL));
                        cg_event_free(e);
                        if (r < 0)
                                return -1;
                }
                sample(b, now() - start);
        }
        return 0;
}

static int spawn_outside(struct bench *b, long n, const char *program, struct cg_err *err)
{
        char *argv[] = { (char *)program, NULL };

        for (long i = 0; i < n; i++) {
                double start = now();
                pid_t pid;
                int r = posix_spawnp(&pid, program, NULL, NULL, argv, environ);

                if (r != 0)
                        return fail(err, strerror(r));
                waitpid(pid, NULL, 0);
                sample(b, now() - start);
        }
        return 0;
}

static int copy_file(struct bench *b, long n, const char *rest, int get, struct cg_err *err)
{
        char inside[2048], outside[2048];

        if (sscanf(rest, "%2047s %2047s", inside, outside) != 2)
                return fail(err, "two paths are needed");
        for (long i = 0; i < n; i++) {
                int fd = get ? open(outside, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600)
                             : open(outside, O_RDONLY | O_CLOEXEC);
                double start = now();
                int r;

                if (fd < 0)
                        return fail(err, strerror(errno));
                r = get ? cg_session_files_get(b->session, inside, fd, -1, -1, err)
                        : cg_session_files_put(b->session, inside, 0600, fd, -1, err);
                close(fd);
                if (r < 0)
                        return -1;
                sample(b, now() - start);
        }
        return 0;
}

/* ----------------------------------------------------------------- commands */

static int keep(struct bench *b, long n, struct cg_err *err)
{
        struct outcome o = { 0 };

        while (b->n_kept > (size_t)n) {
                b->n_kept--;
                b->kept[b->n_kept] = cg_session_free(b->kept[b->n_kept]);
        }
        while (b->n_kept < (size_t)n && b->n_kept < MAX_KEPT) {
                if (new_session(b, &b->kept[b->n_kept], err) < 0)
                        return -1;
                if (run_cell(b->kept[b->n_kept++], "1", &o, err) < 0)
                        return -1;
        }
        return 0;
}

/* cold first: everything else but `direct` needs the client and the session it makes. */
static int command(struct bench *b, const char *line, struct cg_err *err)
{
        char name[16], rest[4096] = "";
        long n = 0;

        if (sscanf(line, "%15s %ld %4095[^\n]", name, &n, rest) < 1)
                return fail(err, "empty command");
        if (strcmp(name, "cold") == 0)
                return cold(b, err);
        if (strcmp(name, "kernel") == 0)
                return kernel(b, err);
        if (strcmp(name, "fresh") == 0)
                return kernel_from_zygote(b, err);
        if (strcmp(name, "whole") == 0)
                return whole(b, rest, err);
        if (strcmp(name, "rtt") == 0)
                return rtt(b, n, rest, err);
        if (strcmp(name, "prints") == 0)
                return prints(b, n, rest, err);
        if (strcmp(name, "tool") == 0)
                return tool(b, n, rest, err);
        if (strcmp(name, "function") == 0)
                return function(b, n, err);
        if (strcmp(name, "direct") == 0)
                return direct(b, n, rest, err);
        if (strcmp(name, "keep") == 0)
                return keep(b, n, err);
        if (strcmp(name, "exec") == 0)
                return exec_beside(b, n, rest, err);
        if (strcmp(name, "spawn") == 0)
                return spawn_outside(b, n, rest, err);
        if (strcmp(name, "get") == 0 || strcmp(name, "put") == 0)
                return copy_file(b, n, rest, name[0] == 'g', err);
        return fail(err, "no such command");
}

static void print_string(const char *s)
{
        putchar('"');
        for (; *s; s++)
                if (*s == '"' || *s == '\\')
                        printf("\\%c", *s);
                else if ((unsigned char)*s < ' ')
                        printf("\\u%04x", (unsigned)*s);
                else
                        putchar(*s);
        putchar('"');
}

static void print_answer(const struct bench *b, int r, const struct cg_err *err)
{
        if (r < 0) {
                fputs("{\"error\": ", stdout);
                print_string(err->msg);
        } else {
                fputs("{\"samples\": [", stdout);
                for (size_t i = 0; i < b->n; i++)
                        printf("%s%.9f", i ? ", " : "", b->samples[i]);
                putchar(']');
        }
        puts("}");
        fflush(stdout);
}

int main(void)
{
        struct bench b = { .workspace = "/tmp/cellgate-bench-XXXXXX" };
        struct cg_err err = { 0 };
        char *line = NULL;
        size_t size = 0;

        b.samples = calloc(MAX_SAMPLES, sizeof(*b.samples));
        if (!b.samples || !mkdtemp(b.workspace)) {
                perror("bench_api");
                return 1;
        }
        while (getline(&line, &size, stdin) > 0) {
                b.n = 0;
                print_answer(&b, command(&b, line, &err), &err);
        }
        free(line);
        keep(&b, 0, &err);
        cg_session_free(b.session);
        cg_client_close(b.client);
        free(b.samples);
        rmdir(b.workspace);
        return 0;
}
