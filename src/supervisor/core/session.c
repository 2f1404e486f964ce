/* cellgate-supervisor: sessions, from their options to their end, and their kernels meanwhile. */
#include "supervisor/core/session.h"

#include "base/json.h"
#include "base/language.h"
#include "base/text.h"
#include "sandbox/sandbox.h"
#include "sandbox/settings/kernel_view.h"
#include "sandbox/settings/exec_rules.h"
#include "sandbox/settings/settings.h"
#include "supervisor/ask/asks.h"
#include "supervisor/core/audit.h"
#include "supervisor/ask/broker.h"
#include "supervisor/cells/cells.h"
#include "supervisor/cells/commands.h"
#include "supervisor/limits/denials.h"
#include "supervisor/network/egress.h"
#include "supervisor/network/masks.h"
#include "supervisor/ask/functions.h"
#include "supervisor/ask/input.h"
#include "supervisor/core/host_link.h"
#include "supervisor/core/kernel.h"
#include "supervisor/ask/programs.h"
#include "supervisor/servers/protected.h"
#include "supervisor/core/kernel_link.h"
#include "supervisor/limits/session_limits.h"
#include "supervisor/core/members.h"
#include "supervisor/core/remove.h"
#include "supervisor/servers/guards.h"
#include "supervisor/core/slots.h"
#include "supervisor/core/spare.h"
#include "supervisor/core/state.h"

/* A kernel that dies sooner than this after its start, so many times in a row, ends its session. */
#define QUICK_MS  2000
#define MAX_QUICK 5
/*
 * Kernels of a session that end while they start, also with their zygote, so many in a row, end the
 * session; a single failure could be chance.
 */
#define MAX_LOST         3
#define DEFAULT_START_MS 30000

static void send_done(struct host *h, struct session *ss, uint64_t request)
{
        struct cg_out out = { .type = CG_HOST_DONE, .session = ss->number, .id = request };

        cg_sup_host_send(h, &out, json_object());
}

/* ------------------------------------------------------------------ messages of the kernel */

static const struct {
        uint16_t kernel, host;
} relayed[] = {
        { CG_KERNEL_STREAM, CG_HOST_STREAM },
        { CG_KERNEL_DISPLAY_DATA, CG_HOST_DISPLAY_DATA },
        { CG_KERNEL_UPDATE_DISPLAY_DATA, CG_HOST_UPDATE_DISPLAY_DATA },
        { CG_KERNEL_EXECUTE_RESULT, CG_HOST_EXECUTE_RESULT },
        { CG_KERNEL_CLEAR_OUTPUT, CG_HOST_CLEAR_OUTPUT },
        { CG_KERNEL_ERROR, CG_HOST_ERROR },
        { CG_KERNEL_COMM, CG_HOST_COMM },
        { CG_KERNEL_DEBUG_EVENT, CG_HOST_DEBUG_EVENT },
};

static void kernel_message(struct session *ss, struct cg_msg *m)
{
        struct cg_out out = { .id = m->id, .flags = m->flags & CG_FLAG_STDERR };

        if (cg_sup_spare_message(ss, m))
                return;
        switch (m->type) {
        case CG_KERNEL_EXECUTE_REPLY:
                cg_sup_cells_execute_reply(ss, m);
                return;
        case CG_KERNEL_REPLY:
                cg_sup_cells_request_reply(ss, m);
                return;
        case CG_KERNEL_DENIED:
                cg_sup_denial_from_kernel(ss, m);
                return;
        case CG_KERNEL_INPUT_WAIT:
                if (cg_sup_cells_allows_stdin(ss, m->id))
                        cg_sup_cells_wait_for_input(ss, m->id);
                return;
        case CG_KERNEL_INPUT_REQUEST:
        case CG_KERNEL_INPUT_CANCEL:
                cg_sup_input_request(ss, m);
                return;
        default:
                break;
        }
        for (size_t i = 0; i < CG_ARRAY_LEN(relayed); i++) {
                if (relayed[i].kernel == m->type && cg_sup_limits_output(ss, m)) {
                        out.type = relayed[i].host;
                        cg_sup_event(ss, &out, NULL, m);
                        return;
                }
        }
}

