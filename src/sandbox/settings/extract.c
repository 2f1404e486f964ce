/* Patterns of "extract". Runs on the host, in whatever reads settings or masks credentials. */
#include "sandbox/settings/extract.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "base/buf.h"
#include "base/text.h"

/* The engine's memory for going back, KiB; at 100 bytes a step that is more than half a million. */
#define HEAP_MAX_KIB 65536u
#define DEPTH_MAX    1000000u
#define NESTING_MAX  100u
/*
 * Steps for one text: bytes passed over, and STEP_COST for each item of the pattern that is tried.
 * On a slow machine it takes a second or two; searching a file of 1 MB for a pattern as people
 * write it takes a tenth of it at most.
 */
#define BUDGET    (256u << 20)
#define STEP_COST 16u

/* White space of JavaScript, and all else, as the inside of a character class. */
#define SPACE_UTF "\\x09-\\x0d\\x20\\u00a0\\u1680\\u2000-\\u200a\\u2028\\u2029\\u202f\\u205f\\u3000\\ufeff"
#define LAST_UTF  "\xf4\x8f\xbf\xbf"
#define NO_SPACE_UTF \
        "\\x00-\\x08\\x0e-\\x1f\\x21-\\u009f\\u00a1-\\u167f\\u1681-\\u1fff\\u200b-\\u2027\\u202a-\\u202e\\u2030-\\u205e" \
        "\\u2060-\\u2fff\\u3001-\\ufefe\\uff00-" LAST_UTF
#define SPACE_BYTES    "\\x09-\\x0d\\x20"
#define NO_SPACE_BYTES "\\x00-\\x08\\x0e-\\x1f\\x21-\\xff"
#define LINE_END_UTF   "\\n\\r\\u2028\\u2029"
#define LINE_END_BYTES "\\n\\r"

struct cg_extract {
        char *pattern;
        pcre2_code *code;
        pcre2_match_data *match;
        pcre2_match_context *limits;
        const char *text;
        size_t len, at;
        size_t position; /* of the engine, when it was last seen */
        uint64_t spent;
        bool utf;
};

/* ---- JavaScript's spelling to PCRE2's */

struct translation {
        const char *p;
        struct cg_buf *out;
        struct cg_err *err;
        size_t groups;
        unsigned int back; /* largest group that is referred back to */
        bool utf;
};

static int wrong(struct translation *t, const char *what)
{
        return cg_fail(t->err, CG_E_PARSE, "extract is not a valid regular expression: %s", what);
}

static int put(struct translation *t, const char *text)
{
        cg_buf_adds(t->out, text);
        return cg_buf_end(t->out, t->err);
}

/* Copies @n bytes of the pattern. */
static int put_next(struct translation *t, size_t n)
{
        cg_buf_add(t->out, t->p, n);
        t->p += n;
        return cg_buf_end(t->out, t->err);
}

