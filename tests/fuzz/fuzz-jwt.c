/*
 * Access tokens that clients send, their claims, and key sets. Beside memory safety: no input is a
 * token with a valid signature. The first byte selects the parser.
 */
#include "mcp_http/jwt.h"
#include "fuzz.h"

/* Points of the curves; their private keys are nowhere. */
static const char keys_text[] =
        "{\"keys\":[{\"kty\":\"EC\",\"crv\":\"P-256\",\"kid\":\"a\","
        "\"x\":\"MKBCTNIcKUSDii11ySs3526iDZ8AiTo7Tu6KPAqv7D4\","
        "\"y\":\"4Etl6SRW2YiLUrN5vfvVHuhp7x8PxltmWWlbbM4IFyM\"},"
        "{\"kty\":\"OKP\",\"crv\":\"Ed25519\",\"x\":\"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo\"}]}";

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
        static const struct cg_jwt_rules rules = { .issuer = "https://i.example",
                                                   .approver = "decide",
                                                   .audience = "https://a.example/mcp",
                                                   .scope = "run",
                                                   .now_s = 1000000 };
        static struct cg_jwks *fixed;
        unsigned char owner[CG_HF_OWNER];
        uint8_t which = size ? data[0] & 3 : 0;
        size_t len = size ? size - 1 : 0;
        /* Without a byte behind it: reading over the end is seen. */
        char *exact = malloc(len ? len : 1), *text = calloc(1, len + 1);
        struct cg_buf claims = { .max = CG_HF_MAX_JWT };
        struct cg_jwks *k = NULL;
        int64_t valid_s = 0;

        memcpy(exact, size ? data + 1 : data, len);
        memcpy(text, exact, len);
        if (!fixed)
                must(cg_jwks_parse(keys_text, sizeof(keys_text) - 1, &fixed, NULL) == 0);
        if (which == 0)
                must(cg_jwt_verify(fixed, text, &claims, NULL) != 0 && !claims.len);
        else if (which == 1 && cg_jwt_claims(exact, len, &rules, owner, &valid_s, NULL) == 0)
                must(valid_s >= 0 && valid_s <= 86400);
        else if (which == 2 && cg_jwks_parse(exact, len, &k, NULL) == 0)
                must(cg_jwt_verify(k, "e30.e30.e30", &claims, NULL) < 0);
        cg_jwks_free(k);
        cg_buf_fini(&claims);
        free(exact);
        free(text);
        return 0;
}
