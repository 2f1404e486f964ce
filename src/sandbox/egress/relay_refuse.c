/* Replies to clients that get no connection, in their own protocol. */
#include "sandbox/egress/relay_int.h"

/* @phrase: NULL for the usual one; @mark: of X-Proxy-Error, or NULL. */
static void respond(struct conn *c, unsigned int status, const char *phrase, const char *mark,
                    const char *body)
{
        static const struct {
                unsigned int status;
                const char *phrase;
        } usual[] = {
                { 400, "Bad Request" },
                { 403, "Forbidden" },
                { 421, "Misdirected Request" },
                { 431, "Request Header Fields Too Large" },
                { 505, "HTTP Version Not Supported" },
                { 502, "Bad Gateway" },
        };
        char words[CG_POLICY_REASON_MAX + 1];

        for (size_t i = 0; !phrase && i < CG_ARRAY_LEN(usual); i++)
                phrase = usual[i].status == status ? usual[i].phrase : NULL;
        /* A status line has printable ASCII only, and not too much of it. */
        snprintf(words, sizeof(words), "%s", phrase ?: "Bad Gateway");
        for (char *p = words; *p; p++)
                if (*p < ' ' || *p > '~')
                        *p = '?';
        cg_buf_try_addf(&c->reply, NULL, "HTTP/1.1 %u %s\r\nContent-Type: text/plain\r\n", status, words);
        if (mark)
                cg_buf_try_addf(&c->reply, NULL, "X-Proxy-Error: %s\r\n", mark);
        cg_buf_try_addf(&c->reply, NULL, "Content-Length: %zu\r\nConnection: close\r\n\r\n", strlen(body));
        if (!c->is_head)
                cg_buf_try_adds(&c->reply, body, NULL);
        cg_conn_linger(c);
}

void cg_conn_reply_socks(struct conn *c, enum cg_socks_code code)
{
        uint8_t reply[CG_SOCKS_REPLY_LEN];

        cg_socks_reply(code, reply);
        cg_buf_try_add(&c->reply, reply, sizeof(reply), NULL);
}

void cg_conn_bad_gateway(struct conn *c, const char *why)
{
        char body[1400], to[CG_AUTHORITY_MAX];

        if (c->kind == CG_EGRESS_SOCKS) {
                cg_conn_reply_socks(c, CG_SOCKS_UNREACHABLE);
                cg_conn_linger(c);
                return;
        }
        cg_host_authority(&c->host, c->port, 0, to, sizeof(to));
        snprintf(body, sizeof(body), "Bad Gateway\n%s: %s\n", to, why);
        respond(c, 502, NULL, NULL, body);
}

void cg_conn_refuse(struct conn *c, const struct cg_egress_msg *m)
{
        bool socks = c->kind == CG_EGRESS_SOCKS, ssh = socks && c->port == 22;
        const char *phrase = c->kind == CG_EGRESS_CONNECT ? m->text : NULL, *how = m->extra;
        char body[3072], to[CG_AUTHORITY_MAX];

        if (c->kind == CG_EGRESS_RAW_SOCKS) {
                cg_conn_end(c);
                return;
        }
        cg_host_authority(&c->host, c->port, 0, to, sizeof(to));
        switch ((enum cg_egress_result)m->result) {
        case CG_EGRESS_DENIED:
                if (socks) {
                        /* ssh prints a disconnect message, but not the code of a SOCKS reply. */
                        cg_conn_reply_socks(c, ssh ? CG_SOCKS_OK : CG_SOCKS_NOT_ALLOWED);
                        if (ssh)
                                cg_socks_ssh_refusal(m->text, &c->reply);
                        break;
                }
                /* srt's text first; then the destination, and how to allow it. */
                snprintf(body, sizeof(body), "Connection blocked by network allowlist\n%s: %s%s%s\n", to,
                         m->text, how[0] ? "; to allow it, " : "", how);
                respond(c, 403, phrase, "blocked-by-allowlist", body);
                return;
        case CG_EGRESS_DENIED_ADDRESS:
                if (socks) {
                        cg_conn_reply_socks(c, CG_SOCKS_NOT_ALLOWED);
                        break;
                }
                snprintf(body, sizeof(body), "Connection to %s blocked: %s\n", c->host.text, m->text);
                respond(c, 403, phrase, "blocked-by-sandbox-runtime", body);
                return;
        case CG_EGRESS_DENIED_TUNNEL:
                if (socks) {
                        cg_conn_reply_socks(c, CG_SOCKS_FAILED);
                        break;
                }
                snprintf(body, sizeof(body), "%s\n", m->text);
                respond(c, 403, NULL, "blocked-by-sandbox-runtime", body);
                return;
        default:
                cg_conn_bad_gateway(c, m->text);
                return;
        }
        cg_conn_linger(c);
}

void cg_conn_refuse_request(struct conn *c, unsigned int status, const char *why)
{
        char body[1200];

        snprintf(body, sizeof(body), "%s\n", why);
        cg_relay_send(c, CG_EGRESS_NOTE, why);
        respond(c, status, NULL, NULL, body);
}
