/* A tool's definition while it is worked on: its two schemas, $ref, pointers, warnings. */
#pragma once

#include "codegen/read.h"

enum cg_gen_status { CG_GEN_FULL, CG_GEN_DEGRADED, CG_GEN_REJECTED };

struct cg_gen_warning {
        struct cg_gen_warning *next;
        struct cg_slice pointer, text;
};

/* A tool's part of the report. Lives in the arena of the tool. */
struct cg_gen_report {
        struct cg_arena *arena;
        enum cg_gen_status status;
        struct cg_gen_warning *first, **last;
        size_t n;
        struct cg_slice reason; /* of the first rejection */
        const struct cg_j *def; /* the definition: pointers start there; may be NULL */
};

void cg_gen_report_init(struct cg_gen_report *r, struct cg_arena *a);
/* Notes something about the value at @at (NULL: the tool); lowers the status to @status at most. */
void cg_gen_warn(struct cg_gen_report *r, enum cg_gen_status status, const struct cg_j *at, const char *fmt,
                 ...) __attribute__((format(printf, 4, 5)));

/* One schema document. */
struct cg_schema {
        struct cg_j *root;
        bool draft7; /* $ref hides its siblings; 2020-12, the default, lets both apply */
        bool output;
        struct cg_gen_report *report;
        struct cg_j **anchors; /* values of $anchor, $id ...: strings; made when first needed */
        size_t n_anchors;
        bool anchors_known;
};

void cg_schema_init(struct cg_schema *s, struct cg_j *root, bool output, struct cg_gen_report *report);

/* JSON pointer to @at from @root; cut and ended by "..." when it is very long. */
struct cg_slice cg_schema_pointer(struct cg_arena *a, const struct cg_j *root, const struct cg_j *at);
/* True if @at can be pointed to from @root in _tools.json: not too deep, and no pointer is cut. */
bool cg_schema_reachable(const struct cg_j *root, const struct cg_j *at);

enum cg_ref { CG_REF_OK, CG_REF_DANGLING, CG_REF_EXTERNAL };

/* One step: the schema that @ref names. *ret only with CG_REF_OK. */
enum cg_ref cg_schema_ref(struct cg_schema *s, struct cg_slice ref, struct cg_j **ret);

/* Follows $ref while there is one that counts alone; NULL at a loop, a dead end or too many. */
struct cg_j *cg_schema_follow(struct cg_schema *s, struct cg_j *at);

/* The string of a keyword $ref, empty when there is none. */
struct cg_slice cg_schema_ref_of(const struct cg_j *at);
