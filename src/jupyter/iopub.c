/*
 * iopub: subscriptions, welcomes, gathering of stream text, the budget of output. Runs in `cellgate
 * jupyter`.
 */
#include "jupyter/iopub.h"

/* Stream text that comes within this time after a message is gathered for the rest of it. */
#define GATHER_MS 10
/* Delay of the first text after a pause: print() writes the line end separately. */
#define LINE_END_MS  2
#define GATHER_BYTES ((size_t)256 << 10)
#define MAX_TOPIC    256
/* Bytes that each message counts for in addition to its content. */
#define MESSAGE_COST 256u
#define FREE_ERRORS  16u
/* The budget of comm messages, as a multiple of that of output. */
#define COMM_FACTOR 16u
#define NO_ORIGIN   ((struct cg_slice){ "", 0 })

/* Prefixes of the topics that every client gets. */
static const char *const families[] = { "kernel.", "stream.", "display_data", "comm-" };

/* ------------------------------------------------------------------ origins */

struct cg_origin *cg_origin_new(uint64_t number, struct cg_slice header)
{
        struct cg_origin *o = calloc(1, sizeof(*o));
        char *copy = malloc(header.len + 1);

        if (!o || !copy) {
                free(o);
                free(copy);
                return NULL;
        }
        memcpy(copy, header.p, header.len);
        copy[header.len] = '\0';
        *o = (struct cg_origin){ .refs = 1, .number = number, .header = { copy, header.len } };
        return o;
}

struct cg_origin *cg_origin_ref(struct cg_origin *o)
{
        if (o)
                o->refs++;
        return o;
}

struct cg_origin *cg_origin_unref(struct cg_origin *o)
{
        if (!o || --o->refs)
                return NULL;
        free((char *)(uintptr_t)o->header.p);
        free(o);
        return NULL;
}

/* ------------------------------------------------------------------ sending */

static void send_out(struct cg_iopub *io, struct cg_origin *o, struct cg_jout *out, struct cg_slice topic)
{
        struct cg_err err;

        out->ids = &topic;
        out->n_ids = 1;
        out->parent = o ? o->header : NO_ORIGIN;
        if (cg_jmsg_send(io->sock, io->sign, io->me, out, NULL, &err) < 0)
                cg_log(io->log, CG_LOG_ERROR, "%s could not be sent: %s", out->type, err.msg);
        cg_zsock_touch(&io->z);
}

/* The topics are those that ipykernel uses. */
static struct cg_slice topic_of(const struct cg_iopub *io, const char *type, char *buf, size_t size)
{
        int n;

        if (strcmp(type, "display_data") == 0)
                return CG_SLICE("display_data");
        if (strncmp(type, "comm_", 5) == 0)
                return CG_SLICE("comm-");
        n = snprintf(buf, size, "kernel.%s.%s", io->me->session, type);
        return (struct cg_slice){ buf, n > 0 && (size_t)n < size ? (size_t)n : 0 };
}

void cg_iopub_send(struct cg_iopub *io, struct cg_origin *o, const char *type, struct cg_slice content)
{
        struct cg_jout out = { .type = type, .content = content };
        char topic[128];

        cg_iopub_flush(io);
        send_out(io, o, &out, topic_of(io, type, topic, sizeof(topic)));
}

void cg_iopub_status(struct cg_iopub *io, struct cg_origin *o, const char *state)
{
        char content[64];
        int n = snprintf(content, sizeof(content), "{\"execution_state\":\"%s\"}", state);

        cg_iopub_send(io, o, "status", (struct cg_slice){ content, (size_t)n });
}

/* ------------------------------------------------------------------ the budget */

/*
 * Returns true if the budget allows these bytes. Publishes a notice the first time that it does
 * not. After that all output is left out, and comm messages only if they are over their own budget.
 */
static bool within_budget(struct cg_iopub *io, struct cg_origin *o, size_t *used, size_t bytes)
{
        char text[200];

        if (bytes <= io->budget - *used && !(o->notified && used == &o->output)) {
                *used += bytes;
                return true;
        }
        if (o->notified)
                return false;
        o->notified = true;
        snprintf(text, sizeof(text),
                 "[cellgate] The output of this cell is over %zu bytes: what follows is left out.\n",
                 io->budget);
        cg_iopub_notice(io, o, text);
        return false;
}

