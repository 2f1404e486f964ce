/* `cellgate jupyter`: what its parts share. The front itself is src/jupyter. */
#pragma once

#include "cli/common/approve.h"
#include "cli/common/cli.h"
#include "cli/common/kernel_options.h"
#include "jupyter/front.h"

struct cg_jup_options {
        /* install, run */
        struct cg_kernel_options kernel;
        const char *file, *prefix, *name, *display_name;
        bool user, sys_prefix;
        json_t *words;        /* of install: the options that the kernelspec repeats */
        const char **ignored; /* words of run that mean nothing here (borrowed from argv) */
        size_t n_ignored;
        bool runs_notebook; /* the client runs a notebook to its end */
        int64_t linger_ms;
        int spares;
        int ready_fd;            /* 0: none */
        const char *provisioner; /* auto, always, never */
        /* attach, list */
        const char *session, *address;
        bool json;
};

/* *hangs as of cg_front_run(). */
int cg_jup_run(struct cg_jup_options *o, bool *hangs, struct cg_err *err);
int cg_jup_install(struct cg_jup_options *o, bool *hangs, struct cg_err *err);
int cg_jup_attach(struct cg_jup_options *o, bool *hangs, struct cg_err *err);
int cg_jup_list(struct cg_jup_options *o, bool *hangs, struct cg_err *err);

/* Rules first, then the person; see struct cg_front_judge. Borrows @rules. */
struct cg_front_judge cg_jup_judge(struct cg_approve *rules);
