/*
 * cellgate-supervisor: removes folders. A hostile program can leave a million files, whose removal
 * must not delay other sessions: a thread of the loop's pool does it. The folders' names contain
 * numbers that are never used again, so new names are always free.
 */
#include "supervisor/core/remove.h"

#include "base/fd.h"
#include "base/log.h"
#include "supervisor/core/sup.h"

/*
 * Folders beyond this limit are removed with the supervisor's own folder. Filling a folder takes
 * longer than removing it.
 */
#define MAX_WAITING CG_MAX_SESSIONS

struct removal {
        uv_work_t work;
        struct sup *sup;
        struct cg_err err;
        char path[];
};

/* Runs in a thread of the pool. */
static void on_work(uv_work_t *w)
{
        struct removal *r = w->data;

        cg_remove_tree(r->path, &r->err);
}

static void on_done(uv_work_t *w, int status)
{
        struct removal *r = w->data;

        r->sup->unfinished.removals--;
        if (r->err.code < 0) /* most likely some process in it is still ending */
                cg_log(&r->sup->log, CG_LOG_INFO, "%s; it is removed with this supervisor's own folder",
                       r->err.msg);
        free(r);
}

void cg_sup_remove(struct sup *s, const char *path)
{
        size_t len = strlen(path) + 1;
        struct removal *r = NULL;

        if (access(path, F_OK) < 0)
                return;
        if (s->unfinished.removals < MAX_WAITING)
                r = calloc(1, sizeof(*r) + len);
        if (r) {
                r->sup = s;
                r->work.data = r;
                memcpy(r->path, path, len);
        }
        if (!r || uv_queue_work(&s->loop, &r->work, on_work, on_done) < 0) {
                cg_log(&s->log, CG_LOG_WARN,
                       "%s remains until this supervisor ends: too many folders wait to be removed", path);
                free(r);
                return;
        }
        s->unfinished.removals++;
}
