/* The text of a connection, for denials and for commands that ask about one. */
#include "base/json.h"
#include "base/text.h"
#include "sandbox/command/denial.h"

/* The most bytes of one text from inside. */
#define SHOWN_MAX 2048u

void cg_denial_add_text(struct cg_buf *b, const char *text)
{
        cg_text_render_as(b, text, strlen(text), SHOWN_MAX, CG_TEXT_LINE);
}

void cg_denial_connection(const json_t *o, struct cg_buf *b)
{
        const char *host = cg_json_text_of(o, "host"), *address = cg_json_text_of(o, "address"),
                   *protocol = cg_json_text_of(o, "protocol");
        bool v6 = strchr(host, ':') && host[0] != '[';
        json_int_t port = json_integer_value(json_object_get(o, "port"));

        if (v6)
                cg_buf_adds(b, "[");
        cg_denial_add_text(b, cg_text_or(host, "?"));
        cg_buf_addf(b, "%s:%" JSON_INTEGER_FORMAT " (", v6 ? "]" : "", port);
        /* A tunnel's bytes are not inspected: only the port indicates https. */
        if (strcmp(protocol, "connect") == 0)
                protocol = port == 443 ? "https" : "tunnel";
        cg_denial_add_text(b, cg_text_or(protocol, "unknown protocol"));
        if (*address)
                cg_buf_adds(b, ", ");
        cg_denial_add_text(b, address);
        cg_buf_adds(b, ")");
}
