/*
 * Sessions: their MCP servers, and adding servers. Runs in cellgate-toolserver.
 *
 * Servers that are added are kept apart (struct ts_adding) until every one of them has started,
 * been listed and got its wrappers, or has failed; only then do they take their places. Until then
 * the session is as it was. A server that failed costs no other: its package raises an ImportError
 * that says why. A server whose tools are known from the last time gets its wrappers without being
 * started: the first call starts and lists it (call.c). Functions of the host get their wrappers
 * in the same way; their calls do not come here.
 */
#include "base/json.h"
#include "base/text.h"
#include "codegen/codegen.h"
#include "mcp/ceilings.h"
#include "mcp/client/failure.h"
#include "mcp/toolserver/toolserver.h"

/* One server of a SERVERS request. */
struct ts_new {
        struct ts_adding *adding;
        struct cg_mcp_client *client;
        struct ts_box *box;     /* the client's; NULL: none */
        struct cg_mcp_req *req; /* the list that is under way */
        char package[CG_CODEGEN_PACKAGE_SIZE];
        char *name;
        char *tools;
        size_t tools_len;
        char *report;
        char *pins;     /* cg_pins_report(); NULL: nothing to report */
        bool known;     /* its tools, from the last time: it is not started yet */
        bool functions; /* of the host: its tools are given */
        bool at_host;   /* a server at the host: the same */
        bool failed;
        struct cg_err why;  /* for the host */
        struct cg_err told; /* the same for cells */
        bool keeps;         /* if it fails, the session goes on with what it has under that name */
};

struct ts_adding {
        struct ts_session *session;
        struct ts_adding *next;
        uint64_t id;
        uint64_t refresh; /* not 0: only the modules of the server with this serial are made anew */
        char *out_dir, *workspace;
        unsigned handles; /* CG_MCP_ELICITATION, CG_MCP_SAMPLING: what the host answers */
        int64_t timeout_ms, since_ms;
        size_t n, n_waiting;
        uv_work_t work; /* the wrappers' */
        bool working;
        bool dropped; /* dropped: freed when the worker thread is done */
        struct cg_err why;
        struct ts_new items[];
};

/* ---- sessions */

struct ts_session *cg_ts_session_get(struct ts *ts, uint64_t number, struct cg_err *err)
{
        struct ts_session *s = cg_ts_session_find(ts, number);

        if (s)
                return s;
        s = calloc(1, sizeof(*s));
        if (!s) {
                cg_fail(err, CG_E_NOMEM, "session");
                return NULL;
        }
        s->ts = ts;
        s->number = number;
        s->next = ts->sessions;
        ts->sessions = s;
        return s;
}

static void on_client_gone(void *data)
{
        struct ts_session *s = data;
        struct cg_out out = { .type = CG_BROKER_DETACHED, .session = s->number, .id = s->detach_id };
        struct ts *ts = s->ts;

        s->n_clients--;
        if (!s->ending || s->n_clients)
                return;
        if (s->report_detached)
                cg_ts_broker_send(ts, &out, NULL, NULL);
        CG_UNLINK(ts->sessions, s, next);
        free(s);
        cg_ts_maybe_stop(ts);
}

/* ---- the answer to SERVERS */

static void adding_free(struct ts_adding *a)
{
        for (size_t i = 0; i < a->n; i++) {
                struct ts_new *v = &a->items[i];

                if (v->req)
                        cg_mcp_req_cancel(CG_STEAL(v->req), "not wanted any more");
                if (v->client)
                        cg_mcp_client_end(CG_STEAL(v->client), "not wanted any more");
        }
        a->dropped = true;
        if (a->working)
                return;
        for (size_t i = 0; i < a->n; i++) {
                free(a->items[i].name);
                free(a->items[i].tools);
                free(a->items[i].report);
                free(a->items[i].pins);
        }
        free(a->out_dir);
        free(a->workspace);
        free(a);
}

/* They are handled in this order. */
static void append(struct ts_session *s, struct ts_adding *a)
{
        struct ts_adding **last = &s->adding;

        while (*last)
                last = &(*last)->next;
        *last = a;
}

static void send_error(struct ts_session *s, uint64_t id, const struct cg_err *why)
{
        struct cg_out out = { .type = CG_BROKER_SERVERS_DONE, .session = s->number, .id = id };

        cg_log(&s->ts->log, CG_LOG_WARN, "session %llu: no MCP server was added: %s",
               (unsigned long long)s->number, why->msg);
        cg_ts_broker_send_error(s->ts, &out, why);
}

