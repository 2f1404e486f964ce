/*
 * Requests that are answered without the kernel: kernel_info, connect, interrupt, shutdown. Runs in
 * `cellgate jupyter`.
 */
#include "jupyter/internal.h"

/* By number, so that no other cell is interrupted when this one has ended meanwhile. */
void cg_local_interrupt(struct front *f)
{
        struct jreq *running[] = { f->main.running, f->control.queue.running };

        for (size_t i = 0; f->state == READY && i < CG_ARRAY_LEN(running); i++)
                if (running[i] && running[i]->origin->number)
                        cg_session_cancel(f->session, running[i]->origin->number, NULL);
}

void cg_local_answer(struct front *f, struct jreq *r)
{
        struct cg_slice restart;
        char text[300];

        cg_jreq_begin(f, r);
        switch (r->spec->kind) {
        case KIND_INFO:
                cg_jreq_reply(f, r, (struct cg_slice){ f->info.content, f->info.len });
                break;
        case KIND_CONNECT:
                snprintf(
                        text, sizeof(text),
                        "{\"status\":\"ok\",\"shell_port\":%d,\"iopub_port\":%d,\"stdin_port\":%d,\"control_port\":%d,\"hb_port\":%d}",
                        f->conn.ports[CG_JSHELL], f->conn.ports[CG_JIOPUB], f->conn.ports[CG_JSTDIN],
                        f->conn.ports[CG_JCONTROL], f->conn.ports[CG_JHB]);
                cg_jreq_reply(f, r, cg_slice_of(text));
                break;
        case KIND_INTERRUPT:
                cg_local_interrupt(f);
                cg_jreq_reply(f, r, CG_SLICE("{\"status\":\"ok\"}"));
                break;
        case KIND_SHUTDOWN:
                f->restarting = cg_json_find(r->msg->m.content, "restart", &restart) &&
                                cg_slice_is(restart, "true");
                snprintf(text, sizeof(text), "{\"status\":\"ok\",\"restart\":%s}",
                         cg_bool_text(f->restarting));
                cg_jreq_reply(f, r, cg_slice_of(text));
                cg_iopub_send(&f->iopub, r->origin, "shutdown_reply", cg_slice_of(text));
                cg_jreq_finish(f, r);
                cg_front_stop(f);
                return;
        default:
                break;
        }
        cg_jreq_finish(f, r);
}
