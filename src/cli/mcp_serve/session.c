/* `cellgate mcp serve`: one session: its start, what create_session asked for, and its end. */
#include "cli/mcp_serve/mcp_serve.h"

#include <linux/openat2.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include "base/fd.h"
#include "base/json.h"
#include "base/language.h"
#include "base/path.h"
#include "base/text.h"
#include "cli/common/args.h"
#include "sandbox/plan.h"

#define MAX_NAME 100u
/* Refusals that a session remembers. */
#define MAX_REFUSALS 16u

/* ------------------------------------------------------------------ beginning and end */

static struct cg_serve_session *session_free(struct cg_serve_session *s)
{
        if (!s)
                return NULL;
        cg_serve_drop_jobs(s);
        cg_packages_fini(&s->packages);
        cg_images_free(s->out.images);
        cg_answer_free(s->out.between);
        cg_approve_free(s->approve);
        json_decref(s->registered);
        json_decref(s->shared);
        json_decref(s->users.others);
        json_decref(s->out.refusals);
        if (s->work_fd >= 0)
                close(s->work_fd);
        free(s->given.name);
        free(s->given.folder);
        free(s->given.language);
        free(s->lost);
        free(s);
        return NULL;
}

/*
 * CG_E_LIMIT names the oldest to an agent that can end it. Others never learn an id: the sessions
 * may be those of other agents.
 */
static int check_number(const struct cg_serve *sv, struct cg_err *err)
{
        const struct cg_serve_session *s = TAILQ_FIRST(&sv->sessions), *mine = NULL, *one;
        const char *of = "", *option = "--max-sessions";
        long long opened_s, used_s, now = cg_now_ms();
        int n = 0, n_mine = 0;

        TAILQ_FOREACH(one, &sv->sessions, entry) {
                n++;
                if (sv->opts.by_name && strcmp(one->users.opener, sv->proto.peer.client) != 0)
                        continue;
                mine = mine ?: one;
                n_mine++;
        }
        if (n < sv->opts.max_sessions && n_mine < sv->opts.max_per_client)
                return 0;
        if (n < sv->opts.max_sessions) {
                s = mine;
                n = n_mine;
                of = " of this client";
                option = "--max-sessions-per-client";
        }
        opened_s = (now - s->since_ms) / 1000;
        used_s = (now - s->used_ms) / 1000;
        if (!(sv->opts.toolsets & CG_SERVE_SESSIONS))
                return cg_fail(
                        err, CG_E_LIMIT,
                        "there are %d sessions%s, as many as %s allows, the oldest opened %lld s ago and used %lld s "
                        "ago: give the session_id of an earlier result, or wait; sessions end after %lld s without "
                        "a call (--idle)",
                        n, of, option, opened_s, used_s, (long long)sv->opts.idle_ms / 1000);
        return cg_fail(err, CG_E_LIMIT,
                       "there are %d sessions%s, as many as %s allows; the oldest, \"%s\", was opened "
                       "%lld s ago and used %lld s ago: terminate_session ends one",
                       n, of, option, s->id, opened_s, used_s);
}

int cg_serve_session_new(struct cg_serve *sv, struct cg_serve_session **ret, struct cg_err *err)
{
        struct cg_serve_session *s;

        if (check_number(sv, err) < 0)
                return -1;
        s = calloc(1, sizeof(*s));
        if (!s)
                return cg_fail(err, CG_E_NOMEM, "session");
        s->sv = sv;
        s->packages.fd = -1;
        s->since_ms = s->used_ms = cg_now_ms();
        s->limits = sv->opts.kernel.limits;
        TAILQ_INIT(&s->jobs);
        TAILQ_INIT(&s->kept);
        TAILQ_INIT(&s->asks);
        s->work_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        s->registered = json_object();
        s->shared = json_object();
        s->users.others = json_object();
        s->out.refusals = json_array();
        s->out.between = cg_answer_new(CG_SERVE_BETWEEN_CHARS);
        if (s->work_fd < 0 || !s->registered || !s->out.between ||
            cg_random_hex(s->id, CG_SERVE_ID / 2, err) < 0 ||
            cg_approve_copy(sv->opts.kernel.approve, &s->approve, err) < 0) {
                session_free(s);
                return cg_fail(err, CG_E_NOMEM, "session");
        }
        memcpy(s->id, sv->opts.id_begin, strlen(sv->opts.id_begin));
        if (sv->opts.new_sessions)
                strcpy(s->users.opener, sv->proto.peer.client);
        TAILQ_INSERT_TAIL(&sv->sessions, s, entry);
        *ret = s;
        return 0;
}