static void server_free(struct ts_server *v)
{
        if (!v)
                return;
        json_decref(v->shown);
        free(v->out_dir);
        free(v);
}

/* The server as which the refresh was begun; NULL: it has another definition now. */
static struct ts_server *refreshed(struct ts_session *s, const struct ts_adding *a)
{
        struct ts_server *v = cg_ts_session_server(s, a->items[0].name);

        return v && v->serial == a->refresh ? v : NULL;
}

static void refresh_failed(struct ts_session *s, const struct ts_adding *a, const struct cg_err *why)
{
        struct ts_server *v = refreshed(s, a);

        if (v)
                v->refreshing = false;
        cg_log(&s->ts->log, CG_LOG_WARN, "session %llu: the modules of MCP server %s stay as they were: %s",
               (unsigned long long)s->number, a->items[0].name, why->msg);
}

/* Ends @a without adding a server. */
static void adding_fail(struct ts_adding *a, const struct cg_err *why)
{
        struct ts_session *s = a->session;

        CG_UNLINK(a->session->adding, a, next);
        if (a->refresh)
                refresh_failed(s, a, why);
        else
                send_error(s, a->id, why);
        adding_free(a);
}

static void add_report(struct cg_buf *b, const struct ts_new *v)
{
        struct cg_slice report = cg_json_trim(cg_slice_of(v->report ?: ""));

        cg_json_quote(b, v->name, strlen(v->name));
        if (v->failed) {
                cg_buf_adds(b, ":{\"error\":");
                cg_json_quote(b, v->why.msg, strlen(v->why.msg));
        } else { /* an object, which gets further members */
                cg_buf_addf(b, ":%.*s", (int)report.len - 1, report.p);
        }
        if (v->known)
                cg_buf_adds(b, ",\"started\":false");
        if (!v->failed && v->pins)
                cg_buf_addf(b, ",\"pins\":%s", v->pins);
        cg_buf_adds(b, "}");
}

/* This one is not added. Without a client, which has its secrets, @why must have none. */
static void item_fail(struct ts_new *v, const struct cg_err *why)
{
        const struct cg_mcp_def *def = v->client ? cg_mcp_client_def(v->client) : NULL;
        struct ts_adding *a = v->adding;

        if (v->failed)
                return;
        v->failed = true;
        v->why = v->told = *why;
        cg_mcp_failure_for_host(def, v->why.msg);
        if (!def)
                cg_fail(&v->told, why->code, "MCP server \"%s\" did not start: " CG_MCP_HOST_ONLY, v->name);
        cg_mcp_failure_for_cell(def, v->told.msg, sizeof(v->told.msg));
        why = &v->why;
        cg_log(&a->session->ts->log, CG_LOG_WARN, "session %llu: MCP server %s was not added: %s",
               (unsigned long long)a->session->number, v->name, why->msg);
        if (v->client)
                cg_mcp_client_end(CG_STEAL(v->client), "it was not added");
}

/* NULL when servers were added, or none was requested. Else the reasons why none was added. */
static const struct cg_err *all_failed(struct ts_adding *a)
{
        for (size_t i = 0; i < a->n; i++)
                if (!a->items[i].failed)
                        return NULL;
        if (!a->n)
                return NULL;
        a->why = a->items[0].why;
        for (size_t i = 1; i < a->n; i++) {
                size_t n = strlen(a->why.msg);

                snprintf(a->why.msg + n, sizeof(a->why.msg) - n, "\n%s", a->items[i].why.msg);
        }
        return &a->why;
}

/* ---- taking their places */

/* {NAME: digest} of a list of tools. NULL: out of memory. */
static json_t *tools_shown(const char *tools, size_t len)
{
        json_t *shown = json_object();
        struct cg_json_walk w;
        struct cg_slice tool, name;

        if (cg_json_walk_init(&w, (struct cg_slice){ tools, len }, '[', NULL) < 0)
                return shown;
        while (cg_json_walk_next(&w, NULL, &tool, NULL) == 0) {
                cg_auto_buf struct cg_buf canonical = { .max = 8 * CG_MCP_MAX_LIST };
                cg_auto_free char *text = NULL;
                char digest[CG_SHA256_HEX];

                tool = cg_json_trim(tool);
                name = CG_SLICE_NONE;
                if (cg_pin_canonical(tool, &canonical, NULL) < 0)
                        continue; /* it cannot be called */
                cg_sha256_hex(canonical.data, canonical.len, digest);
                if (cg_json_member(tool, "name", &name, NULL) == 0 && cg_json_strdup(name, &text, NULL) == 0)
                        json_object_set_new_nocheck(shown, text, json_string(digest));
        }
        return shown;
}

