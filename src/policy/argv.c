/*
 * Conditions on programs in arguments of calls: host_exec of python/cellgate/surfaces/host.py, and
 * tools like it. A program's words are compared one by one, so that no pattern matches the
 * beginning of a shell line whose rest does something else.
 */
#include <jansson.h>
#include "base/ceilings.h"
#include "base/json.h"
#include "policy/internal.h"

/* Mean the same to every shell, and to none. As in host.py. */
#define PLAIN "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_@%+=:,./-"

json_t *cg_pol_words(const char *text, bool pattern)
{
        cg_auto_json json_t *words = json_array();
        const char *allowed = pattern ? PLAIN "*?" : PLAIN;

        for (const char *p = text; *p; p += strspn(p, " ")) {
                size_t n = strspn(p, allowed);

                /* A first word with "=" sets a variable. */
                if (!n || (p[n] && p[n] != ' ') || (p == text && memchr(p, '=', n)) ||
                    json_array_append_new(words, json_stringn(p, n)) < 0)
                        return NULL;
                p += n;
        }
        return json_array_size(words) && text[strlen(text) - 1] != ' ' ? CG_STEAL(words) : NULL;
}

/* A pattern with a wildcard that allows matches no option and no "..": both are rarely meant. */
static bool word_matches(const char *pattern, const char *word, bool allows)
{
        size_t fixed = strcspn(pattern, "*?");

        if (allows && pattern[fixed] && ((!fixed && word[0] == '-') || strstr(word, "..")))
                return false;
        return cg_pol_glob(pattern, strlen(pattern), word, strlen(word));
}

/* @allows: of a rule that allows. */
static enum cg_pol_match words_match(const json_t *patterns, const json_t *words, bool allows)
{
        size_t n = json_array_size(patterns), i;
        const char *last = json_string_value(json_array_get(patterns, n - 1));
        bool more = strcmp(last, CG_POL_MORE) == 0;
        const json_t *word;

        json_array_foreach(words, i, word) {
                if (!json_is_string(word) || json_string_length(word) > CG_POL_TEXT_MAX)
                        return CG_MATCH_UNCLEAR;
        }
        n -= more;
        if (json_array_size(words) < n || (json_array_size(words) > n && !more))
                return CG_MATCH_NO;
        for (i = 0; i < n; i++)
                if (!word_matches(json_string_value(json_array_get(patterns, i)),
                                  json_string_value(json_array_get(words, i)), allows))
                        return CG_MATCH_NO;
        return CG_MATCH_YES;
}

enum cg_pol_match cg_pol_match_argv(const json_t *patterns, struct cg_slice v, bool allows)
{
        cg_auto_buf struct cg_buf text = { .max = CG_MAX_TOOL_ARGS };
        cg_auto_json json_t *words = NULL;

        if (cg_json_kind(v) == '[')
                words = json_loadb(v.p, v.len, 0, NULL);
        else if (cg_json_kind(v) == '"' && cg_json_string(v, &text, NULL) == 0 &&
                 strlen(cg_buf_str(&text)) == text.len)
                words = cg_pol_words(cg_buf_str(&text), false);
        return json_array_size(words) ? words_match(patterns, words, allows) : CG_MATCH_UNCLEAR;
}

bool cg_pol_is_host_exec(const struct cg_pol_call *call)
{
        return strcmp(call->server, "host") == 0 && strcmp(call->method, CG_METHOD_CALL) == 0 &&
               strcmp(call->tool, "host_exec") == 0;
}

bool cg_pol_granted(const char *pattern, const struct cg_pol_call *call)
{
        struct cg_slice args = { call->args, call->args_len }, key, value, program = CG_SLICE_NONE;
        cg_auto_json json_t *patterns = cg_pol_words(pattern, true);
        struct cg_json_walk w;
        int r;

        if (!patterns || !cg_pol_is_host_exec(call) ||
            strpbrk(json_string_value(json_array_get(patterns, 0)), "*?") ||
            cg_json_walk_init(&w, cg_json_trim(args), '{', NULL) < 0)
                return false;
        while ((r = cg_json_walk_next(&w, &key, &value, NULL)) == 0) {
                if (cg_slice_is(key, "timeout"))
                        continue;
                /* In another folder the same program may do something else. */
                if (program.p || (!cg_slice_is(key, "argv") && !cg_slice_is(key, "command")))
                        return false;
                program = value;
        }
        return r > 0 && program.p && cg_pol_match_argv(patterns, program, true) == CG_MATCH_YES;
}
