/* From schemas to classes with annotated fields. Loose ones are fine: the schema itself decides. */
#pragma once

#include "codegen/schema.h"
#include "codegen/text.h"

/*
 * An annotation. Each part is one branch of a union with the classes in it, in the notation of
 * _tools.json: "Edit" an object, "[Edit" a list of it, "{Edit" a mapping to it, "A|B" either,
 * "[(A|B)" a list of either; empty: plain values.
 */
struct cg_type {
        size_t n;
        struct {
                struct cg_slice text, spec;
        } part[12]; /* CG_GEN_MAX_UNION */
};

static inline struct cg_type cg_type_single(struct cg_slice text, struct cg_slice spec)
{
        return (struct cg_type){ .n = 1, .part = { { .text = text, .spec = spec } } };
}

static inline struct cg_type cg_type_plain(const char *text)
{
        return cg_type_single(cg_slice_of(text), CG_SLICE(""));
}

struct cg_class_field {
        struct cg_slice wire; /* original name */
        struct cg_slice name; /* Python name */
        struct cg_j *schema;  /* NULL: required, but not described */
        bool required;
        bool elsewhere; /* not in the object's own "properties" */
        struct cg_slice annotation, spec;
};

struct cg_class {
        struct cg_class *next;
        struct cg_slice name;
        struct cg_schema *schema;
        struct cg_j *at;
        unsigned depth;
        struct cg_class_field *fields;
        size_t n_fields, room;
        bool open; /* unknown names are data, not typing errors */
};

/* All types of one tool. */
struct cg_types {
        struct cg_arena *arena;
        struct cg_gen_report *report;
        struct cg_class *first, **last;
        size_t n;
        unsigned visit;
};

void cg_types_init(struct cg_types *t, struct cg_gen_report *report);
/* Makes the classes for the arguments: "Params" and what it needs. @s->root is an object. */
void cg_types_params(struct cg_types *t, struct cg_schema *s);
/* Makes the classes for the result at @at in @s; *annotation and *spec: of run()'s return value. */
void cg_types_result(struct cg_types *t, struct cg_schema *s, struct cg_j *at, struct cg_slice *annotation,
                     struct cg_slice *spec);
/* Gives all fields their Python names. After the classes, whose names fields must not take. */
void cg_types_name_fields(struct cg_types *t);

/* fields.c: finds the fields of a class, and whether it is open. */
void cg_class_fields(struct cg_types *t, struct cg_class *c);

/* literals.c */
struct cg_type cg_enum_type(struct cg_types *t, const struct cg_j *at, const struct cg_j *values);
struct cg_type cg_const_type(struct cg_types *t, const struct cg_j *v);
/*
 * A value as Python shows it (True, None, "text"), for docstrings and Literals; false when it is no
 * scalar that a Literal can hold.
 */
bool cg_put_scalar(struct cg_buf *o, const struct cg_j *j);
/* An enum that is too long or too wide for a Literal. */
bool cg_enum_is_long(const struct cg_j *values);
