/*
 * Jupyter messages. The order of the checks is the point: what costs nothing comes first, the
 * signature before anything is parsed, and what is parsed has its limits. Runs in `cellgate
 * jupyter`.
 */
#include "jupyter/message.h"

#include <nettle/memops.h>
#include <stdatomic.h>
#include <time.h>
#include "base/json.h"
#include "base/text.h"

#define DELIMITER "<IDS|MSG>"
#define DIGEST    SHA256_DIGEST_SIZE
/* Frames below this are copied: cheaper than to keep their owner. */
#define COPY_BELOW 4096u

/* ------------------------------------------------------------------ repetition */

#define BUCKETS CG_JMSG_REPLAY
#define NONE    UINT32_MAX

/* The last digests in a ring, and chains by hash. Pages that no digest needed yet cost nothing. */
struct cg_jreplay {
        unsigned char digests[CG_JMSG_REPLAY][DIGEST];
        uint32_t next[CG_JMSG_REPLAY]; /* in the chain: one more than the index; 0 ends it */
        uint32_t heads[BUCKETS];
        uint64_t count;
};

/* A digest is as good as random already. */
static uint32_t *bucket(struct cg_jreplay *r, const unsigned char *digest)
{
        uint32_t h;

        memcpy(&h, digest, sizeof(h));
        return &r->heads[h % BUCKETS];
}

/* True if @digest is among the last ones; else it is added, and replaces the oldest. */
static bool is_repeated(struct cg_jreplay *r, const unsigned char *digest)
{
        uint32_t slot = (uint32_t)(r->count % CG_JMSG_REPLAY), *p;

        for (uint32_t i = *bucket(r, digest); i; i = r->next[i - 1])
                if (memeql_sec(r->digests[i - 1], digest, DIGEST))
                        return true;
        if (r->count >= CG_JMSG_REPLAY) {
                p = bucket(r, r->digests[slot]);
                while (*p && *p != slot + 1)
                        p = &r->next[*p - 1];
                if (*p)
                        *p = r->next[slot];
        }
        r->count++;
        memcpy(r->digests[slot], digest, DIGEST);
        p = bucket(r, digest);
        r->next[slot] = *p;
        *p = slot + 1;
        return false;
}

/* ------------------------------------------------------------------ signatures */

int cg_jsign_init(struct cg_jsign *s, const char *key, size_t len, struct cg_err *err)
{
        *s = (struct cg_jsign){ .on = len > 0 };
        if (!s->on)
                return 0;
        s->seen = calloc(1, sizeof(*s->seen));
        if (!s->seen)
                return cg_fail(err, CG_E_NOMEM, "signatures");
        /* The key is worked in once; each message goes on from a copy. */
        hmac_sha256_set_key(&s->keyed, len, (const unsigned char *)key);
        return 0;
}

void cg_jsign_fini(struct cg_jsign *s)
{
        free(s->seen);
        explicit_bzero(s, sizeof(*s));
}

static void digest(const struct cg_jsign *s, const struct cg_slice parts[4], unsigned char out[DIGEST])
{
        struct hmac_sha256_ctx st = s->keyed;

        for (int i = 0; i < 4; i++)
                hmac_sha256_update(&st, parts[i].len, (const unsigned char *)parts[i].p);
        hmac_sha256_digest(&st, DIGEST, out);
}

void cg_jsign_make(const struct cg_jsign *s, const struct cg_slice parts[4], char hex[CG_JSIGN_HEX + 1])
{
        unsigned char d[DIGEST];

        hex[0] = '\0';
        if (!s->on)
                return;
        digest(s, parts, d);
        cg_hex(hex, d, sizeof(d));
}

/* 0 when @signature is right and was not seen before; it is remembered then. CG_E_PROTO. */
static int sign_check(struct cg_jsign *s, struct cg_slice signature, const struct cg_slice parts[4],
                      struct cg_err *err)
{
        char hex[CG_JSIGN_HEX + 1];
        unsigned char d[DIGEST];

