/*
 * The digest that names what a question asks: who decides elsewhere sends the digest of what was
 * shown, and the supervisor compares it with that of the question. For programs that link nettle.
 */
#pragma once

#include <nettle/sha2.h>
#include "base/text.h"
#include "base/wire.h"

#define CG_APPROVAL_DIGEST (2 * SHA256_DIGEST_SIZE + 1) /* hexadecimal, with the NUL */

/* SHA-256 of the three words, each with its NUL, and the arguments. */
static inline void cg_approval_digest(const char *server, const char *method, const char *tool,
                                      struct cg_bytes args, char ret[CG_APPROVAL_DIGEST])
{
        unsigned char sum[SHA256_DIGEST_SIZE];
        struct sha256_ctx sha;

        sha256_init(&sha);
        sha256_update(&sha, strlen(server) + 1, (const unsigned char *)server);
        sha256_update(&sha, strlen(method) + 1, (const unsigned char *)method);
        sha256_update(&sha, strlen(tool) + 1, (const unsigned char *)tool);
        sha256_update(&sha, args.len, args.data);
        sha256_digest(&sha, sizeof(sum), sum);
        cg_hex(ret, sum, sizeof(sum));
}
