/* The control channel, which is served while cells run. Runs in `cellgate jupyter`. */
#include "jupyter/internal.h"

/* A client's header, which is handed to the kernel with each cell. */
#define MAX_HEADER 4096u

static void handle(struct front *f, struct jreq *r)
{
        struct cg_slice header = r->msg->m.header;
        char *p = header.len <= MAX_HEADER ? malloc(header.len + 1) : NULL;

        /* For libraries in the kernel: get_parent("control"). */
        if (p) {
                memcpy(p, header.p, header.len);
                free((char *)(uintptr_t)f->control.header.p);
                f->control.header = (struct cg_slice){ p, header.len };
        }
        if (r->spec->kind == KIND_SIDE || r->spec->kind == KIND_EXECUTE) {
                cg_control_enqueue(f, r);
                return;
        }
        if (r->spec->kind == KIND_RELAY)
                cg_jreq_end_with_error(f, r, "BadRequest", "this request belongs to the shell channel");
        else
                cg_local_answer(f, r);
}

static bool too_early(const struct front *f, const struct jreq *r)
{
        return r->spec->kind == KIND_INFO && f->state < OPEN;
}

void cg_control_early(struct front *f)
{
        struct jreq_list list = TAILQ_HEAD_INITIALIZER(list);
        struct jreq *r;

        TAILQ_CONCAT(&list, &f->control.early, entry);
        while ((r = TAILQ_FIRST(&list))) {
                TAILQ_REMOVE(&list, r, entry);
                if (f->state != ENDING && too_early(f, r))
                        TAILQ_INSERT_TAIL(&f->control.early, r, entry);
                else if (f->state == ENDING) {
                        cg_jreq_fail(f, r, "KernelEnded", "the kernel has ended");
                        cg_jreq_finish(f, r);
                } else
                        handle(f, r);
        }
}

void cg_control_readable(struct cg_zsock *z)
{
        struct front *f = z->data;
        struct cg_jmsg *msg;
        struct jreq *r;

        if (cg_front_receive(f, CG_JCONTROL, &msg) != 0)
                return;
        if (f->state == ENDING) {
                cg_jmsg_free(msg);
                return;
        }
        r = cg_jreq_new(f, CG_JCONTROL, msg);
        if (!r)
                return;
        if (msg->m.bad[0])
                cg_jreq_end_with_error(f, r, "BadRequest", msg->m.bad);
        else if (too_early(f, r))
                TAILQ_INSERT_TAIL(&f->control.early, r, entry);
        else
                handle(f, r);
}
