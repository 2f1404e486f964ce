/* Paths that no kernel may write, and the environments and workspaces that are refused for them. */
#pragma once

#include <jansson.h>
#include "base/err.h"

struct session;
struct sup;

/*
 * Returns the paths that no kernel may write, as cg_rules_add_guards() takes them:
 * cg_sup_server_guards(), cellgate's own places, and the environment of kernels with its base
 * Python. Paths are listed even if they do not exist, because cellgate would trust what a cell puts
 * there.
 */
json_t *cg_sup_protected_paths(const struct sup *s);
/*
 * The protected names and links in the user's homes, for struct cg_path_base. They are scanned
 * again when a folder there has changed. Borrowed, until the next call.
 */
const json_t *cg_sup_homes(struct sup *s);
/*
 * Checks that session @ss may be started: the chosen environment can be used, its cells cannot
 * write to that environment or to its base Python, and its workspace holds no programs of
 * cellgate's own and is not one of its places. CG_E_INVAL or CG_E_STATE with the reason if the
 * session is refused.
 */
int cg_sup_protected_check(const struct session *ss, struct cg_err *err);
