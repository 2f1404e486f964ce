/* The costs of a cell: see costs.h. */
#include "cli/common/costs.h"

#include "base/util.h"

json_t *cg_costs_object(const struct cg_event *e)
{
        struct cg_costs c = { .size = sizeof(c) };
        json_t *o;

        if (cg_event_costs(e, &c) < 0 || !(o = json_pack("{s:b}", "shared", c.shared)))
                return NULL;
        const struct {
                const char *name;
                int64_t value;
        } members[] = {
                { "wall_us", c.wall_us },           { "cpu_us", c.cpu_us },
                { "memory_bytes", c.memory_bytes }, { "written_bytes", c.written_bytes },
                { "tool_calls", c.tool_calls },     { "commands", c.commands },
                { "connections", c.connections },   { "denials", c.denials },
        };
        for (size_t i = 0; i < CG_ARRAY_LEN(members); i++)
                if (members[i].value >= 0)
                        json_object_set_new(o, members[i].name, json_integer(members[i].value));
        return o;
}
