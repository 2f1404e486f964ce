/*
 * cellgate-supervisor: input() of cells. Its question is one of a kernel, which only the host that
 * sent the cell answers; it has the number of that cell.
 */
#include "supervisor/ask/input.h"

#include "base/json.h"
#include "supervisor/ask/asks.h"
#include "supervisor/cells/cells.h"
#include "supervisor/core/kernel_link.h"
#include "supervisor/core/state.h"

static void input_answered(struct ask *a, struct cg_msg *m)
{
        struct cg_out out = { .type = CG_KERNEL_INPUT_REPLY, .id = a->id, .has_raw = true };
        struct session *ss = a->session;
        cg_auto_json json_t *body = NULL;
        int64_t question;

        /* An answer to a cancelled question must not answer the cell's next one. */
        if (cg_msg_json(m, &body, NULL) < 0 || cg_json_int(body, "question", 0, &question, NULL) < 0 ||
            (uint64_t)question != a->number)
                return;
        cg_sup_ask_end(a);
        out.body = cg_msg_body(m, &out.body_len);
        out.raw = cg_msg_raw(m, 0, &out.raw_len);
        cg_sup_kernel_send(ss->kernel, &out, NULL);
}

static const struct ask_type input_ask = { .kind = ASK_INPUT,
                                           .request = CG_HOST_INPUT_REQUEST,
                                           .has_raw = true,
                                           .answer = CG_HOST_INPUT_REPLY,
                                           .answered = input_answered,
                                           .closed = CG_HOST_INPUT_CLOSED,
                                           .max = SIZE_MAX,
                                           .unread = SIZE_MAX };

void cg_sup_input_request(struct session *ss, struct cg_msg *m)
{
        struct ask question = { .session = ss, .type = &input_ask, .id = m->id };
        struct ask *open = cg_sup_ask_any(ss, ASK_INPUT);
        cg_auto_json json_t *body = NULL;
        int64_t number;
        struct cg_err err;

        if (cg_msg_json(m, &body, &err) < 0 || cg_json_int(body, "question", 0, &number, &err) < 0) {
                cg_sup_kernel_violation(ss->kernel, err.msg);
                return;
        }
        if (m->type == CG_KERNEL_INPUT_CANCEL) {
                /* otherwise the host has answered it */
                if (open && open->id == m->id && open->number == (uint64_t)number)
                        cg_sup_ask_close(open, NULL);
                return;
        }
        if (!cg_sup_cells_allows_stdin(ss, m->id)) {
                cg_sup_kernel_violation(ss->kernel,
                                        "INPUT_REQUEST of a cell that does not run, or may not ask");
                return;
        }
        if (open)
                cg_sup_ask_close(open, NULL);
        cg_sup_cells_wait_for_input(ss, m->id);
        question.number = (uint64_t)number;
        question.body = json_pack("{s:I}", "question", (json_int_t)number);
        cg_sup_ask(&question, m->frames[1]);
}
