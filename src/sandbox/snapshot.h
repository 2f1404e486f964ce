/* The file operations `snapshot` and `changes` (files.h). */
#ifndef CG_SANDBOX_SNAPSHOT_H
#define CG_SANDBOX_SNAPSHOT_H

int cg_files_snapshot(char *const *argv);
int cg_files_changes(char *const *argv);

#endif
