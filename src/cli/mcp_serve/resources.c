/*
 * `cellgate mcp serve`: all of a cell's output as resources of MCP, one for each of stdout, stderr
 * and result. They are the results that jobs.c keeps, and end with them. Runs in the I/O thread.
 */
#include "cli/mcp_serve/mcp_serve.h"

#include "base/json.h"

/* Cells of one page of the list. */
#define PAGE_CELLS 100
#define READ_MAX   ((size_t)64 << 20)

/* ------------------------------------------------------------------ resources/list */

/* Who names no session when it calls learns no ids: the sessions may be those of other agents. */
static bool may_list(const struct cg_serve *sv)
{
        return !sv->opts.new_sessions || sv->opts.toolsets & CG_SERVE_SESSIONS;
}

/* The cell with the lowest number above @after whose result is kept; NULL: there is none. */
static const struct cg_job *next_cell(const struct cg_serve *sv, uint64_t after)
{
        const struct cg_serve_session *s;
        const struct cg_job *j, *found = NULL;

        TAILQ_FOREACH(s, &sv->sessions, entry) {
                if (s->life != CG_SERVE_LIVES)
                        continue;
                TAILQ_FOREACH(j, &s->kept, entry)
                        if (j->number > after && (!found || j->number < found->number))
                                found = j;
        }
        return found;
}

int cg_serve_list_resources(struct cg_serve *sv, const struct cg_mcpd_in *in, struct cg_err *err)
{
        cg_auto_buf struct cg_buf b = { .max = READ_MAX }, items = { .max = READ_MAX };
        struct cg_serve_session *s;
        const struct cg_job *j = NULL;
        uint64_t last = 0;
        int n = 0;

        if (in->value.p && sscanf(in->value.p, "\"%" SCNu64 "\"", &last) != 1)
                return cg_rpc_add_error(&sv->out, in->id, CG_RPC_INVALID_PARAMS,
                                        "there is no such cursor: leave it out for the first page", err);
        TAILQ_FOREACH(s, &sv->sessions, entry)
                cg_serve_forget_old(s);
        for (; may_list(sv) && n < PAGE_CELLS && (j = next_cell(sv, last)); n++) {
                cg_serve_add_parts(j, ",{", SIZE_MAX, &items);
                last = j->number;
        }
        cg_buf_fail(&b, items.failed);
        cg_buf_addf(&b, "{\"resources\":[%s]", items.len ? items.data + 1 : "");
        if (j && next_cell(sv, last))
                cg_buf_addf(&b, ",\"nextCursor\":\"%" PRIu64 "\"", last);
        return cg_mcpd_answer(&sv->proto, in->id, &b, 0, &sv->out, err);
}

/* ------------------------------------------------------------------ resources/read */

/* "?from=1&length=2", or one of them, or "". */
static bool read_query(const char *q, size_t *from, size_t *length)
{
        char *end;

        if (*q && *q != '?')
                return false;
        while (*q) {
                size_t *to = strncmp(q + 1, "from=", 5) == 0 ? from : length;

                if (to == length && strncmp(q + 1, "length=", 7) != 0)
                        return false;
                q = strchr(q, '=') + 1;
                if (*q < '0' || *q > '9')
                        return false;
                *to = strtoull(q, &end, 10);
                q = end;
                if (*q && *q != '&')
                        return false;
        }
        return true;
}

/* The part or the file of a cell that a URI names. */
struct named {
        enum cg_serve_source part; /* of the cell's output, or */
        const json_t *file;        /* one of its files (borrowed) */
        size_t from, length;
};

/* The cell of a URI. NULL: there is none. */
static struct cg_job *find(struct cg_serve *sv, const char *uri, struct named *n)
{
        char id[CG_SERVE_ID + 1] = "", name[9] = "", part[CG_SERVE_URI];
        const char *known = NULL;
        struct cg_serve_session *s;
        struct cg_job *j;
        uint64_t number = 0;
        size_t index = 0;

        sscanf(uri, "cellgate://session/%32[0-9a-f]/cell/%" SCNu64 "/%8[a-z]/%zu", id, &number, name, &index);
        TAILQ_FOREACH(s, &sv->sessions, entry)
                if (s->life == CG_SERVE_LIVES && strcmp(s->id, id) == 0)
                        break;
        j = s ? cg_serve_session_cell(s, number) : NULL;
        if (!j || j->state != CG_JOB_DONE)
                return NULL;
        n->part = cg_serve_part_of(name);
        if (n->part) {
                cg_serve_uri(j, n->part, part);
                known = part;
        } else if (strcmp(name, "artifact") == 0) {
                n->file = json_array_get(cg_structured_artifacts(cg_answer_structured(j->answer)), index);
                known = json_string_value(json_object_get(n->file, "uri"));
        }
        if (!known || strncmp(uri, known, strlen(known)) != 0 ||
            !read_query(uri + strlen(known), &n->from, &n->length))
                return NULL;
        s->used_ms = j->read_ms = cg_now_ms();
        return j;
}

