/* Counters of the OOM killer, and memory in use. See oom.h. Runs in cellgate-supervisor. */
#include "supervisor/limits/oom.h"

#include <linux/magic.h>
#include <sys/statfs.h>
#include "base/fd.h"
#include "base/slice.h"

#define MAX_FILE ((size_t)256 << 10)

/* ------------------------------------------------------------------ where the group is */

/* The group's path by /proc/PID/cgroup: "4:memory:/a/b" (version 1), else "0::/a/b". */
static bool group_path(const char *cgroup, char *path, size_t size, int *version)
{
        *version = 0;
        for (const char *line = cgroup; *line; line += *line == '\n') {
                size_t len = strcspn(line, "\n");
                const char *list = memchr(line, ':', len),
                           *where = list ? memchr(list + 1, ':', len - (size_t)(list + 1 - line)) : NULL;
                size_t n = where ? len - (size_t)(where + 1 - line) : 0;
                bool v1 = where &&
                          cg_slice_has_word((struct cg_slice){ list + 1, (size_t)(where - list - 1) }, ',',
                                            "memory");

                if (n && n < size && where[1] == '/' && (v1 || (*version == 0 && where == list + 1))) {
                        memcpy(path, where + 1, n);
                        path[n] = '\0';
                        *version = v1 ? 1 : 2;
                }
                if (v1)
                        return true;
                line += len;
        }
        return *version != 0;
}

/*
 * Mount point of the hierarchy by a line of mountinfo: "36 35 98:0 ROOT POINT rw,noatime shared:1 -
 * cgroup cgroup rw,memory".
 */
static bool hierarchy(const char *line, size_t len, int version, char root[256], char point[256])
{
        char copy[1024], type[32], options[256], *dash;

        if (len >= sizeof(copy))
                return false;
        memcpy(copy, line, len);
        copy[len] = '\0';
        dash = strstr(copy, " - ");
        if (!dash || sscanf(copy, "%*s %*s %*s %255s %255s", root, point) != 2 ||
            sscanf(dash + 3, "%31s %*s %255s", type, options) != 2)
                return false;
        if (version == 2)
                return strcmp(type, "cgroup2") == 0;
        return strcmp(type, "cgroup") == 0 && cg_slice_has_word(cg_slice_of(options), ',', "memory");
}

int cg_oom_find(const char *mountinfo, const char *cgroup, char *dir, size_t size, int *version)
{
        char path[256], root[256], point[256];

        if (!group_path(cgroup, path, sizeof(path), version))
                return -1;
        for (const char *line = mountinfo; *line; line += *line == '\n') {
                size_t len = strcspn(line, "\n"), n;

                if (hierarchy(line, len, *version, root, point)) {
                        const char *below = path;

                        n = strlen(root);
                        /*
                         * In a container the mount may show a part of the tree only, and the path
                         * may begin at that part or at the top.
                         */
                        if (strcmp(root, "/") != 0 && strncmp(path, root, n) == 0 &&
                            (path[n] == '/' || !path[n]))
                                below = path + n;
                        n = (size_t)snprintf(dir, size, "%s%s", point, strcmp(below, "/") == 0 ? "" : below);
                        return n < size ? 0 : -1;
                }
                line += len;
        }
        return -1;
}

/* ------------------------------------------------------------------ counters */

static int64_t counter(const char *file, const char *name)
{
        cg_auto_free char *text = NULL;
        size_t len;

        return cg_read_file(file, MAX_FILE, &text, &len, NULL) < 0 ? -1 : cg_number_after(text, name);
}

void cg_oom_mark(pid_t pid, struct cg_oom *ret)
{
        cg_auto_free char *mountinfo = NULL, *cgroup = NULL;
        char file[64], dir[400] = "";
        size_t len;
        int version = 0;

        *ret = (struct cg_oom){ .group = -1 };
        ret->machine = counter("/proc/vmstat", "oom_kill ");
        snprintf(file, sizeof(file), "/proc/%d/cgroup", (int)pid);
        if (pid <= 0 || cg_read_file(file, MAX_FILE, &cgroup, &len, NULL) < 0 ||
            cg_read_file("/proc/self/mountinfo", (size_t)1 << 20, &mountinfo, &len, NULL) < 0 ||
            cg_oom_find(mountinfo, cgroup, dir, sizeof(dir), &version) < 0)
                return;
        snprintf(ret->file, sizeof(ret->file), "%s/%s", dir,
                 version == 1 ? "memory.oom_control" : "memory.events");
        snprintf(ret->limit, sizeof(ret->limit), "%s/%s", dir,
                 version == 1 ? "memory.limit_in_bytes" : "memory.max");
        ret->group = counter(ret->file, "oom_kill ");
}

