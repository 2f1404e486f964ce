/* Loads libcurl. Linked into the tool server and the command line. */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "mcp/http/curl.h"

int cg_curl_load(struct cg_curl *c, struct cg_err *err)
{
        /* Never unloaded: its threads and its TLS library would outlive it. */
        const int flags = RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE;
        void *lib = dlopen("libcurl-gnutls.so.4", flags);
        const curl_version_info_data *v;

        if (!lib)
                lib = dlopen("libcurl.so.4", flags);
        if (!lib)
                return cg_fail(err, CG_E_UNSUPPORTED,
                               "MCP servers with a \"url\" need libcurl, which cannot be loaded (%s): "
                               "install libcurl3-gnutls or libcurl4",
                               dlerror());
#define X(name) \
        *(void **)&c->name = dlsym(lib, "curl_" #name); \
        if (!c->name) \
                return cg_fail(err, CG_E_UNSUPPORTED, \
                               "libcurl has no curl_" #name ": it must be 7.87 or newer");
        CG_CURL_FUNCTIONS(X)
#undef X
        if (c->global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK) /* counted: may be called again */
                return cg_fail(err, CG_E_UNSUPPORTED, "libcurl cannot be initialised");
        v = c->version_info(CURLVERSION_NOW);
        if (v->version_num < 0x075700)
                return cg_fail(err, CG_E_UNSUPPORTED, "libcurl %s is too old: 7.87 or newer is needed",
                               v->version);
        /* A lookup in the loop's thread would stop every session. */
        if (!(v->features & CURL_VERSION_ASYNCHDNS))
                return cg_fail(err, CG_E_UNSUPPORTED,
                               "libcurl %s looks names up without threads: install Debian's libcurl",
                               v->version);
        if (v->cainfo)
                snprintf(c->bundle, sizeof(c->bundle), "%s", v->cainfo);
        else if (v->capath)
                snprintf(c->bundle, sizeof(c->bundle), "%s/ca-certificates.crt", v->capath);
        if (access(c->bundle, R_OK) < 0)
                c->bundle[0] = '\0';
        c->gnutls = v->ssl_version && strstr(v->ssl_version, "GnuTLS");
        return 0;
}
