/* SOCKS 5, server side. Pure; runs in the part of cellgate-egress that can open nothing. */
#include "sandbox/egress/socks.h"

#define VERSION          5
#define PASSWORD_VERSION 1
#define COMMAND_CONNECT  1
enum { TYPE_IPV4 = 1, TYPE_NAME = 3, TYPE_IPV6 = 4 };

/* SSH's strings have a ceiling of 32 kB; a reason is a sentence. */
#define SSH_REASON_MAX 1000

static int not_socks(struct cg_err *err)
{
        return cg_fail(err, CG_E_PROTO, "not SOCKS 5");
}

int cg_socks_greeting(const uint8_t *p, size_t len, size_t *used, enum cg_socks_method *ret,
                      struct cg_err *err)
{
        if (len >= 1 && p[0] != VERSION)
                return not_socks(err);
        if (len < 2 || len < 2u + p[1])
                return CG_SOCKS_MORE;
        *used = 2u + p[1];
        *ret = CG_SOCKS_NO_METHOD;
        if (memchr(p + 2, CG_SOCKS_NO_AUTH, p[1]))
                *ret = CG_SOCKS_NO_AUTH;
        else if (memchr(p + 2, CG_SOCKS_PASSWORD, p[1]))
                *ret = CG_SOCKS_PASSWORD;
        return 0;
}

int cg_socks_password(const uint8_t *p, size_t len, size_t *used, struct cg_err *err)
{
        size_t at;

        if (len >= 1 && p[0] != PASSWORD_VERSION)
                return not_socks(err);
        if (len < 2)
                return CG_SOCKS_MORE;
        at = 2u + p[1];
        if (len < at + 1 || len < at + 1 + p[at])
                return CG_SOCKS_MORE;
        *used = at + 1 + p[at];
        return 0;
}

/* The length of an address; 0: not known. */
static size_t address_len(const uint8_t *p)
{
        switch (p[3]) {
        case TYPE_IPV4:
                return 4;
        case TYPE_NAME:
                return 1u + p[4];
        case TYPE_IPV6:
                return 16;
        default:
                return 0;
        }
}

int cg_socks_request(const uint8_t *p, size_t len, size_t *used, struct cg_socks_request *ret,
                     struct cg_err *err)
{
        size_t n;

        if (len >= 1 && p[0] != VERSION)
                return not_socks(err);
        if (len < 5)
                return CG_SOCKS_MORE;
        memset(ret, 0, sizeof(*ret));
        n = address_len(p);
        if (n == 0) {
                *used = len;
                ret->code = CG_SOCKS_NO_ADDRESS_TYPE;
                cg_fail(err, CG_E_PROTO, "SOCKS address type %u", p[3]);
                return 0;
        }
        if (len < 4 + n + 2)
                return CG_SOCKS_MORE;
        *used = 4 + n + 2;
        ret->port = (uint16_t)(p[4 + n] << 8 | p[5 + n]);
        if (p[1] != COMMAND_CONNECT) {
                ret->code = CG_SOCKS_NO_COMMAND;
                cg_fail(err, CG_E_PROTO, "SOCKS command %u: only CONNECT", p[1]);
        } else if (ret->port == 0) {
                ret->code = CG_SOCKS_NOT_ALLOWED;
                cg_fail(err, CG_E_INVAL, "port 0");
        } else if (p[3] == TYPE_NAME) {
                if (cg_host_parse((const char *)p + 5, n - 1, &ret->host, err) < 0)
                        ret->code = CG_SOCKS_NOT_ALLOWED;
        } else {
                struct sockaddr_storage sa = { .ss_family = AF_UNSPEC };
                struct cg_addr a = { .family = p[3] == TYPE_IPV4 ? 4 : 6 };
                char text[CG_ADDR_TEXT];

                memcpy(a.b, p + 4, n);
                /* By way of a socket address, so that a mapped address becomes the IPv4 address. */
                cg_addr_to_sockaddr(&a, 0, &sa);
                cg_addr_from_sockaddr((const struct sockaddr *)&sa, &a);
                cg_addr_text(&a, text);
                if (cg_host_parse(text, strlen(text), &ret->host, err) < 0)
                        ret->code = CG_SOCKS_NOT_ALLOWED;
        }
        return 0;
}

void cg_socks_reply(enum cg_socks_code code, uint8_t buf[CG_SOCKS_REPLY_LEN])
{
        memset(buf, 0, CG_SOCKS_REPLY_LEN);
        buf[0] = VERSION;
        buf[1] = (uint8_t)code;
        buf[3] = TYPE_IPV4;
}

static void add_u32(struct cg_buf *out, size_t v)
{
        const uint8_t b[4] = { (uint8_t)(v >> 24), (uint8_t)(v >> 16), (uint8_t)(v >> 8), (uint8_t)v };

        cg_buf_add(out, b, sizeof(b));
}

void cg_socks_ssh_refusal(const char *reason, struct cg_buf *out)
{
        static const uint8_t zero[16] = { 0 };
        char text[SSH_REASON_MAX];
        size_t n = strnlen(reason, sizeof(text)), payload = 1 + 4 + 4 + n + 4, padding;
        uint8_t head[2];

        /* The client prints it on a terminal. */
        for (size_t i = 0; i < n; i++)
                text[i] = (unsigned char)reason[i] < 0x20 || reason[i] == 0x7f ? ' ' : reason[i];
        /* Length, padding and payload together are a multiple of 8, the padding at least 4. */
        padding = 8 - (5 + payload) % 8;
        if (padding < 4)
                padding += 8;
        head[0] = (uint8_t)padding;
        head[1] = 1; /* SSH_MSG_DISCONNECT */
        cg_buf_adds(out, "SSH-2.0-policy_refusal\r\n");
        add_u32(out, 1 + payload + padding);
        cg_buf_add(out, head, sizeof(head));
        add_u32(out, 1); /* host not allowed to connect */
        add_u32(out, n);
        cg_buf_add(out, text, n);
        add_u32(out, 0); /* no language */
        cg_buf_add(out, zero, padding);
}
