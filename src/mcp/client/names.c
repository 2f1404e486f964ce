/* Suggestions for misspelt names. Linked into the tool server. */
#include "mcp/client/names.h"

#include "base/text.h"
#include "mcp/ceilings.h"

#define SHOWN 3

/* Ignores case, and treats "-", "." and "/" as "_". */
static char fold(char c)
{
        c = cg_ascii_lower(c);
        return c == '-' || c == '.' || c == '/' ? '_' : c;
}

/* Edit distance of @name and @wanted; SIZE_MAX: not close. A name that contains the other is. */
static size_t rank(const char *wanted, const char *name)
{
        size_t n = strlen(wanted), m = strlen(name), d;

        if (!n || n > CG_TEXT_DISTANCE_MAX || m > CG_TEXT_DISTANCE_MAX)
                return SIZE_MAX;
        d = cg_text_distance(wanted, name, fold);
        if (d <= (1 + CG_MIN(n, m)) / 3)
                return d;
        if (n >= 4 && m >= 4 && (strstr(name, wanted) || strstr(wanted, name)))
                return d;
        return SIZE_MAX;
}

void cg_close_names(const char *wanted, char *const *names, size_t n, struct cg_buf *b)
{
        const char *best[SHOWN] = { NULL };
        size_t ranks[SHOWN] = { SIZE_MAX, SIZE_MAX, SIZE_MAX };

        for (size_t i = 0; i < n && i < CG_MCP_MAX_CLOSE_TOOLS; i++) {
                size_t d = rank(wanted, names[i]);

                for (size_t k = 0; k < SHOWN; k++) {
                        if (d >= ranks[k])
                                continue;
                        memmove(ranks + k + 1, ranks + k, (SHOWN - k - 1) * sizeof(*ranks));
                        memmove(best + k + 1, best + k, (SHOWN - k - 1) * sizeof(*best));
                        ranks[k] = d;
                        best[k] = names[i];
                        break;
                }
        }
        for (size_t k = 0; k < SHOWN && best[k]; k++)
                cg_buf_addf(b, "%s\"%s\"", cg_sep(k, ", "), best[k]);
}
