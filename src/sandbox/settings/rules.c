/* Settings to rules: spellings are resolved and patterns expanded here, once. */
#include "sandbox/settings/rules.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "sandbox/settings/glob.h"

/* One list of the settings while it is being resolved. */
struct list {
        struct cg_rules *rules;
        const struct cg_path_base *base;
        enum cg_rule_kind kind;
        char why[48];
};

/*
 * The links that a denied spelling goes through stay where they are: else the spelling could be
 * made to lead elsewhere.
 */
static int keep_links(struct list *l, const struct cg_place *place, struct cg_err *err)
{
        int r = 0;

        for (size_t i = 0; i < place->n_links && r == 0; i++) {
                struct cg_place link = { 0 };

                snprintf(link.path, sizeof(link.path), "%s", place->links[i]);
                r = cg_rules_add(l->rules, CG_RULE_KEEP, &link, l->why, err);
        }
        return r;
}

/* "/" itself cannot be covered by a mount: each of its entries is. */
static int deny_root(struct list *l, struct cg_err *err)
{
        DIR *dir = opendir("/");
        const struct dirent *d;
        int r = 0;

        if (!dir)
                return cg_fail_errno(err, "sandbox: /");
        while (r == 0 && (d = readdir(dir))) {
                struct cg_place place = { 0 };

                if (strcmp(d->d_name, ".") == 0 || strcmp(d->d_name, "..") == 0 || d->d_type == DT_LNK)
                        continue;
                snprintf(place.path, sizeof(place.path), "/%s", d->d_name);
                place.folder = d->d_type == DT_DIR;
                r = cg_rules_add(l->rules, l->kind, &place, l->why, err);
        }
        closedir(dir);
        return r;
}

/*
 * A symlink that lies in a write root may have been made by an earlier command, to lead a later one
 * out.
 */
static bool crosses_untrusted_link(const struct list *l, const struct cg_place *place)
{
        if (place->link)
                return true;
        for (size_t i = 0; i < place->n_links; i++) {
                if (cg_rules_may_write(l->rules, place->links[i]))
                        return true;
        }
        return false;
}

static int add_place(struct list *l, const struct cg_place *place, struct cg_err *err)
{
        int r;

        switch (l->kind) {
        case CG_RULE_ALLOW_WRITE:
                if (crosses_untrusted_link(l, place)) {
                        l->rules->skipped++;
                        return 0;
                }
                break;
        case CG_RULE_ALLOW_READ:
                if (crosses_untrusted_link(l, place))
                        return 0; /* what it leads to is denied by its own name */
                break;
        case CG_RULE_DENY_WRITE:
        case CG_RULE_DENY_READ:
                r = keep_links(l, place, err);
                if (r < 0)
                        return r;
                if (!place->path[1] && l->kind == CG_RULE_DENY_READ)
                        return deny_root(l, err);
                break;
        default:
                break;
        }
        /* A missing path cannot be read or written; only its creation can be denied. */
        if (place->missing && l->kind != CG_RULE_DENY_WRITE)
                return 0;
        return cg_rules_add(l->rules, l->kind, place, l->why, err);
}

static int add_path(struct list *l, const char *path, struct cg_err *err)
{
        struct cg_place place;
        int r = cg_place_find(path, &place, err);

        if (r < 0)
                return cg_err_prefix(err, "sandbox: %s", l->why);
        r = add_place(l, &place, err);
        cg_place_fini(&place);
        return r;
}

static int add_match(void *data, const char *path, bool unlisted, struct cg_err *err)
{
        /*
         * A folder that we may not list is out of the sandbox's reach too: same user, fewer rights.
         */
        return unlisted ? 0 : add_path(data, path, err);
}

static bool is_there(const char *path)
{
        struct stat st;

        return lstat(path, &st) == 0;
}

static int add_entry(struct list *l, const struct cg_path_entry *entry, struct cg_err *err)
{
        char path[PATH_MAX];
        int r = cg_path_absolute(l->base, entry->path, path, err);

        if (r < 0)
                return r;
        if (!entry->literal)
                cg_path_strip_all(path); /* a folder and all in it is the folder */
        if (entry->literal || !cg_path_is_pattern(path))
                return add_path(l, path, err);
        /* A spelling that reads as a pattern may be a name all the same. */
        if (is_there(path) && (r = add_path(l, path, err)) < 0)
                return r;
        /* Writing is never allowed by pattern: what would match tomorrow is not known today. */
        return l->kind == CG_RULE_ALLOW_WRITE ? 0 : cg_glob_walk(path, add_match, l, err);
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

/* ssh refuses to run with settings that belong to root where root is nobody. */
static int add_default_hides(struct cg_rules *rules, const struct cg_path_base *base, struct cg_err *err)
{
        struct list l = { .rules = rules, .base = base, .kind = CG_RULE_DENY_READ, .why = "default" };

        return add_entry(&l, &(struct cg_path_entry){ .path = "/etc/ssh/ssh_config.d" }, err);
}

static int add_cred_files(const struct cg_settings *s, struct cg_rules *rules,
                          const struct cg_path_base *base, struct cg_err *err)
{
        int r = 0;

        for (size_t i = 0; i < s->creds.n_files && r == 0; i++) {
                struct list l = { .rules = rules, .base = base, .kind = CG_RULE_DENY_READ };

                if (s->creds.files[i].mode != CG_CRED_DENY)
                        continue;
                snprintf(l.why, sizeof(l.why), "credentials.files.%zu", i);
                r = add_entry(&l, &(struct cg_path_entry){ .path = s->creds.files[i].what }, err);
        }
        return r;
}

static int add_all(const struct cg_settings *s, const struct cg_path_base *base, struct cg_rules *rules,
                   struct cg_err *err)
{
        const struct cg_settings_filesystem *fs = &s->filesystem;
        int r = add_list(rules, base, CG_RULE_ALLOW_WRITE, "allowWrite", &fs->allow_write, err);

        if (r == 0)
                r = add_list(rules, base, CG_RULE_DENY_READ, "denyRead", &fs->deny_read, err);
        if (r == 0)
                r = add_default_hides(rules, base, err);
        if (r == 0)
                r = add_list(rules, base, CG_RULE_ALLOW_READ, "allowRead", &fs->allow_read, err);
        if (r == 0)
                r = add_cred_files(s, rules, base, err);
        if (r == 0)
                r = add_list(rules, base, CG_RULE_DENY_WRITE, "denyWrite", &fs->deny_write, err);
        if (r == 0)
                r = cg_rules_add_mandatory(s, base, rules, err);
        if (r == 0)
                r = cg_rules_add_own(rules, err);
        if (r == 0)
                r = cg_rules_add_places(rules, base, err);
        return r == 0 ? cg_rules_add_hardlinks(rules, err) : r;
}

int cg_rules_make(const struct cg_settings *s, const struct cg_path_base *base, struct cg_rules *ret,
                  struct cg_err *err)
{
        struct cg_rules rules = { .off = s->filesystem.disabled, .writable_names = &s->own.writable_names };
        int r = rules.off ? 0 : add_all(s, base, &rules, err);

        if (r < 0) {
                cg_rules_fini(&rules);
                return r;
        }
        *ret = rules;
        return 0;
}
