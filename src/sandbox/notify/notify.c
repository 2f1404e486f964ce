/*
 * init's answers to denied system calls: see notify.h. Everything in a call comes from inside:
 * numbers to compare, nothing more.
 */
#include "sandbox/notify/notify.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/util.h"
#include "sandbox/notify/broker.h"
#include "sandbox/notify/doors.h"
#include "sandbox/notify/mediate.h"
#include "sandbox/setid.h"
#include "sandbox/notify/watch.h"

/* Room for what later kernels may add to a call. */
union call {
        struct seccomp_notif n;
        char room[512];
};

/* Calls that need more than a refusal. */
static const struct {
        int nr;
        void (*handle)(struct cg_notify *n, const struct seccomp_notif *call);
} handlers[] = {
        { SYS_connect, cg_doors_connect },    { SYS_listen, cg_doors_listen },
#ifdef SYS_chmod
        { SYS_chmod, cg_broker_mode },
#endif
        { SYS_fchmod, cg_broker_mode },       { SYS_fchmodat, cg_broker_mode },
        { CG_SYS_FCHMODAT2, cg_broker_mode },
};

void cg_notify_init(struct cg_notify *n, int sock, int out, bool foreign_proc)
{
        *n = (struct cg_notify){ .sock = sock,
                                 .listener = -1,
                                 .out = out,
                                 .foreign_proc = foreign_proc,
                                 .tokens = CG_NOTIFY_BURST * 1000,
                                 .filled_ms = cg_now_ms() };
}

struct pollfd cg_notify_poll(const struct cg_notify *n)
{
        return (struct pollfd){ .fd = n->listener >= 0 ? n->listener : n->sock, .events = POLLIN };
}

void cg_notify_answer(struct cg_notify *n, const struct seccomp_notif *call, int error, int64_t value)
{
        union {
                struct seccomp_notif_resp r;
                char room[512];
        } a = { .r = { .id = call->id, .error = -error, .val = error ? 0 : value } };

        /* It fails where the caller has been killed or interrupted meanwhile. */
        ioctl(n->listener, SECCOMP_IOCTL_NOTIF_SEND, &a);
}

void cg_notify_continue(struct cg_notify *n, const struct seccomp_notif *call)
{
        struct seccomp_notif_resp r = { .id = call->id, .flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE };

        ioctl(n->listener, SECCOMP_IOCTL_NOTIF_SEND, &r);
}

/* ---- records */

static uint64_t mix(uint64_t h, const void *data, size_t len)
{
        for (size_t i = 0; i < len; i++)
                h = (h ^ ((const unsigned char *)data)[i]) * UINT64_C(0x100000001b3);
        return h;
}

/*
 * Whether it was told within the last second. Arguments that are addresses differ from call to
 * call: only two are looked at.
 */
