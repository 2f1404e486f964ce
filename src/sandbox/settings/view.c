/*
 * Rules to mounts. Each path that a rule names is a node; a node gets a mount if its state differs
 * from that of the folder above it. A folder that can be renamed takes denials below it along, and
 * a new file under the old name would not be denied: so all folders between a write root and a
 * denial are pinned.
 */
#include "sandbox/settings/view.h"

#include "base/path.h"
#include "sandbox/plan.h"

enum cg_view_state cg_view_state(const struct cg_rules *rules, const char *path)
{
        /* Nearest so far; among equals the one with the higher rank. */
        static const int ranks[] = {
                [CG_RULE_ALLOW_WRITE] = 1, [CG_RULE_DENY_READ] = 2, [CG_RULE_ALLOW_READ] = 3
        };
        size_t best = 0;
        int rank = 0;
        bool hidden = false, allowed = rules->off, denied = false;

        for (size_t i = 0; i < rules->n; i++) {
                const struct cg_rule *r = &rules->v[i];
                size_t n;

                if (r->kind == CG_RULE_MASK || r->kind == CG_RULE_KEEP || !cg_path_within(path, r->path))
                        continue;
                allowed |= r->kind == CG_RULE_ALLOW_WRITE;
                denied |= r->kind == CG_RULE_DENY_WRITE;
                if (r->kind == CG_RULE_DENY_WRITE)
                        continue;
                n = strlen(r->path);
                if (n < best || (n == best && ranks[r->kind] < rank))
                        continue;
                best = n;
                rank = ranks[r->kind];
                hidden = r->kind == CG_RULE_DENY_READ;
        }
        if (hidden)
                return CG_VIEW_HIDDEN;
        return allowed && !denied ? CG_VIEW_WRITE : CG_VIEW_READ;
}

/* A path that may need a mount. */
struct node {
        char *path;
        /* the first that named it; NULL for one that is only above others */
        const struct cg_rule *rule;
        bool keep; /* a symlink */
        bool folder;
        size_t missing; /* as in struct cg_rule */
        bool pin;
        const struct cg_rule *mask;
};

struct nodes {
        struct node *v;
        size_t n, cap;
};

static void nodes_fini(struct nodes *nodes)
{
        for (size_t i = 0; i < nodes->n; i++)
                free(nodes->v[i].path);
        free(nodes->v);
}
#define cg_auto_nodes CG_CLEANUP(nodes_fini)

/* Copies the first @len bytes of the node's path. */
static int add_node(struct nodes *nodes, const struct node *node, size_t len, struct cg_err *err)
{
        struct node *v = cg_grow(nodes->v, &nodes->cap, nodes->n, sizeof(*v));

        if (!v)
                return cg_fail(err, CG_E_NOMEM, "sandbox: view");
        nodes->v = v;
        v[nodes->n] = *node;
        v[nodes->n].path = strndup(node->path, len);
        if (!v[nodes->n].path)
                return cg_fail(err, CG_E_NOMEM, "sandbox: view");
        nodes->n++;
        return 0;
}

static size_t depth(const char *path)
{
        size_t n = 0;

        for (; path[0] && path[1]; path++)
                n += *path == '/';
        return n;
}

static int compare_nodes(const void *a, const void *b)
{
        const struct node *x = a, *y = b;
        size_t dx = depth(x->path), dy = depth(y->path);

        return dx != dy ? (dx > dy) - (dx < dy) : strcmp(x->path, y->path);
}

/* Sorts by depth, and merges nodes with the same path. */
static void merge(struct nodes *nodes)
{
        size_t to = 0;

        if (nodes->n)
                qsort(nodes->v, nodes->n, sizeof(*nodes->v), compare_nodes);
        for (size_t i = 0; i < nodes->n; i++) {
                struct node *n = &nodes->v[i], *last = to ? &nodes->v[to - 1] : NULL;

                if (!last || strcmp(last->path, n->path) != 0) {
                        nodes->v[to++] = *n;
                        continue;
                }
                if (!last->rule)
                        last->rule = n->rule;
                last->mask = last->mask ?: n->mask;
                last->keep |= n->keep;
                last->pin |= n->pin;
                last->missing = last->missing ?: n->missing;
                last->folder |= n->folder;
                free(n->path);
        }
        nodes->n = to;
}

/* The state of the folder that holds @path; the parent of "/" counts as read-only. */
static enum cg_view_state state_above(const struct cg_rules *rules, const char *path)
{
        char parent[PATH_MAX];

        if (!path[1])
                return rules->off ? CG_VIEW_WRITE : CG_VIEW_READ;
        cg_path_parent(path, parent);
        return cg_view_state(rules, parent);
}

/* Returns true if the node needs a mount; *ret: its kind. */
static bool wanted_kind(const struct cg_rules *rules, const struct node *n, enum cg_plan_kind *ret,
                        bool *restored)
{
        enum cg_view_state is = cg_view_state(rules, n->path), above = state_above(rules, n->path);

        *restored = above == CG_VIEW_HIDDEN;
        if (is == CG_VIEW_HIDDEN) {
                *ret = CG_PLAN_HIDE;
                return above != CG_VIEW_HIDDEN && !n->keep;
        }
        if (n->keep || n->missing || n->mask) {
                *ret = n->mask ? CG_PLAN_MASK : CG_PLAN_READ;
                if (n->keep)
                        *ret = CG_PLAN_PIN;
                return !*restored && (n->mask || above == CG_VIEW_WRITE);
        }
        if (is == above) {
                *ret = CG_PLAN_PIN;
                return n->pin && is == CG_VIEW_WRITE;
        }
        *ret = *restored ? CG_PLAN_BIND_RO : CG_PLAN_READ;
        if (is == CG_VIEW_WRITE)
                *ret = CG_PLAN_WRITE;
        return n->path[1] != '\0' || is != CG_VIEW_WRITE;
}

