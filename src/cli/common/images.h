/* Images that cells show, saved as files. Used by `cellgate run` and `cellgate mcp serve`. */
#pragma once

#include "base/buf.h"
#include "cellgate.h"

struct cg_images;

/*
 * Prepares saving under @dir, which is made when the first image comes. Call before untrusted code
 * runs: the parent folder of @dir is opened now, and must exist. A @dir that is a symbolic link is
 * refused: the default images/ is in the workspace, where a kernel could make it point anywhere.
 */
int cg_images_new(const char *dir, struct cg_images **ret, struct cg_err *err);
struct cg_images *cg_images_free(struct cg_images *im);

/* The first of "image/png", "image/jpeg" and "image/svg+xml" that an event has; NULL: none. */
const char *cg_images_mime(struct cg_event *e);

/*
 * Saves the image of a display_data, update_display_data or execute_result event as DIR/cellC-N.png
 * (.jpg, .svg), N counting up from 1 to the first name that is free: no file is ever replaced.
 * *ret: its path, DIR as it was given (caller frees). Return: 0; CG_E_NOTFOUND without image;
 * CG_E_PARSE when the data are not base64; CG_E_SYS when it cannot be written (nothing is left of
 * it).
 */
int cg_images_save(struct cg_images *im, struct cg_event *e, char **ret, struct cg_err *err);

/* The part of cg_images_save() that needs no event. */
int cg_images_write(struct cg_images *im, uint64_t cell, const char *extension, const void *data, size_t len,
                    char **ret, struct cg_err *err);
