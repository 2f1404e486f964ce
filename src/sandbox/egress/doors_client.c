/* Starts the process for a sandbox's doors. Linked into programs that create sandboxes. */
#include "sandbox/egress/doors_client.h"

#include "base/fd.h"
#include "base/installed.h"
#include "config.h"

#define FD_REPORTS 3
#define FD_DOORS   4
#define FD_REACH   5

static unsigned int doors_of(const struct cg_settings *s)
{
        unsigned int doors = 0;

        if (s->own.n_expose || s->own.n_reach)
                doors |= CG_DOOR_PORTS;
        if (s->network.unix_sockets.n && !s->network.all_unix_sockets)
                doors |= CG_DOOR_UNIX;
        if (s->network.local_binding)
                doors |= CG_DOOR_LISTEN;
        return doors;
}

bool cg_doors_any(const struct cg_settings *s)
{
        return doors_of(s) != 0;
}

bool cg_doors_on_host(const struct cg_settings *s)
{
        return s->own.n_expose || s->network.local_binding;
}

int cg_doors_plan(const struct cg_settings *s, struct cg_sandbox *plan, struct cg_err *err)
{
        int r = 0;

        if (doors_of(s))
                cg_sandbox_set_doors(plan, doors_of(s));
        for (size_t i = 0; i < s->own.n_reach && r == 0; i++)
                r = cg_sandbox_add_port(plan, s->own.reach[i].inside, err);
        return r;
}

/* Arguments: room for all of them, and NULL. */
struct words {
        char **v;
        size_t n;
        bool failed; /* out of memory */
};

static void words_fini(struct words *w)
{
        while (w->n)
                free(w->v[--w->n]);
        free(w->v);
}

static void add_word(struct words *w, const char *text)
{
        w->v[w->n] = strdup(text);
        if (w->v[w->n])
                w->n++;
        else
                w->failed = true;
}

/*
 * Adds the path as spelled, and the place that it leads to; nothing is followed from there on. A
 * link that programs inside may write, or could in an earlier sandbox with the same rules, is not
 * followed: it would lead them to any socket of the host's. Without rules about files, such
 * programs can reach every socket anyway.
 */
static int add_unix(struct words *w, const struct cg_path_base *base, const struct cg_rules *rules,
                    const char *spelled, struct cg_err *err)
{
        char path[PATH_MAX];
        cg_auto_place struct cg_place place = { .path = "" };
        bool own = false;
        int r;

        if (!spelled[0])
                return 0;
        if ((r = cg_path_absolute(base, spelled, path, err)) < 0 ||
            (r = cg_place_find(path, &place, err)) < 0)
                return r;
        for (size_t i = 0; !rules->off && i < place.n_links; i++)
                own |= cg_rules_may_write(rules, place.links[i]);
        add_word(w, "unix");
        add_word(w, path);
        add_word(w, own ? path : place.path);
        return 0;
}

static void add_ports(struct words *w, const char *word, const struct cg_settings_port *list, size_t n)
{
        char number[16];

        for (size_t i = 0; i < n; i++) {
                add_word(w, word);
                snprintf(number, sizeof(number), "%u", list[i].inside);
                add_word(w, number);
                snprintf(number, sizeof(number), "%u", list[i].host);
                add_word(w, number);
        }
}

static int spawn(char **argv, size_t n_reach, int doors_fd, const int *reach, struct cg_doors_process *ret,
                 struct cg_err *err)
{
        struct cg_proc_fd fds[FD_REACH + CG_SETTINGS_PORTS_MAX] = { { -1, 0 },
                                                                    { -1, 1 },
                                                                    { STDERR_FILENO, 2 } };
        struct cg_proc_spec spec = { .path = CG_INSTALLED(CG_LIBEXECDIR "/cellgate-egress"),
                                     .argv = argv,
                                     .envp = environ,
                                     .fds = fds,
                                     .n_fds = FD_REACH + n_reach,
                                     .new_session = true };
        int report[2], r;

        if (pipe2(report, O_CLOEXEC | O_NONBLOCK) < 0)
                return cg_fail_errno(err, "doors");
        fds[FD_REPORTS] = (struct cg_proc_fd){ report[1], FD_REPORTS };
        fds[FD_DOORS] = (struct cg_proc_fd){ doors_fd, FD_DOORS };
        for (size_t i = 0; i < n_reach; i++)
                fds[FD_REACH + i] = (struct cg_proc_fd){ reach[i], (int)(FD_REACH + i) };
        r = cg_proc_spawn(&spec, &ret->proc, err);
        close(report[1]);
        if (r < 0) {
                close(report[0]);
                return r;
        }
        ret->reports = report[0];
        cg_buf_init(&ret->line, CG_DOORS_LINE_MAX);
        return 0;
}

int cg_doors_start(const struct cg_settings *s, const struct cg_path_base *base, const struct cg_rules *rules,
                   int doors_fd, const int *reach, struct cg_doors_process *ret, struct cg_err *err)
{
        size_t n = 2 + 3 * (s->network.unix_sockets.n + s->own.n_expose + s->own.n_reach);
        CG_CLEANUP(words_fini) struct words w = { .v = calloc(n + 1, sizeof(*w.v)) };

        if (!w.v)
                return cg_fail(err, CG_E_NOMEM, "doors");
        add_word(&w, "cellgate-egress");
        add_word(&w, "--doors");
        for (size_t i = 0; i < s->network.unix_sockets.n; i++) {
                int r = add_unix(&w, base, rules, s->network.unix_sockets.v[i], err);

                if (r < 0)
                        return r;
        }
        add_ports(&w, "expose", s->own.expose, s->own.n_expose);
        add_ports(&w, "reach", s->own.reach, s->own.n_reach);
        if (w.failed)
                return cg_fail(err, CG_E_NOMEM, "doors");
        return spawn(w.v, s->own.n_reach, doors_fd, reach, ret, err);
}

const char *cg_doors_read_report(struct cg_doors_process *p)
{
        while (p->reports >= 0) {
                char c;
                ssize_t n = read(p->reports, &c, 1); /* lines are rare */

                if (n < 0 && errno == EINTR)
                        continue;
                if (n < 0 && errno == EAGAIN)
                        return NULL;
                if (n <= 0) {
                        cg_closep_(&p->reports);
                        return NULL;
                }
                if (c == '\n') {
                        p->line.len = 0; /* the text stays until the next */
                        return p->line.data ?: "";
                }
                cg_buf_try_add(&p->line, &c, 1, NULL);
        }
        return NULL;
}

#define REAP_MS 2000 /* its descriptors are closed: it is ending */

bool cg_doors_reap(struct cg_doors_process *p)
{
        int status = -1;

        return p->proc.pidfd >= 0 && cg_proc_wait(&p->proc, REAP_MS, &status, NULL) == 0 && status == 0;
}

void cg_doors_end(struct cg_doors_process *p)
{
        cg_closep_(&p->reports);
        if (p->proc.pidfd >= 0)
                cg_proc_end(&p->proc, false, 0);
        cg_buf_fini(&p->line);
        *p = CG_DOORS_PROCESS_NONE;
}
