/*
 * What a session's kernels see by settings. Runs in the zygote, which makes the plans, and in the
 * supervisor, which cleans up.
 */
#ifndef CG_SANDBOX_SETTINGS_KERNEL_VIEW_H
#define CG_SANDBOX_SETTINGS_KERNEL_VIEW_H

#include <stdint.h>

#include "sandbox/settings/rules.h"
#include "sandbox/sandbox.h"
#include "sandbox/settings/settings.h"

/*
 * Adds to a kernel's plan what @s says about files. @masks (may be NULL): masked credentials, each
 * {"path", "data": what the file shows, in hexadecimal digits; without it nothing is shown}.
 * @workspace: what relative paths start at; @home may be NULL. @guards: see cg_rules_add_guards().
 * @by_name: names are protected by init (the full tier); else those that are found now.
 */
int cg_session_view(struct cg_sandbox *plan, const struct cg_settings *s, const json_t *masks,
                    const char *workspace, const char *home, const json_t *guards, bool by_name,
                    struct cg_err *err);
/*
 * The same where there are no settings: all may be read but where credentials lie, the workspace
 * may be written, but not what stands there that programs outside obey. A workspace that is the
 * home folder is written only where no program of the user's looks by itself, one above it not at
 * all.
 */
int cg_session_view_default(struct cg_sandbox *plan, const char *workspace, const char *home,
                            const json_t *guards, bool by_name, struct cg_err *err);
/* The rules about paths that these views are made of. @s: NULL where there are no settings. */
int cg_session_rules(const struct cg_settings *s, const char *workspace, const char *home,
                     const json_t *guards, bool by_name, struct cg_rules *ret, struct cg_err *err);
enum cg_holds_home { CG_HOLDS_NO_HOME, CG_IS_HOME, CG_IS_ABOVE_HOME };
/* Of @home (may be NULL) and the account's home, whichever says more; "/" is above all homes. */
enum cg_holds_home cg_session_view_holds_home(const char *workspace, const char *home);
/*
 * A number for which files @plan treats in a way of its own, and which files these are now. A
 * kernel that was started when it was another shows what came later, where a kernel that is started
 * now would not.
 */
uint64_t cg_session_view_print(const struct cg_sandbox *plan);
#endif
