/*
 * cellgate-mcp-http: `cellgate mcp serve --http`, by which it is started with exec. Two processes:
 * the monitor, which has this user's rights and starts a process for each session, and the front
 * (cellgate-mcp-http --front), which has none and reads what comes from the network.
 */
#include "cli/common/cli.h"
#include "mcp_http/front.h"
#include "mcp_http/monitor.h"

int main(int argc, char **argv)
{
        static const struct cg_log log = { .fd = 2, .level = CG_LOG_WARN, .who = "mcp serve" };
        struct hf_options o;
        struct cg_err err;

        if (argc == 2 && strcmp(argv[1], "--front") == 0)
                return cg_hf_front();
        if (argc == 2 && strcmp(argv[1], "--verifier") == 0)
                return cg_hf_verifier();
        if (cg_hf_parse(argc, argv, &o, &err) < 0)
                return cg_cli_fail("mcp serve", &err);
        return cg_hf_monitor(&o, &log);
}
