/* Filters what the kernel of another language says about itself, for hosts and clients. */
#pragma once

#include <jansson.h>
#include "base/wire.h"

/*
 * The content of a kernel_info_reply (returns; NULL: out of memory) with what @given, that of the
 * hostile kernel @name, says in members that are known: names, no paths, no markup, and a banner.
 */
json_t *cg_sup_kernel_info(const char *name, struct cg_bytes given);
