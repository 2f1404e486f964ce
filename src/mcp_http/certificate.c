/*
 * The certificate that the front of cellgate-mcp-http serves, which the monitor may replace: GnuTLS
 * asks for it at each handshake.
 */
#include <gnutls/abstract.h>
#include "mcp_http/front.h"

#define MAX_CHAIN 32u

struct certificate {
        gnutls_pcert_st chain[MAX_CHAIN];
        unsigned n;
        gnutls_privkey_t key;
};

/* GnuTLS's callback has no argument of ours. */
static struct certificate *served;

int cg_hf_certificate_give(gnutls_session_t session, const gnutls_datum_t *authorities, int n_authorities,
                           const gnutls_pk_algorithm_t *algorithms, int n_algorithms, gnutls_pcert_st **chain,
                           unsigned int *n, gnutls_privkey_t *key)
{
        *chain = served->chain;
        *n = served->n;
        *key = served->key;
        return 0;
}

int cg_hf_certificate_set(struct hf_tls *tls, struct cg_err *err)
{
        struct certificate *c = calloc(1, sizeof(*c));
        gnutls_datum_t cert = { (unsigned char *)tls->cert, (unsigned)strlen(tls->cert) },
                       key = { (unsigned char *)tls->key, (unsigned)strlen(tls->key) };
        int r;

        if (!c)
                return cg_fail(err, CG_E_NOMEM, "certificate");
        c->n = MAX_CHAIN;
        r = gnutls_pcert_list_import_x509_raw(c->chain, &c->n, &cert, GNUTLS_X509_FMT_PEM, 0);
        if (r == 0)
                r = gnutls_privkey_init(&c->key);
        if (r == 0)
                r = gnutls_privkey_import_x509_raw(c->key, &key, GNUTLS_X509_FMT_PEM, NULL, 0);
        explicit_bzero(tls->key, sizeof(tls->key));
        if (r < 0) {
                free(c);
                return cg_fail(err, CG_E_INVAL, "certificate: %s", gnutls_strerror(r));
        }
        /* The former one is not freed: a handshake may be using it, and renewals are few. */
        served = c;
        return 0;
}
