/* The user's account, as /etc/passwd has it. */
#pragma once

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>

/*
 * The home folder that /etc/passwd has for this process's user, whatever HOME says: the one that
 * ssh and login shells use: @ret. NULL: none. Read once for each effective user; not thread-safe.
 */
const char *cg_account_home(char ret[PATH_MAX]);
/* The home folder of the user with the first @len bytes of @name, as /etc/passwd has it. */
bool cg_named_home(const char *name, size_t len, char ret[PATH_MAX]);
