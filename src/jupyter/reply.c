/* Replies to requests, and errors of ours. Runs in `cellgate jupyter`. */
#include "jupyter/internal.h"

#include "base/json.h"

/* The members of an error of ours. The traceback has name and text: some clients show only that. */
static void add_error(struct cg_buf *b, const char *ename, const char *evalue)
{
        cg_auto_buf struct cg_buf line = { .max = 65536 };

        cg_buf_addf(&line, "%s: %s", ename, evalue);
        cg_buf_fail(b, line.failed);
        cg_buf_addf(b, "\"ename\":\"%s\",\"evalue\":", ename);
        cg_json_quote(b, evalue, strlen(evalue));
        cg_buf_adds(b, ",\"traceback\":[");
        cg_json_quote(b, cg_buf_str(&line), line.len);
        cg_buf_adds(b, "]");
}

void cg_jreq_show_error(struct front *f, struct cg_origin *o, const char *ename, const char *evalue)
{
        cg_auto_buf struct cg_buf b = { .max = 262144 };

        cg_buf_adds(&b, "{");
        add_error(&b, ename, evalue);
        cg_buf_adds(&b, "}");
        if (!b.failed)
                cg_iopub_send(&f->iopub, o, "error", cg_buf_slice(&b));
}

void cg_jreq_reply_relay(struct front *f, struct jreq *r, struct cg_jout *out)
{
        struct cg_slice ids[CG_JMSG_MAX_IDS];
        struct cg_err err;

        if (!r->spec->reply) {
                if (out->release)
                        out->release(out->owner);
                return;
        }
        for (size_t i = 0; i < r->msg->m.n_ids; i++)
                ids[i] = cg_jmsg_frame(r->msg, i);
        out->type = r->spec->reply;
        out->ids = ids;
        out->n_ids = r->msg->m.n_ids;
        out->parent = r->msg->m.header;
        cg_iopub_flush(&f->iopub); /* all output is sent before the reply */
        if (cg_jmsg_send(f->sockets.socks[r->channel], &f->sign, &f->me, out, NULL, &err) < 0)
                cg_log(&f->o->log, CG_LOG_ERROR, "%s could not be sent: %s", out->type, err.msg);
        cg_zsock_touch(&f->sockets.z[r->channel]);
}

void cg_jreq_reply(struct front *f, struct jreq *r, struct cg_slice content)
{
        struct cg_jout out = { .content = content };

        cg_jreq_reply_relay(f, r, &out);
}

void cg_jreq_fail(struct front *f, struct jreq *r, const char *ename, const char *evalue)
{
        cg_auto_buf struct cg_buf b = { .max = 65536 };
        cg_auto_free char *info = NULL;
        size_t len = 0;

        if (r->spec->kind == KIND_EXECUTE) {
                if (!r->silent)
                        cg_jreq_show_error(f, r->origin, ename, evalue);
                cg_jreq_cell_reply(f, r, false, f->count, CG_SLICE("{}"), ename, evalue);
                return;
        }
        if (r->spec->kind == KIND_INFO)
                info = cg_info_error(ename, evalue, &len);
        if (info) {
                cg_jreq_reply(f, r, (struct cg_slice){ info, len });
                return;
        }
        cg_buf_addf(&b, "{\"status\":\"error\",\"ename\":\"%s\",\"evalue\":", ename);
        cg_json_quote(&b, evalue, strlen(evalue));
        cg_buf_adds(&b, ",\"traceback\":[]}");
        if (!b.failed)
                cg_jreq_reply(f, r, cg_buf_slice(&b));
}

void cg_jreq_cell_reply(struct front *f, struct jreq *r, bool ok, int64_t count, struct cg_slice json,
                        const char *ename, const char *evalue)
{
        const char *status = ok ? "ok" : "error", *open, *close;
        cg_auto_buf struct cg_buf b = { .max = SIZE_MAX / 2 };
        struct cg_jout out = { .content = { NULL, 0 } };
        struct cg_slice v;
        char metadata[200];

        cg_buf_addf(&b, "{\"status\":\"%s\",\"execution_count\":%" PRId64, status, count);
        if (!cg_json_is_empty(json)) {
                open = memchr(json.p, '{', json.len);
                close = memrchr(json.p, '}', json.len);
                cg_buf_adds(&b, ",");
                cg_buf_add(&b, open + 1, (size_t)(close - open - 1));
        }
        /* The members that clients expect and the kernel's reply does not have. */
        if (!ok && !cg_json_find(json, "ename", &v)) {
                cg_buf_adds(&b, ",");
                add_error(&b, ename, evalue);
        }
        if (!cg_json_find(json, "user_expressions", &v))
                cg_buf_adds(&b, ",\"user_expressions\":{}");
        if (!cg_json_find(json, "payload", &v))
                cg_buf_adds(&b, ",\"payload\":[]");
        cg_buf_adds(&b, "}");
        if (b.failed) {
                cg_jreq_reply(
                        f, r,
                        CG_SLICE(
                                "{\"status\":\"error\",\"ename\":\"MemoryError\",\"evalue\":\"the reply is too large\","
                                "\"traceback\":[],\"execution_count\":0}"));
                return;
        }
        snprintf(metadata, sizeof(metadata),
                 "{\"started\":\"%s\",\"dependencies_met\":true,\"engine\":\"%s\",\"status\":\"%s\"}",
                 r->started, f->me.session, status);
        out.content = cg_buf_slice(&b);
        out.metadata = cg_slice_of(metadata);
        cg_jreq_reply_relay(f, r, &out);
}
