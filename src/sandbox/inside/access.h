/*
 * Explains by the plan why a file could not be read or written. The kernel calls these functions
 * about exceptions, so the explanation is the kernel's own and not to be trusted. It reveals
 * nothing: the mounts can be seen from inside.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include "sandbox/sandbox.h"

enum cg_access { CG_ACCESS_READ, CG_ACCESS_WRITE, CG_ACCESS_EXEC };

/* Rules that deny, and their names on the kernel wire. */
#define CG_ACCESS_RULES(X) \
        X(NOT_ALLOWED, "not-allowed") /* nothing allows it to be written */ \
        X(DENY_WRITE, "deny-write")   /* a setting, or the list of paths that are never writable */ \
        X(DENY_READ, "deny-read")     /* a setting hides it */ \
        X(CREDENTIALS, "credentials") /* hidden by default */ \
        X(PRIVATE, "private")         /* hidden: the host's and cellgate's own files, .env */ \
        X(OWN, "own")                 /* the sandbox's own /dev, /proc and /sys */ \
        X(MASKED, "masked")           /* a file that shows other content */ \
        X(NAME, "name")               /* a name that programs outside obey (names.h) */ \
        X(IN_PLACE, "in-place") /* cannot be renamed or removed: denied paths below it would move along */ \
        X(PRIVILEGES, "privileges") /* user 0 has no powers over others' files */ \
        X(NO_NETWORK, "no-network") \
        X(NO_DIRECT, "no-direct-network") /* connections are possible by the proxy only */ \
        X(UNIX_SOCKETS, "unix-sockets") \
        X(PROGRAMS, "programs")         /* cells start none */ \
        X(NOT_APPROVED, "not-approved") /* a program that the host was asked about */ \
        X(NOT_ASKED, "not-asked")       /* a program that the host cannot be asked about */

#define CG_ACCESS_NAME_WHY     "programs outside of the sandbox obey " /* and the name */
#define CG_ACCESS_PROGRAMS_WHY "cells of this session start no programs"
#define CG_ACCESS_PROGRAMS_HOW \
        "whoever starts the session sets exec to \"allow\" (--exec, or cellgate.exec of a settings file)"

#define CG_ACCESS_ENUM(name, text) CG_ACCESS_##name,
enum cg_access_rule { CG_ACCESS_NONE, CG_ACCESS_RULES(CG_ACCESS_ENUM) };

/*
 * The rule that made @access to @path (absolute, without symlinks) fail with errno @error.
 * CG_ACCESS_NONE: the sandbox did not cause the failure. *setting: the setting that the rule comes
 * from ("filesystem.denyWrite.3", "mandatory"; borrowed from @sb), or NULL. @root: the caller is
 * user 0 without capabilities; the modes and owners of the file and its folder are read then.
 */
enum cg_access_rule cg_access_explain(const struct cg_sandbox *sb, enum cg_access access, const char *path,
                                      int error, bool root, const char **setting);

/*
 * @path as this process sees it, absolute and without symlinks; parts that do not exist stay as
 * they are. @real has PATH_MAX bytes. False: it is too long, or not a path.
 */
bool cg_access_resolve(const char *path, char *real);

/*
 * The credentials in a home folder that @name, in the sandbox's own home, stands for: ".ssh/key" is
 * /home/user/.ssh/key where /home/user/.ssh is hidden (@path: PATH_MAX bytes).
 */
bool cg_access_hidden_in_home(const struct cg_sandbox *sb, const char *name, char *path);

/* The rule that denies a connection without the proxy. */
enum cg_access_rule cg_access_explain_network(const struct cg_sandbox *sb);

/* The plan was made by a settings file: for cg_access_words(). */
bool cg_access_by_settings(const struct cg_sandbox *sb);

const char *cg_access_rule_name(enum cg_access_rule rule);
/* CG_ACCESS_NONE: no rule has that name */
enum cg_access_rule cg_access_rule_named(const char *name);
/* "file-read", "file-write", "exec". The inverse returns -1 for any other text. */
const char *cg_access_operation(enum cg_access access);
int cg_access_of_operation(const char *operation);

/*
 * Describes a rule. @setting has been checked by cg_access_is_setting(). @by_settings: there is a
 * settings file; otherwise the defaults of a kernel without one are described.
 */
struct cg_access_words {
        char rule[64];
        char why[160];
        const char *how; /* how to allow it; may be how_text; NULL: no setting would */
        char how_text[128];
};
void cg_access_words(enum cg_access_rule rule, const char *setting, const char *path, bool by_settings,
                     struct cg_access_words *ret);
/* @text is a possible name of a setting or one of the reasons CG_WHY_..., and nothing else. */
bool cg_access_is_setting(const char *text);
