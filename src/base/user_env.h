/*
 * Variables that decide which files the user's programs obey outside of a sandbox: folders of
 * programs and of settings, git's settings. They are of the process that requests a sandbox. What
 * makes a view of files gets them with the request, and never reads its own environment: the
 * zygote's has none of them, and a shared supervisor's is another client's.
 */
#pragma once

#include <jansson.h>
#include "base/err.h"

/* The most pairs of GIT_CONFIG_KEY_n and GIT_CONFIG_VALUE_n. */
#define CG_USER_ENV_PAIRS 100

/* Variables that name programs, folders and files, as git's settings do: git_settings.c. */
#define CG_USER_ENV_NAMED(X) \
        X("GIT_SSH_COMMAND", PROGRAM) \
        X("GIT_SSH", PROGRAM) \
        X("GIT_PROXY_COMMAND", PROGRAM) \
        X("GIT_ASKPASS", PROGRAM) \
        X("SSH_ASKPASS", PROGRAM) \
        X("SUDO_ASKPASS", PROGRAM) \
        X("GIT_EXTERNAL_DIFF", PROGRAM) \
        X("GIT_EDITOR", PROGRAM) \
        X("GIT_SEQUENCE_EDITOR", PROGRAM) \
        X("VISUAL", PROGRAM) \
        X("EDITOR", PROGRAM) \
        X("GIT_PAGER", PROGRAM) \
        X("MANPAGER", PROGRAM) \
        X("PAGER", PROGRAM) \
        X("LESSOPEN", PROGRAM) \
        X("BROWSER", PROGRAM) \
        X("GIT_EXEC_PATH", FOLDER) \
        X("GIT_TEMPLATE_DIR", FOLDER) \
        X("BASH_ENV", FILE_) \
        X("ENV", FILE_) \
        X("PYTHONSTARTUP", FILE_) \
        X("NODE_OPTIONS", PROGRAM) \
        X("LD_PRELOAD", OPTIONS) \
        X("LD_AUDIT", OPTIONS) \
        X("PERL5OPT", OPTIONS) \
        X("RUBYOPT", OPTIONS) \
        X("JAVA_TOOL_OPTIONS", OPTIONS) \
        X("JDK_JAVA_OPTIONS", OPTIONS) \
        X("_JAVA_OPTIONS", OPTIONS)

/*
 * {"NAME": "VALUE"} of those that are set in @env (NULL-terminated "NAME=VALUE"), and as
 * CG_USER_ENV_CWD the folder @cwd (may be NULL), where relative entries of PATH begin. It fails for
 * values that are not UTF-8: what they name would be writable. The caller owns @ret.
 */
#define CG_USER_ENV_CWD "."
int cg_user_env(char *const *env, const char *cwd, json_t **ret, struct cg_err *err);
/* A variable of these; NULL: it is not set, or is empty. @env may be NULL. */
const char *cg_user_env_get(const json_t *env, const char *name);
