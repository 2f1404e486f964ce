/* Start of a kernel, in the process forked from the zygote: untrusted from its first cell on. */
#include "kernel/kernel.h"

#include <signal.h>
#include <sys/prctl.h>
#include "kernel/io.h"
#include "kernel/python.h"

#define EXIT_START 70

static int fail(const struct cg_kernel_start *s, const struct cg_err *err)
{
        cg_log(s->log, CG_LOG_ERROR, "cannot start kernel: %s", err->msg);
        return EXIT_START;
}

int cg_kernel_prepare(void *data, struct cg_err *err)
{
        const struct cg_kernel_start *s = data;

        prctl(PR_SET_NAME, "cellgate-kernel"); /* it inherits the name of init */
        cg_py_after_fork_child();
        return cg_py_make_kernel(s->config, s->config_len, err);
}

int cg_kernel_main(void *data)
{
        const struct cg_kernel_start *s = data;
        struct cg_io_config config = { .kernel_fd = s->kernel_fd,
                                       .tool_fd = s->tool_fd,
                                       .function_fd = s->function_fd,
                                       .interrupt = cg_py_interrupt };
        struct cg_io *io;
        struct cg_err err;
        sigset_t none;

        signal(SIGPIPE, SIG_IGN); /* Python expects EPIPE and EFBIG of write() instead */
        signal(SIGXFSZ, SIG_IGN);
        sigemptyset(&none);
        sigprocmask(SIG_SETMASK, &none, NULL);
        if (cg_io_new(&config, &io, &err) < 0 || cg_py_configure(&err) < 0 || cg_io_start(io, &err) < 0)
                return fail(s, &err);
        cg_io_catch_crashes(io);
        cg_py_serve(io, s->plan, &err);
        return EXIT_START;
}
