/* Rules that a person adds to a file of --policy at a question. Used by `cellgate run`. */
#pragma once

#include "cli/common/kernel_options.h"

/*
 * The narrowest rule that allows @call (*rule, returns), and the file of --policy that it would be
 * added to (*file, borrowed). @settings: of the sandbox, as text; NULL: the default. Negative: no
 * such rule, no file, or a file that cells could write.
 */
int cg_policy_rule_find(const struct cg_kernel_options *o, const char *settings,
                        const struct cg_pol_call *call, char **rule, const char **file, struct cg_err *err);
/* Adds it to @file: replaces that at once, by what it is now and the rule. */
int cg_policy_rule_write(const struct cg_kernel_options *o, const char *settings,
                         const struct cg_pol_call *call, const char *file, struct cg_err *err);
