/* The configuration of --config. See config.h. */
#include "cli/common/config.h"

#include <ctype.h>
#include "base/buf.h"
#include "base/ceilings.h"
#include "base/fd.h"
#include "base/json.h"
#include "base/path.h"
#include "cli/common/opts.h"
#include "sandbox/limit.h"

#define PREFIX "CELLGATE_"

/* One level of the configuration: the command line, the environment, .env, or the file. */
struct level {
        const char *origin;   /* for messages */
        const char *folder;   /* where relative paths start; NULL: the current folder */
        unsigned command;     /* options of other commands are left out */
        const json_t *values; /* of the stronger levels */
        json_t *own;
};

static int no_memory(const struct level *l, struct cg_err *err)
{
        return cg_fail(err, CG_E_NOMEM, "%s", l->origin);
}

/* A path that is relative to the level's folder becomes absolute. *ret: returns. */
static int text_of(const struct level *l, const struct cg_opt *o, const char *value, char **ret,
                   struct cg_err *err)
{
        bool path = strcmp(o->value, "FILE") == 0 || strcmp(o->value, "DIR") == 0 ||
                    (strcmp(o->value, "URL|FILE") == 0 && !strstr(value, "://")) ||
                    (strcmp(o->value, "ENV") == 0 && strchr(value, '/'));
        int n;

        if (path && l->folder && value[0] != '/' && value[0] != '{')
                n = asprintf(ret, "%s/%s", l->folder, value);
        else
                n = asprintf(ret, "%s", value);
        if (n >= 0)
                return 0;
        *ret = NULL;
        return no_memory(l, err);
}

/*
 * Adds a value of the option @o to the level. @member: the NAME of NAME=VALUE, which only itself
 * overrides; else NULL. @value: NULL is a flag that is not set.
 */
static int add(struct level *l, const struct cg_opt *o, const char *member, const char *value,
               struct cg_err *err)
{
        cg_auto_free char *key = NULL, *text = NULL;
        json_t *entry;

        if (o->value && text_of(l, o, value, &text, err) < 0)
                return -1;
        if (o->id == CG_KOPT_LIMIT && cg_limit_read(&(struct cg_sandbox_limits){ 0 }, text, err) < 0)
                return cg_err_prefix(err, "%s", l->origin);
        /* Policies add up, since the strictest decision counts: no level takes back another's. */
        if (o->id == CG_KOPT_POLICY)
                member = text;
        if (asprintf(&key, member ? "%s %s" : "%s", o->name, member) < 0) {
                key = NULL;
                return no_memory(l, err);
        }
        if (json_object_get(l->values, key))
                return 0;
        entry = json_object_get(l->own, key);
        if (!entry) {
                entry = json_pack("{s:s, s:[]}", "from", l->origin, "values");
                if (json_object_set_new(l->own, key, entry) < 0)
                        return no_memory(l, err);
        }
        if (value && json_array_append_new(json_object_get(entry, "values"),
                                           text ? json_string(text) : json_true()) < 0)
                return no_memory(l, err);
        return 0;
}

bool cg_config_has(const struct cg_opt *o)
{
        static const int never[] = { CG_KOPT_HELP,   CG_KOPT_CODE,     CG_KOPT_FILE,
                                     CG_KOPT_CONFIG, CG_KOPT_READY_FD, CG_KOPT_PRINT_CONFIG };

        for (size_t i = 0; i < CG_ARRAY_LEN(never); i++)
                if (o->id == never[i])
                        return false;
        return o->name && o->commands & (CG_CMD_RUN | CG_CMD_SERVE | CG_JUP_RUN);
}

bool cg_config_is_list(const struct cg_opt *o)
{
        return strstr(o->help, "may be repeated") != NULL;
}

/* CG_E_INVAL: there is no option @key that a configuration can have. */
static int find(const struct level *l, const char *key, const struct cg_opt **ret, struct cg_err *err)
{
        char *words[] = { (char *)(uintptr_t) "cellgate", NULL };
        struct cg_optscan scan = cg_kernel_options_scan(~0u, CG_ARRAY_LEN(words), words);
        const char *value;

        *ret = NULL;
        for (const struct cg_opt *o = scan.table; o < scan.table + scan.n; o++)
                if (o->name && strcmp(o->name, key) == 0 && (!*ret || cg_opt_is_of(o, l->command)))
                        *ret = o;
        if (*ret && !cg_config_has(*ret))
                return cg_fail(err, CG_E_INVAL, "%s: \"%s\" is for the command line only", l->origin, key);
        if (*ret)
                return 0;
        if (asprintf(&words[1], "--%s", key) < 0)
                return no_memory(l, err);
        cg_opt_next(&scan, &value, err); /* the error, which suggests another option */
        free(words[1]);
        return cg_err_prefix(err, "%s, \"%s\"", l->origin, key);
}

