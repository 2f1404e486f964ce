/* Server-sent events. Linked into the tool server and the command line. */
#include "mcp/http/sse.h"

#include "mcp/ceilings.h"

enum { NAME, BLANK, VALUE }; /* at: in the field's name, behind its colon, in its value */
enum { UNKNOWN, DATA, EVENT, ID, RETRY };

void cg_sse_init(struct cg_sse *s, size_t max)
{
        *s = (struct cg_sse){ .max = max, .retry_ms = -1 };
        cg_buf_init(&s->data, max + 1);
        cg_buf_init(&s->id, CG_SSE_MAX_ID);
        cg_buf_init(&s->next_id, CG_SSE_MAX_ID);
        cg_buf_init(&s->line_id, CG_SSE_MAX_ID);
}

void cg_sse_fini(struct cg_sse *s)
{
        cg_buf_fini(&s->data);
        cg_buf_fini(&s->id);
        cg_buf_fini(&s->next_id);
        cg_buf_fini(&s->line_id);
}

/* The memory of an event that is over. */
static void drop_data(struct cg_sse *s)
{
        size_t max = s->data.max;

        cg_buf_fini(&s->data);
        cg_buf_init(&s->data, max);
}

void cg_sse_shrink(struct cg_sse *s)
{
        if (!s->data.len && s->data.cap > CG_SSE_KEPT)
                drop_data(s);
}

const char *cg_sse_last_id(const struct cg_sse *s)
{
        return s->id.len ? s->id.data : NULL;
}

/* The name is complete: a field without a colon has an empty value. */
static void begin_value(struct cg_sse *s)
{
        static const struct {
                const char *name;
                unsigned field;
        } fields[] = { { "data", DATA }, { "event", EVENT }, { "id", ID }, { "retry", RETRY } };

        s->field = UNKNOWN;
        s->name[CG_MIN(s->name_len, CG_SSE_MAX_NAME)] = '\0';
        for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++)
                if (s->name_len <= CG_SSE_MAX_NAME && strcmp(s->name, fields[i].name) == 0)
                        s->field = fields[i].field;
        switch (s->field) {
        case DATA:
                s->has_data = true;
                break;
        case EVENT:
                s->type_len = 0;
                break;
        case ID:
                s->line_id.len = 0;
                s->id_bad = false;
                break;
        case RETRY:
                s->retry = -1;
                break;
        default:
                break;
        }
}

/* Bytes of a value, without line ends. */
static void add_value(struct cg_sse *s, const char *p, size_t len)
{
        switch (s->field) {
        case DATA:
                if (!s->too_long && cg_buf_try_add(&s->data, p, len, NULL) < 0) {
                        s->too_long = true;
                        drop_data(s);
                }
                break;
        case EVENT:
                for (size_t i = 0; i < len; i++, s->type_len++)
                        if (s->type_len < CG_SSE_MAX_NAME)
                                s->type[s->type_len] = p[i];
                break;
        case ID:
                s->id_bad |= memchr(p, '\0', len) || cg_buf_try_add(&s->line_id, p, len, NULL) < 0;
                break;
        case RETRY:
                for (size_t i = 0; i < len && s->retry != -2; i++) {
                        if (p[i] < '0' || p[i] > '9')
                                s->retry = -2; /* not a number: ignored */
                        else if (s->retry < CG_SSE_MAX_RETRY_MS)
                                s->retry = CG_MAX(s->retry, 0) * 10 + (p[i] - '0');
                }
                break;
        default:
                break;
        }
}

static void set_id(struct cg_buf *to, const struct cg_buf *from)
{
        to->len = 0;
        if (from->len)
                cg_buf_try_add(to, from->data, from->len, NULL); /* out of memory: none */
}

static void end_field(struct cg_sse *s)
{
        switch (s->field) {
        case DATA:
                s->too_long = s->too_long || cg_buf_try_add(&s->data, "\n", 1, NULL) < 0;
                break;
        case ID: /* it counts from the event's end on; one with a NUL does not */
                if (!s->id_bad)
                        set_id(&s->next_id, &s->line_id);
                break;
        case RETRY:
                if (s->retry >= 0)
                        s->retry_ms = CG_MIN(s->retry, CG_SSE_MAX_RETRY_MS);
                break;
        default:
                break;
        }
}

