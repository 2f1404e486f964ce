/* Prints the reports of cg_codegen() and cg_session_add_mcp_servers() about a server's tools. */
#pragma once

#include "base/json_text.h"
#include "cli/common/screen.h"

struct cg_report_counts {
        size_t full, degraded, rejected;
};

/*
 * Counts the tools of one server's report, and notes those that are not full, each with its
 * warnings: degraded ones only when @all. @server names it in the notes.
 */
void cg_report_print(struct cg_screen *screen, const char *server, struct cg_slice report, bool all,
                     struct cg_report_counts *ret);

/* The same for {"NAME": report, ...}. */
void cg_report_print_servers(struct cg_screen *screen, const char *json, bool all);
