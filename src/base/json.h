/*
 * JSON envelopes with jansson: loading with line and column, typed getters, output. Payloads are
 * never parsed with this, but read as text: json_text.h.
 */
#pragma once

#include <jansson.h>
#include "base/buf.h"
#include "base/json_text.h"

static inline void cg_json_decrefp_(json_t **j)
{
        json_decref(*j);
}
#define cg_auto_json CG_CLEANUP(cg_json_decrefp_)

/* For jansson's functions that count references or iterate, which take no const. */
static inline json_t *cg_json_unconst(const json_t *o)
{
        return (json_t *)(uintptr_t)o;
}

/* Parses one JSON object. @what names it in the error: CG_E_PARSE with line and column. */
int cg_json_object(const char *text, size_t len, const char *what, json_t **ret, struct cg_err *err);

/* Members of an object, the string borrowed; @def if absent. CG_E_PARSE: of another type. */
int cg_json_str(const json_t *o, const char *key, const char *def, const char **ret, struct cg_err *err);
int cg_json_int(const json_t *o, const char *key, int64_t def, int64_t *ret, struct cg_err *err);
int cg_json_bool(const json_t *o, const char *key, bool def, bool *ret, struct cg_err *err);

/* The member @key of @o as text, borrowed; "" where it is none. */
static inline const char *cg_json_text_of(const json_t *o, const char *key)
{
        return json_string_value(json_object_get(o, key)) ?: "";
}

/* Compact ASCII text; NULL: no memory (or text that cannot be JSON). Caller frees. */
char *cg_json_text(const json_t *j, size_t *len);

/*
 * The MCP servers that @file defines: {"mcpServers": {NAME: ...}}, {"servers": {NAME: ...}} (VS
 * Code), or {NAME: ...} itself; without those that are switched off ("disabled": true, "enabled":
 * false). *ret (returns) is an object of the file's own values. CG_E_INVAL.
 */
int cg_json_mcp_servers(const json_t *file, json_t **ret, struct cg_err *err);

/*
 * A copy of an MCP server's definition (returns) with ${VAR}, ${env:VAR} and ${VAR:-DEFAULT} in its
 * strings replaced by the environment's values. "secrets" are these values, but for those of
 * variables that servers inherit (cg_proc_env_passes()); "identity" is cg_json_mcp_identity();
 * other members that only cellgate itself may set are left out. NULL: *err names @where and the
 * variable.
 */
json_t *cg_json_expand_server(const json_t *definition, const char *where, struct cg_err *err);

/*
 * The identity of an MCP server's definition, as text (returns; free()): program, arguments, folder
 * and URL, before variables are replaced, so that the value of a secret is no part of it. NULL: out
 * of memory.
 */
char *cg_json_mcp_identity(const json_t *definition);

/* Appends @s as a JSON string literal, ASCII only; bytes that are not UTF-8 become U+FFFD. */
void cg_json_quote(struct cg_buf *b, const char *s, size_t len);
static inline int cg_json_try_quote(struct cg_buf *b, const char *s, size_t len, struct cg_err *err)
{
        cg_json_quote(b, s, len);
        return cg_buf_end(b, err);
}

/*
 * The variables of this process that MCP servers inherit (cg_proc_env_passes()), {"NAME": "VALUE"},
 * but for values that are not UTF-8. Returns; NULL: out of memory. Threads: any, while none changes
 * the environment.
 */
json_t *cg_json_passed_env(void);
