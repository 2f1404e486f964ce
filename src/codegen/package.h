/* Writing a package: a folder that replaces the old one as a whole, or not at all. */
#pragma once

#include "codegen/read.h"

/* The first line of _tools.json up to the server's name marks a folder as a generated package. */
#define CG_PACKAGE_DATA "_tools.json"
#define CG_PACKAGE_MARK "{\"server\":"
/* The start of a root __init__.py of ours. */
#define CG_PACKAGE_ROOT_MARK "\"\"\"Tools of MCP servers, "

struct cg_package;

/*
 * Opens @out_dir (made if missing; a symlink is refused) and a temporary folder in it. @mark: the
 * first line that the _tools.json of an old package of the same server has; an old folder without
 * it is refused (CG_E_EXISTS).
 */
int cg_package_new(const char *out_dir, const char *name, struct cg_slice mark, struct cg_package **ret,
                   struct cg_err *err);
/* Removes what was not committed. */
struct cg_package *cg_package_free(struct cg_package *p);

/* Writes one file of the package. @name has no slash. */
int cg_package_add(struct cg_package *p, const char *name, struct cg_slice text, struct cg_err *err);
/*
 * Replaces a file beside the packages, in out_dir itself. An existing one must start with @mark
 * (when not empty), else CG_E_EXISTS.
 */
int cg_package_put_root(struct cg_package *p, const char *name, const char *mark, struct cg_slice text,
                        struct cg_err *err);
/* Makes the new package the package: from one moment to the next. */
int cg_package_commit(struct cg_package *p, struct cg_err *err);

CG_FREEP(cg_package_freep_, struct cg_package *, cg_package_free)
#define cg_auto_package CG_CLEANUP(cg_package_freep_)
