/* The zygote's process and control socket. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/err.h"

struct kernel;
struct sup;

/* Descriptors of a kernel's sandbox. -1: absent. */
struct cg_spawned {
        int pidfd, status_fd, denials_fd, commands_fd;
        int doors_fd;     /* borrowed */
        const int *ports; /* borrowed; listeners for the egress proxy, then for cellgate.ports.reach */
        size_t n_ports;
};

/* The zygote's answers; kernel.c implements them. */
struct cg_zygote_ops {
        /* The zygote is ready for the kernel's request. */
        void (*spawn)(struct kernel *k);
        /* @answer: the zygote's. Takes the descriptors that are not borrowed. */
        void (*spawned)(struct kernel *k, const json_t *answer, struct cg_spawned *fds);
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
/* @fds: spec; listeners of the kernel wire, of the tool wire, and of function calls */
int cg_sup_zygote_request(struct sup *s, uint64_t seq, bool spare, const int fds[4], struct cg_err *err);
