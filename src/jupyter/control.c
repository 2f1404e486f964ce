/*
 * What needs no kernel: kernel_info, connect, interrupt, shutdown; and the control channel, which
 * is served whatever a cell does. Runs in `cellgate jupyter`.
 */
#include "jupyter/internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include "base/json.h"
#include "base/util.h"

/* A client's header, which is handed to the kernel with each cell. */
#define MAX_HEADER 4096u

/* ------------------------------------------------------------------ kernel_info */

static json_t *help_links(void)
{
        static const char *const links[][2] = {
                { "Python Reference", "https://docs.python.org/3" },
                { "IPython Reference", "https://ipython.org/documentation.html" },
                { "NumPy Reference", "https://docs.scipy.org/doc/numpy/reference/" },
                { "SciPy Reference", "https://docs.scipy.org/doc/scipy/reference/" },
                { "Matplotlib Reference", "https://matplotlib.org/contents.html" },
                { "pandas Reference", "https://pandas.pydata.org/pandas-docs/stable/" },
        };
        json_t *list = json_array();

        for (size_t i = 0; i < CG_ARRAY_LEN(links); i++)
                json_array_append_new(list, json_pack("{s:s, s:s}", "text", links[i][0], "url", links[i][1]));
        return list;
}

static json_t *language_info(const char *version)
{
        return json_pack("{s:s, s:s, s:s, s:{s:s, s:i}, s:s, s:s, s:s}", "name", "python", "version", version,
                         "mimetype", "text/x-python", "codemirror_mode", "name", "ipython", "version", 3,
                         "pygments_lexer", "ipython3", "nbconvert_exporter", "python", "file_extension",
                         ".py");
}

/* What the kernel said it can do. */
static json_t *features(bool debugger)
{
        json_t *list = json_pack("[s]", "kernel subshells");

        if (debugger)
                json_array_append_new(list, json_string("debugger"));
        return list;
}

static void make_banner(char *buf, size_t size, const json_t *info)
{
        const char *ipython = json_string_value(json_object_get(info, "ipython"));
        bool sandbox = json_is_true(json_object_get(info, "sandbox"));

        snprintf(buf, size, "cellgate %s -- Python %s, IPython %s, %s", cg_version(),
                 json_string_value(json_object_get(info, "python")) ?: "3", ipython ? ipython : "?",
                 sandbox ? "sandboxed" : "no sandbox");
}

static json_t *info_reply(const char *python, const char *implementation, const char *banner, bool debugger)
{
        return json_pack("{s:s, s:s, s:s, s:s, s:o, s:s, s:b, s:o, s:o}", "status", "ok", "protocol_version",
                         CG_JUPYTER_PROTOCOL, "implementation", "cellgate", "implementation_version",
                         implementation, "language_info", language_info(python), "banner", banner, "debugger",
                         debugger, "help_links", help_links(), "supported_features", features(debugger));
}

/* Once: what is asked so often, and while cells run, is only copied. */
int make_info(struct front *f, struct cg_err *err)
{
        const char *text = cg_session_info(f->session);
        cg_auto_json json_t *info = NULL, *reply = NULL;
        char banner[300], implementation[100];

        if (cg_json_object(text, strlen(text), "session's information", &info, err) < 0)
                return -1;
        make_banner(banner, sizeof(banner), info);
        /*
         * IPython's first: clients compare it with releases of ipykernel, which reports the same.
         */
        snprintf(implementation, sizeof(implementation), "%s+cellgate.%s",
                 json_string_value(json_object_get(info, "ipython")) ?: "0", cg_version());
        reply = info_reply(json_string_value(json_object_get(info, "python")) ?: "3", implementation, banner,
                           json_is_true(json_object_get(info, "debugger")));
        f->info = reply ? cg_json_text(reply, &f->info_len) : NULL;
        return f->info ? 0 : cg_fail(err, CG_E_NOMEM, "kernel_info");
}

int make_info_without_kernel(struct front *f, const char *why, struct cg_err *err)
{
        cg_auto_json json_t *reply = NULL;
        char banner[sizeof(f->opener_err.msg) + 100]; /* whole: half a character is no JSON */

        snprintf(banner, sizeof(banner), "cellgate %s -- the kernel could not be started: %s", cg_version(),
                 why);
        reply = info_reply("3", cg_version(), banner, false);
        f->info = reply ? cg_json_text(reply, &f->info_len) : NULL;
        return f->info ? 0 : cg_fail(err, CG_E_NOMEM, "kernel_info");
}

/*
 * With all that clients read without looking whether it is an error: else they would tell of that,
 * and not of the reason.
 */
char *failed_info(const char *ename, const char *evalue, size_t *len)
{
        cg_auto_json json_t *reply = info_reply("3", cg_version(), evalue, false), *error = NULL;

        error = json_pack("{s:s, s:s, s:s, s:[]}", "status", "error", "ename", ename, "evalue", evalue,
                          "traceback");
        if (!reply || !error || json_object_update(reply, error) < 0)
                return NULL;
        return cg_json_text(reply, len);
}

