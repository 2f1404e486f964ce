/* The folder of cellgate's own state of this user, with credentials of MCP servers. */
#pragma once

#include <jansson.h>
#include <linux/limits.h>
#include <stdbool.h>
#include "base/err.h"

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

/* Bytes that the names of files in a folder of the state folder may have, and a '/'. */
#define CG_STATE_NAME 128

/*
 * The path of the folder @name in it, of mode 0700, which is made where it is absent.
 * CG_E_NOTFOUND: it is absent and cannot be made. CG_E_STATE: it is there, or may be, and cannot be
 * used.
 */
int cg_state_folder(const char *name, char ret[PATH_MAX], struct cg_err *err);
/* The paths of at most @max files of @folder whose names end with ".json": an array (returns). */
int cg_state_files(const char *folder, size_t max, json_t **ret, struct cg_err *err);
