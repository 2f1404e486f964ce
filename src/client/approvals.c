/* libcellgate: questions of sessions of other clients, and decisions about them. */
#include "client/internal.h"

#include <sys/eventfd.h>
#include "base/approval_digest.h"
#include "base/json_text.h"

/* Members around the arguments and the code, both escaped. */
#define MAX_SHOWN ((size_t)CG_MAX_APPROVAL_TEXT * 6 + 65536u + 1024u)

int cg_client_event_fd(struct cg_client *c, int *fd, struct cg_err *err)
{
        int made;
        CG_HOLD(&c->lock);

        if (*fd < 0)
                *fd = eventfd(1, EFD_CLOEXEC | EFD_NONBLOCK);
        made = *fd;
        return made < 0 ? cg_fail_errno(err, "eventfd") : made;
}

CG_API int cg_client_approvals_fd(struct cg_client *c, struct cg_err *err)
{
        return cg_client_event_fd(c, &c->approvals_fd, err);
}

CG_API int cg_client_approvals(struct cg_client *c, char **ret, struct cg_err *err)
{
        uint64_t n;

        /* First, so that a change after the answer makes it readable again. */
        pthread_mutex_lock(&c->lock);
        if (c->approvals_fd >= 0 && !c->broken)
                eventfd_read(c->approvals_fd, &n);
        pthread_mutex_unlock(&c->lock);
        return cg_client_request(c, CG_HOST_APPROVALS_LIST, 0, NULL, c->timeout_ms, NULL, ret, err);
}

static void add_member(struct cg_buf *b, const char *key, const char *text, size_t len)
{
        cg_buf_addf(b, ",\"%s\":", key);
        cg_json_quote(b, text, len);
}

CG_API int cg_client_approval(struct cg_client *c, const char *id, char **ret, struct cg_err *err)
{
        cg_auto_buf struct cg_buf b = { .max = MAX_SHOWN };
        cg_auto_msg struct cg_msg m = CG_MSG_EMPTY;
        cg_auto_json json_t *body = NULL;
        const char *server, *method, *tool, *text, *code;
        char digest[CG_APPROVAL_DIGEST];
        struct cg_bytes args;
        size_t len, code_len;
        int r = cg_client_request_msg(c, CG_HOST_APPROVAL_SHOW, json_pack("{s:s}", "id", id), &m, err);

        if (r < 0)
                return r;
        if (cg_msg_json(&m, &body, err) < 0 || cg_json_str(body, "server", "", &server, err) < 0 ||
            cg_json_str(body, "method", "", &method, err) < 0 ||
            cg_json_str(body, "tool", "", &tool, err) < 0)
                return CG_E_PROTO;
        args.data = cg_msg_raw(&m, 0, &args.len);
        code = cg_msg_raw(&m, 1, &code_len);
        cg_approval_digest(server, method, tool, args, digest);
        text = cg_msg_body(&m, &len);
        while (len && text[len - 1] != '}') /* it is an object: blanks may follow */
                len--;
        cg_buf_add(&b, text, len - 1);
        add_member(&b, "digest", digest, 64);
        add_member(&b, "arguments", args.data, args.len);
        add_member(&b, "code", code, code_len);
        cg_buf_adds(&b, "}");
        if (cg_buf_end(&b, err) < 0)
                return b.failed;
        *ret = CG_STEAL(b.data);
        return 0;
}

CG_API int cg_client_decide(struct cg_client *c, const char *id, const char *digest, int accept,
                            const char *reason, struct cg_err *err)
{
        json_t *body = json_pack("{s:s, s:s, s:b, s:s*}", "id", id, "digest", digest, "accept", accept,
                                 "reason", reason);

        if (!body)
                return cg_fail(err, CG_E_INVAL, "the question, its digest and the reason must be UTF-8");
        return cg_client_request(c, CG_HOST_APPROVAL_DECIDE, 0, body, c->timeout_ms, NULL, NULL, err);
}
