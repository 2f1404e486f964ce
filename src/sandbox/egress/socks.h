/* SOCKS 5 (RFC 1928, RFC 1929), server: greeting, user and password (any), CONNECT. Pure. */
#pragma once

#include "base/buf.h"
#include "sandbox/settings/domain.h"

/* The longest of the messages below: user and password. */
#define CG_SOCKS_MAX       513
#define CG_SOCKS_REPLY_LEN 10

#define CG_SOCKS_MORE 1 /* the message is not whole yet */

enum cg_socks_method { CG_SOCKS_NO_AUTH = 0, CG_SOCKS_PASSWORD = 2, CG_SOCKS_NO_METHOD = 0xff };

enum cg_socks_code {
        CG_SOCKS_OK = 0,
        CG_SOCKS_FAILED = 1,
        CG_SOCKS_NOT_ALLOWED = 2,
        CG_SOCKS_UNREACHABLE = 4,
        CG_SOCKS_NO_COMMAND = 7,
        CG_SOCKS_NO_ADDRESS_TYPE = 8,
};

/* Each: 0 with *used, CG_SOCKS_MORE, or CG_E_PROTO: not SOCKS 5 (close; there is no answer). */
int cg_socks_greeting(const uint8_t *p, size_t len, size_t *used, enum cg_socks_method *ret,
                      struct cg_err *err);
int cg_socks_password(const uint8_t *p, size_t len, size_t *used, struct cg_err *err);

struct cg_socks_request {
        struct cg_host host;
        uint16_t port;
        /* CG_SOCKS_OK: go on; else the code to answer, with the reason in @err; no host is set */
        enum cg_socks_code code;
};
int cg_socks_request(const uint8_t *p, size_t len, size_t *used, struct cg_socks_request *ret,
                     struct cg_err *err);

void cg_socks_reply(enum cg_socks_code code, uint8_t buf[CG_SOCKS_REPLY_LEN]);

/*
 * The banner of an SSH server, and SSH_MSG_DISCONNECT before any keys: an SSH client prints
 * @reason. To be sent after CG_SOCKS_OK, in place of a connection.
 */
void cg_socks_ssh_refusal(const char *reason, struct cg_buf *out);
