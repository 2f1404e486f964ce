/* Files of repositories that git reads or runs, for mandatory.c. */
#pragma once

#include "sandbox/settings/rules.h"

/* The repository @folder/@name, if there is one; @config_too: its settings as well. */
int cg_rules_deny_repository(struct cg_rules *rules, const char *folder, const char *name, bool config_too,
                             bool absent_too, struct cg_err *err);
/* True if the folder @name in @dir has a HEAD, as repositories have. */
bool cg_rules_has_head(int dir, const char *name);
/* True if the entry is a folder, and no link to one. */
bool cg_is_folder(int dir, const struct dirent *d);
