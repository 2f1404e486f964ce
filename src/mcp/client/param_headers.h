/*
 * Headers that repeat arguments of a call (revision 2026-07-28 over HTTP): a tool's input schema
 * names one by "x-mcp-header": "NAME", and the argument's value is sent as Mcp-Param-NAME.
 */
#pragma once

#include "base/buf.h"
#include "base/slice.h"

struct cg_param_header {
        char *name;
        char **path; /* names of the properties that lead to the argument; NULL-terminated */
};

/* The headers of one tool, in a list of tools. */
struct cg_param_headers {
        struct cg_param_headers *next;
        char *tool;
        size_t n, size; /* size: bytes of memory */
        struct cg_param_header list[];
};

/*
 * Reads the annotations of the tool @tool, an element of tools/list. *ret: NULL: it has none
 * (returns). CG_E_INVAL: they break the protocol's rules, and the tool must not be used.
 */
int cg_param_headers_read(struct cg_slice tool, struct cg_param_headers **ret, struct cg_err *err);
/* Frees the whole list. */
struct cg_param_headers *cg_param_headers_free(struct cg_param_headers *h);
/*
 * Headers for a call of the tool with @args, "Name: value" each, NULL-terminated (returns; each and
 * the list are malloc()ed); none for arguments that are absent or null.
 */
int cg_param_headers_make(const struct cg_param_headers *list, const char *tool, struct cg_slice args,
                          char ***ret, struct cg_err *err);
/* Appends @text, as "=?base64?...?=" where it cannot be a header's value as it is. */
void cg_param_headers_encode(struct cg_buf *b, const char *text);
