/* The plan's data. Private to src/sandbox; made by the caller, read by every step inside. */
#pragma once

#include <linux/filter.h>
#include <stdbool.h>
#include <string.h>
#include "base/path.h"
#include "sandbox/inodes.h"
#include "sandbox/names/names.h"
#include "sandbox/sandbox.h"

/*
 * Ceilings. A kernel's plan is a handful of entries; one made from settings has a mount for each
 * denied path in a write root. The kernel itself stops at 100,000 (fs.mount-max).
 */
#define CG_PLAN_MOUNTS_MAX 16384

/* Defaults of struct cg_sandbox_limits. */
#define CG_PLAN_PROCESSES  512
#define CG_PLAN_OPEN_FILES 4096
/* A command's limit without a setting: the caller's own. */
#define CG_PLAN_NO_LIMIT UINT64_MAX

/*
 * Private tmpfs. They live in memory that no rlimit counts, so each has a ceiling: enough for a
 * package build in /tmp and for arrays shared between worker processes in /dev/shm. Inodes are
 * kernel memory outside "size".
 */
#define CG_PLAN_TMP_SIZE   "1g"
#define CG_PLAN_RUN_SIZE   "64m"
#define CG_PLAN_SHM_SIZE   "1g"
#define CG_PLAN_TMP_INODES "262144"
/* For a hidden folder with visible paths in it: holds only mount points. */
#define CG_PLAN_EMPTY_SIZE "1m"

/* Kinds of mounts. Of two entries with the same path the later kind is on top. */
enum cg_plan_kind {
        CG_PLAN_TMPFS, /* private, writable, removed with the sandbox */
        CG_PLAN_DEV,
        CG_PLAN_PROC,
        CG_PLAN_SYS,
        CG_PLAN_WRITE,   /* the host's own path, writable */
        CG_PLAN_BIND_RO, /* src, read-only */
        /*
         * The following mount what the view shows at the path so far, so they come after their
         * parents:
         */
        CG_PLAN_READ, /* the same, read-only */
        CG_PLAN_PIN,  /* the same, so that it cannot be renamed or removed; also a symlink */
        CG_PLAN_HIDE, /* an empty read-only folder, or an unreadable file */
        /* an empty folder with paths in it that are shown; read-only once they are mounted */
        CG_PLAN_EMPTY,
        CG_PLAN_MASK, /* a file with other content */
        /*
         * As HIDE, for cg_sandbox_add_hide(): after all other kinds, so that no mount below shows
         * anything again; the path may be missing.
         */
        CG_PLAN_COVER,
};

struct cg_plan_mount {
        enum cg_plan_kind kind;
        char *path;       /* absolute, without symlinks */
        char *src;        /* CG_PLAN_WRITE and CG_PLAN_BIND_RO */
        const char *mode; /* CG_PLAN_TMPFS: static text */
        const char *size; /* CG_PLAN_TMPFS: static text */
        char *data;       /* CG_PLAN_MASK */
        size_t len;
        char *why; /* the setting that it comes from; NULL: a default */
};

struct cg_grants;

/* A path that does not exist. */
struct cg_plan_placeholder {
        char *path;
        bool folder;
        /*
         * made on the host while the sandbox runs (mountpoints.h); otherwise it must not be made
         * (mediate.h)
         */
        bool mount_point;
};

/* Paths in write roots that are never written, and cannot be made: the settings' denyWrite. */
struct cg_plan_pattern {
        char *text; /* pattern.h: absolute, or two stars and what is denied below any write root */
        char *why;  /* the setting that it comes from */
};

/* The parts of a plan that are plain values. */
struct cg_plan_values {
        bool off;
        bool root_writable; /* "/" is a write root */
        /* plan of a command: the host's signals are forwarded, only limits of the settings apply */
        bool command;
        bool weak_proc;    /* the host's /proc is shown if a new one cannot be mounted */
        bool nested_users; /* user namespaces may be made inside */
        /* plan of a kernel with a settings file: writable paths are not the defaults */
        bool by_settings;
        bool all_unix; /* all unix sockets are allowed */
        bool watch;    /* denied files are reported, too */
        /* connections without a network are reported, too: cg_plan_reports_network() */
        bool watch_network;
        bool report_denials;                  /* denied system calls are reported */
        bool report_stopped;                  /* cg_sandbox_report_stopped() */
        unsigned int doors;                   /* CG_DOOR_* */
        uint16_t ports[CG_SANDBOX_PORTS_MAX]; /* of the loopback inside, where the caller listens */
        size_t n_ports;
        struct cg_sandbox_limits limits;
        bool processes_asked;     /* set by a setting */
        const char *cgroup_files; /* NULL: /proc/self */
};

struct cg_sandbox {
        struct cg_plan_values set;
        struct cg_plan_mount *mounts; /* parents before children, CG_PLAN_COVER last */
        size_t n_mounts, cap_mounts;
        struct cg_plan_placeholder *placeholders;
        size_t n_placeholders, cap_placeholders;
        struct cg_plan_pattern *patterns; /* enforced by init (mediate.h) */
        size_t n_patterns, cap_patterns;
        char **programs; /* write roots in which init makes no programs: folders of PATH outside */
        size_t n_programs, cap_programs;
        struct cg_inodes unwritten; /* files that init opens for writing by no name */
        char *linked[3]; /* folders of such files, ends with NULL; init searches them when it has to */
        bool names;      /* names in write roots are protected: names.h, mediate.h */
        bool git_config; /* except .git/config */
        char *writable_names[CG_NAMES_WRITABLE_MAX]; /* and except these */
        size_t n_writable_names;
        void (*free_in_init)(void); /* cg_sandbox_free_in_init(); NULL: nothing */
        char *cwd;
        enum cg_exec exec;
        char *language; /* cg_sandbox_set_language(), or NULL */
        bool commands;  /* cg_sandbox_set_commands() */
        char **environ; /* of commands: NULL-terminated, or NULL */
        unsigned int filter_flags;
        struct sock_fprog filter; /* static, see seccomp.c */
        struct cg_grants *grants; /* of the landlock tier; NULL: full tier */
};

