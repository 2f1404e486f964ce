/* Which rule denied a file. See access.h. */
#include "sandbox/inside/access.h"

#include "base/path.h"
#include "base/util.h"
#include "sandbox/inside/mediate.h"
#include "sandbox/names/names.h"
#include "sandbox/plan.h"

static const char *const names[] = {
#define NAME(name, text) [CG_ACCESS_##name] = text,
        CG_ACCESS_RULES(NAME)
#undef NAME
};

static const char *const operations[] = {
        [CG_ACCESS_READ] = "file-read", [CG_ACCESS_WRITE] = "file-write", [CG_ACCESS_EXEC] = "exec"
};

const char *cg_access_rule_name(enum cg_access_rule rule)
{
        return names[rule];
}

enum cg_access_rule cg_access_rule_named(const char *name)
{
        for (size_t i = 1; i < CG_ARRAY_LEN(names); i++)
                if (strcmp(names[i], name) == 0)
                        return (enum cg_access_rule)i;
        return CG_ACCESS_NONE;
}

const char *cg_access_operation(enum cg_access access)
{
        return operations[access];
}

int cg_access_of_operation(const char *operation)
{
        for (size_t i = 0; i < CG_ARRAY_LEN(operations); i++)
                if (strcmp(operations[i], operation) == 0)
                        return (int)i;
        return -1;
}

/* ---- the rule that denies */

static bool is_pinned(const struct cg_sandbox *sb, const char *path)
{
        for (size_t i = 0; i < sb->n_mounts; i++) {
                const struct cg_plan_mount *m = &sb->mounts[i];

                if (m->kind == CG_PLAN_COVER ? cg_path_within(m->path, path) : strcmp(m->path, path) == 0)
                        return true;
        }
        return false;
}

static bool is_refusal(int error)
{
        return error == EACCES || error == EPERM || error == EROFS;
}

static enum cg_access_rule by_mount(const struct cg_plan_mount *m, enum cg_access access, int error,
                                    const char **setting)
{
        bool write = access == CG_ACCESS_WRITE && is_refusal(error);

        switch (m->kind) {
        case CG_PLAN_COVER:
                return m->why ? CG_ACCESS_CREDENTIALS : CG_ACCESS_PRIVATE;
        case CG_PLAN_HIDE:
        case CG_PLAN_EMPTY:
                *setting = m->why;
                return m->why ? CG_ACCESS_DENY_READ : CG_ACCESS_PRIVATE;
        case CG_PLAN_READ:
                *setting = m->why;
                return write ? CG_ACCESS_DENY_WRITE : CG_ACCESS_NONE;
        case CG_PLAN_MASK:
                return write ? CG_ACCESS_MASKED : CG_ACCESS_NONE;
        case CG_PLAN_BIND_RO:
                return write ? CG_ACCESS_NOT_ALLOWED : CG_ACCESS_NONE;
        case CG_PLAN_DEV:
        case CG_PLAN_PROC:
        case CG_PLAN_SYS:
                return is_refusal(error) ? CG_ACCESS_OWN : CG_ACCESS_NONE;
        default:
                return CG_ACCESS_NONE;
        }
}

/* The mode and owner of @path, or of the folder to change it in, refuse it to this process. */
static bool mode_refuses(const char *path, enum cg_access how)
{
        char folder[PATH_MAX];

        if (access(path, how == CG_ACCESS_READ ? R_OK : W_OK) < 0 && errno == EACCES)
                return true;
        cg_path_parent(path, folder);
        return how == CG_ACCESS_WRITE && access(folder, W_OK | X_OK) < 0 && errno == EACCES;
}