static bool is_letter(char c)
{
        return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

static bool is_class_escape(const char *p)
{
        return p[0] == '\\' && p[1] && strchr("dDwWsS", p[1]);
}

/* The next byte as itself. */
static int put_escaped(struct translation *t)
{
        put(t, "\\");
        return put_next(t, 1);
}

/*
 * The escape sequence at t->p. Letters that JavaScript takes literally and PCRE2 does not are
 * rejected: the author of the pattern expects PCRE2's meaning.
 */
static int put_escape(struct translation *t, bool in_class)
{
        char c = t->p[1], text[64], *end;
        unsigned long n;

        if (!c)
                return wrong(t, "\\ at end of pattern");
        if (c == 's' || c == 'S') {
                t->p += 2;
                if (!in_class)
                        put(t, "[");
                if (c == 's')
                        put(t, t->utf ? SPACE_UTF : SPACE_BYTES);
                else
                        put(t, t->utf ? NO_SPACE_UTF : NO_SPACE_BYTES);
                return put(t, in_class ? "" : "]");
        }
        if (c == 'v') {
                t->p += 2;
                return put(t, "\\x0b");
        }
        if (c == '0' && !cg_is_digit(t->p[2])) {
                t->p += 2;
                return put(t, "\\x00");
        }
        if (cg_is_digit(c) && (c == '0' || in_class))
                return wrong(t, "octal numbers are not understood: write \\xHH");
        if (cg_is_digit(c)) {
                n = strtoul(t->p + 1, &end, 10);
                if (n > 99)
                        return wrong(t, "a reference to a group that is not there");
                if (n > t->back)
                        t->back = (unsigned int)n;
                snprintf(text, sizeof(text), "\\g{%lu}", n);
                t->p = end;
                return put(t, text);
        }
        if (c == 'k' && !in_class && t->p[2] == '<')
                return put_next(t, 2);
        if (c == 'c' && is_letter(t->p[2]))
                return put_next(t, 3);
        if (is_letter(c) && !strchr(in_class ? "dDwWbtnfrxu" : "dDwWbBtnfrxu", c)) {
                snprintf(text, sizeof(text), "\\%c is nothing special in JavaScript", c);
                return wrong(t, text);
        }
        return put_next(t, 2);
}

/* A hyphen beside an escape such as \w is a hyphen, which PCRE2 requires to be escaped. */
static int put_class(struct translation *t)
{
        int r;

        put_next(t, t->p[1] == '^' ? 2 : 1);
        while (*t->p != ']') {
                bool escape = is_class_escape(t->p);

                if (!*t->p)
                        return wrong(t, "Unterminated character class");
                if (*t->p == '\\')
                        r = put_escape(t, true);
                else if (*t->p == '[' || (*t->p == '-' && is_class_escape(t->p + 1)))
                        r = put_escaped(t);
                else
                        r = put_next(t, 1);
                if (r < 0)
                        return r;
                if (escape && *t->p == '-')
                        put_escaped(t);
        }
        return put_next(t, 1);
}

static int put_group(struct translation *t)
{
        const char *p = t->p + 1;

        if (*p == '*')
                return wrong(t, "Nothing to repeat");
        if (*p != '?') {
                t->groups++;
                return put_next(t, 1);
        }
        if (p[1] == ':' || p[1] == '=' || p[1] == '!')
                return put_next(t, 3);
        if (p[1] != '<')
                return wrong(t, "Invalid group");
        if (p[2] == '=' || p[2] == '!')
                return put_next(t, 4);
        if (!is_letter(p[2]) && p[2] != '_')
                return wrong(t, "Invalid capture group name");
        t->groups++;
        return put_next(t, 3);
}

/* The length of {2}, {2,} or {2,3} at @p; 0: it is none of them, and then no quantifier. */
static size_t braces(const char *p)
{
        size_t n = 1 + strspn(p + 1, "0123456789");

        if (n == 1)
                return 0;
        if (p[n] == ',')
                n += 1 + strspn(p + n + 1, "0123456789");
        return p[n] == '}' ? n + 1 : 0;
}

/* A quantifier of @n characters and its "?". PCRE2 accepts a "+" there, JavaScript does not. */
static int put_quantifier(struct translation *t, size_t n)
{
        int r = put_next(t, n);

        if (*t->p == '?')
                r = put_next(t, 1);
        if (*t->p == '+' || *t->p == '*' || *t->p == '?' || (*t->p == '{' && braces(t->p)))
                return wrong(t, "Nothing to repeat");
        return r;
}

static int put_item(struct translation *t)
{
        size_t n;

        switch (*t->p) {
        case '\\':
                return put_escape(t, false);
        case '[':
                return put_class(t);
        case '(':
                return put_group(t);
        case '.':
                t->p++;
                return put(t, t->utf ? "[^" LINE_END_UTF "]" : "[^" LINE_END_BYTES "]");
        case '*':
        case '+':
        case '?':
                return put_quantifier(t, 1);
        case '{':
                n = braces(t->p);
                if (n)
                        return put_quantifier(t, n);
                t->p++;
                return put(t, "\\{");
        default:
                return put_next(t, 1);
        }
}

/* ---- the engine */

/* For a text that is UTF-8, or for one that is not. */
static int compile(const char *pattern, bool utf, pcre2_code **ret, struct cg_err *err)
{
        const uint32_t options = PCRE2_ALLOW_EMPTY_CLASS | PCRE2_ALT_BSUX | PCRE2_DOLLAR_ENDONLY |
                                 PCRE2_MATCH_UNSET_BACKREF | PCRE2_NEVER_BACKSLASH_C | PCRE2_NEVER_UCP |
                                 PCRE2_AUTO_CALLOUT | (utf ? PCRE2_UTF : 0);
        cg_auto_buf struct cg_buf out = { .max = CG_EXTRACT_MAX * 256 };
        struct translation t = { .p = pattern, .out = &out, .err = err, .utf = utf };
        pcre2_compile_context *limits;
        char why[200];
        size_t at;
        int code;

        while (*t.p) {
                int r = put_item(&t);

                if (r < 0)
                        return r;
        }
        if (!t.groups)
                return cg_fail(
                        err, CG_E_PARSE,
                        "extract must contain at least one capturing group — group 1 is the credential "
                        "value to mask (e.g. \"token:\\s*(\\S+)\").");
        if (t.back > t.groups)
                return wrong(&t, "a reference to a group that is not there");
        limits = pcre2_compile_context_create(NULL);
        if (!limits)
                return cg_fail(err, CG_E_NOMEM, "extract");
        pcre2_set_parens_nest_limit(limits, NESTING_MAX);
        *ret = pcre2_compile((const unsigned char *)(out.data ?: ""), out.len, options, &code, &at, limits);
        pcre2_compile_context_free(limits);
        if (*ret)
                return 0;
        pcre2_get_error_message(code, (unsigned char *)why, sizeof(why));
        return wrong(&t, why);
}

/* The engine calls this for each item that it tries, so that it can be stopped. */
static int on_step(pcre2_callout_block *block, void *data)
{
        struct cg_extract *x = data;
        size_t position = block->current_position;

        x->spent += STEP_COST + (position > x->position ? position - x->position : x->position - position);
        x->position = position;
        return x->spent > BUDGET ? PCRE2_ERROR_CALLOUT : 0;
}

int cg_extract_new(const char *pattern, struct cg_extract **ret, struct cg_err *err)
{
        cg_auto_extract struct cg_extract *x = calloc(1, sizeof(*x));
        int r;

        if (!x)
                return cg_fail(err, CG_E_NOMEM, "extract");
        if (strlen(pattern) > CG_EXTRACT_MAX)
                return cg_fail(err, CG_E_PARSE, "extract is longer than %d bytes", CG_EXTRACT_MAX);
        x->pattern = strdup(pattern);
        x->limits = pcre2_match_context_create(NULL);
        x->utf = true;
        if (!x->pattern || !x->limits)
                return cg_fail(err, CG_E_NOMEM, "extract");
        pcre2_set_heap_limit(x->limits, HEAP_MAX_KIB);
        pcre2_set_depth_limit(x->limits, DEPTH_MAX);
        pcre2_set_match_limit(x->limits, BUDGET / STEP_COST);
        pcre2_set_callout(x->limits, on_step, x);
        r = compile(pattern, true, &x->code, err);
        if (r < 0)
                return r;
        *ret = CG_STEAL(x);
        return 0;
}

static void free_code(struct cg_extract *x)
{
        pcre2_match_data_free(x->match);
        pcre2_code_free(x->code);
        x->match = NULL;
        x->code = NULL;
}

struct cg_extract *cg_extract_free(struct cg_extract *x)
{
        if (!x)
                return NULL;
        free_code(x);
        pcre2_match_context_free(x->limits);
        free(x->pattern);
        free(x);
        return NULL;
}

int cg_extract_start(struct cg_extract *x, const char *text, size_t len, struct cg_err *err)
{
        bool utf = true;
        uint32_t cp;
        int r;

        for (size_t i = 0, n; i < len && utf; i += n) {
                n = cg_utf8_next((const unsigned char *)text + i, len - i, &cp);
                utf = n > 0;
        }
        if (utf != x->utf) {
                free_code(x);
                r = compile(x->pattern, utf, &x->code, err);
                if (r < 0)
                        return r;
                x->utf = utf;
        }
        if (!x->match)
                x->match = pcre2_match_data_create_from_pattern(x->code, NULL);
        if (!x->match)
                return cg_fail(err, CG_E_NOMEM, "extract");
        x->text = text;
        x->len = len;
        x->at = x->position = 0;
        x->spent = 0;
        return 0;
}

int cg_extract_next(struct cg_extract *x, size_t *start, size_t *end, struct cg_err *err)
{
        const size_t *spans;
        char why[200];
        int r;

        if (x->at > x->len)
                return 0;
        r = pcre2_match(x->code, (const unsigned char *)x->text, x->len, x->at,
                        x->utf ? PCRE2_NO_UTF_CHECK : 0, x->match, x->limits);
        if (r == PCRE2_ERROR_NOMATCH)
                return 0;
        if (r == PCRE2_ERROR_CALLOUT || r == PCRE2_ERROR_MATCHLIMIT || r == PCRE2_ERROR_DEPTHLIMIT ||
            r == PCRE2_ERROR_HEAPLIMIT)
                return cg_fail(err, CG_E_LIMIT,
                               "the pattern takes too long: make its repetitions exclude each other");
        if (r < 0) {
                pcre2_get_error_message(r, (unsigned char *)why, sizeof(why));
                return cg_fail(err, CG_E_INVAL, "the pattern: %s", why);
        }
        spans = pcre2_get_ovector_pointer(x->match);
        if (r < 2 || spans[2] == PCRE2_UNSET)
                return cg_fail(err, CG_E_INVAL,
                               "the pattern matched, but its group 1 did not: group 1 must capture the "
                               "credential value on every match");
        *start = spans[2];
        *end = spans[3];
        /* As in JavaScript: after the match, or one character further after an empty match. */
        x->at = spans[1] > spans[0] ? spans[1] : spans[1] + 1;
        while (x->utf && x->at < x->len && ((unsigned char)x->text[x->at] & 0xc0) == 0x80)
                x->at++;
        return 1;
}
