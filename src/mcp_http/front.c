/*
 * The front of cellgate-mcp-http: its loop. It is started by exec, gives up files, new sockets and
 * all rights before it reads the first byte of a client, and ends with its monitor.
 */
#include <malloc.h>
#include <poll.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include "base/fd.h"
#include "mcp_http/front.h"
#include "sandbox/egress/lock.h"

#define TICK_MS 1000
/* 1.2 only with forward secrecy and authenticated ciphers, which each client of today has. */
#define TLS_PRIORITIES \
        "SECURE128:-VERS-ALL:+VERS-TLS1.3:+VERS-TLS1.2:-RSA:-CIPHER-ALL:+AES-256-GCM:+AES-128-GCM:+CHACHA20-POLY1305"
/* For the responses that the end of the sessions has caused. */
#define FLUSH_MS 500

static void on_control(void *data, uint32_t events)
{
        struct hf_front *f = data;
        union {
                struct hf_msg msg;
                struct hf_renewal renewal;
        } got;
        struct hf_msg m;
        int fd = -1;
        size_t n_fds = 1;
        struct cg_err err;
        ssize_t n = cg_recv_fds(f->control, &got, sizeof(got), &fd, &n_fds, &err);

        if (n < 0 && err.sys_errno == EAGAIN)
                return;
        if (n == sizeof(got.renewal) && got.renewal.type == HF_TLS && f->tls) {
                if (cg_hf_certificate_set(&got.renewal.tls, &err) < 0)
                        cg_log(&f->log, CG_LOG_ERROR, "%s", err.msg);
                return;
        }
        if (n != sizeof(m)) { /* the monitor has ended */
                f->ending = true;
                return;
        }
        m = got.msg;
        m.why[sizeof(m.why) - 1] = '\0';
        if (m.type == HF_OPENED && n_fds == 1)
                cg_hf_session_opened(f, m.session, fd);
        else if (n_fds)
                close(fd);
        if (m.type == HF_CHECK)
                cg_hf_checked(f, &m);
        if (m.type == HF_ENDED)
                cg_hf_session_ended(f, m.session, m.why);
}

static void on_mhd(void *data, uint32_t events)
{
        /* run_mhd() follows each event */
}

static int add_watch(struct hf_front *f, struct hf_watch *w, int fd)
{
        struct epoll_event e = { .events = EPOLLIN, .data.ptr = w };

        return epoll_ctl(f->epoll, EPOLL_CTL_ADD, fd, &e);
}

/* Returns the milliseconds until it wants to run again; -1: it waits for events only. */
static int run_mhd(struct hf_front *f)
{
        MHD_UNSIGNED_LONG_LONG ms;

        MHD_run(f->mhd);
        if (MHD_get_timeout(f->mhd, &ms) != MHD_YES)
                return -1;
        return (int)CG_MIN(ms, TICK_MS);
}

static void loop(struct hf_front *f)
{
        int64_t next_ms = 0, end_ms = INT64_MAX, now;
        struct hf_session *s, *next;
        struct epoll_event e;

        for (;;) {
                int wait = run_mhd(f);

                now = cg_now_ms();
                if (f->ending && end_ms == INT64_MAX)
                        end_ms = now + FLUSH_MS;
                if (f->ending && (now >= end_ms || LIST_EMPTY(&f->conns)))
                        return;
                if (now >= next_ms) {
                        next_ms = now + TICK_MS;
                        cg_hf_conns_tick(f, now);
                        for (s = TAILQ_FIRST(&f->sessions); s; s = next) {
                                next = TAILQ_NEXT(s, entry);
                                cg_hf_session_tick(s, now);
                        }
                }
                if (wait < 0 && (!LIST_EMPTY(&f->conns) || !TAILQ_EMPTY(&f->sessions)))
                        wait = TICK_MS;
                /* One event at a time: a handler may free what another event is about. */
                if (epoll_wait(f->epoll, &e, 1, f->ending ? FLUSH_MS / 10 : wait) == 1)
                        ((struct hf_watch *)e.data.ptr)->fn(((struct hf_watch *)e.data.ptr)->data, e.events);
        }
}