/* A value of JSON as a word of the command line (returns): a text, a number, or an object. */
static int scalar(const struct level *l, const char *key, const json_t *value, char **ret, struct cg_err *err)
{
        *ret = NULL;
        if (json_is_string(value))
                *ret = strdup(json_string_value(value));
        else if (json_is_number(value) || json_is_object(value))
                *ret = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT);
        else
                return cg_fail(err, CG_E_INVAL, "%s: \"%s\" needs a text or a number", l->origin, key);
        if (*ret)
                return 0;
        return no_memory(l, err);
}

/* {"NAME": VALUE} of limits and env. */
static int add_members(struct level *l, const struct cg_opt *o, const char *key, const json_t *object,
                       struct cg_err *err)
{
        const char *name;
        json_t *value;

        json_object_foreach(cg_json_unconst(object), name, value) {
                cg_auto_free char *text = NULL, *word = NULL;

                if (json_is_object(value))
                        return cg_fail(err, CG_E_INVAL, "%s: \"%s\" of \"%s\" needs a text or a number",
                                       l->origin, name, key);
                if (scalar(l, name, value, &text, err) < 0)
                        return -1;
                if (asprintf(&word, "%s=%s", name, text) < 0) {
                        word = NULL;
                        return no_memory(l, err);
                }
                if (add(l, o, name, word, err) < 0)
                        return -1;
        }
        return 0;
}

static int add_json(struct level *l, const char *key, const json_t *value, struct cg_err *err)
{
        const struct cg_opt *o;
        bool members = strcmp(key, "limits") == 0 || strcmp(key, "env") == 0;
        size_t n = json_is_array(value) ? json_array_size(value) : 1;

        if (strcmp(key, "$schema") == 0)
                return 0;
        if (strcmp(key, "mcpServers") == 0) { /* --mcp reads this key of the same file */
                key = "mcp";
                value = NULL;
        }
        if (find(l, strcmp(key, "limits") == 0 ? "limit" : key, &o, err) < 0)
                return CG_E_INVAL;
        if (!cg_opt_is_of(o, l->command))
                return 0;
        if (!value)
                return add(l, o, NULL, l->origin, err);
        if (members && !json_is_object(value))
                return cg_fail(err, CG_E_INVAL, "%s: \"%s\" needs an object", l->origin, key);
        if (members)
                return add_members(l, o, key, value, err);
        if (!o->value && !json_is_boolean(value))
                return cg_fail(err, CG_E_INVAL, "%s: \"%s\" needs true or false", l->origin, key);
        if (!o->value)
                return add(l, o, NULL, json_is_true(value) ? "" : NULL, err);
        if (json_is_array(value) && !cg_config_is_list(o))
                return cg_fail(err, CG_E_INVAL, "%s: \"%s\" needs one value, not a list", l->origin, key);
        if (json_is_object(value) && o->id != CG_KOPT_SANDBOX)
                return cg_fail(err, CG_E_INVAL, "%s: \"%s\" needs a text or a number", l->origin, key);
        for (size_t i = 0; i < n; i++) {
                const json_t *one = json_is_array(value) ? json_array_get(value, i) : value;
                cg_auto_free char *text = NULL;

                if (scalar(l, key, one, &text, err) < 0 || add(l, o, NULL, text, err) < 0)
                        return -1;
        }
        return 0;
}

/* "MEMORY_MB" of CELLGATE_LIMITS_MEMORY_MB is memoryMb. */
static const char *limit_named(const char *variable)
{
        for (enum cg_limit i = 0; i < CG_LIMITS; i++) {
                const char *name = cg_limit_setting(i), *v = variable;

                for (; *v && *name; v++)
                        if (*v != '_') {
                                if (tolower((unsigned char)*v) != tolower((unsigned char)*name))
                                        break;
                                name++;
                        }
                if (!*v && !*name)
                        return cg_limit_setting(i);
        }
        return NULL;
}

