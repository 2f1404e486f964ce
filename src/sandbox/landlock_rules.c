/*
 * Makes Landlock rules of a plan's mounts. Runs in the caller, before the sandbox exists; reads the
 * file system, changes nothing.
 */
#include "sandbox/landlock_rules.h"

#include "base/path.h"
#include "base/util.h"
#include "sandbox/landlock.h"

#define RIGHTS_READ  (CG_LL_EXECUTE | CG_LL_READ_FILE | CG_LL_READ_DIR)
#define RIGHTS_WRITE (RIGHTS_READ | CG_LL_ALTER_FILE | CG_LL_ALTER_DIR)

static uint64_t rights_of(enum cg_grant_state state)
{
        static const uint64_t rights[] = {
                [CG_GRANT_HIDDEN] = 0, [CG_GRANT_READ] = RIGHTS_READ, [CG_GRANT_WRITE] = RIGHTS_WRITE
        };

        return rights[state];
}

static int no_memory(struct cg_err *err)
{
        return cg_fail(err, CG_E_NOMEM, "sandbox: Landlock rules");
}

struct cg_grants *cg_grants_free(struct cg_grants *g)
{
        if (!g)
                return NULL;
        for (size_t i = 0; i < g->n_nodes; i++)
                free(g->nodes[i].path);
        for (size_t i = 0; i < g->n; i++)
                free(g->v[i].path);
        for (size_t i = 0; i < g->n_frozen; i++) {
                free(g->frozen[i].path);
                free(g->frozen[i].because);
        }
        for (size_t i = 0; i < g->n_unheld; i++)
                free(g->unheld[i]);
        free(g->nodes);
        free(g->v);
        free(g->frozen);
        free(g->unheld);
        free(g->private_dir);
        free(g->shown);
        free(g);
        return NULL;
}

/* ---- nodes: what the plan says of paths */

static int add_node(struct cg_grants *g, const struct cg_grant_node *node, struct cg_err *err)
{
        struct cg_grant_node *v = cg_grow(g->nodes, &g->cap_nodes, g->n_nodes, sizeof(*v));

        if (!v)
                return no_memory(err);
        g->nodes = v;
        v[g->n_nodes] = *node;
        v[g->n_nodes].path = strdup(node->path);
        if (!v[g->n_nodes].path)
                return no_memory(err);
        g->n_nodes++;
        return 0;
}

/* The end comes first, then "/". */
static int rank(char c)
{
        if (c == '/')
                return 1;
        return c ? (unsigned char)c + 1 : 0;
}

/* Sorts "/" before all other characters, so that children directly follow their parent. */
static int compare_nodes(const void *a, const void *b)
{
        const struct cg_grant_node *x = a, *y = b;
        const char *p = x->path, *q = y->path;

        while (*p && *p == *q) {
                p++;
                q++;
        }
        return *p != *q ? rank(*p) - rank(*q) : (x->at > y->at) - (x->at < y->at);
}

static int node_of_mount(struct cg_grants *g, const struct cg_sandbox *sb, const struct cg_plan_mount *m,
                         struct cg_err *err)
{
        struct cg_grant_node node = { .path = m->path,
                                      .state = CG_GRANT_HIDDEN,
                                      .whole = m->kind == CG_PLAN_COVER,
                                      .why = m->kind == CG_PLAN_COVER ? "hidden" : m->why };
        struct stat st;

        switch (m->kind) {
        case CG_PLAN_WRITE:
                node.state = CG_GRANT_WRITE;
                break;
        case CG_PLAN_BIND_RO:
                if (strcmp(m->path, m->src) != 0) {
                        /* shown at its own path; there is at most one, the wrappers of tools */
                        free(g->shown);
                        g->shown = strdup(m->src);
                        if (!g->shown)
                                return no_memory(err);
                        return 0;
                }
                node.state = CG_GRANT_READ;
                break;
        case CG_PLAN_READ:
                node.state = CG_GRANT_READ;
                node.keep = node.absent = cg_plan_is_absent(sb, m->path);
                break;
        case CG_PLAN_PIN:
                node.keep = true;
                node.state = cg_grants_state(g, m->path);
                break;
        case CG_PLAN_MASK:
                return cg_fail(
                        err, CG_E_UNSUPPORTED,
                        "sandbox: %s is to show other content (%s): the landlock tier can hide a file and "
                        "show it, nothing between; use mode \"deny\"",
                        m->path, m->why ?: "masked");
        default: /* private places do not exist in this tier, so they are hidden */
                break;
        }
        node.folder = lstat(m->path, &st) == 0 && S_ISDIR(st.st_mode);
        return add_node(g, &node, err);
}

