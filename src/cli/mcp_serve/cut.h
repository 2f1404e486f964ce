/*
 * `cellgate mcp serve`: a text that comes in pieces, of which the beginning, the end and the number
 * of characters are kept. The kernel may print gigabytes.
 */
#pragma once

#include "base/buf.h"

struct cg_cut {
        size_t head_max, tail_max; /* characters */
        size_t min_cut;            /* fewer characters are not left out */
        size_t total;              /* characters, also those that are kept no more */
        struct cg_buf whole;       /* the text from its beginning, as far as it is kept */
        bool full;                 /* no more of the text is added to `whole` */
        struct cg_buf tail;        /* its end */
};

/* @keep: bytes of the beginning that are kept, at least those that are shown. */
void cg_cut_init(struct cg_cut *c, size_t max_chars, size_t keep);
void cg_cut_fini(struct cg_cut *c);
/* Text that cannot be kept for lack of memory counts as left out. */
void cg_cut_add(struct cg_cut *c, const char *text, size_t len);
void cg_cut_clear(struct cg_cut *c);
bool cg_cut_is_cut(const struct cg_cut *c);
/* The bytes from *begin to *end are left out; the end is SIZE_MAX where they are not all kept. */
void cg_cut_left_out(const struct cg_cut *c, size_t *begin, size_t *end);
size_t cg_cut_memory(const struct cg_cut *c);
/* Appends what is shown, and a line about the rest; @readable: the tool read_output has it. */
void cg_cut_render(struct cg_cut *c, bool readable, struct cg_buf *b);

size_t cg_cut_count(const char *text, size_t len);
/* The place of character @n after the byte @from, or the end. */
size_t cg_cut_place(const struct cg_buf *b, size_t from, size_t n);
