/*
 * Pinned tools: what the tools of an MCP server were when they were accepted. A tool whose
 * definition has changed since is not called before a person has accepted the change, so that a
 * server cannot change the meaning of what was approved once.
 *
 * One file for each definition of a server in the state folder (cg_state_dir()), which no sandbox
 * can read or write:
 *
 *      {"format": "cellgate tool pins", "version": 1, "server": NAME, "program": TEXT,
 *       "definition": sha256, "tools": {NAME: PIN, ...}}
 *      PIN: {"sha256", "text", "pending": {"sha256", "text"}}
 *
 * "sha256" is the digest of the accepted definition of a tool, "text" that definition in canonical
 * form, absent where it is too long to keep. "pending" is one that waits for acceptance; a PIN with
 * that alone is a new tool that has to be accepted first.
 *
 * Beside it is a file with the last list of the server's tools, as the server wrote it or an
 * earlier one of the same digests, if each of them was accepted. It is obeyed only where the
 * digests of the pins confirm each tool.
 *
 * Runs in the tool server and in the command `cellgate`. All functions block, for at most
 * CG_PINS_LOCK_MS.
 */
#pragma once

#include <jansson.h>
#include "base/buf.h"
#include "base/sha256_hex.h"
#include "base/slice.h"

/* ---- canonical.c, text.c: definitions of tools */

/*
 * Appends the canonical form of a tool, which is ASCII: the members name, title, description,
 * inputSchema, outputSchema and annotations, with the members of all objects sorted and no white
 * space. Numbers are as the server wrote them. CG_E_PARSE, CG_E_LIMIT: the definition has none,
 * because a member is there twice, a string has a NUL or a lone surrogate, or it is too deep.
 */
int cg_pin_canonical(struct cg_slice tool, struct cg_buf *b, struct cg_err *err);
/*
 * Appends lines, safe to show, that say how @now differs from @then, both in canonical form;
 * CG_SLICE_NONE: the text was not kept. Texts that differ never look the same. *left_out:
 * differences that are not shown, since there would be over @max bytes; then the lines end with
 * this number, and with what both texts are around the first byte that differs.
 */
int cg_pin_diff(struct cg_slice then, struct cg_slice now, size_t max, struct cg_buf *b, size_t *left_out,
                struct cg_err *err);

/* ---- pins.c: one server's tools */

struct cg_pins;

/*
 * @definition: of the server; its member "identity" (cg_json_mcp_identity()), or the definition
 * itself, finds the file. Nothing is read yet. @unrecorded: an object for the pins that cannot be
 * written, shared by the servers of a process, so that a server that is added again is not new;
 * NULL: one of its own.
 */
int cg_pins_new(const char *server, const char *program, const json_t *definition, json_t *unrecorded,
                struct cg_pins **ret, struct cg_err *err);
struct cg_pins *cg_pins_free(struct cg_pins *p);
/*
 * Compares the list of a server's tools (a JSON array) with the pins and stores what is new: all
 * tools when the server is seen for the first time, else those whose names are not known. Changed
 * tools are stored as pending. Must be called for each list before a call of its tools.
 */
void cg_pins_listed(struct cg_pins *p, const char *tools, size_t len);
/*
 * 0: the definition of @tool in the last list is the accepted one, or @p is NULL: there are no
 * pins. Else *err is for the caller of the tool. Reads the file again if it was replaced:
 * acceptance has effect at once.
 */
int cg_pins_check(struct cg_pins *p, const char *tool, struct cg_err *err);
/*
 * True: the pins could not be read when they were compared with the last list, and no tool may be
 * called. The next list may find them repaired.
 */
bool cg_pins_failed(const struct cg_pins *p);
/*
 * Appends a report about the last list: {"file", "first", "new": [NAME...], "changed": [{"tool",
 * "state", "diff"}...], "text"}. "file" is the path of the pins. "text" is for people, and so is
 * "first", about a server that is seen for the first time; each is lines or "". Nothing is appended
 * when there is no such tool. @all: also tools that were reported already.
 */
int cg_pins_report(struct cg_pins *p, bool all, struct cg_buf *b, struct cg_err *err);
/* True: a report has something that no report has had before. */
bool cg_pins_has_news(const struct cg_pins *p);
/*
 * Appends the list for generated modules: @tools with the accepted definitions of changed tools,
 * and without tools that cannot be called. Fails where the pins cannot be read.
 */
int cg_pins_list(const struct cg_pins *p, const char *tools, size_t len, struct cg_buf *b,
                 struct cg_err *err);
/*
 * Appends the last list of the server's tools, from which its modules are made without starting it.
 * CG_E_NOTFOUND: there is none, it has no tools or not all that are pinned, or one of them is not
 * accepted or waits for acceptance.
 */
int cg_pins_known(const struct cg_pins *p, struct cg_buf *b, struct cg_err *err);
/* "accepted", "new", "changed", "held", "ambiguous", "invalid" or "unknown". Static. */
const char *cg_pins_state(const struct cg_pins *p, const char *tool);

/* ---- file.c: the files */

#define CG_PINS_FOLDER "mcp-tools" /* in the state folder */

/*
 * The path of the file of a server's definition, in a folder that is made where it is absent.
 * CG_E_NOTFOUND: it is absent and cannot be made, so that there are no pins.
 */
int cg_pins_path(const char *key, char path[], size_t size, struct cg_err *err);
/* Checks the text of a file, whose path is for messages. */
int cg_pins_parse(const char *text, size_t len, const char *path, json_t **ret, struct cg_err *err);
/* CG_E_NOTFOUND: there is no such file. */
int cg_pins_load(const char *path, json_t **ret, struct cg_err *err);
/* *lock: a descriptor whose close gives the right to change the file back. */
int cg_pins_lock(const char *path, int64_t timeout_ms, int *lock, struct cg_err *err);
int cg_pins_save(const char *path, const json_t *pins, struct cg_err *err);
/* The last list of the server whose pins have @path. */
int cg_pins_load_list(const char *path, char **ret, size_t *len, struct cg_err *err);
/* NULL: there is none to be stored, and an old one is removed. A failure costs a start. */
void cg_pins_save_list(const char *path, const char *tools, size_t len);
