/* Control groups: making, entering, reading and removing one. See cgroup.h. */
#include "sandbox/cgroup_int.h"

#include <sys/file.h>
#include <sys/random.h>

#include "base/fd.h"
#include "base/proc.h"

#define PREFIX "cellgate-box-"
/* Another process that removes old groups may hold a new folder's lock for a moment. */
#define NAME_TRIES 8
/* Milliseconds. */
#define REMOVE_TRIES 20
/* The period of processor time quotas in microseconds: the kernel's default. */
#define PERIOD_US 100000

struct group {
        int version;
        unsigned int has;
        char *path;
        int dir;   /* locked */
        int tasks; /* version 1: until the child has joined; else -1 */
};

struct cg_cgroup {
        size_t n;
        struct group v[CG_CGROUP_PLACES];
        char *files[3]; /* memory, processes, cpu: see cg_cgroup_paths() */
};

static unsigned int wanted(const struct cg_sandbox_limits *l)
{
        unsigned int all = 0;

        if (l->memory_bytes)
                all |= CG_CGROUP_MEMORY;
        if (l->processes)
                all |= CG_CGROUP_PIDS;
        if (l->cores_milli)
                all |= CG_CGROUP_CPU;
        if (l->cpu_seconds)
                all |= CG_CGROUP_USAGE;
        return all;
}

static void note_by(unsigned int has, int version, enum cg_limit_by by[CG_LIMITS])
{
        static const enum cg_limit limits[] = { CG_LIMIT_MEMORY, CG_LIMIT_PROCESSES, CG_LIMIT_CORES,
                                                CG_LIMIT_CPU_TIME };

        for (size_t i = 0; i < CG_ARRAY_LEN(limits); i++)
                if (has & 1u << i)
                        by[limits[i]] = version == 2 ? CG_BY_CGROUP2 : CG_BY_CGROUP1;
}

void cg_cgroup_probe(const char *files, const struct cg_sandbox_limits *l, enum cg_limit_by by[CG_LIMITS])
{
        struct cg_cgroup_places places;

        if (!wanted(l))
                return;
        cg_cgroup_find(files, wanted(l), &places);
        for (size_t i = 0; i < places.n; i++)
                note_by(places.v[i].has, places.v[i].version, by);
}

/* ------------------------------------------------------------------ making */

static bool make_folder(const char *parent, struct group *g)
{
        for (int i = 0; i < NAME_TRIES; i++) {
                unsigned int number[2];

                if (getrandom(number, sizeof(number), 0) != sizeof(number) ||
                    asprintf(&g->path, "%s/" PREFIX "%08x%08x", parent, number[0], number[1]) < 0) {
                        g->path = NULL;
                        return false;
                }
                if (mkdir(g->path, 0755) == 0) {
                        cg_auto_fd int fd = open(g->path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
                        struct stat ours, named;

                        /* Another process may have removed the folder before it was locked. */
                        if (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0 && fstat(fd, &ours) == 0 &&
                            stat(g->path, &named) == 0 && ours.st_ino == named.st_ino) {
                                g->dir = cg_steal_fd(&fd);
                                return true;
                        }
                        rmdir(g->path);
                }
                free(CG_STEAL(g->path));
                if (errno == EACCES || errno == EROFS || errno == EPERM || errno == ENOSPC)
                        return false;
        }
        return false;
}

static bool set(const struct group *g, const char *file, const char *text)
{
        cg_auto_fd int fd = openat(g->dir, file, O_WRONLY | O_CLOEXEC);

        return fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);
}

static bool set_number(const struct group *g, const char *file, uint64_t n)
{
        char text[24];

        snprintf(text, sizeof(text), "%llu", (unsigned long long)n);
        return set(g, file, text);
}

static bool is_absent(const struct group *g, const char *file)
{
        return faccessat(g->dir, file, F_OK, 0) < 0 && errno == ENOENT;
}