        if (!s->on)
                return 0;
        if (signature.len != CG_JSIGN_HEX)
                return cg_fail(err, CG_E_PROTO, "the signature has %zu bytes instead of %u", signature.len,
                               CG_JSIGN_HEX);
        digest(s, parts, d);
        cg_hex(hex, d, sizeof(d));
        if (!memeql_sec(hex, signature.p, CG_JSIGN_HEX))
                return cg_fail(err, CG_E_PROTO, "the signature is wrong: the sender has another key");
        if (is_repeated(s->seen, d))
                return cg_fail(err, CG_E_PROTO, "the message was sent before: replayed");
        return 0;
}

/* ------------------------------------------------------------------ parsing */

static void set_bad(struct cg_jparsed *m, const char *part, const struct cg_err *why)
{
        if (!m->bad[0])
                snprintf(m->bad, sizeof(m->bad), "%s: %.200s", part, why->msg);
}

static int parse_header(struct cg_jparsed *m, struct cg_err *err)
{
        const char *session;
        struct cg_err why;
        json_error_t e;
        int r;

        if (m->header.len > CG_JMSG_MAX_HEADER)
                return cg_fail(err, CG_E_LIMIT, "the header has more than %zu bytes", CG_JMSG_MAX_HEADER);
        /* jansson's own recursion is bounded by this check before it. */
        r = cg_json_check_object(m->header.p, m->header.len, CG_JSON_DEPTH, err);
        if (r < 0)
                return r;
        /* DECODE_INT_AS_REAL: a number too large for jansson must not make the message invalid. */
        m->fields = json_loadb(m->header.p, m->header.len, JSON_ALLOW_NUL | JSON_DECODE_INT_AS_REAL, &e);
        if (!m->fields)
                return cg_fail(err, CG_E_PARSE, "the header is not valid JSON: %s", e.text);
        r = cg_json_str(m->fields, "msg_type", "", &m->type, err);
        if (r < 0)
                return r;
        if (!m->type[0])
                return cg_fail(err, CG_E_PROTO, "the header has no msg_type");
        m->id = "";
        if (cg_json_str(m->fields, "msg_id", "", &m->id, &why) < 0 ||
            cg_json_str(m->fields, "session", "", &session, &why) < 0)
                set_bad(m, "header", &why);
        m->subshell = json_string_value(json_object_get(m->fields, "subshell_id"));
        return 0;
}

int cg_jmsg_parse(struct cg_jsign *s, const struct cg_slice *frames, size_t n, struct cg_jparsed *ret,
                  struct cg_err *err)
{
        struct cg_jparsed m = { 0 };
        const struct {
                const char *name;
                struct cg_slice *slice;
        } parts[] = {
                { "parent header", &m.parent },
                { "metadata", &m.metadata },
                { "content", &m.content },
        };
        struct cg_err why;
        size_t at = 0, sum = 0;
        int r;

        if (n > CG_JMSG_MAX_FRAMES)
                return cg_fail(err, CG_E_LIMIT, "the message has %zu frames, at most %d are possible", n,
                               CG_JMSG_MAX_FRAMES);
        while (at < n && at <= CG_JMSG_MAX_IDS && !cg_slice_is(frames[at], DELIMITER))
                at++;
        if (at == n || at > CG_JMSG_MAX_IDS)
                return cg_fail(err, CG_E_PROTO, "the message has no delimiter");
        if (n - at < 6)
                return cg_fail(err, CG_E_PROTO,
                               "the message has %zu frames after its delimiter, at least 5 are needed",
                               n - at - 1);
        if (n - at - 6 > CG_JMSG_MAX_BUFFERS)
                return cg_fail(err, CG_E_LIMIT, "the message has %zu buffers, at most %d are possible",
                               n - at - 6, CG_JMSG_MAX_BUFFERS);
        for (size_t i = 0; i < n; i++)
                if (!cg_size_add(sum, frames[i].len, &sum) || sum > CG_JMSG_MAX_BYTES)
                        return cg_fail(err, CG_E_LIMIT, "the message has more than %zu bytes",
                                       CG_JMSG_MAX_BYTES);
        r = sign_check(s, frames[at + 1], frames + at + 2, err);
        if (r < 0)
                return r;

