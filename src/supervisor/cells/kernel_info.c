/* See kernel_info.h. Runs in cellgate-supervisor. */
#include "supervisor/cells/kernel_info.h"

#include "base/buf.h"
#include "base/json.h"
#include "base/text.h"

#define MAX_NAME   64
#define MAX_BANNER 2000
#define PLAIN      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789 ._+#-"

/* Copies a member if it is a plain name: clients use some in names of files, or in HTML. */
static void copy_name(json_t *to, const json_t *from, const char *key)
{
        const char *allowed = strcmp(key, "mimetype") == 0 ? PLAIN "/" : PLAIN;
        const char *text = json_string_value(json_object_get(from, key));

        if (text && strlen(text) <= MAX_NAME && !text[strspn(text, allowed)])
                json_object_set_new(to, key, json_string(text));
}

json_t *cg_sup_kernel_info(const char *name, struct cg_bytes given)
{
        static const char *const language_keys[] = { "name",           "version",        "mimetype",
                                                     "file_extension", "pygments_lexer", "codemirror_mode" };
        cg_auto_buf struct cg_buf shown = { .max = 16 * MAX_BANNER };
        cg_auto_json json_t *kernel = NULL;
        const json_t *theirs, *banner;
        json_t *info, *language;

        language = json_pack("{s:s, s:s, s:s, s:s}", "name", name, "version", "", "mimetype", "text/plain",
                             "file_extension", ".txt");
        info = json_pack("{s:s, s:s, s:s, s:s, s:o, s:s, s:b, s:[], s:[]}", "status", "ok",
                         "protocol_version", "5.3", "implementation", name, "implementation_version", "",
                         "language_info", language, "banner", "", "debugger", 0, "help_links",
                         "supported_features");
        if (!info || cg_json_object(given.data, given.len, "kernel_info", &kernel, NULL) < 0)
                return info;
        copy_name(info, kernel, "implementation");
        copy_name(info, kernel, "implementation_version");
        banner = json_object_get(kernel, "banner");
        cg_text_render_as(&shown, json_string_value(banner) ?: "", json_string_length(banner), MAX_BANNER,
                          CG_TEXT_OUTPUT);
        json_object_set_new(info, "banner", json_string(cg_buf_str(&shown)));
        theirs = json_object_get(kernel, "language_info");
        for (size_t i = 0; i < CG_ARRAY_LEN(language_keys); i++)
                copy_name(language, theirs, language_keys[i]);
        /* Any other value may name a class, which nbconvert would import. */
        if (strcmp(json_string_value(json_object_get(theirs, "nbconvert_exporter")) ?: "", "python") == 0)
                copy_name(language, theirs, "nbconvert_exporter");
        return info;
}
