/*
 * `cellgate mcp serve`: reads files of cells for resources.c. A process in the session's sandbox
 * opens them, after the cells that wait already, and only what has the digest of the cell's result
 * is returned: later cells change nothing of it unseen.
 */
#include "cli/mcp_serve/mcp_serve.h"

#include "base/base64.h"
#include "base/json.h"
#include "base/sha256_hex.h"

#define CONTENTS_MAX ((size_t)64 << 20)

static void add_part(struct cg_serve *sv, const json_t *args, struct cg_buf *data, struct cg_buf *b)
{
        size_t from = (size_t)json_integer_value(json_object_get(args, "from"));
        size_t length = (size_t)json_integer_value(json_object_get(args, "length"));
        bool text = cg_serve_text_of(data->data, data->len, true) == data->len;
        const char *uri = json_string_value(json_object_get(args, "uri"));
        size_t begin, end;

        /* Before the part is cut out, so that no border leaves half of one. */
        if (text)
                cg_secrets_redact_buf(&sv->secrets, data);
        begin = text ? cg_cut_place(data, 0, from) : CG_MIN(from, data->len);
        end = text ? cg_cut_place(data, begin, length) : begin + CG_MIN(length, data->len - begin);
        cg_buf_addf(b, "{\"contents\":[{\"mimeType\":\"%s\",\"uri\":",
                    text ? "text/plain" : "application/octet-stream");
        cg_json_quote(b, uri, strlen(uri));
        if (text) {
                cg_buf_adds(b, ",\"text\":");
                cg_json_quote(b, data->data + begin, end - begin);
        } else {
                cg_buf_adds(b, ",\"blob\":\"");
                cg_base64_add(b, data->data + begin, end - begin);
                cg_buf_adds(b, "\"");
        }
        cg_buf_addf(b, ",\"_meta\":{\"cellgate/%s\":%zu", text ? "characters" : "bytes",
                    text ? cg_cut_count(data->data, data->len) : data->len);
        if (end < data->len)
                cg_buf_addf(b, ",\"cellgate/next\":\"%s?from=%zu&length=%zu\"",
                            json_string_value(json_object_get(args, "known")),
                            text ? cg_cut_count(data->data, end) : end, length);
        cg_buf_adds(b, "}}]");
}

int cg_serve_read_artifact(struct cg_serve_session *s, struct cg_job *job, struct cg_answer *a,
                           struct cg_err *err)
{
        cg_auto_buf struct cg_buf b = { .max = CONTENTS_MAX }, data = { .max = CONTENTS_MAX };
        cg_auto_json json_t *args = json_loads(job->args, 0, NULL);
        char digest[CG_SHA256_HEX], *content;
        size_t len;

        /* One byte more than the file may have, so that a longer one has another digest. */
        if (cg_session_files_read(s->session, json_string_value(json_object_get(args, "path")) ?: "", 0,
                                  CG_STRUCTURED_MAX_FILE + 1, 0, &content, &len, err) < 0)
                return -1;
        cg_sha256_hex(content, len, digest);
        cg_buf_add(&data, content, len);
        cg_buf_terminate(&data);
        cg_free(content);
        if (cg_buf_end(&data, err) < 0)
                return -1;
        if (strcmp(digest, json_string_value(json_object_get(args, "sha256")) ?: "") != 0)
                return cg_fail(err, CG_E_STATE, "the file has changed");
        add_part(s->sv, args, &data, &b);
        job->contents = cg_buf_steal(&b, NULL);
        return cg_made(job->contents, "resources/read", err);
}
