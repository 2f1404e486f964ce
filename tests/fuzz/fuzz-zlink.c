/*
 * base/zlink.c with the bytes of a hostile peer, over a real socket. Beside memory safety: what is
 * handed out keeps the table's rules, the end is reported exactly once and last, and neither pauses
 * nor the division of the bytes change the results.
 *
 * Input: one byte of choices (1: the tool wire instead of the kernel's; 2: the handshake comes
 * before the input), then what the peer sends.
 */
#include <stdio.h>
#include <sys/socket.h>
#include "base/fd.h"
#include "base/util.h"
#include "base/zlink.h"
#include "fuzz.h"

/* Less than a socket takes at once: nobody reads while it is sent. */
#define MOST_BYTES ((size_t)32 << 10)

enum { TOOL_WIRE = 1, HANDSHAKE = 2 };

struct seen {
        uint64_t hash;
        size_t messages;
        unsigned ends;
        int end_code;
        bool pauses, closed;
};

static uv_loop_t loop;
static char dir[256], path[300];
static int listener = -1;

static void remove_dir(void)
{
        cg_remove_tree(dir, NULL);
}

static void open_listener(void)
{
        if (listener >= 0)
                return;
        must(cg_make_runtime_dir("cgfuzz", dir, sizeof(dir), NULL) == 0);
        atexit(remove_dir);
        snprintf(path, sizeof(path), "%s/k", dir);
        must(cg_listen_unix(path, 1, &listener, NULL) == 0 && uv_loop_init(&loop) == 0);
}

static void mix(struct seen *s, const void *data, size_t len)
{
        const unsigned char *p = data;

        for (size_t i = 0; i < len; i++)
                s->hash = (s->hash ^ p[i]) * 0x100000001b3u;
        s->hash = (s->hash ^ len) * 0x100000001b3u;
}

static void on_msg(struct cg_zlink *z, struct cg_msg *m)
{
        struct seen *s = z->data;
        size_t total = 0;

        must(!s->ends && m->spec && (m->spec->senders & CG_ROLE_KERNEL) && m->spec->type == m->type);
        must(m->n_frames >= 1 && m->n_frames <= CG_MAX_FRAMES);
        must(m->spec->raws == CG_RAWS_ANY || m->n_frames == m->spec->raws + 1);
        must(cg_frame_bytes(m->frames[0]).len <= m->spec->body_max);
        for (size_t i = 0; i < m->n_frames; i++) {
                struct cg_bytes f = cg_frame_bytes(m->frames[i]);

                total += i ? f.len : 0;
                mix(s, f.data, f.len);
                must(((const char *)f.data)[f.len] == '\0');
        }
        must(total <= m->spec->raw_max);
        mix(s, &m->type, sizeof(m->type));
        mix(s, &m->id, sizeof(m->id));
        s->messages++;
        if (s->pauses)
                cg_zlink_pause(z, true);
}

static void on_end(struct cg_zlink *z, const struct cg_err *err)
{
        struct seen *s = z->data;

        s->ends++;
        s->end_code = err->code;
        must(err->code == CG_E_PROTO || err->code == CG_E_CLOSED);
        must(err->msg[0]);
}

static void on_closed(struct cg_zlink *z)
{
        struct seen *s = z->data;

        s->closed = true;
}

/* All of it, also to a link that reads no more: there is room. */
static void put(int fd, const void *data, size_t len)
{
        must(send(fd, data, len, MSG_NOSIGNAL | MSG_DONTWAIT) == (ssize_t)len || !len);
}

static struct seen talk(const uint8_t *data, size_t size, unsigned choices, size_t piece, bool pauses)
{
        static const char hello[] =
                "\377\0\0\0\0\0\0\0\1\177\3\0NULL\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0"
                "\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\4\6\5READY";
        struct seen s = { .hash = 14695981039346656037u, .pauses = pauses };
        struct cg_zlink z;
        int peer;

        must(cg_zlink_open(&z, &loop, path, choices & TOOL_WIRE ? &cg_wire_tool : &cg_wire_kernel,
                           CG_ROLE_KERNEL, 1 << 20, on_msg, on_end, &s, NULL) == 0);
        peer = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
        must(peer >= 0);
        if (choices & HANDSHAKE)
                put(peer, hello, sizeof(hello) - 1);
        for (size_t at = 0; at < size; at += piece) {
                put(peer, data + at, size - at < piece ? size - at : piece);
                uv_run(&loop, UV_RUN_NOWAIT);
                cg_zlink_pause(&z, false);
                if (pauses)
                        cg_zlink_catch_up(&z);
        }
        shutdown(peer, SHUT_WR);
        while (!s.ends) { /* an end that is not reported is a time-out */
                uv_run(&loop, UV_RUN_ONCE);
                cg_zlink_pause(&z, false);
        }
        uv_run(&loop, UV_RUN_NOWAIT);
        must(s.ends == 1);
        cg_zlink_close(&z, on_closed);
        uv_run(&loop, UV_RUN_DEFAULT);
        must(s.closed);
        close(peer);
        return s;
}

static void must_be_same(const struct seen *a, const struct seen *b)
{
        must(a->hash == b->hash && a->messages == b->messages && a->end_code == b->end_code);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
        struct seen whole, cut, paused;
        unsigned choices;

        if (!size || size > MOST_BYTES)
                return 0;
        open_listener();
        choices = *data++;
        size--;
        whole = talk(data, size, choices, size ? size : 1, false);
        cut = talk(data, size, choices, 1 + size / 7, false);
        paused = talk(data, size, choices, 1 + size / 2, true);
        must_be_same(&whole, &cut);
        must_be_same(&whole, &paused);
        return 0;
}
