/* See exec.h. Runs in init; everything in a call comes from inside the sandbox. */
#include "sandbox/inside/exec.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "base/buf.h"
#include "base/fd.h"
#include "base/proc.h"
#include "sandbox/inside/access.h"
#include "sandbox/inside/caller.h"
#include "sandbox/inside/mediate_int.h"
#include "sandbox/inside/notify.h"
#include "sandbox/inside/reply.h"
#include "sandbox/plan.h"

/* As in Linux: interpreters of interpreters, and the length of the first line. */
#define SCRIPTS_MAX 5
#define SCRIPT_LINE 255
/* Number of parents that are looked at of a process whose program is asked about. */
#define PARENTS_MAX 64
#define CHANGED     "it is not what was approved"
/* How often callers are checked that wait for an answer. */
#define CHECK_MS 200
/* For which a refusal holds without another question, see struct cg_exec_refusal. */
#define REFUSED_MS 1000
/* For an execve() to succeed or fail; afterwards init looks which it was. */
#define RUN_MS 1000

/* ---- what a call would execute */

struct program {
        char path[PATH_MAX];        /* absolute, without symlinks; "": not known */
        char given[PATH_MAX];       /* as the caller named it */
        char interpreter[PATH_MAX]; /* of a script; else "" */
        struct cg_exec_file image;  /* of the interpreter, or the program */
        bool writable;              /* cells can change what runs: its file, or what its name leads to */
};

static bool same_file(const struct cg_exec_file *a, const struct stat *st)
{
        return a->dev == st->st_dev && a->ino == st->st_ino;
}

/*
 * Opens (O_PATH) the file that the call would execute, as the caller would find it. *movable: see
 * cg_med_resolve_file(). A descriptor, or -errno: what the call would fail with anyway, or -EACCES
 * where init cannot find out.
 */
static int open_program(const struct cg_med_call *c, char given[PATH_MAX], bool *movable)
{
        const struct seccomp_notif *call = c->notif;
        bool at = call->data.nr == SYS_execveat;
        int dirfd = at ? (int)call->data.args[0] : AT_FDCWD;
        int r = cg_caller_read_path(call, call->data.args[at ? 1 : 0], given);
        cg_auto_fd int base = -1, fd = -1;
        struct stat st;

        if (r < 0) {
                given[0] = '\0';
                return r;
        }
        if (given[0] != '/') {
                base = cg_med_open_dirfd(c, dirfd);
                if (base < 0)
                        return -EACCES;
        }
        if (given[0]) {
                fd = cg_med_resolve_file(c, base, given, movable);
                if (fd < 0)
                        return -errno;
        } else if (at && call->data.args[4] & AT_EMPTY_PATH) {
                fd = cg_steal_fd(&base);
        } else {
                return -ENOENT;
        }
        if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || !(st.st_mode & 0111))
                return -EACCES;
        return cg_steal_fd(&fd);
}

/* The path of @fd, if it leads to this file. */
static bool name_of(int fd, char path[PATH_MAX], struct cg_exec_file *file)
{
        struct stat st, named;

        cg_med_fd_path(fd, path);
        if (path[0] != '/' || fstat(fd, &st) < 0 || lstat(path, &named) < 0)
                return false;
        *file = (struct cg_exec_file){ st.st_dev, st.st_ino };
        return same_file(file, &named);
}

static bool may_execute(int fd)
{
        struct statvfs fs;

        return syscall(SYS_faccessat2, fd, "", X_OK, AT_EMPTY_PATH | AT_EACCESS) == 0 &&
               fstatvfs(fd, &fs) == 0 && !(fs.f_flag & ST_NOEXEC);
}

/*
 * The interpreter of the file @fd (O_PATH), and its argument, as Linux reads them; "" each: none.
 * False: the line is malformed.
 */
