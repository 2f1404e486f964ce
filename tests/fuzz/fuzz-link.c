/*
 * The frames that a node's relay sends (src/relay): each input is what a host's relay reads from
 * the link, at once, while the library has closed its ends. It ends, and keeps no descriptor.
 */
#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>
#include "relay/relay.h"
#include "fuzz.h"

/* One end of a pair whose other end is closed. */
static int closed_pair(void)
{
        int fds[2];

        must(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) == 0);
        close(fds[1]);
        return fds[0];
}

static int lost(struct cg_link *r, bool lost_already, struct cg_err *err)
{
        return cg_fail(err, CG_E_CLOSED, "no other link");
}

static void one(const uint8_t *data, size_t size, bool renews)
{
        struct cg_link r = { .host = true, .listener = -1, .renew = renews ? lost : NULL };
        struct cg_err err;
        int p[2], before, after;

        must(pipe2(p, O_CLOEXEC) == 0);
        must(write(p[1], data, size) == (ssize_t)size);
        close(p[1]);
        r.in = p[0];
        r.out = open("/dev/null", O_WRONLY | O_CLOEXEC);
        before = dup(0);
        close(before);
        cg_buf_init(&r.got, CG_LINK_LINE_MAX);
        must(cg_link_run(&r, closed_pair(), closed_pair(), &err) <= 0);
        after = dup(0);
        close(after);
        must(before == after);
        cg_link_fini(&r);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
        for (int renews = 0; renews < 2 && size <= 60000; renews++) /* a pipe, that nobody reads meanwhile */
                one(data, size, renews);
        return 0;
}
