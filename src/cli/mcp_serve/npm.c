/*
 * `cellgate mcp serve`: install_package in a session whose language is node. npm runs in a sandbox
 * of its own, as pip does (install.c), with the network of the cells and its registry, and without
 * scripts of packages unless they are wanted. After the end of that sandbox its modules are moved
 * to the session's folder, which runs none of them.
 */
#include "cli/mcp_serve/mcp_serve.h"

#include <ctype.h>
#include "base/fd.h"
#include "base/json.h"
#include "cli/mcp_serve/texts.h"

#define MAX_WORDS  32u
#define MAX_OUTPUT ((size_t)64 << 10)
#define REGISTRY   "https://registry.npmjs.org/"

/* [@SCOPE/]NAME[@VERSION]: npm takes other words for files, URLs, repositories and options. */
static bool is_package(const char *word)
{
        const char *p = word + (*word == '@'), *version;
        size_t slashes = 0;

        if (!isalnum((unsigned char)*p))
                return false;
        for (; *p && *p != '@'; p++) {
                slashes += *p == '/';
                if (!isalnum((unsigned char)*p) && !strchr("-._~/", *p))
                        return false;
        }
        version = *p ? p + 1 : "latest";
        return slashes == (*word == '@') && p[-1] != '/' && *version &&
               strspn(version, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.^~<>=*+-") ==
                       strlen(version);
}

int cg_serve_npm_packages(const char *text, char **ret, struct cg_err *err)
{
        cg_auto_free char *words = strdup(text), *copy = strdup(text);
        char *save = NULL;
        size_t n = 0;

        if (!words || !copy)
                return cg_fail(err, CG_E_NOMEM, "package_name");
        for (char *w = strtok_r(copy, " ", &save); w; w = strtok_r(NULL, " ", &save))
                if (++n > MAX_WORDS || !is_package(w))
                        return cg_fail(
                                err, CG_E_INVAL,
                                "package_name must be names of npm's registry, with versions or without "
                                "(left-pad@1.3.0 @scope/name), at most %u: \"%.100s\"",
                                MAX_WORDS, w);
        if (n == 0)
                return cg_fail(err, CG_E_INVAL, "package_name must be the name of a package");
        *ret = CG_STEAL(words);
        return 0;
}

/* Fills @folder with node_modules. Returns NULL, or why it did not succeed. */
static const char *run_npm(struct cg_serve_session *s, const struct cg_job *job, const char *folder,
                           char *packages, bool scripts, struct cg_answer *a)
{
        const char *argv[MAX_WORDS + 10] = { "npm",         "install",          "--no-audit",
                                             "--no-fund",   "--loglevel=error", "--prefix=.",
                                             "--cache=.npm" };
        const char *registry = getenv("npm_config_registry") ?: REGISTRY, *host = strstr(registry, "://");
        const char *why, *env[] = { NULL, NULL };
        cg_auto_free char *setting = NULL;
        cg_auto_json json_t *hosts = NULL;
        struct cg_session *kernel = NULL;
        char *save = NULL;
        struct cg_err err;
        size_t n = 7;

        host = host ? host + 3 : registry;
        hosts = json_pack("[s%]", host, strcspn(host, ":/"));
        if (asprintf(&setting, "npm_config_registry=%s", registry) < 0)
                setting = NULL;
        env[0] = setting;
        if (!hosts || !setting || host[strcspn(host, "@/")] == '@')
                return "npm_config_registry must be a URL without a password";
        if (!scripts)
                argv[n++] = "--ignore-scripts";
        argv[n++] = "--";
        for (char *w = strtok_r(packages, " ", &save); w; w = strtok_r(NULL, " ", &save))
                argv[n++] = w;
        if (cg_serve_package_sandbox(s, folder, hosts, &kernel, &err) < 0) {
                cg_answer_note(a, "%s", err.msg);
                return "npm was not started";
        }
        why = cg_serve_package_run(s, job, kernel, argv, env, a);
        cg_session_free(kernel);
        return why;
}

void cg_serve_install_npm(struct cg_serve_session *s, const struct cg_job *job, char *packages, bool scripts,
                          struct cg_answer *a)
{
        char folder[] = "/var/tmp/cellgate-npm-XXXXXX", from[sizeof(folder) + 16], to[PATH_MAX];
        const char *words[] = { "-c", CG_SERVE_MOVE_MODULES_PY, from, to, NULL }, *why;
        cg_auto_buf struct cg_buf out = { .max = MAX_OUTPUT };
        struct cg_err err;

        cg_log(&s->sv->log, CG_LOG_INFO, "install_package of npm: %s", packages);
        if (!mkdtemp(folder)) {
                cg_answer_error(a);
                cg_answer_note(a, "Not installed: /var/tmp cannot be written.");
                return;
        }
        snprintf(from, sizeof(from), "%s/node_modules", folder);
        snprintf(to, sizeof(to), "%s/node_modules", s->packages.path);
        why = run_npm(s, job, folder, packages, scripts, a);
        if (!why && cg_serve_package_python(s, job, words, &out, &err) < 0)
                why = err.msg;
        if (why) {
                cg_answer_error(a);
                cg_answer_note(a, "Not installed: %s.", why);
        } else {
                cg_answer_lines(a, out.data ?: "", out.len);
                cg_answer_note(a, "Installed for the session: import it in the next cell.");
        }
        cg_remove_tree(folder, NULL);
}