static int make_nodes(struct cg_grants *g, const struct cg_sandbox *sb, struct cg_err *err)
{
        struct cg_grant_node root = { .path = (char *)"/",
                                      .state = sb->set.root_writable ? CG_GRANT_WRITE : CG_GRANT_READ,
                                      .folder = true };
        const char *whole = NULL;
        size_t to = 0;
        int r = add_node(g, &root, err);

        for (size_t i = 0; i < sb->n_mounts && r == 0; i++)
                if (sb->mounts[i].path[1])
                        r = node_of_mount(g, sb, &sb->mounts[i], err);
                else if (sb->mounts[i].kind == CG_PLAN_WRITE)
                        g->nodes[0].state = CG_GRANT_WRITE;
        if (r < 0)
                return r;
        /* Sorts nodes; keeps the last entry for each path, and none below whole ones. */
        for (size_t i = 0; i < g->n_nodes; i++)
                g->nodes[i].at = i;
        qsort(g->nodes, g->n_nodes, sizeof(*g->nodes), compare_nodes);
        for (size_t i = 0; i < g->n_nodes; i++) {
                struct cg_grant_node n = g->nodes[i];
                struct cg_grant_node *last = to ? &g->nodes[to - 1] : NULL;

                if (last && strcmp(last->path, n.path) == 0) {
                        n.keep |= last->keep;
                        free(last->path);
                        *last = n;
                } else if (whole && cg_path_within(n.path, whole)) {
                        free(n.path);
                        continue;
                } else {
                        g->nodes[to++] = n;
                }
                if (n.whole)
                        whole = n.path;
        }
        g->n_nodes = to;
        return 0;
}

enum cg_grant_state cg_grants_state(const struct cg_grants *g, const char *path)
{
        enum cg_grant_state state = CG_GRANT_HIDDEN;
        size_t best = 0;

        if (g->private_dir && cg_path_within(path, g->private_dir))
                return CG_GRANT_WRITE;
        for (size_t i = 0; i < g->n_nodes; i++) {
                size_t n = strlen(g->nodes[i].path);

                if (n < best || !cg_path_within(path, g->nodes[i].path) ||
                    (g->nodes[i].keep && !g->nodes[i].absent))
                        continue;
                best = n;
                state = g->nodes[i].state;
        }
        return state;
}

/* ---- deny rules that are not enforced */

/* Drops nodes that only deny writing in writable folders. Hidden paths stay hidden. */
static int drop_unheld(struct cg_grants *g, struct cg_err *err)
{
        for (size_t i = 1; i < g->n_nodes; i++) {
                struct cg_grant_node *n = &g->nodes[i];
                char parent[PATH_MAX], **v;

                cg_path_parent(n->path, parent);
                if ((!n->keep && n->state != CG_GRANT_READ) || !n->path[1] ||
                    cg_grants_state(g, parent) != CG_GRANT_WRITE)
                        continue;
                v = cg_grow(g->unheld, &g->cap_unheld, g->n_unheld, sizeof(*v));
                if (!v)
                        return no_memory(err);
                g->unheld = v;
                v[g->n_unheld] = strdup(n->path);
                if (!v[g->n_unheld])
                        return no_memory(err);
                g->n_unheld++;
                n->state = CG_GRANT_WRITE; /* for children, which come next */
                n->keep = n->absent = false;
        }
        return 0;
}

/* ---- grants */

