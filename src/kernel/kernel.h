/* The process that runs a session's cells, from its fork on. */
#pragma once

#include <stddef.h>
#include "base/log.h"

struct cg_sandbox;

struct cg_kernel_start {
        const char *config; /* JSON text for cellgate_kernel (borrowed) */
        size_t config_len;
        /* inherited listeners */
        int kernel_fd, tool_fd, function_fd;
        const struct cg_sandbox *plan; /* of this process's sandbox; borrowed */
        /* usable until the kernel is ready: then descriptor 2 is the output of cells */
        const struct cg_log *log;
};

struct cg_err;

/*
 * Both run in the forked process; @data is a struct cg_kernel_start. cg_kernel_prepare() runs while
 * init makes the sandbox: it must not open files, start threads or use data of others.
 * cg_kernel_main() runs inside and returns an exit status if the kernel cannot start.
 */
int cg_kernel_prepare(void *data, struct cg_err *err);
int cg_kernel_main(void *data);
