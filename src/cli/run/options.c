/* `cellgate run`: its command line. */
#include "cli/run/run.h"

void cg_run_options_fini(struct cg_run_options *o)
{
        cg_cells_fini(&o->cells);
        cg_kernel_options_fini(&o->kernel);
}

static int read_kinds(const char *value, unsigned *kinds, struct cg_err *err)
{
        static const struct {
                const char *name;
                unsigned bit;
        } known[] = { { "elicitation", CG_SERVER_REQUEST_ELICITATION },
                      { "url", CG_SERVER_REQUEST_URL },
                      { "sampling", CG_SERVER_REQUEST_SAMPLING } };

        *kinds = 0;
        for (const char *p = value;; p++) {
                size_t len = strcspn(p, ","), i = 0;

                while (i < CG_ARRAY_LEN(known) && (strncmp(p, known[i].name, len) != 0 || known[i].name[len]))
                        i++;
                if (i == CG_ARRAY_LEN(known))
                        return cg_fail(
                                err, CG_E_INVAL,
                                "--server-requests %s: kinds are elicitation, url and sampling, with commas between",
                                value);
                *kinds |= known[i].bit;
                p += len;
                if (!*p)
                        return 0;
        }
}

static int apply(struct cg_run_options *o, int id, const char *value, struct cg_err *err)
{
        static const struct cg_opt_place places[] = {
                CG_OPT_PLACE(CG_KOPT_JSON, struct cg_run_options, json),
                CG_OPT_PLACE(CG_KOPT_STAY, struct cg_run_options, stay),
                CG_OPT_PLACE_SECONDS(CG_KOPT_TIMEOUT, "--timeout", struct cg_run_options, timeout_ms),
                CG_OPT_PLACE(CG_KOPT_SYNC, struct cg_run_options, sync),
        };
        int r = cg_kernel_options_apply(&o->kernel, id, value, err);

        if (r > 0)
                r = cg_opt_store(places, CG_ARRAY_LEN(places), id, value, o, err);
        if (r <= 0)
                return r;
        if (id == CG_KOPT_CODE)
                return cg_cells_add(&o->cells, value, strlen(value), "-c", err);
        if (id == CG_KOPT_SERVER_REQUESTS)
                return read_kinds(value, &o->server_requests, err);
        if (o->file)
                return cg_fail(err, CG_E_INVAL, "one FILE can be run at a time: %s and %s were given",
                               o->file, value);
        o->file = value;
        return 0;
}

int cg_run_parse(int argc, char **argv, struct cg_run_options *o, struct cg_err *err)
{
        struct cg_optscan scan;
        const char *value = NULL;
        int id;

        *o = (struct cg_run_options){ .cells = CG_CELLS_EMPTY };
        if (cg_kernel_options_init(&o->kernel, CG_CMD_RUN, argc, argv, &scan, err) < 0)
                return -1;
        while (!o->kernel.help && (id = cg_opt_next(&scan, &value, err)) != CG_OPT_END)
                if (id < 0 || apply(o, id, value, err) < 0)
                        return -1;
        if (o->kernel.help)
                return 0;
        if (o->json && o->file && strcmp(o->file, "-") == 0)
                return cg_fail(err, CG_E_INVAL,
                               "--json reads decisions from standard input, so FILE cannot be `-`");
        if (o->json && o->kernel.images)
                return cg_fail(err, CG_E_INVAL,
                               "--images saves nothing with --json: images are in the events");
        if (cg_kernel_options_check(&o->kernel, err) < 0)
                return -1;
        if (o->sync && !o->kernel.connect.command)
                return cg_fail(err, CG_E_INVAL,
                               "--sync is for --connect: here cells work in the --workspace");
        if (o->stay && !o->json)
                return cg_fail(err, CG_E_INVAL, "--stay waits for cells on standard input: it needs --json");
        if (o->server_requests && !o->json)
                return cg_fail(err, CG_E_INVAL,
                               "--server-requests: answers come on standard input, so it needs --json");
        o->stay = o->stay || (o->json && !o->file && !o->cells.n);
        if (!o->file && !o->cells.n && !o->json)
                return cg_fail(err, CG_E_INVAL, "nothing to run: give -c CODE or FILE; --help says more");
        return 0;
}
