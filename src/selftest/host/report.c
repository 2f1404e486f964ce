/*
 * The attempts of `cellgate selftest`, and the report of each. Lines from inside a sandbox are
 * checked: a name that is due, once, and one of five outcomes.
 */
#include "selftest/host/selftest.h"

#include <fnmatch.h>

#include "base/fd.h"
#include "base/installed.h"
#include "base/text.h"
#include "cli/common/cli.h"
#include "config.h"

#define MAX_OUTPUT (1u << 20) /* of a program of ours */

static const struct {
        const char *word, *name, *say;
} outcomes[CG_N_OUTCOMES] = {
        [CG_OUT_HELD] = { "ok", "held", "denied" },      [CG_OUT_HOLE] = { "HOLE", "hole", "not denied" },
        [CG_OUT_WORKS] = { "ok", "works", "possible" },  [CG_OUT_FAILS] = { "FAIL", "fails", "not possible" },
        [CG_OUT_SKIP] = { "skip", "skip", "not tried" },
};

static const char *const verdict_kinds[] = { "deny", "allow" };

static void print_json(json_t *o)
{
        cg_auto_json json_t *owned = o;
        cg_auto_free char *text = cg_json_text(owned, NULL);

        if (text)
                puts(text);
}

void cg_report_line(struct cg_report *r, const struct cg_attempt_line *a, const char *where,
                    enum cg_outcome o, const char *note)
{
        bool kernel = a->command && strcmp(where, "sandbox") != 0, bad;
        cg_auto_buf struct cg_buf safe = { .max = 16384 };
        char tier[900], prefix[64] = "";

        if (r->weak && o == CG_OUT_FAILS) {
                snprintf(tier, sizeof(tier), "the landlock tier does not allow it: %.800s", note);
                note = tier;
                o = CG_OUT_SKIP;
        }
        r->n[o]++;
        bad = o == CG_OUT_HOLE || o == CG_OUT_FAILS;
        if (r->json) {
                json_t *j = json_pack("{s:s, s:s, s:s, s:s, s:s, s:s, s:s}", "name", a->name, "where", where,
                                      "group", a->group, "kind", verdict_kinds[a->allow], "what", a->what,
                                      "outcome", outcomes[o].name, "withoutSandbox", a->bare);

                if (j && *a->layer)
                        json_object_set_new(j, "layer", json_string(a->layer));
                if (j && *note)
                        json_object_set_new(j, "note", json_string(note));
                print_json(j);
        } else if (bad || !r->quiet) {
                /* A note may come from hostile code inside: control characters are escaped. */
                cg_text_render(&safe, note, strlen(note), 0);
                if (kernel)
                        snprintf(prefix, sizeof(prefix), "%s:", where);
                printf("%-4s %s%-*s %s", outcomes[o].word, prefix, (int)(r->width - strlen(prefix)), a->name,
                       outcomes[o].say);
                if (cg_buf_end(&safe, NULL) == 0 && safe.len)
                        printf(": %s", safe.data);
                if (bad)
                        printf("  (%s)", a->what);
                printf("\n");
        }
        fflush(stdout);
}

int cg_report_sum(const struct cg_report *r)
{
        size_t held = r->n[CG_OUT_HELD] + r->n[CG_OUT_WORKS], holes = r->n[CG_OUT_HOLE],
               failed = r->n[CG_OUT_FAILS], skipped = r->n[CG_OUT_SKIP],
               all = held + holes + failed + skipped;

        if (r->json)
                print_json(json_pack("{s:b, s:I, s:I, s:I, s:I, s:I}", "sum", 1, "attempts", (json_int_t)all,
                                     "held", (json_int_t)held, "holes", (json_int_t)holes, "failed",
                                     (json_int_t)failed, "skipped", (json_int_t)skipped));
        else if (failed)
                printf("\n%zu attempts: %zu held, %zu holes, %zu skipped, %zu failed\n", all, held, holes,
                       skipped, failed);
        else
                printf("\n%zu attempts: %zu held, %zu holes, %zu skipped\n", all, held, holes, skipped);
        return fflush(stdout) ? CG_EXIT_USAGE : (holes || failed);
}

/* ---- the list of attempts */
int cg_selftest_output(const char *const *argv, char **ret, struct cg_err *err)
{
        struct cg_proc p = CG_PROC_NONE;
        struct cg_proc_fd fds[] = { { -1, 0 }, { -1, 1 }, { 2, 2 } };
        struct cg_proc_spec spec = CG_PROC_SPEC(argv[0], argv, environ, fds);
        int out[2], status = 0, r;
        size_t len;

        if (pipe2(out, O_CLOEXEC) < 0)
                return cg_fail_errno(err, "pipe");
        fds[1].fd = out[1];
        r = cg_proc_spawn(&spec, &p, err);
        close(out[1]);
        if (r == 0)
                r = cg_read_fd(out[0], argv[0], MAX_OUTPUT, ret, &len, err);
        close(out[0]);
        if (p.pid && cg_proc_wait(&p, 10000, &status, err) != 0)
                cg_proc_end(&p, false, 0);
        if (r == 0 && status)
                return cg_fail(err, CG_E_SYS, "%s failed", argv[0]);
        return r;
}

static void add(struct cg_attempt_list *l, const struct cg_attempt_line *a, const char *const *only)
{
        struct cg_attempt_line *to = &l->v[l->n++];

        *to = *a;
        to->wanted = !*only;
        for (; *only && !to->wanted; only++)
                to->wanted = fnmatch(*only, a->name, 0) == 0;
}

