/*
 * Reports about generated modules. Runs in the command `cellgate`; names and texts in a report are
 * an MCP server's: untrusted.
 */
#include "cli/common/report.h"

#include "base/ceilings.h"
#include "base/text.h"
#include "cli/common/args.h"

/* Appends the string member @key of @object, on one line; "?" where there is none. */
static void add_text(struct cg_buf *b, struct cg_slice object, const char *key)
{
        cg_auto_buf struct cg_buf text = { .max = 65536 };
        struct cg_slice v;

        if (cg_json_find(object, key, &v) && cg_json_string(v, &text, NULL) == 0)
                cg_name_render(b, text.data);
        else
                cg_buf_adds(b, "?");
}

static bool has_text(struct cg_slice object, const char *key, const char *value)
{
        cg_auto_buf struct cg_buf text = { .max = 65536 };
        struct cg_slice v;

        return cg_json_find(object, key, &v) && cg_json_string(v, &text, NULL) == 0 &&
               strcmp(text.data, value) == 0;
}

/* A warning is a text, or {"pointer", "text"}. */
static void add_warning(struct cg_buf *b, struct cg_slice warning)
{
        cg_auto_buf struct cg_buf text = { .max = 65536 };
        struct cg_slice pointer;

        if (cg_json_string(warning, &text, NULL) == 0) {
                cg_name_render(b, text.data);
                return;
        }
        add_text(b, warning, "text");
        if (!cg_json_find(warning, "pointer", &pointer) || pointer.len <= 2)
                return;
        cg_buf_adds(b, " at ");
        add_text(b, warning, "pointer");
}

static void print_tool(struct cg_screen *screen, const char *server, struct cg_slice tool, const char *status)
{
        cg_auto_buf struct cg_buf b = { .max = CG_MAX_REPORT };
        struct cg_slice warnings, w;
        struct cg_json_walk walk;
        const char *between = ": ";

        add_text(&b, tool, "tool");
        cg_buf_addf(&b, " is %s", status);
        if (cg_json_find(tool, "warnings", &warnings)) {
                cg_json_walk_init(&walk, warnings, '[', NULL);
                for (; cg_json_walk_next(&walk, NULL, &w, NULL) == 0; between = "; ") {
                        cg_buf_adds(&b, between);
                        add_warning(&b, w);
                }
        }
        cg_screen_note(screen, "%s: %s", server, b.data ?: status);
}

void cg_report_print(struct cg_screen *screen, const char *server, struct cg_slice report, bool all,
                     struct cg_report_counts *ret)
{
        struct cg_slice tools, tool;
        struct cg_json_walk walk;

        *ret = (struct cg_report_counts){ 0, 0, 0 };
        if (cg_json_find(report, "error", &tools)) {
                cg_auto_buf struct cg_buf why = { .max = 65536 }, shown = { .max = 65536 };

                if (cg_json_string(tools, &why, NULL) < 0)
                        return;
                cg_text_render(&shown, why.data, why.len, 0);
                if (cg_buf_end(&shown, NULL) == 0)
                        cg_screen_note(screen, "not available: %.*s", (int)shown.len, shown.data);
                return;
        }
        if (!cg_json_find(report, "tools", &tools))
                return;
        cg_json_walk_init(&walk, tools, '[', NULL);
        while (cg_json_walk_next(&walk, NULL, &tool, NULL) == 0) {
                if (has_text(tool, "status", "rejected")) {
                        ret->rejected++;
                        print_tool(screen, server, tool, "rejected");
                } else if (has_text(tool, "status", "degraded")) {
                        ret->degraded++;
                        if (all)
                                print_tool(screen, server, tool, "degraded");
                } else {
                        ret->full++;
                }
        }
}

/* Notes about new and changed tools. A server's first use is of interest to a person only. */
static void print_pins(struct cg_screen *screen, struct cg_slice report)
{
        static const char *const keys[] = { "first", "text" };
        struct cg_slice pins, v;

        if (!cg_json_find(report, "pins", &pins))
                return;
        for (size_t i = screen->tty[2] ? 0 : 1; i < CG_ARRAY_LEN(keys); i++) {
                cg_auto_buf struct cg_buf text = { .max = CG_MAX_REPORT };

                if (cg_json_find(pins, keys[i], &v) && cg_json_string(v, &text, NULL) == 0)
                        for (char *p = text.data, *line; (line = strsep(&p, "\n")) && p;)
                                cg_screen_note(screen, "%s", line);
        }
}

void cg_report_print_servers(struct cg_screen *screen, const char *json, bool all)
{
        struct cg_slice report, key, server;
        struct cg_report_counts counts;
        struct cg_json_walk walk;

        if (cg_json_object_slice(json, strlen(json), &report, NULL) < 0)
                return;
        cg_json_walk_init(&walk, report, '{', NULL);
        while (cg_json_walk_next(&walk, &key, &server, NULL) == 0) {
                cg_auto_buf struct cg_buf name = { .max = 4096 };

                if (cg_json_decode(key, &name, NULL) == 0)
                        cg_report_print(screen, name.data, server, all, &counts);
                print_pins(screen, server);
        }
}
