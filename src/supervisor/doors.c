/*
 * cellgate-supervisor: the doors of kernels' sandboxes (sandbox/doors.h): unix sockets and ports
 * that the settings open. A process for each kernel that has any; what it says goes to the session
 * as notices.
 */
#include "supervisor/supervisor.h"

#include <fcntl.h>
#include <string.h>
#include "sandbox/egress/doors_client.h"

static int settings_of(const json_t *options, struct cg_settings **ret, struct cg_err *err)
{
        cg_auto_free char *text = cg_json_text(json_object_get(options, "settings"), NULL);

        if (!text)
                return cg_fail(err, CG_E_NOMEM, "session");
        return cg_settings_parse(text, strlen(text), "sandbox settings", 0, ret, err);
}

static void hear(struct watch *w)
{
        struct kernel *k = w->data;
        const char *line;
        int was = k->doors.said;

        while ((line = cg_doors_line(&k->doors)))
                if (k->session && k->session->host)
                        session_notice(k->session, "%s", line);
        if (was >= 0 && k->doors.said < 0) {
                uv_poll_stop(&w->poll);
                /* By itself it ends with the sandbox only. */
                if (!cg_doors_reap(&k->doors) && k->session && k->session->host)
                        session_notice(
                                k->session,
                                "unix sockets and ports outside of the sandbox are not reachable any more; reset the "
                                "session");
        }
}

int doors_open(struct kernel *k, int doors_fd, const int *reach, struct cg_err *err)
{
        const json_t *options = k->session->options;
        struct cg_path_base base = { .cwd = json_string_value(json_object_get(options, "workspace")),
                                     .home = getenv("HOME") };
        cg_auto_settings struct cg_settings *s = NULL;
        struct cg_rules rules = { 0 };
        int fd, r = settings_of(options, &s, err);

        if (r == 0)
                r = cg_rules_make(s, &base, &rules, err);
        if (r == 0)
                r = cg_doors_start(s, &base, &rules, doors_fd, reach, &k->doors, err);
        cg_rules_fini(&rules);
        if (r < 0)
                return r;
        /* The watch closes its own. */
        fd = fcntl(k->doors.said, F_DUPFD_CLOEXEC, 3);
        return fd < 0 ? cg_fail_errno(err, "doors") : watch_start(k->sup, &k->doors_said, fd, hear, k, err);
}

void doors_close(struct kernel *k)
{
        cg_doors_end(&k->doors);
}

bool doors_are_alone(const json_t *options)
{
        cg_auto_settings struct cg_settings *s = NULL;
        struct cg_err err;

        return json_object_get(options, "settings") && settings_of(options, &s, &err) == 0 &&
               cg_doors_on_host(s);
}
