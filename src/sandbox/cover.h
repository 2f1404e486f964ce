/*
 * Covers: an empty read-only folder or an unreadable file is mounted over a path. Also makes
 * missing mount points. Private to src/sandbox.
 */
#pragma once

#include <stdbool.h>
#include "base/err.h"

/* One empty folder and one unreadable file for all covers; -1 until first used. */
struct cg_cover {
        int empty_fd;
        int unreadable_fd;
};

void cg_cover_init(struct cg_cover *c);
void cg_cover_fini(struct cg_cover *c);

/* Covers the file of @fd (O_PATH). @path is for the error message. */
int cg_cover_fd(struct cg_cover *c, int fd, const char *path, struct cg_err *err);
/*
 * Covers @path, unless it is missing or in another user's closed folder. If it is in a closed one
 * of this user: covers that.
 */
int cg_cover_path(struct cg_cover *c, const char *path, struct cg_err *err);
/* O_PATH descriptor of absolute @path; made as a folder or empty file, with parents, if missing. */
int cg_cover_target(const char *path, bool folder, int *ret, struct cg_err *err);
