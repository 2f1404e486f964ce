/* Settings to rules: spellings are resolved and patterns expanded here, once. */
#include "sandbox/settings/rules.h"

#include "sandbox/settings/glob.h"

/* One list of the settings while it is being resolved. */
struct list {
        struct cg_rules *rules;
        const struct cg_path_base *base;
        enum cg_rule_kind kind;
        char why[48];
};

/* "/" itself cannot be covered by a mount: each of its entries is. */
static int deny_root(struct list *l, struct cg_err *err)
{
        cg_auto_dir DIR *dir = opendir("/");
        const struct dirent *d;
        int r = 0;

        if (!dir)
                return cg_fail_errno(err, "sandbox: /");
        while (r == 0 && (d = readdir(dir))) {
                struct cg_place place = { 0 };

                if (cg_path_is_dots(d->d_name) || d->d_type == DT_LNK)
                        continue;
                snprintf(place.path, sizeof(place.path), "/%s", d->d_name);
                place.folder = d->d_type == DT_DIR;
                r = cg_rules_add(l->rules, l->kind, &place, l->why, err);
        }
        return r;
}

/* A symlink in a write root may come from an earlier command, to lead a later one out of it. */
static bool crosses_untrusted_link(const struct list *l, const struct cg_place *place)
{
        if (place->link)
                return true;
        for (size_t i = 0; i < place->n_links; i++)
                if (cg_rules_may_write(l->rules, place->links[i]))
                        return true;
        return false;
}

/* Takes the spelling @path to its place, and adds the rule for that. */
static int add_path(struct list *l, const char *path, struct cg_err *err)
{
        bool allow = l->kind == CG_RULE_ALLOW_WRITE || l->kind == CG_RULE_ALLOW_READ;
        cg_auto_place struct cg_place place = { .path = "" };
        int r = cg_place_find(path, &place, err);

        if (r < 0)
                return cg_err_prefix(err, "sandbox: %s", l->why);
        if ((r = cg_place_check(&place, l->base, err)) < 0)
                return r;
        if (allow && crosses_untrusted_link(l, &place)) {
                /* In allowRead: the target of the link stays denied by its own name. */
                l->rules->skipped += l->kind == CG_RULE_ALLOW_WRITE;
                return 0;
        }
        /* The links that a denied spelling goes through stay where they are. */
        if (!allow && (r = cg_rules_keep_links(l->rules, &place, false, l->why, err)) < 0)
                return r;
        if (!place.path[1] && l->kind == CG_RULE_DENY_READ)
                return deny_root(l, err);
        /* A missing path cannot be read or written; only its creation can be denied. */
        if (place.missing && l->kind == CG_RULE_DENY_READ)
                return cg_rules_hide_closed(l->rules, place.path, l->why, err);
        if (place.missing && l->kind != CG_RULE_DENY_WRITE)
                return 0;
        return cg_rules_add(l->rules, l->kind, &place, l->why, err);
}

static int add_match(void *data, const char *path, bool unlisted, struct cg_err *err)
{
        struct list *l = data;

        if (unlisted && l->kind == CG_RULE_DENY_READ)
                return cg_rules_hide_closed(l->rules, path, l->why, err);
        return unlisted ? 0 : add_path(l, path, err);
}

/*
 * Files that match @pattern and are made later. The folder before the first part with a pattern may
 * be reached through links, which stay where they are.
 */
static int add_later(struct list *l, const char *pattern, struct cg_err *err)
{
        char folder[PATH_MAX], real[PATH_MAX];
        size_t n = strcspn(pattern, "*?[");
        cg_auto_place struct cg_place place = { .path = "" };
        int r;

        while (n && pattern[n] != '/')
                n--;
        snprintf(folder, sizeof(folder), "%.*s", n ? (int)n : 1, pattern);
        r = cg_place_find(folder, &place, err);
        if (r < 0)
                return cg_err_prefix(err, "sandbox: %s", l->why);
        r = cg_rules_keep_links(l->rules, &place, false, l->why, err);
        /* No program can name a file whose path is too long. */
        if (r < 0 || !cg_path_join(real, place.path, pattern + n + 1))
                return r;
        return cg_rules_add_pattern(l->rules, real, l->why, err);
}