static int add_grant(struct cg_grants *g, const char *path, uint64_t access, struct cg_err *err)
{
        struct cg_grant *v;

        if (!access)
                return 0;
        if (g->n == CG_GRANTS_MAX)
                return cg_fail(
                        err, CG_E_LIMIT,
                        "sandbox: more than %d Landlock rules (the last for %s): in the landlock tier each thing "
                        "in a folder above a denied path takes one; deny the whole folder, or move what is denied",
                        CG_GRANTS_MAX, path);
        v = cg_grow(g->v, &g->cap, g->n, sizeof(*v));
        if (!v)
                return no_memory(err);
        g->v = v;
        v[g->n] = (struct cg_grant){ .path = strdup(path), .access = access };
        if (!v[g->n].path)
                return no_memory(err);
        g->n++;
        return 0;
}

/* State of the recursion; path is the current folder. */
struct grant_walk {
        struct cg_grants *g;
        enum cg_deny_rules deny_rules;
        char path[PATH_MAX];
};

static int freeze(struct grant_walk *w, const struct cg_grant_node *because, bool write, struct cg_err *err)
{
        struct cg_grants *g = w->g;
        struct cg_frozen *v;
        char why[80] = "";

        if (because->why)
                snprintf(why, sizeof(why), " (%s)", because->why);
        if (write && w->deny_rules == CG_DENY_RULES_REFUSE)
                return cg_fail(
                        err, CG_E_UNSUPPORTED,
                        "sandbox: the landlock tier cannot deny %s%s while %s may be written. Choose by "
                        "\"tier\": \"landlock:freeze\" (nothing new can be made in the folders that lead to what is denied), "
                        "\"landlock:accept\" (such files are not protected from writing), or the full tier",
                        because->path, why, w->path);
        v = cg_grow(g->frozen, &g->cap_frozen, g->n_frozen, sizeof(*v));
        if (!v)
                return no_memory(err);
        g->frozen = v;
        v[g->n_frozen] = (struct cg_frozen){ .path = strdup(w->path),
                                             .because = strdup(because->path),
                                             .write = write };
        g->n_frozen++;
        if (v[g->n_frozen - 1].path && v[g->n_frozen - 1].because)
                return 0;
        return no_memory(err);
}

static int grant_tree(struct grant_walk *w, enum cg_grant_state state, uint64_t have, size_t lo, size_t hi,
                      struct cg_err *err);

/* First node from @lo that is not at or below the current path. */
static size_t end_of(const struct grant_walk *w, size_t lo, size_t hi)
{
        while (lo < hi && cg_path_within(w->g->nodes[lo].path, w->path))
                lo++;
        return lo;
}

/* Grants for the current path, which has nodes [lo, hi): at it (then the first) or below it. */
static int grant_child(struct grant_walk *w, enum cg_grant_state state, uint64_t have, size_t lo, size_t hi,
                       struct cg_err *err)
{
        const struct cg_grant_node *own = &w->g->nodes[lo];

        if (strcmp(own->path, w->path) == 0) {
                if (own->whole)
                        return 0;
                if (!own->keep)
                        state = own->state;
                else if (own->absent || !own->folder)
                        return 0; /* a missing path or a symlink */
                lo++;
        }
        return grant_tree(w, state, have, lo, hi, err);
}

static bool append(struct grant_walk *w, size_t len, const char *name, size_t n)
{
        if (len + n + 2 > sizeof(w->path))
                return false;
        if (len > 1)
                w->path[len++] = '/';
        memcpy(w->path + len, name, n);
        w->path[len + n] = '\0';
        return true;
}

/* Grants each entry of the folder separately. */
static int grant_listed(struct grant_walk *w, enum cg_grant_state state, uint64_t have, size_t lo, size_t hi,
                        struct cg_err *err)
{
        cg_auto_dir DIR *dir = opendir(w->path);
        size_t len = strlen(w->path), from;
        uint64_t rest = rights_of(state) & ~have;
        const struct dirent *d;
        struct stat st;
        int r = 0;