static int start(struct hf_front *f, struct cg_err *err)
{
        struct MHD_OptionItem tls[] = {
                { MHD_OPTION_HTTPS_CERT_CALLBACK, 0, (void *)(uintptr_t)cg_hf_certificate_give },
                { MHD_OPTION_HTTPS_PRIORITIES, 0, (void *)(uintptr_t)TLS_PRIORITIES },
                { MHD_OPTION_END, 0, NULL },
        };
        const union MHD_DaemonInfo *info;
        int listener = -1;
        size_t n_fds = 1;

        if (cg_wait_fd(f->control, POLLIN, -1, err) < 0)
                return -1;
        if (cg_recv_fds(f->control, &f->setup, sizeof(f->setup), &listener, &n_fds, err) !=
                    sizeof(f->setup) ||
            n_fds != 1)
                return cg_fail(err, CG_E_PROTO, "no setup from the monitor");
        f->epoll = epoll_create1(EPOLL_CLOEXEC);
        if (f->epoll < 0)
                return cg_fail_errno(err, "epoll");
        f->tls = f->setup.tls.key[0] != '\0';
        if (f->tls && cg_hf_certificate_set(&f->setup.tls, err) < 0)
                return -1;
        if (!f->tls)
                tls[0].option = MHD_OPTION_END;
        f->mhd = MHD_start_daemon(MHD_USE_EPOLL | MHD_ALLOW_SUSPEND_RESUME | (f->tls ? MHD_USE_TLS : 0), 0,
                                  NULL, NULL, cg_hf_access, f, MHD_OPTION_LISTEN_SOCKET, listener,
                                  MHD_OPTION_CONNECTION_LIMIT, HF_MAX_CONNECTIONS + HF_MAX_REFUSED,
                                  MHD_OPTION_CONNECTION_MEMORY_LIMIT, HF_MAX_HEAD,
                                  MHD_OPTION_CONNECTION_TIMEOUT, HF_STALL_S, MHD_OPTION_NOTIFY_COMPLETED,
                                  cg_hf_completed, NULL, MHD_OPTION_NOTIFY_CONNECTION, cg_hf_connection, f,
                                  MHD_OPTION_STRICT_FOR_CLIENT, 1, MHD_OPTION_ARRAY, tls, MHD_OPTION_END);
        info = f->mhd ? MHD_get_daemon_info(f->mhd, MHD_DAEMON_INFO_EPOLL_FD) : NULL;
        if (!info || add_watch(f, &f->mhd_watch, info->epoll_fd) < 0 ||
            add_watch(f, &f->control_watch, f->control) < 0)
                return cg_fail_errno(err, "libmicrohttpd");
        return cg_egress_lock_part(CG_EGRESS_RELAY, err);
}

int cg_hf_front(void)
{
        struct hf_front f = { .epoll = -1,
                              .control = CG_HF_CONTROL,
                              .uid = geteuid(),
                              .log = { .fd = 2, .level = CG_LOG_WARN, .who = "mcp serve" } };
        struct cg_err err;

        f.control_watch = (struct hf_watch){ on_control, &f };
        f.mhd_watch = (struct hf_watch){ on_mhd, &f };
        LIST_INIT(&f.conns);
        TAILQ_INIT(&f.sessions);
        signal(SIGPIPE, SIG_IGN);
        /* Bodies and answers get pages of their own: in the heap, what comes later keeps them. */
        mallopt(M_MMAP_THRESHOLD, 128 << 10);
        prctl(PR_SET_NAME, "cg-mcp-front", 0, 0, 0);
        if (close_range(CG_HF_CONTROL + 1, ~0U, 0) < 0 || chdir("/") < 0 || start(&f, &err) < 0) {
                cg_log(&f.log, CG_LOG_ERROR, "front: %s", err.msg);
                return 1;
        }
        loop(&f);
        cg_hf_conns_end(&f);
        MHD_run(f.mhd);
        MHD_stop_daemon(f.mhd);
        return 0;
}
