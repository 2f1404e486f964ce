/* `cellgate events`: what happens in the sessions of this user's programs. Part of `cellgate`. */
#include <jansson.h>
#include <poll.h>
#include <time.h>
#include "base/buf.h"
#include "base/ceilings.h"
#include "base/json.h"
#include "base/text.h"
#include "cli/common/cli.h"
#include "cli/common/opts.h"
#include "cli/common/supervisors.h"
#include "cli/help.h"
#include "cli/option_tables.h"

/* Supervisors start at any time, and no event says so. */
#define SCAN_MS     1000
#define MAX_SOURCES 32
#define MAX_PRINT   (1u << 20) /* at once, so that few pages fill the buffer */

enum { CG_EVENTS_OPTION_IDS };

static const struct cg_opt table[] = { CG_EVENTS_OPTION_ROWS };

struct followed {
        char address[400];
        struct cg_client *client;
        uint64_t after;
        json_t *page; /* the last reply; its events from @next on are not printed yet */
        size_t next;
        bool more; /* there may be another page, or it did not answer */
};

struct events {
        bool json, no_wait;
        const char *namespace;
        int64_t since_ms; /* Unix time; 0: all that is kept */
        struct followed sources[MAX_SOURCES];
        size_t n;
        int status;
};

static void add_event(const struct events *ev, const json_t *e, struct cg_buf *b)
{
        time_t seconds = (time_t)json_number_value(json_object_get(e, "time"));
        const char *message = cg_json_text_of(e, "message"), *job = cg_json_text_of(e, "execution_id");
        char when[32] = "";
        struct tm tm;

        if (ev->json) {
                cg_auto_free char *text = cg_json_text(e, NULL);

                cg_buf_addf(b, "%s\n", text ?: "{}");
                return;
        }
        if (localtime_r(&seconds, &tm))
                strftime(when, sizeof(when), "%H:%M:%S", &tm);
        cg_buf_addf(b, "%s  %-19s  %s  ", when, cg_json_text_of(e, "type"),
                    cg_text_or(job, cg_json_text_of(e, "session_id")));
        cg_text_render_as(b, message, strlen(message), 0, CG_TEXT_LINE);
        cg_buf_adds(b, "\n");
}

static void print(struct events *ev, struct cg_buf *b)
{
        if (b->len && cg_cli_print_buf(b) != CG_EXIT_OK)
                ev->status = CG_EXIT_USAGE;
}

static void print_lost(struct events *ev, long long n)
{
        cg_auto_buf struct cg_buf b = { .max = 200 };

        if (ev->json)
                cg_buf_addf(&b, "{\"type\":\"events.lost\",\"data\":{\"lost\":%lld}}\n", n);
        else
                cg_buf_addf(&b, "(%lld events were lost: this reader was too slow)\n", n);
        print(ev, &b);
}

static const json_t *head(const struct followed *s)
{
        return json_array_get(json_object_get(s->page, "events"), s->next);
}

/* False: the supervisor has ended, or does not answer and is not to be waited for. */
static bool read_page(struct events *ev, struct followed *s)
{
        const struct cg_events_options o = { .size = sizeof(o),
                                             .after = s->after,
                                             .since_ms = ev->since_ms,
                                             .namespace_name = ev->namespace };
        struct cg_err err = { 0 };
        char *text = NULL;

        s->more = true;
        if (cg_client_events(s->client, &o, &text, &err) != 0)
                return err.code != CG_E_CLOSED && !ev->no_wait;
        json_decref(s->page);
        s->page = cg_reply_json(text);
        s->next = 0;
        s->after = (uint64_t)cg_reply_number(s->page, "last");
        s->more = head(s);
        if (cg_reply_number(s->page, "lost"))
                print_lost(ev, cg_reply_number(s->page, "lost"));
        return true;
}

static void close_source(struct followed *s)
{
        cg_client_close(s->client);
        json_decref(s->page);
}

static void read_pages(struct events *ev)
{
        for (size_t i = ev->n; i-- > 0;) {
                struct followed *s = &ev->sources[i];

                if (head(s) || !s->more || read_page(ev, s))
                        continue;
                close_source(s);
                *s = ev->sources[--ev->n];
        }
}

