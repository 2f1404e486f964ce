/* SHA-256 of one text, for programs that link nettle. */
#pragma once

#include <nettle/sha2.h>
#include "base/text.h"

#define CG_SHA256_HEX (2 * SHA256_DIGEST_SIZE + 1)

static inline void cg_sha256(const void *data, size_t len, unsigned char ret[SHA256_DIGEST_SIZE])
{
        struct sha256_ctx sha;

        sha256_init(&sha);
        sha256_update(&sha, len, data);
        sha256_digest(&sha, SHA256_DIGEST_SIZE, ret);
}

/* As text. */
static inline void cg_sha256_hex(const void *data, size_t len, char ret[CG_SHA256_HEX])
{
        unsigned char sum[SHA256_DIGEST_SIZE];

        cg_sha256(data, len, sum);
        cg_hex(ret, sum, sizeof(sum));
}
