/* The proxy of a request to a host. Linked into the tool server and the command line. */
#pragma once

#include "base/host.h"

/*
 * The URL of the proxy, "" for none: @proxy and @no_proxy, or where they are NULL the variables of
 * the environment, as libcurl reads them. Borrowed from these. For names only: ranges of addresses
 * in no_proxy are libcurl's.
 */
const char *cg_http_proxy_of(bool https, const struct cg_host *h, const char *proxy, const char *no_proxy);