        m.n_ids = at;
        m.header = frames[at + 2];
        m.first_buffer = at + 6;
        m.n_buffers = n - at - 6;
        r = parse_header(&m, err);
        if (r < 0) {
                json_decref(m.fields);
                return r;
        }
        for (size_t i = 0; i < CG_ARRAY_LEN(parts); i++) {
                *parts[i].slice = frames[at + 3 + i];
                if (cg_json_check_object(parts[i].slice->p, parts[i].slice->len, CG_JSON_DEPTH, &why) < 0) {
                        set_bad(&m, parts[i].name, &why);
                        *parts[i].slice = CG_SLICE("{}");
                }
        }
        *ret = m;
        return 0;
}

void cg_jparsed_fini(struct cg_jparsed *m)
{
        json_decref(m->fields);
        *m = (struct cg_jparsed){ 0 };
}

/* ------------------------------------------------------------------ receiving */

/*
 * Takes all frames of one message from the socket; those beyond the limits are dropped at once. The
 * first is a ROUTER's name for the connection, which came over no wire.
 */
static int take_frames(void *sock, struct cg_jmsg *m, struct cg_peers *peers, struct cg_peer **peer,
                       struct cg_err *err)
{
        int more = 1, flags = ZMQ_DONTWAIT, r = 0;

        while (more) {
                zmq_msg_t f;

                zmq_msg_init(&f);
                if (zmq_msg_recv(&f, sock, flags) < 0) {
                        zmq_msg_close(&f);
                        if (errno == EAGAIN && m->n_frames == 0)
                                return CG_TIMEOUT;
                        return cg_fail_errno(err, "receiving");
                }
                if (peers && !flags)
                        *peer = cg_peers_count_frame(peers, &f, *peer);
                flags = 0; /* the rest of a message is there already */
                more = zmq_msg_more(&f);
                m->bytes += zmq_msg_size(&f);
                if (m->n_frames < CG_JMSG_MAX_FRAMES && m->bytes <= CG_JMSG_MAX_BYTES) {
                        zmq_msg_init(&m->frames[m->n_frames]);
                        zmq_msg_move(&m->frames[m->n_frames++], &f);
                } else {
                        r = cg_fail(err, CG_E_LIMIT, "the message has more than %d frames or %zu bytes",
                                    CG_JMSG_MAX_FRAMES, CG_JMSG_MAX_BYTES);
                }
                zmq_msg_close(&f);
        }
        return r;
}

struct cg_slice cg_jmsg_frame(const struct cg_jmsg *m, size_t i)
{
        zmq_msg_t *f = &m->frames[i];

        return (struct cg_slice){ zmq_msg_data(f), zmq_msg_size(f) };
}

/* Moves @n frames into @m, which keeps no more room than the message has frames. */
static int keep_frames(struct cg_jmsg *m, zmq_msg_t *frames, size_t n, struct cg_err *err)
{
        m->frames = malloc(n * sizeof(*m->frames));
        if (!m->frames)
                return cg_fail(err, CG_E_NOMEM, "message");
        for (; m->n_frames < n; m->n_frames++) {
                zmq_msg_init(&m->frames[m->n_frames]);
                zmq_msg_move(&m->frames[m->n_frames], &frames[m->n_frames]);
        }
        return 0;
}

CG_FREEP(jmsg_freep, struct cg_jmsg *, cg_jmsg_free)

int cg_jmsg_recv(void *sock, struct cg_jsign *s, struct cg_peers *peers, struct cg_jmsg **ret,
                 struct cg_err *err)
{
        struct cg_slice slices[CG_JMSG_MAX_FRAMES];
        zmq_msg_t frames[CG_JMSG_MAX_FRAMES];
        CG_CLEANUP(jmsg_freep) struct cg_jmsg *m = calloc(1, sizeof(*m));
        struct cg_err none = { 0 };
        struct cg_peer *peer = NULL;
        size_t n;
        int r;