/* "max", and version 1's nearly 2^63, are no limits. */
static uint64_t limit_of(const char *file)
{
        cg_auto_free char *text = NULL;
        uint64_t n;
        size_t len;

        if (cg_read_file(file, 64, &text, &len, NULL) < 0)
                return 0;
        n = strtoull(text, NULL, 10);
        return n < UINT64_C(1) << 60 ? n : 0;
}

/* A number of KiB in bytes; -1, which is not known, as 0. */
static uint64_t bytes_of(int64_t kib)
{
        return kib > 0 ? (uint64_t)kib << 10 : 0;
}

static uint64_t meminfo(const char *name)
{
        return bytes_of(counter("/proc/meminfo", name));
}

uint64_t cg_oom_room(void)
{
        struct cg_oom own;
        uint64_t room = meminfo("MemTotal:"), limit;
        const char *name;
        char *slash;

        cg_oom_mark(getpid(), &own);
        slash = strrchr(own.limit, '/');
        if (!slash)
                return room;
        name = strdupa(slash);
        while (slash && slash > own.limit) {
                limit = limit_of(own.limit);
                if (limit && (!room || limit < room))
                        room = limit;
                *slash = '\0';
                slash = strrchr(own.limit, '/');
                if (slash)
                        snprintf(slash, sizeof(own.limit) - (size_t)(slash - own.limit), "%s", name);
        }
        return room;
}

/*
 * One RESERVE_SHARE-th of the memory is kept for other programs; with less, the machine begins to
 * drop and read again the pages of programs.
 */
#define RESERVE_SHARE 32
/* More than processes can fill: the operating system clears each page first. */
#define BYTES_PER_MS (UINT64_C(8) << 20)
#define CHECK_MIN_MS 50
#define CHECK_MAX_MS 2000
/* Processes of a sandbox that are counted: more than its default limit allows. */
#define PROCESSES_MAX 4096
/* Descriptors of all processes of a sandbox that are counted. */
#define DESCRIPTORS_MAX 65536
#define MEMFDS_MAX      4096

void cg_oom_left(uint64_t *available, uint64_t *reserve)
{
        *available = meminfo("MemAvailable:");
        *reserve = meminfo("MemTotal:") / RESERVE_SHARE;
}

uint64_t cg_oom_next_check_ms(uint64_t available, uint64_t reserve)
{
        uint64_t ms = available > reserve ? (available - reserve) / BYTES_PER_MS : 0;

        if (ms < CHECK_MIN_MS)
                return CHECK_MIN_MS;
        return CG_MIN(ms, CHECK_MAX_MS);
}

/* Memory of a sandbox: of its processes, and of files in memory, mapped by any or not. */
struct use {
        uint64_t anon, shmem, held;
        size_t descriptors; /* examined so far */
        ino_t seen[MEMFDS_MAX];
        size_t n_seen;
};

/* Adds the files in memory that @pid has open. */
static void add_memfds(struct use *u, pid_t pid)
{
        char path[64], link[16];
        const struct dirent *e;
        struct stat st;
        cg_auto_dir DIR *dir = NULL;

        snprintf(path, sizeof(path), "/proc/%d/fd", (int)pid);
        dir = opendir(path);
        while (dir && u->descriptors < DESCRIPTORS_MAX && (e = readdir(dir))) {
                size_t i = 0;

                u->descriptors++;
                if (readlinkat(dirfd(dir), e->d_name, link, sizeof(link)) < 7 ||
                    memcmp(link, "/memfd:", 7) != 0 || fstatat(dirfd(dir), e->d_name, &st, 0) < 0)
                        continue;
                while (i < u->n_seen && u->seen[i] != st.st_ino)
                        i++;
                if (i < u->n_seen || i == MEMFDS_MAX)
                        continue;
                u->seen[u->n_seen++] = st.st_ino;
                u->held += (uint64_t)st.st_blocks * 512;
        }
}

