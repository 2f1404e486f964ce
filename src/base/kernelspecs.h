/*
 * Kernelspecs: the kernels that are installed for Jupyter on this machine. They are searched for
 * where Jupyter does: JUPYTER_PATH, the active environment, the user's folder, and the system's.
 */
#pragma once

#include <jansson.h>
#include "base/err.h"

/* The user's folder of Jupyter's data (caller frees). CG_E_NOTFOUND. */
int cg_jupyter_data_dir(char **ret, struct cg_err *err);
/*
 * The members of the kernelspec @name that are needed to run it, checked: argv, env,
 * interrupt_mode, language, display_name; and "file", "folder", "program" (of argv, without
 * symlinks). argv[0] is absolute. CG_E_NOTFOUND: there is none; CG_E_INVAL; CG_E_PARSE.
 */
int cg_kernelspec_find(const char *name, json_t **ret, struct cg_err *err);
/* The names of those that there are, without cellgate's own (caller frees); NULL: no memory. */
json_t *cg_kernelspec_names(void);