enum cg_access_rule cg_access_explain(const struct cg_sandbox *sb, enum cg_access access, const char *path,
                                      int error, bool root, const char **setting)
{
        const struct cg_plan_mount *m;
        enum cg_access_rule rule = CG_ACCESS_NONE;
        const char *from = NULL;

        *setting = NULL;
        if (sb->set.off || (!is_refusal(error) && error != ENOENT && error != EBUSY))
                return CG_ACCESS_NONE;
        if (error == EBUSY)
                return is_pinned(sb, path) ? CG_ACCESS_IN_PLACE : CG_ACCESS_NONE;
        if (access == CG_ACCESS_EXEC && error == EPERM && sb->exec != CG_EXEC_ALLOW)
                return sb->exec == CG_EXEC_DENY ? CG_ACCESS_PROGRAMS : CG_ACCESS_NOT_APPROVED;
        m = cg_plan_mount_at(sb, path);
        /* Covers are last, and hide all below them. */
        for (size_t i = sb->n_mounts; i-- > 0 && sb->mounts[i].kind == CG_PLAN_COVER;)
                if (cg_path_within(path, sb->mounts[i].path))
                        m = &sb->mounts[i];
        if ((!m || m->kind != CG_PLAN_COVER) && access == CG_ACCESS_WRITE && error == EACCES &&
            cg_mediate_explain(sb, path, &from)) {
                *setting = from;
                return from ? CG_ACCESS_DENY_WRITE : CG_ACCESS_NAME;
        }
        if (m)
                rule = by_mount(m, access, error, &from);
        else if (!sb->set.root_writable && access == CG_ACCESS_WRITE && is_refusal(error))
                rule = CG_ACCESS_NOT_ALLOWED;
        /*
         * A file that cannot be executed most likely is not a program. EACCES that the modes do
         * not explain is init's, which reports its denials itself.
         */
        if (!rule && root && access != CG_ACCESS_EXEC &&
            (error == EPERM || (error == EACCES && mode_refuses(path, access))))
                return CG_ACCESS_PRIVILEGES;
        if (rule)
                *setting = from;
        return rule;
}

enum cg_access_rule cg_access_explain_network(const struct cg_sandbox *sb)
{
        if (sb->set.off)
                return CG_ACCESS_NONE;
        return sb->set.n_ports ? CG_ACCESS_NO_DIRECT : CG_ACCESS_NO_NETWORK;
}

bool cg_access_hidden_in_home(const struct cg_sandbox *sb, const char *name, char *path)
{
        for (size_t i = 0; i < sb->n_mounts && !sb->set.off; i++) {
                const char *hidden = sb->mounts[i].path;
                size_t len = strlen(hidden);

                if (sb->mounts[i].kind != CG_PLAN_COVER || !sb->mounts[i].why)
                        continue;
                for (size_t n = strlen(name); n > 0; n--)
                        if ((!name[n] || name[n] == '/') && n < len && hidden[len - n - 1] == '/' &&
                            strncmp(hidden + len - n, name, n) == 0)
                                return snprintf(path, PATH_MAX, "%s%s", hidden, name + n) < PATH_MAX;
        }
        return false;
}

bool cg_access_by_settings(const struct cg_sandbox *sb)
{
        return sb->set.by_settings;
}

bool cg_access_resolve(const char *path, char *real)
{
        char part[PATH_MAX], tail[PATH_MAX] = "", longer[PATH_MAX];
        int n;

        if (!*path ||
            snprintf(part, sizeof(part), "%s%s", *path == '/' ? "" : "./", path) >= (int)sizeof(part))
                return false;
        while (!realpath(part, real)) {
                char *slash = strrchr(part, '/');

                if (!slash)
                        return false;
                n = snprintf(longer, sizeof(longer), "%s%s", slash, tail);
                if (n < 0 || n >= (int)sizeof(longer))
                        return false;
                memcpy(tail, longer, (size_t)n + 1);
                slash[slash == part] = '\0'; /* "/" stays, and exists */
        }
        if (!tail[0])
                return true;
        n = snprintf(longer, sizeof(longer), "%s%s", cg_path_prefix(real), tail);
        if (n < 0 || n >= PATH_MAX)
                return false;
        memcpy(real, longer, (size_t)n + 1);
        return true;
}

/* ---- descriptions */

/* The name in a rule of @why, which has one after " "; "": without one; NULL: another rule. */
static const char *name_after(const char *setting, const char *why)
{
        size_t n = strlen(why);

        if (strncmp(setting, why, n) != 0 || (setting[n] && setting[n] != ' '))
                return NULL;
        n += setting[n] == ' ';
        return cg_why_is_plain(setting + n) ? setting + n : NULL;
}

/* The folder's name in a rule of CG_WHY_PATH. */
static const char *name_in_path(const char *setting)
{
        return name_after(setting, CG_WHY_PATH);
}

