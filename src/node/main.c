/* cellgate-node: finds out which of its two processes this is. See node.h. */
#include <string.h>
#include "cli/common/cli.h"
#include "node/node.h"

int main(int argc, char **argv)
{
        struct node_options o;
        struct cg_err err;
        int status = 0, r;

        if (argc == 2 && strcmp(argv[1], "--front") == 0)
                return cg_node_front();
        r = cg_node_parse(argc, argv, &o, &status, &err);
        if (r < 0)
                return cg_cli_fail("node", &err);
        return r > 0 ? status : cg_node_run(&o);
}