static void register_one(struct ts_session *s, struct ts_server *place, const struct ts_new *item,
                         struct cg_mcp_client *client)
{
        struct ts_server *v = cg_ts_session_server(s, cg_mcp_client_name(client));
        struct cg_mcp_client *old = v ? v->client : NULL;
        char *out_dir = CG_STEAL(place->out_dir);

        if (!v) {
                v = place;
                v->next = s->servers;
                s->servers = v;
                s->n_servers++;
        }
        v->client = client;
        v->box = item->box;
        v->failure_noticed = 0;
        v->serial = ++s->ts->last_serial;
        v->refreshing = false;
        free(v->out_dir);
        v->out_dir = out_dir;
        json_decref(v->shown);
        v->shown = tools_shown(item->tools, item->tools_len);
        if (!old)
                return;
        cg_mcp_client_end(old, "its MCP server was replaced by another definition");
        server_free(place);
        cg_ts_calls_replaced(s, cg_mcp_client_name(client));
}

static size_t count_after(const struct ts_adding *a)
{
        size_t n = a->session->n_servers;

        for (size_t i = 0; i < a->n; i++)
                n += a->items[i].client && cg_ts_session_client(a->session, a->items[i].name) == NULL;
        return n;
}

/*
 * Runs in a worker thread: thousands of tools are thousands of files, and calls of other sessions
 * must go on. Uses only the data of this request.
 */
static void on_work(uv_work_t *work)
{
        struct ts_adding *a = work->data;

        for (size_t i = 0; i < a->n; i++) {
                struct ts_new *v = &a->items[i];
                const struct cg_codegen_options o = { .server = v->name,
                                                      .out_dir = a->out_dir,
                                                      .functions = v->functions,
                                                      .root_package = true };

                if (!v->failed && cg_codegen(&o, v->tools, v->tools_len, &v->report, &v->why) < 0) {
                        cg_err_prefix(&v->why, "wrappers of MCP server \"%s\"", o.server);
                        v->told = v->why;
                        v->failed = true;
                }
                if (v->failed && !v->keeps) { /* importing the package reports the reason */
                        const struct cg_codegen_options unavailable = { .server = v->name,
                                                                        .out_dir = a->out_dir,
                                                                        .root_package = true,
                                                                        .unavailable = v->told.msg };
                        char *report = NULL;

                        if (cg_codegen(&unavailable, "[]", 2, &report, NULL) == 0)
                                free(report);
                }
        }
}

static void places_free(struct ts_server **places, size_t n)
{
        for (size_t i = 0; places && i < n; i++)
                server_free(places[i]);
        free(places);
}

/* One for each server of @a; NULL: out of memory. */
static struct ts_server **places_new(const struct ts_adding *a)
{
        struct ts_server **places = calloc(a->n + 1, sizeof(*places));

        for (size_t i = 0; places && i < a->n; i++) {
                places[i] = calloc(1, sizeof(**places));
                if (!places[i] || !(places[i]->out_dir = strdup(a->out_dir))) {
                        places_free(places, a->n);
                        return NULL;
                }
        }
        return places;
}

/* The tools of each server, as text, for modules on another machine. */
static void add_tools(struct cg_buf *b, const struct ts_adding *a)
{
        const char *before = ",\"tools\":{";

        for (size_t i = 0; i < a->n; i++) {
                const struct ts_new *v = &a->items[i];

                if (v->failed)
                        continue;
                cg_buf_adds(b, before);
                cg_json_quote(b, v->name, strlen(v->name));
                cg_buf_adds(b, ":");
                cg_json_quote(b, v->tools, v->tools_len);
                before = ",";
        }
        if (*before == ',' && !before[1])
                cg_buf_adds(b, "}");
}