/* The reason of a rule that no setting can change; NULL: @setting is a setting. */
static const char *why_built_in(const char *setting)
{
        if (strcmp(setting, CG_WHY_OWN) == 0)
                return "it belongs to cellgate, which runs outside of the sandbox";
        if (strcmp(setting, CG_WHY_GUARD) == 0)
                return "an MCP server or cellgate uses it outside of the sandbox";
        if (name_in_path(setting))
                return "it is in a folder of PATH, where programs are found outside of the sandbox";
        if (name_after(setting, CG_WHY_NAMED))
                return "a file that programs outside of the sandbox obey names it";
        if (name_after(setting, CG_WHY_GIT))
                return "git settings or variables of the user name it, relative to each repository";
        if (strcmp(setting, CG_WHY_LINK) == 0)
                return "it is a hard link, or a folder with hard links, to files outside of what cells write";
        return NULL;
}

/* @name: of a folder; "": that of @path, by its last two names. */
static void open_folder(const char *name, const char *path, struct cg_access_words *ret)
{
        size_t end = strlen(path), at;

        ret->how = ret->how_text;
        if (name[0]) {
                snprintf(ret->how_text, sizeof(ret->how_text),
                         "add \"%s\" to cellgate.writableNames of a settings file", name);
                return;
        }

        while (end && path[end - 1] != '/')
                end--;
        at = end = end ? end - 1 : 0;
        for (int n = 0; at && n < 2; n += path[at] == '/')
                at--;
        at += path[at] == '/';
        snprintf(ret->how_text, sizeof(ret->how_text),
                 "add \"%.*s\" to cellgate.writableNames of a settings file", (int)(end - at), path + at);
}

bool cg_access_is_setting(const char *text)
{
        size_t n = strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.");

        if (why_built_in(text))
                return true;
        return n > 0 && n < 48 && !text[n];
}

/* Without a settings file: the setting that would allow it. */
static void default_words(enum cg_access_rule rule, struct cg_access_words *ret)
{
        if (rule == CG_ACCESS_NOT_ALLOWED) {
                snprintf(ret->rule, sizeof(ret->rule), "only the workspace (default)");
                snprintf(ret->why, sizeof(ret->why), "only the workspace may be written");
                ret->how = "add it to filesystem.allowWrite of a settings file (--sandbox)";
        } else if (rule == CG_ACCESS_CREDENTIALS) {
                ret->how = "set cellgate.hideCredentials to false in a settings file (--sandbox)";
        } else if (rule == CG_ACCESS_UNIX_SOCKETS) {
                ret->how = "list the socket in network.allowUnixSockets of a settings file (--sandbox)";
        } else if (rule == CG_ACCESS_NO_NETWORK) {
                ret->how = "--allow-host, or network.allowedDomains of a settings file (--sandbox)";
        }
}

/* Sockets of container engines, which run any program as root. */
static bool is_engine(const char *path)
{
        const char *name = strrchr(path, '/');

        return name && (strcmp(name, "/docker.sock") == 0 || strcmp(name, "/containerd.sock") == 0 ||
                        strcmp(name, "/podman.sock") == 0);
}

void cg_access_words(enum cg_access_rule rule, const char *setting, const char *path, bool by_settings,
                     struct cg_access_words *ret)
{
        const char *opened;
        static const struct {
                const char *rule, *why, *how;
        } words[] = {
                [CG_ACCESS_NOT_ALLOWED] = { "not in filesystem.allowWrite",
                                            "only what filesystem.allowWrite names may be written",
                                            "add it to filesystem.allowWrite" },
                [CG_ACCESS_DENY_WRITE] = { "filesystem.denyWrite", "filesystem.denyWrite names it",
                                           "remove it from filesystem.denyWrite" },
                [CG_ACCESS_DENY_READ] = { "filesystem.denyRead", "filesystem.denyRead hides it",
                                          "add it to filesystem.allowRead" },
                [CG_ACCESS_CREDENTIALS] = { "credentials (built in)",
                                            "usual places of credentials are hidden",
                                            "set cellgate.hideCredentials to false" },
                [CG_ACCESS_PRIVATE] = { "private files (built in)",
                                        ".env files, cellgate's own files and paths that the session hides cannot be read",
                                        NULL },
                [CG_ACCESS_OWN] = { "own /dev, /proc and /sys (built in)",
                                    "the sandbox has its own /dev, /proc and /sys", NULL },
                [CG_ACCESS_MASKED] = { "credentials.files",
                                       "it holds a credential, so other content is shown", NULL },
                [CG_ACCESS_NAME] = { "names (built in)", CG_ACCESS_NAME_WHY "files of that name", NULL },
                [CG_ACCESS_IN_PLACE] = { "kept in place (built in)",
                                         "denied paths below it would be moved with it", NULL },
                [CG_ACCESS_PRIVILEGES] = { "no powers of root (built in)",
                                           "user 0 has no powers over other users' files in a sandbox",
                                           NULL },
                [CG_ACCESS_NO_NETWORK] = { "no network", "this sandbox has no network",
                                           "remove cellgate.networkOff" },
                [CG_ACCESS_NO_DIRECT] = { "no direct network (built in)",
                                          "only the proxy that HTTPS_PROXY and ALL_PROXY name has a network",
                                          "let the program use it" },
                [CG_ACCESS_UNIX_SOCKETS] = { "system call filter (built in)",
                                             "Unix sockets lead to programs outside of the sandbox",
                                             "list the socket in network.allowUnixSockets" },
                [CG_ACCESS_PROGRAMS] = { "exec", CG_ACCESS_PROGRAMS_WHY, CG_ACCESS_PROGRAMS_HOW },
                [CG_ACCESS_NOT_APPROVED] = { "exec", "the host did not approve it", NULL },
                [CG_ACCESS_NOT_ASKED] = { "exec", "nobody could judge it", NULL },
        };