/* ------------------------------------------------------------------ the others */

static void answer_connect(struct front *f, struct jreq *r)
{
        char content[300];

        snprintf(
                content, sizeof(content),
                "{\"status\":\"ok\",\"shell_port\":%d,\"iopub_port\":%d,\"stdin_port\":%d,\"control_port\":%d,\"hb_port\":%d}",
                f->conn.ports[CG_JSHELL], f->conn.ports[CG_JIOPUB], f->conn.ports[CG_JSTDIN],
                f->conn.ports[CG_JCONTROL], f->conn.ports[CG_JHB]);
        jreq_reply(f, r, SPAN(content));
}

/* The number binds it to what runs now: when that has ended meanwhile, nothing else is hit. */
void interrupt(struct front *f)
{
        struct jreq *running[] = { f->main.running, f->control.running };

        for (size_t i = 0; f->state == READY && i < CG_ARRAY_LEN(running); i++)
                if (running[i] && running[i]->origin->number)
                        cg_session_cancel(f->session, running[i]->origin->number, NULL);
}

static void answer_shutdown(struct front *f, struct jreq *r)
{
        struct cg_jspan content = r->msg->m.content, restart;
        char text[64];
        bool again = cg_jspan_member(content, "restart", &restart, NULL) == 0 && restart.len == 4 &&
                     memcmp(restart.p, "true", 4) == 0;

        snprintf(text, sizeof(text), "{\"status\":\"ok\",\"restart\":%s}", again ? "true" : "false");
        jreq_reply(f, r, SPAN(text));
        cg_iopub_send(&f->iopub, r->origin, "shutdown_reply", SPAN(text));
        jreq_finish(f, r);
        f->restarting = again;
        front_end(f);
}

void answer_local(struct front *f, struct jreq *r)
{
        switch (r->spec->kind) {
        case KIND_INFO:
                jreq_reply(f, r, (struct cg_jspan){ f->info, f->info_len });
                break;
        case KIND_CONNECT:
                answer_connect(f, r);
                break;
        case KIND_INTERRUPT:
                interrupt(f);
                jreq_reply(f, r, CG_JSPAN("{\"status\":\"ok\"}"));
                break;
        case KIND_SHUTDOWN:
                answer_shutdown(f, r);
                return;
        default:
                break;
        }
        jreq_finish(f, r);
}

/* ------------------------------------------------------------------ the control channel */

static void wait_for_session(struct front *f, struct jreq *r)
{
        struct jreq **p = &f->early;

        while (*p)
                p = &(*p)->next;
        *p = r;
}

/* Libraries in the kernel ask for it: get_parent("control"). */
static void remember_header(struct front *f, struct cg_jspan header)
{
        char *p = header.len <= MAX_HEADER ? malloc(header.len + 1) : NULL;

        if (!p)
                return;
        memcpy(p, header.p, header.len);
        free((char *)(uintptr_t)f->control_header.p);
        f->control_header = (struct cg_jspan){ p, header.len };
}

static void handle(struct front *f, struct jreq *r)
{
        remember_header(f, r->msg->m.header);
        if (r->spec->kind == KIND_SIDE || r->spec->kind == KIND_EXECUTE) {
                control_enqueue(f, r);
                return;
        }
        jreq_begin(f, r);
        switch (r->spec->kind) {
        case KIND_RELAY:
                jreq_fail(f, r, "BadRequest", "this request belongs to the shell channel");
                jreq_finish(f, r);
                break;
        case KIND_COMM:
        case KIND_UNKNOWN:
                jreq_finish(f, r);
                break;
        default:
                answer_local(f, r);
        }
}

static bool too_early(const struct front *f, const struct jreq *r)
{
        return r->spec->kind == KIND_INFO && f->state < OPEN;
}

void control_early(struct front *f)
{
        struct jreq *list = f->early;

        f->early = NULL;
        while (list) {
                struct jreq *r = list;

                list = r->next;
                r->next = NULL;
                if (f->state != ENDING && too_early(f, r))
                        wait_for_session(f, r);
                else if (f->state == ENDING) {
                        jreq_fail(f, r, "KernelEnded", "the kernel has ended");
                        jreq_finish(f, r);
                } else
                        handle(f, r);
        }
}

void control_readable(struct cg_zsock *z, int events)
{
        struct front *f = z->data;
        struct cg_jmsg *msg;
        struct jreq *r;
        struct cg_err err;
        int rc = cg_jmsg_recv(f->socks[CG_JCONTROL], &f->sign, &f->peers[CG_JCONTROL], &msg, &err);

        (void)events;
        if (rc < 0)
                reject(f, CG_JCONTROL, &err);
        if (rc != 0)
                return;
        if (f->state == ENDING) {
                cg_jmsg_free(msg);
                return;
        }
        r = jreq_new(f, CG_JCONTROL, msg);
        if (!r)
                return;
        if (too_early(f, r))
                wait_for_session(f, r);
        else
                handle(f, r);
}
