/* See mediate.h. Runs in init: no Landlock, no filter, the caller's own user without capabilities but for reading its memory. */
#include "sandbox/mediate.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/fs.h>
#include <linux/magic.h>
#include <linux/openat2.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/util.h"
#include "sandbox/access.h"
#include "sandbox/names.h"
#include "sandbox/notify.h"
#include "sandbox/setid.h"

#define LINKS_MAX 40
/* Entries below a folder that is renamed, which are looked at for protected names: beyond them it has to be copied. */
#define SCAN_ENTRIES 50000
#define SCAN_DEPTH 64
/* How often an opener of a FIFO looks whether its caller still waits: nothing tells. */
#define HELPER_LOOK_US 200000

/* What handlers return beside a result and -errno. */
#define GO_ON (-100000)
#define ANSWERED (-100001)
#define DENIED (-100002)

struct call {
        struct cg_mediator *m;
        struct cg_notify *n;
        const struct seccomp_notif *c;
        const uint64_t *a; /* arguments */
        pid_t tid;
        const char *setting; /* of a denial: NULL where it is for a name */
        char path[PATH_MAX];
};

/* ---- the plan */

bool cg_mediates(const struct cg_sandbox *sb)
{
        char self[32];
        ssize_t n;

        if (!sb->names || sb->off || sb->grants)
                return false;
        if (!sb->weak_proc)
                return true;
        /* Another pid namespace's /proc does not know the callers by their numbers. */
        n = readlink("/proc/self", self, sizeof(self) - 1);
        self[n > 0 ? n : 0] = '\0';
        return n > 0 && atoi(self) == (int)getpid();
}

bool cg_mediate_holds_root(const struct cg_sandbox *sb, const char *path)
{
        for (size_t i = 0; i < sb->n_mounts; i++) {
                if (sb->mounts[i].kind == CG_PLAN_WRITE && strcmp(sb->mounts[i].path, path) != 0 &&
                    cg_plan_within(sb->mounts[i].path, path))
                        return true;
        }
        return false;
}

enum cg_region cg_mediate_region(const struct cg_sandbox *sb, const char *path, size_t *len)
{
        const struct cg_plan_mount *best = NULL;

        for (size_t i = 0; i < sb->n_mounts; i++) {
                const struct cg_plan_mount *m = &sb->mounts[i];

                /* Those that come later lie deeper, or on top. */
                if (m->kind != CG_PLAN_PIN && cg_plan_within(path, m->path))
                        best = m;
        }
        *len = 0;
        if (!best)
                return sb->root_writable ? CG_REGION_ROOT : CG_REGION_NATIVE;
        if (best->kind == CG_PLAN_TMPFS)
                return cg_mediate_holds_root(sb, best->path) ? CG_REGION_OWN : CG_REGION_NATIVE;
        /* A path that must not be made is no mount; what it lies in counts. */
        if (best->kind == CG_PLAN_READ && cg_plan_is_absent(sb, best->path)) {
                char parent[PATH_MAX];
                const char *slash = strrchr(best->path, '/');

                snprintf(parent, sizeof(parent), "%.*s", slash > best->path ? (int)(slash - best->path) : 1, best->path);
                return cg_mediate_region(sb, parent, len);
        }
        if (best->kind != CG_PLAN_WRITE)
                return CG_REGION_NATIVE;
        *len = best->path[1] ? strlen(best->path) : 0;
        return CG_REGION_ROOT;
}

static bool is_given_back(const struct cg_sandbox *sb, const char *path, size_t root)
{
        for (size_t i = 0; i < sb->n_writable_names; i++) {
                if (cg_names_match(sb->writable_names[i], path, root))
                        return true;
        }
        return false;
}

/* A path that settings deny, or a folder on the way to one where @leads. */
static const char *absent_rule(const struct cg_sandbox *sb, const char *path, bool leads, const char **setting)
{
        for (size_t i = 0; i < sb->n_placeholders; i++) {
                const struct cg_plan_placeholder *p = &sb->placeholders[i];

                if (p->mount_point || (!cg_plan_within(path, p->path) && !(leads && cg_plan_within(p->path, path))))
                        continue;
                *setting = NULL;
                for (size_t k = 0; k < sb->n_mounts; k++) {
                        if (sb->mounts[k].kind == CG_PLAN_READ && !strcmp(sb->mounts[k].path, p->path))
                                *setting = sb->mounts[k].why;
                }
                return p->path;
        }
        return NULL;
}

const char *cg_mediate_why(const struct cg_sandbox *sb, const char *path, const char **setting)
{
        enum cg_git_part part;
        const char *rule;
        size_t root;

        *setting = NULL;
        if (!sb->names || cg_mediate_region(sb, path, &root) != CG_REGION_ROOT)
                return NULL;
        rule = absent_rule(sb, path, false, setting);
        if (rule || is_given_back(sb, path, root))
                return rule;
        rule = cg_names_find(path, root, CG_NAME_WRITE);
        if (!rule)
                rule = cg_names_leads(path, root);
        part = rule ? CG_GIT_FREE : cg_git_part(path, root);
        if (part == CG_GIT_CONFIG && sb->git_config)
                return NULL;
        return rule ? rule : part == CG_GIT_FREE || part == CG_GIT_SAMPLE ? NULL : part == CG_GIT_SELF ? ".git" : ".git/*";
}

/* ---- the caller: its memory, its descriptors */

static bool still_waits(const struct call *c)
{
        uint64_t id = c->c->id;

        return ioctl(c->n->listener, SECCOMP_IOCTL_NOTIF_ID_VALID, &id) == 0;
}

/* A text of the caller's, NUL included, read once. False: it is none, or too long: then the call fails by itself. */
static bool read_text(const struct call *c, uint64_t at, char text[PATH_MAX])
{
        static const size_t page = 4096;
        size_t len = 0;

        while (len < PATH_MAX) {
                /* Not over the end of a page: the next may not be there. */
                size_t room = page - (size_t)((at + len) % page), want = room < PATH_MAX - len ? room : PATH_MAX - len;
                struct iovec mine = {text + len, want}, its = {(void *)(uintptr_t)(at + len), want};
                ssize_t n = process_vm_readv(c->tid, &mine, 1, &its, 1, 0);

                if (n <= 0)
                        return false;
                if (memchr(text + len, '\0', (size_t)n))
                        return still_waits(c);
                len += (size_t)n;
        }
        return false;
}

static pid_t tgid_of(pid_t tid)
{
        char path[64], text[512], *p;
        cg_auto_fd int fd = -1;
        ssize_t n;

        snprintf(path, sizeof(path), "/proc/%d/status", (int)tid);
        fd = open(path, O_RDONLY | O_CLOEXEC);
        n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
        text[n > 0 ? n : 0] = '\0';
        p = strstr(text, "\nTgid:\t");
        return p ? atoi(p + 7) : -1;
}

