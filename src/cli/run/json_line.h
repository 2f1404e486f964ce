/*
 * A line of `cellgate run --json` that is being made. A failure of any step is kept, so that the
 * steps need no checks of their own; cg_json_line_end() reports it.
 */
#ifndef CG_CLI_RUN_JSON_LINE_H
#define CG_CLI_RUN_JSON_LINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/buf.h"
#include "base/err.h"

struct cg_run;

struct cg_json_line {
        struct cg_buf b;
        struct cg_err err;
        int r;
};

/* @cell: 0 for no member of this name. */
void cg_json_line_begin(struct cg_json_line *l, const char *type, uint64_t cell);
void cg_json_line_string(struct cg_json_line *l, const char *name, const char *text, size_t len);
void cg_json_line_int(struct cg_json_line *l, const char *name, int64_t n);
/* JSON text of ours, or NULL for no member. */
void cg_json_line_json(struct cg_json_line *l, const char *name, const char *json);
void cg_json_line_bool(struct cg_json_line *l, const char *name, bool v);
/* A JSON object from outside. Other text becomes the string "invalid". */
void cg_json_line_object(struct cg_json_line *l, const char *name, const char *json, size_t len);
/* Writes the line, and frees what it holds. */
int cg_json_line_end(struct cg_run *run, struct cg_json_line *l, struct cg_err *err);

#endif
