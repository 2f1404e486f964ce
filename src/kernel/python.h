/*
 * Python, for the zygote and the kernel. Does not include Python.h. All functions but
 * cg_py_interrupt() run in the main thread, which holds the GIL.
 */
#pragma once

#include <stdbool.h>
#include "base/err.h"

struct cg_io;
struct cg_sandbox;

/* Turns the current exception into an error and clears it. */
int cg_py_fail(struct cg_err *err, const char *what);

struct cg_py_versions {
        char python[64];
        char ipython[64];
};

/*
 * Refuses folders of sys.path, whose first one is that of cellgate's modules and becomes the last,
 * that are outside of the environment. Imports nothing from them.
 */
int cg_py_check_path(struct cg_err *err);

/*
 * Imports IPython and the comma-separated modules of @preload (may be NULL), and makes the shell:
 * the first kernel can be forked.
 */
int cg_py_prepare(const char *preload, struct cg_py_versions *ret, struct cg_err *err);

/*
 * One step of the warm-up, and of the preparation of completion. Kernels can be forked between
 * steps. Return: 1: there are more steps; 0: finished; negative: error.
 */
int cg_py_warm_up(struct cg_err *err);
int cg_py_prepare_completion(struct cg_err *err);
/* Kernels that are forked from here on do not prepare completion while they are idle. */
int cg_py_plan_completion(struct cg_err *err);

/* Before Python allocates: notes which memory its small objects are in. */
void cg_py_track_arenas(void);
/* Frees that, and more, in a process that never runs Python again: init. */
void cg_py_free_in_init(void);

/* Around the fork, in the zygote and (child) in the kernel. */
void cg_py_before_fork(void);
void cg_py_after_fork_parent(void);
void cg_py_after_fork_child(void);

/*
 * Makes the kernel of the JSON text @config: see make() in cellgate_kernel/kernel.py. Inside of the
 * sandbox cg_py_configure() follows.
 */
int cg_py_make_kernel(const char *config, size_t len, struct cg_err *err);
int cg_py_configure(struct cg_err *err);
/* Serves requests until the process ends. Returns only on errors. */
int cg_py_serve(struct cg_io *io, const struct cg_sandbox *plan, struct cg_err *err);

/* See struct cg_io_config. Any thread; needs no GIL. */
void cg_py_interrupt(struct cg_io *io, bool again);