/* The wrappers are there. Everything that can fail comes first. */
static int complete(struct ts_adding *a, struct cg_err *err)
{
        struct cg_out out = { .type = CG_BROKER_SERVERS_DONE, .session = a->session->number, .id = a->id };
        cg_auto_buf struct cg_buf b = { .max = CG_MAX_REPORT };
        struct ts_server **places;

        cg_buf_adds(&b, "{\"report\":{");
        for (size_t i = 0; i < a->n; i++) {
                if (i)
                        cg_buf_adds(&b, ",");
                add_report(&b, &a->items[i]);
        }
        cg_buf_adds(&b, "}");
        if (a->session->remote)
                add_tools(&b, a);
        cg_buf_adds(&b, "}");
        if (cg_buf_end(&b, err) < 0)
                return cg_err_prefix(err, "report about the servers' wrappers");
        places = places_new(a);
        if (!places)
                return cg_fail(err, CG_E_NOMEM, "MCP servers");
        for (size_t i = 0; i < a->n; i++)
                if (!a->items[i].failed)
                        register_one(a->session, CG_STEAL(places[i]), &a->items[i],
                                     CG_STEAL(a->items[i].client));
        places_free(places, a->n);
        /* After ASK_CLOSED of calls whose server was replaced: the host can accept them no more. */
        cg_ts_broker_send_buf(a->session->ts, &out, &b);
        return 0;
}

/* ---- modules of a server whose tools have changed */

static void add_names(struct cg_buf *b, const char *what, json_t *names)
{
        const char *name;
        json_t *value;
        size_t n = 0;

        json_object_foreach(names, name, value) {
                if (n++ >= CG_MCP_MAX_NAMES_SHOWN)
                        break;
                cg_buf_adds(b, n > 1 ? ", " : what);
                cg_text_render_as(b, name, strlen(name), 0, CG_TEXT_LINE);
        }
        if (json_object_size(names) > CG_MCP_MAX_NAMES_SHOWN)
                cg_buf_addf(b, " and %zu more", json_object_size(names) - CG_MCP_MAX_NAMES_SHOWN);
}

/* Says which modules are other ones than before. */
static void report_change(struct ts_session *s, const char *server, json_t *old, json_t *now)
{
        struct cg_out out = { .type = CG_BROKER_NOTICE, .session = s->number };
        cg_auto_json json_t *added = json_object(), *removed = json_object(), *changed = json_object();
        cg_auto_buf struct cg_buf b = { .max = 60000 };
        const char *name;
        json_t *hash;

        json_object_foreach(now, name, hash) {
                const json_t *then = json_object_get(old, name);

                if (!then || !json_equal(then, hash))
                        json_object_set_nocheck(then ? changed : added, name, hash);
        }
        json_object_foreach(old, name, hash)
                if (!json_object_get(now, name))
                        json_object_set_nocheck(removed, name, hash);
        cg_buf_addf(&b, "MCP server %s: its modules were made anew", server);
        add_names(&b, "; added: ", added);
        add_names(&b, "; removed: ", removed);
        add_names(&b, "; changed: ", changed);
        cg_buf_adds(&b, "\n");
        cg_log(&s->ts->log, CG_LOG_INFO, "session %llu: %s", (unsigned long long)s->number, cg_buf_str(&b));
        cg_ts_broker_send_text(s->ts, &out, "text", cg_buf_str(&b));
}

/* Without being asked: the kernel's modules are made anew, too. */
static void report_tools(const struct ts_adding *a)
{
        struct cg_out out = { .type = CG_BROKER_SERVERS_DONE, .session = a->session->number };
        cg_auto_buf struct cg_buf b = { .max = CG_MAX_REPORT };

        cg_buf_adds(&b, "{\"report\":{}");
        add_tools(&b, a);
        cg_buf_adds(&b, "}");
        if (!b.failed)
                cg_ts_broker_send_buf(a->session->ts, &out, &b);
}

static void refresh_done(struct ts_adding *a)
{
        struct ts_session *s = a->session;
        struct ts_new *item = &a->items[0];
        struct ts_server *v = refreshed(s, a);
        json_t *now;

        if (item->failed) {
                adding_fail(a, &item->why);
                return;
        }
        if (v) {
                if (s->remote)
                        report_tools(a);
                now = tools_shown(item->tools, item->tools_len);
                report_change(s, item->name, v->shown, now);
                json_decref(v->shown);
                v->shown = now;
                v->refreshing = false;
        }
        CG_UNLINK(a->session->adding, a, next);
        adding_free(a);
}

static void generate_next(struct ts_session *s);

/*
 * Sends NOTICE where the last list has tools that are new or have changed. A server whose tools
 * change all the time is listed again for the next notice, which is about its last list then.
 */
