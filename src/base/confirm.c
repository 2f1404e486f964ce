/* Accepting answers of a person. Linked into every process that asks. */
#include "base/confirm.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/random.h>

int cg_confirm_draw(struct cg_confirm *c, struct cg_err *err)
{
        uint32_t n;

        if (getrandom(&n, sizeof(n), 0) != (ssize_t)sizeof(n))
                return cg_fail_errno(err, "getrandom");
        snprintf(c->digits, sizeof(c->digits), "%u", 100 + n % 900);
        return 0;
}

bool cg_confirm_accepts(const struct cg_confirm *c, const char *typed, const char *letter, const char *word)
{
        size_t n = strcspn(typed, " 0123456789"), blanks = strspn(typed + n, " ");

        return c->digits[0] && strcmp(typed + n + blanks, c->digits) == 0 &&
               ((n == strlen(letter) && strncasecmp(typed, letter, n) == 0) ||
                (n == strlen(word) && strncasecmp(typed, word, n) == 0));
}
