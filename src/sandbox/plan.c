/* Setters of the plan, which only check and record. In the caller, before the sandbox exists. */
#include "sandbox/plan.h"

#include <sys/utsname.h>

#include "base/fd.h"
#include "base/path.h"
#include "sandbox/cgroup.h"
#include "sandbox/landlock_rules.h"
#include "sandbox/steps.h"

bool cg_plan_has_own_pid_max(void)
{
        struct utsname u;
        int major = 0, minor = 0;

        if (uname(&u) < 0 || sscanf(u.release, "%d.%d", &major, &minor) != 2)
                return false;
        return major > 6 || (major == 6 && minor >= 14);
}

static size_t depth(const char *path)
{
        size_t n = 0;

        if (!path[1])
                return 0;
        for (; *path; path++)
                n += *path == '/';
        return n;
}

/*
 * @a is mounted before @b: parents first, since they would cover their children; covers last, since
 * nothing shows again what they hide.
 */
static bool goes_before(const struct cg_plan_mount *a, const struct cg_plan_mount *b)
{
        size_t da = depth(a->path), db = depth(b->path);
        int c;

        if ((a->kind == CG_PLAN_COVER) != (b->kind == CG_PLAN_COVER))
                return b->kind == CG_PLAN_COVER;
        if (da != db)
                return da < db;
        c = strcmp(a->path, b->path);
        return c ? c < 0 : a->kind < b->kind;
}

static void mount_fini(struct cg_plan_mount *m)
{
        free(m->path);
        free(m->src);
        free(m->data);
        free(m->why);
        *m = (struct cg_plan_mount){ 0 };
}

int cg_plan_insert(struct cg_sandbox *sb, const struct cg_plan_mount *m, struct cg_err *err)
{
        struct cg_plan_mount copy = *m;
        size_t at = sb->n_mounts;
        void *list = sb->mounts;

        /* Searched from the end, since entries mostly come in order. */
        while (at && !goes_before(&sb->mounts[at - 1], m))
                at--;
        if (at < sb->n_mounts && sb->mounts[at].kind == m->kind &&
            strcmp(sb->mounts[at].path, m->path) == 0) {
                if (!m->src || strcmp(sb->mounts[at].src, m->src) == 0)
                        return 0;
                return cg_fail(err, CG_E_EXISTS, "sandbox: %s is shown at %s already", sb->mounts[at].src,
                               m->path);
        }
        if (sb->n_mounts == CG_PLAN_MOUNTS_MAX)
                return cg_fail(err, CG_E_LIMIT, "sandbox: more than %d paths", CG_PLAN_MOUNTS_MAX);
        list = cg_grow(list, &sb->cap_mounts, sb->n_mounts, sizeof(*sb->mounts));
        if (!list)
                return cg_fail(err, CG_E_NOMEM, "sandbox");
        sb->mounts = list;
        copy.path = strdup(m->path);
        copy.src = cg_strdup(m->src);
        copy.why = cg_strdup(m->why);
        copy.data = m->data ? malloc(m->len + 1) : NULL;
        if (!copy.path || (m->src && !copy.src) || (m->why && !copy.why) || (m->data && !copy.data)) {
                mount_fini(&copy);
                return cg_fail(err, CG_E_NOMEM, "sandbox: path %s", m->path);
        }
        if (m->data)
                memcpy(copy.data, m->data, m->len);
        memmove(&sb->mounts[at + 1], &sb->mounts[at], (sb->n_mounts - at) * sizeof(*sb->mounts));
        sb->mounts[at] = copy;
        sb->n_mounts++;
        return 0;
}

int cg_plan_add_placeholder(struct cg_sandbox *sb, const char *path, bool folder, bool mount_point,
                            struct cg_err *err)
{
        struct cg_plan_placeholder *v;
        char *copy;