json_t *cg_sup_session_info(const struct session *ss)
{
        static const struct kernel none;
        const struct kernel *k = ss->kernel;
        static const char *const exec[] = { [CG_EXEC_ALLOW] = "allow",
                                            [CG_EXEC_DENY] = "deny",
                                            [CG_EXEC_ASK] = "ask",
                                            [CG_EXEC_ASK_EACH] = "ask" };
        const char *mode = exec[cg_sup_exec(ss->options)];

        if (json_is_object(cg_sup_exec_setting(ss->options)))
                mode = "rules";
        if (!k)
                k = &none;
        return json_pack("{s:s*, s:O*, s:s, s:o, s:b, s:b, s:O?, s:s, s:s, s:s}", "tier", k->report.tier,
                         "landlock_abi", k->report.landlock_abi, "exec", mode, "limits",
                         cg_sup_limits_info(ss), "debugger",
                         k->report.debugger && !json_object_get(ss->options, "language"), "sandbox",
                         cg_sup_is_sandboxed(ss), "layers", k->report.layers, "python",
                         k->report.python ?: "", "ipython", k->report.ipython ?: "", "language",
                         json_string_value(json_object_get(ss->options, "language")) ?: "python");
}

static void forget_path_notice(struct session *ss)
{
        free(ss->path_notice);
        ss->path_notice = NULL;
}

/* A sentence about folders of PATH that cells do not write, or "". */
static const char *path_notice(struct session *ss)
{
        struct cg_path_base paths = cg_sup_paths_of(ss, true);
        cg_auto_buf struct cg_buf text = { .max = 32768 };

        if (!ss->path_notice && cg_sup_is_sandboxed(ss) &&
            cg_session_say_path_folders(ss->settings, &paths, &text, NULL) == 0)
                ss->path_notice = strdup(cg_buf_str(&text));
        return ss->path_notice ?: "";
}

/* Tells the host about folders of PATH that cells do not write, unless @told is the same text. */
static void notice_path(struct session *ss, const char *told)
{
        const char *text = path_notice(ss);

        if (text[0] && strcmp(text, told) != 0)
                cg_sup_notice(ss, "%s", text);
}

/* Reports restrictions and weaknesses of the sandbox that the host has not chosen by name. */
static void notice_sandbox(struct session *ss)
{
        static const char advice[] =
                "Give cells a folder of their own as workspace, or allow writing in settings";
        enum cg_holds_home holds = cg_sup_is_sandboxed(ss) && !ss->settings
                                           ? cg_session_view_holds_home(ss->workspace, ss->sup->setup.home)
                                           : CG_HOLDS_NO_HOME;

        if (holds == CG_IS_HOME)
                cg_sup_notice(
                        ss,
                        "the workspace is your home folder: cells can change the files and folders in it, but make nothing new directly "
                        "in it, and change nothing whose name begins with a dot, nor bin and the like, since that is run outside of the "
                        "sandbox. %s",
                        advice);
        else if (holds == CG_IS_ABOVE_HOME)
                cg_sup_notice(ss,
                              "your home folder is inside the workspace %s: cells can only read there. %s",
                              ss->workspace, advice);
        notice_path(ss, "");
        /* With "auto", the host does not know which tier was chosen. */
        if (ss->kernel && ss->kernel->report.tier && strcmp(ss->kernel->report.tier, "landlock") == 0)
                cg_sup_notice(
                        ss,
                        "sandbox: the landlock tier, which is weaker than the full one (docs/settings.md says where): cells can make new "
                        "files that programs outside obey (.bashrc, .git/hooks, .vscode and the like: docs/names.md), so look at what is new "
                        "in the workspace before you open it with them; `cellgate doctor` says whether this machine can do more");
}

static void answer_start(struct session *ss, const struct cg_err *err)
{
        uint64_t request = ss->start.opening ?: ss->start.resetting;
        struct cg_out out = { .type = CG_HOST_SESSION_OPENED, .session = ss->number, .id = request };

        uv_timer_stop(&ss->start.timer);
        if (!request)
                return;
        if (err) {
                cg_sup_host_failed(ss->host, ss->number, request, err);
        } else if (ss->start.opening) {
                ss->life.opened_ms = cg_now_ms();
                cg_sup_bus_add(ss, CG_BUS_SESSION_CREATED, 0, json_pack("{s:s}", "workspace", ss->workspace),
                               "session in %s", ss->workspace);
                cg_sup_masks_report(ss);
                cg_sup_slots_opened(ss);
                cg_sup_host_send(ss->host, &out,
                                 json_pack("{s:s, s:o}", "id", ss->id, "info", cg_sup_session_info(ss)));
                cg_sup_limits_opened(ss);
                notice_sandbox(ss);
        } else {
                send_done(ss->host, ss, request);
        }
        ss->start.opening = ss->start.resetting = 0;
}

static void kernel_ready(struct session *ss)
{
        /* or a spare whose kernel ended while a host took it over */
        bool first = !ss->life.opened || ss->start.opening;

        answer_start(ss, NULL);
        ss->life.opened = true;
        ss->start.lost = 0;
        if (cg_sup_spare_ready(ss))
                return;
        if (first)
                cg_sup_spare_plan(ss);
        cg_sup_pause_if_full(ss);
        cg_sup_cells_run(ss);
}