static void report_pins(const struct ts_session *s, struct ts_server *v)
{
        struct cg_out out = { .type = CG_BROKER_NOTICE, .session = s->number };
        struct cg_pins *pins = cg_mcp_client_pins(v->client);
        cg_auto_buf struct cg_buf b = { .max = CG_MAX_REPORT };
        cg_auto_json json_t *report = NULL;
        const char *text = NULL;

        if (!cg_pins_has_news(pins))
                return;
        if (cg_now_ms() - v->noticed_ms < CG_MCP_RELIST_MS) {
                cg_mcp_client_list_later(v->client);
                return;
        }
        v->noticed_ms = cg_now_ms();
        if (cg_pins_report(pins, false, &b, NULL) == 0 && b.len &&
            cg_json_object(b.data, b.len, "report", &report, NULL) == 0)
                text = json_string_value(json_object_get(report, "text"));
        if (text && *text)
                cg_ts_broker_send_text(s->ts, &out, "text", text);
}

/* A list of a registered server: its modules are made anew where they show other tools. */
static void on_list(void *data, struct cg_mcp_client *client, const char *tools, size_t len)
{
        struct ts_session *s = data;
        struct ts_server *v = cg_ts_session_server(s, cg_mcp_client_name(client));
        cg_auto_buf struct cg_buf list = { .max = 8 * CG_MCP_MAX_LIST };
        cg_auto_json json_t *now = NULL;
        struct ts_adding *a;

        if (s->ending || !v || v->client != client)
                return;
        report_pins(s, v);
        if (cg_pins_list(cg_mcp_client_pins(client), tools, len, &list, NULL) < 0)
                return;
        now = tools_shown(list.data, list.len);
        if (!now || json_equal(now, v->shown))
                return;
        if (v->refreshing || cg_now_ms() - v->refreshed_ms < CG_MCP_RELIST_MS) {
                cg_mcp_client_list_later(client);
                return;
        }
        a = calloc(1, sizeof(*a) + sizeof(a->items[0]));
        if (!a || !(a->out_dir = strdup(v->out_dir)) ||
            !(a->items[0].name = strdup(cg_mcp_client_name(client)))) {
                free(a ? a->out_dir : NULL);
                free(a);
                return;
        }
        a->session = s;
        a->refresh = v->serial;
        a->n = 1;
        a->items[0].adding = a;
        a->items[0].keeps = true;
        a->items[0].tools = cg_buf_steal(&list, &a->items[0].tools_len);
        append(s, a);
        v->refreshing = true;
        v->refreshed_ms = cg_now_ms();
        generate_next(s);
}

/* ---- writing modules */

static void on_work_done(uv_work_t *work, int status)
{
        struct ts_adding *a = work->data;
        struct ts_session *s = a->session;

        a->working = false;
        if (a->dropped) {
                adding_free(a);
        } else if (a->refresh) {
                refresh_done(a);
        } else if (all_failed(a) || complete(a, &a->why) < 0) {
                adding_fail(a, &a->why);
        } else {
                CG_UNLINK(a->session->adding, a, next);
                adding_free(a);
        }
        if (!s->ending)
                generate_next(s);
        on_client_gone(s);
}

/* Writes the wrappers of @a in a thread. */
static int begin_work(struct ts_session *s, struct ts_adding *a, struct cg_err *err)
{
        if (count_after(a) > CG_MAX_SERVERS)
                return cg_fail(err, CG_E_LIMIT, "a session has at most %d MCP servers", CG_MAX_SERVERS);
        if (a->refresh && !refreshed(s, a))
                return cg_fail(err, CG_E_STATE, "it has another definition now");
        for (size_t i = 0; i < a->n; i++)
                a->items[i].keeps |= cg_ts_session_client(s, a->items[i].name) != NULL;
        a->work.data = a;
        if (uv_queue_work(&s->ts->loop, &a->work, on_work, on_work_done) < 0)
                return cg_fail(err, CG_E_SYS, "the wrappers cannot be written beside the loop");
        a->working = true;
        s->n_clients++; /* keeps the session, and with it its folder, until then */
        return 0;
}

/* Requests of one session are handled one after the other: they write to one folder. */
static void generate_next(struct ts_session *s)
{
        for (;;) {
                struct ts_adding *a = s->adding;
                struct cg_err err;

                for (struct ts_adding *b = a; b; b = b->next)
                        if (b->working)
                                return;
                while (a && a->n_waiting)
                        a = a->next;
                if (!a || begin_work(s, a, &err) == 0)
                        return;
                adding_fail(a, &err);
        }
}

