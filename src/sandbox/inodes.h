/* Files that are found again by device and inode number, whatever their names are. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <sys/stat.h>
#include "base/err.h"

struct cg_inodes {
        struct cg_inode {
                dev_t dev;
                ino_t ino;
        } * v;
        size_t n;
};

int cg_inodes_add(struct cg_inodes *set, dev_t dev, ino_t ino, struct cg_err *err);
/*
 * Adds the files with several names below @folders, which end with NULL. Those that this user may
 * not read are left out. -1: not all others were read.
 */
int cg_inodes_add_below(struct cg_inodes *set, char *const *folders);
bool cg_inodes_has(const struct cg_inodes *set, const struct stat *st);
