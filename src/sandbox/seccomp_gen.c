/*
 * Writes filters.h: the system call filters as arrays. Runs while cellgate is built, for the
 * architecture it is built for.
 *
 *      cg-filters FILE
 */
#include <linux/filter.h>

#include "base/util.h"
#include "sandbox/steps.h"

static int write_filter(FILE *f, unsigned int flags)
{
        struct sock_fprog prog = { 0 };
        struct cg_err err = { 0 };

        if (cg_seccomp_compile(flags, &prog, &err) < 0) {
                fprintf(stderr, "cg-filters: %s\n", err.msg);
                return -1;
        }
        fprintf(f, "static const struct sock_filter cg_filter_%u[] = {\n", flags);
        for (const struct sock_filter *p = prog.filter; p < prog.filter + prog.len; p++)
                fprintf(f, "        {%u, %u, %u, %uu},\n", p->code, p->jt, p->jf, p->k);
        fprintf(f, "};\n");
        free(prog.filter);
        return 0;
}

int main(int argc, char **argv)
{
        FILE *f = argc == 2 ? fopen(argv[1], "w") : NULL;

        if (!f) {
                perror("cg-filters");
                return 1;
        }
        fprintf(f, "/* Made by cg-filters from seccomp_rules.c. */\n");
        for (unsigned int flags = 0; flags < CG_FILTERS; flags++)
                if (cg_filter_exists(flags) && write_filter(f, flags) < 0)
                        return 1;
        return fclose(f) != 0;
}