        for (size_t i = 0; i < sb->n_placeholders; i++) {
                if (strcmp(sb->placeholders[i].path, path) == 0) {
                        sb->placeholders[i].folder |= folder;
                        return 0;
                }
        }
        v = cg_grow(sb->placeholders, &sb->cap_placeholders, sb->n_placeholders, sizeof(*v));
        if (!v)
                return cg_fail(err, CG_E_NOMEM, "sandbox");
        sb->placeholders = v;
        copy = strdup(path);
        if (!copy)
                return cg_fail(err, CG_E_NOMEM, "sandbox: path %s", path);
        v += sb->n_placeholders++;
        *v = (struct cg_plan_placeholder){ .path = copy, .folder = folder, .mount_point = mount_point };
        return 0;
}

int cg_plan_add_pattern(struct cg_sandbox *sb, const char *text, const char *why, struct cg_err *err)
{
        struct cg_plan_pattern new, *v;

        v = cg_grow(sb->patterns, &sb->cap_patterns, sb->n_patterns, sizeof(*v));
        if (!v)
                return cg_fail(err, CG_E_NOMEM, "sandbox");
        sb->patterns = v;
        new.text = strdup(text);
        new.why = strdup(why);
        if (!new.text || !new.why) {
                free(new.text);
                free(new.why);
                return cg_fail(err, CG_E_NOMEM, "sandbox: pattern %s", text);
        }
        sb->patterns[sb->n_patterns++] = new;
        return 0;
}

int cg_plan_add_programs(struct cg_sandbox *sb, const char *path, struct cg_err *err)
{
        void *list = cg_grow(sb->programs, &sb->cap_programs, sb->n_programs, sizeof(*sb->programs));
        char *copy;

        if (!list)
                return cg_fail(err, CG_E_NOMEM, "sandbox");
        sb->programs = list;
        copy = strdup(path);
        if (!copy)
                return cg_fail(err, CG_E_NOMEM, "sandbox: folder of programs %s", path);
        sb->programs[sb->n_programs++] = copy;
        return 0;
}

int cg_plan_add_linked(struct cg_sandbox *sb, const char *path, struct cg_err *err)
{
        size_t i = sb->linked[0] != NULL;

        free(sb->linked[i]);
        sb->linked[i] = strdup(path);
        if (!sb->linked[i])
                return cg_fail(err, CG_E_NOMEM, "sandbox: folder %s", path);
        return 0;
}

static void set_filter(struct cg_sandbox *sb, unsigned int flags)
{
        sb->filter_flags = flags;
        cg_seccomp_filter(flags, &sb->filter);
}

int cg_sandbox_new(struct cg_sandbox **ret, struct cg_err *err)
{
        static const struct cg_plan_mount places[] = {
                { .kind = CG_PLAN_TMPFS, .path = (char *)"/tmp", .mode = "1777", .size = CG_PLAN_TMP_SIZE },
                { .kind = CG_PLAN_TMPFS,
                  .path = (char *)"/var/tmp",
                  .mode = "1777",
                  .size = CG_PLAN_TMP_SIZE },
                { .kind = CG_PLAN_TMPFS, .path = (char *)"/run", .mode = "0755", .size = CG_PLAN_RUN_SIZE },
                { .kind = CG_PLAN_DEV, .path = (char *)"/dev" },
                { .kind = CG_PLAN_PROC, .path = (char *)"/proc" },
                { .kind = CG_PLAN_SYS, .path = (char *)"/sys" },
        };
        cg_auto_sandbox struct cg_sandbox *sb = calloc(1, sizeof(*sb));
        char real[PATH_MAX];
        int r;

        if (!sb)
                return cg_fail(err, CG_E_NOMEM, "sandbox");
        cg_sandbox_set_limits(sb, &(struct cg_sandbox_limits){ 0 });
        set_filter(sb, 0);
        for (size_t i = 0; i < CG_ARRAY_LEN(places); i++) {
                struct cg_plan_mount m = places[i];

                /* /var/tmp may be a symlink to /tmp. Missing folders are skipped. */
                m.path = real;
                if (!realpath(places[i].path, real)) {
                        if (errno == ENOENT)
                                continue;
                        return cg_fail_errno(err, "sandbox: %s", places[i].path);
                }
                r = cg_plan_insert(sb, &m, err);
                if (r < 0)
                        return r;
        }
        *ret = CG_STEAL(sb);
        return 0;
}

