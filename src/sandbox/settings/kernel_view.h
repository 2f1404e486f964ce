/*
 * The view of files that a session's kernels have by its settings. Runs in the zygote, which makes
 * the plans, and in the supervisor, which cleans up.
 */
#pragma once

#include "sandbox/settings/rules.h"
#include "sandbox/sandbox.h"
#include "sandbox/settings/settings.h"

/*
 * Adds the settings @s about files to a kernel's plan. @masks (may be NULL): masked credentials,
 * each {"path", "data": the visible content in hexadecimal; without it the file is hidden}.
 * @base: its folder is the workspace. @guards: see cg_rules_add_guards().
 */
int cg_session_view(struct cg_sandbox *plan, const struct cg_settings *s, const json_t *masks,
                    const struct cg_path_base *base, const json_t *guards, struct cg_err *err);
/*
 * The same without settings: all files but credentials may be read; the workspace may be written,
 * but for names that programs outside obey. In a workspace that is the home folder, only files may
 * be written that no program of the user reads by itself; in one above it, none.
 */
int cg_session_view_default(struct cg_sandbox *plan, const struct cg_path_base *base, const json_t *guards,
                            struct cg_err *err);
/* The rules about paths that these views are made of. @s: NULL where there are no settings. */
int cg_session_rules(const struct cg_settings *s, const struct cg_path_base *base, const json_t *guards,
                     struct cg_rules *ret, struct cg_err *err);
/*
 * A sentence about the folders of PATH that cells of these do not write; nothing where there are
 * none. @s: NULL where there are no settings.
 */
int cg_session_say_path_folders(const struct cg_settings *s, const struct cg_path_base *base,
                                struct cg_buf *ret, struct cg_err *err);
enum cg_holds_home { CG_HOLDS_NO_HOME, CG_IS_HOME, CG_IS_ABOVE_HOME };
/* The larger value for @home (may be NULL) and the account's home; "/" is above all homes. */
enum cg_holds_home cg_session_view_holds_home(const char *workspace, const char *home);
/*
 * Fingerprint of the paths that @plan mounts and of the files that are there now. If it has changed
 * since a kernel was started, that kernel may show files that a new kernel would not.
 */
uint64_t cg_session_view_print(const struct cg_sandbox *plan);
