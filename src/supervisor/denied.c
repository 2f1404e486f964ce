/*
 * cellgate-supervisor: what sandboxes refused, told to the sessions' hosts. It comes from the egress proxy (egress.c), from a
 * sandbox's init, which answers denied system calls, and from the kernel itself, whose word is checked and marked as its own.
 */
#include "supervisor/supervisor.h"

#include <string.h>
#include "sandbox/denial.h"

/*
 * Bytes that the host has not read. What is denied waits for no window: others' events come the same way, and a kernel that tries
 * again and again must not fill the memory of a host that does not read.
 */
#define MAX_UNREAD (CG_EVENT_WINDOW + (1u << 20))

static bool is_full(struct session *ss)
{
        if (ss->unread > MAX_UNREAD) {
                ss->denied_untold++;
                return true;
        }
        if (ss->denied_untold)
                session_notice(ss, "%llu denials were not told one by one, because there were too many, or the session's events were not read",
                               (unsigned long long)ss->denied_untold);
        ss->denied_untold = 0;
        return false;
}

void session_denied(struct session *ss, uint64_t cell, json_t *denial)
{
        struct cg_out out = { .type = CG_HOST_DENIED, .id = cell };
        cg_auto_buf struct cg_buf b = { .max = 32768 };

        if (!ss->host || ss->warming || is_full(ss)) {
                json_decref(denial);
                return;
        }
        ss->denied_untold += (uint64_t)json_integer_value(json_object_get(denial, "untold"));
        cg_denial_stamp(denial);
        if (cg_denial_sentence(denial, &b, NULL) == 0)
                json_object_set_new(denial, "text", text_json(b.data ? b.data : ""));
        session_event(ss, &out, denial, NULL);
}

/* ------------------------------------------------------------------ system calls */

static void hear(struct watch *w)
{
        struct kernel *k = w->data;
        struct cg_sandbox_denial d;
        int r;

        while ((r = cg_denial_recv(w->fd, &d)) == 0) {
                json_t *o = cg_denial_of_call(&d, false);

                if (o && k->session)
                        session_denied(k->session, cells_running(k->session), o);
                else
                        json_decref(o);
        }
        if (r == CG_CLOSED)
                uv_poll_stop(&w->poll);
}

int denied_open(struct kernel *k, int fd, struct cg_err *err)
{
        return watch_start(k->sup, &k->denied, fd, hear, k, err);
}

void denied_hear(struct kernel *k)
{
        if (k && k->denied.active)
                hear(&k->denied);
}
