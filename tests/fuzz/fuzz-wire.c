/*
 * base/wire.c on foreign frames: the input is cut into frames and received on each wire as each
 * sender. Whatever is accepted keeps the table's rules, and nothing of it is left in the socket.
 *
 * Input: for each frame one byte, its length (255: the rest), and so many bytes.
 */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include "base/wire.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void *ctx, *out, *in;

static void open_sockets(void)
{
        if (ctx)
                return;
        ctx = zmq_ctx_new();
        out = zmq_socket(ctx, ZMQ_PAIR);
        in = zmq_socket(ctx, ZMQ_PAIR);
        if (zmq_bind(out, "inproc://fuzz") < 0 || zmq_connect(in, "inproc://fuzz") < 0)
                abort();
}

static void send_frames(const uint8_t *data, size_t size)
{
        int frames = 0;

        while (size && frames < CG_MAX_FRAMES + 8) {
                size_t n = data[0] == 255 || data[0] > size - 1 ? size - 1 : data[0];
                int more = size - 1 - n > 0 && frames < CG_MAX_FRAMES + 7;

                if (zmq_send(out, data + 1, n, more ? ZMQ_SNDMORE : 0) < 0)
                        abort();
                data += 1 + n;
                size -= 1 + n;
                frames++;
        }
}

static void receive(const struct cg_wire *wire, unsigned sender)
{
        struct cg_msg m = CG_MSG_EMPTY;
        struct cg_err err;
        json_t *body;

        if (cg_msg_recv(in, wire, sender, &m, &err) == 0) {
                if (!(m.spec->senders & sender) || m.spec->type != m.type || m.n_frames < 1)
                        abort();
                if (m.spec->raws != CG_RAWS_ANY && m.n_frames != m.spec->raws + 1)
                        abort();
                if (cg_msg_json(&m, &body, &err) == 0)
                        json_decref(body);
                cg_msg_fini(&m);
        }
        if (cg_msg_recv(in, wire, sender, &m, &err) != CG_TIMEOUT)
                abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
        static const struct cg_wire *const wires[] = { &cg_wire_host, &cg_wire_kernel, &cg_wire_tool,
                                                       &cg_wire_broker };

        if (!size)
                return 0;
        open_sockets();
        for (size_t i = 0; i < 4; i++) {
                for (unsigned sender = 1; sender <= 8; sender *= 2) {
                        send_frames(data, size);
                        receive(wires[i], sender);
                }
        }
        return 0;
}
