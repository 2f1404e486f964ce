/* Files that a cell made or changed, for people and agents. See artifacts.h. */
#include "cli/common/artifacts.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include "base/json.h"
#include "base/text.h"
#include "base/util.h"

/* More than a person reads, or an agent wants in each answer. */
#define MAX_FILES 50
#define MAX_NAME  1024

static bool is_listed(const char *listed, const char *path)
{
        cg_auto_free char *text = NULL;

        if (!listed || asprintf(&text, "(%s)", path) < 0) {
                text = NULL;
                return false;
        }
        return strstr(listed, text) != NULL;
}

int cg_artifacts_text(const struct cg_event *e, const char *prefix, const char *listed, struct cg_buf *b,
                      struct cg_err *err)
{
        cg_auto_json json_t *found = NULL;
        const json_t *files;
        const char *why, *text;
        size_t n, len;

        text = cg_event_artifacts(e, &len);
        if (!text)
                return 0;
        if (cg_json_object(text, len, "artifacts", &found, err) < 0)
                return -1;
        files = json_object_get(found, "files");
        n = json_array_size(files);
        for (size_t i = 0; i < n && i < MAX_FILES; i++) {
                const json_t *f = json_array_get(files, i), *path = json_object_get(f, "path");
                const char *name = json_string_value(path ?: json_object_get(f, "path_hex")) ?: "";

                if (is_listed(listed, name))
                        continue;
                if (cg_buf_try_addf(b, err, "%s%s", prefix, path ? " " : " hexadecimal ") < 0 ||
                    cg_text_try_render_as(b, name, strlen(name), MAX_NAME, CG_TEXT_LINE, err) < 0 ||
                    cg_buf_try_addf(b, err, " (%" JSON_INTEGER_FORMAT " bytes)\n",
                                    json_integer_value(json_object_get(f, "size"))) < 0)
                        return -1;
        }
        if (n > MAX_FILES && cg_buf_try_addf(b, err, "%s %zu more\n", prefix, n - MAX_FILES) < 0)
                return -1;
        why = json_string_value(json_object_get(found, "truncated"));
        /* The cell's end has been explained by this already: its kernel died. */
        if (why && strcmp(why, cg_event_text(e, NULL)) == 0)
                return 0;
        return why ? cg_buf_try_addf(b, err, "%s perhaps others: %s\n", prefix, why) : 0;
}
