/* Texts of failures of MCP servers: see failure.h. */
#include "mcp/client/failure.h"

void cg_mcp_failure_for_host(const struct cg_mcp_def *def, char *text)
{
        char *to = text;

        for (const char *p = text; *p; p++)
                if (*p != CG_MCP_HOST_ONLY[0])
                        *to++ = *p;
        *to = '\0';
        if (def)
                cg_mcp_def_redact(def, text);
}

/* Replaces URLs by "***", which is never longer. */
static void remove_addresses(char *text)
{
        static const char ends[] = " \t\n,;\"'<>()";

        for (char *p = text, *end; (p = strcasestr(p, "http")); p++) {
                if (strncasecmp(p, "http://", 7) != 0 && strncasecmp(p, "https://", 8) != 0)
                        continue;
                end = p + strcspn(p, ends);
                while (end[-1] == '.' || end[-1] == ':')
                        end--;
                memcpy(p, "***", 3);
                memmove(p + 3, end, strlen(end) + 1);
        }
}

bool cg_mcp_failure_for_cell(const struct cg_mcp_def *def, char *text, size_t size)
{
        const struct cg_secrets secrets = def ? cg_secrets_whole(&def->secrets) : (struct cg_secrets){ 0 };
        char *mark = strchr(text, CG_MCP_HOST_ONLY[0]);
        size_t n;

        if (mark)
                *mark = '\0';
        cg_secrets_redact(&secrets, text);
        if (!def || def->kind != CG_MCP_STDIO)
                remove_addresses(text);
        if (!mark)
                return false;
        n = strlen(text);
        while (n && strchr(" :;,", text[n - 1]))
                n--;
        snprintf(text + n, size - n, "; the host application has the reason");
        return true;
}
