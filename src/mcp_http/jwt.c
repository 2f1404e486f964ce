/* See jwt.h. */
#include "mcp_http/jwt.h"

#include <gnutls/abstract.h>
#include <gnutls/crypto.h>
#include <nettle/sha2.h>
#include "base/base64.h"
#include "base/json.h"
#include "mcp/oauth/parse.h"

#define MAX_KEYS     64u
#define MIN_RSA_BITS 2048u
#define MAX_RSA_BITS 8192u
#define MAX_SUBJECT  255u
/* More would only cost time: a token is used again and again. */
#define MAX_VALID_S 86400

/* By which the "alg" of a token is accepted, and only for a key of this type. */
static const struct algorithm {
        const char *name, *type, *curve;
        gnutls_sign_algorithm_t sign;
        gnutls_ecc_curve_t ecc;
        size_t size; /* of a coordinate, and of half a signature */
} algorithms[] = {
        { "RS256", "RSA", NULL, GNUTLS_SIGN_RSA_SHA256, GNUTLS_ECC_CURVE_INVALID, 0 },
        { "ES256", "EC", "P-256", GNUTLS_SIGN_ECDSA_SHA256, GNUTLS_ECC_CURVE_SECP256R1, 32 },
        { "EdDSA", "OKP", "Ed25519", GNUTLS_SIGN_EDDSA_ED25519, GNUTLS_ECC_CURVE_ED25519, 32 },
};

struct cg_jwks {
        size_t n;
        struct jwk {
                const struct algorithm *algorithm;
                char *id; /* NULL: none */
                gnutls_pubkey_t key;
        } keys[MAX_KEYS];
};

/* NULL: absent, or no string. */
static const char *str(const json_t *o, const char *key)
{
        const char *s = NULL;

        return cg_json_str(o, key, NULL, &s, NULL) < 0 ? NULL : s;
}

static int decode(const char *text, size_t len, const char *what, struct cg_buf *ret, struct cg_err *err)
{
        static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
        char plain[CG_HF_MAX_JWT];

        for (size_t i = 0; i < len && i < sizeof(plain); i++) {
                plain[i] = text[i] == '-' ? '+' : text[i];
                if (text[i] == '_')
                        plain[i] = '/';
        }
        /* First: cg_base64_decode() accepts more. */
        if (len > sizeof(plain) || strspn(text, digits) < len || cg_base64_decode(plain, len, ret, NULL) < 0)
                return cg_fail(err, CG_E_PARSE, "%s is not base64url", what);
        return 0;
}

static gnutls_datum_t datum(const char *p, size_t len)
{
        return (gnutls_datum_t){ (unsigned char *)(uintptr_t)p, (unsigned)len };
}

/* ---- keys */

/* A member of a key as bytes; false: it is absent or malformed. */
static bool bytes(const json_t *o, const char *name, struct cg_buf *ret, gnutls_datum_t *d)
{
        const char *text = str(o, name);

        if (!text || decode(text, strlen(text), name, ret, NULL) < 0)
                return false;
        *d = datum(ret->data, ret->len);
        return true;
}

static bool import_rsa(gnutls_pubkey_t key, const json_t *o)
{
        cg_auto_buf struct cg_buf n = { .max = CG_HF_MAX_JWT }, e = { .max = CG_HF_MAX_JWT };
        gnutls_datum_t modulus, exponent;
        unsigned bits = 0;

        return bytes(o, "n", &n, &modulus) && bytes(o, "e", &e, &exponent) &&
               gnutls_pubkey_import_rsa_raw(key, &modulus, &exponent) == 0 &&
               gnutls_pubkey_get_pk_algorithm(key, &bits) == GNUTLS_PK_RSA && bits >= MIN_RSA_BITS &&
               bits <= MAX_RSA_BITS;
}

static bool import_curve(gnutls_pubkey_t key, const struct algorithm *a, const json_t *o)
{
        cg_auto_buf struct cg_buf bx = { .max = CG_HF_MAX_JWT }, by = { .max = CG_HF_MAX_JWT };
        bool has_y = a->ecc == GNUTLS_ECC_CURVE_SECP256R1;
        gnutls_datum_t x, y;

        if (!bytes(o, "x", &bx, &x) || x.size != a->size)
                return false;
        if (has_y && (!bytes(o, "y", &by, &y) || y.size != a->size))
                return false;
        return gnutls_pubkey_import_ecc_raw(key, a->ecc, &x, has_y ? &y : NULL) == 0;
}

