/* What the sandbox refused, and connections in words. Runs in the command `cellgate`; host names come from the code inside. */
#include "cli/denied.h"

#include <stdlib.h>
#include <string.h>
#include "base/json.h"
#include "base/text.h"
#include "base/util.h"

#define MAX_LINE 8192u

static const char *text_of(const json_t *o, const char *key)
{
        const char *text = json_string_value(json_object_get(o, key));

        return text ? text : "";
}

static int add_safe(struct cg_buf *b, const char *text, struct cg_err *err)
{
        return cg_text_render(b, text, strlen(text), 2048, err);
}

/* A tunnel's bytes are not looked at: that it leads to port 443 is all there is to know about it. */
static const char *protocol_of(const json_t *o, json_int_t port)
{
        const char *protocol = text_of(o, "protocol");

        if (strcmp(protocol, "connect") == 0)
                return port == 443 ? "https" : "tunnel";
        return *protocol ? protocol : "unknown protocol";
}

static int add_connection(const json_t *o, struct cg_buf *b, struct cg_err *err)
{
        const char *host = text_of(o, "host"), *address = text_of(o, "address");
        bool v6 = strchr(host, ':') && host[0] != '[';
        json_int_t port = json_integer_value(json_object_get(o, "port"));
        int r = cg_buf_adds(b, v6 ? "[" : "", err);

        if (r == 0)
                r = add_safe(b, *host ? host : "?", err);
        if (r == 0)
                r = cg_buf_addf(b, err, "%s:%" JSON_INTEGER_FORMAT " (", v6 ? "]" : "", port);
        if (r == 0)
                r = add_safe(b, protocol_of(o, port), err);
        if (r == 0 && *address)
                r = cg_buf_adds(b, ", ", err);
        if (r == 0 && *address)
                r = add_safe(b, address, err);
        return r < 0 ? r : cg_buf_adds(b, ")", err);
}

int cg_connection_text(const char *json, struct cg_buf *b, struct cg_err *err)
{
        cg_auto_json json_t *o = json_loads(json, JSON_ALLOW_NUL, NULL);

        return add_connection(o, b, err);
}

static int describe(const struct cg_event *e, struct cg_buf *b, struct cg_err *err)
{
        cg_auto_json json_t *o = json_loads(cg_event_json(e, NULL), JSON_ALLOW_NUL, NULL);
        const char *how = text_of(o, "how"), *why = text_of(o, "why");
        int r;

        if (strcmp(text_of(o, "operation"), "network-outbound") != 0) {
                r = add_safe(b, cg_event_text(e, NULL), err);
        } else {
                r = cg_buf_adds(b, "the sandbox refused a connection to ", err);
                if (r == 0)
                        r = add_connection(o, b, err);
                if (r == 0)
                        r = cg_buf_adds(b, ": ", err);
                if (r == 0)
                        r = add_safe(b, why, err);
        }
        if (r == 0 && *how)
                r = cg_buf_adds(b, ". To allow it: ", err);
        return r < 0 ? r : add_safe(b, how, err);
}

void cg_denied_forget(struct cg_denied *d)
{
        while (d->n)
                free(d->told[--d->n]);
        d->full = false;
}

/* Was it told? Else it is from now on. */
static bool told(struct cg_denied *d, const char *line)
{
        for (size_t i = 0; i < d->n; i++)
                if (strcmp(d->told[i], line) == 0)
                        return true;
        if (d->n < CG_DENIED_MAX && (d->told[d->n] = strdup(line)))
                d->n++;
        return false;
}

int cg_denied_tell(struct cg_denied *d, const struct cg_event *e, struct cg_buf *b, struct cg_err *err)
{
        cg_auto_buf struct cg_buf line = { .max = MAX_LINE };
        bool full = d->n == CG_DENIED_MAX;

        if (describe(e, &line, err) < 0)
                return -1;
        if (told(d, line.data))
                return 0;
        if (!full)
                return cg_buf_adds(b, line.data, err);
        if (d->full)
                return 0;
        d->full = true;
        return cg_buf_adds(b, "the sandbox refused more than that: the rest is not shown", err);
}