/* Common prefixes of names: "unix-*", "proxy-*". */
static void add_kinds(const struct cg_attempt_list *l, struct cg_buf *b)
{
        for (size_t i = 0; i < l->n; i++) {
                const char *name = l->v[i].name;
                size_t len = strcspn(name, "-");
                size_t before = 0, same = 0;

                for (size_t j = 0; j < l->n; j++) {
                        bool is = strcspn(l->v[j].name, "-") == len && memcmp(l->v[j].name, name, len) == 0;

                        same += is;
                        before += is && j < i;
                }
                if (!before && same >= 10)
                        cg_buf_addf(b, "%s%.*s-*", cg_sep(b->len, ", "), (int)len, name);
        }
}

/* A pattern that matches nothing is an error: no attempt at all would count as success. */
static int check_patterns(const struct cg_attempt_list *l, const char *const *only, struct cg_err *err)
{
        cg_auto_buf struct cg_buf kinds = { .max = 4096 };

        for (; *only; only++) {
                size_t i = 0;

                while (i < l->n && fnmatch(*only, l->v[i].name, 0) != 0)
                        i++;
                if (i < l->n)
                        continue;
                add_kinds(l, &kinds);
                return cg_fail(err, CG_E_INVAL,
                               "--only %s: there is no such attempt; --list lists all %zu, among them %s",
                               *only, l->n, kinds.data ?: "");
        }
        return 0;
}

int cg_attempts_load(struct cg_attempt_list *l, const struct cg_attempt_table *tables, size_t n_tables,
                     const char *const *only, struct cg_err *err)
{
        const char *const argv[] = { CG_INSTALLED(CG_SELFTEST_HELPER), "--list", NULL };
        char *save = NULL;
        size_t lines = 0;

        if (cg_selftest_output(argv, &l->text, err) < 0)
                return -1;
        for (const char *p = l->text; *p; p++)
                lines += *p == '\n';
        for (size_t t = 0; t < n_tables; t++)
                lines += tables[t].n;
        l->v = calloc(lines, sizeof(*l->v));
        if (!l->v)
                return cg_fail(err, CG_E_NOMEM, "attempts");
        for (char *line = strtok_r(l->text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
                struct cg_attempt_line a;
                char *field[7], *rest = line;
                size_t n = 0;

                /* Fields may be empty: strsep(), not strtok(). */
                for (; rest && n < CG_ARRAY_LEN(field); n++)
                        field[n] = strsep(&rest, "\t");
                if (n != CG_ARRAY_LEN(field))
                        return cg_fail(
                                err, CG_E_PROTO,
                                "%s lists its attempts in an unknown format: is cellgate installed completely?",
                                CG_INSTALLED(CG_SELFTEST_HELPER));
                a = (struct cg_attempt_line){ .name = field[0],
                                              .group = field[1],
                                              .allow = strcmp(field[2], "allow") == 0,
                                              .layer = field[3],
                                              .bare = field[4],
                                              .inside = true,
                                              .kernel = strcmp(field[5], "command") != 0,
                                              .command = strcmp(field[5], "kernel") != 0,
                                              .what = field[6] };
                add(l, &a, only);
        }
        for (size_t t = 0; t < n_tables; t++)
                for (size_t i = 0; i < tables[t].n; i++)
                        add(l, &tables[t].v[i], only);
        return check_patterns(l, only, err);
}

int cg_attempts_print(const struct cg_attempt_list *l, const struct cg_report *r)
{
        for (size_t i = 0; i < l->n; i++) {
                const struct cg_attempt_line *a = &l->v[i];

                if (!a->wanted)
                        continue;
                if (r->json)
                        print_json(json_pack("{s:s, s:s, s:s, s:s, s:s, s:s, s:b, s:b}", "name", a->name,
                                             "group", a->group, "kind", verdict_kinds[a->allow], "layer",
                                             a->layer, "withoutSandbox", a->bare, "what", a->what, "sandbox",
                                             (int)a->command, "kernel", (int)a->kernel));
                else
                        printf("%-5s %-*s %-20s %s\n", verdict_kinds[a->allow], (int)r->width, a->name,
                               a->layer, a->what);
        }
        return fflush(stdout) ? CG_EXIT_USAGE : 0;
}

struct cg_attempt_list *cg_attempts_free(struct cg_attempt_list *l)
{
        free(l->v);
        free(l->text);
        *l = (struct cg_attempt_list){ .n = 0 };
        return NULL;
}

/* ---- lines from inside */
/* NAME <tab> OUTCOME <tab> NOTE */
int cg_report_take(struct cg_report *r, struct cg_attempt_list *l, const char *where, char *line)
{
        char *save = line, *name = strsep(&save, "\t"), *word = strsep(&save, "\t");
        enum cg_outcome o = 0;

        while (word && o < CG_N_OUTCOMES && strcmp(outcomes[o].name, word) != 0)
                o++;
        if (!word || !save || o == CG_N_OUTCOMES)
                return -1;
        for (size_t i = 0; i < l->n; i++) {
                struct cg_attempt_line *a = &l->v[i];

                if (!a->due || strcmp(a->name, name) != 0)
                        continue;
                a->due = false;
                cg_report_line(r, a, where, o, save);
                return 0;
        }
        return -1;
}

size_t cg_attempts_due(struct cg_attempt_list *l, bool kernel)
{
        size_t n = 0;

        for (size_t i = 0; i < l->n; i++) {
                struct cg_attempt_line *a = &l->v[i];
                a->due = a->wanted && a->inside && (kernel ? a->kernel : a->command);
                n += a->due;
        }
        return n;
}

size_t cg_report_missing(struct cg_report *r, struct cg_attempt_list *l, const char *where, const char *why)
{
        size_t n = 0;

        for (size_t i = 0; i < l->n; i++) {
                if (l->v[i].due)
                        cg_report_line(r, &l->v[i], where, CG_OUT_FAILS, why);
                n += l->v[i].due;
                l->v[i].due = false;
        }
        return n;
}
