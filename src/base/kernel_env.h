/*
 * Environments that kernels run in, other than the built-in one: where they are, and whether this
 * build can use one. Their code runs outside of the sandbox as well (the zygote imports IPython
 * from there), so no cell may write there: supervisor/servers/protected.c.
 */
#pragma once

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include "base/err.h"

/* The environment that a wheel's kernels run in where its own cannot be used. */
#define CG_ENV_DEFAULT "default"

/*
 * Its state file. The file has one of these lines; the last two are for an environment that `add`
 * has changed and `create` has not made.
 */
#define CG_ENV_STATE            ".cellgate-env"
#define CG_ENV_IS_READY         "ready\n"
#define CG_ENV_IS_CHANGING      "changing\n"
#define CG_ENV_FOREIGN_READY    "ready, foreign\n"
#define CG_ENV_FOREIGN_CHANGING "changing, foreign\n"

enum cg_env_state {
        CG_ENV_UNTOUCHED,  /* `cellgate env` has neither made nor changed it */
        CG_ENV_READY,      /* the last `cellgate env` has finished */
        CG_ENV_UNFINISHED, /* a `cellgate env` changes it now, or was interrupted */
};

/*
 * Finds the folder of named environments: $XDG_DATA_HOME/cellgate/envs, or the same below
 * ~/.local/share. The folder need not exist. @ret: its path (returns).
 */
int cg_kernel_envs_dir(char **ret, struct cg_err *err);

/*
 * Returns true if @text can be the name of an environment: at most 64 letters, digits, "-", "_" and
 * ".", with neither a dot nor a dash at the beginning.
 */
bool cg_kernel_env_is_name(const char *text);

/*
 * Finds the folder of the environment @name: a folder in cg_kernel_envs_dir(), or @name itself if
 * it contains a slash, or the environment whose interpreter bin/python... it is. @ret: its absolute
 * path without symlinks (returns). CG_E_NOTFOUND if the folder does not exist, CG_E_INVAL if @name
 * is neither a name nor a path. The folder may be anything: cg_kernel_env_check() examines it.
 */
int cg_kernel_env_find(const char *name, char **ret, struct cg_err *err);

/*
 * Checks that kernels can use the environment @dir: it is of their Python version, it is finished,
 * and all packages that it imports lie in it. CG_E_INVAL or CG_E_STATE with what is wrong and what
 * to do.
 */
int cg_kernel_env_check(const char *dir, struct cg_err *err);

/*
 * Finds the environment that kernels run in where none is named: the installed one. In a wheel it
 * is the one that has the package, or else "default" of the named ones if kernels can use only that
 * one. Copies its path to @ret and returns @ret.
 */
const char *cg_kernel_env_default(char ret[PATH_MAX]);

/* Copies to @ret the folder of cellgate's own modules for kernels, and returns @ret. */
const char *cg_kernel_modules(char ret[PATH_MAX]);

/*
 * The Python version of the installed environment: the one that kernels embed; in a wheel that of
 * the folder of packages which it is in. Copies it to @ret ("3.11") and returns @ret.
 */
const char *cg_kernel_env_own_version(char ret[16]);

/*
 * Copies to @ret the folder of packages of the environment @dir. False if @dir is no environment or
 * states no Python version.
 */
bool cg_kernel_env_packages(const char *dir, char ret[PATH_MAX]);

/*
 * In a wheel: finds the extension module for kernels in the environment @dir. It is the
 * environment's own, or else that of this installation. @ret: its path; cellgate's Python is in the
 * same folder. CG_E_INVAL if neither is for this Python version and of this version of cellgate.
 */
int cg_kernel_env_module(const char *dir, char ret[PATH_MAX], struct cg_err *err);

/*
 * Returns true if @dir is an environment of a Python version that kernels can have, finished or
 * not. @version receives the version that its pyvenv.cfg states, or "" if it states none.
 */
bool cg_kernel_env_fits(const char *dir, char version[64]);

/* Reads the state file of the environment @dir. */
enum cg_env_state cg_kernel_env_state(const char *dir);

/*
 * Returns true if `cellgate env create` has made the environment @dir. All others belong to the
 * user: `cellgate env` neither removes them nor replaces the versions of their packages.
 */
bool cg_kernel_env_is_ours(const char *dir);

/*
 * Copies to @ret the folder of programs of the Python that made the virtual environment @dir, as
 * its pyvenv.cfg spells it. Returns false if @dir is no virtual environment, or if the file names
 * no absolute path of less than @size bytes.
 */
bool cg_pyvenv_home(const char *dir, char *ret, size_t size);

/*
 * Copies to @ret folder number @i of packages that the environment @dir has from its base Python:
 * site.py imports from these unless pyvenv.cfg says otherwise. They need not exist. Returns false
 * after the last one.
 */
bool cg_kernel_env_system_packages(const char *dir, size_t i, char ret[PATH_MAX]);

/*
 * Finds the same folder and resolves its symlinks. @ret: its path (returns), or NULL if pyvenv.cfg
 * names no folder that exists. Fails if @dir is no virtual environment.
 */
int cg_kernel_env_base(const char *dir, char **ret, struct cg_err *err);
