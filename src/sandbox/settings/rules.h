/*
 * Settings about paths, resolved against this machine's file system: a list of rules with
 * real paths. view.c makes mounts of them. Runs on the host, before a sandbox exists.
 */
#pragma once

#include "base/buf.h"
#include "sandbox/inodes.h"
#include "sandbox/names/present.h"
#include "sandbox/settings/paths.h"
#include "sandbox/settings/settings.h"

/* Ceiling of rules: each may be a mount. */
#define CG_RULES_MAX 8192
/* Bytes of the reason of a rule. */
#define CG_RULES_WHY_MAX 48

enum cg_rule_kind {
        CG_RULE_ALLOW_WRITE,
        CG_RULE_DENY_WRITE,
        CG_RULE_ALLOW_READ,
        CG_RULE_DENY_READ,
        CG_RULE_MASK, /* a file that shows other content: data */
        CG_RULE_KEEP, /* a symlink that cannot be replaced */
};

struct cg_rule {
        enum cg_rule_kind kind;
        char *path;                 /* without symlinks */
        size_t missing;             /* as in struct cg_place */
        bool folder;                /* the existing or denied object is a folder */
        char why[CG_RULES_WHY_MAX]; /* "filesystem.denyRead.3", "mandatory" */
        char *data;                 /* CG_RULE_MASK */
        size_t len;
};

/*
 * A pattern of denyWrite, for files that are made later, as in struct cg_plan_pattern. Of an
 * absolute one the folder before the first part with a pattern is without symlinks.
 */
struct cg_rule_pattern {
        char *text;
        char why[CG_RULES_WHY_MAX];
};

struct cg_rules {
        bool off; /* filesystem.disabled: no rule, everything writable */
        /*
         * init decides about each path that is made (mediate.h): absent paths are denied by their
         * whole path, and patterns for files that are made later, too
         */
        bool by_name;
        bool by_inode;              /* init also decides about each file that is written, by its inode */
        struct cg_inodes unwritten; /* where by_inode: files that no name may write */
        const json_t *folders;      /* the same of those in these, an array; borrowed */
        struct cg_rule *v;
        size_t n, cap;
        struct cg_rule_pattern *patterns;
        size_t n_patterns;
        char **programs; /* folders of PATH that are write roots: no programs are made in them */
        size_t n_programs;
        size_t skipped; /* allowWrite entries left out because of a symlink */
        bool linked;    /* files of write roots that have names outside of these are not written */
        const struct cg_strs *writable_names; /* cellgate.writableNames; borrowed; NULL: none */
        const struct cg_path_base *base;      /* borrowed, while the rules are made */
        /* names of the table in the homes, for cg_sandbox_add_default_hides() */
        struct cg_present homes[CG_PRESENT_HOMES];
};

int cg_rules_make(const struct cg_settings *s, const struct cg_path_base *base, struct cg_rules *ret,
                  struct cg_err *err);

/* Only the write roots of these. */
int cg_rules_make_roots(const struct cg_settings *s, const struct cg_path_base *base, struct cg_rules *ret,
                        struct cg_err *err);

/*
 * path_folders.c: folders of PATH in rules->base->env that are in write roots, which must be among
 * the rules already.
 */
int cg_rules_add_path_folders(struct cg_rules *rules, struct cg_err *err);
/* A sentence about these without its full stop; @who: "cells". Nothing where there are none. */
void cg_rules_say_path_folders(const struct cg_rules *rules, const char *who, struct cg_buf *ret);

/* rule_list.c */
void cg_rules_fini(struct cg_rules *rules);
#define cg_auto_rules CG_CLEANUP(cg_rules_fini)
/* Removes those that were added last: the first @n stay. */
void cg_rules_cut(struct cg_rules *rules, size_t n);
/* @path is in a folder of which each sandbox has its own: no rule concerns it. */
bool cg_rules_is_own(const char *path);
/* The reason @why (CG_WHY_*) with the name that it is about, where that fits and is plain. */
void cg_rules_why(char ret[CG_RULES_WHY_MAX], const char *why, const char *name);
/* Copies @place. */
int cg_rules_add(struct cg_rules *rules, enum cg_rule_kind kind, const struct cg_place *place,
                 const char *why, struct cg_err *err);
int cg_rules_add_pattern(struct cg_rules *rules, const char *text, const char *why, struct cg_err *err);
/*
 * Adds a CG_RULE_KEEP for each link on the way to @place, so that it cannot be redirected. @open:
 * for those only that a write root holds.
 */
