/*
 * Finds rows of names.h in a folder, by listing folders, since most of several hundred rows are in
 * no home. Runs in the process that makes a plan, and for homes in the supervisor.
 */
#pragma once

#include "base/util.h"

struct cg_stamps;

/* Rows of a folder. Owned by its holder; all members NULL: not scanned. */
struct cg_present {
        char *folder;
        /* for each row of cg_names(): those of its kinds (CG_NAME_*) that may be in the folder, and
         * CG_PRESENT_LINK */
        unsigned char *rows;
        /* settings/name_links.h: paths of links in folders of these rows that lead out of theirs */
        char **links;
        size_t n_links;
};
/* A part of the row's path, or of the folder's, may be a symlink. */
#define CG_PRESENT_LINK 0x80
/* HOME and the account's home. */
#define CG_PRESENT_HOMES 2

/*
 * Scans @folder for rows of the kinds @what, whatever their case. Where a folder cannot be listed,
 * or is a symlink, all rows in it count as present. @stamps (may be NULL): gets the folders that
 * were listed. CG_E_NOMEM.
 */
int cg_present_scan(struct cg_present *p, const char *folder, unsigned int what, struct cg_stamps *stamps,
                    struct cg_err *err);
void cg_present_fini(struct cg_present *p);
#define cg_auto_present CG_CLEANUP(cg_present_fini)
