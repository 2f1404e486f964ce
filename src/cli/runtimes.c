/* `cellgate runtimes`: the languages that sessions can have. Runs in the command `cellgate`. */
#include "base/buf.h"
#include "base/json.h"
#include "base/text.h"
#include "cellgate.h"
#include "cli/common/cli.h"
#include "cli/common/supervisors.h"
#include "cli/help.h"

static void add_line(struct cg_buf *b, const json_t *o)
{
        const char *key;
        json_t *v;

        cg_auto_buf struct cg_buf line = { .max = 65536 };

        cg_buf_addf(&line, "%-8s ", cg_json_text_of(o, "language"));
        if (!json_is_true(json_object_get(o, "available")))
                cg_buf_addf(&line, "not available: %s", cg_json_text_of(o, "why"));
        else if (json_is_integer(json_object_get(o, "start_ms")))
                cg_buf_addf(&line, "%-10s %s (%lld ms to the end of the first cell)",
                            cg_json_text_of(o, "version"), cg_json_text_of(o, "path"),
                            (long long)json_integer_value(json_object_get(o, "start_ms")));
        else
                cg_buf_addf(&line, "%s", cg_json_text_of(o, "path"));
        json_object_foreach(json_object_get(o, "env"), key, v)
                cg_buf_addf(&line, " %s=%s", key, json_string_value(v));
        if (json_is_false(json_object_get(o, "tools")))
                cg_buf_adds(&line, ", no tools");
        /* Kernels and their files choose parts of it. */
        cg_text_render_as(b, cg_buf_str(&line), line.len, 0, CG_TEXT_LINE);
        cg_buf_adds(b, "\n");
}

int cg_cli_runtimes(int argc, char **argv)
{
        struct cg_client_options co = { .size = sizeof(co),
                                        .share = !getenv("CELLGATE_PRIVATE"),
                                        .no_spare = 1 };
        cg_auto_buf struct cg_buf b = { .max = 1u << 20 };
        cg_auto_json json_t *list = NULL;
        const char *node = NULL;
        struct cg_client *c;
        char *text = NULL;
        bool json = false;
        struct cg_err err;
        json_t *o;
        size_t i;
        int r;

        for (int k = 1; k < argc; k++) {
                if (strcmp(argv[k], "--help") == 0 || strcmp(argv[k], "-h") == 0)
                        return cg_cli_print(CG_HELP_RUNTIMES);
                if (strcmp(argv[k], "--json") == 0) {
                        json = true;
                } else if (strcmp(argv[k], "--node") == 0 && k + 1 < argc) {
                        node = argv[++k];
                } else if (strncmp(argv[k], "--node=", 7) == 0) {
                        node = argv[k] + 7;
                } else {
                        cg_fail(&err, CG_E_INVAL, "unexpected argument \"%s\"; --help lists the options",
                                argv[k]);
                        return cg_cli_fail("runtimes", &err);
                }
        }
        if (cg_client_open(&co, &c, &err) < 0)
                return cg_cli_fail("runtimes", &err);
        r = cg_client_runtimes(c, node, &text, &err);
        cg_client_close(c);
        if (r < 0)
                return cg_cli_fail("runtimes", &err);
        if (json)
                cg_buf_addf(&b, "%s\n", text);
        list = cg_reply_json(text);
        json_array_foreach(json ? NULL : list, i, o)
                add_line(&b, o);
        return cg_cli_print_buf(&b);
}
