/* cellgate-supervisor: what the checks of MCP servers' files share. */
#include "supervisor/servers/internal.h"

#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/json.h"
#include "sandbox/settings/kernel_view.h"
#include "supervisor/core/state.h"

bool cg_sup_list_has(const json_t *list, const json_t *item)
{
        const json_t *v;
        size_t i;

        json_array_foreach((json_t *)(uintptr_t)list, i, v) if (json_equal(v, item)) return true;
        return false;
}

int cg_sup_server_rules(const struct session *ss, const json_t *guards, struct cg_rules *ret,
                        struct cg_err *err)
{
        struct cg_path_base base = cg_sup_paths_of(ss, true);
        cg_auto_json json_t *env = json_is_object(base.env) ? json_copy((json_t *)(uintptr_t)base.env) : NULL;

        /* Folders of PATH count as writable: another client's kernels may have written there. */
        json_object_del(env, "PATH");
        base.env = env;
        base.by_inode = false; /* which names are not written, is compared */

        return cg_session_rules(ss->settings, &base, guards, ret, err);
}

bool cg_sup_path_is_file(const char *path)
{
        struct stat st;

        return stat(path, &st) == 0 && S_ISREG(st.st_mode);
}

void cg_sup_path_cut_last(char *path)
{
        char *slash = strrchr(path, '/');

        if (slash)
                slash[slash == path] = '\0';
}

bool cg_sup_path_is_present(const char *path)
{
        struct stat st;

        return stat(path, &st) == 0;
}

bool cg_sup_list_has_word(const char *list, const char *word)
{
        size_t n = strlen(word);

        for (const char *p = list; n && (p = strstr(p, word)); p += n)
                if ((p == list || p[-1] == ' ') && (!p[n] || p[n] == ' '))
                        return true;
        return false;
}

bool cg_sup_path_is_code(const char *path, bool settings)
{
        static const char programs[] =
                "py pyw pyz js mjs cjs ts mts cts tsx jsx rb pl pm php sh bash zsh fish lua "
                "jar war class wasm so r R jl ps1 groovy kts exs ex tcl awk mk go rs";
        static const char naming[] = "json json5 jsonc toml yaml yml ini conf cfg env xml properties";
        const char *dot = strrchr(cg_path_base(path), '.');

        return access(path, X_OK) == 0 || (dot && cg_sup_list_has_word(programs, dot + 1)) ||
               (settings && (!dot || cg_sup_list_has_word(naming, dot + 1)));
}
