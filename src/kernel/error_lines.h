/*
 * Lines of a kernel's output in which a program reports that it was refused a file. They are found
 * in the text as it passes, because the file system itself reports no refusal of a read.
 */
#pragma once

#include <stddef.h>

/* Most bytes of a line, and of all lines that nobody has taken yet; further lines are left out. */
#define CG_ERROR_LINE_MAX  1024
#define CG_ERROR_LINES_MAX 8192

struct cg_error_lines {
        struct cg_error_part {
                char text[CG_ERROR_LINE_MAX];
                size_t len;
        } part[2]; /* the unfinished last line of each stream */
        char lines[CG_ERROR_LINES_MAX];
        size_t len; /* of lines, each with its "\n" */
};

/* @stream: 0 or 1. */
void cg_error_lines_add(struct cg_error_lines *e, int stream, const char *text, size_t len);
