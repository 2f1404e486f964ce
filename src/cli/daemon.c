/* `cellgate daemon`: the supervisors that this user's commands share. Part of `cellgate`. */
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include "base/fd.h"
#include "base/json.h"
#include "base/ceilings.h"
#include "base/proc.h"
#include "base/text.h"
#include "cli/common/cli.h"
#include "cli/common/opts.h"
#include "cli/common/supervisors.h"
#include "cli/help.h"

/* A supervisor answers at once; one that hangs must not hold up the others. */
#define ANSWER_MS 3000
/* MCP servers are ended in order first. */
#define END_MS 15000

struct daemons {
        bool json, force;
        json_t *list;
        struct cg_buf *text;
        bool left; /* stop: one runs on */
};

/* The process that listens at @address; 0: none. */
static pid_t listener(const char *address)
{
        cg_auto_fd int fd = -1;
        struct ucred cred = { 0 };
        socklen_t len = sizeof(cred);
        char path[450];

        snprintf(path, sizeof(path), "%s/life.sock", address);
        if (cg_connect_unix_now(path, &fd, NULL) < 0 ||
            getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &len) < 0 || cred.uid != geteuid())
                return 0;
        return cred.pid;
}

/* The status of the supervisor, or {"address", "pid", "error"}; NULL: none runs. */
static json_t *status_of(const char *address, struct cg_client **client)
{
        pid_t pid = listener(address);
        struct cg_err err;
        char *text = NULL;
        json_t *o = NULL;

        *client = NULL;
        if (!pid)
                return NULL;
        if (cg_supervisor_open(address, client, &err) == 0 && cg_client_status(*client, &text, &err) == 0)
                o = cg_reply_json(text);
        return o ?: json_pack("{s:s, s:i, s:s}", "address", address, "pid", (int)pid, "error", err.msg);
}

/* The folders that spares keep in use. */
static void show_spares(struct cg_buf *b, const json_t *o)
{
        const json_t *folder;
        size_t i;

        json_array_foreach(json_object_get(o, "spare_workspaces"), i, folder) {
                cg_buf_adds(b, "  a spare session uses the folder ");
                cg_text_render_as(b, json_string_value(folder), json_string_length(folder), 0, CG_TEXT_LINE);
                cg_buf_adds(b, "\n");
        }
}

/* The clients that have sessions, a line each. */
static void show_clients(struct cg_buf *b, const json_t *o)
{
        const json_t *client;
        size_t i;

        json_array_foreach(json_object_get(o, "clients"), i, client) {
                char path[64], words[400] = "";
                size_t len = 0;

                if (json_is_true(json_object_get(client, "own")))
                        continue;
                snprintf(path, sizeof(path), "/proc/%lld/cmdline", cg_reply_number(client, "pid"));
                cg_proc_read_text(path, words, sizeof(words));
                while (len + 1 < sizeof(words) &&
                       (words[len] || words[len + 1])) { /* NULs are between words */
                        if (!words[len])
                                words[len] = ' ';
                        len++;
                }
                cg_buf_addf(b, "  process %lld: %lld session%s: ", cg_reply_number(client, "pid"),
                            cg_reply_number(client, "sessions"),
                            cg_cli_s(cg_reply_number(client, "sessions")));
                cg_text_render_as(b, words, len, 0, CG_TEXT_LINE); /* perhaps an agent's code */
                cg_buf_adds(b, "\n");
        }
}

static long long sessions_of_others(const json_t *o)
{
        const json_t *client;
        long long n = 0;
        size_t i;

        json_array_foreach(json_object_get(o, "clients"), i, client) {
                if (!json_is_true(json_object_get(client, "own")))
                        n += cg_reply_number(client, "sessions");
        }
        return n;
}

