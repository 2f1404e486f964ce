/* One tool: its module, its entry in _tools.json, its line in the catalogue. */
#pragma once

#include "codegen/types.h"

struct cg_tool {
        struct cg_arena *arena;
        struct cg_gen_report report;
        struct cg_j *def;
        struct cg_slice server; /* as registered */
        struct cg_slice name;   /* as the server lists it */
        struct cg_slice module;
        bool function;            /* of the host: without an output schema it returns any value */
        struct cg_schema in, out; /* out.root is NULL without an output schema */
        struct cg_types types;
        struct cg_slice returns;      /* annotation of run() */
        struct cg_slice returns_spec; /* classes in it */
        /* property of the result that run() returns alone; empty: none */
        struct cg_slice unwrap;
        const char *hints[3];
        size_t n_hints;
};

/*
 * Works out the types. @t->arena, def, server, name and module are set, the rest is zero. What is
 * wrong is in t->report; a rejected tool must not be written. Negative only when out of memory.
 */
int cg_tool_prepare(struct cg_tool *t, struct cg_err *err);

void cg_tool_put_module(struct cg_tool *t, struct cg_buf *o);
/*
 * One line: name(fields) -> type: first sentence. [hints]. @common: bytes that all descriptions of
 * the server begin with; they are left out.
 */
void cg_tool_put_summary(struct cg_tool *t, size_t common, struct cg_buf *o);
/*
 * "tool name": {...}, on one line. May reject the tool (t->report): then nothing of it counts. See
 * data.c for the members.
 */
void cg_tool_put_data(struct cg_tool *t, struct cg_buf *o);

/* (fields) -> type */
void cg_tool_put_signature(struct cg_tool *t, struct cg_buf *o);
struct cg_slice cg_tool_title(const struct cg_tool *t);
struct cg_slice cg_tool_description(const struct cg_tool *t);
