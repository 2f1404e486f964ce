/*
 * cellgate-search: reads the request of the supervisor from standard input, and writes the answer:
 *
 *      {"write_roots": [PATH, ...], "servers": {NAME: {"command": PATH, "path": PATH_LIST,
 *       "words": [WORD, ...], "named": [PATH, ...], "code": [PATH, ...], "data": [PATH, ...],
 *       "cwd": PATH, "prefixes": [PATH, ...]}}}
 *      {NAME: {"reached": {PATH: WHERE}, "linked": [FOLDER, ...], "linker": BOOL,
 *              "files": [PATH, ...]} or {"error": TEXT}, ...}
 */
#include <signal.h>
#include "base/buf.h"
#include "base/fd.h"
#include "base/json.h"
#include "search/search.h"

#define REQUEST_MAX ((size_t)64 << 20)
/* Processor time for one server, so that none fails for the files of another; by the clock more. */
#define SERVER_MS 10000

static int for_each(struct search *s, const json_t *list, int (*search)(struct search *, const char *))
{
        const json_t *v;
        size_t i;

        json_array_foreach(list, i, v) {
                if (search(s, json_string_value(v)) < 0)
                        return -1;
        }
        return 0;
}

static int search_server(struct search *s, const json_t *server)
{
        const char *command = cg_json_text_of(server, "command"), *cwd = cg_json_text_of(server, "cwd");
        const json_t *word;
        size_t i;

        json_array_foreach(json_object_get(server, "words"), i, word)
                s->linker |= cg_search_names_linker(json_string_value(word));
        if (for_each(s, json_object_get(server, "code"), cg_search_code) < 0 ||
            (*command && cg_search_program(s, command, 0) < 0) ||
            for_each(s, json_object_get(server, "named"), cg_search_named) < 0 ||
            (*cwd && cg_search_cwd(s, cwd) < 0))
                return -1;
        return cg_search_pending(s);
}

static void free_search(struct search *s)
{
        json_decref(s->reached);
        json_decref(s->linked);
        json_decref(s->files);
        cg_search_done_free(s);
}

static json_t *answer_for(const json_t *server, const json_t *write_roots)
{
        struct cg_err err = { .code = 0 };
        struct search s = { .write_roots = write_roots,
                            .data = json_object_get(server, "data"),
                            .prefixes = json_object_get(server, "prefixes"),
                            .path = cg_json_text_of(server, "path"),
                            .reached = json_object(),
                            .linked = json_array(),
                            .files = json_array(),
                            .budget = cg_budget_start(SERVER_MS, 4 * (int64_t)SERVER_MS),
                            .err = &err };
        cg_auto_buf struct cg_buf quoted = { .max = 1 << 16 };
        json_t *answer = NULL;

        if (!s.reached || !s.linked || !s.files) {
                cg_fail(&err, CG_E_NOMEM, "search");
        } else if (search_server(&s, server) == 0) {
                answer = json_pack("{s:O, s:O, s:b, s:O}", "reached", s.reached, "linked", s.linked, "linker",
                                   s.linker, "files", s.files);
        }
        if (err.code < 0) {
                /* Paths may be no UTF-8. */
                cg_json_quote(&quoted, err.msg, strlen(err.msg));
                answer = json_object();
                json_object_set_new(answer, "error",
                                    json_loads(quoted.data ?: "\"\"", JSON_DECODE_ANY, NULL));
        }
        free_search(&s);
        return answer;
}

int main(void)
{
        cg_auto_json json_t *request = NULL, *answers = json_object();
        cg_auto_free char *text = NULL, *out = NULL;
        const json_t *server;
        struct cg_err err;
        const char *name;
        size_t len;

        signal(SIGPIPE, SIG_DFL);
        if (!answers || cg_read_fd(0, "the request", REQUEST_MAX, &text, &len, &err) < 0 ||
            cg_json_object(text, len, "the request", &request, &err) < 0) {
                fprintf(stderr, "cellgate-search: %s\n", answers ? err.msg : "no memory");
                return 1;
        }
        json_object_foreach(json_object_get(request, "servers"), name, server)
                json_object_set_new(answers, name,
                                    answer_for(server, json_object_get(request, "write_roots")));
        out = cg_json_text(answers, &len);
        return !out || cg_write_all(1, out, len, &err) < 0;
}
