/* Base64 text of bytes: images are shown as such. */
#ifndef CG_KERNEL_BASE64_H
#define CG_KERNEL_BASE64_H

#include <stddef.h>

/* How much text @len bytes become; 0 when that is no number. */
size_t cg_base64_size(size_t len);
/* Writes that much to @out: the standard alphabet, padded, without line breaks or a NUL. */
void cg_base64(char *out, const void *data, size_t len);

#endif
