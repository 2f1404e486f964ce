/* cellgate-post, which sends lines by HTTP for processes that must not wait (src/post/main.c). */
#pragma once

#include "base/err.h"
#include "base/proc.h"

/*
 * Starts it for @url, with this process's environment, whose proxies it uses. *fd (returns): a
 * stream socket; write a line for each body, read a line for each: why it was not sent, or nothing.
 */
int cg_post_start(const char *url, struct cg_proc *ret, int *fd, struct cg_err *err);
