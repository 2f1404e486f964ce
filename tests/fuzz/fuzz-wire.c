/*
 * The checks of base/wire.c on foreign frames: the input is cut into frames and checked on each
 * wire as each sender. A message that is accepted keeps the rules of the table.
 *
 * Input: for each frame one byte, its length (255: the rest), and as many bytes.
 */
#include "base/wire.h"
#include "fuzz.h"

/* The length of the next frame, whose bytes begin at data + 1. */
static size_t frame_len(const uint8_t *data, size_t size)
{
        return data[0] == 255 || data[0] > size - 1 ? size - 1 : data[0];
}

static void receive(const struct cg_wire *wire, unsigned sender, const uint8_t *data, size_t size)
{
        struct cg_msg m = CG_MSG_EMPTY;
        size_t n = frame_len(data, size), raw = 0;
        int r = cg_msg_start(&m, wire, sender, data + 1, n, NULL);
        json_t *body;

        must(r == 0 || r == CG_E_PROTO);
        data += 1 + n;
        size -= 1 + n;
        while (r == 0 && size) {
                n = frame_len(data, size);
                r = cg_msg_check_frame(&m, m.n_frames, n, raw, size > 1 + n, NULL);
                if (r == 0) {
                        must(m.n_frames < CG_MAX_FRAMES);
                        raw += m.n_frames ? n : 0;
                        m.frames[m.n_frames] = cg_frame_new(n);
                        memcpy(m.frames[m.n_frames++]->data, data + 1, n);
                }
                data += 1 + n;
                size -= 1 + n;
        }
        if (r == 0 && m.n_frames) {
                must((m.spec->senders & sender) && m.spec->type == m.type && raw <= m.spec->raw_max);
                must(m.frames[0]->len <= m.spec->body_max);
                must(m.spec->raws == CG_RAWS_ANY || m.n_frames == m.spec->raws + 1);
                if (cg_msg_json(&m, &body, NULL) == 0)
                        json_decref(body);
        }
        cg_msg_fini(&m);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
        static const struct cg_wire *const wires[] = { &cg_wire_host, &cg_wire_kernel, &cg_wire_tool,
                                                       &cg_wire_broker };

        if (!size)
                return 0;
        for (size_t i = 0; i < 4; i++)
                for (unsigned sender = 1; sender <= 8; sender *= 2)
                        receive(wires[i], sender, data, size);
        return 0;
}
