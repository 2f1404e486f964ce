/* See reply.h. Runs in init; everything in a call comes from inside the sandbox. */
#include "sandbox/inside/reply.h"

#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#include "base/util.h"
#include "sandbox/inside/caller.h"
#include "sandbox/inside/notify.h"

void cg_reply_result(const struct cg_notify *n, const struct seccomp_notif *call, int r)
{
        union {
                struct seccomp_notif_resp r;
                char room[512];
        } a = { .r = { .id = call->id } };

        if (r < 0)
                a.r.error = r;
        else
                a.r.val = r;
        /* It fails if the caller has been killed or interrupted meanwhile. */
        ioctl(n->listener, SECCOMP_IOCTL_NOTIF_SEND, &a);
}

void cg_reply_continue(const struct cg_notify *n, const struct seccomp_notif *call)
{
        struct seccomp_notif_resp r = { .id = call->id, .flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE };

        ioctl(n->listener, SECCOMP_IOCTL_NOTIF_SEND, &r);
}

/* ---- reports */

/*
 * Reports of paths that are repeated within a second, if there were no others: the next cell of a
 * kernel may try the same path again, and its own report names it.
 */
#define SPARE 8

/*
 * The same call was reported within the last second. Arguments that are addresses differ from call
 * to call, so only the first two are compared.
 */
static bool is_repeated(struct cg_notify *n, const struct seccomp_notif *call, const char *path, int64_t now)
{
        uint64_t key = cg_fnv1a(CG_FNV1A, &call->data.nr, sizeof(call->data.nr));
        size_t oldest = 0;

        key = cg_fnv1a(key, call->data.args, sizeof(call->data.args[0]) * 2);
        key = cg_fnv1a(key, &call->pid, sizeof(call->pid));
        if (path)
                key = cg_fnv1a(key, path, strlen(path));
        for (size_t i = 0; i < CG_NOTIFY_SAME; i++) {
                if (n->same[i].key == key && n->same[i].at_ms && now - n->same[i].at_ms < 1000)
                        return true;
                if (n->same[i].at_ms < n->same[oldest].at_ms)
                        oldest = i;
        }
        n->same[oldest].key = key;
        n->same[oldest].at_ms = now;
        return false;
}

static void report(struct cg_notify *n, const struct seccomp_notif *call, int error, const char *path,
                   const struct cg_path_denial *p)
{
        struct cg_sandbox_denial d = { .magic = CG_SANDBOX_DENIAL_MAGIC,
                                       .nr = call->data.nr,
                                       .pid = (int32_t)call->pid,
                                       .error = error };
        const uint64_t *a = (const uint64_t *)call->data.args;
        char text[CG_CALLER_STATUS_MAX];
        int64_t now = cg_now_ms();

        if (is_repeated(n, call, path, now) && !(p && n->tokens > (CG_NOTIFY_BURST - SPARE) * 1000))
                return;
        /*
         * How the C library makes its socket for nscd before it looks up a user, a group or a host:
         * `ls -l` and `id` do so and work without. Programs that make a socket with exactly these
         * arguments are refused without a report, too (docs/denials.md).
         */
        if (call->data.nr == SYS_socket && a[0] == AF_UNIX &&
            a[1] == (SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK) && a[2] == 0)
                return;
        n->tokens += (now - n->filled_ms) * CG_NOTIFY_PER_SECOND;
        n->filled_ms = now;
        if (n->tokens > CG_NOTIFY_BURST * 1000)
                n->tokens = CG_NOTIFY_BURST * 1000;
        if (n->tokens < 1000) {
                n->lost++;
                return;
        }
        n->tokens -= 1000;
        memcpy(d.args, call->data.args, sizeof(d.args));
        /* A call names a thread, a report its process: number and name as the process says. */
        if (!n->foreign_proc) {
                const char *process = cg_caller_status((pid_t)call->pid, "\nTgid:", text);

                if (sscanf(text, "Name:\t%15[^\n]", d.name) != 1)
                        d.name[0] = '\0';
                if (process)
                        d.pid = atoi(process);
        }
        snprintf(d.path, sizeof(d.path), "%s", path ?: "");
        if (p) {
                d.access = p->access;
                d.rule = p->rule;
                snprintf(d.setting, sizeof(d.setting), "%s", p->setting ?: "");
        }
        d.lost = n->lost;
        if (send(n->out, &d, sizeof(d), MSG_DONTWAIT | MSG_NOSIGNAL) == (ssize_t)sizeof(d))
                n->lost = 0;
        else
                n->lost++;
}

void cg_reply_deny(struct cg_notify *n, const struct seccomp_notif *call, int error, const char *path)
{
        /* Before the reply: until then the thread's number is not given to another. */
        report(n, call, error, path, NULL);
        cg_reply_result(n, call, -error);
}

void cg_reply_report(struct cg_notify *n, const struct seccomp_notif *call, const struct cg_path_denial *p)
{
        report(n, call, 0, p->path, p);
}

void cg_reply_report_lost(struct cg_notify *n)
{
        struct cg_sandbox_denial d = { .magic = CG_SANDBOX_DENIAL_MAGIC, .nr = -1, .lost = n->lost };

        if (n->lost)
                send(n->out, &d, sizeof(d), MSG_DONTWAIT | MSG_NOSIGNAL);
        n->lost = 0;
}