void cg_iopub_relay(struct cg_iopub *io, struct cg_origin *o, struct cg_jout *out)
{
        size_t bytes = out->content.len + MESSAGE_COST;
        char topic[128];
        bool send;

        cg_iopub_flush(io);
        for (size_t i = 0; i < out->n_buffers; i++)
                bytes += out->buffers[i].len;
        /*
         * A cell has one error; a hostile kernel may send any number. Comm messages are state, and
         * a widget is broken when one is missing: they have room for much more than output has.
         */
        if (!o || (strcmp(out->type, "error") == 0 && o->errors++ < FREE_ERRORS) ||
            strcmp(out->type, "debug_event") == 0)
                send = true;
        else if (strncmp(out->type, "comm_", 5) == 0)
                send = within_budget(io, o, &o->comms, bytes / COMM_FACTOR);
        else
                send = within_budget(io, o, &o->output, bytes);
        if (send)
                send_out(io, o, out, topic_of(io, out->type, topic, sizeof(topic)));
        else if (out->release)
                out->release(out->owner);
}

/* ------------------------------------------------------------------ streams */

static void on_gather_timer(uv_timer_t *t)
{
        struct cg_iopub *io = t->data;

        io->timer_on = false;
        cg_iopub_flush(io);
}

void cg_iopub_flush(struct cg_iopub *io)
{
        struct cg_jout out = { .type = "stream", .release = free };
        size_t len;

        if (!io->has_pending)
                return;
        io->has_pending = false;
        io->flushed_ms = uv_now(io->z.zl->loop);
        if (io->pending.len)
                cg_buf_adds(&io->pending, "\"}");
        out.owner = cg_buf_steal(&io->pending, &len);
        if (out.owner && len) {
                out.content = (struct cg_slice){ out.owner, len };
                send_out(io, io->pending_of, &out,
                         io->pending_err ? CG_SLICE("stream.stderr") : CG_SLICE("stream.stdout"));
        } else {
                free(out.owner);
        }
        io->pending_of = cg_origin_unref(io->pending_of);
}

static void gather(struct cg_iopub *io, struct cg_origin *o, bool is_err, const char *text, size_t len)
{
        struct cg_err err;
        size_t start;

        if (io->has_pending && (io->pending_of != o || io->pending_err != is_err))
                cg_iopub_flush(io);
        start = io->pending.len;
        if (!io->has_pending) {
                io->has_pending = true;
                io->pending_err = is_err;
                io->pending_of = cg_origin_ref(o);
        }
        if (!start) /* also where all output so far was lost */
                cg_buf_addf(&io->pending, "{\"name\":\"%s\",\"text\":\"", is_err ? "stderr" : "stdout");
        cg_json_escape_utf8(&io->pending, text, len);
        if (cg_buf_end_entry(&io->pending, start, &err) < 0)
                cg_log(io->log, CG_LOG_ERROR, "output was lost: %s", err.msg);
        if (io->pending.len >= GATHER_BYTES)
                cg_iopub_flush(io);
}

void cg_iopub_stream(struct cg_iopub *io, struct cg_origin *o, bool is_err, const char *text, size_t len)
{
        if (len && (!o || within_budget(io, o, &o->output, len)))
                gather(io, o, is_err, text, len);
}

void cg_iopub_notice(struct cg_iopub *io, struct cg_origin *o, const char *text)
{
        gather(io, o, true, text, strlen(text));
}

void cg_iopub_settle(struct cg_iopub *io)
{
        uint64_t since = uv_now(io->z.zl->loop) - io->flushed_ms;

        if (!io->has_pending || io->timer_on)
                return;
        io->timer_on = uv_timer_start(&io->timer, on_gather_timer,
                                      since < GATHER_MS ? GATHER_MS - since : LINE_END_MS, 0) == 0;
        if (!io->timer_on)
                cg_iopub_flush(io);
}

/* ------------------------------------------------------------------ subscriptions */

/*
 * The option acts on the subscriber whose message was read last, and silently on none once libzmq
 * has noticed the end of any subscriber, which may happen in every send. So all topics of a
 * subscriber are set before anything is sent.
 */
