/*
 * What the zygote does as a program, whatever has started Python: options, preparation, and the
 * report of what fails. See program.h.
 */
#include "kernel/program.h"

#include <errno.h>
#include <getopt.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>
#include "base/installed.h"
#include "config.h"
#include "kernel/zygote.h"

#define CONTROL_FD 3

struct options {
        bool zygote, runtime;
        const char *preload, *env;
        int log_level;
};

static void usage(FILE *f)
{
        fprintf(f,
                "usage: cellgate-kernel --zygote [--kernel-env DIR] [--runtime DIR] [--preload MODULE,...] [--log-level 0..3]\n"
                "Started by cellgate-supervisor, which passes a control socket as descriptor 3.\n");
}

static int parse_options(int argc, char **argv, struct options *o)
{
        static const struct option names[] = {
                { "zygote", no_argument, NULL, 'z' },          { "preload", required_argument, NULL, 'p' },
                { "log-level", required_argument, NULL, 'l' }, { "kernel-env", required_argument, NULL, 'e' },
                { "runtime", required_argument, NULL, 'r' },   { "help", no_argument, NULL, 'h' },
                { "version", no_argument, NULL, 'V' },         { NULL, 0, NULL, 0 },
        };
        int c;

        while ((c = getopt_long(argc, argv, "", names, NULL)) != -1) {
                switch (c) {
                case 'z':
                        o->zygote = true;
                        break;
                case 'p':
                        o->preload = optarg;
                        break;
                case 'e':
                        o->env = optarg;
                        break;
                case 'r':
                        cg_installed_below(optarg);
                        o->runtime = true;
                        break;
                case 'l':
                        o->log_level = atoi(optarg);
                        break;
                case 'h':
                        usage(stdout);
                        exit(0);
                case 'V':
                        printf("cellgate-kernel %s\n", CG_VERSION);
                        exit(0);
                default:
                        return -1;
                }
        }
        /* An interpreter does not tell where the files are that cells must not change. */
        return o->zygote && optind == argc && (o->runtime || !CG_WHEEL) ? 0 : -1;
}

static int run(const struct options *o, cg_start_python *start, const struct cg_log *log, struct cg_err *err)
{
        struct cg_zygote *z = NULL;
        struct cg_py_versions versions;
        struct cg_err failure;
        int r = cg_zygote_new(CONTROL_FD, log, &z, err);

        if (r < 0)
                return r;
        r = start(o->env, &failure);
        if (r == 0)
                r = cg_py_prepare(o->preload, &versions, &failure);
        if (r < 0) {
                r = cg_zygote_send_ready(z, NULL, &failure, err); /* the supervisor reports it */
                if (r == 0) {
                        cg_log(log, CG_LOG_INFO, "%s", failure.msg);
                        cg_zygote_free(z);
                        _exit(1);
                }
                *err = failure;
        } else {
                r = cg_zygote_send_ready(z, &versions, NULL, err);
        }
        /* From here on the socket reports the supervisor's end; a signal would skip clean-up. */
        prctl(PR_SET_PDEATHSIG, 0);
        if (r == 0)
                r = cg_zygote_serve(z, err);
        if (r < 0 && err->sys_errno == EPIPE)
                r = 0; /* the supervisor has ended */
        cg_zygote_free(z);
        return r;
}

void cg_kernel_program(int argc, char **argv, cg_start_python *start)
{
        char env[PATH_MAX];
        struct options o = { .log_level = CG_LOG_WARN };
        struct cg_log log = { .fd = 2, .who = "zygote" };
        struct cg_err err;

        if (parse_options(argc, argv, &o) < 0) {
                usage(stderr);
                _exit(2);
        }
        if (!o.env)
                o.env = cg_installed(env, CG_KERNEL_ENV);
        log.level = o.log_level;
        if (run(&o, start, &log, &err) < 0) {
                cg_log(&log, CG_LOG_ERROR, "%s", err.msg);
                _exit(1);
        }
        /* not exit(): Python's finalization would run handlers that belong to kernels */
        _exit(0);
}