static void warmed(struct session *ss)
{
        if (!ss->host)
                return;
        answer_start(ss, NULL);
        cg_sup_spare_plan(ss);
        cg_sup_cells_run(ss);
}

static void kernel_failed(struct session *ss, const struct cg_err *err)
{
        bool first = !ss->life.opened;
        char text[1100];

        if (cg_sup_spare_ended(ss)) {
                cg_log(&ss->sup->log, CG_LOG_WARN, "no spare: %s", err->msg);
                return;
        }
        answer_start(ss, err);
        snprintf(text, sizeof(text), "no kernel could be started: %s", err->msg);
        cg_sup_session_end(ss, first ? NULL : text);
}

/*
 * Each kernel opens the folder by its name. A kernel of another session, whose workspace contains
 * this one, could replace the folder by a symlink, and the next kernel would write to its target.
 */
static int check_workspace(struct session *ss, const struct stat *st, struct cg_err *err)
{
        struct stat own;

        if (!ss->folder.ino) {
                ss->folder.fd = open(ss->workspace, O_PATH | O_DIRECTORY | O_CLOEXEC);
                if (ss->folder.fd < 0 || fstat(ss->folder.fd, &own) < 0)
                        return cg_fail_errno(err, "workspace %s", ss->workspace);
                ss->folder.dev = own.st_dev;
                ss->folder.ino = own.st_ino;
        }
        if (st->st_dev == ss->folder.dev && st->st_ino == ss->folder.ino)
                return 0;
        return cg_fail(
                err, CG_E_STATE,
                "the workspace is not the folder any more that the session was opened for; open a new session");
}

/* Once, for the first kernel: cells of a session in a folder above could replace it by a link. */
static int follow_links(struct session *ss, struct cg_err *err)
{
        char real[PATH_MAX];

        if (!realpath(ss->workspace, real))
                return cg_fail_errno(err, "workspace %s", ss->workspace);
        if (json_object_set_new(ss->options, "workspace", json_string(real)) < 0)
                return cg_fail(err, CG_E_INVAL, "workspace: its path is not UTF-8");
        return cg_json_str(ss->options, "workspace", NULL, &ss->workspace, err);
}

static int start_kernel(struct session *ss, struct cg_err *err)
{
        if (!ss->host) {
                ss->use.view = cg_sup_spare_view(ss);
                forget_path_notice(ss);
                path_notice(ss);
        }
        return cg_sup_kernel_start(ss, err);
}

static void start_again(struct session *ss)
{
        struct stat st;
        struct cg_err err;
        int r;

        ss->use.warming = false; /* the old kernel will not reply */
        cg_sup_broker_detach(ss->sup, ss->number, true);
        r = stat(ss->workspace, &st) < 0 ? cg_fail_errno(&err, "workspace %s", ss->workspace)
                                         : check_workspace(ss, &st, &err);
        if (r < 0 || start_kernel(ss, &err) < 0)
                kernel_failed(ss, &err);
}

static void replaced(struct session *ss, const char *why)
{
        cg_sup_bus_add(ss, CG_BUS_KERNEL_REPLACED, 0, NULL, "%s", why);
        start_again(ss);
}

static void renew_kernel(struct session *ss)
{
        cg_sup_kernel_end(ss->kernel);
        start_again(ss);
}

static void start_lost(struct session *ss, const char *how)
{
        struct cg_err err;

        cg_sup_kernel_end(ss->kernel);
        if (++ss->start.lost < MAX_LOST) {
                start_again(ss);
                return;
        }
        cg_fail(&err, CG_E_CLOSED, "%s; this is the %dth in a row that ended while it started", how,
                MAX_LOST);
        kernel_failed(ss, &err);
}

static void kernel_dead(struct session *ss, const char *how, bool was_ready)
{
        struct cg_err err;
        char text[700], queued[700];

        if (cg_sup_spare_ended(ss))
                return;
        cg_sup_asks_close(ss, ASK_APPROVALS, "the kernel ended");
        if (!ss->life.opened || ss->start.resetting) {
                cg_sup_limits_explain_start(ss, text, sizeof(text));
                cg_fail(&err, CG_E_CLOSED, "the kernel ended while it started: %s%s", how, text);
                kernel_failed(ss, &err);
                return;
        }
        if (!was_ready) { /* it has run nothing: cells wait for the next one */
                snprintf(text, sizeof(text), "the kernel ended: %s", how);
                start_lost(ss, text);
                return;
        }
        ss->start.quick_deaths = cg_now_ms() - ss->start.kernel_ms < QUICK_MS && !ss->queue.main.running
                                         ? ss->start.quick_deaths + 1
                                         : 0;
        snprintf(text, sizeof(text), "the kernel ended: %s; its state is lost", how);
        snprintf(queued, sizeof(queued), "the kernel ended before this cell ran: %s", how);
        cg_sup_cells_end_all(ss, "kernel_died", text, queued);
        cg_sup_event_text(ss, CG_HOST_KERNEL_DIED, 0, text);
        if (ss->start.quick_deaths >= MAX_QUICK)
                cg_sup_session_end(ss, "its kernels end again and again right after they start");
        else
                replaced(ss, "a kernel that has ended");
}

