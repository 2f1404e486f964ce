/*
 * cellgate-run: `cellgate run` and `cellgate jupyter` as a separate, statically linked program. A
 * notebook's kernel and a cell of the command line start with it, and finding and linking the two
 * dozen shared libraries of libzmq would take longer than to start the kernel itself.
 */
#include <string.h>
#include "cli/common/cli.h"

int main(int argc, char **argv)
{
        if (argc < 2)
                return CG_EXIT_USAGE;
        if (strcmp(argv[1], "run") == 0)
                return cg_cli_run(argc - 1, argv + 1);
        return cg_cli_jupyter(argc - 1, argv + 1);
}
