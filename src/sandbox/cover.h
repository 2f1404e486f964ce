/*
 * Covers: an empty read-only folder or an unreadable file over a path; and mount points made where
 * there are none. Private to src/sandbox.
 */
#ifndef CG_SANDBOX_COVER_H
#define CG_SANDBOX_COVER_H

#include <stdbool.h>
#include "base/err.h"

/*
 * One empty folder and one unreadable file for all covers: made and attached by the first that
 * needs it, -1 before.
 */
struct cg_cover {
        int empty_fd;
        int unreadable_fd;
};

void cg_cover_init(struct cg_cover *c);
void cg_cover_fini(struct cg_cover *c);

/* Covers what @fd (O_PATH) is. @path is for the message. */
int cg_cover_fd(struct cg_cover *c, int fd, const char *path, struct cg_err *err);
/* Covers @path. What is not there, or out of reach, needs no cover. */
int cg_cover_path(struct cg_cover *c, const char *path, struct cg_err *err);
/*
 * O_PATH descriptor of absolute @path, made as a folder or an empty file, with its parents, where
 * it is missing.
 */
int cg_cover_target(const char *path, bool folder, int *ret, struct cg_err *err);

#endif
