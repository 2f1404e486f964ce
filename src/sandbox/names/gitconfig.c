/*
 * Accepts repository configurations that a sandboxed git may write: a line grammar so narrow that
 * git runs no program and reads no other file because of it. See names.h.
 */
#include "sandbox/names/names.h"

#include <ctype.h>

#include "base/util.h"

enum value { BOOL, NUMBER, WORD, NAME, REFSPEC, URL };

/* @named: the section has a name in quotes. */
static const struct {
        const char *section;
        bool named;
        const char *key;
        enum value value;
} keys[] = {
        { "core", false, "repositoryformatversion", NUMBER },
        { "core", false, "filemode", BOOL },
        { "core", false, "bare", BOOL },
        { "core", false, "logallrefupdates", BOOL },
        { "core", false, "ignorecase", BOOL },
        { "core", false, "symlinks", BOOL },
        { "core", false, "precomposeunicode", BOOL },
        { "core", false, "autocrlf", WORD },
        { "core", false, "eol", WORD },
        { "core", false, "safecrlf", WORD },
        { "core", false, "quotepath", BOOL },
        { "extensions", false, "objectformat", WORD },
        { "extensions", false, "refstorage", WORD },
        { "init", false, "defaultbranch", NAME },
        { "user", false, "name", WORD },
        { "user", false, "email", WORD },
        { "commit", false, "gpgsign", BOOL },
        { "tag", false, "gpgsign", BOOL },
        { "pull", false, "rebase", BOOL },
        { "pull", false, "ff", WORD },
        { "push", false, "default", WORD },
        { "push", false, "autosetupremote", BOOL },
        { "fetch", false, "prune", BOOL },
        { "gc", false, "auto", NUMBER },
        { "advice", false, "detachedhead", BOOL },
        { "remote", true, "url", URL },
        { "remote", true, "fetch", REFSPEC },
        { "remote", true, "tagopt", NAME },
        { "remote", true, "mirror", BOOL },
        { "remote", true, "prune", BOOL },
        { "branch", true, "remote", NAME },
        { "branch", true, "merge", NAME },
        { "branch", true, "rebase", BOOL },
        /* of a cherry-pick or revert of several commits, but for "strategy" and "gpg-sign" */
        { "options", false, "no-commit", BOOL },
        { "options", false, "edit", BOOL },
        { "options", false, "allow-empty", BOOL },
        { "options", false, "allow-empty-message", BOOL },
        { "options", false, "keep-redundant-commits", BOOL },
        { "options", false, "signoff", BOOL },
        { "options", false, "record-origin", BOOL },
        { "options", false, "allow-ff", BOOL },
        { "options", false, "mainline", NUMBER },
        { "options", false, "strategy-option", NAME },
        { "options", false, "allow-rerere-auto", BOOL },
};

/* Bytes without special meaning in any git: no quotes, escapes, comments or continued lines. */
static bool all_of(const char *s, size_t n, const char *more)
{
        for (size_t i = 0; i < n; i++)
                if (!(isascii((unsigned char)s[i]) && isalnum((unsigned char)s[i])) &&
                    (!s[i] || !strchr(more, s[i])))
                        return false;
        return true;
}

static bool has_text(const char *s, size_t n, const char *text)
{
        /* s is never NULL; gcc 12 with -fsanitize=undefined warns without the check. */
        return s && memmem(s, n, text, strlen(text));
}

