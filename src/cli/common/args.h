/* The text of a tool call for the person who decides about it. */
#pragma once

#include "base/buf.h"
#include "cellgate.h"
#include "policy/policy.h"

struct cg_call {
        const char *server, *tool; /* untrusted */
        const char *method;        /* cg_event_method() */
        const char *args;          /* untrusted: one JSON object, if all is well */
        size_t args_len;
        const char *line; /* of the shell's cell, that names a program; "" or NULL: none */
        uint64_t cell;
        const char *rule; /* that allows it from now on, for the file @rule_file; NULL: none */
        const char *rule_file;
        bool elsewhere;             /* of another client's session: decided once, without "always" */
        const struct cg_call *next; /* of the same cell, in the same question; NULL: none */
};

/*
 * A question is shown in a first view, and if not all of it fits there, in parts. Nobody may accept
 * before *last was set: then all has been shown.
 */
struct cg_call_view {
        unsigned width;
        size_t lines; /* of a view; 0: the first view is not limited */
        size_t part;  /* 0: the first view; N: the Nth part of the whole text */
        /* set by cg_call_show() */
        bool last;    /* the last part, or a first view that shows all; false where the buffer failed */
        size_t parts; /* where @part is not 0: how many there are */
};

/*
 * Appends a description: server, tool (or resource, or prompt) and arguments as indented JSON.
 * Every line begins with two blanks and is broken before @width columns, if possible between words,
 * so that no text of the call can begin where a line of cellgate begins. Long runs of blanks are
 * folded. Of several calls each is below a line with its number. In a first view that does not show
 * all, the middle of long strings and of many lines is left out, and a digest says what was left
 * out; each cut is marked.
 */
void cg_call_show(const struct cg_call *call, struct cg_call_view *v, struct cg_buf *b);

/* How many calls the question is about. */
static inline size_t cg_call_count(const struct cg_call *call)
{
        size_t n = 0;

        for (; call; call = call->next)
                n++;
        return n;
}

/* Appends arguments as they are spelled: one or a few lines as above. */
void cg_call_line(const char *args, unsigned width, struct cg_buf *b);

/*
 * Appends rendered text that begins at @column, broken before @width columns as above: what follows
 * a break is indented and marked.
 */
void cg_text_wrap(const char *text, size_t len, unsigned column, unsigned width, struct cg_buf *b);

/* The tool of an APPROVAL_REQUEST, for cg_approve_decide(). Lives as long as the event. */
const char *cg_call_subject(const struct cg_event *e);

/* The call of an APPROVAL_REQUEST. Lives as long as the event. */
struct cg_call cg_call_asked(const struct cg_event *e);

/* An APPROVAL_REQUEST or EGRESS_REQUEST for cg_approve_judge(). Lives as long as the event. */
struct cg_pol_call cg_call_of(const struct cg_event *e);

/* How questions describe calls of a method. The texts are static. */
struct cg_call_words {
        const char *method;
        const char *title;       /* for the line before cg_call_show(): "call a tool" */
        const char *scope;       /* what cg_approve_always() accepts */
        const char *label, *key; /* of the line that names it, and the argument with the name */
};

const struct cg_call_words *cg_call_words(const char *method);

/* A name on one line: as cg_render(), with newline and tab as escapes too. */
void cg_name_render(struct cg_buf *b, const char *name);
