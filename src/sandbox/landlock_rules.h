/*
 * A plan's mounts as Landlock rules ("grants"), for the landlock tier. Private to src/sandbox.
 *
 * Landlock can only allow, and a right at a folder holds for everything below it. So if something
 * below a folder is denied, the folder itself gets no grant, but each of its entries does, down to
 * the denied path. Entries that are made later in such a *frozen* folder have no grant.
 */
#pragma once

#include "sandbox/plan.h"

/* Maximum number of rules, and so of entries of frozen folders. Each needs some kernel memory. */
#define CG_GRANTS_MAX 65536

struct cg_grant {
        char *path;
        uint64_t access; /* LANDLOCK_ACCESS_FS_* */
};

/* A folder in which nothing new can be made, or whose new things cannot be read. */
struct cg_frozen {
        char *path;
        char *because; /* the denied path below it */
        bool write;    /* nothing new can be made in it; else nothing new can be read */
};

enum cg_grant_state { CG_GRANT_HIDDEN, CG_GRANT_READ, CG_GRANT_WRITE };

struct cg_grant_node {
        char *path;
        enum cg_grant_state state;
        /* its name must stay: a symlink on a denied path, or a path that must not be made */
        bool keep;
        bool absent; /* must not be made */
        bool whole;  /* hidden with everything below it, regardless of other nodes */
        bool folder;
        const char *why; /* of the plan's entry */
        size_t at;       /* its index in the plan: the last entry counts */
};

struct cg_grants {
        struct cg_grant_node *nodes; /* sorted: children follow their parent */
        size_t n_nodes, cap_nodes;
        struct cg_grant *v;
        size_t n, cap;
        struct cg_frozen *frozen;
        size_t n_frozen, cap_frozen;
        char **unheld; /* paths whose denial of writing is dropped (CG_DENY_RULES_ACCEPT) */
        size_t n_unheld, cap_unheld;
        char *private_dir; /* writable regardless of the rest; NULL: none */
        char *shown;       /* readable regardless of the rest; NULL: none */
};

/*
 * Reads the file system. CG_E_UNSUPPORTED: the plan has something that Landlock cannot express,
 * which the error names; with CG_DENY_RULES_REFUSE also if a writable folder would be frozen.
 * CG_E_LIMIT.
 */
int cg_grants_make(const struct cg_sandbox *sb, enum cg_deny_rules deny_rules, const char *private_dir,
                   struct cg_grants **ret, struct cg_err *err);
struct cg_grants *cg_grants_free(struct cg_grants *g);

/* The state of @path, absolute and without symlinks. */
enum cg_grant_state cg_grants_state(const struct cg_grants *g, const char *path);
