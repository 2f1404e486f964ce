/*
 * `cellgate queue`, `cellgate session` and `cellgate job`: what runs and waits in the supervisors
 * that this user's programs share. Runs in the command `cellgate`.
 */
#include <jansson.h>
#include "base/buf.h"
#include "base/ceilings.h"
#include "base/json.h"
#include "base/text.h"
#include "cli/common/cli.h"
#include "cli/common/opts.h"
#include "cli/common/supervisors.h"
#include "cli/help.h"
#include "cli/option_tables.h"

#define NAME_MAX_ID 64

enum { CG_JOBS_OPTION_IDS };
enum { STATUS = 1, LIST = 2, SHOW = 4, KILL = 8, CANCEL = 16 };

static const struct cg_opt table[] = { CG_JOBS_OPTION_ROWS };

static const char *const names[] = { "status", "list", "show", "kill", "cancel" };

static const struct jobs_group {
        const char *name;
        unsigned commands; /* bits */
        const char *help;
} groups[] = {
        { "queue", STATUS, CG_HELP_QUEUE },
        { "session", LIST | SHOW | KILL, CG_HELP_SESSION },
        { "job", LIST | CANCEL, CG_HELP_JOB },
};

/* The answers of all supervisors. */
struct state {
        const struct jobs_group *group;
        unsigned command;
        const char *id, *namespace;
        bool json;
        json_t *list; /* of sessions, jobs or queues */
        struct cg_buf *text;
        /* those whose id begins with @id: the last, its supervisor, and whether it is @id itself */
        size_t matches;
        bool exact;
        char match[NAME_MAX_ID], address[400];
};

static void add_queue(struct state *st, struct cg_client *c)
{
        cg_auto_json json_t *o = NULL;
        char *text = NULL;
        json_t *q;

        if (cg_client_status(c, &text, NULL) == 0)
                o = cg_reply_json(text);
        q = json_object_get(o, "queue");
        if (!q)
                return;
        json_object_set(q, "pid", json_object_get(o, "pid"));
        json_array_append(st->list, q);
        cg_buf_addf(
                st->text,
                "process %lld: %lld of %lld run, %lld wait, %lld wait for an answer or a tool; %lld ended, "
                "%lld refused\n",
                cg_reply_number(q, "pid"), cg_reply_number(q, "running"),
                cg_reply_number(q, "max_concurrent_jobs"), cg_reply_number(q, "waiting"),
                cg_reply_number(q, "paused"), cg_reply_number(q, "ended"), cg_reply_number(q, "refused"));
}

/* Agents and their programs choose these texts: they are rendered. */
static void add_text(struct cg_buf *b, const json_t *o, const char *key)
{
        const json_t *v = json_object_get(o, key);

        cg_text_render_as(b, json_string_value(v) ?: "", json_string_length(v), 0, CG_TEXT_LINE);
}

static void add_session(struct state *st, json_t *session)
{
        json_array_append(st->list, session);
        cg_buf_addf(st->text, "%s  %s, %s, process %lld, %zu job%s, up ", cg_json_text_of(session, "id"),
                    cg_json_text_of(session, "namespace"), cg_json_text_of(session, "language"),
                    cg_reply_number(session, "pid"), json_array_size(json_object_get(session, "jobs")),
                    cg_cli_s((long long)json_array_size(json_object_get(session, "jobs"))));
        cg_add_duration(st->text, cg_reply_number(session, "uptime_ms"));
        cg_buf_adds(st->text, ", ");
        add_text(st->text, session, "workspace");
        cg_buf_adds(st->text, "\n");
}

static void add_job(struct state *st, const json_t *session, json_t *job)
{
        json_object_set(job, "session", json_object_get(session, "id"));
        json_object_set(job, "namespace", json_object_get(session, "namespace"));
        json_array_append(st->list, job);
        cg_buf_addf(st->text, "%s  %s, %s for ", cg_json_text_of(job, "id"), cg_json_text_of(job, "kind"),
                    cg_json_text_of(job, "state"));
        cg_add_duration(st->text, cg_reply_number(job, "ms"));
        cg_buf_addf(st->text, ", %s\n", cg_json_text_of(session, "namespace"));
}

/* Replaces an earlier session: act_on_match() reports an id that both begin with. */
static void show(struct state *st, json_t *session)
{
        json_t *job;
        size_t i;

        json_array_clear(st->list);
        cg_buf_clear(st->text);
        add_session(st, session);
        json_array_foreach(st->json ? NULL : json_object_get(session, "jobs"), i, job)
                add_job(st, session, job);
}

/* True: @id is what the command is about, unless a later one is as well. */
static bool match(struct state *st, const char *id, const char *address)
{
        bool exact = strcmp(id, st->id) == 0;

        if (st->exact || strncmp(id, st->id, strlen(st->id)) != 0)
                return false;
        st->exact = exact;
        st->matches = exact ? 1 : st->matches + 1;
        snprintf(st->match, sizeof(st->match), "%s", id);
        snprintf(st->address, sizeof(st->address), "%s", address);
        return true;
}