/* False: it is for something else, or malformed. */
static bool import(struct jwk *ret, const json_t *o)
{
        const char *type = str(o, "kty"), *curve = str(o, "crv"), *use = str(o, "use"), *alg = str(o, "alg"),
                   *id = str(o, "kid");
        struct jwk k = { .algorithm = algorithms };

        while (k.algorithm < algorithms + CG_ARRAY_LEN(algorithms) &&
               (!type || strcmp(type, k.algorithm->type) != 0 ||
                (k.algorithm->curve && (!curve || strcmp(curve, k.algorithm->curve) != 0))))
                k.algorithm++;
        if (k.algorithm == algorithms + CG_ARRAY_LEN(algorithms) || (use && strcmp(use, "sig") != 0) ||
            (alg && strcmp(alg, k.algorithm->name) != 0) || gnutls_pubkey_init(&k.key) < 0)
                return false;
        k.id = cg_strdup(id);
        if ((id && !k.id) ||
            !(k.algorithm->size ? import_curve(k.key, k.algorithm, o) : import_rsa(k.key, o))) {
                gnutls_pubkey_deinit(k.key);
                free(k.id);
                return false;
        }
        *ret = k;
        return true;
}

int cg_jwks_parse(const char *text, size_t len, struct cg_jwks **ret, struct cg_err *err)
{
        cg_auto_json json_t *j = NULL;
        struct cg_jwks *k;
        const json_t *o;
        size_t i;

        if (cg_json_object(text, len, "the key set", &j, err) < 0)
                return err ? err->code : CG_E_PARSE;
        if (json_array_size(json_object_get(j, "keys")) > MAX_KEYS)
                return cg_fail(err, CG_E_LIMIT, "the key set has more than %u keys", MAX_KEYS);
        k = calloc(1, sizeof(*k));
        if (!k)
                return cg_fail(err, CG_E_NOMEM, "key set");
        json_array_foreach(json_object_get(j, "keys"), i, o) {
                k->n += import(&k->keys[k->n], o);
        }
        if (!k->n) {
                cg_jwks_free(k);
                return cg_fail(err, CG_E_NOTFOUND,
                               "the key set has no key for signatures by RS256 (of %u to %u bits), ES256 or "
                               "EdDSA (Ed25519)",
                               MIN_RSA_BITS, MAX_RSA_BITS);
        }
        *ret = k;
        return 0;
}

struct cg_jwks *cg_jwks_free(struct cg_jwks *k)
{
        for (size_t i = 0; k && i < k->n; i++) {
                gnutls_pubkey_deinit(k->keys[i].key);
                free(k->keys[i].id);
        }
        free(k);
        return NULL;
}

/* ---- the signature */

/* JWTs have the two numbers of ECDSA one behind the other; GnuTLS takes DER, without zeros. */
static bool as_der(const struct cg_buf *raw, size_t half, gnutls_datum_t *ret)
{
        gnutls_datum_t n[2];

        if (raw->len != 2 * half)
                return false;
        for (size_t i = 0; i < 2; i++) {
                n[i] = datum(raw->data + i * half, half);
                for (; n[i].size > 1 && !*n[i].data; n[i].size--)
                        n[i].data++;
        }
        return gnutls_encode_rs_value(ret, &n[0], &n[1]) == 0;
}

static int check_signature(const struct cg_jwks *k, const struct algorithm *a, const char *id,
                           gnutls_datum_t data, gnutls_datum_t signature, struct cg_err *err)
{
        bool known = false;

        for (size_t i = 0; i < k->n; i++) {
                const struct jwk *key = &k->keys[i];

                if (key->algorithm != a || (id && key->id && strcmp(id, key->id) != 0))
                        continue;
                if (gnutls_pubkey_verify_data2(key->key, a->sign, 0, &data, &signature) >= 0)
                        return 0;
                known |= id && key->id;
        }
        cg_fail(err, CG_E_INVAL,
                known ? "the signature of the token is wrong"
                      : "the issuer publishes no key with which the token is signed");
        return known ? CG_E_INVAL : CG_JWT_NO_KEY;
}

static int check_header(const char *text, size_t len, json_t **ret, const struct algorithm **algorithm,
                        struct cg_err *err)
{
        static const char *const types[] = { "JWT", "at+jwt", "application/at+jwt" };
        cg_auto_json json_t *j = NULL;
        const char *type, *name;
        size_t i = 0;

        if (cg_json_object(text, len, "the header of the token", &j, err) < 0)
                return -1;
        type = str(j, "typ");
        name = str(j, "alg");
        while (i < CG_ARRAY_LEN(algorithms) && (!name || strcmp(name, algorithms[i].name) != 0))
                i++;
        if (i == CG_ARRAY_LEN(algorithms))
                return cg_fail(err, CG_E_INVAL, "the token is not signed by RS256, ES256 or EdDSA");
        *algorithm = &algorithms[i];
        for (i = 0; type && i < CG_ARRAY_LEN(types) && strcasecmp(type, types[i]) != 0;)
                i++;
        if (i == CG_ARRAY_LEN(types))
                return cg_fail(err, CG_E_INVAL, "the token is no access token but of another type (typ)");
        if (json_object_get(j, "crit"))
                return cg_fail(err, CG_E_INVAL, "the token needs an extension that is not supported (crit)");
        *ret = CG_STEAL(j);
        return 0;
}