int cg_rules_keep_links(struct cg_rules *rules, const struct cg_place *place, bool open, const char *why,
                        struct cg_err *err);
/*
 * @path, which is to be hidden or not to be written, could not be looked up. Hides the closed
 * folder above, where a write root holds it: a process inside could open it again.
 */
int cg_rules_hide_closed(struct cg_rules *rules, const char *path, const char *why, struct cg_err *err);
/* @path, which may name files that must not be written: an error if it is in such a folder. */
int cg_rules_need_open(const struct cg_rules *rules, const char *path, struct cg_err *err);
/*
 * Denies writing @folder/@name where a write root holds it, and keeps links on the way to it.
 * @absent_too: it cannot be made either. Names of rules->writable_names are not denied.
 */
int cg_rules_deny_name(struct cg_rules *rules, const char *folder, const char *name, bool is_folder,
                       bool absent_too, struct cg_err *err);
/* True if cellgate.writableNames has a name of @path. */
bool cg_rules_is_opened(const struct cg_rules *rules, const char *path);
/* True if a write root holds @path, denials aside; NULL: if there is a write root. */
bool cg_rules_may_write(const struct cg_rules *rules, const char *path);

/*
 * own_files.c: cellgate's installed files, its kernels' environment and the base Python of that, as
 * far as they are in write roots. After the write roots, before cg_rules_add_hardlinks().
 */
int cg_rules_add_own(struct cg_rules *rules, struct cg_err *err);
/*
 * The same for the paths that @guards (JSON array of strings, may be NULL) names: programs that run
 * outside of the sandbox. One that ends in "/" is a folder, also where it does not exist yet; an
 * absent one cannot be created. A file with several names is denied by all of them. The element
 * true: such a program has files with several names, so files of write roots that have names
 * outside of these are not written (hardlinks.c). An array of folders: their files have several
 * names. Init searches them (cg_plan_add_linked()); where it does not decide, as true.
 */
int cg_rules_add_guards(struct cg_rules *rules, const json_t *guards, struct cg_err *err);
/*
 * Paths of this user that cellgate uses outside of sandboxes: runtime folders (sockets, generated
 * modules, the folders that MCP servers start in), environments of kernels, installed packages,
 * ~/.srt-settings.json. By the XDG_ variables of @env (user_env.h), @home (either may be NULL) and
 * the account's home, whether they exist or not. As for cg_rules_add_guards(). The caller owns it.
 */
json_t *cg_own_places(const char *home, const json_t *env);
/* These as rules. */
int cg_rules_add_places(struct cg_rules *rules, const struct cg_path_base *base, struct cg_err *err);
/* True if one of these functions added the rule. */
bool cg_rule_is_program(const struct cg_rule *rule);
/* CG_E_INVAL: the workspace is, or is in, a folder of cellgate's own or of Jupyter. */
int cg_own_check_workspace(const char *workspace, const struct cg_path_base *in, struct cg_err *err);

/* hardlinks.c: other names, in write roots, of files that must not be written. The last rules. */
int cg_rules_add_hardlinks(struct cg_rules *rules, struct cg_err *err);

/* mandatory.c: denials that settings cannot lift. Write roots must be among the rules already. */
int cg_rules_add_mandatory(const struct cg_settings *s, const struct cg_path_base *base,
                           struct cg_rules *rules, struct cg_err *err);
/*
 * Existing names of the table in @folder itself, its repository, and the targets of links with such
 * names, as far as they are in write roots. The write roots must be among the rules already.
 */
int cg_rules_add_present(struct cg_rules *rules, const char *folder, bool git_config_too, struct cg_err *err);
/*
 * repositories.c: hooks, included settings and programs that the settings of repositories in the
 * write roots name, at any depth; of the nearest 300 folders.
 */
int cg_rules_add_nested(struct cg_rules *rules, struct cg_err *err);
/*
 * Names of the table (names.h) and repositories that are found below @folder, CG_SEARCH_DEPTH
 * folders deep: for sandboxes whose init does not protect names.
 */
int cg_rules_add_found(struct cg_rules *rules, const char *folder, struct cg_err *err);
/*
 * cg_rules_add_present() for @home (may be NULL) and for the account's home, which ssh and login
 * shells use even if HOME differs. Sets rules->homes.
 */
int cg_rules_add_homes(struct cg_rules *rules, const char *home, bool git_config_too, struct cg_err *err);
