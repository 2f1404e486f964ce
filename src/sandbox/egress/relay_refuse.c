/* Replies to clients that get no connection, in their own protocol. */
#include "sandbox/egress/relay_int.h"

#include <stdio.h>
#include <string.h>

static const char *phrase_of(unsigned int status)
{
        switch (status) {
        case 400:
                return "Bad Request";
        case 403:
                return "Forbidden";
        case 421:
                return "Misdirected Request";
        case 431:
                return "Request Header Fields Too Large";
        case 505:
                return "HTTP Version Not Supported";
        default:
                return "Bad Gateway";
        }
}

/* A status line has printable ASCII only, and not too much of it. */
static void safe_phrase(const char *s, char *buf, size_t size)
{
        size_t n = 0;

        for (; s[n] && n + 1 < size; n++)
                buf[n] = s[n] >= ' ' && s[n] <= '~' ? s[n] : '?';
        buf[n] = '\0';
}

/* @phrase: NULL for the usual one; @mark: of X-Proxy-Error, or NULL. */
static void respond(struct conn *c, unsigned int status, const char *phrase, const char *mark,
                    const char *body)
{
        char words[CG_POLICY_REASON_MAX + 1];

        safe_phrase(phrase ? phrase : phrase_of(status), words, sizeof(words));
        cg_buf_addf(&c->reply, NULL, "HTTP/1.1 %u %s\r\nContent-Type: text/plain\r\n", status, words);
        if (mark)
                cg_buf_addf(&c->reply, NULL, "X-Proxy-Error: %s\r\n", mark);
        cg_buf_addf(&c->reply, NULL, "Content-Length: %zu\r\nConnection: close\r\n\r\n", strlen(body));
        if (!c->is_head)
                cg_buf_adds(&c->reply, body, NULL);
        cg_conn_linger(c);
}

void cg_conn_reply_socks(struct conn *c, enum cg_socks_code code)
{
        uint8_t reply[CG_SOCKS_REPLY_LEN];

        cg_socks_reply(code, reply);
        cg_buf_add(&c->reply, reply, sizeof(reply), NULL);
}

static void refuse_socks(struct conn *c, const struct cg_egress_msg *m)
{
        switch ((enum cg_egress_result)m->result) {
        case CG_EGRESS_DENIED:
                /* ssh prints a disconnect message, but not the code of a SOCKS reply. */
                cg_conn_reply_socks(c, c->port == 22 ? CG_SOCKS_OK : CG_SOCKS_NOT_ALLOWED);
                if (c->port == 22)
                        cg_socks_ssh_refusal(m->text, &c->reply, NULL);
                break;
        case CG_EGRESS_DENIED_ADDRESS:
                cg_conn_reply_socks(c, CG_SOCKS_NOT_ALLOWED);
                break;
        case CG_EGRESS_DENIED_TUNNEL:
                cg_conn_reply_socks(c, CG_SOCKS_FAILED);
                break;
        default:
                cg_conn_reply_socks(c, CG_SOCKS_UNREACHABLE);
        }
        cg_conn_linger(c);
}

/* srt's text first; then the destination, and how to allow it. */
static void refuse_http(struct conn *c, const struct cg_egress_msg *m)
{
        char body[3072], to[CG_AUTHORITY_MAX];
        const char *how = m->extra;
        bool tunnel = c->kind == CG_EGRESS_CONNECT;

        cg_host_authority(&c->host, c->port, 0, to, sizeof(to));
        switch ((enum cg_egress_result)m->result) {
        case CG_EGRESS_DENIED:
                snprintf(body, sizeof(body), "Connection blocked by network allowlist\n%s: %s%s%s\n", to,
                         m->text, how[0] ? "; to allow it, " : "", how);
                respond(c, 403, tunnel ? m->text : NULL, "blocked-by-allowlist", body);
                return;
        case CG_EGRESS_DENIED_ADDRESS:
                snprintf(body, sizeof(body), "Connection to %s blocked: %s\n", c->host.text, m->text);
                respond(c, 403, tunnel ? m->text : NULL, "blocked-by-sandbox-runtime", body);
                return;
        case CG_EGRESS_DENIED_TUNNEL:
                snprintf(body, sizeof(body), "%s\n", m->text);
                respond(c, 403, NULL, "blocked-by-sandbox-runtime", body);
                return;
        default:
                snprintf(body, sizeof(body), "Bad Gateway\n%s: %s\n", to, m->text);
                respond(c, 502, NULL, NULL, body);
        }
}

void cg_conn_refuse(struct conn *c, const struct cg_egress_msg *m)
{
        if (c->kind == CG_EGRESS_SOCKS)
                refuse_socks(c, m);
        else if (c->kind == CG_EGRESS_RAW_SOCKS)
                cg_conn_end(c);
        else
                refuse_http(c, m);
}

void cg_conn_bad_gateway(struct conn *c, const char *why)
{
        char body[512], to[CG_AUTHORITY_MAX];

        if (c->kind == CG_EGRESS_SOCKS) {
                cg_conn_reply_socks(c, CG_SOCKS_UNREACHABLE);
                cg_conn_linger(c);
                return;
        }
        cg_host_authority(&c->host, c->port, 0, to, sizeof(to));
        snprintf(body, sizeof(body), "Bad Gateway\n%s: %s\n", to, why);
        respond(c, 502, NULL, NULL, body);
}

void cg_conn_note(struct conn *c, const char *why)
{
        cg_relay_tell(c, CG_EGRESS_NOTE, why);
}

void cg_conn_refuse_request(struct conn *c, unsigned int status, const char *why)
{
        char body[1200];

        snprintf(body, sizeof(body), "%s\n", why);
        cg_conn_note(c, why);
        respond(c, status, NULL, NULL, body);
}
