/*
 * Asking a person at the terminal: about a tool call, about a connection, or for the text that
 * input() wants. A state machine fed with what was typed, so that the kernel's events can be
 * followed while the question is open.
 */
#pragma once

#include "cli/common/args.h"
#include "cli/common/screen.h"

struct cg_prompt;

enum cg_prompt_answer {
        CG_ANSWER_NONE = 0, /* the question is still open */
        /* also end of file, and a terminal that was closed */
        CG_ANSWER_NO,
        CG_ANSWER_YES,
        CG_ANSWER_ALWAYS,  /* to a question about a call */
        CG_ANSWER_SAME,    /* always, with the same arguments */
        CG_ANSWER_RULE,    /* always, by the rule that was shown */
        CG_ANSWER_SESSION, /* to one about a connection: yes, for this session */
        CG_ANSWER_NEVER,   /* no, for this session */
        CG_ANSWER_EACH,    /* to one about several calls: they are to be asked about alone */
        CG_ANSWER_TEXT,    /* to an input question: cg_prompt_text() */
        CG_ANSWER_EOF,     /* to an input question, or to one of another client, which stays open */
};

/*
 * The controlling terminal (/dev/tty), else standard input and error where both are terminals.
 * CG_E_UNSUPPORTED where there is none.
 */
int cg_prompt_open(struct cg_screen *screen, struct cg_prompt **ret, struct cg_err *err);
struct cg_prompt *cg_prompt_free(struct cg_prompt *p);

/* True: a person is asked by default: standard input or standard error is a terminal. */
bool cg_prompt_is_interactive(const struct cg_prompt *p);

/* Descriptor to poll for reading while a question is open, and the function to call then. */
int cg_prompt_fd(const struct cg_prompt *p);
int cg_prompt_read(struct cg_prompt *p, enum cg_prompt_answer *ret, struct cg_err *err);
bool cg_prompt_is_open(const struct cg_prompt *p);

/*
 * A question about a call or connection accepts no answer at first: keys are discarded until it has
 * been shown for a while. _timeout(): milliseconds until cg_prompt_due() must be called, which then
 * asks for the answer; -1: no wait.
 */
int cg_prompt_timeout(const struct cg_prompt *p);
int cg_prompt_due(struct cg_prompt *p, struct cg_err *err);

/* Puts the terminal back into its mode. Async-signal-safe: for a process about to _exit(). */
void cg_prompt_abandon(const struct cg_prompt *p);

/*
 * Asks about a call (borrows until the question ends), or about several at once. Answers: n, r, v,
 * of several o; and once all of it was shown, y and a, which the digits of this question follow.
 */
int cg_prompt_ask(struct cg_prompt *p, const struct cg_call *call, struct cg_err *err);

/* The same about a connection; @to (copied) is the text of cg_connection_text(). */
int cg_prompt_ask_connection(struct cg_prompt *p, const char *to, uint64_t cell, struct cg_err *err);

/* Asks for input() 's text; a password is not echoed. */
int cg_prompt_input(struct cg_prompt *p, const char *prompt, bool password, uint64_t cell,
                    struct cg_err *err);

/* Cancels a question and shows the reason (rendered). */
void cg_prompt_withdraw(struct cg_prompt *p, const char *why);

/* After CG_ANSWER_TEXT: the text; after CG_ANSWER_NO: the reason, or NULL. Until the next call. */
const char *cg_prompt_text(const struct cg_prompt *p, size_t *len);
