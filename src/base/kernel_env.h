/*
 * Environments that kernels run in, other than the built-in one: where they are, and whether one
 * fits this build. Their code runs outside of the sandbox as well (the zygote imports IPython from
 * there), so no cell may write there: supervisor/kernel_env.c.
 */
#ifndef CG_BASE_KERNEL_ENV_H
#define CG_BASE_KERNEL_ENV_H

#include <stdbool.h>
#include <stddef.h>
#include "base/err.h"

/*
 * State file and lock file of `cellgate env` in an environment. The state file has one of these
 * lines; the last two are for an environment that `add` has changed and `create` has not made.
 */
#define CG_ENV_STATE            ".cellgate-env"
#define CG_ENV_LOCK             ".cellgate-env.lock"
#define CG_ENV_IS_READY         "ready\n"
#define CG_ENV_IS_CHANGING      "changing\n"
#define CG_ENV_FOREIGN_READY    "ready, foreign\n"
#define CG_ENV_FOREIGN_CHANGING "changing, foreign\n"

enum cg_env_state {
        CG_ENV_UNTOUCHED, /* `cellgate env` has not made or changed it */
        CG_ENV_READY,
        CG_ENV_UNFINISHED, /* it is being changed, or whoever changed it was ended */
};

/*
 * The folder of named environments: $XDG_DATA_HOME/cellgate/envs, or below ~/.local/share. *ret:
 * caller frees. It need not exist.
 */
int cg_kernel_envs_dir(char **ret, struct cg_err *err);

/* A name of letters, digits, "-", "_" and ".", which does not begin with a dot or dash. */
bool cg_kernel_env_is_name(const char *text);

/*
 * The folder that @name means: one in cg_kernel_envs_dir(), or what it says itself where it has a
 * slash. *ret: absolute, without symlinks; caller frees. CG_E_NOTFOUND where it does not exist.
 */
int cg_kernel_env_find(const char *name, char **ret, struct cg_err *err);

/*
 * An environment of the Python version that kernels embed, and finished. CG_E_INVAL says what is
 * wrong and what to do.
 */
int cg_kernel_env_check(const char *dir, struct cg_err *err);

/*
 * An environment of that version, whether finished or not. @version (64 bytes): what it says of
 * itself, "" where it says nothing.
 */
bool cg_kernel_env_fits(const char *dir, char version[64]);

enum cg_env_state cg_kernel_env_state(const char *dir);

/*
 * `cellgate env create` has made it. Any other is the user's own: nothing may remove it, or replace
 * the versions that it has.
 */
bool cg_kernel_env_is_ours(const char *dir);

/*
 * The folder of programs of the Python that the virtual environment @dir was made with, as its
 * pyvenv.cfg spells it. false: @dir is no virtual environment, or the file has no absolute path of
 * less than @size bytes.
 */
bool cg_pyvenv_home(const char *dir, char *ret, size_t size);

/* The same folder. *ret: without symlinks; caller frees; NULL where it names none that exists. */
int cg_kernel_env_base(const char *dir, char **ret, struct cg_err *err);

#endif
