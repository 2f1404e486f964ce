/* `cellgate mcp serve`: the toolset `inspect`. Runs in the worker. */
#include "cli/mcp_serve/mcp_serve.h"

#include <stdlib.h>
#include <string.h>
#include "base/json.h"
#include "base/util.h"

/*
 * A cell that leaves no name and no history. What it prints is the kernel's, as of any cell: code
 * of the agent can change it.
 */
const char cg_serve_list_variables[] =
        "exec('''import sys\n"
        "from IPython import get_ipython\n"
        "from cellgate_kernel.changes import Look\n"
        "found = Look({}).compare(get_ipython().user_ns)\n"
        "for v in found['made']:\n"
        "    size = [f'{unit} {v[unit]}' for unit in ('length', 'bytes') if unit in v]\n"
        "    sys.stdout.write(', '.join([v['name'] + ': ' + v['type'], *size]) + '\\\\n')\n"
        "if found['left_out']:\n"
        "    sys.stdout.write(f'and {found[\"left_out\"]} more\\\\n')\n"
        "''', {})";

/* The settings about files and the network, or their default. */
static json_t *settings_of(const struct cg_serve *sv)
{
        cg_auto_json json_t *all = sv->settings ? json_loads(sv->settings, 0, NULL) : NULL;

        if (!all)
                return json_pack("{s:{s:[s]}, s:{s:[]}}", "filesystem", "allowWrite", ".", "network",
                                 "allowedDomains");
        return json_pack("{s:O*, s:O*}", "filesystem", json_object_get(all, "filesystem"), "network",
                         json_object_get(all, "network"));
}

int cg_serve_sandbox_info(struct cg_serve_session *s, struct cg_answer *a, struct cg_err *err)
{
        cg_auto_json json_t *info = json_loads(cg_session_info(s->session), 0, NULL);
        cg_auto_free char *text = NULL;

        if (info) {
                json_object_set_new(info, "workspace", json_string(s->sv->workspace));
                json_object_set_new(info, "folder", json_string(s->folder ?: s->sv->workspace));
                if (!s->sv->opts.kernel.no_sandbox)
                        json_object_set_new(info, "settings", settings_of(s->sv));
                text = json_dumps(info, JSON_COMPACT);
        }
        if (!text)
                return cg_fail(err, CG_E_NOMEM, "sandbox_info");
        cg_answer_lines(a, text, strlen(text));
        return 0;
}