static void replace_kernel(struct session *ss, struct shell *l, const char *status, const char *text)
{
        cg_sup_kernel_end(ss->kernel);
        cg_sup_asks_close(ss, ASK_APPROVALS, "the kernel was replaced");
        cg_sup_cells_end_replaced(ss, l, status, text);
        replaced(ss, text);
}

/* ------------------------------------------------------------------ requests of hosts */

static void on_start_timeout(uv_timer_t *t)
{
        struct session *ss = t->data;
        struct cg_err err;

        cg_fail(&err, CG_E_TIMEDOUT, "the kernel did not start in time; the supervisor's log may say why");
        cg_sup_kernel_end(ss->kernel);
        kernel_failed(ss, &err);
}

static void arm_start_timer(struct session *ss, int64_t timeout_ms)
{
        cg_sup_timer_start(&ss->start.timer, on_start_timeout,
                           (uint64_t)(timeout_ms > 0 ? timeout_ms : DEFAULT_START_MS));
}

static void handle_reset(struct session *ss, struct cg_msg *m)
{
        cg_auto_json json_t *body = NULL;
        int64_t timeout_ms = 0;
        struct cg_err err;

        if (cg_msg_json(m, &body, &err) < 0 || cg_json_int(body, "timeout_ms", 0, &timeout_ms, &err) < 0) {
                cg_sup_host_failed(ss->host, ss->number, m->id, &err);
                return;
        }
        if (ss->start.resetting)
                cg_fail(&err, CG_E_STATE, "a reset is under way");
        if (ss->start.resetting || cg_sup_audit_request(ss, 0, m, &err) < 0) {
                cg_sup_host_failed(ss->host, ss->number, m->id, &err);
                return;
        }
        cg_sup_commands_end_all(ss, "cancelled", "the session was reset");
        if (ss->kernel && ss->use.kernel)
                cg_sup_kernel_retire(ss->kernel, NULL, 0, 0);
        else
                cg_sup_kernel_end(ss->kernel);
        ss->use.kernel = false;
        cg_sup_asks_close(ss, ASK_APPROVALS, "the session was reset");
        cg_sup_cells_end_all(ss, "cancelled", "the session was reset", "the session was reset");
        ss->start.quick_deaths = 0;
        ss->start.resetting = m->id;
        arm_start_timer(ss, timeout_ms);
        replaced(ss, "the session was reset");
}

/* True if only the host executes their calls: what clients of a node may add. */
static bool host_executes(json_t *servers)
{
        const char *name;
        json_t *one;

        json_object_foreach(servers, name, one)
                if (!json_is_string(json_object_get(one, "host_functions")) &&
                    !json_is_string(json_object_get(one, "host_tools")))
                        return false;
        return true;
}

static void handle_servers(struct session *ss, struct cg_msg *m)
{
        cg_auto_json json_t *body = NULL;
        json_t *servers;
        int64_t timeout_ms;
        struct cg_err err;

        if (cg_msg_json(m, &body, &err) < 0 || cg_json_int(body, "timeout_ms", 60000, &timeout_ms, &err) < 0)
                goto fail;
        servers = json_object_get(body, "servers");
        if (!json_is_object(servers)) {
                cg_fail(&err, CG_E_INVAL, "\"servers\" must be an object");
                goto fail;
        }
        if (!host_executes(servers) && cg_sup_slots_allow(ss->sup, "MCP servers run at the host", &err) < 0)
                goto fail;
        if (json_object_size(servers) + json_object_size(json_object_get(ss->mcp.servers, "all")) >
            CG_MAX_SERVERS) {
                cg_fail(&err, CG_E_LIMIT, "at most %d MCP servers in a session", CG_MAX_SERVERS);
                goto fail;
        }
        if (json_object_get(ss->mcp.servers, "pending")) {
                cg_fail(&err, CG_E_STATE, "MCP servers are being added already");
                goto fail;
        }
        if (cg_sup_audit_request(ss, 0, m, &err) == 0 &&
            cg_sup_servers_register(ss, servers, timeout_ms > 0 ? timeout_ms : 60000, m->id, &err) == 0)
                return;
fail:
        cg_sup_host_failed(ss->host, ss->number, m->id, &err);
}

