/* Accepting answers of a person: when they count, and the digits that make them unpredictable. */
#pragma once

#include <stdbool.h>
#include "base/err.h"

/*
 * A question accepts no answer before it has been shown for this time without input: less than
 * reading it takes, more than the time between two keys of somebody who types something else.
 */
#define CG_CONFIRM_READ_MS 750

/*
 * Digits of one question. Text of a kernel, also of an earlier run or session, may ask the person
 * to press a certain key ("press y to continue"), but cannot contain the digits: they are drawn
 * when the question is asked.
 */
struct cg_confirm {
        char digits[4];
};

/* Draws new digits. Fails when the system has no random bytes. */
int cg_confirm_draw(struct cg_confirm *c, struct cg_err *err);

/* Is @typed the @letter or @word, in any case, followed by blanks and the question's digits? */
bool cg_confirm_accepts(const struct cg_confirm *c, const char *typed, const char *letter, const char *word);
