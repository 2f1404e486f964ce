/*
 * cellgate-supervisor: files that a cell made or changed, for the member "artifacts" of its RESULT.
 * A process of the sandbox finds them (inside/artifacts.h) between the cell's end and its RESULT,
 * by the time of each file's last change. So other programs' changes in this time count as well.
 */
#include "supervisor/cells/artifacts.h"

#include <time.h>
#include "base/buf.h"
#include "base/json.h"
#include "sandbox/inside/files.h"
#include "supervisor/cells/commands.h"
#include "supervisor/core/audit.h"
#include "supervisor/core/host_link.h"
#include "supervisor/core/state.h"

/* More than the search takes by itself: it may be stopped from inside. */
#define SEARCH_MS 5000
/* Other differences between two readings of two clocks come from the readings. */
#define CLOCK_STEP_NS 1000000

static int64_t clock_ns(clockid_t clock)
{
        struct timespec t;

        clock_gettime(clock, &t);
        return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static int64_t clock_difference(void)
{
        return clock_ns(CLOCK_REALTIME) - clock_ns(CLOCK_MONOTONIC);
}

void cg_sup_artifacts_begin(struct cell *c)
{
        c->since_ns = clock_ns(CLOCK_REALTIME_COARSE); /* that of file times, which is behind */
        c->clocks_ns = clock_difference();
}

void cg_sup_artifacts_search(struct session *ss, const struct cell *c,
                             void (*done)(void *data, const char *found, size_t len, const char *why),
                             void *data)
{
        int64_t back = c->clocks_ns - clock_difference();
        char texts[64] = "\0changed"; /* in the session's folder */
        int n = 1 + (int)sizeof("changed");

        /* The clock was set back: times since then may be before the cell's start. */
        n += 1 + snprintf(texts + n, sizeof(texts) - (size_t)n, "%lld",
                          (long long)(c->since_ns - (back > CLOCK_STEP_NS ? back : 0)));
        cg_sup_commands_own(ss, texts, (size_t)n, 2, CG_FILES_CHANGED_MAX, SEARCH_MS, done, data);
}

static void add_signed(struct session *ss, const struct cell *c, json_t *found, struct cg_buf *b)
{
        cg_auto_free char *text = NULL;
        json_t *proof = NULL;
        struct cg_err why;

        if (cg_sup_audit_artifacts(ss, c->id, found, &proof, &why) == 0) {
                json_object_set_new(found, "signed", proof);
                cg_sup_bus_add(ss, CG_BUS_ARTIFACT_SIGNED, c->id, json_incref(proof), "%zu files of the cell",
                               json_array_size(json_object_get(found, "files")));
        } else {
                json_object_set_new(found, "unsigned", cg_sup_text_json(why.msg));
        }
        text = cg_json_text(found, NULL);
        cg_buf_fail(b, text ? 0 : CG_E_NOMEM);
        cg_buf_adds(b, text ?: "");
}

void cg_sup_artifacts_add(struct session *ss, const struct cell *c, struct cg_buf *b, const char *found,
                          size_t len, const char *why)
{
        cg_auto_json json_t *o = NULL;

        /* The process was not the cell's, but in its sandbox. */
        if (!why && cg_json_object(found, len, "artifacts", &o, NULL) < 0)
                why = "the search gave no valid answer";
        if (!why && cg_sup_audit_signs(ss) && json_array_size(json_object_get(o, "files"))) {
                add_signed(ss, c, o, b);
                return;
        }
        if (!why) {
                cg_buf_add(b, found, len);
                return;
        }
        cg_buf_adds(b, "{\"files\":[],\"truncated\":");
        cg_json_quote(b, why, strlen(why));
        cg_buf_adds(b, "}");
}
