/*
 * What libcellgate makes of a supervisor's messages, which may come from another machine that
 * lies: an event, or nothing. Its texts can be read.
 *
 * Input: the number of the message (two bytes), flags, the length of the body (two bytes), the
 * body, one raw frame.
 */
#include "base/wire.h"
#include "client/internal.h"
#include "fuzz.h"

static struct cg_frame *frame(const uint8_t *data, size_t size)
{
        struct cg_frame *f = cg_frame_new(size);

        memcpy(f->data, data, size);
        return f;
}

static size_t read_all(const struct cg_event *e)
{
        size_t n = 0, len;

        cg_event_json(e, &len);
        n += len;
        cg_event_arguments(e, &len);
        n += len;
        n += strlen(cg_event_text(e, &len)) + strlen(cg_event_server(e)) + strlen(cg_event_tool(e));
        return n + strlen(cg_event_method(e)) + strlen(cg_event_type_name(cg_event_type(e)));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
        struct cg_msg m = CG_MSG_EMPTY;
        struct cg_event *e;
        size_t body;
        uint8_t head[24] = { 'C', 'G', CG_WIRE_VERSION };

        if (size < 5)
                return 0;
        body = (size_t)(data[3] | data[4] << 8);
        head[3] = cg_wire_host.number;
        memcpy(head + 4, data, 3);
        data += 5;
        size -= 5;
        if (body > size)
                body = size;
        if (cg_msg_start(&m, &cg_wire_host, CG_ROLE_SUPERVISOR, head, sizeof(head), NULL) == 0) {
                m.frames[m.n_frames++] = frame(data, body);
                if (m.spec->raws)
                        m.frames[m.n_frames++] = frame(data + body, size - body);
                e = cg_event_from_message(&m);
                if (e && read_all(e) == SIZE_MAX)
                        abort();
                cg_event_free(e);
        }
        cg_msg_fini(&m);
        return 0;
}
