/*
 * The confinement of a process as text: all that the operating system allows it or denies it.
 * A process may use a supervisor that another one has started only where both texts are equal:
 * kernels and MCP servers are the supervisor's children, and get its limits and rights.
 */
#pragma once

#include "base/buf.h"

/* A list of groups may have 65,536 entries. */
#define CG_CONFINEMENT_MAX ((size_t)1 << 20)

/*
 * Appends the text of process @pid of this user. Negative: it cannot be read, or does not say
 * everything: CG_E_UNSUPPORTED for a process with no_new_privs, which may be in a Landlock domain.
 */
int cg_confinement(pid_t pid, struct cg_buf *b, struct cg_err *err);
