/* Files that a cell made or changed, for people and agents. Cells choose their names. */
#ifndef CG_CLI_COMMON_ARTIFACTS_H
#define CG_CLI_COMMON_ARTIFACTS_H

#include "base/buf.h"
#include "base/err.h"
#include "cellgate.h"

/*
 * Appends a line "PREFIX PATH (N bytes)" for each file that a RESULT names, and why some are not
 * named; nothing where none is. At most 50, rendered, which fit into 64 KiB. Files that the
 * text @listed (NULL: none) has as "(PATH)" are left out.
 */
int cg_artifacts_text(const struct cg_event *e, const char *prefix, const char *listed, struct cg_buf *b,
                      struct cg_err *err);

#endif
