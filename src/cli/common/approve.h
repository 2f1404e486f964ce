/*
 * Approval rules: which tool calls are accepted or refused without asking a person. Used by
 * `cellgate run` and `cellgate mcp serve`.
 *
 * A rule is `ask`, `none` or `all`, for all that no pattern decides; or a pattern SERVER.TOOL,
 * which accepts calls of tools; or SERVER:resources/read or SERVER:prompts/get, which accept
 * requests for resources and prompts; or one of these after a `!`, which refuses. A pattern of
 * tools accepts no resource and no prompt; !SERVER.* refuses them too. In patterns `*` matches any
 * characters and `?` one. The order of rules does not matter: a call that any `!` pattern matches
 * is refused, else one that any pattern matches is accepted. So an added rule never allows what
 * another one refuses.
 */
#pragma once

#include <jansson.h>
#include "base/buf.h"
#include "policy/policy.h"

struct cg_approve;

enum cg_approve_answer {
        CG_APPROVE_REFUSE = 0, /* zero, so that forgotten initialisation refuses */
        CG_APPROVE_ACCEPT,
        CG_APPROVE_ASK,
};

int cg_approve_new(struct cg_approve **ret, struct cg_err *err);
/*
 * One more of the same rules, with a list of its own of what cg_approve_always() accepts: for a
 * session. The policy files and their budgets are shared: @a must live longer.
 */
int cg_approve_copy(struct cg_approve *a, struct cg_approve **ret, struct cg_err *err);
struct cg_approve *cg_approve_free(struct cg_approve *a);

/* Adds one rule (copies). CG_E_INVAL with the reason when it is none. */
int cg_approve_add(struct cg_approve *a, const char *rule, struct cg_err *err);

/*
 * The answer for a call that no pattern decides: the rule ask, none or all, or @def where none of
 * these was given.
 */
void cg_approve_set_default(struct cg_approve *a, enum cg_approve_answer def);
enum cg_approve_answer cg_approve_base(const struct cg_approve *a);

/*
 * Accepts this very tool from now on, or all resources or prompts of the server: names are taken
 * literally. A `!` pattern still wins.
 */
int cg_approve_always(struct cg_approve *a, const char *server, const char *method, const char *tool,
                      struct cg_err *err);
/*
 * The same for this call alone, with arguments of the same bytes. Fails for what is no text in
 * UTF-8: it is asked about again.
 */
int cg_approve_always_same(struct cg_approve *a, const struct cg_pol_call *call, struct cg_err *err);
/* A file that asks about this call got a rule that allows it, which counts from now on. */
int cg_approve_ruled(struct cg_approve *a, const struct cg_pol_call *call, struct cg_err *err);
/* A call can be accepted by its arguments: not programs, whose "always" is as narrow already. */
bool cg_approve_has_arguments(const char *method);
/*
 * May it be asked about? Not for programs that cells can change: it would be for whatever they put
 * there later.
 */
bool cg_approve_may_last(const char *method, const char *tool);

/* Drops what cg_approve_always() has accepted for @server: another program has its name now. */
void cg_approve_forget(struct cg_approve *a, const char *server);

/* *rule (may be NULL): the text of the rule that decided, borrowed; NULL where it was the base. */
enum cg_approve_answer cg_approve_decide(const struct cg_approve *a, const char *server, const char *method,
                                         const char *tool, const char **rule);

/*
 * Why a call was refused, and how to allow it, as one sentence for the code in the kernel and for
 * the person. @rule as it came from cg_approve_decide(). Names are rendered.
 */
void cg_approve_explain(struct cg_buf *b, const char *server, const char *method, const char *tool,
                        const char *rule);
/* SERVER.TOOL or SERVER:METHOD on one line, rendered. */
void cg_approve_name(struct cg_buf *b, const char *server, const char *method, const char *tool);

/* True if a name can be part of a rule that a person copies into a shell. */
bool cg_approve_is_plain(const char *name);

/* A rule that was given with cg_approve_add(), in parts. Borrows. */
struct cg_approve_parts {
        const char *text;
        bool deny;
        const char *server; /* a pattern, not terminated */
        size_t server_len;
        const char *tools;  /* a pattern; NULL: the rule is about @method */
        const char *method; /* or NULL */
};

/* The rule with this number, counted from 0. False: there are no more. */
bool cg_approve_rule(const struct cg_approve *a, size_t i, struct cg_approve_parts *ret);
/* Lax rules: one that refuses, but matches nothing, does not stop the start (rule_check.h). */
void cg_approve_set_lax(struct cg_approve *a);
bool cg_approve_is_lax(const struct cg_approve *a);

/* ---- policy files, and rules where these do not decide */

struct cg_approve_verdict {
        struct cg_pol_verdict policy; /* its rule is "" where a rule of --approve has decided */
        const char *rule;             /* as of cg_approve_decide() */
        bool mute;                    /* a file asks, and nobody can be asked */
};

/* The files (borrows), to which the front adds those of --policy. */
struct cg_pol *cg_approve_policy(const struct cg_approve *a);
/* The front's name in rules of files: "run" at first. Borrows. */
void cg_approve_set_front(struct cg_approve *a, const char *front);
/* The namespace of its sessions, in rules of files; NULL: "default". Borrows. */
void cg_approve_set_namespace(struct cg_approve *a, const char *name);
/* Says that the front can ask nobody: what a file wants to be asked about is refused then. */
void cg_approve_set_mute(struct cg_approve *a, bool mute);
/*
 * A session was opened that counts its cells from 1 again. Budgets of the session go on, and what
 * request_host_access was granted ends.
 */
void cg_approve_new_session(struct cg_approve *a);

/* @call with front, namespace and times. */
struct cg_pol_call cg_approve_complete(const struct cg_approve *a, const struct cg_pol_call *call);
/*
 * The answer for @call (front and times are filled in). A connection that no file decides about is
 * CG_APPROVE_ASK. Call it once for each call: it counts in budgets.
 */
enum cg_approve_answer cg_approve_judge(struct cg_approve *a, const struct cg_pol_call *call,
                                        struct cg_approve_verdict *v);
/* @file: has the definitions of the session's servers; NULL: none. @cellgate: our program. */
void cg_approve_set_servers(struct cg_approve *a, const json_t *file, const char *cellgate);
/*
 * A person has accepted this call. If it is request_host_access of the server "host" of
 * docs/host-web.md, programs that its pattern names are not asked about again in the session.
 */
void cg_approve_accepted(struct cg_approve *a, const struct cg_pol_call *call);
/* A person has refused this call. With policy files, the same one is not asked about again. */
void cg_approve_refused(struct cg_approve *a, const struct cg_pol_call *call);

/* cg_approve_explain(), or the front's own. */
typedef void (*cg_approve_explain_fn)(struct cg_buf *b, const char *server, const char *method,
                                      const char *tool, const char *rule);
/* Why the call was refused: by a file, else @by_rule says so. Of an accepted one, the rule. */
void cg_approve_explain_verdict(struct cg_buf *b, const struct cg_pol_call *call,
                                const struct cg_approve_verdict *v, cg_approve_explain_fn by_rule);