static void member_gone(struct session *ss, uint16_t slot)
{
        cg_sup_commands_member_gone(ss, slot);
        cg_sup_cells_member_gone(ss, slot);
}

void cg_sup_session_message(struct session *ss, struct host *h, struct cg_msg *m)
{
        struct member *mb = cg_sup_member(ss, h);
        uint64_t id = CELL_ID(mb ? mb->slot : 0, CELL_NUMBER(m->id));
        struct cg_err err;

        if (cg_sup_ask_is_answer(m->type)) {
                cg_sup_ask_answered(ss, h, id, m);
                return;
        }
        /* Requests that any host of the session may make. */
        switch (m->type) {
        case CG_HOST_EXECUTE:
                cg_sup_cells_execute(ss, id, m);
                return;
        case CG_HOST_REQUEST:
                cg_sup_cells_request(ss, id, m);
                return;
        case CG_HOST_CANCEL:
                if (!cg_sup_commands_cancel(ss, id))
                        cg_sup_cells_cancel(ss, id, m->id == 0);
                return;
        case CG_HOST_EXEC:
                cg_sup_commands_exec(ss, id, m);
                return;
        case CG_HOST_COMMAND_INPUT:
                cg_sup_commands_input(ss, id, m);
                return;
        case CG_HOST_COMMAND_CONTROL:
                cg_sup_commands_control(ss, id, m);
                return;
        case CG_HOST_EVENT_ADD:
                cg_sup_bus_add_asked(ss, h, m);
                return;
        case CG_HOST_OWN_DECIDED:
                if (cg_sup_audit_own(ss, h, m, &err) < 0)
                        cg_sup_host_failed(h, ss->number, m->id, &err);
                else
                        send_done(h, ss, m->id);
                return;
        case CG_HOST_APPROVAL_SHARE:
                cg_sup_ask_share(ss, id);
                return;
        case CG_HOST_CREDIT:
                cg_sup_credit(ss, mb, m->id);
                return;
        default:
                break;
        }
        if (mb) {
                if (m->type == CG_HOST_SESSION_END) {
                        send_done(h, ss, m->id);
                        cg_sup_detach(ss, mb, NULL);
                } else {
                        cg_fail(&err, CG_E_STATE, "only the client that opened the session can do this");
                        cg_sup_host_failed(h, ss->number, m->id, &err);
                }
                return;
        }
        /* Requests that only the host that opened the session may make. */
        switch (m->type) {
        case CG_HOST_SESSION_RESET:
                handle_reset(ss, m);
                break;
        case CG_HOST_SERVERS_ADD:
                handle_servers(ss, m);
                break;
        case CG_HOST_SESSION_END:
                ss->life.end_request = m->id;
                cg_sup_session_end(ss, NULL);
                break;
        default:
                break;
        }
}

/* ------------------------------------------------------------------ life */

static void release(struct session *ss)
{
        if (ss->dir)
                cg_sup_remove(ss->sup, ss->dir);
        cg_sup_audit_free(ss);
        json_decref(ss->options);
        cg_settings_free(ss->settings);
        json_decref(ss->mcp.servers);
        json_decref(ss->functions);
        json_decref(ss->mcp.guards);
        json_decref(ss->mcp.found);
        json_decref(ss->egress.policy);
        json_decref(ss->egress.env);
        json_decref(ss->denials.held);
        json_decref(ss->denials.told);
        cg_sup_cells_release(ss);
        if (ss->folder.fd > 0)
                close(ss->folder.fd);
        free(ss->path_notice);
        free(ss->dir);
        free(ss);
}

