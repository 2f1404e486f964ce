/*
 * Reads the JSON of settings files by tables of fields: each has a key, a type and a member of the
 * struct that it fills. Error texts are those of srt (Anthropic's sandbox runtime), whose format it
 * is. For the settings' own files and front ends that read a part of them.
 */
#pragma once

#include "sandbox/settings/settings.h"

/* Ceiling of entries in one list: srt has none, and a list of this size is a mistake. */
#define CG_SETTINGS_LIST_MAX 10000
/* Ceiling of a text. Linux paths end at 4096; reasons and regular expressions are short. */
#define CG_SETTINGS_TEXT_MAX 8192

struct cg_reader {
        struct cg_settings *settings;
        const char *what; /* the text's name, for messages */
        int flags;
        char path[256]; /* "network.allowedDomains.0" */
        size_t path_len;
        bool failed; /* err has a message: further ones are appended */
        struct cg_err *err;
};

struct cg_field;
/* Reads @v into the member @to. 0 or a negative CG_E_... with the reader's error. */
typedef int (*cg_field_fn)(struct cg_reader *r, const json_t *v, const struct cg_field *f, void *to);

/* The treatment of keys that no table has. */
enum cg_unknown {
        CG_UNKNOWN_IS_ERROR,
        CG_UNKNOWN_AS_SRT, /* srt passes over them: see CG_SETTINGS_LENIENT */
};

struct cg_field {
        const char *key;
        cg_field_fn read;
        size_t offset; /* in the struct that the table fills */
        bool required;
        int min, max; /* of numbers, where they matter */
        /* of texts and lists: NULL, or the error */
        const char *(*check)(const char *text);
        /* of objects: their own table */
        const struct cg_field *fields;
        size_t n_fields;
        enum cg_unknown unknown;
};

/*
 * Table rows: a key that goes into a member of the struct being filled, and one whose function
 * has a destination of its own.
 */
#define CG_FIELD_TO(type, member, name, fn, ...) \
        { \
                .key = name, .read = fn, .offset = offsetof(struct type, member), ##__VA_ARGS__ \
        }
#define CG_FIELD(name, fn, ...) \
        { \
                .key = name, .read = fn, ##__VA_ARGS__ \
        }
/* The table of a row that cg_reader_table() reads. */
#define CG_FIELDS(table, unknown_) .fields = table, .n_fields = CG_ARRAY_LEN(table), .unknown = unknown_

/*
 * Return 0 or CG_E_PARSE with the message, which starts with the path. cg_reader_object() reads on
 * after an error, so that one run names all keys that are wrong.
 */
int cg_reader_fail(struct cg_reader *r, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
int cg_reader_unsupported(struct cg_reader *r, const char *why);
int cg_reader_object(struct cg_reader *r, const json_t *o, const struct cg_field *fields, size_t n,
                     enum cg_unknown unknown, void *to);

/* Appends a key or index to the path; the result goes to cg_reader_leave(). */
size_t cg_reader_enter(struct cg_reader *r, const char *key);
size_t cg_reader_enter_index(struct cg_reader *r, size_t i);
void cg_reader_leave(struct cg_reader *r, size_t mark);

/* Field functions. */
/* an object, by the field's own table, which fills the struct at the field's offset */
int cg_reader_table(struct cg_reader *r, const json_t *v, const struct cg_field *f, void *to);
/* bool */
int cg_reader_bool(struct cg_reader *r, const json_t *v, const struct cg_field *f, void *to);
/* int */
int cg_reader_int(struct cg_reader *r, const json_t *v, const struct cg_field *f, void *to);
/* struct cg_sandbox_limits, by the key */
int cg_reader_limit(struct cg_reader *r, const json_t *v, const struct cg_field *f, void *to);
/* const char *, not "" */
int cg_reader_str(struct cg_reader *r, const json_t *v, const struct cg_field *f, void *to);
/* struct cg_strs */
int cg_reader_strs(struct cg_reader *r, const json_t *v, const struct cg_field *f, void *to);
/* struct cg_path_list */
int cg_reader_paths(struct cg_reader *r, const json_t *v, const struct cg_field *f, void *to);
int cg_reader_ignored_bool(struct cg_reader *r, const json_t *v, const struct cg_field *f, void *to);
int cg_reader_ignored_str(struct cg_reader *r, const json_t *v, const struct cg_field *f, void *to);
int cg_reader_ignored_strs(struct cg_reader *r, const json_t *v, const struct cg_field *f, void *to);
int cg_reader_ignored_object(struct cg_reader *r, const json_t *v, const struct cg_field *f, void *to);
int cg_reader_refused(struct cg_reader *r, const json_t *v, const struct cg_field *f, void *to);

/* A list's elements, each read by @each into @size bytes. *ret is NULL for an empty list. */
int cg_reader_list(struct cg_reader *r, const json_t *v, const struct cg_field *f, cg_field_fn each,
                   size_t size, void **ret, size_t *n);
/*
 * An object whose keys are data. Each member becomes @size bytes: its key (borrowed, a const char *
 * at the beginning), and at @f's offset what @f reads of its value. *n counts them as they come,
 * from 0.
 */
int cg_reader_members(struct cg_reader *r, const json_t *v, const struct cg_field *f, size_t size, void **ret,
                      size_t *n);

/* network.c: the field "network". */
int cg_reader_network(struct cg_reader *r, const json_t *v, const struct cg_field *f, void *to);

/* check.c: NULL, or the error. */
const char *cg_check_domain(const char *text);         /* name, *.name, address; no port */
const char *cg_check_allowed_domain(const char *text); /* the same with or without a port */
const char *cg_check_denied_domain(const char *text);  /* and "*" */
const char *cg_check_address_range(const char *text);
const char *cg_check_absolute(const char *text);
const char *cg_check_name(const char *text); /* one of names.h, or of that form */
const char *cg_check_url(const char *text);
const char *cg_check_variable(const char *text);
const char *cg_check_mach_name(const char *text);
const char *cg_check_tier(const char *text);

/* True if allowed entries cover an entry of injectHosts. */
bool cg_domain_covered(const char *host, const struct cg_strs *allowed);