/* Limits that cannot be set are left to other mechanisms. */
static void set_all(struct group *g, const struct cg_sandbox_limits *l)
{
        unsigned long long quota = l->cores_milli * (PERIOD_US / 1000);
        bool v2 = g->version == 2, ok;
        char text[64];

        if (g->has & CG_CGROUP_MEMORY) {
                /* Memory and swap together. If the kernel does not count swap, it has no limit. */
                if (v2)
                        ok = set_number(g, "memory.max", l->memory_bytes) &&
                             (is_absent(g, "memory.swap.max") || set(g, "memory.swap.max", "0"));
                else
                        ok = set_number(g, "memory.limit_in_bytes", l->memory_bytes) &&
                             (is_absent(g, "memory.memsw.limit_in_bytes") ||
                              set_number(g, "memory.memsw.limit_in_bytes", l->memory_bytes));
                g->has &= ok ? ~0U : ~(unsigned int)CG_CGROUP_MEMORY;
        }
        if ((g->has & CG_CGROUP_PIDS) && !set_number(g, "pids.max", l->processes))
                g->has &= ~(unsigned int)CG_CGROUP_PIDS;
        if (g->has & CG_CGROUP_CPU) {
                snprintf(text, sizeof(text), "%llu %d", quota, PERIOD_US);
                ok = v2 ? set(g, "cpu.max", text)
                        : set_number(g, "cpu.cfs_period_us", PERIOD_US) &&
                                     set_number(g, "cpu.cfs_quota_us", quota);
                g->has &= ok ? ~0U : ~(unsigned int)CG_CGROUP_CPU;
        }
        if (g->version == 1 && g->has) {
                g->tasks = openat(g->dir, "tasks", O_WRONLY | O_CLOEXEC);
                if (g->tasks < 0)
                        g->has = 0;
        }
}

/*
 * A process that has ended and been reaped may count for a moment longer; version 1 has no event to
 * wait for. Running processes (of a plan that is off) keep the group, until cg_cgroup_tidy().
 */
static void remove_folder(int parent, const char *name)
{
        for (int i = 0; i < REMOVE_TRIES && unlinkat(parent, name, AT_REMOVEDIR) < 0 && errno == EBUSY; i++)
                cg_pause_ms(1);
}

static void group_fini(struct group *g)
{
        if (g->path)
                remove_folder(AT_FDCWD, g->path); /* before the lock is released */
        cg_closep_(&g->tasks);
        cg_closep_(&g->dir);
        free(g->path);
        *g = (struct group){ .dir = -1, .tasks = -1 };
}

static int add_file(struct cg_cgroup *c, size_t which, const struct group *g, const char *name,
                    struct cg_err *err)
{
        return cg_asprintf(&c->files[which], "sandbox: control group", err, "%s/%s", g->path, name);
}

static int add_files(struct cg_cgroup *c, const struct group *g, struct cg_err *err)
{
        const struct {
                unsigned int controller;
                const char *file;
        } files[] = { { CG_CGROUP_MEMORY, g->version == 2 ? "memory.events" : "memory.oom_control" },
                      { CG_CGROUP_PIDS, "pids.events" },
                      { CG_CGROUP_USAGE, g->version == 2 ? "cpu.stat" : "cpuacct.usage" } };
        int r;

        for (size_t i = 0; i < CG_ARRAY_LEN(files); i++)
                if ((g->has & files[i].controller) && (r = add_file(c, i, g, files[i].file, err)) < 0)
                        return r;
        return 0;
}

int cg_cgroup_new(const char *files, const struct cg_sandbox_limits *l, enum cg_limit_by by[CG_LIMITS],
                  struct cg_cgroup **ret, struct cg_err *err)
{
        struct cg_cgroup_places places = { .n = 0 };
        struct cg_cgroup *c;
        int r = 0;

        *ret = NULL;
        if (wanted(l))
                cg_cgroup_find(files, wanted(l), &places);
        if (!places.n)
                return 0;
        c = calloc(1, sizeof(*c));
        if (!c)
                return cg_fail(err, CG_E_NOMEM, "sandbox: control group");
        for (size_t i = 0; i < places.n && r == 0; i++) {
                struct group *g = &c->v[c->n];

                *g = (struct group){
                        .version = places.v[i].version, .has = places.v[i].has, .dir = -1, .tasks = -1
                };
                if (!cg_cgroup_prepare(&places.v[i]) || !make_folder(places.v[i].path, g))
                        continue;
                set_all(g, l);
                if (!g->has) {
                        group_fini(g);
                        continue;
                }
                c->n++;
                note_by(g->has, g->version, by);
                r = add_files(c, g, err);
        }
        if (r < 0 || !c->n)
                c = cg_cgroup_free(c);
        *ret = c;
        return r;
}

/* ------------------------------------------------------------------ going in */

int cg_cgroup_clone_fd(const struct cg_cgroup *c)
{
        for (size_t i = 0; c && i < c->n; i++)
                if (c->v[i].version == 2)
                        return c->v[i].dir;
        return -1;
}

/*
 * A thread moves itself ("tasks", "0") without delay; to move a process from outside
 * ("cgroup.procs") waits for an RCU grace period, some 10 ms.
 */