/* Pins the existing folders above a node that are in a write root and could be renamed. */
static int pin_above(struct nodes *nodes, const struct cg_rules *rules, const struct node *node,
                     struct cg_err *err)
{
        const char *path = node->path;
        size_t missing = node->missing; /* adding nodes moves them */
        struct node pin = { .path = (char *)path, .pin = true, .folder = true };
        char above[PATH_MAX];
        int r = 0;

        for (const char *slash = strchr(path + 1, '/'); slash && r == 0; slash = strchr(slash + 1, '/')) {
                if (missing && (size_t)(slash - path) >= missing)
                        break;
                snprintf(above, sizeof(above), "%.*s", (int)(slash - path), path);
                if (cg_view_state(rules, above) == CG_VIEW_WRITE &&
                    state_above(rules, above) == CG_VIEW_WRITE)
                        r = add_node(nodes, &pin, (size_t)(slash - path), err);
        }
        return r;
}

/* True if a path below hidden @path is visible again. */
static bool shows_below(const struct cg_rules *rules, const struct nodes *nodes, size_t from,
                        const char *path)
{
        for (size_t i = from; i < nodes->n; i++) {
                const struct node *n = &nodes->v[i];

                if (!n->missing && !n->keep && strcmp(n->path, path) != 0 && cg_path_within(n->path, path) &&
                    cg_view_state(rules, n->path) != CG_VIEW_HIDDEN)
                        return true;
        }
        return false;
}

int cg_view_add(struct cg_sandbox *sb, const struct cg_rules *rules, struct cg_err *err)
{
        cg_auto_nodes struct nodes nodes = { 0 };
        enum cg_plan_kind kind;
        bool restored;
        size_t n;
        int r = 0;

        if (cg_view_state(rules, "/") == CG_VIEW_WRITE)
                sb->set.root_writable = true;

        for (size_t i = 0; i < rules->n_patterns && r == 0; i++)
                r = cg_plan_add_pattern(sb, rules->patterns[i].text, rules->patterns[i].why, err);
        for (size_t i = 0; i < rules->n_programs && r == 0; i++)
                r = cg_plan_add_programs(sb, rules->programs[i], err);
        for (size_t i = 0; i < json_array_size(rules->folders) && r == 0; i++)
                r = cg_plan_add_linked(sb, json_string_value(json_array_get(rules->folders, i)), err);
        for (size_t i = 0; i < rules->unwritten.n && r == 0; i++)
                r = cg_inodes_add(&sb->unwritten, rules->unwritten.v[i].dev, rules->unwritten.v[i].ino, err);

        /* A node for each rule. Of a missing path only its creation can be denied. */
        for (size_t i = 0; i < rules->n && r == 0; i++) {
                const struct cg_rule *rule = &rules->v[i];
                struct node node = { .path = rule->path,
                                     .rule = rule,
                                     .folder = rule->folder,
                                     .missing = rule->missing,
                                     .keep = rule->kind == CG_RULE_KEEP,
                                     .mask = rule->kind == CG_RULE_MASK ? rule : NULL };
                size_t len = strlen(rule->path);

                if (rule->missing && state_above(rules, rule->path) == CG_VIEW_HIDDEN)
                        continue;
                /* Without decisions of init, the first missing folder is not made either. */
                if (rule->missing && !rules->by_name) {
                        len = rule->missing + strcspn(rule->path + rule->missing, "/");
                        node.folder = rule->path[len] == '/' || rule->folder;
                }
                r = add_node(&nodes, &node, len, err);
        }
        if (r < 0)
                return r;
        merge(&nodes);

        /* Folders above nodes that get a mount. */
        n = nodes.n;
        for (size_t i = 0; i < n && r == 0; i++)
                if (wanted_kind(rules, &nodes.v[i], &kind, &restored) && kind != CG_PLAN_WRITE)
                        r = pin_above(&nodes, rules, &nodes.v[i], err);
        if (r < 0)
                return r;
        merge(&nodes);

        /* The mounts. */
        for (size_t i = 0; i < nodes.n && r == 0; i++) {
                const struct node *node = &nodes.v[i];
                struct cg_plan_mount m = { .path = node->path,
                                           .why = node->rule ? (char *)node->rule->why : NULL };

                if (!wanted_kind(rules, node, &m.kind, &restored))
                        continue;
                if (m.kind == CG_PLAN_WRITE || m.kind == CG_PLAN_BIND_RO)
                        m.src = node->path;
                if (m.kind == CG_PLAN_HIDE && node->folder && shows_below(rules, &nodes, i + 1, node->path)) {
                        m.kind = CG_PLAN_EMPTY;
                        m.mode = "0755";
                        m.size = CG_PLAN_EMPTY_SIZE;
                }
                if (node->mask) {
                        m.data = node->mask->data;
                        m.len = node->mask->len;
                }
                if (node->missing && cg_plan_add_placeholder(sb, node->path, node->folder, false, err) < 0)
                        return CG_E_NOMEM;
                r = cg_plan_insert(sb, &m, err);
        }
        return r;
}