int cg_sandbox_new_command(unsigned int flags, struct cg_sandbox **ret, struct cg_err *err)
{
        /* File systems that are always the sandbox's own. */
        static const struct cg_plan_mount places[] = {
                { .kind = CG_PLAN_DEV, .path = (char *)"/dev" },
                { .kind = CG_PLAN_PROC, .path = (char *)"/proc" },
                { .kind = CG_PLAN_SYS, .path = (char *)"/sys" },
        };
        cg_auto_sandbox struct cg_sandbox *sb = calloc(1, sizeof(*sb));
        unsigned int filter = 0;
        int r;

        if (!sb)
                return cg_fail(err, CG_E_NOMEM, "sandbox");
        sb->set.command = true;
        sb->set.limits.processes = sb->set.limits.open_files = CG_PLAN_NO_LIMIT;
        sb->set.nested_users = flags & CG_COMMAND_NESTED_USERS;
        sb->set.all_unix = flags & CG_COMMAND_UNIX_SOCKETS;
        sb->set.weak_proc = flags & CG_COMMAND_WEAK_PROC;
        if (sb->set.nested_users)
                filter |= CG_FILTER_NESTED_USERS;
        if (sb->set.all_unix)
                filter |= CG_FILTER_UNIX_SOCKETS;
        set_filter(sb, filter);
        for (size_t i = 0; i < CG_ARRAY_LEN(places); i++)
                if ((r = cg_plan_insert(sb, &places[i], err)) < 0)
                        return r;
        *ret = CG_STEAL(sb);
        return 0;
}

static void free_names(struct cg_sandbox *sb)
{
        while (sb->n_writable_names)
                free(sb->writable_names[--sb->n_writable_names]);
}

/* Variables may hold secrets, and kernels are forked from the process that has this plan. */
static void free_environ(struct cg_sandbox *sb)
{
        for (size_t i = 0; sb->environ && sb->environ[i]; i++) {
                explicit_bzero(sb->environ[i], strlen(sb->environ[i]));
                free(sb->environ[i]);
        }
        free(sb->environ);
        sb->environ = NULL;
}

int cg_sandbox_set_commands(struct cg_sandbox *sb, const char *const *envp, struct cg_err *err)
{
        size_t n = 0;

        while (envp && envp[n])
                n++;
        free_environ(sb);
        sb->environ = calloc(n + 1, sizeof(*sb->environ));
        for (size_t i = 0; sb->environ && i < n; i++) {
                sb->environ[i] = strdup(envp[i]);
                if (!sb->environ[i])
                        free_environ(sb);
        }
        if (!sb->environ)
                return cg_fail(err, CG_E_NOMEM, "sandbox: variables of commands");
        sb->commands = true;
        return 0;
}

struct cg_sandbox *cg_sandbox_free(struct cg_sandbox *sb)
{
        if (!sb)
                return NULL;
        for (size_t i = 0; i < sb->n_mounts; i++)
                mount_fini(&sb->mounts[i]);
        free(sb->mounts);
        for (size_t i = 0; i < sb->n_placeholders; i++)
                free(sb->placeholders[i].path);
        free(sb->placeholders);
        for (size_t i = 0; i < sb->n_patterns; i++) {
                free(sb->patterns[i].text);
                free(sb->patterns[i].why);
        }
        free(sb->patterns);
        for (size_t i = 0; i < sb->n_programs; i++)
                free(sb->programs[i]);
        free(sb->programs);
        for (size_t i = 0; sb->linked[i]; i++)
                free(sb->linked[i]);
        free(sb->unwritten.v);
        free_names(sb);
        free_environ(sb);
        free(sb->cwd);
        free(sb->language);
        cg_grants_free(sb->grants);
        free(sb);
        return NULL;
}

