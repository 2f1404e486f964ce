/* --sandbox and --allow-host. Runs in the command `cellgate`. */
#include "cli/common/settings_file.h"

#include <stdlib.h>
#include <string.h>
#include "base/fd.h"
#include "base/json.h"
#include "base/ceilings.h"
#include "base/util.h"
#include "sandbox/settings/settings.h"
#include "sandbox/settings/read.h"

int cg_settings_file_read(const char *path, char **ret, struct cg_err *err)
{
        cg_auto_settings struct cg_settings *s = NULL;
        cg_auto_free char *text = NULL;
        size_t len;

        *ret = NULL;
        if (!path)
                return 0;
        /* As strict as the supervisor, which reads it again: an unknown key is an error. */
        if (cg_read_file(path, CG_MAX_SETTINGS / 2, &text, &len, err) < 0 ||
            cg_settings_parse(text, len, path, 0, &s, err) < 0)
                return -1;
        *ret = CG_STEAL(text);
        return 0;
}

int cg_settings_check_host(const char *host, struct cg_err *err)
{
        const char *why = cg_check_allowed_domain(host), *name = strstr(host, "://");

        if (name && name[3])
                return cg_fail(err, CG_E_INVAL, "--allow-host takes a host, no URL: --allow-host %.*s",
                               (int)strcspn(name + 3, "/?#"), name + 3);
        return why ? cg_fail(err, CG_E_INVAL, "--allow-host %s: %s", host, why) : 0;
}

int cg_settings_for_hosts(const char *const *hosts, char **ret, struct cg_err *err)
{
        cg_auto_json json_t *list = json_array(), *o = NULL;
        size_t len;

        *ret = NULL;
        if (!hosts || !hosts[0])
                return 0;
        for (; *hosts; hosts++)
                json_array_append_new(list, json_string(*hosts));
        o = json_pack("{s:{s:O, s:[]}, s:{s:[s], s:[s], s:[]}}", "network", "allowedDomains", list,
                      "deniedDomains", "filesystem", "denyRead", ".env", "allowWrite", ".", "denyWrite");
        *ret = o ? cg_json_text(o, &len) : NULL;
        return *ret ? 0 : cg_fail(err, CG_E_NOMEM, "settings");
}

int cg_settings_check_together(const char *sandbox, size_t n_hosts, bool no_sandbox, struct cg_err *err)
{
        if (sandbox && no_sandbox)
                return cg_fail(err, CG_E_INVAL, "--sandbox and --no-sandbox contradict each other");
        if (n_hosts && no_sandbox)
                return cg_fail(
                        err, CG_E_INVAL,
                        "--allow-host and --no-sandbox contradict each other: without a sandbox every host"
                        " can be reached");
        if (n_hosts && sandbox)
                return cg_fail(
                        err, CG_E_INVAL,
                        "--allow-host takes the place of --sandbox: name the host in network.allowedDomains"
                        " of %s instead",
                        sandbox);
        return 0;
}
