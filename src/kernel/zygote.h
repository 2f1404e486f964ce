/*
 * The process that has Python and IPython loaded and forks kernels on request.
 *
 * Datagrams on its control socket, JSON objects: {"ready": true, "python", "ipython"} or {"ready":
 *   false, "code", "message"}   once, first, from the zygote {"spawn": ID}   asks for a kernel;
 *   descriptors: spec memfd, listener of the kernel wire, listener of the tool wire {"spawned": ID,
 *   "pid", "layers"}   an answer; descriptors: init's pidfd, status pipe (struct cg_sandbox_status)
 *   {"failed": ID, "code", "errno", "message"}   or this one
 * The spec's members are in spec.c. When the supervisor closes its end the zygote ends, and all its
 * kernels with it.
 */
#ifndef CG_KERNEL_ZYGOTE_H
#define CG_KERNEL_ZYGOTE_H

#include "base/err.h"
#include "base/log.h"
#include "kernel/python.h"

struct cg_zygote;

/* @control: the supervisor's SOCK_SEQPACKET socket (borrows). */
int cg_zygote_new(int control, const struct cg_log *log, struct cg_zygote **ret, struct cg_err *err);
/* Tells the supervisor that kernels can be asked for, or why not (@failure; then @v is ignored). */
int cg_zygote_say_ready(struct cg_zygote *z, const struct cg_py_versions *v, const struct cg_err *failure,
                        struct cg_err *err);
/* For notebooks: while nothing is asked for, completion is prepared. */
void cg_zygote_prepare_completion(struct cg_zygote *z);
/* Serves until the supervisor closes its end (0) or something fails. */
int cg_zygote_serve(struct cg_zygote *z, struct cg_err *err);
/* Ends all kernels that still run. Returns NULL. */
struct cg_zygote *cg_zygote_free(struct cg_zygote *z);

#endif
