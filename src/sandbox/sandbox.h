/*
 * The sandbox: a plan (pure data, made from settings) and one ordered entry into it.
 *
 * Used by the zygote (kernels) and by any program that runs a command in the sandbox. Setters of
 * the plan only record; cg_sandbox_spawn() applies it. No step is skipped silently: one that this
 * machine does not support is an error.
 *
 *      cg_sandbox_spawn()  spawn.c   the caller: clone3, waits until the main process is ready
 *      init (pid 1)        init.c    namespaces.c, mounts.c (dev.c, proc.c), fork; then reaps,
 *                                    reports, and replies to system calls (notify)
 *      main process        enter.c   drops all privileges in order; landlock.c, seccomp.c; main_fn
 *      command server      commands.c  enters as well, on request; starts programs beside it
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include "base/err.h"
#include "sandbox/limit.h"

struct cg_sandbox;

/*
 * A plan with: all namespaces, everything read-only, private /tmp, /var/tmp, /run, /dev, /proc,
 * /sys, no network.
 */
int cg_sandbox_new(struct cg_sandbox **ret, struct cg_err *err);
struct cg_sandbox *cg_sandbox_free(struct cg_sandbox *sb);
static inline void cg_sandbox_freep_(struct cg_sandbox **sb)
{
        cg_sandbox_free(*sb);
}
#define cg_auto_sandbox CG_CLEANUP(cg_sandbox_freep_)
/* Copies @sb. */
int cg_sandbox_copy(const struct cg_sandbox *sb, struct cg_sandbox **ret, struct cg_err *err);

/*
 * A plan for a command: all namespaces, everything read-only as on the host (no private /tmp), its
 * own /dev, /proc and /sys, no limits, signals of the host forwarded. cg_view_add() adds what it
 * may write and not read.
 */
enum {
        CG_COMMAND_UNIX_SOCKETS = 1, /* unix sockets of the host's programs can be connected to */
        CG_COMMAND_NESTED_USERS = 2, /* user namespaces may be made inside */
        /* if a new /proc cannot be mounted, the existing one is shown */
        CG_COMMAND_WEAK_PROC = 4,
};
int cg_sandbox_new_command(unsigned int flags, struct cg_sandbox **ret, struct cg_err *err);

/*
 * Tiers. `full` is described in this file. `landlock` is for machines that forbid user namespaces:
 * the view of the file system becomes Landlock rules, there are no namespaces, and a broker
 * (broker.h) executes what neither Landlock nor seccomp can decide. Its gaps: docs/security.md. It
 * is used on request only.
 */
enum cg_tier { CG_TIER_FULL, CG_TIER_LANDLOCK, CG_TIER_AUTO };

/* Handling of deny rules for paths in writable folders, which Landlock cannot express. */
enum cg_deny_rules {
        CG_DENY_RULES_REFUSE, /* an error that names the first of them */
        CG_DENY_RULES_FREEZE, /* nothing new can be made in the folders above them */
        /* rules that deny writing are dropped; hidden paths stay hidden, as with FREEZE */
        CG_DENY_RULES_ACCEPT,
};

struct cg_tier_choice {
        enum cg_tier tier;
        enum cg_deny_rules deny_rules;
};

/*
 * Parses "full", "landlock", "auto", the latter two with ":refuse" (the default), ":freeze" or
 * ":accept". CG_E_INVAL.
 */
int cg_tier_parse(const char *text, struct cg_tier_choice *ret, struct cg_err *err);
/*
 * Replaces CG_TIER_AUTO by the strongest tier that works here, which is tested by starting a
 * sandbox. CG_E_UNSUPPORTED: the landlock tier is requested or left, and does not work either. For
 * a process with one thread.
 */
int cg_tier_decide(struct cg_tier_choice *choice, struct cg_err *err);
/* The kernel's Landlock ABI version, or -errno. The landlock tier needs CG_TIER_LANDLOCK_ABI. */
int cg_landlock_abi(void);
#define CG_TIER_LANDLOCK_ABI 6

/*
 * Makes @sb a plan of the landlock tier. Must be the last setter, since it makes Landlock rules of
 * the plan. @private_dir: a folder that will exist when the sandbox starts, and is writable
 * regardless of the rest; NULL: none. CG_E_UNSUPPORTED: the plan has something that this tier
 * cannot do, which the error names.
 */