/* CELLGATE_LIMITS_MEMORY_MB=512, CELLGATE_EXEC=ask, CELLGATE_ARTIFACTS=true. @word: NAME=VALUE. */
static int add_variable(struct level *l, const char *word, struct cg_err *err)
{
        static const char *const others[] = { PREFIX "PYTHON=", PREFIX "HTTP_SESSION=", PREFIX "HTTP_PLACE=",
                                              PREFIX "SELFTEST_", PREFIX "JOBS_" };
        cg_auto_free char *name = strndup(word, strcspn(word, "=")), *text = NULL;
        const char *value = word + strcspn(word, "="), *limit;
        const struct cg_opt *o;

        for (size_t i = 0; i < CG_ARRAY_LEN(others); i++)
                if (strncmp(word, others[i], strlen(others[i])) == 0)
                        return 0;
        if (!name)
                return no_memory(l, err);
        value += *value == '=';
        if (strncmp(name, PREFIX "LIMITS_", 16) == 0) {
                limit = limit_named(name + 16);
                if (!limit)
                        return cg_fail(err, CG_E_INVAL, "%s: %s names no limit", l->origin, name);
                if (asprintf(&text, "%s=%s", limit, value) < 0) {
                        text = NULL;
                        return no_memory(l, err);
                }
                if (find(l, "limit", &o, err) < 0)
                        return CG_E_INVAL;
                return cg_opt_is_of(o, l->command) ? add(l, o, limit, text, err) : 0;
        }
        for (char *c = name; *c; c++)
                *c = *c == '_' ? '-' : (char)tolower((unsigned char)*c);
        if (find(l, name + strlen(PREFIX), &o, err) < 0)
                return cg_err_prefix(err, "%.*s", (int)strcspn(word, "="), word);
        if (!cg_opt_is_of(o, l->command))
                return 0;
        if (o->value)
                return add(l, o, NULL, value, err);
        if (strcmp(value, "true") == 0 || strcmp(value, "1") == 0)
                return add(l, o, NULL, "", err);
        if (strcmp(value, "false") == 0 || strcmp(value, "0") == 0 || !*value)
                return add(l, o, NULL, NULL, err);
        return cg_fail(err, CG_E_INVAL, "%s: %.*s must be true or false, not \"%s\"", l->origin,
                       (int)strcspn(word, "="), word, value);
}

static int add_dotenv(struct level *l, char *text, struct cg_err *err)
{
        for (char *save = NULL, *line = strtok_r(text, "\r\n", &save); line;
             line = strtok_r(NULL, "\r\n", &save)) {
                char *value = strchr(line, '='), quote;
                size_t len = value ? strlen(++value) : 0;

                if (strncmp(line, PREFIX, strlen(PREFIX)) != 0)
                        continue;
                quote = len > 1 ? value[0] : '\0';
                if ((quote == '"' || quote == '\'') && value[len - 1] == quote) {
                        memmove(value, value + 1, len - 2);
                        value[len - 2] = '\0';
                }
                if (add_variable(l, line, err) < 0)
                        return -1;
        }
        return 0;
}

/* Ends a level, which is a stronger one from now on. */
static int end(struct level *l, json_t *values, struct cg_err *err)
{
        if (json_object_update(values, l->own) < 0)
                return no_memory(l, err);
        json_object_clear(l->own);
        return 0;
}

/* Words of the command line. *file: the one of --config (borrows), or NULL. */
static int add_words(struct level *l, int argc, char **argv, const char **file, struct cg_err *err)
{
        struct cg_optscan scan = cg_kernel_options_scan(l->command, argc, argv);
        const char *value;
        int id;

        *file = NULL;
        while ((id = cg_opt_next(&scan, &value, err)) != CG_OPT_END) {
                cg_auto_free char *member = NULL;

                if (id < 0) /* ipykernel's, or reported by the command, whose --help it may name */
                        continue;
                if (id == CG_KOPT_CONFIG && *file)
                        return cg_fail(err, CG_E_INVAL, "--config can be given once");
                if (id == CG_KOPT_CONFIG)
                        *file = value;
                if (id == CG_OPT_ARG || !cg_config_has(scan.found))
                        continue;
                if (id == CG_KOPT_LIMIT || id == CG_KOPT_ENV)
                        member = strndup(value, strcspn(value, "="));
                if (add(l, scan.found, member, value ?: "", err) < 0)
                        return -1;
        }
        return 0;
}

static int read_levels(struct level *l, int argc, char **argv, json_t *values, bool *found,
                       struct cg_err *err)
{
        char real[PATH_MAX], folder[PATH_MAX], dotenv[PATH_MAX + 8];
        cg_auto_free char *text = NULL, *variables = NULL;
        cg_auto_json json_t *object = NULL;
        const char *file, *key;
        json_t *value;
        size_t len;

