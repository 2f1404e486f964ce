/* Command line options. Runs in the command `cellgate`. */
#include "cli/common/opts.h"

#include <time.h>
#include "base/buf.h"
#include "base/text.h"
#include "cli/common/cli.h"

#define MAX_WORD   64
#define HELP_WIDTH 100

bool cg_opt_is_of(const struct cg_opt *opt, unsigned command)
{
        return !opt->commands || opt->commands & command;
}

static int unknown(const struct cg_optscan *o, const char *word, size_t len, struct cg_err *err)
{
        const char *best = NULL;
        size_t least = 3; /* further away, a suggestion is a guess */
        char name[MAX_WORD + 1] = "";

        memcpy(name, word, CG_MIN(len, MAX_WORD));
        for (size_t i = 0; i < o->n; i++) {
                const char *candidate = o->table[i].name;
                size_t d;

                if (!candidate || !cg_opt_is_of(&o->table[i], o->command))
                        continue;
                d = cg_text_distance(name + strspn(name, "-"), candidate, NULL);
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
        *value = rest ?: o->argv[o->i++];
        return opt->id;
}

static int long_option(struct cg_optscan *o, const char *word, const char **value, struct cg_err *err)
{
        size_t len = strcspn(word, "=");
        const char *rest = word[len] ? word + len + 1 : NULL;

        for (size_t i = 0; i < o->n; i++) {
                const struct cg_opt *opt = &o->table[i];

                if (cg_opt_is_of(opt, o->command) && opt->name && strlen(opt->name) == len - 2 &&
                    memcmp(opt->name, word + 2, len - 2) == 0)
                        return take(o, opt, word, len, rest, value, err);
        }
        return unknown(o, word, len, err);
}

int cg_opt_next(struct cg_optscan *o, const char **value, struct cg_err *err)
{
        const char *word, *rest = NULL;

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
        if (word[2])
                rest = word + 2;
        for (size_t i = 0; i < o->n; i++) {
                const struct cg_opt *opt = &o->table[i];

                if (cg_opt_is_of(opt, o->command) && opt->letter == word[1] && (opt->value || !rest))
                        return take(o, opt, word, 2, rest, value, err);
        }
        return unknown(o, word, strlen(word), err);
}

int cg_opt_command(const char *const *names, size_t n, unsigned commands, int argc, char **argv,
                   struct cg_err *err)
{
        const char *word = argc > 1 ? argv[1] : "";
        cg_auto_buf struct cg_buf b = { .max = 400 };

        if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0)
                return 0;
        for (size_t i = 0; i < n; i++) {
                if (!(commands & 1u << i))
                        continue;
                if (strcmp(word, names[i]) == 0)
                        return 1 << i;
                cg_buf_addf(&b, "%s%s", cg_sep(b.len, ", "), names[i]);
        }
        if (!*word)
                return cg_fail(err, CG_E_INVAL, "which command: %s? --help says more", cg_buf_str(&b));
        return cg_fail(err, CG_E_INVAL, "there is no command \"%s %.64s\": use one of %s; --help says more",
                       argv[0], word, cg_buf_str(&b));
}

int cg_opt_store(const struct cg_opt_place *places, size_t n, int id, const char *value, void *options,
                 struct cg_err *err)
{
        for (const struct cg_opt_place *p = places; p < places + n; p++) {
                void *at = (char *)options + p->offset;

                if (p->id != id)
                        continue;
                if (p->kind == CG_OPT_SECONDS)
                        return cg_opt_seconds(p->name, value, at, err);
                if (p->kind == CG_OPT_INT)
                        return cg_opt_int(p->name, value, p->min, p->max, at, err);
                if (value)
                        memcpy(at, &value, sizeof(value));
                else
                        memcpy(at, &(bool){ true }, sizeof(bool));
                return 0;
        }
        return 1;
}

int cg_opt_read(struct cg_optscan *o, const struct cg_opt_place *places, size_t n, void *options,
                const char **value, struct cg_err *err)
{
        int id, r = 0;

        do {
                id = cg_opt_next(o, value, err);
                if (id > CG_OPT_ARG)
                        r = cg_opt_store(places, n, id, *value, options, err);
        } while (id > CG_OPT_ARG && r == 0);
        return r < 0 ? r : id;
}

/* "-c, --code CODE" */
static const char *option_text(const struct cg_opt *opt, struct cg_buf *b)
{
        cg_buf_clear(b);
        cg_buf_adds(b, "  ");
        if (opt->letter)
                cg_buf_addf(b, opt->name ? "-%c, " : "-%c", opt->letter);
        if (opt->name)
                cg_buf_addf(b, "--%s", opt->name);
        if (opt->value)
                cg_buf_addf(b, b->len > 2 ? " %s" : "%s", opt->value);
        return b->data ?: "";
}

