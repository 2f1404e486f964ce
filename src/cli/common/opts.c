/* Command line options. Runs in the command `cellgate`. */
#include "cli/common/opts.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "base/text.h"
#include "base/util.h"

#define MAX_WORD 64

static int unknown(const struct cg_optscan *o, const char *word, size_t len, struct cg_err *err)
{
        const char *best = NULL;
        size_t least = 3; /* further away, a suggestion is a guess */
        char name[MAX_WORD + 1] = "";

        memcpy(name, word, len < MAX_WORD ? len : MAX_WORD);
        for (size_t i = 0; i < o->n; i++) {
                const char *candidate = o->table[i].name;
                size_t d = candidate ? cg_text_distance(name + strspn(name, "-"), candidate, NULL) : least;

                if (d < least && d < strlen(candidate)) {
                        least = d;
                        best = candidate;
                }
        }
        if (best)
                return cg_fail(err, CG_E_INVAL, "unknown option %.*s: did you mean --%s?", (int)len, word,
                               best);
        return cg_fail(err, CG_E_INVAL, "unknown option %.*s: --help lists the options", (int)len, word);
}

/* @rest: the value written in the same word, or NULL */
static int take(struct cg_optscan *o, const struct cg_opt *opt, const char *word, size_t len,
                const char *rest, const char **value, struct cg_err *err)
{
        *value = NULL;
        if (!opt->value && rest)
                return cg_fail(err, CG_E_INVAL, "option %.*s takes no value", (int)len, word);
        if (!opt->value)
                return opt->id;
        if (!rest && o->i >= o->argc)
                return cg_fail(err, CG_E_INVAL, "option %.*s needs a value: %.*s %s", (int)len, word,
                               (int)len, word, opt->value);
        *value = rest ? rest : o->argv[o->i++];
        return opt->id;
}

static int long_option(struct cg_optscan *o, const char *word, const char **value, struct cg_err *err)
{
        const char *equal = strchr(word, '=');
        size_t len = equal ? (size_t)(equal - word) : strlen(word);

        for (size_t i = 0; i < o->n; i++) {
                const struct cg_opt *opt = &o->table[i];

                if (opt->name && strlen(opt->name) == len - 2 && memcmp(opt->name, word + 2, len - 2) == 0)
                        return take(o, opt, word, len, equal ? equal + 1 : NULL, value, err);
        }
        return unknown(o, word, len, err);
}

int cg_opt_next(struct cg_optscan *o, const char **value, struct cg_err *err)
{
        const char *word;

        if (o->i >= o->argc)
                return CG_OPT_END;
        word = o->argv[o->i++];
        if (!o->dashes && strcmp(word, "--") == 0) {
                o->dashes = true;
                return cg_opt_next(o, value, err);
        }
        if (o->dashes || word[0] != '-' || !word[1]) {
                *value = word;
                return CG_OPT_ARG;
        }
        if (word[1] == '-')
                return long_option(o, word, value, err);
        for (size_t i = 0; i < o->n; i++) {
                const struct cg_opt *opt = &o->table[i];
                const char *rest = word[2] ? word + 2 : NULL;

                if (opt->letter == word[1] && (opt->value || !rest))
                        return take(o, opt, word, 2, rest, value, err);
        }
        return unknown(o, word, strlen(word), err);
}

int cg_opt_seconds(const char *what, const char *text, int64_t *ret_ms, struct cg_err *err)
{
        char *end;
        double s;

        errno = 0;
        s = strtod(text, &end);
        if (strspn(text, "0123456789.") != strlen(text) || end == text || *end || s > 315360000.0)
                return cg_fail(err, CG_E_INVAL,
                               "%s needs seconds such as 30 or 1.5 (0: no limit), not \"%s\"", what, text);
        *ret_ms = (int64_t)(s * 1000.0);
        if (s > 0 && *ret_ms == 0)
                *ret_ms = 1; /* 0 would mean no limit */
        return 0;
}

int cg_opt_int(const char *what, const char *text, int min, int max, int *ret, struct cg_err *err)
{
        char *end;
        long n;

        errno = 0;
        n = strtol(text, &end, 10);
        if (end == text || *end || errno || n < min || n > max)
                return cg_fail(err, CG_E_INVAL, "%s needs a number from %d to %d, not \"%s\"", what, min, max,
                               text);
        *ret = (int)n;
        return 0;
}
