/* libcellgate: commands of sessions, beside their cells. */
#include "client/internal.h"

static void add_text(struct cg_buf *b, const char *text)
{
        cg_buf_add(b, text, strlen(text) + 1);
}

/* Returns their number. */
static json_int_t add_texts(struct cg_buf *b, const char *const *list)
{
        json_int_t n = 0;

        for (; list && list[n]; n++)
                add_text(b, list[n]);
        return n;
}

CG_API int cg_session_exec(struct cg_session *s, const struct cg_exec_options *opts, uint64_t *command,
                           struct cg_err *err)
{
        struct cg_out out = { .type = CG_HOST_EXEC, .has_raw = true };
        cg_auto_buf struct cg_buf text = { .max = CG_MAX_COMMAND_TEXT };
        cg_auto_free struct command_input *input = NULL;
        struct cg_exec_options o = { 0 };
        json_int_t argc, envc;
        json_t *body;
        int r;

        if (cg_take_options(opts, &o, sizeof(o), "cg_exec_options", err) < 0)
                return CG_E_INVAL;
        if (!o.argv || !o.argv[0] || !o.argv[0][0])
                return cg_fail(err, CG_E_INVAL, "a command needs a program");
        if (!o.rows != !o.columns)
                return cg_fail(err, CG_E_INVAL, "a terminal needs rows and columns");
        if (cg_check_variables(o.env, err) < 0)
                return CG_E_INVAL;
        add_text(&text, o.cwd ?: "");
        argc = add_texts(&text, o.argv);
        envc = add_texts(&text, o.env);
        if (text.failed)
                return cg_fail(err, CG_E_LIMIT,
                               "arguments, variables and folder of a command have more than %u bytes",
                               CG_MAX_COMMAND_TEXT);
        if ((o.input || o.rows) && !(input = calloc(1, sizeof(*input))))
                return cg_fail(err, CG_E_NOMEM, "command");
        out.raw = text.data;
        out.raw_len = text.len;
        body = json_pack("{s:I, s:I, s:I, s:i, s:i, s:b}", "argc", argc, "envc", envc, "timeout_ms",
                         (json_int_t)cg_ms_or(o.timeout_ms, 0), "rows", (int)o.rows, "columns",
                         (int)o.columns, "input", input != NULL);
        r = cg_session_enter_with(s, body, err);
        if (r < 0)
                return r;
        r = cg_session_send_numbered(s, &out, body, command, err);
        if (r >= 0 && input) {
                input->number = out.id;
                input->next = s->inputs;
                s->inputs = CG_STEAL(input);
        }
        pthread_mutex_unlock(&s->client->lock);
        return r;
}

/* Lock held. Waits until something may have changed; not 0: that took too long. */
static int wait_input(struct cg_session *s, int64_t timeout_ms, const struct timespec *end)
{
        if (timeout_ms == 0)
                return ETIMEDOUT;
        if (timeout_ms < 0)
                return pthread_cond_wait(&s->cond, &s->client->lock);
        return pthread_cond_timedwait(&s->cond, &s->client->lock, end);
}

CG_API int cg_command_write(struct cg_session *s, uint64_t command, const void *data, size_t len,
                            int64_t timeout_ms, struct cg_err *err)
{
        struct cg_out out = {
                .type = CG_HOST_COMMAND_INPUT, .id = command, .raw = data, .raw_len = len, .has_raw = true
        };
        struct timespec end = cg_client_deadline(timeout_ms);
        struct command_input *input;
        int r, waited = 0;

        if (len > CG_MAX_COMMAND_INPUT)
                return cg_fail(err, CG_E_LIMIT, "more than %u bytes of input at once", CG_MAX_COMMAND_INPUT);
        r = cg_session_enter(s, err);
        if (r < 0)
                return r;
        while ((input = cg_command_input(s, command)) && !s->closed && !waited &&
               len > CG_MAX_COMMAND_INPUT - input->waiting)
                waited = wait_input(s, timeout_ms, &end);
        out.session = s->number;
        if (!input || s->closed)
                r = cg_fail(err, CG_E_NOTFOUND, "no command %llu with input runs",
                            (unsigned long long)command);
        else if (waited)
                r = CG_TIMEOUT;
        else if ((r = cg_client_send(s->client, &out, NULL, err)) == 0)
                input->waiting += len;
        pthread_mutex_unlock(&s->client->lock);
        return r;
}

CG_API int cg_command_signal(struct cg_session *s, uint64_t command, int sig, struct cg_err *err)
{
        struct cg_out out = { .type = CG_HOST_COMMAND_CONTROL, .id = command };

        return cg_session_send(s, &out, json_pack("{s:i}", "signal", sig), err);
}

CG_API int cg_command_resize(struct cg_session *s, uint64_t command, uint16_t rows, uint16_t columns,
                             struct cg_err *err)
{
        struct cg_out out = { .type = CG_HOST_COMMAND_CONTROL, .id = command };

        return cg_session_send(s, &out, json_pack("{s:i, s:i}", "rows", (int)rows, "columns", (int)columns),
                               err);
}
