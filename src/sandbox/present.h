/*
 * Finds rows of names.h in a folder, by listing folders, since most of several hundred rows are in
 * no home. Runs in the process that makes a plan.
 */
#ifndef CG_SANDBOX_PRESENT_H
#define CG_SANDBOX_PRESENT_H

#include <stdbool.h>
#include "base/err.h"

/*
 * Returns an array with an element for each row of cg_names(), in *ret (the caller frees): true
 * where a row of the kinds @what may be in @folder, whatever its case. Where a folder cannot be
 * listed that goes for all rows in it. CG_E_NOMEM.
 */
int cg_names_present(const char *folder, unsigned int what, bool **ret, struct cg_err *err);

#endif