/* Adds the files in private folders of @pid that are in memory, not those of the machine. */
static void add_places(struct use *u, pid_t pid)
{
        static const char *const places[] = { "/tmp", "/var/tmp", "/dev/shm", "/run" };

        for (size_t i = 0; i < CG_ARRAY_LEN(places); i++) {
                char path[64];
                struct statfs fs;
                struct stat its, ours;
                cg_auto_fd int fd = -1;

                snprintf(path, sizeof(path), "/proc/%d/root%s", (int)pid, places[i]);
                fd = open(path, O_PATH | O_NOFOLLOW | O_CLOEXEC);
                if (fd >= 0 && fstat(fd, &its) == 0 && fstatfs(fd, &fs) == 0 && fs.f_type == TMPFS_MAGIC &&
                    fs.f_blocks > fs.f_bfree && (stat(places[i], &ours) < 0 || ours.st_dev != its.st_dev))
                        u->held += (uint64_t)(fs.f_blocks - fs.f_bfree) * (uint64_t)fs.f_bsize;
        }
}

/* Appends the children of each of @pid's threads. */
static void add_children(pid_t pid, pid_t *list, size_t *n)
{
        char path[64], file[400];
        const struct dirent *e;
        cg_auto_dir DIR *dir = NULL;

        snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
        dir = opendir(path);
        while (dir && (e = readdir(dir))) {
                cg_auto_free char *text = NULL;
                char *at, *end;
                size_t len;

                snprintf(file, sizeof(file), "%s/%s/children", path, e->d_name);
                if (e->d_name[0] == '.' || cg_read_file(file, MAX_FILE, &text, &len, NULL) < 0)
                        continue;
                for (at = text; *n < PROCESSES_MAX; at = end) {
                        long child = strtol(at, &end, 10);

                        if (end == at)
                                break;
                        list[(*n)++] = (pid_t)child;
                }
        }
}

/* Adds the memory of @pid; @share: of pages that processes share, only its share. */
static void add_process(struct use *u, pid_t pid, bool share)
{
        /* Only the first file may be unreadable: it needs the right to trace the process. */
        static const struct {
                const char *file, *anon, *shmem;
        } kinds[] = { { "smaps_rollup", "Pss_Anon:", "Pss_Shmem:" }, { "status", "RssAnon:", "RssShmem:" } };

        for (size_t i = !share; i < CG_ARRAY_LEN(kinds); i++) {
                cg_auto_free char *text = NULL;
                char file[64];
                size_t len;

                snprintf(file, sizeof(file), "/proc/%d/%s", (int)pid, kinds[i].file);
                if (cg_read_file(file, MAX_FILE, &text, &len, NULL) < 0 ||
                    cg_number_after(text, kinds[i].anon) < 0)
                        continue;
                u->anon += bytes_of(cg_number_after(text, kinds[i].anon));
                u->shmem += bytes_of(cg_number_after(text, kinds[i].shmem));
                return;
        }
}

static uint64_t use_of(pid_t pid, bool share)
{
        cg_auto_free pid_t *list = calloc(PROCESSES_MAX, sizeof(*list));
        cg_auto_free struct use *u = calloc(1, sizeof(*u));
        size_t n = 0;

        if (!list || !u || pid <= 0)
                return 0;
        list[n++] = pid;
        add_places(u, pid);
        for (size_t i = 0; i < n; i++) {
                add_process(u, list[i], share);
                add_memfds(u, list[i]);
                add_children(list[i], list, &n);
        }
        /* Mapped shared memory is part of u->held, or anonymous. */
        return u->anon + CG_MAX(u->shmem, u->held);
}

uint64_t cg_oom_use(pid_t pid)
{
        return use_of(pid, false);
}

uint64_t cg_oom_share(pid_t pid)
{
        return use_of(pid, true);
}

enum cg_oom_verdict cg_oom_since(const struct cg_oom *o, uint64_t *limit_bytes)
{
        int64_t machine = counter("/proc/vmstat", "oom_kill "),
                group = o->group < 0 ? -1 : counter(o->file, "oom_kill ");

        *limit_bytes = 0;
        if (group > o->group) {
                *limit_bytes = limit_of(o->limit);
                return CG_OOM_GROUP;
        }
        if (o->machine >= 0 && machine > o->machine)
                /* The group's counter would have risen as well, if it could still be read. */
                return group < 0 ? CG_OOM_MACHINE : CG_OOM_NO;
        return group >= 0 || (o->machine >= 0 && machine >= 0) ? CG_OOM_NO : CG_OOM_UNKNOWN;
}