void cg_sse_restart(struct cg_sse *s)
{
        struct cg_sse old = *s;

        cg_sse_init(s, old.max);
        s->retry_ms = old.retry_ms;
        s->id = old.id;
        cg_buf_init(&old.id, 0);
        set_id(&s->next_id, &s->id);
        cg_sse_fini(&old);
}

/* A blank line. 1: *ret is an event. */
static int end_event(struct cg_sse *s, struct cg_sse_event *ret, struct cg_err *err)
{
        size_t type_len = s->type_len;
        bool too_long = s->too_long, has_data = s->has_data;

        set_id(&s->id, &s->next_id);
        s->type_len = 0;
        s->has_data = s->too_long = false;
        if (too_long) {
                s->data.len = 0;
                return cg_fail(err, CG_E_LIMIT, "event of more than %zu bytes", s->max);
        }
        /* An event whose only line of data is empty is none either; it only sets the id. */
        if (!has_data || s->data.len <= 1) {
                s->data.len = 0;
                return 0;
        }
        s->data.len--;
        s->data.data[s->data.len] = '\0';
        s->type[CG_MIN(type_len, CG_SSE_MAX_NAME)] = '\0';
        *ret = (struct cg_sse_event){ .type = type_len ? s->type : "message",
                                      .data = s->data.data,
                                      .len = s->data.len };
        s->data.len = 0; /* the bytes stay until the next call */
        return 1;
}

/* How many bytes at the start of @p are before a line end. */
static size_t before_line_end(const char *p, size_t len)
{
        const char *lf = memchr(p, '\n', len), *cr = memchr(p, '\r', lf ? (size_t)(lf - p) : len);

        if (cr)
                return (size_t)(cr - p);
        return lf ? (size_t)(lf - p) : len;
}

int cg_sse_read(struct cg_sse *s, const char *p, size_t len, size_t *used, struct cg_sse_event *ret,
                struct cg_err *err)
{
        static const char bom[] = "\xef\xbb\xbf";
        size_t i = 0;

        while (i < len) {
                char c = p[i];

                if (s->bom < 3) {
                        if (c == bom[s->bom]) {
                                s->bom++;
                                i++;
                                continue;
                        }
                        /* The start of a mark alone: the start of an unknown name. */
                        s->name_len = s->bom ? CG_SSE_MAX_NAME + 1 : 0;
                        s->bom = 3;
                }
                if (c == '\n' && s->after_cr) {
                        s->after_cr = false;
                        i++;
                        continue;
                }
                s->after_cr = false;
                if (c == '\n' || c == '\r') {
                        bool blank = s->at == NAME && s->name_len == 0;
                        int r = 0;

                        s->after_cr = c == '\r';
                        i++;
                        if (blank) {
                                r = end_event(s, ret, err);
                        } else {
                                if (s->at == NAME)
                                        begin_value(s);
                                end_field(s);
                        }
                        s->at = NAME;
                        s->name_len = 0;
                        if (r) {
                                *used = i;
                                return r;
                        }
                } else if (s->at == NAME && c == ':') {
                        if (s->name_len == 0) { /* a comment */
                                s->field = UNKNOWN;
                                s->at = VALUE;
                        } else {
                                begin_value(s);
                                s->at = BLANK;
                        }
                        i++;
                } else if (s->at == NAME) {
                        if (s->name_len < CG_SSE_MAX_NAME)
                                s->name[s->name_len] = c;
                        if (s->name_len <= CG_SSE_MAX_NAME)
                                s->name_len++;
                        i++;
                } else if (s->at == BLANK && c == ' ') {
                        s->at = VALUE;
                        i++;
                } else {
                        size_t n = before_line_end(p + i, len - i);

                        s->at = VALUE;
                        add_value(s, p + i, n);
                        i += n;
                }
        }
        *used = i;
        return 0;
}