static bool is_value(enum value kind, const char *s, size_t n)
{
        static const char *const schemes[] = { "https://", "http://", "ssh://", "git://" };

        switch (kind) {
        case BOOL:
                return (n == 4 && strncasecmp(s, "true", n) == 0) ||
                       (n == 5 && strncasecmp(s, "false", n) == 0) ||
                       (n == 2 && strncasecmp(s, "no", n) == 0) || (n == 3 && strncasecmp(s, "yes", n) == 0);
        case NUMBER:
                for (size_t i = 0; i < n; i++)
                        if (!isdigit((unsigned char)s[i]))
                                return false;
                return n > 0 && n < 8;
        case NAME:
                return n > 0 && (s[0] != '-' || (n == 9 && memcmp(s, "--no-tags", n) == 0)) &&
                       all_of(s, n, "-._/+@") && !has_text(s, n, "..");
        case WORD:
                for (size_t i = 0; i < n; i++)
                        if (isascii((unsigned char)s[i]) && !all_of(s + i, 1, "-._/+@ "))
                                return false;
                return n > 0 && s[0] != '-';
        case REFSPEC:
                return n > 0 && all_of(s, n, "-._/+@*:") && !has_text(s, n, "..") && s[0] != '-';
        default:
                break;
        }
        /*
         * A URL: schemes of git itself, an ssh address or an absolute path. "ext::" and others name
         * programs; a leading "-" would be an option of one.
         */
        if (!n || !all_of(s, n, s[0] == '/' ? "-._~:/@!+,=% " : "-._~:/?@!$&()*+,=%") ||
            has_text(s, n, "::") || has_text(s, n, "/-") || has_text(s, n, "@-") || s[0] == '-')
                return false;
        for (size_t i = 0; i < CG_ARRAY_LEN(schemes); i++)
                if (n > strlen(schemes[i]) && strncmp(s, schemes[i], strlen(schemes[i])) == 0)
                        return true;
        if (s[0] == '/')
                return true;
        return !has_text(s, n, "://") && memchr(s, ':', n) && memchr(s, ':', n) != s && memchr(s, '@', n);
}

struct section {
        char name[16];
        bool named;
};

/* "[remote "origin"]" and nothing after it. */
static bool read_section(const char *s, size_t n, struct section *ret)
{
        size_t len = 1;

        while (len < n && isalpha((unsigned char)s[len]))
                len++;
        if (n < 3 || s[n - 1] != ']' || len == 1 || len - 1 >= sizeof(ret->name))
                return false;
        memcpy(ret->name, s + 1, len - 1);
        ret->name[len - 1] = '\0';
        ret->named = len != n - 1;
        if (!ret->named)
                return true;
        return n - len >= 5 && s[len] == ' ' && s[len + 1] == '"' && s[n - 2] == '"' && s[len + 2] != '-' &&
               all_of(s + len + 2, n - len - 4, "-._/+@") && !has_text(s + len + 2, n - len - 4, "..");
}

static bool read_key(const char *s, size_t n, const struct section *in)
{
        size_t len = 0, at;

        while (len < n && (isalpha((unsigned char)s[len]) || (len && s[len] == '-')))
                len++;
        at = len;
        while (at < n && s[at] == ' ')
                at++;
        if (!len || at == n || s[at++] != '=')
                return false;
        while (at < n && s[at] == ' ')
                at++;
        for (size_t i = 0; i < CG_ARRAY_LEN(keys); i++)
                if (strlen(keys[i].key) == len && strncasecmp(keys[i].key, s, len) == 0 &&
                    strcasecmp(keys[i].section, in->name) == 0 && keys[i].named == in->named)
                        return is_value(keys[i].value, s + at, n - at);
        return false;
}

bool cg_git_config_is_plain(const char *text, size_t len)
{
        struct section in = { { 0 }, false };
        const char *end = text + len;

        if (len > CG_GIT_CONFIG_MAX || memchr(text, '\0', len))
                return false;
        while (text < end) {
                const char *next = memchr(text, '\n', (size_t)(end - text));
                size_t n = (size_t)((next ?: end) - text);
                const char *line = text;

                text = next ? next + 1 : end;
                while (n && (*line == '\t' || *line == ' ')) {
                        line++;
                        n--;
                }
                if (!n)
                        continue;
                if (*line == '[' ? !read_section(line, n, &in) : !in.name[0] || !read_key(line, n, &in))
                        return false;
        }
        return true;
}
