/* The plan's data. Private to src/sandbox; made by the caller, read by every step inside. */
#ifndef CG_SANDBOX_PLAN_H
#define CG_SANDBOX_PLAN_H

#include <linux/filter.h>
#include <stdbool.h>
#include "sandbox/names.h"
#include "sandbox/sandbox.h"

/*
 * Ceilings. A kernel's plan is a handful of entries; one made from settings has a mount for each
 * denied path in a write root. The kernel itself stops at 100,000 (fs.mount-max).
 */
#define CG_PLAN_MOUNTS_MAX 16384
#define CG_PLAN_HIDES_MAX  512

/* Defaults of struct cg_sandbox_limits. */
#define CG_PLAN_PROCESSES  512
#define CG_PLAN_OPEN_FILES 4096
/* Of a command whose settings say nothing: what its caller has. */
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
/* Of a hidden folder in which some things are shown again: only names and folders for mounts. */
#define CG_PLAN_EMPTY_SIZE "1m"

/* What is mounted at a path. Where two entries name one path, the later kind lies on top. */
enum cg_plan_kind {
        CG_PLAN_TMPFS, /* private, writable, gone with the sandbox */
        CG_PLAN_DEV,
        CG_PLAN_PROC,
        CG_PLAN_SYS,
        CG_PLAN_WRITE,   /* the host's own path, writable */
        CG_PLAN_BIND_RO, /* src, read-only */
        /* Of what lies there in the view so far, so after what lies above it: */
        CG_PLAN_READ, /* the same, read-only */
        CG_PLAN_PIN,  /* the same, as a mount: it cannot be renamed or removed; also a symlink */
        CG_PLAN_HIDE, /* an empty read-only folder, or an unreadable file */
        /* an empty folder in which some things are shown again; read-only once they are */
        CG_PLAN_EMPTY,
        CG_PLAN_MASK, /* a file with other content */
};

struct cg_plan_mount {
        enum cg_plan_kind kind;
        char *path;       /* absolute, without symlinks */
        char *src;        /* CG_PLAN_WRITE and CG_PLAN_BIND_RO */
        const char *mode; /* CG_PLAN_TMPFS: static text */
        const char *size; /* CG_PLAN_TMPFS: static text */
        char *data;       /* CG_PLAN_MASK */
        size_t len;
        char *why; /* the setting that asked for it; NULL: the sandbox's own */
};

struct cg_grants;

/* A path where nothing is. */
struct cg_plan_placeholder {
        char *path;
        bool folder;
        /*
         * it is made on the host for the time of the sandbox (mountpoints.h); else it must not be
         * made: mediate.h
         */
        bool mount_point;
};

struct cg_sandbox {
        bool off;
        bool root_writable;           /* "/" is a write root */
        struct cg_plan_mount *mounts; /* parents before what lies in them */
        size_t n_mounts, cap_mounts;
        struct cg_plan_placeholder *placeholders;
        size_t n_placeholders, cap_placeholders;
        /* a command's: signals of the host are handed on, no limits but those asked for */
        bool command;
        bool weak_proc;    /* where a fresh /proc is refused the host's is shown */
        bool nested_users; /* user namespaces may be made inside */
        /* a kernel's: a settings file says what may be written, not the default */
        bool by_settings;
        bool all_unix; /* unix sockets of whatever kind lead anywhere */
        bool watch;    /* and files that cannot be had */
        /* and attempts to connect where there is no network: cg_plan_tells_network() */
        bool watch_network;
        bool told;          /* denied system calls are told */
        unsigned int doors; /* CG_DOOR_* */
        bool names;         /* names in write roots are protected: names.h, mediate.h */
        bool git_config;    /* but not .git/config */
        char *writable_names[CG_NAMES_WRITABLE_MAX]; /* nor these */
        size_t n_writable_names;
        char *hides[CG_PLAN_HIDES_MAX]; /* absolute, without symlinks */
        size_t n_hides;
        /* those of cg_sandbox_add_default_hides() among them */
        size_t credentials_from, credentials_to;
        uint16_t ports[CG_SANDBOX_PORTS_MAX]; /* listened at inside, by the caller */
        size_t n_ports;
        char *cwd;
        struct cg_sandbox_limits limits;
        bool processes_asked;     /* not the default */
        const char *cgroup_files; /* NULL: /proc/self */
        unsigned int filter_flags;
        struct sock_fprog filter; /* static, see seccomp.c */
        struct cg_grants *grants; /* of the landlock tier; NULL: the full one */
};

/* Whether the sandbox has namespaces of its own, pid 1 in one of them included. */
static inline bool cg_plan_has_namespaces(const struct cg_sandbox *sb)
{
        return !sb->off && !sb->grants;
}

/* Copies @m's texts and puts it where it belongs; the same entry twice is one. */
int cg_plan_insert(struct cg_sandbox *sb, const struct cg_plan_mount *m, struct cg_err *err);
int cg_plan_add_placeholder(struct cg_sandbox *sb, const char *path, bool folder, bool mount_point,
                            struct cg_err *err);
/* @path is one that must not be made. */
bool cg_plan_is_absent(const struct cg_sandbox *sb, const char *path);

/* Reasons of rules (struct cg_plan_mount.why) that are no settings: own_files.c. */
#define CG_WHY_OWN   "cellgate's own files"
#define CG_WHY_GUARD "program that runs outside"
/* The same, of hardlinks.c. */
#define CG_WHY_LINK "another name of a denied file"

/*
 * The "size" of a private tmpfs that may have @most ("1g"): at most a quarter of @memory (bytes; 0:
 * not bounded), since there are three large ones.
 */
#define CG_PLAN_SIZE_TEXT 24
const char *cg_plan_tmpfs_size(uint64_t memory, const char *most, char buf[CG_PLAN_SIZE_TEXT]);

/*
 * Whether connect() is looked at: where the caller wants it, nothing leads out, and nothing else
 * answers it.
 */
static inline bool cg_plan_tells_network(const struct cg_sandbox *sb)
{
        return sb->watch_network && cg_plan_has_namespaces(sb) && !sb->n_ports && !sb->doors && !sb->all_unix;
}

/* What a control group is to hold. */
void cg_plan_group_limits(const struct cg_sandbox *sb, struct cg_sandbox_limits *ret);
/* How each limit is held without a control group. */
void cg_plan_limits_by(const struct cg_sandbox *sb, enum cg_limit_by by[CG_LIMITS]);

/*
 * True where a pid namespace has a pid_max of its own (Linux 6.14); before, writing it would change
 * the host's.
 */
bool cg_plan_has_own_pid_max(void);

#endif