/* With the caller's umask. */
static void take_umask(struct call *c)
{
        char path[64], text[256], *p;
        cg_auto_fd int fd = -1;
        unsigned int mask;
        ssize_t n;

        if (c->m->umask_changed) {
                snprintf(path, sizeof(path), "/proc/%d/status", (int)c->tid);
                fd = open(path, O_RDONLY | O_CLOEXEC);
                n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
                text[n > 0 ? n : 0] = '\0';
                p = strstr(text, "\nUmask:\t");
                umask(p && sscanf(p + 8, "%o", &mask) == 1 ? (mode_t)mask : 0777);
                return;
        }
        umask(c->m->umask);
}

/* ---- where a path leads, in init's own view */

static void text_of(int fd, char buf[PATH_MAX])
{
        char link[48];
        ssize_t n;

        snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
        n = readlink(link, buf, PATH_MAX - 1);
        buf[n > 0 ? n : 0] = '\0';
}

static int open_beneath(int base, const char *path, uint64_t flags, uint64_t resolve)
{
        struct open_how how = {.flags = flags | O_PATH | O_CLOEXEC, .resolve = resolve};

        return (int)syscall(SYS_openat2, base, path, &how, sizeof(how));
}

static void read_mounts(struct cg_mediator *m)
{
        FILE *f = fopen("/proc/self/mountinfo", "re");
        char *line = NULL;
        size_t cap = 0;

        m->n_mounts = 0;
        if (!m->mounts)
                m->mounts = calloc(CG_MEDIATE_MOUNTS, sizeof(*m->mounts));
        while (f && m->mounts && m->n_mounts < CG_MEDIATE_MOUNTS && getline(&line, &cap, f) > 0)
                m->mounts[m->n_mounts++] = strtoull(line, NULL, 10);
        free(line);
        if (f)
                fclose(f);
}

static bool is_known(const struct cg_mediator *m, uint64_t id)
{
        for (size_t i = 0; i < m->n_mounts; i++) {
                if (m->mounts[i] == id)
                        return true;
        }
        return false;
}

static bool is_in_view(struct cg_mediator *m, int fd)
{
        struct statx st;

        if (statx(fd, "", AT_EMPTY_PATH, STATX_MNT_ID, &st) < 0 || !(st.stx_mask & STATX_MNT_ID))
                return false;
        if (!m->mounts)
                read_mounts(m);
        return is_known(m, st.stx_mnt_id);
}

/*
 * What the caller has open may lie in other mounts than ours: it was open before the sandbox was made, or it is in a namespace of its
 * own. The same by its name in our view, or -1. Takes @fd.
 */
static int into_view(struct cg_mediator *m, int fd)
{
        char path[PATH_MAX];
        struct stat a, b;
        int own;

        if (fd < 0 || is_in_view(m, fd))
                return fd;
        text_of(fd, path);
        own = path[0] == '/' ? open_beneath(AT_FDCWD, path, O_NOFOLLOW, RESOLVE_NO_SYMLINKS) : -1;
        if (own >= 0 && (fstat(fd, &a) < 0 || fstat(own, &b) < 0 || a.st_dev != b.st_dev || a.st_ino != b.st_ino))
                cg_closep_(&own);
        close(fd);
        return own;
}

/* The folder that a relative path starts at; -1: none that we could use. */
static int base_of(const struct call *c, int dirfd)
{
        char path[64];
        int fd;

        if (dirfd == AT_FDCWD)
                snprintf(path, sizeof(path), "/proc/%d/cwd", (int)c->tid);
        else
                snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int)c->tid, dirfd);
        fd = dirfd < 0 && dirfd != AT_FDCWD ? -1 : open(path, O_PATH | O_CLOEXEC);
        if (fd >= 0 && !still_waits(c))
                cg_closep_(&fd);
        return into_view(c->m, fd);
}

/* Where the caller can have another root (user namespaces inside) its absolute paths may mean something else. */
static bool has_our_root(const struct call *c)
{
        struct stat its, ours;
        char path[48];

        if (!c->m->sb->nested_users)
                return true;
        snprintf(path, sizeof(path), "/proc/%d/root", (int)c->tid);
        return stat(path, &its) == 0 && stat("/", &ours) == 0 && its.st_dev == ours.st_dev && its.st_ino == ours.st_ino;
}

/* A name in a folder. */
struct where {
        int dir;                  /* O_PATH */
        char name[NAME_MAX + 2];  /* perhaps with "/" at its end, which means what it means to the kernel */
        char path[PATH_MAX];      /* of folder and name, without that "/" and without symlinks above the name */
        enum cg_region region;
        size_t root;
};

static void where_fini(struct where *w)
{
        cg_closep_(&w->dir);
}
#define cg_auto_where CG_CLEANUP(where_fini)
#define NOWHERE {.dir = -1}

/* Where @path's last name begins, without what stands for a folder by itself; @len: of the name. NULL: it has none. */
static const char *last_name(const char *path, size_t *len, bool *slash)
{
        size_t n = strlen(path), end;

        while (n && path[n - 1] == '/')
                n--;
        *slash = path[n] == '/';
        end = n;
        while (n && path[n - 1] != '/')
                n--;
        *len = end - n;
        if (!*len || *len > NAME_MAX || (*len == 1 && path[n] == '.') || (*len == 2 && path[n] == '.' && path[n + 1] == '.'))
                return NULL;
        return path + n;
}

/* Completes @w, whose dir and name are there. */
static bool name_it(const struct cg_mediator *m, struct where *w)
{
        char folder[PATH_MAX];
        size_t n = strlen(w->name);

        text_of(w->dir, folder);
        if (folder[0] != '/' || (size_t)snprintf(w->path, sizeof(w->path), "%s/%.*s", folder[1] ? folder : "",
                                                 (int)(w->name[n - 1] == '/' ? n - 1 : n), w->name) >= sizeof(w->path))
                return false;
        w->region = cg_mediate_region(m->sb, w->path, &w->root);
        return true;
}

/* ---- paths by way of /proc: "self" is the caller there, and descriptors are its own */

/* What the link @fd, a magic one in /proc, leads to, in our view; only the caller's own. */
static int open_magic(const struct call *c, int dir, const char *name, const char *link)
{
        pid_t tgid = tgid_of(c->tid);
        int pid = 0, used = 0;

        if (sscanf(link, "/proc/%d%n", &pid, &used) != 1 || link[used] != '/' || tgid <= 0 || (pid != tgid && pid != c->tid))
                return -1;
        return into_view(c->m, openat(dir, name, O_PATH | O_CLOEXEC));
}

