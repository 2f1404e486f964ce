/*
 * The program `cellgate`: sandboxes, which must start at once, and for everything else
 * cellgate-cli, which is linked with all libraries. Loading those takes more than half of the time
 * that a sandbox's start may take; kernels have cellgate-run, a static program.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/auxv.h>
#include <unistd.h>

#include "base/installed.h"
#include "base/path.h"
#include "cli/common/cli.h"
#include "config.h"
#include "sandbox/apparmor.h"

/*
 * Where AppArmor restricts user namespaces, sandboxes are made by this program's copy, which has a
 * profile. This path has none, since all that it starts would inherit it: cellgate-cli, the
 * supervisor, MCP servers. No copy: it is tried without.
 */
static void enter_profile(char **argv)
{
        const char *copy = CG_INSTALLED(CG_LIBEXECDIR "/cellgate-sandbox");
        /* NOLINT(performance-no-int-to-ptr): that is what it returns */
        const char *self = (const char *)getauxval(AT_EXECFN);

        if (cg_apparmor_restricts() && (!self || strcmp(self, copy) != 0))
                execv(copy, argv);
}

static int sandbox(int argc, char **argv, char **all)
{
        enter_profile(all);
        return cg_cli_sandbox(argc, argv);
}

int main(int argc, char **argv)
{
        const char *rest = CG_INSTALLED(CG_LIBEXECDIR "/cellgate-cli"),
                   *kernels = CG_INSTALLED(CG_LIBEXECDIR "/cellgate-run");

        if (argc && strcmp(cg_path_base(argv[0]), "srt") == 0)
                return sandbox(argc, argv, argv);
        if (argc > 1 && strcmp(argv[1], "sandbox") == 0)
                return sandbox(argc - 1, argv + 1, argv);
        if (argc > 1 && strcmp(argv[1], "doctor") == 0) {
                enter_profile(argv);
                return cg_cli_doctor(argc - 1, argv + 1);
        }
        if (argc > 2 && (strcmp(argv[1], "jupyter") == 0 || strcmp(argv[1], "run") == 0))
                execv(kernels, argv); /* not everywhere there */
        execv(rest, argv);
        fprintf(stderr, "cellgate: %s cannot be run: %s (is cellgate installed completely?)\n", rest,
                strerror(errno));
        return CG_EXIT_USAGE;
}
