/* What MCP servers say, in the log. Linked into the tool server and the command line. */
#include "mcp/client/server_log.h"

#include "base/text.h"
#include "mcp/ceilings.h"

#define TEXT_MAX ((size_t)16 << 10)

static bool may_log(struct cg_server_log *l)
{
        int64_t now = cg_now_ms();

        if (now - l->since_ms >= 1000) {
                if (l->dropped)
                        cg_log(l->log, CG_LOG_WARN, "MCP server %s: %u more lines were not logged",
                               l->def->name, l->dropped);
                l->since_ms = now;
                l->lines = l->dropped = 0;
        }
        if (l->lines < CG_MCP_LOG_LINES) {
                l->lines++;
                return true;
        }
        l->dropped++;
        return false;
}

int cg_server_log_render(const struct cg_mcp_def *def, struct cg_slice text, struct cg_buf *b)
{
        cg_buf_init(b, 8 * TEXT_MAX);
        cg_text_render(b, text.p, CG_MIN(text.len, TEXT_MAX), 0);
        cg_buf_adds(b, "");
        if (b->failed)
                return b->failed;
        cg_mcp_def_redact(def, b->data);
        b->len = strlen(b->data);
        return 0;
}

void cg_server_log_line(struct cg_server_log *l, enum cg_log_level level, const char *what,
                        struct cg_slice line)
{
        cg_auto_buf struct cg_buf b = { .max = 0 };

        if (!l->log || (int)level > l->log->level || !may_log(l) ||
            cg_server_log_render(l->def, line, &b) < 0)
                return;
        cg_log(l->log, level, "MCP server %s: %s: %.*s%s", l->def->name, what, (int)CG_MCP_LOG_LINE, b.data,
               b.len > CG_MCP_LOG_LINE ? "... [cut]" : "");
}
