/* Programs of the Python package. */
#pragma once

#include "base/err.h"

#define CG_PACKAGE_WORDS 7

/* The interpreter that the package was built for, "" where there is none, and the package's folder. */
#define CG_PACKAGE_PLACE CG_INSTALLED(CG_PACKAGE_PYTHON), CG_PACKAGE_DIR

/*
 * The words that start main() of the @module; its arguments follow. @command: in its messages.
 * @python, @folder: CG_PACKAGE_PLACE (borrows). CG_E_UNSUPPORTED: there is no package.
 */
int cg_package_words(const char *python, const char *folder, const char *module, const char *command,
                     const char *words[CG_PACKAGE_WORDS], struct cg_err *err);