const char *cg_serve_language(const struct cg_serve_session *s)
{
        return s->given.language ?: s->sv->opts.kernel.language ?: "python";
}

void cg_serve_session_end(struct cg_serve_session *s, const char *why)
{
        cg_auto_free char *text = NULL;

        if (s->life != CG_SERVE_LIVES)
                return;
        if (asprintf(&text, "the session has ended: %s", why) > 0)
                cg_serve_message(s, CG_MCPD_LOG_NOTICE, text);
        s->life = CG_SERVE_ENDS;
        snprintf(s->why, sizeof(s->why), "%s", why);
        if (s->sv->own == s) {
                s->sv->own = NULL;
                memcpy(s->sv->own_lost, s->why, sizeof(s->why));
        }
        cg_serve_wake(s->work_fd);
}

void cg_serve_session_remove(struct cg_serve_session *s)
{
        if (s->sv->own == s)
                s->sv->own = NULL;
        TAILQ_REMOVE(&s->sv->sessions, s, entry);
        session_free(s);
}

/* ------------------------------------------------------------------ options */

int cg_serve_session_prepare(struct cg_serve_session *s, struct cg_err *err)
{
        if (!s->out.images && cg_images_new(s->sv->images, &s->out.images, err) < 0)
                return -1;
        if (s->packages.path || s->sv->opts.kernel.connect.command) /* packages of this machine */
                return 0;
        return cg_packages_init(&s->packages, err);
}

/*
 * A folder below the workspace, by its name without links. Cells can move it at any time, so it
 * decides nothing: all sessions have the rights of the whole workspace.
 */
static int find_folder(const struct cg_serve *sv, const char *given, char **ret, struct cg_err *err)
{
        struct open_how how = { .flags = O_PATH | O_DIRECTORY | O_CLOEXEC,
                                .resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS };
        cg_auto_fd int top = -1, fd = -1;
        const char *below = given;
        char link[40], real[PATH_MAX];
        ssize_t n;

        if (sv->opts.kernel.connect.command) /* it cannot be looked at from here */
                return cg_serve_path_below(sv->workspace, "workspace", given, ret, err);
        top = open(sv->workspace, O_PATH | O_DIRECTORY | O_CLOEXEC);
        if (top < 0)
                return cg_fail_errno(err, "workspace %s", sv->workspace);
        if (given[0] == '/' && cg_path_within(given, sv->workspace))
                below += strlen(sv->workspace);
        while (below != given && *below == '/')
                below++;
        fd = (int)syscall(SYS_openat2, top, cg_text_or(below, "."), &how, sizeof(how));
        if (fd < 0 && errno == EXDEV)
                return cg_fail(err, CG_E_INVAL,
                               "workspace: \"%.500s\" is not below the server's workspace, %s", given,
                               sv->workspace);
        if (fd < 0)
                return cg_fail_errno(err, "workspace: \"%.500s\" below %s, where the folder must exist",
                                     given, sv->workspace);
        snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
        n = readlink(link, real, sizeof(real) - 1);
        *ret = n > 0 ? strndup(real, (size_t)n) : NULL;
        if (*ret)
                return 0;
        return cg_fail_errno(err, "workspace: %.500s", given);
}

/* The most that a session may have: the sandbox's default where the server has no limit. */
static double cap_of(const struct cg_serve *sv, enum cg_limit limit)
{
        struct cg_sandbox_limits l = sv->caps, defaults = { .processes = CG_PLAN_PROCESSES,
                                                            .open_files = CG_PLAN_OPEN_FILES };
        long pages = sysconf(_SC_PHYS_PAGES), size = sysconf(_SC_PAGESIZE);

        if (pages > 0 && size > 0 && !sv->opts.kernel.connect.command)
                defaults.memory_bytes = (uint64_t)pages * (uint64_t)size / 2;
        cg_limits_fill(&l, &defaults);
        return cg_limit_figure(&l, limit);
}

