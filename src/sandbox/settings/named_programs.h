/*
 * Programs that protected files name: .mcp.json starts ./tools/server.js, and .husky/pre-commit
 * scripts/check.sh. Who can write these needs not write the file that names them.
 */
#pragma once

#include "sandbox/settings/rules.h"

/*
 * Denies programs in write roots that files in the folder of @p name: its settings of agents,
 * editors and hook managers, and its hooks. Reads words, not the languages of these files, and
 * opens no file whose rows are absent. @p was scanned for CG_NAME_WRITE.
 */
int cg_rules_deny_named_programs(struct cg_rules *rules, const struct cg_present *p, struct cg_err *err);
