/*
 * The program `cellgate`: sandboxes, which must start at once, and for everything else cellgate-cli, which is linked with what that
 * takes. Loading those libraries alone is more than half of what a sandbox's start may cost; notebooks have cellgate-jupyter,
 * which has them in itself.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"
#include "config.h"

int main(int argc, char **argv)
{
        static const char rest[] = CG_LIBEXECDIR "/cellgate-cli", jupyter[] = CG_LIBEXECDIR "/cellgate-jupyter";
        const char *slash = argc ? strrchr(argv[0], '/') : NULL;

        if (argc && !strcmp(slash ? slash + 1 : argv[0], "srt"))
                return cg_cli_sandbox(argc, argv);
        if (argc > 1 && !strcmp(argv[1], "sandbox"))
                return cg_cli_sandbox(argc - 1, argv + 1);
        if (argc > 1 && !strcmp(argv[1], "doctor"))
                return cg_cli_doctor(argc - 1, argv + 1);
        if (argc > 2 && !strcmp(argv[1], "jupyter"))
                execv(jupyter, argv); /* not everywhere there */
        execv(rest, argv);
        fprintf(stderr, "cellgate: %s cannot be run: %s (is cellgate installed completely?)\n", rest, strerror(errno));
        return CG_EXIT_USAGE;
}
