/*
 * Policies: rules and budgets that decide about tool calls, programs and connections of cells
 * (docs/policy.md). A policy is read once; deciding about a call opens no file and only looks at
 * its arguments where a rule names one. Whoever makes the calls is hostile: a condition that cannot
 * be decided (wrong type, too long, limit of steps reached) never lets a rule allow, and always
 * lets it deny. Used by the commands that start kernels, and by libcellgate. One thread at
 * a time.
 */
#pragma once

#include "base/buf.h"

/* Methods that wait for a decision: cg_event_method(). The tool is "" for the last two. */
#define CG_METHOD_CALL "tools/call"
#define CG_METHOD_READ "resources/read"
#define CG_METHOD_GET  "prompts/get"
/* True for these three, the methods of MCP servers. Rules about tools accept no other method. */
bool cg_pol_is_mcp(const char *method);
/*
 * A program that cells want to start: the server is "", the arguments are the question. For
 * --approve the tool is the question as well; no rule about tools accepts one, and "all" asks.
 */
#define CG_METHOD_EXEC "exec"
/* A connection: the server is "", the arguments are {"host": NAME, "port": NUMBER}. */
#define CG_METHOD_CONNECT "connect"

/* In the order of strictness. */
enum cg_pol_decision {
        CG_POL_NONE = 0, /* no rule is about it */
        CG_POL_ALLOW,
        CG_POL_ASK,
        CG_POL_DENY,
};

struct cg_pol_call {
        const char *server, *method, *tool;
        const char *args; /* JSON text, not terminated */
        size_t args_len;
        const char *front;   /* "run", "mcp serve", "jupyter", "api" */
        const char *client;  /* name that the client gives itself; NULL: unknown */
        const char *session; /* its namespace; NULL: "default" */
        uint64_t cell;       /* increasing; 0: none runs */
        int64_t time_s;      /* since 1970 */
        int64_t now_ms;      /* of a monotonic clock */
        bool again;          /* the same question as before: counts in no budget */
};

#define CG_POL_RULE_MAX 256

struct cg_pol_verdict {
        enum cg_pol_decision decision;
        /* rule or budget that decided, with its file, on one line; "": none */
        char rule[CG_POL_RULE_MAX];
        const char *text; /* of that rule, for the agent; borrowed, NULL: none */
        bool repeated;    /* the same call was refused before */
};

struct cg_pol;

int cg_pol_new(struct cg_pol **ret, struct cg_err *err);
struct cg_pol *cg_pol_free(struct cg_pol *p);

CG_FREEP(cg_pol_freep_, struct cg_pol *, cg_pol_free)
#define cg_auto_pol CG_CLEANUP(cg_pol_freep_)

/*
 * Adds the file with this text (copies). @name: what messages call it. CG_E_PARSE: "NAME: POINTER:
 * reason", for text that is no JSON with line and column.
 */
int cg_pol_add(struct cg_pol *p, const char *name, const char *text, size_t len, struct cg_err *err);
bool cg_pol_is_empty(const struct cg_pol *p);
/* True if a rule is about programs, or connections: the method. */
bool cg_pol_is_about(const struct cg_pol *p, const char *method);
/* Cells that a client may start in a minute; 0: no file has a limit. */
unsigned cg_pol_cells_per_minute(const struct cg_pol *p);

/* Appends a line for each rule that can never decide. */
int cg_pol_warnings(const struct cg_pol *p, int64_t time_s, struct cg_buf *b, struct cg_err *err);

/*
 * Decides, and counts the call in budgets unless it is denied. @v: on entry what --approve says
 * about the call, which stands where no file has decided, or if it denies by a pattern (@firm).
 * @trace: gets a line for each rule that was compared; may be NULL.
 */
void cg_pol_decide(struct cg_pol *p, const struct cg_pol_call *call, bool firm, struct cg_pol_verdict *v,
                   struct cg_buf *trace);
/* Names the call by its server, method, tool and arguments. */
uint64_t cg_pol_key(const struct cg_pol_call *call);
/* A person has refused this call: the same one is denied from now on, without a question. */
void cg_pol_refuse(struct cg_pol *p, uint64_t key);
/*
 * Appends the reason of a refusal, for the agent: the rule, its text, and that repeating does not
 * help; of what is allowed, the rule. @mute: a rule asks, but nobody can be asked.
 */
int cg_pol_explain(struct cg_buf *b, const struct cg_pol_verdict *v, bool mute, struct cg_err *err);

/*
 * True if @call is one of host_exec, and its program is what @pattern was granted for: words with
 * wildcards, and no folder of its own.
 */
bool cg_pol_granted(const char *pattern, const struct cg_pol_call *call);

/* ---- write.c */
/* A file, as it is now. */
struct cg_pol_text {
        const char *name;
        char *text;
        size_t len;
};

/*
 * The narrowest rule that allows @call, as ASCII text on one line (returns): the same arguments and
 * no others, the same front and namespace. CG_E_UNSUPPORTED or CG_E_LIMIT: there is none.
 */
int cg_pol_rule_for(const struct cg_pol_call *call, char **ret, struct cg_err *err);
/*
 * Appends the text of the file *which with @rule added, behind as many other rules as it can be
 * to allow the call. CG_E_UNSUPPORTED: in no one file it would.
 */
int cg_pol_add_rule(const struct cg_pol_text *files, size_t n_files, const struct cg_pol_call *call,
                    const char *rule, size_t *which, struct cg_buf *b, struct cg_err *err);

/* True if @pattern matches exactly @len bytes of @text: `*` any characters, `?` one. */
bool cg_pol_glob(const char *pattern, size_t pattern_len, const char *text, size_t len);
