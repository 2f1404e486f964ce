/* src/policy: what its files share. */
#pragma once

#include <jansson.h>
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include "policy/policy.h"

/* Files and what is in them are written by hand: these limit generated ones. */
#define CG_POL_FILES_MAX      16u
#define CG_POL_RULES_MAX      512u
#define CG_POL_CONDITIONS_MAX 16u
/* Rules of a file. The same limit of steps as in exec_rules.c: about 20 ms for a call. */
#define CG_POL_REGEXES_MAX 64u
#define CG_POL_REGEX_STEPS 5000u
/* Longer texts of a call are unclear to globs and regular expressions. */
#define CG_POL_TEXT_MAX 4096u
/* Length of a glob (matching takes the product of both lengths in steps) and of a pointer. */
#define CG_POL_GLOB_MAX 256u
/* Refused calls that are remembered, the last ones. */
#define CG_POL_REFUSED_MAX 1024u

enum cg_pol_condition_kind {
        CG_COND_ENUM,
        CG_COND_EXACT,
        CG_COND_GLOB,
        CG_COND_REGEX,
        CG_COND_RANGE,
        CG_COND_WITHIN,
        CG_COND_ARGV
};

struct cg_pol_condition {
        const char *pointer; /* as it is written */
        char **tokens;       /* unescaped, NULL-terminated */
        enum cg_pol_condition_kind kind;
        /*
         * CG_COND_ENUM: an array of texts, numbers, booleans, null; CG_COND_ARGV: of patterns;
         * CG_COND_EXACT: an object or array
         */
        const json_t *values;
        const char *text; /* glob, or folder */
        pcre2_code *re;
        double min, max;
};

/* How long an `allow` rule counts once it has allowed a call. */
enum cg_pol_grant { CG_GRANT_SESSION, CG_GRANT_CELL, CG_GRANT_ONCE };
enum cg_pol_per { CG_PER_SESSION, CG_PER_CELL, CG_PER_MINUTE };

/* A rule, or a budget. The texts are the file's own, but for @exec. */
struct cg_pol_rule {
        const char *id; /* or NULL */
        /* what it is about; NULL each: any */
        const char *server, *tool, *method, *host, *client, *session;
        const json_t *fronts;
        int64_t port; /* 0: any */
        json_t *exec; /* as settings have it; NULL: not about programs */
        struct cg_pol_condition *conditions;
        size_t n_conditions;

        enum cg_pol_decision decision;
        const char *text;
        int64_t until_s; /* 0: for ever */
        enum cg_pol_grant grant;
        bool granted;
        uint64_t granted_cell;

        enum cg_pol_per per;
        int64_t calls;               /* limit; 0: none */
        struct cg_pol_condition sum; /* its value is added; no pointer: none */
        double max;
        uint64_t cell;    /* that is counted */
        int64_t since_ms; /* the minute that is counted */
        int64_t n;
        double total;
};

struct cg_pol_file {
        char *name;
        json_t *root;
        enum cg_pol_decision base;
        unsigned cells_per_minute;
        struct cg_pol_rule *rules, *budgets;
        size_t n_rules, n_budgets;
        unsigned n_regexes;
};

struct cg_pol {
        struct cg_pol_file files[CG_POL_FILES_MAX];
        size_t n;
        uint64_t refused[CG_POL_REFUSED_MAX];
        size_t n_refused;
};

enum cg_pol_match { CG_MATCH_NO, CG_MATCH_UNCLEAR, CG_MATCH_YES };

/*
 * Compares all of a rule. @unreadable: the call's arguments are no text that everybody reads alike.
 * @why: the reason of any other outcome than CG_MATCH_YES.
 */
enum cg_pol_match cg_pol_matches(const struct cg_pol_rule *rule, const struct cg_pol_call *call,
                                 bool unreadable, char why[CG_POL_RULE_MAX]);
/* @front is in the list @fronts, or there is no list. */
bool cg_pol_has_front(const json_t *fronts, const char *front);
/* ---- argv.c */
/* Ends a list of patterns: any further arguments. */
#define CG_POL_MORE "**"
/*
 * The words of a program that a text without shell syntax starts (new); NULL: the text has such
 * syntax. @pattern: "*" and "?" are none.
 */
json_t *cg_pol_words(const char *text, bool pattern);
/* @v: an array of words, or a text; @allows: of a rule that allows. */
enum cg_pol_match cg_pol_match_argv(const json_t *patterns, struct cg_slice v, bool allows);
bool cg_pol_is_host_exec(const struct cg_pol_call *call);

/* The number at a budget's pointer. False: there is none, or it is negative or inexact. */
bool cg_pol_number(const struct cg_pol_condition *sum, const struct cg_pol_call *call, double *ret);
/* An absolute path without "..", "." and empty parts; false: it is none. @ret: PATH_MAX bytes. */
bool cg_pol_normal_path(const char *path, char *ret);
