/*
 * Names of paths, and repositories' configurations that a sandboxed git writes: "PATH\nTEXT".
 * Beside memory safety it checks that nothing that is taken for plain names a program, another file
 * or a helper, whatever its form.
 */
#include "sandbox/names/names.h"
#include "fuzz.h"

static void check_plain(const char *text, size_t len)
{
        static const char *const never[] = { "fsmonitor", "hookspath", "sshcommand", "include",
                                             "alias",     "worktree",  "::",         "\\",
                                             "#",         ";",         "!",          "pager",
                                             "editor",    "helper",    "command",    "filter" };
        /*
         * Values and quoted names are ignored: only keys are searched for,
         * at their place.
         */
        for (size_t i = 0; i < sizeof(never) / sizeof(never[0]); i++) {
                const char *p = memmem(text, len, never[i], strlen(never[i]));
                const char *line = p;

                if (!p || p == text)
                        continue;
                if (!strcmp(never[i], "\\") || !strcmp(never[i], "#") || !strcmp(never[i], ";") ||
                    !strcmp(never[i], "::"))
                        abort();
                while (line > text && line[-1] != '\n')
                        line--;
                must(memchr(line, '=', (size_t)(p - line)) || memchr(line, '"', (size_t)(p - line)));
        }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
        const uint8_t *eol = memchr(data, '\n', size);
        size_t n = eol ? (size_t)(eol - data) : 0, next = 0, top;
        char path[5000] = "/";
        char *text;

        if (eol && n < 4000 && !memchr(data, '\0', n)) {
                memcpy(path + 1, data, n);
                for (size_t root = 0; root < 3; root++) {
                        cg_names_find(path, root, CG_NAME_WRITE);
                        cg_names_leads(path, root);
                        must(cg_git_part(path, root) == CG_GIT_FREE || cg_git_is_within(path, root));
                }
                while (cg_git_part_bare(path, 0, &next, &top) != CG_GIT_FREE)
                        must(top < next && next <= strlen(path));
                must(cg_names_of(path)[0]);
        }
        size -= eol ? n + 1 : 0;
        text = malloc(size + 1); /* its end is where it is said to be */
        must(text != NULL);
        memcpy(text, data + (eol ? n + 1 : 0), size);
        if (cg_git_config_is_plain(text, size))
                check_plain(text, size);
        free(text);
        return 0;
}
