/*
 * Bytes from an MCP server or a kernel: lines, messages, tool lists, arguments. Beside memory
 * safety it checks that parts lie inside their text and are JSON themselves, and that cutting the
 * input differently changes nothing.
 */
#include "base/call_args.h"
#include "base/json.h"
#include "mcp/jsonrpc.h"
#include "mcp/ceilings.h"
#include "fuzz.h"

#define MAX_LINE 4096

static void check_part(struct cg_slice whole, struct cg_slice part)
{
        size_t n;

        if (!part.p)
                return;
        must(part.p >= whole.p && part.p + part.len <= whole.p + whole.len && part.len > 0);
        must(cg_json_skip(part.p, part.len, CG_JSON_WALK_DEPTH, &n, NULL) == 0 && n == part.len);
}

static void walk(struct cg_slice text, char open)
{
        struct cg_slice key = CG_SLICE_NONE, value;
        struct cg_json_walk w;
        int r = cg_json_walk_init(&w, text, open, NULL);

        while (r == 0) {
                r = cg_json_walk_next(&w, &key, &value, NULL);
                if (r == 0)
                        check_part(text, value);
        }
        must(r == CG_JSON_END || r == CG_E_PARSE);
        /* Both readers of the grammar agree. */
        if (open == '{')
                must((r == CG_JSON_END) ==
                     (cg_json_check_object(text.p, text.len, CG_JSON_WALK_DEPTH + 1, NULL) == 0));
}

static void message(struct cg_slice text)
{
        struct cg_rpc_unreadable u;
        struct cg_rpc m;
        struct cg_slice s;
        struct cg_err err;
        char *str;
        int r = cg_rpc_parse(text, &m, &err);

        cg_rpc_inspect(text, &u);
        check_part(text, u.id);
        must(u.kind != CG_RPC_UNREADABLE_REQUEST || u.certain);

        walk(text, '{');
        walk(text, '[');
        if (cg_json_member(text, "name", &s, NULL) == 0) {
                check_part(text, s);
                if (cg_json_strdup(s, &str, NULL) == 0)
                        free(str);
        }
        if (r < 0) {
                must(err.msg[0]);
                return;
        }
        check_part(text, m.id);
        check_part(text, m.params);
        check_part(text, m.result);
        check_part(text, m.error);
        must(m.kind <= CG_RPC_NOTIFICATION ? m.method[0] || true : m.result.p || m.error.p);
        must(m.kind != CG_RPC_RESULT || (m.id.p && m.result.p));
}

/* Hash over all lines when the input comes in pieces of @piece bytes. */
static uint64_t lines(const uint8_t *data, size_t size, size_t piece, bool parse)
{
        struct cg_lines l;
        struct cg_slice line;
        uint64_t h = 1;
        char *p;
        int r;

        cg_lines_init(&l, MAX_LINE);
        for (size_t at = 0; at < size; at += piece) {
                size_t n = size - at < piece ? size - at : piece;

                must(cg_lines_room(&l, n, &p, NULL) == 0);
                memcpy(p, data + at, n);
                cg_lines_added(&l, n);
                while ((r = cg_lines_next(&l, &line, NULL)) != CG_TIMEOUT) {
                        if (r < 0) {
                                h = h * 31 + 7;
                                continue;
                        }
                        must(line.len <= MAX_LINE && !memchr(line.p, '\n', line.len));
                        for (size_t i = 0; i < line.len; i++)
                                h = h * 31 + (unsigned char)line.p[i];
                        h = h * 31 + 1;
                        if (parse)
                                message(line);
                }
        }
        cg_lines_fini(&l);
        return h;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
        /* A copy without a byte behind it: reading over the end is seen. */
        char *exact = malloc(size ? size : 1);
        uint64_t h = lines(data, size, size ? size : 1, true);

        must(h == lines(data, size, 1 + size / 3, false) && h == lines(data, size, 5, false));
        memcpy(exact, data, size);
        if (cg_check_call_args(exact, size, NULL) == 0)
                must(cg_json_check_object(exact, size, CG_MAX_ARGS_DEPTH, NULL) == 0 &&
                     !memchr(exact, '\n', size));
        message((struct cg_slice){ .p = exact, .len = size });
        free(exact);
        return 0;
}
