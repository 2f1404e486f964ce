/* The command line of `cellgate node`. */
#include "base/ceilings.h"
#include "cli/common/listen.h"
#include "cli/common/opts.h"
#include "cli/help.h"
#include "cli/option_tables.h"
#include "node/node.h"

enum { CG_NODE_OPTION_IDS };

#define DEFAULT_SLOTS 64
#define MAX_SLOTS     (CG_MAX_SESSIONS / 2)
#define DRAIN_MS      30000

static const struct cg_opt table[] = { CG_NODE_OPTION_ROWS };

/* Checks of values that the places of the options have none for. */
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
