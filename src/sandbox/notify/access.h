/*
 * Why a file could not be read or written: a plan's answer. Pure; the kernel asks it about
 * exceptions, so what it says is the kernel's own word. Nothing in it is a secret from the kernel:
 * the mounts can be seen from inside.
 */
#ifndef CG_SANDBOX_NOTIFY_ACCESS_H
#define CG_SANDBOX_NOTIFY_ACCESS_H

#include <stdbool.h>
#include <stddef.h>
#include "sandbox/sandbox.h"

enum cg_access { CG_ACCESS_READ, CG_ACCESS_WRITE, CG_ACCESS_EXEC };

/* Rules that deny; their names are those of the kernel wire. */
#define CG_ACCESS_RULES(X) \
        X(NOT_ALLOWED, "not-allowed") /* nothing allows it to be written */ \
        X(DENY_WRITE, "deny-write")   /* a setting, or the list of what is never written */ \
        X(DENY_READ, "deny-read")     /* a setting hides it */ \
        X(CREDENTIALS, "credentials") /* hidden, though no setting says so */ \
        X(PRIVATE, "private")         /* hidden: the host's and cellgate's own files, .env */ \
        X(OWN, "own")                 /* the sandbox's own /dev, /proc and /sys */ \
        X(MASKED, "masked")           /* a file that shows other content */ \
        X(NAME, "name")               /* programs outside obey files of that name */ \
        X(IN_PLACE, "in-place") /* cannot be renamed or removed: what is denied below it would move along */ \
        X(PRIVILEGES, "privileges") /* user 0 has no powers over others' files */ \
        X(NO_NETWORK, "no-network") \
        X(NO_DIRECT, "no-direct-network") /* only the proxy leads out */ \
        X(UNIX_SOCKETS, "unix-sockets")

#define CG_ACCESS_ENUM(name, text) CG_ACCESS_##name,
enum cg_access_rule { CG_ACCESS_NONE, CG_ACCESS_RULES(CG_ACCESS_ENUM) };

/*
 * Which rule made @access to @path (absolute, without symlinks) fail with errno @error.
 * CG_ACCESS_NONE: not the sandbox's doing. *setting: the setting that the rule comes from
 * ("filesystem.denyWrite.3", "mandatory"; borrowed from @sb), or NULL. @root: the caller is user 0.
 */
enum cg_access_rule cg_access_explain(const struct cg_sandbox *sb, enum cg_access access, const char *path,
                                      int error, bool root, const char **setting);

/*
 * @path as mounts know it, in what this process sees: absolute, without symlinks; what does not
 * exist keeps its spelling. @real has PATH_MAX bytes. False: it is too long, or no path.
 */
bool cg_access_resolve(const char *path, char *real);

/* The same for a connection past the proxy. */
enum cg_access_rule cg_access_explain_network(const struct cg_sandbox *sb);

/* Whether the plan was made by a settings file: for cg_access_words(). */
bool cg_access_by_settings(const struct cg_sandbox *sb);

const char *cg_access_rule_name(enum cg_access_rule rule);
/* CG_ACCESS_NONE: there is none of that name */
enum cg_access_rule cg_access_rule_named(const char *name);
/* "file-read", "file-write", "exec"; -1: none of them. */
const char *cg_access_operation(enum cg_access access);
int cg_access_of_operation(const char *operation);
/* "reading", "writing", "running" */
const char *cg_access_verb(enum cg_access access);

/*
 * A rule in words. @setting: checked, by cg_access_is_setting(). @by_settings: there is a settings
 * file; else what holds for a kernel without one.
 */
struct cg_access_words {
        char rule[64];
        char why[160];
        const char *how; /* NULL: nothing would allow it; perhaps how_text */
        char how_text[128];
};
void cg_access_words(enum cg_access_rule rule, const char *setting, const char *path, bool by_settings,
                     struct cg_access_words *ret);
/* Whether @text can be a setting's name, or is one of the reasons CG_WHY_..., and nothing else. */
bool cg_access_is_setting(const char *text);

#endif
