/* The folder of cellgate's own state of this user, with credentials of MCP servers. */
#ifndef CG_BASE_STATE_DIR_H
#define CG_BASE_STATE_DIR_H

#include <linux/limits.h>
#include <stdbool.h>

/*
 * $XDG_STATE_HOME/cellgate, or below ~/.local/state. No sandbox may read it. False: neither
 * variable says where it is, and the account has no home.
 */
bool cg_state_dir(char ret[PATH_MAX]);

/*
 * The same, made where it is absent (but no home is made): sandboxes must hide it before a login
 * stores a token there. False: there is none, and no token can be stored.
 */
bool cg_make_state_dir(char ret[PATH_MAX]);

#endif
