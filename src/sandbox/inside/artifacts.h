/* The file operation `changed` (files.h). */
#ifndef CG_SANDBOX_INSIDE_ARTIFACTS_H
#define CG_SANDBOX_INSIDE_ARTIFACTS_H

struct cg_sandbox;

int cg_files_changed(const struct cg_sandbox *sb, char *const *argv);

#endif
