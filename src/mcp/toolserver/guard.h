/*
 * The parent of the tool server: a process that ends whatever is left of the MCP servers when the
 * tool server has ended, however.
 */
#pragma once

#include "base/err.h"

/*
 * Before there is any thread or descriptor of ours. Returns 0 in the process that shall be the tool
 * server, and in no other: the one that called stays behind as its guard, passes SIGTERM and SIGINT
 * on, and ends as it does. Negative: there is no guard, and nothing was started.
 */
int cg_guard_stay_behind(struct cg_err *err);
