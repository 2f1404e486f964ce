/* Messages between our processes: tables, headers, checks. Linked into all of these processes. */
#include "base/wire.h"

#include <endian.h>
#include "base/json.h"

#define MAGIC0 'C'
#define MAGIC1 'G'

#define H CG_ROLE_HOST
#define S CG_ROLE_SUPERVISOR
#define K CG_ROLE_KERNEL
#define T CG_ROLE_TOOLSERVER
#define SPEC(msg, no, who, body, raw, count) \
        { .type = no, .name = #msg, .senders = who, .body_max = body, .raw_max = raw, .raws = count },
static const struct cg_msg_spec host_specs[] = { CG_HOST_MSGS(SPEC) };
static const struct cg_msg_spec kernel_specs[] = { CG_KERNEL_MSGS(SPEC) };
static const struct cg_msg_spec tool_specs[] = { CG_TOOL_MSGS(SPEC) };
static const struct cg_msg_spec broker_specs[] = { CG_BROKER_MSGS(SPEC) };

const struct cg_wire cg_wire_host = { "host", 1, host_specs, CG_ARRAY_LEN(host_specs) };
const struct cg_wire cg_wire_kernel = { "kernel", 2, kernel_specs, CG_ARRAY_LEN(kernel_specs) };
const struct cg_wire cg_wire_tool = { "tool", 3, tool_specs, CG_ARRAY_LEN(tool_specs) };
const struct cg_wire cg_wire_broker = { "broker", 4, broker_specs, CG_ARRAY_LEN(broker_specs) };

static const struct cg_msg_spec *find_spec(const struct cg_wire *wire, uint16_t type)
{
        for (size_t i = 0; i < wire->n_specs; i++)
                if (wire->specs[i].type == type)
                        return &wire->specs[i];
        return NULL;
}

int cg_msg_start(struct cg_msg *m, const struct cg_wire *wire, unsigned sender, const unsigned char *h,
                 size_t len, struct cg_err *err)
{
        const struct cg_msg_spec *spec;

        m->spec = NULL;
        m->n_frames = 0;
        if (len != CG_WIRE_HEADER || h[0] != MAGIC0 || h[1] != MAGIC1)
                return cg_fail(err, CG_E_PROTO, "not a message of the %s wire", wire->name);
        if (h[2] != CG_WIRE_VERSION)
                return cg_fail(err, CG_E_PROTO, "%s wire: version %d, expected %d", wire->name, h[2],
                               CG_WIRE_VERSION);
        if (h[3] != wire->number)
                return cg_fail(err, CG_E_PROTO, "message of wire %d on the %s wire", h[3], wire->name);
        memcpy(&m->type, h + 4, 2);
        memcpy(&m->flags, h + 6, 2);
        memcpy(&m->session, h + 8, 8);
        memcpy(&m->id, h + 16, 8);
        m->type = le16toh(m->type);
        m->flags = le16toh(m->flags);
        m->session = le64toh(m->session);
        m->id = le64toh(m->id);
        spec = find_spec(wire, m->type);
        if (!spec)
                return cg_fail(err, CG_E_PROTO, "%s wire: unknown message %u", wire->name, m->type);
        if (!(spec->senders & sender))
                return cg_fail(err, CG_E_PROTO, "%s wire: this peer may not send %s", wire->name, spec->name);
        m->spec = spec;
        return 0;
}

int cg_msg_check_frame(const struct cg_msg *m, size_t index, size_t size, size_t raw_before, bool more,
                       struct cg_err *err)
{
        const struct cg_msg_spec *spec = m->spec;
        bool any = spec->raws == CG_RAWS_ANY;
        size_t most = any ? CG_MAX_FRAMES - 1 : spec->raws;

        if (index == 0 && size > spec->body_max)
                return cg_fail(err, CG_E_PROTO, "%s: body of %zu bytes, at most %zu", spec->name, size,
                               spec->body_max);
        if (index > most || (!any && !more && index < spec->raws))
                return cg_fail(err, CG_E_PROTO, "%s: %zu raw frames, expected %zu", spec->name, index, most);
        if (index > 0 && size > spec->raw_max - raw_before)
                return cg_fail(err, CG_E_PROTO, "%s: content of more than %zu bytes", spec->name,
                               spec->raw_max);
        return 0;
}

struct cg_frame *cg_frame_new(size_t len)
{
        struct cg_frame *f = malloc(sizeof(*f) + len + 1);

        if (!f)
                return NULL;
        f->len = len;
        f->refs = 1;
        f->data[len] = '\0';
        return f;
}

struct cg_frame *cg_frame_ref(struct cg_frame *f)
{
        if (f)
                f->refs++;
        return f;
}

struct cg_frame *cg_frame_unref(struct cg_frame *f)
{
        if (f && --f->refs == 0)
                free(f);
        return NULL;
}

void cg_msg_fini(struct cg_msg *m)
{
        for (size_t i = 0; i < m->n_frames; i++)
                m->frames[i] = cg_frame_unref(m->frames[i]);
        m->n_frames = 0;
        m->spec = NULL;
}

const char *cg_msg_body(const struct cg_msg *m, size_t *len)
{
        struct cg_bytes b = cg_frame_bytes(m->n_frames ? m->frames[0] : NULL);

        if (len)
                *len = b.len;
        return b.data;
}

const char *cg_msg_raw(const struct cg_msg *m, size_t i, size_t *len)
{
        struct cg_bytes b = cg_frame_bytes(i + 1 < m->n_frames ? m->frames[i + 1] : NULL);

        if (len)
                *len = b.len;
        return b.data;
}

int cg_msg_json(const struct cg_msg *m, json_t **ret, struct cg_err *err)
{
        size_t len;
        const char *body = cg_msg_body(m, &len);
        int r;

        if (!len) {
                *ret = json_object();
                return cg_made(*ret, "message", err);
        }
        r = cg_json_object(body, len, m->spec ? m->spec->name : "message", ret, err);
        if (r == CG_E_PARSE && err)
                err->code = CG_E_PROTO;
        return r < 0 ? CG_E_PROTO : 0;
}

int cg_out_header(const struct cg_wire *wire, const struct cg_out *o, unsigned char h[CG_WIRE_HEADER],
                  struct cg_err *err)
{
        const struct cg_msg_spec *spec = find_spec(wire, o->type);
        size_t raw_len = o->has_raw ? o->raw_len : 0;
        uint16_t type = htole16(o->type), flags = htole16(o->flags);
        uint64_t session = htole64(o->session), id = htole64(o->id);

        if (!spec)
                return cg_fail(err, CG_E_INVAL, "%s wire has no message %u", wire->name, o->type);
        for (size_t i = 0; i < o->n_more; i++)
                if (__builtin_add_overflow(raw_len, o->more[i].len, &raw_len))
                        raw_len = SIZE_MAX;
        if (o->body_len > spec->body_max)
                return cg_fail(err, CG_E_LIMIT, "%s: %zu bytes are over its limit of %zu", spec->name,
                               o->body_len, spec->body_max);
        if (raw_len > spec->raw_max)
                return cg_fail(err, CG_E_LIMIT, "%s: %zu bytes are over its limit of %zu", spec->name,
                               raw_len, spec->raw_max);
        if (o->n_more > CG_MAX_FRAMES - 2)
                return cg_fail(err, CG_E_LIMIT, "%s: more than %d frames", spec->name, CG_MAX_FRAMES);
        h[0] = MAGIC0;
        h[1] = MAGIC1;
        h[2] = CG_WIRE_VERSION;
        h[3] = wire->number;
        memcpy(h + 4, &type, 2);
        memcpy(h + 6, &flags, 2);
        memcpy(h + 8, &session, 8);
        memcpy(h + 16, &id, 8);
        return 0;
}
