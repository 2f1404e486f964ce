/* cellgate-supervisor: messages to hosts. */
#include "supervisor/host_link.h"

#include <string.h>
#include "base/buf.h"
#include "base/text.h"

static void log_unsent(struct host *h, const struct cg_err *err)
{
        if (err->code != CG_E_CLOSED)
                cg_log(&h->sup->log, CG_LOG_WARN, "cannot send to host %.8s: %s", h->token, err->msg);
}

void cg_sup_host_send(struct host *h, const struct cg_out *out, json_t *body)
{
        struct cg_err err;
        int r;

        if (!h || !h->link) {
                json_decref(body);
                return;
        }
        if (body)
                r = cg_zlink_send_json(&h->link->link, out, body, &err);
        else
                r = cg_zlink_send(&h->link->link, out, &err);
        if (r < 0)
                log_unsent(h, &err);
}

void cg_sup_host_forward(struct host *h, const struct cg_out *out, struct cg_msg *m)
{
        struct cg_err err;

        if (h && h->link && cg_zlink_forward(&h->link->link, out, m, &err) < 0)
                log_unsent(h, &err);
}

json_t *cg_sup_text_json(const char *text)
{
        const unsigned char *p = (const unsigned char *)text;
        size_t left = strlen(text), n;
        cg_auto_buf struct cg_buf b;
        uint32_t c;

        cg_buf_init(&b, left + 1);
        for (; left; p += n, left -= n) {
                n = cg_utf8_next(p, left, &c);
                if (cg_buf_add(&b, n ? (const char *)p : "?", n ? n : 1, NULL) < 0)
                        break;
                n = n ? n : 1;
        }
        return json_stringn(b.data ? b.data : "", b.len);
}

void cg_sup_host_failed(struct host *h, uint64_t session, uint64_t request, const struct cg_err *err)
{
        struct cg_out out = { .type = CG_HOST_FAILED, .session = session, .id = request };

        cg_sup_host_send(h, &out,
                         json_pack("{s:i, s:i, s:o}", "code", err->code, "errno", err->sys_errno, "message",
                                   cg_sup_text_json(err->msg)));
}

struct host *cg_sup_host_by_number(const struct sup *s, uint64_t number)
{
        struct host *h = LIST_FIRST(&s->hosts);

        while (h && h->number != number)
                h = LIST_NEXT(h, entry);
        return h;
}
