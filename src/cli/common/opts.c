/* Command line options. Runs in the command `cellgate`. */
#include "cli/common/opts.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/buf.h"
#include "base/text.h"
#include "base/util.h"
#include "cli/common/cli.h"

#define MAX_WORD   64
#define HELP_WIDTH 100

static bool has(const struct cg_opt *opt, unsigned command)
{
        return !opt->commands || opt->commands & command;
}

static int unknown(const struct cg_optscan *o, const char *word, size_t len, struct cg_err *err)
{
        const char *best = NULL;
        size_t least = 3; /* further away, a suggestion is a guess */
        char name[MAX_WORD + 1] = "";

        memcpy(name, word, len < MAX_WORD ? len : MAX_WORD);
        for (size_t i = 0; i < o->n; i++) {
                const char *candidate = has(&o->table[i], o->command) ? o->table[i].name : NULL;
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
        o->found = opt;
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

                if (has(opt, o->command) && opt->name && strlen(opt->name) == len - 2 &&
                    memcmp(opt->name, word + 2, len - 2) == 0)
                        return take(o, opt, word, len, equal ? equal + 1 : NULL, value, err);
        }
        return unknown(o, word, len, err);
}

int cg_opt_next(struct cg_optscan *o, const char **value, struct cg_err *err)
{
        const char *word;

        o->found = NULL;
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

                if (has(opt, o->command) && opt->letter == word[1] && (opt->value || !rest))
                        return take(o, opt, word, 2, rest, value, err);
        }
        return unknown(o, word, strlen(word), err);
}

/* "-c, --code CODE" */
static int option_text(const struct cg_opt *opt, char *buf, size_t size)
{
        char letter[] = { '-', opt->letter, ',', ' ', '\0' };

        if (!opt->name)
                letter[2] = '\0';
        return snprintf(buf, size, "  %s%s%s%s%s", opt->letter ? letter : "", opt->name ? "--" : "",
                        opt->name ? opt->name : "", opt->value && (opt->letter || opt->name) ? " " : "",
                        opt->value ? opt->value : "");
}

/*
 * Appends @text from @column on. Lines that are too long go on below their description, which
 * begins after two blanks, or below their beginning.
 */
static void add_wrapped(struct cg_buf *b, const char *text, size_t column)
{
        while (*text) {
                size_t len = strcspn(text, "\n"), indent = strspn(text, " "), at = column, hang;
                const char *gap = memmem(text + indent, len - indent, "  ", 2);

                hang = gap ? (size_t)(gap - text) + strspn(gap, " ") : indent;
                for (size_t i = 0, blanks, word; i < len; i += blanks + word) {
                        blanks = strspn(text + i, " ");
                        word = strcspn(text + i + blanks, " \n");
                        if (i && at + blanks + word > HELP_WIDTH) {
                                cg_buf_try_addf(b, NULL, "\n%*s", (int)(column + hang), "");
                                at = column + hang;
                        } else {
                                cg_buf_try_addf(b, NULL, "%*s", (int)blanks, "");
                                at += blanks;
                        }
                        cg_buf_try_add(b, text + i + blanks, word, NULL);
                        at += word;
                }
                cg_buf_try_adds(b, "\n", NULL);
                text += len;
                if (*text == '\n' && *++text)
                        cg_buf_try_addf(b, NULL, "%*s", (int)column, "");
        }
}

int cg_opt_help(const struct cg_opt *table, size_t n, unsigned command, const char *before, const char *after)
{
        cg_auto_buf struct cg_buf b = { .max = 65536 };
        size_t column = 0;
        char left[80];

        for (size_t i = 0; i < n; i++)
                if (has(&table[i], command)) {
                        size_t len = (size_t)option_text(&table[i], left, sizeof(left)) + 2;

                        column = len > column ? len : column;
                }
        cg_buf_try_adds(&b, before, NULL);
        for (size_t i = 0; i < n; i++)
                if (has(&table[i], command)) {
                        option_text(&table[i], left, sizeof(left));
                        cg_buf_try_addf(&b, NULL, "%-*s", (int)column, left);
                        add_wrapped(&b, table[i].help, column);
                }
        cg_buf_try_adds(&b, after, NULL);
        return cg_cli_print(b.data);
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
