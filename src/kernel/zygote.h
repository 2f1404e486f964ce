/*
 * The process that has Python and IPython loaded and forks kernels on request.
 *
 * The datagrams on its control socket are JSON objects:
 *   {"ready": true, "python", "ipython"} or {"ready": false, "code", "message"}
 *        sent first, and once
 *   {"spawn": ID, "spare": BOOL}
 *        received; descriptors: spec memfd, listeners of the kernel wire, of the tool wire, and of
 *        function calls; a spare waits for the warm-up (cg_py_warm_up())
 *   {"spawned": ID, "pid", "layers", ...} or {"failed": ID, "code", "errno", "message"}
 *        the reply; descriptors of the first: pidfd of init, status pipe (struct
 *        cg_sandbox_status), socket for commands, then those of denials, doors and ports, if any
 *   {"ended": ID, ...}
 *        sent when a kernel with a control group has ended: the group's counters
 * Members of the spec: spec.c. When the supervisor closes its end, the zygote ends all kernels and
 * itself.
 */
#pragma once

#include "base/log.h"
#include "kernel/python.h"

struct cg_zygote;

/* @control: the supervisor's SOCK_SEQPACKET socket (borrows). */
int cg_zygote_new(int control, const struct cg_log *log, struct cg_zygote **ret, struct cg_err *err);
/* Reports to the supervisor that kernels can be requested, or the @failure (@v is ignored then). */
int cg_zygote_send_ready(struct cg_zygote *z, const struct cg_py_versions *v, const struct cg_err *failure,
                         struct cg_err *err);
/* Serves until the supervisor closes its end (0) or something fails. */
int cg_zygote_serve(struct cg_zygote *z, struct cg_err *err);
/* Ends all kernels that still run. Returns NULL. */
struct cg_zygote *cg_zygote_free(struct cg_zygote *z);
