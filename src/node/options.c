/* The command line of `cellgate node`. */
#include "base/ceilings.h"
#include "cli/common/listen.h"
#include "cli/common/opts.h"
#include "cli/help.h"
#include "node/node.h"

enum { SLOTS = 2, CLIENT, MEMORY, DRAIN, LINK, HTTP, OPEN, TIER, TENANT, ENV, PRELOAD, SPARES, LEVEL, HELP };

#define DEFAULT_SLOTS 64
#define MAX_SLOTS     (CG_MAX_SESSIONS / 2)
#define DRAIN_MS      30000

static const struct cg_opt table[] = {
        { SLOTS, 0, "slots", "N", 0,
          "sessions at once (default: 64); a client that wants one more is told that the node is busy" },
        { CLIENT, 0, "slots-per-client", "N", 0, "of one connection; one more is refused" },
        { MEMORY, 0, "memory", "MIB", 0,
          "what the memory limits of all sessions add up to; a session whose limit does not fit any more is told that the"
          " node is busy. One that asks for no limit has its slot's share, but not less than 256 MiB (default: what the job,"
          " the pod or the machine has is the limit of each)" },
        { DRAIN, 0, "drain", "SECONDS", 0,
          "after SIGTERM no session opens, those that are open are told, and the node ends with the last of them or"
          " after this time (default: 30; 0: no limit). A second SIGTERM ends it at once" },
        { LINK, 0, "link", "PATH", 0,
          "symbolic link to make to the folder of the node, which `cellgate relay` finds by CELLGATE_NODE=PATH" },
        { HTTP, 0, "http", "ADDRESS", 0,
          "answer at HOST:PORT, or PORT of 127.0.0.1: /healthz, /readyz, /metrics (default: nothing listens)" },
        { OPEN, 0, "http-open", NULL, 0,
          "let --http be an address that other machines reach: anybody there reads the figures, without TLS" },
        { TIER, 0, "tier", "TIER", 0,
          "tier whose sandboxes are tried before the node is ready: full (default), landlock or auto" },
        { TENANT, 0, "tenant", "NAME", 0, "label of all figures and records of the log" },
        { ENV, 0, "kernel-env", "DIR", 0, "environment that kernels run in" },
        { PRELOAD, 0, "preload", "MODULES", 0,
          "comma-separated modules that every kernel has imported already" },
        { SPARES, 0, "spares", "N", 0, "sessions kept ready ahead (0 to 16, default: 1)" },
        { LEVEL, 0, "log-level", "N", 0, "0 errors, 1 warnings (default), 2 information, 3 debugging" },
        { HELP, 'h', "help", NULL, 0, "this text" },
};

/* What the places of the options do not check. */
static int check(const struct node_options *o, struct cg_err *err)
{
        size_t len = cg_strlen(o->tenant);

        if (o->link && (o->link[0] != '/' || strlen(o->link) > 80))
                return cg_fail(err, CG_E_INVAL, "--link must be an absolute path of at most 80 bytes");
        if (strcmp(o->tier, "full") != 0 && strcmp(o->tier, "landlock") != 0 && strcmp(o->tier, "auto") != 0)
                return cg_fail(err, CG_E_INVAL, "--tier must be full, landlock or auto");
        if (o->tenant &&
            (!len || len > 63 ||
             strspn(o->tenant, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-") != len))
                return cg_fail(err, CG_E_INVAL,
                               "--tenant must have 1 to 63 letters, digits, \".\", \"_\" or \"-\"");
        if (o->http && !cg_host_is_this_machine(&o->host) && !o->http_open)
                return cg_fail(
                        err, CG_E_UNSUPPORTED,
                        "--http %s: other machines reach this address, and have no key to show: --http-open "
                        "if all of them may read the figures",
                        o->host.text);
        return 0;
}

int cg_node_parse(int argc, char **argv, struct node_options *o, int *status, struct cg_err *err)
{
        static const struct cg_opt_place places[] = {
                CG_OPT_PLACE_INT(SLOTS, "--slots", struct node_options, slots, 1, MAX_SLOTS),
                CG_OPT_PLACE_INT(CLIENT, "--slots-per-client", struct node_options, client_slots, 1,
                                 MAX_SLOTS),
                CG_OPT_PLACE_INT(MEMORY, "--memory", struct node_options, memory_mib, 64, INT32_MAX),
                CG_OPT_PLACE_SECONDS(DRAIN, "--drain", struct node_options, drain_ms),
                CG_OPT_PLACE(LINK, struct node_options, link),
                CG_OPT_PLACE(OPEN, struct node_options, http_open),
                CG_OPT_PLACE(TIER, struct node_options, tier),
                CG_OPT_PLACE(TENANT, struct node_options, tenant),
                CG_OPT_PLACE(ENV, struct node_options, kernel_env),
                CG_OPT_PLACE(PRELOAD, struct node_options, preload),
                CG_OPT_PLACE_INT(SPARES, "--spares", struct node_options, spares, 0, CG_MAX_SPARES),
                CG_OPT_PLACE_INT(LEVEL, "--log-level", struct node_options, log_level, 0, 3),
        };
        struct cg_optscan scan = CG_OPT_SCAN(table, 0, argc, argv, 1);
        const char *value = NULL;
        int id;

        *o = (struct node_options){
                .slots = DEFAULT_SLOTS, .drain_ms = DRAIN_MS, .tier = "full", .spares = 1, .log_level = 1
        };
        while ((id = cg_opt_read(&scan, places, CG_ARRAY_LEN(places), o, &value, err)) > CG_OPT_END) {
                if (id == HELP) {
                        *status = cg_opt_help(table, CG_ARRAY_LEN(table), 0, CG_HELP_NODE);
                        return 1;
                }
                if (id != HTTP)
                        return cg_fail(err, CG_E_INVAL,
                                       "unexpected argument \"%s\"; --help lists the options", value);
                o->http = true;
                if (cg_listen_parse("--http", value, &o->host, &o->port, err) < 0)
                        return CG_E_INVAL;
        }
        o->drain_ms = CG_MIN(o->drain_ms, INT32_MAX);
        return id < 0 ? id : check(o, err);
}