/* Queues a read of @file, one of the artifacts of @cell, for a request that names it by @uri. */
static int begin_artifact(struct cg_serve *sv, const struct cg_mcpd_in *in, const struct cg_job *cell,
                          const json_t *file, const char *uri, size_t from, size_t length, struct cg_err *err)
{
        struct cg_mcpd_in call = { .id = in->id, .name = cg_serve_tool_defs[CG_SERVE_ARTIFACT].name };
        cg_auto_json json_t *args = json_pack(
                "{s:O, s:O, s:O, s:s, s:I, s:I}", "path", json_object_get(file, "path"), "sha256",
                json_object_get(file, "sha256"), "known", json_object_get(file, "uri"), "uri", uri, "from",
                (json_int_t)CG_MIN(from, CG_STRUCTURED_MAX_FILE), "length",
                (json_int_t)CG_MIN(length, CG_SERVE_READ_CHARS));
        struct cg_pending *p;
        struct cg_job *j;

        if (cg_serve_find_pending(sv, in->id) || sv->n_pending >= CG_SERVE_MAX_JOBS)
                return cg_rpc_add_error(&sv->out, in->id, CG_RPC_INVALID_REQUEST,
                                        "this id is in use, or too many requests wait already", err);
        p = cg_serve_add_pending(sv, &call);
        j = calloc(1, sizeof(*j));
        if (!p || !j || !args) {
                free(j);
                return cg_fail(err, CG_E_NOMEM, "resources/read");
        }
        p->session = cell->session;
        j->tool = CG_SERVE_ARTIFACT;
        j->args = json_dumps(args, JSON_COMPACT);
        if (cg_serve_add_job(p, j, 0, NULL) < 0)
                cg_serve_reply(sv, p, NULL);
        return 0;
}

int cg_serve_read_resource(struct cg_serve *sv, const struct cg_mcpd_in *in, struct cg_err *err)
{
        cg_auto_buf struct cg_buf b = { .max = READ_MAX }, text = { .max = READ_MAX },
                                  shown = { .max = READ_MAX };
        struct named n = { .length = CG_SERVE_READ_CHARS };
        cg_auto_free char *asked = NULL;
        char uri[CG_SERVE_URI];
        struct cg_job *job;
        size_t begin, end;

        if (cg_json_strdup(in->value, &asked, NULL) < 0 || !(job = find(sv, asked, &n)))
                return cg_mcpd_no_resource(
                        &sv->proto, in,
                        "Resource not found. There are cellgate://session/SESSION/cell/NUMBER/stdout, stderr and"
                        " result, with ?from=FIRST&length=NUMBER for a part, and its artifacts by their uri,"
                        " while the result of the cell is kept",
                        &sv->out, err);
        if (n.file)
                return begin_artifact(sv, in, job, n.file, asked, n.from, n.length, err);
        cg_answer_add_source(job->answer, n.part, &text);
        /* Before the part is cut out, so that no border leaves half of one. */
        cg_secrets_redact_buf(&sv->secrets, &text);
        begin = cg_cut_place(&text, 0, n.from);
        end = cg_cut_place(&text, begin, CG_MIN(n.length, CG_SERVE_READ_CHARS));
        cg_answer_mark(job->answer, text.data ? text.data + begin : "", end - begin, &shown);
        cg_buf_fail(&b, text.failed ?: shown.failed);
        cg_buf_adds(&b, "{\"contents\":[{\"mimeType\":\"text/plain\",\"uri\":");
        cg_json_quote(&b, asked, strlen(asked));
        cg_buf_adds(&b, ",\"text\":");
        cg_json_quote(&b, shown.data ?: "", shown.len);
        cg_buf_addf(&b, ",\"_meta\":{\"cellgate/characters\":%zu", cg_cut_count(text.data, text.len));
        cg_serve_uri(job, n.part, uri);
        if (end < text.len)
                cg_buf_addf(&b, ",\"cellgate/next\":\"%s?from=%zu&length=%zu\"", uri,
                            cg_cut_count(text.data, end), CG_MIN(n.length, CG_SERVE_READ_CHARS));
        if (cg_answer_is_dropped(job->answer))
                cg_buf_adds(&b, ",\"cellgate/dropped\":true");
        cg_buf_adds(&b, "}}]");
        return cg_mcpd_answer(&sv->proto, in->id, &b, 0, &sv->out, err);
}
