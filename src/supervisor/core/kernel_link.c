/* cellgate-supervisor: the connection to one kernel. */
#include "supervisor/core/kernel_link.h"

#include <poll.h>
#include "base/fd.h"
#include "supervisor/core/kernel.h"
#include "supervisor/core/state.h"

/*
 * A kernel that ends closes its connection a little before its process ends. A kernel that goes on
 * running without a connection broke a rule.
 */
#define LOST_MS 5000

struct kernel *cg_sup_kernel_by_seq(const struct sup *s, uint64_t seq)
{
        for (size_t i = 0; i < CG_MAX_SESSIONS; i++) {
                struct kernel *k = s->sessions[i] ? s->sessions[i]->kernel : NULL;

                if (k && k->seq == seq)
                        return k;
        }
        return NULL;
}

bool cg_sup_kernel_was_ready(const struct kernel *k)
{
        return k->got_ready && k->attached;
}

bool cg_sup_kernel_is_gone(const struct kernel *k)
{
        return k->state == K_DEAD || (k->pid.active && cg_wait_fd(k->pid.fd, POLLIN, 0, NULL) == 0);
}

void cg_sup_kernel_kill(const struct kernel *k)
{
        if (k->pid.active)
                cg_sandbox_kill(k->pid.fd, k->report.tier ?: "");
}

void cg_sup_kernel_violation(struct kernel *k, const char *what)
{
        if (k->violation_text[0] || k->state == K_DEAD)
                return;
        snprintf(k->violation_text, sizeof(k->violation_text), "%.*s", (int)sizeof(k->violation_text) - 1,
                 what);
        cg_log(&k->sup->log, CG_LOG_WARN, "kernel of session %llu broke a rule: %s",
               (unsigned long long)(k->session ? k->session->number : 0), what);
        cg_sup_kernel_kill(k);
}

static void on_lost(uv_timer_t *t)
{
        cg_sup_kernel_violation(t->data, "it closed its connection");
}

void cg_sup_kernel_lost(struct kernel *k)
{
        if (k->lost_open || k->state == K_DEAD)
                return;
        uv_timer_init(&k->sup->loop, &k->lost);
        k->lost.data = k;
        k->lost_open = true;
        uv_timer_start(&k->lost, on_lost, LOST_MS, 0);
}

void cg_sup_kernel_send(struct kernel *k, const struct cg_out *out, json_t *body)
{
        struct cg_err err;
        int r;

        if (!k || k->state != K_READY) {
                json_decref(body);
                return;
        }
        if (body)
                r = cg_zlink_send_json(&k->links.main, out, body, &err);
        else
                r = cg_zlink_send(&k->links.main, out, &err);
        if (r == CG_TIMEOUT)
                cg_sup_kernel_violation(k, "it does not read its messages");
        else if (r == CG_E_CLOSED)
                cg_sup_kernel_lost(k);
        else if (r < 0)
                cg_sup_kernel_violation(k, err.msg);
}

void cg_sup_kernel_pause(struct kernel *k, bool paused)
{
        if (!k || !k->links.main_open)
                return;
        k->links.pauses += paused && !k->links.main.paused;
        cg_zlink_pause(&k->links.main, paused);
}

void cg_sup_kernel_catch_up(struct kernel *k)
{
        if (k->links.main_open && (!k->session || k->session->unread <= CG_ASK_UNREAD))
                cg_zlink_catch_up(&k->links.main);
}
