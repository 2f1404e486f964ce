/* Command lines of programs in the Python package. */
#pragma once

#include "base/err.h"

#define CG_PACKAGE_WORDS 7

/*
 * The interpreter that the package was built for, "" where there is none, and the package's folder.
 * A macro, because CG_INSTALLED() makes a buffer in the caller's block, which the words borrow.
 */
#define CG_PACKAGE_PLACE CG_INSTALLED(CG_PACKAGE_PYTHON), CG_PACKAGE_DIR

/*
 * Sets @words to the command line of @module's main(), without its arguments. @command: its name in
 * messages. @python, @folder: CG_PACKAGE_PLACE (borrows). CG_E_UNSUPPORTED: there is no package.
 */
int cg_package_words(const char *python, const char *folder, const char *module, const char *command,
                     const char *words[CG_PACKAGE_WORDS], struct cg_err *err);
