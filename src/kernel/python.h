/*
 * The interpreter, seen from the zygote and the kernel without Python.h. All of these run in the
 * main thread, which holds the GIL from cg_py_init() on.
 */
#ifndef CG_KERNEL_PYTHON_H
#define CG_KERNEL_PYTHON_H

#include "base/err.h"

struct cg_io;
struct cg_sandbox;

/*
 * Starts Python from the environment @env with our folder on sys.path: no environment variables, no
 * user site.
 */
int cg_py_init(const char *env, struct cg_err *err);

struct cg_py_versions {
        char python[64];
        char ipython[64];
};

/*
 * Imports IPython and the comma-separated modules of @preload (may be NULL), builds the shell,
 * warms it.
 */
int cg_py_prepare(const char *preload, struct cg_py_versions *ret, struct cg_err *err);

/*
 * While no kernel is wanted: prepares a part of what notebooks ask for. Return: 1 there is more; 0;
 * negative.
 */
int cg_py_idle(struct cg_err *err);

/* Around the fork, in the zygote and (child) in the kernel. */
void cg_py_before_fork(void);
void cg_py_after_fork_parent(void);
void cg_py_after_fork_child(void);

/*
 * What a kernel is told by its zygote, JSON text: see make() in cellgate_kernel/kernel.py. Then,
 * inside the sandbox, cg_py_configure().
 */
int cg_py_make_kernel(const char *config, size_t len, struct cg_err *err);
int cg_py_configure(struct cg_err *err);
/* Serves requests until the process ends. Returns only when something is badly wrong. */
int cg_py_serve(struct cg_io *io, const struct cg_sandbox *plan, struct cg_err *err);

/* Makes the main thread run its SIGINT handler soon. Any thread; needs no GIL. */
void cg_py_interrupt(void);

#endif