static bool read_script(int fd, char interpreter[SCRIPT_LINE + 1], char argument[SCRIPT_LINE + 1])
{
        char link[48], line[SCRIPT_LINE + 1], *p, *end;
        cg_auto_fd int in = -1;
        ssize_t n;

        interpreter[0] = argument[0] = '\0';
        snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
        in = open(link, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
        n = in < 0 ? 0 : pread(in, line, SCRIPT_LINE, 0);
        if (n < 2 || line[0] != '#' || line[1] != '!')
                return true;
        line[n] = '\0';
        end = strchr(line, '\n');
        if (end)
                *end = '\0';
        else
                end = line + strlen(line);
        while (end > line + 2 && (end[-1] == ' ' || end[-1] == '\t'))
                *--end = '\0';
        p = line + 2 + strspn(line + 2, " \t");
        if (!*p)
                return false;
        n = (ssize_t)strcspn(p, " \t");
        snprintf(interpreter, SCRIPT_LINE + 1, "%.*s", (int)n, p);
        p += n;
        snprintf(argument, SCRIPT_LINE + 1, "%s", p + strspn(p, " \t"));
        return true;
}

/* Puts the arguments @list in front of those in @args, whose first is left out. */
static int insert_args(struct cg_buf *args, const char *const *list, size_t n)
{
        cg_auto_buf struct cg_buf b = { .max = args->max };
        size_t first = strlen(args->data) + 1;

        for (size_t i = 0; i < n; i++)
                if (list[i])
                        cg_buf_add(&b, list[i], strlen(list[i]) + 1);
        cg_buf_add(&b, args->data + first, args->len - first);
        if (cg_buf_end(&b, NULL) < 0)
                return -E2BIG;
        cg_buf_fini(args);
        *args = b;
        b = (struct cg_buf){ .max = 0 };
        return 0;
}

/*
 * Finds what the call would execute, and changes @args (arguments with a NUL each) to what the new
 * image will have. 0 or -errno; *why: what the host cannot be asked about, or NULL.
 */
static int find_program(const struct cg_med_call *c, const struct cg_sandbox *sb, struct program *p,
                        struct cg_buf *args, const char **why)
{
        bool movable = false;
        cg_auto_fd int fd = open_program(c, p->given, &movable), base = -1;
        char interpreter[SCRIPT_LINE + 1], argument[SCRIPT_LINE + 1], script[PATH_MAX];

        *why = "it has no name that could be shown";
        if (fd < 0 && (p->given[0] || fd != -EACCES))
                *why = NULL;
        if (fd < 0)
                return fd;
        if (!name_of(fd, p->path, &p->image))
                return -EACCES;
        *why = NULL;
        p->writable = cg_plan_is_writable(sb, p->path);
        memcpy(script, p->given, sizeof(script));
        for (int i = 0;; i++) {
                if (!may_execute(fd))
                        return -EACCES;
                if (!read_script(fd, interpreter, argument))
                        return -ENOEXEC;
                if (!interpreter[0])
                        return 0;
                if (i == SCRIPTS_MAX)
                        return -ELOOP;
                /* The interpreter opens the script by its name, after the last comparison. */
                p->writable |= movable;
                *why = "it is a script that is given as a descriptor";
                if (c->notif->data.nr == SYS_execveat && (int)c->notif->data.args[0] != AT_FDCWD &&
                    p->given[0] != '/')
                        return -EACCES;
                *why = NULL;
                if (insert_args(args, (const char *const[]){ interpreter, cg_or_null(argument), script }, 3) <
                    0)
                        return -E2BIG;
                memcpy(script, interpreter, strlen(interpreter) + 1);
                if (base < 0 && interpreter[0] != '/')
                        base = cg_med_open_dirfd(c, AT_FDCWD);
                cg_closep_(&fd);
                fd = cg_med_resolve_file(c, base, interpreter, &movable);
                if (fd < 0)
                        return -errno;
                if (!name_of(fd, p->interpreter, &p->image))
                        return -EACCES;
                p->writable |= cg_plan_is_writable(sb, p->interpreter);
        }
}

/* ---- the caller */

/*
 * The caller's process has the image of the main process, or of the session's language. An unknown
 * one is taken for it.
 */
static bool is_asked_about(const struct cg_execs *e, const struct seccomp_notif *call)
{
        char link[48];
        struct stat st;

        snprintf(link, sizeof(link), "/proc/%d/exe", (int)call->pid);
        return !e->own.ino || stat(link, &st) < 0 || same_file(&e->own, &st) || same_file(&e->language, &st);
}

/*
 * The main process, and no other image, starts the session's language, which cells cannot change.
 * Its arguments are free: cells tell the language what to do anyway.
 */
static bool starts_language(const struct cg_execs *e, const struct seccomp_notif *call,
                            const struct program *p)
{
        char link[48];
        struct stat st;

        snprintf(link, sizeof(link), "/proc/%d/exe", (int)call->pid);
        return e->sb->language && e->own.ino && stat(link, &st) == 0 && same_file(&e->own, &st) &&
               !p->writable && !p->interpreter[0] && strcmp(p->path, e->sb->language) == 0;
}

/* The number of system call filters of a process; -1: unknown. */
static int count_filters(pid_t pid)
{
        char text[CG_CALLER_STATUS_MAX];
        const char *p = cg_caller_status(pid, "\nSeccomp_filters:", text);

        return p ? atoi(p) : -1;
}

static bool file_at(pid_t pid, const char *name, struct cg_exec_file *file)
{
        char link[48];
        struct stat st;

        snprintf(link, sizeof(link), "/proc/%d/%s", (int)pid, name);
        if (stat(link, &st) < 0)
                return false;
        *file = (struct cg_exec_file){ st.st_dev, st.st_ino };
        return true;
}

/* The process has no standard input, or execve() closes it. */
static bool lacks_stdin(pid_t pid)
{
        char info[256], *flags;

        cg_caller_proc_text(pid, "fdinfo/0", info, sizeof(info));
        flags = strstr(info, "flags:");
        return !flags || strtoul(flags + strlen("flags:"), NULL, 8) & O_CLOEXEC;
}

/* Appends the texts that the list of addresses at @at names, to its end. 0 or -errno. */
static int read_texts(const struct seccomp_notif *call, uint64_t at, struct cg_buf *b, uint32_t *n)
{
        char text[PATH_MAX];

        for (uint64_t address; at; at += sizeof(address)) {
                int r = cg_caller_read(call, at, &address, sizeof(address));

                if (r < 0 || !address)
                        return r;
                if (++*n > CG_EXEC_TEXTS_MAX)
                        return -E2BIG;
                /* In pieces of PATH_MAX - 1 bytes: a longer text is not cut. */
                for (;;) {
                        r = cg_caller_read_path(call, address, text);
                        if (r < 0 && r != -ENAMETOOLONG)
                                return r;
                        cg_buf_add(b, text, r < 0 ? sizeof(text) : strlen(text) + 1);
                        if (cg_buf_end(b, NULL) < 0)
                                return -E2BIG;
                        if (r == 0)
                                break;
                        address += sizeof(text);
                }
        }
        return 0;
}

/* ---- the question */

static struct cg_exec_call *find_call(struct cg_execs *e, uint32_t number)
{
        for (size_t i = 0; i < CG_EXEC_CALLS; i++)
                if (e->calls[i].state != CG_EXEC_FREE && e->calls[i].number == number)
                        return &e->calls[i];
        return NULL;
}

static void free_call(struct cg_exec_call *c)
{
        free(c->texts);
        free(c->path);
        *c = (struct cg_exec_call){ .state = CG_EXEC_FREE };
}

static bool send_message(const struct cg_execs *e, int type, uint32_t number, int fd)
{
        struct cg_exec_message m = { .type = type, .number = number };

        return cg_send_fds(e->sock, &m, sizeof(m), &fd, fd >= 0, NULL) == 0;
}

/* @name=... is in the @n texts at @list. */
static const char *find_variable(const char *list, size_t n, const char *name, size_t len)
{
        for (; n--; list += strlen(list) + 1)
                if (strncmp(list, name, len) == 0 && list[len] == '=')
                        return list;
        return NULL;
}

/* See struct cg_exec_question. */
static uint64_t began(const struct cg_execs *e, pid_t pid)
{
        struct cg_proc_stat s;
        uint64_t oldest = UINT64_MAX;

        for (int i = 0; i < PARENTS_MAX && cg_proc_read_stat(pid, &s); i++, pid = s.parent) {
                if (s.parent == e->main)
                        return oldest;
                oldest = CG_MIN(oldest, s.started);
        }
        return 0;
}

/* Writes the question to a file: its descriptor, or -1. */
static int write_question(const struct cg_execs *e, const struct seccomp_notif *call, const struct program *p,
                          const char *argv, uint32_t argc, const char *envp, uint32_t envc, const char *cwd,
                          int stdin_fd)
{
        struct cg_exec_question q = { .pid = cg_caller_process((pid_t)call->pid),
                                      .writable = p->writable,
                                      .argc = argc };
        cg_auto_buf struct cg_buf b = { .max = 4 * CG_EXEC_TEXT_MAX };
        cg_auto_fd int fd = memfd_create("cellgate-exec", MFD_CLOEXEC);
        char in[PATH_MAX] = "";
        const char *const fixed[] = { [CG_EXEC_PROGRAM] = p->path,
                                      [CG_EXEC_INTERPRETER] = p->interpreter,
                                      [CG_EXEC_CWD] = cwd,
                                      [CG_EXEC_STDIN] = in };
        char *const *plan = e->sb->environ;
        const char *at = argv;

        q.began = began(e, q.pid);
        if (stdin_fd >= 0)
                cg_med_fd_path(stdin_fd, in);
        if (in[0] && in[0] != '/')
                *strchrnul(in, ':') = '\0'; /* without the number */
        for (size_t i = 0; i < CG_ARRAY_LEN(fixed); i++)
                cg_buf_add(&b, fixed[i], strlen(fixed[i]) + 1);
        for (uint32_t i = 0; i < argc; i++, at += strlen(at) + 1)
                cg_buf_add(&b, at, strlen(at) + 1);
        at = envp;
        for (uint32_t i = 0; i < envc; i++, at += strlen(at) + 1) {
                bool planned;

                /* The kernel's start has added it (python_stubs/cellgate_kernel/preload.py). */
                planned = strcmp(at, "MPLBACKEND=module://matplotlib_inline.backend_inline") == 0;
                /* Shells add what the question shows anyway. */
                planned |= strncmp(at, "_=", 2) == 0 && strcmp(at + 2, p->given) == 0;
                for (size_t k = 0; plan && plan[k] && !planned; k++)
                        planned = strcmp(plan[k], at) == 0;
                if (planned)
                        continue;
                q.n_set++;
                cg_buf_add(&b, at, strlen(at) + 1);
        }
        for (size_t k = 0; plan && plan[k]; k++) {
                size_t len = strcspn(plan[k], "=");

                if (find_variable(envp, envc, plan[k], len))
                        continue;
                q.n_unset++;
                cg_buf_add(&b, plan[k], len);
                cg_buf_add(&b, "", 1);
        }
        q.text_len = (uint32_t)b.len;
        if (cg_buf_end(&b, NULL) < 0 || fd < 0 || cg_write_all(fd, (const char *)&q, sizeof(q), NULL) < 0 ||
            cg_write_all(fd, b.data, b.len, NULL) < 0)
                return -1;
        return cg_steal_fd(&fd);
}

/* ---- its execution */

static struct seccomp_notif notif_of(const struct cg_exec_call *c)
{
        return (struct seccomp_notif){ .id = c->id, .pid = (uint32_t)c->tid, .data = { .nr = SYS_execve } };
}

static void report_unstarted(const struct cg_execs *e, const struct cg_exec_call *c, const char *why)
{
        struct cg_path_denial d = {
                .path = c->path, .access = CG_ACCESS_EXEC, .rule = CG_ACCESS_NOT_ASKED, .setting = why
        };
        struct seccomp_notif call = notif_of(c);

        cg_reply_report(e->notify, &call, &d);
}

static struct cg_exec_call *traced_call(struct cg_execs *e, pid_t tid)
{
        for (size_t i = 0; i < CG_EXEC_CALLS; i++) {
                struct cg_exec_call *c = &e->calls[i];

                if (c->tid == tid && (c->state == CG_EXEC_RUNS || c->state == CG_EXEC_LEAVES))
                        return c;
        }
        return NULL;
}

/*
 * Init traces the thread: from now on, or since a former execve() that has failed. A call of that
 * number proves nothing, since the number may have become another thread's.
 */
static bool trace(pid_t tid)
{
        char text[CG_CALLER_STATUS_MAX];
        const char *p;

        if (ptrace(PTRACE_SEIZE, tid, NULL, (void *)(PTRACE_O_TRACEEXEC | PTRACE_O_EXITKILL)) == 0)
                return true;
        p = cg_caller_status(tid, "\nTracerPid:", text);
        return p && atoi(p) == getpid();
}

static void run(struct cg_execs *e, struct cg_exec_call *c)
{
        const struct seccomp_notif call = notif_of(c);
        struct cg_exec_call *former = traced_call(e, c->tid);

        if (former)
                free_call(former);
        if (!trace(c->tid)) {
                cg_reply_result(e->notify, &call, -EPERM);
                report_unstarted(e, c, "its process cannot be traced");
                free_call(c);
                return;
        }
        c->state = CG_EXEC_RUNS;
        c->deadline_ms = cg_now_ms() + RUN_MS;
        /* If it does not wait any more, it has ended, or its number is another's: to be left. */
        if (cg_caller_waits(e->notify, &call))
                cg_reply_continue(e->notify, &call);
        else
                c->deadline_ms = 0;
}

/* ---- the call */

/*
 * Asks about the call, which then waits; a start of the language is executed at once. 0 or -errno,
 * for DENY that of all other calls; *why as of find_program().
 */
static int ask(struct cg_execs *e, const struct seccomp_notif *call, struct program *p, const char **why)
{
        bool at = call->data.nr == SYS_execveat;
        struct cg_med_call c = {
                .mediator = e->notify->mediator, .notify = e->notify, .notif = call, .tid = (pid_t)call->pid
        };
        cg_auto_buf struct cg_buf argv = { .max = CG_EXEC_TEXT_MAX }, args = { .max = 2 * CG_EXEC_TEXT_MAX },
                                  envp = { .max = CG_EXEC_TEXT_MAX };
        struct cg_exec_call *slot = NULL;
        uint32_t argc = 0, envc = 0;
        uint64_t key;
        cg_auto_fd int cwd = -1, in = -1, question = -1;
        char folder[PATH_MAX];
        bool language;
        struct cg_exec_file its_cwd;
        struct stat st = { 0 };
        int r;

        if ((r = read_texts(call, call->data.args[1 + at], &argv, &argc)) < 0 ||
            (r = read_texts(call, call->data.args[2 + at], &envp, &envc)) < 0) {
                if (r == -E2BIG)
                        *why = "it has over 256 KiB or 4096 of arguments";
                return r;
        }
        if (!argc)
                return -EINVAL;
        cg_buf_add(&args, argv.data, argv.len);
        if (cg_buf_end(&args, NULL) < 0)
                return -ENOMEM;
        r = find_program(&c, e->sb, p, &args, why);
        if (r < 0)
                return r;
        language = starts_language(e, call, p);
        if (!language && e->sb->exec == CG_EXEC_DENY)
                return -EPERM;
        cwd = cg_caller_open(e->notify, call, AT_FDCWD);
        if (cwd < 0 || !name_of(cwd, folder, &its_cwd)) {
                *why = "its folder has no name in the sandbox";
                return -EACCES;
        }
        if (count_filters((pid_t)call->pid) != e->filters) {
                *why = "its process has a system call filter of its own";
                return -EPERM;
        }
        key = cg_fnv1a(CG_FNV1A, &call->pid, sizeof(call->pid));
        key = cg_fnv1a(key, p->path, strlen(p->path) + 1);
        key = cg_fnv1a(key, argv.data, argv.len);
        key = cg_fnv1a(key, envp.data ?: "", envp.len);
        for (size_t i = 0; i < CG_ARRAY_LEN(e->refused); i++)
                if (e->refused[i].key == key && cg_now_ms() < e->refused[i].until_ms)
                        return -EPERM;
        for (size_t i = 0; i < CG_EXEC_CALLS && !slot; i++)
                slot = e->calls[i].state == CG_EXEC_FREE ? &e->calls[i] : NULL;
        if (!slot)
                return -EAGAIN;
        /* Opened once: other threads may change it at any time. */
        in = lacks_stdin((pid_t)call->pid) ? -EBADF : cg_caller_open(e->notify, call, 0);
        if ((in < 0 && in != -EBADF) || (in >= 0 && fstat(in, &st) < 0))
                return -EAGAIN;
        if (!language)
                question = write_question(e, call, p, argv.data, argc, envp.data ?: "", envc, folder, in);
        *slot = (struct cg_exec_call){ .state = CG_EXEC_WAITS,
                                       .number = ++e->next,
                                       .id = call->id,
                                       .tid = (pid_t)call->pid,
                                       .args_len = args.len,
                                       .texts_len = args.len + envp.len,
                                       .image = p->image,
                                       .cwd = its_cwd,
                                       .in = { st.st_dev, st.st_ino },
                                       .key = key,
                                       .path = strdup(p->path) };
        cg_buf_add(&args, envp.data ?: "", envp.len);
        slot->texts = cg_buf_steal(&args, NULL);
        /* The memory was the caller's only if the call still waits. */
        if (!slot->texts || !slot->path || !cg_caller_waits(e->notify, call) ||
            (!language && (question < 0 || !send_message(e, CG_EXEC_ASKED, slot->number, question)))) {
                free_call(slot);
                return -EAGAIN;
        }
        if (language)
                run(e, slot);
        return 0;
}

void cg_execs_call(struct cg_execs *e, const struct seccomp_notif *call)
{
        struct program p = { .path = "" };
        struct cg_med_call c = {
                .mediator = e->notify->mediator, .notify = e->notify, .notif = call, .tid = (pid_t)call->pid
        };
        struct seccomp_notif same = *call;
        const char *why = NULL;
        bool movable;
        int r;

        if (e->sb->exec == CG_EXEC_DENY && e->sb->language && ask(e, call, &p, &why) == 0)
                return;
        if (e->sb->exec >= CG_EXEC_ASK) {
                if (e->sb->exec == CG_EXEC_ASK && !is_asked_about(e, call)) {
                        /* Another thread's execve() would have ended this one, and the wait. */
                        cg_reply_continue(e->notify, call);
                        return;
                }
                r = ask(e, call, &p, &why);
                if (r == 0)
                        return;
                if (why) {
                        struct cg_path_denial d = { .path = p.path[0] ? p.path : p.given,
                                                    .access = CG_ACCESS_EXEC,
                                                    .rule = CG_ACCESS_NOT_ASKED,
                                                    .setting = why };

                        cg_reply_report(e->notify, call, &d);
                }
                cg_reply_result(e->notify, call, r);
                return;
        }
        r = open_program(&c, p.given, &movable);
        /* A search through PATH finds most names missing. */
        if (r == -ENOENT || r == -EFAULT || r == -ENAMETOOLONG) {
                cg_reply_result(e->notify, call, r);
                return;
        }
        /* A search finds /bin/ls after /usr/bin/ls: one report, although the addresses differ. */
        memset(same.data.args, 0, sizeof(same.data.args));
        if (r >= 0) {
                cg_med_fd_path(r, p.path);
                close(r);
        }
        cg_reply_deny(e->notify, &same, EPERM, p.path[0] ? p.path : p.given);
}

/* ---- the answer */

void cg_execs_answer(struct cg_execs *e, const struct cg_exec_message *m)
{
        struct cg_exec_call *c = find_call(e, m->number);
        struct seccomp_notif call;

        if (!c || c->state != CG_EXEC_WAITS)
                return;
        if (m->type == CG_EXEC_ACCEPTED) {
                run(e, c);
                return;
        }
        call = notif_of(c);
        e->refused[e->n_refused++ % CG_ARRAY_LEN(e->refused)] = (struct cg_exec_refusal){
                c->key, cg_now_ms() + REFUSED_MS
        };
        cg_reply_result(e->notify, &call, -EPERM);
        free_call(c);
}

/* ---- the new image */

/* The fields 48 to 51 of /proc/PID/stat: where arguments and variables begin and end. */
static bool find_texts(pid_t pid, uint64_t at[4])
{
        char text[2048], *p;

        cg_caller_proc_text(pid, "stat", text, sizeof(text));
        p = strrchr(text, ')');
        for (int field = 2; p && field < 48; field++)
                p = strchr(p + 1, ' ');
        return p && sscanf(p, " %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64, &at[0], &at[1], &at[2],
                           &at[3]) == 4;
}

/* The stopped process is what the host was asked about. */
static bool is_approved(const struct cg_execs *e, const struct cg_exec_call *c, pid_t pid)
{
        struct seccomp_notif call = { .pid = (uint32_t)pid };
        struct cg_exec_file image, cwd, in;
        cg_auto_free char *texts = malloc(c->texts_len + 1);
        uint64_t at[4];

        if (!file_at(pid, "fd/0", &in))
                in = (struct cg_exec_file){ 0 };
        return texts && in.dev == c->in.dev && in.ino == c->in.ino && file_at(pid, "exe", &image) &&
               image.dev == c->image.dev && image.ino == c->image.ino && file_at(pid, "cwd", &cwd) &&
               cwd.dev == c->cwd.dev && cwd.ino == c->cwd.ino && count_filters(pid) == e->filters &&
               find_texts(pid, at) && at[1] - at[0] == c->args_len &&
               at[3] - at[2] == c->texts_len - c->args_len &&
               cg_caller_read(&call, at[0], texts, c->args_len) == 0 &&
               (c->texts_len == c->args_len ||
                cg_caller_read(&call, at[2], texts + c->args_len, c->texts_len - c->args_len) == 0) &&
               memcmp(texts, c->texts, c->texts_len) == 0;
}

bool cg_execs_status(struct cg_execs *e, pid_t pid, int status)
{
        struct cg_exec_call *c = e->sb ? traced_call(e, pid) : NULL;
        int event = status >> 16, sig = WIFSTOPPED(status) ? WSTOPSIG(status) : 0;
        unsigned long former = 0;

        if (!WIFSTOPPED(status)) {
                if (c)
                        free_call(c);
                return false;
        }
        if (event == PTRACE_EVENT_EXEC) {
                /* The thread that called execve() has taken the number of its process. */
                if (ptrace(PTRACE_GETEVENTMSG, pid, NULL, &former) == 0 && former != (unsigned long)pid)
                        c = traced_call(e, (pid_t)former);
                if (!c || !is_approved(e, c, pid)) {
                        kill(pid, SIGKILL);
                        if (c)
                                report_unstarted(e, c, CHANGED);
                } else {
                        ptrace(PTRACE_DETACH, pid, NULL, NULL);
                }
                if (c)
                        free_call(c);
                /* The call of the thread that had the number has failed. */
                c = traced_call(e, pid);
                if (c)
                        free_call(c);
                return true;
        }
        if (!c || c->state == CG_EXEC_LEAVES) {
                ptrace(PTRACE_DETACH, pid, NULL, (void *)(uintptr_t)(event ? 0 : sig));
                if (c)
                        free_call(c);
        } else if (event == PTRACE_EVENT_STOP && sig != SIGTRAP) {
                ptrace(PTRACE_LISTEN, pid, NULL, NULL); /* stopped by a signal, and continued by one */
        } else {
                ptrace(PTRACE_CONT, pid, NULL, (void *)(uintptr_t)(event ? 0 : sig));
        }
        return true;
}

/* ---- */

int cg_execs_timeout(const struct cg_execs *e)
{
        for (size_t i = 0; e->sb && i < CG_EXEC_CALLS; i++)
                if (e->calls[i].state != CG_EXEC_FREE)
                        return CHECK_MS;
        return -1;
}

void cg_execs_tick(struct cg_execs *e)
{
        int64_t now = cg_now_ms();

        for (size_t i = 0; e->sb && i < CG_EXEC_CALLS; i++) {
                struct cg_exec_call *c = &e->calls[i];
                const struct seccomp_notif call = notif_of(c);

                if (c->state == CG_EXEC_WAITS && !cg_caller_waits(e->notify, &call)) {
                        send_message(e, CG_EXEC_WITHDRAWN, c->number, -1);
                        free_call(c);
                } else if (c->state == CG_EXEC_RUNS && now >= c->deadline_ms) {
                        /* It stops when it leaves the system call, or executes the program. */
                        c->state = CG_EXEC_LEAVES;
                        if (ptrace(PTRACE_INTERRUPT, c->tid, NULL, NULL) < 0 && errno == ESRCH)
                                free_call(c); /* it has ended, or is not traced any more */
                }
        }
}

int cg_execs_check(struct cg_err *err)
{
        cg_auto_fd int yama = open("/proc/sys/kernel/yama/ptrace_scope", O_RDONLY | O_CLOEXEC);
        char scope = 0;

        if (yama >= 0 && read(yama, &scope, 1) == 1 && scope == '3')
                return cg_fail(err, CG_E_UNSUPPORTED,
                               "sandbox: exec \"ask\" needs ptrace(2), which the sysctl "
                               "kernel.yama.ptrace_scope = 3 forbids; use \"deny\" or \"allow\"");
        /* ESRCH: this process is not traced, and ptrace() is allowed. */
        if (ptrace(PTRACE_DETACH, getpid(), NULL, NULL) < 0 && errno == ESRCH)
                return 0;
        return cg_fail_errno(
                err, "sandbox: exec \"ask\" needs ptrace(2), which is forbidden here (by a container's "
                     "filter?); use \"deny\" or \"allow\"");
}

void cg_execs_init(struct cg_execs *e, const struct cg_sandbox *sb, struct cg_notify *n, int sock, pid_t main,
                   bool affinity)
{
        struct stat st;

        *e = (struct cg_execs){
                .sb = sb->exec == CG_EXEC_ALLOW ? NULL : sb, .notify = n, .sock = sock, .main = main
        };
        if (!e->sb || !cg_plan_traces(sb))
                return;
        if (!file_at(getpid(), "exe", &e->own))
                e->own.ino = 0;
        if (sb->language && stat(sb->language, &st) == 0)
                e->language = (struct cg_exec_file){ st.st_dev, st.st_ino };
        e->filters = count_filters(getpid()) + 1 + affinity;
}
