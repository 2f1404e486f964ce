/* The zygote's process and control socket. */
#ifndef CG_SUPERVISOR_ZYGOTE_H
#define CG_SUPERVISOR_ZYGOTE_H

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>
#include "base/err.h"

struct kernel;
struct sup;

/* The zygote's answers; kernel.c implements them. */
struct cg_zygote_ops {
        /* The zygote is ready for the kernel's request. */
        void (*spawn)(struct kernel *k);
        /*
         * @answer: the zygote's. Takes the descriptors (@denials_fd may be -1) but @doors_fd (-1:
         * none) and @ports, which are borrowed: listeners for the egress proxy, then for
         * cellgate.ports.reach.
         */
        void (*spawned)(struct kernel *k, const json_t *answer, int pidfd, int status_fd, int denials_fd,
                        int doors_fd, const int *ports, size_t n_ports);
        void (*failed)(struct kernel *k, const struct cg_err *err);
        /* The final counters of the kernel's control group are known. */
        void (*counted)(struct kernel *k);
};

int cg_sup_zygote_new(struct sup *s, struct cg_err *err);
int cg_sup_zygote_start(struct sup *s, struct cg_err *err);
void cg_sup_zygote_stop(struct sup *s);
/* The interpreter's versions; NULL: the zygote has never been ready. */
const char *cg_sup_zygote_python(const struct sup *s);
const char *cg_sup_zygote_ipython(const struct sup *s);
/* Calls spawn() for the kernel, now or when the zygote is ready. */
void cg_sup_zygote_want(struct kernel *k);
void cg_sup_zygote_forget(struct kernel *k);
/* @fds: spec, kernel listener, tool listener */
int cg_sup_zygote_request(struct sup *s, uint64_t seq, const int fds[3], struct cg_err *err);

#endif