static bool is_on_proc(int fd)
{
        struct statfs fs;

        return fstatfs(fd, &fs) == 0 && fs.f_type == PROC_SUPER_MAGIC;
}

struct walk {
        const struct call *c;
        int at; /* where it is; owned */
        char rest[2 * PATH_MAX];
        int links;
};

/* Puts @text in front of what is left. */
static bool follow_text(struct walk *w, const char *text, const char *behind)
{
        char joined[2 * PATH_MAX];

        if (++w->links > LINKS_MAX || (size_t)snprintf(joined, sizeof(joined), "%s/%s", text, behind) >= sizeof(joined))
                return false;
        memcpy(w->rest, joined, strlen(joined) + 1);
        if (text[0] != '/')
                return true;
        close(w->at);
        w->at = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
        return w->at >= 0;
}

/* A symlink @fd under @name in the folder where the walk is. */
static bool follow_link(struct walk *w, int fd, const char *name, const char *behind)
{
        char link[PATH_MAX], text[PATH_MAX];
        ssize_t n = readlinkat(fd, "", text, sizeof(text) - 1);
        int to;

        text[n > 0 ? n : 0] = '\0';
        if (!is_on_proc(fd))
                return n > 0 && follow_text(w, text, behind);
        text_of(fd, link);
        if (!strcmp(link, "/proc/self") || !strcmp(link, "/proc/thread-self")) {
                int pid = tgid_of(w->c->tid);

                snprintf(text, sizeof(text), link[6] == 's' ? "%d" : "%d/task/%d", pid, (int)w->c->tid);
                return pid > 0 && follow_text(w, text, behind);
        }
        if (!strcmp(link, "/proc/mounts") || !strcmp(link, "/proc/net"))
                return n > 0 && follow_text(w, text, behind);
        to = open_magic(w->c, w->at, name, link);
        if (to < 0 || ++w->links > LINKS_MAX)
                return false;
        close(w->at);
        w->at = to;
        memmove(w->rest, behind, strlen(behind) + 1);
        return true;
}

/*
 * Name by name, as the kernel would for the caller. On success w->at is what the path leads to, the last name's link followed as well; or, where
 * @keep_last, the folder of the last name, which stays in w->rest.
 */
