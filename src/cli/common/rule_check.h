/*
 * The check of approval rules against the MCP servers of a session, at its start: a rule with a
 * typing error decides nothing, and nobody would notice that. Used by `cellgate run`, `mcp serve`
 * and `jupyter`.
 */
#pragma once

#include <jansson.h>
#include "cli/common/approve.h"

/*
 * The tools of MCP servers as {SERVER: [TOOL, ...]}, and null for a server that did not start,
 * whose tools are not known. @report: of cg_session_add_mcp_servers(); NULL: it failed. @servers:
 * their definitions; NULL: there are none. Returns a new object; NULL: out of memory.
 */
json_t *cg_rules_known(const char *report, const json_t *servers);

/*
 * Appends a line to @notes for each rule that matches no server or no tool in @known, with a
 * similar name. CG_E_INVAL if one of them refuses, unless rules are lax (cg_approve_set_lax()).
 * @known: of cg_rules_known().
 */
int cg_rules_check(const struct cg_approve *a, const json_t *known, struct cg_buf *notes, struct cg_err *err);
