/* See proxy.h. */
#include "mcp/http/proxy.h"

#include "base/util.h"

/* An empty variable counts as none. */
static const char *first_of(const char *const *names, size_t n)
{
        for (size_t i = 0; i < n; i++) {
                const char *v = getenv(names[i]);

                if (v && *v)
                        return v;
        }
        return "";
}

/* "*", or names separated by commas and blanks, each of which stands for those below it, too. */
static bool lists(const char *no_proxy, const char *name)
{
        size_t len = strlen(name), n;

        if (strcmp(no_proxy, "*") == 0)
                return true;
        for (const char *p = no_proxy + strspn(no_proxy, ", \t"); *p; p += n, p += strspn(p, ", \t")) {
                const char *entry = p;
                size_t m;

                n = m = strcspn(p, ", \t");
                if (entry[m - 1] == '.')
                        m--;
                if (m && *entry == '.') {
                        entry++;
                        m--;
                }
                if (m && m <= len && strncasecmp(name + len - m, entry, m) == 0 &&
                    (m == len || name[len - m - 1] == '.'))
                        return true;
        }
        return false;
}

const char *cg_http_proxy_of(bool https, const struct cg_host *h, const char *proxy, const char *no_proxy)
{
        /* HTTP_PROXY could be a header "Proxy" of a CGI script; nobody reads it. */
        static const char *const of_https[] = { "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY" },
                                 *const of_http[] = { "http_proxy", "all_proxy", "ALL_PROXY" },
                                 *const none[] = { "no_proxy", "NO_PROXY" };

        if (!proxy)
                proxy = https ? first_of(of_https, CG_ARRAY_LEN(of_https))
                              : first_of(of_http, CG_ARRAY_LEN(of_http));
        if (!no_proxy)
                no_proxy = first_of(none, CG_ARRAY_LEN(none));
        return lists(no_proxy, h->text) ? "" : proxy;
}
