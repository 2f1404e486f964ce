/* The file operation `changed` (files.h). */
#pragma once

struct cg_sandbox;

int cg_files_changed(const struct cg_sandbox *sb, char *const *argv);
