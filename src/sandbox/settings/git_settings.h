/*
 * Git's settings of the user, of the system and of repositories: what they name must not be written
 * by sandboxes (docs/names.md, git).
 */
#pragma once

#include "sandbox/settings/rules.h"

/*
 * Denies what the settings in @file name, and those in the files that they include, whatever the
 * condition.
 * @top: where relative hooks and programs begin.
 */
int cg_git_deny_named(struct cg_rules *rules, const char *file, const char *top, struct cg_err *err);
/*
 * The same for all settings that apply to every repository: /etc/gitconfig, the user's own files,
 * and those of variables in rules->base->env. @top: only relative hooks and programs, which begin
 * there; NULL: all others, and the files themselves.
 */
int cg_git_deny_user(struct cg_rules *rules, const char *top, struct cg_err *err);
/* The same for what the variables CG_USER_ENV_NAMED of rules->base->env name. */
int cg_git_deny_variables(struct cg_rules *rules, struct cg_err *err);