static int show(const char *address, void *data)
{
        struct daemons *d = data;
        struct cg_buf *b = d->text;
        struct cg_client *client;
        cg_auto_json json_t *o = status_of(address, &client);
        const char *error = json_string_value(json_object_get(o, "error")),
                   *preload = json_string_value(json_object_get(o, "preload")),
                   *env = json_string_value(json_object_get(o, "kernel_env"));
        long long sessions = sessions_of_others(o), spares = cg_reply_number(o, "spares");

        cg_client_close(client);
        if (!o)
                return 0;
        json_array_append(d->list, o);
        if (error) {
                cg_buf_addf(b, "process %lld at %s: %s\n", cg_reply_number(o, "pid"), address, error);
                return 0;
        }
        cg_buf_addf(b, "process %lld: version %s, up ", cg_reply_number(o, "pid"),
                    json_string_value(json_object_get(o, "version")));
        cg_add_duration(b, cg_reply_number(o, "uptime_ms"));
        cg_buf_addf(b, ", %lld session%s, %lld spare%s, %lld MB, ends ", sessions, cg_cli_s(sessions), spares,
                    cg_cli_s(spares), cg_reply_number(o, "memory_bytes") >> 20);
        cg_add_duration(b, cg_reply_number(o, "linger_ms"));
        cg_buf_addf(b, " after its last client\n  at %s", address);
        if (preload)
                cg_buf_addf(b, ", preloaded: %s", preload);
        if (env)
                cg_buf_addf(b, ", environment: %s", env);
        cg_buf_addf(b, "; log: %s.log\n", address);
        show_spares(b, o);
        show_clients(b, o);
        return 0;
}

/* Ends a supervisor that does not answer, which no client is then left with. */
static bool kill_listener(const char *address, struct cg_err *err)
{
        pid_t pid = listener(address);
        cg_auto_fd int pidfd = -1;

        if (pid)
                pidfd = cg_pidfd_open(pid, err);
        /* It still listens: the descriptor is of no process that has got its number since. */
        if (pidfd < 0 || listener(address) != pid)
                return false;
        cg_pidfd_kill(pidfd, SIGTERM);
        if (cg_wait_fd(pidfd, POLLIN, ANSWER_MS, err) == 0)
                return true;
        cg_pidfd_kill(pidfd, SIGKILL);
        return cg_wait_fd(pidfd, POLLIN, ANSWER_MS, err) == 0;
}

static int stop(const char *address, void *data)
{
        struct daemons *d = data;
        struct cg_client *client;
        cg_auto_json json_t *o = status_of(address, &client);
        const char *error = json_string_value(json_object_get(o, "error"));
        long long pid = cg_reply_number(o, "pid");
        cg_auto_fd int pidfd = o ? cg_pidfd_open((pid_t)pid, NULL) : -1;
        bool ended = false;
        struct cg_err err = { 0 };

        if (!o)
                return 0;
        if (error) {
                ended = d->force && kill_listener(address, &err);
                snprintf(err.msg, sizeof(err.msg), "%.900s; --force ends it", error);
        } else if (cg_client_stop(client, d->force, &err) == 0) {
                ended = pidfd >= 0 && cg_wait_fd(pidfd, POLLIN, END_MS, NULL) == 0;
                if (!ended)
                        cg_fail(&err, CG_E_TIMEDOUT, "it has not ended within %d s", END_MS / 1000);
        }
        cg_client_close(client);
        if (ended) {
                cg_buf_addf(d->text, "process %lld has ended\n", pid);
                return 0;
        }
        d->left = true;
        cg_buf_addf(d->text, "process %lld runs on: %s\n", pid, err.msg);
        if (sessions_of_others(o)) {
                show_clients(d->text, o);
                cg_buf_adds(d->text, "  --force ends these sessions\n");
        }
        return 0;
}

int cg_cli_daemon(int argc, char **argv)
{
        static const char *const names[] = { "status", "stop" };
        cg_auto_json json_t *list = json_array();
        cg_auto_buf struct cg_buf text = { .max = CG_MAX_REPORT };
        struct daemons d = { .text = &text, .list = list };
        bool stops;
        struct cg_err err;
        int r;

        for (int i = 1; i < argc; i++)
                if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0)
                        return cg_cli_print(CG_HELP_DAEMON);
        r = cg_opt_command(names, CG_ARRAY_LEN(names), ~0u, argc, argv, &err);
        if (r < 0)
                return cg_cli_fail("daemon", &err);
        stops = r == 2;
        for (int i = 2; i < argc; i++) {
                if (!stops && strcmp(argv[i], "--json") == 0) {
                        d.json = true;
                } else if (stops && strcmp(argv[i], "--force") == 0) {
                        d.force = true;
                } else {
                        cg_fail(&err, CG_E_INVAL, "unexpected argument \"%s\"; --help lists the options",
                                argv[i]);
                        return cg_cli_fail("daemon", &err);
                }
        }
        if (cg_supervisors(stops ? stop : show, &d, &err) < 0)
                return cg_cli_fail("daemon", &err);
        if (d.json)
                return cg_cli_print_json(list, JSON_INDENT(2));
        if (!text.len)
                cg_buf_adds(&text, "no shared supervisor is running\n");
        r = cg_cli_print_buf(&text);
        return r == CG_EXIT_OK && d.left ? CG_EXIT_RAISED : r;
}