/* The list for the generated modules, which show accepted definitions only; and the report. */
static int take_tools(struct ts_new *v, const char *bytes, size_t len, struct cg_err *err)
{
        cg_auto_buf struct cg_buf list = { .max = 8 * CG_MCP_MAX_LIST }, report = { .max = CG_MAX_REPORT };
        struct cg_pins *pins = cg_mcp_client_pins(v->client);
        int r = cg_pins_list(pins, bytes, len, &list, err);

        if (r < 0)
                return r;
        r = cg_pins_report(pins, true, &report, err);
        if (r < 0)
                return r;
        v->tools = cg_buf_steal(&list, &v->tools_len);
        v->pins = report.len ? cg_buf_steal(&report, NULL) : NULL;
        return cg_made(v->tools, "tool list", err);
}

static void on_listed(void *data, enum cg_mcp_outcome outcome, const char *bytes, size_t len)
{
        struct ts_new *v = data;
        struct ts_adding *a = v->adding;
        struct cg_err err;

        v->req = NULL;
        a->n_waiting--;
        if (outcome != CG_MCP_OK || take_tools(v, bytes, len, &err) < 0) {
                if (outcome != CG_MCP_OK)
                        cg_mcp_fail_text(&err, bytes, len);
                item_fail(v, &err);
        }
        if (!a->n_waiting)
                generate_next(a->session);
}

/* ---- SERVERS */

static int check_package(const struct ts_adding *a, const struct ts_new *v, struct cg_err *err)
{
        for (const struct ts_new *w = a->items; w < v; w++)
                if (strcmp(w->package, v->package) == 0)
                        return cg_fail(
                                err, CG_E_EXISTS,
                                "MCP servers \"%s\" and \"%s\" would share the package mcptools.%s: rename one",
                                w->name, v->name, v->package);
        for (const struct ts_server *s = a->session->servers; s; s = s->next) {
                char package[CG_CODEGEN_PACKAGE_SIZE];
                const char *other = cg_mcp_client_name(s->client);

                if (strcmp(other, v->name) == 0 ||
                    cg_codegen_package_name(other, package, sizeof(package), NULL) < 0)
                        continue;
                if (strcmp(package, v->package) == 0)
                        return cg_fail(
                                err, CG_E_EXISTS,
                                "MCP server \"%s\" would get the package mcptools.%s of \"%s\": rename it",
                                v->name, package, other);
        }
        return 0;
}

/* Functions replace functions of the same name, and no server; nor the reverse. */
static int check_kind(const struct ts_adding *a, const struct ts_new *v, struct cg_err *err)
{
        const struct cg_mcp_client *old = cg_ts_session_client(a->session, v->name);

        if (!old || (cg_mcp_client_def(old)->kind == CG_MCP_FUNCTIONS) == v->functions)
                return 0;
        return cg_fail(err, CG_E_EXISTS, "\"%s\" is the name of %s already: choose another one", v->name,
                       v->functions ? "an MCP server" : "functions of the host");
}

/* Functions of the host, or a server at the host. */
static int prepare_of_host(struct ts_new *v, const struct cg_mcp_client_options *o, const json_t *definition,
                           struct cg_err *err)
{
        const json_t *tools = json_object_get(definition, v->functions ? "host_functions" : "host_tools");
        struct cg_slice text = { json_string_value(tools), json_string_length(tools) }, tool;
        struct cg_mcp_def *def;
        struct cg_json_walk w;
        int r = cg_mcp_def_of_host(v->name, v->functions ? CG_MCP_FUNCTIONS : CG_MCP_AT_HOST, &def, err);

        if (r < 0)
                return r;
        r = cg_mcp_client_new(o, def, &v->client, err);
        if (r < 0)
                return r;
        v->adding->session->n_clients++;
        r = cg_json_walk_init(&w, text, '[', err);
        while (r == 0)
                r = cg_json_walk_next(&w, NULL, &tool, err);
        if (r < 0)
                return cg_err_prefix(err, "tools of \"%s\"", v->name), r;
        v->tools_len = text.len;
        v->tools = strdup(text.p);
        return cg_made(v->tools, "functions", err);
}

static int check_item(const struct ts_adding *a, struct ts_new *v, struct cg_err *err)
{
        int r = cg_codegen_package_name(v->name, v->package, sizeof(v->package), err);

        if (r < 0)
                return r;
        r = check_kind(a, v, err);
        if (r < 0)
                return r;
        return check_package(a, v, err);
}