/* The sandbox has its own namespaces, and init is pid 1. */
static inline bool cg_plan_has_namespaces(const struct cg_sandbox *sb)
{
        return !sb->set.off && !sb->grants;
}

/* Inserts a copy of @m in order; an equal entry is not inserted twice. */
int cg_plan_insert(struct cg_sandbox *sb, const struct cg_plan_mount *m, struct cg_err *err);
/*
 * @path could not be looked up (EACCES): the folder above that is closed to this user, who owns it
 * and may open it again at any time; or @path itself, if that has happened. False: another user's
 * folder, or there is no such path.
 */
bool cg_plan_closed_folder(const char *path, char ret[PATH_MAX]);
/* cg_sandbox_add_hide() with a reason; NULL: the session hides it. */
int cg_plan_add_hide(struct cg_sandbox *sb, const char *path, const char *why, struct cg_err *err);
int cg_plan_add_placeholder(struct cg_sandbox *sb, const char *path, bool folder, bool mount_point,
                            struct cg_err *err);

int cg_plan_add_pattern(struct cg_sandbox *sb, const char *text, const char *why, struct cg_err *err);

/* No programs are made directly in the folder @path. */
int cg_plan_add_programs(struct cg_sandbox *sb, const char *path, struct cg_err *err);
/* No file of the folder @path, which is visible inside, is written by another name. */
int cg_plan_add_linked(struct cg_sandbox *sb, const char *path, struct cg_err *err);

/* @path must not be made. */
static inline bool cg_plan_is_absent(const struct cg_sandbox *sb, const char *path)
{
        for (size_t i = 0; i < sb->n_placeholders; i++)
                if (!sb->placeholders[i].mount_point && strcmp(sb->placeholders[i].path, path) == 0)
                        return true;
        return false;
}

/*
 * The innermost mount that contains @path, or NULL. Pins do not count, since they show the same as
 * their parents, nor do covers.
 */
static inline const struct cg_plan_mount *cg_plan_mount_at(const struct cg_sandbox *sb, const char *path)
{
        const struct cg_plan_mount *best = NULL;

        /* Later mounts are deeper, or are on top of earlier ones. */
        for (size_t i = 0; i < sb->n_mounts; i++) {
                const struct cg_plan_mount *m = &sb->mounts[i];

                if (m->kind != CG_PLAN_PIN && m->kind != CG_PLAN_COVER && cg_path_within(path, m->path))
                        best = m;
        }
        return best;
}

/* Processes inside can write, replace or remove the absolute path @path, or move a folder above. */
bool cg_plan_is_writable(const struct cg_sandbox *sb, const char *path);
/* Init traces programs that start, to check what they are. */
bool cg_plan_traces(const struct cg_sandbox *sb);

/* Reasons of rules (struct cg_plan_mount.why) other than settings: own_files.c. */
#define CG_WHY_OWN   "cellgate's own files"
#define CG_WHY_GUARD "program that runs outside"
/* The same: path_folders.c. After it may follow " " and the folder's name for writableNames. */
#define CG_WHY_PATH "PATH"
/* The same: named_programs.c. " " and the name of the protected file follow. */
#define CG_WHY_NAMED "named by"
/* The name after such a reason has no other characters: kernels report it, hosts show it. */
static inline bool cg_why_is_plain(const char *name)
{
        return !name[strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._/-")];
}
/* The same: git_settings.c. " " and the path follow, which is relative to each repository. */
#define CG_WHY_GIT "git's setting"
/* The same: hides.c. */
#define CG_WHY_CREDENTIALS "cellgate.hideCredentials"
/* The place of the system's credentials that @path is or is below (hides.c); NULL: none. */
const char *cg_plan_system_credentials(const char *path);
/* The same: hardlinks.c. */
#define CG_WHY_LINK "another name of a denied file"

/*
 * The "size" of a private tmpfs: @most ("1g"), but at most a quarter of @memory (bytes; 0: no
 * limit), since there are three large ones.
 */
#define CG_PLAN_SIZE_TEXT 24
const char *cg_plan_tmpfs_size(uint64_t memory, const char *most, char buf[CG_PLAN_SIZE_TEXT]);

/* connect() is reported: the caller asked for it, there is no network and no other handler. */
static inline bool cg_plan_reports_network(const struct cg_sandbox *sb)
{
        return sb->set.watch_network && cg_plan_has_namespaces(sb) && !sb->set.n_ports && !sb->set.doors &&
               !sb->set.all_unix;
}

/* Limits for a control group. */
void cg_plan_group_limits(const struct cg_sandbox *sb, struct cg_sandbox_limits *ret);
/* How each limit is enforced without a control group. */
void cg_plan_limits_by(const struct cg_sandbox *sb, enum cg_limit_by by[CG_LIMITS]);

/* A pid namespace has its own pid_max (Linux 6.14); before, writing it would change the host's. */
bool cg_plan_has_own_pid_max(void);