static bool walk(struct walk *w, bool keep_last)
{
        char name[NAME_MAX + 1], behind[2 * PATH_MAX];
        struct stat st;

        for (;;) {
                const char *p = w->rest + strspn(w->rest, "/");
                size_t n = strcspn(p, "/");
                int fd;

                if (!n)
                        return !keep_last;
                if (n > NAME_MAX)
                        return false;
                if (keep_last && !p[n + strspn(p + n, "/")]) {
                        memmove(w->rest, p, strlen(p) + 1);
                        return true;
                }
                memcpy(name, p, n);
                name[n] = '\0';
                memcpy(behind, p + n, strlen(p + n) + 1);
                fd = openat(w->at, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
                if (fd < 0 || fstat(fd, &st) < 0) {
                        cg_closep_(&fd);
                        return false;
                }
                if (S_ISLNK(st.st_mode)) {
                        bool ok = follow_link(w, fd, name, behind);

                        close(fd);
                        if (!ok)
                                return false;
                        continue;
                }
                close(w->at);
                w->at = fd;
                memcpy(w->rest, behind, strlen(behind) + 1);
        }
}

/* The folder of @path's last name, or with @whole what @path leads to; @base is where it starts. -1. */
static int walk_from(const struct call *c, int base, const char *path, bool whole)
{
        struct walk w = {.c = c, .at = path[0] == '/' ? open("/", O_PATH | O_DIRECTORY | O_CLOEXEC) : fcntl(base, F_DUPFD_CLOEXEC, 0)};
        bool ok;

        snprintf(w.rest, sizeof(w.rest), "%s", path);
        ok = w.at >= 0 && walk(&w, !whole);
        if (!ok)
                cg_closep_(&w.at);
        return w.at;
}

/* ---- */

/* The folder that @path's last name stands in. */
static int open_folder(const struct call *c, int base, const char *path, const char *name)
{
        char folder[PATH_MAX];
        size_t n = (size_t)(name - path);
        int fd;

        if (!n && base >= 0)
                return fcntl(base, F_DUPFD_CLOEXEC, 0);
        memcpy(folder, path, n);
        folder[n] = '\0';
        fd = open_beneath(base >= 0 ? base : AT_FDCWD, folder, O_DIRECTORY, RESOLVE_NO_MAGICLINKS);
        /* By way of /proc/self, perhaps, which is ours there. */
        return fd < 0 ? walk_from(c, base, path, false) : fd;
}

/* @base: where a relative path starts, borrowed. False: the call goes on, and fails by itself, or does not concern us. */
static bool find_from(const struct call *c, int base, const char *path, struct where *w)
{
        size_t len;
        bool slash;
        const char *name = last_name(path, &len, &slash);

        if (!name)
                return false;
        w->dir = open_folder(c, base, path, name);
        if (w->dir < 0)
                return false;
        snprintf(w->name, sizeof(w->name), "%.*s%s", (int)len, name, slash ? "/" : "");
        if (!name_it(c->m, w))
                return false;
        /* "self" was ours, and is to be the caller. */
        if (strncmp(w->path, "/proc/", 6) != 0 || c->m->sb->weak_proc)
                return true;
        close(w->dir);
        w->dir = walk_from(c, base, path, false);
        return w->dir >= 0 && name_it(c->m, w);
}

static int base_for(const struct call *c, int dirfd, const char *path, bool *ok)
{
        int base = path[0] == '/' ? -1 : base_of(c, dirfd);

        *ok = path[0] && (path[0] == '/' ? has_our_root(c) : base >= 0);
        return base;
}

static bool find(const struct call *c, int dirfd, uint64_t at, struct where *w)
{
        char path[PATH_MAX];
        cg_auto_fd int base = -1;
        bool ok;

        if (!read_text(c, at, path))
                return false;
        base = base_for(c, dirfd, path, &ok);
        return ok && find_from(c, base, path, w);
}

/* The same for what is done to the name itself: what lies on top of it (a mount) has no say in that, but that it is in the way. */
static bool find_name(const struct call *c, int dirfd, uint64_t at, struct where *w)
{
        char folder[PATH_MAX];

        if (!find(c, dirfd, at, w))
                return false;
        if (w->region != CG_REGION_NATIVE)
                return true;
        text_of(w->dir, folder);
        w->region = cg_mediate_region(c->m->sb, folder, &w->root);
        return w->region != CG_REGION_NATIVE;
}

/* ---- what is refused */

enum act {
        CHANGE, /* a file that is there */
        MAKE,   /* a file that is not a folder or a link */
        FOLDER, /* an empty one */
        LINK,   /* a symlink, or a folder with what it has in it: the names below it come along */
        REMOVE,
};

static int deny(struct call *c, const struct where *w, const char *setting)
{
        c->setting = setting;
        snprintf(c->path, sizeof(c->path), "%s", w->path);
        return DENIED;
}

static bool has_entry(const char *folder, size_t len, const char *name)
{
        char path[PATH_MAX + NAME_MAX];

        snprintf(path, sizeof(path), "%.*s/%s", (int)len, folder, name);
        return faccessat(AT_FDCWD, path, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

/* What git obeys stands beside @w, should that be a HEAD. */
static bool has_obeyed_beside(const struct where *w)
{
        static const char *const names[] = {"config", "config.worktree", "commondir", "hooks", "modules", "worktrees"};
        size_t len = (size_t)(strrchr(w->path, '/') - w->path);

        for (size_t i = 0; i < CG_ARRAY_LEN(names); i++) {
                if (has_entry(w->path, len, names[i]))
                        return true;
        }
        return false;
}

/* In a folder that is no repository yet, and would be one with a HEAD. */
static bool may_have_head(const struct where *w)
{
        return has_entry(w->path, (size_t)(strrchr(w->path, '/') - w->path), "HEAD") || !has_obeyed_beside(w);
}

static enum cg_git_part git_part(const struct where *w)
{
        enum cg_git_part part = cg_git_part(w->path, w->root), bare;
        size_t next = 0, top;

        while (part == CG_GIT_FREE && (bare = cg_git_part_bare(w->path, w->root, &next, &top)) != CG_GIT_FREE) {
                if (has_entry(w->path, top, "HEAD"))
                        part = bare;
        }
        return part;
}

/* A configuration that git can do without: it is as git init writes it. */
static bool read_plain(int dir, const char *name, char *text, size_t *len)
{
        cg_auto_fd int fd = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
        struct stat st;
        ssize_t n;

        if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
                return false;
        n = pread(fd, text, CG_GIT_CONFIG_MAX + 1, 0);
        *len = n > 0 ? (size_t)n : 0;
        return n >= 0 && n <= (ssize_t)CG_GIT_CONFIG_MAX && cg_git_config_is_plain(text, *len);
}

static bool is_plain_config(const struct where *w)
{
        cg_auto_free char *text = malloc(CG_GIT_CONFIG_MAX + 1);
        size_t len;

        return text && read_plain(w->dir, w->name, text, &len);
}

static bool is_folder(const struct where *w)
{
        struct stat st;

        return fstatat(w->dir, w->name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(st.st_mode);
}

static const char *git_rule(const struct call *c, const struct where *w, enum act act)
{
        const char *last = strrchr(w->path, '/') + 1;

        switch (git_part(w)) {
        case CG_GIT_SELF:
                /* Of what is there a folder that is empty can be removed. */
                return act == FOLDER || (act == REMOVE && is_folder(w)) ? NULL : ".git";
        case CG_GIT_CONFIG:
                if (c->m->sb->git_config || (act == REMOVE && is_plain_config(w)))
                        return NULL;
                return ".git/config";
        case CG_GIT_HOOKS:
                return act == FOLDER || act == REMOVE ? NULL : ".git/hooks";
        case CG_GIT_SAMPLE:
                return act == LINK || act == FOLDER ? ".git/hooks" : NULL;
        case CG_GIT_DENIED:
                return ".git/hooks";
        default:
                break;
        }
        if (act != REMOVE && act != CHANGE && !strcmp(last, "HEAD") && !cg_git_is_within(w->path, w->root) && !may_have_head(w))
                return "HEAD";
        return NULL;
}

/* 0, or DENIED. */
static int judge(struct call *c, const struct where *w, enum act act)
{
        const struct cg_sandbox *sb = c->m->sb;
        const char *rule, *setting = NULL;

        if (w->region != CG_REGION_ROOT)
                return 0;
        rule = absent_rule(sb, w->path, act == LINK, &setting);
        if (rule)
                return deny(c, w, setting);
        if (is_given_back(sb, w->path, w->root))
                return 0;
        rule = cg_names_find(w->path, w->root, CG_NAME_WRITE);
        if (!rule && act == LINK)
                rule = cg_names_leads(w->path, w->root);
        if (!rule)
                rule = git_rule(c, w, act);
        return rule ? deny(c, w, NULL) : 0;
}

/*
 * Another sandbox's init may have made the other half of a repository meanwhile, in a folder that both may write: each looks again at what it
 * has made, which was not there before. @r: 0, or what comes instead.
 */
static int look_again(struct call *c, const struct where *w, enum act act, int r)
{
        bool head = strcmp(strrchr(w->path, '/'), "/HEAD") == 0;
        size_t next = 0, top;

        if (r < 0 || w->region != CG_REGION_ROOT || cg_git_is_within(w->path, w->root) || is_given_back(c->m->sb, w->path, w->root))
                return r;
        if (head ? !has_obeyed_beside(w)
                 : cg_git_part_bare(w->path, w->root, &next, &top) == CG_GIT_FREE || judge(c, w, act) == 0)
                return r;
        unlinkat(w->dir, w->name, act == FOLDER ? AT_REMOVEDIR : 0);
        return deny(c, w, NULL);
}

/* ---- opening */

/*
 * Takes @fd: it is the caller's alone when the caller goes on, which may close it and run what it has written. SECCOMP_ADDFD_FLAG_SEND would
 * let it go on before we have closed ours.
 */
static int caller_fd(struct call *c, int *fd, int flags)
{
        struct seccomp_notif_addfd add = {.id = c->c->id, .srcfd = (uint32_t)*fd, .newfd_flags = (uint32_t)(flags & O_CLOEXEC)};
        int n = ioctl(c->n->listener, SECCOMP_IOCTL_NOTIF_ADDFD, &add), e = errno;

        cg_closep_(fd);
        return n < 0 ? -e : n;
}

/* A signal that waits for the caller and would end its waiting. */
static bool is_signalled(pid_t tid)
{
        char path[64], text[4096];
        unsigned long long pending = 0, shared = 0, blocked = 0;
        cg_auto_fd int fd = -1;
        const char *p;
        ssize_t n;

        snprintf(path, sizeof(path), "/proc/%d/status", (int)tid);
        fd = open(path, O_RDONLY | O_CLOEXEC);
        n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
        text[n > 0 ? n : 0] = '\0';
        p = strstr(text, "\nSigPnd:");
        if (!p || sscanf(p, "\nSigPnd: %llx ShdPnd: %llx SigBlk: %llx", &pending, &shared, &blocked) != 3)
                return false;
        return ((pending | shared) & ~blocked) != 0;
}

static void wake_up(int sig)
{
        (void)sig;
}

/* In a child of init: a FIFO's other end may never come. */
static _Noreturn void wait_open(struct call *c, const char *path, int flags)
{
        struct sigaction sa = {.sa_handler = wake_up};
        struct itimerval every = {.it_interval.tv_usec = HELPER_LOOK_US, .it_value.tv_usec = HELPER_LOOK_US};
        sigset_t none;
        int fd, r;

        sigemptyset(&none);
        sigprocmask(SIG_SETMASK, &none, NULL);
        sigaction(SIGALRM, &sa, NULL);
        if (setitimer(ITIMER_REAL, &every, NULL) < 0)
                _exit(1);
        for (;;) {
                fd = open(path, flags | O_NOCTTY | O_CLOEXEC);
                if (fd >= 0 || errno != EINTR)
                        break;
                if (!still_waits(c))
                        _exit(0);
                if (is_signalled(c->tid))
                        break;
        }
        r = fd < 0 ? -errno : caller_fd(c, &fd, flags);
        cg_notify_answer(c->n, c->c, r < 0 ? -r : 0, r);
        _exit(0);
}

static int open_waiting(struct call *c, int fd, int flags)
{
        char path[48];
        bool room = false;
        pid_t pid;

        for (size_t i = 0; i < CG_MEDIATE_HELPERS; i++)
                room |= c->m->helpers[i] == 0;
        if (!room)
                return -EAGAIN;
        snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
        pid = fork();
        if (pid < 0)
                return -EAGAIN;
        if (pid == 0)
                wait_open(c, path, flags);
        for (size_t i = 0; i < CG_MEDIATE_HELPERS; i++) {
                if (c->m->helpers[i] == 0) {
                        c->m->helpers[i] = pid;
                        break;
                }
        }
        return ANSWERED;
}

/* What is there, which is no folder and no link. */
static int open_present(struct call *c, const struct where *w, const struct stat *st, int flags)
{
        int plain = flags & ~(O_CREAT | O_EXCL), r = judge(c, w, CHANGE);
        cg_auto_fd int fd = -1;

        if (r < 0)
                return r;
        if (S_ISFIFO(st->st_mode) && (flags & O_ACCMODE) == O_WRONLY && !(flags & O_NONBLOCK)) {
                fd = openat(w->dir, w->name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
                return fd < 0 ? -errno : open_waiting(c, fd, plain);
        }
        fd = openat(w->dir, w->name, plain | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
        if (fd < 0 && errno == EWOULDBLOCK && !(flags & O_NONBLOCK)) { /* another program's lease */
                fd = openat(w->dir, w->name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
                return fd < 0 ? -errno : open_waiting(c, fd, plain);
        }
        if (fd < 0)
                return -errno;
        if (!(flags & O_NONBLOCK) && fcntl(fd, F_SETFL, plain & ~O_NONBLOCK) < 0)
                return -errno;
        return caller_fd(c, &fd, flags);
}

static int open_new(struct call *c, const struct where *w, int flags, mode_t mode)
{
        cg_auto_fd int fd = -1;
        int r = judge(c, w, MAKE);

        if (r < 0)
                return r;
        take_umask(c);
        fd = openat(w->dir, w->name, flags | O_CREAT | O_EXCL | O_NOFOLLOW | O_NOCTTY | O_CLOEXEC, mode);
        if (fd < 0)
                return -errno;
        r = look_again(c, w, MAKE, 0);
        return r < 0 ? r : caller_fd(c, &fd, flags);
}

/* @w's name is a symlink: to what it leads, one step on. False: the kernel has its own word on that. */
static bool follow(const struct call *c, struct where *w)
{
        struct where to = NOWHERE;
        char text[PATH_MAX], link[PATH_MAX];
        ssize_t n = readlinkat(w->dir, w->name, text, sizeof(text) - 1);
        int fd = openat(w->dir, w->name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
        bool ok;

        text[n > 0 ? n : 0] = '\0';
        if (fd < 0 || n <= 0) {
                cg_closep_(&fd);
                return false;
        }
        if (is_on_proc(fd)) {
                text_of(fd, link);
                close(fd);
                fd = open_magic(c, w->dir, w->name, link);
                if (fd < 0)
                        return false;
                text_of(fd, text); /* of our view, and of something that is there */
                ok = text[0] == '/';
        } else {
                close(fd);
                /* Sticky folders: whether it may be followed at all. */
                fd = open_beneath(w->dir, w->name, 0, RESOLVE_NO_MAGICLINKS);
                ok = fd >= 0 || errno == ENOENT || errno == ELOOP;
        }
        cg_closep_(&fd);
        ok = ok && find_from(c, w->dir, text, &to);
        where_fini(w);
        *w = to;
        return ok;
}

static int open_tmpfile(struct call *c, int dirfd, uint64_t at, int flags, mode_t mode)
{
        struct where w = NOWHERE;
        char path[PATH_MAX];
        cg_auto_fd int base = -1, dir = -1, fd = -1;
        bool ok;

        if (!read_text(c, at, path))
                return GO_ON;
        base = base_for(c, dirfd, path, &ok);
        if (!ok)
                return GO_ON;
        dir = open_beneath(base >= 0 ? base : AT_FDCWD, path, O_DIRECTORY, RESOLVE_NO_MAGICLINKS);
        if (dir < 0)
                dir = walk_from(c, base, path, true);
        if (dir < 0)
                return GO_ON;
        text_of(dir, w.path);
        if (cg_mediate_region(c->m->sb, w.path, &w.root) == CG_REGION_NATIVE)
                return GO_ON;
        take_umask(c);
        fd = openat(dir, ".", flags | O_CLOEXEC, mode);
        return fd < 0 ? -errno : caller_fd(c, &fd, flags);
}

static int do_open_at(struct call *c, int dirfd, uint64_t at, int flags, mode_t mode)
{
        cg_auto_where struct where w = NOWHERE;

        if (flags & O_PATH)
                return GO_ON;
        if ((flags & O_TMPFILE) == O_TMPFILE)
                return open_tmpfile(c, dirfd, at, flags, mode);
        if (!find(c, dirfd, at, &w))
                return GO_ON;
        for (int i = 0; i < LINKS_MAX; i++) {
                size_t len = strlen(w.name);
                bool slash = w.name[len - 1] == '/';
                struct stat st;
                int r;

                if (slash)
                        return GO_ON; /* a folder, which is not written to */
                if (fstatat(w.dir, w.name, &st, AT_SYMLINK_NOFOLLOW) < 0) {
                        if (errno != ENOENT || !(flags & O_CREAT) || w.region == CG_REGION_NATIVE)
                                return GO_ON;
                        r = open_new(c, &w, flags, mode);
                        if (r == -EEXIST && !(flags & O_EXCL))
                                continue;
                        return r;
                }
                if ((flags & (O_CREAT | O_EXCL)) == (O_CREAT | O_EXCL) || S_ISDIR(st.st_mode))
                        return GO_ON;
                if (!S_ISLNK(st.st_mode)) {
                        if (w.region == CG_REGION_NATIVE || ((flags & O_ACCMODE) == O_RDONLY && !(flags & O_TRUNC)))
                                return GO_ON;
                        return open_present(c, &w, &st, flags);
                }
                if (flags & O_NOFOLLOW || !follow(c, &w))
                        return GO_ON;
        }
        return GO_ON;
}

/* ---- the other calls */

static int result(int r)
{
        return r < 0 ? -errno : 0;
}

static int do_mkdir_at(struct call *c, int dirfd, uint64_t at, mode_t mode)
{
        cg_auto_where struct where w = NOWHERE;
        struct stat st;
        int r;

        if (!find_name(c, dirfd, at, &w) || fstatat(w.dir, w.name, &st, AT_SYMLINK_NOFOLLOW) == 0)
                return GO_ON;
        r = judge(c, &w, FOLDER);
        if (r < 0)
                return r;
        take_umask(c);
        return look_again(c, &w, FOLDER, result(mkdirat(w.dir, w.name, mode)));
}

static int do_mknod_at(struct call *c, int dirfd, uint64_t at, mode_t mode, dev_t dev)
{
        cg_auto_where struct where w = NOWHERE;
        struct stat st;
        int r;

        if (!find_name(c, dirfd, at, &w) || fstatat(w.dir, w.name, &st, AT_SYMLINK_NOFOLLOW) == 0)
                return GO_ON;
        r = judge(c, &w, MAKE);
        if (r < 0)
                return r;
        take_umask(c);
        return look_again(c, &w, MAKE, result(mknodat(w.dir, w.name, mode, dev)));
}

static int do_symlink_at(struct call *c, uint64_t text_at, int dirfd, uint64_t at)
{
        cg_auto_where struct where w = NOWHERE;
        char text[PATH_MAX];
        struct stat st;
        int r;

        if (!read_text(c, text_at, text) || !find_name(c, dirfd, at, &w) ||
            fstatat(w.dir, w.name, &st, AT_SYMLINK_NOFOLLOW) == 0)
                return GO_ON;
        r = judge(c, &w, LINK);
        return r < 0 ? r : look_again(c, &w, LINK, result(symlinkat(text, w.dir, w.name)));
}

static int do_unlink_at(struct call *c, int dirfd, uint64_t at, int flags)
{
        cg_auto_where struct where w = NOWHERE;
        struct stat st;
        int r;

        if (!find_name(c, dirfd, at, &w) || fstatat(w.dir, w.name, &st, AT_SYMLINK_NOFOLLOW) < 0)
                return GO_ON;
        r = judge(c, &w, REMOVE);
        return r < 0 ? r : result(unlinkat(w.dir, w.name, flags));
}

static int do_truncate(struct call *c)
{
        cg_auto_where struct where w = NOWHERE;

        if (!find(c, AT_FDCWD, c->a[0], &w))
                return GO_ON;
        for (int i = 0; i < LINKS_MAX; i++) {
                uint64_t most = c->m->sb->limits.file_bytes;
                cg_auto_fd int fd = -1;
                struct stat st;
                int r;

                if (w.name[strlen(w.name) - 1] == '/' || fstatat(w.dir, w.name, &st, AT_SYMLINK_NOFOLLOW) < 0)
                        return GO_ON;
                if (S_ISLNK(st.st_mode)) {
                        if (!follow(c, &w))
                                return GO_ON;
                        continue;
                }
                if (!S_ISREG(st.st_mode) || w.region == CG_REGION_NATIVE)
                        return GO_ON;
                r = judge(c, &w, CHANGE);
                if (r < 0)
                        return r;
                if ((int64_t)c->a[1] < 0)
                        return -EINVAL;
                if (most && c->a[1] > most)
                        return -EFBIG;
                fd = openat(w.dir, w.name, O_WRONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
                return fd < 0 ? -errno : result(ftruncate(fd, (off_t)c->a[1]));
        }
        return GO_ON;
}

/* ---- links and renames */

/* Something in the folder @fd of @path is protected; *left: entries that may still be looked at. */
static const char *protected_below(const struct call *c, int fd, const char *path, size_t root, int depth, size_t *left)
{
        int own = openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        DIR *dir = own < 0 ? NULL : fdopendir(own);
        const char *found = NULL, *setting;
        const struct dirent *d;

        if (!dir) {
                cg_closep_(&own);
                return NULL; /* not the caller's to look into either */
        }
        while (!found && (d = readdir(dir))) {
                struct where w = {.dir = dirfd(dir), .root = root};
                int sub = -1;

                if (!strcmp(d->d_name, ".") || !strcmp(d->d_name, ".."))
                        continue;
                if (!*left || depth > SCAN_DEPTH ||
                    (size_t)snprintf(w.path, sizeof(w.path), "%s/%s", path, d->d_name) >= sizeof(w.path)) {
                        *left = 0;
                        break;
                }
                --*left;
                found = absent_rule(c->m->sb, w.path, false, &setting);
                if (!found && !is_given_back(c->m->sb, w.path, root)) {
                        found = cg_names_find(w.path, root, CG_NAME_WRITE);
                        if (!found && (cg_git_is_within(w.path, root) || !strcmp(d->d_name, "HEAD")))
                                found = ".git";
                }
                if (found || (d->d_type != DT_DIR && d->d_type != DT_UNKNOWN))
                        continue;
                sub = openat(w.dir, d->d_name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
                if (sub >= 0)
                        found = protected_below(c, sub, w.path, root, depth + 1, left);
                cg_closep_(&sub);
        }
        closedir(dir);
        return found;
}

/* A folder that would take protected names along. 0; DENIED; -EXDEV: too large to be looked through, so it is to be copied. */
static int judge_tree(struct call *c, const struct where *w)
{
        cg_auto_fd int fd = openat(w->dir, w->name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        size_t left = SCAN_ENTRIES;
        const char *rule = fd < 0 || w->region != CG_REGION_ROOT ? NULL : protected_below(c, fd, w->path, w->root, 0, &left);

        if (rule)
                return deny(c, w, NULL);
        return left ? 0 : -EXDEV;
}

static enum act act_of(const struct stat *st)
{
        return S_ISDIR(st->st_mode) || S_ISLNK(st->st_mode) ? LINK : MAKE;
}

/* What is at @from comes to be at @to. */
static int judge_move(struct call *c, const struct where *from, const struct stat *st, const struct where *to)
{
        int r = judge(c, from, REMOVE);

        /* git_part() lets git remove a configuration and examples of hooks; neither is to be moved anywhere. */
        if (r == 0)
                r = judge(c, to, act_of(st));
        if (r == 0 && from->region == CG_REGION_ROOT && git_part(from) != CG_GIT_FREE && !is_given_back(c->m->sb, from->path, from->root))
                r = deny(c, from, NULL);
        if (r < 0 || !S_ISDIR(st->st_mode))
                return r;
        r = judge(c, from, LINK);
        /* Into a repository's own folder, out of one, or within: what stands where decides there. */
        if (r == 0 && to->region == CG_REGION_ROOT && cg_git_is_within(to->path, to->root) && !is_given_back(c->m->sb, to->path, to->root))
                r = deny(c, to, NULL);
        if (r == 0 && from->region == CG_REGION_ROOT && cg_git_is_within(from->path, from->root) &&
            !is_given_back(c->m->sb, from->path, from->root))
                r = deny(c, from, NULL);
        return r == 0 ? judge_tree(c, from) : r;
}

static void remember(struct cg_mediator *m, int fd)
{
        struct statx st;

        if (statx(fd, "", AT_EMPTY_PATH, STATX_INO | STATX_BTIME, &st) < 0 || !(st.stx_mask & STATX_BTIME))
                return;
        m->configs[m->n_configs++ % CG_MEDIATE_CONFIGS] =
                (struct cg_made_config){(uint64_t)st.stx_dev_major << 32 | st.stx_dev_minor, st.stx_ino, st.stx_btime.tv_sec, st.stx_btime.tv_nsec};
}

static bool is_made_here(const struct cg_mediator *m, const struct where *w)
{
        struct statx st;

        if (statx(w->dir, w->name, AT_SYMLINK_NOFOLLOW, STATX_INO | STATX_BTIME, &st) < 0)
                return errno == ENOENT;
        for (size_t i = 0; i < CG_MEDIATE_CONFIGS && i < m->n_configs && st.stx_mask & STATX_BTIME; i++) {
                const struct cg_made_config *k = &m->configs[i];

                if (k->ino == st.stx_ino && k->dev == ((uint64_t)st.stx_dev_major << 32 | st.stx_dev_minor) &&
                    k->born_s == st.stx_btime.tv_sec && k->born_ns == st.stx_btime.tv_nsec)
                        return true;
        }
        return false;
}

/*
 * git writes config.lock and renames it. Its text is taken, and where it is plain a file of our own gets it: no descriptor or mapping of the
 * caller's leads to that.
 */
static int write_config(struct call *c, const struct where *lock, const struct where *to)
{
        cg_auto_free char *text = malloc(CG_GIT_CONFIG_MAX + 1);
        char fresh[NAME_MAX + 1];
        cg_auto_fd int fd = -1;
        struct stat st;
        size_t len;
        bool ok;

        if (!text || fstatat(lock->dir, lock->name, &st, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISREG(st.st_mode) || !is_made_here(c->m, to) ||
            !read_plain(lock->dir, lock->name, text, &len))
                return deny(c, to, NULL);
        snprintf(fresh, sizeof(fresh), CG_GIT_CONFIG_FRESH "%llx", (unsigned long long)cg_now_ms());
        unlinkat(to->dir, fresh, 0);
        umask(0);
        fd = openat(to->dir, fresh, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, st.st_mode & 0666);
        if (fd < 0)
                return -errno;
        ok = cg_write_all(fd, text, len, NULL) == 0 && renameat(to->dir, fresh, to->dir, to->name) == 0;
        if (!ok) {
                int e = errno;

                unlinkat(to->dir, fresh, 0);
                return -e;
        }
        remember(c->m, fd);
        unlinkat(lock->dir, lock->name, 0);
        return 0;
}

static bool is_config_lock(const struct call *c, const struct where *from, const struct where *to)
{
        return from->region == CG_REGION_ROOT && to->region == CG_REGION_ROOT && !c->m->sb->git_config && git_part(to) == CG_GIT_CONFIG &&
               !strcmp(to->name, "config") && !strcmp(from->name, "config.lock") && !is_given_back(c->m->sb, to->path, to->root) &&
               !cg_names_find(to->path, to->root, CG_NAME_WRITE);
}

static int do_rename_at(struct call *c, int from_fd, uint64_t from_at, int to_fd, uint64_t to_at, unsigned int flags)
{
        cg_auto_where struct where from = NOWHERE, to = NOWHERE;
        struct stat a, b;
        bool there;
        int r;

        if (!find_name(c, from_fd, from_at, &from) || !find_name(c, to_fd, to_at, &to) || fstatat(from.dir, from.name, &a, AT_SYMLINK_NOFOLLOW) < 0)
                return GO_ON;
        there = fstatat(to.dir, to.name, &b, AT_SYMLINK_NOFOLLOW) == 0;
        if (!flags && is_config_lock(c, &from, &to))
                return write_config(c, &from, &to);
        r = judge_move(c, &from, &a, &to);
        if (r == 0 && flags & RENAME_EXCHANGE && there)
                r = judge_move(c, &to, &b, &from);
        else if (r == 0 && there)
                r = judge(c, &to, REMOVE);
        if (r < 0)
                return r;
        r = result((int)syscall(SYS_renameat2, from.dir, from.name, to.dir, to.name, flags));
        return there ? r : look_again(c, &to, act_of(&a), r);
}

/* The file that a link is to be made to, by its place in our view: an open one that has no name has none. */
static bool find_old(struct call *c, int dirfd, uint64_t at, int flags, struct where *w, int *nameless)
{
        char path[PATH_MAX], text[PATH_MAX];
        cg_auto_fd int base = -1, fd = -1;
        struct stat st;
        bool ok;

        if (!read_text(c, at, path))
                return false;
        if (!path[0] && flags & AT_EMPTY_PATH) {
                fd = base_of(c, dirfd);
        } else {
                base = base_for(c, dirfd, path, &ok);
                if (!ok || !find_from(c, base, path, w))
                        return false;
                if (!(flags & AT_SYMLINK_FOLLOW) || fstatat(w->dir, w->name, &st, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISLNK(st.st_mode))
                        return true;
                fd = open_beneath(w->dir, w->name, 0, RESOLVE_NO_MAGICLINKS);
                if (fd < 0)
                        fd = walk_from(c, base, path, true);
                where_fini(w);
        }
        if (fd < 0 || fstat(fd, &st) < 0)
                return false;
        text_of(fd, text);
        if (st.st_nlink == 0) {
                /* O_TMPFILE: made by us, in a mount of our view. */
                w->region = cg_mediate_region(c->m->sb, text, &w->root);
                *nameless = cg_steal_fd(&fd);
                return is_in_view(c->m, *nameless);
        }
        return text[0] == '/' && find_from(c, -1, text, w);
}

static int do_link_at(struct call *c, int old_fd, uint64_t old_at, int new_fd, uint64_t new_at, int flags)
{
        cg_auto_where struct where old = NOWHERE, to = NOWHERE;
        cg_auto_fd int nameless = -1;
        char path[48];
        struct stat st;
        int r;

        if (!find_name(c, new_fd, new_at, &to) || !find_old(c, old_fd, old_at, flags, &old, &nameless) || old.region == CG_REGION_NATIVE || fstatat(to.dir, to.name, &st, AT_SYMLINK_NOFOLLOW) == 0)
                return GO_ON;
        if (nameless >= 0) {
                r = judge(c, &to, MAKE);
                snprintf(path, sizeof(path), "/proc/self/fd/%d", nameless);
                return r < 0 ? r : look_again(c, &to, MAKE, result(linkat(AT_FDCWD, path, to.dir, to.name, AT_SYMLINK_FOLLOW)));
        }
        if (fstatat(old.dir, old.name, &st, AT_SYMLINK_NOFOLLOW) < 0)
                return GO_ON;
        r = judge(c, &old, CHANGE);
        if (r == 0 && old.region == CG_REGION_ROOT && git_part(&old) != CG_GIT_FREE)
                r = deny(c, &old, NULL);
        if (r == 0)
                r = judge(c, &to, act_of(&st));
        return r < 0 ? r : look_again(c, &to, act_of(&st), result(linkat(old.dir, old.name, to.dir, to.name, 0)));
}

/* ---- calls */

static int run(struct call *c)
{
        const uint64_t *a = c->a;

        switch (c->c->data.nr) {
        case SYS_openat:
                return do_open_at(c, (int)a[0], a[1], (int)a[2], (mode_t)a[3]);
        case SYS_mkdirat:
                return do_mkdir_at(c, (int)a[0], a[1], (mode_t)a[2]);
        case SYS_mknodat:
                return do_mknod_at(c, (int)a[0], a[1], (mode_t)a[2], (dev_t)(uint32_t)a[3]);
        case SYS_symlinkat:
                return do_symlink_at(c, a[0], (int)a[1], a[2]);
        case SYS_linkat:
                return do_link_at(c, (int)a[0], a[1], (int)a[2], a[3], (int)a[4]);
        case SYS_unlinkat:
                return do_unlink_at(c, (int)a[0], a[1], (int)a[2]);
        case SYS_renameat2:
                return do_rename_at(c, (int)a[0], a[1], (int)a[2], a[3], (unsigned int)a[4]);
        case SYS_truncate:
                return do_truncate(c);
        case SYS_umask:
                c->m->umask_changed = true;
                return GO_ON;
#ifdef SYS_renameat
        case SYS_renameat:
                return do_rename_at(c, (int)a[0], a[1], (int)a[2], a[3], 0);
#endif
#ifdef SYS_open /* older architectures have both kinds */
        case SYS_open:
                return do_open_at(c, AT_FDCWD, a[0], (int)a[1], (mode_t)a[2]);
        case SYS_creat:
                return do_open_at(c, AT_FDCWD, a[0], O_CREAT | O_WRONLY | O_TRUNC, (mode_t)a[1]);
        case SYS_mkdir:
                return do_mkdir_at(c, AT_FDCWD, a[0], (mode_t)a[1]);
        case SYS_mknod:
                return do_mknod_at(c, AT_FDCWD, a[0], (mode_t)a[1], (dev_t)(uint32_t)a[2]);
        case SYS_symlink:
                return do_symlink_at(c, a[0], AT_FDCWD, a[1]);
        case SYS_link:
                return do_link_at(c, AT_FDCWD, a[0], AT_FDCWD, a[1], 0);
        case SYS_unlink:
                return do_unlink_at(c, AT_FDCWD, a[0], 0);
        case SYS_rmdir:
                return do_unlink_at(c, AT_FDCWD, a[0], AT_REMOVEDIR);
        case SYS_rename:
                return do_rename_at(c, AT_FDCWD, a[0], AT_FDCWD, a[1], 0);
#endif
        default:
                return ANSWERED;
        }
}

static bool is_ours(int nr)
{
        static const int calls[] = {
                SYS_openat, SYS_mkdirat, SYS_mknodat, SYS_symlinkat, SYS_linkat, SYS_unlinkat, SYS_renameat2, SYS_truncate, SYS_umask,
#ifdef SYS_renameat
                SYS_renameat,
#endif
#ifdef SYS_open
                SYS_open, SYS_creat, SYS_mkdir, SYS_mknod, SYS_symlink, SYS_link, SYS_unlink, SYS_rmdir, SYS_rename,
#endif
        };

        for (size_t i = 0; i < CG_ARRAY_LEN(calls); i++) {
                if (calls[i] == nr)
                        return true;
        }
        return false;
}

void cg_mediate_init(struct cg_mediator *m, const struct cg_sandbox *sb)
{
        *m = (struct cg_mediator){.sb = cg_mediates(sb) ? sb : NULL};
        m->umask = umask(0);
        umask(m->umask);
}

void cg_mediate_ended(struct cg_mediator *m, pid_t pid)
{
        for (size_t i = 0; i < CG_MEDIATE_HELPERS; i++) {
                if (m->helpers[i] == pid)
                        m->helpers[i] = 0;
        }
}

bool cg_mediate_call(struct cg_mediator *m, struct cg_notify *n, const struct seccomp_notif *call)
{
        struct call c = {.m = m, .n = n, .c = call, .a = (const uint64_t *)call->data.args, .tid = (pid_t)call->pid};
        struct cg_notify_file f = {.path = c.path, .access = CG_ACCESS_WRITE};
        int r;

        /* What asks for a set-user-ID bit is refused before anything else. */
        if (!m->sb || !is_ours(call->data.nr) || cg_setid_asked(call->data.nr, c.a))
                return false;
        r = run(&c);
        switch (r) {
        case ANSWERED:
                break;
        case GO_ON:
                cg_notify_continue(n, call);
                break;
        case DENIED:
                f.rule = c.setting ? CG_ACCESS_DENY_WRITE : CG_ACCESS_NAME;
                f.setting = c.setting;
                cg_notify_tell(n, call, &f);
                cg_notify_answer(n, call, EACCES, 0);
                break;
        default:
                cg_notify_answer(n, call, r < 0 ? -r : 0, r < 0 ? 0 : r);
        }
        return true;
}