static int copy_paths(struct cg_sandbox *to, const struct cg_sandbox *sb, struct cg_err *err)
{
        int r = 0;

        for (size_t i = 0; i < sb->n_placeholders && r == 0; i++)
                r = cg_plan_add_placeholder(to, sb->placeholders[i].path, sb->placeholders[i].folder,
                                            sb->placeholders[i].mount_point, err);
        for (size_t i = 0; i < sb->n_patterns && r == 0; i++)
                r = cg_plan_add_pattern(to, sb->patterns[i].text, sb->patterns[i].why, err);
        for (size_t i = 0; i < sb->n_programs && r == 0; i++)
                r = cg_plan_add_programs(to, sb->programs[i], err);
        for (size_t i = 0; sb->linked[i] && r == 0; i++)
                r = cg_plan_add_linked(to, sb->linked[i], err);
        for (size_t i = 0; i < sb->unwritten.n && r == 0; i++)
                r = cg_inodes_add(&to->unwritten, sb->unwritten.v[i].dev, sb->unwritten.v[i].ino, err);
        for (size_t i = 0; i < sb->n_mounts && r == 0; i++)
                r = cg_plan_insert(to, &sb->mounts[i], err);
        if (r < 0 || !sb->names)
                return r;
        return cg_sandbox_set_names(to, (const char *const *)sb->writable_names, sb->n_writable_names,
                                    sb->git_config, err);
}

int cg_sandbox_copy(const struct cg_sandbox *sb, struct cg_sandbox **ret, struct cg_err *err)
{
        cg_auto_sandbox struct cg_sandbox *to = calloc(1, sizeof(*to));
        int r;

        if (!to)
                return cg_fail(err, CG_E_NOMEM, "sandbox");
        to->set = sb->set;
        set_filter(to, sb->filter_flags);
        r = copy_paths(to, sb, err);
        if (r < 0)
                return r;
        if (sb->cwd && !(to->cwd = strdup(sb->cwd)))
                return cg_fail(err, CG_E_NOMEM, "sandbox");
        if (sb->commands && (r = cg_sandbox_set_commands(to, (const char *const *)sb->environ, err)) < 0)
                return r;
        *ret = CG_STEAL(to);
        return 0;
}

void cg_sandbox_set_off(struct cg_sandbox *sb)
{
        sb->set.off = true;
}

int cg_sandbox_set_names(struct cg_sandbox *sb, const char *const *writable, size_t n, bool git_config,
                         struct cg_err *err)
{
        if (n > CG_NAMES_WRITABLE_MAX)
                return cg_fail(err, CG_E_LIMIT, "sandbox: more than %d names in cellgate.writableNames",
                               CG_NAMES_WRITABLE_MAX);
        free_names(sb);
        for (; sb->n_writable_names < n; sb->n_writable_names++) {
                if (cg_asprintf(&sb->writable_names[sb->n_writable_names], "sandbox: names", err, "%s",
                                writable[sb->n_writable_names]) < 0)
                        return -1;
        }
        sb->names = sb->set.report_denials = true;
        sb->git_config = git_config;
        set_filter(sb, sb->filter_flags | CG_FILTER_NAMES);
        return 0;
}

void cg_sandbox_set_watch(struct cg_sandbox *sb)
{
        sb->set.watch = true;
}

void cg_sandbox_set_watch_network(struct cg_sandbox *sb)
{
        sb->set.watch_network = true;
}

void cg_sandbox_free_in_init(struct cg_sandbox *sb, void (*fn)(void))
{
        sb->free_in_init = fn;
}

void cg_sandbox_report_stopped(struct cg_sandbox *sb)
{
        sb->set.report_stopped = true;
}

void cg_sandbox_report_denials(struct cg_sandbox *sb)
{
        sb->set.report_denials = true;
}

void cg_sandbox_set_exec(struct cg_sandbox *sb, enum cg_exec exec)
{
        sb->exec = exec;
        sb->set.report_denials |= exec != CG_EXEC_ALLOW;
}

