/* The Python package's binding: several events in one call. */
#include "_batch.h"

/* A small event takes this much in Python. */
#define OVERHEAD 512

static void describe(struct cg_batch_event *b)
{
        const struct cg_event *e = b->event;

        b->type = (int)cg_event_type(e);
        b->status = (int)cg_event_status(e);
        b->foreign = cg_event_foreign(e);
        b->is_stderr = cg_event_is_stderr(e);
        b->refused = cg_event_refused(e);
        b->cell = cg_event_cell(e);
        b->approval = cg_event_approval(e);
        b->execution_count = cg_event_execution_count(e);
        b->text = cg_event_text(e, &b->text_len);
        b->json = cg_event_json(e, &b->json_len);
        b->arguments = cg_event_arguments(e, &b->arguments_len);
        b->server = cg_event_server(e);
        b->tool = cg_event_tool(e);
        b->method = cg_event_method(e);
        b->n_buffers = cg_event_n_buffers(e);
        b->bytes = OVERHEAD + b->text_len + b->json_len + b->arguments_len;
        for (size_t i = 0; i < b->n_buffers; i++) {
                size_t len;

                cg_event_buffer(e, i, &len);
                b->bytes += len;
        }
}

int cg_batch_read(struct cg_session *s, int64_t timeout_ms, struct cg_batch *batch, struct cg_err *err)
{
        const int max = sizeof(batch->events) / sizeof(batch->events[0]);

        for (batch->n = batch->used = 0; batch->n < max; batch->n++) {
                struct cg_batch_event *b = &batch->events[batch->n];
                int r = cg_session_next_event(s, batch->n ? 0 : timeout_ms, &b->event, err);

                /* The next call returns an error or the end again. */
                if (r != 0)
                        return batch->n ? 0 : r;
                describe(b);
                /* Its answer goes to the question that was taken last: the caller answers before it takes more. */
                if (b->type == CG_EVENT_INPUT_REQUEST) {
                        batch->n++;
                        break;
                }
        }
        return 0;
}

void cg_batch_clear(struct cg_batch *batch)
{
        for (int i = 0; i < batch->n; i++)
                cg_event_free(batch->events[i].event);
        batch->n = batch->used = 0;
}