static struct followed *earliest(struct events *ev)
{
        struct followed *found = NULL;
        double time, first = 0;

        for (size_t i = 0; i < ev->n; i++) {
                if (!head(&ev->sources[i]))
                        continue;
                time = json_number_value(json_object_get(head(&ev->sources[i]), "time"));
                if (found && time >= first)
                        continue;
                found = &ev->sources[i];
                first = time;
        }
        return found;
}

/* By time, up to the end of a page: the next one may begin before what the others have. */
static bool print_pages(struct events *ev)
{
        cg_auto_buf struct cg_buf b = { .max = CG_MAX_REPORT };
        struct followed *s = earliest(ev);
        bool any = s;

        while (s && b.len < MAX_PRINT) {
                add_event(ev, head(s), &b);
                s->next++;
                s = head(s) ? earliest(ev) : NULL;
        }
        print(ev, &b);
        return any;
}

static int add_source(const char *address, void *data)
{
        struct events *ev = data;
        struct followed *s = &ev->sources[ev->n];

        for (size_t i = 0; i < ev->n; i++)
                if (strcmp(ev->sources[i].address, address) == 0)
                        return 0;
        if (ev->n == MAX_SOURCES)
                return 0;
        *s = (struct followed){ .more = true };
        snprintf(s->address, sizeof(s->address), "%s", address);
        if (cg_supervisor_open(address, &s->client, NULL) == 0)
                ev->n++;
        return 0;
}

static int watch(struct events *ev, struct cg_err *err)
{
        struct pollfd fds[MAX_SOURCES];
        bool printed = false;

        while (ev->status < 0) {
                if (!printed && cg_supervisors(add_source, ev, err) < 0)
                        return -1;
                read_pages(ev);
                printed = print_pages(ev);
                if (!printed && ev->no_wait)
                        ev->status = CG_EXIT_OK;
                for (size_t i = 0; i < ev->n; i++)
                        fds[i] = (struct pollfd){ .fd = cg_client_events_fd(ev->sources[i].client, NULL),
                                                  .events = POLLIN };
                if (ev->status >= 0 || poll(fds, ev->n, printed ? 0 : SCAN_MS) < 0)
                        continue;
                for (size_t i = 0; i < ev->n; i++)
                        ev->sources[i].more |= fds[i].revents != 0;
        }
        return 0;
}

static int parse(struct events *ev, int argc, char **argv, struct cg_err *err)
{
        static const struct cg_opt_place places[] = {
                CG_OPT_PLACE(NAMESPACE, struct events, namespace),
                CG_OPT_PLACE(NO_WAIT, struct events, no_wait),
                CG_OPT_PLACE(JSON, struct events, json),
        };
        struct cg_optscan scan = CG_OPT_SCAN(table, 0, argc, argv, 1);
        const char *value;
        bool since = false;
        int id;

        while ((id = cg_opt_read(&scan, places, CG_ARRAY_LEN(places), ev, &value, err)) > 0) {
                if (id == HELP)
                        return 1;
                if (id == CG_OPT_ARG)
                        return cg_fail(err, CG_E_INVAL,
                                       "unexpected argument \"%s\"; --help lists the options", value);
                since = true;
                if (cg_opt_since(value, &ev->since_ms, err) < 0)
                        return -1;
        }
        return id < 0 || since || ev->no_wait ? id : cg_opt_since("0", &ev->since_ms, err);
}

int cg_cli_events(int argc, char **argv)
{
        struct events ev = { .status = -1 };
        struct cg_err err = { 0 };
        int r = parse(&ev, argc, argv, &err);

        if (r > 0)
                return cg_opt_help(table, CG_ARRAY_LEN(table), 0, CG_HELP_EVENTS);
        if (r == 0)
                r = watch(&ev, &err);
        while (ev.n)
                close_source(&ev.sources[--ev.n]);
        if (r < 0)
                return cg_cli_fail("events", &err);
        return ev.status;
}