void cg_sup_session_end(struct session *ss, const char *why)
{
        const char *text = why ?: "the session ended";
        struct sup *s = ss->sup;

        if (ss->life.ending)
                return;
        ss->life.ending = true;
        cg_sup_asks_close(ss, ASK_APPROVALS, "the session ended");
        cg_sup_commands_end_all(ss, "cancelled", text);
        if (ss->kernel && ss->use.kernel) {
                cg_sup_kernel_retire(ss->kernel, ss->host, ss->number, ss->life.end_request);
        } else {
                cg_sup_kernel_end(ss->kernel);
                if (ss->life.end_request)
                        send_done(ss->host, ss, ss->life.end_request);
        }
        cg_sup_cells_end_all(ss, "cancelled", text, text);
        while (!LIST_EMPTY(&ss->members))
                cg_sup_detach(ss, LIST_FIRST(&ss->members),
                              why ?: "the client that opened the session has ended it");
        if (why)
                cg_sup_event_text(ss, CG_HOST_SESSION_CLOSED, 0, why);
        cg_sup_broker_detach(s, ss->number, false);
        cg_sup_audit_ended(ss, why);
        if (ss->life.opened_ms)
                cg_sup_bus_add(ss, CG_BUS_SESSION_KILLED, 0, NULL, "%s", text);
        cg_sup_servers_session_ends(ss);
        s->sessions[ss->number % CG_MAX_SESSIONS] = NULL;
        s->n_sessions--;
        cg_log(&s->log, CG_LOG_INFO, "session %llu ended: %s", (unsigned long long)ss->number,
               why ?: "as asked");
        cg_sup_cells_close_timers(ss);
        cg_sup_timer_close(ss, &ss->start.timer);
        cg_sup_timer_close(ss, &ss->bounds.wall);
        cg_sup_slots_ended(s);
}

void cg_sup_sessions_host_gone(struct sup *s, struct host *h)
{
        cg_sup_spares_host_gone(s, h);
        for (size_t i = 0; i < CG_MAX_SESSIONS; i++) {
                struct session *ss = s->sessions[i];
                struct member *mb = ss ? cg_sup_member(ss, h) : NULL;

                if (mb)
                        cg_sup_detach(ss, mb, NULL);
                if (ss && ss->host == h) {
                        ss->host = NULL;
                        cg_sup_session_end(ss, NULL);
                }
        }
}

struct session *cg_sup_session_find(struct sup *s, const struct host *h, uint64_t number)
{
        struct session *ss = s->sessions[number % CG_MAX_SESSIONS];

        return ss && ss->number == number && (ss->host == h || cg_sup_member(ss, h)) ? ss : NULL;
}

static int check_strings(const json_t *o, const char *key, struct cg_err *err)
{
        json_t *list = json_object_get(o, key), *v;
        size_t i;

        if (list && !json_is_array(list))
                return cg_fail(err, CG_E_INVAL, "\"%s\" must be a list", key);
        json_array_foreach(list, i, v)
                if (!json_is_string(v))
                        return cg_fail(err, CG_E_INVAL, "\"%s\" must be a list of strings", key);
        return 0;
}

/* Finds the program of a session's language. */
static int check_language(json_t *options, struct cg_err *err)
{
        const char *name, *given, *file;
        const json_t *spec = json_object_get(options, "language_spec");
        cg_auto_free char *path = NULL;
        int r;

        if (cg_json_str(options, "language", NULL, &name, err) < 0 ||
            cg_json_str(options, "language_path", NULL, &given, err) < 0 ||
            cg_json_str(spec, "file", NULL, &file, err) < 0)
                return -1;
        r = cg_language_check(name, err);
        if (r <= 0)
                return r;
        if (given && given[0] != '/')
                return cg_fail(err, CG_E_INVAL, "language %s: %s is no absolute path", name, given);
        if (!cg_language_kernel(name) != !spec || (spec && (!file || file[0] != '/')))
                return cg_fail(err, CG_E_INVAL, "language %s: \"language_spec\" is no kernelspec of it",
                               name);
        if (cg_language_find(name, given, &path, err) < 0)
                return -1;
        if (json_object_set_new(options, "language_path", json_string(path)) < 0)
                return cg_fail(err, CG_E_INVAL, "language %s: %s is not UTF-8", name, path);
        return 0;
}

