/* Sandbox settings in a session's options. */
#ifndef CG_SUPERVISOR_SETTINGS_H
#define CG_SUPERVISOR_SETTINGS_H

#include <jansson.h>
#include "base/err.h"
#include "sandbox/settings/settings.h"

int cg_sup_settings_parse(const json_t *settings, struct cg_settings **ret, struct cg_err *err);
/* Parses "settings" of @options. *ret is NULL where there are none. */
int cg_sup_settings(const json_t *options, struct cg_settings **ret, struct cg_err *err);

#endif
