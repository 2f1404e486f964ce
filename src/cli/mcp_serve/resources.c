/*
 * `cellgate mcp serve`: all of a cell's output as resources of MCP, one for each of stdout, stderr
 * and result. They are the results that jobs.c keeps, and end with them. Runs in the I/O thread.
 */
#include "cli/mcp_serve/mcp_serve.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/json.h"
#include "base/util.h"

/* Cells of one page of the list. */
#define PAGE_CELLS 100
#define READ_MAX   ((size_t)64 << 20)

const char cg_serve_templates[] =
        "[{\"uriTemplate\":\"cellgate://session/{session_id}/cell/{number}/{part}{?from,length}\","
        "\"name\":\"Output of a cell\",\"mimeType\":\"text/plain\","
        "\"description\":\"All of one part of a cell's output: stdout, stderr or result; number: 7 of cell-7."
        " A read returns at most 1000000 characters: length of them, from the character from (0) on.\"}]";

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
                cg_serve_add_parts(j, ",{", &items);
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

/* The cell of a URI, its part and the characters of it. NULL: there is none. */
static struct cg_job *find(struct cg_serve *sv, const char *uri, enum cg_serve_source *part, size_t *from,
                           size_t *length)
{
        char id[CG_SERVE_ID + 1] = "", name[8] = "", known[CG_SERVE_URI];
        struct cg_serve_session *s;
        struct cg_job *j;
        uint64_t number = 0;

        sscanf(uri, "cellgate://session/%32[0-9a-f]/cell/%" SCNu64 "/%7[a-z]", id, &number, name);
        *part = cg_serve_part_of(name);
        TAILQ_FOREACH(s, &sv->sessions, entry)
                if (s->life == CG_SERVE_LIVES && strcmp(s->id, id) == 0)
                        break;
        j = s ? cg_serve_session_cell(s, number) : NULL;
        if (!*part || !j || j->state != CG_JOB_DONE)
                return NULL;
        cg_serve_uri(j, *part, known);
        if (strncmp(uri, known, strlen(known)) != 0 || !read_query(uri + strlen(known), from, length))
                return NULL;
        s->used_ms = j->read_ms = cg_now_ms();
        return j;
}

int cg_serve_read_resource(struct cg_serve *sv, const struct cg_mcpd_in *in, struct cg_err *err)
{
        cg_auto_buf struct cg_buf b = { .max = READ_MAX }, text = { .max = READ_MAX },
                                  shown = { .max = READ_MAX };
        size_t from = 0, length = CG_SERVE_READ_CHARS, begin, end;
        cg_auto_free char *asked = NULL;
        enum cg_serve_source part;
        struct cg_job *job;
        char uri[CG_SERVE_URI];

        if (cg_json_strdup(in->value, &asked, NULL) < 0 || !(job = find(sv, asked, &part, &from, &length)))
                return cg_mcpd_no_resource(
                        &sv->proto, in,
                        "Resource not found. There are cellgate://session/SESSION/cell/NUMBER/stdout, stderr and"
                        " result, with ?from=FIRST&length=NUMBER for a part, while the result of the cell is kept",
                        &sv->out, err);
        cg_answer_add_source(job->answer, part, &text);
        /* Before the part is cut out, so that no border leaves half of one. */
        cg_secrets_redact_buf(&sv->secrets, &text);
        begin = cg_cut_place(&text, 0, from);
        end = cg_cut_place(&text, begin, CG_MIN(length, CG_SERVE_READ_CHARS));
        cg_answer_mark(job->answer, text.data ? text.data + begin : "", end - begin, &shown);
        cg_buf_fail(&b, text.failed ?: shown.failed);
        cg_buf_adds(&b, "{\"contents\":[{\"mimeType\":\"text/plain\",\"uri\":");
        cg_json_quote(&b, asked, strlen(asked));
        cg_buf_adds(&b, ",\"text\":");
        cg_json_quote(&b, shown.data ?: "", shown.len);
        cg_buf_addf(&b, ",\"_meta\":{\"cellgate/characters\":%zu", cg_cut_count(text.data, text.len));
        cg_serve_uri(job, part, uri);
        if (end < text.len)
                cg_buf_addf(&b, ",\"cellgate/next\":\"%s?from=%zu&length=%zu\"", uri,
                            cg_cut_count(text.data, end), CG_MIN(length, CG_SERVE_READ_CHARS));
        if (cg_answer_is_dropped(job->answer))
                cg_buf_adds(&b, ",\"cellgate/dropped\":true");
        cg_buf_adds(&b, "}}]");
        return cg_mcpd_answer(&sv->proto, in->id, &b, 0, &sv->out, err);
}
