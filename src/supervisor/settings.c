/* cellgate-supervisor: sandbox settings in a session's options. */
#include "supervisor/settings.h"

#include "base/json.h"
#include "base/util.h"

int cg_sup_settings_parse(const json_t *o, struct cg_settings **ret, struct cg_err *err)
{
        cg_auto_free char *text = NULL;
        size_t len;

        text = cg_json_text(o, &len);
        if (!text)
                return cg_fail(err, CG_E_NOMEM, "sandbox settings");
        return cg_settings_parse(text, len, "sandbox settings", 0, ret, err);
}

int cg_sup_settings(const json_t *options, struct cg_settings **ret, struct cg_err *err)
{
        const json_t *o = json_object_get(options, "settings");

        *ret = NULL;
        return o ? cg_sup_settings_parse(o, ret, err) : 0;
}
