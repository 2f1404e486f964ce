/*
 * The code generator as a program, for the tests: runs as an ordinary process, not installed.
 *
 *      gen-probe generate SERVER OUT_DIR [--root] <TOOLS.json    report on standard output; 1 and
 *      the error when it fails gen-probe package SERVER                                  the
 *      package's name
 */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/util.h"
#include "codegen/codegen.h"

static int fail(const struct cg_err *err)
{
        fprintf(stderr, "%d %s\n", err->code, err->msg);
        return 1;
}

static int generate(int argc, char **argv)
{
        struct cg_codegen_options o = {
                .server = argv[2],
                .out_dir = argv[3],
                .root_package = argc > 4 && !strcmp(argv[4], "--root"),
        };
        cg_auto_free char *text = NULL, *report = NULL;
        struct cg_err err;
        size_t len;

        if (cg_read_fd(STDIN_FILENO, "standard input", (size_t)1 << 30, &text, &len, &err) < 0)
                return fail(&err);
        if (cg_codegen(&o, text, len, &report, &err) < 0)
                return fail(&err);
        fputs(report, stdout);
        return 0;
}

int main(int argc, char **argv)
{
        char name[CG_CODEGEN_PACKAGE_SIZE];
        struct cg_err err;

        if (argc >= 4 && !strcmp(argv[1], "generate"))
                return generate(argc, argv);
        if (argc == 3 && !strcmp(argv[1], "package")) {
                if (cg_codegen_package_name(argv[2], name, sizeof(name), &err) < 0)
                        return fail(&err);
                puts(name);
                return 0;
        }
        fputs("usage: gen-probe generate SERVER OUT_DIR [--root] <TOOLS.json\n       gen-probe package SERVER\n",
              stderr);
        return 2;
}
