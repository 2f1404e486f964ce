/* The process that runs a session's cells, from its fork on. */
#ifndef CG_KERNEL_KERNEL_H
#define CG_KERNEL_KERNEL_H

#include <stddef.h>
#include "base/log.h"

struct cg_sandbox;

struct cg_kernel_start {
        const char *config; /* JSON text for cellgate_kernel (borrowed) */
        size_t config_len;
        int kernel_fd, tool_fd;        /* inherited listeners */
        const struct cg_sandbox *plan; /* what this process is in; borrowed */
        /* usable until the kernel is ready: afterwards descriptor 2 belongs to the cells */
        const struct cg_log *log;
};

struct cg_err;

/*
 * Both run in the forked process, @data is a struct cg_kernel_start: the first while the sandbox
 * around it is made, so without files, threads or anything foreign; the second inside. It returns
 * an exit status when it cannot start.
 */
int cg_kernel_prepare(void *data, struct cg_err *err);
int cg_kernel_main(void *data);

#endif