int cg_sandbox_set_landlock(struct cg_sandbox *sb, enum cg_deny_rules deny_rules, const char *private_dir,
                            struct cg_err *err);
/* /tmp is a private one of the sandbox. */
bool cg_sandbox_has_own_tmp(const struct cg_sandbox *sb);
/* "full", "landlock", or "off". */
const char *cg_sandbox_tier(const struct cg_sandbox *sb);
/* Ends everything inside of a sandbox of that tier. Without a sandbox init does it, within 5 s. */
void cg_sandbox_kill(int init_pidfd, const char *tier);

/* Disables isolation (--no-sandbox): the child still has init, status pipe and limits. */
void cg_sandbox_set_off(struct cg_sandbox *sb);
/*
 * Makes an absolute path writable; it has the same path inside. Symlinks are resolved once, here.
 * "/" is allowed. CG_E_INVAL for anything at or below /proc, /sys and /dev.
 */
int cg_sandbox_add_write(struct cg_sandbox *sb, const char *path, struct cg_err *err);
/*
 * Shows the folder or file @src read-only at the absolute path @dst, which has no symlink, "." or
 * ".." in it, is made if needed, is in a private tmpfs such as /run, and covers a write root of the
 * same path.
 */
int cg_sandbox_add_bind_ro(struct cg_sandbox *sb, const char *src, const char *dst, struct cg_err *err);
/*
 * Hides a path: covers it, after all other mounts, by an empty read-only folder or an unreadable
 * file, also where a bind_ro shows it. Missing and inaccessible paths are skipped. Its parents in a
 * write root cannot be renamed.
 */
int cg_sandbox_add_hide(struct cg_sandbox *sb, const char *path, struct cg_err *err);
/*
 * Hides usual places of credentials: below @home (NULL: none of these) and in the system's folders.
 * @scanned: CG_PRESENT_HOMES homes whose names were listed before (present.h), so that they need
 * not be listed again; NULL: none.
 */
struct cg_present;
int cg_sandbox_add_default_hides(struct cg_sandbox *sb, const char *home, const struct cg_present *scanned,
                                 struct cg_err *err);
/* Hides files of @workspace with credentials (.env, *.kdbx) that a search of some ms finds. */
int cg_sandbox_add_hides_below(struct cg_sandbox *sb, const char *workspace, struct cg_err *err);
/* Working directory inside. Default: the caller's, or "/" if that cannot be entered inside. */
int cg_sandbox_set_cwd(struct cg_sandbox *sb, const char *path, struct cg_err *err);

/*
 * A TCP port of the sandbox's loopback interface, IPv4 and IPv6, at which the caller listens before
 * any program runs inside; programs outside cannot connect to it. CG_E_LIMIT.
 */
#define CG_SANDBOX_PORTS_MAX 18 /* the proxy's two, and those of cellgate.ports.reach */
int cg_sandbox_add_port(struct cg_sandbox *sb, uint16_t port, struct cg_err *err);

/*
 * Requested limits that a control group can enforce get one; the others, and all if there is no
 * control group, are enforced by rlimits and the like: see limit.h.
 */
void cg_sandbox_set_limits(struct cg_sandbox *sb, const struct cg_sandbox_limits *limits);
/* How each limit would be enforced here, as in cg_sandbox_child.by. */
void cg_sandbox_limits_by(const struct cg_sandbox *sb, enum cg_limit_by by[CG_LIMITS]);
/* For tests: a folder with files like /proc/self/cgroup and /proc/self/mountinfo (borrows). */
void cg_sandbox_set_cgroup_files(struct cg_sandbox *sb, const char *folder);

/*
 * Reports denied system calls by cg_sandbox_child.denials_fd. Otherwise, and where the machine
 * cannot report them (another sandbox around this one has a listener, or Linux before 5.0), they
 * fail without a report.
 */
void cg_sandbox_report_denials(struct cg_sandbox *sb);
/*
 * Reports by cg_sandbox_child.status_fd (CG_SANDBOX_STOPPED_MAGIC) that nothing inside runs or
 * writes any more, where that is certain before the main process has ended: in the full tier, with
 * cg_sandbox_report_denials(), since Linux 6.11. What remains is to free memory.
 */
