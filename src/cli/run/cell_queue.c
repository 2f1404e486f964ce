/* Cells that the host of `cellgate run --json` has sent. Runs in the command `cellgate`. */
#include "cli/run/cell_queue.h"

#include "base/json.h"
#include "base/ceilings.h"

/* Ten years, as for --timeout. */
#define MAX_SECONDS 315360000.0

void cg_cell_queue_init(struct cg_cell_queue *q)
{
        *q = (struct cg_cell_queue){ .n = 0 };
        TAILQ_INIT(&q->cells);
}

void cg_cell_queue_fini(struct cg_cell_queue *q)
{
        while (!TAILQ_EMPTY(&q->cells))
                cg_queued_cell_free(cg_cell_queue_take(q, NULL));
}

struct cg_queued_cell *cg_queued_cell_free(struct cg_queued_cell *c)
{
        if (!c)
                return NULL;
        free(c->cell.code);
        free(c->id);
        free(c);
        return NULL;
}

char *cg_cell_id(const json_t *id)
{
        cg_auto_buf struct cg_buf b = { .max = CG_CELL_ID_MAX * 8 };

        if (json_is_integer(id))
                cg_buf_addf(&b, "%" JSON_INTEGER_FORMAT, json_integer_value(id));
        else if (json_is_string(id) && json_string_length(id) <= CG_CELL_ID_MAX)
                cg_json_quote(&b, json_string_value(id), json_string_length(id));
        else
                return NULL;
        return cg_buf_steal(&b, NULL);
}

int cg_cell_timeout(const json_t *v, int64_t *ret_ms, struct cg_err *err)
{
        double seconds = json_number_value(v);

        if (!v)
                return 0;
        if (!json_is_number(v) || !(seconds >= 0) || seconds > MAX_SECONDS)
                return cg_fail(err, CG_E_INVAL, "\"timeout\" must be a number of seconds, 0 for no limit");
        *ret_ms = (int64_t)(seconds * 1000.0);
        if (seconds > 0 && *ret_ms == 0)
                *ret_ms = 1; /* 0 would mean no limit */
        return 0;
}

static int read_cell(struct cg_queued_cell *c, const json_t *o, struct cg_err *err)
{
        int stop = 0, variables = 0, artifacts = 0;
        json_t *id = NULL, *timeout = NULL;
        const char *code;

        if (json_unpack(cg_json_unconst(o), "{s:s%, s?o, s?o, s?b, s?b, s?b !}", "code", &code, &c->cell.len,
                        "id", &id, "timeout", &timeout, "stop_on_error", &stop, "variables", &variables,
                        "artifacts", &artifacts) < 0)
                return cg_fail(
                        err, CG_E_INVAL,
                        "a cell is {\"execute\": {\"code\": TEXT}} and, if wanted, \"id\": TEXT or NUMBER, "
                        "\"timeout\": SECONDS, \"stop_on_error\": true or false, \"variables\": true or false, "
                        "\"artifacts\": true or false");
        if (c->cell.len > CG_MAX_CODE)
                return cg_fail(err, CG_E_LIMIT, "a cell of %zu bytes is over the limit of %u", c->cell.len,
                               CG_MAX_CODE);
        if (id && !(c->id = cg_cell_id(id)))
                return cg_fail(err, CG_E_INVAL, "\"id\" must be an integer, or a string of at most %u bytes",
                               CG_CELL_ID_MAX);
        c->cell.timeout_ms = -1;
        if (cg_cell_timeout(timeout, &c->cell.timeout_ms, err) < 0)
                return -1;
        c->stop_on_error = stop;
        c->cell.variables = variables;
        c->cell.artifacts = artifacts;
        c->cell.code = malloc(c->cell.len + 1);
        if (!c->cell.code)
                return cg_fail(err, CG_E_NOMEM, "cell");
        memcpy(c->cell.code, code, c->cell.len + 1);
        return 0;
}

int cg_cell_queue_add(struct cg_cell_queue *q, const json_t *o, uint64_t line, struct cg_err *err)
{
        struct cg_queued_cell *c;

        if (q->n >= CG_CELL_QUEUE_MAX || q->bytes >= CG_CELL_QUEUE_BYTES)
                return cg_fail(err, CG_E_LIMIT,
                               "the queue is full: %zu cells of %zu bytes wait; send the cell again "
                               "after a result",
                               q->n, q->bytes);
        c = calloc(1, sizeof(*c));
        if (!c)
                return cg_fail(err, CG_E_NOMEM, "cell");
        c->line = line;
        if (read_cell(c, o, err) < 0) {
                cg_queued_cell_free(c);
                return -1;
        }
        TAILQ_INSERT_TAIL(&q->cells, c, entry);
        q->n++;
        q->bytes += c->cell.len;
        return 0;
}

struct cg_queued_cell *cg_cell_queue_take(struct cg_cell_queue *q, const char *id)
{
        struct cg_queued_cell *c = TAILQ_FIRST(&q->cells);

        while (c && id && !(c->id && strcmp(c->id, id) == 0))
                c = TAILQ_NEXT(c, entry);
        if (!c)
                return NULL;
        TAILQ_REMOVE(&q->cells, c, entry);
        q->n--;
        q->bytes -= c->cell.len;
        return c;
}
