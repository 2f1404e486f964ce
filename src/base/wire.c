/*
 * Messages between our processes: tables, framing, checks. Linked into every process that has a
 * ZeroMQ socket.
 */
#include "base/wire.h"

#include <endian.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include "base/json.h"
#include "base/util.h"

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

static void put_header(unsigned char *h, const struct cg_wire *wire, const struct cg_out *o)
{
        uint16_t type = htole16(o->type), flags = htole16(o->flags);
        uint64_t session = htole64(o->session), id = htole64(o->id);

        h[0] = MAGIC0;
        h[1] = MAGIC1;
        h[2] = CG_WIRE_VERSION;
        h[3] = wire->number;
        memcpy(h + 4, &type, 2);
        memcpy(h + 6, &flags, 2);
        memcpy(h + 8, &session, 8);
        memcpy(h + 16, &id, 8);
}

static int get_header(const unsigned char *h, size_t len, const struct cg_wire *wire, struct cg_msg *m,
                      struct cg_err *err)
{
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
        return 0;
}

/* Reads and drops what is left of a multipart message. */
static void drop_rest(void *sock, zmq_msg_t *last)
{
        while (zmq_msg_more(last))
                if (zmq_msg_recv(last, sock, ZMQ_DONTWAIT) < 0)
                        break;
}

static int recv_frames(void *sock, struct cg_msg *m, struct cg_err *err)
{
        do {
                zmq_msg_t *f;

                if (m->n_frames == CG_MAX_FRAMES) {
                        drop_rest(sock, &m->frames[m->n_frames - 1]);
                        return cg_fail(err, CG_E_PROTO, "message of more than %d frames", CG_MAX_FRAMES);
                }
                f = &m->frames[m->n_frames];
                zmq_msg_init(f);
                if (zmq_msg_recv(f, sock, ZMQ_DONTWAIT) < 0) {
                        zmq_msg_close(f);
                        return cg_fail_errno(err, "zmq_msg_recv");
                }
                m->n_frames++;
        } while (zmq_msg_more(&m->frames[m->n_frames - 1]));
        return 0;
}

int cg_msg_start(struct cg_msg *m, const struct cg_wire *wire, unsigned sender, const unsigned char *header,
                 size_t len, struct cg_err *err)
{
        const struct cg_msg_spec *spec;
        int r = get_header(header, len, wire, m, err);

        m->spec = NULL;
        m->n_frames = 0;
        if (r < 0)
                return r;
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
        size_t most = any ? CG_MAX_FRAMES - 1 : spec->raws, least = any ? 0 : spec->raws;

        if (index == 0 && size > spec->body_max)
                return cg_fail(err, CG_E_PROTO, "%s: body of %zu bytes, at most %zu", spec->name, size,
                               spec->body_max);
        if (index > most || (!more && index < least))
                return cg_fail(err, CG_E_PROTO, "%s: %zu raw frames, expected %zu", spec->name, index, most);
        if (index > 0 && size > spec->raw_max - raw_before)
                return cg_fail(err, CG_E_PROTO, "%s: content of more than %zu bytes", spec->name,
                               spec->raw_max);
        return 0;
}

static int check_frames(const struct cg_msg *m, struct cg_err *err)
{
        size_t raw = 0;
        int r = 0;

        for (size_t i = 0; r == 0 && i < m->n_frames; i++) {
                size_t size = zmq_msg_size(&m->frames[i]);

                r = cg_msg_check_frame(m, i, size, raw, i + 1 < m->n_frames, err);
                if (i > 0)
                        raw += size;
        }
        return r;
}

int cg_msg_recv(void *sock, const struct cg_wire *wire, unsigned sender, struct cg_msg *m, struct cg_err *err)
{
        zmq_msg_t head;
        int r;

        m->spec = NULL;
        m->n_frames = 0;
        zmq_msg_init(&head);
        if (zmq_msg_recv(&head, sock, ZMQ_DONTWAIT) < 0) {
                r = errno == EAGAIN ? CG_TIMEOUT : cg_fail_errno(err, "zmq_msg_recv");
                zmq_msg_close(&head);
                return r;
        }
        r = cg_msg_start(m, wire, sender, zmq_msg_data(&head), zmq_msg_size(&head), err);
        if (r == 0 && !zmq_msg_more(&head))
                r = cg_fail(err, CG_E_PROTO, "message without a body");
        if (r == 0)
                r = recv_frames(sock, m, err);
        else
                drop_rest(sock, &head);
        zmq_msg_close(&head);
        if (r == 0)
                r = check_frames(m, err);
        if (r < 0)
                cg_msg_fini(m);
        return r;
}

void cg_msg_fini(struct cg_msg *m)
{
        for (size_t i = 0; i < m->n_frames; i++)
                zmq_msg_close(&m->frames[i]);
        m->n_frames = 0;
        m->spec = NULL;
}

static const char *frame(const struct cg_msg *m, size_t i, size_t *len)
{
        zmq_msg_t *f;

        if (i >= m->n_frames) {
                if (len)
                        *len = 0;
                return "";
        }
        f = (zmq_msg_t *)(uintptr_t)&m->frames[i]; /* zmq_msg_data() does not take a const */
        if (len)
                *len = zmq_msg_size(f);
        return zmq_msg_data(f);
}

const char *cg_msg_body(const struct cg_msg *m, size_t *len)
{
        return frame(m, 0, len);
}

const char *cg_msg_raw(const struct cg_msg *m, size_t i, size_t *len)
{
        return frame(m, i + 1, len);
}