void cg_sandbox_report_stopped(struct cg_sandbox *sb);
/*
 * @fn runs in init once the main process has started and makes no calls, and unmaps memory of the
 * caller that only its own code uses. Not copied with the plan.
 */
void cg_sandbox_free_in_init(struct cg_sandbox *sb, void (*fn)(void));
/* Reports also files that rules of the plan deny. Calls that name files become slower. */
void cg_sandbox_set_watch(struct cg_sandbox *sb);
/*
 * With cg_sandbox_report_denials(): reports attempts to connect if there is no network. Each
 * connect() takes some 30 us more.
 */
void cg_sandbox_set_watch_network(struct cg_sandbox *sb);

/*
 * Protects names in write roots that programs outside obey (names.h), and paths that the plan says
 * must not be made: they cannot be made, changed, renamed or removed, since init executes such
 * calls. @writable: names that are not protected (copies); @git_config: nor are repositories'
 * configurations. Implies cg_sandbox_report_denials(); a machine that cannot report denials refuses
 * such a plan. For the full tier: the landlock tier protects only files that exist when it starts.
 * CG_E_LIMIT.
 */
int cg_sandbox_set_names(struct cg_sandbox *sb, const char *const *writable, size_t n, bool git_config,
                         struct cg_err *err);

/*
 * Connections across the sandbox's border, for which init has a socket to the outside
 * (cg_sandbox_child.doors_fd; messages: doors.h). Its other end can request sockets of the
 * sandbox's network namespace; with CG_DOOR_UNIX programs inside may make unix sockets, and connect
 * them to each other's and to those that the other end allows; with CG_DOOR_LISTEN the other end is
 * notified of ports that they listen at. The latter two need cg_sandbox_report_denials(), which
 * they imply; a machine that cannot report denials refuses such a plan.
 */
enum {
        CG_DOOR_PORTS = 1,
        CG_DOOR_UNIX = 2,
        CG_DOOR_LISTEN = 4,
};
void cg_sandbox_set_doors(struct cg_sandbox *sb, unsigned int doors);

/*
 * What becomes of programs that the main process and its descendants start; commands beside them
 * (commands.h) are not concerned. DENY: none starts, and each attempt is reported. The landlock
 * tier has it as well. ASK: for the full tier, needs cg_sandbox_set_commands(), by whose descriptor
 * init asks about each (inside/exec.h); what an approved program starts is free. ASK_EACH (and all
 * above ASK is a way to ask): that is asked about, too. A machine that cannot do it refuses such a
 * plan. All imply cg_sandbox_report_denials().
 */
enum cg_exec { CG_EXEC_ALLOW, CG_EXEC_DENY, CG_EXEC_ASK, CG_EXEC_ASK_EACH };
void cg_sandbox_set_exec(struct cg_sandbox *sb, enum cg_exec exec);
/*
 * The program (copies the path, which is absolute and without symlinks) that the main process may
 * start whatever cg_sandbox_set_exec() says; what this starts is not free. With DENY or ASK for the
 * full tier.
 */
int cg_sandbox_set_language(struct cg_sandbox *sb, const char *path, struct cg_err *err);

/*
 * Programs can be started beside the main process (commands.h), with the variables @envp ("NAME=VALUE",
 * NULL-terminated; copies, and wipes the copy when the plan is freed).
 */
int cg_sandbox_set_commands(struct cg_sandbox *sb, const char *const *envp, struct cg_err *err);

struct cg_sandbox_child {
        pid_t init_pid; /* in the caller's pid namespace; a child of the caller, which reaps it */
        /*
         * readable when init has ended; cg_sandbox_kill() ends everything inside. In a plan that is
         * off, SIGKILL would end init and the main process only
         */
        int init_pidfd;
        /*
         * pipe: a struct cg_sandbox_status when the main process has ended, then EOF. Also the
         * lifeline: when the caller ends or the last copy of this descriptor is closed, everything
         * inside ends
         */
        int status_fd;
        /* listening sockets in the order of cg_sandbox_add_port(), non-blocking; else -1 */
        int ports[CG_SANDBOX_PORTS_MAX];
        /* socket: one struct cg_sandbox_denial a message, then end of file; -1: not reported */
        int denials_fd;
        /* NULL: none. The caller frees it once init has ended: cgroup.h */
        struct cg_cgroup *cgroup;
        enum cg_limit_by by[CG_LIMITS]; /* how each limit is enforced */
        int doors_fd;                   /* socket; -1 without cg_sandbox_set_doors() */
        int commands_fd;                /* socket; -1 without cg_sandbox_set_commands() */
};

