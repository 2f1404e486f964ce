/* The content of kernel_info_reply. Runs in `cellgate jupyter`. */
#include "jupyter/internal.h"

#include "base/json.h"
#include "base/language.h"

static json_t *help_links(void)
{
        static const char *const links[][2] = {
                { "Python Reference", "https://docs.python.org/3" },
                { "IPython Reference", "https://ipython.org/documentation.html" },
                { "NumPy Reference", "https://docs.scipy.org/doc/numpy/reference/" },
                { "SciPy Reference", "https://docs.scipy.org/doc/scipy/reference/" },
                { "Matplotlib Reference", "https://matplotlib.org/contents.html" },
                { "pandas Reference", "https://pandas.pydata.org/pandas-docs/stable/" },
        };
        json_t *list = json_array();

        for (size_t i = 0; i < CG_ARRAY_LEN(links); i++)
                json_array_append_new(list, json_pack("{s:s, s:s}", "text", links[i][0], "url", links[i][1]));
        return list;
}

static json_t *language_info(const char *language, const char *python)
{
        static const struct {
                const char *language, *name, *mime, *mode, *lexer, *exporter, *extension;
        } others[] = {
                { "shell", "bash", "text/x-sh", "shell", "bash", "script", ".sh" },
                { "node", "javascript", "text/javascript", "javascript", "javascript", "script", ".js" },
        };

        for (size_t i = 0; i < CG_ARRAY_LEN(others); i++)
                if (strcmp(language, others[i].language) == 0)
                        return json_pack("{s:s, s:s, s:s, s:s, s:s, s:s, s:s}", "name", others[i].name,
                                         "version", "", "mimetype", others[i].mime, "codemirror_mode",
                                         others[i].mode, "pygments_lexer", others[i].lexer,
                                         "nbconvert_exporter", others[i].exporter, "file_extension",
                                         others[i].extension);
        if (cg_language_kernel(language)) /* where the kernel is not asked */
                return json_pack("{s:s, s:s, s:s, s:s}", "name", cg_language_kernel(language), "version", "",
                                 "mimetype", "text/plain", "file_extension", ".txt");
        return json_pack("{s:s, s:s, s:s, s:{s:s, s:i}, s:s, s:s, s:s}", "name", "python", "version", python,
                         "mimetype", "text/x-python", "codemirror_mode", "name", "ipython", "version", 3,
                         "pygments_lexer", "ipython3", "nbconvert_exporter", "python", "file_extension",
                         ".py");
}

static json_t *info_reply(const char *language, const char *python, const char *implementation,
                          const char *banner, bool debugger)
{
        json_t *features = json_array();

        if (strcmp(language, "python") == 0)
                json_array_append_new(features, json_string("kernel subshells"));
        if (debugger)
                json_array_append_new(features, json_string("debugger"));
        return json_pack("{s:s, s:s, s:s, s:s, s:o, s:s, s:b, s:o, s:o}", "status", "ok", "protocol_version",
                         CG_JUPYTER_PROTOCOL, "implementation", "cellgate", "implementation_version",
                         implementation, "language_info", language_info(language, python), "banner", banner,
                         "debugger", debugger, "help_links", help_links(), "supported_features", features);
}

/* Made once: clients ask for it often, also while cells run. */
int cg_info_make(struct front *f, struct cg_err *err)
{
        const char *text = cg_session_info(f->session), *python, *ipython, *language;
        cg_auto_json json_t *info = NULL, *reply = NULL;
        char banner[300], implementation[100];

        if (cg_json_object(text, strlen(text), "session's information", &info, err) < 0)
                return -1;
        python = json_string_value(json_object_get(info, "python")) ?: "3";
        ipython = json_string_value(json_object_get(info, "ipython"));
        language = json_string_value(json_object_get(info, "language")) ?: "python";
        f->info.foreign = cg_language_kernel(language);
        snprintf(banner, sizeof(banner), "cellgate %s -- Python %s, IPython %s, %s", cg_version(), python,
                 ipython ?: "?", json_is_true(json_object_get(info, "sandbox")) ? "sandboxed" : "no sandbox");
        /* IPython's version first: clients compare it with releases of ipykernel. */
        snprintf(implementation, sizeof(implementation), "%s+cellgate.%s", ipython ?: "0", cg_version());
        reply = info_reply(language, python, implementation, banner,
                           json_is_true(json_object_get(info, "debugger")));
        f->info.content = cg_json_text(reply, &f->info.len);
        return cg_made(f->info.content, "kernel_info", err);
}

int cg_info_without_kernel(struct front *f, const char *why, struct cg_err *err)
{
        cg_auto_json json_t *reply = NULL;
        char banner[sizeof(f->opener.err.msg) + 100]; /* whole: half a character is no JSON */

        snprintf(banner, sizeof(banner), "cellgate %s -- the kernel could not be started: %s", cg_version(),
                 why);
        reply = info_reply("python", "3", cg_version(), banner, false);
        free(f->info.content); /* it was made if the session had been opened */
        f->info.content = cg_json_text(reply, &f->info.len);
        return cg_made(f->info.content, "kernel_info", err);
}

/*
 * With all members of a successful reply: clients that read them without checking the status would
 * report a missing member instead of the reason.
 */
char *cg_info_error(const char *ename, const char *evalue, size_t *len)
{
        cg_auto_json json_t *reply = info_reply("python", "3", cg_version(), evalue, false), *error = NULL;

        error = json_pack("{s:s, s:s, s:s, s:[]}", "status", "error", "ename", ename, "evalue", evalue,
                          "traceback");
        if (!reply || !error || json_object_update(reply, error) < 0)
                return NULL;
        return cg_json_text(reply, len);
}
