/*
 * cellgate-supervisor: what no definition can show of an MCP server, as cellgate-search has found
 * it: links from elsewhere, interpreters of scripts, folders that files of Python name, and files
 * with several names.
 */
#include "supervisor/servers/internal.h"

#include "base/json.h"

/*
 * True if files of @folder may have names where cells write that nobody has searched for: the rules
 * of kernels find those of a guard in their own write roots.
 */
static bool may_be_linked(const struct check *c, const char *folder)
{
        for (size_t i = 0; i < c->scope->n_views; i++)
                if (!cg_rules_may_write(&c->scope->views[i].rules, folder))
                        return true;
        return false;
}

int cg_sup_server_check_found(struct check *c, const json_t *found)
{
        json_t *reached = json_object_get(found, "reached"), *v;
        const char *error = json_string_value(json_object_get(found, "error")), *path;
        bool linked = json_is_true(json_object_get(found, "linker"));
        char what[PATH_MAX + 16];
        size_t i;

        if (!reached)
                return cg_fail(c->err, CG_E_LIMIT, "MCP server \"%s\": %s", c->name,
                               error ?: "its files were not checked");
        json_object_foreach(reached, path, v) {
                if (!cg_sup_file_is_open(c, path)) {
                        if (cg_sup_server_guard_above(c, path) < 0)
                                return -1;
                        continue;
                }
                if (cg_sup_file_is_narrow_data(c, path))
                        continue;
                snprintf(what, sizeof(what), "%s leads to", json_string_value(v));
                if (cg_sup_server_unsaid(c, what, path, "cells can write there", true) < 0)
                        return -1;
        }
        if (cg_sup_server_check_unsaid(c) < 0)
                return CG_E_INVAL;
        json_array_extend(c->guards, json_object_get(found, "files"));
        json_array_foreach(json_object_get(found, "linked"), i, v)
                linked |= may_be_linked(c, json_string_value(v));
        if (linked && json_array_append_new(c->guards, json_true()) < 0)
                return cg_fail(c->err, CG_E_NOMEM, "MCP server");
        return 0;
}