static bool is_same(struct cg_notify *n, const struct seccomp_notif *call, const char *path, int64_t now)
{
        uint64_t key = mix(UINT64_C(0xcbf29ce484222325), &call->data.nr, sizeof(call->data.nr));
        size_t oldest = 0;

        key = mix(key, call->data.args, sizeof(call->data.args[0]) * 2);
        key = mix(key, &call->pid, sizeof(call->pid));
        if (path)
                key = mix(key, path, strlen(path));
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

static bool take_token(struct cg_notify *n, int64_t now)
{
        n->tokens += (now - n->filled_ms) * CG_NOTIFY_PER_SECOND;
        n->filled_ms = now;
        if (n->tokens > CG_NOTIFY_BURST * 1000)
                n->tokens = CG_NOTIFY_BURST * 1000;
        if (n->tokens < 1000)
                return false;
        n->tokens -= 1000;
        return true;
}

/* A call names a thread; people know processes. Both as the process itself says. */
static void name_process(pid_t tid, struct cg_sandbox_denial *d)
{
        char path[64], text[512], *p;
        ssize_t len;
        int fd;

        snprintf(path, sizeof(path), "/proc/%d/status", (int)tid);
        fd = open(path, O_RDONLY | O_CLOEXEC);
        if (fd < 0)
                return;
        len = read(fd, text, sizeof(text) - 1);
        close(fd);
        text[len > 0 ? len : 0] = '\0';
        if (sscanf(text, "Name:\t%15[^\n]", d->name) != 1)
                d->name[0] = '\0';
        p = strstr(text, "\nTgid:\t");
        if (p)
                d->pid = atoi(p + 7);
}

static void record(struct cg_notify *n, const struct seccomp_notif *call, int error, const char *path,
                   const struct cg_notify_file *f)
{
        struct cg_sandbox_denial d = { .magic = CG_SANDBOX_DENIAL_MAGIC,
                                       .nr = call->data.nr,
                                       .pid = (int32_t)call->pid,
                                       .error = error };
        int64_t now = cg_now_ms();

        if (is_same(n, call, path, now) || (!n->foreign_proc && cg_notify_is_nscd(call)))
                return;
        if (!take_token(n, now)) {
                n->lost++;
                return;
        }
        memcpy(d.args, call->data.args, sizeof(d.args));
        if (!n->foreign_proc)
                name_process((pid_t)call->pid, &d);
        snprintf(d.path, sizeof(d.path), "%s", path ? path : "");
        if (f) {
                d.access = f->access;
                d.rule = f->rule;
                snprintf(d.setting, sizeof(d.setting), "%s", f->setting ? f->setting : "");
        }
        d.lost = n->lost;
        if (send(n->out, &d, sizeof(d), MSG_DONTWAIT | MSG_NOSIGNAL) == (ssize_t)sizeof(d))
                n->lost = 0;
        else
                n->lost++;
}

void cg_notify_deny(struct cg_notify *n, const struct seccomp_notif *call, int error, const char *path)
{
        /* While it still waits: its number is nobody else's yet. */
        record(n, call, error, path, NULL);
        cg_notify_answer(n, call, error, 0);
}

void cg_notify_tell(struct cg_notify *n, const struct seccomp_notif *call, const struct cg_notify_file *f)
{
        record(n, call, 0, f->path, f);
}

void cg_notify_finish(struct cg_notify *n)
{
        struct cg_sandbox_denial d = { .magic = CG_SANDBOX_DENIAL_MAGIC, .nr = -1, .lost = n->lost };

        if (n->lost)
                send(n->out, &d, sizeof(d), MSG_DONTWAIT | MSG_NOSIGNAL);
        n->lost = 0;
}

/* ---- calls */

static void take_call(struct cg_notify *n)
{
        bool watched;
        union call c;

        memset(&c, 0, sizeof(c));
        if (ioctl(n->listener, SECCOMP_IOCTL_NOTIF_RECV, &c) < 0)
                return; /* whoever called has been killed or interrupted */
        if (n->broker && cg_broker_handle(n->broker, n, &c.n))
                return;
        if (n->watch_network && c.n.data.nr == SYS_connect) {
                cg_watch_connect(n, &c.n);
                return;
        }
        watched = n->watch && cg_watch_look(n, &c.n);
        if (n->mediator &&
            (cg_mediate_call(n->mediator, n, &c.n) || cg_broker_attributes(n->mediator, n, &c.n)))
                return;
        if (watched) {
                cg_notify_continue(n, &c.n);
                return;
        }
        for (size_t i = 0; i < CG_ARRAY_LEN(handlers); i++) {
                if (handlers[i].nr == c.n.data.nr) {
                        handlers[i].handle(n, &c.n);
                        return;
                }
        }
        cg_notify_deny(n, &c.n, EPERM, NULL);
}

/*
 * Caller and init take turns: on one processor that is cheaper. Linux 6.6; without it they do, too.
 */
#ifndef SECCOMP_IOCTL_NOTIF_SET_FLAGS
#define SECCOMP_IOCTL_NOTIF_SET_FLAGS      SECCOMP_IOW(4, __u64)
#define SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP (1UL << 0)
#endif

static void take_listener(struct cg_notify *n)
{
        size_t count = CG_MAX_FDS;
        int fds[CG_MAX_FDS];
        char byte = 0;
        bool got = cg_recv_fds(n->sock, &byte, 1, fds, &count, NULL) == 1;

        if (got && byte == 'p')
                return; /* descriptors that only have to stay open: the landlock tier's pins */
        if (got && count == 1)
                n->listener = fds[0];
        if (n->listener >= 0)
                ioctl(n->listener, SECCOMP_IOCTL_NOTIF_SET_FLAGS, SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP);
        cg_closep_(&n->sock);
}

void cg_notify_work(struct cg_notify *n, const struct pollfd *fd)
{
        if (!fd->revents)
                return;
        if (n->listener < 0)
                take_listener(n);
        else if (fd->revents & POLLIN)
                take_call(n);
        else
                cg_closep_(&n->listener); /* no process is left that has the filter */
}
