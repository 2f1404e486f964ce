/* See user_env.h. */
#include "base/user_env.h"

#include "base/util.h"

/* "*" at the end: any name that begins so. */
static const char *const names[] = { "PATH",
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

json_t *cg_user_env(char *const *env, const char *cwd)
{
        json_t *all = json_object();
        size_t pairs = 0;

        for (; all && env && *env; env++) {
                size_t n = strcspn(*env, "=");
                char name[32];

                if ((*env)[n] != '=' || n >= sizeof(name) || !is_listed(*env, n))
                        continue;
                /* A key and its value. */
                if (strncmp(*env, "GIT_CONFIG_KEY_", 15) == 0 && ++pairs > CG_USER_ENV_PAIRS)
                        continue;
                memcpy(name, *env, n);
                name[n] = '\0';
                json_object_set_new(all, name, json_string(*env + n + 1));
        }
        if (all && cwd)
                json_object_set_new(all, CG_USER_ENV_CWD, json_string(cwd));
        return all;
}

const char *cg_user_env_get(const json_t *env, const char *name)
{
        const char *value = json_string_value(json_object_get(env, name));

        return value && value[0] ? value : NULL;
}
