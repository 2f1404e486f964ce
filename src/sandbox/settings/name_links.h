/*
 * Files that programs obey by a link: a link that has a name of the table (names.h), or is in a
 * folder with such a name, leads to a file whose own name is not protected. Such files are denied
 * by their paths, as far as write roots hold them.
 */
#pragma once

#include "sandbox/settings/rules.h"

/*
 * Sets the links of the scanned folder @p, whose rows of the kind CG_NAME_WRITE are known.
 * @stamps (may be NULL): gets the folders that were listed.
 */
int cg_name_links_find(struct cg_present *p, struct cg_stamps *stamps, struct cg_err *err);
/* For the names of the scanned folder @p, and its links. */
int cg_rules_deny_name_links(struct cg_rules *rules, const struct cg_present *p, struct cg_err *err);