int cg_msg_json(const struct cg_msg *m, json_t **ret, struct cg_err *err)
{
        size_t len;
        const char *body = cg_msg_body(m, &len);
        int r;

        if (!len) {
                *ret = json_object();
                return *ret ? 0 : cg_fail(err, CG_E_NOMEM, "message");
        }
        r = cg_json_object(body, len, m->spec ? m->spec->name : "message", ret, err);
        if (r == CG_E_PARSE && err)
                err->code = CG_E_PROTO;
        return r < 0 ? CG_E_PROTO : 0;
}

/* Bytes of all raw frames; SIZE_MAX when the sum overflows. */
static size_t raw_bytes(const struct cg_out *o)
{
        size_t n = o->has_raw ? o->raw_len : 0;

        for (size_t i = 0; i < o->n_more; i++)
                if (__builtin_add_overflow(n, o->more[i].len, &n))
                        return SIZE_MAX;
        return n;
}

static int check_out(const struct cg_wire *wire, const struct cg_out *o, size_t raw_len, struct cg_err *err)
{
        const struct cg_msg_spec *spec = find_spec(wire, o->type);

        if (!spec)
                return cg_fail(err, CG_E_INVAL, "%s wire has no message %u", wire->name, o->type);
        if (o->body_len > spec->body_max)
                return cg_fail(err, CG_E_LIMIT, "%s: %zu bytes are over its limit of %zu", spec->name,
                               o->body_len, spec->body_max);
        if (raw_len > spec->raw_max)
                return cg_fail(err, CG_E_LIMIT, "%s: %zu bytes are over its limit of %zu", spec->name,
                               raw_len, spec->raw_max);
        if (o->n_more > CG_MAX_FRAMES - 2)
                return cg_fail(err, CG_E_LIMIT, "%s: more than %d frames", spec->name, CG_MAX_FRAMES);
        return 0;
}

static int send_result(struct cg_err *err)
{
        if (errno == EAGAIN)
                return CG_TIMEOUT;
        return cg_fail_errno(err, "zmq_send");
}

/*
 * Header, body; more frames follow when @more. Only the first frame can say EAGAIN: a multipart is
 * all or nothing.
 */
static int send_head(void *sock, const struct cg_wire *wire, const struct cg_out *o, bool more,
                     struct cg_err *err)
{
        unsigned char header[CG_WIRE_HEADER];

        put_header(header, wire, o);
        if (zmq_send(sock, header, sizeof(header), ZMQ_SNDMORE | ZMQ_DONTWAIT) < 0)
                return send_result(err);
        if (zmq_send(sock, o->body, o->body_len, (more ? ZMQ_SNDMORE : 0) | ZMQ_DONTWAIT) < 0)
                return send_result(err);
        return 0;
}

int cg_out_header(const struct cg_wire *wire, const struct cg_out *o, unsigned char header[CG_WIRE_HEADER],
                  struct cg_err *err)
{
        int r = check_out(wire, o, raw_bytes(o), err);

        if (r == 0)
                put_header(header, wire, o);
        return r;
}

int cg_msg_send(void *sock, const struct cg_wire *wire, const struct cg_out *o, struct cg_err *err)
{
        int r = check_out(wire, o, raw_bytes(o), err);

        if (r == 0)
                r = send_head(sock, wire, o, o->has_raw, err);
        if (r == 0 && o->has_raw &&
            zmq_send(sock, o->raw, o->raw_len, (o->n_more ? ZMQ_SNDMORE : 0) | ZMQ_DONTWAIT) < 0)
                r = send_result(err);
        for (size_t i = 0; r == 0 && i < o->n_more; i++)
                if (zmq_send(sock, o->more[i].data, o->more[i].len,
                             (i + 1 < o->n_more ? ZMQ_SNDMORE : 0) | ZMQ_DONTWAIT) < 0)
                        r = send_result(err);
        return r;
}

int cg_msg_send_json(void *sock, const struct cg_wire *wire, const struct cg_out *o, json_t *body,
                     struct cg_err *err)
{
        struct cg_out out = *o;
        cg_auto_free char *text = body ? cg_json_text(body, &out.body_len) : NULL;

        json_decref(body);
        if (!text)
                return cg_fail(err, CG_E_NOMEM, "message");
        out.body = text;
        return cg_msg_send(sock, wire, &out, err);
}

void *cg_zmq_socket(void *ctx, int type, struct cg_err *err)
{
        void *s = zmq_socket(ctx, type);
        int hwm = CG_ZMQ_HWM, linger = 0;
        int64_t max = (int64_t)CG_MAX_DISPLAY + CG_MAX_BODY;

        if (!s) {
                cg_fail_errno(err, "zmq_socket");
                return NULL;
        }
        zmq_setsockopt(s, ZMQ_SNDHWM, &hwm, sizeof(hwm));
        zmq_setsockopt(s, ZMQ_RCVHWM, &hwm, sizeof(hwm));
        zmq_setsockopt(s, ZMQ_LINGER, &linger, sizeof(linger));
        zmq_setsockopt(s, ZMQ_MAXMSGSIZE, &max, sizeof(max));
        return s;
}

int cg_zmq_bind_fd(void *sock, int fd, const char *path, struct cg_err *err)
{
        char endpoint[256];

        snprintf(endpoint, sizeof(endpoint), "ipc://%s", path);
        if (zmq_setsockopt(sock, ZMQ_USE_FD, &fd, sizeof(fd)) < 0 || zmq_bind(sock, endpoint) < 0) {
                cg_fail_errno(err, "cannot bind %s", endpoint);
                close(fd);
                return CG_E_SYS;
        }
        return 0;
}

int cg_zmq_connect(void *sock, const char *path, struct cg_err *err)
{
        char endpoint[256];

        snprintf(endpoint, sizeof(endpoint), "ipc://%s", path);
        if (zmq_connect(sock, endpoint) < 0)
                return cg_fail_errno(err, "cannot connect to %s", endpoint);
        return 0;
}
