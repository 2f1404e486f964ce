/*
 * Kernelspecs: how Jupyter learns that this kernel exists and how to start it. Runs in `cellgate
 * jupyter install`.
 */
#ifndef CG_JUPYTER_KERNELSPEC_H
#define CG_JUPYTER_KERNELSPEC_H

#include <stdbool.h>
#include <stddef.h>
#include "base/err.h"

struct cg_kernelspec {
        const char *name; /* of its folder: letters, digits, and ._- only, not first */
        const char *display_name;
        const char *language;    /* as the kernel's language_info calls it */
        const char *const *argv; /* NULL-terminated; one of them is "{connection_file}" */
        bool subshells;
        bool debugger;    /* the kernel has one: clients offer it only then */
        bool provisioner; /* clients have the Python package's, and start the kernel by it */
};

/*
 * Writes the kernelspec below @kernels, which is made where it is missing, with the logos from
 * @logos (a folder; those that are missing are left out). One of cellgate's that is there already
 * is replaced, any other is an error. *ret: its folder (caller frees).
 */
int cg_kernelspec_write(const struct cg_kernelspec *spec, const char *kernels, const char *logos, char **ret,
                        struct cg_err *err);

/*
 * The folder of the user's kernelspecs: $JUPYTER_DATA_DIR/kernels or Jupyter's default. Caller
 * frees.
 */
int cg_kernelspec_user_dir(char **ret, struct cg_err *err);

#endif
