/*
 * `cellgate mcp serve`: names of the parts of a cell's output, and of its files, for results and
 * lists: they are resources of MCP (resources.c). Used by both threads.
 */
#include "cli/mcp_serve/mcp_serve.h"

#include "base/json.h"

static const char *const parts[] = {
        [CG_SOURCE_STDOUT] = "stdout", [CG_SOURCE_STDERR] = "stderr", [CG_SOURCE_RESULT] = "result"
};

void cg_serve_uri(const struct cg_job *job, enum cg_serve_source part, char ret[CG_SERVE_URI])
{
        snprintf(ret, CG_SERVE_URI, "cellgate://session/%s/cell/%" PRIu64 "/%s", job->session->id,
                 job->number, parts[part]);
}

enum cg_serve_source cg_serve_part_of(const char *name)
{
        enum cg_serve_source part = CG_SOURCE_RESULT;

        while (part != CG_SOURCE_OTHER && strcmp(parts[part], name) != 0)
                part--;
        return part;
}

static void add_files(const struct cg_job *job, const char *begin, size_t max, struct cg_buf *b)
{
        json_t *files = cg_structured_artifacts(cg_answer_structured(job->answer)), *file;
        const char *uri, *path;
        size_t i;

        cg_secrets_redact_json(&job->session->sv->secrets, files);
        json_array_foreach(files, i, file) {
                uri = json_string_value(json_object_get(file, "uri"));
                path = json_string_value(json_object_get(file, "path"));
                if (!uri || !path || !max)
                        continue;
                max--;
                cg_buf_addf(b, "%s\"uri\":\"%s\",\"name\":", begin, uri);
                cg_json_quote(b, path, strlen(path));
                cg_buf_addf(b, ",\"size\":%" JSON_INTEGER_FORMAT "}",
                            json_integer_value(json_object_get(file, "size")));
        }
}

void cg_serve_add_parts(const struct cg_job *job, const char *begin, size_t max_files, struct cg_buf *b)
{
        char uri[CG_SERVE_URI];
        size_t size, cut;

        for (enum cg_serve_source i = CG_SOURCE_STDOUT; i < CG_ARRAY_LEN(parts); i++) {
                size = cg_answer_source_bytes(job->answer, i, &cut);
                if (!cut)
                        continue;
                cg_serve_uri(job, i, uri);
                cg_buf_addf(b,
                            "%s\"uri\":\"%s\",\"name\":\"cell-%" PRIu64
                            " %s\",\"description\":\"All of it; at most %zu characters a read: append"
                            " ?from=FIRST&length=NUMBER\",\"mimeType\":\"text/plain\",\"size\":%zu}",
                            begin, uri, job->number, parts[i], CG_SERVE_READ_CHARS, size);
        }
        add_files(job, begin, max_files, b);
}