int cg_cgroup_join(const struct cg_cgroup *c, bool cloned_into, struct cg_err *err)
{
        for (size_t i = 0; i < c->n; i++) {
                if (c->v[i].version == 2 && !cloned_into) {
                        cg_auto_fd int procs = openat(c->v[i].dir, "cgroup.procs", O_WRONLY | O_CLOEXEC);

                        if (procs < 0 || write(procs, "0", 1) != 1)
                                return cg_fail_errno(err, "sandbox: entering control group %s", c->v[i].path);
                }
                if (c->v[i].version == 1 && write(c->v[i].tasks, "0", 1) != 1)
                        return cg_fail_errno(err, "sandbox: entering control group %s", c->v[i].path);
        }
        return 0;
}

void cg_cgroup_joined(struct cg_cgroup *c)
{
        for (size_t i = 0; c && i < c->n; i++)
                cg_closep_(&c->v[i].tasks);
}

/* ------------------------------------------------------------------ reading */

/* The number after @key and a space; without @key the first in the file. */
static uint64_t read_count(const char *path, const char *key)
{
        char text[2048];
        const char *p = text;

        if (!path || !cg_proc_read_text(path, text, sizeof(text)))
                return 0;
        for (; key && p && (strncmp(p, key, strlen(key)) != 0 || p[strlen(key)] != ' '); p = p ? p + 1 : NULL)
                p = strchr(p, '\n');
        return p ? strtoull(p + cg_strlen(key), NULL, 10) : 0;
}

/* A version 1 group whose maximum usage is this close to its limit has reached it. */
#define NEAR_LIMIT (UINT64_C(1) << 20)

static uint64_t read_beside(const char *events, const char *name)
{
        char path[PATH_MAX];
        int n = snprintf(path, sizeof(path), "%.*s/%s", (int)(strrchr(events, '/') - events), events, name);

        return n < (int)sizeof(path) ? read_count(path, NULL) : 0;
}

static bool came_near(const char *events, const char *most, const char *limit)
{
        uint64_t bytes = read_beside(events, limit);

        return bytes && read_beside(events, most) + NEAR_LIMIT >= bytes;
}

void cg_cgroup_read(const struct cg_cgroup_files *f, struct cg_limit_counts *ret)
{
        uint64_t killed = read_count(f->memory, "oom_kill"), own = 0;
        const char *slash = killed ? strrchr(f->memory, '/') : NULL;
        size_t n = cg_strlen(f->cpu);
        bool v2 = n > 9 && strcmp(f->cpu + n - 9, "/cpu.stat") == 0;

        /*
         * The group's count includes those killed by limits of parent groups and of the machine.
         * Version 1 has no count of its own limit, only the maximum usage.
         */
        if (killed && (!slash || strcmp(slash, "/memory.oom_control") != 0))
                own = read_count(f->memory, "oom");
        else if (killed &&
                 (came_near(f->memory, "memory.max_usage_in_bytes", "memory.limit_in_bytes") ||
                  came_near(f->memory, "memory.memsw.max_usage_in_bytes", "memory.memsw.limit_in_bytes")))
                own = killed;
        ret->oom_kills = CG_MIN(own, killed);
        ret->outer_kills = killed - ret->oom_kills;
        ret->forks_denied = read_count(f->processes, "max");
        ret->cpu_ms = v2 ? read_count(f->cpu, "usage_usec") / 1000 : read_count(f->cpu, NULL) / 1000000;
}

void cg_cgroup_paths(const struct cg_cgroup *c, struct cg_cgroup_files *ret)
{
        *ret = (struct cg_cgroup_files){ .memory = c->files[0],
                                         .processes = c->files[1],
                                         .cpu = c->files[2] };
}

void cg_cgroup_counts(const struct cg_cgroup *c, struct cg_limit_counts *ret)
{
        struct cg_cgroup_files f;

        cg_cgroup_paths(c, &f);
        cg_cgroup_read(&f, ret);
}

/* ------------------------------------------------------------------ removing */

struct cg_cgroup *cg_cgroup_free(struct cg_cgroup *c)
{
        if (!c)
                return NULL;
        for (size_t i = 0; i < c->n; i++)
                group_fini(&c->v[i]);
        for (size_t i = 0; i < CG_ARRAY_LEN(c->files); i++)
                free(c->files[i]);
        free(c);
        return NULL;
}

void cg_cgroup_tidy(const char *files)
{
        struct cg_cgroup_places places;

        cg_cgroup_find(files, CG_CGROUP_ALL, &places);
        for (size_t i = 0; i < places.n; i++) {
                cg_auto_dir DIR *d = opendir(places.v[i].path);
                const struct dirent *e;

                while (d && (e = readdir(d))) {
                        cg_auto_fd int fd = -1;

                        if (strncmp(e->d_name, PREFIX, strlen(PREFIX)) != 0)
                                continue;
                        fd = openat(dirfd(d), e->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
                        if (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0)
                                remove_folder(dirfd(d), e->d_name);
                }
        }
}
