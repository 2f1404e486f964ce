/*
 * The certificate and the key of --tls-cert and --tls-key. The monitor reads and checks them, so
 * that what is wrong is said at the start, and reads them again when they have changed; the front
 * gets the bytes.
 */
#include <gnutls/gnutls.h>
#include "base/fd.h"
#include "base/path.h"
#include "base/state_dir.h"
#include "mcp_http/monitor.h"

/* Into @ret of @size. A link is followed: renewed certificates are often behind one. */
static int read_pem(const char *option, const char *path, bool secret, char *ret, size_t size,
                    struct cg_err *err)
{
        cg_auto_fd int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
        cg_auto_free char *text = NULL;
        struct stat st;
        size_t len;

        if (fd < 0 || fstat(fd, &st) < 0)
                return cg_fail_errno(err, "%s %s", option, path);
        if (!S_ISREG(st.st_mode))
                return cg_fail(err, CG_E_STATE, "%s %s is not a file", option, path);
        /* Root may give its keys to a group, as Debian does to ssl-cert. */
        if (secret && ((st.st_uid != geteuid() && st.st_uid != 0) ||
                       (st.st_mode & (st.st_uid == 0 && geteuid() != 0 ? 027 : 077))))
                return cg_fail(err, CG_E_STATE,
                               "%s %s must be a file of this user's or root's that others cannot read: "
                               "give it the mode 0600, and a new key if they may have read it",
                               option, path);
        if (cg_read_fd(fd, path, size - 1, &text, &len, err) < 0)
                return cg_err_prefix(err, "%s", option);
        memcpy(ret, text, len + 1);
        explicit_bzero(text, len);
        return 0;
}

int cg_hf_tls(const char *cert, const char *key, struct hf_tls *ret, struct cg_err *err)
{
        gnutls_certificate_credentials_t c = NULL;
        gnutls_datum_t certs, secret;
        int r;

        if (read_pem("--tls-cert", cert, false, ret->cert, sizeof(ret->cert), err) < 0 ||
            read_pem("--tls-key", key, true, ret->key, sizeof(ret->key), err) < 0)
                return -1;
        certs = (gnutls_datum_t){ (unsigned char *)ret->cert, (unsigned)strlen(ret->cert) };
        secret = (gnutls_datum_t){ (unsigned char *)ret->key, (unsigned)strlen(ret->key) };
        r = gnutls_certificate_allocate_credentials(&c);
        if (r == 0)
                r = gnutls_certificate_set_x509_key_mem2(c, &certs, &secret, GNUTLS_X509_FMT_PEM, NULL, 0);
        gnutls_certificate_free_credentials(c);
        if (r < 0)
                return cg_fail(
                        err, CG_E_INVAL,
                        "--tls-cert %s and --tls-key %s: %s (both are PEM files; the certificate comes "
                        "first in its file, those that it depends on follow)",
                        cert, key, gnutls_strerror(r));
        return 0;
}

static bool same(const struct stat *a, const struct stat *b)
{
        return a->st_dev == b->st_dev && a->st_ino == b->st_ino && a->st_size == b->st_size &&
               a->st_mtim.tv_sec == b->st_mtim.tv_sec && a->st_mtim.tv_nsec == b->st_mtim.tv_nsec;
}

int cg_hf_tls_check_hidden(const char *key, struct cg_err *err)
{
        char dir[PATH_MAX], folder[PATH_MAX], real[PATH_MAX];

        if (!realpath(key, real))
                return cg_fail_errno(err, "--tls-key %s", key);
        if (!cg_state_dir(dir) || !realpath(dir, folder))
                return cg_fail(err, CG_E_NOTFOUND, "restart the server: there is no state folder");
        if (cg_path_within(real, folder))
                return 0;
        return cg_fail(err, CG_E_STATE,
                       "restart the server. Cells that run can read a key that has replaced another one, but "
                       "for those below %s, which are renewed without a restart",
                       folder);
}

bool cg_hf_tls_changed(const char *cert, const char *key, struct stat seen[2])
{
        struct stat now[2];
        bool changed;

        if (stat(cert, &now[0]) < 0 || stat(key, &now[1]) < 0) /* one of them is just being replaced */
                return false;
        changed = !same(&now[0], &seen[0]) || !same(&now[1], &seen[1]);
        memcpy(seen, now, sizeof(now));
        return changed;
}