        if (add_words(l, argc, argv, &file, err) < 0 || end(l, values, err) < 0)
                return -1;
        *found = file != NULL;
        if (!file)
                return 0;
        if (!realpath(file, real))
                return cg_fail_errno(err, "--config %s", file);
        cg_path_parent(real, folder);
        snprintf(dotenv, sizeof(dotenv), "%s/.env", cg_path_prefix(folder));

        l->origin = "the environment";
        for (char **v = environ; *v; v++)
                if (strncmp(*v, PREFIX, strlen(PREFIX)) == 0 && add_variable(l, *v, err) < 0)
                        return -1;
        if (end(l, values, err) < 0)
                return -1;

        l->folder = folder;
        l->origin = dotenv;
        if (access(dotenv, F_OK) == 0 &&
            (cg_read_regular(dotenv, CG_MAX_SETTINGS, &variables, &len, err) < 0 ||
             add_dotenv(l, variables, err) < 0 || end(l, values, err) < 0))
                return -1;

        l->origin = real;
        if (cg_read_regular(real, CG_MAX_SETTINGS, &text, &len, err) < 0 ||
            cg_json_object(text, len, file, &object, err) < 0)
                return -1;
        json_object_foreach(object, key, value)
                if (add_json(l, key, value, err) < 0)
                        return -1;
        return end(l, values, err);
}

int cg_config_read(unsigned command, int argc, char **argv, json_t **ret, struct cg_err *err)
{
        cg_auto_json json_t *values = json_object(), *own = json_object();
        struct level l = {
                .origin = CG_CONFIG_COMMAND_LINE, .command = command, .values = values, .own = own
        };
        bool found = false;

        *ret = NULL;
        if (!values || !own)
                return no_memory(&l, err);
        if (read_levels(&l, argc, argv, values, &found, err) < 0)
                return -1;
        if (found)
                *ret = CG_STEAL(values);
        return 0;
}

/* Appends the words of @values to *words (returns). */
static int make_words(const json_t *values, json_t **words, struct cg_err *err)
{
        const char *key;
        json_t *entry, *value, *word;
        size_t i;

        *words = json_array();
        json_object_foreach(cg_json_unconst(values), key, entry) {
                /* --connect goes first: it says which machine the other words are about. */
                bool first = strcmp(key, "connect") == 0;

                if (strcmp(cg_json_text_of(entry, "from"), CG_CONFIG_COMMAND_LINE) == 0)
                        continue;
                json_array_foreach(json_object_get(entry, "values"), i, value) {
                        word = json_sprintf(json_is_string(value) ? "--%.*s=%s" : "--%.*s",
                                            (int)strcspn(key, " "), key, json_string_value(value));
                        if (json_array_insert_new(*words, first ? 0 : json_array_size(*words), word) < 0)
                                return cg_fail(err, CG_E_NOMEM, "--config");
                }
        }
        return 0;
}

int cg_config_run(const char *name, enum cg_kernel_command command, int argc, char **argv, cg_cli_run_fn run)
{
        cg_auto_json json_t *values = NULL, *words = NULL;
        bool verbatim = command == CG_JUP_INSTALL;
        cg_auto_free char **all = NULL;
        struct cg_err err;
        json_t *word;
        int n = 0;
        size_t i;

        for (int k = 1; k < argc; k++)
                verbatim |= strncmp(argv[k], "--print-config", strlen("--print-config")) == 0;
        if (cg_config_read(command, argc, argv, &values, &err) < 0)
                return cg_cli_fail(name, &err);
        if (!values || verbatim)
                return run(argc, argv);
        if (command == CG_JUP_RUN && !json_object_get(values, "connect"))
                json_object_del(values, "workspace"); /* it is the folder of the notebook */
        if (make_words(values, &words, &err) < 0)
                return cg_cli_fail(name, &err);
        all = calloc((size_t)argc + json_array_size(words) + 1, sizeof(*all));
        if (!all) {
                cg_fail(&err, CG_E_NOMEM, "--config");
                return cg_cli_fail(name, &err);
        }
        all[n++] = argv[0];
        json_array_foreach(words, i, word)
                all[n++] = (char *)(uintptr_t)json_string_value(word);
        memcpy(all + n, argv + 1, (size_t)(argc - 1) * sizeof(*argv));
        return run(n + argc - 1, all);
}