int cg_jwt_verify(const struct cg_jwks *k, const char *token, struct cg_buf *claims, struct cg_err *err)
{
        cg_auto_buf struct cg_buf head = { .max = CG_HF_MAX_JWT }, raw = { .max = CG_HF_MAX_JWT };
        const char *dot = strchr(token, '.'), *last = dot ? strchr(dot + 1, '.') : NULL;
        const struct algorithm *a = NULL;
        cg_auto_json json_t *header = NULL;
        gnutls_datum_t signature, der = { 0 };
        int r;

        if (!last || strchr(last + 1, '.'))
                return cg_fail(err, CG_E_PARSE, "the token is not a signed JWT");
        if (decode(token, (size_t)(dot - token), "the header of the token", &head, err) < 0 ||
            check_header(head.data, head.len, &header, &a, err) < 0 ||
            decode(last + 1, strlen(last + 1), "the signature of the token", &raw, err) < 0)
                return -1;
        signature = datum(raw.data, raw.len);
        if (a->sign == GNUTLS_SIGN_ECDSA_SHA256) {
                if (!as_der(&raw, a->size, &der))
                        return cg_fail(err, CG_E_PARSE, "the signature of the token is malformed");
                signature = der;
        }
        r = check_signature(k, a, str(header, "kid"), datum(token, (size_t)(last - token)), signature, err);
        gnutls_free(der.data);
        return r ?: decode(dot + 1, (size_t)(last - dot - 1), "the claims of the token", claims, err);
}

/* ---- the claims */

/* A string, or an array of which one is. */
static bool names(const json_t *v, const char *text)
{
        const json_t *member;
        size_t i;

        json_array_foreach(v, i, member) {
                if (json_is_string(member) && names(member, text))
                        return true;
        }
        return json_is_string(v) && json_string_length(v) == strlen(text) &&
               strcmp(json_string_value(v), text) == 0;
}

/* A string of names, or an array. */
static void add_scopes(char **set, const json_t *v)
{
        const json_t *member;
        size_t i;

        json_array_foreach(v, i, member) {
                if (json_is_string(member))
                        add_scopes(set, member);
        }
        if (json_is_string(v))
                cg_oauth_scopes_add(set, json_string_value(v), NULL);
}

/* "scope" is RFC 9068's; large issuers have "scp". */
static bool has_scopes(const json_t *claims, const char *wanted)
{
        cg_auto_free char *set = NULL;

        add_scopes(&set, json_object_get(claims, "scope"));
        add_scopes(&set, json_object_get(claims, "scp"));
        return cg_oauth_scopes_have(set, wanted);
}

int cg_jwt_claims(const char *text, size_t len, const struct cg_jwt_rules *rules,
                  unsigned char owner[CG_HF_OWNER], int64_t *valid_s, struct cg_err *err)
{
        cg_auto_json json_t *j = NULL;
        const json_t *end, *start;
        struct sha256_ctx sha;
        const char *subject;
        bool approver;
        double left;

        if (cg_json_object(text, len, "the claims of the token", &j, err) < 0)
                return -1;
        if (!names(json_object_get(j, "iss"), rules->issuer) || json_is_array(json_object_get(j, "iss")))
                return cg_fail(err, CG_E_INVAL, "the token is of another issuer (iss)");
        if (!names(json_object_get(j, "aud"), rules->audience))
                return cg_fail(err, CG_E_INVAL, "the token is for another server (aud); it must be for %s",
                               rules->audience);
        end = json_object_get(j, "exp");
        start = json_object_get(j, "nbf");
        if (!json_is_number(end) || (start && !json_is_number(start)))
                return cg_fail(err, CG_E_INVAL, "the token does not say when it ends (exp), or begins (nbf)");
        left = json_number_value(end) + CG_JWT_SKEW_S - (double)rules->now_s;
        if (left <= 0)
                return cg_fail(err, CG_E_INVAL, "the token has expired (exp)");
        if (start && json_number_value(start) > (double)(rules->now_s + CG_JWT_SKEW_S))
                return cg_fail(err, CG_E_INVAL, "the token is not valid yet (nbf)");
        /* A stolen token that is bound to a key must not work here either. */
        if (json_object_get(j, "cnf"))
                return cg_fail(err, CG_E_INVAL,
                               "the token is bound to a key of the client's (cnf), which is not supported");
        subject = str(j, "sub");
        if (!subject || !*subject || strlen(subject) > MAX_SUBJECT)
                return cg_fail(err, CG_E_INVAL, "the token does not say whom it is for (sub)");
        approver = rules->approver[0] && has_scopes(j, rules->approver);
        if (!approver && !has_scopes(j, rules->scope)) {
                cg_fail(err, CG_E_INVAL, "the token lacks a scope: it needs %s", rules->scope);
                return CG_JWT_NO_SCOPE;
        }
        sha256_init(&sha);
        sha256_update(&sha, strlen(rules->issuer) + 1, (const uint8_t *)rules->issuer);
        sha256_update(&sha, strlen(subject), (const uint8_t *)subject);
        sha256_digest(&sha, CG_HF_OWNER, owner);
        cg_hf_set_approver(owner, approver);
        *valid_s = left < MAX_VALID_S ? (int64_t)left : MAX_VALID_S;
        return 0;
}