static int set_limits(struct cg_serve_session *s, const char *args, struct cg_err *err)
{
        struct cg_slice text = { args, strlen(args) }, v;
        cg_auto_json json_t *given = NULL;
        const char *name, *wrong;
        json_t *figure;
        enum cg_limit i;
        double cap;

        if (cg_json_member(text, "limits", &v, err) < 0)
                return -1;
        if (!v.p || cg_slice_is(v, "null"))
                return 0;
        if (cg_json_object(v.p, v.len, "limits", &given, err) < 0)
                return -1;
        json_object_foreach(given, name, figure) {
                for (i = 0; i < CG_LIMITS && strcmp(cg_limit_setting(i), name) != 0; i++)
                        ;
                if (i == CG_LIMITS)
                        return cg_fail(err, CG_E_INVAL,
                                       "limits: there is no limit \"%.100s\"; there are memoryMb, cores, "
                                       "processes, openFiles, fileMb, outputMb, cpuSeconds, wallSeconds",
                                       name);
                wrong = json_is_number(figure) ? cg_limit_set(&s->limits, i, json_number_value(figure))
                                               : "Expected number";
                if (wrong)
                        return cg_fail(err, CG_E_INVAL, "limits.%s: %s", name, wrong);
                cap = cap_of(s->sv, i);
                if (cap > 0 && json_number_value(figure) > cap)
                        return cg_fail(err, CG_E_LIMIT,
                                       "limits.%s: %g is more than this server allows: at most %g %s", name,
                                       json_number_value(figure), cap, cg_limit_unit(i));
        }
        return 0;
}

int cg_serve_session_configure(struct cg_serve_session *s, const char *args, struct cg_err *err)
{
        cg_auto_free char *given = NULL, *name = NULL, *folder = NULL, *language = NULL;

        if (cg_serve_arg_optional(args, "name", &name, err) < 0 ||
            cg_serve_arg_optional(args, "workspace", &given, err) < 0 ||
            cg_serve_arg_optional(args, "language", &language, err) < 0 ||
            (given && find_folder(s->sv, given, &folder, err) < 0) || set_limits(s, args, err) < 0)
                return -1;
        if (name && strlen(name) > MAX_NAME)
                return cg_fail(err, CG_E_INVAL, "the parameter \"name\" is longer than %u bytes", MAX_NAME);
        if (cg_language_check(language, err) < 0)
                return -1;
        CG_HOLD(&s->sv->lock);
        s->given.name = CG_STEAL(name);
        s->given.folder = CG_STEAL(folder);
        s->given.language = CG_STEAL(language);
        return 0;
}

/* ------------------------------------------------------------------ the toolset `inspect` */

/*
 * A cell that leaves no name and no history. What it prints is the kernel's, as of any cell: code
 * of the agent can change it.
 */
/* The settings about files and the network, or their default. */
static json_t *settings_of(const struct cg_serve *sv)
{
        cg_auto_json json_t *all = json_loads(sv->settings, 0, NULL);

        if (!all)
                return json_pack("{s:{s:[s]}, s:{s:[]}}", "filesystem", "allowWrite", ".", "network",
                                 "allowedDomains");
        return json_pack("{s:O*, s:O*}", "filesystem", json_object_get(all, "filesystem"), "network",
                         json_object_get(all, "network"));
}

void cg_serve_remember_refusal(struct cg_serve_session *s, const char *text)
{
        cg_auto_buf struct cg_buf line = { .max = 65536 };
        cg_auto_json json_t *item = NULL;
        json_t *known;
        size_t i;

        cg_name_render(&line, text);
        if (cg_buf_end(&line, NULL) == 0)
                item = json_string(line.data);
        json_array_foreach(s->out.refusals, i, known)
                if (json_equal(known, item))
                        break;
        if (i < json_array_size(s->out.refusals))
                json_array_remove(s->out.refusals, i);
        else if (i == MAX_REFUSALS)
                json_array_remove(s->out.refusals, 0);
        json_array_append(s->out.refusals, item);
}

int cg_serve_sandbox_info(struct cg_serve_session *s, struct cg_job *job, struct cg_answer *a,
                          struct cg_err *err)
{
        cg_auto_json json_t *info = json_loads(cg_session_info(s->session), 0, NULL);
        cg_auto_free char *text = NULL;

        if (info) {
                json_object_set_new(info, "workspace", json_string(s->sv->workspace));
                json_object_set_new(info, "folder", json_string(s->given.folder ?: s->sv->workspace));
                if (!s->sv->opts.kernel.no_sandbox)
                        json_object_set_new(info, "settings", settings_of(s->sv));
                text = json_dumps(info, JSON_COMPACT);
        }
        if (!text)
                return cg_fail(err, CG_E_NOMEM, "sandbox_info");
        cg_answer_lines(a, text, strlen(text));
        return 0;
}