static int add_entry(struct list *l, const struct cg_path_entry *entry, struct cg_err *err)
{
        char path[PATH_MAX];
        struct stat st;
        int r = cg_path_absolute(l->base, entry->path, path, err);

        if (r < 0)
                return r;
        if (!entry->literal)
                cg_path_strip_all(path); /* a folder and all in it is the folder */
        if (entry->literal || !cg_path_is_pattern(path))
                return add_path(l, path, err);
        /* A file may have the pattern as its name. */
        if (lstat(path, &st) == 0 && (r = add_path(l, path, err)) < 0)
                return r;
        /* Writing is never allowed by pattern: later matches are not known yet. */
        if (l->kind == CG_RULE_ALLOW_WRITE)
                return 0;
        r = cg_glob_walk(path, add_match, l, err);
        if (r < 0 || l->kind != CG_RULE_DENY_WRITE || !l->rules->by_name)
                return r;
        return add_later(l, path, err);
}

static int add_list(struct cg_rules *rules, const struct cg_path_base *base, enum cg_rule_kind kind,
                    const char *name, const struct cg_path_list *list, struct cg_err *err)
{
        struct list l = { .rules = rules, .base = base, .kind = kind };
        int r = 0;

        for (size_t i = 0; i < list->n && r == 0; i++) {
                snprintf(l.why, sizeof(l.why), "filesystem.%s.%zu", name, i);
                r = add_entry(&l, &list->v[i], err);
        }
        return r;
}

int cg_rules_make_roots(const struct cg_settings *s, const struct cg_path_base *base, struct cg_rules *ret,
                        struct cg_err *err)
{
        cg_auto_rules struct cg_rules rules = { .off = s->filesystem.disabled,
                                                .by_name = base->by_name,
                                                .writable_names = &s->own.writable_names,
                                                .base = base };
        int r;

        if (!rules.off && (r = add_list(&rules, base, CG_RULE_ALLOW_WRITE, "allowWrite",
                                        &s->filesystem.allow_write, err)) < 0)
                return r;
        *ret = rules;
        rules = (struct cg_rules){ 0 };
        return 0;
}

static int make_rules(const struct cg_settings *s, const struct cg_path_base *base, struct cg_rules *rules,
                      struct cg_err *err)
{
        const struct cg_settings_filesystem *fs = &s->filesystem;
        struct list hides = { .rules = rules, .base = base, .kind = CG_RULE_DENY_READ, .why = "default" };
        int r;

        if ((r = add_list(rules, base, CG_RULE_ALLOW_WRITE, "allowWrite", &fs->allow_write, err)) < 0 ||
            (r = add_list(rules, base, CG_RULE_DENY_READ, "denyRead", &fs->deny_read, err)) < 0 ||
            /* ssh refuses to run with settings that belong to root where root is nobody. */
            (r = add_entry(&hides, &(struct cg_path_entry){ .path = "/etc/ssh/ssh_config.d" }, err)) < 0 ||
            (r = add_list(rules, base, CG_RULE_ALLOW_READ, "allowRead", &fs->allow_read, err)) < 0)
                return r;
        for (size_t i = 0; i < s->creds.n_files; i++) {
                if (s->creds.files[i].mode != CG_CRED_DENY)
                        continue;
                snprintf(hides.why, sizeof(hides.why), "credentials.files.%zu", i);
                r = add_entry(&hides, &(struct cg_path_entry){ .path = s->creds.files[i].what }, err);
                if (r < 0)
                        return r;
        }
        if ((r = add_list(rules, base, CG_RULE_DENY_WRITE, "denyWrite", &fs->deny_write, err)) < 0 ||
            (r = cg_rules_add_mandatory(s, base, rules, err)) < 0 ||
            (r = cg_rules_add_path_folders(rules, err)) < 0 || (r = cg_rules_add_own(rules, err)) < 0 ||
            (r = cg_rules_add_places(rules, base, err)) < 0)
                return r;
        return cg_rules_add_hardlinks(rules, err);
}

int cg_rules_make(const struct cg_settings *s, const struct cg_path_base *base, struct cg_rules *ret,
                  struct cg_err *err)
{
        const struct cg_settings_filesystem *fs = &s->filesystem;
        cg_auto_rules struct cg_rules rules = { .off = fs->disabled,
                                                .by_name = base->by_name,
                                                .by_inode = base->by_inode,
                                                .writable_names = &s->own.writable_names,
                                                .base = base };
        int r;

        if (!rules.off && (r = make_rules(s, base, &rules, err)) < 0)
                return r;
        if (!rules.off)
                rules.base = NULL;
        *ret = rules;
        rules = (struct cg_rules){ 0 };
        return 0;
}
