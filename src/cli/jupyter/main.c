/*
 * cellgate-jupyter: `cellgate jupyter` as a separate, statically linked program. A notebook's
 * kernel starts with it, and finding and linking the two dozen shared libraries of libzmq would
 * take longer than to start the kernel itself.
 */
#include "cli/common/cli.h"

int main(int argc, char **argv)
{
        return argc < 2 ? CG_EXIT_USAGE : cg_cli_jupyter(argc - 1, argv + 1);
}