static int prepare_one(struct ts_adding *a, struct ts_new *v, const json_t *definition, struct cg_err *err)
{
        struct ts_session *s = a->session;
        struct cg_mcp_client_options o = { .loop = &s->ts->loop,
                                           .log = &s->ts->log,
                                           .eras = &s->ts->eras,
                                           .gone = on_client_gone,
                                           .listed = on_list,
                                           .data = s,
                                           .progress = cg_ts_call_progress,
                                           .workspace = a->workspace,
                                           .handles = a->handles,
                                           .ask = cg_ts_question,
                                           .ask_closed = cg_ts_question_closed };
        const char *invalid = json_string_value(json_object_get(definition, "invalid"));
        cg_auto_buf struct cg_buf known = { .max = CG_PINS_MAX_LIST };
        struct cg_mcp_def *def;
        int r;

        v->functions = json_is_string(json_object_get(definition, "host_functions"));
        v->at_host = json_is_string(json_object_get(definition, "host_tools"));
        r = check_item(a, v, err);
        if (r < 0) {
                v->package[0] = '\0';
                v->keeps = true; /* the package is another's */
                return r;
        }
        if (invalid) /* the client library has checked it */
                return cg_fail(err, CG_E_INVAL, "%s", invalid);
        if (v->functions || v->at_host) {
                o.listed = NULL;
                return prepare_of_host(v, &o, definition, err);
        }
        r = cg_mcp_def_new(v->name, definition, environ, &def, err);
        if (r < 0)
                return r;
        r = cg_pins_new(v->name, def->label, definition, s->ts->unrecorded, &o.pins, err);
        if (r < 0) {
                cg_mcp_def_free(def);
                return r;
        }
        if (def->reports) {
                v->box = cg_ts_box_new(s, def, cg_ts_calls_synced);
                if (!v->box) {
                        cg_pins_free(o.pins);
                        cg_mcp_def_free(def);
                        return cg_fail(err, CG_E_NOMEM, "MCP server");
                }
                o.sandbox = cg_ts_box_line;
                o.sandbox_data = v->box;
                o.sandbox_free = cg_ts_box_free;
        }
        if (!def->eager && cg_pins_known(o.pins, &known, NULL) == 0) {
                v->tools = cg_buf_steal(&known, &v->tools_len);
                v->known = v->tools != NULL;
        }
        r = cg_mcp_client_new(&o, def, &v->client, err);
        if (r < 0) {
                if (v->box)
                        cg_ts_box_free(v->box);
                return r;
        }
        s->n_clients++;
        if (v->box)
                cg_ts_box_of(v->box, v->client);
        return 0;
}

static void report_progress(const struct ts_adding *a, const struct ts_new *v)
{
        struct cg_out out = { .type = CG_BROKER_PROGRESS, .session = a->session->number, .id = a->id };
        long long waited = (cg_now_ms() - a->since_ms) / 1000,
                  limit = cg_mcp_client_start_ms(v->client, a->timeout_ms) / 1000;
        char text[2 * CG_MAX_NAME + 200];

        snprintf(text, sizeof(text), "waiting for MCP server \"%s\" (%.*s): %lld s of %lld s", v->name,
                 CG_MAX_NAME, cg_mcp_client_def(v->client)->label, waited, limit);
        cg_mcp_def_redact(cg_mcp_client_def(v->client), text);
        cg_log(&a->session->ts->log, CG_LOG_WARN, "%s", text);
        cg_ts_broker_send_text(a->session->ts, &out, "text", text);
}

/* Reports servers that do not answer yet; its timer runs while there are some. */
static void send_progress(uv_timer_t *t)
{
        struct ts *ts = t->data;
        bool any = false, early = false;

        for (const struct ts_session *s = ts->sessions; s; s = s->next) {
                for (const struct ts_adding *a = s->adding; a; a = a->next) {
                        any |= a->n_waiting > 0;
                        if (cg_now_ms() - a->since_ms < CG_MCP_PROGRESS_MS / 2) {
                                early = true;
                                continue;
                        }
                        for (size_t i = 0; i < a->n; i++)
                                if (a->items[i].req && a->items[i].client)
                                        report_progress(a, &a->items[i]);
                }
        }
        if (!any)
                uv_timer_stop(t);
        else if (early) /* another session has waited for longer */
                uv_timer_start(t, send_progress, CG_MCP_PROGRESS_MS, CG_MCP_PROGRESS_EVERY_MS);
}

static int adding_new(struct ts_session *s, const struct cg_msg *m, json_t *body, struct ts_adding **ret,
                      struct cg_err *err)
{
        json_t *servers = json_object_get(body, "servers"); /* borrowed */
        struct ts_adding *a;
        const char *out, *workspace;
        int64_t timeout_ms, handles;