static void welcome(struct cg_iopub *io, const char *topic, size_t topic_len, const char *subscription,
                    size_t len)
{
        cg_auto_buf struct cg_buf content = { .max = MAX_TOPIC * 8 };
        struct cg_jout out = { .type = "iopub_welcome" };

        cg_buf_adds(&content, "{\"subscription\":");
        cg_json_quote_utf8(&content, subscription, len);
        cg_buf_adds(&content, "}");
        if (content.failed)
                return;
        out.content = cg_buf_slice(&content);
        send_out(io, NULL, &out, (struct cg_slice){ topic, topic_len });
}

static void on_readable(struct cg_zsock *z)
{
        struct cg_iopub *io = z->data;
        bool is_text = true, add;
        const char *p;
        zmq_msg_t m;
        size_t len;
        int option;

        cg_iopub_flush(io); /* what came before a new subscriber is not for it */
        zmq_msg_init(&m);
        if (zmq_msg_recv(&m, io->sock, ZMQ_DONTWAIT) < 0)
                goto out;
        p = zmq_msg_data(&m);
        len = zmq_msg_size(&m);
        if (!len || (p[0] != 0 && p[0] != 1) || len - 1 > MAX_TOPIC)
                goto out;
        add = *p++ == 1;
        option = add ? ZMQ_SUBSCRIBE : ZMQ_UNSUBSCRIBE;
        len--;
        if (len) {
                zmq_setsockopt(io->sock, option, p, len);
                for (size_t i = 0; i < len; i++)
                        is_text = is_text && p[i] >= 0x20 && p[i] < 0x7f;
                if (add && is_text)
                        welcome(io, p, len, p, len);
        } else {
                /*
                 * Clients subscribe to everything. Such a client gets the prefixes of our topics,
                 * and first its welcome under a topic of its own (which begins with a NUL), so that
                 * other clients do not get it again. No message reaches it before that.
                 */
                for (size_t i = 0; i < CG_ARRAY_LEN(families); i++)
                        zmq_setsockopt(io->sock, option, families[i], strlen(families[i]));
                if (add) {
                        char topic[24] = "";
                        int n = snprintf(topic + 1, sizeof(topic) - 1, "w%016" PRIx64, ++io->welcomed) + 1;

                        zmq_setsockopt(io->sock, ZMQ_SUBSCRIBE, topic, (size_t)n);
                        welcome(io, topic, (size_t)n, "", 0);
                        zmq_setsockopt(io->sock, ZMQ_UNSUBSCRIBE, topic, (size_t)n);
                }
        }
        if (add && !io->joined) {
                io->joined = true;
                if (io->on_joined)
                        io->on_joined(io->data);
        }
out:
        zmq_msg_close(&m);
}

/* ------------------------------------------------------------------ start and end */

void *cg_socket_new(void *ctx, int type, int mode, int64_t max, struct cg_err *err)
{
        void *sock = zmq_socket(ctx, type);
        int zero = 0, one = 1;

        /*
         * No high-water mark: at it libzmq drops without a word, and what it drops may be a reply,
         * or the `idle` that ends a cell.
         */
        if (sock && zmq_setsockopt(sock, ZMQ_SNDHWM, &zero, sizeof(zero)) == 0 &&
            zmq_setsockopt(sock, mode, &one, sizeof(one)) == 0 &&
            zmq_setsockopt(sock, ZMQ_MAXMSGSIZE, &max, sizeof(max)) == 0)
                return sock;
        cg_fail(err, CG_E_SYS, "socket: %s", zmq_strerror(zmq_errno()));
        if (sock)
                zmq_close(sock);
        return NULL;
}

int cg_iopub_init(struct cg_iopub *io, void *sock, struct cg_zloop *zl, const struct cg_jsign *sign,
                  struct cg_jidentity *me, const struct cg_log *log, struct cg_err *err)
{
        *io = (struct cg_iopub){ .sock = sock, .sign = sign, .me = me, .log = log };
        cg_buf_init(&io->pending, SIZE_MAX / 2);
        if (uv_timer_init(zl->loop, &io->timer) < 0)
                return cg_fail(err, CG_E_SYS, "event loop");
        io->timer.data = io;
        return cg_zsock_init(&io->z, zl, sock, on_readable, io, err);
}

void cg_iopub_close(struct cg_iopub *io)
{
        if (!io->sock)
                return;
        cg_iopub_flush(io);
        cg_buf_fini(&io->pending);
        uv_close((uv_handle_t *)&io->timer, NULL);
        cg_zsock_close(&io->z);
        io->sock = NULL;
}
