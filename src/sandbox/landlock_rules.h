/*
 * What the landlock tier lets a sandbox open: a plan's mounts, read as rules about paths, and the
 * list of Landlock rules ("grants") that comes to the same. Private to src/sandbox.
 *
 * Landlock can only allow, and what it allows at a folder it allows for everything below. So where
 * something below a folder is not to be had, the folder itself is not granted but each thing that
 * lies in it, down to what is denied. What appears later in such a folder is granted to nobody: a
 * *frozen* folder.
 */
#ifndef CG_SANDBOX_LANDLOCK_RULES_H
#define CG_SANDBOX_LANDLOCK_RULES_H

#include "sandbox/plan.h"

/*
 * Ceiling of rules, and so of things that lie in frozen folders. Each takes a descriptor for a
 * moment, and some kernel memory.
 */
#define CG_GRANTS_MAX 65536

struct cg_grant {
        char *path;
        uint64_t access; /* LANDLOCK_ACCESS_FS_* */
};

/* A folder in which nothing new can be made, or whose new things cannot be read. */
struct cg_frozen {
        char *path;
        char *because; /* the path that is denied below it */
        bool write;    /* nothing new can be made in it; else nothing new can be read */
};

enum cg_grant_state { CG_GRANT_HIDDEN, CG_GRANT_READ, CG_GRANT_WRITE };

struct cg_grant_node {
        char *path;
        enum cg_grant_state state;
        /*
         * its name must not be given to anything else: a symlink on a denied path, and what is
         * absent
         */
        bool keep;
        bool absent; /* must not be made */
        bool whole;  /* hidden with everything below, whatever is said of that */
        bool folder;
        const char *why; /* of the plan */
        size_t at;       /* its place in the plan: the later word counts */
};

struct cg_grants {
        struct cg_grant_node *nodes; /* sorted so that what lies below a path follows it */
        size_t n_nodes, cap_nodes;
        struct cg_grant *v;
        size_t n, cap;
        struct cg_frozen *frozen;
        size_t n_frozen, cap_frozen;
        char **unheld; /* paths whose denial of writing does not hold (CG_DENIALS_ACCEPT) */
        size_t n_unheld, cap_unheld;
        char *private_dir; /* may be written whatever else holds; NULL: none */
        char *shown;       /* may be read whatever else holds; NULL: none */
};

/*
 * Reads the file system. CG_E_UNSUPPORTED: the plan asks for what Landlock has no word for, by
 * name; with CG_DENIALS_REFUSE also where a folder that may be written would be frozen. CG_E_LIMIT.
 */
int cg_grants_make(const struct cg_sandbox *sb, enum cg_denials denials, const char *private_dir,
                   struct cg_grants **ret, struct cg_err *err);
struct cg_grants *cg_grants_free(struct cg_grants *g);

/* What the rules say of @path, absolute and without symlinks. */
enum cg_grant_state cg_grants_state(const struct cg_grants *g, const char *path);

#endif