        static const char config[] = "/.git/config";
        size_t n = strlen(path);

        snprintf(ret->why, sizeof(ret->why), "%s", words[rule].why);
        ret->how = words[rule].how;
        snprintf(ret->rule, sizeof(ret->rule), "%s", setting ?: words[rule].rule);
        if (rule == CG_ACCESS_NAME) {
                const char *name = cg_names_of(path);

                snprintf(ret->rule, sizeof(ret->rule), "%s (built in)", name);
                snprintf(ret->why, sizeof(ret->why), CG_ACCESS_NAME_WHY "%s", name);
                snprintf(ret->how_text, sizeof(ret->how_text),
                         "add \"%s\" to cellgate.writableNames of a settings file", name);
                ret->how = ret->how_text;
        }
        if (rule == CG_ACCESS_NOT_ASKED && setting) {
                snprintf(ret->why, sizeof(ret->why), "%s", setting);
                snprintf(ret->rule, sizeof(ret->rule), "%s", words[rule].rule);
                return;
        }
        if (rule == CG_ACCESS_UNIX_SOCKETS && is_engine(path))
                snprintf(ret->why, sizeof(ret->why),
                         "programs that use this socket have root's powers over this machine");
        if (!by_settings)
                default_words(rule, ret);
        if (setting && strcmp(setting, "default") == 0) {
                snprintf(ret->rule, sizeof(ret->rule), "%s (built in)", words[rule].rule);
                ret->how = NULL;
        } else if (rule == CG_ACCESS_DENY_WRITE && setting && strncmp(setting, "mandatory", 9) == 0) {
                snprintf(ret->rule, sizeof(ret->rule), "never written (built in)");
                snprintf(ret->why, sizeof(ret->why), "programs outside run its contents");
                ret->how = n >= sizeof(config) - 1 && strcmp(path + n - (sizeof(config) - 1), config) == 0
                                   ? "set filesystem.allowGitConfig"
                                   : NULL;
        } else if (setting && why_built_in(setting)) {
                snprintf(ret->rule, sizeof(ret->rule), "%s (built in)", setting);
                snprintf(ret->why, sizeof(ret->why), "%s", why_built_in(setting));
                ret->how = strcmp(setting, CG_WHY_LINK)
                                   ? NULL
                                   : "replace the links by copies (uv: UV_LINK_MODE=copy)";
                opened = name_after(setting, CG_WHY_NAMED) ?: name_after(setting, CG_WHY_GIT);
                if (opened && opened[0]) {
                        snprintf(ret->how_text, sizeof(ret->how_text),
                                 "add \"%s\" to cellgate.writableNames of a settings file", opened);
                        ret->how = ret->how_text;
                }
                if (name_in_path(setting)) {
                        snprintf(ret->rule, sizeof(ret->rule), "%s (built in)", CG_WHY_PATH);
                        open_folder(name_in_path(setting), path, ret);
                }
        } else if (setting && (rule == CG_ACCESS_DENY_READ || rule == CG_ACCESS_DENY_WRITE)) {
                snprintf(ret->why, sizeof(ret->why), "%s %s it", setting,
                         rule == CG_ACCESS_DENY_READ ? "hides" : "names");
                if (strncmp(setting, "credentials.", 12) == 0)
                        ret->how = "remove it from credentials.files";
        }
}
