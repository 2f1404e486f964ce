/* See user_env.h. */
#include "base/user_env.h"

#include "base/json.h"

/* "*" at the end: any name that begins so. */
static const char *const names[] = { "PATH",
                                     "HOME",
                                     "XDG_CONFIG_HOME",
                                     "XDG_DATA_HOME",
                                     "XDG_CACHE_HOME",
                                     "XDG_STATE_HOME",
                                     "XDG_RUNTIME_DIR",
                                     "GIT_CONFIG_GLOBAL",
                                     "GIT_CONFIG_SYSTEM",
                                     "GIT_DIR",
                                     "GIT_WORK_TREE",
                                     "GIT_CONFIG_KEY_*",
                                     "GIT_CONFIG_VALUE_*",
#define X(name, to) name,
                                     CG_USER_ENV_NAMED(X)
#undef X
};

static bool is_listed(const char *entry, size_t len)
{
        for (size_t i = 0; i < CG_ARRAY_LEN(names); i++) {
                size_t n = strlen(names[i]);

                if (names[i][n - 1] == '*' ? len > n - 1 && strncmp(entry, names[i], n - 1) == 0
                                           : len == n && strncmp(entry, names[i], n) == 0)
                        return true;
        }
        return false;
}

/* True if a variable has a relative path, which begins in the working folder. */
static bool is_relative(const json_t *all)
{
        const char *list = cg_user_env_get(all, "PATH");

        for (; list; list = strchr(list, ':') ? strchr(list, ':') + 1 : NULL)
                if (list[0] != '/')
                        return true;
        return cg_user_env_get(all, "GIT_DIR");
}

int cg_user_env(char *const *env, const char *cwd, json_t **ret, struct cg_err *err)
{
        cg_auto_json json_t *all = json_object();
        size_t pairs = 0;

        if (!all)
                return cg_fail(err, CG_E_NOMEM, "variables");
        for (; env && *env; env++) {
                size_t n = strcspn(*env, "=");
                char name[32];

                if ((*env)[n] != '=' || n >= sizeof(name) || !is_listed(*env, n))
                        continue;
                /* A key and its value. */
                if (strncmp(*env, "GIT_CONFIG_KEY_", 15) == 0 && ++pairs > CG_USER_ENV_PAIRS)
                        return cg_fail(err, CG_E_LIMIT, "more than %d variables GIT_CONFIG_KEY_n",
                                       CG_USER_ENV_PAIRS);
                memcpy(name, *env, n);
                name[n] = '\0';
                if (json_object_set_new(all, name, json_string(*env + n + 1)) < 0)
                        return cg_fail(
                                err, CG_E_INVAL,
                                "the variable %s is not UTF-8: files that it names could not be protected from cells; change or unset it",
                                name);
        }
        if (cwd && json_object_set_new(all, CG_USER_ENV_CWD, json_string(cwd)) < 0 && is_relative(all))
                return cg_fail(
                        err, CG_E_INVAL,
                        "the working folder is not UTF-8: what PATH or GIT_DIR name in it could not be protected from cells; start from another folder");
        *ret = CG_STEAL(all);
        return 0;
}

const char *cg_user_env_get(const json_t *env, const char *name)
{
        const char *value = json_string_value(json_object_get(env, name));

        return value && value[0] ? value : NULL;
}
