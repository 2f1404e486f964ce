/* The functions of libcurl that http.c uses, looked up when it is loaded. */
#pragma once

/* The type checks are macros by the functions' names, which are struct members here. */
#define CURL_DISABLE_TYPECHECK
#include <curl/curl.h>
#include "base/err.h"

/* Other compilers than gcc get macros that accept three arguments only. */
#undef curl_easy_setopt
#undef curl_easy_getinfo
#undef curl_multi_setopt

#define CG_CURL_FUNCTIONS(X) \
        X(global_init) \
        X(version_info) \
        X(easy_init) \
        X(easy_cleanup) \
        X(easy_setopt) \
        X(easy_getinfo) \
        X(easy_pause) \
        X(easy_strerror) \
        X(multi_init) \
        X(multi_cleanup) \
        X(multi_setopt) \
        X(multi_add_handle) \
        X(multi_remove_handle) \
        X(multi_socket_action) \
        X(multi_info_read) \
        X(multi_assign) \
        X(multi_strerror) \
        X(slist_append) \
        X(slist_free_all) \
        X(url) \
        X(url_cleanup) \
        X(url_get) \
        X(url_set) \
        X(free)

struct cg_curl {
#define X(name) __typeof__(curl_##name) *name;
        CG_CURL_FUNCTIONS(X)
#undef X
        bool gnutls;
        char bundle[256]; /* the file of all the system's certificates; "": there is none */
};

int cg_curl_load(struct cg_curl *c, struct cg_err *err);