/*
 * Written by init to status_fd. EOF without a status means that init itself was killed. With
 * cg_sandbox_report_stopped() a first one may have CG_SANDBOX_STOPPED_MAGIC and no other members.
 */
struct cg_sandbox_status {
        uint32_t magic;    /* CG_SANDBOX_STATUS_MAGIC */
        int32_t exit_code; /* 0..255, or -1 when ended by a signal */
        int32_t signal;    /* 0 or the signal's number */
        int32_t core;      /* reserved, 0 */
};
#define CG_SANDBOX_STATUS_MAGIC  0x43475331u
#define CG_SANDBOX_STOPPED_MAGIC 0x43475332u

/* Written by init to denials_fd: a system call that the filter denied. Its contents are foreign. */
struct cg_sandbox_denial {
        uint32_t magic; /* CG_SANDBOX_DENIAL_MAGIC */
        int32_t nr;     /* of the system call; -1: none, only `lost` is reported */
        uint64_t args[4];
        int32_t pid;    /* inside */
        int32_t error;  /* errno of the call; 0: unknown */
        int32_t access; /* with rule: enum cg_access */
        int32_t rule;   /* 0, or the enum cg_access_rule that denies the file at path */
        uint32_t lost;  /* number of denials before this one that were not reported because of rate limits */
        char name[16];  /* of the process, which chooses it; may be empty */
        char setting[48]; /* setting of the rule; may be empty */
        char path[512];   /* beginning of the path, if the denial is about one */
};
#define CG_SANDBOX_DENIAL_MAGIC 0x43474431u

/*
 * Makes the namespaces and mounts, starts init (pid 1 inside) and, as its child, the main process,
 * which gives up every privilege and then calls @main_fn(data); its return value is the exit status
 * (by _exit: no atexit handler runs).
 *
 * @keep_fds: descriptors (of the caller) that the main process keeps, at their numbers; all others
 *            but 0, 1, 2 are closed there. init keeps only what it needs. CG_E_INVAL when one of
 *            them is not open.
 * The caller must be single-threaded (checked: CG_E_STATE). A step that fails inside comes back as
 * this function's error: what was being done, on what, and errno. CG_E_UNSUPPORTED when this
 * machine lacks a feature the plan needs. The parent returns 0 once the main process is about to
 * call @main_fn, which has the caller's signal mask and dispositions, but SIGCHLD at its default.
 * Threads: none.  Holds and needs no GIL; @main_fn runs in a forked copy of the caller (use
 * PyOS_AfterFork_Child there).
 */
int cg_sandbox_spawn(const struct cg_sandbox *sb, const int *keep_fds, size_t n_keep,
                     int (*main_fn)(void *data), void *data, struct cg_sandbox_child *ret,
                     struct cg_err *err);
/*
 * The same, with preparation of the main process: @prepare_fn(data) runs in it while init makes the
 * view, with all signals blocked, no descriptors but @keep_fds, and no layer yet. So it must be
 * trusted code on trusted data, open no file by name, which might be the host's, and start no
 * thread (checked: CG_E_STATE). Descriptors that it opens stay open. Negative, with @err: the start
 * fails.
 */
int cg_sandbox_spawn_prepared(const struct cg_sandbox *sb, const int *keep_fds, size_t n_keep,
                              int (*prepare_fn)(void *data, struct cg_err *err), int (*main_fn)(void *data),
                              void *data, struct cg_sandbox_child *ret, struct cg_err *err);

/*
 * The layers of a child of this plan, NULL-terminated static names: "user", "mount", ...,
 * "landlock", "seccomp". "process_limit" is missing if a process limit has no effect: for root
 * before Linux 6.14; "names" if init protects no names (cg_sandbox_set_names()).
 */
const char *const *cg_sandbox_layers(const struct cg_sandbox *sb);