        /* The sandbox cannot list the folder either, but may access paths in it. */
        if (!dir && (errno == EACCES || errno == ENOENT || errno == ENOTDIR))
                return 1;
        if (!dir)
                return cg_fail_errno(err, "sandbox: %s", w->path);
        while (r == 0 && (d = readdir(dir))) {
                if (cg_path_is_dots(d->d_name) || !append(w, len, d->d_name, strlen(d->d_name)))
                        continue;
                from = lo;
                while (from < hi && !cg_path_within(w->g->nodes[from].path, w->path))
                        from++;
                if (from < hi)
                        r = grant_child(w, state, have, from, end_of(w, from, hi), err);
                else if (fstatat(dirfd(dir), d->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
                         !S_ISLNK(st.st_mode) && !S_ISCHR(st.st_mode) && !S_ISBLK(st.st_mode))
                        r = add_grant(w->g, w->path, S_ISDIR(st.st_mode) ? rest : rest & CG_LL_FILE, err);
                w->path[len] = '\0';
        }
        return r;
}

/* Grants only the entries with nodes. */
static int grant_named(struct grant_walk *w, enum cg_grant_state state, uint64_t have, size_t lo, size_t hi,
                       struct cg_err *err)
{
        size_t len = strlen(w->path);
        int r = 0;

        while (lo < hi && r == 0) {
                const char *rest = w->g->nodes[lo].path + (len > 1 ? len + 1 : 1);
                size_t end;

                if (!append(w, len, rest, strcspn(rest, "/")))
                        return cg_fail(err, CG_E_LIMIT, "sandbox: path too long");
                end = end_of(w, lo, hi);
                r = grant_child(w, state, have, lo, end, err);
                w->path[len] = '\0';
                lo = end;
        }
        return r;
}

/*
 * Rights of @want that may be granted for the whole folder without giving the node too much.
 * Listing the folder of a hidden file is allowed: in the full tier the name is visible as well.
 */
static uint64_t rights_beside(const struct cg_grant_node *n, uint64_t want)
{
        if (n->keep)
                return want & RIGHTS_READ;
        if (n->state == CG_GRANT_HIDDEN && !n->folder)
                return CG_LL_READ_DIR;
        return rights_of(n->state);
}

/*
 * Grants at and below the current path with @state, except for nodes [lo, hi), all of which are
 * below it. @have: rights granted by parents already.
 */
static int grant_tree(struct grant_walk *w, enum cg_grant_state state, uint64_t have, size_t lo, size_t hi,
                      struct cg_err *err)
{
        uint64_t want = rights_of(state), all = want;
        const struct cg_grant_node *because = NULL;
        int r;

        for (size_t i = lo; i < hi; i++) {
                const struct cg_grant_node *n = &w->g->nodes[i];
                uint64_t may = rights_beside(n, want);

                if ((want & ~may) && (!because || (all & ~may)))
                        because = n;
                all &= may;
        }
        r = add_grant(w->g, w->path, all & ~have, err);
        have |= all;
        if (r < 0)
                return r;
        if (!because)
                return lo < hi ? grant_named(w, state, have, lo, hi, err) : 0;
        if (want & ~have) {
                r = freeze(w, because, state == CG_GRANT_WRITE, err);
                if (r < 0)
                        return r;
                r = grant_listed(w, state, have, lo, hi, err);
                if (r <= 0)
                        return r;
        }
        return grant_named(w, state, have, lo, hi, err);
}

static void free_grants(struct cg_grants **g)
{
        cg_grants_free(*g);
}

int cg_grants_make(const struct cg_sandbox *sb, enum cg_deny_rules deny_rules, const char *private_dir,
                   struct cg_grants **ret, struct cg_err *err)
{
        CG_CLEANUP(free_grants) struct cg_grants *g = calloc(1, sizeof(*g));
        struct grant_walk w = { .g = g, .deny_rules = deny_rules, .path = "/" };
        int r;

        if (!g)
                return no_memory(err);
        if ((r = make_nodes(g, sb, err)) < 0 ||
            (deny_rules == CG_DENY_RULES_ACCEPT && (r = drop_unheld(g, err)) < 0) ||
            (r = grant_tree(&w, g->nodes[0].state, 0, 1, g->n_nodes, err)) < 0)
                return r;
        /* Made by the caller when the sandbox starts, so it is granted by name: see landlock.c. */
        if (private_dir && !(g->private_dir = strdup(private_dir)))
                return no_memory(err);
        *ret = CG_STEAL(g);
        return 0;
}
