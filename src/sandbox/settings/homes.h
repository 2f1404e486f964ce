/*
 * Protected names and links in the homes, as one process finds them and another one uses them: the
 * supervisor keeps them while their folders do not change, and sends them with each kernel's
 * request, since listing these folders takes as long as all else of a view.
 */
#pragma once

#include <stdbool.h>

#include <jansson.h>

#include "base/err.h"

struct cg_present;
struct cg_stamps;

/*
 * Scans @home (may be NULL) and the account's home. @stamps: gets the folders that were listed.
 * Returns NULL where memory or a path's encoding does not allow it.
 */
json_t *cg_homes_scan(const char *home, struct cg_stamps *stamps);
/* Sets *@p to what @homes (may be NULL) has about @folder. False: nothing. */
bool cg_homes_get(const json_t *homes, const char *folder, struct cg_present *p);
