/*
 * mcp/server.c with the bytes that an MCP client writes to `cellgate mcp serve`, cut into lines as
 * there. Beside memory safety: every answer is one line of valid JSON, values that are handed on
 * are inside their line and valid JSON, and a bad line is not a failure.
 *
 * Input: what the client writes: to a server that is new, and to two that were initialized.
 */
#include "base/buf.h"
#include "base/json.h"
#include "mcp/ceilings.h"
#include "mcp/server.h"
#include "fuzz.h"

#define MAX_LINE 4096

static const char *const tool_names[] = { "run", "add", NULL };
static const struct cg_mcpd_info info = { .name = "n",
                                          .title = "t",
                                          .version = "1",
                                          .instructions = "be \"good\"\n",
                                          .tool_names = tool_names,
                                          .tools = "[{\"name\":\"run\"},{\"name\":\"add\"}]",
                                          .templates = "[]",
                                          .logs = true,
                                          .tasks = true };

static void check_part(struct cg_slice whole, struct cg_slice part)
{
        size_t n;

        must(part.p >= whole.p && part.p + part.len <= whole.p + whole.len && part.len > 0);
        must(cg_json_skip(part.p, part.len, CG_JSON_WALK_DEPTH, &n, NULL) == 0 && n == part.len);
}

static int on_message(void *data, const struct cg_mcpd_in *in, struct cg_err *err)
{
        const struct cg_slice *line = data;

        check_part(*line, in->id);
        if (in->kind == CG_MCPD_CALL) {
                must(in->name == tool_names[0] || in->name == tool_names[1]);
                must(in->arguments.p[0] == '{');
                if (in->arguments.len != 2) /* "{}" replaces missing arguments */
                        check_part(*line, in->arguments);
                if (in->progress_token.p)
                        check_part(*line, in->progress_token);
                if (in->request_state.p)
                        check_part(*line, in->request_state);
                if (in->input_responses.p)
                        check_part(*line, in->input_responses);
        } else if (in->kind == CG_MCPD_RESOURCES || in->kind == CG_MCPD_READ) {
                must(in->value.p ? in->value.p[0] == '"' : in->kind == CG_MCPD_RESOURCES);
                if (in->value.p)
                        check_part(*line, in->value);
        } else if (in->kind >= CG_MCPD_TASK_GET && in->kind <= CG_MCPD_TASK_CANCEL) {
                must(in->value.p[0] == '"' && !in->input_responses.p == (in->kind != CG_MCPD_TASK_UPDATE));
                check_part(*line, in->value);
                if (in->input_responses.p)
                        check_part(*line, in->input_responses);
        } else if (in->kind == CG_MCPD_ANSWER) {
                must(!in->result.p != !in->error.p);
                check_part(*line, in->result.p ? in->result : in->error);
        }
        return 0;
}

/* Whole lines, each an object. */
static void check_answers(const struct cg_buf *out)
{
        const char *p = out->data, *end = out->data + out->len;

        while (p < end) {
                const char *eol = memchr(p, '\n', (size_t)(end - p));

                must(eol && cg_json_check_object(p, (size_t)(eol - p), CG_JSON_WALK_DEPTH, NULL) == 0);
                p = eol + 1;
        }
}

static void take(struct cg_mcpd *s, struct cg_slice line)
{
        struct cg_buf out;
        struct cg_err err;

        cg_buf_init(&out, CG_MCP_MAX_LINE);
        must(cg_mcpd_line(s, line, &out, on_message, &line, &err) == 0);
        if (out.len)
                check_answers(&out);
        cg_buf_fini(&out);
}

static void too_long(const char *why)
{
        struct cg_buf out;
        struct cg_err err;

        cg_buf_init(&out, CG_MCP_MAX_LINE);
        must(cg_mcpd_line_too_long(&out, why, &err) == 0);
        check_answers(&out);
        cg_buf_fini(&out);
}

static void talk(const uint8_t *data, size_t size, const char *hello)
{
        struct cg_mcpd s;
        struct cg_lines l;
        struct cg_slice line;
        struct cg_err err;
        char *p;
        int r;

        cg_mcpd_init(&s, &info);
        if (hello)
                take(&s, (struct cg_slice){ .p = hello, .len = strlen(hello) });
        cg_lines_init(&l, MAX_LINE);
        must(cg_lines_room(&l, size, &p, NULL) == 0);
        if (size)
                memcpy(p, data, size);
        cg_lines_added(&l, size);
        while ((r = cg_lines_next(&l, &line, &err)) != CG_TIMEOUT) {
                if (r < 0)
                        too_long(err.msg);
                else
                        take(&s, line);
        }
        if (cg_lines_rest(&l, &line) == 0)
                take(&s, line);
        cg_lines_fini(&l);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
        static const char batches[] = "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"initialize\",\"params\":"
                                      "{\"protocolVersion\":\"2025-03-26\",\"capabilities\":{}}}";
        static const char newest[] =
                "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"initialize\",\"params\":"
                "{\"protocolVersion\":\"2025-11-25\",\"capabilities\":{\"elicitation\":{}}}}";

        talk(data, size, NULL);
        talk(data, size, batches);
        talk(data, size, newest);
        return 0;
}
