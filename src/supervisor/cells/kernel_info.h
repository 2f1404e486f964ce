/* Filters what the kernel of another language says about itself, for hosts and clients. */
#pragma once

#include <jansson.h>
#include "base/wire.h"

/*
 * Returns the content of a kernel_info_reply for the kernel @name (caller frees; NULL: out of
 * memory). Of the hostile kernel's own, @given, it has the known members: names without paths or
 * markup, and the escaped banner.
 */
json_t *cg_sup_kernel_info(const char *name, struct cg_bytes given);