/*
 * Appends @text from @column on. Lines that are too long go on below their description, which
 * begins after two blanks, or below their beginning.
 */
static void add_wrapped(struct cg_buf *b, const char *text, size_t column)
{
        while (*text) {
                size_t len = strcspn(text, "\n"), hang = strspn(text, " "), at = column;
                const char *gap = memmem(text + hang, len - hang, "  ", 2);

                if (gap)
                        hang = (size_t)(gap - text) + strspn(gap, " ");
                for (size_t i = 0, blanks, word; i < len; i += blanks + word) {
                        blanks = strspn(text + i, " ");
                        word = strcspn(text + i + blanks, " \n");
                        if (i && at + blanks + word > HELP_WIDTH) {
                                cg_buf_addf(b, "\n%*s", (int)(column + hang), "");
                                at = column + hang;
                        } else {
                                cg_buf_addf(b, "%*s", (int)blanks, "");
                                at += blanks;
                        }
                        cg_buf_add(b, text + i + blanks, word);
                        at += word;
                }
                cg_buf_adds(b, "\n");
                text += len;
                if (*text == '\n' && *++text)
                        cg_buf_addf(b, "%*s", (int)column, "");
        }
}

int cg_opt_help(const struct cg_opt *table, size_t n, unsigned command, const char *text)
{
        static const char place[] = "{options}\n";
        const char *options = strstr(text, place);
        cg_auto_buf struct cg_buf b = { .max = 65536 }, left = { .max = 256 };
        size_t column = 0;

        for (size_t i = 0; i < n; i++)
                if (cg_opt_is_of(&table[i], command)) {
                        option_text(&table[i], &left);
                        column = CG_MAX(left.len + 2, column);
                }
        cg_buf_add(&b, text, (size_t)(options - text));
        for (size_t i = 0; i < n; i++)
                if (cg_opt_is_of(&table[i], command)) {
                        cg_buf_addf(&b, "%-*s", (int)column, option_text(&table[i], &left));
                        add_wrapped(&b, table[i].help, column);
                }
        cg_buf_adds(&b, options + strlen(place));
        return cg_cli_print_buf(&b);
}

int cg_opt_seconds(const char *what, const char *text, int64_t *ret_ms, struct cg_err *err)
{
        char *end;
        double s;

        errno = 0;
        s = strtod(text, &end);
        if (strspn(text, "0123456789.") != strlen(text) || end == text || *end || s > 315360000.0)
                return cg_fail(err, CG_E_INVAL, "%s needs seconds such as 30 or 1.5, not \"%s\"", what, text);
        *ret_ms = (int64_t)(s * 1000.0);
        if (s > 0 && *ret_ms == 0)
                *ret_ms = 1; /* 0 would mean no limit */
        return 0;
}

int cg_opt_since(const char *text, int64_t *ret_ms, struct cg_err *err)
{
        static const struct {
                const char *unit;
                int64_t ms;
        } units[] = { { "", 1000 }, { "s", 1000 }, { "m", 60000 }, { "h", 3600000 }, { "d", 86400000 } };
        struct tm tm = { .tm_isdst = -1 };
        const char *date = strptime(text, "%Y-%m-%d", &tm);
        bool unix_time = *text == '@';
        struct timespec now;
        char *end;
        double n;

        if (date && *date == 'T')
                date = strptime(date + 1, "%H:%M", &tm);
        if (date && !*date) {
                *ret_ms = CG_MAX((int64_t)mktime(&tm) * 1000, 1);
                return 0;
        }
        n = strtod(text + unix_time, &end);
        for (size_t i = 0; end != text + unix_time && i < CG_ARRAY_LEN(units); i++) {
                double ms = n * (double)units[i].ms;

                if (strcmp(end, units[i].unit) != 0 || !(n >= 0 && ms < 1e15) || (unix_time && *end))
                        continue;
                clock_gettime(CLOCK_REALTIME, &now);
                *ret_ms = (int64_t)ms;
                if (!unix_time)
                        *ret_ms = (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000 - *ret_ms;
                *ret_ms = CG_MAX(*ret_ms, 1);
                return 0;
        }
        return cg_fail(
                err, CG_E_INVAL,
                "--since must be like 90, 30m, 12h, 7d, 2026-11-24, 2026-11-24T09:30 or @1700000000, not \"%.40s\"",
                text);
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
