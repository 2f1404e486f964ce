/*
 * Secrets of MCP servers, and texts for people without them. A server writes what it likes to its
 * standard error and into its errors: this finds a secret as it is, as it looks in URLs, in JSON
 * and in Python's strings, in base64 and hexadecimal, and long parts of it, since texts are cut and
 * wrapped. It is no boundary against a server that wants to give a secret away.
 */
#pragma once

#include <jansson.h>
#include "base/buf.h"

struct cg_secrets {
        char **v;
        size_t n, cap;
        bool whole; /* parts of a secret are shown */
};

/*
 * Adds @value (copies), and other forms of it. One of less than 8 bytes is found only as a whole
 * word, one of less than 3 never: it would turn every other message into stars.
 */
int cg_secrets_add(struct cg_secrets *s, const char *value, struct cg_err *err);
/* The same for the strings of @values (may be NULL). */
int cg_secrets_add_all(struct cg_secrets *s, const json_t *values, struct cg_err *err);
void cg_secrets_fini(struct cg_secrets *s);

/*
 * The same for variables ("NAME=VALUE"; NULL-terminated, may be NULL) whose names say that they are
 * secrets, with at least 8 bytes: shorter values may be words of any text.
 */
int cg_secrets_add_env(struct cg_secrets *s, const char *const *env, struct cg_err *err);

/* True for names whose values are secrets, such as "--api-token". */
bool cg_secrets_has_name(const char *name);

/* Replaces secrets in @text (changed in place, never longer) by "***". */
void cg_secrets_redact(const struct cg_secrets *s, char *text);
/* The same in a text that may contain NUL. */
void cg_secrets_redact_buf(const struct cg_secrets *s, struct cg_buf *text);
/* The same for the secrets in the array @values, which may be NULL. */
void cg_secrets_redact_with(const json_t *values, char *text);
/* The same in all strings of @v but for names of members. */
void cg_secrets_redact_json(const struct cg_secrets *s, json_t *v);

/*
 * @s (borrows) for texts of which cells choose a part, and see the result: by what is masked of
 * their guesses they could find out a secret bit by bit.
 */
static inline struct cg_secrets cg_secrets_whole(const struct cg_secrets *s)
{
        return (struct cg_secrets){ .v = s->v, .n = s->n, .whole = true };
}

#define cg_auto_secrets CG_CLEANUP(cg_secrets_fini)