int cg_sandbox_set_language(struct cg_sandbox *sb, const char *path, struct cg_err *err)
{
        free(sb->language);
        sb->language = strdup(path);
        return cg_made(sb->language, "sandbox", err);
}

bool cg_plan_traces(const struct cg_sandbox *sb)
{
        return sb->exec >= CG_EXEC_ASK || (sb->exec == CG_EXEC_DENY && sb->language);
}

void cg_sandbox_set_doors(struct cg_sandbox *sb, unsigned int doors)
{
        unsigned int filter = CG_FILTER_NESTED_USERS * sb->set.nested_users;

        /* With all unix sockets allowed nothing needs to be checked. */
        if (sb->set.all_unix)
                doors &= ~(unsigned int)CG_DOOR_UNIX;
        filter |= sb->set.all_unix ? CG_FILTER_UNIX_SOCKETS : 0;
        filter |= doors & CG_DOOR_UNIX ? CG_FILTER_ASKED_UNIX : 0;
        filter |= doors & CG_DOOR_LISTEN ? CG_FILTER_ASKED_LISTEN : 0;
        set_filter(sb, filter | (sb->names ? CG_FILTER_NAMES : 0));
        sb->set.doors = doors;
        sb->set.report_denials |= (doors & (CG_DOOR_UNIX | CG_DOOR_LISTEN)) != 0;
}

void cg_sandbox_set_limits(struct cg_sandbox *sb, const struct cg_sandbox_limits *limits)
{
        sb->set.limits = *limits;
        sb->set.processes_asked = limits->processes && limits->processes != CG_PLAN_NO_LIMIT;
        /*
         * Without a user namespace all processes of the user count: next to a desktop's hundreds of
         * threads nothing could start.
         */
        if (!sb->set.limits.processes)
                sb->set.limits.processes = sb->set.off ? CG_PLAN_NO_LIMIT : CG_PLAN_PROCESSES;
        if (!sb->set.limits.open_files)
                sb->set.limits.open_files = CG_PLAN_OPEN_FILES;
}

const char *cg_plan_tmpfs_size(uint64_t memory, const char *most, char buf[CG_PLAN_SIZE_TEXT])
{
        uint64_t quarter = memory / 4, bytes;
        char *unit;

        bytes = strtoull(most, &unit, 10);
        bytes <<= *unit == 'g' ? 30 : 20;
        if (!quarter || bytes <= quarter)
                return most;
        snprintf(buf, CG_PLAN_SIZE_TEXT, "%" PRIu64, quarter);
        return buf;
}

void cg_sandbox_set_cgroup_files(struct cg_sandbox *sb, const char *folder)
{
        sb->set.cgroup_files = folder;
}

/* RLIMIT_NPROC does not apply to root, and before Linux 6.14 a pid namespace has no pid_max. */
static bool is_unlimited_root(const struct cg_sandbox *sb)
{
        return !geteuid() && (!cg_plan_has_namespaces(sb) || !cg_plan_has_own_pid_max());
}

void cg_plan_group_limits(const struct cg_sandbox *sb, struct cg_sandbox_limits *ret)
{
        *ret = sb->set.limits;
        /* The default is enforced without a group, which costs a tenth of a sandbox's start. */
        if (ret->processes == CG_PLAN_NO_LIMIT || (!sb->set.processes_asked && !is_unlimited_root(sb)))
                ret->processes = 0;
}