        err = err ?: &none;
        if (!m)
                return cg_fail(err, CG_E_NOMEM, "message");
        m->frames = frames;
        r = take_frames(sock, m, peers, &peer, err);
        n = m->n_frames;
        m->n_frames = 0;
        m->frames = NULL;
        if (r == 0)
                r = keep_frames(m, frames, n, err);
        for (size_t i = 0; i < n; i++)
                zmq_msg_close(&frames[i]);
        if (r != 0)
                return r;
        for (size_t i = 0; i < n; i++)
                slices[i] = cg_jmsg_frame(m, i);
        r = cg_jmsg_parse(s, slices, n, &m->m, err);
        if (r < 0)
                return r;
        if (peer)
                peer->proven = true;
        *ret = CG_STEAL(m);
        return 0;
}

struct cg_jmsg *cg_jmsg_free(struct cg_jmsg *m)
{
        if (!m)
                return NULL;
        cg_jparsed_fini(&m->m);
        for (size_t i = 0; i < m->n_frames; i++)
                zmq_msg_close(&m->frames[i]);
        free(m->frames);
        free(m);
        return NULL;
}

/* ------------------------------------------------------------------ our identity */

int cg_jidentity_init(struct cg_jidentity *id, struct cg_err *err)
{
        /* Not getpwuid(): it would load half a dozen libraries for an unimportant field. */
        const char *name = getenv("USER");

        if (!name || !*name || strlen(name) >= 64 ||
            strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-") != strlen(name))
                name = "user";
        *id = (struct cg_jidentity){ .date_s = -1 };
        if (cg_random_hex(id->session, 16, err) < 0)
                return -1;
        snprintf(id->id_prefix, sizeof(id->id_prefix), "%s_%u_", id->session, (unsigned)getpid());
        snprintf(id->middle, sizeof(id->middle), "\",\"username\":\"%s\",\"session\":\"%s\",\"date\":\"",
                 name, id->session);
        return 0;
}

static char *put(char *p, const char *end, const char *s)
{
        size_t n = CG_MIN(strlen(s), (size_t)(end - p));

        memcpy(p, s, n);
        return p + n;
}

void cg_jidentity_date(struct cg_jidentity *id, char *buf, size_t size)
{
        char fraction[] = ".000000Z";
        struct timespec now;
        struct tm tm;
        unsigned micro;

        clock_gettime(CLOCK_REALTIME, &now);
        if (now.tv_sec != id->date_s) {
                time_t t = now.tv_sec;

                gmtime_r(&t, &tm);
                strftime(id->date, sizeof(id->date), "%Y-%m-%dT%H:%M:%S", &tm);
                id->date_s = now.tv_sec;
        }
        micro = (unsigned)(now.tv_nsec / 1000);
        for (size_t i = 6; i > 0; i--, micro /= 10)
                fraction[i] = (char)('0' + micro % 10);
        *put(put(buf, buf + size - 1, id->date), buf + size - 1, fraction) = '\0';
}

/* ------------------------------------------------------------------ sending */

/* Frames that are sent without copying share one owner. */
struct shared {
        atomic_uint frames;
        void (*release)(void *owner);
        void *owner;
};

static void shared_unref(struct shared *s)
{
        if (!s || atomic_fetch_sub(&s->frames, 1) > 1)
                return;
        s->release(s->owner);
        free(s);
}

static void frame_done(void *data, void *hint)
{
        shared_unref(hint);
}

static int send_frame(void *sock, struct cg_slice f, bool more, struct shared *shared, struct cg_err *err)
{
        int flags = ZMQ_DONTWAIT | (more ? ZMQ_SNDMORE : 0);
        zmq_msg_t m;

        if (!shared || f.len < COPY_BELOW) {
                if (zmq_send(sock, f.p ?: "", f.len, flags) < 0)
                        return cg_fail_errno(err, "sending");
                return 0;
        }
        atomic_fetch_add(&shared->frames, 1);
        if (zmq_msg_init_data(&m, (void *)(uintptr_t)f.p, f.len, frame_done, shared) < 0) {
                shared_unref(shared);
                return cg_fail(err, CG_E_NOMEM, "message");
        }
        if (zmq_msg_send(&m, sock, flags) < 0) {
                cg_fail_errno(err, "sending");
                zmq_msg_close(&m);
                return CG_E_SYS;
        }
        return 0;
}

static int send_frames(void *sock, const struct cg_jout *out, const struct cg_slice parts[4],
                       const char *signature, struct shared *shared, struct cg_err *err)
{
        int r;

        for (size_t i = 0; i < out->n_ids; i++) {
                r = send_frame(sock, out->ids[i], true, NULL, err);
                if (r < 0)
                        return r;
        }
        r = send_frame(sock, CG_SLICE(DELIMITER), true, NULL, err);
        if (r < 0)
                return r;
        r = send_frame(sock, cg_slice_of(signature), true, NULL, err);
        for (size_t i = 0; i < 4 && r >= 0; i++)
                r = send_frame(sock, parts[i], i < 3 || out->n_buffers, i == 3 ? shared : NULL, err);
        for (size_t i = 0; i < out->n_buffers && r >= 0; i++)
                r = send_frame(sock, out->buffers[i], i + 1 < out->n_buffers, shared, err);
        return r;
}

static struct cg_slice or_empty(struct cg_slice object)
{
        return object.len ? object : CG_SLICE("{}");
}

int cg_jmsg_send(void *sock, const struct cg_jsign *s, struct cg_jidentity *id, const struct cg_jout *out,
                 char *msg_id, struct cg_err *err)
{
        char header[512], mid[CG_JMSG_ID], hex[CG_JSIGN_HEX + 1], date[40];
        char digits[24], *d = digits + sizeof(digits) - 1, *p = header;
        const char *end = header + sizeof(header);
        struct shared *shared = out->release ? malloc(sizeof(*shared)) : NULL;
        struct cg_slice parts[4];
        int r;

        if (shared) { /* else everything is copied */
                *shared = (struct shared){ .release = out->release, .owner = out->owner };
                atomic_init(&shared->frames, 1);
        }
        /* Six headers are made for each cell, so this does not go through printf. */
        *d = '\0';
        for (uint64_t n = ++id->count; n; n /= 10)
                *--d = (char)('0' + n % 10);
        *put(put(mid, mid + CG_JMSG_ID - 1, id->id_prefix), mid + CG_JMSG_ID - 1, d) = '\0';
        cg_jidentity_date(id, date, sizeof(date));
        p = put(p, end, "{\"msg_id\":\"");
        p = put(p, end, mid);
        p = put(p, end, "\",\"msg_type\":\"");
        p = put(p, end, out->type);
        p = put(p, end, id->middle);
        p = put(p, end, date);
        p = put(p, end, "\",\"version\":\"" CG_JUPYTER_PROTOCOL "\"}");
        parts[0] = (struct cg_slice){ header, (size_t)(p - header) };
        parts[1] = or_empty(out->parent);
        parts[2] = or_empty(out->metadata);
        parts[3] = or_empty(out->content);
        cg_jsign_make(s, parts, hex);
        if (p == end)
                r = cg_fail(err, CG_E_LIMIT, "message type \"%.60s\" is too long", out->type);
        else
                r = send_frames(sock, out, parts, hex, shared, err);
        if (shared)
                shared_unref(shared);
        else if (out->release)
                out->release(out->owner);
        if (msg_id)
                memcpy(msg_id, mid, sizeof(mid));
        return r;
}

/* ------------------------------------------------------------------ JSON text */

void cg_json_escape_utf8(struct cg_buf *b, const char *s, size_t len)
{
        static const char plain[] = "\n\r\t\"\\", letters[] = "nrt\"\\";

        for (size_t i = 0, n; i < len; i += n) {
                const char *found;

                for (n = cg_json_run(s + i, len - i); i + n < len && (unsigned char)s[i + n] >= 0x7f;)
                        n += 1 + cg_json_run(s + i + n + 1, len - i - n - 1);
                cg_buf_add(b, s + i, n);
                if (i + n == len)
                        return;
                found = memchr(plain, s[i + n], sizeof(plain) - 1);
                if (found)
                        cg_buf_add(b, (char[]){ '\\', letters[found - plain] }, 2);
                else
                        cg_buf_addf(b, "\\u%04x", (unsigned char)s[i + n]);
                n++;
        }
}

void cg_json_quote_utf8(struct cg_buf *b, const char *s, size_t len)
{
        cg_buf_add(b, "\"", 1);
        cg_json_escape_utf8(b, s, len);
        cg_buf_add(b, "\"", 1);
}
