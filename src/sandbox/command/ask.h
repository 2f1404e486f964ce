/*
 * Asking a person at the terminal whether a command may connect to a host that no list names:
 * `cellgate sandbox --ask`. Part of the keeper. One question stands at a time; everything inside
 * stands still meanwhile (the keeper's part), so that nothing is drawn over the question, and
 * nobody else reads the answer. Where something did run, a yes does not count. The accepting keys
 * contain digits that are drawn for each question, so that the command could not have asked for
 * them.
 */
#ifndef CG_SANDBOX_COMMAND_ASK_H
#define CG_SANDBOX_COMMAND_ASK_H

#include <jansson.h>
#include <stdbool.h>
#include <termios.h>
#include "base/confirm.h"
#include "sandbox/egress/client.h"

/* The proxy asks no more at once, and not for longer than this unless the caller says so. */
#define CG_ASK_MAX     32
#define CG_ASK_SECONDS 60

/* What the keeper does about everything inside. */
struct cg_ask_hold {
        bool (*hold)(void *data);  /* before a question is shown; false: it cannot be held */
        bool (*stood)(void *data); /* nothing has run since then */
        void *data;
};

struct cg_ask {
        int tty;                       /* -1: nobody can be asked */
        json_t *questions[CG_ASK_MAX]; /* events of the proxy; the first one stands */
        size_t n;
        bool stands, changed; /* the terminal's settings are ours */
        struct termios before;
        char line[64];
        size_t len;
        bool long_line;   /* more was typed than any answer has */
        int64_t opens_ms; /* when the question that stands accepts an answer; 0: it does */
        bool ignored;     /* keys were discarded */
        struct cg_confirm confirm;
        struct cg_ask_hold hold;
        unsigned int moved; /* so often the answer to this question did not count */
        bool lost;          /* nobody can be asked: all are to be taken back */
};

/*
 * The controlling terminal. CG_E_UNSUPPORTED where there is none: then every question is answered
 * no.
 */
int cg_ask_open(struct cg_ask *a, struct cg_err *err);
void cg_ask_close(struct cg_ask *a);

/* A question of the proxy's (copies); false when it cannot be asked: answer no, for @why. */
bool cg_ask_add(struct cg_ask *a, const json_t *event, const char **why);
/* Nobody waits for it any more, or its time is over. */
void cg_ask_cancel(struct cg_ask *a, json_int_t id);
/* To be read from while a question stands; else -1. */
int cg_ask_fd(const struct cg_ask *a);
/*
 * A question accepts no answer at first: keys are discarded until it has been shown for a while.
 * _timeout(): milliseconds until cg_ask_due() must be called, which then asks for the answer; -1:
 * no wait.
 */
int cg_ask_timeout(const struct cg_ask *a);
void cg_ask_due(struct cg_ask *a);
/* Something may have run while the question stands: it is asked again. */
void cg_ask_again(struct cg_ask *a);
/*
 * After poll(2): true when the standing question is answered (*id, *answer); the next one then
 * stands.
 */
bool cg_ask_read(struct cg_ask *a, json_int_t *id, enum cg_egress_answer *answer);
/*
 * Takes one question back without an answer, to be answered no: its number, or 0 when there is
 * none.
 */
json_int_t cg_ask_give_up(struct cg_ask *a);

#endif