static int check_namespace(const json_t *options, struct cg_err *err)
{
        static const char allowed[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-";
        const char *name;

        if (cg_json_str(options, "namespace", "default", &name, err) < 0)
                return -1;
        if (*name && strlen(name) <= 64 && strspn(name, allowed) == strlen(name))
                return 0;
        return cg_fail(err, CG_E_INVAL, "a namespace has 1 to 64 letters, digits and \"._-\", not \"%.64s\"",
                       name);
}

static int check_options(struct session *ss, struct cg_err *err)
{
        const char *dir, *front, *tier, *deciders, *approvers;
        const json_t *settings = json_object_get(ss->options, "settings");
        struct cg_tier_choice choice;
        enum cg_exec exec;
        struct stat st;

        if (cg_json_str(ss->options, "workspace", NULL, &ss->workspace, err) < 0)
                return -1;
        if (!ss->workspace || ss->workspace[0] != '/')
                return cg_fail(err, CG_E_INVAL, "\"workspace\" must be an absolute path");
        if (!ss->folder.ino && follow_links(ss, err) < 0)
                return -1;
        if (stat(ss->workspace, &st) < 0)
                return cg_fail_errno(err, "workspace %s", ss->workspace);
        if (!S_ISDIR(st.st_mode))
                return cg_fail(err, CG_E_INVAL, "workspace %s is not a folder", ss->workspace);
        if (check_workspace(ss, &st, err) < 0)
                return -1;
        /* A host that takes over a spare asks for the same settings. */
        if (settings && !ss->settings &&
            cg_settings_read(settings, "sandbox settings", 0, &ss->settings, err) < 0)
                return -1;
        if (cg_sup_server_files_check_workspace(ss, err) < 0 || cg_sup_audit_check(ss, err) < 0)
                return -1;
        if (cg_sup_limits_check(ss, err) < 0 ||
            cg_json_int(ss->options, "approval_timeout_ms", 0, &ss->approval_timeout_ms, err) < 0 ||
            cg_json_int(ss->options, "timeout_ms", 0, &ss->start.timeout_ms, err) < 0 ||
            cg_json_bool(ss->options, "attachable", true, &ss->attachable, err) < 0 ||
            check_strings(ss->options, "env", err) < 0 ||
            check_strings(ss->options, "python_path", err) < 0 ||
            check_strings(ss->options, "hide", err) < 0 ||
            check_strings(ss->options, "policy_files", err) < 0 ||
            cg_json_str(ss->options, "working_dir", NULL, &dir, err) < 0 ||
            cg_json_str(ss->options, "front", "", &front, err) < 0 ||
            cg_json_str(ss->options, "deciders", "host", &deciders, err) < 0 ||
            cg_json_str(ss->options, "approvers", "", &approvers, err) < 0 ||
            check_namespace(ss->options, err) < 0 || check_language(ss->options, err) < 0 ||
            cg_json_str(ss->options, "tier", "full", &tier, err) < 0 || cg_tier_parse(tier, &choice, err) < 0)
                return -1;
        if (dir && dir[0] != '/')
                return cg_fail(err, CG_E_INVAL, "\"working_dir\" must be an absolute path");
        if (strcmp(deciders, "host") != 0 && strcmp(deciders, "user") != 0)
                return cg_fail(err, CG_E_INVAL, "\"deciders\" must be \"host\" or \"user\"");
        /* Others serve clients in sandboxes as well, to which settings may open their sockets. */
        if (cg_sup_others_decide(ss) && !ss->sup->setup.confinement.len)
                return cg_fail(
                        err, CG_E_UNSUPPORTED,
                        "only in the supervisor that this user's programs share can other clients decide");
        if (cg_sup_others_decide(ss) && !cg_sup_is_sandboxed(ss))
                return cg_fail(
                        err, CG_E_UNSUPPORTED,
                        "without a sandbox cells could decide about their own calls: let nobody but the host decide, or use the sandbox");
        if (cg_exec_rules_mode(cg_sup_exec_setting(ss->options), &exec, err) < 0)
                return -1;
        if (exec != CG_EXEC_ALLOW && !cg_sup_is_sandboxed(ss))
                return cg_fail(
                        err, CG_E_UNSUPPORTED,
                        "without a sandbox nothing keeps cells from starting programs: set exec to \"allow\", or use the sandbox");
        if (!cg_sup_is_sandboxed(ss) && cg_sup_slots_allow(ss->sup, "cells without a sandbox", err) < 0)
                return -1;
        if (cg_sup_egress_apply_settings(ss, err) < 0)
                return -1;
        return cg_sup_limits_check_least(ss, err);
}

static struct session *session_make(struct sup *s, struct host *h, json_t *options, uint64_t request,
                                    struct cg_err *err)
{
        struct session *ss = calloc(1, sizeof(*ss));
        char lib[160];

        if (!ss) {
                cg_fail(err, CG_E_NOMEM, "session");
                return NULL;
        }
        ss->sup = s;
        ss->host = h;
        ss->start.opening = request;
        ss->start.asked_ns = uv_hrtime();
        ss->options = json_incref(options);
        ss->mcp.servers = json_pack("{s:{}}", "all");
        ss->functions = json_object();
        ss->mcp.guards = json_object();
        ss->mcp.found = json_object();
        if (!ss->mcp.servers || !ss->functions || !ss->mcp.guards || !ss->mcp.found ||
            check_options(ss, err) < 0 || cg_sup_protected_check(ss, err) < 0)
                goto fail;

        /* Its number, id and folder. */
        if (s->n_sessions >= CG_MAX_SESSIONS - 1) {
                cg_fail(err, CG_E_LIMIT, "%zu sessions are open, no more are possible", s->n_sessions);
                goto fail;
        }
        do
                ss->number = ++s->next_session;
        while (s->sessions[ss->number % CG_MAX_SESSIONS]);
        if (cg_random_hex(ss->id, 16, err) < 0 || cg_sup_audit_opened(ss, err) < 0)
                goto fail;
        if (cg_asprintf(&ss->dir, "session", err, "%s/s%llu", s->setup.dir, (unsigned long long)ss->number) <
            0)
                goto fail;
        snprintf(lib, sizeof(lib), "%s/lib", ss->dir);
        if (mkdir(ss->dir, 0700) < 0 || mkdir(lib, 0755) < 0) {
                cg_fail_errno(err, "cannot make %s", lib);
                goto fail;
        }

        s->sessions[ss->number % CG_MAX_SESSIONS] = ss;
        s->n_sessions++;
        TAILQ_INIT(&ss->jobs.waiting);
        TAILQ_INIT(&ss->commands);
        cg_sup_cells_init(ss);
        cg_sup_timer_init(ss, &ss->start.timer, ss);
        cg_sup_timer_init(ss, &ss->bounds.wall, ss);
        arm_start_timer(ss, ss->start.timeout_ms);
        if (start_kernel(ss, err) < 0) {
                ss->start.opening = 0; /* the caller reports it */
                cg_sup_session_end(ss, NULL);
                return NULL;
        }
        return ss;
fail:
        release(ss);
        return NULL;
}

void cg_sup_session_new(struct host *h, const struct cg_msg *m)
{
        cg_auto_json json_t *options = NULL;
        cg_auto_free char *told = NULL;
        struct session *ss;
        struct cg_err err;
        bool same_env;

        if (cg_msg_json(m, &options, &err) < 0 || cg_sup_slots_take(h, &err) < 0) {
                cg_sup_host_failed(h, 0, m->id, &err);
                return;
        }
        if (!h->sup->setup.private_mode && cg_sup_sessions_of(h->sup, h) >= CG_MAX_CLIENT_SESSIONS) {
                cg_fail(&err, CG_E_LIMIT,
                        "this client has %d sessions, no more are possible in a shared supervisor",
                        CG_MAX_CLIENT_SESSIONS);
                cg_sup_host_failed(h, 0, m->id, &err);
                return;
        }
        ss = cg_sup_spare_take(h, options);
        if (!ss) {
                if (!session_make(h->sup, h, options, m->id, &err))
                        cg_sup_host_failed(h, 0, m->id, &err);
                return;
        }

        /* A spare becomes the host's session. */
        ss->host = h;
        ss->start.opening = m->id;
        ss->start.asked_ns = uv_hrtime();
        same_env = json_equal(json_object_get(ss->options, "user_env"), json_object_get(options, "user_env"));
        if (!same_env)
                forget_path_notice(ss);
        json_decref(ss->options);
        ss->options = json_incref(options);
        /* The workspace may have been removed since. */
        if (check_options(ss, &err) < 0 || (!same_env && cg_sup_protected_check(ss, &err) < 0) ||
            cg_sup_audit_opened(ss, &err) < 0) {
                answer_start(ss, &err);
                cg_sup_session_end(ss, NULL);
                return;
        }
        if (ss->life.opened && !ss->use.warming) { /* otherwise it is answered when it is ready */
                answer_start(ss, NULL);
                cg_sup_spare_plan(ss);
        }

        /*
         * The host gets its answer before the spare's view of the files is checked, which takes as
         * long as the host's next message takes to arrive; no message of a host is read meanwhile.
         * A spare with an outdated view gets another kernel, and cells wait for it. With the same
         * view and variables, the paths that were checked for the spare are still as they were.
         */
        if (!cg_sup_is_sandboxed(ss) || (ss->use.view && ss->use.view == cg_sup_spare_view(ss)))
                return;
        if (same_env && cg_sup_protected_check(ss, &err) < 0) {
                kernel_failed(ss, &err);
                return;
        }
        told = CG_STEAL(ss->path_notice);
        notice_path(ss, told ?: "");
        /* Its kernel has been ready once, so the next readiness is not the session's first. */
        cg_sup_spare_plan(ss);
        cg_sup_kernel_end(ss->kernel);
        start_again(ss);
}

const struct cg_kernel_ops cg_sup_session_kernel_ops = {
        .ready = kernel_ready,
        .failed = kernel_failed,
        .message = kernel_message,
        .dead = kernel_dead,
        .start_lost = start_lost,
};

const struct cg_session_ops cg_sup_session_ops = {
        .make = session_make,
        .end = cg_sup_session_end,
        .warmed = warmed,
        .renew_kernel = renew_kernel,
        .replace_kernel = replace_kernel,
        .member_gone = member_gone,
        .room = cg_sup_commands_room,
        .release = release,
};
