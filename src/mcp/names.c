/* Finding what was meant by a misspelt name. Linked into the tool server. */
#include "mcp/names.h"

#include <string.h>
#include "mcp/limits.h"

#define SHOWN 3

static size_t min3(size_t a, size_t b, size_t c)
{
        size_t m = a < b ? a : b;

        return m < c ? m : c;
}

/* Upper and lower case, and "-" and "_", are as good as the same. */
static char fold(char c)
{
        if (c >= 'A' && c <= 'Z')
                return (char)(c - 'A' + 'a');
        return c == '-' || c == '.' || c == '/' ? '_' : c;
}

/* Levenshtein's distance, for names up to CG_MCP_MAX_CLOSE_NAME. */
static size_t distance(const char *a, size_t n, const char *b, size_t m)
{
        size_t row[CG_MCP_MAX_CLOSE_NAME + 1];

        for (size_t k = 0; k <= m; k++)
                row[k] = k;
        for (size_t i = 1; i <= n; i++) {
                size_t diagonal = row[0];

                row[0] = i;
                for (size_t k = 1; k <= m; k++) {
                        size_t above = row[k];

                        row[k] = min3(row[k] + 1, row[k - 1] + 1,
                                      diagonal + (fold(a[i - 1]) != fold(b[k - 1])));
                        diagonal = above;
                }
        }
        return row[m];
}

/*
 * How far @name is from @wanted; SIZE_MAX: not close. A name that contains the other is close too.
 */
static size_t rank(const char *wanted, const char *name)
{
        size_t n = strlen(wanted), m = strlen(name), d;

        if (!n || n > CG_MCP_MAX_CLOSE_NAME || m > CG_MCP_MAX_CLOSE_NAME)
                return SIZE_MAX;
        d = distance(wanted, n, name, m);
        if (d <= (1 + (n < m ? n : m)) / 3)
                return d;
        if (n >= 4 && m >= 4 && (strstr(name, wanted) || strstr(wanted, name)))
                return d;
        return SIZE_MAX;
}

int cg_close_names(const char *wanted, char *const *names, size_t n, struct cg_buf *b, struct cg_err *err)
{
        const char *best[SHOWN] = { NULL };
        size_t ranks[SHOWN] = { SIZE_MAX, SIZE_MAX, SIZE_MAX };
        int r = 0;

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
        for (size_t k = 0; k < SHOWN && best[k] && r == 0; k++)
                r = cg_buf_addf(b, err, "%s\"%s\"", k ? ", " : "", best[k]);
        return r;
}
