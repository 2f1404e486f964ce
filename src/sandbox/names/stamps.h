/*
 * Stamps of folders, taken before they are listed: whether what was found in them is still all that
 * is there costs one call for each folder.
 */
#pragma once

#include "base/util.h"

struct cg_stamp;
struct statfs;

/*
 * A file system of this machine: sets the times of a folder by its clock, at each change, and gives
 * each file a number of its own; a server's (FUSE, NFS) may not.
 */
bool cg_statfs_is_local(const struct statfs *fs);

/* All zero: none. Freed by cg_stamps_fini(). */
struct cg_stamps {
        struct cg_stamp *v;
        size_t n;
        bool unsure; /* a change might not show in one of them */
};

/* @path: an absolute path; where nothing is there, this is noted. */
void cg_stamps_add(struct cg_stamps *s, const char *path);
/* True if no entry of these folders has been made, removed or renamed since. */
bool cg_stamps_hold(const struct cg_stamps *s);
void cg_stamps_fini(struct cg_stamps *s);
#define cg_auto_stamps CG_CLEANUP(cg_stamps_fini)
