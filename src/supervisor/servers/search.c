/* cellgate-supervisor: runs cellgate-search beside the event loop. */
#include "supervisor/servers/search.h"

#include <sys/mman.h>
#include "base/fd.h"
#include "base/installed.h"
#include "base/json.h"
#include "config.h"

#define ANSWER_MAX ((size_t)256 << 20)

static void on_part_closed(struct search_run *run)
{
        if (--run->open)
                return;
        cg_buf_fini(&run->answer);
        run->on_closed(run);
}

static void on_deadline_closed(uv_handle_t *h)
{
        on_part_closed(h->data);
}

static void on_output_closed(struct watch *w)
{
        on_part_closed(w->data);
}

/* Both at once: at the supervisor's end all handles that are not closing are closed. */
void cg_sup_search_close(struct search_run *run)
{
        cg_proc_end(&run->proc, false, 0);
        run->open = 2;
        cg_sup_watch_close(&run->output, on_output_closed);
        uv_close((uv_handle_t *)&run->deadline, on_deadline_closed);
}

static void answer(struct search_run *run, bool whole)
{
        cg_auto_json json_t *o = whole && cg_buf_end(&run->answer, NULL) == 0
                                         ? json_loadb(run->answer.data ?: "", run->answer.len, 0, NULL)
                                         : NULL;

        run->on_answer(run, o);
}

static void on_output(struct watch *w)
{
        struct search_run *run = w->data;
        char buf[65536];
        ssize_t n;

        while ((n = read(w->fd, buf, sizeof(buf))) > 0)
                cg_buf_add(&run->answer, buf, (size_t)n);
        if (n == 0)
                answer(run, true);
}

static void on_deadline(uv_timer_t *t)
{
        answer(t->data, false);
}

int cg_sup_search_start(struct sup *s, struct search_run *run, const json_t *request, int64_t timeout_ms,
                        struct cg_err *err)
{
        static const char what[] = "search for files of MCP servers";
        const char *argv[] = { "cellgate-search", NULL };
        struct cg_proc_fd fds[] = { { -1, 0 }, { -1, 1 }, { s->log.fd, 2 } };
        struct cg_proc_spec spec = CG_PROC_SPEC(CG_INSTALLED(CG_LIBEXECDIR "/cellgate-search"), argv, NULL,
                                                fds, .die_with_parent = true);
        cg_auto_fd int in = -1, ours = -1, theirs = -1;
        cg_auto_free char *text = NULL;
        size_t len;
        int pair[2];

        text = cg_json_text(request, &len);
        if (!text)
                return cg_fail(err, CG_E_NOMEM, what);
        /* A file, so that the loop does not wait for a reader. */
        in = memfd_create("request", MFD_CLOEXEC);
        if (in < 0 || cg_write_all(in, text, len, err) < 0 || lseek(in, 0, SEEK_SET) < 0 ||
            pipe2(pair, O_CLOEXEC) < 0)
                return cg_fail_errno(err, what);
        fds[0].fd = in;
        ours = pair[0];
        fds[1].fd = theirs = pair[1];
        if (fcntl(ours, F_SETFL, O_NONBLOCK) < 0)
                return cg_fail_errno(err, what);
        if (cg_proc_spawn(&spec, &run->proc, err) < 0)
                return -1;
        if (cg_sup_watch_start(s, &run->output, cg_steal_fd(&ours), on_output, run, err) < 0) {
                cg_proc_end(&run->proc, false, 0);
                return -1;
        }
        cg_buf_init(&run->answer, ANSWER_MAX);
        uv_timer_init(&s->loop, &run->deadline);
        run->deadline.data = run;
        cg_sup_timer_start(&run->deadline, on_deadline, (uint64_t)timeout_ms);
        return 0;
}
