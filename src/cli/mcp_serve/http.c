/*
 * `cellgate mcp serve --http`: hands the command line over to cellgate-mcp-http, its options before
 * "--" and those of each session, unchanged, behind it. Limits of sessions are for both, since calls
 * can make more in a process, and the files that cells must not read, since a session hides them.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/installed.h"
#include "base/util.h"
#include "cli/mcp_serve/mcp_serve.h"
#include "config.h"

/* Room for the words of both programs, and NULL. */
#define MORE_WORDS 6

int cg_serve_http(int argc, char **argv, struct cg_err *err)
{
        const char *program = CG_INSTALLED(CG_LIBEXECDIR "/cellgate-mcp-http"), *value;
        static const char *const middle[] = { "--", "cellgate", "mcp", "serve" };
        size_t max = (size_t)argc * 2 + MORE_WORDS, n = 1, n_rest = 0;
        cg_auto_free const char **words = calloc(max, sizeof(*words)), **rest = calloc(max, sizeof(*rest));
        struct cg_kernel_options scratch;
        struct cg_optscan scan;
        int id, first, r = cg_kernel_options_init(&scratch, CG_CMD_SERVE, argc, argv, &scan, err);

        if (!words || !rest)
                r = cg_fail(err, CG_E_NOMEM, "options");
        else
                words[0] = "cellgate-mcp-http";
        for (first = scan.i; r == 0 && (id = cg_opt_next(&scan, &value, err)) > CG_OPT_END; first = scan.i) {
                bool both = id == CG_KOPT_MAX_SESSIONS || id == CG_KOPT_IDLE || id == CG_KOPT_TOKEN_FILE ||
                            id == CG_KOPT_TLS_KEY;
                bool ours = id == CG_KOPT_HTTP || id == CG_KOPT_OF_HTTP;

                for (; first < scan.i; first++) {
                        if (ours || both)
                                words[n++] = argv[first];
                        if (!ours)
                                rest[n_rest++] = argv[first];
                }
        }
        cg_kernel_options_fini(&scratch);
        if (r < 0)
                return r;
        memcpy(words + n, middle, sizeof(middle));
        memcpy(words + n + CG_ARRAY_LEN(middle), rest, n_rest * sizeof(*rest));
        execv(program, (char *const *)(uintptr_t)words);
        return errno == ENOENT ? cg_fail(err, CG_E_UNSUPPORTED,
                                         "--http is not in a Python wheel: install the Debian package, or "
                                         "from source (docs/install.md)")
                               : cg_fail_errno(err, "%s", program);
}