void cg_plan_limits_by(const struct cg_sandbox *sb, enum cg_limit_by by[CG_LIMITS])
{
        static const enum cg_limit_by rest[CG_LIMITS] = {
                [CG_LIMIT_MEMORY] = CG_BY_RLIMIT,    [CG_LIMIT_CORES] = CG_BY_AFFINITY,
                [CG_LIMIT_PROCESSES] = CG_BY_RLIMIT, [CG_LIMIT_OPEN_FILES] = CG_BY_RLIMIT,
                [CG_LIMIT_FILE_SIZE] = CG_BY_RLIMIT, [CG_LIMIT_OUTPUT] = CG_BY_COUNT,
                [CG_LIMIT_CPU_TIME] = CG_BY_RLIMIT,  [CG_LIMIT_WALL_TIME] = CG_BY_TIMER,
        };

        for (enum cg_limit i = 0; i < CG_LIMITS; i++) {
                uint64_t v = cg_limit_get(&sb->set.limits, i);

                by[i] = v && v != CG_PLAN_NO_LIMIT ? rest[i] : CG_BY_NOTHING;
        }
        if (by[CG_LIMIT_PROCESSES] && is_unlimited_root(sb))
                by[CG_LIMIT_PROCESSES] = CG_BY_NOTHING;
        else if (by[CG_LIMIT_PROCESSES] && !geteuid())
                by[CG_LIMIT_PROCESSES] = CG_BY_PID_NS;
}

void cg_sandbox_limits_by(const struct cg_sandbox *sb, enum cg_limit_by by[CG_LIMITS])
{
        struct cg_sandbox_limits l;

        cg_plan_limits_by(sb, by);
        cg_plan_group_limits(sb, &l);
        cg_cgroup_probe(sb->set.cgroup_files, &l, by);
}

int cg_sandbox_add_port(struct cg_sandbox *sb, uint16_t port, struct cg_err *err)
{
        if (sb->set.n_ports == CG_SANDBOX_PORTS_MAX)
                return cg_fail(err, CG_E_LIMIT, "sandbox: more than %d ports", CG_SANDBOX_PORTS_MAX);
        sb->set.ports[sb->set.n_ports++] = port;
        return 0;
}

static int check_absolute(const char *what, const char *path, struct cg_err *err)
{
        if (!path || path[0] != '/')
                return cg_fail(err, CG_E_INVAL, "sandbox: %s \"%s\" is not an absolute path", what,
                               path ?: "");
        if (strlen(path) >= PATH_MAX)
                return cg_fail(err, CG_E_LIMIT, "sandbox: %s is longer than %d bytes", what, PATH_MAX);
        return 0;
}

/* /proc, /sys and /dev are always the sandbox's own; paths of the host's are rejected. */
static int check_not_pseudo_fs(const char *what, const char *path, struct cg_err *err)
{
        if (cg_path_within(path, "/proc") || cg_path_within(path, "/sys") || cg_path_within(path, "/dev"))
                return cg_fail(err, CG_E_INVAL, "sandbox: %s %s: /proc, /sys and /dev are the sandbox's own",
                               what, path);
        return 0;
}

static int resolve(const char *what, const char *path, char real[PATH_MAX], struct cg_err *err)
{
        int r = check_absolute(what, path, err);

        if (r < 0)
                return r;
        if (!realpath(path, real))
                return cg_fail_errno(err, "sandbox: %s %s", what, path);
        return 0;
}

int cg_sandbox_add_write(struct cg_sandbox *sb, const char *path, struct cg_err *err)
{
        char real[PATH_MAX];
        struct cg_plan_mount m = { .kind = CG_PLAN_WRITE, .path = real, .src = real };
        int r;

        if ((r = resolve("write root", path, real, err)) < 0 ||
            (r = check_not_pseudo_fs("write root", real, err)) < 0)
                return r;
        if (!real[1])
                sb->set.root_writable = true;
        return cg_plan_insert(sb, &m, err);
}

int cg_sandbox_add_bind_ro(struct cg_sandbox *sb, const char *src, const char *dst, struct cg_err *err)
{
        char real[PATH_MAX];
        struct cg_plan_mount m = { .kind = CG_PLAN_BIND_RO, .path = (char *)dst, .src = real };

        size_t n;
        int r;

        if ((r = resolve("read-only source", src, real, err)) < 0 ||
            (r = check_absolute("destination", dst, err)) < 0)
                return r;
        /*
         * A destination must be in normal form. It is not resolved, since a symlink in a folder
         * that anybody may write (/tmp) could lead elsewhere.
         */
        n = strlen(dst);
        if (n < 2 || dst[n - 1] == '/' || strstr(dst, "//") || strstr(dst, "/./") || strstr(dst, "/../") ||
            strcmp(dst + n - 2, "/.") == 0 || (n >= 3 && strcmp(dst + n - 3, "/..") == 0))
                return cg_fail(err, CG_E_INVAL, "sandbox: destination %s has an empty, \".\" or \"..\" part",
                               dst);
        r = check_not_pseudo_fs("destination", dst, err);
        return r ?: cg_plan_insert(sb, &m, err);
}