        if (!json_is_object(servers))
                return cg_fail(err, CG_E_INVAL, "\"servers\" must be an object");
        if (json_object_size(servers) > CG_MAX_SERVERS)
                return cg_fail(err, CG_E_LIMIT, "a session has at most %d MCP servers", CG_MAX_SERVERS);
        if (cg_json_str(body, "out", NULL, &out, err) < 0 ||
            cg_json_int(body, "timeout_ms", 0, &timeout_ms, err) < 0 ||
            cg_json_str(body, "workspace", NULL, &workspace, err) < 0 ||
            cg_json_int(body, "server_requests", 0, &handles, err) < 0)
                return CG_E_INVAL;
        if (!out || out[0] != '/' || timeout_ms < 0)
                return cg_fail(err, CG_E_INVAL,
                               "\"out\" must be an absolute path and \"timeout_ms\" not negative");
        a = calloc(1, sizeof(*a) + json_object_size(servers) * sizeof(a->items[0]));
        if (!a)
                return cg_fail(err, CG_E_NOMEM, "MCP servers");
        a->workspace = cg_strdup(workspace);
        a->handles = (unsigned)handles & (CG_MCP_ELICITATION | CG_MCP_SAMPLING | CG_MCP_URL);
        if ((workspace && !a->workspace) || asprintf(&a->out_dir, "%s/mcptools", out) < 0) {
                free(a->workspace);
                free(a);
                return cg_fail(err, CG_E_NOMEM, "MCP servers");
        }
        a->session = s;
        a->id = m->id;
        a->timeout_ms = timeout_ms;
        append(s, a);
        *ret = a;
        return 0;
}

void cg_ts_session_add(struct ts_session *s, const struct cg_msg *m)
{
        cg_auto_json json_t *body = NULL;
        struct ts_adding *a = NULL;
        const char *name;
        json_t *definition; /* borrowed */
        struct cg_err err;

        if (cg_msg_json(m, &body, &err) < 0 || adding_new(s, m, body, &a, &err) < 0) {
                send_error(s, m->id, &err);
                return;
        }
        json_object_foreach(json_object_get(body, "servers"), name, definition) {
                struct ts_new *v = &a->items[a->n];
                struct cg_err why;

                v->adding = a;
                v->name = strdup(name);
                if (!v->name) {
                        cg_fail(&err, CG_E_NOMEM, "MCP server");
                        adding_fail(a, &err);
                        return;
                }
                a->n++;
                if (prepare_one(a, v, definition, &why) < 0) {
                        cg_secrets_redact_with(json_object_get(definition, "secrets"), why.msg);
                        item_fail(v, &why);
                }
        }
        if (count_after(a) > CG_MAX_SERVERS) {
                cg_fail(&err, CG_E_LIMIT, "a session has at most %d MCP servers", CG_MAX_SERVERS);
                adding_fail(a, &err);
                return;
        }
        /* All servers whose tools are not known start at the same time. */
        for (size_t i = 0; i < a->n; i++) {
                struct ts_new *v = &a->items[i];
                struct cg_err why;

                if (v->failed || v->known || v->functions || v->at_host)
                        continue;
                if (cg_mcp_client_list(v->client, a->timeout_ms, false, on_listed, v, &v->req, &why) < 0)
                        item_fail(v, &why);
                else
                        a->n_waiting++;
        }
        a->since_ms = cg_now_ms();
        /* It may run for another session, or still for one whose servers have answered. */
        if (a->n_waiting && (!uv_is_active((uv_handle_t *)&s->ts->progress) ||
                             uv_timer_get_due_in(&s->ts->progress) > CG_MCP_PROGRESS_MS))
                uv_timer_start(&s->ts->progress, send_progress, CG_MCP_PROGRESS_MS, CG_MCP_PROGRESS_EVERY_MS);
        if (!a->n_waiting) /* none is started, or each failed at once */
                generate_next(s);
}

/* ---- the end of a session */

void cg_ts_session_end(struct ts_session *s, bool report)
{
        struct cg_err why;

        if (s->ending)
                return;
        s->ending = true;
        s->report_detached = report;
        s->n_clients++; /* keeps the session until the end of this function */
        cg_ts_kernel_detach(s, "the session has ended");
        cg_fail(&why, CG_E_CLOSED, "the session has ended");
        while (s->adding)
                adding_fail(s->adding, &why);
        while (s->servers) {
                struct ts_server *v = s->servers;

                s->servers = v->next;
                cg_mcp_client_end(v->client, "the session has ended");
                server_free(v);
        }
        on_client_gone(s);
}