static void add_sessions(struct state *st, struct cg_client *c, const char *address)
{
        bool jobs = strcmp(st->group->name, "job") == 0;
        cg_auto_json json_t *list = NULL;
        json_t *session, *job;
        char *text = NULL;
        size_t i, k;

        if (cg_client_jobs(c, &text, NULL) == 0)
                list = cg_reply_json(text);
        json_array_foreach(list, i, session) {
                if (st->namespace && strcmp(cg_json_text_of(session, "namespace"), st->namespace) != 0)
                        continue;
                if (st->id && !jobs && match(st, cg_json_text_of(session, "id"), address) &&
                    st->command == SHOW)
                        show(st, session);
                else if (!st->id && !jobs)
                        add_session(st, session);
                json_array_foreach(jobs ? json_object_get(session, "jobs") : NULL, k, job) {
                        if (st->id)
                                match(st, cg_json_text_of(job, "id"), address);
                        else
                                add_job(st, session, job);
                }
        }
}

static int visit(const char *address, void *data)
{
        struct state *st = data;
        struct cg_client *c;

        /* It has ended, or hangs: `cellgate daemon status` says so. */
        if (cg_supervisor_open(address, &c, NULL) < 0)
                return 0;
        if (st->command == STATUS)
                add_queue(st, c);
        else
                add_sessions(st, c, address);
        cg_client_close(c);
        return 0;
}

static int act_on_match(struct state *st, struct cg_err *err)
{
        struct cg_client *c;
        int r;

        if (st->matches != 1)
                return cg_fail(err, CG_E_NOTFOUND,
                               st->matches ? "%zu %ss have an id that begins with %.64s"
                                           : "%zu %ss of the shared supervisors have the id %.64s",
                               st->matches, st->group->name, st->id);
        if (st->command == SHOW)
                return 0;
        if (cg_supervisor_open(st->address, &c, err) < 0)
                return -1;
        if (st->command == KILL)
                r = cg_client_session_kill(c, st->match, err);
        else
                r = cg_client_job_cancel(c, st->match, err);
        cg_client_close(c);
        return r;
}

static int parse(struct state *st, int argc, char **argv, struct cg_err *err)
{
        static const struct cg_opt_place places[] = {
                CG_OPT_PLACE(ID, struct state, id),
                CG_OPT_PLACE(NAMESPACE, struct state, namespace),
                CG_OPT_PLACE(JSON, struct state, json),
        };
        struct cg_optscan scan = CG_OPT_SCAN(table, st->command, argc, argv, 2);
        const char *value;
        int id = cg_opt_read(&scan, places, CG_ARRAY_LEN(places), st, &value, err);

        if (id == CG_OPT_ARG)
                return cg_fail(err, CG_E_INVAL, "unexpected argument \"%s\"; --help lists the options",
                               value);
        if (id == 0 && (st->command & (KILL | CANCEL | SHOW)) && !(st->id && *st->id))
                return cg_fail(err, CG_E_INVAL, "--id is missing: `cellgate %s list` shows them",
                               st->group->name);
        return id;
}

static int print(struct state *st)
{
        if (st->json)
                return cg_cli_print_json(st->list, JSON_INDENT(2));
        if (!st->text->len)
                cg_buf_addf(st->text, "no %s\n",
                            st->command == STATUS ? "shared supervisor is running" : st->group->name);
        return cg_cli_print_buf(st->text);
}

int cg_cli_jobs(int argc, char **argv)
{
        cg_auto_buf struct cg_buf text = { .max = CG_MAX_REPORT };
        cg_auto_json json_t *list = json_array();
        struct state st = { .list = list, .text = &text, .group = groups };
        struct cg_err err = { 0 };
        int command, r;

        while (strcmp(st.group->name, argv[0]) != 0) /* the table in main.c has no other names */
                st.group++;
        command = r = cg_opt_command(names, CG_ARRAY_LEN(names), st.group->commands, argc, argv, &err);
        st.command = (unsigned)command;
        if (command > 0)
                r = parse(&st, argc, argv, &err);
        if (command == 0 || r > 0)
                return cg_opt_help(table, CG_ARRAY_LEN(table), st.group->commands, st.group->help);
        if (r < 0 || cg_supervisors(visit, &st, &err) < 0)
                return cg_cli_fail(argv[0], &err);
        if (!st.id)
                return print(&st);
        if (act_on_match(&st, &err) == 0)
                return st.command == SHOW ? print(&st) : CG_EXIT_OK;
        cg_cli_fail(argv[0], &err);
        return CG_EXIT_RAISED;
}