bool cg_plan_closed_folder(const char *path, char ret[PATH_MAX])
{
        struct stat st;

        snprintf(ret, PATH_MAX, "%s", path);
        while (lstat(ret, &st) < 0) {
                char *slash = strrchr(ret, '/');

                if (errno != EACCES || !slash || slash == ret)
                        return false;
                *slash = '\0';
        }
        return strcmp(ret, path) == 0 || (S_ISDIR(st.st_mode) && st.st_uid == geteuid());
}

int cg_plan_add_hide(struct cg_sandbox *sb, const char *path, const char *why, struct cg_err *err)
{
        char real[PATH_MAX];
        struct cg_plan_mount m = { .kind = CG_PLAN_COVER, .path = real, .why = (char *)why };
        int r = check_absolute("hidden path", path, err);

        if (r < 0)
                return r;
        if (!cg_real_path(path, real)) {
                if (errno == EACCES && cg_plan_closed_folder(path, real) && strcmp(real, path) != 0)
                        return cg_plan_add_hide(sb, real, why, err);
                /* The sandbox cannot access what the caller cannot: same user, fewer rights. */
                if (errno == ENOENT || errno == ENOTDIR || errno == EACCES)
                        return 0;
                return cg_fail_errno(err, "sandbox: hidden path %s", path);
        }
        if (!real[1])
                return cg_fail(err, CG_E_INVAL, "sandbox: \"/\" cannot be hidden");
        return cg_plan_insert(sb, &m, err);
}

int cg_sandbox_add_hide(struct cg_sandbox *sb, const char *path, struct cg_err *err)
{
        return cg_plan_add_hide(sb, path, NULL, err);
}

int cg_sandbox_set_cwd(struct cg_sandbox *sb, const char *path, struct cg_err *err)
{
        int r = check_absolute("working directory", path, err);
        char *copy;

        if (r < 0)
                return r;
        if (cg_asprintf(&copy, "sandbox: working directory", err, "%s", path) < 0)
                return -1;
        free(sb->cwd);
        sb->cwd = copy;
        return 0;
}

static bool can_write(const struct cg_sandbox *sb, const char *path)
{
        const struct cg_plan_mount *m = cg_plan_mount_at(sb, path);

        if (m)
                return m->kind == CG_PLAN_WRITE || m->kind == CG_PLAN_TMPFS || m->kind == CG_PLAN_DEV;
        return sb->set.root_writable;
}

bool cg_sandbox_has_own_tmp(const struct cg_sandbox *sb)
{
        const struct cg_plan_mount *m = cg_plan_mount_at(sb, "/tmp");

        return m && m->kind == CG_PLAN_TMPFS;
}

bool cg_plan_is_writable(const struct cg_sandbox *sb, const char *path)
{
        const struct cg_plan_mount *m = cg_plan_mount_at(sb, path);
        char above[PATH_MAX], *slash;

        if (!m || can_write(sb, path))
                return m || sb->set.root_writable;
        /* A mount itself cannot be renamed, but a folder that it is in can. */
        snprintf(above, sizeof(above), "%s", m->path);
        while ((slash = strrchr(above, '/')) && slash > above) {
                bool mounted = false;

                *slash = '\0';
                for (size_t i = 0; i < sb->n_mounts && !mounted; i++)
                        mounted = sb->mounts[i].kind != CG_PLAN_COVER &&
                                  strcmp(sb->mounts[i].path, above) == 0;
                if (!mounted && can_write(sb, above))
                        return true;
        }
        return false;
}
