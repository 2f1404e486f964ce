/*
 * cellgate-supervisor: the doors of kernels' sandboxes (sandbox/doors.h): unix sockets and ports
 * that the settings forward. One process serves the doors of one kernel; what it reports is sent to
 * the session's host as notices.
 */
#include "supervisor/network/doors.h"

#include "sandbox/egress/doors_client.h"
#include "supervisor/core/kernel.h"
#include "supervisor/core/members.h"
#include "supervisor/core/state.h"
#include "supervisor/core/sup.h"

static void notify_host(const struct kernel *k, const char *text)
{
        if (k->session && k->session->host)
                cg_sup_notice(k->session, "%s", text);
}

static void on_reports(struct watch *w)
{
        struct kernel *k = w->data;
        const char *line;
        bool was_open = k->doors.reports >= 0;

        while ((line = cg_doors_read_report(&k->doors)))
                notify_host(k, line);
        if (was_open && k->doors.reports < 0) {
                uv_poll_stop(&w->poll);
                /* The process ends without an error only when the sandbox has ended. */
                if (!cg_doors_reap(&k->doors))
                        notify_host(k, "unix sockets and ports outside of the sandbox are not reachable any "
                                       "more; reset the session");
        }
}

int cg_sup_doors_open(struct kernel *k, int doors_fd, const int *reach, struct cg_err *err)
{
        const struct session *ss = k->session;
        struct cg_path_base base = cg_sup_paths_of(ss, false);
        const struct cg_settings *s = ss->settings;
        cg_auto_rules struct cg_rules rules = { 0 };
        int fd, r;

        if ((r = cg_rules_make(s, &base, &rules, err)) < 0 ||
            (r = cg_doors_start(s, &base, &rules, doors_fd, reach, &k->doors, err)) < 0)
                return r;
        /* A duplicate, since the watch closes its descriptor. */
        fd = fcntl(k->doors.reports, F_DUPFD_CLOEXEC, 3);
        if (fd < 0)
                return cg_fail_errno(err, "doors");
        return cg_sup_watch_start(k->sup, &k->doors_watch, fd, on_reports, k, err);
}

void cg_sup_doors_close(struct kernel *k)
{
        cg_doors_end(&k->doors);
}
